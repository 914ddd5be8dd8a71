/* unshard ls: every checkpoint below SOURCE, one line each. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "json.h"
#include "progress.h"
#include "table.h"
#include "text.h"

enum { N_COLUMNS = 6, NUMBERS = 1 << 2 | 1 << 3 | 1 << 4 }; /* step, ranks, size */

struct listing {
	const char *source; /* as it was given */
	bool several;       /* sources: paths in JSON begin with theirs */
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

static void problem_add(struct listing *l, const struct unshard_checkpoint *c)
{
	char *text;

	if (asprintf(&text, "%s [%s]", c->problem, c->problem_id) < 0) {
		command_no_memory();
		return;
	}
	table_add(&l->problems, text);
	free(text);
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
	table_add_coloured(&l->table, unshard_state_name(c->state),
			   c->state == UNSHARD_OK       ? COLOUR_NONE
			   : c->state == UNSHARD_SAVING ? COLOUR_UNSURE
							: COLOUR_BAD);
	if (c->problem && c->state != UNSHARD_OK) {
		table_add(&l->problems, path);
		problem_add(l, c);
	}
}

static void add_fact(cJSON *o, const char *key, int64_t n)
{
	if (n < 0)
		json_add_null(o, key);
	else
		json_add_number(o, key, (double)n);
}

static void add_object(struct listing *l, const struct unshard_checkpoint *c, const char *path)
{
	cJSON *o = json_object();

	json_add(o, "path", path);
	json_add(o, "format", c->format);
	add_fact(o, "step", c->step);
	add_fact(o, "world_size", c->world_size);
	json_add_number(o, "size_bytes", (double)c->size_bytes);
	json_add(o, "state", unshard_state_name(c->state));
	json_add(o, "problem", c->problem);
	json_add(o, "problem_id", c->problem_id);
	json_append(l->json, o);
}

static int visit(void *ctx, const struct unshard_checkpoint *c)
{
	struct listing *l = ctx;

	char *path = path_shown(l->source, c->path);

	l->n++;
	l->n_bad += c->state != UNSHARD_OK && c->state != UNSHARD_SAVING;
	if (!path)
		command_no_memory();
	else if (l->json)
		add_object(l, c, l->several ? path : c->path);
	else
		add_row(l, c, path);
	free(path);
	return 0;
}

static int ls_step(void *ctx, const struct unshard_progress *p)
{
	struct listing *l = ctx;

	progress_step(&l->progress, p);
	return 0;
}

static void listing_print(struct listing *l)
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

static int listing_fill(struct listing *l, unshard *u, const char *source)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = l, .progress = ls_step, .checkpoint = visit };
	struct unshard_error err = { 0 };
	int code;

	l->source = source;
	progress_start(&l->progress);
	code = unshard_scan(u, &calls, &err);
	progress_end(&l->progress);
	return code < 0 ? command_fail("%s", err.text) : EXIT_DONE;
}

static int list_all(struct arguments *a)
{
	static const char *const head[N_COLUMNS] = { "PATH", "FORMAT", "STEP", "RANKS", "SIZE", "STATE" };
	struct listing l = { .several = a->n_all > 1,
			     .table = { .n_columns = N_COLUMNS, .right = NUMBERS },
			     .problems = { .n_columns = 2 } };
	size_t i, n_listed = 0;
	unshard *u;
	int status = EXIT_DONE;

	l.json = a->json ? json_array() : NULL;
	for (i = 0; i < N_COLUMNS; i++)
		table_add(&l.table, head[i]);
	for (i = 0; i < a->n_all; i++) {
		u = NULL;
		if (arguments_open(a, a->all[i], &u) >= 0 || listing_fill(&l, u, a->all[i]) != EXIT_DONE)
			status = EXIT_COULD_NOT;
		else
			n_listed++;
		unshard_close(u);
	}
	if (n_listed && !command_lacks_memory())
		listing_print(&l);
	table_fini(&l.table);
	table_fini(&l.problems);
	cJSON_Delete(l.json);
	return status != EXIT_DONE ? status : l.n_bad ? EXIT_PROBLEM : EXIT_DONE;
}

static int ls_run(const struct command *self, int argc, char **argv)
{
	struct arguments a;
	int status = arguments_parse(&a, self, argc, argv);

	if (status < 0)
		status = list_all(&a);
	arguments_fini(&a);
	return status;
}

const struct command cmd_ls = {
	.name = "ls",
	.operands = "SOURCE...",
	.arguments = "SOURCE... [--json] [-o OPTION,...] [--store FILE|none]",
	.summary = "list the checkpoints below SOURCE",
	.help = "One line for each checkpoint: path, format, step, number of ranks, size of its files, state "
		"(ok, saving, damaged, unsupported, unreadable), and below them the reasons. Mounts of "
		"unshard below SOURCE are left out.",
	.example = "unshard ls runs",
	.flags =
		(const struct flag[]){
			FLAG_JSON("an array of objects instead"),
			FLAG_O,
			FLAG_STORE,
			FLAG_HELP,
			FLAGS_END,
		},
	.names = { NAMES_CHECKPOINT, NAMES_CHECKPOINT },
	.several = true,
	.options = VERB_LS,
	.run = ls_run,
};
