/* Makes DeepSpeed's dicts of the catalog's values. Owns which keys they have (runtime/engine.py, _save_checkpoint and
 * _load_checkpoint), not which files they go into. */
#include "zero/engine_state.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "model/client_state.h"
#include "wire/torchfile.h"
#include "wire/value_map.h"
#include "wire/value_new.h"
#include "parallel/experts.h"
#include "zero/layout.h"
#include "zero/names.h"

/* The form that is written; 0.3.17 is the oldest that stage 1 takes. */
#define WRITTEN_VERSION "0.19.8"

const struct uns_pickle_class uns_engine_classes[] = {
	{ .name = "deepspeed.runtime.fp16.loss_scaler.LossScaler" },
	{ .name = "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler" },
	{ .name = "deepspeed.runtime.zero.config.ZeroStageEnum", .called = true },
	{ .name = NULL },
};

size_t uns_engine_count_files(const struct uns_catalog *cat, enum uns_zero_kind kind)
{
	struct uns_zero_name name;
	size_t i, n = 0;

	for (i = 0; i < cat->n_companions; i++)
		n += cat->companions[i].shard && uns_zero_name_parse(uns_path_name(cat->companions[i].name), &name) &&
		     name.kind == kind;
	return n;
}

bool uns_engine_is_expert(const struct uns_catalog *cat, const char *tensor)
{
	const char *rest;
	uint64_t number;
	size_t prefix;

	return cat->summary.has_experts && uns_zero_expert_of(tensor, &prefix, &number, &rest);
}

const char *uns_engine_experts(const struct uns_group *group)
{
	const char *name = uns_value_str(uns_value_get(group->hyper, "name"));

	return name && uns_str_starts(name, UNS_ZERO_EXPERTS) ? name : NULL;
}

uint64_t uns_engine_autoep(const struct uns_catalog *cat, const char *name)
{
	const struct uns_value *layers = uns_catalog_value(cat, "model_states", "ds_autoep_layers"), *params;
	uint64_t n;
	size_t i;

	for (i = 0; uns_value_at(layers, i); i++) {
		params = uns_value_get(uns_value_get(layers->item[i], "affine_maps"), "params");
		if (uns_value_get(params, name) && uns_value_u64(uns_value_get(layers->item[i], "num_experts"), &n))
			return n;
	}
	return 0;
}

size_t uns_engine_autoep_ranks(const struct uns_catalog *cat, const struct uns_group *group)
{
	const struct uns_value *layers = uns_catalog_value(cat, "model_states", "ds_autoep_layers");
	uint64_t n;

	return group->n_params && uns_engine_autoep(cat, group->param[0]) &&
			       uns_value_u64(uns_value_get(uns_value_at(layers, 0), "ep_size"), &n)
		       ? (size_t)n
		       : 1;
}

static bool experts_vary(const struct uns_catalog *cat)
{
	const char *first = NULL, *name;
	size_t g;

	for (g = 0; g < cat->n_groups; g++) {
		name = uns_engine_experts(&cat->groups[g]);
		if (name && first && strcmp(name, first) != 0)
			return true;
		first = name ? name : first;
	}
	return false;
}

void uns_engine_summary(struct uns_catalog *cat)
{
	struct uns_summary *summary = &cat->summary;

	summary->has_engine_state = uns_catalog_value(cat, "model_states", "dp_world_size") != NULL;
	/* A pipeline saves its layers in files of their own, deepspeed.moe its experts, as AutoEP does. */
	summary->is_pipeline = uns_engine_count_files(cat, UNS_ZERO_LAYER) > 0;
	summary->is_autoep = uns_value_at(uns_catalog_value(cat, "model_states", "ds_autoep_layers"), 0) != NULL;
	summary->has_experts = !summary->is_autoep && uns_engine_count_files(cat, UNS_ZERO_EXPERT) > 0;
	summary->experts_vary = summary->has_experts && experts_vary(cat);
	summary->is_round_robin = uns_zero_is_round_robin(uns_catalog_value(cat, "model_states", "ds_config"));
	if (uns_catalog_value(cat, UNS_CLIENT_ROOT, "pytorch-lightning_version"))
		summary->resumed_by |= UNS_BY_LIGHTNING;
}

