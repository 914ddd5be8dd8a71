/* Gives an optimizer's numbers the names of the model's parameters, and proves by shapes that each name may be right.
 */
#include "files/named_optimizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "base/text.h"
#include "files/optimizer_state.h"
#include "model/cover.h"
#include "names/memory_names.h"
#include "names/parameter_order.h"

enum { SHAPE_TEXT = 512, MAX_TIES = 16 /* more than any family has */ };

bool uns_numbered_has_optimizer(const struct uns_catalog *cat)
{
	size_t i = 0;

	if (cat->summary.family != UNS_FAMILY_WHOLE)
		return false;
	while (i < cat->n_groups && !cat->groups[i].numbered)
		i++;
	return i < cat->n_groups;
}

int uns_numbered_check(const struct uns_catalog *cat, struct uns_err *why)
{
	UNS_TRY(uns_cover_weights(cat, why));
	return uns_optimizer_check(cat, uns_optimizer_root(cat), why);
}

struct naming {
	const struct uns_config_info *info;
	struct uns_span config;
	const struct uns_catalog *cat;
	struct uns_vtree *tree;
	struct uns_arena *arena;
	const struct uns_parameter_family *family;
	struct uns_tensor *v; /* of the new catalog */
	size_t n;
	struct uns_map by_name; /* name in memory -> index into v, of model tensors */
	const char **name;      /* of each number */
	size_t n_names;
};

static void naming_fini(struct naming *m)
{
	uns_map_fini(&m->by_name);
}

static int refuse(const struct naming *m, const char *cause, struct uns_err *err)
{
	UNS_TRY_ALLOC(cause, err);
	return UNS_CATALOG_FAIL(m->cat, err, OPTIMIZER_NAMES_UNKNOWN, .scope = UNS_SCOPE_OPTIMIZER,
				.arg = { { "cause", uns_str(cause) } });
}

/* -- the model, under its names in memory -- */

static int tensor_add(struct naming *m, const struct uns_tensor *t, const char *name, struct uns_err *err)
{
	/* A number of another tensor means nothing in the new catalog: both have the same pieces. */
	const struct uns_tensor *with_bytes = t->alias_of == UNS_NONE ? t : uns_tensor_with_bytes(m->cat, t);

	UNS_TRY_ALLOC(uns_map_put_index(&m->by_name, name, (uint32_t)m->n), err);
	m->v[m->n] = *t;
	m->v[m->n].first_piece = with_bytes->first_piece;
	m->v[m->n].n_pieces = with_bytes->n_pieces;
	m->v[m->n].alias_of = UNS_NONE;
	if (!t->own && !t->of)
		m->v[m->n].renamed = with_bytes->renamed ? with_bytes->renamed : with_bytes;
	m->v[m->n++].name = name;
	return 0;
}

static int model_add(struct naming *m, struct uns_err *err)
{
	struct uns_memory_names names;
	size_t i;

	UNS_TRY(uns_memory_names_find(m->info, m->cat, m->arena, &names, err));
	if (names.hole)
		return refuse(m,
			      uns_arena_printf(m->arena,
					       "in memory the experts of a layer are one tensor, and %s does not fit "
					       "the other experts' tensors",
					       names.hole),
			      err);
	UNS_TRY_ALLOC(m->v = UNS_NEW_N(m->arena, struct uns_tensor, 2 * m->cat->n_tensors + names.n + MAX_TIES), err);
	for (i = 0; i < names.n; i++)
		UNS_TRY(tensor_add(m, names.v[i].tensor, names.v[i].name, err));
	for (i = 0; !names.n && i < m->cat->n_tensors; i++)
		if (uns_role_is_model(m->cat->tensors[i].role))
			UNS_TRY(tensor_add(m, &m->cat->tensors[i], m->cat->tensors[i].name, err));
	return 0;
}

/* Has the model a head that may be tied, or one of another task? */
static bool has_head_of_words(const struct naming *m)
{
	static const char *const ends[] = { "ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForMaskedLM",
					    "ForPreTraining" };
	UNS_CLEANUP(uns_json_free_p) cJSON *root = NULL;
	const char *architecture;
	size_t i;

	if (uns_json_parse(m->config, &root, NULL) < 0)
		return false;
	architecture =
		cJSON_GetStringValue(cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(root, "architectures"), 0));
	for (i = 0; architecture && i < sizeof(ends) / sizeof(*ends); i++)
		if (uns_str_ends(architecture, ends[i]))
			return true;
	return false;
}

/* A file that save_pretrained writes has one name of each tied tensor, a model in memory both. */
static int tied_add(struct naming *m, struct uns_err *err)
{
	const struct uns_parameter_tie *tie = m->family->tie;
	uint32_t first, second;

	if (!m->info->ties_embeddings || !has_head_of_words(m))
		return 0;
	for (; tie->second; tie++) {
		first = uns_map_index(&m->by_name, tie->first);
		second = uns_map_index(&m->by_name, tie->second);
		if (first == UNS_MAP_NO_INDEX && second != UNS_MAP_NO_INDEX)
			UNS_TRY(tensor_add(m, &m->v[second], tie->first, err));
		if (second == UNS_MAP_NO_INDEX && first != UNS_MAP_NO_INDEX)
			UNS_TRY(tensor_add(m, &m->v[first], tie->second, err));
	}
	return 0;
}

