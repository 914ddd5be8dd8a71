/* Each file is cut into stretches, and the pool reads them in blocks. A block is read once: it counts towards the CRCs
 * of the records that it belongs to, and is searched for NaN and infinity in the tensors that it belongs to. A record
 * that spans several stretches has one share in each; their CRCs combine to its own. Compressed pieces and those with
 * gaps are decoded first and then treated alike. */
#include "verify/verify_read.h"

#include <stdlib.h>
#include <zlib.h>

#include "base/array.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/search.h"
#include "engine/decode.h"
#include "engine/source_read.h"

/* A block is read with a few bytes more: an element is looked at in the block that holds its first byte. */
enum { MAX_ELEM_BYTES = 16 };

/* What one stretch holds of a record. */
struct share {
	uint32_t crc;
	uint64_t len;
	bool unread;
};

enum job_kind { STRETCH, DECODED, VALUE };

struct job {
	enum job_kind kind;
	uint32_t file;
	size_t index; /* DECODED, VALUE: in the file's list. STRETCH: the first record */
	uint64_t at, len;
	struct share *share; /* STRETCH: of records index, index + 1, .. */
	size_t n_shares;
};

struct reading {
	struct uns_verify *v;
	struct uns_arena arena;
	struct job *job;
	size_t n, cap;
};

static void reading_fini(struct reading *r)
{
	free(r->job);
	uns_arena_fini(&r->arena);
}

int uns_verify_step(struct uns_verify *v, uint64_t n_bytes, struct uns_err *err)
{
	uint64_t done = atomic_fetch_add(&v->done_bytes, n_bytes) + n_bytes;

	if (v->watch && pthread_mutex_trylock(&v->asking) == 0) {
		if (!v->stopped && v->watch->asked(v->watch->ctx, done, atomic_load(&v->total_bytes)))
			v->stopped = true;
		pthread_mutex_unlock(&v->asking);
	}
	return v->stopped ? uns_fail(err, -EINTR, "interrupted") : 0;
}

/* A read failed: note it with the file. Memory that ran out and an interruption are no fault of
 * the file, and end the verification. */
static int note_unreadable(struct uns_verify *v, struct uns_verify_file *f, const struct uns_err *why,
			   struct uns_err *err)
{
	int code;

	if (why->code == -ENOMEM || why->code == -EINTR)
		return uns_fail_copy(err, why);
	pthread_mutex_lock(&v->lock);
	uns_verify_unreadable(f, why->text);
	code = uns_arena_check(&f->arena, err);
	pthread_mutex_unlock(&v->lock);
	return code;
}

/* -- jobs for the pool: what is to be read -- */

/* The first record that ends behind byte `at`. */
static size_t record_at(const struct uns_verify_file *f, uint64_t at)
{
	size_t i;

	UNS_SEARCH(i, f->n_records, f->record[i].at + f->record[i].len <= at);
	return i;
}

static uint64_t decoded_bytes(const struct uns_verify_decoded *d)
{
	return uns_piece_elems(d->piece) * uns_dtype_size(d->tensor->dtype);
}

/* NULL = out of memory. */
static struct job *add_job(struct reading *r, enum job_kind kind, uint32_t file, size_t index)
{
	if (!UNS_HEAP_ROOM(r->job, r->n, r->cap))
		return NULL;
	r->job[r->n] = (struct job){ .kind = kind, .file = file, .index = index };
	return &r->job[r->n++];
}

/* Cuts a file's areas into stretches; decoded pieces and values are jobs as they are. */
static int add_file(struct reading *r, uint32_t file, struct uns_err *err)
{
	const struct uns_verify_file *f = &r->v->file[file];
	const struct uns_verify_area *area;
	struct job *job;
	uint64_t at;
	size_t i;

	for (area = f->area; area < f->area + f->n_areas; area++) {
		for (at = area->at; at < area->at + area->len; at += job->len) {
			UNS_TRY_ALLOC(job = add_job(r, STRETCH, file, record_at(f, at)), err);
			job->at = at;
			job->len = uns_u64_min(UNS_VERIFY_STRETCH_BYTES, area->at + area->len - at);
			for (i = job->index; i < f->n_records && f->record[i].at < at + job->len; i++)
				job->n_shares++;
			UNS_TRY_ALLOC(job->share = UNS_NEW_N(&r->arena, struct share, job->n_shares), err);
		}
		atomic_fetch_add(&r->v->total_bytes, area->len);
	}
	for (i = 0; i < f->n_decoded; i++) {
		UNS_TRY_ALLOC(add_job(r, DECODED, file, i), err);
		atomic_fetch_add(&r->v->total_bytes, decoded_bytes(&f->decoded[i]));
	}
	for (i = 0; i < f->n_values; i++)
		UNS_TRY_ALLOC(add_job(r, VALUE, file, i), err);
	return 0;
}

