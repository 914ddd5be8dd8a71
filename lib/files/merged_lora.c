/* Source: peft 0.21.2, tuners/lora/layer.py (get_delta_weight, merge) and tuners/tuners_utils.py.
 *
 *   X.lora_A [r, in], X.lora_B [out, r]             X.weight [out, in] + scale * B A, or [in, out] + scale * (B A)'
 *   of a convolution [r, in, ..], [out, r, 1, ..]   X.weight [out, in, ..], the same of all that is behind the first
 * dim X.lora_magnitude_vector [out]                   each row of X.weight with the above, by it / the row's norm
 * (DoRA) X.lora_embedding_A [r, rows], _B [columns, r]   X.weight [rows, columns] + scale * (B A)' X.lora_B.bias X.bias
 * + scale * it everything else that was trained                takes the place of the base model's (modules_to_save,
 * biases)
 *
 * A' (A transposed) is made of A in the cache: so each factor of a product has rows of r elements. */
#include "files/merged_lora.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "files/adapter.h"
#include "files/adapter_list.h"
#include "files/lora_settings.h"
#include "model/block_tensor.h"
#include "model/sum_tensor.h"

static const char PREFIX[] = "base_model.model.";

enum part { PART_A, PART_B, PART_B_BIAS, PART_EMBEDDING_A, PART_EMBEDDING_B, PART_MAGNITUDE, N_PARTS };
static const char *const part_names[] = { [PART_A] = "lora_A.weight",
					  [PART_B] = "lora_B.weight",
					  [PART_B_BIAS] = "lora_B.bias",
					  [PART_EMBEDDING_A] = "lora_embedding_A",
					  [PART_EMBEDDING_B] = "lora_embedding_B",
					  [PART_MAGNITUDE] = "lora_magnitude_vector" };

/* What the adapter has of one module of the base model. */
struct module {
	const struct uns_tensor *part[N_PARTS];
};

struct merge {
	const struct uns_merged_lora *in;
	struct uns_arena *arena;
	struct uns_merged *out;
	struct uns_lora_settings settings;
	struct uns_map modules; /* name in the base model -> struct module */
	struct uns_map at;      /* name in the base model -> index into v */
	struct uns_named_tensor *v; /* becomes out->v */
	enum uns_dtype *dtype;  /* of each of v in the base model */
	bool plain, turned; /* whether a weight that is not square is [out, in]; [in, out] */
};

static void merge_fini(struct merge *m)
{
	uns_lora_settings_fini(&m->settings);
	uns_map_fini(&m->modules);
	uns_map_fini(&m->at);
	free(m->v);
}

/* -- the base model -- */

static enum uns_dtype out_of(const struct merge *m, const struct uns_tensor *t)
{
	return m->in->out != UNS_DTYPE_NONE && uns_dtype_info(t->dtype)->is_float ? m->in->out : t->dtype;
}

static int base_add(struct merge *m, const struct uns_tensor *t, const char *name, struct uns_err *err)
{
	struct uns_merged *out = m->out;

	if (uns_map_index(&m->at, name) != UNS_MAP_NO_INDEX)
		return uns_fail(err, -ENOTSUP, "the base model has two tensors that would be named %s", name);
	UNS_TRY_ALLOC(uns_map_put_index(&m->at, name, (uint32_t)out->n), err);
	m->dtype[out->n] = t->dtype;
	m->v[out->n++] = (struct uns_named_tensor){ name, t, out_of(m, t), NULL };
	return 0;
}

static bool is_tied(const struct uns_merged_lora *in, const struct uns_tensor *t)
{
	size_t i = 0;

	while (i < in->n_tied && in->tied[i] != t)
		i++;
	return i < in->n_tied;
}

/* The part of a name in memory that begins with PEFT's own prefix: what is before it is the script's module. */
static const char *from_prefix(const char *name)
{
	const char *at = strstr(name, PREFIX);

	return at ? at : name;
}

static int base_list(struct merge *m, struct uns_err *err)
{
	const struct uns_catalog *cat = m->in->catalog;
	const bool is_saved = cat->summary.adapter == UNS_ADAPTER_AND_BASE;
	const struct uns_tensor *t = is_saved ? cat->tensors : m->in->base->v;
	const struct uns_tensor *end = t + (is_saved ? cat->n_tensors : m->in->base->n);
	const size_t most = (size_t)(end - t);
	const char *name;

	UNS_TRY_ALLOC(m->v = calloc(most + 1, sizeof(*m->v)), err);
	UNS_TRY_ALLOC(m->dtype = UNS_NEW_N(m->arena, enum uns_dtype, most + 1), err);
	for (; t < end; t++) {
		name = t->name;
		if (is_saved && (!uns_adapter_is_base(t) || is_tied(m->in, t)))
			continue;
		if (is_saved)
			UNS_TRY_ALLOC(name = uns_adapter_base_name(m->arena, PREFIX, from_prefix(name)), err);
		UNS_TRY(base_add(m, t, name, err));
	}
	return 0;
}

