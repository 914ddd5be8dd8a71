/* A directory that is named as a checkpoint and holds none: what its name and its content show about
 * why. Pure: the session lists it. */
#ifndef UNS_CHECK_LEFTOVER_H
#define UNS_CHECK_LEFTOVER_H

#include "io/source.h"
#include "model/finding.h"

enum uns_checkpoint_name {
	UNS_NAME_OTHER,
	UNS_NAME_TRAINER,         /* checkpoint-12 */
	UNS_NAME_TRAINER_STAGING, /* tmp-checkpoint-12 */
	UNS_NAME_LIGHTNING,       /* X.ckpt */
	UNS_NAME_STEP, /* global_step12, step-12, step_12, step12, iter_0000012, epoch_3 */
};

enum uns_checkpoint_name uns_checkpoint_name_of(const char *name);

struct uns_leftover {
	enum uns_checkpoint_name name;
	size_t n_files;        /* regular files at any depth */
	bool unread;           /* some_file may hold weights, in a form that is not known */
	const char *some_file; /* one of them, NULL = none */
};

/* Is a file, by its name, one without weights: configs, random states, schedulers, logs? */
bool uns_leftover_is_weightless(const char *file);

/* What that is. */
enum uns_finding_id uns_leftover_id(const struct uns_leftover *l);

#endif
