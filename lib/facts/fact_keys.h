/* Which facts there are: names as TrainerState and TrainingArguments have them, and what may stand in
 * them. */
#ifndef UNS_FACTS_FACT_KEYS_H
#define UNS_FACTS_FACT_KEYS_H

#include <stdbool.h>

#include "base/error.h"

/* Known, and taken over from files that are imported. */
bool fact_key_known(const char *key);
/* [a-z0-9_.-]+, and for a known key a value that a mount takes. `json` is JSON text. -EINVAL with what is
 * expected. */
int fact_key_check(const char *key, const char *json, struct uns_err *err);

#endif
