/* unshard warm: find out ahead of time what a mount would have to read data for. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arguments.h"
#include "clock.h"
#include "text.h"

enum { EVERY_MS = 200 };

struct warming {
	bool terminal, shown;
	int64_t next_ms; /* monotonic: not drawn before */
	uint64_t done_bytes;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	(void)number;
	interrupted = 1;
}

static int progress(void *ctx, const struct unshard_progress *p)
{
	struct warming *w = ctx;
	char done[32], total[32];
	int64_t now = clock_ms();

	w->done_bytes = p->done_bytes;
	if (w->terminal && now >= w->next_ms) {
		text_bytes(p->done_bytes, done);
		text_bytes(p->total_bytes, total);
		fprintf(stderr, "\r\033[Kreading for CRCs: %s of %s", done, total);
		w->next_ms = now + EVERY_MS;
		w->shown = true;
	}
	return interrupted ? -EINTR : 0;
}

static int warm(struct arguments *a, unshard *u, const char *checkpoint)
{
	struct warming w = { .terminal = isatty(STDERR_FILENO), .next_ms = clock_ms() + EVERY_MS };
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = &w, .progress = progress };
	struct sigaction action = { .sa_handler = on_signal };
	struct unshard_error err = { 0 };
	char read[32];
	int code;

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	code = unshard_warm(u, checkpoint, &calls, &err);
	if (w.shown)
		fputs("\r\033[K", stderr);
	if (code == -EINTR)
		return command_fail("interrupted; the CRCs that were computed are kept");
	if (code < 0)
		return log_fail(&a->log, &err);
	text_bytes(w.done_bytes, read);
	printf("all CRCs are known; %s of data was read for them\n", read);
	return EXIT_DONE;
}

/* -- --write -- */

struct writing {
	struct arguments *a;
	unshard *u;
	const char *dir;
};

static int confine(void *ctx, const char *directory)
{
	const struct writing *w = ctx;

	return arguments_write_only(w->u, directory) < 0 ? -EPERM : 0;
}

static int stop(void *ctx, const struct unshard_progress *p)
{
	(void)ctx;
	(void)p;
	return interrupted ? -EINTR : 0;
}

static int tell(void *ctx, const struct unshard_memo *m)
{
	const struct writing *w = ctx;
	const char *path = *m->path ? m->path : w->a->argument;
	char size[32];

	if (m->state != UNSHARD_MEMO_WRITTEN) {
		printf("%s: not described: %s\n", path, m->text);
		return 0;
	}
	text_bytes(m->size_bytes, size);
	printf("%s: %s, %s\n", path, strrchr(m->file, '/') + 1, size);
	return 0;
}

static int write_memos(struct arguments *a, char *path, const char *dir)
{
	struct unshard_memo_counts n = { UNSHARD_MEMO_COUNTS_INIT };
	struct writing w = { .a = a, .dir = dir };
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = &w, .progress = stop, .writes = confine,
					     .memo = tell };
	struct sigaction action = { .sa_handler = on_signal };
	struct unshard_error err = { 0 };
	const char *inside;
	char size[32];
	int code, status = arguments_open_above(a, path, &w.u, &inside);

	if (status >= 0)
		return status;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	code = unshard_memos_write(w.u, inside, dir, &calls, &n, &err);
	unshard_close(w.u);
	if (code == -EINTR)
		return command_fail("interrupted; the memos that were written stay");
	if (code < 0)
		return code == -EPERM ? EXIT_COULD_NOT : log_fail(&a->log, &err);
	if (!n.checkpoints) {
		command_fail("no checkpoint is at or below %s", a->argument);
		return EXIT_PROBLEM;
	}
	text_bytes(n.size_bytes, size);
	printf("%zu %s written to %s, %s\n", n.written, n.written == 1 ? "memo" : "memos", dir, size);
	return n.refused ? EXIT_PROBLEM : n.saving ? EXIT_NOT_JUDGED : EXIT_DONE;
}

