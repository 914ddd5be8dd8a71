/* unshard check: what is wrong with checkpoints, or with configs before they are trained with. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arguments.h"
#include "clock.h"
#include "base_model.h"
#include "grouped.h"
#include "json.h"
#include "progress.h"
#include "terminal.h"
#include "text.h"

enum { MAX_CONFIGS = 16, TEXT = 14 /* the column of a finding's sentence */ };

struct check {
	struct arguments a;
	unshard *u;
	const char *base; /* BASE; NULL = none */
	unshard *base_u;
	const char *base_inside;
	const char *config[MAX_CONFIGS], *kind[MAX_CONFIGS];
	size_t n_configs;
	const char *versions;
	const char *repair; /* OUT */
	const char *view;   /* --for */
	bool deep, wait;
	unsigned wait_seconds; /* at most; 0 = as long as it takes */

	const char *top;    /* what "" is called: the path as it was given */
	const char *inside; /* with --repair: what was given, below the directory that is opened; "" = that itself */
	const char *name;   /* what "" is called in JSON; NULL = as the library has it */
	cJSON *findings; /* NULL = lines are wanted; of a repair: changes */
	size_t n_changes, n_unreadable;
	char *last_path; /* of the finding that was printed last */
	bool printed;
	struct progress progress;
	struct unshard_check_counts counts;
	struct grouped grouped;
};

static const char *severity_text(enum unshard_severity severity)
{
	return severity == UNSHARD_PROBLEM ? "problem" : severity == UNSHARD_NOTE ? "note" : "not judged";
}

/* -- findings as they come -- */

/* A path below SOURCE as JSON has it; for free. */
static char *json_path(const struct check *c, const char *path)
{
	if (!c->name || *path == '/' || strncmp(path, "../", 3) == 0)
		return strdup(path);
	return path_shown(c->name, path);
}

static void add_path(const struct check *c, cJSON *o, const char *key, const char *path)
{
	char *whole = path ? json_path(c, path) : NULL;

	if (path && !whole)
		command_no_memory();
	json_add(o, key, whole);
	free(whole);
}

static void add_object(struct check *c, const struct unshard_finding *f)
{
	cJSON *o = json_object();

	add_path(c, o, "path", f->path);
	json_add(o, "check", f->check);
	json_add(o, "id", f->id);
	json_add(o, "severity", severity_text(f->severity));
	json_add(o, "scope", unshard_scope_name(f->scope));
	json_add_number(o, "code", f->code);
	json_add(o, "view", f->view);
	add_path(c, o, "file", f->file);
	if (f->rank < 0)
		json_add_null(o, "rank");
	else
		json_add_number(o, "rank", (double)f->rank);
	json_add(o, "tensor", f->tensor);
	json_add(o, "expected", f->expected);
	json_add(o, "found", f->found);
	json_add(o, "text", f->text);
	json_add(o, "advice", f->advice);
	json_append(c->findings, o);
}

/* A path that the library gave, as the user would type it. */
static char *shown_of(const struct check *c, const char *path)
{
	size_t n = c->inside ? strlen(c->inside) : 0;

	if (!c->inside)
		return strdup(*path ? path : c->top);
	if (n && strncmp(path, c->inside, n) == 0 && (!path[n] || path[n] == '/'))
		path += n + (path[n] == '/');
	return path_shown(c->top, path);
}

static int print_path(struct check *c, const char *path)
{
	char *shown;

	if (c->last_path && !strcmp(c->last_path, path))
		return 0;
	free(c->last_path);
	c->last_path = strdup(path);
	c->printed = true;
	shown = shown_of(c, path);
	if (shown) {
		text_print(shown);
		putchar('\n');
	}
	free(shown);
	return shown && c->last_path ? 0 : -ENOMEM;
}

static int visit(void *ctx, const struct unshard_finding *f)
{
	struct check *c = ctx;

	if (c->findings) {
		add_object(c, f);
		return 0;
	}
	progress_end(&c->progress);
	if (!grouped_add(&c->grouped, f, !c->last_path || strcmp(c->last_path, f->path) != 0))
		return 0;
	if (print_path(c, f->path) < 0)
		return -ENOMEM;
	printf("  %s%-10s%s  ", terminal_colour(stdout, f->severity == UNSHARD_PROBLEM ? COLOUR_BAD : COLOUR_NONE),
	       severity_text(f->severity),
	       terminal_plain(stdout, f->severity == UNSHARD_PROBLEM ? COLOUR_BAD : COLOUR_NONE));
	terminal_finding(f->text, f->id, TEXT, TEXT);
	return 0;
}

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	(void)number;
	interrupted = 1;
}

