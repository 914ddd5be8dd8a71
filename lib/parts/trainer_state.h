/* trainer_state.json of a Hugging Face Trainer from facts about the training. */
#ifndef UNS_PARTS_TRAINER_STATE_H
#define UNS_PARTS_TRAINER_STATE_H

#include "base/error.h"
#include "base/text.h"
#include "model/training.h"

/* The text as TrainerState.save_to_json writes it (indent 2, sorted keys, newline), only with keys
 * that every TrainerState since transformers 4.40 knows, and those later ones that a fact gives.
 * -ENODATA when global_step is not known. Source: transformers 4.40-5.23, trainer_callback.py. */
int uns_trainer_state_emit(const struct uns_training *training, struct uns_text *out,
			   struct uns_err *err);

/* Is this a text that TrainerState(**json) takes and a Trainer can resume from: an object of known
 * keys, integer global_step, integer train_batch_size? Else the sentence says what is wrong. */
int uns_trainer_state_check(const char *json, size_t len, struct uns_err *why);

#endif
