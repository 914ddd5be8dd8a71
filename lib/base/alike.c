#include "base/alike.h"

#include <stddef.h>

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Past the component that begins there. NULL = it is no number. */
static const char *past_number(const char *at)
{
	const char *end = at;

	while (is_digit(*end))
		end++;
	return end > at && (*end == '.' || *end == '\0') ? end : NULL;
}

/* Where the names continue behind the components in which they differ. Returns false if one of these is no number.
 * name: where the first of them begins. */
static bool past_numbers(const char *name, const char **a, const char **b)
{
	while (*a > name && is_digit((*a)[-1])) {
		--*a;
		--*b;
	}
	if (*a > name && (*a)[-1] != '.')
		return false;
	*a = past_number(*a);
	*b = past_number(*b);
	return *a && *b;
}

bool uns_names_alike(const char *a, const char *b)
{
	const char *name = a;

	for (;;) {
		for (; *a == *b; a++, b++)
			if (!*a)
				return true;
		if (!past_numbers(name, &a, &b) || *a != *b)
			return false;
	}
}

unsigned uns_alike_find(struct uns_alike *alike, const char *name, bool *is_new)
{
	unsigned i, at = alike->turn;

	*is_new = false;
	for (i = 0; i < alike->n; i++, at = at + 1 < alike->n ? at + 1 : 0)
		if (uns_names_alike(alike->kept[at], name))
			break;
	if (i == alike->n) {
		*is_new = true;
		if (alike->n < UNS_ALIKE_KEPT)
			at = alike->n++;
		alike->kept[at] = name;
	}
	alike->turn = at + 1 < alike->n ? at + 1 : 0;
	return at;
}
