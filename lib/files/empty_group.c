/* Knows which group a Trainer puts a parameter into, and what a scheduler's state dict looks like. Source: transformers
 * 5.23, trainer.py, get_decay_parameter_names and create_optimizer. */
#include "files/empty_group.h"

#include <ctype.h>
#include <string.h>

#include "base/cleanup.h"
#include "wire/torchfile.h"
#include "wire/value_new.h"

enum { SCHEDULE_LIMIT_BYTES = 1 << 20 };

static const char FILE_NAME[] = "scheduler.pt";
static const char ROOT[] = "scheduler"; /* of the value in the catalog, and its name */

/* -- groups -- */

/* Does a Trainer give the parameter weight decay? */
static bool name_decays(const char *lower)
{
	static const char norm[] = "norm";
	const size_t n = sizeof(norm) - 1;
	const char *at;
	size_t len;

	if (strstr(lower, "bias") || strstr(lower, "layernorm") || strstr(lower, "rmsnorm"))
		return false;
	for (at = lower; *at; at += len + (at[len] == '.')) { /* no component ends with "norm", alone or after '_' */
		len = strcspn(at, ".");
		if (len >= n && memcmp(at + len - n, norm, n) == 0 && (len == n || at[len - n - 1] == '_'))
			return false;
	}
	return true;
}

/* *kind: 1 = all of the group's parameters decay, 0 = none does, -1 = some do, or there are none. */
static int kind_of(const struct uns_group *g, struct uns_arena *arena, int *kind, struct uns_err *err)
{
	char *lower, *p;
	size_t i;
	int one;

	*kind = -1;
	for (i = 0; i < g->n_params; i++) {
		UNS_TRY_ALLOC(lower = uns_arena_str(arena, g->param[i]), err);
		for (p = lower; *p; p++)
			*p = (char)tolower((unsigned char)*p);
		one = name_decays(lower);
		*kind = i && one != *kind ? -1 : one;
		if (*kind < 0)
			return 0;
	}
	return 0;
}

int uns_empty_group_with(const struct uns_catalog *cat, const char *root, struct uns_arena *arena,
			 const struct uns_group ***out, size_t *n, struct uns_err *err)
{
	static const char own[] = "weight_decay"; /* all other settings of an empty group are the other group's */
	const struct uns_group **v;
	struct uns_group *empty;
	struct uns_value *hyper;
	size_t i;
	int kind;

	*n = 0;
	UNS_TRY_ALLOC(*out = v = UNS_NEW_N(arena, const struct uns_group *, cat->n_groups + 1), err);
	for (i = 0; i < cat->n_groups; i++)
		if (strcmp(cat->groups[i].root, root) == 0)
			v[(*n)++] = &cat->groups[i];
	if (*n != 1 || !uns_family_is_deepspeed(cat->summary.family) || !(cat->summary.resumed_by & UNS_BY_TRAINER))
		return 0;
	UNS_TRY(kind_of(v[0], arena, &kind, err));
	if (kind < 0)
		return 0;
	hyper = uns_value_new_dict_of(arena, v[0]->hyper, own, 1);
	UNS_TRY_ALLOC(empty = UNS_NEW(arena, struct uns_group), err);
	UNS_TRY_ALLOC(uns_value_put_str(arena, hyper, own, uns_value_new_float(arena, 0)), err);
	*empty = (struct uns_group){ .hyper = hyper, .root = v[0]->root };
	v[1] = kind ? empty : v[0];
	v[0] = kind ? v[0] : empty;
	*n = 2;
	return 0;
}

static bool has_empty(const struct uns_catalog *cat)
{
	size_t i;

	for (i = 0; i < cat->n_groups; i++)
		if (!cat->groups[i].n_params)
			return true;
	return false;
}

/* -- the scheduler -- */

static int read_schedule(const struct uns_file *f, struct uns_arena *arena, const struct uns_value **out,
			 struct uns_err *err)
{
	struct uns_torchfile torch;
	struct uns_reader reader;
	struct uns_span bytes;
	struct uns_stat now;

	UNS_TRY(uns_root_read_file(f->root, f->path, SCHEDULE_LIMIT_BYTES, arena, &bytes, &now, err));
	if (!uns_identity_equal(&now.id, &f->stat.id))
		return uns_fail(err, -ESTALE, "%s: the file changed while it was being read", f->path);
	reader = uns_reader_of_span(&bytes);
	UNS_TRY(uns_torchfile_open(&reader, arena, &torch, err));
	*out = torch.root;
	return 0;
}

int uns_empty_group_find(struct uns_catalog *cat, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	const struct uns_companion *c = uns_catalog_companion(cat, FILE_NAME);
	struct uns_named_value v = { .name = ROOT, .root = ROOT };
	bool needed = has_empty(cat);
	struct uns_err why = { 0 };
	const struct uns_group **group;
	size_t n;
	int code;

	if (c && !needed && cat->n_groups) {
		UNS_TRY(uns_empty_group_with(cat, cat->groups[0].root, &scratch, &group, &n, err));
		needed = n > cat->n_groups; /* DeepSpeed dropped a group */
	}
	if (!c || !needed)
		return 0;
	code = read_schedule(&cat->files[c->file], &cat->arena, &v.value, &why);
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	v.file = c->file;
	return code < 0 ? 0 : uns_catalog_add_value(cat, &v, err);
}

/* A value of the scheduler's dict. A list with an entry for each group gets, or loses, the entry of the empty group. */
static const struct uns_value *value_fitted(const struct uns_catalog *cat, enum uns_schedule_for framework,
					    struct uns_arena *arena, const struct uns_value *v)
{
	struct uns_value *list;
	bool ok = true;
	size_t i;

	if (v->kind != UNS_VALUE_LIST || v->n != cat->n_groups)
		return v;
	list = uns_value_new_list(arena, v->n + 1);
	for (i = 0; ok && i < v->n; i++)
		if (framework == UNS_SCHEDULE_FOR_TRAINER || cat->groups[i].n_params)
			ok = uns_value_append(list, v->item[i]);
	if (ok && framework == UNS_SCHEDULE_FOR_TRAINER) /* [x] -> [x, x] */
		ok = uns_value_append(list, v->item[0]);
	return ok ? list : NULL;
}

int uns_empty_group_schedule(const struct uns_catalog *cat, enum uns_schedule_for framework, struct uns_arena *arena,
			     const struct uns_value **out, struct uns_err *err)
{
	const struct uns_value *was = uns_catalog_value(cat, ROOT, ROOT);
	/* If the catalog has an empty group, no group was dropped. */
	const bool differs =
		has_empty(cat) ? framework == UNS_SCHEDULE_FOR_DEEPSPEED : framework == UNS_SCHEDULE_FOR_TRAINER;
	struct uns_value *dict;
	size_t i;

	*out = NULL;
	if (!differs || !was || was->kind != UNS_VALUE_DICT)
		return 0;
	dict = uns_value_new_dict(arena, was->n);
	for (i = 0; i < was->n; i++)
		UNS_TRY_ALLOC(
			uns_value_put(dict, was->pair[i].key, value_fitted(cat, framework, arena, was->pair[i].value)),
			err);
	*out = dict;
	return dict ? 0 : uns_oom(err);
}