/* -- the adapter -- */

static int part_add(struct merge *m, const struct uns_tensor *t, const char *name, const char *part,
		    struct uns_err *err)
{
	const char *module = uns_arena_strn(m->arena, name, (size_t)(part - 1 - name));
	struct module *of;
	size_t i = 0;

	UNS_TRY_ALLOC(module, err);
	while (i < N_PARTS && strcmp(part_names[i], part) != 0)
		i++;
	if (i == N_PARTS)
		return uns_fail(err, -ENOTSUP, "%s is of a kind that unshard does not merge", t->name);
	of = uns_map_get(&m->modules, module);
	if (!of) {
		UNS_TRY_ALLOC(of = UNS_NEW(m->arena, struct module), err);
		UNS_TRY_ALLOC(uns_map_put(&m->modules, module, of, NULL), err);
	}
	if (of->part[i])
		return uns_fail(err, -ENOTSUP, "%s and %s are the same part of one module", of->part[i]->name, t->name);
	of->part[i] = t;
	return 0;
}

/* Whether the tensor is the model's embedding, or its head: one of these a config may tie to the other, and what PEFT
 * does to the other differs between its versions. */
static bool may_be_tied(const struct uns_tensor *t)
{
	return t->shape.n == 2 && (strstr(t->name, "embed") || strstr(t->name, "wte") || strstr(t->name, "lm_head"));
}

/* The adapter's own tensor takes the place of the base model's. */
static int replace(struct merge *m, const struct uns_tensor *t, const char *name, struct uns_err *err)
{
	const uint32_t i = uns_map_index(&m->at, name);
	struct uns_named_tensor *of = i == UNS_MAP_NO_INDEX ? NULL : &m->v[i];

	if (m->in->ties_embeddings && may_be_tied(t))
		return uns_fail(err, -ENOTSUP, "the adapter has %s, and config.json ties the model's embeddings",
				t->name);
	m->out->n_replaced++;
	if (!of && m->in->catalog->summary.adapter == UNS_ADAPTER_AND_BASE)
		return base_add(m, t, name, err);
	if (!of)
		return uns_fail(err, -ENOTSUP, "the base model has no tensor %s, which the adapter replaces", name);
	if (!uns_shape_equal(&of->tensor->shape, &t->shape))
		return uns_fail(err, -ENOTSUP, "%s has another shape in the adapter than in the base model", name);
	of->tensor = t;
	return 0;
}

static int adapter_read(struct merge *m, const struct uns_one_adapter *adapter, struct uns_err *err)
{
	const struct uns_catalog *cat = m->in->catalog;
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	const char *name, *part;

	for (; t < end; t++) {
		if (!uns_adapter_has(adapter, t))
			continue;
		UNS_TRY_ALLOC(name = uns_adapter_name(m->arena, from_prefix(t->name)), err);
		if (!uns_str_starts(name, PREFIX))
			return uns_fail(err, -ENOTSUP, "%s is no module's of the base model", t->name);
		name += strlen(PREFIX);
		part = uns_adapter_part(name);
		if (part && part > name) {
			UNS_TRY(part_add(m, t, name, part, err));
			continue;
		}
		UNS_TRY_ALLOC(name = uns_adapter_base_name(m->arena, PREFIX, name), err);
		UNS_TRY(replace(m, t, name, err));
	}
	return 0;
}

/* -- sums -- */

static struct uns_factor as_it_is(const struct uns_tensor *t)
{
	return (struct uns_factor){ t, t->dtype };
}

/* How many elements lie behind each index of the first dimension. */
static uint64_t row_elems(const struct uns_tensor *t)
{
	uint64_t n = 1;
	unsigned i;

	for (i = 1; i < t->shape.n; i++)
		n *= t->shape.dim[i];
	return n;
}

/* [columns, rows] of a matrix [rows, columns], or of the matrix that a convolution's weight is. */
static int transpose(struct merge *m, const struct uns_tensor *t, struct uns_factor *out, struct uns_err *err)
{
	const uint64_t rows = t->shape.dim[0], columns = row_elems(t);
	const struct uns_shape shape = { 2, { columns, rows } };
	const struct uns_block block = {
		.source = { { t, 0 } }, .n_sources = 1, .len = { 1, rows, columns }, .reversed = true
	};

	out->as = t->dtype;
	return uns_block_tensor_make(m->in->catalog, &shape, &block, 1, m->arena, &out->tensor, err);
}

