/* A DeepSpeed checkpoint's directories: the run's, which holds tag directories and what a trainer puts beside them, and
 * the tag's, which holds the shards. Owns which tag is meant, and the summary as far as names and small files give it;
 * zero/read/open.h reads the shards.
 *
 *   RUN/latest   (text: the tag)   zero_to_fp32.py   zero_to_torch.py   RUN/TAG/..
 *   Trainer:     RUN = checkpoint-N, TAG = global_stepN, beside it config, scheduler.pt, rng_state_*,
 *                trainer_state.json (written last), model.safetensors (stages 0 to 2, or gathered)
 *   Accelerate:  TAG = pytorch_model, beside it scheduler.bin, random_states_*.pkl
 *   Lightning:   RUN = NAME.ckpt, TAG = checkpoint, and no other
 *
 * A RUN that a trainer made is one checkpoint. In an Accelerate state of several models (pytorch_model,
 * pytorch_model_1) each TAG is one. A plain engine puts one tag after the other into the same RUN: there each TAG is a
 * checkpoint, at a path that stays when the next is saved. Opened by itself, such a RUN is the tag that its `latest`
 * file names. */
#ifndef UNS_ZERO_READ_RUN_H
#define UNS_ZERO_READ_RUN_H

#include "model/catalog.h"

/* DeepSpeed's own form, or the one that ds_to_universal makes of it, whose optimizer is in the tag's zero/. */
struct uns_zero_form {
	const char *name; /* of the format */
	enum uns_family family; /* UNS_FAMILY_ZERO or UNS_FAMILY_UNIVERSAL */
	bool (*is_tag)(const struct uns_listing *list); /* by names only */
	const char *latest; /* the file that names the tag */
};

/* How sure: 0 not this, 90 a tag's directory, 95 a trainer's with a tag in it. Looks at names only. */
int uns_zero_run_probe(const struct uns_zero_form *form, const struct uns_directory *dir);

/* A run of one, or a tag, by its name and what is beside, without shards so far. Of either form. */
bool uns_zero_run_begun(const struct uns_directory *dir);

/* Finds the tag (-ENODATA when there is none), puts all that is in it and beside it into the catalog, and seals that.
 */
int uns_zero_run_open(const struct uns_zero_form *form, const struct uns_directory *dir, struct uns_catalog *cat,
		      struct uns_err *err);

#endif
