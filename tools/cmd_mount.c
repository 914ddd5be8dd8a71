/* unshard mount: options, the session and the mount are put together, and what is where is printed. */
#include <dirent.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arguments.h"
#include "clock.h"
#include "fs.h"
#include "once.h"
#include "terminal.h"
#include "text.h"

enum { DEFAULT_SETTLE_S = 60 }; /* the library's */

_Static_assert(sizeof(((struct numbers *)0)->v) / sizeof(int) == FS_MOST_CLONES, "as many as fs takes");

/* What a user needs to know, in the order of how much it matters: so many are printed when the mount is live, below the
 * line that it is. */
enum { MOST_NOTES = 2 };

struct mount {
	const struct command *self;
	const char *source, *mountpoint;
	bool foreground;
	bool is_passed; /* mountpoint is /dev/fd/N */
	struct options options;
	struct log log;
	unshard *u;
	struct looked *looked; /* shared with the process that serves; NULL = it does not look */
	char note[MOST_NOTES][2048];
	size_t n_notes;
};

__attribute__((format(printf, 2, 3))) static void note(struct mount *m, const char *fmt, ...)
{
	va_list ap;

	if (m->n_notes == MOST_NOTES)
		return;
	va_start(ap, fmt);
	vsnprintf(m->note[m->n_notes++], sizeof(m->note[0]), fmt, ap);
	va_end(ap);
}

static void say(const char *sentence)
{
	fputs("unshard: ", stderr);
	terminal_wrap(stderr, sentence, terminal_width(stderr), strlen("unshard: "), strlen("unshard: "));
	fputc('\n', stderr);
}

/* A mount is live at once: so much of SOURCE is looked at before, and for so long. No shard is opened whose first
 * reader would open it once more: on a network that is a request each. */
enum { MOST_LOOKED_AT = 256, MOST_CHECKPOINTS = 32, MOST_MS = 1000 };

struct looked {
	int64_t until_ms; /* monotonic */
	size_t n, n_without_config;
	bool gave_up; /* there may be more */
};

static int look_step(void *ctx, const struct unshard_progress *p)
{
	struct looked *l = ctx;

	l->n = p->checkpoints;
	l->gave_up = p->directories > MOST_LOOKED_AT || p->checkpoints > MOST_CHECKPOINTS || clock_ms() > l->until_ms;
	return l->gave_up;
}

static int count_configs(void *ctx, const struct unshard_finding *f)
{
	struct looked *l = ctx;

	l->n_without_config += !strcmp(f->id, "config_missing");
	return 0;
}

static void look(unshard *u, struct looked *l)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = l, .progress = look_step,
					     .finding = count_configs };

	l->until_ms = clock_ms() + MOST_MS;
	unshard_check(u, "", UNSHARD_WITHOUT_HOLES, &calls, NULL, NULL);
}

/* A small tree without a checkpoint is most likely the wrong one; from_pretrained fails without a config.json. */
static void note_looked(struct mount *m, const struct looked *l)
{
	if (!l->n && !l->gave_up && !m->options.library.n_follow) /* the look takes no links to directories */
		note(m, "no checkpoint found below %s so far; those that are saved there later appear in the mount",
		     m->source);
	if (l->n_without_config)
		note(m,
		     "%s%zu of %zu %s no config.json, which from_pretrained needs: add -o model=DIR, or -o "
		     "model=ORG/NAME of the local Hugging Face cache",
		     l->gave_up ? "at least " : "", l->n_without_config, l->n,
		     plural(l->n, "checkpoint has", "checkpoints have"));
}

/* In the process that serves; its stderr is still the terminal. A metadata store that cannot be used: the log has it
 * too, but few read a log. */
static void serving(void *ctx)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT };
	struct unshard_error err = { 0 };
	struct mount *m = ctx;
	char line[640];

	if (!m->options.library.no_store && unshard_meta_list(m->u, "", &calls, &err) < 0 && !m->foreground &&
	    once(err.text)) {
		snprintf(line, sizeof(line), "%s; the mount works without it", err.text);
		say(line);
	}
	snprintf(line, sizeof(line), "unshard %s shows %.200s at %.200s", unshard_version(), m->source, m->mountpoint);
	log_line(&m->log, UNSHARD_LOG_INFO, line);
}

/* What is fetched for it stays in memory: so the process that serves an object store's checkpoints looks itself. */
static void look_once_confined(void *ctx)
{
	struct mount *m = ctx;

	if (m->looked)
		look(m->u, m->looked);
}

