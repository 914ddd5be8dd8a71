/* Source: peft 0.21.2, tuners/lora/layer.py (get_delta_weight, merge), tuners/ia3/layer.py (merge) and
 * tuners/ln_tuning/layer.py.
 *
 *   X.lora_A [r, in], X.lora_B [out, r]             X.weight [out, in] + scale * B A, or [in, out] + scale * (B A)'
 *   of a convolution [r, in, ..], [out, r, 1, ..]   X.weight [out, in, ..], the same of all that is behind the first
 *                                                   dim
 *   X.lora_magnitude_vector [out] (DoRA)            each row of X.weight with the above, by it / the row's norm
 *   X.lora_embedding_A [r, rows], _B [columns, r]   X.weight [rows, columns] + scale * (B A)'
 *   X.lora_B.bias                                   X.bias + scale * it
 *   X.ia3_l [out, 1]; of a convolution [1, out, ..] rows of X.weight, and X.bias, times it
 *   X.ia3_l [1, in] (a feedforward module)          columns of X.weight times it
 *   X.ln_tuning_layers.weight, .bias                take the place of X.weight, X.bias
 *
 * A' (A transposed) is made of A in the cache: so each factor of a product has rows of r elements. */
#include "files/merge_module.h"

#include <string.h>

#include "model/block_tensor.h"

static const struct {
	const char *name;
	enum uns_adapter_method method;
} parts[UNS_N_PARTS] = {
	[UNS_PART_A] = { "lora_A.weight", UNS_METHOD_LORA },
	[UNS_PART_B] = { "lora_B.weight", UNS_METHOD_LORA },
	[UNS_PART_B_BIAS] = { "lora_B.bias", UNS_METHOD_LORA },
	[UNS_PART_EMBEDDING_A] = { "lora_embedding_A", UNS_METHOD_LORA },
	[UNS_PART_EMBEDDING_B] = { "lora_embedding_B", UNS_METHOD_LORA },
	[UNS_PART_MAGNITUDE] = { "lora_magnitude_vector", UNS_METHOD_LORA },
	[UNS_PART_IA3] = { "ia3_l", UNS_METHOD_IA3 },
	[UNS_PART_NORM] = { "ln_tuning_layers.weight", UNS_METHOD_LN_TUNING },
	[UNS_PART_NORM_BIAS] = { "ln_tuning_layers.bias", UNS_METHOD_LN_TUNING },
};

enum uns_merge_part uns_merge_part_find(enum uns_adapter_method method, const char *name)
{
	unsigned i = 0;

	while (i < UNS_N_PARTS && (parts[i].method != method || strcmp(parts[i].name, name) != 0))
		i++;
	return (enum uns_merge_part)i;
}

int uns_merge_transpose(const struct uns_merge_sums *sums, const struct uns_tensor *t, struct uns_factor *out,
			struct uns_err *err)
{
	const uint64_t rows = t->shape.dim[0], columns = uns_shape_row_elems(&t->shape);
	const struct uns_shape shape = { 2, { columns, rows } };
	const struct uns_block block = {
		.source = { { t, 0 } }, .n_sources = 1, .len = { 1, rows, columns }, .reversed = true
	};

	out->as = t->dtype;
	return uns_block_tensor_make(sums->catalog, &shape, &block, 1, sums->arena, &out->tensor, err);
}

static bool is_matrix(const struct uns_tensor *t, uint64_t rows, uint64_t columns)
{
	return t->shape.n == 2 && t->shape.dim[0] == rows && t->shape.dim[1] == columns;
}

static int misfit(const struct uns_merge_weight *w, struct uns_err *err)
{
	return uns_fail(err, -ENOTSUP, "%s has another shape in the base model than the adapter was made for",
			w->shown.name);
}

/* -- LoRA -- */

static bool fits_convolution(const struct uns_tensor *weight, const struct uns_tensor *a, const struct uns_tensor *b)
{
	struct uns_shape of_a = weight->shape, of_b = { .n = b->shape.n };
	unsigned i;

	of_a.dim[0] = a->shape.dim[0];
	for (i = 0; i < of_b.n; i++)
		of_b.dim[i] = 1;
	of_b.dim[0] = weight->shape.dim[0];
	of_b.dim[1] = a->shape.dim[0];
	return uns_shape_equal(&a->shape, &of_a) && uns_shape_equal(&b->shape, &of_b);
}

