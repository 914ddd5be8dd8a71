/* What PEFT stacks, and what one expert's LoRA is of it (files/merge_experts.c has the two orders):
 *
 *   stacked [E * r, a]     rows e * r .. of it: [r, a]
 *   stacked [b, E * r]     columns e, e + E, .. of it: [b, r]
 *
 * The one that is of what goes into the expert becomes lora_A [r, in], the other one lora_B [out, r], either of them
 * turned if PEFT had it in the other place. Gate and up, which one parameter holds, have one A and each its rows of B.
 */
#include "files/split_adapter.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "files/adapter.h"
#include "files/adapter_list.h"
#include "files/merge_experts.h"
#include "model/joined_tensor.h"
#include "names/expert_names.h"
#include "names/template.h"
#include "wire/json.h"

static const char PREFIX[] = "base_model.model.";
static const char WEIGHT[] = ".weight";

struct splitting {
	const struct uns_merge_input *in;
	struct uns_arena *arena;
	struct uns_expert_names names;
	struct uns_adapter_settings settings;
	struct uns_merge_sums base;
	struct uns_merge_experts experts;
	struct uns_map wrapped; /* module that target_parameters wrap -> struct uns_merge_module */
	struct uns_name_list list; /* what is made */
	cJSON *modules; /* the new target_modules */
	cJSON *ranks, *alphas; /* patterns that the new modules need in front of those that there were */
};

static void splitting_fini(struct splitting *s)
{
	uns_adapter_settings_fini(&s->settings);
	uns_merge_sums_fini(&s->base);
	uns_merge_experts_fini(&s->experts);
	uns_map_fini(&s->wrapped);
	uns_name_list_fini(&s->list);
	cJSON_Delete(s->modules);
	cJSON_Delete(s->ranks);
	cJSON_Delete(s->alphas);
}

static int not_converted(const struct uns_merge_input *in, enum uns_expert_form form, const char *cause,
			 struct uns_err *err)
{
	return UNS_CATALOG_FAIL(in->catalog, err, EXPERTS_NOT_CONVERTED, .scope = UNS_SCOPE_WEIGHTS,
				.arg = { { "what", uns_str(form == UNS_EXPERTS_SPLIT ? "split" : "fused") },
					 { "cause", uns_str(cause) } });
}

/* The module of the base model and the part of it that an adapter's tensor is of; *module NULL = it is of none. */
static int module_of(const char *name, struct uns_arena *arena, const char **module, const char **part,
		     struct uns_err *err)
{
	*module = NULL;
	*part = uns_adapter_part(name);
	if (!*part || !uns_str_starts(name, PREFIX) || *part <= name + strlen(PREFIX))
		return 0;
	name += strlen(PREFIX);
	UNS_TRY_ALLOC(*module = uns_arena_strn(arena, name, (size_t)(*part - 1 - name)), err);
	return 0;
}

/* -- is there anything to do? -- */

/* Is it the module of one expert's projection? */
static int is_of_one(const struct uns_expert_names *names, const char *module, struct uns_arena *arena,
		     struct uns_err *err)
{
	const char *weight = uns_arena_printf(arena, "%s%s", module, WEIGHT);
	uint64_t expert;
	size_t kept;

	UNS_TRY_ALLOC(weight, err);
	return uns_expert_split(names, weight, &kept, &expert) != NULL;
}

static int tensor_look(const struct uns_merge_input *in, const struct uns_expert_names *names,
		       const struct uns_adapter_settings *settings, enum uns_expert_form form, const char *name,
		       struct uns_arena *arena, bool *changes, struct uns_err *err)
{
	struct uns_merge_module of = { 0 };
	const char *part;
	int one;

	UNS_TRY(module_of(name, arena, &of.name, &part, err));
	if (!uns_expert_like(name))
		return 0;
	UNS_TRY(one = of.name ? is_of_one(names, of.name, arena, err) : 0);
	if (one && form == UNS_EXPERTS_FUSED)
		return uns_fail(err, -ENOTSUP,
				"%s is of the LoRA of one expert; PEFT's LoRA of a fused parameter has one lora_A for "
				"gate and up, and unshard does not stack LoRAs of single experts",
				name);
	if (one)
		return 0;
	if (!of.name || !uns_merge_experts_wrapped(settings, &of))
		return uns_fail(err, -ENOTSUP,
				"%s is of an adapter of experts, and neither of one expert by the names that unshard "
				"knows for models of type %s, nor by target_parameters in adapter_config.json",
				name, in->config->model_type ? in->config->model_type : "(none)");
	*changes |= form == UNS_EXPERTS_SPLIT;
	return 0;
}

