/* Compares piece by piece: a piece of an fp32 copy is one rank's, and lies in its file as the weight's elements follow
 * each other. A slab is what is one parameter in the model: a layer of a stacked tensor, or one expert of it. */
#include "facts/masters_proof.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "base/pool.h"
#include "engine/cast.h"
#include "megatron/order.h"
#include "model/cover.h"

enum { BLOCK_ELEMS = 32 << 10 };

struct slab {
	const struct uns_tensor *weight;
	struct uns_megatron_place place;
	uint64_t layer, expert, elems;
	uint64_t hash; /* atomic; a sum over all elements, of value and place */
};

struct job {
	const struct uns_tensor *weight, *master;
	const struct uns_piece *piece;
	size_t first_slab;
	uint64_t slab_elems;
	bool is_copy; /* another piece has the same elements */
};

struct proving {
	const struct uns_catalog *cat;
	struct uns_engine *engine;
	struct uns_backing *backing;
	struct uns_arena scratch;
	struct masters_found *found;
	struct job *job;
	size_t n_jobs, cap_jobs;
	struct slab *slab;
	size_t n_slabs, cap_slabs;
	pthread_mutex_t lock; /* of what follows */
	const struct job *different; /* the first one, by its place among the jobs */
	uint64_t at; /* the element of the weight */
};

static void proving_fini(struct proving *p)
{
	uns_arena_fini(&p->scratch);
	pthread_mutex_destroy(&p->lock);
}

void masters_found_fini(struct masters_found *found)
{
	uns_arena_fini(&found->arena);
}

/* -- what is compared -- */

static int slabs_add(struct proving *p, const struct uns_tensor *weight, uint64_t *slab_elems)
{
	struct slab s = { .weight = weight };
	uint32_t leading, d;
	uint64_t n = 1, experts = 1, i;

	if (!uns_megatron_place_of(weight->name, &s.place))
		s.place = (struct uns_megatron_place){ .where = UNS_MG_BUFFER };
	leading = uns_megatron_leading_dims(&s.place);
	for (d = 0; d < leading && d < weight->shape.n; d++)
		n *= weight->shape.dim[d];
	if (s.place.is_expert && s.place.expert < 0)
		experts = weight->shape.dim[leading - 1];
	*slab_elems = s.elems = uns_shape_elems(&weight->shape) / (n ? n : 1);
	for (i = 0; i < n; i++) {
		s.layer = s.place.layer >= 0 ? (uint64_t)s.place.layer : i / experts;
		s.expert = s.place.expert >= 0 ? (uint64_t)s.place.expert : i % experts;
		UNS_TRY(UNS_ARENA_ROOM(&p->scratch, p->slab, p->n_slabs, p->cap_slabs) ? 0 : -ENOMEM);
		p->slab[p->n_slabs++] = s;
	}
	return 0;
}

static int pair_add(struct proving *p, const struct uns_tensor *weight, const struct uns_tensor *master)
{
	struct job job = { .weight = weight, .master = master, .first_slab = p->n_slabs };
	const struct uns_piece *piece = &p->cat->pieces[master->first_piece];
	uint32_t i;

	UNS_TRY(slabs_add(p, weight, &job.slab_elems));
	for (i = 0; i < master->n_pieces; i++) {
		job.piece = &piece[i];
		job.is_copy = i && uns_same_elements(&piece[i - 1], &piece[i]);
		UNS_TRY(UNS_ARENA_ROOM(&p->scratch, p->job, p->n_jobs, p->cap_jobs) ? 0 : -ENOMEM);
		p->job[p->n_jobs++] = job;
		p->found->n_elems += uns_piece_elems(&piece[i]);
	}
	p->found->n_parameters++;
	return 0;
}

static int refuse(struct proving *p, const struct uns_tensor *t, struct uns_err *err)
{
	return UNS_CATALOG_FAIL(p->cat, err, MEGATRON_BUCKETS_DISPROVEN, .scope = UNS_SCOPE_OPTIMIZER,
				.tensor = t->name);
}

/* Every fp32 copy has a weight of its shape, and every state an fp32 copy. */
static int pairs_find(struct proving *p, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map weights = UNS_MAP_INIT;
	UNS_CLEANUP(uns_map_fini) struct uns_map masters = UNS_MAP_INIT;
	const struct uns_tensor *t = p->cat->tensors, *end = t + p->cat->n_tensors, *weight;

	for (; t < end; t++)
		if (t->role == UNS_ROLE_WEIGHT || t->role == UNS_ROLE_MASTER)
			UNS_TRY_ALLOC(
				uns_map_put(t->role == UNS_ROLE_WEIGHT ? &weights : &masters, t->name, (void *)t, NULL),
				err);
	for (t = p->cat->tensors; t < end; t++) {
		if (!uns_role_is_optimizer(t->role))
			continue;
		if (t->role != UNS_ROLE_MASTER) {
			if (!uns_map_get(&masters, t->name))
				return refuse(p, t, err);
			continue;
		}
		weight = uns_map_get(&weights, t->name);
		if (!weight || !uns_shape_equal(&weight->shape, &t->shape) || !t->n_pieces ||
		    !uns_cast_exists(t->dtype, weight->dtype))
			return refuse(p, t, err);
		UNS_TRY_ALLOC(pair_add(p, weight, t) == 0, err);
	}
	return 0;
}

