/* Takes the attributes of modules that wrap others out of names. Owns the list of these attributes. */
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
		if ((at == name || at[-1] == '.') && uns_str_starts(at, anywhere[i]) && at[strlen(anywhere[i])])
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
static const char *name_without_wrappers(struct cleaning *c, const char *name, const char **found)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	const char *at = name, *wrapper;

	*found = NULL;
	while (*at) {
		wrapper = wrapper_at(name, at);
		if (!wrapper && c->module && !text.len && uns_str_starts(at, MODULE) && (at == name || *found))
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

/* Does every weight have `module.` in front, or behind other wrappers (`_orig_mod.module.x`)? */
static bool all_have_module(const struct uns_catalog *cat)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	const char *name, *wrapper;
	size_t n = 0;

	for (; t < end; t++) {
		if (t->role != UNS_ROLE_WEIGHT)
			continue;
		for (name = t->name; (wrapper = wrapper_at(name, name));)
			name += strlen(wrapper);
		if (!uns_str_starts(name, MODULE) || !name[strlen(MODULE)])
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
		name[i] =
			t->role == UNS_ROLE_OTHER ? (found = NULL, t->name) : name_without_wrappers(c, t->name, &found);
		UNS_TRY_ALLOC(name[i], err);
		key = uns_arena_printf(&scratch, "%d %s %s %s", t->role, t->root, t->state ? t->state : "", name[i]);
		UNS_TRY_ALLOC(uns_map_put(&seen, key, (void *)t, &old), err);
		*unique &= !old || t->role == UNS_ROLE_OTHER;
		if (!found)
			continue;
		c->first = c->n++ ? c->first : t->key;
		c->found = c->found ? c->found : found;
	}
	return 0;
}

int uns_wrappers_clean(struct uns_catalog *cat, struct uns_err *err)
{
	static const char state[] = "state.";
	struct cleaning c = { .cat = cat, .module = all_have_module(cat) };
	UNS_CLEANUP(uns_free_p) const char **name = calloc(cat->n_tensors + 1, sizeof(*name));
	struct uns_named_value *v = cat->values, *end = v + cat->n_values;
	const char **param, *found, *bare;
	bool unique, any = c.module; /* most catalogs have none */
	size_t i, k;

	UNS_TRY_ALLOC(name, err);
	for (i = 0; !any && i < cat->n_tensors; i++)
		for (k = 0; k < N_ANYWHERE; k++)
			any |= strstr(cat->tensors[i].name, anywhere[k]) != NULL;
	if (!any)
		return 0;
	UNS_TRY(find_names(&c, name, &unique, err));
	if (!c.n || !unique)
		return 0;
	for (i = 0; i < cat->n_tensors; i++) {
		cat->tensors[i].inferred |= cat->tensors[i].name != name[i];
		cat->tensors[i].name = name[i];
	}
	for (i = 0; i < cat->n_groups; i++)
		for (k = 0; k < cat->groups[i].n_params; k++) {
			param = &cat->groups[i].param[k];
			UNS_TRY_ALLOC(*param = name_without_wrappers(&c, *param, &found), err);
		}
	for (; v < end; v++) { /* "state.FQN.step": a state that is no tensor */
		if (!uns_str_starts(v->name, state))
			continue;
		UNS_TRY_ALLOC(bare = name_without_wrappers(&c, v->name + strlen(state), &found), err);
		if (found)
			v->name = uns_arena_printf(&cat->arena, "%s%s", state, bare);
	}
	return UNS_ADD_FINDING(cat, err, WRAPPERS_LEFT_OUT, .tensor = c.first, .found = uns_str(c.found),
			       .arg = { { "n", uns_num(c.n) } });
}