static int check_step(void *ctx, const struct unshard_progress *p)
{
	struct check *c = ctx;

	progress_step(&c->progress, p);
	return interrupted ? -EINTR : 0;
}

/* -- the end -- */

static void add_configs(const struct check *c, cJSON *o)
{
	cJSON *list = json_array(), *one;
	size_t i;

	for (i = 0; i < c->n_configs; i++) {
		one = json_object();
		json_add(one, "path", c->config[i]);
		json_add(one, "kind", c->kind[i]);
		json_append(list, one);
	}
	json_add_value(o, "configs", list);
}

static void print_json(struct check *c)
{
	cJSON *o = json_object();

	if (c->n_configs)
		add_configs(c, o);
	else
		json_add_number(o, "checkpoints", (double)c->counts.checkpoints);
	if (c->deep)
		json_add_number(o, "read_bytes", (double)c->counts.read_bytes);
	json_add_number(o, "problems", (double)c->counts.problems);
	json_add_number(o, "notes", (double)c->counts.notes);
	json_add_number(o, "not_judged", (double)c->counts.unjudged);
	if (!c->n_configs)
		json_add_number(o, "saving", (double)c->counts.saving);
	json_add_value(o, "findings", c->findings);
	c->findings = NULL;
	json_print(o);
	cJSON_Delete(o);
}

static void print_summary(const struct check *c)
{
	char bytes[32];
	size_t i;

	if (c->printed)
		putchar('\n');
	for (i = 0; i < c->n_configs; i++) {
		text_print(c->config[i]);
		printf(" (%s)%s", c->kind[i], i + 1 < c->n_configs ? ", " : ": ");
	}
	if (!c->n_configs)
		printf("%zu %s: ", c->counts.checkpoints, plural(c->counts.checkpoints, "checkpoint", "checkpoints"));
	printf("%zu %s, %zu %s", c->counts.problems, plural(c->counts.problems, "problem", "problems"), c->counts.notes,
	       plural(c->counts.notes, "note", "notes"));
	if (c->counts.unjudged)
		printf(", %zu not judged", c->counts.unjudged);
	if (c->deep) {
		text_bytes(c->counts.read_bytes, bytes);
		printf("; %s read", bytes);
	}
	putchar('\n');
}

static void add_counts(struct unshard_check_counts *sum, const struct unshard_check_counts *more)
{
	sum->checkpoints += more->checkpoints;
	sum->problems += more->problems;
	sum->notes += more->notes;
	sum->unjudged += more->unjudged;
	sum->saving += more->saving;
	sum->read_bytes += more->read_bytes;
}

/* The end of one check: EXIT_DONE, or the sentence. */
static int checked(struct check *c, int code, const struct unshard_error *err)
{
	progress_end(&c->progress);
	if (code == -EINTR)
		return command_fail("interrupted; what was found until now is above");
	if (code < 0)
		return command_fail("%s", err->text[0] ? err->text : "out of memory");
	return EXIT_DONE;
}

/* The end of all checks, of which at least one was made. */
static int finish(struct check *c, int status)
{
	grouped_end(&c->grouped);
	if (c->findings)
		print_json(c);
	else
		print_summary(c);
	if (status != EXIT_DONE || c->counts.problems)
		return status != EXIT_DONE ? status : EXIT_PROBLEM;
	/* A configuration's rule that needs a version is not about this moment. */
	return c->counts.unjudged && !c->n_configs ? EXIT_NOT_JUDGED : EXIT_DONE;
}

/* -- saves that have not ended -- */

enum { WAIT_STEP_MS = 500 };

