/* Finds the stored tensor of each published tensor, checks its shape, and cuts the published one out of it. */
#include "megatron/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "megatron/args.h"
#include "megatron/sizes.h"
#include "model/block_tensor.h"
#include "model/sum_tensor.h"
#include "names/config_families.h"
#include "names/template.h"

static const struct uns_megatron_family *family_of(const char *model_type)
{
	return uns_family_row(uns_megatron_table, uns_n_megatron_table, sizeof(*uns_megatron_table), model_type);
}

bool uns_megatron_knows(const char *model_type)
{
	return family_of(model_type) != NULL;
}

/* -- what is stored -- */

struct stored {
	const struct uns_named_tensor *tensor;
	bool used;
};

struct publishing {
	const struct uns_catalog *cat;
	const struct uns_config_info *info;
	const struct uns_megatron_family *text; /* whose rows the language model's layers have */
	struct uns_megatron_sizes sizes;
	struct uns_arena temp;
	struct stored *stored;
	size_t n_stored;
	struct uns_map by_name; /* -> index into stored */
	size_t last, step; /* the index of the stored tensor that was used last, and how far behind its predecessor */
	struct uns_name_list list;
	struct uns_map names; /* of the list, but of experts only the first one's */
	const struct uns_megatron_part *part; /* what is published of each weight; NULL = the weight itself */
	bool of_states; /* a parameter may lack a state: buffers and frozen ones do */
	uint64_t padding; /* rows of the vocabulary that are left out */
	unsigned spelling; /* in which of its names the last tensor was found */
	const struct uns_megatron_rule *row; /* by which, of the rows that publish the same name */
	const struct uns_tensor *part_at; /* the stored part that is being cut */
	const struct uns_tensor *part_of_all; /* a stored part that all experts of a layer share */
	uint64_t n_added_one; /* published tensors that are stored minus one */
	/* Where the layers inside of those for multi-token prediction are stored; NULL = there are none. */
	const char *mtp_in;
	/* Of the model within the model whose rows are applied: the beginning of its names, where its layers are
	 * stored, how many they are, and the number of the first in the model and in published names. */
	const char *stored_in, *published_in, *layer_in;
	uint64_t n_layers, first_layer, first_published;
};

static void publishing_fini(struct publishing *p)
{
	uns_map_fini(&p->by_name);
	uns_map_fini(&p->names);
	uns_arena_fini(&p->temp);
	free(p->stored);
	uns_name_list_fini(&p->list);
}

/* Layer and expert for which a row is applied. */
struct which {
	uint64_t layer, expert;
};

/* The stored tensor that holds a published one, and whether layers and experts are stacked in it. */
struct holder {
	const struct uns_named_tensor *tensor;
	const struct uns_named_tensor *rest; /* holds the second half of the rows; NULL = `tensor` has all */
	const struct uns_megatron_rule *rule;
	bool layers, experts;
	bool one_for_all; /* of a part: all experts of the layer have this one */
};

static const char WEIGHT[] = ".weight";

/* The template, or name, of a weight becomes that of its part. */
static const char *part_name(const char *weight, const char *part, char out[UNS_TEMPLATE_NAME])
{
	snprintf(out, UNS_TEMPLATE_NAME, "%.*s%s", (int)(strlen(weight) - strlen(WEIGHT)), weight, part);
	return out;
}

/* Writes the name that a stored tensor of this template has. A tensor of all layers, or all experts, has no number of
 * one. */
static const char *stored_name(const struct publishing *p, const char *template, const struct which *w, bool layers,
			       bool experts, char out[UNS_TEMPLATE_NAME])
{
	const int64_t layer = layers ? -1 : (int64_t)(w->layer - p->first_layer);
	const int64_t expert = experts ? -1 : (int64_t)w->expert;
	char before[UNS_TEMPLATE_NAME], part[UNS_TEMPLATE_NAME];

	if (p->part)
		template = part_name(template, p->part->stored, part);
	if (!uns_str_starts(template, UNS_MEGATRON_LAYER))
		return uns_template_fill(out, p->stored_in, template, layer, expert);
	uns_template_fill(before, p->stored_in, p->layer_in, layer, expert);
	return uns_template_fill(out, before, template + strlen(UNS_MEGATRON_LAYER), layer, expert);
}

/* The stored tensor of this template; NULL = there is none. */
static const struct uns_named_tensor *stored_use(struct publishing *p, const char *template, const struct which *w,
						 const struct holder *at)
{
	char name[UNS_TEMPLATE_NAME];
	size_t i = p->last + p->step;

	stored_name(p, template, w, at->layers, at->experts, name);
	/* The experts of a layer are mostly stored at equal distances. */
	if (i >= p->n_stored || strcmp(p->stored[i].tensor->name, name) != 0) {
		i = uns_map_index(&p->by_name, name);
		if (i == UNS_MAP_NO_INDEX)
			return NULL;
	}
	p->step = i - p->last; /* modulo 2^64, as the sum above */
	p->last = i;
	p->stored[i].used = true;
	return p->stored[i].tensor;
}

/* How many dimensions the stored tensor of a part has if all experts have this one. */
static uint32_t part_dims(const struct uns_megatron_part *part, const struct holder *at)
{
	return (part->has == UNS_MG_HAS_NUMBERS ? 1 : 2) + at->layers;
}

/* Looks for the stored tensor of a row under its four names: one for each layer or for all, and the same of experts.
 * The one that the last tensor had comes first. */
static bool holder_find(struct publishing *p, const struct uns_megatron_rule *rule, const struct which *w,
			struct holder *out)
{
	unsigned spelling, i;

