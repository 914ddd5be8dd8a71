/* Weights are compared with the fp32 copies that the optimizer trains: a weight must be its copy, rounded to the
 * weight's type. Tensors are cut into chunks for the pool, chunks into blocks for the memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "engine/cast.h"
#include "engine/gather.h"
#include "verify/verify_read.h"
#include "model/cover.h"

enum { BLOCK_ELEMS = 32 << 10, CHUNK_ELEMS = 4 << 20 };

/* -- which -- */

/* Both are complete, and the master's type can be rounded to the weight's. A tensor that is not
 * complete is reported elsewhere. */
static int pair_fits(const struct uns_catalog *cat, const struct uns_tensor *weight, const struct uns_tensor *master,
		     struct uns_err *err)
{
	struct uns_err why = { 0 };
	int code;

	if (!weight->n_pieces || !master->n_pieces || !uns_dtype_info(weight->dtype)->is_float ||
	    !uns_cast_exists(master->dtype, weight->dtype) ||
	    uns_shape_elems(&weight->shape) != uns_shape_elems(&master->shape))
		return 0;
	code = uns_cover_check(cat, weight, &why);
	if (code == 0)
		code = uns_cover_check(cat, master, &why);
	return code < 0 ? uns_fail_if_passing(err, code, &why) : 1;
}

int uns_verify_pairs_find(const struct uns_catalog *cat, struct uns_arena *arena, struct uns_verify_pairs *out,
			  struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map masters = UNS_MAP_INIT;
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors, *master;
	int fit;

	for (; t < end; t++)
		if (t->role == UNS_ROLE_MASTER && !uns_map_put(&masters, t->name, (void *)t, NULL))
			return uns_oom(err);
	if (!masters.n)
		return 0;
	UNS_TRY_ALLOC(out->v = UNS_NEW_N(arena, struct uns_verify_pair, cat->n_tensors), err);
	for (t = cat->tensors; t < end; t++) {
		master = t->role == UNS_ROLE_WEIGHT ? uns_map_get(&masters, t->name) : NULL;
		if (!master)
			continue;
		UNS_TRY(fit = pair_fits(cat, t, master, err));
		if (fit)
			out->v[out->n++] = (struct uns_verify_pair){ .weight = t, .master = master };
	}
	return 0;
}

uint64_t uns_verify_pairs_bytes(const struct uns_verify_pairs *pairs)
{
	const struct uns_verify_pair *p = pairs->v, *end = p + pairs->n;
	uint64_t sum = 0;

	for (; p < end; p++)
		sum += uns_shape_elems(&p->weight->shape) *
		       (uns_dtype_size(p->weight->dtype) + uns_dtype_size(p->master->dtype));
	return sum;
}

/* -- comparing -- */

struct chunk {
	struct uns_verify_pair *pair;
	uint64_t first, n; /* elements */
};

struct comparing {
	struct uns_verify *v;
	struct uns_verify_pairs *pairs;
	struct chunk *chunk;
	size_t n;
};

static void comparing_fini(struct comparing *c)
{
	free(c->chunk);
}

/* n elements of each. */
struct block {
	uint8_t *master, *weight, *rounded;
	uint64_t first;
	size_t n;
};

static double element_number(enum uns_dtype t, const void *p)
{
	double d;

	uns_cast(t, p, UNS_F64, &d, 1);
	return d;
}

static void note_different(struct uns_verify *v, struct uns_verify_pair *pair, const struct block *b, size_t first,
			   uint64_t n)
{
	enum uns_dtype w = pair->weight->dtype, m = pair->master->dtype;

	pthread_mutex_lock(&v->lock);
	if (!pair->n_different || b->first + first < pair->first) {
		pair->first = b->first + first;
		pair->at_master = element_number(m, b->master + first * uns_dtype_size(m));
		pair->expected = element_number(w, b->rounded + first * uns_dtype_size(w));
		pair->found = element_number(w, b->weight + first * uns_dtype_size(w));
	}
	pair->n_different += n;
	pthread_mutex_unlock(&v->lock);
}

