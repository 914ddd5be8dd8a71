/* Which layers of a model are built alike, by config.json: lists with an entry for each layer (layer_types), lists of
 * layers (mlp_only_layers), numbers where layers of one kind end (first_k_dense_replace) or how often they come
 * (attn_layer_period). Pure. */
#ifndef UNS_WHOLE_LAYER_KINDS_H
#define UNS_WHOLE_LAYER_KINDS_H

#include "wire/json.h"

/* Mixes into kind[n], one number for each layer, what `config` records: two layers whose numbers differ may differ in
 * their tensors. `config`: an object that describes the layers. false = out of memory. */
bool uns_layer_kinds_add(const cJSON *config, uint64_t *kind, uint32_t n);

#endif