	for (i = 0; i < 4; i++) {
		spelling = p->spelling ^ i;
		*out = (struct holder){ .rule = rule, .layers = spelling & 1, .experts = spelling & 2 };
		if ((out->layers && !strchr(rule->from, '*')) || (out->experts && !strchr(rule->from, '#')))
			continue;
		out->tensor = stored_use(p, rule->from, w, out);
		if (!out->tensor)
			continue;
		p->spelling = spelling;
		if (p->part && out->experts && part_dims(p->part, out) == uns_named_shape(out->tensor)->n) {
			out->one_for_all = true;
			out->experts = false;
		}
		if (rule->rest)
			out->rest = stored_use(p, rule->rest, w, out);
		return !rule->rest || out->rest;
	}
	return false;
}

static int tensor_missing(const struct publishing *p, const struct uns_megatron_rule *rule, const char *name,
			  const struct which *w, struct uns_err *err)
{
	char from[UNS_TEMPLATE_NAME];

	return uns_fail(
		err, -EBADMSG,
		"a model of type %s with this config.json needs the tensor %s, which is made from %s: the checkpoint does not have it",
		p->info->model_type, name, stored_name(p, rule->from, w, false, false, from));
}

/* Is the row for this layer of this model? */
static bool row_applies(const struct publishing *p, const struct uns_megatron_rule *rule, uint64_t layer)
{
	const struct uns_megatron_sizes *s = &p->sizes;
	const bool is_sparse = uns_megatron_is_sparse(s, layer), is_linear = uns_megatron_is_linear(s, layer);
	const char hybrid = uns_megatron_hybrid_layer(s, layer);
	const bool when[] = {
		[UNS_MG_ALWAYS] = true,
		[UNS_MG_UNTIED] = !p->info->ties_embeddings,
		[UNS_MG_DENSE] = !is_sparse,
		[UNS_MG_SPARSE] = is_sparse,
		[UNS_MG_ATTENTION_BIAS] = s->attention_bias,
		[UNS_MG_MLP_BIAS] = s->mlp_bias,
		[UNS_MG_QK_NORM] = s->qk_norm,
		[UNS_MG_LOW_RANK_Q] = s->v[UNS_MG_Q_RANK] != 0,
		[UNS_MG_FULL_RANK_Q] = s->v[UNS_MG_Q_RANK] == 0,
		[UNS_MG_LINEAR] = is_linear,
		[UNS_MG_FULL] = !is_linear,
		[UNS_MG_FULL_BIAS] = !is_linear && s->attention_bias,
		[UNS_MG_LATENT_EXPERTS] = is_sparse && s->v[UNS_MG_EXPERT_LATENT] != 0,
		[UNS_MG_VISION_BIAS] = s->vision_bias,
		[UNS_MG_VISION_QK_NORM] = s->vision_qk_norm,
		[UNS_MG_VISION_CENTRED] = s->vision_centred,
		[UNS_MG_MAMBA] = hybrid == 'M',
		[UNS_MG_MAMBA_BIAS] = hybrid == 'M' && s->conv_bias,
		[UNS_MG_ATTENTION_ALONE] = hybrid == '*',
		[UNS_MG_MLP_ALONE] = hybrid == '-',
	};

	return when[rule->when];
}

/* -- shapes -- */

static int size_of(const struct publishing *p, enum uns_megatron_size size, const char *name, uint64_t *out,
		   struct uns_err *err)
{
	*out = p->sizes.v[size];
	if (*out || size == UNS_MG_NONE)
		return 0;
	return uns_fail(err, -EBADMSG, "config.json has no %s, and without it the shape of %s is not known",
			uns_megatron_size_key(size), name);
}

/* Where the published tensor of a row is in a stored matrix: the stored tensor may consist of the rows of several of
 * the table's rows, and the published one of several of them too. */
struct share {
	struct uns_shape shape; /* of what this row of the table adds to the published tensor */
	uint64_t before, all, repeats; /* rows in front of it, rows of all, and how often the parts follow each other */
	uint64_t n_parts; /* rows of the table that the published tensor consists of */
};

static int share_find(const struct publishing *p, const struct uns_megatron_rule *list,
		      const struct uns_megatron_rule *rule, const char *name, struct share *out, struct uns_err *err)
{
	enum uns_megatron_size columns[UNS_MG_MAX_DIMS];
	const size_t n = uns_megatron_dims(rule->columns, columns);
	uint64_t rows;
	size_t i;

	*out = (struct share){ .shape.n = (uint32_t)n + 1 };
	UNS_TRY(size_of(p, rule->repeats, name, &out->repeats, err));
	UNS_TRY(size_of(p, rule->rows, name, &out->shape.dim[0], err));
	for (i = 0; i < n; i++)
		UNS_TRY(size_of(p, columns[i], name, &out->shape.dim[i + 1], err));
	for (; list->from; list++) {
		if (strcmp(list->from, rule->from) != 0)
			continue;
		UNS_TRY(size_of(p, list->rows, name, &rows, err));
		out->before += list < rule ? rows : 0;
		out->all += rows;
		out->n_parts += strcmp(list->to, rule->to) == 0;
	}
	return 0;
}

static int shape_differs(const struct uns_named_tensor *t, const struct uns_shape *want, struct uns_err *err)
{
	char has[128], wants[128];

	return uns_fail(err, -EBADMSG, "%s has the shape %s; by config.json it would have %s", t->name,
			uns_shape_text(uns_named_shape(t), has, sizeof(has)),
			uns_shape_text(want, wants, sizeof(wants)));
}

/* Checks that the stored shape follows from config.json: `all` rows, each as one of `part`. A vocabulary may be longer.
 */
static int shape_check(struct publishing *p, const struct holder *at, uint64_t all, const struct uns_shape *part,
		       struct uns_err *err)
{
	const struct uns_shape *is = uns_named_shape(at->tensor);
	struct uns_shape want = { 0 };
	uint32_t rows, i;

