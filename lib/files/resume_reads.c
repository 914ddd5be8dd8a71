/* The table, and which of its things a checkpoint has. Sources: transformers 5.23 (trainer.py: train,
 * _load_from_checkpoint, _load_optimizer_and_scheduler, _load_rng_state, _load_scaler), accelerate 1.15
 * (checkpointing.py, load_accelerator_state), lightning 2.6.6 (strategies/fsdp.py, checkpoint_connector.py), deepspeed
 * 0.19.8 (engine.py, load_checkpoint), verl 0.5 (fsdp_checkpoint_manager.py), Megatron-LM
 * (training/checkpointing.py, load_checkpoint). tests/e2e/test_resume_reads.py removes
 * each thing whose row is marked `tested`, and lets the trainer resume. */
#include "files/resume_reads.h"

#include <stdio.h>
#include <string.h>

#include "base/path.h"
#include "base/text.h"
#include "files/optimizer_state.h"
#include "files/resume_files.h"
#include "files/trainer_state.h"

enum part { WEIGHTS, OPTIMIZER, SCHEDULER, TRAINER_STATE, RANDOM_STATES, OTHER };

/* What the trainer does without the thing. */
enum absent {
	FATAL,  /* it fails */
	NEW,    /* it begins with a new one, without an error */
	UNSEEN, /* as NEW or FATAL, but only runs of some kind have the thing, and no file records which */
};

enum {
	BY_MANAGER = 0, /* veRL's and EasyR1's, which load a file of each rank */
	BY_MEGATRON = 1 << 16,
};

#define TRAINER    "Trainer"
#define ACCELERATE "Accelerate"
#define LIGHTNING  "Lightning"

#define BOTH_NEW    "the Trainer starts the optimizer and the scheduler from the beginning, without a message"
#define NO_STATE    "the Trainer fails with FileNotFoundError"
#define OWN_RANDOM  "each process keeps the random states that it has"
#define NO_FILE     "accelerator.load_state fails with FileNotFoundError"
#define NO_METADATA "the load fails, because no .metadata is found"

