/* Split: the matrix of one expert is a stretch of the fused tensor, in which gate and up are rows (or columns, if it is
 * turned) behind each other or in turns. Fused: the split matrices behind each other, expert by expert and gate before
 * up, are the source of a joined tensor. */
#include "files/expert_forms.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "model/joined_tensor.h"
#include "names/expert_names.h"
#include "names/template.h"

struct forms {
	const struct uns_catalog *cat;
	struct uns_expert_names names;
	struct uns_name_list list; /* what is made; its arena is the caller's */
	struct uns_map by_name; /* all tensors before */
	struct uns_map stacks; /* name of a fused tensor -> its struct stack */
	size_t n_experts; /* tensors of either form */
};

/* What one fused tensor is made of. */
struct stack {
	const char *name;
	const struct uns_name_rule *rule;
	struct member {
		struct uns_named_tensor t;
		uint64_t at; /* expert * parts + part */
	} *member;
	size_t n, cap;
};

static void forms_fini(struct forms *f)
{
	uns_name_list_fini(&f->list);
	uns_map_fini(&f->by_name);
	uns_map_fini(&f->stacks);
}

static const char *shape_print(const struct uns_named_tensor *t, char text[128])
{
	return uns_shape_text(uns_named_shape(t), text, 128);
}

/* -- split -- */

/* The matrix of one expert in a fused tensor, a vector of biases being a matrix of one column. */
struct matrix {
	uint64_t n_experts, rows, columns;
	bool turned;
};

/* The layer's other fused tensor of weights. */
static const struct uns_named_tensor *sibling(const struct forms *f, const struct uns_named_tensor *t,
					      const struct uns_name_rule *rule)
{
	const int kept = (int)(strlen(t->name) - strlen(rule->from));
	const struct uns_name_rule *other = f->names.rule;
	const char *name;

	while (other->from && !(other->unstack && other->of != rule->of))
		other++;
	name = other->from ? uns_arena_printf(f->list.arena, "%.*s%s", kept, t->name, other->from) : NULL;
	return name ? uns_map_get(&f->by_name, name) : NULL;
}

/* Of a family whose files have both orders: which is this? gate_up has twice as many rows as down has columns. */
static int turned_find(const struct forms *f, const struct uns_named_tensor *t, const struct uns_name_rule *rule,
		       bool *turned, struct uns_err *err)
{
	const struct uns_named_tensor *other = sibling(f, t, rule);
	const struct uns_shape *gate_up = uns_named_shape(rule->of == 2 ? t : other ? other : t);
	const struct uns_shape *down = uns_named_shape(rule->of == 2 && other ? other : t);
	char own[128], its[128];

	if (!other || gate_up->n != 3 || down->n != 3)
		return uns_fail(err, -EBADMSG, "%s is there without the layer's other tensor of experts", t->name);
	*turned = gate_up->dim[1] == down->dim[2] && gate_up->dim[2] == 2 * down->dim[1];
	if (*turned || (gate_up->dim[1] == 2 * down->dim[2] && gate_up->dim[2] == down->dim[1]))
		return 0;
	return uns_fail(err, -EBADMSG, "%s has the shape %s, which does not fit that of %s, %s", t->name,
			shape_print(t, own), other->name, shape_print(other, its));
}

static int matrix_find(const struct forms *f, const struct uns_named_tensor *t, const struct uns_name_rule *rule,
		       struct matrix *out, struct uns_err *err)
{
	const struct uns_shape *shape = uns_named_shape(t);
	char text[128];

	*out = (struct matrix){ .n_experts = shape->dim[0],
				.rows = shape->dim[1],
				.columns = shape->n == 3 ? shape->dim[2] : 1,
				.turned = shape->n == 3 && f->names.order == UNS_EXPERTS_TURNED };
	if (shape->n == 3 && f->names.order == UNS_EXPERTS_EITHER)
		UNS_TRY(turned_find(f, t, rule, &out->turned, err));
	if ((shape->n == 3 || (shape->n == 2 && uns_str_ends(rule->from, "bias"))) &&
	    out->n_experts <= UNS_MAX_EXPERTS && (out->turned ? out->columns : out->rows) % rule->of == 0)
		return 0;
	return uns_fail(err, -EBADMSG, "%s has the shape %s, which is not that of all experts of a layer", t->name,
			shape_print(t, text));
}

