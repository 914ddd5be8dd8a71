/* trainer_state.json of a Hugging Face Trainer from facts about the training. */
#ifndef UNS_FILES_TRAINER_STATE_H
#define UNS_FILES_TRAINER_STATE_H

#include "base/error.h"
#include "base/span.h"
#include "base/text.h"
#include "model/training.h"

/* The text as TrainerState.save_to_json writes it (indent 2, sorted keys, newline), only with keys
 * that every TrainerState since transformers 4.40 knows, and those later ones that a fact gives (null
 * leaves such a key out: no other value suits all versions).
 * What no fact gives is TrainerState's own default: no metric, an empty history.
 * -ENODATA when global_step is not known. Source: transformers 4.40-5.23, trainer_callback.py. */
int uns_trainer_state_emit(const struct uns_training *training, struct uns_text *out,
			   struct uns_err *err);

/* Is this a text that TrainerState(**json) takes and a Trainer can resume from: an object, integer
 * global_step and train_batch_size, cadences that are positive numbers, everything else of its own
 * type? Else the sentence says what is wrong. `unknown` (may be NULL) receives a key that no
 * TrainerState up to 5.23 knows, in its quotes: only the version that wrote it will take it. */
int uns_trainer_state_check(const char *json, size_t len, struct uns_span *unknown,
			    struct uns_err *why);

/* Is `json` a value for this key? -EINVAL with what is expected, also for an unknown key. */
int uns_trainer_state_check_fact(const char *key, const char *json, struct uns_err *why);

/* What this key takes, in words ("a positive number"); NULL = there is no such key. `nullable` may be
 * NULL. */
const char *uns_trainer_state_takes(const char *key, bool *nullable);

/* The i-th key, in order; NULL behind the last. */
const char *uns_trainer_state_key(size_t i);

/* The i-th of the numbers and lists that the file gives although no fact does ("epoch", "total_flos"), with
 * what it gives in *json; NULL behind the last. Process flags and nulls are not counted: they hold for
 * every checkpoint, or say nothing. */
const char *uns_trainer_state_made_up(const struct uns_training *training, size_t i,
				      const char **json);

/* What is taken for train_batch_size and the cadences when nothing tells: the defaults of
 * TrainingArguments (per_device_train_batch_size) and TrainerState. NULL for other keys. */
const char *uns_trainer_state_assumed(const char *key);

#endif
