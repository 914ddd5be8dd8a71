#include "torch_maker.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "files.h"
#include "wire/dtype.h"
#include "wire/pickle.h"

enum { MAX_STORAGES = 64, MAX_BYTES = 4096 };

static void add_le(struct uns_text *out, uint64_t v, unsigned n_bytes)
{
	unsigned i;

	for (i = 0; i < n_bytes; i++)
		uns_text_add(out, &(uint8_t){ (uint8_t)(v >> (8 * i)) }, 1);
}

/* What the local header and the directory's entry have in common. */
static void add_record(struct uns_text *out, const char *name, struct uns_span bytes)
{
	size_t len = uns_span_left(&bytes);

	add_le(out, 0, 2 + 2 + 2); /* version needed, flags, method */
	add_le(out, 0, 2 + 2);     /* time and date */
	add_le(out, crc32(0, bytes.p, (uInt)len), 4);
	add_le(out, len, 4);
	add_le(out, len, 4);
	add_le(out, strlen(name), 2);
	add_le(out, 0, 2); /* extra */
}

void torch_maker_add(struct torch_maker *maker, const char *name, struct uns_span bytes)
{
	size_t at = maker->zip.len;

	uns_text_str(&maker->zip, "PK\3\4");
	add_record(&maker->zip, name, bytes);
	uns_text_str(&maker->zip, name);
	uns_text_add(&maker->zip, bytes.p, uns_span_left(&bytes));

	uns_text_str(&maker->directory, "PK\1\2");
	add_le(&maker->directory, 0, 2); /* made by */
	add_record(&maker->directory, name, bytes);
	add_le(&maker->directory, 0, 2 + 2); /* comment, disk */
	add_le(&maker->directory, 0, 2 + 4); /* attributes */
	add_le(&maker->directory, at, 4);
	uns_text_str(&maker->directory, name);
	maker->n++;
}

void torch_maker_end(struct torch_maker *maker)
{
	size_t at = maker->zip.len;

	uns_text_add(&maker->zip, maker->directory.p, maker->directory.len);
	uns_text_str(&maker->zip, "PK\5\6");
	add_le(&maker->zip, 0, 4); /* disks */
	add_le(&maker->zip, maker->n, 2);
	add_le(&maker->zip, maker->n, 2);
	add_le(&maker->zip, maker->directory.len, 4);
	add_le(&maker->zip, at, 4);
	add_le(&maker->zip, 0, 2); /* comment */
}

void torch_maker_fini(struct torch_maker *maker)
{
	uns_text_fini(&maker->zip);
	uns_text_fini(&maker->directory);
}

/* -- storages -- */

struct storages {
	struct torch_maker *maker;
	const char *key[MAX_STORAGES];
	size_t n;
};

static bool is_new(struct storages *s, const char *key)
{
	size_t i;

	for (i = 0; i < s->n; i++)
		if (strcmp(s->key[i], key) == 0)
			return false;
	if (s->n == MAX_STORAGES)
		return false;
	s->key[s->n++] = key;
	return true;
}

/* Ranks of a mesh, if it is read as numbers. */
static void add_storage(struct storages *s, const char *key, uint64_t len)
{
	uint64_t numbers[MAX_BYTES / sizeof(uint64_t)];
	char name[64];
	size_t i;

	for (i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		numbers[i] = i;
	snprintf(name, sizeof(name), "archive/data/%.40s", key);
	torch_maker_add(s->maker, name, uns_span_of(numbers, len));
}

/* ('storage', class, key, location, numel) */
static void storage_of(struct storages *s, const struct uns_value *id)
{
	const struct uns_value *cls = uns_value_at(id, 1);
	const char *key = uns_value_str(uns_value_at(id, 2));
	enum uns_dtype type = UNS_DTYPE_NONE;
	uint64_t numel, size;

	if (cls && cls->kind == UNS_VALUE_GLOBAL && strncmp(cls->cls, "torch.", 6) == 0)
		type = uns_dtype_of_storage(cls->cls + 6);
	size = type == UNS_DTYPE_NONE ? 1 : uns_dtype_size(type);
	if (key && uns_value_u64(uns_value_at(id, 4), &numel) && numel <= MAX_BYTES / size && is_new(s, key))
		add_storage(s, key, numel * size);
}

static void storages_of(struct storages *s, const struct uns_value *v)
{
	size_t i;

	if (!v)
		return;
	if (v->kind == UNS_VALUE_OBJECT && uns_value_is(v, UNS_PERSISTENT_ID))
		storage_of(s, v->object.args);
	else if (v->kind == UNS_VALUE_OBJECT)
		storages_of(s, v->object.args);
	storages_of(s, v->state);
	for (i = 0; v->kind == UNS_VALUE_DICT && i < v->n; i++)
		storages_of(s, v->pair[i].value);
	for (i = 0; v->kind != UNS_VALUE_DICT && uns_value_at(v, i); i++)
		storages_of(s, uns_value_at(v, i));
}

bool torch_of_pickle(struct uns_span *input, struct torch_maker *out)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct storages storages = { .maker = out };
	struct uns_span rest = *input;
	const struct uns_value *v;

	if (!uns_span_left(input))
		return false;
	*out = TORCH_MAKER_INIT;
	if (uns_pickle_parse(&rest, &arena, &v, NULL) < 0) {
		rest.p = rest.end;
		v = NULL;
	}
	torch_maker_add(out, "archive/data.pkl", (struct uns_span){ input->p, rest.p });
	if (uns_value_fits(v, 10000, 64))
		storages_of(&storages, v);
	torch_maker_end(out);
	uns_arena_fini(&arena);
	*input = rest;
	return true;
}

bool files_put_torch(const char *name, struct uns_span *input)
{
	struct torch_maker maker;

	if (!torch_of_pickle(input, &maker))
		return false;
	files_put(name, uns_span_of(maker.zip.p, maker.zip.len));
	torch_maker_fini(&maker);
	return true;
}

bool files_put_torch_pair(const char *first, const char *second, struct uns_span input)
{
	struct uns_span left = input;

	if (!files_put_torch(first, &left))
		return false;
	if (!uns_span_left(&left))
		left = input;
	files_put_torch(second, &left);
	return true;
}
