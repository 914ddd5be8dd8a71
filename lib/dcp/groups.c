/* Makes param groups of single keys. Owns the order of the groups and the check that none is missing.
 * Reads no files. */
#include "dcp/groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"

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

static struct uns_dcp_group *group_of(struct uns_dcp_groups *groups, const char *root,
				      int64_t index, const char *param)
{
	char *id = uns_arena_printf(&groups->scratch, "%s\n%lld%s%s", root, (long long)index,
				    param ? "\n" : "", param ? param : "");
	struct uns_dcp_group *g;

	g = id ? uns_map_get(&groups->by_key, id) : NULL;
	if (g || !id)
		return g;
	g = UNS_NEW(&groups->scratch, struct uns_dcp_group);
	if (!g || !uns_map_put(&groups->by_key, id, g, NULL))
		return NULL;
	g->root = root;
	g->index = index;
	g->param = param;
	*groups->tail = g;
	groups->tail = &g->next;
	groups->n++;
	return g;
}

static int group_set(struct uns_dcp_groups *groups, struct uns_dcp_group *g,
		     const struct uns_value *key, const struct uns_value *value,
		     struct uns_err *err)
{
	const char *name = uns_value_str(key);

	if (name && strcmp(name, "params") == 0) {
		g->params = value;
		return 0;
	}
	if (!UNS_ARENA_ROOM(&groups->scratch, g->pair, g->n, g->cap))
		return uns_oom(err);
	g->pair[g->n++] = (struct uns_pair){ key, value };
	return 0;
}

static int set_named(struct uns_dcp_groups *groups, struct uns_dcp_group *g, const char *name,
		     const struct uns_value *value, struct uns_err *err)
{
	struct uns_value *key = g ? UNS_NEW(&groups->cat->arena, struct uns_value) : NULL;

	if (!key)
		return uns_oom(err);
	key->kind = UNS_VALUE_STR;
	key->bytes = name;
	key->n = (uint32_t)strlen(name);
	return group_set(groups, g, key, value, err);
}

int uns_dcp_groups_add_key(struct uns_dcp_groups *groups, const char *root, int64_t index,
			   const char *key, const struct uns_value *value, struct uns_err *err)
{
	return set_named(groups, group_of(groups, root, index, NULL), key, value, err);
}

int uns_dcp_groups_add_param_key(struct uns_dcp_groups *groups, const char *root, const char *param,
				 const char *key, const struct uns_value *value,
				 struct uns_err *err)
{
	return set_named(groups, group_of(groups, root, -1, param), key, value, err);
}

