/* Finds the stored tensor of each published tensor, checks its shape, and cuts the published one out of it. */
#include "files/megatron_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "files/megatron_sizes.h"
#include "model/block_tensor.h"

static int compare_type(const void *key, const void *family)
{
	return strcmp(key, ((const struct uns_megatron_family *)family)->model_type);
}

static const struct uns_megatron_family *family_of(const char *model_type)
{
	if (!model_type)
		return NULL;
	return bsearch(model_type, uns_megatron_table, uns_n_megatron_table, sizeof(*uns_megatron_table),
		       compare_type);
}

bool uns_megatron_knows(const char *model_type)
{
	return family_of(model_type) != NULL;
}

enum { MAX_NAME = 256 }; /* longer than any name of the table with its numbers */

/* -- what is stored -- */

struct stored {
	const struct uns_named_tensor *tensor;
	bool used;
};

struct publishing {
	const struct uns_catalog *cat;
	const struct uns_config_info *info;
	struct uns_megatron_sizes sizes;
	struct uns_arena *arena; /* of names and slices */
	struct uns_arena temp;
	struct stored *stored;
	size_t n_stored;
	struct uns_map by_name; /* -> index into stored */
	struct uns_named_tensor *v;
	size_t n, cap;
	bool of_states;   /* a parameter may lack a state: buffers and frozen ones do */
	uint64_t padding; /* rows of the vocabulary that are left out */
	/* Of the model within the model whose rows are applied: what its names begin with, and how many layers it has. */
	const char *stored_in, *published_in;
	uint64_t n_layers;
};

static void publishing_fini(struct publishing *p)
{
	uns_map_fini(&p->by_name);
	uns_arena_fini(&p->temp);
	free(p->stored);
	free(p->v);
}

static int take_stored(struct publishing *p, const struct uns_named_tensor *v, size_t n,
		       struct uns_err *err)
{
	size_t i;

	p->stored = calloc(n + 1, sizeof(*p->stored));
	if (!p->stored)
		return uns_oom(err);
	p->n_stored = n;
	for (i = 0; i < n; i++) {
		p->stored[i].tensor = &v[i];
		if (!uns_map_put_index(&p->by_name, v[i].name, (uint32_t)i))
			return uns_oom(err);
	}
	return 0;
}

/* -- one published tensor -- */

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
};

/* Writes `before`, then `pattern` with the numbers of layer and expert. A number that is not written is left out
 * together with its dot. */
static const char *spell(char out[MAX_NAME], const char *before, const char *pattern,
			 const struct which *w, bool layer, bool expert)
{
	size_t n = (size_t)snprintf(out, MAX_NAME, "%s", before);

	/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): every row of the table has both names */
	for (; *pattern; pattern++) {
		if (*pattern != '*' && *pattern != '#')
			out[n++] = *pattern;
		else if (*pattern == '*' ? layer : expert)
			n += (size_t)snprintf(out + n, MAX_NAME - n, "%llu",
					      (unsigned long long)(*pattern == '*' ? w->layer : w->expert));
		else
			pattern++; /* its dot */
	}
	out[n] = '\0';
	return out;
}

static const char *stored_name(const struct publishing *p, char out[MAX_NAME],
			       const struct uns_megatron_rule *rule, const struct which *w,
			       bool layer, bool expert)
{
	return spell(out, p->stored_in, rule->from, w, layer, expert);
}

/* NULL = there is no such tensor. */
static const struct uns_named_tensor *use(struct publishing *p, const char *name)
{
	const uint32_t i = uns_map_index(&p->by_name, name);

	if (i == UINT32_MAX)
		return NULL;
	p->stored[i].used = true;
	return p->stored[i].tensor;
}

static const char *published_name(const struct publishing *p, char out[MAX_NAME],
				  const struct uns_megatron_rule *rule, const struct which *w)
{
	static const char model[] = "model.";

	if (!uns_str_starts(rule->to, model))
		return spell(out, "", rule->to, w, true, true);
	return spell(out, p->published_in, rule->to + strlen(model), w, true, true);
}

static bool look_for(struct publishing *p, const struct uns_megatron_rule *rule, const struct which *w,
		     struct holder *out)
{
	bool has_layer = strchr(rule->from, '*') != NULL, has_expert = strchr(rule->from, '#') != NULL;
	char name[MAX_NAME];
	unsigned spelling;

