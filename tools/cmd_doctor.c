/* unshard doctor: what this machine lacks for a mount, and the line that mends it. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "command.h"
#include "fs.h"
#include "json.h"
#include "log.h"
#include "terminal.h"
#include "text.h"

/* GOOD; worth knowing; slower or less than it could be; no mount is possible. */
enum state { GOOD, NOTE, WORSE, NO_MOUNT };

struct doctor {
	cJSON *json; /* NULL = for people */
	size_t n_worse, n_no_mount;
};

static const char *const state_text[] = { "ok", "note", "worse", "problem" };

/* mend: the line that mends it, or NULL. */
__attribute__((format(printf, 5, 6))) static void report(struct doctor *d, const char *what, enum state state,
							 const char *mend, const char *fmt, ...)
{
	const enum colour colour = state == NO_MOUNT ? COLOUR_BAD : state == WORSE ? COLOUR_UNSURE : COLOUR_NONE;
	char text[1024];
	va_list ap;
	cJSON *o;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	d->n_worse += state == WORSE;
	d->n_no_mount += state == NO_MOUNT;
	if (d->json) {
		o = json_object();
		json_add(o, "check", what);
		json_add(o, "state", state_text[state]);
		json_add(o, "text", text);
		json_add(o, "mend", mend);
		json_append(d->json, o);
		return;
	}
	printf("%s%-8s%s %-14s ", terminal_colour(stdout, colour), state_text[state], terminal_plain(stdout, colour),
	       what);
	terminal_wrap(stdout, text, terminal_width(stdout), 24, 24);
	putchar('\n');
	if (mend) {
		printf("%24s", "");
		terminal_wrap(stdout, mend, 0, 24, 24);
		putchar('\n');
	}
}

/* -- what a mount needs -- */

static bool in_container(void)
{
	return access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0 ||
	       getenv("KUBERNETES_SERVICE_HOST");
}

static void look_at_container(struct doctor *d)
{
	if (in_container())
		report(d, "container", NOTE, NULL,
		       "this is a container: a mount needs /dev/fuse and CAP_SYS_ADMIN in it, or one that the "
		       "host makes and passes in");
	else
		report(d, "container", GOOD, NULL, "none");
}

static void look_at_device(struct doctor *d)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd >= 0) {
		close(fd);
		report(d, "/dev/fuse", GOOD, NULL, "can be opened");
	} else if (in_container()) {
		report(d, "/dev/fuse", NO_MOUNT, "docker run --device /dev/fuse --cap-add SYS_ADMIN ...",
		       "%s; unshard export and the Python package need none", strerror(errno));
	} else {
		report(d, "/dev/fuse", NO_MOUNT, errno == ENOENT ? "modprobe fuse" : "chmod 666 /dev/fuse",
		       "%s; unshard export and the Python package need none", strerror(errno));
	}
}

/* Where a program is; false = in none of $PATH's directories. */
static bool find_program(const char *name, char out[4096], struct stat *st)
{
	const char *path = getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin";
	size_t n;

	for (; *path; path += n + (path[n] == ':')) {
		n = strcspn(path, ":");
		if (snprintf(out, 4096, "%.*s/%s", (int)n, path, name) < 4096 && stat(out, st) == 0 &&
		    S_ISREG(st->st_mode))
			return true;
	}
	return false;
}

static void look_at_fusermount(struct doctor *d)
{
	char path[4096];
	struct stat st;
	const bool found = find_program("fusermount3", path, &st);

	if (geteuid() == 0)
		report(d, "fusermount3", GOOD, NULL, "root needs none");
	else if (!found)
		report(d, "fusermount3", NO_MOUNT, "apt install fuse3    # or: dnf install fuse3",
		       "not found, and only root can mount without it");
	else if (!(st.st_mode & S_ISUID))
		report(d, "fusermount3", NO_MOUNT, "chmod u+s $(command -v fusermount3)    # as root",
		       "%s is not setuid root", path);
	else
		report(d, "fusermount3", GOOD, NULL, "%s", path);
}

static bool has_line(const char *path, const char *wanted)
{
	FILE *file = fopen(path, "re");
	char line[512];
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file)) {
		line[strcspn(line, " \t\r\n")] = '\0';
		found = !strcmp(line, wanted);
	}
	if (file)
		fclose(file);
	return found;
}

static void look_at_allow_other(struct doctor *d)
{
	if (geteuid() == 0 || has_line("/etc/fuse.conf", "user_allow_other"))
		report(d, "allow_other", GOOD, NULL, "-o allow_other can be used");
	else
		report(d, "allow_other", NOTE, "echo user_allow_other >> /etc/fuse.conf    # as root",
		       "other users cannot be given access to a mount");
}

/* -- what makes it slower or weaker -- */

static void look_at_limits(struct doctor *d)
{
	struct rlimit files = { 0, 0 };

	getrlimit(RLIMIT_NOFILE, &files);
	if (files.rlim_max < 4096)
		report(d, "open files", WORSE, "ulimit -Hn 65536",
		       "at most %llu: checkpoints with more shards are opened again and again",
		       (unsigned long long)files.rlim_max);
	else
		report(d, "open files", GOOD, NULL, "up to %llu", (unsigned long long)files.rlim_max);
}

