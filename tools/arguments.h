/* The command line of the verbs that read a session and print: ARGUMENT [--json] [-o OPTION,...]. */
#ifndef TOOLS_ARGUMENTS_H
#define TOOLS_ARGUMENTS_H

#include "command.h"
#include "log.h"
#include "options.h"

struct arguments {
	const char *argument;
	bool json;
	struct options options;
	struct log log;
};

/* -1 = go on; else an exit status. */
int arguments_parse(struct arguments *a, const struct command *self, int argc, char **argv);
void arguments_fini(struct arguments *a);

/* Open `source` with the options; only errors are logged, and to stderr unless log= says otherwise. */
int arguments_open(struct arguments *a, const char *source, unshard **out);

#endif
