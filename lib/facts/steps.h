/* Which files of a checkpoint record how far the training was, and whether they agree. Files of two saves in one
 * directory have the sizes and names of one save; the steps that they record differ. */
#ifndef UNS_FACTS_STEPS_H
#define UNS_FACTS_STEPS_H

#include "facts/steps_found.h"
#include "facts/training_input.h"

/* Compares all that is recorded about the step (the table is in steps.c), and the steps of the optimizer's parameters
 * with each other. Reads small files, and the step of each parameter of the optimizer: one or two reads each, several
 * at once. A file that is damaged is passed over: other findings report it. Fails for reasons of the moment. */
int steps_compare(const struct training_input *in, struct steps_found *out, struct uns_err *err);
void steps_found_fini(struct steps_found *found);

#endif
