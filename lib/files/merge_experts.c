/* Source: peft 0.17.1 to 0.21.2, tuners/lora/layer.py (ParamWrapper) and tuners/tuners_utils.py (_inject_parameters).
 *
 *   M.lora_A [E * r, a], M.lora_B [b, E * r]    of expert e: A_e = rows e * r .. of A, B_e = columns e, e + E, .. of B
 *   parameter M.P [E, rows, columns]            of expert e: + scale * (A_e' B_e') where a = rows, b = columns
 *                                                            + scale * (B_e A_e)   where b = rows, a = columns
 *
 * The second order is that of peft 0.19.1 and later for modules whose parameters are [E, out, in]; of a matrix that is
 * square the tensors do not show it. All parameters of one module have one order.
 *
 * Of several parameters of M the first one's tensors are M.base_layer.lora_A, the last one's M.lora_A: which parameter
 * is which follows from the shapes. */
#include "files/merge_experts.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "model/block_tensor.h"
#include "names/published_names.h"

static const char BASE_LAYER[] = ".base_layer";

/* A weight of the base model: all of a parameter, or rows of one expert's matrix. */
struct member {
	struct uns_merge_weight *weight;
	uint64_t expert;
	unsigned part, of;
};

struct stack {
	struct member *v;
	size_t n, cap;
	uint64_t n_experts, rows, columns; /* of the parameter; n_experts 0 = the weights do not make one */
	bool added;
};

enum order { UNKNOWN, A_IS_ROWS, B_IS_ROWS };

void uns_merge_experts_fini(struct uns_merge_experts *experts)
{
	uns_map_fini(&experts->stacks);
}

/* -- the base model -- */

static int member_add(const struct uns_merge_sums *sums, struct uns_merge_experts *out, const char *name,
		      struct member member, struct uns_err *err)
{
	struct stack *stack = uns_map_get(&out->stacks, name);

	if (!stack) {
		UNS_TRY_ALLOC(stack = UNS_NEW(sums->arena, struct stack), err);
		UNS_TRY_ALLOC(uns_map_put(&out->stacks, name, stack, NULL), err);
	}
	UNS_TRY_ALLOC(UNS_ARENA_ROOM(sums->arena, stack->v, stack->n, stack->cap), err);
	stack->v[stack->n++] = member;
	return 0;
}

static int split_member_add(const struct uns_merge_sums *sums, const struct uns_name_rule *tail,
			    struct uns_merge_weight *w, struct uns_merge_experts *out, struct uns_err *err)
{
	struct member member = { .weight = w };
	const char *name;
	size_t kept;

	while (tail->from && !(tail->unstack && uns_template_ends(w->shown.name, tail->to, &kept, &member.expert)))
		tail++;
	if (!tail->from)
		return 0;
	member.part = tail->part;
	member.of = tail->of;
	UNS_TRY_ALLOC(name = uns_arena_printf(sums->arena, "%.*s%s", (int)kept, w->shown.name, tail->from), err);
	return member_add(sums, out, name, member, err);
}

/* Sets the parameter's shape, if each expert has each of its parts once, all of one shape. */
static void stack_measure(struct stack *stack)
{
	const struct uns_shape *first = &stack->v[0].weight->shown.tensor->shape, *shape;
	const uint64_t of = stack->v[0].of, n = stack->n / of;
	uint64_t seen = 0;
	size_t i, k;

	if (first->n != 2 || stack->n % of)
		return;
	for (i = 0; i < stack->n; i++) {
		shape = &stack->v[i].weight->shown.tensor->shape;
		for (k = 0; k < i; k++)
			if (stack->v[k].expert == stack->v[i].expert && stack->v[k].part == stack->v[i].part)
				return;
		if (stack->v[i].expert >= n || stack->v[i].of != of || !uns_shape_equal(shape, first))
			return;
		seen++;
	}
	stack->n_experts = seen / of;
	stack->rows = of * first->dim[0];
	stack->columns = first->dim[1];
}

int uns_merge_experts_find(const struct uns_merge_sums *sums, const struct uns_config_info *config,
			   struct uns_merge_experts *out, struct uns_err *err)
{
	struct uns_merge_weight *w = sums->v, *end = w + sums->n;
	struct uns_naming rules;
	const bool known = uns_published_rules(config, &rules);
	const char *name;
	size_t at = 0;
	void *stack;

	for (; known && w < end; w++)
		UNS_TRY(split_member_add(sums, rules.tail, w, out, err));
	while (uns_map_next(&out->stacks, &at, &name, &stack))
		stack_measure(stack);
	for (w = sums->v; w < end; w++) {
		const struct uns_shape *shape = &w->shown.tensor->shape;
		struct stack *whole;

		if (shape->n != 3)
			continue;
		UNS_TRY(member_add(sums, out, w->shown.name, (struct member){ .weight = w }, err));
		whole = uns_map_get(&out->stacks, w->shown.name);
		whole->n_experts = whole->n == 1 ? shape->dim[0] : 0;
		whole->rows = shape->dim[1];
		whole->columns = shape->dim[2];
	}
	return 0;
}

