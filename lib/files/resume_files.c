/* Chooses, among a checkpoint's companions, what a resuming trainer reads, and adds what is missing.
 * Knows the file names of Trainer and Accelerate (trainer.py, accelerate/checkpointing.py), not what
 * is in the files. */
#include "files/resume_files.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/text.h"
#include "files/torch_file.h"
#include "files/trainer_state.h"

/* Weights and optimizers in any form: the view has its own. */
static const char *const state_globs[] = { "model*.safetensors",
					   "model.safetensors.index.json",
					   "pytorch_model*",
					   "optimizer*",
					   "adapter_model.*",
					   NULL };
static const char *const schedule_globs[] = { "scheduler*.pt", "scheduler*.bin", NULL };

static bool matches(const char *const *globs, const char *name)
{
	for (; *globs; globs++)
		if (uns_str_glob(*globs, name))
			return true;
	return false;
}

/* The rank of rng_state.pth, rng_state_3.pth, random_states_3.pkl; -1 = another file. */
static int64_t rng_rank(const char *name)
{
	unsigned long long rank;

	if (strcmp(name, "rng_state.pth") == 0)
		return 0;
	if (uns_str_number(name, "rng_state_", ".pth", &rank) ||
	    uns_str_number(name, "random_states_", ".pkl", &rank))
		return (int64_t)rank;
	return -1;
}

bool uns_resume_is_rng(const char *name)
{
	return rng_rank(name) >= 0;
}

static bool is_of_accelerate(const struct uns_catalog *cat)
{
	size_t i;

	for (i = 0; i < cat->n_companions; i++)
		if (uns_str_glob("random_states_*.pkl", cat->companions[i].name) ||
		    uns_str_glob("custom_checkpoint_*.pkl", cat->companions[i].name))
			return true;
	return false;
}

/* Was the checkpoint, or the one that it was converted from, saved by a Trainer? */
static bool is_of_trainer(const struct uns_catalog *cat)
{
	unsigned long long n;
	size_t i;

	for (i = 0; i < cat->n_companions; i++)
		if (strcmp(cat->companions[i].name, "trainer_state.json") == 0 ||
		    uns_str_glob("rng_state*.pth", cat->companions[i].name))
			return true;
	return uns_str_number(uns_path_name(cat->path), "checkpoint-", "", &n);
}

void uns_resume_find(struct uns_catalog *cat)
{
	struct uns_summary *summary = &cat->summary;
	bool deepspeed = uns_family_is_deepspeed(summary->family);

	if (is_of_accelerate(cat))
		summary->resumed_by |= UNS_BY_ACCELERATE;
	else if (is_of_trainer(cat))
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
	size_t i;

	for (i = 0; i < cat->n_companions; i++)
		if (matches(schedule_globs, cat->companions[i].name))
			return true;
	return false;
}

static int add_rng(const struct uns_resume_input *in, const struct uns_companion *c, int64_t rank,
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
	if (uns_catalog_companion(in->catalog, file.path) &&
	    (in->plain || strcmp(file.path, c->name) != 0))
		return 0; /* the checkpoint has a file of that name */
	UNS_TRY(uns_layout_of_file(&out->arena, in->catalog, c->file, &file.layout, err));
	file.origin = "rank 0's random states: a single process has one set";
	return uns_vtree_add(out, &file, err);
}

/* Weights and optimizer of a checkpoint that one process saved without sharding. */
static int add_own_state(const struct uns_resume_input *in, const struct uns_companion *c,
			 struct uns_vtree *out, struct uns_err *err)
{
	if (uns_str_starts(c->name, "pytorch_model_fsdp") ||
	    (in->weights_made && c != uns_resume_own_optimizer(in->catalog)))
		return 0;
	if (c == uns_resume_own_optimizer(in->catalog) && !in->with_schedule)
		return uns_vtree_note(out, err,
				      "%s is hidden: no scheduler was saved with it, and a "
				      "Trainer restores either both or, without a warning, "
				      "neither",
				      c->name);
	return uns_vtree_add_file(out, in->catalog, c->name, c->file, err);
}

static int add_schedule(const struct uns_resume_input *in, const struct uns_companion *c,
			struct uns_vtree *out, struct uns_err *err)
{
	struct uns_torch_input file = { .cat = in->catalog, .stem = "scheduler" };

	if (strcmp(c->name, "scheduler.pt") == 0)
		UNS_TRY(uns_empty_group_schedule(in->catalog, in->schedule_for, &out->arena, &file.root, err));
	if (!file.root)
		return uns_vtree_add_file(out, in->catalog, c->name, c->file, err);
	return uns_torch_file_add(&file, c->name,
				  "the checkpoint's own, with one entry for each param group: a "
				  "Trainer keeps a group without parameters, DeepSpeed does not",
				  out, err);
}