/* Is it the second name of a tensor that the model has under its first name, too? */
static bool is_second_name(const struct naming *m, const char *name)
{
	const struct uns_parameter_tie *tie = m->family->tie;

	while (tie->second && strcmp(tie->second, name) != 0)
		tie++;
	return tie->second && m->info->ties_embeddings && uns_map_index(&m->by_name, tie->first) != UNS_MAP_NO_INDEX;
}

/* -- which number is which parameter -- */

/* Lists the parameters in the model's order; not buffers, and not second names. */
static int parameters_find(struct naming *m, struct uns_ordered_parameter **out, size_t *n, struct uns_err *err)
{
	struct uns_ordered_parameter *v;
	const struct uns_parameter_row *row;
	size_t i;

	*n = 0;
	UNS_TRY_ALLOC(*out = v = UNS_NEW_N(m->arena, struct uns_ordered_parameter, m->n + 1), err);
	for (i = 0; i < m->n; i++) {
		row = uns_parameter_row_find(m->family, m->v[i].name);
		if (!row && !uns_dtype_info(m->v[i].dtype)->is_float)
			continue; /* no parameter consists of integers */
		if (!row)
			return refuse(
				m,
				uns_arena_printf(m->arena,
						 "models of type %s have no tensor %s in the version that unshard "
						 "knows (%s)",
						 m->family->model_type, m->v[i].name, uns_parameter_source),
				err);
		if (row->kind != UNS_PARAMETER_BUFFER && !is_second_name(m, m->v[i].name))
			v[(*n)++] = (struct uns_ordered_parameter){ m->v[i].name, row };
	}
	uns_parameters_sort(v, *n);
	return 0;
}

/* How many parameters the groups have in all; UNS_NONE = their numbers are not 0, 1, 2, ... over all groups. */
static uint32_t count_numbers(const struct uns_catalog *cat)
{
	unsigned long long number;
	uint32_t n = 0;
	size_t i, k;

	for (i = 0; i < cat->n_groups; i++)
		for (k = 0; k < cat->groups[i].n_params; k++, n++)
			if (!uns_str_number(cat->groups[i].param[k], "", "", &number) || number != n)
				return UNS_NONE;
	return n;
}

static int refuse_count(const struct naming *m, size_t group, size_t found, size_t expected, struct uns_err *err)
{
	return refuse(m,
		      uns_arena_printf(m->arena,
				       "param group %zu has %zu parameters, and by the model's own order it would have "
				       "%zu: frozen parameters, and groups of a script's own, are recorded nowhere",
				       group, found, expected),
		      err);
}

/* Deals the parameters out to the groups: to one, or to the two that a Trainer makes. */
static int numbers_name(struct naming *m, const struct uns_ordered_parameter *v, size_t n, struct uns_err *err)
{
	const struct uns_group *g = m->cat->groups;
	const bool of_trainer = m->cat->n_groups == 2 && m->cat->summary.resumed_by & UNS_BY_TRAINER;
	size_t i, k, before;

	if (m->cat->n_groups != 1 && !of_trainer)
		return refuse(m,
			      uns_arena_printf(m->arena,
					       "it has %zu param groups, and no file records which parameter is in "
					       "which",
					       m->cat->n_groups),
			      err);
	if (count_numbers(m->cat) == UNS_NONE)
		return refuse(m, "its param groups do not number their parameters 0, 1, 2, ...", err);
	UNS_TRY_ALLOC(m->name = UNS_NEW_N(m->arena, const char *, n + 1), err);
	for (k = 0; k < m->cat->n_groups; k++) {
		before = m->n_names;
		for (i = 0; i < n; i++)
			if (!of_trainer || (v[i].row->kind == UNS_PARAMETER_DECAYS) == (k == 0))
				m->name[m->n_names++] = v[i].name;
		if (m->n_names - before != g[k].n_params)
			return refuse_count(m, k, g[k].n_params, m->n_names - before, err);
	}
	return 0;
}

/* -- the optimizer -- */

/* A state with dimensions has the shape of its parameter. */
static int state_check(const struct naming *m, const struct uns_tensor *t, const char *name, struct uns_err *err)
{
	const struct uns_shape *expected = &m->v[uns_map_index(&m->by_name, name)].shape;
	char a[SHAPE_TEXT], b[SHAPE_TEXT];

	if (!t->shape.n || uns_shape_equal(&t->shape, expected))
		return 0;
	return refuse(m,
		      uns_arena_printf(m->arena,
				       "%s has the shape %s, and by the model's own order it would be a state of %s, "
				       "which has the shape %s",
				       t->key, uns_shape_text(&t->shape, a, sizeof(a)), name,
				       uns_shape_text(expected, b, sizeof(b))),
		      err);
}