	if (at->layers)
		want.dim[want.n++] = p->n_layers;
	if (at->experts)
		want.dim[want.n++] = p->sizes.v[UNS_MG_EXPERTS];
	rows = want.n;
	want.dim[want.n++] = all;
	for (i = 1; i < part->n; i++)
		want.dim[want.n++] = part->dim[i];
	if (at->rule->rows == UNS_MG_VOCAB && is->n == want.n && is->dim[rows] > all) {
		p->padding = is->dim[rows] - all;
		want.dim[rows] = is->dim[rows];
	}
	if (at->rest && !uns_shape_equal(uns_named_shape(at->rest), &want))
		return shape_differs(at->rest, &want, err);
	return uns_shape_equal(is, &want) ? 0 : shape_differs(at->tensor, &want, err);
}

/* Does the published tensor have all experts? */
static bool stacks_experts(const struct uns_megatron_rule *rule)
{
	return strchr(rule->from, '#') && !strchr(rule->to, '#');
}

/* `shape` of one expert becomes that of all. */
static void shape_stack(const struct publishing *p, struct uns_shape *shape)
{
	memmove(shape->dim + 1, shape->dim, shape->n * sizeof(*shape->dim));
	shape->dim[0] = p->sizes.v[UNS_MG_EXPERTS];
	shape->n++;
}

/* The number of the matrix of this layer and expert in the stored tensor. */
static uint64_t matrix_number(const struct publishing *p, const struct holder *at, const struct which *w)
{
	const uint64_t layer = at->layers ? w->layer - p->first_layer : 0;

	return at->experts ? layer * p->sizes.v[UNS_MG_EXPERTS] + w->expert : layer;
}

/* -- one published tensor -- */

/* No two tensors may have one name. That two rows publish the same is true of all experts or of none, because an
 * expert's number is a component of its own: it is enough to look at the first one. */
static int published_add(struct publishing *p, const struct uns_named_tensor *t, const struct which *w,
			 struct uns_err *err)
{
	void *twice = NULL;

	UNS_TRY(uns_name_list_add(&p->list, t, err));
	if (!w->expert)
		UNS_TRY_ALLOC(uns_map_put(&p->names, t->name, (void *)t->name, &twice), err);
	return twice ? uns_fail(err, -EBADMSG, "two tensors would be called %s", t->name) : 0;
}

/* Cuts the published tensor, whose elements have the order in which they are stored, out of the stored one. */
static int slice_cut(struct publishing *p, const struct holder *at, const struct share *share, const struct which *w,
		     const struct uns_slice **out, struct uns_err *err)
{
	struct uns_slice *slice = UNS_NEW(p->list.arena, struct uns_slice);
	struct uns_shape shape = share->shape;
	const uint64_t width = uns_shape_row_elems(&shape);
	const struct uns_slice_loop parts = { share->n_parts, share->shape.dim[0] / share->repeats * width };
	const struct uns_slice_loop again = { share->repeats, share->all / share->repeats * width };
	uint64_t heads;

	*out = slice;
	UNS_TRY_ALLOC(slice, err);
	UNS_TRY(shape_check(p, at, share->all, &shape, err));
	shape.dim[0] *= share->n_parts;
	if (stacks_experts(at->rule))
		shape_stack(p, &shape);
	*slice = (struct uns_slice){
		.first_elem = (matrix_number(p, at, w) * share->all + share->before / share->repeats) * width,
		.shape = shape,
		.loop = { parts, again },
	};
	if (at->rule->order == UNS_MG_BY_HEAD) {
		heads = p->sizes.v[UNS_MG_HEADS];
		slice->loop[0] = again;
		slice->loop[1] = (struct uns_slice_loop){ heads / share->repeats, share->shape.dim[0] / heads * width };
		slice->loop[2] = parts;
	}
	return 0;
}

/* Are the stored elements in the order of the transposed matrix? */
static bool is_turned(const struct uns_megatron_rule *rule)
{
	return rule->order == UNS_MG_TRANSPOSED || rule->order == UNS_MG_ALTERNATING;
}

/* Makes the published tensor, which has another order than what is stored or is in several stored tensors, of blocks,
 * one for each expert. */
static int blocks_make(struct publishing *p, const struct holder *first, const struct which *w, const char *name,
		       const struct uns_shape *published, const struct uns_tensor **out, struct uns_err *err)
{
	const struct uns_megatron_rule *rule = first->rule;
	const uint64_t n = stacks_experts(rule) ? p->sizes.v[UNS_MG_EXPERTS] : 1;
	const uint64_t parts = rule->order == UNS_MG_ALTERNATING ? 2 : 1;
	struct which one = *w;
	struct holder at = *first;
	struct uns_shape shape = *published, stored = *published;
	struct uns_block *block;
	uint64_t elem;

	if (is_turned(rule) && stored.n == 2) {
		stored.dim[0] = published->dim[1];
		stored.dim[1] = published->dim[0];
	}
	UNS_TRY(shape_check(p, &at, stored.dim[0] / (at.rest ? 2 : 1), &stored, err));
	if (!at.experts && n > p->n_stored) {
		one.expert = n - 1;
		return tensor_missing(p, rule, name, &one, err);
	}
	UNS_TRY_ALLOC(block = UNS_NEW_N(&p->temp, struct uns_block, n), err);
	for (one.expert = 0; one.expert < n; one.expert++) {
		if (!at.experts) {
			if (!holder_find(p, rule, &one, &at))
				return tensor_missing(p, rule, name, &one, err);
			UNS_TRY(shape_check(p, &at, stored.dim[0] / (at.rest ? 2 : 1), &stored, err));
		}
		block[one.expert] =
			(struct uns_block){ .n_sources = at.rest ? 2 : 1,
					    .len = { parts, stored.dim[0] / parts, stored.n > 1 ? stored.dim[1] : 1 },
					    .reversed = is_turned(rule) };
		elem = matrix_number(p, &at, &one) * uns_shape_elems(&stored) / block[one.expert].n_sources;
		block[one.expert].source[0] = (struct uns_block_source){ at.tensor->tensor, elem };
		if (at.rest)
			block[one.expert].source[1] = (struct uns_block_source){ at.rest->tensor, elem };
	}
	if (stacks_experts(rule))
		shape_stack(p, &shape);
	return uns_block_tensor_make(p->cat, &shape, block, n, p->list.arena, out, err);
}