int uns_dcp_groups_add_list(struct uns_dcp_groups *groups, const char *root,
			    const struct uns_value *list, struct uns_err *err)
{
	const struct uns_value *dict;
	struct uns_dcp_group *g;
	size_t i, k;

	for (i = 0; (dict = uns_value_at(list, i)); i++) {
		g = group_of(groups, root, (int64_t)i, NULL);
		if (!g)
			return uns_oom(err);
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

/* The item of a group's list, as text: a name, or a number. */
static const char *param_of(struct uns_arena *arena, const struct uns_value *item, bool numbered)
{
	if (!numbered)
		return uns_value_str(item);
	return uns_arena_printf(arena, "%lld", (long long)item->i);
}

static bool is_number(const struct uns_value *item)
{
	return item && item->kind == UNS_VALUE_INT;
}

/* Reads a group's list of names, or of numbers. Returns 0 if it is one of the two. */
static int params_of(struct uns_arena *arena, const struct uns_value *list, struct uns_group *out)
{
	const struct uns_value *item;

	out->numbered = is_number(uns_value_at(list, 0));
	for (; (item = uns_value_at(list, out->n_params)); out->n_params++) {
		if (out->numbered ? !is_number(item) : !uns_value_str(item))
			return -ENOTSUP;
		out->param[out->n_params] = param_of(arena, item, out->numbered);
		if (!out->param[out->n_params])
			return -ENOMEM;
	}
	return 0;
}

static size_t length_of(const struct uns_value *v)
{
	return v && (v->kind == UNS_VALUE_LIST || v->kind == UNS_VALUE_TUPLE) ? v->n : 0;
}

static int report(struct uns_dcp_groups *groups, enum uns_finding_id id,
		  const struct uns_dcp_group *g, int64_t index, struct uns_err *err)
{
	return uns_catalog_add_finding(groups->cat,
				       UNS_FINDING(.id = id, .scope = UNS_SCOPE_OPTIMIZER,
						   .file = groups->where,
						   .arg = { { "group", uns_num((uint64_t)index) },
							    { "optimizer", uns_str(g->root) } }),
				       err);
}

static int finish_group(struct uns_dcp_groups *groups, const struct uns_dcp_group *g,
			int64_t expected, struct uns_err *err)
{
	struct uns_group out = { .root = g->root };
	struct uns_arena *arena = &groups->cat->arena;
	int code;

	out.hyper = hyper_of(arena, g);
	out.param = UNS_NEW_N(arena, const char *, length_of(g->params));
	if (!out.hyper || !out.param)
		return uns_oom(err);
	if (g->index != expected) {
		UNS_TRY(report(groups, UNS_FOUND_GROUP_MISSING, g, expected, err));
	} else if (!g->params) {
		UNS_TRY(report(groups, UNS_FOUND_GROUP_UNLISTED, g, g->index, err));
	} else {
		code = params_of(arena, g->params, &out);
		if (code == -ENOMEM)
			return uns_oom(err);
		out.n_params = code < 0 ? 0 : out.n_params;
		if (code < 0)
			UNS_TRY(report(groups, UNS_FOUND_GROUP_IS_MIXED, g, g->index, err));
	}
	return uns_catalog_add_group(groups->cat, &out, err);
}

static int group_cmp(const void *a, const void *b)
{
	const struct uns_dcp_group *const *x = a, *const *y = b;
	int c = strcmp((*x)->root, (*y)->root);

	if (c)
		return c;
	return (*x)->index < (*y)->index ? -1 : (*x)->index > (*y)->index;
}

static int finish_indexed(struct uns_dcp_groups *groups, struct uns_dcp_group **v, size_t n,
			  struct uns_err *err)
{
	int64_t expected = 0;
	size_t i;

	qsort(v, n, sizeof(*v), group_cmp);
	for (i = 0; i < n; i++) {
		if (i && strcmp(v[i]->root, v[i - 1]->root) != 0)
			expected = 0;
		UNS_TRY(finish_group(groups, v[i], expected, err));
		expected = v[i]->index + 1;
	}
	return 0;
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

/* Equal if both have the same keys with the same values. The keys of one save are always in the same
 * order. */
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

struct guessed {
	struct uns_dcp_group *like[MAX_GUESSED_GROUPS];
	size_t n_params[MAX_GUESSED_GROUPS], n;
};

static int guess_groups(struct uns_dcp_group **v, size_t n, struct guessed *out, uint16_t *which)
{
	size_t i, k;

	for (i = 0; i < n; i++) {
		for (k = 0; k < out->n && !same_hyper(out->like[k], v[i]); k++)
			;
		if (k == MAX_GUESSED_GROUPS)
			return -ENOTSUP;
		if (k == out->n)
			out->like[out->n++] = v[i];
		out->n_params[k]++;
		which[i] = (uint16_t)k;
	}
	return 0;
}

static int add_guessed(struct uns_dcp_groups *groups, struct uns_dcp_group **v, size_t n,
		       const struct guessed *guessed, const uint16_t *which, size_t k,
		       struct uns_err *err)
{
	struct uns_group out = { .root = guessed->like[k]->root, .guessed = guessed->n > 1 };
	size_t i;

	out.hyper = hyper_of(&groups->cat->arena, guessed->like[k]);
	out.param = UNS_NEW_N(&groups->cat->arena, const char *, guessed->n_params[k]);
	if (!out.hyper || !out.param)
		return uns_oom(err);
	for (i = 0; i < n; i++)
		if (which[i] == k)
			out.param[out.n_params++] = v[i]->param;
	return uns_catalog_add_group(groups->cat, &out, err);
}

static int finish_guessed(struct uns_dcp_groups *groups, struct uns_dcp_group **v, size_t n,
			  struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct guessed *guessed = calloc(1, sizeof(*guessed));
	UNS_CLEANUP(uns_free_p) uint16_t *which = calloc(n + 1, sizeof(*which));
	size_t k;

	if (!guessed || !which)
		return uns_oom(err);
	if (guess_groups(v, n, guessed, which) < 0)
		return uns_catalog_add_finding(groups->cat,
					       UNS_FINDING(.id = UNS_FOUND_HYPERS_TOO_DIVERSE,
							   .scope = UNS_SCOPE_OPTIMIZER,
							   .file = groups->where,
							   .expected = uns_num(MAX_GUESSED_GROUPS)),
					       err);
	for (k = 0; k < guessed->n; k++)
		UNS_TRY(add_guessed(groups, v, n, guessed, which, k, err));
	if (!n)
		return 0;
	return uns_catalog_add_finding(groups->cat,
				       UNS_FINDING(.id = UNS_FOUND_HYPERS_PER_PARAMETER,
						   .file = groups->where,
						   .arg = { { "n", uns_num(guessed->n) } }),
				       err);
}

int uns_dcp_groups_finish(struct uns_dcp_groups *groups, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct uns_dcp_group **v = calloc(groups->n * 2 + 1, sizeof(*v));
	struct uns_dcp_group *g, **of_params = v ? v + groups->n : NULL;
	size_t n = 0, n_params = 0;

	if (!v)
		return uns_oom(err);
	for (g = groups->first; g; g = g->next) {
		if (!g->param)
			v[n++] = g;
		else
			of_params[n_params++] = g;
	}
	UNS_TRY(finish_indexed(groups, v, n, err));
	return finish_guessed(groups, of_params, n_params, err);
}
