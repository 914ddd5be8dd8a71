/* The param group without parameters. A Trainer sorts parameters into two groups, those with weight decay and those
 * without, and keeps both where one is empty (of LoRA the second). DeepSpeed drops an empty one. torch loads neither an
 * optimizer nor a scheduler of another number of groups: who goes on with the one from the other needs it made or
 * left out. */
#ifndef UNS_FILES_EMPTY_GROUP_H
#define UNS_FILES_EMPTY_GROUP_H

#include "model/catalog.h"

/* Read scheduler.pt into the catalog where a view may have to change it. For formats, behind groups, companions and
 * summary.resumed_by. A file that cannot be read stays as it is. */
int uns_empty_group_find(struct uns_catalog *cat, struct uns_err *err);

/* The groups of `root` in order, with the one that DeepSpeed dropped. In the arena. */
int uns_empty_group_with(const struct uns_catalog *cat, const char *root, struct uns_arena *arena,
			 const struct uns_group ***out, size_t *n, struct uns_err *err);

enum uns_schedule_for {
	UNS_SCHEDULE_AS_SAVED,
	UNS_SCHEDULE_FOR_TRAINER,   /* with an entry for each group, the dropped one too */
	UNS_SCHEDULE_FOR_DEEPSPEED, /* without one for a group that is empty */
};

/* scheduler.pt's state dict for them; *out = NULL where it is right as it is. In the arena. */
int uns_empty_group_schedule(const struct uns_catalog *cat, enum uns_schedule_for who, struct uns_arena *arena,
			     const struct uns_value **out, struct uns_err *err);

#endif
