/* The directory that holds tag directories of a DeepSpeed checkpoint, and what a trainer puts beside
 * them. Finds which tag it is, and the summary as far as file names give it. The shards are open.h's.
 *
 *   RUN/latest   (text: the tag)   zero_to_fp32.py   zero_to_torch.py   RUN/TAG/..
 *   Trainer:     RUN = checkpoint-N, TAG = global_stepN, beside it config, scheduler.pt, rng_state_*,
 *                trainer_state.json (written last), model.safetensors (stages 0 to 2, or gathered)
 *   Accelerate:  TAG = pytorch_model, beside it scheduler.bin, random_states_*.pkl
 *   Lightning:   RUN = NAME.ckpt, TAG = checkpoint, and no other
 *
 * A RUN that a trainer made is one checkpoint. A plain engine puts one tag after the other into the same
 * RUN: there each TAG is a checkpoint, at a path that stays when the next is saved. Opened by itself,
 * such a RUN is the tag that its `latest` file names. */
#ifndef UNS_ZERO_RUN_H
#define UNS_ZERO_RUN_H

#include "zero/open.h"

struct uns_zero_run {
	/* Given. */
	const struct uns_root *root;
	struct uns_capture *capture; /* may be NULL */
	const char *path; /* below root */
	const struct uns_listing *list;
	bool (*is_tag)(const struct uns_listing *list); /* by names only */
	const char *latest; /* the file that names the tag */
	bool universal;     /* the optimizer is in the tag's zero/, not in shards */
	/* Found. */
	struct uns_arena scratch;
	const char *tag;      /* "" = the directory itself is the tag's */
	const char *tag_path; /* below root; in the catalog's arena */
	struct uns_listing tag_list;
	bool named; /* `latest` names this tag, or a later one: its save has ended */
};

/* How sure: 0 not this, 90 a tag's directory, 95 a trainer's with a tag in it. Looks at names only. */
int uns_zero_run_probe(const struct uns_zero_run *run);

/* A run of one, or a tag, by its name and what is beside, without shards so far. */
bool uns_zero_run_begun(const struct uns_zero_run *run);

void uns_zero_run_fini(struct uns_zero_run *run);

/* Find the tag (-ENODATA when there is none), and put into the catalog all that is in it and beside it, and the summary
 * but for format and family. */
int uns_zero_run_add(struct uns_zero_run *run, struct uns_catalog *cat, struct uns_err *err);

#endif
