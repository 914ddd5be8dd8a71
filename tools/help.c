/* --help: of the command, and of each verb. */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "options.h"
#include "terminal.h"
#include "text.h"

enum { LEFT = 2, RIGHT = 29, MOST_COLUMNS = 80 };

static size_t help_width(FILE *to)
{
	const size_t width = terminal_width(to);

	return width && width < MOST_COLUMNS ? width : MOST_COLUMNS;
}

static void wrapped(FILE *to, const char *text, size_t at, size_t indent)
{
	terminal_wrap(to, text, help_width(to), at, indent);
	fputc('\n', to);
}

/* "  --json                     one object instead" */
static void row(const char *left, const char *right)
{
	const size_t columns = LEFT + terminal_columns(left);

	printf("  %s", left);
	if (columns + 1 >= RIGHT)
		printf("\n%*s", RIGHT, "");
	else
		printf("%*s", (int)(RIGHT - columns), "");
	wrapped(stdout, right, RIGHT, RIGHT);
}

static void usage_print(FILE *to, const struct command *self)
{
	char head[64];
	int n = snprintf(head, sizeof(head), "usage: unshard %s ", self->name);

	fputs(head, to);
	wrapped(to, self->arguments, (size_t)n, (size_t)n);
}

int command_usage(const struct command *self)
{
	usage_print(stderr, self);
	fprintf(stderr, "(more: unshard %s --help)\n", self->name);
	return EXIT_COULD_NOT;
}

int command_operands(const struct command *self, int n, char **given)
{
	const char *p = self->operands;
	int i;

	for (i = 0; *p && i < n; i++) {
		p += strcspn(p, " ");
		p += strspn(p, " ");
	}
	if (*p && *p != '[')
		fprintf(stderr, "unshard %s: %.*s is missing\n", self->name, (int)strcspn(p, " ."), p);
	else if (i < n)
		fprintf(stderr, "unshard %s: %s is one argument too many\n", self->name, given[i]);
	return command_usage(self);
}

static void flag_print(const struct flag *f)
{
	char left[96];

	if (!f->name)
		snprintf(left, sizeof(left), "-%c %s", f->code, f->value);
	else
		snprintf(left, sizeof(left), "%.1s%.1s%s--%s%s%s", f->is_short ? "-" : "",
			 f->is_short ? &(char){ (char)f->code } : "", f->is_short ? ", " : "", f->name,
			 f->value && !flag_value_is_optional(f) ? " " : "", f->value ? f->value : "");
	row(left, f->help);
}

static void actions_print(const struct action *a)
{
	char left[96];

	for (; a && a->name; a++) {
		snprintf(left, sizeof(left), "%s%s%s", a->name, *a->arguments ? " " : "", a->arguments);
		row(left, a->help);
	}
}

static void option_print(void *ctx, const struct option_row *o)
{
	const char **group = ctx;
	char left[64];

	if (o->hidden)
		return;
	if (!*group || strcmp(*group, o->group) != 0)
		printf("\n %s\n", o->group);
	*group = o->group;
	snprintf(left, sizeof(left), "%s%s%s", o->name, o->value ? "=" : "", o->value ? o->value : "");
	row(left, o->help);
}

static void options_print(unsigned verb)
{
	const char *group = NULL;

	putchar('\n');
	wrapped(stdout, "Options after -o, separated by commas (a comma in a value is written \\,):", 0, 0);
	options_visit(verb, option_print, &group);
	puts("\nSizes: 50GB, 5GiB, 512M (= MiB), or bytes.");
	if (verb != VERB_MOUNT)
		return;
	wrapped(stdout, options_passed_on(), 0, 0);
}

int command_help(const struct command *self)
{
	const struct flag *f;

	usage_print(stdout, self);
	putchar('\n');
	wrapped(stdout, self->help, 0, 0);
	putchar('\n');
	actions_print(self->actions);
	if (self->actions)
		putchar('\n');
	for (f = self->flags; f->code; f++)
		flag_print(f);
	printf("\nExample: %s\n", self->example);
	if (self->options)
		options_print(self->options);
	return EXIT_DONE;
}

int help_print(FILE *to)
{
	const struct command *const *c;

	wrapped(to, "unshard shows sharded training checkpoints as the directories that frameworks load.", 0, 0);
	fprintf(to, "\nusage:\n");
	for (c = commands; *c; c++) {
		if ((*c)->hidden)
			continue;
		fprintf(to, "  unshard %s%s%s\n      ", (*c)->name, (*c)->operands[0] ? " " : "", (*c)->operands);
		wrapped(to, (*c)->summary, 6, 6);
	}
	fprintf(to, "\n  unshard VERB --help | help VERB | --version\n\n");
	wrapped(to, "Exit status: 0 done, 1 a checkpoint has a problem, 2 could not be done, 3 not judged yet.", 0, 0);
	return to == stdout ? EXIT_DONE : EXIT_COULD_NOT;
}
