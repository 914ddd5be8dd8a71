/* The moving mean of the weights that a training keeps and saves beside them: under which keys, and with which names.
 */
#ifndef UNS_NAMES_EMA_NAMES_H
#define UNS_NAMES_EMA_NAMES_H

#include <stdbool.h>

/* The top-level keys of a saved state under which it is looked for; ends with NULL. */
extern const char *const uns_ema_keys[];

bool uns_ema_is_key(const char *key);

/* The name of its weight in the model; NULL = it is no weight. torch's AveragedModel puts "module." in front, and
 * counts in "n_averaged" (torch 2.13, optim/swa_utils.py). */
const char *uns_ema_weight(const char *name);

#endif
