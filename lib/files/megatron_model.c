/* Cuts the tensors of a Megatron-Core checkpoint, and deals their parameters to param groups. */
#include "files/megatron_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "base/text.h"
#include "files/megatron_names.h"
#include "files/memory_names.h"
#include "model/cover.h"
#include "model/megatron_file.h"
#include "wire/pickle_emit.h"
#include "wire/value_new.h"

static bool is_state(const struct uns_tensor *t)
{
	return uns_role_is_optimizer(t->role);
}

static bool has_states(const struct uns_catalog *cat)
{
	size_t i = 0;

	while (i < cat->n_tensors && !is_state(&cat->tensors[i]))
		i++;
	return i < cat->n_tensors;
}

bool uns_megatron_has_optimizer(const struct uns_catalog *cat)
{
	return cat->summary.is_megatron && cat->n_groups && has_states(cat);
}

int uns_megatron_check(const struct uns_catalog *cat, struct uns_err *why)
{
	size_t i;

	UNS_TRY(uns_cover_weights(cat, why));
	UNS_TRY(uns_cover_refusal(cat, UNS_SCOPE_OPTIMIZER, why));
	for (i = 0; i < cat->n_tensors; i++)
		if (is_state(&cat->tensors[i]))
			UNS_TRY(uns_cover_check(cat, &cat->tensors[i], why));
	return 0;
}

/* -- refusals -- */

static int refuse(const struct uns_catalog *cat, const char *cause, struct uns_err *err)
{
	return uns_catalog_fail(cat,
				UNS_FINDING(.id = UNS_FOUND_MEGATRON_NOT_CONVERTED, .scope = UNS_SCOPE_OPTIMIZER,
					    .arg = { { "cause", uns_str(cause) } }),
				err);
}

/* What is wrong with a tensor is wrong with the config. */
static int unlike(const struct uns_catalog *cat, int code, const struct uns_err *why, struct uns_err *err)
{
	if (code >= 0 || !uns_code_is_finding(code))
		return code < 0 ? uns_fail_copy(err, why) : 0;
	return uns_catalog_fail(cat,
				UNS_FINDING(.id = UNS_FOUND_CONFIG_UNLIKE_WEIGHTS, .scope = UNS_SCOPE_WEIGHTS,
					    .arg = { { "cause", uns_str(why->text) } }),
				err);
}

/* -- tensors -- */

struct making {
	const struct uns_config_info *info;
	struct uns_span config;
	const struct uns_catalog *cat;
	struct uns_vtree *tree;
	struct uns_arena *arena;
	struct uns_tensor *v;
	size_t n, cap;
	struct uns_map weights; /* name -> index into v */
	struct uns_map trained; /* names of parameters that have a state */
};

static void making_fini(struct making *m)
{
	free(m->v);
	uns_map_fini(&m->weights);
	uns_map_fini(&m->trained);
}

/* state NULL = the model's own tensors. */
static bool is_wanted(const struct uns_tensor *t, const char *state)
{
	if (!state)
		return uns_role_is_model(t->role);
	return is_state(t) && strcmp(uns_tensor_state(t), state) == 0;
}

/* The slices of one kind of tensors under their published names. */
static int published(struct making *m, const char *state, struct uns_named_tensor **v, size_t *n, struct uns_err *err)
{
	struct uns_err why = { 0 };
	size_t i;
	int code;

	*n = 0;
	*v = calloc(m->cat->n_tensors + 1, sizeof(**v));
	if (!*v)
		return uns_oom(err);
	for (i = 0; i < m->cat->n_tensors; i++)
		if (is_wanted(&m->cat->tensors[i], state))
			(*v)[(*n)++] = uns_named_as_is(&m->cat->tensors[i]);
	code = state ? uns_megatron_apply_states(m->cat, m->info, m->config, v, n, m->arena, &why)
		     : uns_megatron_apply_model(m->cat, m->info, m->config, v, n, m->tree, &why);
	return unlike(m->cat, code, &why, err);
}

