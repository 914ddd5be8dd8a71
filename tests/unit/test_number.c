/* Numbers of files: with a point, in any locale. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"

static bool parsed(const char *text, double *out)
{
	return uns_number_parse(uns_span_of(text, strlen(text)), out);
}

static void test_what_is_a_number(void **state)
{
	static const struct {
		const char *text;
		double value;
	} good[] = { { "0.125", 0.125 }, { "-2.5e3", -2500 }, { ".5", 0.5 }, { "+7", 7 }, { "1E-3", 0.001 } };
	static const char *const bad[] = { "",      "0,125", "1 ", " 1", "0x10", "nan", "inf", "-inf",
					   "1e999", "1.2.3", "-",  "1e", ".",    "e5",  "1_0", "1;2" };
	double v;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_true(parsed(good[i].text, &v));
		assert_true(v == good[i].value);
	}
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (parsed(bad[i], &v))
			fail_msg("\"%s\" was read as a number", bad[i]);
	assert_false(uns_number_parse(uns_span_of("1\0", 2), &v));
}

static void test_a_span_ends_where_it_ends(void **state)
{
	double v;

	(void)state;
	assert_true(uns_number_parse(uns_span_of("0.1259", 5), &v));
	assert_true(v == 0.125);
}

static void test_print(void **state)
{
	char text[UNS_NUMBER_ROOM];

	(void)state;
	assert_string_equal(uns_number_print(text, 0.125, 15), "0.125");
	assert_string_equal(uns_number_print(text, 9007199254740991.0, 17), "9007199254740991");
	assert_string_equal(uns_number_print_exact(text, 0.1), "0.1");
	assert_string_equal(uns_number_print_exact(text, 1e-5), "1e-05");
	assert_string_equal(uns_number_print_exact(text, 0.1 + 0.2), "0.30000000000000004");
	assert_int_equal(strlen(uns_number_print(text, -DBL_MIN / 3, 17)) < sizeof(text), true);
}

static void test_digits(void **state)
{
	static const uint64_t some[] = { 0, 9, 10, 1099, 1000000, UINT64_MAX };
	char text[UNS_NUMBER_ROOM], expected[UNS_NUMBER_ROOM];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
		snprintf(expected, sizeof(expected), "%llu", (unsigned long long)some[i]);
		text[uns_number_digits(text, some[i])] = '\0';
		assert_string_equal(text, expected);
	}
}

/* Texts that fit into the room that there is, that fill it, and that are longer. */
static void test_text_of_any_length(void **state)
{
	struct uns_text t = UNS_TEXT_INIT;
	size_t len, sum = 0;

	(void)state;
	for (len = 0; len < 600; len += 37) {
		uns_text_printf(&t, "%*s", (int)len, "x");
		sum += len ? len : 1;
		assert_int_equal(t.len, sum);
		assert_int_equal(strlen(t.p), sum);
		assert_int_equal(t.p[sum - 1], 'x');
	}
	uns_text_fini(&t);
}

/* The program's own printf keeps its locale before and after. */
static void test_the_program_keeps_its_locale(void **state)
{
	char before[UNS_NUMBER_ROOM], after[UNS_NUMBER_ROOM], text[UNS_NUMBER_ROOM];
	double v;

	(void)state;
	snprintf(before, sizeof(before), "%.1f", 0.5);
	parsed("0.5", &v);
	uns_number_print(text, 0.5, 15);
	snprintf(after, sizeof(after), "%.1f", 0.5);
	assert_string_equal(before, after);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_a_number),
		cmocka_unit_test(test_a_span_ends_where_it_ends),
		cmocka_unit_test(test_print),
		cmocka_unit_test(test_digits),
		cmocka_unit_test(test_text_of_any_length),
		cmocka_unit_test(test_the_program_keeps_its_locale),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