	for (spelling = 0; spelling < 4; spelling++) {
		*out = (struct holder){ .rule = rule, .layers = spelling & 1, .experts = spelling & 2 };
		if ((out->layers && !has_layer) || (out->experts && !has_expert))
			continue;
		out->tensor = use(p, stored_name(p, name, rule, w, !out->layers, !out->experts));
		if (!out->tensor)
			continue;
		if (rule->rest)
			out->rest = use(p, spell(name, p->stored_in, rule->rest, w, !out->layers, !out->experts));
		return !rule->rest || out->rest;
	}
	return false;
}

static bool applies(const struct publishing *p, const struct uns_megatron_rule *rule, uint64_t layer)
{
	const struct uns_megatron_sizes *s = &p->sizes;

	switch (rule->when) {
	case UNS_MG_UNTIED:
		return !p->info->ties_embeddings;
	case UNS_MG_DENSE:
		return !uns_megatron_is_sparse(s, layer);
	case UNS_MG_SPARSE:
		return uns_megatron_is_sparse(s, layer);
	case UNS_MG_ATTENTION_BIAS:
		return s->attention_bias;
	case UNS_MG_MLP_BIAS:
		return s->mlp_bias;
	case UNS_MG_QK_NORM:
		return s->qk_norm;
	case UNS_MG_LOW_RANK_Q:
		return s->v[UNS_MG_Q_RANK] != 0;
	case UNS_MG_FULL_RANK_Q:
		return s->v[UNS_MG_Q_RANK] == 0;
	default:
		return true;
	}
}

/* -- shapes -- */

static int size_of(const struct publishing *p, enum uns_megatron_size size, const char *name,
		   uint64_t *out, struct uns_err *err)
{
	*out = p->sizes.v[size];
	if (*out || size == UNS_MG_NONE)
		return 0;
	return uns_fail(err, -EBADMSG, "config.json has no %s, and without it the shape of %s is "
				       "not known",
			uns_megatron_size_key(size), name);
}

/* Of the stored tensor of `rule`: the rows of all parts, and the rows before this part. */
static int rows_of(const struct publishing *p, const struct uns_megatron_rule *list,
		   const struct uns_megatron_rule *rule, const char *name, uint64_t *before,
		   uint64_t *all, struct uns_err *err)
{
	const struct uns_megatron_rule *part;
	uint64_t rows;

	*before = *all = 0;
	for (part = list; part->from; part++) {
		if (strcmp(part->from, rule->from) != 0)
			continue;
		UNS_TRY(size_of(p, part->rows, name, &rows, err));
		*before += part < rule ? rows : 0;
		*all += rows;
	}
	return 0;
}

static int shape_differs(const struct uns_named_tensor *t, const struct uns_shape *want, struct uns_err *err)
{
	char has[128], wants[128];

	return uns_fail(err, -EBADMSG,
			"%s has the shape %s; by config.json it would have %s", t->name,
			uns_shape_text(uns_named_shape(t), has, sizeof(has)),
			uns_shape_text(want, wants, sizeof(wants)));
}

/* Of the published tensor of `rule`. */
static int shape_of(const struct publishing *p, const struct uns_megatron_rule *rule, const char *name,
		    struct uns_shape *out, struct uns_err *err)
{
	enum uns_megatron_size columns[UNS_MG_MAX_DIMS];
	const size_t n = uns_megatron_dims(rule->columns, columns);
	size_t i;

	UNS_TRY(size_of(p, rule->rows, name, &out->dim[0], err));
	for (i = 0; i < n; i++)
		UNS_TRY(size_of(p, columns[i], name, &out->dim[i + 1], err));
	out->n = (uint32_t)n + 1;
	return 0;
}

/* The stored shape is what config.json says: `all` rows, each as one of `part`. A vocabulary may be longer. */
static int check_shape(struct publishing *p, const struct holder *at, uint64_t all,
		       const struct uns_shape *part, struct uns_err *err)
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
static void put_experts(const struct publishing *p, struct uns_shape *shape)
{
	memmove(shape->dim + 1, shape->dim, shape->n * sizeof(*shape->dim));
	shape->dim[0] = p->sizes.v[UNS_MG_EXPERTS];
	shape->n++;
}