/* -- which parameter a module wraps -- */

/* How much of the module's name is left without ".base_layer" at its end. */
static size_t wrapped_len(const char *module)
{
	const size_t cut = sizeof(BASE_LAYER) - 1;
	size_t n = strlen(module);

	while (n >= cut && memcmp(module + n - cut, BASE_LAYER, cut) == 0)
		n -= cut;
	return n;
}

/* If the target, "mlp.experts.gate_up_proj", is of the module: the parameter's own name; else NULL. */
static const char *parameter_of(const char *target, const char *module, size_t len)
{
	const char *dot = strrchr(target, '.');
	const size_t before = dot ? (size_t)(dot - target) : 0;

	if (!dot || before > len || memcmp(module + len - before, target, before) != 0 ||
	    (before < len && module[len - before - 1] != '.'))
		return NULL;
	return dot + 1;
}

bool uns_merge_experts_wrapped(const struct uns_adapter_settings *settings, const struct uns_merge_module *module)
{
	const size_t len = wrapped_len(module->name);
	const cJSON *target;
	const char *parameter;

	cJSON_ArrayForEach (target, settings->parameters) {
		parameter = cJSON_IsString(target) ? parameter_of(target->valuestring, module->name, len) : NULL;
		if (parameter && strcmp(parameter, "weight") != 0)
			return true;
	}
	return false;
}

static const struct uns_tensor *matrix_of(const struct uns_merge_module *of, enum uns_merge_part part)
{
	const struct uns_tensor *t = of->part[part];

	return t && t->shape.n == 2 ? t : NULL;
}

/* UNKNOWN = it does not fit, or, with *both, in both orders. */
static enum order order_of(const struct stack *stack, const struct uns_tensor *a, const struct uns_tensor *b,
			   bool *both)
{
	const bool a_is_rows = a->shape.dim[1] == stack->rows && b->shape.dim[0] == stack->columns;
	const bool b_is_rows = a->shape.dim[1] == stack->columns && b->shape.dim[0] == stack->rows;

	*both = a_is_rows && b_is_rows;
	return *both ? UNKNOWN : a_is_rows ? A_IS_ROWS : b_is_rows ? B_IS_ROWS : UNKNOWN;
}

struct found {
	struct stack *stack;
	const char *name; /* in memory */
	enum order order; /* UNKNOWN = the matrices are square */
};

static int parameter_find(const struct uns_merging *m, const struct uns_merge_experts *experts,
			  const struct uns_merge_module *of, struct found *out, struct uns_err *err)
{
	const struct uns_tensor *a = matrix_of(of, UNS_PART_A), *b = matrix_of(of, UNS_PART_B);
	const size_t len = wrapped_len(of->name);
	const char *parameter, *name;
	const cJSON *target;
	struct stack *stack;
	enum order order;
	bool both;

	*out = (struct found){ 0 };
	if (!a || !b || of->part[UNS_PART_B_BIAS] || of->part[UNS_PART_MAGNITUDE])
		return uns_fail(err, -ENOTSUP, "module %s has other parts than two matrices", of->name);
	cJSON_ArrayForEach (target, m->settings->parameters) {
		parameter = cJSON_IsString(target) ? parameter_of(target->valuestring, of->name, len) : NULL;
		if (!parameter)
			continue;
		UNS_TRY_ALLOC(name = uns_arena_printf(m->sums->arena, "%.*s.%s", (int)len, of->name, parameter), err);
		stack = uns_map_get(&experts->stacks, name);
		if (!stack || stack->n_experts < 2 || a->shape.dim[0] % stack->n_experts ||
		    a->shape.dim[0] != b->shape.dim[1] || !a->shape.dim[0])
			continue;
		order = order_of(stack, a, b, &both);
		if (order == UNKNOWN && !both)
			continue;
		if (out->stack && out->stack != stack)
			return uns_fail(err, -ENOTSUP, "module %s fits both %s and %s", of->name, out->name, name);
		*out = (struct found){ stack, name, order };
	}
	if (out->stack)
		return 0;
	return uns_fail(err, -ENOTSUP,
			"the base model has no experts in the shape for which module %s of target_parameters was made",
			of->name);
}

/* -- what is added -- */

/* [E, columns, rows] of a tensor whose elements are [E, rows, columns]. */
static int experts_transpose(const struct uns_merge_sums *sums, const struct uns_tensor *t, uint64_t n,
			     struct uns_factor *out, struct uns_err *err)
{
	const uint64_t r = t->shape.dim[0] / n;
	const struct uns_slice slice = { .shape = { 3, { n, r, t->shape.dim[1] } } };
	struct uns_named_tensor turned = { t->name, t, t->dtype, &slice };

	UNS_TRY(uns_block_tensor_transpose(sums->catalog, &turned, sums->arena, err));
	*out = uns_factor_as_is(turned.tensor);
	return 0;
}

