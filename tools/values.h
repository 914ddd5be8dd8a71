/* `unshard show --values`: what the elements of a checkpoint's tensors are. */
#ifndef TOOLS_VALUES_H
#define TOOLS_VALUES_H

#include <cJSON.h>

#include "unshard.h"

/* [{name, state, .., magnitudes: [exponent of the first, count, ..], ..}], as docs/show.md describes it; reads all
 * data, with progress on a terminal. *json for cJSON_Delete. An exit status. */
int values_read(unshard *u, const char *checkpoint, cJSON **json);
/* As a table: a row for each layer and each kind of tensor. */
void values_print(const cJSON *json);

#endif
