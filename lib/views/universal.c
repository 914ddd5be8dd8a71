/* universal: DeepSpeed's universal checkpoint, which its engine loads at any number of ranks and
 * ZeRO stages 1, 2 and 3 with "checkpoint": {"load_universal": true}, and what a Trainer wants
 * beside it. Random states stay out: they belong to a number of ranks that is not known here. Owns
 * the directory's shape and the notes about it; the files are zero/write/universal_files.c's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/number.h"
#include "base/path.h"
#include "base/text.h"
#include "files/lightning_file.h"
#include "megatron/model.h"
#include "megatron/schedule.h"
#include "files/named_optimizer.h"
#include "files/resume_files.h"
#include "names/template.h"
#include "zero/write/universal_files.h"
#include "views/view.h"

static const char run_mark[] = "latest_universal";

/* -- supports -- */

static int supports(const struct uns_catalog *cat, uint64_t parameter, struct uns_err *why)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_adam_params params;

	(void)parameter;
	if (uns_megatron_has_optimizer(cat))
		return uns_megatron_check(cat, why);
	if (cat->summary.experts_vary)
		return UNS_CATALOG_FAIL(cat, why, EXPERTS_VARY, .scope = UNS_SCOPE_OPTIMIZER);
	if (uns_numbered_has_optimizer(cat))
		return uns_numbered_check(cat, why);
	UNS_TRY(uns_adam_params_find(cat, &arena, &params, why));
	UNS_TRY(uns_universal_check_names(&params, why));
	if (cat->summary.is_one_file)
		UNS_TRY(uns_lightning_check(cat, true, why));
	return uns_adam_params_cover(cat, &params, why);
}

static int supports_input(const struct uns_view_input *in, uint64_t parameter, struct uns_err *why)
{
	(void)parameter;
	return uns_numbered_check_names(&in->config_info, in->config, in->catalog, why);
}

/* -- names -- */

/* Accelerate loads this tag, whatever `latest_universal` names; a Trainer insists on global_step*,
 * Lightning on "checkpoint" (fabric/strategies/deepspeed.py, _is_deepspeed_checkpoint). */
static const char *tag_of(const struct uns_view_input *in, int64_t step, struct uns_arena *arena)
{
	if (in->catalog->summary.resumed_by & (UNS_BY_LIGHTNING | UNS_BY_FABRIC))
		return uns_arena_str(arena, "checkpoint");
	if (in->catalog->summary.resumed_by & UNS_BY_ACCELERATE)
		return uns_arena_str(arena, "pytorch_model");
	return uns_arena_printf(arena, "global_step%lld", (long long)step);
}

/* -- notes -- */

/* Does the model tie this head to a trained embedding? It is saved twice where torch's FSDP saved it. */
static bool is_tied_head(const struct uns_config_info *config, const struct uns_tensor *t,
			 const struct uns_adam_params *params)
{
	size_t i;

	if (!config->ties_embeddings || !uns_name_ends(t->name, "lm_head.weight"))
		return false;
	for (i = 0; i < params->n; i++)
		if (uns_name_ends(params->v[i].name, "embed_tokens.weight") &&
		    uns_shape_equal(&params->v[i].exp_avg->shape, &t->shape))
			return true;
	return false;
}

/* How many tensors no optimizer state restores: frozen parameters, tied names of them, buffers. */
static int count_left_out(const struct uns_config_info *config, const struct uns_catalog *cat,
			  const struct uns_adam_params *params, size_t *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map trained = UNS_MAP_INIT;
	const struct uns_tensor *t;
	size_t i;

	*out = 0;
	for (i = 0; i < params->n; i++)
		UNS_TRY_ALLOC(uns_map_put(&trained, params->v[i].name, &params->v[i], NULL), err);
	for (i = 0; i < cat->n_tensors; i++) {
		t = &cat->tensors[i];
		*out += t->role == UNS_ROLE_BUFFER ||
			(t->role == UNS_ROLE_WEIGHT && !uns_map_get(&trained, t->name) &&
			 !is_tied_head(config, t, params) &&
			 (t->alias_of == UNS_NONE || !uns_map_get(&trained, cat->tensors[t->alias_of].name)));
	}
	return 0;
}

