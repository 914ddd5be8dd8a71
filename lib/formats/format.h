/* What a format is: one file in this folder that turns a directory into a catalog. CMake collects
 * lib/formats/X.c into a table of uns_format_X, so adding a format is adding one file. */
#ifndef UNS_FORMATS_FORMAT_H
#define UNS_FORMATS_FORMAT_H

#include "model/catalog.h"

struct uns_format_options {
	const char *const *weight_roots; /* `-o weights_key=`: instead of "model" and "state_dict" */
	size_t n_weight_roots;
	bool assume_fsdp_units; /* -o assume=fsdp-units (ranks/units.h) */
	const char *fsdp_units; /* a unit map that was imported, JSON; NULL = none */
	bool fsdp_units_stale;  /* it was imported for other files than are there now */
};

struct uns_format {
	const char *name;
	enum uns_family family; /* that its catalogs' summaries have, known without opening one */
	bool is_one_file;
	/* Looks at names only (it may list sub-directories by uns_list_seen, never read a file). 0 = not mine; the
	 * format with the highest answer opens. Give: 30 files of a kind, 60 typical layout, 90
	 * unmistakable. */
	int (*probe)(const struct uns_directory *dir);
	/* Instead of `probe`, for checkpoints that are one file: what their names end with (the list with NULL); 1 =
	 * mine, 0 = not. May read the file; fails only in passing. */
	const char *const *file_endings;
	int (*probe_file)(const struct uns_root *root, const char *path, struct uns_err *err);
	/* Of a directory that no format's probe takes: is it the beginning of one of mine? By names, like
	 * probe: what only such a save or copy brings is there, what probe goes by is not (yet). It is
	 * hidden while something in it changes (-o settle=), so it must be none that holds other
	 * checkpoints. NULL = never. */
	bool (*begun)(const struct uns_directory *dir);
	/* Fill and seal the catalog. Fails only when nothing at all is known; damage to a part
	 * becomes a problem with its scope, and the rest is served. */
	int (*open)(const struct uns_directory *dir, const struct uns_format_options *options, struct uns_catalog *cat,
		    struct uns_err *err);
	bool wants_units; /* open looks at fsdp_units */
	/* Names of files above a checkpoint that its writer writes last, NULL at the end, and in how many of the
	 * directories above it they may lie. NULL = there are none. */
	const char *const *marks;
	unsigned marks_up;
};

extern const struct uns_format *const uns_formats[]; /* ends with NULL */

#endif