static void look_at_readahead(struct doctor *d)
{
	if (access("/sys/class/bdi", W_OK) == 0)
		report(d, "read-ahead", GOOD, NULL, "is set to 4 MiB for a mount (-o readahead=)");
	else
		report(d, "read-ahead", WORSE,
		       "echo 'SUBSYSTEM==\"bdi\", ACTION==\"add\", ATTR{read_ahead_kb}=\"4096\"' > /etc/udev/rules.d/99-unshard.rules    # as root",
		       "stays at the kernel's 128 KiB, because only root may set it: reading from storage that is slow to answer takes longer");
}

static void look_at_kernel(struct doctor *d)
{
	long landlock = fs_landlock_version();
	const long page = sysconf(_SC_PAGESIZE);
	struct utsname name = { .release = "?" };

	uname(&name);
	report(d, "kernel", GOOD, NULL, "Linux %s, pages of %ld KiB", name.release, page / 1024);
	if (landlock > 0)
		report(d, "Landlock", GOOD, NULL,
		       "version %ld: the serving process can write only to the store and cache_dir", landlock);
	else
		report(d, "Landlock", NOTE, NULL,
		       "not in this kernel, or turned off: the serving process is confined by capabilities alone");
}

static void look_at_cuda(struct doctor *d)
{
	const struct unshard_device_options options = { UNSHARD_DEVICE_OPTIONS_INIT, .buffer_bytes = 4096,
							.n_buffers = 1, .n_threads = 1 };
	struct unshard_error err = { 0 };
	unshard_device *device = NULL;

	if (unshard_device_open(0, &options, &device, &err) == 0)
		report(d, "GPU", GOOD, NULL, "tensors can be read into the memory of GPU 0");
	else
		report(d, "GPU", NOTE, NULL, "not used: %s", err.text);
	unshard_device_close(device);
}

static void look_at_store(struct doctor *d, unshard *u)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT };
	struct unshard_error err = { 0 };

	if (unshard_meta_list(u, "", &calls, &err) == 0)
		report(d, "store", GOOD, NULL, "below %s", unshard_store_directory(u));
	else
		report(d, "store", WORSE, "export XDG_STATE_HOME=DIR", "%s", err.text);
}

static void look_at_cache(struct doctor *d, const unshard *u)
{
	const char *directory = unshard_cache_directory(u);
	struct statvfs st;
	char free_text[32];

	if (access(directory, W_OK) < 0 || statvfs(directory, &st) < 0) {
		report(d, "cache_dir", WORSE, "export TMPDIR=DIR",
		       "%s: %s: compressed pieces are decoded again for each read", directory, strerror(errno));
		return;
	}
	text_bytes((uint64_t)st.f_bavail * st.f_frsize, free_text);
	report(d, "cache_dir", GOOD, NULL, "%s, %s free", directory, free_text);
}

static void look_at_log(struct doctor *d)
{
	struct unshard_error err = { 0 };
	struct log log;

	if (log_open(&log, NULL, false, &err) < 0)
		return;
	report(d, "log", strncmp(log_where(&log, NULL), "nowhere", 7) ? GOOD : WORSE, NULL, "lines of a mount go to %s",
	       log_where(&log, NULL));
	log_close(&log);
}

static void drop(void *ctx, int level, const char *line)
{
	(void)ctx, (void)level, (void)line;
}

static int examine(struct doctor *d)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .log = drop };
	struct unshard_error err = { 0 };
	unshard *u;

	report(d, "versions", GOOD, NULL, "unshard %s, libfuse %s", unshard_version(), fs_libfuse_version());
	look_at_kernel(d);
	look_at_container(d);
	look_at_device(d);
	look_at_fusermount(d);
	look_at_allow_other(d);
	look_at_limits(d);
	look_at_readahead(d);
	look_at_log(d);
	look_at_cuda(d);
	if (unshard_open("/", &options, &u, &err) < 0)
		return command_fail("%s", err.text);
	look_at_store(d, u);
	look_at_cache(d, u);
	unshard_close(u);
	return d->n_no_mount ? EXIT_PROBLEM : EXIT_DONE;
}

static int doctor_run(const struct command *self, int argc, char **argv)
{
	struct doctor d = { .json = NULL };
	int c, status;

	while ((c = flags_next(self->flags, argc, argv)) != -1) {
		if (c == 'h')
			return command_help(self);
		if (c == '?')
			return command_usage(self);
		if (c == 'j' && !d.json)
			d.json = json_array();
	}
	if (argc != optind)
		return command_operands(self, argc - optind, argv + optind);
	status = examine(&d);
	if (d.json && status != EXIT_COULD_NOT)
		json_print(d.json);
	else if (status != EXIT_COULD_NOT)
		printf("\n%s\n", d.n_no_mount ? "no mount is possible here yet"
				 : d.n_worse  ? "mounts work; what is marked could be better"
					      : "mounts work");
	cJSON_Delete(d.json);
	return status;
}

const struct command cmd_doctor = {
	.name = "doctor",
	.operands = "",
	.arguments = "[--json]",
	.summary = "say what this machine lacks for mounts, and how to mend it",
	.help = "FUSE, permissions, limits, read-ahead, Landlock, container, log, CUDA, metadata store, temporary directory; "
		"each with the line that mends it. Nothing is changed. Exit status: 0 a mount is possible, 1 it is not.",
	.example = "unshard doctor",
	.flags =
		(const struct flag[]){
			FLAG_JSON("an array of objects instead"),
			FLAG_HELP,
			FLAGS_END,
		},
	.run = doctor_run,
};