/* Looks at names, sizes and metadata until no checkpoint below `path` is being saved, or the time is over. */
static int wait_for_saves(struct check *c, unshard *u, const char *path, struct unshard_error *err)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = c, .progress = check_step };
	const int64_t end = clock_ms() + c->wait_seconds * INT64_C(1000);
	const struct timespec pause = { .tv_nsec = WAIT_STEP_MS * 1000000 };
	struct unshard_check_counts counts;
	bool said = false;
	int code;

	for (;;) {
		counts = (struct unshard_check_counts){ UNSHARD_CHECK_COUNTS_INIT };
		code = unshard_check(u, path, 0, &calls, &counts, err);
		if (code || !counts.saving || (c->wait_seconds && clock_ms() >= end))
			return code;
		progress_end(&c->progress);
		if (!said)
			fprintf(stderr, "unshard: %zu %s still being saved: waiting\n", counts.saving,
				plural(counts.saving, "checkpoint is", "checkpoints are"));
		said = true;
		nanosleep(&pause, NULL);
	}
}

/* -- what is checked -- */

static int check_configs(struct check *c)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = c, .finding = visit };
	struct unshard_error err = { 0 };
	int code;

	c->top = "these together";
	code = checked(c, unshard_check_config(c->config, c->n_configs, c->versions, &calls, c->kind, &c->counts, &err),
		       &err);
	return code == EXIT_DONE ? finish(c, code) : code;
}

static int check_below(struct check *c, unshard *u)
{
	struct unshard_check_counts counts = { UNSHARD_CHECK_COUNTS_INIT };
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = c, .progress = check_step, .finding = visit };
	struct sigaction action = { .sa_handler = on_signal };
	struct unshard_error err = { 0 };
	int code;

	progress_start(&c->progress);
	if (c->deep) {
		sigaction(SIGINT, &action, NULL);
		sigaction(SIGTERM, &action, NULL);
	}
	code = c->wait ? wait_for_saves(c, u, "", &err) : 0;
	if (code == 0)
		code = unshard_check_against(u, "", c->base_u, c->base_inside,
					     (c->deep ? UNSHARD_DEEP : 0) | (c->view ? UNSHARD_FOR_VIEW : 0), &calls,
					     &counts, &err);
	add_counts(&c->counts, &counts);
	return checked(c, code, &err);
}

/* -- a sound copy -- */

static int visit_change(void *ctx, const struct unshard_change *change)
{
	struct check *c = ctx;

	if (change->kind == UNSHARD_CHANGE_UNREADABLE)
		c->n_unreadable++;
	else
		c->n_changes++;
	progress_end(&c->progress);
	if (c->findings) {
		json_append_change(c->findings, change, change->path);
		return 0;
	}
	if (print_path(c, change->path) < 0)
		return -ENOMEM;
	printf("  %-10s  ", unshard_change_name(change->kind));
	text_print(change->text);
	putchar('\n');
	return 0;
}

static int confine(void *ctx, const char *directory)
{
	return arguments_write_only(((struct check *)ctx)->u, directory);
}

/* why: there is no copy. */
static void print_repair_json(struct check *c, const char *out, const char *why)
{
	cJSON *o = json_object();

	json_add(o, "repaired", out);
	if (why)
		json_add(o, "why", why);
	json_add_value(o, "changes", c->findings);
	c->findings = NULL;
	json_print(o);
	cJSON_Delete(o);
}

/* Nothing could be derived, or it did not help: that is an answer too. */
static int not_repaired(struct check *c, const char *why)
{
	if (c->findings)
		print_repair_json(c, NULL, why);
	else
		command_fail("%s", why);
	return EXIT_PROBLEM;
}

static int repaired(struct check *c)
{
	const char *sound = c->n_unreadable ? "no problem was found in what could be read. Nothing was written"
			    : c->deep       ? "no problem was found that a copy could fix. Nothing was written"
				      : "no problem was found that a copy could fix. Data was not read: --deep reads "
					"it. Nothing was written";
	char why[160];

	snprintf(why, sizeof(why), "nothing to repair: %s", sound);
	if (c->findings) {
		print_repair_json(c, c->n_changes ? c->repair : NULL, c->n_changes ? NULL : why);
	} else {
		if (c->printed)
			putchar('\n');
		text_print(c->n_changes ? c->repair : c->top);
		printf("%s%s", c->n_changes ? " is a sound copy, with " : ": ", c->n_changes ? "" : why);
		if (c->n_changes)
			printf("%zu %s", c->n_changes, plural(c->n_changes, "change", "changes"));
		puts(c->n_changes && c->n_unreadable ? "; what could not be read is not in it" : "");
	}
	return c->n_unreadable ? EXIT_PROBLEM : EXIT_DONE;
}

