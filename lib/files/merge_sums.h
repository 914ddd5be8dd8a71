/* The weights of a base model, and what adapters add to each of them. */
#ifndef UNS_FILES_MERGE_SUMS_H
#define UNS_FILES_MERGE_SUMS_H

#include "base/map.h"
#include "model/sum_tensor.h"
#include "model/tree.h"

struct uns_merge_weight {
	struct uns_named_tensor shown; /* under its name in the base model */
	enum uns_dtype dtype;        /* in the base model */
	bool changed, replaced; /* its elements are computed; are the adapter's own */
	struct uns_sum sum; /* of what is added, and how that sum is scaled; the weight itself is not among the terms */
};

struct uns_merge_sums {
	const struct uns_catalog *catalog; /* whose files have the elements */
	struct uns_arena *arena;
	enum uns_dtype out; /* of floating tensors; UNS_DTYPE_NONE = that of the base model's */
	struct uns_merge_weight *v;
	size_t n, cap;
	struct uns_map at; /* name -> index into v */
};

/* Call it whatever the others returned. */
void uns_merge_sums_fini(struct uns_merge_sums *sums);

/* Adds a weight. -ENOTSUP if there is one of this name. */
int uns_merge_sums_put(struct uns_merge_sums *sums, const struct uns_tensor *t, const char *name, struct uns_err *err);

/* NULL = there is none of this name. */
struct uns_merge_weight *uns_merge_sums_find(const struct uns_merge_sums *sums, const char *name);
/* The same of MODULE.PART; -ENOTSUP with a sentence if there is none. */
int uns_merge_sums_need(const struct uns_merge_sums *sums, const char *module, const char *part,
			struct uns_merge_weight **out, struct uns_err *err);

/* Adds a term to the weight's sum. Of a product, `columns` is what lies behind each index of its rows. */
int uns_merge_sums_add(struct uns_merge_sums *sums, struct uns_merge_weight *weight, uint64_t columns,
		       const struct uns_term *term, struct uns_err *err);
/* Sets the scale of the weight's sum. -ENOTSUP if it has one. */
int uns_merge_sums_scale(struct uns_merge_weight *weight, const struct uns_scale *scale, struct uns_err *err);

/* Puts its sum in the place of each weight that changes. *n = how many do. */
int uns_merge_sums_make(struct uns_merge_sums *sums, size_t *n, struct uns_err *err);

#endif
