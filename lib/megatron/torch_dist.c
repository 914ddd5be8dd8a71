/* See megatron/torch_dist.h. Owns the keys of tensors and objects. */
#include "megatron/torch_dist.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "dcp/items.h"
#include "megatron/common_pickle.h"
#include "megatron/model.h"
#include "model/cover.h"

#define FORMAT_FILE "metadata.json"

enum { CHUNK_BYTES = 64 << 20 };

static const char FORMAT[] = "{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1, "
			     "\"common_backend\": \"torch\", \"common_backend_version\": 1}";

static int refuse(const struct uns_catalog *cat, const char *cause, struct uns_err *err)
{
	return UNS_CATALOG_FAIL(cat, err, MEGATRON_NOT_RESHARDED, .scope = UNS_SCOPE_OPTIMIZER,
				.arg = { { "cause", uns_str(cause) } });
}

/* Megatron-FSDP's directory has no common.pt. */
static bool is_fsdp(const struct uns_catalog *cat)
{
	return !uns_catalog_companion(cat, UNS_MEGATRON_COMMON);
}

bool uns_megatron_has_experts(const struct uns_catalog *cat)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;

	for (; t < end; t++)
		if (uns_role_is_model(t->role) && strstr(t->name, ".mlp.experts."))
			return true;
	return false;
}

/* -- names -- */

/* What Megatron-FSDP calls norms of modules that Megatron-Core wrote itself, which have them apart. torch_dist has the
 * names of Transformer Engine's modules, which have them inside. Source: megatron-core 0.16.1,
 * models/gpt/gpt_layer_specs.py (get_gpt_layer_local_submodules, sharded_state_dict_keys_map). */
static const struct {
	const char *apart, *inside;
} norms[] = { { ".input_layernorm.", ".self_attention.linear_qkv.layer_norm_" },
	      { ".pre_mlp_layernorm.", ".mlp.linear_fc1.layer_norm_" } };

/* Which modules the model is made of. A layer of Megatron-Core's own modules has its first norm beside the projection
 * of queries, keys and values; of Transformer Engine's, inside of it. */
enum modules { MODULES_UNKNOWN, MODULES_OWN, MODULES_TE };

static enum modules modules_find(const struct uns_catalog *cat)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	bool joined = false, apart = false;

	for (; t < end; t++) {
		if (!uns_role_is_model(t->role))
			continue;
		if (strstr(t->name, ".layer_norm_weight"))
			return MODULES_TE;
		joined |= strstr(t->name, ".self_attention.linear_qkv.weight") != NULL;
		apart |= strstr(t->name, norms[0].apart) != NULL;
	}
	return joined && apart ? MODULES_OWN : MODULES_UNKNOWN;
}

/* The tensor's name, or that of its parameter. In the arena, or the tensor's own. NULL = out of memory. */
static const char *name_of(const struct uns_tensor *t, enum modules modules, struct uns_arena *arena)
{
	const char *at;
	size_t i;

	for (i = 0; modules == MODULES_OWN && i < sizeof(norms) / sizeof(*norms); i++) {
		at = strstr(t->name, norms[i].apart);
		if (at)
			return uns_arena_printf(arena, "%.*s%s%s", (int)(at - t->name), t->name, norms[i].inside,
						at + strlen(norms[i].apart));
	}
	return t->name;
}

/* -- which tensors -- */

static bool is_state(const struct uns_tensor *t)
{
	return uns_role_is_optimizer(t->role);
}

/* What the directory calls it: the step is in the param groups, and NULL. */
static const char *state_of(const struct uns_tensor *t)
{
	switch (t->role) {
	case UNS_ROLE_MASTER:
		return "param";
	case UNS_ROLE_EXP_AVG:
		return "exp_avg";
	case UNS_ROLE_EXP_AVG_SQ:
		return "exp_avg_sq";
	default:
		return NULL;
	}
}

/* The states of a parameter, and its weight. */
struct parameter {
	const struct uns_tensor *weight, *of[UNS_ROLE_OPTIM_OTHER + 1];
};