/* If the last experts of a layer have no state, the state of the others looks like that of a smaller layer. */
static int check_state(const struct making *m, const struct uns_tensor *t, const char *name, struct uns_err *err)
{
	const uint32_t i = uns_map_index(&m->weights, name);
	char has[128], wants[128];

	if (i == UNS_MAP_NO_INDEX || uns_shape_equal(&t->shape, &m->v[i].shape))
		return 0;
	return refuse(m->cat,
		      uns_arena_printf(m->arena, "%s of %s has the shape %s, and the parameter %s", uns_tensor_state(t), name,
				       uns_shape_text(&t->shape, has, sizeof(has)),
				       uns_shape_text(&m->v[i].shape, wants, sizeof(wants))),
		      err);
}

static int add_tensor(struct making *m, const struct uns_tensor *t, const char *name, struct uns_err *err)
{
	if (is_state(t))
		UNS_TRY(check_state(m, t, name, err));
	if (!UNS_HEAP_ROOM(m->v, m->n, m->cap))
		return uns_oom(err);
	m->v[m->n] = *t;
	m->v[m->n].name = name;
	if (is_state(t) ? !uns_map_put(&m->trained, name, m, NULL) : !uns_map_put_index(&m->weights, name, (uint32_t)m->n))
		return uns_oom(err);
	m->n++;
	return 0;
}

/* As tensors: slices, or blocks as they are. */
static int tensors_of(struct making *m, const struct uns_named_tensor *v, size_t n, const struct uns_tensor ***out,
		      struct uns_err *err)
{
	struct uns_tensor *t = UNS_NEW_N(m->arena, struct uns_tensor, n + 1);
	size_t i;

	*out = UNS_NEW_N(m->arena, const struct uns_tensor *, n + 1);
	if (!t || !*out)
		return uns_oom(err);
	for (i = 0; i < n; i++) {
		t[i] = *v[i].tensor;
		t[i].name = v[i].name;
		t[i].shape = *uns_named_shape(&v[i]);
		if (v[i].slice) {
			t[i].of = v[i].tensor;
			t[i].slice = v[i].slice;
			t[i].n_pieces = 0;
		}
		if (t[i].role == UNS_ROLE_MASTER)
			t[i].root = ""; /* it becomes the weight, and is no state of the optimizer's */
		(*out)[i] = &t[i];
	}
	return 0;
}

/* transformers 5 makes these models' experts before their router, and an optimizer numbers parameters in that order. */
static bool has_experts_first(const char *model_type)
{
	static const char *const types[] = { "deepseek_v2", "deepseek_v3", "glm4_moe", "qwen3_moe", NULL };

	return uns_str_in(model_type, types);
}

static void put_experts_first(struct uns_named_tensor *v, size_t n)
{
	struct uns_named_tensor expert;
	size_t i, k;

	for (i = 0; i < n; i++)
		for (k = i; k && strstr(v[k].name, ".mlp.experts.") && strstr(v[k - 1].name, ".mlp.gate."); k--) {
			expert = v[k];
			v[k] = v[k - 1];
			v[k - 1] = expert;
		}
}

static int add_in_memory(struct making *m, const struct uns_memory_names *names, struct uns_err *err)
{
	struct uns_named_tensor *v = UNS_NEW_N(m->arena, struct uns_named_tensor, names->n + 1);
	size_t i;

	if (!v)
		return uns_oom(err);
	memcpy(v, names->v, names->n * sizeof(*v));
	if (has_experts_first(m->info->model_type))
		put_experts_first(v, names->n);
	for (i = 0; i < names->n; i++)
		UNS_TRY(add_tensor(m, v[i].tensor, v[i].name, err));
	return 0;
}

