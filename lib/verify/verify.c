/* A verification in four steps: plan what to read of each file (verify_plan.c), read it and note
 * what is wrong (verify_read.c), compare weights with their fp32 copies (verify_master.c), and
 * report the flaws in the order of files and tensors (here). */
#include "verify/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "io/source.h"
#include "verify/verify_read.h"
#include "model/cover.h"

enum { LEAST_ZEROS = 4096 }; /* bytes */

static void verify_fini(struct uns_verify *v)
{
	size_t i;

	for (i = 0; v->file && i < v->b->cat->n_files; i++)
		uns_arena_fini(&v->file[i].arena);
	free(v->file);
	pthread_mutex_destroy(&v->lock);
	pthread_mutex_destroy(&v->asking);
}

/* -- planning -- */

struct planning {
	struct uns_verify *v;
	struct uns_verify_where where;
};

static int forget_pages(void *ctx, int fd, struct uns_err *err)
{
	const struct uns_file *file = ctx;

	(void)err;
	uns_fd_forget_pages(fd, &file->stat.id);
	return 0;
}

/* What storage holds is verified, not what this kernel may have kept from a moment at which another node wrote. */
static int plan_one(void *ctx, size_t i, struct uns_err *err)
{
	struct planning *p = ctx;
	struct uns_backing *b = p->v->b;

	UNS_TRY(uns_verify_step(p->v, 0, err));
	if (!b->cat->files[i].missing)
		uns_backing_lend(b, (uint32_t)i, forget_pages, &b->cat->files[i], NULL);
	return uns_verify_plan(p->v->b, &p->where, (uint32_t)i, &p->v->file[i], err);
}

/* -- reporting: files -- */

struct reporting {
	struct uns_verify *v;
	uns_flaw_visit *visit;
	void *ctx;
};

static int report_record(struct reporting *t, const struct uns_file *file, const struct uns_verify_file *f,
			 const struct uns_verify_record *rec)
{
	const struct uns_verify_span *span = f->span, *end = f->span + f->n_spans;
	struct uns_flaw flaw = {
		.kind = UNS_FLAW_RECORD,
		.file = file,
		.record = rec->name,
		.at_bytes = rec->at,
		.len_bytes = rec->len,
		.crc = rec->crc,
		.expected_crc = rec->expected,
		.rank = -1,
	};

	/* A tensor that has elements in the record is named. */
	while (span < end && span->at < rec->at)
		span++;
	if (span < end && span->at < rec->at + rec->len) {
		flaw.name = span->name;
		flaw.rank = span->piece ? span->piece->rank : -1;
	}
	return t->visit(t->ctx, &flaw);
}

static int report_decoded(struct reporting *t, const struct uns_file *file, const struct uns_verify_decoded *d)
{
	const struct uns_flaw flaw = {
		.kind = UNS_FLAW_RECORD,
		.file = file,
		.at_bytes = d->piece->offset_bytes,
		.len_bytes = d->piece->length_bytes,
		.crc = d->crc,
		.expected_crc = d->expected,
		.tensor = d->tensor,
		.name = d->tensor->key,
		.rank = d->piece->rank,
	};

	return t->visit(t->ctx, &flaw);
}

/* Names that are equal but for their digits: those of two ranks. */
static bool is_other_number(const char *a, const char *b)
{
	bool differ = false;

	while (*a && *b) {
		const size_t n = strspn(a, "0123456789"), m = strspn(b, "0123456789");

		if (!n != !m || (!n && *a != *b))
			return false;
		differ |= n && (n != m || memcmp(a, b, n) != 0);
		a += n ? n : 1;
		b += n ? m : 1;
	}
	return differ && !*a && !*b;
}

/* What is in a file that belongs to one rank, or to one state of a parameter, depends on its name alone. Readers of
 * shards have compared theirs (zero/file.c, ranks). */
static bool is_of_other_name(const struct reporting *t, const struct uns_file *file, const struct uns_verify_file *f)
{
	const struct uns_catalog *cat = t->v->b->cat;
	const char *name = uns_path_name(file->path), *dot = strrchr(name, '.');
	char stem[256], other[512];
	size_t i;

	if (!f->saved_as || !dot || dot - name >= (int)sizeof(stem) || strlen(f->saved_as) >= sizeof(stem))
		return false;
	memcpy(stem, name, (size_t)(dot - name));
	stem[dot - name] = '\0';
	if (strcmp(stem, f->saved_as) == 0 || cat->summary.family != UNS_FAMILY_UNIVERSAL)
		return is_other_number(stem, f->saved_as);
	/* A parameter's states have the same names in all directories. */
	snprintf(other, sizeof(other), "/%s%s", f->saved_as, dot);
	for (i = 0; i < cat->n_files; i++)
		if (uns_str_ends(cat->files[i].path, other))
			return true;
	return false;
}

