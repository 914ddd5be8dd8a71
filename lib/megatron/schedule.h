/* scheduler.pt for a Trainer that resumes from a Megatron-Core checkpoint, which has none: a Trainer restores the
 * optimizer only beside it. Pure. */
#ifndef UNS_MEGATRON_SCHEDULE_H
#define UNS_MEGATRON_SCHEDULE_H

#include "files/resume_files.h"

/* Does every param group have its learning rate, and the highest one, and no file beside them a scheduler? */
bool uns_megatron_has_schedule(const struct uns_catalog *cat);

/* The step at which a Trainer resumes from the checkpoint; UNS_UNKNOWN = it cannot. Besides the step, a Trainer needs a
 * scheduler, which is made of the param groups. */
int64_t uns_megatron_trainer_step(const struct uns_catalog *cat, const struct uns_training *training);

/* Adds the file, as torch's LambdaLR has it after that step, with a note about it, and makes `resume` a Trainer's.
 * resume->catalog: the model's (megatron/model.h), replaced by a copy in the arena of `out`. Does nothing if a Trainer
 * cannot resume. -ENOMEM. */
int uns_megatron_schedule_add(struct uns_resume_input *resume, struct uns_vtree *out, struct uns_err *err);

#endif