/* For a run that stays at stage 3. */
static const char *world_first(const struct uns_catalog *cat)
{
	return cat->summary.has_engine_state
		       ? " If you stay at stage 3, load world-N instead (N = the number of ranks), "
			 "which restores everything."
		       : "";
}

/* The line that gives each group its own learning rate again, where all groups have one. */
static void write_rates(const struct uns_adam_params *params, struct uns_text *out)
{
	char text[UNS_NUMBER_ROOM];
	double lr;
	size_t i;

	for (i = 0; i < params->n_groups; i++)
		if (!uns_value_float(uns_value_get(params->group[i]->hyper, "lr"), &lr))
			return;
	uns_text_str(out, " All groups get the first group's lr: after loading, run `for g, lr in "
			  "zip(engine.optimizer.param_groups, [");
	for (i = 0; i < params->n_groups; i++) {
		uns_value_float(uns_value_get(params->group[i]->hyper, "lr"), &lr);
		uns_text_printf(out, "%s%s", i ? ", " : "", uns_number_print_exact(text, lr));
	}
	uns_text_str(out, "]): g[\"lr\"] = lr`.");
}

/* Of the keys that differ the view leaves out all but lr (zero/write/universal_files.h). */
static int note_groups(const struct uns_catalog *cat, const struct uns_adam_params *params, struct uns_vtree *out,
		       struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text keys = UNS_TEXT_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text rates = UNS_TEXT_INIT;
	bool lr;

	UNS_TRY(uns_universal_differing(params, &keys, &lr, err));
	if (lr)
		write_rates(params, &rates);
	if (rates.failed)
		return uns_oom(err);
	if (!keys.len)
		return 0;
	return uns_vtree_note(out, err,
			      "DeepSpeed's load_universal at stage 3 gives all %zu param groups the first one's "
			      "hyper-parameters; here the groups differ in %s.%s This view leaves those out of what "
			      "stage 3 reads, except lr, so that each group keeps the values of the run that "
			      "resumes.%s",
			      params->n_groups, keys.p, world_first(cat), rates.len ? rates.p : "");
}