/* By name -> struct parameter, in the arena. */
static int parameters_find(const struct uns_catalog *cat, struct uns_arena *arena, struct uns_map *out,
			   struct uns_err *err)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	struct parameter *p;

	for (; t < end; t++) {
		if (!is_state(t) && !uns_role_is_model(t->role))
			continue;
		p = uns_map_get(out, t->name);
		if (!p) {
			UNS_TRY_ALLOC(p = UNS_NEW(arena, struct parameter), err);
			UNS_TRY_ALLOC(uns_map_put(out, t->name, p, NULL), err);
		}
		if (is_state(t))
			p->of[t->role] = t;
		else
			p->weight = t;
	}
	return 0;
}

/* The fp32 copy: of a training in fp32, and of Megatron-FSDP, the weight. NULL = there is none. */
static const struct uns_tensor *master_of(const struct parameter *p)
{
	if (p->of[UNS_ROLE_MASTER])
		return p->of[UNS_ROLE_MASTER];
	return p->weight && p->weight->dtype == UNS_F32 ? p->weight : NULL;
}

static int parameter_check(const struct uns_catalog *cat, const struct uns_tensor *t, const struct parameter *p,
			   struct uns_arena *arena, struct uns_err *why)
{
	const char *cause = NULL;

	if (!p->weight)
		cause = uns_arena_printf(arena, "the optimizer has %s of %s, which the model has not",
					 uns_tensor_state(t), t->name);
	else if (!p->of[UNS_ROLE_EXP_AVG] || !p->of[UNS_ROLE_EXP_AVG_SQ] || !master_of(p))
		cause = uns_arena_printf(arena, "of %s the optimizer has no %s", t->name,
					 !p->of[UNS_ROLE_EXP_AVG]      ? "exp_avg"
					 : !p->of[UNS_ROLE_EXP_AVG_SQ] ? "exp_avg_sq"
								       : "fp32 copy");
	else if (!uns_shape_equal(&t->shape, &p->weight->shape))
		cause = uns_arena_printf(arena, "%s of %s has another shape than the weight", uns_tensor_state(t),
					 t->name);
	else
		return 0;
	UNS_TRY(uns_arena_check(arena, why));
	return refuse(cat, cause, why);
}

static int other_state_refuse(const struct uns_catalog *cat, const struct uns_tensor *t, struct uns_arena *arena,
			      struct uns_err *why)
{
	const char *cause = uns_arena_printf(
		arena, "it has %s, and Megatron-Core's form has no states but exp_avg and exp_avg_sq", t->key);

	return cause ? refuse(cat, cause, why) : uns_oom(why);
}

static int states_check(const struct uns_catalog *cat, struct uns_err *why)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_map_fini) struct uns_map parameters = UNS_MAP_INIT;
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;

	for (; t < end; t++)
		if (t->role == UNS_ROLE_OPTIM_OTHER)
			return other_state_refuse(cat, t, &scratch, why);
	UNS_TRY(parameters_find(cat, &scratch, &parameters, why));
	for (t = cat->tensors; t < end; t++)
		if (is_state(t) && t->role != UNS_ROLE_STEP)
			UNS_TRY(parameter_check(cat, t, uns_map_get(&parameters, t->name), &scratch, why));
	return 0;
}

/* -- objects -- */

static bool is_object(const struct uns_catalog *cat, const struct uns_named_value *v)
{
	return !v->value && v->length_bytes && !is_fsdp(cat) && !strstr(v->name, "optimizer.distributed.");
}

static int objects_check(const struct uns_catalog *cat, struct uns_err *why)
{
	const struct uns_named_value *v = cat->values, *end = v + cat->n_values;

	for (; v < end; v++)
		if (is_object(cat, v) && v->codec != UNS_CODEC_NONE)
			return refuse(cat, "an object in it is compressed, which unshard does not copy", why);
	return 0;
}