/* Where the rule's part of an expert's matrix lies in it, as rows and columns of the part. */
static struct uns_joined_order part_order(const struct matrix *m, const struct uns_name_rule *rule, bool interleaved)
{
	const uint64_t rows = (m->turned ? m->columns : m->rows) / rule->of;
	const uint64_t row = m->turned ? 1 : m->columns, column = m->turned ? m->columns : 1;
	const bool in_turns = interleaved && rule->of > 1;

	return (struct uns_joined_order){
		.n_planes = 1,
		.plane_elems = m->rows * m->columns,
		.first_elem = rule->part * row * (in_turns ? 1 : rows),
		.loop = { { 0 },
			  { rows, row * (in_turns ? rule->of : 1) },
			  { m->turned ? m->rows : m->columns, column } },
	};
}

/* The elements of one expert that the order takes, as a part of its own: a stretch of them, or all of its matrix. */
static int expert_slice(const struct forms *f, const struct uns_named_tensor *t, const struct matrix *m,
			uint64_t expert, struct uns_joined_order *order, struct uns_named_tensor *out,
			struct uns_err *err)
{
	const struct uns_joined_loop *row = &order->loop[1], *column = &order->loop[2];
	uint64_t at = expert * m->rows * m->columns;
	struct uns_slice *slice;

	*out = *t;
	if (t->slice && uns_slice_stretches(t->slice) > 1) { /* cut out of all that there are */
		order->plane_elems *= m->n_experts;
		order->first_elem += at;
		return 0;
	}
	if (column->step_elems == 1 && row->step_elems == column->n) {
		at += order->first_elem;
		order->first_elem = 0;
		order->plane_elems = row->n * column->n;
	}
	UNS_TRY_ALLOC(out->slice = slice = UNS_NEW(f->list.arena, struct uns_slice), err);
	*slice = (struct uns_slice){ .first_elem = uns_named_first(t) + at, .shape = { 1, { order->plane_elems } } };
	return 0;
}

/* If the parts of an expert's matrix do not lie behind each other, all of them are one joined tensor, which is put in
 * order at once: so that the matrix is read once, and not for each part. */
static int expert_join(const struct forms *f, const struct uns_named_tensor *part, const struct uns_name_rule *rule,
		       struct uns_joined_order order, const char *name, const struct uns_shape *shape,
		       struct uns_named_tensor *out, struct uns_err *err)
{
	const uint64_t rows = order.loop[1].n, row = order.loop[1].step_elems, n = rows * order.loop[2].n;
	const uint64_t step = f->names.interleaved ? row / rule->of : row * rows;
	const bool is_alone = rule->of == 1 || order.plane_elems == n;
	struct uns_shape all = *shape;
	struct uns_slice *slice;

	if (is_alone)
		return uns_joined_make(f->cat, name, part, 1, &order, shape, f->list.arena, out, err);
	order.first_elem -= rule->part * step;
	order.loop[0] = (struct uns_joined_loop){ rule->of, step };
	all.dim[0] *= rule->of;
	UNS_TRY(uns_joined_make(f->cat, name, part, 1, &order, &all, f->list.arena, out, err));
	UNS_TRY_ALLOC(slice = UNS_NEW(f->list.arena, struct uns_slice), err);
	*slice = (struct uns_slice){ .first_elem = uns_named_first(out) + rule->part * n, .shape = *shape };
	out->slice = slice;
	return 0;
}

