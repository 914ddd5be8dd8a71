#include "model/wrappers.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/text.h"

static const char MODULE[] = "module.";
static const char *const anywhere[] = { "_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module." };

enum { N_ANYWHERE = sizeof(anywhere) / sizeof(anywhere[0]) };

/* A wrapper's attribute at the beginning of a part of the name, or NULL. */
static const char *wrapper_at(const char *name, const char *at)
{
	size_t i;

	for (i = 0; i < N_ANYWHERE; i++)
		if ((at == name || at[-1] == '.') && uns_str_starts(at, anywhere[i]) &&
		    at[strlen(anywhere[i])])
			return anywhere[i];
	return NULL;
}

/* What is found in the names of one catalog. */
struct cleaning {
	struct uns_catalog *cat;
	bool module; /* in front of every weight */
	size_t n;    /* tensors that change their name */
	const char *first, *found;
};

/* The same name where there is nothing to take out. NULL = out of memory. */
static const char *clean(struct cleaning *c, const char *name, const char **found)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	const char *at = name, *wrapper;

	*found = NULL;
	while (*at) {
		wrapper = wrapper_at(name, at);
		if (!wrapper && c->module && !text.len && uns_str_starts(at, MODULE) &&
		    (at == name || *found))
			wrapper = MODULE;
		if (wrapper) {
			at += strlen(wrapper);
			*found = *found ? *found : wrapper;
		} else {
			uns_text_add(&text, at++, 1);
		}
	}
	if (text.failed)
		return NULL;
	return *found ? uns_arena_strn(&c->cat->arena, text.p, text.len) : name;
}

static bool is_weight(const struct uns_tensor *t)
{
	return t->role == UNS_ROLE_WEIGHT;
}

/* Behind the others: `module._orig_mod.x` and `_orig_mod.module.x`. */
static bool has_module(const char *name)
{
	const char *wrapper;

	while ((wrapper = wrapper_at(name, name)))
		name += strlen(wrapper);
	return uns_str_starts(name, MODULE) && name[strlen(MODULE)];
}

static bool all_have_module(const struct uns_catalog *cat)
{
	size_t i, n = 0;

	for (i = 0; i < cat->n_tensors; i++) {
		if (!is_weight(&cat->tensors[i]))
			continue;
		if (!has_module(cat->tensors[i].name))
			return false;
		n++;
	}
	return n > 0;
}

/* The new names, one a tensor; false: two would be alike. */
static int find_names(struct cleaning *c, const char **name, bool *unique, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map seen = UNS_MAP_INIT;
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	const struct uns_tensor *t = c->cat->tensors;
	const char *key, *found;
	void *old = NULL;
	size_t i;

	*unique = true;
	for (i = 0; i < c->cat->n_tensors; i++, t++) {
		name[i] = t->role == UNS_ROLE_OTHER ? (found = NULL, t->name) :
						      clean(c, t->name, &found);
		key = name[i] ? uns_arena_printf(&scratch, "%d %s %s %s", t->role, t->root,
						 t->state ? t->state : "", name[i]) :
				NULL;
		if (!key || !uns_map_put(&seen, key, (void *)t, &old))
			return uns_oom(err);
		*unique &= !old || t->role == UNS_ROLE_OTHER;
		if (!found)
			continue;
		c->first = c->n++ ? c->first : t->key;
		c->found = c->found ? c->found : found;
	}
	return 0;
}

static int rename_groups(struct cleaning *c, struct uns_err *err)
{
	const char *found;
	size_t i, k;

	for (i = 0; i < c->cat->n_groups; i++)
		for (k = 0; k < c->cat->groups[i].n_params; k++) {
			const char **param = &c->cat->groups[i].param[k];

			*param = clean(c, *param, &found);
			if (!*param)
				return uns_oom(err);
		}
	return 0;
}

/* "state.FQN.step": a state that is no tensor. */
static int rename_values(struct cleaning *c, struct uns_err *err)
{
	static const char state[] = "state.";
	const char *found, *name;
	size_t i;

	for (i = 0; i < c->cat->n_values; i++) {
		if (!uns_str_starts(c->cat->values[i].name, state))
			continue;
		name = clean(c, c->cat->values[i].name + strlen(state), &found);
		if (name && found)
			name = c->cat->values[i].name =
				uns_arena_printf(&c->cat->arena, "%s%s", state, name);
		if (!name)
			return uns_oom(err);
	}
	return 0;
}

/* Most catalogs have none. */
static bool has_any(const struct uns_catalog *cat)
{
	size_t i, k;

	for (i = 0; i < cat->n_tensors; i++)
		for (k = 0; k < N_ANYWHERE; k++)
			if (strstr(cat->tensors[i].name, anywhere[k]))
				return true;
	return false;
}

int uns_wrappers_clean(struct uns_catalog *cat, struct uns_err *err)
{
	struct cleaning c = { .cat = cat, .module = all_have_module(cat) };
	UNS_CLEANUP(uns_free_p) const char **name = calloc(cat->n_tensors + 1, sizeof(*name));
	bool unique;
	size_t i;

	if (!name)
		return uns_oom(err);
	if (!c.module && !has_any(cat))
		return 0;
	UNS_TRY(find_names(&c, name, &unique, err));
	if (!c.n || !unique)
		return 0;
	for (i = 0; i < cat->n_tensors; i++) {
		cat->tensors[i].inferred |= cat->tensors[i].name != name[i];
		cat->tensors[i].name = name[i];
	}
	UNS_TRY(rename_groups(&c, err));
	UNS_TRY(rename_values(&c, err));
	return uns_catalog_add_finding(cat,
				       UNS_FINDING(.id = UNS_FOUND_WRAPPERS_LEFT_OUT,
						   .tensor = c.first, .found = uns_str(c.found),
						   .arg = { { "n", uns_num(c.n) } }),
				       err);
}