const struct uns_value *uns_engine_version(const struct uns_catalog *cat, struct uns_arena *arena)
{
	const struct uns_value *v = uns_catalog_value(cat, "optim_states", "ds_version");

	if (!v || !uns_value_str(v))
		v = uns_catalog_value(cat, "model_states", "ds_version");
	return v && uns_value_str(v) ? v : uns_value_new_str(arena, WRITTEN_VERSION);
}

struct uns_value *uns_engine_group(struct uns_arena *arena, const struct uns_group *group, size_t first_param,
				   size_t n_params)
{
	struct uns_value *dict = uns_value_new_dict_of(arena, group->hyper, NULL, 1);
	struct uns_value *ids = uns_value_new_list(arena, n_params);
	size_t i;

	for (i = 0; i < n_params; i++)
		if (!uns_value_append(ids, uns_value_new_int(arena, (int64_t)(first_param + i))))
			return NULL;
	return uns_value_put_str(arena, dict, "params", ids) ? dict : NULL;
}

/* -- what was saved -- */

/* 1 = it can be written; 0 = it cannot, and the tree has a note of it. */
static int can_write(const struct uns_named_value *v, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	struct uns_err why = { 0 };
	int code = v->value ? uns_pickle_emit(v->value, NULL, 0, uns_engine_classes, &text, &why)
			    : uns_fail(&why, -ENOTSUP, "it is a file of its own");

	if (code == -ENOMEM)
		return uns_oom(err);
	if (code == 0)
		return 1;
	return uns_vtree_note(out, err, "%s is left out of %s: %s", v->name, v->root, why.text);
}

static int put_saved(const struct uns_named_value *v, struct uns_vtree *out, struct uns_value *dict,
		     struct uns_err *err)
{
	int code = can_write(v, out, err);

	if (code <= 0)
		return code;
	return uns_value_put_str(&out->arena, dict, v->name, v->value) ? 0 : uns_oom(err);
}

static bool is_client_tensor(const struct uns_tensor *t)
{
	return t->role == UNS_ROLE_OTHER && strcmp(t->root, UNS_CLIENT_ROOT) == 0;
}

/* The tensors inside one of the client's values, in the catalog's order, which is that of their numbers. */
struct inside {
	const struct uns_catalog *cat;
	const char *key;
	struct uns_arena *arena;
	struct uns_engine_state *state; /* NULL: only try whether it could be written */
	size_t n, at;                   /* the next number; where in the catalog to continue */
};

static bool is_inside(const struct uns_tensor *t, const char *key)
{
	return t->role == UNS_ROLE_OTHER && uns_str_starts(t->root, UNS_CLIENT_INSIDE) &&
	       strcmp(t->root + strlen(UNS_CLIENT_INSIDE), key) == 0;
}

/* The tensor of the next number; NULL = it could not be read. */
static const struct uns_tensor *next_inside(struct inside *in)
{
	const size_t wanted = in->n++;
	const struct uns_tensor *t;
	unsigned long long number;

	for (; in->at < in->cat->n_tensors; in->at++) {
		t = &in->cat->tensors[in->at];
		if (!is_inside(t, in->key) || !uns_str_number(t->name, "", "", &number) || number < wanted)
			continue;
		return number == wanted ? t : NULL;
	}
	return NULL;
}

/* A tensor that could not be read is not in the catalog. It stays the value it was, which uns_pickle_emit refuses. */
static int put_leaf(void *ctx, const struct uns_value *v, const struct uns_value **out, struct uns_err *err)
{
	struct inside *in = ctx;
	const struct uns_tensor *t;

	if (!uns_torch_is_tensor(v))
		return 0;
	*out = v;
	t = next_inside(in);
	if (!t)
		return 1;
	*out = in->state ? uns_torch_tensor_add(&in->state->leaves, in->arena, t) : uns_value_new_none(in->arena);
	return *out ? 1 : uns_oom(err);
}

static int with_leaves(const struct uns_catalog *cat, const struct uns_named_value *v, struct uns_engine_state *state,
		       struct uns_arena *arena, struct uns_named_value *out, struct uns_err *err)
{
	struct inside in = { .cat = cat, .key = v->name, .arena = arena, .state = state };
	const struct uns_value_mapper mapper = { put_leaf, &in };
	struct uns_err why = { 0 };
	int code;

	*out = *v;
	code = v->value ? uns_value_map(v->value, &mapper, arena, &out->value, &why) : 0;
	return code < 0 && code != -ENOTSUP ? uns_fail_copy(err, &why) : 0;
}