static struct uns_expert_names names_of(const struct uns_config_info *config)
{
	static const struct uns_name_rule none[] = { { 0 } };
	struct uns_expert_names names = { none, UNS_EXPERTS_AS_SPLIT, false };

	uns_expert_names_of(config, &names);
	return names;
}

/* A tensor of experts of any adapter; NULL = there is none. */
static const char *of_experts(const struct uns_catalog *cat, const struct uns_named_tensor *v, size_t n, bool several)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	size_t i;

	for (i = 0; i < n; i++)
		if (uns_expert_like(v[i].name))
			return v[i].name;
	for (; several && t < end; t++)
		if (t->of_adapter && uns_expert_like(t->name))
			return t->name;
	return NULL;
}

static int look(const struct uns_merge_input *in, enum uns_expert_form form, struct uns_arena *arena, bool *changes,
		struct uns_err *err)
{
	UNS_CLEANUP(uns_adapter_settings_fini) struct uns_adapter_settings settings = { 0 };
	UNS_CLEANUP(uns_adapter_list_fini) struct uns_adapter_list all = { 0 };
	UNS_CLEANUP(uns_free_p) struct uns_named_tensor *v = NULL;
	const struct uns_expert_names names = names_of(in->config);
	const char *found;
	size_t n, i;

	UNS_TRY(uns_adapter_list(in->catalog, in->other, &all, err));
	UNS_TRY(uns_adapter_tensors(in->catalog, &all.v[all.chosen], arena, &v, &n, err));
	found = of_experts(in->catalog, v, n, all.n > 1);
	if (!found)
		return 0;
	if (all.n > 1)
		return uns_fail(err, -ENOTSUP, "%s is of experts, and the checkpoint has several adapters", found);
	if (uns_span_left(&in->adapter_config))
		UNS_TRY(uns_adapter_settings_read(in->adapter_config, &settings, err));
	for (i = 0; i < n; i++)
		UNS_TRY(tensor_look(in, &names, &settings, form, v[i].name, arena, changes, err));
	return 0;
}

int uns_split_adapter_needed(const struct uns_merge_input *in, enum uns_expert_form form, bool *changes,
			     struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err why = { 0 };
	int code;

	*changes = false;
	if (form == UNS_EXPERTS_PUBLISHED)
		return 0;
	code = look(in, form, &arena, changes, &why);
	if (code < 0 && uns_code_is_finding(code))
		return not_converted(in, form, why.text, err);
	return code < 0 ? uns_fail_copy(err, &why) : 0;
}

/* -- the new adapter_config.json -- */

static int module_list(struct splitting *s, const char *module, struct uns_err *err)
{
	cJSON *name = cJSON_CreateString(module);

	UNS_TRY_ALLOC(name, err);
	UNS_TRY_ALLOC(cJSON_AddItemToArray(s->modules, name), err);
	return 0;
}

/* A module of one expert has the rank and the alpha that its parameter had: by the patterns that there were, or else by
 * one of its own. */
static int numbers_keep(struct splitting *s, const char *module, const char *parameter, struct uns_err *err)
{
	double rank, alpha, own_rank, own_alpha;
	const char *pattern = uns_arena_printf(s->arena, "^%s", module);

	UNS_TRY_ALLOC(pattern, err);
	UNS_TRY(uns_adapter_settings_numbers(&s->settings, parameter, &rank, &alpha, err));
	UNS_TRY(uns_adapter_settings_numbers(&s->settings, module, &own_rank, &own_alpha, err));
	if (rank != own_rank)
		UNS_TRY_ALLOC(cJSON_AddNumberToObject(s->ranks, pattern, rank), err);
	if (alpha != own_alpha)
		UNS_TRY_ALLOC(cJSON_AddNumberToObject(s->alphas, pattern, alpha), err);
	return 0;
}

static int item_set(cJSON *json, const char *key, cJSON **item, struct uns_err *err)
{
	UNS_TRY_ALLOC(*item, err);
	cJSON_DeleteItemFromObjectCaseSensitive(json, key);
	UNS_TRY_ALLOC(cJSON_AddItemToObject(json, key, *item), err);
	*item = NULL;
	return 0;
}

