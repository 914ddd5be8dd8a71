/* How tensor parallelism cuts parameters, or AutoEP those of the experts, before ZeRO cuts what is left: each
 * model-parallel rank holds a slice of each parameter. A slice is a tensor whose boxes are boxes of the parameter:
 *
 *   parameter [16, 12], fused from three   [ q0 q1 | k0 k1 | v0 v1 ]
 *   slice of rank 0 [8, 12]                [ q0 k0 v0 ]         slice of rank 1 [ q1 k1 v1 ]
 *
 * A box that several ranks hold (as a norm's weight) belongs to the lowest of them here. Source: the maps that
 * deepspeed >= 0.19 puts into model files, universal_checkpoint_info["affine_map"] (checkpoint/affine.py); affine.py's
 * "source" is the parameter's side, its "dest" the slice's. */
#ifndef UNS_ZERO_SLICES_H
#define UNS_ZERO_SLICES_H

#include "base/map.h"
#include "model/catalog.h"

struct uns_zero_block {
	struct uns_box whole, slice; /* the same lengths in both */
};

struct uns_zero_slice {
	struct uns_shape shape;
	struct uns_zero_block *block; /* n: first the n_own that belong to this rank */
	size_t n, n_own;
};

/* One parameter's. */
struct uns_zero_cut_up {
	struct uns_shape whole;
	struct uns_zero_slice *slice; /* of each rank */
};

struct uns_zero_slices {
	size_t n_ranks; /* that have slices; 1 = nothing is cut: then by_name is empty, but for AutoEP's */
	struct uns_map by_name; /* parameter -> struct uns_zero_cut_up */
};
void uns_zero_slices_fini(struct uns_zero_slices *slices);

/* Read the maps of a model file. info: its "universal_checkpoint_info"; file: its path. Everything lives in the arena.
 * What cannot be understood, or does not cover its parameter exactly once, fails with a finding that names parameter
 * and rank. */
int uns_zero_slices_read(const struct uns_value *info, const char *file, size_t n_ranks, struct uns_arena *arena,
			 struct uns_zero_slices *out, struct uns_err *err);

/* The same for the maps of one layer of experts, "affine_maps" (parallel/autoep.h), of out->n_ranks ranks; adds to
 * *out. */
int uns_zero_slices_read_experts(const struct uns_value *map, const char *file, struct uns_arena *arena,
				 struct uns_zero_slices *out, struct uns_err *err);

/* Both model files record the same cuts; fails with a finding. */
int uns_zero_slices_compare(const struct uns_zero_slices *a, const char *a_file, const struct uns_zero_slices *b,
			    const char *b_file, size_t b_rank, struct uns_err *err);

/* NULL: it is not cut, or not recorded. */
static inline const struct uns_zero_cut_up *uns_zero_cut_find(const struct uns_zero_slices *slices, const char *name)
{
	return uns_map_get(&slices->by_name, name);
}

/* The same, and fails with a finding about rank's `file` where it is not recorded. */
int uns_zero_cut_get(const struct uns_zero_slices *slices, const char *name, const char *file, int32_t rank,
		     const struct uns_zero_cut_up **out, struct uns_err *err);
/* Rank's `file` holds a tensor of this shape as the slice; fails with a finding. */
int uns_zero_slice_check(const struct uns_zero_slice *slice, const struct uns_shape *shape, const char *file,
			 const char *name, int32_t rank, struct uns_err *err);
/* Fails: the file has no slice of the parameter. */
int uns_zero_slice_absent(const char *file, const char *name, int32_t rank, struct uns_err *err);

#endif
