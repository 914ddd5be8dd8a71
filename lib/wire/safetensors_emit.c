/* Writing safetensors headers, byte for byte as the library's save_file does: its order, its spacing, its escapes. */
#include "wire/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/span.h"
#include "base/text.h"
#include "base/utf8.h"

enum { LENGTH_BYTES = 8, ALIGN_BYTES = 8, MAX_HEADER_BYTES = 100000000 };

static int by_dtype_and_name(const void *pa, const void *pb)
{
	const struct uns_st_entry *a = pa, *b = pb;

	if (a->dtype != b->dtype)
		return a->dtype > b->dtype ? -1 : 1;
	return strcmp(a->name, b->name);
}

static void map_fini(struct uns_map *map)
{
	uns_map_fini(map);
}

static int check_names(const struct uns_st_entry *v, size_t n, struct uns_err *err)
{
	UNS_CLEANUP(map_fini) struct uns_map seen = UNS_MAP_INIT;
	void *old = NULL;
	size_t i;

	UNS_TRY_ALLOC(uns_map_reserve(&seen, n), err);
	for (i = 0; i < n; i++) {
		if (!uns_utf8_valid(v[i].name, strlen(v[i].name), false))
			return uns_fail(err, -ENOTSUP,
					"tensor '%s' cannot be in a safetensors file: its name is not UTF-8",
					v[i].name);
		if (strcmp(v[i].name, "__metadata__") == 0)
			return uns_fail(err, -ENOTSUP, "tensor '__metadata__' cannot be in a safetensors file");
		UNS_TRY_ALLOC(uns_map_put(&seen, v[i].name, (void *)(uintptr_t)&v[i], &old), err);
		if (old)
			return uns_fail(err, -EBADMSG, "two tensors are named '%s'", v[i].name);
	}
	return 0;
}

static int entry_size(const struct uns_st_entry *e, uint64_t *out, struct uns_err *err)
{
	const struct uns_dtype_info *dtype = uns_dtype_info(e->dtype);
	size_t d;

	if (!dtype->safetensors)
		return uns_fail(err, -ENOTSUP, "tensor '%s' is %s, which safetensors cannot hold", e->name,
				dtype->torch);
	*out = dtype->size_bytes;
	for (d = 0; d < e->n_dims; d++)
		if (!uns_u64_mul(*out, e->dims[d], out))
			return uns_fail(err, -EBADMSG, "tensor '%s' has a shape that overflows", e->name);
	return 0;
}

static int entries_place(struct uns_st_entry *v, size_t n, uint64_t *size_bytes, struct uns_err *err)
{
	uint64_t at = 0, need;
	size_t i;

	for (i = 0; i < n; i++) {
		UNS_TRY(entry_size(&v[i], &need, err));
		v[i].begin_bytes = at;
		if (!uns_u64_add(at, need, &at))
			return uns_fail(err, -EBADMSG, "tensors sum up to more than 2^64 bytes");
		v[i].end_bytes = at;
	}
	*size_bytes = at;
	return 0;
}

/* serde_json's escapes: the short ones where JSON has them, and only what must be escaped. */
static void add_string(struct uns_text *t, const char *s)
{
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
	const char *run = s, *simple;

	uns_text_str(t, "\"");
	for (; *s; s++) {
		if ((unsigned char)*s >= 0x20 && *s != '"' && *s != '\\')
			continue;
		simple = strchr(from, *s);
		uns_text_add(t, run, (size_t)(s - run));
		run = s + 1;
		if (simple)
			uns_text_printf(t, "\\%c", to[simple - from]);
		else
			uns_text_printf(t, "\\u%04x", (unsigned)*s);
	}
	uns_text_add(t, run, (size_t)(s - run));
	uns_text_str(t, "\"");
}

static void add_entry(struct uns_text *t, const struct uns_st_entry *e)
{
	size_t d;

	add_string(t, e->name);
	uns_text_str(t, ":{\"dtype\":\"");
	uns_text_str(t, uns_dtype_info(e->dtype)->safetensors);
	uns_text_str(t, "\",\"shape\":[");
	for (d = 0; d < e->n_dims; d++) {
		if (d)
			uns_text_str(t, ",");
		uns_text_u64(t, e->dims[d]);
	}
	uns_text_str(t, "],\"data_offsets\":[");
	uns_text_u64(t, e->begin_bytes);
	uns_text_str(t, ",");
	uns_text_u64(t, e->end_bytes);
	uns_text_str(t, "]}");
}

/* The bytes of the header, or more; escapes are not counted. */
static size_t header_room(const struct uns_st_entry *v, size_t n)
{
	enum { ALL = 64, ENTRY = 64, NUMBER = 21 }; /* punctuation and keys; a number with its comma */
	size_t i, room = ALL;

	for (i = 0; i < n; i++)
		room += strlen(v[i].name) + ENTRY + (v[i].n_dims + 2) * NUMBER;
	return room;
}

static void add_header(struct uns_text *t, const struct uns_st_entry *v, size_t n)
{
	size_t i;

	uns_text_reserve(t, header_room(v, n));
	uns_text_add(t, "\0\0\0\0\0\0\0\0", LENGTH_BYTES); /* filled in at the end */
	uns_text_str(t, "{\"__metadata__\":{\"format\":\"pt\"}");
	for (i = 0; i < n; i++) {
		uns_text_str(t, ",");
		add_entry(t, &v[i]);
	}
	uns_text_str(t, "}");
	while (t->len % ALIGN_BYTES && !t->failed)
		uns_text_str(t, " ");
}

static int finish(struct uns_text *t, struct uns_arena *arena, struct uns_span *out, struct uns_err *err)
{
	uint64_t len = t->len - LENGTH_BYTES;
	char *bytes;
	int i;

	if (t->failed)
		return uns_oom(err);
	if (len > MAX_HEADER_BYTES)
		return uns_fail(err, -ENOTSUP, "safetensors header would be %llu bytes; readers refuse more than %d",
				(unsigned long long)len, MAX_HEADER_BYTES);
	UNS_TRY_ALLOC(bytes = uns_arena_strn(arena, t->p, t->len), err);
	for (i = 0; i < LENGTH_BYTES; i++)
		bytes[i] = (char)(len >> (8 * i));
	*out = uns_span_of(bytes, t->len);
	return 0;
}

int uns_st_emit(struct uns_st_entry *v, size_t n, struct uns_arena *arena, struct uns_span *out,
		uint64_t *data_size_bytes, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;

	UNS_TRY(check_names(v, n, err));
	if (n)
		qsort(v, n, sizeof(*v), by_dtype_and_name);
	UNS_TRY(entries_place(v, n, data_size_bytes, err));
	add_header(&text, v, n);
	return finish(&text, arena, out, err);
}