/* -- blocks of a stretch -- */

struct block {
	const uint8_t *bytes;
	uint64_t at, end; /* of the file; a few bytes behind `end` are there too */
	uint64_t held;    /* end of those */
};

static void crc_block(const struct uns_verify_file *f, struct job *job, const struct block *b)
{
	size_t i = record_at(f, b->at), k;
	uint64_t lo, hi;

	for (; i < f->n_records && f->record[i].at < b->end; i++) {
		const struct uns_verify_record *rec = &f->record[i];

		k = i - job->index;
		lo = uns_u64_max(rec->at, b->at);
		hi = uns_u64_min(rec->at + rec->len, b->end);
		if (hi <= lo || !rec->expected)
			continue;
		job->share[k].crc = (uint32_t)crc32_z(job->share[k].crc, b->bytes + (lo - b->at), (z_size_t)(hi - lo));
		job->share[k].len += hi - lo;
	}
}

/* Count NaNs and infinities among the elements whose first byte lies in the block. */
static void look_at_span(struct uns_verify *v, struct uns_verify_span *span, const struct block *b)
{
	size_t size = uns_dtype_size(span->dtype);
	uint64_t lo = b->at > span->at ? (b->at - span->at + size - 1) / size : 0;
	uint64_t hi = (uns_u64_min(b->end, span->at + span->len) - span->at + size - 1) / size;
	struct uns_nonfinite seen = { 0 };

	if (hi > lo && span->at + hi * size > b->held)
		hi = (b->held - span->at) / size;
	if (hi <= lo)
		return;
	uns_nonfinite_count(span->dtype, b->bytes + (span->at + lo * size - b->at), (size_t)(hi - lo), lo, &seen);
	if (!seen.n_nan && !seen.n_inf)
		return;
	pthread_mutex_lock(&v->lock);
	if (span->seen.n_nan + span->seen.n_inf == 0 || seen.first < span->seen.first)
		span->seen.first = seen.first;
	span->seen.n_nan += seen.n_nan;
	span->seen.n_inf += seen.n_inf;
	pthread_mutex_unlock(&v->lock);
}

/* Where the block's last byte is that is not zero. */
static void end_block(struct uns_verify_file *f, const struct block *b)
{
	uint64_t end = b->end, seen = atomic_load(&f->end);

	while (end > b->at && end > seen && !b->bytes[end - 1 - b->at])
		end--;
	while (end > b->at && end > seen && !atomic_compare_exchange_weak(&f->end, &seen, end))
		;
}

static int read_block(struct uns_verify *v, struct uns_verify_file *f, struct job *job, uint64_t done, uint8_t *buf,
		      struct uns_err *err)
{
	struct block b = { .bytes = buf, .at = job->at + done };
	struct uns_err why = { 0 };
	size_t i;

	b.end = b.at + uns_u64_min(UNS_VERIFY_BLOCK_BYTES, job->len - done);
	b.held = uns_u64_min(b.end + MAX_ELEM_BYTES - 1, uns_u64_max(b.end, v->b->cat->files[job->file].stat.id.size));
	if (uns_source_pread(v->b, job->file, buf, (size_t)(b.held - b.at), b.at, &why) < 0)
		return uns_fail_copy(err, &why);
	crc_block(f, job, &b);
	if (f->is_unchecked)
		end_block(f, &b);
	UNS_SEARCH(i, f->n_spans, f->reach[i] <= b.at); /* the first that may end behind the block's start */
	for (; i < f->n_spans && f->span[i].at < b.end; i++)
		if (f->span[i].at + f->span[i].len > b.at)
			look_at_span(v, &f->span[i], &b);
	return uns_verify_step(v, b.end - b.at, err);
}