/* clang-format off */
static const struct row {
	const char *trainer; /* as the docs call it */
	unsigned by;         /* enum uns_resumer, or BY_MANAGER */
	const char *views;   /* names between spaces */
	enum part part;
	const char *files; /* as the view names them */
	enum absent absent;
	const char *effect;
	const char *supplied; /* what unshard does about an absent thing; "" = nothing */
	bool tested;
} rows[] = {
	{ TRAINER, UNS_BY_TRAINER, "full", WEIGHTS, "model.safetensors", FATAL, "the Trainer fails with ValueError", "",
	  true },
	{ TRAINER, UNS_BY_TRAINER, "full", OPTIMIZER, "optimizer.pt", NEW, BOTH_NEW, "", true },
	{ TRAINER, UNS_BY_TRAINER, "full", SCHEDULER, "scheduler.pt", NEW, BOTH_NEW, "", true },
	{ TRAINER, UNS_BY_TRAINER, "full", TRAINER_STATE, "trainer_state.json", FATAL, NO_STATE, "unshard makes it", true },
	{ TRAINER, UNS_BY_TRAINER, "full", RANDOM_STATES, "rng_state.pth", NEW, OWN_RANDOM, "", true },
	{ TRAINER, UNS_BY_TRAINER, "full-fsdp", WEIGHTS, "pytorch_model_fsdp.bin", FATAL,
	  "the Trainer fails with ValueError", "", true },
	{ TRAINER, UNS_BY_TRAINER, "full-fsdp", OPTIMIZER, "optimizer.bin", NEW, BOTH_NEW, "", true },
	{ TRAINER, UNS_BY_TRAINER, "full-fsdp dcp", SCHEDULER, "scheduler.pt", NEW, BOTH_NEW, "", true },
	{ TRAINER, UNS_BY_TRAINER, "full-fsdp dcp", TRAINER_STATE, "trainer_state.json", FATAL, NO_STATE, "unshard makes it",
	  true },
	{ TRAINER, UNS_BY_TRAINER, "full-fsdp dcp", RANDOM_STATES, "rng_state_RANK.pth", NEW, OWN_RANDOM, "", true },
	{ TRAINER, UNS_BY_TRAINER, "dcp", WEIGHTS, "pytorch_model_fsdp_0", FATAL, "the Trainer fails with ValueError",
	  "", true },
	{ TRAINER, UNS_BY_TRAINER, "dcp", OPTIMIZER, "optimizer_0", NEW, BOTH_NEW, "", true },
	{ TRAINER, UNS_BY_TRAINER, "universal world", WEIGHTS, "global_stepN", FATAL,
	  "the Trainer fails with ValueError", "", false },
	{ TRAINER, UNS_BY_TRAINER, "universal world", OPTIMIZER, "global_stepN", FATAL,
	  "the Trainer fails with ValueError", "", false },
	{ TRAINER, UNS_BY_TRAINER, "universal world", SCHEDULER, "scheduler.pt", FATAL, NO_STATE, "", false },
	{ TRAINER, UNS_BY_TRAINER, "universal world", TRAINER_STATE, "trainer_state.json", FATAL, NO_STATE, "unshard makes it",
	  false },
	{ TRAINER, UNS_BY_TRAINER, "universal", RANDOM_STATES, "rng_state_RANK.pth", NEW, OWN_RANDOM,
	  "-o rng=keep shows them", false },
	{ TRAINER, UNS_BY_TRAINER, "world", RANDOM_STATES, "rng_state_RANK.pth", NEW, OWN_RANDOM,
	  "shown if N is the saved number", false },
	{ TRAINER, UNS_BY_TRAINER, "full full-fsdp dcp", OTHER, "scaler.pt", UNSEEN,
	  "with fp16, the loss scale starts from the beginning", "", false },
	{ ACCELERATE, UNS_BY_ACCELERATE, "full", WEIGHTS, "model.safetensors", FATAL, NO_FILE, "", true },
	{ ACCELERATE, UNS_BY_ACCELERATE, "full", OPTIMIZER, "optimizer.bin", FATAL, NO_FILE, "", true },
	{ ACCELERATE, UNS_BY_ACCELERATE, "full-fsdp", WEIGHTS, "pytorch_model_fsdp.bin", FATAL, NO_FILE, "", true },
	{ ACCELERATE, UNS_BY_ACCELERATE, "full-fsdp", OPTIMIZER, "optimizer.bin", FATAL, NO_FILE, "", true },
	{ ACCELERATE, UNS_BY_ACCELERATE, "dcp", WEIGHTS, "pytorch_model_fsdp_0", FATAL, NO_METADATA, "", true },
	{ ACCELERATE, UNS_BY_ACCELERATE, "dcp", OPTIMIZER, "optimizer_0", FATAL, NO_METADATA, "", true },
	{ ACCELERATE, UNS_BY_ACCELERATE, "full full-fsdp dcp", OTHER, "scheduler.bin", UNSEEN,
	  "if a scheduler was prepared, " NO_FILE, "", true },
	{ ACCELERATE, UNS_BY_ACCELERATE, "full full-fsdp dcp", OTHER, "custom_checkpoint_N.pkl", UNSEEN,
	  "if objects were registered, accelerator.load_state fails with RuntimeError", "", true },
	{ ACCELERATE, UNS_BY_ACCELERATE, "full full-fsdp dcp", RANDOM_STATES, "random_states_RANK.pkl", NEW,
	  OWN_RANDOM, "", true },
	{ ACCELERATE, UNS_BY_ACCELERATE, "universal", RANDOM_STATES, "random_states_RANK.pkl", NEW, OWN_RANDOM,
	  "-o rng=keep shows them", false },
	{ ACCELERATE, UNS_BY_ACCELERATE, "world", RANDOM_STATES, "random_states_RANK.pkl", NEW, OWN_RANDOM,
	  "shown if N is the saved number", false },
	{ ACCELERATE, UNS_BY_ACCELERATE, "full full-fsdp dcp", OTHER, "scaler.pt", UNSEEN, "with fp16, " NO_FILE, "",
	  false },
	{ ACCELERATE, UNS_BY_ACCELERATE, "full full-fsdp dcp", OTHER, "dl_state_dict.bin", UNSEEN,
	  "stateful data loaders start from the beginning", "", false },
	{ LIGHTNING, UNS_BY_LIGHTNING, "full full-fsdp", OPTIMIZER, "optimizer_states", NEW,
	  "trainer.fit starts with new optimizer states", "unshard makes new states", false },
	{ LIGHTNING, UNS_BY_LIGHTNING, "dcp", OPTIMIZER, "optimizer_0", FATAL,
	  "trainer.fit fails with KeyError 'optimizer_0'", "", false },
	{ "veRL, EasyR1", BY_MANAGER, "world", WEIGHTS, "model_world_size_N_rank_RANK.pt", FATAL,
	  "manager.load_checkpoint fails with FileNotFoundError", "", false },
	{ "veRL, EasyR1", BY_MANAGER, "world", OPTIMIZER, "optim_world_size_N_rank_RANK.pt", FATAL,
	  "manager.load_checkpoint fails with FileNotFoundError", "", false },
	{ "veRL, EasyR1", BY_MANAGER, "world", RANDOM_STATES, "extra_state_*.pt", NEW, OWN_RANDOM,
	  "shown if N is the saved number", false },
	{ "Megatron-LM", BY_MEGATRON, "torch_dist torch_dist-ep", WEIGHTS, ".metadata", FATAL, NO_METADATA, "", false },
	{ "Megatron-LM", BY_MEGATRON, "torch_dist torch_dist-ep", OPTIMIZER, "optimizer.state", FATAL,
	  "Megatron-LM fails unless --no-load-optim is given", "", false },
	{ "Megatron-LM", BY_MEGATRON, "torch_dist torch_dist-ep", SCHEDULER, "opt_param_scheduler in common.pt", FATAL,
	  "Megatron-LM fails with KeyError unless --no-load-optim is given", "", false },
	{ "Megatron-LM", BY_MEGATRON, "torch_dist torch_dist-ep", TRAINER_STATE, "iteration in common.pt", FATAL,
	  "Megatron-LM ends", "", false },
	{ "Megatron-LM", BY_MEGATRON, "torch_dist torch_dist-ep", RANDOM_STATES, "rng_state", FATAL,
	  "at the saved tensor and pipeline parallelism Megatron-LM fails unless --no-load-rng is given, and elsewhere it "
	  "does not read them", "", false },
};
/* clang-format on */
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

