/* unshard ls: every checkpoint below SOURCE, one line each. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arguments.h"
#include "json.h"
#include "progress.h"
#include "table.h"
#include "text.h"

enum { N_COLUMNS = 6, NUMBERS = 1 << 2 | 1 << 3 | 1 << 4 }; /* step, ranks, size */

enum sort { BY_PATH, BY_STEP, BY_SIZE, BY_RANKS, BY_STATE };

/* A checkpoint, to be sorted. Owns its texts. */
struct found {
	char *path, *format, *problem, *problem_id;
	int64_t step, ranks;
	uint64_t size_bytes;
	enum unshard_state state;
	size_t place; /* in the order of the walk */
	enum sort sort;
};

struct listing {
	const char *source; /* as it was given */
	bool several;       /* sources: paths in JSON begin with theirs */
	struct table table;
	struct table problems; /* path, sentence */
	cJSON *json;           /* NULL = the table is wanted */
	struct progress progress;
	size_t n, n_bad;
	enum sort sort;
	struct found *found; /* n_found rows, in the order of the walk */
	size_t n_found;
};

static void add_number(struct table *t, int64_t n)
{
	char text[32] = "-";

	if (n >= 0)
		snprintf(text, sizeof(text), "%" PRId64, n);
	table_add(t, text);
}

static void problem_add(struct listing *l, const struct found *f)
{
	char *text;

	if (asprintf(&text, "%s [%s]", f->problem, f->problem_id) < 0) {
		command_no_memory();
		return;
	}
	table_add(&l->problems, f->path);
	table_add(&l->problems, text);
	free(text);
}

static void add_row(struct listing *l, const struct found *f)
{
	char size[32];

	text_bytes(f->size_bytes, size);
	table_add(&l->table, f->path);
	table_add(&l->table, f->format ? f->format : "-");
	add_number(&l->table, f->step);
	add_number(&l->table, f->ranks);
	table_add(&l->table, size);
	table_add_coloured(&l->table, unshard_state_name(f->state),
			   f->state == UNSHARD_OK       ? COLOUR_NONE
			   : f->state == UNSHARD_SAVING ? COLOUR_UNSURE
							: COLOUR_BAD);
	if (f->problem && f->state != UNSHARD_OK)
		problem_add(l, f);
}

/* -- sorting -- */

static char *copy(const char *text)
{
	char *own = text ? strdup(text) : NULL;

	if (text && !own)
		command_no_memory();
	return own;
}

/* Takes the path. */
static void keep(struct listing *l, const struct unshard_checkpoint *c, char *path)
{
	struct found *grown = realloc(l->found, (l->n_found + 1) * sizeof(*grown));

	if (!grown) {
		command_no_memory();
		free(path);
		return;
	}
	l->found = grown;
	grown[l->n_found] = (struct found){ .path = path,
					    .format = copy(c->format),
					    .problem = copy(c->problem),
					    .problem_id = copy(c->problem_id),
					    .step = c->step,
					    .ranks = c->world_size,
					    .size_bytes = c->size_bytes,
					    .state = c->state,
					    .place = l->n_found,
					    .sort = l->sort };
	l->n_found++;
}

static int descending(int64_t a, int64_t b)
{
	return (a < b) - (a > b);
}

static int compare(const void *a, const void *b)
{
	const struct found *x = a, *y = b;
	int order = 0;

	switch (x->sort) {
	case BY_PATH:
		break;
	case BY_STEP:
		order = descending(x->step, y->step);
		break;
	case BY_SIZE:
		order = descending((int64_t)x->size_bytes, (int64_t)y->size_bytes);
		break;
	case BY_RANKS:
		order = descending(x->ranks, y->ranks);
		break;
	case BY_STATE: /* what needs care first */
		order = descending(x->state, y->state);
		break;
	}
	return order ? order : (x->place > y->place) - (x->place < y->place);
}

static void found_fini(struct found *f)
{
	free(f->path);
	free(f->format);
	free(f->problem);
	free(f->problem_id);
}

static void add_fact(cJSON *o, const char *key, int64_t n)
{
	if (n < 0)
		json_add_null(o, key);
	else
		json_add_number(o, key, (double)n);
}

static void add_object(struct listing *l, const struct found *f)
{
	cJSON *o = json_object();

	json_add(o, "path", f->path);
	json_add(o, "format", f->format);
	add_fact(o, "step", f->step);
	add_fact(o, "world_size", f->ranks);
	json_add_number(o, "size_bytes", (double)f->size_bytes);
	json_add(o, "state", unshard_state_name(f->state));
	json_add(o, "problem", f->problem);
	json_add(o, "problem_id", f->problem_id);
	json_append(l->json, o);
}

