/* See megatron/common_made.h. Owns the values that Megatron-Core's optimizers look for; copies all else. */
#include "megatron/common_made.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "files/torch_file.h"
#include "megatron/common_pickle.h"
#include "megatron/model.h"
#include "wire/pickle_emit.h"
#include "wire/value_new.h"

#define OF_EXPERTS    "is_expert_parallel"
#define SHARDING_TYPE "fully_reshardable"

enum { ROOT_KEYS = 2, OPTIMIZERS = 2, MORE_CONTENT = 3 };

/* Param groups with the same of these are one to Megatron-Core (param_group_identifier_keys), beside OF_EXPERTS. NeMo
 * puts "pre_" in front of the first two. */
static const char *const identity[] = { "wd_mult", "lr_mult", "is_decoupled_lr", "pre_wd_mult", "pre_lr_mult" };

static int refuse(const struct uns_catalog *cat, const char *cause, struct uns_err *err)
{
	return UNS_CATALOG_FAIL(cat, err, MEGATRON_NOT_RESHARDED, .scope = UNS_SCOPE_OPTIMIZER,
				.arg = { { "cause", uns_str(cause) } });
}

/* -- param groups -- */

/* Equal as they would be written. NULL is a value that is not there. */
static bool is_same(const struct uns_value *a, const struct uns_value *b)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text x = UNS_TEXT_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text y = UNS_TEXT_INIT;

	if (!a || !b)
		return a == b;
	return uns_pickle_emit(a, NULL, 0, NULL, &x, NULL) == 0 && uns_pickle_emit(b, NULL, 0, NULL, &y, NULL) == 0 &&
	       x.len == y.len && memcmp(x.p, y.p, x.len) == 0;
}

static bool is_one_group(const struct uns_value *a, const struct uns_value *b)
{
	size_t i;

	for (i = 0; i < sizeof(identity) / sizeof(*identity); i++)
		if (!is_same(uns_value_get(a, identity[i]), uns_value_get(b, identity[i])))
			return false;
	return true;
}

/* The key of the first value of `a` that `b` has not; NULL = there is none. */
static const char *difference(const struct uns_value *a, const struct uns_value *b)
{
	const char *key;
	size_t i;

	for (i = 0; i < a->n; i++) {
		key = uns_value_str(a->pair[i].key);
		if (!key || !is_same(a->pair[i].value, uns_value_get(b, key)))
			return key ? key : "a value without a name";
	}
	return NULL;
}

static bool is_of_experts(const struct uns_group *g)
{
	const struct uns_value *v = uns_value_get(g->hyper, OF_EXPERTS);
	int64_t is = 0;

	return uns_value_int(v, &is) && is;
}

/* The group's values, as one of experts or of all parameters. */
static struct uns_value *group_value(struct uns_arena *arena, const struct uns_group *g, bool of_experts)
{
	struct uns_value *v = uns_value_new_dict_of(arena, g->hyper, OF_EXPERTS, 1);

	uns_value_put_str(arena, v, OF_EXPERTS, uns_value_new_bool(arena, of_experts));
	return v;
}

/* Adds a group, once: several ranks saved it, or it was saved for experts too. */
static int group_add(const struct uns_catalog *cat, struct uns_arena *arena, struct uns_value *list,
		     struct uns_value *group, struct uns_err *err)
{
	const char *key;
	size_t i;

	UNS_TRY_ALLOC(list && group, err);
	for (i = 0; i < list->n; i++) {
		if (!is_one_group(list->item[i], group))
			continue;
		key = difference(list->item[i], group);
		key = key ? key : difference(group, list->item[i]);
		if (!key)
			return 0;
		return refuse(cat,
			      uns_arena_printf(arena,
					       "two of its param groups differ in %s, and Megatron-Core would have one",
					       key),
			      err);
	}
	uns_value_append(list, group);
	return 0;
}

enum which { ALL_GROUPS, GROUPS_OF_EXPERTS, GROUPS_OF_OTHERS };

/* [group, ..]: those groups, as groups of experts or of all parameters. */
static int groups_build(const struct uns_catalog *cat, struct uns_arena *arena, enum which which, bool of_experts,
			const struct uns_value **out, struct uns_err *err)
{
	struct uns_value *list = uns_value_new_list(arena, cat->n_groups + 1);
	const struct uns_group *g = cat->groups, *end = g + cat->n_groups;

	for (; g < end; g++)
		if (which == ALL_GROUPS || (which == GROUPS_OF_EXPERTS) == is_of_experts(g))
			UNS_TRY(group_add(cat, arena, list, group_value(arena, g, of_experts), err));
	*out = list;
	return uns_arena_check(arena, err);
}

/* -- the optimizer -- */

static const struct uns_value *one_optimizer(struct uns_arena *arena, const struct uns_value *groups)
{
	struct uns_value *optimizer = uns_value_new_dict(arena, 1), *v = uns_value_new_dict(arena, 2);

	uns_value_put_str(arena, optimizer, "param_groups", groups);
	uns_value_put_str(arena, v, "optimizer", optimizer);
	uns_value_put_str(arena, v, "param_state_sharding_type", uns_value_new_str(arena, SHARDING_TYPE));
	return v;
}