static int repair_below(struct check *c, unshard *u, const char *path)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = c, .progress = check_step,
					     .change = visit_change, .writes = confine };
	struct sigaction action = { .sa_handler = on_signal };
	struct unshard_error err = { 0 };
	int code;

	progress_start(&c->progress);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	code = c->wait ? wait_for_saves(c, u, path, &err) : 0;
	if (code == 0)
		code = unshard_repair(u, path, c->repair, c->deep ? UNSHARD_DEEP : 0, &calls, &err);
	progress_end(&c->progress);
	if (code == -ENODATA || code == -EBADMSG)
		return not_repaired(c, err.text);
	if (code < 0)
		return command_fail("%s", err.text[0] ? err.text : "out of memory");
	return repaired(c);
}

static int repair_path(struct check *c)
{
	char *path = path_real(c->a.argument);
	int status;

	if (!path)
		return command_fail("%s: %s", c->a.argument, strerror(errno));
	status = arguments_open_above(&c->a, path, &c->u, &c->inside);
	c->top = c->a.argument;
	if (status < 0)
		status = repair_below(c, c->u, c->inside);
	unshard_close(c->u);
	free(path);
	return status;
}

/* As a mount of it would see it: this path is SOURCE. */
static int check_path(struct check *c, const char *path)
{
	char *name = path_name(path);
	int status = name ? arguments_open(&c->a, path, &c->u) : command_fail("%s: %s", path, strerror(errno));

	c->top = path;
	c->inside = "";
	c->name = c->a.n_all > 1 ? path : name;
	free(c->last_path); /* it was of another SOURCE */
	c->last_path = NULL;
	if (status < 0)
		status = check_below(c, c->u);
	unshard_close(c->u);
	c->u = NULL;
	c->name = NULL;
	free(name);
	return status;
}

static int check_paths(struct check *c)
{
	size_t i, n_checked = 0;
	int status = EXIT_DONE, one;

	for (i = 0; i < c->a.n_all && !interrupted; i++) {
		one = check_path(c, c->a.all[i]);
		n_checked += one == EXIT_DONE;
		status = one == EXIT_DONE ? status : one;
	}
	return n_checked ? finish(c, status) : status;
}

/* The base model is opened once for all paths. */
static int check_paths_against(struct check *c)
{
	struct arguments base = c->a;
	char *path = base_find(c->base, &c->base_inside);
	int status;

	if (!path)
		return command_fail("%s: no such directory, and no model of this name in the Hugging Face cache",
				    c->base);
	status = arguments_open(&base, path, &c->base_u);
	c->a.log = base.log;
	if (status < 0)
		status = check_paths(c);
	unshard_close(c->base_u);
	free(path);
	return status;
}

static bool parse_wait(struct check *c, const char *text)
{
	char *end;
	unsigned long n;

	c->wait = true;
	if (!text)
		return true;
	errno = 0;
	n = strtoul(text, &end, 10);
	c->wait_seconds = (unsigned)n;
	return !errno && *text >= '0' && *text <= '9' && !*end && n > 0 && n <= INT_MAX;
}

static int check_parse(struct check *c, const struct command *self, int argc, char **argv)
{
	struct unshard_error err = { 0 };
	int opt;

	while ((opt = flags_next(self->flags, argc, argv)) != -1) {
		if (opt == 'h')
			return command_help(self);
		if (opt == '?')
			return command_usage(self);
		if (opt == 'j' && !c->findings && !(c->findings = json_array()))
			return command_fail("out of memory");
		c->deep |= opt == 'd';
		if (opt == 'w' && !parse_wait(c, optarg))
			return command_fail("--wait=%s: expected a number of seconds, at least 1", optarg);
		if (opt == 'r')
			c->repair = optarg;
		if (opt == 'b')
			c->base = optarg;
		if (opt == 'F')
			c->view = c->a.options.library.view = optarg;
		if (opt == 'v')
			c->versions = optarg;
		if (opt == 'c' && c->n_configs == MAX_CONFIGS)
			return command_fail("--config: more than %d files", MAX_CONFIGS);
		if (opt == 'c')
			c->config[c->n_configs++] = optarg;
		if (opt == 'o' && options_parse(&c->a.options, self->options, optarg, &err) < 0)
			return command_fail("%s", err.text);
		if (opt == 's' && options_seals(&c->a.options, optarg, &err) < 0)
			return command_fail("%s", err.text);
		if (opt == 'S' && options_store(&c->a.options, optarg, &err) < 0)
			return command_fail("%s", err.text);
	}
	if (argc == optind && !c->n_configs)
		return command_operands(self, 0, argv);
	if ((argc > optind) == (c->n_configs > 0) || (c->repair && argc - optind > 1) ||
	    (c->versions && !c->n_configs) ||
	    ((c->deep || c->repair || c->wait || c->base || c->view) && c->n_configs) ||
	    ((c->base || c->view) && c->repair))
		return command_usage(self);
	if (!c->n_configs)
		arguments_take(&c->a, argc, argv);
	return -1;
}

