/* A *_model_states.pt as read, and its tensors into a catalog.
 *
 *   {module: {name: tensor}   stages 0 to 2: whole; stage 3: buffers whole, parameters empty
 *    buffer_names: [name], param_shapes: [{name: size} of a group], frozen_param_shapes: {name: size},
 *    frozen_param_fragments: {name: tensor; stage 3: this rank's slice}, shared_params: {alias: name},
 *    dp_world_size, global_steps, lr_scheduler, ds_config, .. and the client's own keys}
 *
 * Source: deepspeed 0.14 to 0.19, runtime/engine.py (_save_checkpoint). */
#ifndef UNS_ZERO_READ_MODEL_H
#define UNS_ZERO_READ_MODEL_H

#include "base/map.h"
#include "zero/file.h"
#include "parallel/shapes.h"
#include "parallel/slices.h"

struct uns_zero_model {
	const struct uns_value *root; /* of the lowest rank's file; in the catalog's arena */
	struct uns_zero_shapes *shapes;
	size_t n_shapes;
	bool has_shapes; /* false: stage 0 of a version that does not write them */
	struct uns_zero_shapes frozen;
};

int uns_zero_model_parse(const struct uns_value *root, struct uns_arena *arena, struct uns_zero_model *out,
			 struct uns_err *err);

/* Names to tensors (index + 1) that the catalog has already. */
struct uns_zero_names {
	struct uns_map weights, masters;
};
void uns_zero_names_fini(struct uns_zero_names *names);
/* The tensor `index` has this name. */
int uns_zero_name_put(struct uns_map *map, const char *name, uint32_t index, struct uns_err *err);
/* Adds `name` as a second name of tensor `of`. */
int uns_zero_name_alias(struct uns_catalog *cat, struct uns_map *map, const char *name, uint32_t of,
			struct uns_err *err);
/* Adds the weight `t` of a checkpoint that holds its master only: it is that, rounded to t->dtype. Adds nothing if
 * there is no master of its name. */
int uns_zero_names_add_rounded(struct uns_catalog *cat, struct uns_zero_names *names, struct uns_tensor *t,
			       struct uns_err *err);

/* A model's state dict as its files hold it: of each tensor-parallel rank its open file, and the dict there. */
struct uns_zero_modules {
	const struct uns_zero_slices *slices;
	const struct uns_zero_file *const *file; /* slices->n_ranks, both */
	const struct uns_value *const *dict;
};

/* Add the state dict: weights, and buffers by buffer_names; those that share their bytes as aliases. Empty
 * parameters (stage 3) become weights that are their masters rounded, and with no master are left out: check
 * with uns_zero_model_check. `prefix` goes before each name. */
int uns_zero_model_add(struct uns_catalog *cat, const struct uns_zero_model *model,
		       const struct uns_zero_modules *modules, const char *prefix, struct uns_zero_names *names,
		       struct uns_err *err);

/* Adds the tensors of a file that is one state dict, whole: a pipeline's layer, an expert. */
int uns_zero_model_add_file(struct uns_catalog *cat, const struct uns_zero_file *file, const char *prefix,
			    struct uns_zero_names *names, struct uns_err *err);

/* shared_params: names that are others' tensors, as weights and as masters. */
int uns_zero_model_add_shared(struct uns_catalog *cat, const struct uns_zero_model *model, struct uns_zero_names *names,
			      struct uns_err *err);

/* A problem with scope WEIGHTS when a name of `module` or of param_shapes has no tensor. */
int uns_zero_model_check(struct uns_catalog *cat, const struct uns_zero_model *model, const char *path,
			 const struct uns_zero_names *names, struct uns_err *err);

/* Of one tensor-parallel rank: its frozen parameters, and the model files of data-parallel ranks 0 .. n - 1 as the
 * catalog numbers them. */
struct uns_zero_frozen {
	const struct uns_zero_shapes *shapes;
	uint32_t *file;
	size_t n;
};

/* Stage 3: frozen parameters are sliced over the ranks' model files. of: slices->n_ranks of them. What
 * cannot be read is a problem with scope WEIGHTS. */
int uns_zero_frozen_add(struct uns_catalog *cat, const struct uns_zero_frozen *of, const struct uns_zero_slices *slices,
			struct uns_zero_names *names, struct uns_err *err);

#endif
