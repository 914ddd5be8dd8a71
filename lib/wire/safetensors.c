/* Reading safetensors headers: a pull parser for exactly the JSON that the format allows, so that a
 * hostile header costs no more memory than its tensors and every number is exact. */
#include "wire/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/budget.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/span.h"
#include "base/utf8.h"

enum { LENGTH_BYTES = 8, MAX_HEADER_BYTES = 100000000, MAX_NESTING = 32 };

struct scan {
	struct uns_span in;
	const uint8_t *start;
	struct uns_arena *arena;
	struct uns_st_header *out;
	struct uns_map names;
	size_t cap, cap_meta;
	size_t used_before, limit_bytes; /* of the arena */
	struct uns_err *err;
};

/* -- tokens -- */

static int damaged(struct scan *s, const char *expected)
{
	return uns_fail(s->err, -EBADMSG, "safetensors header is damaged at byte %zu: expected %s",
			(size_t)(s->in.p - s->start) + LENGTH_BYTES, expected);
}

static void skip_space(struct scan *s)
{
	while (s->in.p < s->in.end && (*s->in.p == ' ' || *s->in.p == '\n' || *s->in.p == '\r' || *s->in.p == '\t'))
		s->in.p++;
}

static bool take_char(struct scan *s, char c)
{
	skip_space(s);
	if (s->in.p == s->in.end || *s->in.p != (uint8_t)c)
		return false;
	s->in.p++;
	return true;
}

static int need_char(struct scan *s, char c)
{
	const char expected[] = { '\'', c, '\'', '\0' };

	return take_char(s, c) ? 0 : damaged(s, expected);
}

static bool take_exactly(struct scan *s, const char *word)
{
	size_t len = strlen(word);

	if (uns_span_left(&s->in) < len || memcmp(s->in.p, word, len) != 0)
		return false;
	s->in.p += len;
	return true;
}

static bool take_word(struct scan *s, const char *word)
{
	skip_space(s);
	return take_exactly(s, word);
}

static int take_u64(struct scan *s, uint64_t *out)
{
	const uint8_t *first;
	uint64_t v = 0;

	skip_space(s);
	for (first = s->in.p; s->in.p < s->in.end && *s->in.p >= '0' && *s->in.p <= '9'; s->in.p++)
		if (!uns_u64_mul(v, 10, &v) || !uns_u64_add(v, *s->in.p - '0', &v))
			return damaged(s, "a number below 2^64");
	if (s->in.p == first || (*first == '0' && s->in.p - first > 1))
		return damaged(s, "a whole number");
	*out = v;
	return 0;
}

/* -- memory -- */

static int within_limit(struct scan *s, size_t n, size_t size)
{
	if (s->arena->used_bytes - s->used_before + n * size <= s->limit_bytes)
		return 0;
	return uns_fail(s->err, -ENOTSUP, "safetensors header of %zu bytes needs more than %zu bytes of memory",
			(size_t)(s->in.end - s->start), s->limit_bytes);
}

/* -- strings -- */

static bool take_hex4(struct scan *s, uint32_t *out)
{
	uint32_t v = 0;
	const uint8_t *p;
	int i;

	if (!uns_span_take(&s->in, 4, &p))
		return false;
	for (i = 0; i < 4; i++) {
		if (p[i] >= '0' && p[i] <= '9')
			v = v << 4 | (uint32_t)(p[i] - '0');
		else if ((p[i] | 0x20) >= 'a' && (p[i] | 0x20) <= 'f')
			v = v << 4 | (uint32_t)((p[i] | 0x20) - 'a' + 10);
		else
			return false;
	}
	*out = v;
	return true;
}

static size_t put_utf8(char *out, uint32_t c)
{
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 0x3f));
		out[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 0x3f));
	out[2] = (char)(0x80 | (c >> 6 & 0x3f));
	out[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

/* Behind "\u"; a pair of surrogates is one character. */
static int take_code_point(struct scan *s, uint32_t *out)
{
	uint32_t low;

	if (!take_hex4(s, out))
		return damaged(s, "four hex digits");
	if (*out == 0)
		return uns_fail(s->err, -ENOTSUP, "safetensors header: a string holds a NUL");
	if (*out < 0xd800 || *out > 0xdfff)
		return 0;
	if (*out > 0xdbff || !take_exactly(s, "\\u") || !take_hex4(s, &low) || low < 0xdc00 || low > 0xdfff)
		return damaged(s, "a pair of surrogates");
	*out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
	return 0;
}

/* Behind the backslash. */
static int take_escape(struct scan *s, char *out, size_t *len)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *simple;
	uint32_t c;
	uint8_t e;

	if (!uns_take_u8(&s->in, &e))
		return damaged(s, "the end of a string");
	simple = e ? strchr(from, e) : NULL;
	if (simple) {
		*out = to[simple - from];
		*len = 1;
		return 0;
	}
	if (e != 'u')
		return damaged(s, "a known escape");
	UNS_TRY(take_code_point(s, &c));
	*len = put_utf8(out, c);
	return 0;
}