/* A block is in memory as a whole while any of it is read: a long stretch of rows is several. */
#define BLOCK_ELEMS (UINT64_C(1) << 20)

static uint64_t rows_of_block(uint64_t width)
{
	return width && width < BLOCK_ELEMS ? BLOCK_ELEMS / width : 1;
}

static size_t blocks_of(uint64_t rows, uint64_t width)
{
	return (size_t)((rows + rows_of_block(width) - 1) / rows_of_block(width));
}

/* Writes the blocks that `rows` rows of `t` are copied in. Returns how many. */
static size_t blocks_copy(struct uns_block *out, const struct uns_tensor *t, uint64_t first_elem, uint64_t rows,
			  uint64_t width)
{
	const uint64_t most = rows_of_block(width);
	uint64_t row, n_rows;
	size_t n = 0;

	for (row = 0; row < rows; row += n_rows, n++) {
		n_rows = rows - row < most ? rows - row : most;
		out[n] = (struct uns_block){ .n_sources = 1, .len = { 1, n_rows, width } };
		out[n].source[0] = (struct uns_block_source){ t, first_elem + row * width };
	}
	return n;
}

enum { MAX_JOINED = 5 };

/* The stored tensors of a joined one: those of all rows of the list that publish it. */
struct joined {
	struct holder at[MAX_JOINED];
	struct share share[MAX_JOINED];
	size_t n;
};

static int joined_find(struct publishing *p, const struct uns_megatron_rule *rule, const struct which *w,
		       const char *name, struct joined *out, struct uns_err *err)
{
	const char *to = rule->to;

	for (; rule->from; rule++) {
		if (rule->order != UNS_MG_JOINED || strcmp(rule->to, to) != 0)
			continue;
		if (!holder_find(p, rule, w, &out->at[out->n]))
			return tensor_missing(p, rule, name, w, err);
		UNS_TRY(share_find(p, rule, rule, name, &out->share[out->n], err));
		UNS_TRY(shape_check(p, &out->at[out->n], out->share[out->n].all, &out->share[out->n].shape, err));
		out->n++;
	}
	return 0;
}

/* Makes the published tensor of several stored ones: an equal share of each in turn, `repeats` times. `rule` is the
 * first row that publishes it. */
static int joined_make(struct publishing *p, const struct uns_megatron_rule *rule, const struct which *w,
		       const char *name, const struct uns_tensor **out, struct uns_err *err)
{
	struct joined j = { 0 };
	struct uns_shape shape;
	struct uns_block *block;
	uint64_t repeats, rows, width, again;
	size_t i, n = 0;

	UNS_TRY(joined_find(p, rule, w, name, &j, err));
	repeats = j.share[0].repeats;
	shape = j.share[0].shape;
	width = uns_shape_row_elems(&shape);
	for (i = 1; i < j.n; i++)
		shape.dim[0] += j.share[i].shape.dim[0];
	for (i = 0; i < j.n; i++)
		n += repeats * blocks_of(j.share[i].all / repeats, width);
	UNS_TRY_ALLOC(block = UNS_NEW_N(&p->temp, struct uns_block, n), err);
	for (again = 0, n = 0; again < repeats; again++)
		for (i = 0; i < j.n; i++) {
			rows = j.share[i].all / repeats;
			n += blocks_copy(block + n, j.at[i].tensor->tensor,
					 (matrix_number(p, &j.at[i], w) * j.share[i].all + again * rows) * width, rows,
					 width);
		}
	return uns_block_tensor_make(p->cat, &shape, block, n, p->list.arena, out, err);
}

/* Makes the published tensor, whose parts are one below the other, of a stored one that has a share of each in turn.
 * `rule`: the first row that publishes it. */
static int apart_make(struct publishing *p, const struct uns_megatron_rule *list, const struct uns_megatron_rule *rule,
		      const struct holder *at, const struct which *w, const char *name, const struct uns_tensor **out,
		      struct uns_err *err)
{
	struct uns_shape shape = { 0 };
	struct uns_block *block = NULL;
	struct share share;
	uint64_t width, rows, first, again;
	size_t n = 0;

	for (; rule->from; rule++) {
		if (strcmp(rule->from, at->rule->from) != 0 || strcmp(rule->to, at->rule->to) != 0)
			continue;
		UNS_TRY(share_find(p, list, rule, name, &share, err));
		UNS_TRY(shape_check(p, at, share.all, &share.shape, err));
		width = uns_shape_row_elems(&share.shape);
		if (!block) {
			shape = share.shape;
			shape.dim[0] = 0;
			UNS_TRY_ALLOC(block = UNS_NEW_N(&p->temp, struct uns_block,
							share.n_parts * share.repeats *
								blocks_of(share.all / share.repeats, width)),
				      err);
		}
		shape.dim[0] += share.shape.dim[0];
		rows = share.shape.dim[0] / share.repeats;
		first = matrix_number(p, at, w) * share.all + share.before / share.repeats;
		for (again = 0; again < share.repeats; again++)
			n += blocks_copy(block + n, at->tensor->tensor,
					 (first + again * (share.all / share.repeats)) * width, rows, width);
	}
	return uns_block_tensor_make(p->cat, &shape, block, n, p->list.arena, out, err);
}