static int states_add(struct naming *m, struct uns_err *err)
{
	const struct uns_tensor *t = m->cat->tensors, *end = t + m->cat->n_tensors;
	unsigned long long number;
	const char *name;

	for (; t < end; t++) {
		if (!uns_role_is_optimizer(t->role))
			continue;
		if (!uns_str_number(t->name, "", "", &number) || number >= m->n_names)
			return refuse(m,
				      uns_arena_printf(m->arena, "%s is a state of no parameter of its groups", t->key),
				      err);
		name = m->name[number];
		UNS_TRY(state_check(m, t, name, err));
		m->v[m->n] = *t;
		m->v[m->n].name = name;
		m->v[m->n].renamed = t;
		m->v[m->n++].inferred = true;
	}
	return 0;
}

/* States that are single numbers are values called "state.NUMBER.STATE". */
static int values_add(struct naming *m, struct uns_catalog *out, struct uns_err *err)
{
	static const char before[] = "state.";
	struct uns_named_value *v = UNS_NEW_N(m->arena, struct uns_named_value, m->cat->n_values + 1);
	const char *root = uns_optimizer_root(m->cat), *at;
	char *end;
	unsigned long number;
	size_t i;

	UNS_TRY_ALLOC(v, err);
	for (i = 0; i < m->cat->n_values; i++) {
		v[i] = m->cat->values[i];
		if (strcmp(v[i].root, root) != 0 || !uns_str_starts(v[i].name, before))
			continue;
		at = v[i].name + strlen(before);
		number = strtoul(at, &end, 10);
		if (end == at || *end != '.' || number >= m->n_names)
			continue;
		UNS_TRY_ALLOC(v[i].name = uns_arena_printf(m->arena, "%s%s%s", before, m->name[number], end), err);
	}
	out->values = v;
	return 0;
}

static int groups_add(struct naming *m, struct uns_catalog *out, struct uns_err *err)
{
	const char **name = m->name;
	size_t i;

	UNS_TRY_ALLOC(out->groups = UNS_NEW_N(m->arena, struct uns_group, m->cat->n_groups + 1), err);
	for (i = 0; i < m->cat->n_groups; i++) {
		out->groups[i] = m->cat->groups[i];
		out->groups[i].numbered = false;
		out->groups[i].param = name;
		name += out->groups[i].n_params;
	}
	return 0;
}

static int model_make(struct naming *m, struct uns_catalog *out, struct uns_err *err)
{
	struct uns_ordered_parameter *parameters;
	size_t n;

	*out = *m->cat;
	UNS_TRY(model_add(m, err));
	UNS_TRY(tied_add(m, err));
	UNS_TRY(parameters_find(m, &parameters, &n, err));
	UNS_TRY(numbers_name(m, parameters, n, err));
	UNS_TRY(states_add(m, err));
	UNS_TRY(values_add(m, out, err));
	UNS_TRY(groups_add(m, out, err));
	out->tensors = m->v;
	out->n_tensors = m->n;
	return uns_vtree_note(m->tree, err,
			      "the optimizer has numbers in place of names: they are those of the parameters of model "
			      "type %s in the order of %s%s. Shapes agree. That is wrong if the training froze "
			      "parameters or ordered them itself",
			      m->family->model_type, uns_parameter_source,
			      m->cat->n_groups > 1 ? ", first those with weight decay, as a Trainer has them" : "");
}

int uns_numbered_name(const struct uns_config_info *info, struct uns_span config, const struct uns_catalog *cat,
		      struct uns_vtree *tree, const struct uns_catalog **out, struct uns_err *err)
{
	UNS_CLEANUP(naming_fini)
	struct naming m = { .info = info, .config = config, .cat = cat, .tree = tree, .arena = &tree->arena };
	struct uns_catalog *named;

	*out = cat;
	if (!uns_numbered_has_optimizer(cat))
		return 0;
	m.family = uns_parameter_family_find(info->model_type);
	if (!uns_span_left(&config))
		return refuse(&m, "config.json, which names the model's type, is missing (-o model=DIR)", err);
	if (!m.family)
		return refuse(&m,
			      uns_arena_printf(m.arena,
					       "unshard does not know the order of parameters of model type %s",
					       info->model_type ? info->model_type : "none"),
			      err);
	UNS_TRY_ALLOC(named = UNS_NEW(m.arena, struct uns_catalog), err);
	UNS_TRY(model_make(&m, named, err));
	*out = named;
	return 0;
}

int uns_numbered_check_names(const struct uns_config_info *info, struct uns_span config, const struct uns_catalog *cat,
			     struct uns_err *why)
{
	UNS_CLEANUP(uns_vtree_fini) struct uns_vtree unused = { 0 };
	const struct uns_catalog *named;

	return uns_numbered_name(info, config, cat, &unused, &named, why);
}
