/* Cuts the tensors of a Megatron-Core checkpoint, and deals their parameters to param groups. */
#include "megatron/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "base/text.h"
#include "megatron/names.h"
#include "names/memory_names.h"
#include "model/cover.h"
#include "megatron/common_file.h"
#include "wire/pickle_emit.h"
#include "wire/value_new.h"

static bool is_state(const struct uns_tensor *t)
{
	return uns_role_is_optimizer(t->role);
}

bool uns_megatron_has_optimizer(const struct uns_catalog *cat)
{
	size_t i = 0;

	while (i < cat->n_tensors && !is_state(&cat->tensors[i]))
		i++;
	return cat->summary.is_megatron && cat->n_groups && i < cat->n_tensors;
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

static int refuse_conversion(const struct uns_catalog *cat, const char *cause, struct uns_err *err)
{
	return UNS_CATALOG_FAIL(cat, err, MEGATRON_NOT_CONVERTED, .scope = UNS_SCOPE_OPTIMIZER,
				.arg = { { "cause", uns_str(cause) } });
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

/* Cuts one kind of tensors under their published names: those of an optimizer's state, or the model's own (NULL). */
static int slices_cut(struct making *m, const char *state, struct uns_named_tensor **v, size_t *n, struct uns_err *err)
{
	const struct uns_tensor *t = m->cat->tensors, *end = t + m->cat->n_tensors;
	struct uns_err why = { 0 };
	int code;

	*n = 0;
	UNS_TRY_ALLOC(*v = calloc(m->cat->n_tensors + 1, sizeof(**v)), err);
	for (; t < end; t++)
		if (state ? is_state(t) && strcmp(uns_tensor_state(t), state) == 0 : uns_role_is_model(t->role))
			(*v)[(*n)++] = uns_named_as_is(t);
	code = state ? uns_megatron_apply_states(m->cat, m->info, m->config, v, n, m->arena, &why)
		     : uns_megatron_apply_model(m->cat, m->info, m->config, v, n, NULL, m->tree, &why);
	if (code >= 0 || !uns_code_is_finding(code))
		return code < 0 ? uns_fail_copy(err, &why) : 0;
	/* What is wrong with a tensor is wrong with the config. */
	return UNS_CATALOG_FAIL(m->cat, err, CONFIG_UNLIKE_WEIGHTS, .scope = UNS_SCOPE_WEIGHTS,
				.arg = { { "cause", uns_str(why.text) } });
}

/* As tensors: slices, or blocks as they are. */
static int slices_as_tensors(struct making *m, const struct uns_named_tensor *v, size_t n,
			     const struct uns_tensor ***out, struct uns_err *err)
{
	struct uns_tensor *t;
	size_t i;

	UNS_TRY_ALLOC(t = UNS_NEW_N(m->arena, struct uns_tensor, n + 1), err);
	UNS_TRY_ALLOC(*out = UNS_NEW_N(m->arena, const struct uns_tensor *, n + 1), err);
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

/* If the last experts of a layer have no state, the state of the others looks like that of a smaller layer. */
static int state_check(const struct making *m, const struct uns_tensor *t, const char *name, struct uns_err *err)
{
	const uint32_t i = uns_map_index(&m->weights, name);
	char has[128], wants[128];

	if (i == UNS_MAP_NO_INDEX || uns_shape_equal(&t->shape, &m->v[i].shape))
		return 0;
	return refuse_conversion(m->cat,
				 uns_arena_printf(m->arena, "%s of %s has the shape %s, and the parameter %s",
						  uns_tensor_state(t), name,
						  uns_shape_text(&t->shape, has, sizeof(has)),
						  uns_shape_text(&m->v[i].shape, wants, sizeof(wants))),
				 err);
}

static int tensor_add(struct making *m, const struct uns_tensor *t, const char *name, struct uns_err *err)
{
	if (is_state(t))
		UNS_TRY(state_check(m, t, name, err));
	UNS_TRY_ALLOC(UNS_HEAP_ROOM(m->v, m->n, m->cap), err);
	m->v[m->n] = *t;
	m->v[m->n].name = name;
	UNS_TRY_ALLOC(is_state(t) ? uns_map_put(&m->trained, name, m, NULL)
				  : uns_map_put_index(&m->weights, name, (uint32_t)m->n),
		      err);
	m->n++;
	return 0;
}

/* transformers 5 makes the experts of some models before their router, and an optimizer numbers parameters in that
 * order. */
static void put_experts_first(const char *model_type, struct uns_named_tensor *v, size_t n)
{
	static const char *const types[] = { "deepseek_v2", "deepseek_v3", "glm4_moe", "qwen3_moe", NULL };
	struct uns_named_tensor expert;
	size_t i, k;

	for (i = 0; uns_str_in(model_type, types) && i < n; i++)
		for (k = i; k && strstr(v[k].name, ".mlp.experts.") && strstr(v[k - 1].name, ".mlp.gate."); k--) {
			expert = v[k];
			v[k] = v[k - 1];
			v[k - 1] = expert;
		}
}

/* Adds one kind of tensors (slices_cut) under the names that they have in memory. */
static int kind_add(struct making *m, const char *state, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct uns_named_tensor *v = NULL;
	struct uns_named_tensor *in_memory;
	const struct uns_tensor **tensor;
	struct uns_memory_names names;
	size_t n, i;

	UNS_TRY(slices_cut(m, state, &v, &n, err));
	UNS_TRY(slices_as_tensors(m, v, n, &tensor, err));
	UNS_TRY(uns_memory_names_of_slices(m->info, m->cat, tensor, n, m->arena, &names, err));
	if (names.hole)
		return refuse_conversion(
			m->cat,
			uns_arena_printf(
				m->arena,
				"in memory the experts of a layer are one tensor, and %s does not fit the other "
				"experts' tensors",
				names.hole),
			err);
	for (i = 0; !names.n && i < n; i++)
		UNS_TRY(tensor_add(m, tensor[i], tensor[i]->name, err));
	if (!names.n)
		return 0;
	UNS_TRY_ALLOC(in_memory = UNS_NEW_N(m->arena, struct uns_named_tensor, names.n), err);
	memcpy(in_memory, names.v, names.n * sizeof(*in_memory));
	put_experts_first(m->info->model_type, in_memory, names.n);
	for (i = 0; i < names.n; i++)
		UNS_TRY(tensor_add(m, in_memory[i].tensor, in_memory[i].name, err));
	return 0;
}

static int states_add(struct making *m, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map seen = UNS_MAP_INIT;
	const struct uns_tensor *t = m->cat->tensors, *end = t + m->cat->n_tensors;
	const char *state;

	for (; t < end; t++) {
		state = is_state(t) ? uns_tensor_state(t) : NULL;
		if (!state || uns_map_get(&seen, state))
			continue;
		UNS_TRY_ALLOC(uns_map_put(&seen, state, m, NULL), err);
		UNS_TRY(kind_add(m, state, err));
	}
	return 0;
}

/* Adds the second name of tied embeddings, which Megatron saves once. That of the weight comes last. */
static int tied_add(struct making *m, struct uns_err *err)
{
	static const enum uns_role roles[] = { UNS_ROLE_MASTER, UNS_ROLE_WEIGHT };
	const size_t n = m->n;
	struct uns_tensor head;
	size_t i, k;

	for (k = 0; m->info->ties_embeddings && k < 2; k++)
		for (i = 0; i < n; i++) {
			if (m->v[i].role != roles[k] || !uns_str_ends(m->v[i].key, "embedding.word_embeddings.weight"))
				continue;
			head = m->v[i];
			head.alias_of = (uint32_t)i;
			UNS_TRY(tensor_add(m, &head, "lm_head.weight", err));
			break;
		}
	return 0;
}

/* -- param groups -- */

/* Groups with the same values: how ranks share experts is not kept. */
struct class
{
	const struct uns_group *group;
	struct uns_value *hyper;
	struct uns_text text; /* `hyper`, to compare */
};

enum { MAX_CLASSES = 64 };

struct classes {
	struct class v[MAX_CLASSES];
	size_t n;
};

static bool texts_equal(const struct uns_text *a, const struct uns_text *b)
{
	return a->len == b->len && memcmp(a->p, b->p, a->len) == 0;
}

static void classes_fini(struct classes *c)
{
	while (c->n)
		uns_text_fini(&c->v[--c->n].text);
}

/* Adds the group's class, unless it is there. */
static int class_add(struct making *m, const struct uns_group *group, struct classes *c, struct uns_err *err)
{
	struct class *one = &c->v[c->n];
	const struct uns_value *step = uns_value_get(group->hyper, "step");
	double n;
	size_t i;

	if (!uns_value_float(step, &n))
		return refuse_conversion(m->cat, "the number of steps of its optimizer was not saved", err);
	if (c->n == MAX_CLASSES)
		return refuse_conversion(m->cat, "its optimizer has more than 64 param groups", err);
	/* torch's own optimizers count in floats, others in integers. */
	if (n == floor(n) && fabs(n) < 1e15)
		step = uns_value_new_int(m->arena, (int64_t)n);
	*one = (struct class){ .group = group };
	one->hyper = uns_value_new_dict_of(m->arena, group->hyper, "is_expert_parallel", 0);
	one->hyper = uns_value_new_dict_of(m->arena, one->hyper, "step", 1);
	UNS_TRY_ALLOC(uns_value_put_str(m->arena, one->hyper, "step", step), err);
	c->n++;
	UNS_TRY(uns_pickle_emit(one->hyper, NULL, 0, NULL, &one->text, err));
	for (i = 0; i + 1 < c->n; i++)
		if (texts_equal(&c->v[i].text, &one->text)) {
			uns_text_fini(&c->v[--c->n].text);
			break;
		}
	return 0;
}

/* What weight decay is multiplied by in a param group: 0 = it has none; NAN = that was not saved. NeMo multiplies once,
 * and calls what it multiplied by by another name. */
static double decay_factor(const struct uns_value *hyper)
{
	double f;

	return uns_value_float(uns_value_get(hyper, "wd_mult"), &f) ||
			       uns_value_float(uns_value_get(hyper, "pre_wd_mult"), &f)
		       ? f
		       : NAN;
}

/* A value of one class that the other one lacks or has otherwise, but for weight decay; NULL = there is none. */
static const char *class_difference(const struct uns_value *a, const struct uns_value *b)
{
	static const char *const decay[] = { "wd_mult", "pre_wd_mult", "weight_decay", NULL };
	struct uns_err unused = { 0 };
	const char *key;
	size_t i;

	for (i = 0; i < a->n; i++) {
		UNS_CLEANUP(uns_text_fini) struct uns_text x = UNS_TEXT_INIT;
		UNS_CLEANUP(uns_text_fini) struct uns_text y = UNS_TEXT_INIT;

		key = uns_value_str(a->pair[i].key);
		if (!key || uns_str_in(key, decay))
			continue;
		if (!uns_value_get(b, key) || uns_pickle_emit(a->pair[i].value, NULL, 0, NULL, &x, &unused) < 0 ||
		    uns_pickle_emit(uns_value_get(b, key), NULL, 0, NULL, &y, &unused) < 0 || !texts_equal(&x, &y))
			return key;
	}
	return NULL;
}

/* Has the checkpoint the names of the parameters in each group? Megatron-FSDP's have (megatron/fsdp.h). */
static bool groups_have_members(const struct uns_catalog *cat)
{
	size_t i = 0;

	while (i < cat->n_groups && !cat->groups[i].n_params)
		i++;
	return i < cat->n_groups;
}

/* Megatron-Core saves param groups without their parameters. By its own rule biases and norms, which have one
 * dimension, get no weight decay, and all else is alike (0.16.1: optimizer/__init__.py, get_standard_config_overrides).
 */
static int classes_check(const struct making *m, struct classes *c, struct uns_err *err)
{
	const struct class first = c->v[0];
	const char *key;

	if (c->n < 2)
		return 0;
	if (c->n == 2 && decay_factor(first.hyper) == 0) { /* the group that decays comes first, as a Trainer has it */
		c->v[0] = c->v[1];
		c->v[1] = first;
	}
	key = class_difference(c->v[0].hyper, c->v[1].hyper);
	if (!key)
		key = class_difference(c->v[1].hyper, c->v[0].hyper);
	if (c->n == 2 && !key && decay_factor(c->v[0].hyper) != 0 && decay_factor(c->v[1].hyper) == 0)
		return 0;
	return refuse_conversion(m->cat,
				 uns_arena_printf(m->arena, "its param groups differ in %s, and %s",
						  key ? key : "more than weight decay",
						  groups_have_members(m->cat)
							  ? "by Megatron-Core's rule they differ in weight decay alone"
							  : "which parameters are in which was not saved"),
				 err);
}

/* Among `n` classes: the second one has no weight decay. In memory the biases of all experts of a layer may be one
 * tensor; half a bias of gate and up is saved as "bias_w". */
static size_t class_of(const struct making *m, const struct uns_tensor *t, size_t n)
{
	if (n < 2 || (t->shape.n != 1 && !uns_str_ends(t->key, ".bias") && !uns_str_ends(t->key, ".bias_w")))
		return 0;
	if (!strstr(t->key, "q_layernorm.") && !strstr(t->key, "k_layernorm."))
		return 1;
	return !uns_catalog_value(m->cat, UNS_MEGATRON_COMMON, UNS_MEGATRON_QK_DECAY);
}

/* If the parameters of each group were saved, they must be those that the rule gives. */
static int members_check(const struct making *m, size_t n_classes, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map weights = UNS_MAP_INIT;
	const struct uns_tensor *t = m->cat->tensors, *end = t + m->cat->n_tensors;
	const struct uns_group *g = m->cat->groups, *g_end = g + m->cat->n_groups;
	size_t i, k;

	if (!groups_have_members(m->cat))
		return 0;
	for (; t < end; t++)
		if (uns_role_is_model(t->role))
			UNS_TRY_ALLOC(uns_map_put(&weights, t->name, (void *)t, NULL), err);
	for (; g < g_end; g++) {
		k = n_classes > 1 && decay_factor(g->hyper) == 0;
		for (i = 0; i < g->n_params; i++) {
			t = uns_map_get(&weights, g->param[i]);
			if (t && class_of(m, t, n_classes) == k)
				continue;
			return refuse_conversion(
				m->cat,
				uns_arena_printf(m->arena,
						 t ? "%s is in a param group %s weight decay, and by Megatron-Core's "
						     "rule it would not be"
						   : "%s is in a param group %s weight decay, and is no tensor",
						 g->param[i], k ? "without" : "with"),
				err);
		}
	}
	return 0;
}

static int groups_add(struct making *m, struct uns_catalog *out, struct uns_err *err)
{
	UNS_CLEANUP(classes_fini) struct classes c = { 0 };
	const struct uns_tensor *t, *end = m->v + m->n;
	struct uns_group *g;
	size_t i;

	for (i = 0; i < m->cat->n_groups; i++)
		UNS_TRY(class_add(m, &m->cat->groups[i], &c, err));
	UNS_TRY(classes_check(m, &c, err));
	UNS_TRY(members_check(m, c.n, err));
	out->n_groups = c.n;
	UNS_TRY_ALLOC(out->groups = UNS_NEW_N(m->arena, struct uns_group, c.n + 1), err);
	for (i = 0; i < c.n; i++) {
		g = &out->groups[i];
		*g = (struct uns_group){ .hyper = c.v[i].hyper, .root = c.v[i].group->root };
		UNS_TRY_ALLOC(g->param = UNS_NEW_N(m->arena, const char *, m->n + 1), err);
		for (t = m->v; t < end; t++)
			if (t->role == UNS_ROLE_WEIGHT && t->alias_of == UNS_NONE &&
			    uns_map_get(&m->trained, t->name) && class_of(m, t, c.n) == i)
				g->param[g->n_params++] = t->name;
	}
	if (c.n < 2 || groups_have_members(m->cat))
		return 0;
	return uns_vtree_note(
		m->tree, err,
		"Megatron-Core does not save which parameters are in which param group: biases and tensors of one "
		"dimension are in the group without weight decay (wd_mult 0), as by its own rule. That is wrong if the "
		"run had param groups of its own. A Trainer has its own rule, and refuses optimizer.pt where that "
		"makes other groups (sinks of gpt_oss; --apply-wd-to-qk-layernorm)");
}

/* -- all of it -- */

static int mtp_refuse(const struct uns_catalog *cat, struct uns_err *err)
{
	size_t i;

	for (i = 0; i < cat->n_tensors; i++)
		if (uns_role_is_model(cat->tensors[i].role) && uns_str_starts(cat->tensors[i].name, "mtp."))
			return refuse_conversion(cat,
						 "it has layers for multi-token prediction (mtp.layers), and the model "
						 "that a training makes with transformers has none",
						 err);
	return 0;
}

static int model_make(struct making *m, struct uns_catalog *model, struct uns_err *err)
{
	const bool with_optimizer = uns_megatron_has_optimizer(m->cat);

	*model = *m->cat;
	UNS_TRY(mtp_refuse(m->cat, err));
	if (m->cat->summary.adapter == UNS_ADAPTER_OTHER)
		return refuse_conversion(m->cat,
					 "it holds an adapter under Megatron's names: the program that saved it "
					 "resumes from the checkpoint itself",
					 err);
	UNS_TRY(kind_add(m, NULL, err));
	if (with_optimizer)
		UNS_TRY(states_add(m, err));
	UNS_TRY(tied_add(m, err));
	if (with_optimizer)
		UNS_TRY(groups_add(m, model, err));
	UNS_TRY_ALLOC(model->tensors = UNS_NEW_N(m->arena, struct uns_tensor, m->n + 1), err);
	if (m->n)
		memcpy(model->tensors, m->v, m->n * sizeof(*m->v));
	model->n_tensors = m->n;
	return uns_vtree_note(
		m->tree, err,
		"the tensors are converted from Megatron's with config.json, and have the names that model type %s "
		"has in memory, which a training resumes from",
		m->info->model_type);
}

int uns_megatron_model(const struct uns_config_info *info, struct uns_span config, const struct uns_catalog *cat,
		       struct uns_vtree *tree, const struct uns_catalog **out, struct uns_err *err)
{
	UNS_CLEANUP(making_fini)
	struct making m = { .info = info, .config = config, .cat = cat, .tree = tree, .arena = &tree->arena };
	struct uns_catalog *model;

	*out = cat;
	if (uns_span_left(&config) && uns_megatron_knows(info->model_type)) {
		UNS_TRY_ALLOC(model = UNS_NEW(m.arena, struct uns_catalog), err);
		UNS_TRY(model_make(&m, model, err));
		*out = model;
		return 0;
	}
	if (!uns_megatron_has_optimizer(cat))
		return 0;
	if (!uns_span_left(&config))
		return refuse_conversion(
			cat, "config.json is missing; mount with -o model=DIR where DIR holds the model's", err);
	return refuse_conversion(
		cat,
		uns_arena_printf(m.arena,
				 "unshard does not know the names that Hugging Face publishes for model type %s",
				 info->model_type ? info->model_type : "none"),
		err);
}

const struct uns_tensor *uns_megatron_tied(const struct uns_catalog *model)
{
	const struct uns_tensor *last = model->n_tensors ? &model->tensors[model->n_tensors - 1] : NULL;

	return last && last->of && last->alias_of != UNS_NONE ? last : NULL;
}
