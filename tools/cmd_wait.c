/* unshard wait: returns when a run has a checkpoint that is newer than one that is known. */
#include <cJSON.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arguments.h"
#include "clock.h"
#include "text.h"

enum { STEP_MS = 500 };

struct wait {
	struct arguments a;
	const char *view;
	int64_t after;    /* -1 = any checkpoint */
	uint64_t seconds; /* at most; 0 = as long as it takes */
};

/* -1 = not known. */
static int64_t step_of(unshard *u, const char *checkpoint)
{
	struct unshard_error err = { 0 };
	const cJSON *step;
	int64_t n = -1;
	char *text = NULL;
	cJSON *info;

	if (unshard_describe(u, checkpoint, UNSHARD_INFO, NULL, &text, &err) < 0)
		return -1;
	info = cJSON_Parse(text);
	step = cJSON_GetObjectItemCaseSensitive(info, "step");
	if (cJSON_IsNumber(step))
		n = (int64_t)step->valuedouble;
	cJSON_Delete(info);
	unshard_free(text);
	return n;
}

/* The checkpoint that the view's `latest` leads to, if it is newer; for unshard_free. NULL = not yet: what cannot be
 * read at this moment is waited for too. */
static char *newer(const struct wait *w, unshard *u)
{
	struct unshard_error err = { 0 };
	char latest[512], *target = NULL;

	snprintf(latest, sizeof(latest), "%s/latest", w->view);
	if (unshard_readlink(u, latest, &target, &err) < 0)
		return NULL;
	if (w->after >= 0 && step_of(u, target) <= w->after) {
		unshard_free(target);
		return NULL;
	}
	return target;
}

static int wait_in(const struct wait *w, unshard *u)
{
	const struct timespec pause = { .tv_nsec = STEP_MS * 1000000L };
	const int64_t end = clock_ms() + (int64_t)w->seconds * 1000;
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	struct unshard_error err = { 0 };
	char *found, *path, *info = NULL;

	if (unshard_stat(u, w->view, &st, &err) < 0)
		return command_fail("%s is not a view (weights, full, dcp, ...)", w->view);
	if (unshard_describe(u, "", UNSHARD_INFO, NULL, &info, &err) >= 0) {
		unshard_free(info);
		return command_fail("%s is a checkpoint: name the directory of the run", w->a.argument);
	}
	while (!(found = newer(w, u))) {
		if (w->seconds && clock_ms() >= end)
			return EXIT_NOT_JUDGED;
		nanosleep(&pause, NULL);
	}
	path = path_shown(w->a.argument, found);
	unshard_free(found);
	if (!path)
		return command_fail("out of memory");
	text_print(path);
	putchar('\n');
	free(path);
	return EXIT_DONE;
}

/* Digits and nothing else. */
static bool parse_number(const char *text, int64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoll(text, &end, 10);
	return !errno && *text >= '0' && *text <= '9' && !*end && *out <= INT_MAX;
}

static int wait_parse(struct wait *w, const struct command *self, int argc, char **argv)
{
	const char *after = NULL, *seconds = NULL;
	int64_t n = 0;
	int code, status;

	while ((code = flags_next(self->flags, argc, argv)) != -1) {
		if (code == 'A')
			after = optarg;
		if (code == 'T')
			seconds = optarg;
		if (code == 'V')
			w->view = optarg;
		status = arguments_flag(&w->a, self, code);
		if (status >= 0)
			return status;
	}
	if (argc - optind != 1)
		return command_operands(self, argc - optind, argv + optind);
	if (after && !parse_number(after, &w->after))
		return command_fail("--after %s: expected a step, a number", after);
	if (seconds && (!parse_number(seconds, &n) || !n))
		return command_fail("--timeout %s: expected a number of seconds, at least 1", seconds);
	w->seconds = (uint64_t)n;
	arguments_take(&w->a, argc, argv);
	return -1;
}

static int wait_run(const struct command *self, int argc, char **argv)
{
	struct wait w = { .a = { .log = { .fd = -1 } }, .view = "weights", .after = -1 };
	unshard *u = NULL;
	int status = wait_parse(&w, self, argc, argv);

	if (status < 0)
		status = arguments_open(&w.a, w.a.argument, &u);
	if (status < 0)
		status = wait_in(&w, u);
	unshard_close(u);
	arguments_fini(&w.a);
	return status;
}

const struct command cmd_wait = {
	.name = "wait",
	.operands = "RUN",
	.arguments = "RUN [--after STEP] [--view VIEW] [--timeout SECONDS] [-o OPTION,...] [--store FILE|none]",
	.summary = "wait until a run has a newer checkpoint, and print its path",
	.help = "Waits for a checkpoint of RUN that is whole in the view: the one that `latest` in the view leads to. What "
		"of a checkpoint is being saved or is damaged no view shows. For programs that load each checkpoint of a "
		"training: evaluation, reinforcement learning.\n\n"
		"The exit status is 0 when a path was printed, 3 when the time is over, 2 for an error.",
	.example = "unshard wait runs/llama --after 400 --timeout 3600",
	.flags =
		(const struct flag[]){
			{ 'A', "after", false, "STEP", "a checkpoint of a later step than this; without it, the newest",
			  NAMES_NOTHING },
			{ 'V', "view", false, "VIEW", "in which the checkpoint must be whole (weights)", NAMES_VIEW },
			{ 'T', "timeout", false, "SECONDS", "wait for so long at most", NAMES_NOTHING },
			FLAG_O,
			FLAG_STORE,
			FLAG_HELP,
			FLAGS_END,
		},
	.names = { NAMES_DIRECTORY },
	.options = VERB_LS,
	.run = wait_run,
};
