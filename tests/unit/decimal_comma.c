/* Linked into every unit test: takes LC_NUMERIC from the environment, as many programs do that unshard runs in. ctest
 * sets it to a locale with a decimal comma that the build made (decimal_comma.locale). */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void locale_take(void)
{
	const char *name = getenv("LC_NUMERIC");

	setlocale(LC_NUMERIC, "");
	if (name && *name && *localeconv()->decimal_point != ',') {
		fprintf(stderr, "LC_NUMERIC=%s has no decimal comma (or LOCPATH does not lead to it)\n", name);
		exit(1);
	}
}