static int add_kind(struct making *m, const char *state, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct uns_named_tensor *v = NULL;
	const struct uns_tensor **tensor;
	struct uns_memory_names names;
	size_t n, i;

	UNS_TRY(published(m, state, &v, &n, err));
	UNS_TRY(tensors_of(m, v, n, &tensor, err));
	UNS_TRY(uns_memory_names_of_slices(m->info, m->cat, tensor, n, m->arena, &names, err));
	if (names.hole)
		return refuse(m->cat,
			      uns_arena_printf(m->arena,
					       "in memory the experts of a layer are one tensor, and %s does not fit the other "
					       "experts' tensors",
					       names.hole),
			      err);
	if (names.n)
		return add_in_memory(m, &names, err);
	for (i = 0; i < n; i++)
		UNS_TRY(add_tensor(m, tensor[i], tensor[i]->name, err));
	return 0;
}

static int add_states(struct making *m, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map seen = UNS_MAP_INIT;
	const struct uns_tensor *t = m->cat->tensors, *end = t + m->cat->n_tensors;
	const char *state;

	for (; t < end; t++) {
		state = is_state(t) ? uns_tensor_state(t) : NULL;
		if (!state || uns_map_get(&seen, state))
			continue;
		if (!uns_map_put(&seen, state, m, NULL))
			return uns_oom(err);
		UNS_TRY(add_kind(m, state, err));
	}
	return 0;
}

static int add_second_name(struct making *m, enum uns_role role, struct uns_err *err)
{
	struct uns_tensor head;
	size_t i;

	for (i = 0; i < m->n; i++) {
		if (m->v[i].role != role || !uns_str_ends(m->v[i].key, "embedding.word_embeddings.weight"))
			continue;
		head = m->v[i];
		head.alias_of = (uint32_t)i;
		return add_tensor(m, &head, "lm_head.weight", err);
	}
	return 0;
}

/* The second name of tied embeddings, which Megatron saves once. That of the weight comes last. */
static int add_tied(struct making *m, struct uns_err *err)
{
	if (!m->info->ties_embeddings)
		return 0;
	UNS_TRY(add_second_name(m, UNS_ROLE_MASTER, err));
	return add_second_name(m, UNS_ROLE_WEIGHT, err);
}

/* -- param groups -- */

/* Groups with the same values: how ranks share experts is not kept. */
struct class {
	const struct uns_group *group;
	struct uns_value *hyper;
	struct uns_text text; /* `hyper`, to compare */
};

enum { MAX_CLASSES = 64 };

struct classes {
	struct class v[MAX_CLASSES];
	size_t n;
};

static void classes_fini(struct classes *c)
{
	while (c->n)
		uns_text_fini(&c->v[--c->n].text);
}

/* torch's own optimizers count in floats. */
static const struct uns_value *whole(struct uns_arena *arena, const struct uns_value *step)
{
	double f;

	return uns_value_float(step, &f) && f == floor(f) && fabs(f) < 1e15 ? uns_value_new_int(arena, (int64_t)f) : step;
}

static int add_class(struct making *m, const struct uns_group *group, struct classes *c, struct uns_err *err)
{
	struct class *one = &c->v[c->n];
	const struct uns_value *step = uns_value_get(group->hyper, "step");
	double unused;
	size_t i;

	if (!uns_value_float(step, &unused))
		return refuse(m->cat, "the number of steps of its optimizer was not saved", err);
	if (c->n == MAX_CLASSES)
		return refuse(m->cat, "its optimizer has more than 64 param groups", err);
	*one = (struct class){ .group = group };
	one->hyper = uns_value_new_dict_of(m->arena, group->hyper, "is_expert_parallel", 0);
	one->hyper = uns_value_new_dict_of(m->arena, one->hyper, "step", 1);
	if (!uns_value_put_str(m->arena, one->hyper, "step", whole(m->arena, step)))
		return uns_oom(err);
	c->n++;
	UNS_TRY(uns_pickle_emit(one->hyper, NULL, 0, NULL, &one->text, err));
	for (i = 0; i + 1 < c->n; i++)
		if (c->v[i].text.len == one->text.len && memcmp(c->v[i].text.p, one->text.p, one->text.len) == 0) {
			uns_text_fini(&c->v[--c->n].text);
			return 0;
		}
	return 0;
}