static int add_companion(const struct uns_resume_input *in, const struct uns_companion *c,
			 struct uns_vtree *out, struct uns_err *err)
{
	int64_t rank = rng_rank(c->name);

	if (c->shard)
		return 0;
	if (matches(state_globs, c->name))
		return in->plain ? add_own_state(in, c, out, err) : 0;
	if (rank >= 0)
		return add_rng(in, c, rank, out, err);
	if (strcmp(c->name, "trainer_state.json") == 0 && !in->trainer_state_valid)
		return 0;
	if (matches(schedule_globs, c->name) && !in->with_schedule)
		return uns_vtree_note(out, err,
				      "%s is hidden: no optimizer state was saved with it, and a "
				      "Trainer restores either both or, without a warning, "
				      "neither",
				      c->name);
	return add_schedule(in, c, out, err);
}

static int note_facts(const struct uns_training *t, struct uns_vtree *out, struct uns_err *err)
{
	size_t i;

	for (i = 0; i < t->n_notes; i++)
		UNS_TRY(uns_vtree_note(out, err, "%s", t->note[i]));
	for (i = 0; i < t->n; i++)
		if (t->v[i].assumed && !uns_trainer_state_assumed(t->v[i].key)) /* one of the notes names those */
			UNS_TRY(uns_vtree_note(out, err,
					       "trainer_state.json: %s = %s is assumed (%s); set it "
					       "with `unshard meta set CHECKPOINT %s=VALUE` or "
					       "-o fact=%s=VALUE",
					       t->v[i].key, t->v[i].json, t->v[i].origin,
					       t->v[i].key, t->v[i].key));
	return 0;
}

/* "epoch = 0.0, total_flos = 0"; false = there is none. */
static bool write_made_up(const struct uns_training *t, struct uns_text *out)
{
	const char *key, *json;
	size_t i;

	for (i = 0; (key = uns_trainer_state_made_up(t, i, &json)); i++)
		uns_text_printf(out, "%s%s = %s", i ? ", " : "", key, json);
	return i > 0;
}

static int note_made_up(const struct uns_training *t, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;

	if (!write_made_up(t, &text))
		return 0;
	if (text.failed)
		return uns_oom(err);
	return uns_vtree_note(
		out, err,
		"trainer_state.json: assumed, because no file or fact records them: %s. A "
		"Trainer that resumes computes epoch, max_steps and num_train_epochs by itself "
		"and counts on from the others; set a value with `unshard meta set CHECKPOINT "
		"KEY=VALUE` or -o fact=KEY=VALUE",
		text.p);
}

/* "global_step from the directory's name; save_steps from ..." */
static const char *origin_of(const struct uns_training *t, struct uns_arena *arena)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text made_up = UNS_TEXT_INIT;
	size_t i;

	uns_text_str(&text, "synthesised:");
	for (i = 0; i < t->n; i++)
		uns_text_printf(&text, "%s %s %s %s", i ? ";" : "", t->v[i].key,
				t->v[i].assumed ? "assumed," : "from", t->v[i].origin);
	if (write_made_up(t, &made_up) && !made_up.failed)
		uns_text_printf(&text, "; assumed, because no file or fact records them: %s", made_up.p);
	uns_text_str(&text, "; the rest are TrainerState's defaults");
	return text.failed || made_up.failed ? NULL : uns_arena_strn(arena, text.p, text.len);
}

int uns_resume_trainer_state_add(const struct uns_resume_input *in, struct uns_vtree *out,
				 struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	struct uns_err why = { 0 };
	const char *origin;
	int code;

	if (!in->training || !(in->catalog->summary.resumed_by & UNS_BY_TRAINER))
		return 0;
	UNS_TRY(note_facts(in->training, out, err));
	if (in->trainer_state_valid)
		return 0;
	code = uns_trainer_state_emit(in->training, &text, &why);
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	if (code < 0)
		return uns_vtree_note(out, err, "the view has no trainer_state.json: %s", why.text);
	UNS_TRY(note_made_up(in->training, out, err));
	origin = origin_of(in->training, &out->arena);
	if (!origin)
		return uns_oom(err);
	return uns_vtree_add_text(out, "trainer_state.json", text.p, text.len, origin, err);
}

int uns_resume_files_add(const struct uns_resume_input *in, struct uns_vtree *out,
			 struct uns_err *err)
{
	const struct uns_catalog *cat = in->catalog;
	size_t i;

	for (i = 0; i < cat->n_companions; i++)
		UNS_TRY(add_companion(in, &cat->companions[i], out, err));
	for (i = 0; i < in->n_borrowed; i++)
		if (!uns_catalog_companion(cat, in->borrowed[i].name))
			UNS_TRY(uns_vtree_add_file(out, cat, in->borrowed[i].name,
						   in->borrowed[i].file, err));
	return uns_resume_trainer_state_add(in, out, err);
}
