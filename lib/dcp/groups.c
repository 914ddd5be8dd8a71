/* Makes param groups of single keys. Owns the order of the groups, and the check that none is missing. Reads no files.
 */
#include "dcp/groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "wire/value_new.h"

/* Parameters are compared with every group so far, which must stay cheap. Models have a handful of groups. */
enum { MAX_GUESSED_GROUPS = 256 };

struct uns_dcp_group {
	const char *root;
	int64_t index;     /* the group's number; -1 = these are the keys of one parameter */
	const char *param; /* the name of that parameter, if index is -1 */
	struct uns_pair *pair;
	size_t n, cap;
	const struct uns_value *params;
	struct uns_dcp_group *next;
};

void uns_dcp_groups_init(struct uns_dcp_groups *groups, struct uns_catalog *cat, const char *where)
{
	*groups = (struct uns_dcp_groups){ .cat = cat, .where = where };
	groups->tail = &groups->first;
}

void uns_dcp_groups_fini(struct uns_dcp_groups *groups)
{
	uns_map_fini(&groups->by_key);
	uns_arena_fini(&groups->scratch);
}

/* -- collecting -- */

static struct uns_dcp_group *group_of(struct uns_dcp_groups *groups, const char *root, int64_t index, const char *param)
{
	char *id = uns_arena_printf(&groups->scratch, "%s\n%lld%s%s", root, (long long)index, param ? "\n" : "",
				    param ? param : "");
	struct uns_dcp_group *g = uns_map_get(&groups->by_key, id);

	if (g)
		return g;
	g = UNS_NEW(&groups->scratch, struct uns_dcp_group);
	if (!uns_map_put(&groups->by_key, id, g, NULL))
		return NULL;
	g->root = root;
	g->index = index;
	g->param = param;
	*groups->tail = g;
	groups->tail = &g->next;
	groups->n++;
	return g;
}

static int group_set(struct uns_dcp_groups *groups, struct uns_dcp_group *g, const struct uns_value *key,
		     const struct uns_value *value, struct uns_err *err)
{
	const char *name = uns_value_str(key);

	if (name && strcmp(name, "params") == 0) {
		g->params = value;
		return 0;
	}
	UNS_TRY_ALLOC(UNS_ARENA_ROOM(&groups->scratch, g->pair, g->n, g->cap), err);
	g->pair[g->n++] = (struct uns_pair){ key, value };
	return 0;
}

static int group_set_named(struct uns_dcp_groups *groups, struct uns_dcp_group *g, const char *name,
			   const struct uns_value *value, struct uns_err *err)
{
	const struct uns_value *key = uns_value_new_str(&groups->cat->arena, name);

	UNS_TRY_ALLOC(g && key, err);
	return group_set(groups, g, key, value, err);
}

int uns_dcp_groups_add_key(struct uns_dcp_groups *groups, const char *root, int64_t index, const char *key,
			   const struct uns_value *value, struct uns_err *err)
{
	return group_set_named(groups, group_of(groups, root, index, NULL), key, value, err);
}

int uns_dcp_groups_add_param_key(struct uns_dcp_groups *groups, const char *root, const char *param, const char *key,
				 const struct uns_value *value, struct uns_err *err)
{
	return group_set_named(groups, group_of(groups, root, -1, param), key, value, err);
}

int uns_dcp_groups_add_list(struct uns_dcp_groups *groups, const char *root, const struct uns_value *list,
			    struct uns_err *err)
{
	const struct uns_value *dict;
	struct uns_dcp_group *g;
	size_t i, k;

	for (i = 0; (dict = uns_value_at(list, i)); i++) {
		UNS_TRY_ALLOC(g = group_of(groups, root, (int64_t)i, NULL), err);
		for (k = 0; dict->kind == UNS_VALUE_DICT && k < dict->n; k++)
			UNS_TRY(group_set(groups, g, dict->pair[k].key, dict->pair[k].value, err));
	}
	return 0;
}

/* -- finishing -- */

static const struct uns_value *hyper_of(struct uns_arena *arena, const struct uns_dcp_group *g)
{
	struct uns_value *dict = UNS_NEW(arena, struct uns_value);

	if (!dict)
		return NULL;
	dict->kind = UNS_VALUE_DICT;
	dict->n = (uint32_t)g->n;
	dict->pair = uns_arena_grow(arena, g->pair, g->n, g->n, sizeof(*g->pair));
	return dict->pair ? dict : NULL;
}

static int report_group(struct uns_dcp_groups *groups, enum uns_finding_id id, const struct uns_dcp_group *g,
			int64_t index, struct uns_err *err)
{
	return uns_catalog_add_finding(
		groups->cat,
		UNS_FINDING(.id = id, .scope = UNS_SCOPE_OPTIMIZER, .file = groups->where,
			    .arg = { { "group", uns_num((uint64_t)index) }, { "optimizer", uns_str(g->root) } }),
		err);
}

/* Adds a group with its list of names, or of numbers. The list stays empty if it is missing, or is neither of the
 * two, and also if a group before this one is missing: a finding reports it. */
static int finish_group(struct uns_dcp_groups *groups, const struct uns_dcp_group *g, int64_t expected,
			struct uns_err *err)
{
	const struct uns_value *list = g->params, *item = uns_value_at(list, 0);
	struct uns_group out = { .root = g->root, .numbered = item && item->kind == UNS_VALUE_INT };
	struct uns_arena *arena = &groups->cat->arena;
	const size_t n = list && (list->kind == UNS_VALUE_LIST || list->kind == UNS_VALUE_TUPLE) ? list->n : 0;