int uns_megatron_torch_dist_check(const struct uns_catalog *cat, enum uns_megatron_experts experts, struct uns_err *why)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;

	if (!cat->summary.is_megatron)
		return UNS_CATALOG_FAIL(cat, why, NOT_MEGATRON, .scope = UNS_SCOPE_ALL);
	if (cat->summary.family != UNS_FAMILY_DCP)
		return refuse(cat, "files of model-parallel ranks (--ckpt-format torch) are shown as weights alone",
			      why);
	if (uns_catalog_value(cat, UNS_MEGATRON_COMMON, UNS_MEGATRON_LIGHTNING))
		return refuse(cat, "NeMo saved it, and loads other names and another common.pt than Megatron-LM", why);
	if (experts == UNS_MG_EXPERTS_APART && !uns_megatron_has_experts(cat))
		return refuse(cat, "its model has no experts that ranks could share: use the view torch_dist", why);
	UNS_TRY(uns_megatron_check(cat, why));
	for (; t < end; t++)
		if (t->role == UNS_ROLE_OTHER)
			UNS_TRY(uns_cover_check(cat, t, why));
	if (is_fsdp(cat) && modules_find(cat) == MODULES_UNKNOWN)
		return refuse(
			cat,
			"which modules it is made of does not follow from its names, and the names of norms depend "
			"on them",
			why);
	UNS_TRY(states_check(cat, why));
	UNS_TRY(objects_check(cat, why));
	return uns_megatron_common_check(cat, experts, why);
}

/* -- the directory -- */

struct writing {
	const struct uns_catalog *cat;
	struct uns_arena scratch;
	struct uns_map parameters;
	enum modules modules;
	bool fsdp;
	struct uns_dcp_items *items;
};

static void writing_fini(struct writing *w)
{
	uns_map_fini(&w->parameters);
	uns_arena_fini(&w->scratch);
}

static int state_add(struct writing *w, const char *state, const char *name, const struct uns_tensor *t,
		     struct uns_err *err)
{
	const char *key = uns_arena_printf(&w->scratch, "optimizer.state.%s.%s", state, name);

	UNS_TRY_ALLOC(key, err);
	return uns_dcp_items_add_chunks(w->items, key, t, CHUNK_BYTES, err);
}

/* A weight, or another tensor that no optimizer has; and the fp32 copy that a weight is. */
static int weight_add(struct writing *w, const struct uns_tensor *t, struct uns_err *err)
{
	const struct parameter *p = uns_role_is_model(t->role) ? uns_map_get(&w->parameters, t->name) : NULL;
	const char *name = name_of(t, w->modules, &w->scratch);

	UNS_TRY_ALLOC(name, err);
	if (w->fsdp && !p)
		return 0; /* of Megatron-LM, and under no name that torch_dist has */
	UNS_TRY(uns_dcp_items_add_chunks(w->items, p || w->fsdp ? name : t->key, t, CHUNK_BYTES, err));
	if (p && p->of[UNS_ROLE_EXP_AVG] && master_of(p) == t)
		return state_add(w, "param", name, t, err);
	return 0;
}

static int tensor_add(struct writing *w, const struct uns_tensor *t, struct uns_err *err)
{
	const char *name;

	if (!is_state(t))
		return weight_add(w, t, err);
	if (!state_of(t))
		return 0;
	UNS_TRY_ALLOC(name = name_of(t, w->modules, &w->scratch), err);
	return state_add(w, state_of(t), name, t, err);
}

static int object_add(struct writing *w, const struct uns_named_value *v, struct uns_err *err)
{
	const char *key = *v->root ? uns_arena_printf(&w->scratch, "%s.%s", v->root, v->name) : v->name;

	UNS_TRY_ALLOC(key, err);
	return uns_dcp_items_add_stored(w->items, key, v, err);
}

/* At most: a weight may be written twice. */
static size_t count_items(const struct uns_catalog *cat)
{
	size_t n = cat->n_values, i;

	for (i = 0; i < cat->n_tensors; i++)
		n += 2 * uns_dcp_items_count(&cat->tensors[i], CHUNK_BYTES);
	return n;
}