/* An escape is never shorter than its character, so the raw length is enough room. */
static size_t raw_length(const struct scan *s)
{
	const uint8_t *p;

	for (p = s->in.p; p < s->in.end && *p != '"'; p++)
		p += *p == '\\' && p + 1 < s->in.end;
	return (size_t)(p - s->in.p);
}

static int take_string(struct scan *s, const char **out)
{
	size_t n = 0, len, n_raw;
	char *text;

	UNS_TRY(need_char(s, '"'));
	n_raw = raw_length(s);
	UNS_TRY(within_limit(s, n_raw + 1, 1));
	UNS_TRY_ALLOC(text = uns_arena_alloc(s->arena, n_raw + 1, 1), s->err);
	while (s->in.p < s->in.end && *s->in.p != '"') {
		if (*s->in.p < 0x20)
			return damaged(s, "no control character in a string");
		if (*s->in.p != '\\') {
			text[n++] = (char)*s->in.p++;
			continue;
		}
		s->in.p++;
		UNS_TRY(take_escape(s, text + n, &len));
		n += len;
	}
	*out = text;
	return need_char(s, '"');
}

/* -- skipping values of other keys -- */

static int skip_scalar(struct scan *s)
{
	const char *text;

	skip_space(s);
	if (s->in.p < s->in.end && *s->in.p == '"')
		return take_string(s, &text);
	if (take_word(s, "true") || take_word(s, "false") || take_word(s, "null"))
		return 0;
	if (s->in.p == s->in.end || !strchr("-0123456789", *s->in.p) || !*s->in.p)
		return damaged(s, "a value");
	while (s->in.p < s->in.end && *s->in.p && strchr("+-.eE0123456789", *s->in.p))
		s->in.p++;
	return 0;
}

static int skip_value(struct scan *s, unsigned depth);

static int skip_items(struct scan *s, char close, bool keyed, unsigned depth)
{
	const char *key;

	if (depth == 0)
		return damaged(s, "less nesting");
	if (take_char(s, close))
		return 0;
	do {
		if (keyed) {
			UNS_TRY(take_string(s, &key));
			UNS_TRY(need_char(s, ':'));
		}
		UNS_TRY(skip_value(s, depth - 1));
	} while (take_char(s, ','));
	return need_char(s, close);
}

static int skip_value(struct scan *s, unsigned depth)
{
	if (take_char(s, '{'))
		return skip_items(s, '}', true, depth);
	if (take_char(s, '['))
		return skip_items(s, ']', false, depth);
	return skip_scalar(s);
}

/* -- one tensor -- */

struct fields {
	bool dtype, shape, data_offsets;
};

static int parse_dtype(struct scan *s, struct uns_st_entry *e)
{
	const char *name;

	UNS_TRY(take_string(s, &name));
	e->dtype = uns_dtype_of_safetensors(name, strlen(name));
	if (e->dtype == UNS_DTYPE_NONE)
		return uns_fail(s->err, -ENOTSUP, "tensor '%s' has the dtype '%s', which is not known", e->name, name);
	return 0;
}

static int parse_shape(struct scan *s, struct uns_st_entry *e)
{
	UNS_TRY(need_char(s, '['));
	e->n_dims = 0;
	if (take_char(s, ']'))
		return 0;
	do {
		if (e->n_dims == UNS_MAX_DIMS)
			return uns_fail(s->err, -ENOTSUP, "tensor '%s' has more than %d dimensions", e->name,
					UNS_MAX_DIMS);
		UNS_TRY(take_u64(s, &e->dims[e->n_dims++]));
	} while (take_char(s, ','));
	return need_char(s, ']');
}

static int parse_offsets(struct scan *s, struct uns_st_entry *e)
{
	UNS_TRY(need_char(s, '['));
	UNS_TRY(take_u64(s, &e->begin_bytes));
	UNS_TRY(need_char(s, ','));
	UNS_TRY(take_u64(s, &e->end_bytes));
	return need_char(s, ']');
}

