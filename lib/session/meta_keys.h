/* Which facts there are: names as TrainerState and TrainingArguments have them, and what may stand in
 * them. Private to lib/session. */
#ifndef UNS_SESSION_META_KEYS_H
#define UNS_SESSION_META_KEYS_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "base/error.h"

/* Known, and taken over from files that are imported. */
bool meta_key_known(const char *key);
/* [a-z0-9_.-]+, and for a known key a value of its type. */
int meta_key_check(const char *key, const cJSON *value, struct uns_err *err);

#endif
