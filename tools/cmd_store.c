/* unshard store: the metadata store as a whole. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "json.h"
#include "log.h"
#include "options.h"
#include "text.h"

enum { DAY_S = 86400, KEPT_DAYS = 30 };

struct store {
	struct options options;
	struct log log;
	unshard *u;
	bool json;
	unsigned days;
	const char *file; /* of export, import and move */
};

/* -- show, verify, gc -- */

static int show(struct store *s)
{
	struct unshard_store_counts n = { UNSHARD_STORE_COUNTS_INIT };
	struct unshard_error err = { 0 };
	char size[32], cached[32];
	cJSON *o;

	if (unshard_store_count(s->u, &n, &err) < 0)
		return log_fail(&s->log, &err);
	if (s->json) {
		o = json_object();
		json_add(o, "path", unshard_store_file(s->u));
		json_add_number(o, "size_bytes", (double)n.size_bytes);
		json_add_number(o, "facts", (double)n.facts);
		json_add_number(o, "seals", (double)n.seals);
		json_add_number(o, "cached", (double)n.cached);
		json_add_number(o, "cached_bytes", (double)n.cached_bytes);
		json_print(o);
		cJSON_Delete(o);
		return EXIT_DONE;
	}
	text_bytes(n.size_bytes, size);
	text_bytes(n.cached_bytes, cached);
	text_print(unshard_store_file(s->u));
	printf("%s\n  size             %s\n  facts            %" PRIu64 " (unshard meta)\n  seals            %" PRIu64
	       " (unshard seal)\n  cached metadata  %" PRIu64 ", %s (safe to delete: unshard store gc)\n",
	       n.read_only ? " (read-only)" : "", size, n.facts, n.seals, n.cached, cached);
	return EXIT_DONE;
}

static int verify(struct store *s)
{
	struct unshard_error err = { 0 };
	int code = unshard_store_verify(s->u, &err);

	if (code == -EBADMSG) {
		command_fail("%s", err.text);
		return EXIT_PROBLEM;
	}
	if (code < 0)
		return log_fail(&s->log, &err);
	if (*s->log.told.text) /* it was damaged: the warning above has where it is now, and a new one was begun */
		return EXIT_PROBLEM;
	text_print(unshard_store_file(s->u));
	puts(" is whole");
	return EXIT_DONE;
}

static int gc(struct store *s)
{
	struct unshard_error err = { 0 };
	size_t n;

	if (unshard_store_forget(s->u, (int64_t)s->days * DAY_S, &n, &err) < 0)
		return log_fail(&s->log, &err);
	printf("%zu %s of cached metadata deleted, not used for %u %s; facts and seals stay\n", n,
	       plural(n, "piece", "pieces"), s->days, plural(s->days, "day", "days"));
	return EXIT_DONE;
}

/* -- copies -- */

static int copy_to_file(struct store *s)
{
	struct unshard_error err = { 0 };

	if (unshard_store_copy(s->u, s->file, &err) < 0)
		return log_fail(&s->log, &err);
	return EXIT_DONE;
}

static int export(struct store *s)
{
	int status = copy_to_file(s);

	if (status == EXIT_DONE)
		printf("%s is a copy: use it with --store, or bring it to another machine and `unshard store import` it\n",
		       s->file);
	return status;
}

/* The old file stays until the new one was read. */
static int move(struct store *s)
{
	const char *const behind[] = { "", "-wal", "-shm" };
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .store = s->file };
	struct unshard_error err = { 0 };
	char *old = strdup(unshard_store_file(s->u)), path[4200];
	int status = old ? copy_to_file(s) : command_fail("out of memory");
	unshard *u = NULL;
	size_t i;

	if (status == EXIT_DONE && (unshard_open("/", &options, &u, &err) < 0 || unshard_store_verify(u, &err) < 0))
		status = command_fail("%s; nothing was deleted", err.text);
	unshard_close(u);
	unshard_close(s->u);
	s->u = NULL;
	for (i = 0; status == EXIT_DONE && i < sizeof(behind) / sizeof(*behind); i++) {
		snprintf(path, sizeof(path), "%s%s", old, behind[i]);
		if (unlink(path) < 0 && errno != ENOENT)
			status = command_fail("%s: %s", path, strerror(errno));
	}
	if (status == EXIT_DONE)
		printf("%s is the store now: name it with --store\n", s->file);
	free(old);
	return status;
}