/* How many rows of the table the published tensor of `rule` consists of. */
static uint64_t n_parts_of(const struct uns_megatron_rule *list, const struct uns_megatron_rule *rule)
{
	uint64_t n = 0;

	for (; list->from; list++)
		n += strcmp(list->from, rule->from) == 0 && strcmp(list->to, rule->to) == 0;
	return n;
}

/* -- cutting -- */

static int cut(struct publishing *p, const struct uns_megatron_rule *list, const struct holder *at,
	       const struct which *w, struct uns_slice *out, struct uns_err *err)
{
	const char *name = at->tensor->name;
	const struct uns_megatron_rule *rule = at->rule;
	uint64_t before, all, width = 1, repeats, stack = 0, n_parts = n_parts_of(list, rule), share;
	struct uns_shape shape = { 0 };
	uint32_t i;

	UNS_TRY(rows_of(p, list, rule, name, &before, &all, err));
	UNS_TRY(shape_of(p, rule, name, &shape, err));
	UNS_TRY(size_of(p, rule->repeats, name, &repeats, err));
	UNS_TRY(check_shape(p, at, all, &shape, err));
	for (i = 1; i < shape.n; i++)
		width *= shape.dim[i];
	share = shape.dim[0] / repeats * width;
	shape.dim[0] *= n_parts;
	if (at->layers)
		stack = w->layer;
	if (at->experts)
		stack = stack * p->sizes.v[UNS_MG_EXPERTS] + w->expert;
	if (stacks_experts(rule))
		put_experts(p, &shape);
	*out = (struct uns_slice){ .first_elem = (stack * all + before / repeats) * width,
				   .shape = shape,
				   .n_stretches = repeats,
				   .stride_elems = all / repeats * width,
				   .n_rounds = n_parts,
				   .round_elems = share };
	return 0;
}

static int missing(const struct publishing *p, const struct uns_megatron_rule *rule, const char *name,
		   const struct which *w, struct uns_err *err)
{
	char from[MAX_NAME];

	return uns_fail(err, -EBADMSG,
			"a model of type %s with this config.json needs the tensor %s, which is made from %s: the checkpoint does not have it",
			p->info->model_type, name, stored_name(p, from, rule, w, true, true));
}

/* -- blocks: what is published has another order than what is stored, or is in several tensors -- */

static bool is_of_blocks(const struct holder *at)
{
	return at->rule->order != UNS_MG_AS_STORED || at->rest || (stacks_experts(at->rule) && !at->experts);
}

/* A published matrix as it is stored. */
static struct uns_shape stored_shape(const struct uns_megatron_rule *rule, const struct uns_shape *published)
{
	struct uns_shape out = *published;

	if (rule->order != UNS_MG_AS_STORED && out.n == 2) {
		out.dim[0] = published->dim[1];
		out.dim[1] = published->dim[0];
	}
	return out;
}

/* Of the layer's matrix that `at` holds; `stored`: its shape. If it has several experts, it is that of w->expert. */
static struct uns_block block_of(const struct publishing *p, const struct holder *at, const struct which *w,
				 const struct uns_shape *stored)
{
	const uint64_t parts = at->rule->order == UNS_MG_ALTERNATING ? 2 : 1;
	struct uns_block block = { .n_sources = at->rest ? 2 : 1,
				   .len = { parts, stored->dim[0] / parts, stored->n > 1 ? stored->dim[1] : 1 },
				   .reversed = at->rule->order != UNS_MG_AS_STORED };
	uint64_t nth = at->layers ? w->layer : 0, first;

	if (at->experts)
		nth = nth * p->sizes.v[UNS_MG_EXPERTS] + w->expert;
	first = nth * uns_shape_elems(stored) / block.n_sources;
	block.source[0] = (struct uns_block_source){ at->tensor->tensor, first };
	if (at->rest)
		block.source[1] = (struct uns_block_source){ at->rest->tensor, first };
	return block;
}

