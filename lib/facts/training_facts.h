/* What is known about the training that a checkpoint belongs to, merged from all files and facts that record something
 * about it. */
#ifndef UNS_FACTS_TRAINING_FACTS_H
#define UNS_FACTS_TRAINING_FACTS_H

#include "facts/training_input.h"

/* Reads small files of the checkpoint and of those beside it, and the optimizer's step if no other file records the
 * step. Fails if one of these files could not be read at this moment. */
int training_collect(const struct training_input *in, struct training_found *out, struct uns_err *err);
void training_found_fini(struct training_found *found);

/* Checks that `text` is a KEY=VALUE that -o fact= takes; otherwise fails with -EINVAL. */
int training_check_option(const char *text, struct uns_err *err);

#endif