/* The first pattern that fits counts: the new ones are in front. */
static int patterns_set(cJSON *json, const char *key, cJSON **own, struct uns_err *err)
{
	const cJSON *item;

	if (!(*own)->child)
		return 0;
	cJSON_ArrayForEach (item, cJSON_GetObjectItemCaseSensitive(json, key))
		UNS_TRY_ALLOC(cJSON_AddItemToObject(*own, item->string, cJSON_Duplicate(item, true)), err);
	return item_set(json, key, own, err);
}

/* The new target_modules are whole names: nothing else chooses among modules. */
static int config_make(struct splitting *s, const char **out, struct uns_err *err)
{
	static const char *const chose[] = { "target_parameters", "exclude_modules", "layers_to_transform",
					     "layers_pattern" };
	UNS_CLEANUP(uns_json_free_p) cJSON *null = NULL;
	cJSON *json = s->settings.json;
	char *text;
	size_t i;

	UNS_TRY(patterns_set(json, "rank_pattern", &s->ranks, err));
	UNS_TRY(patterns_set(json, "alpha_pattern", &s->alphas, err));
	UNS_TRY(item_set(json, "target_modules", &s->modules, err));
	for (i = 0; i < sizeof(chose) / sizeof(*chose); i++) {
		if (!cJSON_GetObjectItemCaseSensitive(json, chose[i]))
			continue;
		null = cJSON_CreateNull();
		UNS_TRY(item_set(json, chose[i], &null, err));
	}
	UNS_TRY_ALLOC(text = cJSON_Print(json), err);
	*out = uns_arena_printf(s->arena, "%s\n", text);
	cJSON_free(text);
	return *out ? 0 : uns_oom(err);
}

/* -- the new tensors -- */

/* One matrix of all experts, in which each of them has `rows` rows of `columns` elements. */
static int part_add(struct splitting *s, const struct uns_named_tensor *all, uint64_t expert, uint64_t rows,
		    uint64_t columns, const char *module, const char *what, struct uns_err *err)
{
	struct uns_named_tensor one = *all;
	struct uns_slice *slice = UNS_NEW(s->arena, struct uns_slice);

	UNS_TRY_ALLOC(slice, err);
	*slice = (struct uns_slice){ .first_elem = uns_named_first(all) + expert * rows * columns,
				     .shape = { 2, { rows, columns } } };
	one.slice = slice;
	one.name = uns_arena_printf(s->arena, "%s%s.%s.weight", PREFIX, module, what);
	return uns_name_list_add(&s->list, &one, err);
}

/* [E * rows, columns] out of a stacked matrix, in this order. */
static int all_join(struct splitting *s, const struct uns_tensor *t, struct uns_joined_order order, const char *what,
		    uint64_t n_experts, struct uns_named_tensor *out, struct uns_err *err)
{
	const uint64_t rows = order.loop[1].n, columns = order.loop[2].n;
	const struct uns_shape shape = { 2, { n_experts * rows, columns } };
	const struct uns_named_tensor part = { t->name, t, t->dtype, t->slice };

	return uns_joined_make(s->in->catalog, what, &part, 1, &order, &shape, s->arena, out, err);
}

/* What one parameter of a layer has: its two matrices, by what they are of. */
struct packed {
	const struct uns_tensor *in, *out;
	bool a_is_in;
	uint64_t n, r, n_in, n_out;
};

/* [E * r, in]: the same for gate and up. */
static int inputs_join(struct splitting *s, const struct packed *p, struct uns_named_tensor *out, struct uns_err *err)
{
	const uint64_t of_all = p->n * p->r;
	const struct uns_joined_order turned = {
		1, of_all * p->n_in, 0, { { p->n, 1 }, { p->r, p->n }, { p->n_in, of_all } }
	};

	*out = (struct uns_named_tensor){ p->in->name, p->in, p->in->dtype, p->in->slice };
	return p->a_is_in ? 0 : all_join(s, p->in, turned, p->in->name, p->n, out, err);
}

/* [E * rows, r]: those rows of the parameter that the rule has. */
static int outputs_join(struct splitting *s, const struct packed *p, const struct uns_name_rule *rule,
			struct uns_named_tensor *out, struct uns_err *err)
{
	const uint64_t rows = p->n_out / rule->of, of_all = p->n * p->r;
	const bool in_turns = s->names.interleaved && rule->of > 1;
	const uint64_t first = rule->part * (in_turns ? 1 : rows), step = in_turns ? rule->of : 1;
	const struct uns_joined_order gathered = {
		1, of_all * p->n_out, first * of_all, { { p->n, 1 }, { rows, step * of_all }, { p->r, p->n } }
	};
	const struct uns_joined_order turned = {
		p->n, p->r * p->n_out, first, { { 0 }, { rows, step }, { p->r, p->n_out } }
	};

