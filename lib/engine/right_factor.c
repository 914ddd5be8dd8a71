/* Panels are looked for in the cache, made without an entry of it, and then put there: while an entry is made, or held,
 * nothing may be read that might need another one. */
#include "engine/right_factor.h"

#include <math.h>
#include <string.h>

#include "engine/backing.h"
#include "engine/cast.h"

enum { NOT_THERE = -ENODATA };

#define MOST_NORM 0x1p50 /* below it nothing overflows in fp32 */

float uns_row_norm(const float *row, size_t inner)
{
	const double norm = sqrt(uns_panels_dot(row, row, inner));

	return norm < MOST_NORM ? (float)(norm * 1.000001) + 0x1p-100f : INFINITY;
}

int uns_rows_read(const struct uns_sum_reader *reader, const struct uns_factor *f, enum uns_panels_of of, size_t inner,
		  uint64_t row, size_t n, struct uns_rows *rows, struct uns_err *err)
{
	const size_t size = uns_dtype_size(f->as), all = n * inner;
	uint8_t *raw = (uint8_t *)rows->word;

	UNS_TRY(reader->read(reader->ctx, f->tensor, raw, (f->first + row * inner) * size, all * size, err));
	uns_cast(f->as, raw, UNS_F32, rows->value, all);
	if (of == UNS_PANELS_OF_FP32)
		memcpy(rows->word, rows->value, all * sizeof(*rows->value));
	return 0;
}

/* -- panels -- */

static size_t panels_bytes(size_t n, size_t words)
{
	return (n + UNS_PANEL - 1) / UNS_PANEL * UNS_PANEL * words * sizeof(uns_word);
}

static int right_make(const struct uns_sum_reader *reader, const struct uns_term *term, enum uns_panels_of of,
		      uint64_t column, size_t n, struct uns_right *right, struct uns_err *err)
{
	const size_t inner = (size_t)term->inner, words = uns_panels_words(of, inner);
	size_t j;

	UNS_TRY(uns_rows_read(reader, &term->right, of, inner, column, n, &right->rows, err));
	for (j = 0; j < n; j++)
		right->norm[j] = uns_row_norm(right->rows.value + j * inner, inner);
	for (j = 0; j < n; j += UNS_PANEL)
		uns_panels_make(right->rows.word + j * words, n - j < UNS_PANEL ? n - j : UNS_PANEL, words,
				right->own + j * words);
	right->panel = right->own;
	return 0;
}

/* -- in the cache -- */

/* An entry has the panels, then the norms. */
struct put {
	const struct uns_right *right; /* NULL = there are none: it is only looked whether there is an entry */
	size_t n, panels_bytes;
};

static int entry_fill(void *ctx, struct uns_cached *e, struct uns_err *err)
{
	const struct put *put = ctx;
	const size_t norm_bytes = put->n * sizeof(*put->right->norm);

	if (!put->right)
		return NOT_THERE;
	UNS_TRY(uns_cached_write(e, put->right->own, put->panels_bytes, 0, err));
	UNS_TRY(uns_cached_write(e, put->right->norm, norm_bytes, put->panels_bytes, err));
	uns_cached_settle(e, 0, put->panels_bytes + norm_bytes);
	uns_cached_once(e);
	return 0;
}

/* The same columns have one id in all views, and none that anything else has. False = there is none for them: they are
 * not stored as rows, nor as the columns of one matrix. */
