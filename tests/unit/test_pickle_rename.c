/* Names in a pickle, where they are and put in other ones. The pickles are what Python's protocol 2
 * pickler writes of (torch.float32, [torch.float32, torch.bfloat16], torch.float32, "x"). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "wire/pickle_rename.h"

#define BYTES(text) { text, sizeof(text) - 1 }

struct bytes {
	const char *p;
	size_t n;
};

#define F32  "ctorch\nfloat32\n"
#define BF16 "ctorch\nbfloat16\n"

static const struct bytes pickle = BYTES("\x80\x02(" F32 "q\x01]q\x02(h\x01" BF16 "r\x03\x00\x00\x00"
					 "eh\x01X\x01\0\0\0xtq\x04.");

static const struct {
	const char *name;
	const char *to[4]; /* of the four places */
	struct bytes want;
} cases[] = {
	{ "nothing",
	  { NULL },
	  BYTES("\x80\x02(" F32 "q\x01]q\x02(h\x01" BF16 "r\x03\x00\x00\x00"
		"eh\x01X\x01\0\0\0xtq\x04.") },
	{ "one out of the memo",
	  { NULL, "torch.float16" },
	  BYTES("\x80\x02(" F32 "q\x01]q\x02(ctorch\nfloat16\n" BF16 "r\x03\x00\x00\x00"
		"eh\x01X\x01\0\0\0xtq\x04.") },
	{ "the one that others rely on",
	  { "torch.float16" },
	  BYTES("\x80\x02(ctorch\nfloat16\n]q\x02(" F32 "q\x01" BF16 "r\x03\x00\x00\x00"
		"eh\x01X\x01\0\0\0xtq\x04.") },
	{ "it and the next",
	  { "a.b.c", "a.b.c", "torch.float32" },
	  BYTES("\x80\x02(ca.b\nc\n]q\x02(ca.b\nc\n" F32 "e" F32 "q\x01X\x01\0\0\0xtq\x04.") },
	{ "all",
	  { "t.a", "t.b", "t.c", "t.d" },
	  BYTES("\x80\x02(ct\na\n]q\x02(ct\nb\nct\nc\nect\nd\nX\x01\0\0\0xtq\x04.") },
};

static void trace_of(const struct bytes *in, struct uns_arena *arena, struct uns_pickle_trace *trace)
{
	struct uns_span span = uns_span_of(in->p, in->n);
	const struct uns_value *unused;

	*trace = (struct uns_pickle_trace){ 0 };
	assert_int_equal(uns_pickle_parse_traced(&span, arena, &unused, trace, NULL), 0);
}

static void sites(void **state)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_pickle_trace t;

	(void)state;
	trace_of(&pickle, &arena, &t);
	assert_int_equal(t.n, 4);
	assert_false(t.strange);
	assert_int_equal(t.v[0].at, 3);
	assert_int_equal(t.v[0].len, strlen(F32) + 2);
	assert_int_equal(t.v[0].memo, 1);
	assert_true(t.v[1].again && t.v[3].again && !t.v[0].again && !t.v[2].again);
	assert_int_equal(t.v[2].memo, 3);
	assert_int_equal(t.v[2].len, strlen(BF16) + 5);
	assert_true(t.v[0].value != t.v[1].value);
	assert_string_equal(t.v[3].value->cls, "torch.float32");
	uns_arena_fini(&arena);
}

static void renamed(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct uns_arena arena = UNS_ARENA_INIT;
		struct uns_text out = UNS_TEXT_INIT;
		struct uns_pickle_trace t, again;

		trace_of(&pickle, &arena, &t);
		assert_int_equal(uns_pickle_rename(uns_span_of(pickle.p, pickle.n), &t, cases[i].to, &out, NULL), 0);
		if (out.len != cases[i].want.n || memcmp(out.p, cases[i].want.p, out.len) != 0)
			fail_msg("%s", cases[i].name);
		trace_of(&(struct bytes){ out.p, out.len }, &arena, &again);
		assert_int_equal(again.n, 4);
		uns_text_fini(&out);
		uns_arena_fini(&arena);
	}
}

static void refused(void **state)
{
	static const struct bytes strange[] = {
		BYTES("\x80\x04\x8c\x05torch\x8c\x07"
		      "float32\x93."),                         /* STACK_GLOBAL */
		BYTES("\x80\x02(" F32 "q\x01" BF16 "q\x01t."), /* a number twice */
		BYTES("\x80\x02" F32 "q\x01q\x02."),           /* two numbers */
	};
	const char *to[4] = { NULL };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(strange) / sizeof(*strange); i++) {
		struct uns_arena arena = UNS_ARENA_INIT;
		struct uns_text out = UNS_TEXT_INIT;
		struct uns_pickle_trace t;

		trace_of(&strange[i], &arena, &t);
		assert_int_equal(uns_pickle_rename(uns_span_of(strange[i].p, strange[i].n), &t, to, &out, NULL),
				 -ENOTSUP);
		uns_text_fini(&out);
		uns_arena_fini(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sites),
		cmocka_unit_test(renamed),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
