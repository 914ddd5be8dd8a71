/* What a page shows is collected here: of one checkpoint, or of a run. */
#include "show_page.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "map_svg.h"
#include "page.h"
#include "text.h"
#include "values.h"

/* -- the training -- */

/* A file of the tree as a text; NULL = it cannot be read. */
static char *file_text(unshard *u, const char *path)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	unshard_file *file;
	char *text;
	ssize_t n;

	if (unshard_file_open(u, path, NULL, &file, &st, NULL) < 0)
		return NULL;
	text = malloc(st.size_bytes + 1);
	n = text ? unshard_pread(file, text, st.size_bytes, 0, NULL) : -1;
	unshard_file_close(file);
	if (n < 0) {
		free(text);
		return NULL;
	}
	text[n] = '\0';
	return text;
}

/* trainer_state.json, the trainer's own or the one that is made, of the first available view that has it. */
static char *training_of(unshard *u, const char *name, const char *info)
{
	cJSON *parsed = cJSON_Parse(info);
	const cJSON *view;
	char path[4096], *text = NULL;

	cJSON_ArrayForEach (view, cJSON_GetObjectItemCaseSensitive(parsed, "views")) {
		if (text || strcmp(show_string(view, "state", ""), "ok") != 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s/trainer_state.json", view->string, name);
		text = file_text(u, path);
	}
	cJSON_Delete(parsed);
	return text;
}

/* -- other numbers of ranks -- */

/* {"world": N, "map": ...}, or "why" there is none. */
static cJSON *world_of(struct arguments *a, const char *above, const char *name, unsigned long n)
{
	cJSON *world = json_object();
	const char *const before = a->options.library.view;
	struct unshard_error err = { 0 };
	unshard *u = NULL;
	char view[32], *map = NULL;

	snprintf(view, sizeof(view), "world-%lu", n);
	json_add_number(world, "world", (double)n);
	a->options.library.view = view;
	if (arguments_open(a, above, &u) < 0 && unshard_describe(u, name, UNSHARD_VIEW_MAP, NULL, &map, &err) < 0)
		json_add(world, "why", err.text);
	a->options.library.view = before;
	if (map)
		json_add_value(world, "map", cJSON_CreateRaw(map));
	unshard_free(map);
	unshard_close(u);
	return world;
}

/* As JSON text for cJSON_free; NULL = status is set. */
static char *worlds_of(struct arguments *a, const char *above, const char *name, int *status)
{
	cJSON *worlds = json_array();
	const char *s = a->worlds ? a->worlds : "";
	char *end, *text = NULL;
	unsigned long n;

	for (; *s && *status == EXIT_DONE; s = *end ? end + 1 : end) {
		n = strtoul(s, &end, 10);
		if (end == s || *s == '-' || *s == '+' || (*end && (*end != ',' || !end[1])) || n < 1 || n > 65536)
			*status = command_fail("--world %s: not a number of ranks from 1 to 65536, or several with "
					       "commas between them",
					       a->worlds);
		else
			json_append(worlds, world_of(a, above, name, n));
	}
	if (*status == EXIT_DONE && !(text = cJSON_PrintUnformatted(worlds)))
		*status = command_fail("out of memory");
	cJSON_Delete(worlds);
	return text;
}

/* -- one checkpoint -- */

/* The lines to write have the path of the mount that shows the checkpoint, as those that `show` prints. NULL = out of
 * memory. */
static char *info_with_lines(const char *json, const struct shown_at *at)
{
	cJSON *info = cJSON_Parse(json), *view, *usage;
	char *line, *text;

	cJSON_ArrayForEach (view, cJSON_GetObjectItemCaseSensitive(info, "views")) {
		usage = cJSON_GetObjectItemCaseSensitive(view, "usage");
		if (!cJSON_GetStringValue(usage))
			continue;
		line = show_line(at, cJSON_GetStringValue(usage));
		if (!line || !cJSON_ReplaceItemInObjectCaseSensitive(view, "usage", json_string(line)))
			command_no_memory();
		free(line);
	}
	text = info ? cJSON_PrintUnformatted(info) : NULL;
	cJSON_Delete(info);
	return text;
}

/* Tensors that the view weights calls otherwise, as JSON text for cJSON_free; NULL = it cannot be shown. */
static char *names_of(unshard *u, const char *name)
{
	char *map = NULL, *names;
	cJSON *parsed;

	if (unshard_describe(u, name, UNSHARD_VIEW_MAP, NULL, &map, NULL) < 0)
		return NULL;
	parsed = cJSON_Parse(map);
	names = parsed ? cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(parsed, "names")) : NULL;
	if (!names)
		command_no_memory();
	cJSON_Delete(parsed);
	unshard_free(map);
	return names;
}

