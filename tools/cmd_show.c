/* unshard show: one checkpoint printed for people, from the library's JSON. */
#include <cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "show.h"
#include "show_page.h"
#include "terminal.h"
#include "text.h"
#include "values.h"

/* -- reading what the library wrote -- */

const char *show_string(const cJSON *o, const char *key, const char *otherwise)
{
	const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, key));

	return s ? s : otherwise;
}

/* -1 = not known. */
static double number_of(const cJSON *o, const char *key)
{
	const cJSON *n = cJSON_GetObjectItemCaseSensitive(o, key);

	return cJSON_IsNumber(n) ? n->valuedouble : -1;
}

/* -- facts -- */

static void fact(const char *name, const char *text)
{
	printf("  %-11s ", name);
	text_print(text);
	putchar('\n');
}

static void number_fact(const char *name, double n)
{
	char text[32];

	if (n < 0)
		return;
	snprintf(text, sizeof(text), "%.0f", n);
	fact(name, text);
}

static void amount_fact(const char *name, double n, const char *of, double bytes)
{
	char size[32], text[96];

	if (n < 0 || bytes < 0)
		return;
	text_bytes((uint64_t)bytes, size);
	snprintf(text, sizeof(text), "%.0f %.*s, %s", n, (int)strlen(of) - (n == 1), of, size); /* "1 file" */
	fact(name, text);
}

/* Saved as they are: nothing is made of them. */
static void objects_fact(const cJSON *objects)
{
	enum { SHOWN = 3 };
	char text[512];
	const cJSON *item;
	size_t at = (size_t)snprintf(text, sizeof(text), "%d:", cJSON_GetArraySize(objects));
	int n = 0;

	cJSON_ArrayForEach (item, objects) {
		if (n++ == SHOWN || at >= sizeof(text))
			break;
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s %s", n > 1 ? "," : "",
				       show_string(item, "name", "?"));
	}
	if (n > SHOWN && at < sizeof(text))
		snprintf(text + at, sizeof(text) - at, ", ...");
	fact("objects", text);
}

static void print_facts(const cJSON *info)
{
	const cJSON *objects = cJSON_GetObjectItemCaseSensitive(info, "objects");
	const double missing = number_of(info, "files_missing"), borrowed = number_of(info, "files_borrowed");

	puts("\nthe checkpoint");
	fact("format", show_string(info, "format", "not known"));
	if (show_string(info, "framework", NULL))
		fact("framework", show_string(info, "framework", ""));
	number_fact("step", number_of(info, "step"));
	number_fact("ranks", number_of(info, "world_size"));
	amount_fact("weights", number_of(info, "weights"), "tensors", number_of(info, "weights_bytes"));
	amount_fact("optimizer", number_of(info, "optimizer_tensors"), "tensors", number_of(info, "optimizer_bytes"));
	if (cJSON_GetArraySize(objects) > 0)
		objects_fact(objects);
	amount_fact("source", number_of(info, "files") - borrowed, "files",
		    number_of(info, "source_bytes") - number_of(info, "borrowed_bytes"));
	if (borrowed > 0)
		amount_fact("borrowed", borrowed, "files", number_of(info, "borrowed_bytes"));
	if (missing > 0)
		number_fact("missing", missing);
}

/* -- problems -- */

static int print_problem(void *ctx, const struct unshard_finding *f)
{
	bool *any = ctx;

	if (!*any)
		puts("\nproblems");
	*any = true;
	printf("  ");
	terminal_finding(f->text, f->id, 2, 4);
	return 0;
}

/* -- the whole -- */

struct shown {
	unshard *u;
	const char *name;
	const char *glob; /* --tensors; NULL = modules */
	bool all; /* views */
	char *info, *tensors;
	size_t n_serious;
};

static void shown_fini(struct shown *s)
{
	unshard_free(s->info);
	unshard_free(s->tensors);
}

static int collect(struct shown *s, struct unshard_error *err)
{
	int code = unshard_describe(s->u, s->name, UNSHARD_INFO, "MOUNTPOINT", &s->info, err);

	if (code >= 0)
		code = unshard_problems(s->u, s->name, NULL, &s->n_serious, err);
	if (code >= 0)
		code = unshard_describe(s->u, s->name, UNSHARD_TENSORS, NULL, &s->tensors, err);
	return code;
}

/* A checkpoint that could not be opened is described by an object instead of a list of tensors. */
static const char *tensors_or_none(const struct shown *s)
{
	return *s->tensors == '[' ? s->tensors : "[]";
}

static int print_text(const struct shown *s, const struct shown_at *at)
{
	const cJSON *views;
	cJSON *info = cJSON_Parse(s->info), *tensors = cJSON_Parse(tensors_or_none(s));
	bool any = false;
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = &any, .finding = print_problem };
	int code = info && tensors ? 0 : -ENOMEM;

	if (!code) {
		views = cJSON_GetObjectItemCaseSensitive(info, "views");
		text_print(at->typed);
		puts("");
		if (!show_answers(views, at))
			puts("no view can show it at this moment");
		print_facts(info);
		show_views(views, at, s->all);
		code = s->glob ? show_tensors(tensors, s->glob) : show_modules(tensors);
	}
	if (!code)
		code = unshard_problems(s->u, s->name, &calls, NULL, NULL);
	cJSON_Delete(info);
	cJSON_Delete(tensors);
	return code;
}