/* The object that a Trainer keeps under the file's name is another one. NULL = it is not. */
static const char *other_object(const struct uns_file *file, const struct uns_verify_file *f)
{
	static const struct {
		enum uns_object is;
		const char *prefix, *called;
	} objects[] = {
		{ UNS_OBJECT_OPTIMIZER, "optimizer", "an optimizer's state" },
		{ UNS_OBJECT_SCHEDULER, "scheduler", "a scheduler's state" },
		{ UNS_OBJECT_RNG, "rng_state", "random states" },
		{ UNS_OBJECT_TENSOR, NULL, "one tensor" },
		{ UNS_OBJECT_WEIGHTS, NULL, "tensors by name alone, as a model's weights" },
	};
	enum { N = sizeof(objects) / sizeof(*objects) };
	const char *called = NULL;
	size_t i, named = N;

	for (i = 0; i < N; i++) {
		if (objects[i].prefix && uns_str_starts(uns_path_name(file->path), objects[i].prefix))
			named = i;
		if (f->holds == objects[i].is)
			called = objects[i].called;
	}
	/* A script may keep an optimizer's state as tensors by name. */
	if (named == N || f->holds == objects[named].is ||
	    (f->holds == UNS_OBJECT_WEIGHTS && objects[named].is == UNS_OBJECT_OPTIMIZER))
		return NULL;
	return called;
}

/* An interrupted copy ends anywhere. One tensor of zeros at the end is no news: biases and adapters begin as zeros. */
static int report_end(struct reporting *t, const struct uns_file *file, const struct uns_verify_file *f)
{
	const uint64_t size = file->stat.id.size, end = f->end;
	const struct uns_verify_span *s = f->span, *of = NULL;
	size_t n = 0;

	for (; s < f->span + f->n_spans; s++) {
		if (s->at + s->len <= end)
			continue;
		of = of ? of : s;
		n++;
	}
	if (!of || size - end < LEAST_ZEROS || (n == 1 && of->at + of->len / 2 >= end))
		return 0;
	return t->visit(
		t->ctx,
		&(struct uns_flaw){
			.kind = UNS_FLAW_ZEROS, .file = file, .name = of->name, .len_bytes = size - end, .rank = -1 });
}

static int report_file(struct reporting *t, size_t index)
{
	const struct uns_file *file = &t->v->b->cat->files[index];
	const struct uns_verify_file *f = &t->v->file[index];
	size_t i;
	int code = 0;

	if (f->n_unreadable)
		code = t->visit(t->ctx, &(struct uns_flaw){ .kind = UNS_FLAW_UNREADABLE,
							    .file = file,
							    .text = f->unreadable[0],
							    .n_more = f->n_unreadable - 1,
							    .rank = -1 });
	for (i = 0; i < f->n_records && code == 0; i++)
		if (f->record[i].expected && !f->record[i].unread && f->record[i].crc != f->record[i].expected)
			code = report_record(t, file, f, &f->record[i]);
	for (i = 0; i < f->n_decoded && code == 0; i++)
		if (f->decoded[i].expected && f->decoded[i].crc != f->decoded[i].expected)
			code = report_decoded(t, file, &f->decoded[i]);
	if (code == 0 && !f->n_unreadable && is_of_other_name(t, file, f))
		code = t->visit(t->ctx,
				&(struct uns_flaw){
					.kind = UNS_FLAW_SAVED_AS, .file = file, .record = f->saved_as, .rank = -1 });
	if (code == 0 && other_object(file, f))
		code = t->visit(t->ctx, &(struct uns_flaw){ .kind = UNS_FLAW_OTHER_OBJECT,
							    .file = file,
							    .record = other_object(file, f),
							    .rank = -1 });
	if (code == 0 && f->is_unchecked && !f->n_unreadable)
		code = report_end(t, file, f);
	if (code == 0 && (f->n_without_crc || f->is_unchecked) && !f->n_unreadable)
		code = t->visit(t->ctx, &(struct uns_flaw){ .kind = UNS_FLAW_NO_CRC, .file = file, .rank = -1 });
	return code;
}

/* -- reporting: tensors -- */

/* For each piece of the catalog the NaNs and infinities that were seen in it; NULL = it was not read. */
static const struct uns_nonfinite **by_piece(const struct uns_verify *v)
{
	const struct uns_nonfinite **seen = calloc(v->b->cat->n_pieces + 1, sizeof(*seen));
	const struct uns_piece *pieces = v->b->cat->pieces;
	size_t i, k;

	for (i = 0; seen && i < v->b->cat->n_files; i++) {
		const struct uns_verify_file *f = &v->file[i];

		for (k = 0; k < f->n_spans; k++)
			if (f->span[k].piece)
				seen[f->span[k].piece - pieces] = &f->span[k].seen;
		for (k = 0; k < f->n_decoded; k++)
			seen[f->decoded[k].piece - pieces] = &f->decoded[k].seen;
	}
	return seen;
}