static int make_blocks(struct publishing *p, const struct holder *first, const struct which *w,
		       const char *name, const struct uns_tensor **out, struct uns_err *err)
{
	const struct uns_megatron_rule *rule = first->rule;
	const uint64_t n = stacks_experts(rule) ? p->sizes.v[UNS_MG_EXPERTS] : 1;
	struct which one = *w;
	struct holder at = *first;
	struct uns_shape shape = { 0 }, stored;
	struct uns_block *block;

	UNS_TRY(shape_of(p, rule, name, &shape, err));
	stored = stored_shape(rule, &shape);
	UNS_TRY(check_shape(p, &at, stored.dim[0] / (at.rest ? 2 : 1), &stored, err));
	if (!at.experts && n > p->n_stored) {
		one.expert = n - 1;
		return missing(p, rule, name, &one, err);
	}
	block = UNS_NEW_N(&p->temp, struct uns_block, n);
	if (!block)
		return uns_oom(err);
	for (one.expert = 0; one.expert < n; one.expert++) {
		if (!at.experts && !look_for(p, rule, &one, &at))
			return missing(p, rule, name, &one, err);
		if (!at.experts)
			UNS_TRY(check_shape(p, &at, stored.dim[0] / (at.rest ? 2 : 1), &stored, err));
		block[one.expert] = block_of(p, &at, &one, &stored);
	}
	if (stacks_experts(rule))
		put_experts(p, &shape);
	return uns_block_tensor_make(p->cat, &shape, block, n, p->arena, out, err);
}

/* Publishes the tensor of `rule` from the stored tensor that holds it. */
static int publish(struct publishing *p, const struct uns_megatron_rule *list,
		   const struct uns_megatron_rule *rule, const struct which *w, struct uns_err *err)
{
	char spelled[MAX_NAME];
	const char *name = uns_arena_str(p->arena, published_name(p, spelled, rule, w));
	struct uns_slice *slice = UNS_NEW(p->arena, struct uns_slice);
	const struct uns_megatron_rule *other;
	const struct uns_tensor *tensor;
	struct holder at = { 0 };
	bool found = false;

	if (!name || !slice || !UNS_HEAP_ROOM(p->v, p->n, p->cap))
		return uns_oom(err);
	for (other = rule; other->from && !found; other++)
		if (strcmp(other->to, rule->to) == 0)
			found = look_for(p, other, w, &at);
	if (!found)
		return p->of_states ? 0 : missing(p, rule, name, w, err);
	if (is_of_blocks(&at)) {
		UNS_TRY(make_blocks(p, &at, w, name, &tensor, err));
		p->v[p->n++] = (struct uns_named_tensor){ name, tensor, at.tensor->out, NULL };
		return 0;
	}
	UNS_TRY(cut(p, list, &at, w, slice, err));
	p->v[p->n++] = (struct uns_named_tensor){ name, at.tensor->tensor, at.tensor->out, slice };
	return 0;
}

/* Does an earlier row publish the same name? */
static bool is_published_before(const struct uns_megatron_rule *list, const struct uns_megatron_rule *rule)
{
	for (; list < rule; list++)
		if (strcmp(list->to, rule->to) == 0)
			return true;
	return false;
}

static int publish_list(struct publishing *p, const struct uns_megatron_rule *list, uint64_t layer,
			struct uns_err *err)
{
	const struct uns_megatron_rule *rule;
	struct which w = { .layer = layer };
	uint64_t n;

	for (rule = list; rule->from; rule++) {
		if (!applies(p, rule, layer) || is_published_before(list, rule))
			continue;
		n = strchr(rule->to, '#') ? p->sizes.v[UNS_MG_EXPERTS] : 1;
		for (w.expert = 0; w.expert < n; w.expert++)
			UNS_TRY(publish(p, list, rule, &w, err));
	}
	return 0;
}

static int publish_text(struct publishing *p, const struct uns_megatron_family *family, struct uns_err *err)
{
	const size_t n_lists = sizeof(family->layer) / sizeof(family->layer[0]);
	uint64_t layer;
	size_t i;

	p->stored_in = family->vision ? family->vision->stored_in : "";
	p->published_in = family->vision ? family->vision->published_in : "model.";
	UNS_TRY(size_of(p, UNS_MG_LAYERS, "layers", &p->n_layers, err));
	UNS_TRY(publish_list(p, uns_megatron_first, 0, err));
	for (layer = 0; layer < p->n_layers; layer++)
		for (i = 0; i < n_lists && family->layer[i]; i++)
			UNS_TRY(publish_list(p, family->layer[i], layer, err));
	return publish_list(p, uns_megatron_last, 0, err);
}

static int publish_each(struct publishing *p, const struct uns_megatron_rule *list, uint64_t n,
			struct uns_err *err)
{
	uint64_t layer;

