/* What a tensor is in, by its name: its layer, and its kind of module with the colour that all pictures
 * give that kind. */
#ifndef TOOLS_MODULE_KINDS_H
#define TOOLS_MODULE_KINDS_H

#include <cJSON.h>

enum { N_MODULE_KINDS = 7 };

struct module_kind {
	const char *name, *colour;
	const char *const
		*marks; /* a name that has one of them, in lower case, is of this kind; NULL behind the last */
};

/* A name is of the first kind that fits; the last one has no marks and fits all. */
extern const struct module_kind module_kinds[N_MODULE_KINDS];
/* What is missing, or named by a problem. No kind has it. */
#define MODULE_MISSING_COLOUR "#d00000"

/* The index of its kind. */
size_t module_kind_of(const char *tensor_name);
/* How much of the name is its layer's: "model.layers.3" of "model.layers.3.mlp.up_proj.weight"; 0 = it is in none. */
size_t module_layer(const char *tensor_name);
/* [[name, colour, [mark]]]; NULL = out of memory, which has been reported (json.h). */
cJSON *module_kinds_json(void);

#endif