static void live(void *ctx, const char *hint)
{
	struct mount *m = ctx;
	char line[9000];
	size_t i;

	if (m->looked)
		note_looked(m, m->looked);
	if (hint)
		note(m, "%s", hint);
	snprintf(line, sizeof(line), "%s is shown at %s; log lines go to %s", m->source, m->mountpoint,
		 log_where(&m->log, m->options.log));
	say(line);
	for (i = 0; i < m->n_notes; i++)
		say(m->note[i]);
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

static void note_covered(struct mount *m)
{
	char *source = realpath(m->source, NULL), *at = realpath(m->mountpoint, NULL);
	size_t covered = entries_of(m->mountpoint);

	if (source && at && is_within(source, at))
		note(m, "%s is inside %s: its path cannot be used until you unmount", m->source, m->mountpoint);
	else if (source && at && is_within(at, source))
		note(m, "%s is inside %s: other programs that go through %s find the views' files too", m->mountpoint,
		     m->source, m->source);
	else if (covered)
		note(m, "%s is not empty: its %zu %s cannot be reached until you unmount", m->mountpoint, covered,
		     plural(covered, "entry", "entries"));
	free(source);
	free(at);
}

/* A client that keeps what it knows of directories and files for longer than a save has to rest shows the end of the
 * save too late. How long by default: docs of sshfs 3.7 (dcache_timeout), s3fs 1.90 (stat_cache_expire), rclone 1.60
 * (--dir-cache-time). What a mount was given cannot be asked for. */
static void note_settle(struct mount *m)
{
	static const struct {
		const char *type, *option;
		unsigned seconds;
	} known[] = { { "fuse.sshfs", "-o dcache_timeout=", 20 },
		      { "fuse.s3fs", "-o stat_cache_expire=", 900 },
		      { "fuse.rclone", "--dir-cache-time", 300 } };
	const struct unshard_options *o = &m->options.library;
	const unsigned settle = o->settle_seconds ? o->settle_seconds : DEFAULT_SETTLE_S;
	struct fs_mount at;
	struct stat st;
	size_t i;

	if (o->no_settling || stat(m->source, &st) < 0 || !fs_mount_of(st.st_dev, &at))
		return;
	for (i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (strcmp(known[i].type, at.type) == 0 && settle < known[i].seconds)
			note(m,
			     "%s is on %s, which by default shows a change up to %u s late, and settle=%u "
			     "is less: a save may be called damaged while it goes on. Mount with -o settle=%u, or "
			     "mount %s with a shorter %s",
			     m->source, at.type, known[i].seconds, settle, known[i].seconds, at.type, known[i].option);
}

static void look_afresh(const struct mount *m, struct looked *l)
{
	struct unshard_options options = m->options.library;
	unshard *u = NULL;

	options.no_store = true;
	options.store = NULL;
	options.log = NULL;
	if (unshard_open(m->source, &options, &u, NULL) == 0) {
		look(u, l);
		unshard_close(u);
	} else {
		l->gave_up = true;
	}
}

/* In a process of its own: a large checkpoint, or storage that hangs, takes neither the mount's time nor its memory.
 * That process is over when its end of the pipe is closed. */
static bool look_within_time(const struct mount *m, struct looked *l)
{
	int ends[2];
	pid_t pid;
	struct pollfd over;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return false;
	pid = fork();
	if (pid == 0) {
		look_afresh(m, l);
		_exit(0);
	}
	close(ends[1]);
	over = (struct pollfd){ .fd = ends[0] };
	if (pid > 0 && poll(&over, 1, MOST_MS) == 0) {
		kill(pid, SIGKILL);
		l->gave_up = true;
		poll(&over, 1, MOST_MS);
	}
	if (pid > 0 && over.revents)
		waitpid(pid, NULL, 0);
	close(ends[0]);
	return pid > 0;
}

/* Before it is mounted; of an object store, once it is. */
static void note_content(struct mount *m)
{
	struct looked *l = mmap(NULL, sizeof(*l), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (l == MAP_FAILED)
		return;
	if (path_is_url(m->source)) {
		m->looked = l;
		return;
	}
	if (!look_within_time(m, l))
		l->gave_up = true;
	note_looked(m, l);
	munmap(l, sizeof(*l));
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
		.seal = m->options.seal,
		.seal_bytes_per_s = m->options.seal_bytes_per_s,
		.ready = serving,
		.confined = look_once_confined,
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
	library->keeps_pages = (enum fs_cache)m->options.cache == FS_CACHE_SOURCES;
	library->size = sizeof(*library);
	library->log = log_line;
	library->log_ctx = &m->log;
	library->log_level = m->options.debug ? UNSHARD_LOG_DEBUG : UNSHARD_LOG_INFO;
	if (unshard_open(m->source, library, &u, &err) < 0) {
		log_close(&m->log);
		return command_fail("%s", err.text);
	}
	if (!m->is_passed)
		note_covered(m);
	note_settle(m);
	note_content(m);
	full_source = path_real(m->source); /* what the mount table shows */
	if (full_source)
		m->source = full_source;
	m->u = u;
	status = serve(m, u);
	unshard_close(u);
	log_close(&m->log);
	if (m->looked)
		munmap(m->looked, sizeof(*m->looked));
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
		return command_operands(m->self, argc - optind, argv + optind);
	if (m->options.seal_bytes_per_s && !m->options.seal)
		return command_fail("option seal_rate changes nothing without seal=auto");
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
		"(unshard umount). Nothing is ever written to SOURCE, which is a directory or, in an object store, "
		"s3://BUCKET/PREFIX. MOUNTPOINT /dev/fd/N is the descriptor of a mount that another process has made.",
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
