/* Owns which keys of DeepSpeed's dicts are the engine's (deepspeed 0.14 to 0.19, runtime/engine.py _save_checkpoint):
 * all others are the client's, which the engine puts into the same dict. */
#include "zero/values.h"

#include <string.h>

#include "base/path.h"
#include "model/client_state.h"
#include "wire/value_map.h"

/* The engine's too, but of use also to a trainer that resumes without it. */
static const char *const engine_counters[] = { "skipped_steps", "global_steps", "global_samples", NULL };
const char *const uns_engine_keys[] = {
	"buffer_names",
	"param_shapes",
	"frozen_param_shapes",
	"shared_params",
	"lr_scheduler",
	"data_sampler",
	"random_ltd",
	"sparse_tensor_module_names",
	"dp_world_size",
	"mp_world_size",
	"checkpoint_parallel_dimensions",
	"universal_checkpoint_info",
	"num_experts",
	"ds_autoep_layers",
	"ds_config",
	"ds_version",
	"autotuning_metric_path",
	NULL,
};
/* Tensors, which are in the catalog as such, and maps of them that are not to be trusted. */
static const char *const model_tensors[] = { "module", "optimizer", "frozen_param_fragments", NULL };
static const char *const optim_tensors[] = { "base_optimizer_state",
					     "single_partition_of_fp32_groups",
					     "fp32_flat_groups",
					     "optimizer_state_dict",
					     "param_slice_mappings",
					     "param_groups",
					     NULL };

static int add_value(struct uns_catalog *cat, uint32_t file, const char *root, const char *name,
		     const struct uns_value *v, struct uns_err *err)
{
	const struct uns_named_value value = { .name = name, .root = root, .value = v, .file = file };

	return uns_catalog_add_value(cat, &value, err);
}

/* A tensor that cannot be read is kept as the value that it is: 0 = such a one. */
static int add_tensor(struct uns_catalog *cat, const struct uns_zero_file *file, const char *root, const char *name,
		      const struct uns_value *v, struct uns_err *err)
{
	struct uns_tensor t = { .name = name, .key = name, .root = root, .role = UNS_ROLE_OTHER, UNS_TENSOR_ALONE };
	struct uns_piece piece;

	if (uns_zero_file_tensor(file, v, &cat->arena, &t, &piece, NULL) < 0)
		return 0;
	UNS_TRY(uns_catalog_add_tensor(cat, &t, NULL, err));
	UNS_TRY(uns_catalog_add_piece(cat, &piece, err));
	return 1;
}

/* The tensors inside a client's value, counted as uns_value_map visits them. */
struct inside {
	struct uns_catalog *cat;
	const struct uns_zero_file *file;
	const char *root;
	size_t n;
};

static int add_inside(void *ctx, const struct uns_value *v, const struct uns_value **out, struct uns_err *err)
{
	struct inside *in = ctx;
	const char *name;

	if (!uns_torch_is_tensor(v))
		return 0;
	*out = v;
	UNS_TRY_ALLOC(name = uns_arena_printf(&in->cat->arena, "%zu", in->n++), err);
	UNS_TRY(add_tensor(in->cat, in->file, in->root, name, v, err));
	return 1;
}

static int add_client(struct uns_catalog *cat, const struct uns_zero_file *file, const char *name,
		      const struct uns_value *v, struct uns_err *err)
{
	struct inside in = { cat, file, uns_arena_printf(&cat->arena, UNS_CLIENT_INSIDE "%s", name), 0 };
	const struct uns_value_mapper mapper = { add_inside, &in };
	const struct uns_value *same;
	struct uns_err why = { 0 };
	int code;

	UNS_TRY_ALLOC(in.root, err);
	if (uns_torch_is_tensor(v)) {
		UNS_TRY(code = add_tensor(cat, file, UNS_CLIENT_ROOT, name, v, err));
		return code ? 0 : add_value(cat, file->index, UNS_CLIENT_ROOT, name, v, err);
	}
	code = uns_value_map(v, &mapper, &cat->arena, &same, &why);
	if (code < 0 && code != -ENOTSUP) /* too deep: kept as it is, and never written */
		return uns_fail_copy(err, &why);
	return add_value(cat, file->index, UNS_CLIENT_ROOT, name, v, err);
}

int uns_zero_values_add_model(struct uns_catalog *cat, const struct uns_zero_file *file, struct uns_err *err)
{
	const struct uns_value *root = file->torch.root;
	const char *name;
	size_t i;

	for (i = 0; root->kind == UNS_VALUE_DICT && i < root->n; i++) {
		name = uns_value_str(root->pair[i].key);
		if (!name || uns_str_in(name, model_tensors))
			continue;
		if (uns_str_in(name, uns_engine_keys) || uns_str_in(name, engine_counters))
			UNS_TRY(add_value(cat, file->index, "model_states", name, root->pair[i].value, err));
		else
			UNS_TRY(add_client(cat, file, name, root->pair[i].value, err));
	}
	return 0;
}

int uns_zero_values_add_optim(struct uns_catalog *cat, uint32_t file, const struct uns_value *dict, struct uns_err *err)
{
	const char *name;
	size_t i;

	for (i = 0; dict && dict->kind == UNS_VALUE_DICT && i < dict->n; i++) {
		name = uns_value_str(dict->pair[i].key);
		if (name && !uns_str_in(name, optim_tensors))
			UNS_TRY(add_value(cat, file, "optim_states", name, dict->pair[i].value, err));
	}
	return 0;
}