/* Puts a sum in the place of the base model's tensor `name`: this and `added`. The result has the dtype that is shown,
 * so that it is rounded once. */
static int sum_put(struct merge *m, const char *name, uint64_t columns, const struct uns_term *added,
		   const struct uns_tensor *magnitude, struct uns_err *err)
{
	const uint32_t i = uns_map_index(&m->at, name);
	struct uns_named_tensor *of = &m->v[i];
	/* A tensor that the adapter has in its place is of the base model's dtype first, as PEFT loads it. */
	const struct uns_term term[] = { { .times = 1, .left = { of->tensor, m->dtype[i] } }, *added };
	struct uns_sum sum = { .term = term, .n = 2, .columns = columns, .divisor = 1 };

	if (magnitude)
		sum.magnitude = as_it_is(magnitude);
	UNS_TRY(uns_sum_tensor_make(of->tensor, of->out, &sum, m->arena, &of->tensor, err));
	m->out->n_computed++;
	return 0;
}

static bool is_matrix(const struct uns_tensor *t, uint64_t rows, uint64_t columns)
{
	return t->shape.n == 2 && t->shape.dim[0] == rows && t->shape.dim[1] == columns;
}

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

/* *turned = the weight is [in, out]: by its shape, or, of a square one, by the config. */
static int orientation_find(struct merge *m, const char *name, const struct uns_tensor *weight,
			    const struct uns_tensor *a, const struct uns_tensor *b, bool *turned, struct uns_err *err)
{
	const uint64_t in = row_elems(a), out = b->shape.dim[0];
	const bool plain = is_matrix(weight, out, in), may_turn = is_matrix(weight, in, out);
	char text[128];

	*turned = false;
	if (a->shape.n > 2 && fits_convolution(weight, a, b))
		return 0;
	if (a->shape.n > 2 || (!plain && !may_turn))
		return uns_fail(err, -ENOTSUP,
				"%s has the shape %s in the base model, and the adapter changes %llu x %llu", name,
				uns_shape_text(&weight->shape, text, sizeof(text)), (unsigned long long)out,
				(unsigned long long)in);
	*turned = plain && may_turn ? m->settings.fan_in_fan_out : may_turn;
	m->plain |= !may_turn;
	m->turned |= !plain;
	return 0;
}

static int weight_find(const struct merge *m, const char *name, const struct uns_tensor **out, struct uns_err *err)
{
	const uint32_t i = uns_map_index(&m->at, name);

	if (i == UNS_MAP_NO_INDEX)
		return uns_fail(err, -ENOTSUP, "the base model has no tensor %s, which the adapter changes", name);
	*out = m->v[i].tensor;
	return 0;
}

/* The weight plus the module's product, of a [r, x] and b [y, r]. */
static int product_add(struct merge *m, const char *module, const struct uns_tensor *a, const struct uns_tensor *b,
		       const struct uns_tensor *magnitude, bool is_embedding, struct uns_err *err)
{
	const char *name = uns_arena_printf(m->arena, "%s.weight", module);
	const struct uns_tensor *weight;
	struct uns_term term = { 0 };
	bool turned = true;

	UNS_TRY_ALLOC(name, err);
	UNS_TRY(weight_find(m, name, &weight, err));
	if (a->shape.n < 2 || b->shape.n != a->shape.n || !a->shape.dim[0] || a->shape.dim[0] != b->shape.dim[1])
		return uns_fail(err, -ENOTSUP, "module %s has no two matrices of one rank", module);
	term.inner = a->shape.dim[0];
	UNS_TRY(uns_lora_settings_scale(&m->settings, module, term.inner, &term.times, err));
	if (!is_embedding)
		UNS_TRY(orientation_find(m, name, weight, a, b, &turned, err));
	else if (!is_matrix(weight, a->shape.dim[1], b->shape.dim[0]))
		return uns_fail(err, -ENOTSUP, "%s has another shape in the base model than the adapter was made for",
				name);
	if (magnitude && turned)
		return uns_fail(err, -ENOTSUP, "the magnitudes (DoRA) of %s are those of its columns", name);
	term.left = term.right = as_it_is(b);
	UNS_TRY(transpose(m, a, turned ? &term.left : &term.right, err));
	return sum_put(m, name, turned ? b->shape.dim[0] : row_elems(a), &term, magnitude, err);
}