/* A weight that is stored minus one gets it back. Of the optimizer's states that is true of the fp32 copy alone. One is
 * added to elements of the stored dtype, and the sum is rounded once to that dtype, as both converters do it. */
static int one_add(struct publishing *p, struct uns_named_tensor *t, struct uns_err *err)
{
	const struct uns_block block = { .source = { { t->tensor, uns_named_first(t) } },
					 .n_sources = 1,
					 .len = { 1, 1, uns_shape_elems(uns_named_shape(t)) } };
	struct uns_term term = { .times = 1, .left.as = t->tensor->dtype };
	const struct uns_sum sum = { .term = &term, .n = 1, .divisor = 1, .plus = 1 };

	if (t->tensor->role != UNS_ROLE_WEIGHT && t->tensor->role != UNS_ROLE_MASTER)
		return 0;
	UNS_TRY(uns_block_tensor_make(p->cat, uns_named_shape(t), &block, 1, p->list.arena, &term.left.tensor, err));
	term.left.as = term.left.tensor->dtype;
	UNS_TRY(uns_sum_tensor_make(term.left.tensor, term.left.as, &sum, p->list.arena, &t->tensor, err));
	t->slice = NULL;
	p->n_added_one++;
	return 0;
}

static int part_publish(struct publishing *p, const struct uns_megatron_rule *list,
			const struct uns_megatron_rule *rule, const struct which *w, const char *weight,
			struct uns_err *err);

/* Publishes the tensor of `rule` from the stored tensor that holds it. */
static int tensor_publish(struct publishing *p, const struct uns_megatron_rule *list,
			  const struct uns_megatron_rule *rule, const struct which *w, struct uns_err *err)
{
	static const char model[] = "model.";
	const bool inside = uns_str_starts(rule->to, model);
	struct uns_named_tensor published = { 0 };
	const struct uns_megatron_rule *other;
	char name[UNS_TEMPLATE_NAME];
	struct holder at = { 0 };
	struct share share;
	bool found;

	uns_template_fill(name, inside ? p->published_in : "", rule->to + (inside ? strlen(model) : 0),
			  (int64_t)(w->layer - p->first_layer + p->first_published), (int64_t)w->expert);
	if (p->part)
		return part_publish(p, list, rule, w, name, err);
	found = holder_find(p, p->row, w, &at); /* other experts of a layer were found by the same row */
	for (other = rule; other->from && !found; other++)
		found = strcmp(other->to, rule->to) == 0 && holder_find(p, other, w, &at);
	if (!found)
		return p->of_states ? 0 : tensor_missing(p, rule, name, w, err);
	p->row = at.rule;
	UNS_TRY(share_find(p, list, at.rule, at.tensor->name, &share, err));
	published = (struct uns_named_tensor){ uns_arena_str(p->list.arena, name), at.tensor->tensor, at.tensor->out,
					       NULL };
	if (at.rule->order == UNS_MG_JOINED)
		UNS_TRY(joined_make(p, rule, w, name, &published.tensor, err));
	else if (at.rule->order == UNS_MG_APART)
		UNS_TRY(apart_make(p, list, at.rule, &at, w, name, &published.tensor, err));
	else if (is_turned(at.rule) || at.rest || (stacks_experts(at.rule) && !at.experts))
		UNS_TRY(blocks_make(p, &at, w, name, &share.shape, &published.tensor, err));
	else
		UNS_TRY(slice_cut(p, &at, &share, w, &published.slice, err));
	if (at.rule->order == UNS_MG_MINUS_ONE)
		UNS_TRY(one_add(p, &published, err));
	return published_add(p, &published, w, err);
}

/* -- what lies beside a weight -- */

/* Is the part one of this row's weight? */
static bool part_is_of(const struct uns_megatron_part *part, const struct uns_megatron_rule *rule)
{
	return uns_str_ends(rule->from, WEIGHT) && rule->columns != UNS_MG_NONE &&
	       (!part->only || uns_str_ends(rule->to, part->only));
}

/* In how many equal stretches of rows, or of columns, the ranks saved it; 0 = that is not certain. */
static uint64_t cuts_of(const struct publishing *p, const struct uns_named_tensor *t, bool columns)
{
	const struct uns_tensor *tensor = uns_tensor_with_bytes(p->cat, t->tensor);
	const struct uns_piece *piece = p->cat->pieces + tensor->first_piece, *end = piece + tensor->n_pieces;
	const uint32_t n = tensor->shape.n, dim = columns || p->part->has == UNS_MG_HAS_NUMBERS ? n - 1 : n - 2;
	uint64_t len = 0;

	for (; piece < end; piece++) {
		if (piece->kind != UNS_PIECE_BOX || !piece->box->len[dim] || (len && piece->box->len[dim] != len))
			return 0;
		len = piece->box->len[dim];
	}
	return len && tensor->shape.dim[dim] % len == 0 ? tensor->shape.dim[dim] / len : 0;
}

/* Does the part have the rows that a rank takes for gate and up, in one published tensor or in two? */
static bool has_gate_and_up(const struct uns_megatron_part *part, const struct holder *at, const struct share *share)
{
	const enum uns_megatron_size rows = at->rule->rows;

	return !part->only &&
	       (share->all > share->shape.dim[0] || rows == UNS_MG_GATE_AND_UP || rows == UNS_MG_EXPERT_GATE_AND_UP);
}