static int once(struct scan *s, bool *seen, const struct uns_st_entry *e)
{
	if (*seen)
		return uns_fail(s->err, -EBADMSG, "tensor '%s' has a field twice", e->name);
	*seen = true;
	return 0;
}

static int parse_field(struct scan *s, struct uns_st_entry *e, struct fields *seen)
{
	const char *key;

	UNS_TRY(take_string(s, &key));
	UNS_TRY(need_char(s, ':'));
	if (strcmp(key, "dtype") == 0) {
		UNS_TRY(once(s, &seen->dtype, e));
		return parse_dtype(s, e);
	}
	if (strcmp(key, "shape") == 0) {
		UNS_TRY(once(s, &seen->shape, e));
		return parse_shape(s, e);
	}
	if (strcmp(key, "data_offsets") == 0) {
		UNS_TRY(once(s, &seen->data_offsets, e));
		return parse_offsets(s, e);
	}
	return skip_value(s, MAX_NESTING);
}

static int check_extent(struct scan *s, const struct uns_st_entry *e)
{
	uint64_t need = uns_dtype_size(e->dtype);
	bool fits = true;
	size_t d;

	for (d = 0; d < e->n_dims; d++)
		fits = fits && uns_u64_mul(need, e->dims[d], &need);
	if (!fits)
		return uns_fail(s->err, -EBADMSG, "tensor '%s' has a shape that overflows", e->name);
	if (e->end_bytes < e->begin_bytes || e->end_bytes - e->begin_bytes != need)
		return uns_fail(s->err, -EBADMSG, "tensor '%s' needs %llu bytes but its data_offsets are [%llu, %llu]",
				e->name, (unsigned long long)need, (unsigned long long)e->begin_bytes,
				(unsigned long long)e->end_bytes);
	return 0;
}

static int parse_tensor(struct scan *s, struct uns_st_entry *e)
{
	struct fields seen = { 0 };

	UNS_TRY(need_char(s, '{'));
	if (!take_char(s, '}')) {
		do {
			UNS_TRY(parse_field(s, e, &seen));
		} while (take_char(s, ','));
		UNS_TRY(need_char(s, '}'));
	}
	if (!seen.dtype || !seen.shape || !seen.data_offsets)
		return uns_fail(s->err, -EBADMSG, "tensor '%s' lacks one of dtype, shape and data_offsets", e->name);
	return check_extent(s, e);
}

/* -- the whole -- */

static int entry_new(struct scan *s, const char *name, struct uns_st_entry **out)
{
	if (s->out->n == s->cap)
		UNS_TRY(within_limit(s, 2 * s->cap, sizeof(**out)));
	UNS_TRY_ALLOC(UNS_ARENA_ROOM(s->arena, s->out->v, s->out->n, s->cap), s->err);
	*out = &s->out->v[s->out->n++];
	(*out)->name = name;
	return 0;
}

static int meta_reserve(struct scan *s)
{
	size_t n = s->out->n_meta, cap = s->cap_meta ? s->cap_meta * 2 : 4;
	const char **key, **value;

	if (n < s->cap_meta)
		return 0;
	UNS_TRY(within_limit(s, 2 * cap, sizeof(*key)));
	key = uns_arena_grow(s->arena, s->out->meta_key, n, cap, sizeof(*key));
	value = uns_arena_grow(s->arena, s->out->meta_value, n, cap, sizeof(*value));
	UNS_TRY_ALLOC(key && value, s->err);
	s->out->meta_key = key;
	s->out->meta_value = value;
	s->cap_meta = cap;
	return 0;
}

static int parse_meta(struct scan *s)
{
	struct uns_st_header *h = s->out;

	if (take_word(s, "null"))
		return 0;
	UNS_TRY(need_char(s, '{'));
	if (take_char(s, '}'))
		return 0;
	do {
		UNS_TRY(meta_reserve(s));
		UNS_TRY(take_string(s, &h->meta_key[h->n_meta]));
		UNS_TRY(need_char(s, ':'));
		UNS_TRY(take_string(s, &h->meta_value[h->n_meta]));
		h->n_meta++;
	} while (take_char(s, ','));
	return need_char(s, '}');
}

static int parse_member(struct scan *s)
{
	struct uns_st_entry *e = NULL;
	const char *name;
	void *old = NULL;

	UNS_TRY(take_string(s, &name));
	UNS_TRY(need_char(s, ':'));
	UNS_TRY_ALLOC(uns_map_put(&s->names, name, s, &old), s->err);
	if (old)
		return uns_fail(s->err, -EBADMSG, "safetensors header has '%s' twice", name);
	if (strcmp(name, "__metadata__") == 0)
		return parse_meta(s);
	UNS_TRY(entry_new(s, name, &e));
	return parse_tensor(s, e);
}

