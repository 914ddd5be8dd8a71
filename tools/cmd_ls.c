/* unshard ls: every checkpoint below SOURCE, one line each. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "json.h"
#include "progress.h"
#include "text.h"

enum { N_COLUMNS = 6 };

struct listing {
	const char *source; /* as it was given */
	struct table table;
	struct table problems; /* path, sentence */
	cJSON *json;           /* NULL = the table is wanted */
	struct progress progress;
	size_t n, n_bad;
};

static void add_number(struct table *t, int64_t n)
{
	char text[32] = "-";

	if (n >= 0)
		snprintf(text, sizeof(text), "%" PRId64, n);
	table_add(t, text);
}

static void add_row(struct listing *l, const struct unshard_checkpoint *c, const char *path)
{
	char size[32];

	text_bytes(c->size_bytes, size);
	table_add(&l->table, path);
	table_add(&l->table, c->format ? c->format : "-");
	add_number(&l->table, c->step);
	add_number(&l->table, c->world_size);
	table_add(&l->table, size);
	table_add(&l->table, unshard_state_name(c->state));
	if (c->problem && c->state != UNSHARD_OK) {
		table_add(&l->problems, path);
		table_add(&l->problems, c->problem);
	}
}

static void add_fact(cJSON *o, const char *key, int64_t n)
{
	if (n < 0)
		json_add_null(o, key);
	else
		json_add_number(o, key, (double)n);
}

static void add_object(struct listing *l, const struct unshard_checkpoint *c)
{
	cJSON *o = json_object();

	json_add(o, "path", c->path);
	json_add(o, "format", c->format);
	add_fact(o, "step", c->step);
	add_fact(o, "world_size", c->world_size);
	json_add_number(o, "size_bytes", (double)c->size_bytes);
	json_add(o, "state", unshard_state_name(c->state));
	json_add(o, "problem", c->problem);
	json_append(l->json, o);
}

static int visit(void *ctx, const struct unshard_checkpoint *c)
{
	struct listing *l = ctx;

	char *path = path_shown(l->source, c->path);

	l->n++;
	l->n_bad += c->state != UNSHARD_OK && c->state != UNSHARD_SAVING;
	if (l->json)
		add_object(l, c);
	else if (path)
		add_row(l, c, path);
	else
		command_no_memory();
	free(path);
	return 0;
}

static int step(void *ctx, const struct unshard_progress *p)
{
	struct listing *l = ctx;

	progress_step(&l->progress, p);
	return 0;
}

static void print(struct listing *l)
{
	if (l->json) {
		json_print(l->json);
		return;
	}
	if (l->n)
		table_print(&l->table, "");
	else
		puts("no checkpoint found");
	if (l->problems.n_cells) {
		puts("");
		table_print(&l->problems, "");
	}
}

static int list(unshard *u, const char *source, bool json)
{
	static const char *const head[N_COLUMNS] = { "PATH", "FORMAT", "STEP", "RANKS", "SIZE", "STATE" };
	struct listing l = { .source = source, .table = { .n_columns = N_COLUMNS }, .problems = { .n_columns = 2 } };
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = &l, .progress = step, .checkpoint = visit };
	struct unshard_error err = { 0 };
	int i, code;

	l.json = json ? json_array() : NULL;
	for (i = 0; i < N_COLUMNS; i++)
		table_add(&l.table, head[i]);
	progress_start(&l.progress);
	code = unshard_scan(u, &calls, &err);
	progress_end(&l.progress);
	if (code >= 0 && !command_lacks_memory())
		print(&l);
	code = code < 0 ? command_fail("%s", err.text) : l.n_bad ? EXIT_PROBLEM : EXIT_DONE;
	table_fini(&l.table);
	table_fini(&l.problems);
	cJSON_Delete(l.json);
	return code;
}

static int ls_run(const struct command *self, int argc, char **argv)
{
	static const struct option longs[] = { LONG_HELP, LONG_JSON, LONG_STORE, { 0 } };
	struct arguments a;
	unshard *u = NULL;
	int status = arguments_parse(&a, self, longs, argc, argv);

	if (status < 0)
		status = arguments_open(&a, a.argument, &u);
	if (status < 0)
		status = list(u, a.argument, a.json);
	unshard_close(u);
	arguments_fini(&a);
	return status;
}

const struct command cmd_ls = {
	.name = "ls",
	.arguments = "SOURCE [--json] [-o OPTION,...] [--store FILE|none]",
	.summary = "list the checkpoints below SOURCE",
	.help = "One line for each checkpoint: path, format, step, number of ranks, size of its\n"
		"files, state (ok, saving, damaged, unsupported, unreadable), and below them the reasons.\n\n"
		"  --json                     an array of objects instead\n"
		"  -o OPTION,...              see below; may be repeated\n" STORE_HELP
		"  -h, --help                 this text\n",
	.options = VERB_LS,
	.run = ls_run,
};