static int put_client(const struct uns_catalog *cat, const struct uns_named_value *v, struct uns_vtree *out,
		      struct uns_engine_state *state, struct uns_err *err)
{
	struct uns_named_value shown;
	int code;

	UNS_TRY(with_leaves(cat, v, NULL, &out->arena, &shown, err));
	code = can_write(&shown, out, err);
	if (code <= 0)
		return code;
	UNS_TRY(with_leaves(cat, v, state, &out->arena, &shown, err));
	return uns_value_put_str(&out->arena, state->dict, v->name, shown.value) ? 0 : uns_oom(err);
}

static int put_own(const struct uns_catalog *cat, const char *const *without, struct uns_vtree *out,
		   struct uns_engine_state *state, struct uns_err *err)
{
	const struct uns_named_value *v = cat->values, *end = v + cat->n_values;
	const struct uns_tensor *t = cat->tensors, *last = t + cat->n_tensors;

	for (; v < end; v++) {
		if (uns_str_in(v->name, without))
			continue;
		if (strcmp(v->root, "model_states") == 0)
			UNS_TRY(put_saved(v, out, state->dict, err));
		else if (strcmp(v->root, UNS_CLIENT_ROOT) == 0)
			UNS_TRY(put_client(cat, v, out, state, err));
	}
	for (; t < last; t++)
		if (is_client_tensor(t) && !uns_value_put_str(&out->arena, state->dict, t->name,
							      uns_torch_tensor_add(&state->leaves, &out->arena, t)))
			return uns_oom(err);
	return 0;
}

/* -- what the engine requires -- */

static int put_foreign(const struct uns_catalog *cat, int64_t global_steps, const char *const *without,
		       struct uns_vtree *out, struct uns_engine_state *state, struct uns_err *err)
{
	struct uns_arena *arena = &out->arena;
	const struct {
		const char *name;
		const struct uns_value *v;
	} made[] = {
		{ "buffer_names", uns_value_new_list(arena, 0) },
		{ "lr_scheduler", uns_value_new_none(arena) },
		{ "skipped_steps", uns_value_new_int(arena, 0) },
		{ "global_steps", uns_value_new_int(arena, global_steps) },
		{ "dp_world_size",
		  uns_value_new_int(arena, cat->summary.world_size > 0 ? cat->summary.world_size : 1) },
		{ "mp_world_size", uns_value_new_int(arena, 1) },
		{ "ds_version", uns_engine_version(cat, arena) },
	};
	size_t i;

	for (i = 0; i < sizeof(made) / sizeof(*made); i++)
		if (!uns_str_in(made[i].name, without) &&
		    !uns_value_put_str(arena, state->dict, made[i].name, made[i].v))
			return uns_oom(err);
	return 0;
}

void uns_engine_state_fini(struct uns_engine_state *state)
{
	uns_torch_leaves_fini(&state->leaves);
}

int uns_engine_model_state(const struct uns_catalog *cat, int64_t global_steps, const char *const *without,
			   size_t more_keys, struct uns_vtree *out, struct uns_engine_state *state, struct uns_err *err)
{
	enum { FOREIGN_KEYS = 16 };
	size_t keys = cat->n_values + more_keys + FOREIGN_KEYS, i;

	for (i = 0; i < cat->n_tensors; i++)
		keys += is_client_tensor(&cat->tensors[i]);
	*state = (struct uns_engine_state){ .dict = uns_value_new_dict(&out->arena, keys) };
	UNS_TRY_ALLOC(state->dict, err);
	return cat->summary.has_engine_state ? put_own(cat, without, out, state, err)
					     : put_foreign(cat, global_steps, without, out, state, err);
}

int uns_engine_optim_state(const struct uns_catalog *cat, const char *const *only, const char *const *without,
			   size_t more_keys, struct uns_vtree *out, struct uns_value **dict, struct uns_err *err)
{
	const struct uns_named_value *v = cat->values, *end = v + cat->n_values;

	UNS_TRY_ALLOC(*dict = uns_value_new_dict(&out->arena, cat->n_values + more_keys), err);
	for (; v < end; v++)
		if (strcmp(v->root, "optim_states") == 0 && (!only || uns_str_in(v->name, only)) &&
		    !uns_str_in(v->name, without))
			UNS_TRY(put_saved(v, out, *dict, err));
	return 0;
}
