/* trainer_state.json of a Hugging Face Trainer from facts about the training. */
#ifndef UNS_FILES_TRAINER_STATE_H
#define UNS_FILES_TRAINER_STATE_H

#include "base/error.h"
#include "base/span.h"
#include "base/text.h"
#include "model/training.h"

/* The text as TrainerState.save_to_json writes it (indent 2, sorted keys, newline). It has the keys that every
 * TrainerState since transformers 4.40 knows, and a later key only if a fact gives it (the fact null leaves it out,
 * because no other value suits all versions). Without a fact, a key has TrainerState's own default: no metric, an empty
 * history. -ENODATA if global_step is not known. Source: transformers 4.40-5.23, trainer_callback.py. */
int uns_trainer_state_emit(const struct uns_training *training, struct uns_text *out, struct uns_err *err);

/* Returns 0 if TrainerState(**json) takes this text: an object, integer global_step, positive cadences, every other key
 * of its own type. Otherwise fails with -EBADMSG and the reason. Keys that uns_trainer_state_absent names may be
 * absent. `unknown` (may be NULL) receives a key, in its quotes, that no TrainerState up to 5.23 knows: only the
 * version that wrote it will take it. */
int uns_trainer_state_check(const char *json, size_t len, struct uns_span *unknown, struct uns_err *why);

/* The i-th key that TrainerState has a default for (train_batch_size: None), on which a Trainer acts, and that this
 * text does not have; a train_batch_size of null counts as absent. NULL after the last. The text must have passed
 * uns_trainer_state_check. Without train_batch_size the Trainer of transformers 5.23 ends with a TypeError
 * (trainer_utils.py, compare_trainer_and_checkpoint_args); without a cadence it uses 500 instead of its own argument.
 */
const char *uns_trainer_state_absent(const char *json, size_t len, size_t i);

/* Returns 0 if `json` is a value for this key. -EINVAL with what is expected, also for an unknown key. */
int uns_trainer_state_check_fact(const char *key, const char *json, struct uns_err *why);

/* What this key takes, in words ("a positive number"); NULL = there is no such key. `nullable` may be NULL. */
const char *uns_trainer_state_takes(const char *key, bool *nullable);

/* The i-th key, in order; NULL after the last. */
const char *uns_trainer_state_key(size_t i);

/* The i-th of the numbers and lists that the file has although no fact gives them ("epoch", "total_flos"), with the
 * value in *json; NULL after the last. Process flags and nulls are not counted: they are the same for every checkpoint,
 * or mean nothing. */
const char *uns_trainer_state_made_up(const struct uns_training *training, size_t i, const char **json);

/* The value that is assumed for train_batch_size and the cadences if no fact gives one: the default of
 * TrainingArguments (per_device_train_batch_size) and TrainerState. NULL for other keys. */
const char *uns_trainer_state_assumed(const char *key);

#endif