/* *turned = a weight that is [out, in] or [in, out] is the latter: by its shape, or, of a square one, by the config. */
static void orientation_choose(struct uns_merging *m, bool plain, bool may_turn, bool *turned)
{
	*turned = plain && may_turn ? m->settings->fan_in_fan_out : may_turn;
	m->plain |= !may_turn;
	m->turned |= !plain;
}

static int orientation_find(struct uns_merging *m, const struct uns_merge_weight *w, const struct uns_tensor *a,
			    const struct uns_tensor *b, bool *turned, struct uns_err *err)
{
	const struct uns_tensor *weight = w->shown.tensor;
	const uint64_t in = uns_shape_row_elems(&a->shape), out = b->shape.dim[0];
	const bool plain = is_matrix(weight, out, in), may_turn = is_matrix(weight, in, out);
	char text[128];

	*turned = false;
	if (a->shape.n > 2 && fits_convolution(weight, a, b))
		return 0;
	if (a->shape.n > 2 || (!plain && !may_turn))
		return uns_fail(err, -ENOTSUP,
				"%s has the shape %s in the base model, and the adapter changes %llu x %llu",
				w->shown.name, uns_shape_text(&weight->shape, text, sizeof(text)),
				(unsigned long long)out, (unsigned long long)in);
	orientation_choose(m, plain, may_turn, turned);
	return 0;
}

/* The weight plus the module's product, of a [r, x] and b [y, r]. */
static int product_add(struct uns_merging *m, const struct uns_merge_module *of, const struct uns_tensor *a,
		       const struct uns_tensor *b, double times, struct uns_err *err)
{
	const struct uns_tensor *magnitude = of->part[UNS_PART_MAGNITUDE];
	struct uns_term term = { .times = times, .inner = a->shape.dim[0], .left = uns_factor_as_is(b) };
	struct uns_merge_weight *w;
	uint64_t columns;
	bool turned = true;

	UNS_TRY(uns_merge_sums_need(m->sums, of->name, "weight", &w, err));
	if (!of->part[UNS_PART_EMBEDDING_A])
		UNS_TRY(orientation_find(m, w, a, b, &turned, err));
	else if (!is_matrix(w->shown.tensor, a->shape.dim[1], b->shape.dim[0]))
		return misfit(w, err);
	if (magnitude && turned)
		return uns_fail(err, -ENOTSUP, "the magnitudes (DoRA) of %s are those of its columns", w->shown.name);
	term.right = term.left;
	UNS_TRY(uns_merge_transpose(m->sums, a, turned ? &term.left : &term.right, err));
	columns = turned ? b->shape.dim[0] : uns_shape_row_elems(&a->shape);
	UNS_TRY(uns_merge_sums_add(m->sums, w, columns, &term, err));
	if (!magnitude)
		return 0;
	return uns_merge_sums_scale(w, &(struct uns_scale){ uns_factor_as_is(magnitude), columns, true }, err);
}

static int bias_add(struct uns_merging *m, const char *module, const struct uns_tensor *t, double times,
		    struct uns_err *err)
{
	const struct uns_term term = { .times = times, .left = uns_factor_as_is(t) };
	struct uns_merge_weight *w;

	UNS_TRY(uns_merge_sums_need(m->sums, module, "bias", &w, err));
	if (!uns_shape_equal(&w->shown.tensor->shape, &t->shape))
		return misfit(w, err);
	return uns_merge_sums_add(m->sums, w, 0, &term, err);
}

