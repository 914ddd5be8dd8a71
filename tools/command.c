/* A verb's help, and the sentences about what went wrong. */
#include "command.h"

#include <stdarg.h>
#include <stdio.h>

#include "options.h"

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

int command_usage(const struct command *self)
{
	fprintf(stderr, "usage: unshard %s %s\n(more: unshard %s --help)\n", self->name, self->arguments, self->name);
	return EXIT_COULD_NOT;
}

int command_help(const struct command *self)
{
	printf("usage: unshard %s %s\n\n%s", self->name, self->arguments, self->help);
	if (self->options) {
		printf("\nOptions after -o, separated by commas (a comma in a value is written \\,):\n");
		options_help(self->options);
	}
	return EXIT_DONE;
}