static int visit(void *ctx, const struct unshard_checkpoint *c)
{
	struct listing *l = ctx;
	/* In JSON, paths are below the one source. */
	char *path = l->json && !l->several ? strdup(c->path) : path_shown(l->source, c->path);

	l->n++;
	l->n_bad += c->state != UNSHARD_OK && c->state != UNSHARD_SAVING;
	if (!path)
		command_no_memory();
	else
		keep(l, c, path);
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
	size_t i;

	if (l->n_found)
		qsort(l->found, l->n_found, sizeof(*l->found), compare);
	for (i = 0; i < l->n_found; i++) {
		if (l->json)
			add_object(l, &l->found[i]);
		else
			add_row(l, &l->found[i]);
	}
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

static void listing_fini(struct listing *l)
{
	while (l->n_found)
		found_fini(&l->found[--l->n_found]);
	free(l->found);
	table_fini(&l->table);
	table_fini(&l->problems);
	cJSON_Delete(l->json);
}

/* As it is asked for. */
struct ls {
	struct arguments a;
	enum sort sort;
	bool watch;
	unsigned seconds;
};

static int list_all(struct ls *ls)
{
	static const char *const head[N_COLUMNS] = { "PATH", "FORMAT", "STEP", "RANKS", "SIZE", "STATE" };
	struct arguments *a = &ls->a;
	struct listing l = { .several = a->n_all > 1,
			     .sort = ls->sort,
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
	if (ls->watch && isatty(STDOUT_FILENO))
		fputs("\033[H\033[2J", stdout);
	if (n_listed && !command_lacks_memory())
		listing_print(&l);
	status = status != EXIT_DONE ? status : l.n_bad ? EXIT_PROBLEM : EXIT_DONE;
	listing_fini(&l);
	return status;
}

static int list_again_and_again(struct ls *ls)
{
	int status;

	while ((status = list_all(ls)) != EXIT_COULD_NOT && fflush(stdout) == 0)
		sleep(ls->seconds);
	return status;
}

static bool parse_sort(const char *text, enum sort *out)
{
	static const char *const name[] = { "path", "step", "size", "ranks", "state" };
	size_t i;

	for (i = 0; i < sizeof(name) / sizeof(*name); i++)
		if (!strcmp(name[i], text)) {
			*out = (enum sort)i;
			return true;
		}
	return false;
}

static int ls_parse(struct ls *ls, const struct command *self, int argc, char **argv)
{
	const char *sort = NULL;
	int code, status;
	char *end;

	while ((code = flags_next(self->flags, argc, argv)) != -1) {
		status = arguments_flag(&ls->a, self, code);
		if (status >= 0)
			return status;
		if (code == 's')
			sort = optarg;
		if (code != 'w')
			continue;
		ls->watch = true;
		ls->seconds = optarg ? (unsigned)strtoul(optarg, &end, 10) : 2;
		if (optarg && (*end || !ls->seconds || ls->seconds > 86400))
			return command_fail("--watch=%s: expected a number of seconds, at least 1", optarg);
	}
	if (sort && !parse_sort(sort, &ls->sort))
		return command_fail("--sort=%s: expected path, step, size, ranks or state", sort);
	if (argc == optind)
		return command_operands(self, 0, argv);
	if (ls->watch && ls->a.json)
		return command_usage(self);
	arguments_take(&ls->a, argc, argv);
	return -1;
}

static int ls_run(const struct command *self, int argc, char **argv)
{
	struct ls ls = { .a = { .log = { .fd = -1 } } };
	int status = ls_parse(&ls, self, argc, argv);

	if (status < 0)
		status = ls.watch ? list_again_and_again(&ls) : list_all(&ls);
	arguments_fini(&ls.a);
	return status;
}

const struct command cmd_ls = {
	.name = "ls",
	.operands = "SOURCE...",
	.arguments = "SOURCE... [--sort KEY] [--watch[=SECONDS]] [--json] [-o OPTION,...] [--store FILE|none]",
	.summary = "list the checkpoints below SOURCE",
	.help = "One line for each checkpoint: path, format, step, number of ranks, size of its files, state "
		"(ok, saving, damaged, unsupported, unreadable), and below them the reasons. Mounts of "
		"unshard below SOURCE are left out.",
	.example = "unshard ls runs",
	.flags =
		(const struct flag[]){
			{ 's', "sort", false, "path|step|size|ranks|state",
			  "the order of rows; the newest step, the largest, and what needs "
			  "care come first",
			  NAMES_WORDS },
			{ 'w', "watch", false, "[=SECONDS]", "list again every SECONDS (2), until Ctrl-C",
			  NAMES_NOTHING },
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