/* What the weight's row becomes for its part. */
static int part_share(struct publishing *p, const struct holder *at, struct share *share, struct uns_err *err)
{
	const struct uns_shape *is = uns_named_shape(at->tensor);
	const bool gated = strstr(at->rule->from, ".linear_fc1.") && has_gate_and_up(p->part, at, share);

	if (is->n < part_dims(p->part, at) + at->experts)
		return uns_fail(err, -ENOTSUP, "%s has too few dimensions", at->tensor->name);
	if (p->part->only) {
		share->before = 0;
		share->all = share->shape.dim[0];
		share->repeats = 1;
	}
	switch (p->part->has) {
	case UNS_MG_HAS_COLUMNS:
		if (p->part->whole_columns && cuts_of(p, at->tensor, true) != 1)
			return uns_fail(err, -ENOTSUP,
					"its magnitudes (DoRA) are those of one tensor-parallel rank's columns, and "
					"the others' were not saved");
		share->before = 0;
		share->all = is->dim[is->n - 2];
		share->repeats = share->n_parts = 1;
		share->shape = (struct uns_shape){ 2, { share->all, share->shape.dim[1] } };
		return 0;
	case UNS_MG_HAS_ROWS:
		share->shape = (struct uns_shape){ 2, { share->shape.dim[0], is->dim[is->n - 1] } };
		return 0;
	case UNS_MG_HAS_NUMBERS:
		share->shape.n = 1;
		if (!gated)
			return 0;
		if (share->all == share->shape.dim[0] && cuts_of(p, at->tensor, false) != 1)
			return uns_fail(err, -ENOTSUP, "gate and up are one tensor in the published model");
		if (share->all == share->shape.dim[0])
			return 0;
		share->repeats = cuts_of(p, at->tensor, false); /* gate and up of one rank, then of the next */
		if (!share->repeats || share->shape.dim[0] % share->repeats)
			return uns_fail(err, -ENOTSUP, "its rows were not cut into gate and up of each rank");
		return 0;
	}
	return 0;
}

/* Each rank cuts the rows of linear_fc1 in two as if they were gate and up (ParallelLinearAdapter.sharded_state_dict):
 * if they are one of the two, or neither, the first halves of all ranks' rows come first. */
static int halves_order(const struct publishing *p, const struct holder *at, const struct share *share,
			struct uns_slice *slice, struct uns_err *err)
{
	const uint64_t n = cuts_of(p, at->tensor, false), all = uns_shape_elems(&slice->shape);

	if (has_gate_and_up(p->part, at, share) || p->part->has != UNS_MG_HAS_ROWS ||
	    !strstr(at->rule->from, ".linear_fc1.") || n == 1 || n == 2)
		return 0;
	if (!n || n % 2)
		return uns_fail(err, -ENOTSUP, "its rows were not cut into two halves by each rank");
	slice->loop[0] = (struct uns_slice_loop){ n / 2, all / n };
	slice->loop[1] = (struct uns_slice_loop){ 2, all / 2 };
	return 0;
}

/* A tensor whose pieces are the slice's stretches. */
static int slice_as_blocks(struct publishing *p, const struct uns_slice *slice, struct uns_named_tensor *t,
			   struct uns_err *err)
{
	const uint64_t n = uns_slice_stretches(slice), each = uns_shape_elems(&slice->shape) / n;
	struct uns_block *block;
	uint64_t i;

	t->slice = NULL;
	if (uns_shape_equal(&slice->shape, &t->tensor->shape) && n == 1)
		return 0;
	UNS_TRY_ALLOC(block = UNS_NEW_N(&p->temp, struct uns_block, n), err);
	for (i = 0; i < n; i++)
		block[i] = (struct uns_block){ .source = { { t->tensor, uns_slice_stretch_begin(slice, i) } },
					       .n_sources = 1,
					       .len = { 1, 1, each } };
	return uns_block_tensor_make(p->cat, &slice->shape, block, n, p->list.arena, &t->tensor, err);
}

static int part_cut(struct publishing *p, const struct holder *at, struct share *share, const struct which *w,
		    struct uns_named_tensor *out, struct uns_err *err)
{
	struct uns_slice slice;

	if (is_turned(at->rule) || stacks_experts(at->rule) || at->rule->order == UNS_MG_JOINED)
		return uns_fail(err, -ENOTSUP,
				"what is published, %s, is of all experts, or has rows and columns in the other order",
				at->rule->to);
	UNS_TRY(part_share(p, at, share, err));
	UNS_TRY(slice_cut(p, at, share, w, &out->slice, err));
	slice = *out->slice;
	UNS_TRY(halves_order(p, at, share, &slice, err));
	if (at->one_for_all && !p->part_of_all)
		p->part_of_all = at->tensor->tensor;
	return slice_as_blocks(p, &slice, out, err);
}

/* Publishes the part of the weight of `rule`, if it has one. */
static int part_publish(struct publishing *p, const struct uns_megatron_rule *list,
			const struct uns_megatron_rule *rule, const struct which *w, const char *weight,
			struct uns_err *err)
{
	struct uns_named_tensor published = { 0 };
	const struct uns_megatron_rule *other;
	char name[UNS_TEMPLATE_NAME];
	struct holder at = { 0 };
	struct share share;
	bool found = false;

	if (!part_is_of(p->part, rule))
		return 0;
	for (other = rule; other->from && !found; other++)
		found = strcmp(other->to, rule->to) == 0 && part_is_of(p->part, other) && holder_find(p, other, w, &at);
	if (!found)
		return 0;
	UNS_TRY(share_find(p, list, at.rule, at.tensor->name, &share, err));
	published = *at.tensor;
	p->part_at = at.tensor->tensor;
	UNS_TRY(part_cut(p, &at, &share, w, &published, err));
	p->part_at = NULL;
	published.name = uns_arena_str(p->list.arena, part_name(weight, p->part->published, name));
	UNS_TRY_ALLOC(published.name, err);
	return published_add(p, &published, w, err);
}

/* -- all of them -- */

enum { N_LAYER_LISTS = sizeof(((struct uns_megatron_family *)0)->layer) / sizeof(const struct uns_megatron_rule *) };

