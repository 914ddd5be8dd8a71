/* What a view is: one file in this folder that turns a catalog into a directory that some framework
 * loads. CMake collects lib/views/X.c into a table of uns_view_X. Views are pure: they read no file;
 * what they need from outside the catalog reaches them in uns_view_input. */
#ifndef UNS_VIEWS_VIEW_H
#define UNS_VIEWS_VIEW_H

#include "names/config.h"
#include "names/pipeline.h"
#include "names/published_names.h"
#include "names/sentence_modules.h"
#include "files/adapter_config.h"
#include "files/adapter_list.h"
#include "files/base_model.h"
#include "files/expert_forms.h"
#include "files/resume_files.h"
#include "megatron/lora.h"
#include "model/training.h"
#include "model/tree.h"

/* A text file beside the shards whose content a view may change (config.json). */
struct uns_view_text {
	const char *name;
	struct uns_span bytes;
};

struct uns_view_input {
	const struct uns_catalog *catalog;

	/* config, tokenizer, processor and code files chosen by the session: each set from one
	 * directory. Their files are in the catalog. */
	const struct uns_companion *borrowed;
	size_t n_borrowed;
	struct uns_span config; /* config.json's bytes; empty = there is none */
	struct uns_config_info config_info; /* what was read of it; zeros where there is none */

	/* Tensors of role WEIGHT that are proven equal to another one and that config ties: left out
	 * by views that write what save_pretrained writes. */
	const struct uns_tensor *const *tied;
	size_t n_tied;

	/* Facts of the training, merged; trainer_state.json's own text where the checkpoint has a valid
	 * one (then it is passed through). NULL = nothing is known. */
	const struct uns_training *training;
	bool trainer_state_valid;
	bool hide_rng; /* -o rng=hide: no file of random states in any view */
	bool keep_rng; /* -o rng=keep was given: views show random states that another number of ranks saved, too */

	const struct uns_finding *notes; /* what the session found out on the way (ties, borrowed sets) */
	size_t n_notes;

	uint64_t max_shard_size_bytes; /* of weights; never 0 */
	const char *strip; /* -o strip=: left out in front of weights' names; NULL = nothing */
	const char
		*prefix; /* in front of every weight's name, and of none that config.json's model has; NULL = nothing */
	const struct uns_base_names *base; /* what the base model's files call its tensors */
	struct uns_sentence_modules modules; /* n = 0: weights are not those of sentence-transformers */
	struct uns_pipeline pipeline; /* n = 0: weights are not shown as a pipeline of diffusers */
	struct uns_adapter_facts adapter; /* for an adapter_config.json, if none of borrowed is one */
	struct uns_span adapter_config; /* its bytes, if one of borrowed is one; else empty */
	struct uns_adapter_choice adapters; /* -o adapters= */
	const struct uns_span
		*adapter_configs; /* of each of them: its own NAME/adapter_config.json; empty = it has none */
	const struct uns_base_model *base_model; /* what an adapter alone is put on */
	bool keep_names; /* -o names=memory: weights have the names that were saved */
	enum uns_expert_form experts; /* -o experts= */
};

/* How a checkpoint that is one file (summary.is_one_file) appears: as a directory of its own name, as one
 * file NAME.ckpt, or both, the directory then without ".ckpt". */
enum uns_form { UNS_FORM_DIR, UNS_FORM_FILE, UNS_FORM_BOTH };