static double factor(const struct class *c)
{
	double f;

	return uns_value_float(uns_value_get(c->hyper, "wd_mult"), &f) ? f : NAN;
}

static bool is_of_decay(const char *key)
{
	return !key || strcmp(key, "wd_mult") == 0 || strcmp(key, "weight_decay") == 0;
}

/* A value of one class that the other one lacks or has otherwise, but for weight decay; NULL = there is none. */
static const char *difference(const struct uns_value *a, const struct uns_value *b, struct uns_err *err)
{
	const char *key = NULL, *differs = NULL;
	size_t i;

	for (i = 0; i < a->n && !differs; i++) {
		UNS_CLEANUP(uns_text_fini) struct uns_text x = UNS_TEXT_INIT;
		UNS_CLEANUP(uns_text_fini) struct uns_text y = UNS_TEXT_INIT;

		key = uns_value_str(a->pair[i].key);
		if (is_of_decay(key))
			continue;
		if (!uns_value_get(b, key) || uns_pickle_emit(a->pair[i].value, NULL, 0, NULL, &x, err) < 0 ||
		    uns_pickle_emit(uns_value_get(b, key), NULL, 0, NULL, &y, err) < 0 || x.len != y.len ||
		    memcmp(x.p, y.p, x.len) != 0)
			differs = key;
	}
	return differs;
}

/* As a Trainer has them. */
static void put_decay_first(struct classes *c)
{
	const struct class first = c->v[0];

	if (c->n != 2 || factor(&first) != 0)
		return;
	c->v[0] = c->v[1];
	c->v[1] = first;
}

/* Megatron-Core saves param groups without their parameters. By its own rule biases and norms, which have one dimension,
 * get no weight decay, and all else is alike (0.16.1: optimizer/__init__.py, get_standard_config_overrides). */
static int check_classes(const struct making *m, const struct classes *c, struct uns_err *err)
{
	struct uns_err unused = { 0 };
	const char *key;

	if (c->n < 2)
		return 0;
	key = difference(c->v[0].hyper, c->v[1].hyper, &unused);
	if (!key)
		key = difference(c->v[1].hyper, c->v[0].hyper, &unused);
	if (c->n == 2 && !key && factor(&c->v[0]) != 0 && factor(&c->v[1]) == 0)
		return 0;
	return refuse(m->cat,
		      uns_arena_printf(m->arena,
				       "its param groups differ in %s, and which parameters are in which was not saved",
				       key ? key : "more than weight decay"),
		      err);
}

static bool is_norm_of_queries_or_keys(const struct uns_tensor *t)
{
	return strstr(t->key, "q_layernorm.") || strstr(t->key, "k_layernorm.");
}

/* In memory those of all experts of a layer may be one tensor; half a bias of gate and up is saved as "bias_w". */
static bool is_bias_or_vector(const struct uns_tensor *t)
{
	return t->shape.n == 1 || uns_str_ends(t->key, ".bias") || uns_str_ends(t->key, ".bias_w");
}

/* Among `n` classes: the second one has no weight decay. */
static size_t class_of(const struct making *m, const struct uns_tensor *t, size_t n)
{
	if (n < 2 || !is_bias_or_vector(t))
		return 0;
	return !is_norm_of_queries_or_keys(t) ||
	       !uns_catalog_value(m->cat, UNS_MEGATRON_COMMON, UNS_MEGATRON_QK_DECAY);
}

static int fill_group(struct making *m, const struct class *c, size_t number, size_t n, struct uns_group *out,
		      struct uns_err *err)
{
	const struct uns_tensor *t = m->v, *end = t + m->n;