/* values: NULL = not asked for. */
static int print_json(const struct shown *s, const cJSON *values)
{
	char *text = values ? cJSON_PrintUnformatted(values) : NULL;

	if (values && !text)
		return -ENOMEM;
	printf("{\"info\": %s, \"tensors\": %s%s%s}\n", s->info, tensors_or_none(s), text ? ", \"values\": " : "",
	       text ? text : "");
	cJSON_free(text);
	return 0;
}

static int checkpoint_show(unshard *u, const char *name, const struct shown_at *at, const struct arguments *a)
{
	struct unshard_error err = { 0 };
	cJSON *values = NULL;
	struct shown s = { .u = u, .name = name, .glob = a->tensors, .all = a->every };
	int status = EXIT_DONE;

	if (collect(&s, &err) < 0)
		status = command_fail("%s", err.text);
	else if (a->values)
		status = values_read(u, name, &values);
	if (status == EXIT_DONE && (a->json ? print_json(&s, values) : print_text(&s, at)) < 0)
		status = command_fail("out of memory");
	if (status == EXIT_DONE && values && !a->json)
		values_print(values);
	if (status == EXIT_DONE && s.n_serious)
		status = EXIT_PROBLEM;
	cJSON_Delete(values);
	shown_fini(&s);
	return status;
}

/* The directory above is opened as SOURCE, so that the files of the run beside the checkpoint
 * (config, tokenizer, trackers) are seen as a mount of the run sees them. */
static int show_path(struct arguments *a, char *path)
{
	char *typed = path_shown(a->argument, ""), *real = strdup(path);
	const struct shown_at at = { typed, real };
	const char *above, *name = path_cut(path, &above);
	unshard *u = NULL;
	int status = typed && real ? -1 : command_fail("out of memory");

	if (status < 0)
		status = arguments_open(a, above, &u);
	if (status < 0)
		status = checkpoint_show(u, name, &at, a);
	free(typed);
	free(real);
	unshard_close(u);
	return status;
}

static int show_run(const struct command *self, int argc, char **argv)
{
	struct arguments a;
	int status = arguments_parse(&a, self, argc, argv);
	char *path = status < 0 ? path_real(a.argument) : NULL;

	if (status < 0 && !path)
		status = command_fail("%s: %s", a.argument, strerror(errno));
	if (status < 0 && a.worlds && !a.html)
		status = command_fail("--world is for a page: add --html FILE");
	if (status < 0)
		status = a.html || a.svg ? show_page(&a, path) : show_path(&a, path);
	free(path);
	arguments_fini(&a);
	return status;
}

const struct command cmd_show = {
	.name = "show",
	.operands = "CHECKPOINT",
	.arguments =
		"CHECKPOINT [--tensors[=GLOB]] [--all] [--values] [--json] [--html FILE [--world N,...]] [--svg FILE] "
		"[-o OPTION,...] [--store FILE|none]",
	.summary = "describe a checkpoint: its content, its views, and why a view is not available",
	.help = "The line to write for the training that saved the checkpoint, what it holds, its views with the "
		"line to write for each and what to know before it is loaded, its modules, its problems. If a mount "
		"shows the checkpoint, the lines have its path; else MOUNTPOINT stands for where the directory above "
		"CHECKPOINT is mounted.",
	.example = "unshard show runs/llama/checkpoint-8",
	.flags =
		(const struct flag[]){
			{ 't', "tensors", false, "[=GLOB]", "every tensor with its pieces, or those whose names match",
			  NAMES_TENSOR },
			{ 'a', "all", false, NULL, "list also views that this kind of checkpoint never has",
			  NAMES_NOTHING },
			{ 'V', "values", false, NULL,
			  "read all data: norms, extremes, zeros, NaN, rows of zeros, of each layer and kind of tensor",
			  NAMES_NOTHING },
			FLAG_JSON("one object: info, tensors; values"),
			{ 'H', "html", false, "FILE",
			  "write a page for a browser: lines to write, problems, which rank holds what, "
			  "modules, the training's curves; of a run: its checkpoints; - = stdout",
			  NAMES_FILE },
			{ 'W', "world", false, "N,...",
			  "in the page, also what N ranks would hold: what the files of view world-N hold",
			  NAMES_NOTHING },
			{ 'G', "svg", false, "FILE", "draw which rank holds what, for a document; - = stdout",
			  NAMES_FILE },
			FLAG_O,
			FLAG_STORE,
			FLAG_HELP,
			FLAGS_END,
		},
	.names = { NAMES_CHECKPOINT },
	.options = VERB_SHOW,
	.run = show_run,
};
