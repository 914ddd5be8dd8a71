/* Lays the model's parameters into the buckets as Megatron-Core does. All that the metadata does not record (in which
 * stage of the pipeline a layer is, how modules register norms and experts) must follow from the buckets' sizes in one
 * way alone. */
#include "megatron/buckets.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/path.h"
#include "megatron/flat.h"
#include "megatron/order.h"

enum { ALIGNMENT = 64, MAX_STATES = 8, HALVES = 2 };
enum chain { OF_ALL, OF_EXPERTS, N_CHAINS };

/* A parameter, or those of all layers and experts that are stacked in one tensor. */
struct parameter {
	const struct uns_dcp_entry *half[HALVES]; /* gate and up that were saved apart; else the first alone */
	unsigned n_halves;
	struct uns_megatron_place place;
	const struct uns_dcp_chunk **chunk[HALVES]; /* in the order of their offsets */
	size_t n_chunks[HALVES];
	uint32_t out[HALVES][MAX_STATES]; /* 1 + index into naming.out; 0 = none yet */
};

/* One parameter of one layer (and expert): what all ranks of tensor parallelism have of it. */
struct local {
	struct parameter *of;
	uint64_t layer, expert;
	size_t first, n; /* chunks of each half */
};

/* What one rank has of it, in the order of its own memory. */
struct share {
	const struct uns_box *box[HALVES];
	unsigned half[HALVES];
	unsigned n;
	uint64_t elems;
};

struct bucket {
	uint64_t chain, group, buffer, index; /* C, G, V, K */
	uint64_t elems;
	const struct uns_dcp_entry *state[MAX_STATES];
	const struct uns_dcp_chunk **chunk[MAX_STATES]; /* in the order of their offsets */
};

/* A state of a parameter. */
struct named {
	const struct uns_dcp_entry *parameter;
	unsigned state;
	struct uns_megatron_chunks chunks;
};

/* A stage of the pipeline, or one of its chunks: layers [first, first + n). */
struct stage {
	uint64_t first, n;
};

struct naming {
	struct uns_dcp_metadata *meta;
	struct uns_arena *arena;
	struct uns_megatron_flat flat;
	struct uns_err *err;

	struct parameter *parameter;
	size_t n_parameters, cap_parameters;
	struct uns_map by_name;
	struct local *local; /* in the order of the model, as far as `norms` and `one_by_one` determine it */
	size_t n_locals, cap_locals;
	size_t *layer_at; /* of each layer the first local; n_layers + 1 */
	uint64_t n_layers, n_experts;
	bool is_tied;

	struct bucket *bucket; /* sorted */
	size_t n_buckets, cap_buckets;
	const char *state[MAX_STATES];
	enum uns_dtype dtype[MAX_STATES];
	unsigned n_states;
	uint64_t tensor_ranks, pipeline_ranks, n_buffers; /* of each pipeline rank */
	uint64_t expert_tensor_ranks, expert_ranks;       /* 0: experts are among all parameters */
	struct stage *stage; /* of chunk V of pipeline rank P: [V * pipeline_ranks + P] */

	/* What is tried. */
	enum uns_megatron_norms norms;
	bool one_by_one; /* an expert after the other (SequentialMLP), not one kind of matrix after the other */

	bool emits;
	uint64_t map; /* a hash of what is where */
	struct named *out;
	size_t n_out, cap_out;
};

static void naming_fini(struct naming *n)
{
	uns_map_fini(&n->by_name);
	uns_megatron_flat_fini(&n->flat);
}

/* -- the model -- */

static int compare_chunks(const void *a, const void *b)
{
	const struct uns_box *x = (*(const struct uns_dcp_chunk *const *)a)->box;
	const struct uns_box *y = (*(const struct uns_dcp_chunk *const *)b)->box;
	uint32_t d;

	for (d = 0; d < x->n; d++)
		if (x->lo[d] != y->lo[d])
			return x->lo[d] < y->lo[d] ? -1 : 1;
	return 0;
}

