/* Knows which group a Trainer puts a parameter into, and what a scheduler's state dict looks like. Source: transformers 5.23, trainer.py, get_decay_parameter_names and
 * create_optimizer. */
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

/* Does the component end with "norm", alone or after '_'? */
static bool is_norm(const char *component, size_t len)
{
	static const char norm[] = "norm";
	const size_t n = sizeof(norm) - 1;

	return len >= n && memcmp(component + len - n, norm, n) == 0 && (len == n || component[len - n - 1] == '_');
}

/* -ENOMEM, 0, 1 */
static int decays(const char *name, struct uns_arena *arena)
{
	char *lower = uns_arena_str(arena, name), *p;
	const char *at;

	if (!lower)
		return -ENOMEM;
	for (p = lower; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	if (strstr(lower, "bias") || strstr(lower, "layernorm") || strstr(lower, "rmsnorm"))
		return 0;
	for (at = lower; *at; at += at[strcspn(at, ".")] ? strcspn(at, ".") + 1 : strlen(at))
		if (is_norm(at, strcspn(at, ".")))
			return 0;
	return 1;
}

/* 1 = all of the group's parameters decay, 0 = none does, -1 = some do */
static int kind_of(const struct uns_group *g, struct uns_arena *arena, int *kind)
{
	size_t i;
	int one;

	*kind = -1;
	for (i = 0; i < g->n_params; i++) {
		UNS_TRY(one = decays(g->param[i], arena));
		if (i && one != *kind) {
			*kind = -1;
			return 0;
		}
		*kind = one;
	}
	return 0;
}

/* A group without parameters: all settings of the other group, except the weight decay. */
static int empty_like(const struct uns_group *g, struct uns_arena *arena, struct uns_group **out)
{
	static const char own[] = "weight_decay";
	struct uns_value *hyper = uns_value_new_dict_of(arena, g->hyper, own, 1);

	*out = UNS_NEW(arena, struct uns_group);
	if (!*out || !uns_value_put_str(arena, hyper, own, uns_value_new_float(arena, 0)))
		return -ENOMEM;
	**out = (struct uns_group){ .hyper = hyper, .root = g->root };
	return 0;
}

int uns_empty_group_with(const struct uns_catalog *cat, const char *root, struct uns_arena *arena,
			 const struct uns_group ***out, size_t *n, struct uns_err *err)
{
	struct uns_group *empty;
	size_t i;
	int kind;

	*n = 0;
	*out = UNS_NEW_N(arena, const struct uns_group *, cat->n_groups + 1);
	if (!*out)
		return uns_oom(err);
	for (i = 0; i < cat->n_groups; i++)
		if (strcmp(cat->groups[i].root, root) == 0)
			(*out)[(*n)++] = &cat->groups[i];
	if (*n != 1 || !uns_family_is_deepspeed(cat->summary.family) || !(cat->summary.resumed_by & UNS_BY_TRAINER))
		return 0;
	if (kind_of((*out)[0], arena, &kind) < 0)
		return uns_oom(err);
	if (kind < 0)
		return 0;
	if (empty_like((*out)[0], arena, &empty) < 0)
		return uns_oom(err);
	(*out)[1] = kind ? empty : (*out)[0];
	(*out)[0] = kind ? (*out)[0] : empty;
	*n = 2;
	return 0;
}

/* 1, 0 */
static int is_dropped(const struct uns_catalog *cat, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_group **group;
	size_t n;

	if (!cat->n_groups)
		return 0;
	UNS_TRY(uns_empty_group_with(cat, cat->groups[0].root, &arena, &group, &n, err));
	return n > cat->n_groups;
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
	const struct uns_companion *c = uns_catalog_companion(cat, FILE_NAME);
	struct uns_named_value v = { .name = ROOT, .root = ROOT };
	struct uns_err why = { 0 };
	int needed = has_empty(cat), code;

	if (c && !needed)
		UNS_TRY(needed = is_dropped(cat, err));
	if (!c || !needed)
		return 0;
	code = read_schedule(&cat->files[c->file], &cat->arena, &v.value, &why);
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	v.file = c->file;
	return code < 0 ? 0 : uns_catalog_add_value(cat, &v, err);
}

/* [x] -> [x, x] */
static const struct uns_value *with_one_more(struct uns_arena *arena, const struct uns_value *list)
{
	struct uns_value *two = uns_value_new_list(arena, 2);

	return uns_value_append(two, list->item[0]) && uns_value_append(two, list->item[0]) ? two : NULL;
}

static const struct uns_value *without_empty(const struct uns_catalog *cat, struct uns_arena *arena,
					     const struct uns_value *list)
{
	struct uns_value *rest = uns_value_new_list(arena, list->n);
	size_t i;

	for (i = 0; rest && i < list->n; i++)
		if (cat->groups[i].n_params && !uns_value_append(rest, list->item[i]))
			return NULL;
	return rest;
}

/* A value of the scheduler's dict. A list with an entry for each group gets, or loses, the entry of the empty group. */
static const struct uns_value *fitted(const struct uns_catalog *cat, enum uns_schedule_for who,
				      struct uns_arena *arena, const struct uns_value *v)
{
	if (v->kind != UNS_VALUE_LIST || v->n != cat->n_groups)
		return v;
	return who == UNS_SCHEDULE_FOR_TRAINER ? with_one_more(arena, v) : without_empty(cat, arena, v);
}

int uns_empty_group_schedule(const struct uns_catalog *cat, enum uns_schedule_for who, struct uns_arena *arena,
			     const struct uns_value **out, struct uns_err *err)
{
	const struct uns_value *was = uns_catalog_value(cat, ROOT, ROOT);
	/* If the catalog has an empty group, no group was dropped. */
	const bool differs = has_empty(cat) ? who == UNS_SCHEDULE_FOR_DEEPSPEED : who == UNS_SCHEDULE_FOR_TRAINER;
	struct uns_value *dict;
	size_t i;

	*out = NULL;
	if (!differs || !was || was->kind != UNS_VALUE_DICT)
		return 0;
	dict = uns_value_new_dict(arena, was->n);
	for (i = 0; i < was->n; i++)
		if (!uns_value_put(dict, was->pair[i].key, fitted(cat, who, arena, was->pair[i].value)))
			return uns_oom(err);
	*out = dict;
	return dict ? 0 : uns_oom(err);
}