/* -- comparing -- */

/* A tensor's elements as one file. */
static int layout_of(struct proving *p, const struct uns_tensor *t, enum uns_dtype out, struct uns_arena *arena,
		     struct uns_layout *layout, struct uns_err *err)
{
	struct uns_layout_builder building = { .arena = arena };

	uns_layout_tensor(&building, t, 0, uns_shape_elems(&t->shape), out);
	return uns_layout_build(&building, p->cat, layout, err);
}

static int elements_read(struct proving *p, const struct uns_layout *layout, uint8_t *dst, uint64_t len, uint64_t at,
			 struct uns_err *err)
{
	const ssize_t n = uns_read(p->backing, layout, dst, (size_t)len, at, err);

	if (n < 0)
		return (int)n;
	return (uint64_t)n == len ? 0 : uns_fail(err, -EIO, "a tensor ended before its last element");
}

/* The elements of one weight, at the places that a piece of the fp32 copy has. */
struct walk {
	struct uns_layout layout;
	struct uns_stretches stretches;
	uint64_t stretch, within; /* where the next element is */
};

static uint64_t element_bits(const uint8_t *p, size_t size)
{
	uint64_t v = 0;

	memcpy(&v, p, size < sizeof(v) ? size : sizeof(v));
	return v;
}

static uint64_t element_hash(uint64_t value, uint64_t at)
{
	uint64_t h = (value + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ at * UINT64_C(0xc2b2ae3d27d4eb4f);

	h = (h ^ h >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
	return h ^ h >> 32;
}

static void elements_hash(struct proving *p, const struct job *job, const uint8_t *weight, uint64_t first, uint64_t n)
{
	const size_t size = uns_dtype_size(job->weight->dtype);
	uint64_t i, slab = first / job->slab_elems, at = first % job->slab_elems, sum = 0;

	for (i = 0; i < n; i++, at++) {
		if (at == job->slab_elems) {
			__atomic_add_fetch(&p->slab[job->first_slab + slab++].hash, sum, __ATOMIC_RELAXED);
			at = sum = 0;
		}
		sum += element_hash(element_bits(weight + i * size, size), at);
	}
	__atomic_add_fetch(&p->slab[job->first_slab + slab].hash, sum, __ATOMIC_RELAXED);
}

/* Reads the next n elements of the weight. */
static int weight_read(struct proving *p, const struct job *job, struct walk *walk, uint8_t *dst, uint64_t n,
		       struct uns_err *err)
{
	const size_t size = uns_dtype_size(job->weight->dtype);
	uint64_t first, now;

	for (; n; n -= now, dst += now * size) {
		first = uns_stretches_at(&walk->stretches, walk->stretch) + walk->within;
		now = uns_u64_min(n, walk->stretches.stretch_elems - walk->within);
		UNS_TRY(elements_read(p, &walk->layout, dst, now * size, first * size, err));
		if (!job->is_copy)
			elements_hash(p, job, dst, first, now);
		walk->within += now;
		if (walk->within == walk->stretches.stretch_elems) {
			walk->within = 0;
			walk->stretch++;
		}
	}
	return 0;
}

/* The fp32 copy's piece as a tensor of its own. */
static struct uns_tensor piece_tensor(const struct job *job, struct uns_piece *piece, struct uns_box *box)
{
	struct uns_tensor t = *job->master;

	*box = *job->piece->box;
	memset(box->lo, 0, sizeof(box->lo));
	*piece = *job->piece;
	piece->box = box;
	t.shape = (struct uns_shape){ .n = box->n };
	memcpy(t.shape.dim, box->len, box->n * sizeof(*box->len));
	t.own = piece;
	t.n_pieces = 1;
	return t;
}

static bool is_refuted(struct proving *p, const struct job *job)
{
	bool before;

	pthread_mutex_lock(&p->lock);
	before = p->different && p->different < job;
	pthread_mutex_unlock(&p->lock);
	return before;
}

static void refute(struct proving *p, const struct job *job, uint64_t at)
{
	pthread_mutex_lock(&p->lock);
	if (!p->different || job < p->different) {
		p->different = job;
		p->at = at;
	}
	pthread_mutex_unlock(&p->lock);
}

/* Compares a block of elements after the other: those of the fp32 copy, which are rounded when they are read. */
static int piece_compare(struct proving *p, const struct job *job, uint8_t *rounded, uint8_t *weight,
			 struct uns_arena *arena, struct uns_err *err)
{
	struct walk walk = { .stretches = uns_stretches_of_piece(&job->master->shape, job->piece) }, before;
	const size_t size = uns_dtype_size(job->weight->dtype);
	const uint64_t elems = uns_piece_elems(job->piece);
	struct uns_piece piece;
	struct uns_box box;
	const struct uns_tensor tensor = piece_tensor(job, &piece, &box);
	struct uns_layout master;
	uint64_t done, n, i;

	UNS_TRY(layout_of(p, job->weight, job->weight->dtype, arena, &walk.layout, err));
	UNS_TRY(layout_of(p, &tensor, job->weight->dtype, arena, &master, err));
	for (done = 0; done < elems && !is_refuted(p, job); done += n) {
		n = uns_u64_min(BLOCK_ELEMS, elems - done);
		before = walk;
		UNS_TRY(elements_read(p, &master, rounded, n * size, done * size, err));
		UNS_TRY(weight_read(p, job, &walk, weight, n, err));
		if (memcmp(rounded, weight, n * size) == 0)
			continue;
		for (i = 0; memcmp(rounded + i * size, weight + i * size, size) == 0; i++)
			;
		i += before.within;
		refute(p, job,
		       uns_stretches_at(&walk.stretches, before.stretch + i / walk.stretches.stretch_elems) +
			       i % walk.stretches.stretch_elems);
		return 0;
	}
	return 0;
}

static int job_do(void *ctx, size_t i, struct uns_err *err)
{
	struct proving *p = ctx;
	const struct job *job = &p->job[i];
	const size_t block = BLOCK_ELEMS * uns_dtype_size(job->weight->dtype);
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_free_p) uint8_t *buf = malloc(2 * block);

	UNS_TRY_ALLOC(buf, err);
	return piece_compare(p, job, buf, buf + block, &arena, err);
}

/* -- what equal parameters leave open -- */

static uint64_t part_of(const struct slab *s)
{
	return ((uint64_t)s->place.where << 48) + ((uint64_t)s->place.at[0] << 16) + s->place.of_expert * 4 +
	       s->place.half;
}

static int compare_u64(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

/* By which part of a layer it is, then by layer and expert. */
static int compare_slabs(const void *a, const void *b)
{
	const struct slab *x = a, *y = b;
	int order = compare_u64(part_of(x), part_of(y));

	order = order ? order : compare_u64(x->layer, y->layer);
	return order ? order : compare_u64(x->expert, y->expert);
}

static int twice(struct proving *p, const struct slab *a, const struct slab *b, const char *what, struct uns_err *err)
{
	return UNS_CATALOG_FAIL(p->cat, err, MEGATRON_BUCKETS_TWICE, .scope = UNS_SCOPE_OPTIMIZER,
				.tensor = a->weight->name,
				.arg = { { "other_tensor", uns_str(b->weight->name) }, { "what", uns_str(what) } });
}

/* Are two parts of equal size equal wherever both are? They are `n` and `m` slabs. */
static bool parts_are_equal(const struct slab *a, size_t n, const struct slab *b, size_t m)
{
	size_t i = 0, k = 0;
	int order;

	if (a->elems != b->elems || a->place.where != b->place.where || a->place.is_expert != b->place.is_expert)
		return false;
	while (i < n && k < m) {
		order = compare_u64(a[i].layer, b[k].layer);
		order = order ? order : compare_u64(a[i].expert, b[k].expert);
		if (order == 0 && a[i].hash != b[k].hash)
			return false;
		i += order <= 0;
		k += order >= 0;
	}
	return true;
}

static size_t part_end(const struct proving *p, size_t i)
{
	const uint64_t part = part_of(&p->slab[i]);

	while (i < p->n_slabs && part_of(&p->slab[i]) == part)
		i++;
	return i;
}

static int parts_check(struct proving *p, struct uns_err *err)
{
	size_t i, end, k, last;

	for (i = 0; i < p->n_slabs; i = end) {
		end = part_end(p, i);
		for (k = end; k < p->n_slabs; k = last) {
			last = part_end(p, k);
			if (parts_are_equal(&p->slab[i], end - i, &p->slab[k], last - k))
				return twice(p, &p->slab[i], &p->slab[k], "", err);
		}
	}
	return 0;
}

/* All that a layer has, or all that one of its experts has. */
struct whole {
	uint64_t layer, expert, hash;
	const struct slab *first;
};

static int compare_wholes(const void *a, const void *b)
{
	const struct whole *x = a, *y = b;
	int order = compare_u64(x->layer, y->layer);

	return order ? order : compare_u64(x->expert, y->expert);
}

static int compare_hashes(const void *a, const void *b)
{
	const struct whole *x = a, *y = b;
	int order = compare_u64(x->hash, y->hash);

	return order ? order : compare_wholes(a, b);
}

/* Slabs that have equal numbers become one. */
static size_t wholes_join(struct whole *v, size_t n)
{
	size_t i, n_joined = 0;

	qsort(v, n, sizeof(*v), compare_wholes);
	for (i = 0; i < n; i++)
		if (n_joined && compare_wholes(&v[n_joined - 1], &v[i]) == 0)
			v[n_joined - 1].hash += v[i].hash;
		else
			v[n_joined++] = v[i];
	return n_joined;
}

/* Two layers, or two experts of a layer, of which everything is equal. */
static int wholes_check(struct proving *p, bool of_experts, struct uns_err *err)
{
	struct whole *v = UNS_NEW_N(&p->scratch, struct whole, p->n_slabs + 1);
	const struct slab *s = p->slab, *end = s + p->n_slabs;
	const char *what;
	size_t n = 0, i;

	UNS_TRY_ALLOC(v, err);
	for (; s < end; s++)
		if (s->place.where == UNS_MG_LAYER && (s->place.is_expert || !of_experts))
			v[n++] = (struct whole){ .layer = s->layer,
						 .expert = of_experts ? s->expert : 0,
						 .hash = element_hash(s->hash,
								      part_of(s) + (of_experts ? 0 : s->expert << 32)),
						 .first = s };
	n = wholes_join(v, n);
	qsort(v, n, sizeof(*v), compare_hashes);
	for (i = 1; i < n; i++) {
		if (v[i - 1].hash != v[i].hash || (of_experts && v[i - 1].layer != v[i].layer))
			continue;
		what = of_experts
			       ? uns_arena_printf(&p->found->arena, " (experts %llu and %llu of layer %llu)",
						  (unsigned long long)v[i - 1].expert, (unsigned long long)v[i].expert,
						  (unsigned long long)v[i].layer)
			       : uns_arena_printf(&p->found->arena, " (layers %llu and %llu)",
						  (unsigned long long)v[i - 1].layer, (unsigned long long)v[i].layer);
		UNS_TRY_ALLOC(what, err);
		return twice(p, v[i - 1].first, v[i].first, what, err);
	}
	return 0;
}

static int places_check(struct proving *p, struct uns_err *err)
{
	qsort(p->slab, p->n_slabs, sizeof(*p->slab), compare_slabs);
	UNS_TRY(parts_check(p, err));
	UNS_TRY(wholes_check(p, false, err));
	return wholes_check(p, true, err);
}

/* -- all of it -- */

static int compare_all(struct proving *p, struct uns_err *err)
{
	UNS_TRY(pairs_find(p, err));
	UNS_TRY(uns_pool_each(uns_engine_pool(p->engine), p->n_jobs, job_do, p, err));
	if (!p->different)
		return places_check(p, err);
	return UNS_CATALOG_FAIL(p->cat, err, MEGATRON_BUCKETS_DISPROVEN, .scope = UNS_SCOPE_OPTIMIZER,
				.tensor = p->different->master->name, .rank = uns_rank(p->different->piece->rank),
				.file = p->cat->files[p->different->piece->file].path,
				.arg = { { "element", uns_num(p->at) } });
}

int masters_prove(struct uns_engine *engine, const struct uns_catalog *cat, struct uns_backing *backing,
		  struct masters_found *out, struct uns_err *err)
{
	UNS_CLEANUP(proving_fini)
	struct proving p = {
		.cat = cat, .engine = engine, .backing = backing, .found = out, .lock = PTHREAD_MUTEX_INITIALIZER
	};
	struct uns_err why = { .keep = &out->arena };
	int code = compare_all(&p, &why);

	UNS_TRY(uns_fail_if_passing(err, code, &why));
	out->disproof = code < 0 ? why.finding : NULL;
	return 0;
}

void masters_pack(const struct masters_found *found, struct uns_text *out)
{
	uns_text_printf(out, "%llu %llu", (unsigned long long)found->n_parameters, (unsigned long long)found->n_elems);
}

bool masters_unpack(struct uns_span in, struct masters_found *out)
{
	char text[64];
	unsigned long long parameters, elems;
	const size_t len = uns_span_left(&in);

	if (!len || len >= sizeof(text))
		return false;
	memcpy(text, in.p, len);
	text[len] = '\0';
	if (sscanf(text, "%llu %llu", &parameters, &elems) != 2)
		return false;
	out->n_parameters = parameters;
	out->n_elems = elems;
	return true;
}