/* *out: the chunks that have elements, in the order of their offsets. */
static int chunks_sort(struct naming *n, const struct uns_dcp_entry *e, const struct uns_dcp_chunk ***out,
		       size_t *n_out)
{
	size_t i;

	UNS_TRY_ALLOC(*out = UNS_NEW_N(n->arena, const struct uns_dcp_chunk *, e->n_chunks + 1), n->err);
	*n_out = 0;
	for (i = 0; i < e->n_chunks; i++)
		if (uns_box_elems(e->chunk[i].box))
			(*out)[(*n_out)++] = &e->chunk[i];
	qsort(*out, *n_out, sizeof(**out), compare_chunks);
	return 0;
}

static int parameter_add(struct naming *n, const struct uns_dcp_entry *e)
{
	struct parameter p = { 0 }, *same;
	const size_t len = strlen(e->key);
	const char *name;
	uint32_t i;

	if (!uns_megatron_place_of(e->key, &p.place))
		return uns_fail(n->err, -ENOTSUP, "unshard does not know where %s is among the model's parameters",
				e->key);
	if (p.place.where == UNS_MG_BUFFER)
		return 0;
	name = uns_arena_strn(n->arena, e->key, p.place.half ? len - 2 : len);
	UNS_TRY_ALLOC(name, n->err);
	i = uns_map_index(&n->by_name, name);
	if (i == UNS_MAP_NO_INDEX) {
		i = (uint32_t)n->n_parameters;
		UNS_TRY_ALLOC(uns_map_put_index(&n->by_name, name, i), n->err);
		UNS_TRY_ALLOC(UNS_ARENA_ROOM(n->arena, n->parameter, n->n_parameters, n->cap_parameters), n->err);
		n->parameter[n->n_parameters++] = p;
	}
	same = &n->parameter[i];
	if (same->half[p.place.half == 2])
		return uns_fail(n->err, -ENOTSUP, "%s was saved twice", e->key);
	same->half[p.place.half == 2] = e;
	same->n_halves++;
	return 0;
}

static int local_add(struct naming *n, struct parameter *p, size_t first, size_t end)
{
	const uint64_t *lo = p->chunk[0][first]->box->lo;
	struct local l = { .of = p, .first = first, .n = end - first };

	l.layer = p->place.where != UNS_MG_LAYER ? 0 : p->place.layer >= 0 ? (uint64_t)p->place.layer : lo[0];
	if (p->place.is_expert)
		l.expert =
			p->place.expert >= 0 ? (uint64_t)p->place.expert : lo[uns_megatron_leading_dims(&p->place) - 1];
	if (p->place.where == UNS_MG_LAYER && l.layer >= n->n_layers)
		n->n_layers = l.layer + 1;
	if (p->place.is_expert && l.expert >= n->n_experts)
		n->n_experts = l.expert + 1;
	UNS_TRY_ALLOC(UNS_ARENA_ROOM(n->arena, n->local, n->n_locals, n->cap_locals), n->err);
	n->local[n->n_locals++] = l;
	return 0;
}

static int locals_add(struct naming *n, struct parameter *p)
{
	const size_t leading = uns_megatron_leading_dims(&p->place);
	const struct uns_box *box;
	size_t i, first = 0;
	unsigned h;
	uint32_t d;

	if (!p->half[0] || (p->n_halves == HALVES) != (p->half[1] != NULL))
		return uns_fail(n->err, -ENOTSUP, "of %s one half is missing", p->half[p->half[0] ? 0 : 1]->key);
	for (h = 0; h < HALVES && p->half[h]; h++) {
		UNS_TRY(chunks_sort(n, p->half[h], &p->chunk[h], &p->n_chunks[h]));
		if (p->half[h]->n_dims < leading || p->n_chunks[h] != p->n_chunks[0])
			return uns_fail(n->err, -ENOTSUP, "%s has an unexpected shape or number of chunks",
					p->half[h]->key);
	}
	for (i = 0; i < p->n_chunks[0]; i++) {
		box = p->chunk[0][i]->box;
		for (d = 0; d < leading; d++)
			if (box->len[d] != 1)
				return uns_fail(n->err, -ENOTSUP, "%s has a chunk of several layers or experts",
						p->half[0]->key);
		if (i + 1 < p->n_chunks[0] &&
		    memcmp(box->lo, p->chunk[0][i + 1]->box->lo, leading * sizeof(*box->lo)) == 0)
			continue;
		UNS_TRY(local_add(n, p, first, i + 1));
		first = i + 1;
	}
	return 0;
}

