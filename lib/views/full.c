/* full: a complete checkpoint in single files, which a script resumes from without shards.
 *
 *   full        as one process saves it without FSDP or DeepSpeed: model.safetensors (pytorch_model.bin for
 *               Accelerate without a config), optimizer.pt with integer ids (optimizer.bin for Accelerate),
 *               scheduler, rank 0's random states, trainer_state.json. Of a plain DeepSpeed engine Accelerate's
 *               names, and the script's own state. Never pytorch_model_fsdp.bin or a sharded directory: a plain
 *               Trainer refuses a directory that holds one.
 *   full-fsdp   as FSDP's FULL_STATE_DICT names it, for a Trainer or Accelerate script that runs with it:
 *               pytorch_model_fsdp.bin and optimizer.bin keyed by names, the ranks' own random states.
 *
 * A Lightning checkpoint is one file in both. */
#include <string.h>

#include "zero/write/engine_files.h"
#include "files/full_files.h"
#include "files/lightning_file.h"
#include "files/named_optimizer.h"
#include "megatron/model.h"
#include "megatron/schedule.h"
#include "views/view.h"

enum { PLAIN, FSDP };

static bool parse(const char *parameter, uint64_t *out)
{
	*out = *parameter ? FSDP : PLAIN;
	return !*parameter || strcmp(parameter, "fsdp") == 0;
}

static int supports(const struct uns_catalog *cat, uint64_t parameter, struct uns_err *why)
{
	if (uns_megatron_has_optimizer(cat))
		return uns_megatron_check(cat, why);
	if (parameter == PLAIN && cat->summary.is_pipeline) /* numbers would have to be invented */
		return UNS_CATALOG_FAIL(cat, why, PIPELINE_NUMBERS, .scope = UNS_SCOPE_OPTIMIZER);
	if (parameter == PLAIN && cat->summary.experts_vary)
		return UNS_CATALOG_FAIL(cat, why, EXPERTS_VARY, .scope = UNS_SCOPE_OPTIMIZER);
	if (cat->summary.is_autoep)
		return UNS_CATALOG_FAIL(cat, why, AUTOEP_ALONE, .scope = UNS_SCOPE_OPTIMIZER);
	if (parameter == FSDP && uns_numbered_has_optimizer(cat))
		return uns_numbered_check(cat, why);
	if (parameter == FSDP)
		UNS_TRY(uns_full_check_names(cat, why));
	if (cat->summary.is_one_file)
		return uns_lightning_check(cat, true, why);
	return uns_full_check(cat, why);
}

static int supports_input(const struct uns_view_input *in, uint64_t parameter, struct uns_err *why)
{
	if (parameter != FSDP)
		return 0;
	return uns_numbered_check_names(&in->config_info, in->config, in->catalog, why);
}

/* A Trainer without FSDP saves under the names that save_pretrained publishes, and loads under those in memory (source:
 * Trainer._load_from_checkpoint of transformers 5): what has another name it leaves as the new model has it. */
static int find_names(const struct uns_view_input *in, struct uns_full_input *full, struct uns_vtree *out,
		      struct uns_err *err)
{
	struct uns_memory_names *names = &full->in_memory;

	UNS_TRY(uns_memory_names_find(&in->config_info, in->catalog, &out->arena, names, err));
	full->resume.weights_made = names->n > 0;
	if (names->hole)
		return uns_vtree_note(
			out, err,
			"the weights have the names that save_pretrained publishes for model type %s, not those "
			"in memory, which a Trainer resumes from: %s does not fit the other experts' tensors",
			in->config_info.model_type, names->hole);
	if (!names->n)
		return 0;
	return uns_vtree_note(
		out, err,
		"the weights have the names that model type %s has in memory, which a Trainer resumes from; "
		"in the checkpoint's own files %zu tensors have others (%s)",
		in->config_info.model_type, names->n_renamed, names->first);
}

/* The directories of a SentenceTransformer's modules. */
static int find_modules(const struct uns_view_input *in, struct uns_full_input *full, struct uns_vtree *out,
			struct uns_err *err)
{
	if (!in->modules.is_state)
		return 0;
	if (uns_published_knows(in->config_info.model_type))
		return uns_vtree_note(out, err,
				      "the tensors have the trainer's names, and are not in the directories of "
				      "modules.json, because model type %s is published under other names. "
				      "SentenceTransformer loads the view weights",
				      in->config_info.model_type);
	full->modules = &in->modules;
	return 0;
}

