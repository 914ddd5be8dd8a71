/* The sentences about what went wrong. */
#include "command.h"

#include <stdarg.h>
#include <stdio.h>

int command_fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("unshard: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	return EXIT_COULD_NOT;
}

static bool no_memory;

void command_no_memory(void)
{
	no_memory = true;
}

bool command_lacks_memory(void)
{
	return no_memory;
}