static int model_read(struct naming *n)
{
	const struct uns_dcp_entry *e = n->meta->entry, *end = e + n->meta->n_entries;
	size_t i;

	n->is_tied = true;
	for (; e < end; e++) {
		if (e->kind != UNS_DCP_TENSOR || strstr(e->key, "optimizer."))
			continue;
		UNS_TRY(parameter_add(n, e));
		n->is_tied = n->is_tied && strcmp(e->key, "output_layer.weight") != 0;
	}
	for (i = 0; i < n->n_parameters; i++)
		UNS_TRY(locals_add(n, &n->parameter[i]));
	return 0;
}

/* The order of what is tried, by one number after the other. */
static void local_order(const struct naming *n, const struct local *l, uint64_t order[5])
{
	const struct uns_megatron_place *p = &l->of->place;
	const bool expert_first = p->is_expert && n->one_by_one;

	order[0] = p->where;
	order[1] = l->layer;
	order[2] = p->at[n->norms];
	order[3] = expert_first ? l->expert : p->of_expert;
	order[4] = expert_first ? p->of_expert : l->expert;
}

static int compare_locals(const void *a, const void *b, void *ctx)
{
	uint64_t x[5], y[5];
	size_t i;

	local_order(ctx, a, x);
	local_order(ctx, b, y);
	for (i = 0; i < 5; i++)
		if (x[i] != y[i])
			return x[i] < y[i] ? -1 : 1;
	return 0;
}

static int locals_sort(struct naming *n)
{
	size_t i;
	uint64_t l = 0;

	qsort_r(n->local, n->n_locals, sizeof(*n->local), compare_locals, n);
	if (!n->layer_at)
		UNS_TRY_ALLOC(n->layer_at = UNS_NEW_N(n->arena, size_t, n->n_layers + 1), n->err);
	for (i = 0; i < n->n_locals && n->local[i].of->place.where == UNS_MG_HEAD; i++)
		;
	for (; l < n->n_layers; l++) {
		n->layer_at[l] = i;
		while (i < n->n_locals && n->local[i].of->place.where == UNS_MG_LAYER && n->local[i].layer == l)
			i++;
	}
	n->layer_at[l] = i;
	return 0;
}

/* -- what one rank has -- */

/* Does the rank hold it in this chain: an expert with other ranks, all else in the first one? */
static bool is_in(const struct naming *n, const struct local *l, enum chain chain)
{
	return (chain == OF_EXPERTS) == (l->of->place.is_expert && n->expert_ranks > 0);
}

/* Of `rank` of `ranks` of tensor parallelism. Gate and up are cut each by itself. */
static int share_of(struct naming *n, const struct local *l, uint64_t rank, uint64_t ranks, struct share *out)
{
	const struct parameter *p = l->of;
	const bool is_whole = l->n == 1 && ranks > 1;
	const bool is_joined = p->n_halves == 1 && l->n == 2 * ranks;
	unsigned i;

	if (l->n != ranks && !is_whole && !is_joined)
		return uns_fail(n->err, -ENOTSUP, "%s has %zu chunks in layer %llu, and %llu ranks share it",
				p->half[0]->key, l->n, (unsigned long long)l->layer, (unsigned long long)ranks);
	*out = (struct share){ .n = is_joined ? 2 : p->n_halves };
	for (i = 0; i < out->n; i++) {
		out->half[i] = is_joined ? 0 : i;
		out->box[i] =
			p->chunk[out->half[i]][l->first + (is_whole ? 0 : rank) + (is_joined ? i * ranks : 0)]->box;
		out->elems += uns_box_elems(out->box[i]);
	}
	return 0;
}

