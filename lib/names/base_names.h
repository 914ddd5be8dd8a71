/* What the files of a model in some directory call its tensors. */
#ifndef UNS_NAMES_BASE_NAMES_H
#define UNS_NAMES_BASE_NAMES_H

#include "names/published_names.h"
#include "io/seen.h"

struct base_files {
	const struct uns_root *root;
	struct uns_capture *capture; /* may be NULL */
	const char *dir;
	const char *stem;       /* "model": the files are STEM.safetensors, or those of STEM.safetensors.index.json */
	const char *model_type; /* may be NULL */
	bool all_shapes; /* else only of tensors that this family's files may have transposed */
};

/* Reads the names from the index, else from the header of the one file, and shapes from the headers of their files. If
 * there is no file with names, out->n is 0. */
int base_names_read(const struct base_files *files, struct uns_arena *arena, struct uns_base_names *out,
		    struct uns_err *err);

#endif