	return all_join(s, p->out, p->a_is_in ? gathered : turned, p->out->name, p->n, out, err);
}

static int projection_add(struct splitting *s, const struct packed *p, const struct uns_name_rule *rule,
			  const char *parameter, struct uns_err *err)
{
	const int kept = (int)(strlen(parameter) - strlen(rule->from));
	struct uns_named_tensor inputs, outputs;
	char end[UNS_TEMPLATE_NAME];
	const char *module;
	uint64_t e;

	UNS_TRY(inputs_join(s, p, &inputs, err));
	UNS_TRY(outputs_join(s, p, rule, &outputs, err));
	for (e = 0; e < p->n; e++) {
		uns_template_fill(end, "", rule->to, -1, (int64_t)e);
		end[strlen(end) - strlen(WEIGHT)] = '\0';
		UNS_TRY_ALLOC(module = uns_arena_printf(s->arena, "%.*s%s", kept, parameter, end), err);
		UNS_TRY(part_add(s, &inputs, e, p->r, p->n_in, module, "lora_A", err));
		UNS_TRY(part_add(s, &outputs, e, p->n_out / rule->of, p->r, module, "lora_B", err));
		UNS_TRY(module_list(s, module, err));
		UNS_TRY(numbers_keep(s, module, parameter, err));
	}
	return 0;
}

static int parameter_add(struct splitting *s, const struct uns_merge_module *of, const struct uns_merge_packing *pack,
			 struct uns_err *err)
{
	const struct uns_name_rule *first = uns_expert_fused(&s->names, pack->parameter), *rule = first;
	const bool turned = s->names.order == UNS_EXPERTS_TURNED, a_is_in = pack->a_is_rows == turned;
	const struct uns_tensor *a = of->part[UNS_PART_A], *b = of->part[UNS_PART_B];
	const struct packed p = { .in = a_is_in ? a : b,
				  .out = a_is_in ? b : a,
				  .a_is_in = a_is_in,
				  .n = pack->n_experts,
				  .r = a->shape.dim[0] / pack->n_experts,
				  .n_in = turned ? pack->rows : pack->columns,
				  .n_out = turned ? pack->columns : pack->rows };
	double scale;

	if (!first || s->names.order == UNS_EXPERTS_EITHER || !uns_str_ends(first->to, WEIGHT) || p.n_out % first->of)
		return uns_fail(err, -ENOTSUP, "unshard does not know how models of type %s lay out %s",
				s->in->config->model_type ? s->in->config->model_type : "(none)", pack->parameter);
	UNS_TRY(uns_adapter_settings_scale(&s->settings, pack->parameter, p.r, &scale,
					   err)); /* the rank is the config's */
	for (; rule->from; rule++)
		if (rule->unstack && strcmp(rule->from, first->from) == 0)
			UNS_TRY(projection_add(s, &p, rule, pack->parameter, err));
	return 0;
}

static int wrapped_add(struct splitting *s, struct uns_err *err)
{
	const size_t n = s->wrapped.n;
	UNS_CLEANUP(uns_free_p) const struct uns_merge_module **module = calloc(n + 1, sizeof(*module));
	UNS_CLEANUP(uns_free_p) struct uns_merge_packing *pack = calloc(n + 1, sizeof(*pack));
	struct uns_merging merging = { .sums = &s->base, .settings = &s->settings, .times = 1 };
	const char *name;
	size_t at = 0, i = 0;
	void *of;

	UNS_TRY_ALLOC(module && pack, err);
	while (uns_map_next(&s->wrapped, &at, &name, &of))
		module[i++] = of;
	UNS_TRY(uns_merged_adapter_base(s->in, &s->base, err));
	UNS_TRY(uns_merge_experts_find(&s->base, s->in->config, &s->experts, err));
	UNS_TRY(uns_merge_experts_pack(&merging, &s->experts, module, n, pack, err));
	for (i = 0; i < n; i++)
		UNS_TRY(parameter_add(s, module[i], &pack[i], err));
	return 0;
}