static bool id_make(const struct uns_catalog *cat, const struct uns_term *term, enum uns_panels_of of, uint64_t column,
		    size_t n, struct uns_cache_id *out)
{
	const uint64_t is_right = UINT64_C(1) << 58, pairs = (uint64_t)(of == UNS_PANELS_OF_BF16) << 57;
	const uint64_t is_block = UINT64_C(1) << 56, reversed = UINT64_C(1) << 55;
	const struct uns_tensor *t = uns_tensor_with_bytes(cat, term->right.tensor);
	const uint64_t first = term->right.first + column * term->inner;
	const struct uns_block *block = NULL;
	uint64_t at = 0, end = 0;
	size_t i;

	if (t >= cat->tensors && t < cat->tensors + cat->n_tensors) {
		*out = (struct uns_cache_id){ { is_right | pairs | (uint64_t)(t - cat->tensors), first, n,
						term->inner } };
		return true;
	}
	for (i = 0; uns_tensor_is_of_blocks(t) && i < t->n_pieces && end <= first; i++) {
		at = end;
		end += uns_piece_elems(&t->own[i]);
		block = t->own[i].block;
	}
	if (!block || first + n * term->inner > end || block->n_sources > 1)
		return false;
	*out = (struct uns_cache_id){ { is_right | pairs | is_block | (block->reversed ? reversed : 0) |
						(uint64_t)(block->source[0].tensor - cat->tensors),
					block->source[0].first_elem, block->len[1], block->len[2], first - at, n,
					term->inner } };
	return true;
}

/* The entry, made of what `put` has. NULL = there is none, or no room for it: the panels serve without it, too. */
static struct uns_cached *entry_get(const struct uns_sum_reader *reader, struct uns_cache_id id, struct put *put)
{
	const size_t bytes = put->panels_bytes + put->n * sizeof(*put->right->norm);
	struct uns_err err = { 0 };
	struct uns_cached *e;

	return uns_cache_get(reader->b->engine->cache, reader->b, id, bytes, entry_fill, put, &e, &err) < 0 ? NULL : e;
}

/* Sets `right` to what the entry that is held has. */
static int held_use(struct uns_right *right, const struct put *put, struct uns_err *err)
{
	right->panel = (const uns_word *)uns_cached_bytes(right->held);
	if (!right->panel) {
		UNS_TRY(uns_cached_read(right->held, right->own, put->panels_bytes, 0, err));
		right->panel = right->own;
	}
	return uns_cached_read(right->held, right->norm, put->n * sizeof(*right->norm), put->panels_bytes, err);
}

/* Sets `held` to what the cache has of them, or has from now on; to NULL if it has nothing, and `right` is made. */
static int entry_find(const struct uns_sum_reader *reader, const struct uns_term *term, enum uns_panels_of of,
		      struct uns_cache_id id, uint64_t column, struct put *put, struct uns_right *right,
		      struct uns_err *err)
{
	const size_t size = uns_dtype_size(term->right.as), inner = (size_t)term->inner;

	right->held = entry_get(reader, id, put);
	if (right->held)
		return reader->check(reader->ctx, term->right.tensor, (term->right.first + column * inner) * size,
				     put->n * inner * size, err);
	UNS_TRY(right_make(reader, term, of, column, put->n, right, err));
	put->right = right;
	right->held = entry_get(reader, id, put);
	return 0;
}

int uns_right_get(const struct uns_catalog *cat, const struct uns_sum_reader *reader, const struct uns_term *term,
		  enum uns_panels_of of, uint64_t column, size_t n, struct uns_right *right, struct uns_err *err)
{
	struct put put = { .n = n, .panels_bytes = panels_bytes(n, uns_panels_words(of, (size_t)term->inner)) };
	struct uns_cache_id id;
	int code;

	right->held = NULL;
	if (!reader->b || !id_make(cat, term, of, column, n, &id))
		return right_make(reader, term, of, column, n, right, err);
	code = entry_find(reader, term, of, id, column, &put, right, err);
	if (code == 0 && right->held) /* also what was just made: an entry that was read need not be moved to a file */
		code = held_use(right, &put, err);
	if (code < 0)
		uns_right_put(reader, right);
	return code;
}

void uns_right_put(const struct uns_sum_reader *reader, struct uns_right *right)
{
	if (right->held)
		uns_cache_put(reader->b->engine->cache, right->held);
	right->held = NULL;
}
