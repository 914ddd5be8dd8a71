/* The numbers of a model that determine its tensors' shapes, from its config.json. Pure. */
#ifndef UNS_MEGATRON_SIZES_H
#define UNS_MEGATRON_SIZES_H

#include "base/arena.h"
#include "base/error.h"
#include "base/span.h"
#include "megatron/table.h"

#include <stdbool.h>
#include <stdint.h>

struct uns_megatron_sizes {
	uint64_t v[UNS_MG_N_SIZES]; /* 0 = config.json does not have it */
	const uint64_t *dense_layer; /* mlp_only_layers: numbers of layers without experts */
	size_t n_dense_layers;
	const uint64_t *sparse_layer; /* moe_layers: numbers of layers with experts; NULL = the list is absent */
	size_t n_sparse_layers;
	const bool *linear_layer; /* by layer_types: is its attention linear? */
	size_t n_linear_layer;
	uint64_t full_attention_step; /* full_attention_interval: every n-th layer has softmax attention; 0 = all */
	/* Of a hybrid model, what each layer is: 'M' Mamba, '*' attention, '-' an MLP, 'E' experts. NULL = of no such.
	 */
	const char *hybrid;
	bool attention_bias, mlp_bias, qk_norm, conv_bias;
	bool vision_bias, vision_qk_norm, vision_centred;
};

/* `config`: config.json's text. If it has a text model inside, the numbers are that model's. -EBADMSG if two numbers
 * contradict each other. */
int uns_megatron_sizes_read(struct uns_span config, struct uns_arena *arena, struct uns_megatron_sizes *out,
			    struct uns_err *err);

/* The dimensions of a row's `columns`, in order. Returns how many. */
enum { UNS_MG_MAX_DIMS = 4 };
size_t uns_megatron_dims(enum uns_megatron_size columns, enum uns_megatron_size out[UNS_MG_MAX_DIMS]);

/* config.json's key of a number, for sentences. */
const char *uns_megatron_size_key(enum uns_megatron_size size);

/* Has the layer a gated delta net in place of softmax attention? Layers behind the model's own have none. */
bool uns_megatron_is_linear(const struct uns_megatron_sizes *s, uint64_t layer);

/* What a layer of a hybrid model is; 0 = it is a layer of another model, or behind the model's own. */
char uns_megatron_hybrid_layer(const struct uns_megatron_sizes *s, uint64_t layer);

/* Has the layer experts? */
bool uns_megatron_is_sparse(const struct uns_megatron_sizes *s, uint64_t layer);

#endif