static int optimizer_build(const struct uns_catalog *cat, enum uns_megatron_experts experts, struct uns_arena *arena,
			   const struct uns_value **out, struct uns_err *err)
{
	struct uns_value *both = uns_value_new_dict(arena, OPTIMIZERS);
	const struct uns_value *groups, *of_experts;

	if (experts == UNS_MG_EXPERTS_TOGETHER) {
		UNS_TRY(groups_build(cat, arena, ALL_GROUPS, false, &groups, err));
		*out = one_optimizer(arena, groups);
		return uns_arena_check(arena, err);
	}
	UNS_TRY(groups_build(cat, arena, GROUPS_OF_OTHERS, false, &groups, err));
	UNS_TRY(groups_build(cat, arena, GROUPS_OF_EXPERTS, true, &of_experts, err));
	if (!of_experts->n) /* no rank shared experts, which then had the groups of all parameters */
		UNS_TRY(groups_build(cat, arena, GROUPS_OF_OTHERS, true, &of_experts, err));
	uns_value_put(both, uns_value_new_int(arena, 0), one_optimizer(arena, groups));
	uns_value_put(both, uns_value_new_int(arena, 1), one_optimizer(arena, of_experts));
	*out = both;
	return uns_arena_check(arena, err);
}

/* -- how it is laid out -- */

static const struct uns_value *content_build(const struct uns_catalog *cat, bool by_layer, struct uns_arena *arena)
{
	const struct uns_value *saved = uns_catalog_value(cat, UNS_MEGATRON_COMMON, UNS_MEGATRON_CONTENT);
	const struct uns_value *rest = uns_value_new_dict_of(arena, saved, "distrib_optim_sharding_type", 0);
	struct uns_value *v = uns_value_new_dict_of(arena, rest, "chained_optim_avoid_prefix", MORE_CONTENT);

	uns_value_put_str(arena, v, "distrib_optim_sharding_type", uns_value_new_str(arena, SHARDING_TYPE));
	uns_value_put_str(arena, v, "chained_optim_avoid_prefix", uns_value_new_bool(arena, true));
	if (by_layer)
		uns_value_put_str(arena, v, "singleton_local_shards", uns_value_new_bool(arena, true));
	return v;
}

/* -- the file -- */

static int root_build(const struct uns_catalog *cat, enum uns_megatron_experts experts, bool by_layer,
		      struct uns_arena *arena, const struct uns_value **out, struct uns_err *err)
{
	struct uns_value *root = uns_value_new_dict(arena, ROOT_KEYS);
	const struct uns_value *optimizer;

	if (uns_megatron_has_optimizer(cat)) {
		UNS_TRY(optimizer_build(cat, experts, arena, &optimizer, err));
		uns_value_put_str(arena, root, "optimizer", optimizer);
	}
	uns_value_put_str(arena, root, UNS_MEGATRON_CONTENT, content_build(cat, by_layer, arena));
	*out = root;
	return uns_arena_check(arena, err);
}

/* The saved pickle, or the reason why it was not kept. */
static int front_find(const struct uns_catalog *cat, struct uns_span *out, struct uns_err *why)
{
	const struct uns_value *v = uns_catalog_value(cat, UNS_MEGATRON_PICKLE, "");
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;

	if (!v)
		return refuse(cat, "nothing is known of its common state (" UNS_MEGATRON_COMMON ")", why);
	if (v->kind != UNS_VALUE_BYTES)
		return refuse(cat, uns_arena_printf(&scratch, UNS_MEGATRON_COMMON ": %s", v->bytes), why);
	*out = uns_span_of(v->bytes, v->n);
	return 0;
}

int uns_megatron_common_check(const struct uns_catalog *cat, enum uns_megatron_experts experts, struct uns_err *why)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	struct uns_err cause = { 0 };
	const struct uns_value *root;
	struct uns_span front;
	int code;

	UNS_TRY(front_find(cat, &front, why));
	UNS_TRY(root_build(cat, experts, false, &scratch, &root, why));
	code = uns_pickle_emit(root, NULL, 0, NULL, &text, &cause);
	if (code >= 0 || !uns_code_is_finding(code))
		return code < 0 ? uns_fail_copy(why, &cause) : 0;
	return refuse(cat, cause.text, why);
}

static int storages_add(const struct uns_catalog *cat, struct uns_torch_leaves *leaves, struct uns_err *err)
{
	const struct uns_named_value *v = cat->values, *end = v + cat->n_values;

	UNS_TRY_ALLOC(leaves->v = calloc(cat->n_values + 1, sizeof(*leaves->v)), err);
	leaves->cap = cat->n_values + 1;
	for (; v < end; v++)
		if (strcmp(v->root, UNS_MEGATRON_STORAGE) == 0) /* in the order of their numbers */
			leaves->v[leaves->n++] = (struct uns_torch_leaf){ .out = UNS_U8,
									  .shape = { .n = 1, .dim = { v->value->n } },
									  .literal = (const uint8_t *)v->value->bytes };
	return 0;
}

int uns_megatron_common_add(const struct uns_catalog *cat, enum uns_megatron_experts experts, bool by_layer,
			    struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_torch_leaves_fini) struct uns_torch_leaves leaves = { 0 };
	struct uns_torch_input in = { .cat = cat, .leaves = &leaves, .stem = "common" };

	UNS_TRY(front_find(cat, &in.front, err));
	UNS_TRY(root_build(cat, experts, by_layer, &out->arena, &in.root, err));
	UNS_TRY(storages_add(cat, &leaves, err));
	return uns_torch_file_add(&in, UNS_MEGATRON_COMMON,
				  "the saved common state, continued with the param groups and content_metadata of a "
				  "fully reshardable optimizer",
				  out, err);
}
