#include "base/number.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct locales {
	locale_t c, before;
};

/* The calling thread has the C locale until c_locale_end(). All categories at once: libc has that locale ready, so
 * that newlocale() allocates nothing and cannot fail. */
static struct locales c_locale_begin(void)
{
	locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);

	return (struct locales){ c, uselocale(c) };
}

static void c_locale_end(struct locales l)
{
	uselocale(l.before);
	if (l.c)
		freelocale(l.c);
}

size_t uns_number_digits(char *text, uint64_t n)
{
	char digit[UNS_NUMBER_ROOM];
	size_t at = sizeof(digit);

	do {
		digit[--at] = (char)('0' + n % 10);
		n /= 10;
	} while (n);
	memcpy(text, digit + at, sizeof(digit) - at);
	return sizeof(digit) - at;
}

bool uns_number_parse(struct uns_span text, double *out)
{
	size_t n = uns_span_left(&text);
	char copy[64], *end;
	struct locales l;

	if (n == 0 || n >= sizeof(copy) || memchr(text.p, '\0', n))
		return false;
	memcpy(copy, text.p, n);
	copy[n] = '\0';
	if (!strchr("+-.0123456789", copy[0]) || copy[strspn(copy, "+-.0123456789eE")])
		return false;
	l = c_locale_begin();
	*out = strtod(copy, &end);
	c_locale_end(l);
	return !*end && isfinite(*out);
}

const char *uns_number_print(char text[UNS_NUMBER_ROOM], double value, int digits)
{
	struct locales l = c_locale_begin();

	snprintf(text, UNS_NUMBER_ROOM, "%.*g", digits, value);
	c_locale_end(l);
	return text;
}

const char *uns_number_print_exact(char text[UNS_NUMBER_ROOM], double value)
{
	int digits = 15;
	double back;

	for (; digits < 17; digits++) {
		uns_number_print(text, value, digits);
		if (uns_number_parse(uns_span_of(text, strlen(text)), &back) && back == value)
			return text;
	}
	return uns_number_print(text, value, 17);
}