static int items_add(struct writing *w, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_tensor *t = w->cat->tensors, *end = t + w->cat->n_tensors;
	size_t i;

	UNS_TRY(parameters_find(w->cat, &w->scratch, &w->parameters, err));
	UNS_TRY(uns_dcp_items_new(w->cat, &out->arena, &w->scratch, count_items(w->cat), false, &w->items, err));
	for (; t < end; t++)
		UNS_TRY(tensor_add(w, t, err));
	for (i = 0; i < w->cat->n_values; i++)
		if (is_object(w->cat, &w->cat->values[i]))
			UNS_TRY(object_add(w, &w->cat->values[i], err));
	return uns_dcp_items_finish(w->items, "", out, err);
}

/* Files beside the shards, as they are. */
static int companions_add(const struct uns_catalog *cat, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_companion *c = cat->companions, *end = c + cat->n_companions;

	for (; c < end; c++)
		if (!c->shard && strcmp(c->name, UNS_MEGATRON_COMMON) != 0 && strcmp(c->name, FORMAT_FILE) != 0)
			UNS_TRY(uns_vtree_add_file(out, cat, c->name, c->file, err));
	return 0;
}

int uns_megatron_torch_dist_add(const struct uns_catalog *cat, enum uns_megatron_experts experts, struct uns_vtree *out,
				struct uns_err *err)
{
	UNS_CLEANUP(writing_fini) struct writing w = { .cat = cat, .fsdp = is_fsdp(cat) };

	w.modules = w.fsdp ? modules_find(cat) : MODULES_TE;
	UNS_TRY(items_add(&w, out, err));
	UNS_TRY(uns_megatron_common_add(cat, experts, w.fsdp, out, err));
	UNS_TRY(uns_vtree_add_text(out, FORMAT_FILE, FORMAT, strlen(FORMAT),
				   "synthesised: the form of the directory (torch_dist)", err));
	return companions_add(cat, out, err);
}

/* In common.pt, or an object of a group of ranks whose optimizer was saved in buckets. */
static bool has_scaler(const struct uns_catalog *cat)
{
	const struct uns_named_value *v = cat->values, *end = v + cat->n_values;

	if (uns_catalog_value(cat, UNS_MEGATRON_COMMON, UNS_MEGATRON_SCALER))
		return true;
	for (; v < end; v++)
		if (strstr(v->name, "optimizer.distributed.") && strstr(v->name, "." UNS_MEGATRON_SCALER "/"))
			return true;
	return false;
}

int uns_megatron_torch_dist_notes(const struct uns_catalog *cat, struct uns_vtree *out, struct uns_err *err)
{
	if (uns_megatron_has_experts(cat))
		UNS_TRY(uns_vtree_note(
			out, err,
			"megatron-core gives experts an optimizer of their own if --expert-model-parallel-size is more "
			"than 1: then load the view torch_dist-ep, otherwise the view torch_dist"));
	if (has_scaler(cat))
		UNS_TRY(uns_vtree_note_missed(out, err,
					      "the loss scale of a training in fp16 (" UNS_MEGATRON_SCALER
					      ") is not in the view: megatron-core starts it from the beginning"));
	if (!is_fsdp(cat))
		return 0;
	return uns_vtree_note_missed(
		out, err,
		"Megatron-FSDP saves no _extra_state of modules, and its random states for other "
		"ranks: megatron-core loads the view with --dist-ckpt-strictness log_unexpected and "
		"--no-load-rng");
}

struct uns_resume_megatron uns_megatron_saved(const struct uns_catalog *cat)
{
	const struct uns_named_value *v = cat->values, *v_end = v + cat->n_values;
	const struct uns_tensor *t = cat->tensors, *t_end = t + cat->n_tensors;
	struct uns_resume_megatron has = {
		.schedule = uns_catalog_value(cat, UNS_MEGATRON_COMMON, UNS_MEGATRON_SCHEDULE),
		.iteration = uns_catalog_value(cat, UNS_MEGATRON_COMMON, UNS_MEGATRON_ITERATION),
	};

	for (; t < t_end; t++)
		has.optimizer |= is_state(t);
	for (; v < v_end; v++)
		has.random_states |= is_object(cat, v) && uns_str_starts(v->name, "rng_state/");
	return has;
}
