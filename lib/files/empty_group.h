/* The param group without parameters. A Trainer always has two groups of parameters, with and without weight decay,
 * also if one is empty (the second, with LoRA). DeepSpeed drops an empty group. torch loads neither an optimizer nor a
 * scheduler with another number of groups. So views for one framework add the empty group to the other's checkpoints,
 * or leave it out. */
#ifndef UNS_FILES_EMPTY_GROUP_H
#define UNS_FILES_EMPTY_GROUP_H

#include "model/catalog.h"

/* Read scheduler.pt into the catalog if a view may have to change it. For formats: call it after groups, companions and
 * summary.resumed_by are set. A file that cannot be read is shown unchanged. */
int uns_empty_group_find(struct uns_catalog *cat, struct uns_err *err);

/* The groups of `root` in order, with the group that DeepSpeed dropped. In the arena. */
int uns_empty_group_with(const struct uns_catalog *cat, const char *root, struct uns_arena *arena,
			 const struct uns_group ***out, size_t *n, struct uns_err *err);

enum uns_schedule_for {
	UNS_SCHEDULE_AS_SAVED,
	UNS_SCHEDULE_FOR_TRAINER, /* with an entry for each group, the dropped one too */
	UNS_SCHEDULE_FOR_DEEPSPEED, /* without one for a group that is empty */
};

/* scheduler.pt's state dict for that framework; *out = NULL if the file needs no change. In the arena. */
int uns_empty_group_schedule(const struct uns_catalog *cat, enum uns_schedule_for framework, struct uns_arena *arena,
			     const struct uns_value **out, struct uns_err *err);

#endif