static int expert_add(struct forms *f, const struct uns_named_tensor *t, const struct matrix *m,
		      const struct uns_name_rule *rule, uint64_t expert, struct uns_err *err)
{
	struct uns_joined_order order = part_order(m, rule, f->names.interleaved);
	const struct uns_shape shape = { uns_named_shape(t)->n - 1, { order.loop[1].n, order.loop[2].n } };
	const int kept = (int)(strlen(t->name) - strlen(rule->from));
	struct uns_named_tensor part, made;
	char end[UNS_TEMPLATE_NAME];
	const char *name = uns_arena_printf(f->list.arena, "%.*s%s", kept, t->name,
					    uns_template_fill(end, "", rule->to, -1, (int64_t)expert));

	UNS_TRY_ALLOC(name, err);
	UNS_TRY(expert_slice(f, t, m, expert, &order, &part, err));
	UNS_TRY(expert_join(f, &part, rule, order, name, &shape, &made, err));
	return uns_name_list_add(&f->list, &made, err);
}

static int fused_split(struct forms *f, const struct uns_named_tensor *t, const struct uns_name_rule *first,
		       struct uns_err *err)
{
	const struct uns_name_rule *rule;
	struct matrix m;
	uint64_t e;

	UNS_TRY(matrix_find(f, t, first, &m, err));
	for (rule = first; rule->from; rule++) {
		if (!rule->unstack || strcmp(rule->from, first->from) != 0)
			continue;
		for (e = 0; e < m.n_experts; e++)
			UNS_TRY(expert_add(f, t, &m, rule, e, err));
	}
	return 0;
}

/* -- fused -- */

static int member_add(struct forms *f, const struct uns_named_tensor *t, const struct uns_name_rule *rule, size_t kept,
		      uint64_t expert, struct uns_err *err)
{
	const char *name = uns_arena_printf(f->list.arena, "%.*s%s", (int)kept, t->name, rule->from);
	struct stack *stack;

	UNS_TRY_ALLOC(name, err);
	if (expert >= UNS_MAX_EXPERTS)
		return uns_fail(err, -EBADMSG, "%s would be of an expert beyond the %d that unshard takes", t->name,
				UNS_MAX_EXPERTS);
	stack = uns_map_get(&f->stacks, name);
	if (!stack) {
		UNS_TRY_ALLOC(stack = UNS_NEW(f->list.arena, struct stack), err);
		stack->name = name;
		stack->rule = rule;
		UNS_TRY_ALLOC(uns_map_put(&f->stacks, name, stack, NULL), err);
	}
	UNS_TRY_ALLOC(UNS_ARENA_ROOM(f->list.arena, stack->member, stack->n, stack->cap), err);
	stack->member[stack->n++] = (struct member){ *t, expert * rule->of + rule->part };
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct member *x = a, *y = b;

	return (x->at > y->at) - (x->at < y->at);
}

/* Has each expert each part, once, and do all have one shape? */
static int stack_check(const struct stack *stack, struct uns_err *err)
{
	const struct uns_named_tensor *first = &stack->member[0].t, *t;
	const struct uns_shape *shape = uns_named_shape(first);
	const unsigned of = stack->rule->of, n_dims = uns_str_ends(stack->rule->from, "bias") ? 1 : 2;
	char own[128], its[128];
	uint64_t i;

	for (i = 0; i < stack->n; i++) {
		t = &stack->member[i].t;
		if (stack->member[i].at != i)
			return uns_fail(err, -EBADMSG, "of %s the %s of expert %llu is not there", stack->name,
					of == 1       ? "part"
					: i % of == 0 ? "first part (gate)"
						      : "second part (up)",
					(unsigned long long)(i / of));
		if (shape->n != n_dims || !uns_shape_equal(uns_named_shape(t), shape))
			return uns_fail(err, -EBADMSG,
					"%s has the shape %s, and %s has %s: they are not parts of one %s", first->name,
					shape_print(first, own), t->name, shape_print(t, its), stack->name);
	}
	if (stack->n % of == 0)
		return 0;
	return uns_fail(err, -EBADMSG, "of %s the second part (up) of expert %llu is not there", stack->name,
			(unsigned long long)(stack->n / of));
}

