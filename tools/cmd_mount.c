/* unshard mount: options, the session and the mount are put together, and what is where is printed. */
#include <dirent.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "fs.h"
#include "text.h"

_Static_assert(sizeof(((struct numbers *)0)->v) / sizeof(int) == FS_MOST_CLONES, "as many as fs takes");

struct mount {
	const struct command *self;
	const char *source, *mountpoint;
	bool foreground;
	bool is_passed; /* mountpoint is /dev/fd/N */
	struct options options;
	struct log log;
	unshard *u;
};

/* A metadata store that cannot be used: the log has it too, but few read a log. */
static void tell_store(const struct mount *m)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT };
	struct unshard_error err = { 0 };

	if (!m->options.library.no_store && unshard_meta_list(m->u, "", &calls, &err) < 0 && !m->foreground)
		fprintf(stderr, "unshard: %s; the mount works without it\n", err.text);
}

/* In the process that serves; its stderr is still the terminal. */
static void serving(void *ctx)
{
	struct mount *m = ctx;
	char line[512];

	tell_store(m);
	snprintf(line, sizeof(line), "unshard %s shows %.200s at %.200s", unshard_version(), m->source, m->mountpoint);
	log_line(&m->log, UNSHARD_LOG_INFO, line);
}

static void live(void *ctx, const char *hint)
{
	struct mount *m = ctx;

	fprintf(stderr, "unshard: %s is shown at %s; log lines go to %s\n", m->source, m->mountpoint,
		log_where(m->options.log, m->foreground));
	if (hint)
		fprintf(stderr, "unshard: %s\n", hint);
}

static void log_failure(void *ctx, int level, const char *line)
{
	struct mount *m = ctx;

	log_line(&m->log, level, line);
}

/* -- what is worth knowing before it is mounted -- */

static size_t entries_of(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *e;
	size_t n = 0;

	while (dir && (e = readdir(dir)))
		n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	if (dir)
		closedir(dir);
	return n;
}

/* `path` is `dir`, or below it; both absolute. */
static bool is_within(const char *path, const char *dir)
{
	size_t n = strcmp(dir, "/") ? strlen(dir) : 0;

	return strncmp(path, dir, n) == 0 && (!path[n] || path[n] == '/');
}

static void tell_covered(const struct mount *m)
{
	char *source = realpath(m->source, NULL), *at = realpath(m->mountpoint, NULL);
	size_t covered = entries_of(m->mountpoint);

	if (source && at && is_within(source, at))
		fprintf(stderr, "unshard: %s is inside %s: its path cannot be used until you unmount\n", m->source,
			m->mountpoint);
	else if (source && at && is_within(at, source))
		fprintf(stderr,
			"unshard: %s is inside %s: other programs that go through %s find the views' files too\n",
			m->mountpoint, m->source, m->source);
	else if (covered)
		fprintf(stderr, "unshard: %s is not empty: its %zu %s cannot be reached until you unmount\n",
			m->mountpoint, covered, plural(covered, "entry", "entries"));
	free(source);
	free(at);
}

enum { MOST_LOOKED_AT = 256 };

struct looked {
	bool found, gave_up;
};

static int scan_step(void *ctx, const struct unshard_progress *p)
{
	struct looked *l = ctx;

	l->found |= p->checkpoints > 0;
	l->gave_up |= p->directories > MOST_LOOKED_AT;
	return l->found || l->gave_up;
}

/* A small tree without a checkpoint is most likely the wrong one. A large one is not gone through for it. */
static void tell_empty(const struct mount *m)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true,
						 .mountpoint = m->is_passed ? NULL : m->mountpoint };
	struct looked l = { 0 };
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = &l, .progress = scan_step };
	unshard *u = NULL;

	if (unshard_open(m->source, &options, &u, NULL) == 0 && unshard_scan(u, &calls, NULL) == 0 && !l.found)
		fprintf(stderr,
			"unshard: no checkpoint found below %s so far; those that are saved there later appear "
			"in the mount\n",
			m->source);
	unshard_close(u);
}

