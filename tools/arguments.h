/* The command line of verbs with one argument, or with several of one kind: ARGUMENT... [--json] [-o OPTION,...]. */
#ifndef TOOLS_ARGUMENTS_H
#define TOOLS_ARGUMENTS_H

#include "command.h"
#include "log.h"
#include "options.h"

struct arguments {
	const char *argument; /* the first of `all` */
	char **all;
	size_t n_all;
	bool json;
	bool every; /* --all */
	bool values; /* --values */
	const char *tensors; /* --tensors[=GLOB]; NULL = not asked for */
	const char *html, *svg; /* --html FILE, --svg FILE; NULL = not asked for */
	const char *worlds; /* --world N,...; NULL = not asked for */
	bool quiet; /* warnings are not logged: the verb itself prints what it fails with */
	struct options options;
	struct log log;
};

/* One flag that all these verbs know: json, store, -o, help. -1 = done, or it is the verb's own; else an exit status.
 */
int arguments_flag(struct arguments *a, const struct command *self, int code);
/* For a verb that has these flags alone, --tensors ('t'), --html ('H'), --svg ('G'), --world ('W'), --values ('V') and
 * --all ('a'). -1 = parsed; else an exit status. */
int arguments_parse(struct arguments *a, const struct command *self, int argc, char **argv);
/* What getopt left of the command line, at least one. */
void arguments_take(struct arguments *a, int argc, char **argv);
void arguments_fini(struct arguments *a);

/* Open `source` with the options; warnings and errors are logged, to stderr unless log= names a file. */
int arguments_open(struct arguments *a, const char *source, unshard **out);
/* The same for a checkpoint or a run at `path`, absolute, which is cut: the directory above it is opened, so that
 * the run's files beside a checkpoint are seen; where that may not be read, or there is none, the directory itself.
 * *below: its path below what was opened; points into `path`. */
int arguments_open_above(struct arguments *a, char *path, unshard **out, const char **below);

/* What unshard_calls.writes is for a verb that writes one directory: from here on it can write nowhere else. */
int arguments_write_only(const unshard *u, const char *directory);

#endif
