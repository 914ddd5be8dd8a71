/* scheduler.pt for a Trainer that resumes from a Megatron-Core checkpoint, which has none: a Trainer restores the
 * optimizer only beside it. Pure. */
#ifndef UNS_MEGATRON_SCHEDULE_H
#define UNS_MEGATRON_SCHEDULE_H

#include "model/tree.h"

/* Does every param group have its learning rate, and the highest one? */
bool uns_megatron_has_schedule(const struct uns_catalog *cat);

/* The file, as torch's LambdaLR has it after `step` steps, and a note about it. `model`: megatron/model.h. */
int uns_megatron_schedule_add(const struct uns_catalog *model, int64_t step, struct uns_vtree *out,
			      struct uns_err *err);

#endif
