/* Which names are alike, and which set of them a name is in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/alike.h"

static void alike(const char *a, const char *b, bool expected)
{
	assert_int_equal(uns_names_alike(a, b), expected);
	assert_int_equal(uns_names_alike(b, a), expected);
	assert_true(uns_names_alike(a, a) && uns_names_alike(b, b));
}

static void numbers_make_no_difference(void **state)
{
	(void)state;
	alike("layers.1.w", "layers.2.w", true);
	alike("layers.1.w", "layers.10.w", true);
	alike("layers.19.experts.7.w", "layers.2.experts.711.w", true);
	alike("1", "23", true);
	alike("a.1", "a.12", true);
	alike("0.a", "00.a", true);
}

static void all_else_does(void **state)
{
	(void)state;
	alike("", "1", false);
	alike("a", "b", false);
	alike("a", "a.1", false);
	alike("a.1", "a.", false);
	alike("a.1", "a.b", false);
	alike("a.1.w", "a..w", false);
	alike("layers.1.w", "layers.1.v", false);
	alike("layers.1.w", "layers.2.wide", false);
	alike("ia3_l", "ia4_l", false); /* no component is a number */
	alike("a.w1", "a.w2", false);
	alike("a.1w", "a.2w", false);
	alike("a.12x", "a.1", false);
	alike("a.1.b.x", "a.2.b", false);
	alike("a.1.2", "a.1.2.3", false);
	alike("1.x", "12", false);
}

/* Against the definition: components are compared one by one. */
static bool by_definition(const char *a, const char *b)
{
	size_t n, m;

	for (;; a += n + 1, b += m + 1) {
		n = strcspn(a, ".");
		m = strcspn(b, ".");
		if ((n != m || memcmp(a, b, n) != 0) &&
		    !(n && m && strspn(a, "0123456789") == n && strspn(b, "0123456789") == m))
			return false;
		if (!a[n] || !b[m])
			return a[n] == b[m];
	}
}

static void is_as_defined(void **state)
{
	static const char letters[] = "a1.";
	char name[400][8] = { "" };
	size_t n = 1, i, k;

	(void)state;
	for (i = 0; n + 3 <= 364; i++) /* all names of up to five letters */
		for (k = 0; k < 3; k++, n++) {
			memcpy(name[n], name[i], sizeof(*name));
			name[n][strlen(name[i])] = letters[k];
		}
	for (i = 0; i < n; i++)
		for (k = 0; k < n; k++)
			assert_int_equal(uns_names_alike(name[i], name[k]), by_definition(name[i], name[k]));
}

static void sets_keep_their_numbers(void **state)
{
	char name[40][16], other[2 * UNS_ALIKE_KEPT][16];
	struct uns_alike kept = { 0 };
	bool is_new;
	unsigned i;

	(void)state;
	for (i = 0; i < 40; i++) {
		snprintf(name[i], sizeof(*name), "x.%u.%c", i / 4, 'a' + (int)(i % 4));
		assert_int_equal(uns_alike_find(&kept, name[i], &is_new), i % 4);
		assert_int_equal(is_new, i < 4);
	}
	for (i = 0; i < 2 * UNS_ALIKE_KEPT; i++) { /* more sets than are kept */
		snprintf(other[i], sizeof(*other), "set%u", i);
		assert_true(uns_alike_find(&kept, other[i], &is_new) < UNS_ALIKE_KEPT);
		assert_true(is_new);
	}
	for (i = UNS_ALIKE_KEPT; i < 2 * UNS_ALIKE_KEPT; i++) {
		uns_alike_find(&kept, other[i], &is_new);
		assert_false(is_new);
	}
	assert_int_equal(kept.n, UNS_ALIKE_KEPT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_make_no_difference),
		cmocka_unit_test(all_else_does),
		cmocka_unit_test(is_as_defined),
		cmocka_unit_test(sets_keep_their_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
