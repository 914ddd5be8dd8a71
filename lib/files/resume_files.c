/* Chooses, among a checkpoint's companions, what a resuming trainer reads, and adds what is missing. Knows the file
 * names of Trainer and Accelerate (trainer.py, accelerate/checkpointing.py), not what is in the files. */
#include "files/resume_files.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/text.h"
#include "files/torch_file.h"
#include "files/trainer_state.h"

/* Weights and optimizers in any form: the view has its own. */
static const char *const state_globs[] = { "model*.safetensors", "model.safetensors.index.json",
					   "pytorch_model*",     "optimizer*",
					   "adapter_model.*",    NULL };
static const char *const schedule_globs[] = { "scheduler*.pt", "scheduler*.bin", NULL };

static bool name_matches(const char *const *globs, const char *name)
{
	for (; *globs; globs++)
		if (uns_str_glob(*globs, name))
			return true;
	return false;
}

static bool has_companion(const struct uns_catalog *cat, const char *const *globs)
{
	size_t i = 0;

	while (i < cat->n_companions && !name_matches(globs, cat->companions[i].name))
		i++;
	return i < cat->n_companions;
}

/* The rank of rng_state.pth, rng_state_3.pth, random_states_3.pkl; -1 = another file. */
static int64_t rng_rank(const char *name)
{
	unsigned long long rank;

	if (strcmp(name, "rng_state.pth") == 0)
		return 0;
	if (uns_str_number(name, "rng_state_", ".pth", &rank) || uns_str_number(name, "random_states_", ".pkl", &rank))
		return (int64_t)rank;
	return -1;
}

bool uns_resume_is_rng(const char *name)
{
	return rng_rank(name) >= 0;
}

void uns_resume_find(struct uns_catalog *cat)
{
	static const char *const accelerates[] = { "random_states_*.pkl", "custom_checkpoint_*.pkl", NULL };
	static const char *const trainers[] = { "trainer_state.json", "rng_state*.pth", NULL };
	struct uns_summary *summary = &cat->summary;
	const bool deepspeed = uns_family_is_deepspeed(summary->family);
	unsigned long long n;

	if (has_companion(cat, accelerates))
		summary->resumed_by |= UNS_BY_ACCELERATE;
	/* A Trainer saved the checkpoint, or the one that it was converted from. */
	else if (has_companion(cat, trainers) || uns_str_number(uns_path_name(cat->path), "checkpoint-", "", &n))
		summary->resumed_by |= UNS_BY_TRAINER;
	else if (deepspeed)
		summary->resumed_by |= UNS_BY_ENGINE;
	if (deepspeed && summary->resumed_by & UNS_BY_TRAINER)
		summary->is_pretrained = true;
}

const struct uns_companion *uns_resume_own_optimizer(const struct uns_catalog *cat)
{
	const struct uns_companion *c = uns_catalog_companion(cat, "optimizer.pt");

	if (!c)
		c = uns_catalog_companion(cat, "optimizer.bin");
	return c && !c->shard ? c : NULL;
}

bool uns_resume_has_scheduler(const struct uns_catalog *cat)
{
	return has_companion(cat, schedule_globs);
}

static int rng_add(const struct uns_resume_input *in, const struct uns_companion *c, int64_t rank,
		   struct uns_vtree *out, struct uns_err *err)
{
	struct uns_vfile file = { .path = c->name, .source = c->file };
	bool trainers = uns_str_starts(c->name, "rng_state");

	if (in->hide_rng || (in->one_process && !in->plain && rank > 0))
		return 0;
	if (!in->one_process || in->plain)
		UNS_TRY(uns_vtree_add_file(out, in->catalog, c->name, c->file, err));
	if (!in->one_process || rank > 0)
		return 0;
	if (trainers)
		file.path = "rng_state.pth";
	else if (in->plain)
		return 0;
	if (uns_catalog_companion(in->catalog, file.path) && (in->plain || strcmp(file.path, c->name) != 0))
		return 0; /* the checkpoint has a file of that name */
	UNS_TRY(uns_layout_of_file(&out->arena, in->catalog, c->file, &file.layout, err));
	file.origin = "rank 0's random states: a single process has one set";
	return uns_vtree_add(out, &file, err);
}

/* A Trainer restores the optimizer and the scheduler, or neither. */
static int note_hidden(const char *name, const char *other, struct uns_vtree *out, struct uns_err *err)
{
	return uns_vtree_note(out, err,
			      "%s is hidden: no %s was saved with it, and a "
			      "Trainer restores either both or, without a warning, neither",
			      name, other);
}

static int companion_add(const struct uns_resume_input *in, const struct uns_companion *c, struct uns_vtree *out,
			 struct uns_err *err)
{
	struct uns_torch_input schedule = { .cat = in->catalog, .stem = "scheduler" };
	const int64_t rank = rng_rank(c->name);
	const bool own_optimizer = c == uns_resume_own_optimizer(in->catalog);

