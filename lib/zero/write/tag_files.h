/* A DeepSpeed tag directory as another number of data-parallel ranks would have written it: each
 * rank's optimizer shard, and the model file or files. */
#ifndef UNS_ZERO_WRITE_TAG_FILES_H
#define UNS_ZERO_WRITE_TAG_FILES_H

#include "model/tree.h"
#include "zero/write/plan.h"

struct uns_zero_naming {
	const char *dir; /* "global_step2/"; "" = the files are in the checkpoint's directory itself */
	const char *prefix; /* of the optimizer's shards: "bf16_" or "" */
};

/* How the checkpoint of `n_mp` tensor-parallel ranks, or pipeline stages, calls its files. */
int uns_zero_naming_find(const struct uns_catalog *cat, size_t n_mp, struct uns_arena *arena,
			 struct uns_zero_naming *out, struct uns_err *err);

/* Everything that the files are made of is there. */
int uns_zero_files_check(const struct uns_zero_plan *plan, struct uns_err *err);

/* The files of the plan's rank of tensor parallelism, of its pipeline stage, or of the ranks that have its share of the
 * experts. */
int uns_zero_files_add(const struct uns_zero_plan *plan, const struct uns_zero_naming *names, struct uns_vtree *out,
		       struct uns_err *err);

#endif