/* -- all -- */

static int wrapped_take(struct splitting *s, const struct uns_named_tensor *t, const char *module, const char *part,
			struct uns_err *err)
{
	const enum uns_merge_part is = uns_merge_part_find(s->settings.method, part);
	struct uns_merge_module *of = uns_map_get(&s->wrapped, module);

	if (is == UNS_N_PARTS)
		return uns_fail(err, -ENOTSUP, "%s is of a kind that unshard does not know", t->name);
	if (!of) {
		UNS_TRY_ALLOC(of = UNS_NEW(s->arena, struct uns_merge_module), err);
		of->name = module;
		UNS_TRY_ALLOC(uns_map_put(&s->wrapped, module, of, NULL), err);
	}
	of->part[is] = t->tensor;
	return 0;
}

/* Modules are adapted if they have the first of the two matrices. */
static bool is_first(const char *part)
{
	return strcmp(part, "lora_A.weight") == 0 || strcmp(part, "lora_embedding_A") == 0;
}

static int tensor_take(struct splitting *s, const struct uns_named_tensor *t, struct uns_err *err)
{
	struct uns_merge_module of = { 0 };
	const char *part;

	UNS_TRY(module_of(t->name, s->arena, &of.name, &part, err));
	if (of.name && uns_merge_experts_wrapped(&s->settings, &of))
		return wrapped_take(s, t, of.name, part, err);
	if (of.name && is_first(part))
		UNS_TRY(module_list(s, of.name, err));
	return uns_name_list_add(&s->list, t, err);
}

/* A module's weight that is wrapped as a parameter has the names of a module that is adapted. */
static int parameters_check(const struct splitting *s, struct uns_err *err)
{
	const cJSON *target;

	cJSON_ArrayForEach (target, s->settings.parameters)
		if (!cJSON_IsString(target) || uns_str_ends(target->valuestring, WEIGHT))
			return uns_fail(err, -ENOTSUP,
					"adapter_config.json has the target_parameters %s, which are no experts",
					cJSON_IsString(target) ? target->valuestring : "without a name");
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return uns_str_natural(((const struct uns_named_tensor *)a)->name, ((const struct uns_named_tensor *)b)->name);
}

static int split(struct splitting *s, const char **config, struct uns_err *err)
{
	UNS_CLEANUP(uns_adapter_list_fini) struct uns_adapter_list all = { 0 };
	UNS_CLEANUP(uns_free_p) struct uns_named_tensor *v = NULL;
	const char *twice;
	size_t n, i;

	UNS_TRY_ALLOC(s->modules = cJSON_CreateArray(), err);
	UNS_TRY_ALLOC(s->ranks = cJSON_CreateObject(), err);
	UNS_TRY_ALLOC(s->alphas = cJSON_CreateObject(), err);
	UNS_TRY(uns_adapter_settings_read(s->in->adapter_config, &s->settings, err));
	UNS_TRY(parameters_check(s, err));
	UNS_TRY(uns_adapter_list(s->in->catalog, s->in->other, &all, err));
	UNS_TRY(uns_adapter_tensors(s->in->catalog, &all.v[all.chosen], s->arena, &v, &n, err));
	for (i = 0; i < n; i++)
		UNS_TRY(tensor_take(s, &v[i], err));
	UNS_TRY(wrapped_add(s, err));
	UNS_TRY(uns_name_list_check(&s->list, &twice, err));
	if (twice)
		return uns_fail(err, -EBADMSG, "two tensors would be called %s", twice);
	qsort(s->list.v, s->list.n, sizeof(*s->list.v), by_name);
	return config_make(s, config, err);
}

int uns_split_adapter_make(const struct uns_merge_input *in, struct uns_arena *arena, struct uns_split_adapter *out,
			   struct uns_err *err)
{
	UNS_CLEANUP(splitting_fini)
	struct splitting s = {
		.in = in,
		.arena = arena,
		.names = names_of(in->config),
		.base = { .catalog = in->catalog, .arena = arena },
		.list = { .arena = arena },
	};
	struct uns_err why = { 0 };
	const int code = split(&s, &out->config, &why);

	if (code < 0 && uns_code_is_finding(code))
		return not_converted(in, UNS_EXPERTS_SPLIT, why.text, err);
	if (code < 0)
		return uns_fail_copy(err, &why);
	uns_name_list_take(&s.list, &out->v, &out->n);
	return 0;
}