static int add_plain(struct uns_full_input *full, struct uns_span config, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_catalog *cat = full->resume.catalog;
	bool engine = cat->summary.resumed_by & UNS_BY_ENGINE;
	bool trainer = !engine && !(cat->summary.resumed_by & UNS_BY_ACCELERATE);

	full->resume.one_process = true;
	full->resume.plain = uns_full_is_plain(cat);
	/* Accelerate loads safetensors by way of safetensors.load_model, which refuses a file that
	 * holds both names of a tied tensor; and without a config it is not known which are. */
	if (!trainer && !full->resume.plain && uns_span_left(&config) == 0)
		UNS_TRY(uns_full_add_torch_model(full, "pytorch_model", out, err));
	else
		UNS_TRY(uns_full_add_safetensors(full, out, err));
	UNS_TRY(uns_full_add_optimizer(full, UNS_IDS_NUMBERS, trainer ? "optimizer.pt" : "optimizer.bin", out, err));
	UNS_TRY(uns_full_add_others(full, UNS_IDS_NUMBERS, "pytorch_model", out, err));
	if (engine)
		UNS_TRY(uns_engine_files_add(cat, out, err));
	return uns_engine_scaler_add(cat, out, err);
}

/* The model's tensors under Hugging Face's names, and what a Trainer needs besides. */
static int model_of_megatron(const struct uns_view_input *in, struct uns_full_input *full, struct uns_vtree *out,
			     struct uns_err *err)
{
	UNS_TRY(uns_megatron_model(&in->config_info, in->config, in->catalog, out, &full->resume.catalog, err));
	return uns_megatron_schedule_add(&full->resume, out, err);
}

static int notes(const struct uns_view_input *in, struct uns_vtree *out, struct uns_err *err)
{
	struct uns_full_input full = { .resume = uns_view_resume(in) };
	const struct uns_tensor *t = in->catalog->tensors, *end = t + in->catalog->n_tensors;

	if (in->catalog->summary.is_megatron) {
		UNS_TRY(model_of_megatron(in, &full, out, err));
		return uns_resume_trainer_state_add(&full.resume, out, err);
	}
	while (t < end && (!uns_role_is_optimizer(t->role) || t->role == UNS_ROLE_MASTER))
		t++;
	if (!uns_optimizer_root(in->catalog) || t < end)
		return 0;
	return uns_vtree_note(
		out, err,
		"the optimizer has no states, as SGD without momentum: FSDP2 cannot load it from the view "
		"full-fsdp (torch 2.13: \"Expected device to be set\"). Resume from the view full or dcp");
}

static struct uns_full_input input_of(const struct uns_view_input *in)
{
	return (struct uns_full_input){ .resume = uns_view_resume(in),
					.tied = in->tied,
					.n_tied = in->n_tied,
					.notes = in->notes,
					.n_notes = in->n_notes,
					.max_shard_size_bytes = in->max_shard_size_bytes };
}

static int tree(const struct uns_view_input *in, uint64_t parameter, struct uns_vtree *out, struct uns_err *err)
{
	struct uns_full_input full = input_of(in);
	const struct uns_lightning_input whole = { .catalog = in->catalog,
						   .out = UNS_DTYPE_NONE,
						   .resume = true,
						   .for_fsdp = parameter == FSDP,
						   .global_step = in->catalog->summary.step };
	const struct uns_adapter_config adapter = uns_view_adapter_config(in);
	const struct uns_tensor *tied;

	if (in->catalog->summary.is_one_file)
		return uns_lightning_add(&whole, out, err);
	if (in->catalog->summary.is_megatron) {
		UNS_TRY(model_of_megatron(in, &full, out, err));
		tied = uns_megatron_tied(full.resume.catalog);
		if (tied) {
			full.tied = &tied;
			full.n_tied = 1;
		}
	} else {
		if (parameter == FSDP)
			UNS_TRY(uns_numbered_name(&in->config_info, in->config, in->catalog, out, &full.resume.catalog,
						  err));
		if (full.resume.catalog == in->catalog)
			UNS_TRY(find_names(in, &full, out, err));
		if (parameter == FSDP)
			UNS_TRY(notes(in, out, err));
	}
	if (parameter == FSDP) {
		UNS_TRY(uns_full_add_torch_model(&full, "pytorch_model_fsdp", out, err));
		UNS_TRY(uns_full_add_optimizer(&full, UNS_IDS_NAMES, "optimizer.bin", out, err));
		UNS_TRY(uns_full_add_others(&full, UNS_IDS_NAMES, "pytorch_model_fsdp", out, err));
	} else {
		UNS_TRY(find_modules(in, &full, out, err));
		UNS_TRY(add_plain(&full, in->config, out, err));
		if (in->catalog->summary.adapter != UNS_ADAPTER_NONE &&
		    in->catalog->summary.adapter != UNS_ADAPTER_OTHER)
			UNS_TRY(uns_adapter_config_add(&adapter, out, err));
	}
	return uns_full_add_rest(&full, out, err);
}