static int lora_add(struct uns_merging *m, const struct uns_merge_module *of, struct uns_err *err)
{
	const bool is_embedding = of->part[UNS_PART_EMBEDDING_A];
	const struct uns_tensor *a = of->part[is_embedding ? UNS_PART_EMBEDDING_A : UNS_PART_A];
	const struct uns_tensor *b = of->part[is_embedding ? UNS_PART_EMBEDDING_B : UNS_PART_B];
	const struct uns_tensor *magnitude = of->part[UNS_PART_MAGNITUDE], *bias = of->part[UNS_PART_B_BIAS];
	double times;

	if (!a || !b || (is_embedding && (of->part[UNS_PART_A] || of->part[UNS_PART_B])))
		return uns_fail(err, -ENOTSUP, "the adapter has one of the two matrices of module %s only", of->name);
	if (m->settings->dora != (magnitude != NULL))
		return uns_fail(err, -ENOTSUP, "module %s has %s magnitudes, and adapter_config.json has use_dora = %s",
				of->name, magnitude ? "the" : "no", m->settings->dora ? "true" : "false");
	if (a->shape.n < 2 || b->shape.n != a->shape.n || !a->shape.dim[0] || a->shape.dim[0] != b->shape.dim[1])
		return uns_fail(err, -ENOTSUP, "module %s has no two matrices of one rank", of->name);
	UNS_TRY(uns_adapter_settings_scale(m->settings, of->name, a->shape.dim[0], &times, err));
	times *= m->times;
	UNS_TRY(product_add(m, of, a, b, times, err));
	return bias ? bias_add(m, of->name, bias, times, err) : 0;
}

/* -- IA3 -- */

/* The dimension of the weight along which IA3's numbers go, and whether it is that of the outputs. */
static int ia3_dim(struct uns_merging *m, const struct uns_merge_weight *w, const struct uns_tensor *l, unsigned *dim,
		   bool *outputs, struct uns_err *err)
{
	const struct uns_shape *shape = &w->shown.tensor->shape;
	const uint64_t n = uns_shape_elems(&l->shape);
	bool plain, may_turn, turned;

	if (shape->n < 2 || l->shape.n != shape->n || (l->shape.dim[0] != n && l->shape.dim[1] != n))
		return misfit(w, err);
	if (shape->n > 2) {
		plain = shape->dim[0] == n;
		if (plain == (shape->dim[1] == n))
			return uns_fail(err, -ENOTSUP, "whether %s multiplies the inputs or the outputs is not certain",
					l->name);
		*outputs = plain;
		*dim = !plain;
		return 0;
	}
	*outputs = l->shape.dim[0] == n;
	plain = shape->dim[!*outputs] == n;
	may_turn = shape->dim[*outputs] == n;
	if (!plain && !may_turn)
		return misfit(w, err);
	orientation_choose(m, plain, may_turn, &turned);
	*dim = *outputs == turned;
	return 0;
}

static int ia3_scale(struct uns_merging *m, const struct uns_merge_module *of, struct uns_err *err)
{
	const struct uns_tensor *l = of->part[UNS_PART_IA3];
	struct uns_scale scale = { .by = uns_factor_as_is(l), .behind = 1 };
	struct uns_merge_weight *w, *bias;
	const char *name;
	bool outputs;
	unsigned dim, i;

	UNS_TRY(uns_merge_sums_need(m->sums, of->name, "weight", &w, err));
	UNS_TRY(ia3_dim(m, w, l, &dim, &outputs, err));
	for (i = dim + 1; i < w->shown.tensor->shape.n; i++)
		scale.behind *= w->shown.tensor->shape.dim[i];
	UNS_TRY(uns_merge_sums_scale(w, &scale, err));
	UNS_TRY_ALLOC(name = uns_arena_printf(m->sums->arena, "%s.bias", of->name), err);
	bias = outputs ? uns_merge_sums_find(m->sums, name) : NULL;
	scale.behind = 1;
	return bias ? uns_merge_sums_scale(bias, &scale, err) : 0;
}

/* -- LN_TUNING -- */

static int norm_replace(struct uns_merging *m, const char *module, const char *part, const struct uns_tensor *t,
			struct uns_err *err)
{
	struct uns_merge_weight *w;

	if (!t)
		return 0;
	UNS_TRY(uns_merge_sums_need(m->sums, module, part, &w, err));
	if (!uns_shape_equal(&w->shown.tensor->shape, &t->shape))
		return misfit(w, err);
	w->shown.tensor = t;
	w->replaced = true;
	return 0;
}

int uns_merge_module_add(struct uns_merging *m, const struct uns_merge_module *of, struct uns_err *err)
{
	switch (m->settings->method) {
	case UNS_METHOD_LORA:
		return lora_add(m, of, err);
	case UNS_METHOD_IA3:
		return ia3_scale(m, of, err);
	default:
		UNS_TRY(norm_replace(m, of->name, "weight", of->part[UNS_PART_NORM], err));
		return norm_replace(m, of->name, "bias", of->part[UNS_PART_NORM_BIAS], err);
	}
}
