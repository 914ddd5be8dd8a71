/* The families that AutoEP has presets for and whose published names are known, and their names. */
#include "names/autoep_names.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "names/config_families.h"
#include "names/published_names.h"

/* -- families -- */

struct family {
	const char *model_type;
	const char *shared, *shared_gate; /* the names of MODULE.shared_experts and MODULE.shared_experts_gate; NULL =
					     it has none */
};

/* Sorted by model_type. */
static const struct family families[] = {
	{ "deepseek_v2", "shared_experts", NULL },
	{ "deepseek_v3", "shared_experts", NULL },
	{ "mixtral", NULL, NULL },
	{ "qwen2_moe", "shared_expert", "shared_expert_gate" },
	{ "qwen3_moe", NULL, NULL },
};

static const struct family *family_of(const char *model_type)
{
	return uns_family_row(families, sizeof(families) / sizeof(*families), sizeof(*families), model_type);
}

bool uns_autoep_knows(const char *model_type)
{
	return family_of(model_type) != NULL;
}

/* -- names -- */

struct naming {
	const struct family *family;
	const struct uns_name_rule *tail; /* the family's */
	struct uns_map names;             /* of all tensors */
	struct uns_map modules;           /* "model.layers.0.mlp" */
	struct uns_name_list list;
	const char *odd; /* a tensor that no rule fits; NULL = none */
};

static void naming_fini(struct naming *a)
{
	uns_map_fini(&a->names);
	uns_map_fini(&a->modules);
	uns_name_list_fini(&a->list);
}

/* 1 to 3 = it is w1 to w3 of the experts of a module, and *module the length of "MODULE"; 0 = it is not. */
static unsigned expert_weight(const char *name, size_t *module)
{
	static const char *const weights[] = { "experts.w1", "experts.w2", "experts.w3" };
	unsigned i;

	for (i = 0; i < 3; i++)
		if (uns_name_ends(name, weights[i]) && strlen(name) > strlen(weights[i])) {
			*module = strlen(name) - strlen(weights[i]) - 1;
			return i + 1;
		}
	return 0;
}

static int names_collect(struct naming *a, const struct uns_named_tensor *v, size_t n, struct uns_err *err)
{
	const char *module;
	size_t i, len;

	for (i = 0; i < n; i++) {
		UNS_TRY_ALLOC(uns_map_put(&a->names, v[i].name, (void *)v[i].name, NULL), err);
		if (!expert_weight(v[i].name, &len))
			continue;
		module = uns_arena_strn(a->list.arena, v[i].name, len);
		UNS_TRY_ALLOC(module && uns_map_put(&a->modules, module, (void *)module, NULL), err);
	}
	return 0;
}

/* Adds w1 or w3, which are the halves of gate_up_proj in memory, or w2, which is down_proj, by the rule for that part.
 */
static int experts_add(struct naming *a, const struct uns_named_tensor *t, size_t module, unsigned weight,
		       struct uns_err *err)
{
	const unsigned of = weight == 2 ? 1 : 2, part = weight == 3;
	const char *name = uns_arena_printf(a->list.arena, "%.*s.experts.%s", (int)module, t->name,
					    weight == 2 ? "down_proj" : "gate_up_proj");
	const struct uns_name_rule *tail = a->tail;
	struct uns_name_rule rule;
	int cut = 0;

	UNS_TRY_ALLOC(name, err);
	while (tail->from &&
	       !(tail->unstack && tail->of == of && tail->part == part && uns_name_ends(name, tail->from)))
		tail++;
	rule = (struct uns_name_rule){ .from = tail->from, .to = tail->to, .of = 1, .unstack = true };
	if (tail->from)
		UNS_TRY(cut = uns_tail_apply(&rule, name, t, &a->list, err));
	if (!cut)
		a->odd = t->name;
	return 0;
}

/* -- what else is in a module -- */

/* *module: "MODULE" of "MODULE.part.rest", if it is one of AutoEP's, and *part what is behind it; else both NULL. */
static int module_find(const struct naming *a, const char *name, const char **module, const char **part,
		       struct uns_err *err)
{
	const char *dot = name, *begins;

	*module = *part = NULL;
	while (!*module && (dot = strchr(dot, '.'))) {
		UNS_TRY_ALLOC(begins = uns_arena_strn(a->list.arena, name, (size_t)(dot++ - name)), err);
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

static int other_add(struct naming *a, const struct uns_named_tensor *t, struct uns_err *err)
{
	const struct {
		const char *old, *new; /* new NULL = transformers has no such part */
	} known[] = {
		{ "router.gate", "gate" },
		{ "router", "gate" },
		{ "shared_experts", a->family->shared },
		{ "shared_experts_gate", a->family->shared_gate },
	};
	const size_t n_known = sizeof(known) / sizeof(*known);
	const char *part, *module, *rest, *first;
	struct uns_named_tensor renamed = *t;
	size_t i = 0;

	UNS_TRY(module_find(a, t->name, &module, &part, err));
	if (!module)
		return uns_name_list_add(&a->list, t, err);
	rest = strchr(part, '.');
	if (rest && !is_part(part, "router")) {
		UNS_TRY_ALLOC(first = uns_arena_printf(a->list.arena, "%s.router%s", module, rest), err);
		if (uns_map_get(&a->names, first))
			return 0; /* a second name of something in the module's router */
	}
	while (i < n_known && !is_part(part, known[i].old))
		i++;
	if (i == n_known || !known[i].new) {
		a->odd = t->name;
		return 0;
	}
	renamed.name = uns_arena_printf(a->list.arena, "%s.%s%s", module, known[i].new, part + strlen(known[i].old));
	return uns_name_list_add(&a->list, &renamed, err);
}

/* -- all -- */

static int names_kept(const char *why, struct uns_vtree *out, struct uns_err *err)
{
	return uns_vtree_note(
		out, err,
		"the tensors have the names that DeepSpeed's AutoEP gives them, which from_pretrained does not "
		"know: %s",
		why);
}

int uns_autoep_apply(const struct uns_config_info *config, struct uns_named_tensor **v, size_t *n,
		     struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(naming_fini)
	struct naming a = { .family = family_of(config->model_type), .list.arena = &out->arena };
	struct uns_naming rules;
	const char *why;
	unsigned weight;
	size_t i, len;

	if (!a.family || !uns_published_rules(config, &rules))
		return names_kept(config->model_type ? "others are not known for its model type"
						     : "there is no config.json",
				  out, err);
	a.tail = rules.tail;
	UNS_TRY(names_collect(&a, *v, *n, err));
	for (i = 0; i < *n && !a.odd; i++) {
		weight = expert_weight((*v)[i].name, &len);
		UNS_TRY(weight ? experts_add(&a, &(*v)[i], len, weight, err) : other_add(&a, &(*v)[i], err));
	}
	if (a.odd) {
		why = uns_arena_printf(&out->arena, "none is known for %s", a.odd);
		return why ? names_kept(why, out, err) : uns_oom(err);
	}
	uns_name_list_take(&a.list, v, n);
	return uns_vtree_note(
		out, err,
		"the experts that DeepSpeed's AutoEP shared out have the names that %s publishes for model type "
		"%s; -o names=memory shows the saved names",
		uns_published_source, config->model_type);
}