/* Must a script load the view's files one by one, because no trainer's own loader reads such a checkpoint? */
static bool is_loaded_by_hand(const struct uns_catalog *cat)
{
	return uns_full_is_for_script(cat) || cat->summary.family == UNS_FAMILY_RANKS;
}

static bool is_for_trainer(const struct uns_view_input *in)
{
	return uns_megatron_trainer_step(in->catalog, in->training) != UNS_UNKNOWN;
}

static const char by_fsdp[] = "trainer.train(resume_from_checkpoint=\"%s\")  # with FSDP, FULL_STATE_DICT";

static const char *usage_fsdp(const struct uns_view_input *in)
{
	const struct uns_catalog *cat = in->catalog;
	const bool by_lightning = cat->summary.resumed_by & UNS_BY_LIGHTNING;
	const bool by_hand = is_loaded_by_hand(cat) || cat->summary.resumed_by & UNS_BY_ENGINE;

	if (is_for_trainer(in))
		return by_fsdp;
	if ((by_hand || by_lightning) && !uns_optimizer_root(cat))
		return "torch.load(\"%s/pytorch_model_fsdp.bin\", weights_only=True)";
	if (by_hand)
		return "set_optimizer_state_dict(model, optimizer, "
		       "torch.load(\"%s/optimizer.bin\"), "
		       "options=StateDictOptions(full_state_dict=True))  # load "
		       "pytorch_model_fsdp.bin likewise";
	if (by_lightning)
		return "torch.load(\"%s/optimizer.bin\", weights_only=True)";
	return cat->summary.resumed_by & UNS_BY_ACCELERATE
		       ? "accelerator.load_state(\"%s\")  # with FSDP, FULL_STATE_DICT"
		       : by_fsdp;
}

static const char by_trainer[] = "trainer.train(resume_from_checkpoint=\"%s\")";

static const char *usage(const struct uns_view_input *in, uint64_t parameter, bool is_file)
{
	const struct uns_catalog *cat = in->catalog;

	if (cat->summary.resumed_by & UNS_BY_FABRIC && cat->summary.is_one_file)
		return UNS_LINE_OF_FABRIC;
	if (is_file)
		return parameter == FSDP ? "trainer.fit(model, ckpt_path=\"%s\")  # FSDPStrategy"
					 : "trainer.fit(model, ckpt_path=\"%s\")";
	if (parameter == FSDP)
		return usage_fsdp(in);
	if (is_for_trainer(in))
		return by_trainer;
	if (cat->summary.resumed_by & UNS_BY_ENGINE)
		return "model.load_state_dict(torch.load(\"%s/pytorch_model.bin\"))  # load "
		       "optimizer.bin, scheduler.bin, client_state.pt likewise";
	if (is_loaded_by_hand(cat) && !uns_optimizer_root(cat))
		return UNS_LINE_OF_FILES;
	if (uns_full_is_for_script(cat))
		return "optimizer.load_state_dict(torch.load(\"%s/optimizer.pt\"))  # load "
		       "*.safetensors with safetensors.torch.load_file";
	if (is_loaded_by_hand(cat))
		return "torch.load(\"%s/optimizer.pt\", weights_only=True)";
	return cat->summary.resumed_by & UNS_BY_ACCELERATE ? "accelerator.load_state(\"%s\")" : by_trainer;
}

static const char *const listed[] = { "", "fsdp", NULL };

extern const struct uns_view uns_view_full;
const struct uns_view uns_view_full = {
	.name = "full",
	.listed = listed,
	.parse = parse,
	.needs_finished = true,
	.needs_companions = true,
	.names_optimizer = uns_view_always,
	.needs_training = true,
	.supports = supports,
	.supports_input = supports_input,
	.tree = tree,
	.notes = notes,
	.form = UNS_FORM_FILE,
	.usage = usage,
};