/* Add what was seen in one piece to the tensor's flaw. Of replicas of the same elements only the
 * worst counts: `worst` is what was added for them so far. */
static void add_piece(const struct uns_catalog *cat, const struct uns_tensor *t, const struct uns_piece *piece,
		      const struct uns_nonfinite *seen, struct uns_nonfinite *worst, struct uns_flaw *flaw)
{
	struct uns_stretches stretches;
	uint64_t first;

	if (seen->n_nan + seen->n_inf == 0)
		return;
	stretches = uns_stretches_of_piece(&t->shape, piece);
	first = uns_stretches_at(&stretches, seen->first / stretches.stretch_elems) +
		seen->first % stretches.stretch_elems;
	if (flaw->n_nan + flaw->n_inf == 0 || first < flaw->first_elem) {
		flaw->first_elem = first;
		flaw->file = &cat->files[piece->file];
		flaw->rank = piece->rank;
	}
	flaw->n_nan += seen->n_nan > worst->n_nan ? seen->n_nan - worst->n_nan : 0;
	flaw->n_inf += seen->n_inf > worst->n_inf ? seen->n_inf - worst->n_inf : 0;
	if (seen->n_nan + seen->n_inf > worst->n_nan + worst->n_inf)
		*worst = *seen;
}

static int report_tensor(struct reporting *t, const struct uns_tensor *tensor, const struct uns_nonfinite *const *seen)
{
	const struct uns_catalog *cat = t->v->b->cat;
	struct uns_flaw flaw = { .kind = UNS_FLAW_NOT_FINITE,
				 .tensor = tensor,
				 .name = tensor->key,
				 .rank = -1,
				 .n_elems = uns_shape_elems(&tensor->shape) };
	struct uns_nonfinite worst = { 0 };
	const struct uns_piece *piece;
	size_t i;

	for (i = 0; i < tensor->n_pieces; i++) {
		piece = &cat->pieces[tensor->first_piece + i];
		if (i && !uns_same_elements(piece, piece - 1))
			worst = (struct uns_nonfinite){ 0 };
		if (seen[piece - cat->pieces])
			add_piece(cat, tensor, piece, seen[piece - cat->pieces], &worst, &flaw);
	}
	return flaw.n_nan + flaw.n_inf ? t->visit(t->ctx, &flaw) : 0;
}

/* -- reporting: weights that are not their rounded copies -- */

/* The piece that serves an element. */
static const struct uns_piece *piece_of(const struct uns_catalog *cat, const struct uns_tensor *t, uint64_t elem)
{
	const struct uns_piece *piece = &cat->pieces[t->first_piece], *end = piece + t->n_pieces;
	struct uns_stretches stretches;
	uint64_t k;

	for (; piece < end; piece++) {
		stretches = uns_stretches_of_piece(&t->shape, piece);
		k = uns_stretches_find(&stretches, elem);
		if (k < stretches.n && uns_stretches_at(&stretches, k) <= elem)
			return piece;
	}
	return &cat->pieces[t->first_piece];
}

static int report_pair(struct reporting *t, const struct uns_verify_pair *p)
{
	const struct uns_catalog *cat = t->v->b->cat;
	const struct uns_piece *weight = piece_of(cat, p->weight, p->first);
	const struct uns_piece *master = piece_of(cat, p->master, p->first);
	const struct uns_flaw flaw = {
		.kind = UNS_FLAW_MASTER,
		.file = &cat->files[weight->file],
		.tensor = p->weight,
		.name = p->weight->key,
		.rank = weight->rank,
		.first_elem = p->first,
		.n_elems = uns_shape_elems(&p->weight->shape),
		.n_different = p->n_different,
		.master_file = &cat->files[master->file],
		.master_rank = master->rank,
		.master = p->at_master,
		.expected = p->expected,
		.found = p->found,
	};

	return t->visit(t->ctx, &flaw);
}

/* -- reporting: shards that are copies of others -- */

enum { LEAST_EQUAL = 1024 }; /* bytes; fewer may be equal by chance */

struct content {
	const struct uns_file *file;
	const struct uns_verify_file *f;
	uint64_t bytes;
	uint32_t crc; /* of its records' lengths and CRCs */
};

static int by_content(const void *a, const void *b)
{
	const struct content *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? -1 : 1;
	if (x->crc != y->crc)
		return x->crc < y->crc ? -1 : 1;
	return (x->file > y->file) - (x->file < y->file);
}

