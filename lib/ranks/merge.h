/* The same tensor seen by many ranks, into one tensor with many pieces. Private to
 * ranks/files.c, which knows the files; this part knows tensors. */
#ifndef UNS_RANKS_MERGE_H
#define UNS_RANKS_MERGE_H

#include "base/map.h"
#include "model/catalog.h"
#include "ranks/findings.h"
#include "ranks/params.h"
#include "ranks/view.h"

/* One of the files. */
struct uns_rank_read {
	const char *path; /* NULL = not even opened */
	int32_t rank;     /* by its name; -1 = unknown */
	int64_t writer;   /* the rank that its content names; -1 = none */
	bool whole;       /* read to its end */
};

struct uns_rank_merge {
	struct uns_catalog *cat;
	enum uns_scope scope; /* what a problem with one of the tensors keeps from being served */
	struct uns_arena scratch;
	struct uns_map by_key, unread; /* unread: keys of tensors that some file holds unreadably */
	struct uns_merged *first, *last;
	struct uns_rank_read *file;
	size_t n_files, n_read;
	size_t n_sharded;   /* tensors that some rank holds as a wrapper */
	uint64_t mesh_size; /* ranks of the largest device mesh; 0 = none is recorded */
	struct uns_rank_findings findings;
};

int uns_rank_merge_init(struct uns_rank_merge *m, struct uns_catalog *cat, enum uns_scope scope, size_t n_files,
			struct uns_err *err);
void uns_rank_merge_fini(struct uns_rank_merge *m);

/* v: a tensor or a wrapper. like: name, key, root, role and state, copied (but for root, a constant); the rest is found
 * out. What is wrong with the tensor becomes a problem; fails only when memory is out. */
int uns_rank_merge_add(struct uns_rank_merge *m, struct uns_rank_source *source, const struct uns_tensor *like,
		       const struct uns_value *v, struct uns_err *err);

/* What should be a tensor, and is an object of class `cls`. */
int uns_rank_merge_add_unknown(struct uns_rank_merge *m, struct uns_rank_source *source, const char *key,
			       const char *cls, struct uns_err *err);

/* Around all the tensors of a file. When it has ended, what it lacks it lacks. source->path is borrowed. */
void uns_rank_merge_begin_file(struct uns_rank_merge *m, const struct uns_rank_source *source);
void uns_rank_merge_end_file(struct uns_rank_merge *m, const struct uns_rank_source *source);

/* Every tensor is complete without the files that were not read: the ranks that were are replicas
 * of them (HSDP). False where that is not recorded, or something is wrong. */
bool uns_rank_merge_is_whole(const struct uns_rank_merge *m);

/* Files whose content names another rank than their name. */
size_t uns_rank_merge_renamed(const struct uns_rank_merge *m);

/* Hand everything to the catalog, in order of first appearance. Weights that share their bytes on
 * every rank become aliases. */
int uns_rank_merge_emit(struct uns_rank_merge *m, struct uns_err *err);

/* Lists the tensors that FSDP treats as parameters, in order, after uns_rank_merge_emit: floating ones that are held as
 * wrappers (all, if none is) and are no second name of another. twin: a matrix with the bytes of an earlier one on
 * every rank, by recorded CRCs, as FSDP1 saves tied weights twice. */
int uns_rank_merge_params(struct uns_rank_merge *m, struct uns_rank_params *out, struct uns_err *err);

#endif