static int bias_add(struct merge *m, const char *module, const struct uns_tensor *t, uint64_t r, struct uns_err *err)
{
	const char *name = uns_arena_printf(m->arena, "%s.bias", module);
	struct uns_term term = { .left = as_it_is(t) };
	const struct uns_tensor *bias;

	UNS_TRY_ALLOC(name, err);
	UNS_TRY(weight_find(m, name, &bias, err));
	if (!uns_shape_equal(&bias->shape, &t->shape))
		return uns_fail(err, -ENOTSUP, "%s has another shape in the base model than %s", name, t->name);
	UNS_TRY(uns_lora_settings_scale(&m->settings, module, r, &term.times, err));
	return sum_put(m, name, 0, &term, NULL, err);
}

static int module_merge(struct merge *m, const char *name, const struct module *of, struct uns_err *err)
{
	const bool is_embedding = of->part[PART_EMBEDDING_A];
	const struct uns_tensor *a = of->part[is_embedding ? PART_EMBEDDING_A : PART_A];
	const struct uns_tensor *b = of->part[is_embedding ? PART_EMBEDDING_B : PART_B];
	const struct uns_tensor *magnitude = of->part[PART_MAGNITUDE];

	if (!a || !b || (is_embedding && (of->part[PART_A] || of->part[PART_B])))
		return uns_fail(err, -ENOTSUP, "the adapter has one of the two matrices of module %s only", name);
	if (m->settings.dora != (magnitude != NULL))
		return uns_fail(err, -ENOTSUP, "module %s has %s magnitudes, and adapter_config.json has use_dora = %s",
				name, magnitude ? "the" : "no", m->settings.dora ? "true" : "false");
	if (m->in->ties_embeddings && (is_embedding || strstr(name, "lm_head")))
		return uns_fail(err, -ENOTSUP, "the adapter changes %s, and config.json ties the model's embeddings",
				name);
	UNS_TRY(product_add(m, name, a, b, magnitude, is_embedding, err));
	return of->part[PART_B_BIAS] ? bias_add(m, name, of->part[PART_B_BIAS], a->shape.dim[0], err) : 0;
}

static int all_merge(struct merge *m, struct uns_err *err)
{
	const char *name;
	size_t at = 0;
	void *of;

	while (uns_map_next(&m->modules, &at, &name, &of))
		UNS_TRY(module_merge(m, name, of, err));
	/* The config's fan_in_fan_out is what PEFT found last: it decides for square weights only if the others agree.
	 */
	if (m->settings.fan_in_fan_out ? m->plain : m->turned)
		return uns_fail(
			err, -ENOTSUP,
			"adapter_config.json has fan_in_fan_out = %s, and some weights have rows and columns in "
			"the other order",
			m->settings.fan_in_fan_out ? "true" : "false");
	return 0;
}

static int base_check(const struct uns_merged_lora *in, struct uns_err *err)
{
	if (in->catalog->summary.adapter == UNS_ADAPTER_AND_BASE || in->base->n)
		return 0;
	if (in->catalog->summary.adapter == UNS_ADAPTER_BESIDE)
		return uns_fail(err, -ENOTSUP, "a whole model was saved beside the adapter: see the view weights");
	if (in->base->why)
		return uns_fail(err, -ENOTSUP, "the base model %s cannot be used: %s", in->base->where, in->base->why);
	return uns_fail(err, -ENOTSUP,
			"adapter_config.json names no base model: mount with -o model=DIR, where DIR holds its "
			"model.safetensors");
}

int uns_merged_lora_make(const struct uns_merged_lora *in, struct uns_arena *arena, struct uns_merged *out,
			 struct uns_err *err)
{
	UNS_CLEANUP(merge_fini) struct merge m = { .in = in, .arena = arena, .out = out };
	UNS_CLEANUP(uns_adapter_list_fini) struct uns_adapter_list all = { 0 };
	const struct uns_one_adapter *adapter;

	UNS_TRY(base_check(in, err));
	if (!uns_span_left(&in->adapter_config))
		return uns_fail(err, -ENOTSUP,
				"adapter_config.json was not found, and lora_alpha is not known without it");
	UNS_TRY(uns_lora_settings_read(in->adapter_config, &m.settings, err));
	out->has_magnitudes = m.settings.dora;
	UNS_TRY(uns_adapter_list(in->catalog, &all, err));
	adapter = &all.v[all.chosen];
	UNS_TRY_ALLOC(out->adapter = uns_arena_strn(arena, adapter->name, adapter->len), err);
	UNS_TRY(base_list(&m, err));
	UNS_TRY(adapter_read(&m, adapter, err));
	UNS_TRY(all_merge(&m, err));
	out->v = UNS_TAKE(m.v);
	return 0;
}