	UNS_TRY_ALLOC(out.hyper = hyper_of(arena, g), err);
	UNS_TRY_ALLOC(out.param = UNS_NEW_N(arena, const char *, n), err);
	if (g->index != expected || !list) {
		out.numbered = false;
		UNS_TRY(report_group(groups, g->index != expected ? UNS_FOUND_GROUP_MISSING : UNS_FOUND_GROUP_UNLISTED,
				     g, expected, err));
		return uns_catalog_add_group(groups->cat, &out, err);
	}
	for (; (item = uns_value_at(list, out.n_params)); out.n_params++) {
		if (out.numbered ? item->kind != UNS_VALUE_INT : !uns_value_str(item)) {
			out.n_params = 0;
			UNS_TRY(report_group(groups, UNS_FOUND_GROUP_IS_MIXED, g, g->index, err));
			break;
		}
		out.param[out.n_params] =
			out.numbered ? uns_arena_printf(arena, "%lld", (long long)item->i) : uns_value_str(item);
	}
	return uns_catalog_add_group(groups->cat, &out, err);
}

static int group_cmp(const void *a, const void *b)
{
	const struct uns_dcp_group *const *x = a, *const *y = b;
	int c = strcmp((*x)->root, (*y)->root);

	if (c)
		return c;
	return (*x)->index<(*y)->index ? -1 : (*x)->index>(*y)->index;
}

/* -- groups from what is stored with each parameter -- */

static bool value_equal(const struct uns_value *a, const struct uns_value *b, unsigned depth)
{
	size_t i;

	if (a == b)
		return true;
	if (a->kind != b->kind || !depth)
		return false;
	switch (a->kind) {
	case UNS_VALUE_NONE:
		return true;
	case UNS_VALUE_BOOL:
		return a->b == b->b;
	case UNS_VALUE_INT:
		return a->i == b->i;
	case UNS_VALUE_FLOAT:
		/* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): bit for bit, so that a NaN is itself. */
		return memcmp(&a->f, &b->f, sizeof(a->f)) == 0;
	case UNS_VALUE_STR:
		return a->n == b->n && !memcmp(a->bytes, b->bytes, a->n);
	case UNS_VALUE_LIST:
	case UNS_VALUE_TUPLE:
		for (i = 0; i < a->n && a->n == b->n; i++)
			if (!value_equal(a->item[i], b->item[i], depth - 1))
				return false;
		return a->n == b->n;
	default:
		return false;
	}
}

/* Equal if both have the same keys with the same values. The keys of one save are always in the same order. */
static bool same_hyper(const struct uns_dcp_group *a, const struct uns_dcp_group *b)
{
	size_t i;

	if (a->n != b->n || strcmp(a->root, b->root) != 0)
		return false;
	for (i = 0; i < a->n; i++)
		if (!value_equal(a->pair[i].key, b->pair[i].key, 1) ||
		    !value_equal(a->pair[i].value, b->pair[i].value, 3))
			return false;
	return true;
}

/* Makes groups of what is stored with each parameter: parameters with equal hyper-parameters become one group. */
static int finish_guessed(struct uns_dcp_groups *groups, struct uns_dcp_group **v, size_t n, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct uns_group *out = calloc(MAX_GUESSED_GROUPS, sizeof(*out));
	const struct uns_dcp_group *like[MAX_GUESSED_GROUPS];
	UNS_CLEANUP(uns_free_p) uint16_t *which = calloc(n + 1, sizeof(*which));
	size_t i, k, n_groups = 0;

	UNS_TRY_ALLOC(out && which, err);
	for (i = 0; i < n; i++) {
		for (k = 0; k < n_groups && !same_hyper(like[k], v[i]); k++)
			;
		if (k == MAX_GUESSED_GROUPS)
			return UNS_ADD_FINDING(groups->cat, err, HYPERS_TOO_DIVERSE, .scope = UNS_SCOPE_OPTIMIZER,
					       .file = groups->where, .expected = uns_num(MAX_GUESSED_GROUPS));
		if (k == n_groups)
			like[n_groups++] = v[i];
		out[k].n_params++;
		which[i] = (uint16_t)k;
	}
	for (k = 0; k < n_groups; k++) {
		out[k].root = like[k]->root;
		out[k].guessed = n_groups > 1;
		out[k].hyper = hyper_of(&groups->cat->arena, like[k]);
		UNS_TRY_ALLOC(out[k].param = UNS_NEW_N(&groups->cat->arena, const char *, out[k].n_params), err);
		out[k].n_params = 0;
	}
	for (i = 0; i < n; i++)
		out[which[i]].param[out[which[i]].n_params++] = v[i]->param;
	for (k = 0; k < n_groups; k++)
		UNS_TRY(uns_catalog_add_group(groups->cat, &out[k], err));
	if (!n)
		return 0;
	return UNS_ADD_FINDING(groups->cat, err, HYPERS_PER_PARAMETER, .file = groups->where,
			       .arg = { { "n", uns_num(n_groups) } });
}

int uns_dcp_groups_finish(struct uns_dcp_groups *groups, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct uns_dcp_group **v = calloc(groups->n * 2 + 1, sizeof(*v));
	struct uns_dcp_group *g, **of_params = v ? v + groups->n : NULL;
	size_t i, n = 0, n_params = 0;
	int64_t expected = 0;

	UNS_TRY_ALLOC(v, err);
	for (g = groups->first; g; g = g->next) {
		if (!g->param)
			v[n++] = g;
		else
			of_params[n_params++] = g;
	}
	qsort(v, n, sizeof(*v), group_cmp);
	for (i = 0; i < n; i++) {
		if (i && strcmp(v[i]->root, v[i - 1]->root) != 0)
			expected = 0;
		UNS_TRY(finish_group(groups, v[i], expected, err));
		expected = v[i]->index + 1;
	}
	return finish_guessed(groups, of_params, n_params, err);
}
