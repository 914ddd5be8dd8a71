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

/* The directory above is opened as SOURCE, as a mount of the run sees it: what is kept is kept under
 * what that mount sees. */
static int warm_path(struct arguments *a, char *path)
{
	char *slash = strrchr(path, '/');
	unshard *u = NULL;
	int status;

	*slash = '\0';
	status = arguments_open(a, slash == path ? "/" : path, &u);
	if (status < 0)
		status = warm(a, u, slash + 1);
	unshard_close(u);
	return status;
}

static int warm_run(const struct command *self, int argc, char **argv)
{
	struct arguments a;
	int status = arguments_parse(&a, self, argc, argv);
	char *path = status < 0 ? realpath(a.argument, NULL) : NULL;

	if (status < 0)
		status = path ? warm_path(&a, path) : command_fail("%s: %s", a.argument, strerror(errno));
	free(path);
	arguments_fini(&a);
	return status;
}

const struct command cmd_warm = {
	.name = "warm",
	.operands = "CHECKPOINT",
	.arguments = "CHECKPOINT [-o OPTION,...] [--store FILE|none]",
	.summary = "compute the CRCs of a checkpoint's torch files ahead of time",
	.help = "optimizer.pt, pytorch_model_fsdp.bin and the like are zip files, and a mount computes their "
		"CRCs only if that needs no reading of tensor data; -o crc=exact reads the data at the first "
		"open. This reads it now and keeps the CRCs in the metadata store, for mounts of the "
		"directory above CHECKPOINT with the same options.",
	.example = "unshard warm runs/llama/checkpoint-8",
	.flags =
		(const struct flag[]){
			FLAG_O,
			FLAG_STORE,
			FLAG_HELP,
			FLAGS_END,
		},
	.names = { NAMES_CHECKPOINT },
	.options = VERB_WARM,
	.run = warm_run,
};
