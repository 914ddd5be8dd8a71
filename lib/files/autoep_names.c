/* The families that AutoEP has presets for and whose published names are known, and their names. */
#include "files/autoep_names.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "files/published_names.h"

/* -- families -- */

struct family {
	const char *model_type;
	const char *shared, *shared_gate; /* the names of MODULE.shared_experts and MODULE.shared_experts_gate; NULL = it has none */
};

static const struct family families[] = {
	{ "deepseek_v2", "shared_experts", NULL },
	{ "deepseek_v3", "shared_experts", NULL },
	{ "mixtral", NULL, NULL },
	{ "qwen2_moe", "shared_expert", "shared_expert_gate" },
	{ "qwen3_moe", NULL, NULL },
};

static const struct family *family_of(const char *model_type)
{
	size_t i;

	for (i = 0; model_type && i < sizeof(families) / sizeof(*families); i++)
		if (strcmp(families[i].model_type, model_type) == 0)
			return &families[i];
	return NULL;
}

bool uns_autoep_knows(const char *model_type)
{
	return family_of(model_type) != NULL;
}

/* -- names -- */

struct naming {
	const struct family *family;
	const struct uns_name_rule *tail;
	struct uns_map names;   /* of all tensors */
	struct uns_map modules; /* "model.layers.0.mlp" */
	struct uns_arena *arena;
	struct uns_named_tensor *v;
	size_t n, cap;
	const char *odd; /* a tensor that no rule fits; NULL = none */
};

static void naming_fini(struct naming *a)
{
	uns_map_fini(&a->names);
	uns_map_fini(&a->modules);
	free(a->v);
}

/* No model has more: a shape with more would only fill memory with names. */
enum { MAX_EXPERTS = 4096 };

static const char experts[] = ".experts.w";

/* 1 to 3 = it is w1 to w3 of the experts, and *module the length of "MODULE"; 0 = it is not. */
static unsigned expert_weight(const char *name, size_t *module)
{
	const size_t n = strlen(name), m = sizeof(experts) - 1;

	if (n <= m + 1 || memcmp(name + n - m - 1, experts, m) != 0 || name[n - 1] < '1' || name[n - 1] > '3')
		return 0;
	*module = n - m - 1;
	return (unsigned)(name[n - 1] - '0');
}

static int list_names(struct naming *a, const struct uns_named_tensor *v, size_t n, struct uns_err *err)
{
	const char *module;
	size_t i, len;

	for (i = 0; i < n; i++) {
		if (!uns_map_put(&a->names, v[i].name, (void *)v[i].name, NULL))
			return uns_oom(err);
		if (!expert_weight(v[i].name, &len))
			continue;
		module = uns_arena_strn(a->arena, v[i].name, len);
		if (!module || !uns_map_put(&a->modules, module, (void *)module, NULL))
			return uns_oom(err);
	}
	return 0;
}

static int add(struct naming *a, const struct uns_named_tensor *t, struct uns_err *err)
{
	if (!t->name || !UNS_HEAP_ROOM(a->v, a->n, a->cap))
		return uns_oom(err);
	a->v[a->n++] = *t;
	return 0;
}

/* -- experts -- */

/* The rule by which this weight of the module's experts is published; *kept: what stays of the name. */
static const struct uns_name_rule *rule_of(const struct naming *a, const char *name, size_t module, unsigned weight,
					   size_t *kept)
{
	const char *last = weight == 2 ? ".experts.down_proj" : ".experts.gate_up_proj";
	const struct uns_name_rule *rule;
	size_t n;

	for (rule = a->tail; rule->from; rule++) {
		if (!uns_str_ends(rule->from, last) || !rule->unstack || rule->of != (weight == 2 ? 1 : 2) ||
		    rule->part != (weight == 3))
			continue;
		n = strlen(rule->from) - strlen(last);
		if (n > module || memcmp(name + module - n, rule->from, n) != 0 ||
		    (n < module && name[module - n - 1] != '.'))
			continue;
		*kept = module - n;
		return rule;
	}
	return NULL;
}

static int add_experts(struct naming *a, const struct uns_named_tensor *t, size_t module, unsigned weight,
		       struct uns_err *err)
{
	const struct uns_shape *shape = uns_named_shape(t);
	size_t kept = 0;
	const struct uns_name_rule *rule = rule_of(a, t->name, module, weight, &kept);
	const int before = rule ? (int)strcspn(rule->to, "#") : 0;
	struct uns_named_tensor one = *t;
	struct uns_slice *slice;
	uint64_t e;