/* As JSON text for cJSON_free. */
static int values_text(unshard *u, const char *name, char **out)
{
	cJSON *values = NULL;
	int status = values_read(u, name, &values);

	*out = status == EXIT_DONE ? cJSON_PrintUnformatted(values) : NULL;
	cJSON_Delete(values);
	return status == EXIT_DONE && !*out ? command_fail("out of memory") : status;
}

struct drawn {
	/* JSON; NULL = there is none. training: the text of a trainer_state.json */
	const char *info, *map, *names, *training, *worlds, *values;
};

static int checkpoint_page(const struct shown_at *at, const struct drawn *d, const char *html)
{
	const char *const sources[] = { at->real, NULL };
	char *with_lines = info_with_lines(d->info, at);
	const struct page_part parts[] = {
		{ .key = "path", .text = at->typed },   { .key = "training", .text = d->training },
		{ .key = "info", .json = with_lines },  { .key = "map", .json = d->map },
		{ .key = "names", .json = d->names },   { .key = "worlds", .json = d->worlds },
		{ .key = "values", .json = d->values }, { 0 }
	};
	int status = with_lines ? page_write(&(struct page){ parts, sources }, html) : command_fail("out of memory");

	cJSON_free(with_lines);
	return status;
}

/* info: its description (UNSHARD_INFO); above: what is open. */
static int checkpoint_draw(unshard *u, const char *name, const char *info, const struct shown_at *at,
			   struct arguments *a, const char *above)
{
	struct unshard_error err = { 0 };
	char *map = NULL, *names = NULL, *training = NULL, *worlds = NULL, *values = NULL;
	size_t n_serious = 0;
	int status;
	int code = unshard_problems(u, name, NULL, &n_serious, &err);

	if (code >= 0)
		code = unshard_describe(u, name, UNSHARD_MAP, NULL, &map, &err);
	if (code >= 0 && a->html) {
		names = names_of(u, name);
		training = training_of(u, name, info);
	}
	status = code < 0 ? command_fail("%s", err.text) : EXIT_DONE;
	if (status == EXIT_DONE && a->html)
		worlds = worlds_of(a, above, name, &status);
	if (status == EXIT_DONE && a->html && a->values)
		status = values_text(u, name, &values);
	if (status == EXIT_DONE && a->html)
		status = checkpoint_page(at, &(struct drawn){ info, map, names, training, worlds, values }, a->html);
	if (status == EXIT_DONE && a->svg)
		status = map_svg_write(at, info, map, a->svg);
	if (status == EXIT_DONE && n_serious)
		status = EXIT_PROBLEM;
	cJSON_free(names);
	cJSON_free(worlds);
	cJSON_free(values);
	unshard_free(map);
	free(training);
	return status;
}

/* -- a run -- */

struct run {
	cJSON *rows;
	char *newest; /* the sound checkpoint of the latest step: its history covers the run's */
	int64_t step;
	size_t n_bad;
};