	if (c->of_model)
		return uns_vtree_add_file(out, in->catalog, c->name, c->file, err);
	if (c->shard || (strcmp(c->name, "trainer_state.json") == 0 && !in->trainer_state_valid))
		return 0;
	if (rank >= 0)
		return rng_add(in, c, rank, out, err);
	if (name_matches(state_globs, c->name)) {
		/* Weights and optimizer are shown if one process saved them without sharding. */
		if (!in->plain || uns_str_starts(c->name, "pytorch_model_fsdp") || (in->weights_made && !own_optimizer))
			return 0;
		if (own_optimizer && !in->with_schedule)
			return note_hidden(c->name, "scheduler", out, err);
	}
	if (name_matches(schedule_globs, c->name) && !in->with_schedule)
		return note_hidden(c->name, "optimizer state", out, err);
	if (strcmp(c->name, "scheduler.pt") == 0)
		UNS_TRY(uns_empty_group_schedule(in->catalog, in->schedule_for, &out->arena, &schedule.root, err));
	if (!schedule.root)
		return uns_vtree_add_file(out, in->catalog, c->name, c->file, err);
	return uns_torch_file_add(&schedule, c->name,
				  "the checkpoint's own, with one entry for each param group: a "
				  "Trainer keeps a group without parameters, DeepSpeed does not",
				  out, err);
}

static int note_facts(const struct uns_training *t, struct uns_vtree *out, struct uns_err *err)
{
	size_t i;

	for (i = 0; i < t->n_notes; i++)
		UNS_TRY(uns_vtree_note(out, err, "%s", t->note[i]));
	for (i = 0; i < t->n; i++)
		if (t->v[i].assumed && !uns_trainer_state_assumed(t->v[i].key)) /* one of the notes names those */
			UNS_TRY(uns_vtree_note(out, err,
					       "trainer_state.json: %s = %s is assumed (%s); set it with `unshard meta "
					       "set CHECKPOINT %s=VALUE` or -o fact=%s=VALUE",
					       t->v[i].key, t->v[i].json, t->v[i].origin, t->v[i].key, t->v[i].key));
	return 0;
}

int uns_resume_trainer_state_add(const struct uns_resume_input *in, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text made_up = UNS_TEXT_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text origin = UNS_TEXT_INIT;
	const struct uns_training *t = in->training;
	struct uns_err why = { 0 };
	const char *key, *json;
	size_t i;
	int code;

	if (!t || !(in->catalog->summary.resumed_by & UNS_BY_TRAINER))
		return 0;
	UNS_TRY(note_facts(t, out, err));
	if (in->trainer_state_valid)
		return 0;
	code = uns_trainer_state_emit(t, &text, &why);
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	if (code < 0)
		return uns_vtree_note(out, err, "the view has no trainer_state.json: %s", why.text);
	for (i = 0; (key = uns_trainer_state_made_up(t, i, &json)); i++)
		uns_text_printf(&made_up, "%s%s = %s", i ? ", " : "", key, json);
	uns_text_str(&origin, "synthesised:");
	for (i = 0; i < t->n; i++)
		uns_text_printf(&origin, "%s %s %s %s", i ? ";" : "", t->v[i].key,
				t->v[i].assumed ? "assumed," : "from", t->v[i].origin);
	if (made_up.len)
		uns_text_printf(&origin, "; assumed, because no file or fact records them: %s", made_up.p);
	uns_text_str(&origin, "; the rest are TrainerState's defaults");
	if (made_up.failed || origin.failed)
		return uns_oom(err);
	if (made_up.len)
		UNS_TRY(uns_vtree_note(out, err,
				       "trainer_state.json: assumed, because no file or fact records them: %s. A "
				       "Trainer that resumes computes epoch, max_steps and num_train_epochs by itself "
				       "and counts on from the others; set a value with `unshard meta set CHECKPOINT "
				       "KEY=VALUE` or -o fact=KEY=VALUE",
				       made_up.p));
	return uns_vtree_add_text(out, "trainer_state.json", text.p, text.len,
				  uns_arena_strn(&out->arena, origin.p, origin.len), err);
}

int uns_resume_files_add(const struct uns_resume_input *in, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_catalog *cat = in->catalog;
	size_t i;

	for (i = 0; i < cat->n_companions; i++)
		UNS_TRY(companion_add(in, &cat->companions[i], out, err));
	for (i = 0; i < in->n_borrowed; i++)
		if (!in->borrowed[i].of_model && !uns_catalog_companion(cat, in->borrowed[i].name))
			UNS_TRY(uns_vtree_add_companion(out, cat, &in->borrowed[i], err));
	return uns_resume_trainer_state_add(in, out, err);
}
