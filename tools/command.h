/* What the verbs of the command share: exit statuses and how sentences are printed. */
#ifndef TOOLS_COMMAND_H
#define TOOLS_COMMAND_H

#include <stdbool.h>

#include "unshard.h"

enum {
	EXIT_DONE = 0,
	EXIT_PROBLEM = 1, /* it worked, and what it found is not in order */
	EXIT_COULD_NOT = 2,
	EXIT_NOT_JUDGED = 3, /* it worked and found no problem, but something could not be judged at this moment */
};

struct command {
	const char *name;
	const char *arguments; /* "SOURCE MOUNTPOINT [-f] [-o OPTION,...]" */
	const char *summary;
	const char *help;   /* everything but the options of -o */
	bool several;       /* takes several paths: arguments_parse */
	unsigned options;   /* whose options after -o it takes (options.h); 0 = none */
	int (*run)(const struct command *self, int argc, char **argv); /* argv[0] = the verb */
};

extern const struct command cmd_mount, cmd_umount, cmd_ls, cmd_show, cmd_check, cmd_export, cmd_warm, cmd_meta,
	cmd_diff, cmd_seal, cmd_explain;

/* "unshard: " and the sentence on stderr; returns EXIT_COULD_NOT. */
__attribute__((format(printf, 1, 2))) int command_fail(const char *fmt, ...);
/* There was no memory for a part of what is to be printed: whatever the verb returns, the command fails. */
void command_no_memory(void);
bool command_lacks_memory(void);
/* How it is used, on stderr; returns EXIT_COULD_NOT. */
int command_usage(const struct command *self);
/* All of it, on stdout; returns EXIT_DONE. */
int command_help(const struct command *self);

#endif