static int parse_header(struct scan *s)
{
	UNS_TRY(need_char(s, '{'));
	if (!take_char(s, '}')) {
		do {
			UNS_TRY(parse_member(s));
		} while (take_char(s, ','));
		UNS_TRY(need_char(s, '}'));
	}
	skip_space(s);
	return s->in.p == s->in.end ? 0 : damaged(s, "the end");
}

static int by_offset(const void *pa, const void *pb)
{
	const struct uns_st_entry *a = pa, *b = pb;

	if (a->begin_bytes != b->begin_bytes)
		return a->begin_bytes < b->begin_bytes ? -1 : 1;
	return (a->end_bytes > b->end_bytes) - (a->end_bytes < b->end_bytes);
}

/* In file order the tensors follow each other without hole or overlap, up to the file's end. */
static int check_data(const struct uns_st_header *h, uint64_t file_bytes, struct uns_err *err)
{
	uint64_t at = 0;
	size_t i;

	for (i = 0; i < h->n; i++) {
		if (h->v[i].begin_bytes != at)
			return uns_fail(err, -EBADMSG, "tensor '%s' begins at byte %llu of the data, expected %llu",
					h->v[i].name, (unsigned long long)h->v[i].begin_bytes, (unsigned long long)at);
		at = h->v[i].end_bytes;
	}
	if (at != file_bytes - h->data_bytes)
		return uns_fail(err, -EBADMSG, "safetensors file has %llu bytes of data, its header describes %llu: %s",
				(unsigned long long)(file_bytes - h->data_bytes), (unsigned long long)at,
				at > file_bytes - h->data_bytes ? "truncated?" : "was it written over?");
	return 0;
}

static void scan_fini(struct scan *s)
{
	uns_map_fini(&s->names);
}

static int parse_bytes(const uint8_t *bytes, size_t len, struct uns_arena *arena, struct uns_st_header *out,
		       struct uns_err *err)
{
	UNS_CLEANUP(scan_fini)
	struct scan s = { .in = uns_span_of(bytes, len),
			  .start = bytes,
			  .arena = arena,
			  .out = out,
			  .used_before = arena->used_bytes,
			  .limit_bytes = uns_parse_budget(len) - len, /* its copy */
			  .err = err };

	if (!uns_utf8_valid(bytes, len, false))
		return uns_fail(err, -EBADMSG, "safetensors header is not UTF-8");
	UNS_TRY(parse_header(&s));
	if (out->n)
		qsort(out->v, out->n, sizeof(*out->v), by_offset);
	return 0;
}

static int read_length(const struct uns_reader *r, size_t *out, struct uns_err *err)
{
	uint8_t word[LENGTH_BYTES];
	uint64_t len;

	if (r->size < LENGTH_BYTES)
		return uns_fail(err, -EBADMSG, "safetensors file of %llu bytes is too short",
				(unsigned long long)r->size);
	UNS_TRY(uns_reader_pread(r, word, sizeof(word), 0, err));
	len = uns_le(word, LENGTH_BYTES);
	if (len > MAX_HEADER_BYTES || len > r->size - LENGTH_BYTES)
		return uns_fail(err, -EBADMSG,
				"safetensors header of %llu bytes does not fit a file of %llu bytes (limit %d)",
				(unsigned long long)len, (unsigned long long)r->size, MAX_HEADER_BYTES);
	*out = (size_t)len;
	return 0;
}

int uns_st_open(const struct uns_reader *r, struct uns_arena *arena, struct uns_st_header *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) uint8_t *bytes = NULL;
	size_t len = 0;

	*out = (struct uns_st_header){ 0 };
	UNS_TRY(read_length(r, &len, err));
	UNS_TRY_ALLOC(bytes = malloc(len ? len : 1), err);
	UNS_TRY(uns_reader_pread(r, bytes, len, LENGTH_BYTES, err));
	out->data_bytes = LENGTH_BYTES + len;
	UNS_TRY(parse_bytes(bytes, len, arena, out, err));
	return check_data(out, r->size, err);
}

const char *uns_st_meta(const struct uns_st_header *h, const char *key)
{
	size_t i;

	for (i = 0; i < h->n_meta; i++)
		if (strcmp(h->meta_key[i], key) == 0)
			return h->meta_value[i];
	return NULL;
}