/* What DeepSpeed's load_universal does not restore, or restores wrongly, of this checkpoint. */
static int note_loader(const struct uns_config_info *config, const struct uns_catalog *cat,
		       const struct uns_adam_params *params, struct uns_vtree *out, struct uns_err *err)
{
	size_t n;

	UNS_TRY(count_left_out(config, cat, params, &n, err));
	if (n)
		UNS_TRY(uns_vtree_note_missed(
			out, err,
			"DeepSpeed's load_universal restores trained parameters only: %zu %s "
			"without optimizer state (frozen parameters, tied names, buffers) %s the "
			"values that the new process initialises; %s",
			n, uns_plural(n, "tensor", "tensors"), uns_plural(n, "keeps", "keep"),
			cat->summary.has_engine_state
				? "load world-N instead (N = the number of ranks), which restores all "
				  "tensors"
				: "load the weights from the view weights before you resume"));
	UNS_TRY(note_groups(cat, params, out, err));
	/* Its mapping of parameters to the flat buffer does not know of the other order (0.19.8: stage_1_and_2.py,
	 * _link_all_hp_params). */
	if (cat->summary.is_round_robin)
		UNS_TRY(uns_vtree_note(out, err,
				       "the run had round_robin_gradients on, with which DeepSpeed's load_universal "
				       "mixes parameters up at stages 1 and 2: turn it off to load from this view, or "
				       "load world-N (N = the number of ranks)"));
	if (cat->summary.has_experts)
		UNS_TRY(uns_vtree_note(out, err,
				       "each expert has its number in the whole model, as with expert parallelism of 1 "
				       "rank (ep_size=1): DeepSpeed's load_universal fails with an AssertionError if "
				       "ranks share experts; world-N keeps how they are shared"));
	/* The loader gives all sub-groups the same tensor (0.19.8: stage3.py,
	 * load_hp_checkpoint_state_from_checkpoint_dir_stage3). */
	if (params->v[0].step)
		UNS_TRY(uns_vtree_note(
			out, err,
			"DeepSpeed's load_universal at stage 3 gives all sub-groups of parameters one `step`. "
			"torch's Adam advances it once for each of them: with several sub-groups (this checkpoint has "
			"%zu param %s), the bias correction runs ahead and the run resumes wrongly.%s After loading, "
			"run `for v in engine.optimizer.optimizer.state.values(): v[\"step\"] = "
			"v[\"step\"].clone()`. Stages 1 and 2 do not need it",
			params->n_groups, uns_plural(params->n_groups, "group", "groups"), world_first(cat)));
	if (params->n_widened)
		UNS_TRY(uns_vtree_note(out, err, "fp32.pt of %zu %s made from the weight: no fp32 copy was saved",
				       params->n_widened,
				       uns_plural(params->n_widened, "parameter is", "parameters is")));
	if (!params->n_stateless)
		return 0;
	return uns_vtree_note(out, err,
			      "%zu %s of the param groups %s no optimizer state (the first is %s) and no "
			      "directory in zero/: DeepSpeed refuses to load if the run trains %s",
			      params->n_stateless, uns_plural(params->n_stateless, "parameter", "parameters"),
			      uns_plural(params->n_stateless, "has", "have"), params->stateless,
			      uns_plural(params->n_stateless, "it", "them"));
}

/* The key under which a script saved its scheduler, or NULL. */
static const char *own_scheduler(const struct uns_catalog *cat)
{
	static const char *const begins[] = { "lr_sched", "scheduler" };
	const struct uns_named_value *v = cat->values, *end = v + cat->n_values;
	size_t i;

	for (; v < end; v++)
		for (i = 0; i < sizeof(begins) / sizeof(*begins); i++)
			if (v->root && uns_str_starts(v->root, begins[i]))
				return v->root;
			else if (uns_str_starts(v->name, begins[i]))
				return v->name;
	return NULL;
}

static int note_scheduler(const struct uns_catalog *cat, struct uns_vtree *out, struct uns_err *err)
{
	const char *own = own_scheduler(cat);

	/* Lightning's are in meta.pt. */
	if (cat->summary.has_engine_state || uns_resume_has_scheduler(cat) ||
	    uns_value_at(uns_lightning_value(cat, "lr_schedulers"), 0))
		return 0;
	if (own)
		return uns_vtree_note(out, err,
				      "DeepSpeed does not load the learning-rate scheduler that was saved (%s); a run "
				      "that has one starts it from the beginning",
				      own);
	return uns_vtree_note(out, err,
			      "no learning-rate scheduler was saved; a run that has one starts it "
			      "from the beginning");
}

static int note_all(const struct uns_config_info *config, const struct uns_resume_input *resume,
		    const struct uns_adam_params *params, struct uns_vtree *out, struct uns_err *err)
{
	UNS_TRY(note_loader(config, resume->catalog, params, out, err));
	return resume->schedule_made ? 0 : note_scheduler(resume->catalog, out, err);
}

/* The catalog whose tensors have the names that a loader looks up, and what is made for a Trainer. */
static int model_of(const struct uns_view_input *in, struct uns_vtree *out, struct uns_resume_input *resume,
		    struct uns_err *err)
{
	*resume = uns_view_resume(in);
	if (!in->catalog->summary.is_megatron)
		return uns_numbered_name(&in->config_info, in->config, in->catalog, out, &resume->catalog, err);
	UNS_TRY(uns_megatron_model(&in->config_info, in->config, in->catalog, out, &resume->catalog, err));
	return uns_megatron_schedule_add(resume, out, err);
}

