/* JSON by cJSON, bounded, with the few typed getters that readers of checkpoint files need. */
#ifndef UNS_WIRE_JSON_H
#define UNS_WIRE_JSON_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/span.h"

/* Whole input must be one value (Python's NaN, Infinity and -Infinity are read as null).
 * Caller owns *out: cJSON_Delete, or UNS_CLEANUP(uns_json_free_p). -EBADMSG with the position;
 * -ENOTSUP a value that takes more memory than base/budget.h allows. */
int uns_json_parse(struct uns_span in, cJSON **out, struct uns_err *err);
void uns_json_free_p(cJSON **json);

/* false when absent or of another type; numbers must be integers where one is asked. */
bool uns_json_int(const cJSON *object, const char *key, int64_t *out);
bool uns_json_bool(const cJSON *object, const char *key, bool *out);
const char *uns_json_str(const cJSON *object, const char *key);

#endif
