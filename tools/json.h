/* JSON that a command prints. What there is no memory for is left out, and then nothing is printed and the command
 * fails (command_no_memory). Objects may be NULL. */
#ifndef TOOLS_JSON_H
#define TOOLS_JSON_H

#include <cJSON.h>

#include "unshard.h"

cJSON *json_object(void);
cJSON *json_array(void);
/* Valid UTF-8, U+FFFD for each byte that is none (names of SOURCE may be anything). NULL = null. */
cJSON *json_string(const char *text);

void json_add(cJSON *object, const char *key, const char *text);
void json_add_number(cJSON *object, const char *key, double number);
/* To the last bit; null for what JSON has no number for. */
void json_add_exact(cJSON *object, const char *key, double number);
void json_add_null(cJSON *object, const char *key);
/* The sizes of its dimensions; null for a tensor that is NULL. */
void json_add_shape(cJSON *object, const char *key, const struct unshard_tensor *tensor);
/* These own the value. */
void json_add_value(cJSON *object, const char *key, cJSON *value);
void json_append(cJSON *array, cJSON *value);

/* What a repair or an export has changed, as --json has it; path: the change's, as JSON spells it. */
void json_append_change(cJSON *array, const struct unshard_change *change, const char *path);

/* With a newline. */
void json_print(const cJSON *value);

#endif