/* [E, rows, r] of a tensor whose elements are [rows, r, E]. */
static int experts_gather(const struct uns_merge_sums *sums, const struct uns_tensor *t, uint64_t n,
			  struct uns_factor *out, struct uns_err *err)
{
	const uint64_t rows = t->shape.dim[0], r = t->shape.dim[1] / n;
	const struct uns_shape shape = { 3, { n, rows, r } };
	const struct uns_block block = {
		.source = { { t, 0 } }, .n_sources = 1, .len = { 1, rows * r, n }, .reversed = true
	};

	out->as = t->dtype;
	return uns_block_tensor_make(sums->catalog, &shape, &block, 1, sums->arena, &out->tensor, err);
}

static int product_add(struct uns_merging *m, const struct uns_merge_module *of, const struct found *found,
		       struct uns_err *err)
{
	const struct uns_tensor *a = of->part[UNS_PART_A], *b = of->part[UNS_PART_B];
	struct stack *stack = found->stack;
	const struct member *member = stack->v, *end = member + stack->n;
	const uint64_t r = a->shape.dim[0] / stack->n_experts;
	struct uns_term all = { .inner = r }, term;

	if (stack->added)
		return uns_fail(err, -ENOTSUP, "two modules of target_parameters were made for %s", found->name);
	stack->added = true;
	UNS_TRY(uns_adapter_settings_scale(m->settings, found->name, r, &all.times, err));
	all.times *= m->times;
	UNS_TRY(experts_transpose(m->sums, a, stack->n_experts, found->order == A_IS_ROWS ? &all.left : &all.right,
				  err));
	UNS_TRY(experts_gather(m->sums, b, stack->n_experts, found->order == A_IS_ROWS ? &all.right : &all.left, err));
	for (; member < end; member++) {
		term = all;
		if (member->of) {
			const uint64_t share = stack->rows / member->of;

			term.left.first = (member->expert * stack->rows + member->part * share) * r;
			term.right.first = member->expert * stack->columns * r;
		} else {
			term.batch = stack->rows;
		}
		UNS_TRY(uns_merge_sums_add(m->sums, member->weight, stack->columns, &term, err));
	}
	return 0;
}

/* -- the order of square matrices -- */

/* Those of the module's other parameters; else, before peft 0.19, the only one that there was. */
static enum order order_known(const struct uns_adapter_settings *settings, const struct uns_merge_module *const *module,
			      const struct found *found, size_t n, size_t which)
{
	const size_t len = wrapped_len(module[which]->name);
	size_t i;

	for (i = 0; i < n; i++)
		if (found[i].order != UNKNOWN && wrapped_len(module[i]->name) == len &&
		    memcmp(module[i]->name, module[which]->name, len) == 0)
			return found[i].order;
	return settings->peft_minor >= 0 && settings->peft_minor < 19 ? A_IS_ROWS : UNKNOWN;
}

static int all_find(struct uns_merging *m, const struct uns_merge_experts *experts,
		    const struct uns_merge_module *const *module, size_t n, struct found *found, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) enum order *order = calloc(n + 1, sizeof(*order));
	size_t i;

	UNS_TRY_ALLOC(order, err);
	for (i = 0; i < n; i++)
		UNS_TRY(parameter_find(m, experts, module[i], &found[i], err));
	for (i = 0; i < n; i++) {
		order[i] = found[i].order;
		if (order[i] == UNKNOWN)
			order[i] = order_known(m->settings, module, found, n, i);
		if (order[i] == UNKNOWN)
			return uns_fail(
				err, -ENOTSUP,
				"the matrices of %s are square, and adapter_config.json records no peft_version "
				"before 0.19: which dimension lora_A is of is not certain",
				found[i].name);
	}
	for (i = 0; i < n; i++)
		found[i].order = order[i];
	return 0;
}

int uns_merge_experts_pack(struct uns_merging *m, const struct uns_merge_experts *experts,
			   const struct uns_merge_module *const *module, size_t n, struct uns_merge_packing *out,
			   struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct found *found = calloc(n + 1, sizeof(*found));
	size_t i;

	UNS_TRY_ALLOC(found, err);
	UNS_TRY(all_find(m, experts, module, n, found, err));
	for (i = 0; i < n; i++)
		out[i] = (struct uns_merge_packing){ found[i].name, found[i].stack->n_experts, found[i].stack->rows,
						     found[i].stack->columns, found[i].order == A_IS_ROWS };
	return 0;
}

int uns_merge_experts_add(struct uns_merging *m, struct uns_merge_experts *experts,
			  const struct uns_merge_module *const *module, size_t n, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct found *found = calloc(n + 1, sizeof(*found));
	size_t i;

	UNS_TRY_ALLOC(found, err);
	UNS_TRY(all_find(m, experts, module, n, found, err));
	for (i = 0; i < n; i++)
		UNS_TRY(product_add(m, module[i], &found[i], err));
	return 0;
}
