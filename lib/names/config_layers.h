/* What config.json records of the inside of a layer, compared with the tensors of the layers. */
#ifndef UNS_NAMES_CONFIG_LAYERS_H
#define UNS_NAMES_CONFIG_LAYERS_H

#include "model/catalog.h"
#include "wire/json.h"

/* Tensors of a layer whose rows follow from config.json. */
enum uns_layer_rows { UNS_ROWS_Q, UNS_ROWS_K, UNS_ROWS_GATE, UNS_N_LAYER_ROWS };

/* UNS_UNKNOWN = config.json does not have it, or the family has a rule of its own. */
struct uns_config_layers {
	int64_t columns;
	int64_t rows[UNS_N_LAYER_ROWS];
	int64_t n_experts;
};

/* By the keys of the text model's object. `type`: its model_type; may be NULL. */
struct uns_config_layers uns_config_layers_read(const cJSON *text, const char *type);

/* prefix: what the names of the text model's layers begin with. -EBADMSG as uns_config_check. O(tensors). */
int uns_config_layers_check(const struct uns_config_layers *layers, const struct uns_catalog *cat, const char *prefix,
			    size_t prefix_len, struct uns_err *err);

#endif
