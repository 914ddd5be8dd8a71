/* Where a parameter is among the others of Megatron-Core's model: the order in which modules register their parameters
 * (torch's named_parameters). Pure.
 *
 * Source: megatron-core 0.16.1: models/gpt/gpt_model.py, transformer/transformer_layer.py, attention.py,
 * multi_latent_attention.py, mlp.py, moe/moe_layer.py, shared_experts.py, experts.py. */
#ifndef UNS_MEGATRON_ORDER_H
#define UNS_MEGATRON_ORDER_H

#include <stdbool.h>
#include <stdint.h>

/* The first norm of a layer is a module of its own, or belongs to the projection of queries, keys and values
 * (Transformer Engine's modules). Both are saved under one name. */
enum uns_megatron_norms { UNS_MG_NORMS_APART, UNS_MG_NORMS_FUSED, UNS_MG_N_NORMS };

enum uns_megatron_where { UNS_MG_HEAD, UNS_MG_LAYER, UNS_MG_TAIL, UNS_MG_BUFFER }; /* a buffer is not trained */

struct uns_megatron_place {
	enum uns_megatron_where where;
	int64_t layer; /* of a name with its number; -1 = layers are stacked, or it is of none */
	bool is_expert;
	int64_t expert; /* likewise */
	unsigned at[UNS_MG_N_NORMS]; /* in order among those of its layer; equal for all tensors of experts */
	unsigned of_expert; /* then in order among those of one expert */
	unsigned half; /* 1, 2: of gate and up, which are one parameter and saved apart ("_w", "_v"); 0 = it is whole */
};

/* Returns false if the name is not known. */
bool uns_megatron_place_of(const char *name, struct uns_megatron_place *out);

/* How many of the first dimensions number layers and experts, which the name does not. */
uint32_t uns_megatron_leading_dims(const struct uns_megatron_place *place);

#endif
