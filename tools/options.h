/* Options after -o: one table lists which verbs use which. Owns the strings. */
#ifndef TOOLS_OPTIONS_H
#define TOOLS_OPTIONS_H

#include "flags.h"
#include "unshard.h"

/* Verbs that take -o. */
enum verb {
	VERB_MOUNT = 1 << 0,
	VERB_LS = 1 << 1,
	VERB_SHOW = 1 << 2,
	VERB_CHECK = 1 << 3,
	VERB_EXPORT = 1 << 4,
	VERB_WARM = 1 << 5,
	VERB_DIFF = 1 << 6,
	VERB_SEAL = 1 << 7,
};

struct strings {
	const char **v;
	size_t n;
};

struct numbers {
	int v[63];
	size_t n;
};

struct options {
	struct unshard_options library; /* for unshard_open; log fields are the caller's */
	const char *log;                /* log=FILE, absolute, or NULL */
	bool allow_other, debug, seal;
	uint64_t seal_bytes_per_s; /* 0 = default */
	unsigned max_threads, read_ahead_kb; /* 0 = default */
	unsigned cache;                      /* enum fs_cache */
	struct numbers clones;
	char *fuse; /* what is passed to libfuse, separated by commas, or NULL */

	/* Private: what the pointers above point to. */
	struct strings weight_root, model, follow, fact;
	char **owned;
	size_t n_owned;
};

/* Parse one argument of -o into `o`, which is zeroed before the first. An option that `verb` does not use is
 * refused. Paths become absolute: a daemon works elsewhere. Returns 0, or a negative errno and a sentence that
 * names the option. */
int options_parse(struct options *o, unsigned verb, const char *text, struct unshard_error *err);
/* The metadata store's file, or "none" for none: --store, and -o store=. */
int options_store(struct options *o, const char *value, struct unshard_error *err);
/* Where seals are kept: --seals, and -o seals=. */
int options_seals(struct options *o, const char *value, struct unshard_error *err);
void options_fini(struct options *o);

/* An option that a verb uses, for --help and the completion of shells. */
struct option_row {
	const char *name, *value, *help; /* value NULL = takes none */
	const char *group;  /* the heading that it is listed below */
	enum names names;   /* of the value */
	bool hidden;        /* for tests */
};
/* Those of one group follow each other. */
void options_visit(unsigned verb, void (*visit)(void *ctx, const struct option_row *row), void *ctx);
/* The sentence about options that go to libfuse and the kernel; belongs to the program. */
const char *options_passed_on(void);

/* "50GB", "5GiB", "512M" (= MiB), "1000" (bytes). false = no such size. */
bool options_size(const char *text, uint64_t *bytes);

#endif