static uint64_t aligned(uint64_t elems)
{
	return (elems + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Adds what locals [first, end) take of rank 0's buckets, without what is between these. */
static int room_add(struct naming *n, size_t first, size_t end, uint64_t *sum)
{
	struct share share;

	for (; first < end; first++)
		if (is_in(n, &n->local[first], OF_ALL)) {
			UNS_TRY(share_of(n, &n->local[first], 0, n->tensor_ranks, &share));
			*sum += aligned(share.elems);
		}
	return 0;
}

/* -- buckets -- */

/* The number behind `mark`, which *at points to; *at is put behind it. */
static bool number_after(const char **at, const char *mark, uint64_t *out)
{
	char *end;

	if (!uns_str_starts(*at, mark))
		return false;
	*at += strlen(mark);
	if (**at < '0' || **at > '9')
		return false;
	*out = strtoull(*at, &end, 10);
	*at = end;
	return true;
}

/* Reads a bucket's key. *state: the name behind it. */
static bool key_read(const char *key, struct bucket *out, const char **state)
{
	static const char dtype[] = ".dtype_(";
	const char *at = key;

	*out = (struct bucket){ 0 };
	if (number_after(&at, "chained_", &out->chain) && *at++ != '.')
		return false;
	if (!number_after(&at, "optimizer.distributed.dp_group_idx_", &out->group) ||
	    !number_after(&at, ".gbuf_idx_", &out->buffer) || !uns_str_starts(at, dtype))
		return false;
	at = strchr(at, ')');
	if (!at || !number_after(&(const char *){ at + 1 }, ".bucket_idx_", &out->index))
		return false;
	at = strchr(at + 1 + strlen(".bucket_idx_"), '.');
	*state = at ? at + 1 : NULL;
	return at != NULL;
}

static int compare_buckets(const void *a, const void *b)
{
	const struct bucket *x = a, *y = b;
	const uint64_t p[] = { x->chain, x->group, x->buffer, x->index },
		       q[] = { y->chain, y->group, y->buffer, y->index };
	size_t i;

	for (i = 0; i < 4; i++)
		if (p[i] != q[i])
			return p[i] < q[i] ? -1 : 1;
	return 0;
}

/* The number of the state, by its name. */
static int state_of(struct naming *n, const struct uns_dcp_entry *e, const char *name, unsigned *out)
{
	for (*out = 0; *out < n->n_states && strcmp(n->state[*out], name) != 0; (*out)++)
		;
	if (*out == MAX_STATES)
		return uns_fail(n->err, -ENOTSUP, "%s: an optimizer has more than %d states", e->key, MAX_STATES);
	if (*out == n->n_states) {
		n->state[n->n_states] = name;
		n->dtype[n->n_states++] = e->dtype;
	}
	if (n->dtype[*out] != e->dtype)
		return uns_fail(n->err, -ENOTSUP, "%s has another dtype than other buckets", e->key);
	return 0;
}

static int bucket_add(struct naming *n, const struct uns_dcp_entry *e)
{
	struct bucket b;
	const char *name;
	unsigned state;
	size_t n_chunks;

	if (!key_read(e->key, &b, &name))
		return 0;
	if (e->n_dims != 1 || b.chain >= N_CHAINS)
		return uns_fail(n->err, -ENOTSUP, "%s: an unknown kind of bucket", e->key);
	UNS_TRY(state_of(n, e, name, &state));
	b.elems = e->dims[0];
	b.state[state] = e;
	UNS_TRY(chunks_sort(n, e, &b.chunk[state], &n_chunks));
	UNS_TRY_ALLOC(UNS_ARENA_ROOM(n->arena, n->bucket, n->n_buckets, n->cap_buckets), n->err);
	n->bucket[n->n_buckets++] = b;
	return 0;
}

/* What was added for each state becomes one bucket. */
static int buckets_join(struct naming *n)
{
	struct bucket *b = n->bucket, *last = NULL;
	unsigned s;

	qsort(n->bucket, n->n_buckets, sizeof(*n->bucket), compare_buckets);
	for (; b < n->bucket + n->n_buckets; b++) {
		if (!last || compare_buckets(last, b) != 0) {
			last = last ? last + 1 : n->bucket;
			*last = *b;
			continue;
		}
		for (s = 0; s < MAX_STATES; s++)
			if (b->state[s]) {
				last->state[s] = b->state[s];
				last->chunk[s] = b->chunk[s];
			}
		if (last->elems != b->elems)
			return uns_fail(n->err, -ENOTSUP, "states of a bucket have %llu and %llu elements",
					(unsigned long long)last->elems, (unsigned long long)b->elems);
	}
	n->n_buckets = last ? (size_t)(last - n->bucket) + 1 : 0;
	return 0;
}

/* The buckets of one buffer. */
struct buffer {
	const struct bucket *v;
	size_t n;
};

static struct buffer buffer_of(const struct naming *n, uint64_t chain, uint64_t group, uint64_t buffer)
{
	const struct bucket wanted = { .chain = chain, .group = group, .buffer = buffer };
	size_t low = 0, high = n->n_buckets, middle;
	struct buffer out = { 0 };

	while (low < high) {
		middle = low + (high - low) / 2;
		if (compare_buckets(&n->bucket[middle], &wanted) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	out.v = &n->bucket[low];
	while (low + out.n < n->n_buckets && out.v[out.n].chain == chain && out.v[out.n].group == group &&
	       out.v[out.n].buffer == buffer)
		out.n++;
	return out;
}

static uint64_t n_groups(const struct naming *n, uint64_t chain)
{
	const struct bucket *b = n->bucket, *end = b + n->n_buckets;
	uint64_t groups = 0;

	for (; b < end; b++)
		if (b->chain == chain && b->group >= groups)
			groups = b->group + 1;
	return groups;
}

/* -- parallelism -- */

/* How many ranks have a share of one layer's parameter. */
static uint64_t n_shares(const struct naming *n, bool (*is_asked)(const struct local *l))
{
	size_t i;

	for (i = 0; i < n->n_locals; i++)
		if (is_asked(&n->local[i]))
			return n->local[i].n;
	return 0;
}

static bool is_embedding(const struct local *l)
{
	return strcmp(l->of->half[0]->key, "embedding.word_embeddings.weight") == 0;
}

static bool is_down_projection(const struct local *l)
{
	return l->of->place.is_expert && strstr(l->of->half[0]->key, "linear_fc2.weight");
}

static int parallelism_find(struct naming *n)
{
	const uint64_t all = n_groups(n, OF_ALL), experts = n_groups(n, OF_EXPERTS);
	uint64_t ranks;

	n->tensor_ranks = n_shares(n, is_embedding);
	if (!n->tensor_ranks || all % n->tensor_ranks)
		return uns_fail(
			n->err, -ENOTSUP,
			"the optimizer has %llu groups of ranks, and embedding.word_embeddings.weight has %llu chunks",
			(unsigned long long)all, (unsigned long long)n->tensor_ranks);
	n->pipeline_ranks = all / n->tensor_ranks;
	while (buffer_of(n, OF_ALL, 0, n->n_buffers).n)
		n->n_buffers++;
	if (!experts)
		return 0;
	n->expert_tensor_ranks = n_shares(n, is_down_projection);
	ranks = n->expert_tensor_ranks * n->pipeline_ranks;
	if (!ranks || experts % ranks || n->n_experts % (experts / ranks))
		return uns_fail(n->err, -ENOTSUP, "the optimizer has %llu groups of ranks that share %llu experts",
				(unsigned long long)experts, (unsigned long long)n->n_experts);
	n->expert_ranks = experts / ranks;
	return 0;
}

/* Finds which layers each stage has, by how much room its buckets have. */
static int stages_find(struct naming *n)
{
	const uint64_t n_stages = n->pipeline_ranks * n->n_buffers;
	uint64_t s, at = 0, room, taken;
	struct buffer buffer;
	size_t i;

	UNS_TRY_ALLOC(n->stage = UNS_NEW_N(n->arena, struct stage, n_stages + 1), n->err);
	for (s = 0; s < n_stages; s++) {
		room = taken = 0;
		buffer = buffer_of(n, OF_ALL, s % n->pipeline_ranks * n->tensor_ranks, s / n->pipeline_ranks);
		for (i = 0; i < buffer.n; i++)
			room += aligned(buffer.v[i].elems);
		n->stage[s].first = at;
		if (s == 0)
			UNS_TRY(room_add(n, 0, n->layer_at[0], &taken));
		for (; at < n->n_layers && (s + 1 == n_stages || taken < room); at++)
			UNS_TRY(room_add(n, n->layer_at[at], n->layer_at[at + 1], &taken));
		n->stage[s].n = at - n->stage[s].first;
	}
	return 0;
}

/* -- laying out -- */

struct cursor {
	struct buffer buffer;
	size_t bucket;
	uint64_t at; /* the end of what was put into it */
};

static int not_fitting(struct naming *n, const struct local *l, const struct cursor *c)
{
	if (c->bucket >= c->buffer.n)
		return uns_fail(n->err, -ENOTSUP, "no bucket has room for %s of layer %llu", l->of->half[0]->key,
				(unsigned long long)l->layer);
	return uns_fail(n->err, -ENOTSUP, "%s of layer %llu does not fit at element %llu of %s", l->of->half[0]->key,
			(unsigned long long)l->layer, (unsigned long long)aligned(c->at),
			c->buffer.v[c->bucket].state[0] ? c->buffer.v[c->bucket].state[0]->key : "a bucket");
}

static int named_for(struct naming *n, const struct local *l, unsigned half, unsigned state, struct named **out)
{
	uint32_t *index = &l->of->out[half][state];

	if (!*index) {
		UNS_TRY_ALLOC(UNS_ARENA_ROOM(n->arena, n->out, n->n_out, n->cap_out), n->err);
		n->out[n->n_out++] = (struct named){ .parameter = l->of->half[half], .state = state };
		*index = (uint32_t)n->n_out;
	}
	*out = &n->out[*index - 1];
	return 0;
}

/* Elements [first, first + count) of a rank's share, which an item holds. */
static int range_emit(struct naming *n, const struct local *l, const struct share *share, unsigned state,
		      const struct uns_dcp_chunk *item, uint64_t first)
{
	const uint64_t count = item->box->len[0], end = first + count;
	uint64_t box_at = 0, box_end, from, to;
	struct named *named;
	unsigned i;

	for (i = 0; i < share->n; i++, box_at = box_end) {
		box_end = box_at + uns_box_elems(share->box[i]);
		from = first > box_at ? first : box_at;
		to = end < box_end ? end : box_end;
		if (from >= to)
			continue;
		UNS_TRY(named_for(n, l, share->half[i], state, &named));
		UNS_TRY(uns_megatron_flat_add(&n->flat,
					      &(struct uns_megatron_range){ .of = share->box[i],
									    .first = from - box_at,
									    .count = to - from,
									    .storage = item->storage,
									    .first_item = from - first,
									    .n_item = count },
					      &named->chunks, n->err));
	}
	return 0;
}

/* The chunks of one state that hold elements [start, end) of the bucket, and no others. */
static int state_put(struct naming *n, const struct local *l, const struct share *share, const struct bucket *b,
		     unsigned state, uint64_t start)
{
	const struct uns_dcp_chunk **v = b->chunk[state];
	size_t low = 0, high = b->state[state]->n_chunks, middle;
	uint64_t at = start;

	while (low < high) {
		middle = low + (high - low) / 2;
		if (v[middle] && v[middle]->box->lo[0] < start)
			low = middle + 1;
		else
			high = middle;
	}
	for (; at < start + share->elems && v[low] && v[low]->box->lo[0] == at; low++) {
		if (v[low]->storage && v[low]->storage->n_transforms)
			return uns_fail(n->err, -ENOTSUP, "%s is compressed, which unshard cannot read",
					b->state[state]->key);
		if (n->emits)
			UNS_TRY(range_emit(n, l, share, state, v[low], at - start));
		at += v[low]->box->len[0];
	}
	if (at == start + share->elems)
		return 0;
	return uns_fail(n->err, -ENOTSUP, "%s of layer %llu would end within a chunk of %s", l->of->half[0]->key,
			(unsigned long long)l->layer, b->state[state]->key);
}

/* Puts the next parameter, in the reverse of the model's order. */
static int local_put(struct naming *n, const struct local *l, uint64_t rank, uint64_t ranks, struct cursor *c)
{
	struct share share;
	const struct bucket *b;
	uint64_t start;
	unsigned s;

	UNS_TRY(share_of(n, l, rank, ranks, &share));
	if (c->bucket < c->buffer.n &&
	    (c->at == c->buffer.v[c->bucket].elems || aligned(c->at) == c->buffer.v[c->bucket].elems)) {
		c->bucket++;
		c->at = 0;
	}
	start = aligned(c->at);
	if (c->bucket >= c->buffer.n || start + share.elems > c->buffer.v[c->bucket].elems)
		return not_fitting(n, l, c);
	b = &c->buffer.v[c->bucket];
	for (s = 0; s < n->n_states; s++)
		if (b->state[s])
			UNS_TRY(state_put(n, l, &share, b, s, start));
	n->map = uns_hash_u64(uns_hash_u64(uns_hash_str(n->map, l->of->half[0]->key), l->layer), l->expert);
	n->map = uns_hash_u64(uns_hash_u64(n->map, b->group), start);
	c->at = start + share.elems;
	return 0;
}

static int cursor_end(struct naming *n, const struct cursor *c, const struct local *last)
{
	const struct bucket *b = &c->buffer.v[c->bucket];

	if (!c->buffer.n || (c->bucket + 1 == c->buffer.n && (c->at == b->elems || aligned(c->at) == b->elems)))
		return 0;
	return uns_fail(n->err, -ENOTSUP, "the buckets have more elements than parameters, the last of which is %s",
			last->of->half[0]->key);
}

/* The second copy of tied embeddings, which the last stage has if it is not the first. */
static const struct local *second_embedding(const struct naming *n)
{
	size_t i;

	for (i = 0; n->is_tied && n->pipeline_ranks > 1 && i < n->layer_at[0]; i++)
		if (is_embedding(&n->local[i]))
			return &n->local[i];
	return NULL;
}

/* All parameters of one chunk of the model in the ranks of group (rank, pipeline rank). */
static int stage_put_all(struct naming *n, uint64_t s, uint64_t rank)
{
	const struct stage *stage = &n->stage[s];
	const bool is_last = s + 1 == n->pipeline_ranks * n->n_buffers;
	size_t end = is_last ? n->n_locals : n->layer_at[stage->first + stage->n];
	const size_t first = s == 0 ? 0 : n->layer_at[stage->first];
	const struct local *second = is_last ? second_embedding(n) : NULL;
	struct cursor c = { 0 };

	c.buffer = buffer_of(n, OF_ALL, rank + s % n->pipeline_ranks * n->tensor_ranks, s / n->pipeline_ranks);
	if (second)
		UNS_TRY(local_put(n, second, rank, n->tensor_ranks, &c));
	while (end-- > first)
		if (is_in(n, &n->local[end], OF_ALL))
			UNS_TRY(local_put(n, &n->local[end], rank, n->tensor_ranks, &c));
	return cursor_end(n, &c, &n->local[first]);
}

/* The experts of one chunk of the model in one group of ranks. *buffer: which is next; a chunk without experts has
 * none.
 */
static int stage_put_experts(struct naming *n, uint64_t s, uint64_t group, uint64_t *buffer)
{
	const struct stage *stage = &n->stage[s];
	const uint64_t rank = group % n->expert_tensor_ranks, share = n->n_experts / n->expert_ranks;
	const uint64_t expert = group / n->expert_tensor_ranks % n->expert_ranks * share;
	const size_t first = n->layer_at[stage->first];
	size_t end = n->layer_at[stage->first + stage->n];
	const struct local *l, *last = NULL;
	struct cursor c = { .buffer = buffer_of(n, OF_EXPERTS, group, *buffer) };

	while (end-- > first) {
		l = &n->local[end];
		if (!is_in(n, l, OF_EXPERTS) || l->expert < expert || l->expert >= expert + share)
			continue;
		UNS_TRY(local_put(n, l, rank, n->expert_tensor_ranks, &c));
		last = l;
	}
	*buffer += last != NULL;
	return last ? cursor_end(n, &c, last) : 0;
}

static int lay_out(struct naming *n)
{
	const uint64_t n_stages = n->pipeline_ranks * n->n_buffers;
	const uint64_t of_stage = n->expert_tensor_ranks * n->expert_ranks; /* groups of experts */
	uint64_t s, group, buffer;

	n->map = UNS_HASH_INIT;
	UNS_TRY(stages_find(n));
	for (s = 0; s < n_stages; s++)
		for (group = 0; group < n->tensor_ranks; group++)
			UNS_TRY(stage_put_all(n, s, group));
	for (group = 0; group < of_stage * n->pipeline_ranks; group++)
		for (s = group / of_stage, buffer = 0; s < n_stages; s += n->pipeline_ranks)
			UNS_TRY(stage_put_experts(n, s, group, &buffer));
	return 0;
}

/* Tries what modules may register in several orders. One alone may fit. */
static int order_find(struct naming *n)
{
	static const struct {
		enum uns_megatron_norms norms;
		bool one_by_one;
	} order[] = { { UNS_MG_NORMS_FUSED, false },
		      { UNS_MG_NORMS_APART, false },
		      { UNS_MG_NORMS_FUSED, true },
		      { UNS_MG_NORMS_APART, true } };
	struct uns_err first = { .keep = n->arena }, why, *err = n->err;
	uint64_t map = 0;
	size_t i, fits = sizeof(order) / sizeof(*order);
	int code;

	for (i = 0; i < sizeof(order) / sizeof(*order); i++) {
		n->norms = order[i].norms;
		n->one_by_one = order[i].one_by_one;
		why = (struct uns_err){ .keep = n->arena };
		n->err = i ? &why : &first;
		code = locals_sort(n);
		code = code < 0 ? code : lay_out(n);
		UNS_TRY(uns_fail_if_passing(err, code, n->err));
		if (code < 0)
			continue;
		if (fits < i && map != n->map)
			return uns_fail(err, -ENOTSUP, "the parameters fit into the buckets in more than one order");
		map = n->map;
		fits = i;
	}
	n->err = err;
	if (fits == sizeof(order) / sizeof(*order))
		return uns_fail_copy(err, &first);
	n->norms = order[fits].norms;
	n->one_by_one = order[fits].one_by_one;
	return locals_sort(n);
}

/* -- the result -- */

static int entries_replace(struct naming *n)
{
	struct uns_dcp_entry *v, *e = n->meta->entry, *end = e + n->meta->n_entries, made;
	struct uns_dcp_step *step;
	struct bucket unused;
	const struct named *o;
	const char *state;
	size_t n_entries = 0;

	UNS_TRY_ALLOC(v = UNS_NEW_N(n->arena, struct uns_dcp_entry, n->meta->n_entries + n->n_out), n->err);
	for (; e < end; e++)
		if (e->kind != UNS_DCP_TENSOR || !key_read(e->key, &unused, &state))
			v[n_entries++] = *e;
	for (o = n->out; o < n->out + n->n_out; o++) {
		made = *o->parameter;
		made.dtype = n->dtype[o->state];
		made.chunk = o->chunks.v;
		made.n_chunks = o->chunks.n;
		made.key = uns_arena_printf(n->arena, "optimizer.state.%s.%s", n->state[o->state], o->parameter->key);
		UNS_TRY_ALLOC(step = UNS_NEW(n->arena, struct uns_dcp_step), n->err);
		UNS_TRY_ALLOC(made.key, n->err);
		*step = (struct uns_dcp_step){ .key = made.key };
		made.path = step;
		made.n_path = 1;
		v[n_entries++] = made;
	}
	n->meta->entry = v;
	n->meta->n_entries = n_entries;
	return 0;
}

static int name_all(struct naming *n)
{
	UNS_TRY(model_read(n));
	UNS_TRY(parallelism_find(n));
	UNS_TRY(order_find(n));
	n->emits = true;
	UNS_TRY(lay_out(n));
	return entries_replace(n);
}

int uns_megatron_buckets_name(struct uns_dcp_metadata *meta, struct uns_arena *arena, struct uns_catalog *cat,
			      struct uns_err *err)
{
	struct uns_err why = { .keep = &cat->arena };
	UNS_CLEANUP(naming_fini)
	struct naming n = {
		.meta = meta, .arena = arena, .flat = { .arena = arena, .parts = &cat->arena }, .err = &why
	};
	struct uns_dcp_entry *e = meta->entry, *end = e + meta->n_entries;
	int code = 0;

	for (; code >= 0 && e < end; e++)
		if (e->kind == UNS_DCP_TENSOR)
			code = bucket_add(&n, e);
	if (code >= 0 && !n.n_buckets)
		return 0;
	code = code < 0 ? code : buckets_join(&n);
	code = code < 0 ? code : name_all(&n);
	if (code >= 0) {
		cat->summary.named_by_rule = true;
		return 0;
	}
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	return UNS_ADD_FINDING(cat, err, MEGATRON_BUCKETS, .scope = UNS_SCOPE_OPTIMIZER,
			       .arg = { { "cause", uns_str(why.text) } });
}