static int notes(const struct uns_view_input *in, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	struct uns_resume_input resume;
	struct uns_adam_params params;

	UNS_TRY(model_of(in, out, &resume, err));
	UNS_TRY(uns_adam_params_find(resume.catalog, &scratch, &params, err));
	UNS_TRY(note_all(&in->config_info, &resume, &params, out, err));
	return resume.schedule_made ? uns_resume_trainer_state_add(&resume, out, err) : 0;
}

/* -- tree -- */

static int tree(const struct uns_view_input *in, uint64_t parameter, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	struct uns_resume_input resume;
	struct uns_adam_params params;
	struct uns_universal_input files = { .params = &params,
					     .global_step =
						     uns_training_step(in->training, in->catalog->summary.step) };
	const char **names;
	size_t i;

	(void)parameter;
	if (files.global_step == UNS_UNKNOWN)
		return uns_fail(err, -ENODATA,
				"%s: the training step is not known, and DeepSpeed's engine needs it; "
				"set it with `unshard meta set CHECKPOINT global_step=N`",
				in->catalog->path);
	UNS_TRY(model_of(in, out, &resume, err));
	files.catalog = resume.catalog;
	UNS_TRY(uns_adam_params_find(files.catalog, &scratch, &params, err));
	UNS_TRY_ALLOC(files.dir = tag_of(in, files.global_step, &out->arena), err);
	UNS_TRY_ALLOC(names = UNS_NEW_N(&out->arena, const char *, params.n), err);
	for (i = 0; i < params.n; i++)
		names[i] = params.v[i].name;
	UNS_TRY(uns_strip_choose(in->strip, names, params.n, out, &files.strip, err));
	UNS_TRY(uns_universal_add(&files, out, err));
	UNS_TRY(uns_vtree_add_text(out, run_mark, files.dir, strlen(files.dir),
				   "synthesised: the name of the directory beside it", err));
	UNS_TRY(note_all(&in->config_info, &resume, &params, out, err));
	resume.hide_rng = !in->keep_rng;
	resume.schedule_for = UNS_SCHEDULE_FOR_DEEPSPEED;
	resume.with_schedule = true;
	return uns_resume_files_add(&resume, out, err);
}

static const char by_trainer[] = "trainer.train(resume_from_checkpoint=\"%s\")  # DeepSpeed with "
				 "\"checkpoint\": {\"load_universal\": true}";

static const char *usage(const struct uns_view_input *in, uint64_t parameter, bool is_file)
{
	const struct uns_catalog *cat = in->catalog;

	(void)parameter, (void)is_file;
	if (uns_megatron_trainer_step(cat, in->training) != UNS_UNKNOWN)
		return by_trainer;
	if (cat->summary.resumed_by & UNS_BY_FABRIC)
		return UNS_LINE_OF_FABRIC "  # DeepSpeedStrategy with \"checkpoint\": {\"load_universal\": true}";
	if (cat->summary.resumed_by & UNS_BY_LIGHTNING)
		return "trainer.fit(model, ckpt_path=\"%s\")  # DeepSpeedStrategy with "
		       "\"checkpoint\": {\"load_universal\": true}";
	if (cat->summary.resumed_by & UNS_BY_TRAINER)
		return by_trainer;
	return !(cat->summary.resumed_by & UNS_BY_ACCELERATE)
		       ? "engine.load_checkpoint(\"%s\")  # with \"checkpoint\": "
			 "{\"load_universal\": true}"
		       : "accelerator.load_state(\"%s\")  # DeepSpeed with \"checkpoint\": "
			 "{\"load_universal\": true}";
}

extern const struct uns_view uns_view_universal;
const struct uns_view uns_view_universal = {
	.name = "universal",
	UNS_VIEW_IS_BARE,
	.needs_finished = true,
	.names_optimizer = uns_view_always,
	.needs_training = true,
	.supports = supports,
	.supports_input = supports_input,
	.tree = tree,
	.notes = notes,
	.run_mark = run_mark,
	.usage = usage,
};
