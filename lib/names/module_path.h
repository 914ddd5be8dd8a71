/* A tensor's name, taken apart at its dots: its layer, and its expert. */
#ifndef UNS_NAMES_MODULE_PATH_H
#define UNS_NAMES_MODULE_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How much of the name is the layer's ("model.layers.3"); 0 = it is in none. */
size_t uns_name_layer(const char *name);
/* What follows the component "experts"; NULL = there is none. */
const char *uns_name_behind_experts(const char *name);
/* Is the component that begins at `s` a number? */
bool uns_name_is_number(const char *s);
/* A tensor's number of experts if it holds those of a layer, one behind the other along its first dimension
 * ("model.layers.3.mlp.experts.gate_up_proj", three dimensions); else 0. */
uint64_t uns_name_experts(const char *name, const uint64_t *shape, uint32_t n_dims);

#endif