static int checkpoint_add(void *ctx, const struct unshard_checkpoint *c)
{
	struct run *r = ctx;
	cJSON *row = json_object();

	json_add(row, "path", c->path);
	json_add(row, "format", c->format);
	json_add_number(row, "step", (double)c->step);
	json_add_number(row, "world_size", (double)c->world_size);
	json_add_number(row, "bytes", (double)c->size_bytes);
	json_add(row, "state", unshard_state_name(c->state));
	json_add(row, "problem", c->problem);
	json_append(r->rows, row);
	r->n_bad += c->state != UNSHARD_OK && c->state != UNSHARD_SAVING;
	if (c->state == UNSHARD_OK && (!r->newest || c->step >= r->step)) {
		free(r->newest);
		r->newest = strdup(c->path);
		r->step = c->step;
	}
	return 0;
}

/* newest: whose history `training` is */
static int run_page(const struct shown_at *at, const char *rows, const char *newest, const char *training,
		    const char *html)
{
	const char *const sources[] = { at->real, NULL };
	const struct page_part parts[] = { { .key = "path", .text = at->typed },
					   { .key = "newest", .text = newest },
					   { .key = "training", .text = training },
					   { .key = "run", .json = rows },
					   { 0 } };

	return page_write(&(struct page){ parts, sources }, html);
}

static int run_draw(struct arguments *a, const struct shown_at *at)
{
	struct run r = { .rows = json_array() };
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = &r, .checkpoint = checkpoint_add };
	struct unshard_error err = { 0 };
	unshard *u = NULL;
	char *rows, *info = NULL, *training = NULL;
	int status = arguments_open(a, at->real, &u);

	if (status < 0 && unshard_scan(u, &calls, &err) < 0)
		status = command_fail("%s", err.text);
	if (status < 0 && a->values)
		status = command_fail("%s is not a checkpoint: --values reads one", at->typed);
	if (status < 0 && a->svg)
		status = command_fail("%s is not a checkpoint: --svg draws one", at->typed);
	if (status < 0 && !cJSON_GetArraySize(r.rows))
		status = command_fail("%s is not a checkpoint, and none is below it", at->typed);
	if (status < 0 && r.newest && unshard_describe(u, r.newest, UNSHARD_INFO, NULL, &info, &err) >= 0)
		training = training_of(u, r.newest, info);
	rows = status < 0 ? cJSON_PrintUnformatted(r.rows) : NULL;
	if (status < 0)
		status = rows ? run_page(at, rows, r.newest, training, a->html) : command_fail("out of memory");
	if (status == EXIT_DONE && r.n_bad)
		status = EXIT_PROBLEM;
	cJSON_free(rows);
	unshard_free(info);
	free(training);
	free(r.newest);
	cJSON_Delete(r.rows);
	unshard_close(u);
	return status;
}

/* -- which of the two -- */

/* As for `show`, a checkpoint is seen from the directory above it. -1 = it is none. */
static int checkpoint_try(struct arguments *a, const struct shown_at *at)
{
	struct unshard_error err = { 0 };
	char *path = strdup(at->real), *info = NULL;
	const char *above, *name = path ? path_cut(path, &above) : NULL;
	unshard *u = NULL;
	int status = path ? arguments_open(a, above, &u) : command_fail("out of memory");
	int code = status < 0 ? unshard_describe(u, name, UNSHARD_INFO, "MOUNTPOINT", &info, &err) : 0;

	if (status < 0 && code < 0 && code != -ENOENT)
		status = command_fail("%s", err.text);
	if (status < 0 && code >= 0)
		status = checkpoint_draw(u, name, info, at, a, above);
	unshard_free(info);
	unshard_close(u);
	free(path);
	return status;
}

int show_page(struct arguments *a, const char *path)
{
	char *typed = path_shown(a->argument, "");
	const struct shown_at at = { typed, path };
	int status = typed ? checkpoint_try(a, &at) : command_fail("out of memory");

	if (status < 0)
		status = run_draw(a, &at);
	free(typed);
	return status;
}