/* The split matrices as [experts, parts, rows, columns]: the fused tensor's order of the last three. */
static struct uns_joined_order stack_order(const struct forms *f, const struct stack *stack, struct uns_shape *shape)
{
	const struct uns_shape *one = uns_named_shape(&stack->member[0].t);
	const uint64_t of = stack->rule->of, rows = one->dim[0], columns = one->n == 2 ? one->dim[1] : 1;
	const struct uns_joined_loop row = { rows, columns }, column = { columns, 1 }, part = { of, rows * columns };
	const bool in_turns = f->names.interleaved, turned = one->n == 2 && f->names.order == UNS_EXPERTS_TURNED;
	struct uns_joined_order order = { stack->n / of, of * rows * columns, 0, { { 0 }, { 0 }, { 0 } } };
	struct uns_joined_loop *of_rows = &order.loop[turned ? 1 : 0];

	of_rows[0] = in_turns ? row : part;
	of_rows[1] = in_turns ? part : row;
	order.loop[turned ? 0 : 2] = column;
	*shape = (struct uns_shape){ one->n + 1, { stack->n / of, of * rows, columns } };
	if (turned)
		*shape = (struct uns_shape){ 3, { stack->n / of, columns, of * rows } };
	return order;
}

static int stack_join(struct forms *f, struct stack *stack, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct uns_named_tensor *part = calloc(stack->n, sizeof(*part));
	struct uns_joined_order order;
	struct uns_named_tensor made;
	struct uns_shape shape;
	size_t i;

	UNS_TRY_ALLOC(part, err);
	qsort(stack->member, stack->n, sizeof(*stack->member), by_place);
	UNS_TRY(stack_check(stack, err));
	for (i = 0; i < stack->n; i++)
		part[i] = stack->member[i].t;
	order = stack_order(f, stack, &shape);
	UNS_TRY(uns_joined_make(f->cat, stack->name, part, stack->n, &order, &shape, f->list.arena, &made, err));
	return uns_name_list_add(&f->list, &made, err);
}

static int stacks_join(struct forms *f, struct uns_err *err)
{
	const char *name;
	void *stack;
	size_t at = 0;

	while (uns_map_next(&f->stacks, &at, &name, &stack))
		UNS_TRY(stack_join(f, stack, err));
	return 0;
}

/* -- all tensors -- */

static int unknown_expert(const char *name, const struct uns_config_info *config, struct uns_err *err)
{
	if (!config->model_type)
		return uns_fail(err, -ENOTSUP, "%s is of experts, and there is no config.json with the model's type",
				name);
	return uns_fail(err, -ENOTSUP,
			"%s is of experts, and has none of the names that unshard knows for models of type %s", name,
			config->model_type);
}

static int tensor_take(struct forms *f, const struct uns_config_info *config, enum uns_expert_form form,
		       const struct uns_named_tensor *t, struct uns_err *err)
{
	const struct uns_name_rule *fused = uns_expert_fused(&f->names, t->name), *split;
	uint64_t expert = 0;
	size_t kept = 0;

	split = fused ? NULL : uns_expert_split(&f->names, t->name, &kept, &expert);
	f->n_experts += fused || split;
	if (fused && form == UNS_EXPERTS_SPLIT)
		return fused_split(f, t, fused, err);
	if (split && form == UNS_EXPERTS_FUSED)
		return member_add(f, t, split, kept, expert, err);
	if (!fused && !split && uns_expert_like(t->name))
		return unknown_expert(t->name, config, err);
	return uns_name_list_add(&f->list, t, err);
}

static int by_name(const void *a, const void *b)
{
	return uns_str_natural(((const struct uns_named_tensor *)a)->name, ((const struct uns_named_tensor *)b)->name);
}

/* None has to be in the file of another one. */
static int list_settle(struct uns_name_list *list, struct uns_err *err)
{
	struct uns_slice *slice;
	size_t i;

	if (list->n)
		qsort(list->v, list->n, sizeof(*list->v), by_name);
	for (i = 0; i < list->n; i++) {
		if (!list->v[i].slice || !list->v[i].slice->joined)
			continue;
		UNS_TRY_ALLOC(slice = UNS_NEW(list->arena, struct uns_slice), err);
		*slice = *list->v[i].slice;
		slice->joined = false;
		list->v[i].slice = slice;
	}
	return 0;
}

