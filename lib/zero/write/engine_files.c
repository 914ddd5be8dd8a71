/* Makes files of the catalog's values of root "model_states", "client_state" and "optim_states". Owns how DeepSpeed's
 * DynamicLossScaler (runtime/fp16/loss_scaler.py) becomes torch's GradScaler. */
#include "zero/write/engine_files.h"

#include <string.h>

#include "base/cleanup.h"
#include "zero/engine_state.h"
#include "wire/value_new.h"
#include "zero/values.h"

/* A file of that name beside the shards goes first. */
static int add_file(const struct uns_catalog *cat, const char *name, const char *stem, const char *origin,
		    const struct uns_value *root, const struct uns_torch_leaves *leaves, struct uns_vtree *out,
		    struct uns_err *err)
{
	const struct uns_torch_input in = { .cat = cat, .root = root, .leaves = leaves, .stem = stem };
	struct uns_vfile file = { .path = name, .source = UNS_NONE, .origin = origin };
	struct uns_err why = { 0 };
	int code;

	if (uns_catalog_companion(cat, name))
		return 0;
	code = uns_part_torch_file(&in, &out->arena, &file.layout, &why);
	if (code == 0)
		return uns_vtree_add(out, &file, err);
	if (code == -ENOMEM)
		return uns_oom(err);
	return uns_vtree_note(out, err, "%s is left out: %s", name, why.text);
}

/* -- a plain engine -- */

static int add_scheduler(const struct uns_catalog *cat, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_value *state = uns_catalog_value(cat, "model_states", "lr_scheduler");

	if (!state || state->kind != UNS_VALUE_DICT)
		return 0;
	return add_file(cat, "scheduler.bin", "scheduler", "lr_scheduler of the engine's model file", state, NULL, out,
			err);
}

/* The counters and what the script added; everything else there is about the engine's own form. */
static int add_client_state(const struct uns_catalog *cat, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_engine_state_fini) struct uns_engine_state state = { 0 };

	UNS_TRY(uns_engine_model_state(cat, cat->summary.step, uns_engine_keys, 0, out, &state, err));
	return add_file(cat, "client_state.pt", "client_state",
			"the engine's counters and the script's own state, of its model file", state.dict,
			&state.leaves, out, err);
}

int uns_engine_files_add(const struct uns_catalog *cat, struct uns_vtree *out, struct uns_err *err)
{
	UNS_TRY(add_scheduler(cat, out, err));
	return add_client_state(cat, out, err);
}

/* -- the loss scale -- */

struct scale {
	double scale, factor;
	int64_t window, at, last_overflow;
};

static bool find_scale(const struct uns_catalog *cat, struct scale *out)
{
	const struct uns_value *v = uns_catalog_value(cat, "optim_states", "loss_scaler");

	return uns_value_is(v, "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler") &&
	       uns_value_float(uns_value_field(v, "cur_scale"), &out->scale) &&
	       uns_value_float(uns_value_field(v, "scale_factor"), &out->factor) &&
	       uns_value_int(uns_value_field(v, "scale_window"), &out->window) &&
	       uns_value_int(uns_value_field(v, "cur_iter"), &out->at) &&
	       uns_value_int(uns_value_field(v, "last_overflow_iter"), &out->last_overflow) && out->factor > 1 &&
	       out->window > 0 && out->last_overflow >= -1 && out->last_overflow < out->at;
}

int uns_engine_scaler_add(const struct uns_catalog *cat, struct uns_vtree *out, struct uns_err *err)
{
	struct uns_arena *arena = &out->arena;
	struct uns_value *root;
	struct scale s;

	if (!find_scale(cat, &s) || uns_catalog_companion(cat, "scaler.pt"))
		return 0;
	root = uns_value_new_dict(arena, 5);
	if (!uns_value_put_str(arena, root, "scale", uns_value_new_float(arena, s.scale)) ||
	    !uns_value_put_str(arena, root, "growth_factor", uns_value_new_float(arena, s.factor)) ||
	    !uns_value_put_str(arena, root, "backoff_factor", uns_value_new_float(arena, 1 / s.factor)) ||
	    !uns_value_put_str(arena, root, "growth_interval", uns_value_new_int(arena, s.window)) ||
	    /* steps since the scale last changed */
	    !uns_value_put_str(arena, root, "_growth_tracker",
			       uns_value_new_int(arena, (s.at - s.last_overflow - 1) % s.window)))
		return uns_oom(err);
	UNS_TRY(uns_vtree_note(out, err,
			       "scaler.pt is the loss scale of fp16: a Trainer with fp16 resumes "
			       "from it, one without fp16 fails on it"));
	return add_file(cat, "scaler.pt", "scaler", "DeepSpeed's DynamicLossScaler as torch's GradScaler", root, NULL,
			out, err);
}