static int serve(struct mount *m, unshard *u)
{
	struct unshard_error err = { 0 };
	const struct fs_options o = {
		.source = m->source,
		.mountpoint = m->mountpoint,
		.clones = m->options.clones.v,
		.n_clones = m->options.clones.n,
		.fuse_options = m->options.fuse,
		.foreground = m->foreground,
		.allow_other = m->options.allow_other,
		.max_threads = m->options.max_threads,
		.read_ahead_kb = m->options.read_ahead_kb,
		.cache = (enum fs_cache)m->options.cache,
		.ready = serving,
		.live = live,
		.log = log_failure,
		.ctx = m,
	};

	return fs_serve(u, &o, &err) < 0 ? command_fail("%s", err.text) : EXIT_DONE;
}

static int session_serve(struct mount *m)
{
	struct unshard_error err = { 0 };
	struct unshard_options *library = &m->options.library;
	char *full_source;
	unshard *u;
	int status;

	if (fs_is_stale(m->mountpoint))
		return command_fail("%s holds a mount whose serving process has ended (Transport endpoint is "
				    "not connected): run `unshard umount %s` (or fusermount3 -u) first",
				    m->mountpoint, m->mountpoint);
	if (log_open(&m->log, m->options.log, m->foreground, &err) < 0)
		return command_fail("%s", err.text);
	library->mountpoint = m->is_passed ? NULL : m->mountpoint; /* where it is mounted is not known */
	library->trim_memory = true;
	library->size = sizeof(*library);
	library->log = log_line;
	library->log_ctx = &m->log;
	library->log_level = m->options.debug ? UNSHARD_LOG_DEBUG : UNSHARD_LOG_INFO;
	if (unshard_open(m->source, library, &u, &err) < 0) {
		log_close(&m->log);
		return command_fail("%s", err.text);
	}
	if (!m->is_passed)
		tell_covered(m);
	tell_empty(m);
	full_source = realpath(m->source, NULL); /* what the mount table shows */
	if (full_source)
		m->source = full_source;
	m->u = u;
	status = serve(m, u);
	unshard_close(u);
	log_close(&m->log);
	free(full_source);
	return status;
}

static int mount_parse(struct mount *m, int argc, char **argv)
{
	struct unshard_error err = { 0 };
	int c;

	/* -n, -s and -v are what mount(8) gives its helpers. */
	while ((c = flags_next(m->self->flags, argc, argv)) != -1) {
		if (c == 'h')
			return command_help(m->self);
		if (c == '?')
			return command_usage(m->self);
		if (c == 'f')
			m->foreground = true;
		if (c == 'o' && options_parse(&m->options, m->self->options, optarg, &err) < 0)
			return command_fail("%s", err.text);
		if (c == 'S' && options_store(&m->options, optarg, &err) < 0)
			return command_fail("%s", err.text);
	}
	if (argc - optind != 2)
		return command_usage(m->self);
	m->source = argv[optind];
	m->mountpoint = argv[optind + 1];
	m->is_passed = fs_passed_fd(m->mountpoint) >= 0;
	return -1;
}

static int mount_run(const struct command *self, int argc, char **argv)
{
	struct mount m = { .self = self };
	int status = mount_parse(&m, argc, argv);

	if (status < 0)
		status = session_serve(&m);
	options_fini(&m.options);
	return status;
}

const struct command cmd_mount = {
	.name = "mount",
	.operands = "SOURCE MOUNTPOINT",
	.arguments = "SOURCE MOUNTPOINT [-f] [-o OPTION,...] [--store FILE|none]",
	.summary = "show the checkpoints below SOURCE at MOUNTPOINT, read-only",
	.help = "Returns when the mount is live; a process in the background serves it until it is unmounted "
		"(unshard umount). Nothing is ever written to SOURCE. MOUNTPOINT /dev/fd/N is the descriptor "
		"of a mount that another process has made.",
	.example = "unshard mount runs mnt    # then load mnt/weights/RUN/checkpoint-N",
	.flags =
		(const struct flag[]){
			{ 'f', "foreground", true, NULL, "serve in this process, until Ctrl-C or umount",
			  NAMES_NOTHING },
			FLAG_O,
			FLAG_STORE,
			FLAG_HELP,
			FLAGS_END,
		},
	.names = { NAMES_DIRECTORY, NAMES_DIRECTORY },
	.options = VERB_MOUNT,
	.run = mount_run,
};