/* -- */

/* The directory above is opened as SOURCE, as a mount of the run sees it: what is kept is kept under
 * what that mount sees. */
static int warm_path(struct arguments *a, char *path)
{
	const char *above, *name = path_cut(path, &above);
	unshard *u = NULL;
	int status = arguments_open(a, above, &u);

	if (status < 0)
		status = warm(a, u, name);
	unshard_close(u);
	return status;
}

/* It may not be there yet: the directory above it is. */
static char *absolute(const char *dir)
{
	char *copy = strdup(dir), *slash, *above, *whole = NULL;
	size_t n = copy ? strlen(copy) : 0;

	while (n > 1 && copy[n - 1] == '/')
		copy[--n] = '\0';
	slash = copy ? strrchr(copy, '/') : NULL;
	if (slash)
		*slash = '\0';
	above = copy ? realpath(!slash ? "." : slash == copy ? "/" : copy, NULL) : NULL;
	if (above && asprintf(&whole, "%s/%s", strcmp(above, "/") ? above : "", slash ? slash + 1 : copy) < 0)
		whole = NULL;
	free(above);
	free(copy);
	return whole;
}

static int run(struct arguments *a, const char *write)
{
	char *path = path_real(a->argument), *dir = write ? absolute(write) : NULL;
	int status;

	if (!path)
		status = command_fail("%s: %s", a->argument, strerror(errno));
	else if (write && !dir)
		status = command_fail("%s: %s", write, strerror(errno));
	else
		status = write ? write_memos(a, path, dir) : warm_path(a, path);
	free(path);
	free(dir);
	return status;
}

static int warm_run(const struct command *self, int argc, char **argv)
{
	struct arguments a = { .log = { .fd = -1 } };
	const char *write = NULL;
	int c, status = -1;

	while (status < 0 && (c = flags_next(self->flags, argc, argv)) != -1) {
		if (c == 'w')
			write = optarg;
		status = arguments_flag(&a, self, c);
	}
	if (status < 0 && argc - optind != 1)
		status = command_operands(self, argc - optind, argv + optind);
	if (status < 0) {
		arguments_take(&a, argc, argv);
		status = run(&a, write);
	}
	arguments_fini(&a);
	return status;
}

const struct command cmd_warm = {
	.name = "warm",
	.operands = "CHECKPOINT-or-RUN",
	.arguments = "CHECKPOINT [-o OPTION,...] [--store FILE|none] | CHECKPOINT-or-RUN --write DIR [-o OPTION,...]",
	.summary = "compute CRCs of torch files, or describe checkpoints for other machines, ahead of time",
	.help = "optimizer.pt, pytorch_model_fsdp.bin and the like are zip files, and a mount computes their "
		"CRCs only if that needs no reading of tensor data; -o crc=exact reads the data at the first "
		"open. This reads it now and keeps the CRCs in the metadata store, for mounts of the "
		"directory above CHECKPOINT with the same options.\n"
		"With --write, every checkpoint at or below the argument is described in a small file in DIR. With -o "
		"memos=DIR, mount, ls, show, check, diff and export read that file on any machine that sees the same "
		"checkpoint, and need not read its metadata. Exit status: 0 all are described; 1 one cannot be; 2 could "
		"not run; 3 one is still being saved.",
	.example = "unshard warm runs/llama/checkpoint-8\nunshard warm runs/llama --write /shared/memos",
	.flags =
		(const struct flag[]){
			{ 'w', "write", false, "DIR",
			  "write memos of checkpoints to DIR, which is outside of them; "
			  "no CRC is computed",
			  NAMES_DIRECTORY },
			FLAG_O,
			FLAG_STORE,
			FLAG_HELP,
			FLAGS_END,
		},
	.names = { NAMES_CHECKPOINT },
	.options = VERB_WARM,
	.run = warm_run,
};
