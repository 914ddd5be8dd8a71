/* The files of the view full: a complete checkpoint from a catalog. */
#ifndef UNS_FILES_FULL_FILES_H
#define UNS_FILES_FULL_FILES_H

#include "names/memory_names.h"
#include "names/pipeline.h"
#include "names/sentence_modules.h"
#include "files/optimizer_state.h"
#include "files/resume_files.h"

struct uns_full_input {
	struct uns_resume_input resume;
	const struct uns_tensor *const *tied; /* left out of model.safetensors */
	size_t n_tied;
	/* If n > 0: the names and shapes that the weights get, instead of those of the files. */
	struct uns_memory_names in_memory;
	/* Of a SentenceTransformer: each module's tensors go into its directory, without their prefix. NULL = none. */
	const struct uns_sentence_modules *modules;
	const struct uns_finding *notes; /* go into the tree's notes */
	size_t n_notes;
	uint64_t max_shard_size_bytes;
};

/* Does the tensor belong to model k of an Accelerate state, 0 = the first? The highest k of a catalog is
 * uns_full_last_model. */
bool uns_full_is_of_model(const struct uns_catalog *cat, const struct uns_tensor *t, unsigned k);
unsigned uns_full_last_model(const struct uns_catalog *cat);

/* Returns 0 if the weights, and the optimizer if the checkpoint has one, are complete. -ENOTSUP without weights. */
int uns_full_check(const struct uns_catalog *cat, struct uns_err *why);

/* A torch distributed checkpoint that no known trainer resumes from, only the script that saved it. */
bool uns_full_is_for_script(const struct uns_catalog *cat);

/* The checkpoint was saved by one process without sharding (a plain Trainer): weights and optimizer are shown
 * unchanged. */
bool uns_full_is_plain(const struct uns_catalog *cat);

/* Returns 0 if the optimizer's parameters have names, as FSDP's full state dict needs; otherwise -ENOTSUP. */
int uns_full_check_names(const struct uns_catalog *cat, struct uns_err *why);

/* model.safetensors (+ index), names as in memory; an adapter as adapter_model.safetensors. */
int uns_full_add_safetensors(const struct uns_full_input *in, struct uns_vtree *out, struct uns_err *err);

/* STEM.bin: {name: tensor}, tied names included, as FSDP's full state dict has them. */
int uns_full_add_torch_model(const struct uns_full_input *in, const char *stem, struct uns_vtree *out,
			     struct uns_err *err);

/* The optimizer's file. Without a scheduler a Trainer would skip it: then no file and a note. */
int uns_full_add_optimizer(const struct uns_full_input *in, enum uns_param_ids ids, const char *name,
			   struct uns_vtree *out, struct uns_err *err);

/* The further models of an Accelerate state, and their optimizers: STEM_<k>.bin, optimizer_<k>.bin. */
int uns_full_add_others(const struct uns_full_input *in, enum uns_param_ids ids, const char *stem,
			struct uns_vtree *out, struct uns_err *err);

/* The same of an inference directory: model_<k>/model.safetensors (+ index) of each further model, or the files of the
 * pipeline's component that it is, floating dtypes converted to `dtype` (UNS_DTYPE_NONE: none). A damaged model gets a
 * note instead. Call it before the first model's files are added: the tree lists the tensors of the last set. */
int uns_full_add_other_models(const struct uns_catalog *cat, const struct uns_pipeline *pipeline, enum uns_dtype dtype,
			      uint64_t max_shard_size_bytes, struct uns_vtree *out, struct uns_err *err);

/* Everything else (files/resume_files.h) and the notes. */
int uns_full_add_rest(const struct uns_full_input *in, struct uns_vtree *out, struct uns_err *err);

#endif