	*out = (struct uns_group){ .hyper = c->hyper, .root = c->group->root };
	out->param = UNS_NEW_N(m->arena, const char *, m->n + 1);
	if (!out->param)
		return uns_oom(err);
	for (; t < end; t++)
		if (t->role == UNS_ROLE_WEIGHT && t->alias_of == UNS_NONE && uns_map_get(&m->trained, t->name) &&
		    class_of(m, t, n) == number)
			out->param[out->n_params++] = t->name;
	return 0;
}

static int add_groups(struct making *m, struct uns_catalog *out, struct uns_err *err)
{
	UNS_CLEANUP(classes_fini) struct classes c = { 0 };
	size_t i;

	for (i = 0; i < m->cat->n_groups; i++)
		UNS_TRY(add_class(m, &m->cat->groups[i], &c, err));
	put_decay_first(&c);
	UNS_TRY(check_classes(m, &c, err));
	out->groups = UNS_NEW_N(m->arena, struct uns_group, c.n + 1);
	out->n_groups = c.n;
	if (!out->groups)
		return uns_oom(err);
	for (i = 0; i < c.n; i++)
		UNS_TRY(fill_group(m, &c.v[i], i, c.n, &out->groups[i], err));
	if (c.n < 2)
		return 0;
	return uns_vtree_note(m->tree, err,
			      "Megatron-Core does not save which parameters are in which param group: biases and tensors of one "
			      "dimension are in the group without weight decay (wd_mult 0), as by its own rule. That is "
			      "wrong if the run had param groups of its own. A Trainer has its own rule, and refuses "
			      "optimizer.pt where that makes other groups (sinks of gpt_oss; "
			      "--apply-wd-to-qk-layernorm)");
}

/* -- all of it -- */

static int make(struct making *m, const struct uns_catalog **out, struct uns_err *err)
{
	struct uns_catalog *model = UNS_NEW(m->arena, struct uns_catalog);
	const bool with_optimizer = uns_megatron_has_optimizer(m->cat);

	UNS_TRY(add_kind(m, NULL, err));
	if (with_optimizer)
		UNS_TRY(add_states(m, err));
	UNS_TRY(add_tied(m, err));
	if (!model)
		return uns_oom(err);
	*model = *m->cat;
	if (with_optimizer)
		UNS_TRY(add_groups(m, model, err));
	model->tensors = UNS_NEW_N(m->arena, struct uns_tensor, m->n + 1);
	if (!model->tensors)
		return uns_oom(err);
	if (m->n)
		memcpy(model->tensors, m->v, m->n * sizeof(*m->v));
	model->n_tensors = m->n;
	*out = model;
	return uns_vtree_note(m->tree, err,
			      "the tensors are converted from Megatron's with config.json, and have the names that model type %s "
			      "has in memory, which a training resumes from",
			      m->info->model_type);
}

int uns_megatron_model(const struct uns_config_info *info, struct uns_span config, const struct uns_catalog *cat,
		       struct uns_vtree *tree, const struct uns_catalog **out, struct uns_err *err)
{
	UNS_CLEANUP(making_fini)
	struct making m = { .info = info, .config = config, .cat = cat, .tree = tree, .arena = &tree->arena };
	const bool is_known = uns_span_left(&config) && uns_megatron_knows(info->model_type);

	*out = cat;
	if (is_known)
		return make(&m, out, err);
	if (!uns_megatron_has_optimizer(cat))
		return 0;
	if (!uns_span_left(&config))
		return refuse(cat, "config.json is missing; mount with -o model=DIR where DIR holds the model's", err);
	return refuse(cat,
		      uns_arena_printf(m.arena, "unshard does not know the names that Hugging Face publishes for model type %s",
				       info->model_type ? info->model_type : "none"),
		      err);
}

const struct uns_tensor *uns_megatron_tied(const struct uns_catalog *model)
{
	const struct uns_tensor *last = model->n_tensors ? &model->tensors[model->n_tensors - 1] : NULL;

	return last && last->of && last->alias_of != UNS_NONE ? last : NULL;
}