static int forms_make(struct forms *f, const struct uns_config_info *config, enum uns_expert_form form,
		      const struct uns_named_tensor *v, size_t n, struct uns_err *err)
{
	const char *twice;
	size_t i;

	for (i = 0; i < n; i++)
		UNS_TRY_ALLOC(uns_map_put(&f->by_name, v[i].name, (void *)&v[i], NULL), err);
	for (i = 0; i < n; i++)
		UNS_TRY(tensor_take(f, config, form, &v[i], err));
	UNS_TRY(stacks_join(f, err));
	UNS_TRY(uns_name_list_check(&f->list, &twice, err));
	if (twice)
		return uns_fail(err, -EBADMSG, "two tensors would be called %s", twice);
	return list_settle(&f->list, err);
}

/* The family's names; without any, names without rules. */
static struct uns_expert_names names_of(const struct uns_config_info *config)
{
	static const struct uns_name_rule none[] = { { 0 } };
	struct uns_expert_names names = { none, UNS_EXPERTS_AS_SPLIT, false };

	uns_expert_names_of(config, &names);
	return names;
}

bool uns_expert_forms_changes(const struct uns_config_info *config, enum uns_expert_form form, const char *name)
{
	const struct uns_expert_names names = names_of(config);
	uint64_t expert;
	size_t kept;

	if (form == UNS_EXPERTS_PUBLISHED)
		return false;
	if (uns_expert_fused(&names, name))
		return form == UNS_EXPERTS_SPLIT;
	if (uns_expert_split(&names, name, &kept, &expert))
		return form == UNS_EXPERTS_FUSED;
	return uns_expert_like(name);
}

static int not_converted(const struct uns_catalog *cat, enum uns_expert_form form, const char *cause,
			 struct uns_err *err)
{
	return UNS_CATALOG_FAIL(cat, err, EXPERTS_NOT_CONVERTED, .scope = UNS_SCOPE_WEIGHTS,
				.arg = { { "what", uns_str(form == UNS_EXPERTS_SPLIT ? "split" : "fused") },
					 { "cause", uns_str(cause) } });
}

int uns_expert_forms_apply(const struct uns_catalog *cat, const struct uns_config_info *config,
			   enum uns_expert_form form, struct uns_named_tensor **v, size_t *n, struct uns_vtree *out,
			   struct uns_err *err)
{
	UNS_CLEANUP(forms_fini) struct forms f = { .cat = cat, .names = names_of(config), .list.arena = &out->arena };
	struct uns_err why = { 0 };
	int code;

	if (form == UNS_EXPERTS_PUBLISHED)
		return 0;
	code = forms_make(&f, config, form, *v, *n, &why);
	if (code < 0 && uns_code_is_finding(code))
		return not_converted(cat, form, why.text, err);
	if (code < 0)
		return uns_fail_copy(err, &why);
	if (!f.n_experts)
		return 0;
	uns_name_list_take(&f.list, v, n);
	return uns_vtree_note(out, err,
			      form == UNS_EXPERTS_SPLIT
				      ? "each expert's weights are tensors of their own, because of -o experts=split"
				      : "all experts of a layer are in one tensor, because of -o experts=fused");
}

int uns_expert_forms_adapter(const struct uns_catalog *cat, enum uns_expert_form form, struct uns_err *err)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	struct uns_err why = { 0 };

	while (form != UNS_EXPERTS_PUBLISHED && t < end && !(t->of_adapter && uns_expert_like(t->name)))
		t++;
	if (form == UNS_EXPERTS_PUBLISHED || t == end)
		return 0;
	uns_fail(&why, -ENOTSUP, "%s is of an adapter of experts, which is for the form that it was trained with",
		 t->name);
	return not_converted(cat, form, why.text, err);
}
