/* Experts that DeepSpeed's AutoEP shared out. It replaces a layer of experts of a transformers model by one whose
 * experts are three parameters, cut along their first dimension, which is that of the experts:
 *
 *   2 ranks share 4 experts    MODULE.experts.w1 [4, 12, 16]    rank 0: [2, 12, 16], experts 0 1    rank 1: experts 2 3
 *
 * w1 is the gate, w3 up, w2 down. Which ranks of data parallelism share a layer, and which have the same experts, is
 * as with deepspeed.moe (parallel/experts.h). The router is MODULE.router; the model knows it by a second name too.
 * Model files have all of it in "ds_autoep_layers": [{moe_layer_id, module_path, expert_key_prefix, num_experts,
 * ep_size, ep_rank, affine_maps: {version, params: {name: map}}, ..}]. Source: deepspeed 0.19.8,
 * module_inject/auto_ep_layer.py, checkpoint/autoep_affine.py, runtime/engine.py (_save_moe_checkpoint). */
#ifndef UNS_ZERO_AUTOEP_H
#define UNS_ZERO_AUTOEP_H

#include "parallel/experts.h"
#include "parallel/slices.h"

struct uns_zero_autoep_layer {
	int32_t number;     /* in the names of the experts' files */
	uint64_t n_experts;
	const char *module; /* "model.layers.0.mlp" */
	const struct uns_value *params; /* {name: map}: the experts' parameters, in order */
};

struct uns_zero_autoep {
	struct uns_zero_slices slices; /* n_ranks: that share the experts; may be 1 */
	struct uns_zero_autoep_layer *layer;
	size_t n; /* 0 = there is no such layer */
	size_t rank; /* the one that wrote the file, among those that share */
};
void uns_zero_autoep_fini(struct uns_zero_autoep *autoep);

/* layers: a model file's "ds_autoep_layers", which may be NULL or None; file: its path. Everything lives in the arena.
 * What cannot be understood, or a map that does not cover its parameter exactly once, fails with a finding. */
int uns_zero_autoep_read(const struct uns_value *layers, const char *file, struct uns_arena *arena,
			 struct uns_zero_autoep *out, struct uns_err *err);

/* If `name` is the second name of something in a router, *out is the first, "MODULE.router..", in the arena; else NULL.
 * Only -ENOMEM. */
int uns_zero_autoep_router(const struct uns_zero_autoep *autoep, const char *name, struct uns_arena *arena,
			   const char **out, struct uns_err *err);

/* A group whose parameters are AutoEP's, as the rank that wrote the file lists them; n: how many ranks share them.
 * Everything lives in the arena. Fails with a finding that names the parameter where a map is not that of the shapes,
 * and with -ENOTSUP if another number of ranks shares. */
int uns_zero_autoep_spread(const struct uns_zero_shapes *of, const struct uns_zero_autoep *autoep, const char *file,
			   size_t n, struct uns_arena *arena, struct uns_zero_spread *out, struct uns_err *err);

#endif