static int check_run(const struct command *self, int argc, char **argv)
{
	struct check c = { .a = { .log = { .fd = -1 } }, .counts = { UNSHARD_CHECK_COUNTS_INIT } };
	int status = check_parse(&c, self, argc, argv);

	if (status < 0)
		status = c.n_configs ? check_configs(&c)
			 : c.repair  ? repair_path(&c)
			 : c.base    ? check_paths_against(&c)
				     : check_paths(&c);
	grouped_end(&c.grouped); /* it did not come to an end */
	free(c.last_path);
	cJSON_Delete(c.findings);
	arguments_fini(&c.a);
	return status;
}

const struct command cmd_check = {
	.name = "check",
	.operands = "CHECKPOINT-or-RUN...",
	.arguments = "CHECKPOINT-or-RUN... [--deep] [--base BASE] [--wait[=SECONDS]] [--seals DIR|FILE] [--for "
		     "VIEW | --repair OUT] [--json] [-o OPTION,...] [--store FILE|none] | --config FILE "
		     "[--versions PACKAGE=VERSION,...] [--json]",
	.summary = "name what is wrong with checkpoints, or with configs before training",
	.help = "Of every checkpoint: shards and files that are damaged or missing, what a trainer that "
		"resumes would miss, and directories that are named as checkpoints and hold none; each with "
		"what to do. Of configs: configurations that are known to lose weights, to fail or to train "
		"wrongly. Nothing is written but OUT. Exit status: 0 sound, or repaired; 1 problems found "
		"(notes are not problems), or no sound copy can be made; 2 could not run; 3 no problem "
		"found, but not everything was judged: a checkpoint is still being saved, or something "
		"cannot be read.",
	.example = "unshard check --wait=600 runs/llama || exit 1    # in a job script",
	.flags =
		(const struct flag[]){
			{ 'd', "deep", false, NULL,
			  "read everything: CRCs of torch files and DCP items, NaN and infinity, weights against the "
			  "optimizer's fp32 copies, and all bytes of a sealed checkpoint against its seal",
			  NAMES_NOTHING },
			{ 'b', "base", false, "BASE",
			  "compare with the weights of BASE, a model's directory or ORG/NAME in the local Hugging Face "
			  "cache; with --deep their values too",
			  NAMES_MODEL },
			{ 'w', "wait", false, "[=SECONDS]", "wait until no checkpoint is being saved, at most SECONDS",
			  NAMES_NOTHING },
			{ 's', "seals", false, "DIR|FILE", "where the seals are; as -o seals=", NAMES_FILE },
			{ 'F', "for", false, "VIEW",
			  "what a training that resumes from this view would miss: full, full-fsdp, dcp, universal, "
			  "torch_dist, world-N; status 1 if not exact",
			  NAMES_VIEW },
			{ 'r', "repair", false, "OUT",
			  "write a repaired copy where one can be made (one dtype for all ranks, no files of another "
			  "number of ranks, a tracker, a trainer_state.json); lists every difference from the source",
			  NAMES_DIRECTORY },
			{ 'c', "config", false, "FILE",
			  "TrainingArguments, Accelerate, DeepSpeed or LightningCLI, as JSON or YAML; several are "
			  "taken for one training",
			  NAMES_FILE },
			{ 'v', "versions", false, "PACKAGE=VERSION,...",
			  "of transformers, accelerate, lightning, deepspeed, torch; none is guessed", NAMES_NOTHING },
			FLAG_JSON("one object: counts, findings; or changes"),
			FLAG_O,
			FLAG_STORE,
			FLAG_HELP,
			FLAGS_END,
		},
	.names = { NAMES_CHECKPOINT, NAMES_CHECKPOINT },
	.options = VERB_CHECK,
	.run = check_run,
};
