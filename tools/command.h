/* What the verbs of the command share: exit statuses and how sentences are printed. */
#ifndef TOOLS_COMMAND_H
#define TOOLS_COMMAND_H

#include <stdbool.h>
#include <stdio.h>

#include "flags.h"
#include "unshard.h"

enum {
	EXIT_DONE = 0,
	EXIT_PROBLEM = 1, /* it worked, and what it found is not in order */
	EXIT_COULD_NOT = 2,
	EXIT_NOT_JUDGED = 3, /* it worked and found no problem, but something could not be judged at this moment */
};

enum { MOST_OPERANDS = 3 };

struct command {
	const char *name;
	const char *operands;  /* "SOURCE MOUNTPOINT" */
	const char *arguments; /* all of the command line: "SOURCE MOUNTPOINT [-f] [-o OPTION,...]" */
	const char *summary;
	const char *help;    /* paragraphs, wrapped when they are printed */
	const char *example; /* one command line, and what it is good for behind '#' */
	const struct action *actions; /* or NULL; ends with one that has no name */
	const struct flag *flags;     /* FLAGS_END is the last */
	enum names names[MOST_OPERANDS]; /* of the operands; the last one holds for all that follow */
	bool several;       /* takes several paths: arguments_parse */
	bool hidden;        /* for programs: no list has it */
	unsigned options;   /* whose options after -o it takes (options.h); 0 = none */
	int (*run)(const struct command *self, int argc, char **argv); /* argv[0] = the verb */
};

/* All verbs, in the order of --help; NULL behind the last. */
extern const struct command *const commands[];
/* NULL = no such verb. */
const struct command *command_find(const char *name);

/* "unshard: " and the sentence on stderr; returns EXIT_COULD_NOT. */
__attribute__((format(printf, 1, 2))) int command_fail(const char *fmt, ...);
/* There was no memory for a part of what is to be printed: whatever the verb returns, the command fails. */
void command_no_memory(void);
bool command_lacks_memory(void);
/* How it is used, on stderr; returns EXIT_COULD_NOT. */
int command_usage(const struct command *self);
/* The same behind which of the operands is missing or too many, of the n that were given. */
int command_operands(const struct command *self, int n, char **given);
/* All of it, on stdout; returns EXIT_DONE. */
int command_help(const struct command *self);
/* That of `unshard` itself. Returns EXIT_DONE if `to` is stdout. */
int help_print(FILE *to);

#endif