/* Does an earlier row publish the same name? */
static bool is_published_before(const struct uns_megatron_rule *list, const struct uns_megatron_rule *rule)
{
	while (list < rule && strcmp(list->to, rule->to) != 0)
		list++;
	return list < rule;
}

static int list_publish(struct publishing *p, const struct uns_megatron_rule *list, uint64_t layer, struct uns_err *err)
{
	const struct uns_megatron_rule *rule;
	struct which w = { .layer = layer };
	uint64_t n;

	for (rule = list; rule->from; rule++) {
		if (!row_applies(p, rule, layer) || is_published_before(list, rule))
			continue;
		n = strchr(rule->to, '#') ? p->sizes.v[UNS_MG_EXPERTS] : 1;
		p->row = rule;
		for (w.expert = 0; w.expert < n; w.expert++)
			UNS_TRY(tensor_publish(p, list, rule, &w, err));
	}
	return 0;
}

/* Sets of which n layers the next rows are: where they are stored, the first one's number in the model, and the one
 * that it is published with. */
static void layers_begin(struct publishing *p, const char *layer_in, uint64_t n, uint64_t first, uint64_t published)
{
	p->layer_in = layer_in;
	p->n_layers = n;
	p->first_layer = first;
	p->first_published = published;
}

/* Publishes the tensors of all lists for one of these layers after the other. */
static int layers_publish(struct publishing *p, const struct uns_megatron_rule *const *lists, size_t n_lists,
			  struct uns_err *err)
{
	uint64_t layer;
	size_t i;

	for (layer = p->first_layer; layer < p->first_layer + p->n_layers; layer++)
		for (i = 0; i < n_lists && lists[i]; i++)
			UNS_TRY(list_publish(p, lists[i], layer, err));
	return 0;
}

/* A training without these layers keeps the number of them that config.json has. */
static int mtp_publish(struct publishing *p, const struct uns_megatron_family *family, struct uns_err *err)
{
	const struct uns_megatron_mtp *mtp = family->mtp;
	const uint64_t n_layers = p->sizes.v[UNS_MG_LAYERS];
	const char *published_in = p->published_in;

	if (!mtp || !p->mtp_in)
		return 0;
	if (mtp->once && !p->sizes.v[UNS_MG_MTP_LAYERS]) /* it cannot be more, and not every config.json has it */
		p->sizes.v[UNS_MG_MTP_LAYERS] = 1;
	layers_begin(p, p->mtp_in, p->sizes.v[UNS_MG_MTP_LAYERS], n_layers, mtp->published_in ? 0 : n_layers);
	if (mtp->published_in)
		p->published_in = mtp->published_in;
	if (mtp->once)
		UNS_TRY(list_publish(p, mtp->once, n_layers, err));
	if (mtp->layer)
		UNS_TRY(layers_publish(p, &mtp->layer, 1, err));
	UNS_TRY(layers_publish(p, p->text->layer, N_LAYER_LISTS, err));
	p->published_in = published_in;
	return 0;
}

static int text_publish(struct publishing *p, const struct uns_megatron_family *family, struct uns_err *err)
{
	uint64_t n;

	p->stored_in = family->vision ? family->vision->stored_in : "";
	p->published_in = family->vision ? family->vision->published_in : "model.";
	UNS_TRY(size_of(p, UNS_MG_LAYERS, "layers", &n, err));
	layers_begin(p, UNS_MEGATRON_LAYER, n, 0, 0);
	UNS_TRY(list_publish(p, family->first ? family->first : uns_megatron_first, 0, err));
	UNS_TRY(layers_publish(p, p->text->layer, N_LAYER_LISTS, err));
	UNS_TRY(mtp_publish(p, family, err));
	return list_publish(p, family->last ? family->last : uns_megatron_last, 0, err);
}

static int vision_publish(struct publishing *p, const struct uns_megatron_vision *vision, struct uns_err *err)
{
	uint64_t n;

	p->stored_in = "";
	p->published_in = "model.";
	UNS_TRY(size_of(p, UNS_MG_VISION_LAYERS, "the vision model", &n, err));
	layers_begin(p, UNS_MEGATRON_LAYER, n, 0, 0);
	UNS_TRY(list_publish(p, vision->first, 0, err));
	UNS_TRY(layers_publish(p, &vision->layer, 1, err));
	UNS_TRY(list_publish(p, vision->last, 0, err));
	layers_begin(p, UNS_MEGATRON_LAYER, p->sizes.v[UNS_MG_DEEPSTACK], 0, 0);
	return layers_publish(p, &vision->deepstack, 1, err);
}

/* Is this a tensor of a layer for multi-token prediction, and of which version's? */
static void mtp_look(struct publishing *p, const struct uns_megatron_family *family, const char *name)
{
	const size_t before = family->vision ? strlen(family->vision->stored_in) : 0;

	if ((before && !uns_str_starts(name, family->vision->stored_in)) || !uns_str_starts(name + before, "mtp."))
		return;
	if (!p->mtp_in)
		p->mtp_in = UNS_MEGATRON_MTP_LAYER;
	if (strstr(name + before, ".mtp_model_layer."))
		p->mtp_in = UNS_MEGATRON_MTP_MODEL_LAYER;
}

/* Replaces *v by the published tensors. Every stored tensor must be in one, and no two may have one name. */
static int tensors_publish(struct publishing *p, struct uns_span config, struct uns_named_tensor **v, size_t *n,
			   struct uns_err *err)
{
	const struct uns_megatron_family *family = family_of(p->info->model_type);
	size_t i;