struct uns_view {
	const char *name; /* the directory; a parameter follows after '-': "weights-bf16" */
	/* Parameters that are listed at the mount's root ("bf16"); NULL-terminated, "" = the bare
	 * name. Others may still be accepted by `parse`. */
	const char *const *listed;
	/* Further parameters that texts about the view name ("fp8"); NULL-terminated, NULL = none. */
	const char *const *not_listed;
	/* What texts about the view have in the place of a parameter ("N"), if `listed` has none. */
	const char *placeholder;
	/* Canonical parameter text -> a number for tree(); false = no such view. */
	bool (*parse)(const char *parameter, uint64_t *out);
	/* A view that must not be shown before the save has ended (it lists what is on disk). */
	bool needs_finished;
	/* Needs config, tokenizer and so on (uns_view_input's borrowed, tied). */
	bool needs_companions;
	/* Is made of as many checkpoints of a run as its parameter is (session/means.h). */
	bool of_run;
	/* Shows a checkpoint that is one file as a directory of its name; others show the file unchanged. */
	bool opens_files;
	/* Shows what the optimizer has under the names of its parameters, which must be proven if a rule gave them
	 * (summary.named_by_rule). NULL = never. */
	bool (*names_optimizer)(uint64_t parameter);
	/* Needs uns_view_input's training and trainer_state_valid. */
	bool needs_training;
	/* Megatron-LM resumes from it. */
	bool for_megatron;
	/* 0; -ENODATA or -EBADMSG: damaged or not complete yet; -ENOTSUP: this kind of checkpoint has no
	 * such form. `why` gets the finding: one of the catalog's own, or a new one. Proves cover of what it
	 * serves. */
	int (*supports)(const struct uns_catalog *cat, uint64_t parameter, struct uns_err *why);
	/* The same about borrowed files (config.json), once `supports` has answered 0. NULL = they do not matter. */
	int (*supports_input)(const struct uns_view_input *in, uint64_t parameter, struct uns_err *why);
	int (*tree)(const struct uns_view_input *in, uint64_t parameter, struct uns_vtree *out, struct uns_err *err);
	/* The sentences that tree() adds about what loads the view, without making anything: for `unshard
	 * show`. NULL = there are none. */
	int (*notes)(const struct uns_view_input *in, struct uns_vtree *out, struct uns_err *err);
	/* The file that names to the loader the last checkpoint of a run ("latest_universal"). The tree has
	 * one of that name; another is made in the run's directory where each tag in it is a checkpoint
	 * (paths/run_mark.c). NULL = there is none. */
	const char *run_mark;
	/* The file is uns_vtree's `whole`; a tree without one (and a damaged checkpoint) is a directory
	 * under every name. A checkpoint that is SOURCE itself cannot be a file: the view puts the file
	 * into its directory. */
	enum uns_form form;
	/* "AutoModelForCausalLM.from_pretrained(\"%s\")": the line that `unshard show` prints for this
	 * checkpoint, %s = its path in the view. is_file: as a file; only where `form` makes one. */
	const char *(*usage)(const struct uns_view_input *in, uint64_t parameter, bool is_file);
};

extern const struct uns_view *const uns_views[]; /* ends with NULL */

/* -- what several views begin with -- */

/* A view without a parameter: its own name is all there is to list, and to parse. */
static inline bool uns_view_parse_bare(const char *parameter, uint64_t *out)
{
	*out = 0;
	return !*parameter;
}
#define UNS_VIEW_IS_BARE .listed = (const char *const[]){ "", NULL }, .parse = uns_view_parse_bare

/* For `names_optimizer`: whatever the parameter. */
static inline bool uns_view_always(uint64_t parameter)
{
	(void)parameter;
	return true;
}

/* For `usage`: loads the tensors of all safetensors files of a directory. */
#define UNS_LINE_OF_FILES \
	"{k: v for f in glob.glob(\"%s/*.safetensors\") for k, v in safetensors.torch.load_file(f).items()}"

/* For `usage`: Lightning Fabric loads all that the script names in `state`. */
#define UNS_LINE_OF_FABRIC "fabric.load(\"%s\", state)"

/* What an adapter_config.json is made of, unless another program than PEFT named the adapter's tensors. */
static inline struct uns_adapter_config uns_view_adapter_config(const struct uns_view_input *in)
{
	return (struct uns_adapter_config){ in->catalog, in->borrowed, in->n_borrowed, &in->adapter, NULL };
}

/* The config.json of the adapted model; empty = none was found. */
static inline const struct uns_span *uns_view_adapted_config(const struct uns_view_input *in)
{
	return uns_span_left(&in->config) ? &in->config : &in->base_model->config;
}

/* Sets *out to the adapter that another program than PEFT named, in *room; to NULL if there is none. Fails as
 * uns_other_lora_convert. */
static inline int uns_view_other_lora(const struct uns_view_input *in, struct uns_arena *arena,
				      struct uns_other_lora *room, const struct uns_other_lora **out,
				      struct uns_err *err)
{
	const bool own_config = uns_span_left(&in->config);
	const struct uns_megatron_lora megatron = { in->catalog, own_config ? &in->config_info : &in->base_model->info,
						    *uns_view_adapted_config(in), in->adapter.expert_ranks };

	*out = in->catalog->summary.adapter == UNS_ADAPTER_OTHER ? room : NULL;
	if (!*out)
		return 0;
	return in->catalog->summary.is_megatron
		       ? uns_megatron_lora_convert(&megatron, arena, room, err)
		       : uns_other_lora_convert(in->catalog, megatron.config, arena, room, err);
}

/* What a view shows beside weights and optimizer. */
static inline struct uns_resume_input uns_view_resume(const struct uns_view_input *in)
{
	return (struct uns_resume_input){ .catalog = in->catalog,
					  .borrowed = in->borrowed,
					  .n_borrowed = in->n_borrowed,
					  .training = in->training,
					  .trainer_state_valid = in->trainer_state_valid,
					  .hide_rng = in->hide_rng };
}

#endif