static int read_stretch(struct uns_verify *v, struct job *job, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) uint8_t *buf = malloc(UNS_VERIFY_BLOCK_BYTES + MAX_ELEM_BYTES);
	struct uns_verify_file *f = &v->file[job->file];
	struct uns_err why = { 0 };
	uint64_t done;
	size_t i;

	UNS_TRY_ALLOC(buf, err);
	for (done = 0; done < job->len && why.code == 0; done += UNS_VERIFY_BLOCK_BYTES)
		read_block(v, f, job, done, buf, &why);
	if (why.code == 0)
		return 0;
	for (i = 0; i < job->n_shares; i++)
		job->share[i].unread = true;
	return note_unreadable(v, f, &why, err);
}

/* -- decoded pieces -- */

static int read_cached(struct uns_verify *v, struct uns_verify_decoded *d, struct uns_cached *e, struct uns_err *err)
{
	size_t size = uns_dtype_size(d->tensor->dtype), n;
	uint64_t bytes = decoded_bytes(d), at;
	UNS_CLEANUP(uns_free_p) uint8_t *buf = malloc(UNS_VERIFY_BLOCK_BYTES);
	struct uns_location where;

	UNS_TRY_ALLOC(buf, err);
	if (uns_location_known(v->b, d->piece, &where) && d->piece->codec != UNS_CODEC_NONE)
		d->expected = where.crc32;
	for (at = 0; at < bytes; at += n) {
		n = (size_t)uns_u64_min(UNS_VERIFY_BLOCK_BYTES, bytes - at);
		UNS_TRY(uns_cached_read(e, buf, n, at, err));
		d->crc = (uint32_t)crc32_z(d->crc, buf, n);
		uns_nonfinite_count(d->tensor->dtype, buf, n / size, at / size, &d->seen);
		UNS_TRY(uns_verify_step(v, n, err));
	}
	return 0;
}

static int read_decoded(struct uns_verify *v, struct uns_verify_file *f, size_t index, struct uns_err *err)
{
	struct uns_verify_decoded *d = &f->decoded[index];
	struct uns_cached *e = NULL;
	struct uns_err why = { 0 };
	int code = uns_decode(v->b, d->tensor, d->piece, &e, &why);

	if (code >= 0) {
		code = read_cached(v, d, e, &why);
		uns_cache_put(v->b->engine->cache, e);
	}
	if (code >= 0)
		return 0;
	d->expected = 0;
	return note_unreadable(v, f, &why, err);
}

/* A compressed object is parsed whole: that compares its CRCs. */
static int read_value(struct uns_verify *v, struct uns_verify_file *f, size_t index, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_value *unused;
	struct uns_err why = { 0 };

	if (uns_backing_value(v->b, f->value[index], &arena, &unused, &why) < 0)
		return note_unreadable(v, f, &why, err);
	return uns_verify_step(v, 0, err);
}

static int run_job(void *ctx, size_t i, struct uns_err *err)
{
	struct reading *r = ctx;
	struct job *job = &r->job[i];
	struct uns_verify_file *f = &r->v->file[job->file];

	if (job->kind == STRETCH)
		return read_stretch(r->v, job, err);
	if (job->kind == DECODED)
		return read_decoded(r->v, f, job->index, err);
	return read_value(r->v, f, job->index, err);
}

/* -- the CRCs of records, combined from those of their shares: stretches of a file are in order -- */

static void combine_shares(struct reading *r)
{
	const struct job *job = r->job, *end = job + r->n;
	struct uns_verify_record *rec;
	size_t i;

	for (; job < end; job++)
		for (i = 0; i < job->n_shares; i++) {
			rec = &r->v->file[job->file].record[job->index + i];
			rec->unread |= job->share[i].unread;
			rec->crc = (uint32_t)crc32_combine64(rec->crc, job->share[i].crc, (z_off64_t)job->share[i].len);
		}
}

int uns_verify_read(struct uns_verify *v, struct uns_err *err)
{
	UNS_CLEANUP(reading_fini) struct reading r = { .v = v };
	size_t i;

	for (i = 0; i < v->b->cat->n_files; i++)
		UNS_TRY(add_file(&r, (uint32_t)i, err));
	UNS_TRY(uns_pool_each(v->b->engine->pool, r.n, run_job, &r, err));
	combine_shares(&r);
	return 0;
}