/* -- which rows are about this resume -- */

static bool names_view(const char *views, const char *view)
{
	const size_t n = strlen(view);
	const char *at = views;

	while ((at = strstr(at, view))) {
		if ((at == views || at[-1] == ' ') && (!at[n] || at[n] == ' '))
			return true;
		at += n;
	}
	return false;
}

static bool is_about(const struct row *r, const struct uns_resume_case *c)
{
	const struct uns_summary *s = &c->catalog->summary;

	if (!names_view(r->views, c->view))
		return false;
	if (r->by == BY_MEGATRON)
		return c->by_megatron;
	if (r->by == BY_MANAGER)
		return s->family == UNS_FAMILY_RANKS;
	/* Accelerate's files are there: a Trainer's script would not look for them. */
	if (r->by == UNS_BY_TRAINER && s->resumed_by & UNS_BY_ACCELERATE)
		return false;
	return s->resumed_by & r->by || (c->schedule_made && r->by == UNS_BY_TRAINER);
}

/* -- what the view has -- */

static bool has_rng_file(const struct uns_catalog *cat, int64_t rank)
{
	char name[64];

	snprintf(name, sizeof(name), "rng_state_%lld.pth", (long long)rank);
	if (uns_catalog_companion(cat, name) || (!rank && uns_catalog_companion(cat, "rng_state.pth")))
		return true;
	snprintf(name, sizeof(name), "random_states_%lld.pkl", (long long)rank);
	return uns_catalog_companion(cat, name);
}

/* One process reads rank 0's, N processes each their own. */
static bool has_random_states(const struct uns_resume_case *c)
{
	const bool one = strcmp(c->view, "full") == 0;
	const int64_t ranks = one || c->catalog->summary.world_size < 1 ? 1 : c->catalog->summary.world_size;
	const bool left_out = c->other_ranks || strcmp(c->view, "universal") == 0;
	int64_t i;

	if (c->hide_rng || (left_out && !c->keep_rng))
		return false;
	if (c->catalog->summary.family == UNS_FAMILY_RANKS)
		return true; /* in the ranks' files of other states, whose absence is a finding */
	for (i = 0; i < ranks; i++)
		if (!has_rng_file(c->catalog, i))
			return false;
	return true;
}

static bool has_trainer_state(const struct uns_resume_case *c)
{
	return c->trainer_state_valid || (c->training && uns_training_find(c->training, "global_step"));
}

static bool megatron_has_part(const struct uns_resume_megatron *m, enum part part)
{
	const bool has[] = { [WEIGHTS] = true,
			     [OPTIMIZER] = m->optimizer,
			     [SCHEDULER] = m->schedule,
			     [TRAINER_STATE] = m->iteration,
			     [RANDOM_STATES] = m->random_states,
			     [OTHER] = true };

	return has[part];
}

