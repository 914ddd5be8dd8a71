/* base/budget.h: what each parser takes from the heap, at most, for inputs that are made to take much.
 * The peak is measured: every allocation of this program and of the libraries that it uses is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/budget.h"
#include "base/cleanup.h"
#include "base/span.h"
#include "base/text.h"
#include "dcp/metadata.h"
#include "wire/json.h"
#include "wire/pickle.h"
#include "wire/safetensors.h"
#include "wire/yaml.h"
#include "wire/zip.h"

enum { INPUT_BYTES = 6 << 20, ARENA_REST = 2 << 20 /* what is left of an arena's newest block */ };

/* -- the peak of the heap -- */

static _Atomic size_t heap_bytes, peak_bytes;

static void heap_more(size_t n)
{
	size_t now = atomic_fetch_add(&heap_bytes, n) + n, peak = atomic_load(&peak_bytes);

	while (now > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, now))
		;
}

static void heap_less(size_t n)
{
	atomic_fetch_sub(&heap_bytes, n);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
size_t __sanitizer_get_allocated_size(const volatile void *p);
void __sanitizer_malloc_hook(const volatile void *p, size_t n);
void __sanitizer_free_hook(const volatile void *p);

void __sanitizer_malloc_hook(const volatile void *p, size_t n)
{
	(void)p;
	heap_more(n);
}

void __sanitizer_free_hook(const volatile void *p)
{
	if (p)
		heap_less(__sanitizer_get_allocated_size(p));
}
#else
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void __libc_free(void *p);

#define COUNTED __attribute__((visibility("default"))) /* to the libraries too */

COUNTED void *malloc(size_t n)
{
	void *p = __libc_malloc(n);

	heap_more(p ? malloc_usable_size(p) : 0);
	return p;
}

COUNTED void *calloc(size_t n, size_t size)
{
	void *p = __libc_calloc(n, size);

	heap_more(p ? malloc_usable_size(p) : 0);
	return p;
}

/* A large block grows where it is, or its pages are moved: old and new do not exist together. */
COUNTED void *realloc(void *old, size_t n)
{
	size_t had = old ? malloc_usable_size(old) : 0;
	void *p = __libc_realloc(old, n);

	if (!p && n)
		return NULL;
	heap_less(had);
	heap_more(p ? malloc_usable_size(p) : 0);
	return p;
}

COUNTED void free(void *p)
{
	heap_less(p ? malloc_usable_size(p) : 0);
	__libc_free(p);
}
#endif

/* -- parsers: any bytes -- */

static int pickle(struct uns_span in, struct uns_arena *arena, struct uns_err *err)
{
	const struct uns_value *v;

	return uns_pickle_parse(&in, arena, &v, err);
}

static int traced_pickle(struct uns_span in, struct uns_arena *arena, struct uns_err *err)
{
	struct uns_pickle_trace trace = { 0 };
	const struct uns_value *v;

	return uns_pickle_parse_traced(&in, arena, &v, &trace, err);
}

static int dcp_metadata(struct uns_span in, struct uns_arena *arena, struct uns_err *err)
{
	struct uns_dcp_metadata out;

	return uns_dcp_metadata_parse(in, NULL, arena, &out, err);
}

static int json(struct uns_span in, struct uns_arena *arena, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *out = NULL;

	(void)arena;
	return uns_json_parse(in, &out, err);
}

static int yaml(struct uns_span in, struct uns_arena *arena, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *out = NULL;

	(void)arena;
	return uns_yaml_parse(in, &out, err);
}

static int safetensors(struct uns_span in, struct uns_arena *arena, struct uns_err *err)
{
	struct uns_reader r = uns_reader_of_span(&in);
	struct uns_st_header out;

	return uns_st_open(&r, arena, &out, err);
}

static int zip(struct uns_span in, struct uns_arena *arena, struct uns_err *err)
{
	struct uns_reader r = uns_reader_of_span(&in);
	struct uns_zip out;

	return uns_zip_open(&r, arena, &out, err);
}

/* -- inputs: `front`, then `each` over and over, then `back`; '#' is another letter each time -- */

#define CLASS  "ctorch.distributed.checkpoint.metadata\nMetadataIndex\nq\1"
#define NUMBER "####"

static const struct input {
	const char *name;
	int (*parse)(struct uns_span in, struct uns_arena *arena, struct uns_err *err);
	const char *front, *each, *back;
	size_t n_front, n_each, n_back;
} inputs[] = {
#define IN(name, parse, front, each, back) \
	{ name, parse, front, each, back, sizeof(front) - 1, sizeof(each) - 1, sizeof(back) - 1 }
	IN("empty dicts", pickle, "\x80\2", "}", "."),
	IN("empty lists", pickle, "\x80\2", "]", "."),
	IN("empty dicts of metadata", dcp_metadata, "\x80\2", "}", "."),
	IN("empty sets", pickle, "\x80\4", "\x8f", "."),
	IN("nested tuples", pickle, "\x80\2N", "\x85", "."),
	IN("one small int", pickle, "\x80\2(", "K\1", "t."),
	IN("ints", pickle, "\x80\2](", "J" NUMBER, "e."),
	IN("floats", pickle, "\x80\2](", "G########", "e."),
	IN("short strings", pickle, "\x80\4(", "\x8c\0", "t."),
	IN("nothing", pickle, "\x80\2", "N", "."),
	IN("marks", pickle, "\x80\2", "(", "."),
	IN("memo", pickle, "\x80\4N", "\x94", "."),
	IN("a memo number", pickle, "\x80\2Nr\xff\xff\xbf\0", "0N", "."),
	IN("items one by one", pickle, "\x80\2]", "Na", "."),
	IN("pairs one by one", pickle, "\x80\2}", "NNs", "."),
	IN("a list again and again", pickle, "\x80\2]q\0(", "h\0", "e."),
	IN("names", traced_pickle, "\x80\2(", "ca\nb\n", "t."),
	IN("names from the memo", traced_pickle, "\x80\2(ca\nb\nq\1", "h\1", "t."),
	IN("names put again", traced_pickle, "\x80\2(ca\nb\nq\1", "q\2", "t."),
	IN("calls", pickle, "\x80\2ca\nb\nq\1(", "h\1)R", "t."),
	IN("dicts of pairs", pickle, "\x80\2ccollections\nOrderedDict\nq\1(", "h\1]\x85R", "t."),
	IN("keys of metadata", dcp_metadata, "\x80\2}(", CLASS ")\x81}(X\6\0\0\0offsetJ" NUMBER "ubN", "u."),
	IN("numbers", json, "[0", ",1", "]"),
	IN("empty arrays", json, "[0", ",[]", "]"),
	IN("empty strings", json, "[0", ",\"\"", "]"),
	IN("short members", json, "{\"\":0", ",\"\":\"\"", "}"),
	IN("constants of Python", json, "[0", ",NaN", "]"),
	IN("one string", json, "[\"", "a", "\"]"),
	IN("nested arrays", json, "", "[", ""),
	IN("items", yaml, "", "- a\n", ""),
	IN("one scalar", yaml, "", "a", ""),
	IN("nested", yaml, "", "[", ""),
	IN("members", yaml, "", NUMBER ": a\n", ""),
	IN("comments", yaml, "", "#\n", ""),
	IN("metadata", safetensors, "{\"__metadata__\":{\"\":\"\"", ",\"\":\"\"", "}}"),
	IN("tensors", safetensors, "{\"__metadata__\":{}",
	   ",\"" NUMBER "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", "}"),
	IN("keys", safetensors, "{\"a\":{\"dtype\":\"U8\"", ",\"\":0", "}}"),
	IN("nested", safetensors, "{\"a\":{\"b\":", "[", ""),
	IN("records", zip, "PK\3\4########################################",
	   "PK\1\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0" NUMBER, ""),
};

/* Each '#' is a digit of a number that counts the repetitions: letters, so that it is text too. */
static void put_number(char *at, size_t len, uint64_t i)
{
	char *digit = at + len;

	while (digit-- > at)
		if (*digit == '#') {
			*digit = (char)('A' + i % 26);
			i /= 26;
		}
}

static void put_le(struct uns_text *t, uint64_t v, unsigned n_bytes)
{
	char c;

	for (; n_bytes--; v >>= 8) {
		c = (char)v;
		uns_text_add(t, &c, 1);
	}
}

static void build(const struct input *in, struct uns_text *t)
{
	size_t i, at = 0, n = INPUT_BYTES / in->n_each;
	bool numbered = strstr(in->each, "##") || memmem(in->each, in->n_each, "##", 2);

	if (in->parse == safetensors)
		put_le(t, in->n_front + n * in->n_each + in->n_back, 8);
	uns_text_add(t, in->front, in->n_front);
	for (i = 0; i < n; i++) {
		at = t->len;
		uns_text_add(t, in->each, in->n_each);
		if (numbered)
			put_number(t->p + at, in->n_each, i);
	}
	uns_text_add(t, in->back, in->n_back);
	if (in->parse != zip)
		return;
	uns_text_add(t, "PK\6\6", 4); /* the zip64 end record, its locator and the end record */
	put_le(t, 44, 8);
	put_le(t, 0, 12);
	put_le(t, n, 8);
	put_le(t, n, 8);
	put_le(t, n * in->n_each, 8);
	put_le(t, in->n_front, 8);
	uns_text_add(t, "PK\6\7", 4);
	put_le(t, 0, 4);
	put_le(t, in->n_front + n * in->n_each, 8);
	put_le(t, 1, 4);
	uns_text_add(t, "PK\5\6", 4);
	put_le(t, 0, 4);
	uns_text_add(t, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12);
	put_le(t, 0, 2);
}

static void test_peak(void **state)
{
	size_t i, before;
	int code;

	(void)state;
	for (i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
		UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
		UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
		struct uns_err err = { 0 };

		build(&inputs[i], &text);
		assert_false(text.failed);
		before = atomic_load(&heap_bytes);
		atomic_store(&peak_bytes, before);
		code = inputs[i].parse(uns_span_of(text.p, text.len), &arena, &err);
		before = atomic_load(&peak_bytes) - before;
		print_message("%-26s %5.2f bytes for a byte, %d %s\n", inputs[i].name,
			      (double)before / (double)text.len, code, err.text);
		if (before > uns_parse_budget(text.len) + ARENA_REST)
			fail_msg("%s: %zu bytes of memory for %zu bytes, at most %zu are meant", inputs[i].name, before,
				 text.len, uns_parse_budget(text.len));
	}
}

/* Shapes and offsets are most of a large checkpoint's metadata, and repeat: equal ones are there once. Each is a
 * tuple in a tuple and a call, 120 bytes, if it is not. */
static void equal_shapes_are_kept_once(void **state)
{
	static const struct input in =
		IN("shapes", pickle, "\x80\2ctorch\nSize\nq\0010(", "h\1M\x10\x20K\1\x86\x85R", "t.");
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	size_t n = INPUT_BYTES / in.n_each;

	(void)state;
	build(&in, &text);
	assert_int_equal(pickle(uns_span_of(text.p, text.len), &arena, NULL), 0);
	assert_in_range(arena.used_bytes, 1, n * sizeof(void *) + 4096); /* the last tuple's items */
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_peak), cmocka_unit_test(equal_shapes_are_kept_once) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