	if (!family)
		return uns_fail(err, -ENOTSUP, "unshard does not know Megatron's tensors of this model type");
	p->text = family->layer[0] ? family : family_of(p->info->text_type);
	if (!p->text || !p->text->layer[0] || (p->text != family && p->text->vision))
		return uns_fail(err, -ENOTSUP,
				"unshard does not know Megatron's tensors of a language model of type %s within %s",
				p->info->text_type ? p->info->text_type : "none", p->info->model_type);
	UNS_TRY(uns_megatron_sizes_read(config, &p->temp, &p->sizes, err));
	UNS_TRY(uns_megatron_args_check(p->cat, config, &p->sizes, family->adds_one, err));
	UNS_TRY_ALLOC(p->stored = calloc(*n + 1, sizeof(*p->stored)), err);
	p->n_stored = *n;
	UNS_TRY_ALLOC(uns_map_reserve(&p->by_name, *n), err);
	for (i = 0; i < *n; i++) {
		p->stored[i].tensor = &(*v)[i];
		mtp_look(p, family, (*v)[i].name);
		UNS_TRY_ALLOC(uns_map_put_index(&p->by_name, (*v)[i].name, (uint32_t)i), err);
	}
	if (family->vision)
		UNS_TRY(vision_publish(p, family->vision, err));
	UNS_TRY(text_publish(p, family, err));
	for (i = 0; i < *n; i++)
		if (!p->stored[i].used)
			return uns_fail(err, -EBADMSG,
					"%s is a tensor that a model of type %s with this config.json does not have",
					p->stored[i].tensor->name, p->info->model_type);
	uns_name_list_take(&p->list, v, n);
	return 0;
}

static int mtp_note(const struct publishing *p, struct uns_vtree *out, struct uns_err *err)
{
	const uint64_t n = p->sizes.v[UNS_MG_MTP_LAYERS], first = p->sizes.v[UNS_MG_LAYERS];
	const struct uns_megatron_mtp *mtp = family_of(p->info->model_type)->mtp;

	if (!n || !mtp)
		return 0;
	if (!p->mtp_in)
		return uns_vtree_note(out, err,
				      "no layers for multi-token prediction are published: config.json's %s is %llu, "
				      "but the checkpoint has no mtp.layers",
				      mtp->published_in ? "mtp_num_hidden_layers" : "num_nextn_predict_layers",
				      (unsigned long long)n);
	if (mtp->published_in)
		return uns_vtree_note(out, err,
				      "the layer for multi-token prediction is published as mtp.layers.0 and mtp.fc; "
				      "transformers does not load it");
	return uns_vtree_note(
		out, err,
		"the layers for multi-token prediction (mtp.layers) are model.layers from %llu to %llu; their "
		"embed_tokens and shared_head.head are the model's own embed_tokens and lm_head",
		(unsigned long long)first, (unsigned long long)(first + n - 1));
}

int uns_megatron_apply_model(const struct uns_catalog *cat, const struct uns_config_info *info, struct uns_span config,
			     struct uns_named_tensor **v, size_t *n, const char *note, struct uns_vtree *out,
			     struct uns_err *err)
{
	UNS_CLEANUP(publishing_fini) struct publishing p = { .cat = cat, .info = info, .list.arena = &out->arena };

	UNS_TRY(tensors_publish(&p, config, v, n, err));
	if (note)
		UNS_TRY(uns_vtree_note(out, err, "%s", note));
	UNS_TRY(mtp_note(&p, out, err));
	if (p.n_added_one)
		UNS_TRY(uns_vtree_note(out, err,
				       "1 was added to each element of %llu norms (linear_attn.norm), which Megatron "
				       "keeps minus one",
				       (unsigned long long)p.n_added_one));
	return p.padding ? uns_vtree_note(out, err,
					  "the last %llu rows of the vocabulary are left out: Megatron pads it, and "
					  "config.json's vocab_size is %llu",
					  (unsigned long long)p.padding, (unsigned long long)p.sizes.v[UNS_MG_VOCAB])
			 : 0;
}

int uns_megatron_apply_states(const struct uns_catalog *cat, const struct uns_config_info *info, struct uns_span config,
			      struct uns_named_tensor **v, size_t *n, struct uns_arena *arena, struct uns_err *err)
{
	UNS_CLEANUP(publishing_fini)
	struct publishing p = { .cat = cat, .info = info, .list.arena = arena, .of_states = true };

	return tensors_publish(&p, config, v, n, err);
}

int uns_megatron_apply_part(const struct uns_catalog *cat, const struct uns_config_info *info, struct uns_span config,
			    const struct uns_megatron_part *part, struct uns_named_tensor **v, size_t *n,
			    const struct uns_tensor **at, struct uns_arena *arena, struct uns_err *err)
{
	UNS_CLEANUP(publishing_fini)
	struct publishing p = { .cat = cat, .info = info, .list.arena = arena, .part = part };
	const int code = tensors_publish(&p, config, v, n, err);

	*at = code < 0 ? p.part_at : p.part_of_all;
	return code;
}

int uns_megatron_apply(const struct uns_catalog *cat, const struct uns_config_info *info, struct uns_span config,
		       struct uns_named_tensor **v, size_t *n, struct uns_vtree *out, struct uns_err *err)
{
	const char *note;

	if (!uns_span_left(&config))
		return uns_vtree_note(out, err,
				      "the tensors have Megatron's own names; to get the names that Hugging Face "
				      "publishes, mount with -o model=DIR where DIR holds the model's config.json");
	if (!family_of(info->model_type))
		return uns_vtree_note(out, err,
				      "the tensors have Megatron's own names: unshard does not know the names that "
				      "Hugging Face publishes for model type %s",
				      info->model_type ? info->model_type : "none");
	note = uns_arena_printf(&out->arena,
				"the tensors have the names that Hugging Face publishes for model type %s, converted "
				"from Megatron's with config.json; -o names=memory shows Megatron's own",
				info->model_type);
	UNS_TRY_ALLOC(note, err);
	return uns_megatron_apply_model(cat, info, config, v, n, note, out, err);
}
