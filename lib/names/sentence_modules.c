/* Reads modules.json as sentence-transformers 2.2 to 6.2 write it: [{"idx": 0, "name": "0", "path": "", "type":
 * "..."}]. A module of type Transformer holds a model of transformers in an attribute, "auto_model" before version 6.
 */
#include "names/sentence_modules.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "wire/json.h"

static const char *const attributes[] = { "model.", "auto_model.", NULL };

bool uns_sentence_module_has(const struct uns_sentence_module *module, const struct uns_tensor *t)
{
	return uns_role_is_model(t->role) && uns_str_starts(t->name, module->prefix) && t->name[strlen(module->prefix)];
}

static bool has_any(const struct uns_sentence_module *module, const struct uns_catalog *cat)
{
	size_t i = 0;

	while (i < cat->n_tensors && !uns_sentence_module_has(module, &cat->tensors[i]))
		i++;
	return i < cat->n_tensors;
}

/* A directory below, or "": no "..", and not absolute. */
static bool is_path(struct uns_arena *arena, const char *path)
{
	const char *resolved = path ? uns_path_resolve(arena, "", path) : NULL;

	return resolved && strcmp(resolved, path) == 0;
}

/* The module's tensors may be below an attribute of it. */
static int prefix_find(struct uns_sentence_module *m, const char *name, const struct uns_catalog *cat,
		       struct uns_arena *arena, struct uns_err *err)
{
	size_t i;

	for (i = 0; m->is_pretrained && attributes[i]; i++) {
		UNS_TRY_ALLOC(m->prefix = uns_arena_printf(arena, "%s.%s", name, attributes[i]), err);
		m->has_tensors = has_any(m, cat);
		if (m->has_tensors)
			return 0;
	}
	UNS_TRY_ALLOC(m->prefix = uns_arena_printf(arena, "%s.", name), err);
	m->has_tensors = has_any(m, cat);
	return 0;
}

/* Would the last module, which is not counted yet, write into the file of another? */
static bool shares_directory(const struct uns_sentence_modules *modules)
{
	const struct uns_sentence_module *last = &modules->v[modules->n];
	size_t i = 0;

	while (i < modules->n && (!modules->v[i].has_tensors || strcmp(modules->v[i].path, last->path) != 0))
		i++;
	return last->has_tensors && i < modules->n;
}

static bool all_have_one(const struct uns_sentence_modules *modules, const struct uns_catalog *cat)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	size_t i;

	for (; t < end; t++) {
		for (i = 0; i < modules->n && !uns_sentence_module_has(&modules->v[i], t); i++)
			;
		if (uns_role_is_model(t->role) && i == modules->n)
			return false;
	}
	return true;
}

int uns_sentence_modules_read(struct uns_span json, const struct uns_catalog *cat, struct uns_arena *arena,
			      struct uns_sentence_modules *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *parsed = NULL;
	const char *name, *path, *type;
	const cJSON *item;

	*out = (struct uns_sentence_modules){ 0 };
	UNS_TRY(uns_json_parse(json, &parsed, err));
	UNS_TRY_ALLOC(out->v = UNS_NEW_N(arena, struct uns_sentence_module, (size_t)cJSON_GetArraySize(parsed) + 1),
		      err);
	cJSON_ArrayForEach (item, parsed) {
		name = uns_json_str(item, "name");
		path = uns_json_str(item, "path");
		type = uns_json_str(item, "type");
		if (!name || !*name || !type || !is_path(arena, path))
			return uns_fail(err, -EBADMSG, "modules.json: a module needs a name, a type and a path below");
		out->v[out->n].path = uns_arena_str(arena, path);
		out->v[out->n].is_pretrained = uns_str_ends(type, "Transformer");
		if (uns_str_ends(type, ".Router") || uns_str_ends(type, ".Asym"))
			return uns_fail(err, -ENOTSUP,
					"modules.json: unshard does not know where the modules of a %s are",
					strrchr(type, '.') + 1);
		UNS_TRY(prefix_find(&out->v[out->n], name, cat, arena, err));
		if (shares_directory(out))
			return uns_fail(err, -EBADMSG, "modules.json: two modules with weights have the path \"%s\"",
					path);
		out->n++;
	}
	out->is_state = out->n && all_have_one(out, cat);
	return uns_arena_check(arena, err);
}

const struct uns_sentence_module *uns_sentence_root(const struct uns_sentence_modules *modules)
{
	size_t i = modules->is_state ? 0 : modules->n;

	while (i < modules->n && (*modules->v[i].path || !modules->v[i].has_tensors))
		i++;
	return i < modules->n ? &modules->v[i] : NULL;
}

const char *uns_sentence_name(const struct uns_catalog *cat)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	size_t i;

	for (; t < end; t++)
		for (i = 0; t->role == UNS_ROLE_WEIGHT && attributes[i]; i++)
			if (uns_str_starts(t->name, "0.") && uns_str_starts(t->name + 2, attributes[i]))
				return t->name;
	return NULL;
}