static bool has_part(const struct uns_resume_case *c, enum part part)
{
	if (c->by_megatron)
		return megatron_has_part(&c->megatron, part);
	switch (part) {
	case OPTIMIZER:
		return uns_optimizer_root(c->catalog) || uns_resume_own_optimizer(c->catalog);
	case SCHEDULER:
		return c->schedule_made || uns_resume_has_scheduler(c->catalog);
	case TRAINER_STATE:
		return has_trainer_state(c);
	case RANDOM_STATES:
		return has_random_states(c);
	case WEIGHTS: /* without them there is no view */
	case OTHER:
		break;
	}
	return true;
}

/* -- reads -- */

static const char *const part_names[] = {
	[WEIGHTS] = "weights",
	[OPTIMIZER] = "optimizer",
	[SCHEDULER] = "scheduler",
	[TRAINER_STATE] = "trainer state",
	[RANDOM_STATES] = "random states",
	[OTHER] = "other",
};

int uns_resume_reads(const struct uns_resume_case *c, struct uns_arena *arena, const struct uns_resume_read **out,
		     size_t *n, struct uns_err *err)
{
	static const enum part of_every_trainer[] = { WEIGHTS, OPTIMIZER };
	struct uns_resume_read *v = UNS_NEW_N(arena, struct uns_resume_read, N_ROWS + 2);
	bool has_row[OTHER + 1] = { false };
	const struct row *r;
	enum part part;
	size_t i;

	UNS_TRY_ALLOC(*out = v, err);
	*n = 0;
	for (r = rows; r < rows + N_ROWS; r++) {
		if (!is_about(r, c) || (r->absent == UNSEEN && !uns_catalog_companion(c->catalog, r->files)))
			continue;
		v[(*n)++] = (struct uns_resume_read){ r->trainer, part_names[r->part],
						      r->files,   has_part(c, r->part),
						      r->effect,  *r->supplied ? r->supplied : NULL };
		has_row[r->part] = true;
	}
	for (i = 0; i < sizeof(of_every_trainer) / sizeof(*of_every_trainer); i++) {
		part = of_every_trainer[i];
		if (!has_row[part])
			v[(*n)++] = (struct uns_resume_read){ .part = part_names[part], .found = has_part(c, part) };
	}
	return 0;
}

/* -- misses -- */

/* A value of trainer_state.json that is assumed, because no file or fact records it, and on which a Trainer acts. */
static int assumed_find(const struct uns_resume_case *c, struct uns_arena *arena, const char **out, struct uns_err *err)
{
	const struct uns_training *t = c->training;
	size_t i;

	*out = NULL;
	for (i = 0; t && !c->trainer_state_valid && i < t->n; i++) {
		if (!t->v[i].assumed || !uns_trainer_state_assumed(t->v[i].key))
			continue;
		*out = *out ? uns_arena_printf(arena, "%s, %s", *out, t->v[i].key) : t->v[i].key;
		UNS_TRY_ALLOC(*out, err);
	}
	return 0;
}

static int miss_add(struct uns_resume_miss *v, size_t *n, const struct uns_resume_read *r, struct uns_arena *arena,
		    struct uns_err *err)
{
	size_t i;

	for (i = 0; i < *n; i++) {
		if (strcmp(v[i].effect, r->effect) != 0)
			continue;
		UNS_TRY_ALLOC(v[i].what = uns_arena_printf(arena, "%s and no %s", v[i].what, r->files), err);
		return 0;
	}
	v[(*n)++] = (struct uns_resume_miss){ r->files, r->effect };
	return 0;
}

int uns_resume_misses(const struct uns_resume_case *c, const struct uns_resume_read *reads, size_t n_reads,
		      struct uns_arena *arena, const struct uns_resume_miss **out, size_t *n, bool *known,
		      struct uns_err *err)
{
	struct uns_resume_miss *v = UNS_NEW_N(arena, struct uns_resume_miss, n_reads + 1);
	const struct uns_resume_read *r;
	const char *assumed;
	bool state = false;

	UNS_TRY_ALLOC(*out = v, err);
	*n = 0;
	*known = false;
	for (r = reads; r < reads + n_reads; r++) {
		if (!r->trainer)
			continue;
		*known = true;
		state |= r->part == part_names[TRAINER_STATE] && !c->by_megatron;
		if (!r->found)
			UNS_TRY(miss_add(v, n, r, arena, err));
	}
	UNS_TRY(assumed_find(c, arena, &assumed, err));
	if (state && assumed && has_trainer_state(c) && !c->leave_assumed) {
		v[*n].what = uns_arena_printf(arena, "trainer_state.json with %s", assumed);
		UNS_TRY_ALLOC(v[*n].what, err);
		v[(*n)++].effect = "the view makes one with assumed values (-o fact=KEY=VALUE sets them)";
	}
	return 0;
}