	if (!rule || shape->n < 2 || shape->dim[0] > MAX_EXPERTS) {
		a->odd = t->name;
		return 0;
	}
	for (e = 0; e < shape->dim[0]; e++) {
		slice = UNS_NEW(a->arena, struct uns_slice);
		if (!slice)
			return uns_oom(err);
		slice->shape.n = shape->n - 1;
		memcpy(slice->shape.dim, shape->dim + 1, slice->shape.n * sizeof(*shape->dim));
		slice->first_elem = e * uns_shape_elems(&slice->shape);
		slice->joined = e > 0;
		one.slice = slice;
		one.name = uns_arena_printf(a->arena, "%.*s%.*s%llu%s", (int)kept, t->name, before, rule->to,
					    (unsigned long long)e, rule->to + before + 1);
		UNS_TRY(add(a, &one, err));
	}
	return 0;
}

/* -- what else is in a module -- */

/* *module: "MODULE" of "MODULE.part.rest", if it is one of AutoEP's, and *part what is behind it; else both NULL. */
static int find_module(const struct naming *a, const char *name, const char **module, const char **part,
		       struct uns_err *err)
{
	const char *dot = name, *begins;

	*module = *part = NULL;
	while (!*module && (dot = strchr(dot, '.'))) {
		begins = uns_arena_strn(a->arena, name, (size_t)(dot++ - name));
		if (!begins)
			return uns_oom(err);
		*module = uns_map_get(&a->modules, begins);
		*part = *module ? dot : NULL;
	}
	return 0;
}

static bool is_part(const char *part, const char *name)
{
	size_t n = strlen(name);

	return strncmp(part, name, n) == 0 && part[n] == '.';
}

/* It is a second name of something in the module's router: 1, 0. */
static int is_second(const struct naming *a, const char *module, const char *part, struct uns_err *err)
{
	const char *rest = strchr(part, '.');
	const char *first = rest ? uns_arena_printf(a->arena, "%s.router%s", module, rest) : part;

	if (!first)
		return uns_oom(err);
	return rest && !is_part(part, "router") && uns_map_get(&a->names, first);
}

/* What transformers calls it, instead of "router.gate" and so on; *old: how long that is. NULL = it is not known. */
static const char *new_part(const struct naming *a, const char *part, size_t *old)
{
	const struct {
		const char *old, *new;
	} known[] = {
		{ "router.gate", "gate" },
		{ "router", "gate" },
		{ "shared_experts", a->family->shared },
		{ "shared_experts_gate", a->family->shared_gate },
	};
	size_t i;

	for (i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (is_part(part, known[i].old)) {
			*old = strlen(known[i].old);
			return known[i].new;
		}
	return NULL;
}

static int add_other(struct naming *a, const struct uns_named_tensor *t, struct uns_err *err)
{
	const char *part, *module, *new;
	struct uns_named_tensor renamed = *t;
	size_t old;
	int code;

	UNS_TRY(find_module(a, t->name, &module, &part, err));
	if (!module)
		return add(a, t, err);
	UNS_TRY(code = is_second(a, module, part, err));
	if (code)
		return 0;
	new = new_part(a, part, &old);
	if (!new) {
		a->odd = t->name;
		return 0;
	}
	renamed.name = uns_arena_printf(a->arena, "%s.%s%s", module, new, part + old);
	return add(a, &renamed, err);
}

/* -- all -- */

static int add_all(struct naming *a, const struct uns_named_tensor *v, size_t n, struct uns_err *err)
{
	unsigned weight;
	size_t i, module;

	UNS_TRY(list_names(a, v, n, err));
	for (i = 0; i < n && !a->odd; i++) {
		weight = expert_weight(v[i].name, &module);
		UNS_TRY(weight ? add_experts(a, &v[i], module, weight, err) : add_other(a, &v[i], err));
	}
	return 0;
}

static int keep(const char *why, struct uns_vtree *out, struct uns_err *err)
{
	return uns_vtree_note(out, err,
			      "the tensors have the names that DeepSpeed's AutoEP gives them, which from_pretrained does not "
			      "know: %s", why);
}

int uns_autoep_apply(const struct uns_config_info *config, struct uns_named_tensor **v, size_t *n,
		     struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(naming_fini) struct naming a = { .family = family_of(config->model_type), .arena = &out->arena };
	struct uns_naming rules;
	const char *why;

	if (!a.family || !uns_published_rules(config, &rules))
		return keep(config->model_type ? "others are not known for its model type" : "there is no config.json", out,
			    err);
	a.tail = rules.tail;
	UNS_TRY(add_all(&a, *v, *n, err));
	if (a.odd) {
		why = uns_arena_printf(&out->arena, "none is known for %s", a.odd);
		return why ? keep(why, out, err) : uns_oom(err);
	}
	free(*v);
	*v = UNS_TAKE(a.v);
	*n = a.n;
	return uns_vtree_note(out, err,
			      "the experts that DeepSpeed's AutoEP shared out have the names that %s publishes for model type "
			      "%s; -o names=memory shows the saved names",
			      uns_published_source, config->model_type);
}
