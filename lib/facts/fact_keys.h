/* Which facts exist: their keys, which are those of TrainerState and TrainingArguments, and the values that each key
 * takes. */
#ifndef UNS_FACTS_FACT_KEYS_H
#define UNS_FACTS_FACT_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* Is `key` one that unshard uses? Only such keys are taken from files that are imported. */
bool fact_key_known(const char *key);
/* Those keys, in no order: NULL = there are no more than i. */
const char *fact_key_at(size_t i);
/* Checks that `key` consists of a-z, 0-9, '_', '.' and '-', and that `json` (JSON text) is a value that a mount can use
 * for it. Any value is right for a key that is not known. Otherwise fails with -EINVAL and a sentence with what is
 * expected. */
int fact_key_check(const char *key, const char *json, struct uns_err *err);

#endif