/* Every record was read, and has the CRC that was recorded for it. */
static bool content_of(const struct uns_file *file, const struct uns_verify_file *f, struct content *out)
{
	size_t i;

	*out = (struct content){ .file = file, .f = f };
	for (i = 0; i < f->n_records; i++) {
		const struct uns_verify_record *r = &f->record[i];

		if (r->unread || (r->expected && r->crc != r->expected) || (r->len && !r->expected))
			return false;
		out->bytes += r->len;
		out->crc = (uint32_t)crc32(out->crc, (const uint8_t *)&r->len, sizeof(r->len));
		out->crc = (uint32_t)crc32(out->crc, (const uint8_t *)&r->expected, sizeof(r->expected));
	}
	return f->n_pieces > 1 && !f->n_unreadable && out->bytes >= LEAST_EQUAL;
}

/* Two ranks' shards hold other elements of the same tensors. Replicas are equal by right. */
static bool is_copy(const struct content *a, const struct content *b)
{
	return a->bytes == b->bytes && a->crc == b->crc && a->f->n_pieces == b->f->n_pieces &&
	       !(a->f->first_tensor == b->f->first_tensor && uns_same_elements(a->f->first_piece, b->f->first_piece));
}

static int report_copies(struct reporting *t, struct uns_err *err)
{
	const struct uns_catalog *cat = t->v->b->cat;
	UNS_CLEANUP(uns_free_p) struct content *v = calloc(cat->n_files + 1, sizeof(*v));
	size_t i, n = 0;
	int code = 0;

	UNS_TRY_ALLOC(v, err);
	if (cat->summary.family == UNS_FAMILY_UNIVERSAL)
		return 0; /* a file for each state of a parameter: many are equal */
	for (i = 0; i < cat->n_files; i++)
		n += content_of(&cat->files[i], &t->v->file[i], &v[n]);
	if (n)
		qsort(v, n, sizeof(*v), by_content);
	for (i = 1; i < n && code == 0; i++)
		if (is_copy(&v[i - 1], &v[i]))
			code = t->visit(t->ctx, &(struct uns_flaw){ .kind = UNS_FLAW_EQUAL,
								    .file = v[i].file,
								    .master_file = v[i - 1].file,
								    .rank = v[i].f->first_piece->rank });
	return code;
}

static int report_all(struct reporting *t, const struct uns_verify_pairs *pairs, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) const struct uns_nonfinite **seen = by_piece(t->v);
	const struct uns_catalog *cat = t->v->b->cat;
	const struct uns_verify_span *s;
	size_t i;
	int code = 0;

	UNS_TRY_ALLOC(seen, err);
	for (i = 0; i < cat->n_files && code == 0; i++)
		code = report_file(t, i);
	if (code == 0)
		code = report_copies(t, err);
	for (i = 0; i < cat->n_tensors && code == 0; i++)
		code = report_tensor(t, &cat->tensors[i], seen);
	/* Tensors of files that the catalog passes through as they are. */
	for (i = 0; i < cat->n_files; i++)
		for (s = t->v->file[i].span; s < t->v->file[i].span + t->v->file[i].n_spans && code == 0; s++)
			if (!s->piece && s->seen.n_nan + s->seen.n_inf)
				code = t->visit(t->ctx,
						&(struct uns_flaw){ .kind = UNS_FLAW_NOT_FINITE,
								    .file = &cat->files[i],
								    .name = s->name,
								    .rank = -1,
								    .first_elem = s->seen.first,
								    .n_elems = s->len / uns_dtype_size(s->dtype),
								    .n_nan = s->seen.n_nan,
								    .n_inf = s->seen.n_inf });
	for (i = 0; i < pairs->n && code == 0; i++)
		if (pairs->v[i].n_different)
			code = report_pair(t, &pairs->v[i]);
	return code;
}

int uns_backing_verify(struct uns_backing *b, const struct uns_verify_watch *watch, uns_flaw_visit *visit, void *ctx,
		       struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_verify_pairs pairs = { 0 };
	UNS_CLEANUP(verify_fini) struct uns_verify v = { .b = b, .watch = watch };
	struct reporting t = { &v, visit, ctx };
	struct planning p = { .v = &v };
	int code;

	pthread_mutex_init(&v.lock, NULL);
	pthread_mutex_init(&v.asking, NULL);
	UNS_TRY_ALLOC(v.file = calloc(b->cat->n_files + 1, sizeof(*v.file)), err);
	code = uns_verify_where(b->cat, &p.where, err);
	if (code == 0)
		code = uns_pool_each(b->engine->pool, b->cat->n_files, plan_one, &p, err);
	uns_verify_where_fini(&p.where);
	UNS_TRY(code);
	UNS_TRY(uns_verify_pairs_find(b->cat, &arena, &pairs, err));
	atomic_fetch_add(&v.total_bytes, uns_verify_pairs_bytes(&pairs));
	UNS_TRY(uns_verify_read(&v, err));
	UNS_TRY(uns_verify_pairs_compare(&v, &pairs, err));
	return report_all(&t, &pairs, err);
}