/* Into the place of a store that holds nothing that would be lost. */
static int import(struct store *s)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .store = s->file };
	struct unshard_store_counts n = { UNSHARD_STORE_COUNTS_INIT };
	struct unshard_error err = { 0 };
	char path[4200], temporary[4300];
	unshard *u = NULL;
	int status = EXIT_DONE;

	snprintf(path, sizeof(path), "%s", unshard_store_file(s->u));
	snprintf(temporary, sizeof(temporary), "%s.import", path);
	if (access(s->file, R_OK) < 0)
		return command_fail("%s: %s", s->file, strerror(errno));
	if (unshard_store_count(s->u, &n, &err) < 0)
		return log_fail(&s->log, &err);
	if (n.facts || n.seals)
		return command_fail(
			"%s holds %" PRIu64 " facts and %" PRIu64
			" seals, which would be lost: use %s with --store, or import its facts with `unshard meta "
			"import`",
			path, n.facts, n.seals, s->file);
	if (unshard_open("/", &options, &u, &err) < 0 || unshard_store_verify(u, &err) < 0 ||
	    unshard_store_copy(u, temporary, &err) < 0)
		status = command_fail("%s", err.text);
	unshard_close(u);
	unshard_close(s->u); /* its write-ahead log is put away */
	s->u = NULL;
	if (status == EXIT_DONE && rename(temporary, path) < 0)
		status = command_fail("%s: %s", path, strerror(errno));
	if (status == EXIT_DONE)
		printf("%s holds what %s has\n", path, s->file);
	return status;
}

/* -- which -- */

static const struct {
	const char *name;
	int n; /* further arguments */
	int (*run)(struct store *s);
} deeds[] = { { "show", 0, show },     { "verify", 0, verify }, { "gc", 0, gc },
	      { "export", 1, export }, { "import", 1, import }, { "move", 1, move } };

static int open_and_run(struct store *s, int (*run)(struct store *s))
{
	struct unshard_options *library = &s->options.library;
	struct unshard_error err = { 0 };
	int status;

	if (log_open(&s->log, NULL, true, &err) < 0)
		return command_fail("%s", err.text);
	library->size = sizeof(*library);
	library->log = log_line;
	library->log_ctx = &s->log;
	library->log_level = UNSHARD_LOG_WARNING;
	if (unshard_open("/", library, &s->u, &err) < 0)
		return command_fail("%s", err.text);
	status = unshard_store_file(s->u)
			 ? run(s)
			 : command_fail("there is no metadata store (--store none, or no home directory)");
	unshard_close(s->u);
	log_close(&s->log);
	return status;
}

static bool parse_days(const char *text, unsigned *out)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	*out = (unsigned)n;
	return *text >= '0' && *text <= '9' && !*end && n <= 36500;
}

static int store_run(const struct command *self, int argc, char **argv)
{
	struct store s = { .log = { .fd = -1 }, .days = KEPT_DAYS };
	struct unshard_error err = { 0 };
	const char *days = NULL;
	size_t i;
	int c, status = -1;

	while ((c = flags_next(self->flags, argc, argv)) != -1) {
		if (c == 'h')
			return command_help(self);
		if (c == '?')
			return command_usage(self);
		s.json |= c == 'j';
		if (c == 'd')
			days = optarg;
		if (c == 'S' && options_store(&s.options, optarg, &err) < 0)
			return command_fail("%s", err.text);
	}
	if (days && !parse_days(days, &s.days))
		return command_fail("--days=%s: expected a number of days", days);
	for (i = 0; optind < argc && i < sizeof(deeds) / sizeof(*deeds); i++)
		if (!strcmp(deeds[i].name, argv[optind]) && argc - optind - 1 == deeds[i].n) {
			s.file = deeds[i].n ? argv[optind + 1] : NULL;
			status = open_and_run(&s, deeds[i].run);
			break;
		}
	if (status < 0)
		status = command_usage(self);
	options_fini(&s.options);
	return status;
}

const struct command cmd_store = {
	.name = "store",
	.operands = "ACTION [FILE]",
	.arguments = "show | verify | gc | export FILE | import FILE | move FILE [--days DAYS] [--json] [--store FILE]",
	.summary = "look after the metadata store: what it holds, verify, clean, move, export, import",
	.help = "The store is one file, with facts (unshard meta), seals (unshard seal) and cached metadata, which can be found "
		"again. Facts and seals are never deleted. Exit status: 1 if verify finds damage.",
	.example = "unshard store export /mnt/backup/store.db",
	.actions =
		(const struct action[]){
			{ "show", "",
			  "where it is, its size, and how many facts, seals and pieces of cached metadata it has" },
			{ "verify", "", "read all of it" },
			{ "gc", "", "delete cached metadata that was not used for --days" },
			{ "export", "FILE", "write a copy, for a backup or another machine" },
			{ "import", "FILE", "take such a copy, if this store has no facts and no seals" },
			{ "move", "FILE", "copy it to FILE, read the copy, and delete the old file" },
			{ NULL, NULL, NULL },
		},
	.flags =
		(const struct flag[]){
			{ 'd', "days", false, "DAYS", "gc: how long unused (30)", NAMES_NOTHING },
			FLAG_JSON("show: as one object"),
			{ 'S', "store", false, "FILE",
			  "the store ($XDG_STATE_HOME/unshard/store.db, or ~/.local/state/unshard/store.db)",
			  NAMES_FILE },
			FLAG_HELP,
			FLAGS_END,
		},
	.names = { NAMES_ACTION, NAMES_FILE },
	.run = store_run,
};