static void compare_block(struct uns_verify *v, struct uns_verify_pair *pair, const struct block *b)
{
	enum uns_dtype t = pair->weight->dtype;
	size_t size = uns_dtype_size(t), i, first = 0;
	uint64_t n = 0;

	uns_cast(pair->master->dtype, b->master, t, b->rounded, b->n);
	if (memcmp(b->rounded, b->weight, b->n * size) == 0)
		return;
	for (i = 0; i < b->n; i++) {
		const uint8_t *x = b->rounded + i * size, *y = b->weight + i * size;

		if (memcmp(x, y, size) == 0)
			continue;
		if (isnan(element_number(t, x)) && isnan(element_number(t, y))) /* NaNs are reported as such */
			continue;
		if (!n++)
			first = i;
	}
	if (n)
		note_different(v, pair, b, first, n);
}

static int read_chunk(struct uns_verify *v, const struct chunk *p, uint8_t *buf, struct uns_err *err)
{
	struct uns_gather weight = uns_gather_of(v->b, p->pair->weight);
	struct uns_gather master = uns_gather_of(v->b, p->pair->master);
	size_t w = uns_dtype_size(p->pair->weight->dtype);
	size_t m = uns_dtype_size(p->pair->master->dtype);
	struct block b = { .master = buf, .weight = buf + BLOCK_ELEMS * m, .rounded = buf + BLOCK_ELEMS * (m + w) };
	uint64_t done;

	for (done = 0; done < p->n; done += b.n) {
		b.first = p->first + done;
		b.n = (size_t)uns_u64_min(BLOCK_ELEMS, p->n - done);
		UNS_TRY(uns_gather_bytes(&master, b.master, b.first * m, b.n * m, err));
		UNS_TRY(uns_gather_bytes(&weight, b.weight, b.first * w, b.n * w, err));
		compare_block(v, p->pair, &b);
		UNS_TRY(uns_verify_step(v, b.n * (m + w), err));
	}
	return 0;
}

/* What cannot be read was reported when the files were read. */
static int compare_chunk(void *ctx, size_t i, struct uns_err *err)
{
	struct comparing *c = ctx;
	const struct chunk *p = &c->chunk[i];
	UNS_CLEANUP(uns_free_p)
	uint8_t *buf = malloc(BLOCK_ELEMS * (2 * (size_t)uns_dtype_size(p->pair->weight->dtype) +
					     uns_dtype_size(p->pair->master->dtype)));
	struct uns_err why = { 0 };
	int code;

	UNS_TRY_ALLOC(buf, err);
	code = read_chunk(c->v, p, buf, &why);
	if (code == -ENOMEM || code == -EINTR)
		return uns_fail_copy(err, &why);
	return 0;
}

/* Cut all pairs into chunks. */
static int cut_pairs(struct comparing *c)
{
	uint64_t at, elems;
	size_t i, cap = 0;

	for (i = 0; i < c->pairs->n; i++) {
		elems = uns_shape_elems(&c->pairs->v[i].weight->shape);
		for (at = 0; at < elems; at += CHUNK_ELEMS) {
			if (!UNS_HEAP_ROOM(c->chunk, c->n, cap))
				return -ENOMEM;
			c->chunk[c->n++] = (struct chunk){ &c->pairs->v[i], at, uns_u64_min(CHUNK_ELEMS, elems - at) };
		}
	}
	return 0;
}

int uns_verify_pairs_compare(struct uns_verify *v, struct uns_verify_pairs *pairs, struct uns_err *err)
{
	UNS_CLEANUP(comparing_fini) struct comparing c = { .v = v, .pairs = pairs };

	if (cut_pairs(&c) < 0)
		return uns_oom(err);
	return uns_pool_each(v->b->engine->pool, c.n, compare_chunk, &c, err);
}
