/* The same tensor seen by many ranks, into one tensor with many pieces. Private to
 * shards/rank_files.c, which knows the files; this part knows tensors. */
#ifndef UNS_SHARDS_RANK_MERGE_H
#define UNS_SHARDS_RANK_MERGE_H

#include "base/map.h"
#include "model/catalog.h"
#include "wire/torchfile.h"

/* One rank's file while it is open. */
struct uns_rank_source {
	const char *path;
	uint32_t file; /* in the catalog */
	int32_t rank;  /* by the file's name; -1 = unknown */
	const struct uns_torchfile *torch;
	bool told_rank; /* that the content names another rank: once per file is enough */
};

struct uns_rank_merge {
	struct uns_catalog *cat;
	enum uns_scope scope; /* what a problem with one of the tensors keeps from being served */
	struct uns_arena scratch;
	struct uns_map by_key;
	struct uns_merged *first, *last;
	size_t n_sharded;  /* tensors that some rank holds as a wrapper */
	size_t n_problems; /* sentences about tensors; the first few are kept */
};

void uns_rank_merge_init(struct uns_rank_merge *m, struct uns_catalog *cat, enum uns_scope scope);
void uns_rank_merge_fini(struct uns_rank_merge *m);

/* v: a tensor or a wrapper. like: name, key, root, role and state, copied (but for root, a
 * constant); the rest is found out. What is wrong with the tensor becomes a problem; fails only
 * when memory is out. */
int uns_rank_merge_add(struct uns_rank_merge *m, struct uns_rank_source *source,
		       const struct uns_tensor *like, const struct uns_value *v,
		       struct uns_err *err);

/* Hand everything to the catalog, in order of first appearance. Weights that share their bytes on
 * every rank become aliases. */
int uns_rank_merge_emit(struct uns_rank_merge *m, struct uns_err *err);

/* Once emitted: visit the tensors that FSDP treats as parameters, in order: floating ones that are
 * held as wrappers (all, where none is) and are no second name of another. twin: a matrix whose
 * bytes are an earlier one's on every rank, by recorded CRCs: tied weights that FSDP1 saved twice
 * look so. */
int uns_rank_merge_each_param(struct uns_rank_merge *m,
			      int (*visit)(void *ctx, const struct uns_tensor *t, bool twin),
			      void *ctx);

#endif