	p->n_layers = n;
	for (layer = 0; list && layer < n; layer++)
		UNS_TRY(publish_list(p, list, layer, err));
	return 0;
}

static int publish_vision(struct publishing *p, const struct uns_megatron_vision *vision, struct uns_err *err)
{
	uint64_t n;

	p->stored_in = "";
	p->published_in = "model.";
	UNS_TRY(size_of(p, UNS_MG_VISION_LAYERS, "the vision model", &n, err));
	UNS_TRY(publish_list(p, vision->first, 0, err));
	UNS_TRY(publish_each(p, vision->layer, n, err));
	UNS_TRY(publish_list(p, vision->last, 0, err));
	return publish_each(p, vision->deepstack, p->sizes.v[UNS_MG_DEEPSTACK], err);
}

static int all_used(const struct publishing *p, struct uns_err *err)
{
	size_t i;

	for (i = 0; i < p->n_stored; i++)
		if (!p->stored[i].used)
			return uns_fail(err, -EBADMSG,
					"%s is a tensor that a model of type %s with this "
					"config.json does not have",
					p->stored[i].tensor->name, p->info->model_type);
	return 0;
}

/* -- notes -- */

static int note_padding(const struct publishing *p, struct uns_vtree *out, struct uns_err *err)
{
	if (!p->padding)
		return 0;
	return uns_vtree_note(out, err,
			      "the last %llu rows of the vocabulary are left out: Megatron pads it, and config.json's "
			      "vocab_size is %llu",
			      (unsigned long long)p->padding,
			      (unsigned long long)p->sizes.v[UNS_MG_VOCAB]);
}

static int publish_all(struct publishing *p, struct uns_span config, struct uns_named_tensor **v, size_t *n,
		       struct uns_err *err)
{
	const struct uns_megatron_family *family = family_of(p->info->model_type);

	if (!family)
		return uns_fail(err, -ENOTSUP, "unshard does not know Megatron's tensors of this model type");
	UNS_TRY(uns_megatron_sizes_read(config, &p->temp, &p->sizes, err));
	UNS_TRY(take_stored(p, *v, *n, err));
	if (family->vision)
		UNS_TRY(publish_vision(p, family->vision, err));
	UNS_TRY(publish_text(p, family, err));
	UNS_TRY(all_used(p, err));
	free(*v);
	*v = UNS_TAKE(p->v);
	*n = p->n;
	return 0;
}

int uns_megatron_apply_model(const struct uns_catalog *cat, const struct uns_config_info *info, struct uns_span config,
			     struct uns_named_tensor **v, size_t *n, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(publishing_fini) struct publishing p = { .cat = cat, .info = info, .arena = &out->arena };

	UNS_TRY(publish_all(&p, config, v, n, err));
	return note_padding(&p, out, err);
}

int uns_megatron_apply_states(const struct uns_catalog *cat, const struct uns_config_info *info, struct uns_span config,
			      struct uns_named_tensor **v, size_t *n, struct uns_arena *arena, struct uns_err *err)
{
	UNS_CLEANUP(publishing_fini) struct publishing p = { .cat = cat, .info = info, .arena = arena, .of_states = true };

	return publish_all(&p, config, v, n, err);
}

int uns_megatron_apply(const struct uns_catalog *cat, const struct uns_config_info *info, struct uns_span config,
		       struct uns_named_tensor **v, size_t *n, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(publishing_fini) struct publishing p = { .cat = cat, .info = info, .arena = &out->arena };

	if (!uns_span_left(&config))
		return uns_vtree_note(out, err,
				      "the tensors have Megatron's own names; to get the names "
				      "that Hugging Face publishes, mount with -o model=DIR where "
				      "DIR holds the model's config.json");
	if (!family_of(info->model_type))
		return uns_vtree_note(out, err,
				      "the tensors have Megatron's own names: unshard does not "
				      "know the names that Hugging Face publishes for model type "
				      "%s",
				      info->model_type ? info->model_type : "none");
	UNS_TRY(publish_all(&p, config, v, n, err));
	UNS_TRY(uns_vtree_note(out, err,
			       "the tensors have the names that Hugging Face publishes for model "
			       "type %s, converted from Megatron's with config.json; -o "
			       "names=memory shows Megatron's own",
			       info->model_type));
	return note_padding(&p, out, err);
}
