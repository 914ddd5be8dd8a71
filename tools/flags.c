/* See flags.h. */
#include "flags.h"

#include <getopt.h>

enum { MOST = 32 };

bool flag_value_is_optional(const struct flag *flag)
{
	return flag->value && *flag->value == '[';
}

int flags_next(const struct flag *flags, int argc, char **argv)
{
	struct option longs[MOST + 1] = { { 0 } };
	char shorts[2 * MOST + 1];
	size_t n = 0, at = 0;

	for (; flags->code && n < MOST; flags++) {
		if (flags->is_short) {
			shorts[at++] = (char)flags->code;
			if (flags->value)
				shorts[at++] = ':';
		}
		if (flags->name)
			longs[n++] = (struct option){ flags->name,
						      !flags->value                   ? no_argument
						      : flag_value_is_optional(flags) ? optional_argument
										      : required_argument,
						      NULL, flags->code };
	}
	shorts[at] = '\0';
	return getopt_long(argc, argv, shorts, longs, NULL);
}
