/* unshard show: one checkpoint printed for people, from the library's JSON. */
#include <cJSON.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "table.h"
#include "text.h"

enum { N_COLUMNS = 5, FILES_NAMED = 3 };

/* -- reading what the library wrote -- */

static const char *string_of(const cJSON *o, const char *key, const char *otherwise)
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
	snprintf(text, sizeof(text), "%.0f %s, %s", n, of, size);
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
				       string_of(item, "name", "?"));
	}
	if (n > SHOWN && at < sizeof(text))
		snprintf(text + at, sizeof(text) - at, ", ...");
	fact("objects", text);
}

static void print_facts(const cJSON *info, const char *path)
{
	const cJSON *objects = cJSON_GetObjectItemCaseSensitive(info, "objects");
	double missing = number_of(info, "files_missing");

	text_print(path);
	puts("");
	fact("format", string_of(info, "format", "not known"));
	if (string_of(info, "framework", NULL))
		fact("framework", string_of(info, "framework", ""));
	number_fact("step", number_of(info, "step"));
	number_fact("ranks", number_of(info, "world_size"));
	amount_fact("weights", number_of(info, "weights"), "tensors", number_of(info, "weights_bytes"));
	amount_fact("optimizer", number_of(info, "optimizer_tensors"), "tensors", number_of(info, "optimizer_bytes"));
	if (cJSON_GetArraySize(objects) > 0)
		objects_fact(objects);
	amount_fact("source", number_of(info, "files"), "files", number_of(info, "source_bytes"));
	if (missing > 0)
		number_fact("missing", missing);
}

/* -- views -- */

static void print_views(const cJSON *views)
{
	const cJSON *v;
	const char *state;
	bool none;

	if (!cJSON_GetArraySize(views))
		return;
	puts("\nviews");
	cJSON_ArrayForEach (v, views) {
		state = string_of(v, "state", "?");
		printf("  %-14s ", v->string);
		if (!strcmp(state, "ok")) {
			text_print(string_of(v, "usage", "ok"));
		} else {
			none = !strcmp(state, "none");
			printf("%s: ", none ? "not available" : !strcmp(state, "saving") ? state : "cannot be shown");
			text_print(none ? string_of(v, "why", "no reason is given") : "see problems below");
		}
		putchar('\n');
	}
}

/* -- tensors -- */

/* Text that grows to the end of a fixed buffer and then stops. */
struct line {
	char text[512];
	size_t len;
};

__attribute__((format(printf, 2, 3))) static void line_add(struct line *l, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(l->text + l->len, sizeof(l->text) - l->len, fmt, ap);
	va_end(ap);
	if (n > 0)
		l->len += (size_t)n;
	if (l->len >= sizeof(l->text))
		l->len = sizeof(l->text) - 1;
}

static const char *file_of(const cJSON *piece)
{
	const char *path = string_of(piece, "file", "?"), *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* "2: __0_0.distcp, __1_0.distcp" */
static void describe_pieces(const cJSON *tensor, struct line *l)
{
	const cJSON *piece, *pieces = cJSON_GetObjectItemCaseSensitive(tensor, "pieces");
	const char *alias = string_of(tensor, "alias_of", NULL);
	int i = 0;

	if (alias) {
		line_add(l, "same as %s", alias);
		return;
	}
	line_add(l, "%d:", cJSON_GetArraySize(pieces));
	cJSON_ArrayForEach (piece, pieces) {
		if (i == FILES_NAMED) {
			line_add(l, ", ...");
			break;
		}
		line_add(l, "%s %s", i++ ? "," : "", file_of(piece));
	}
}

static void describe_shape(const cJSON *tensor, struct line *l)
{
	const cJSON *dim, *shape = cJSON_GetObjectItemCaseSensitive(tensor, "shape");
	const char *comma = "";

	line_add(l, "[");
	cJSON_ArrayForEach (dim, shape) {
		line_add(l, "%s%.0f", comma, dim->valuedouble);
		comma = ", ";
	}
	line_add(l, "]");
}

static void add_tensor(struct table *t, const cJSON *tensor)
{
	struct line shape = { .len = 0 }, pieces = { .len = 0 }, role = { .len = 0 };
	const char *dtype = string_of(tensor, "dtype", "?");
	const char *state = string_of(tensor, "state", NULL);

	describe_shape(tensor, &shape);
	describe_pieces(tensor, &pieces);
	line_add(&role, "%s", state ? state : string_of(tensor, "role", "?"));
	table_add(t, string_of(tensor, "name", "?"));
	table_add(t, role.text);
	table_add(t, strncmp(dtype, "torch.", 6) ? dtype : dtype + 6);
	table_add(t, shape.text);
	table_add(t, pieces.text);
}

static int print_table(struct table *t)
{
	table_print(t, "  ");
	table_fini(t);
	return command_lacks_memory() ? -ENOMEM : 0;
}

/* Those whose names the pattern fits. */
static int print_tensors(const cJSON *tensors, const char *glob)
{
	static const char *const head[N_COLUMNS] = { "NAME", "ROLE", "DTYPE", "SHAPE", "PIECES" };
	struct table t = { .n_columns = N_COLUMNS };
	const cJSON *tensor;
	int i, n = 0;

	for (i = 0; i < N_COLUMNS; i++)
		table_add(&t, head[i]);
	cJSON_ArrayForEach (tensor, tensors)
		if (fnmatch(glob, string_of(tensor, "name", ""), 0) == 0 && ++n)
			add_tensor(&t, tensor);
	printf("\ntensors (%d of %d)\n", n, cJSON_GetArraySize(tensors));
	return print_table(&t);
}

/* -- modules: what is alike, folded into one row -- */

/* "model.layers.0.mlp.weight" -> "model.layers.*", "model.norm.weight" -> "model.norm". */
static void module_of(const char *name, struct line *out)
{
	const char *dot, *from = name;
	size_t n;

	out->len = 0;
	out->text[0] = '\0';
	for (; (dot = strchr(from, '.')); from = dot + 1) {
		n = strspn(from, "0123456789");
		if (n && from[n] == '.') {
			line_add(out, "%.*s*", (int)(from - name), name);
			return;
		}
	}
	from = strrchr(name, '.');
	line_add(out, "%.*s", from ? (int)(from - name) : (int)strlen(name), name);
}

struct module {
	char name[160];
	const char *role, *dtype;
	int n;
	bool mixed; /* dtypes */
};

static bool fold(struct module *m, size_t *n, size_t cap, const cJSON *tensor)
{
	const char *role = string_of(tensor, "state", string_of(tensor, "role", "?"));
	const char *dtype = string_of(tensor, "dtype", "?");
	struct line name = { .len = 0 };
	size_t i = 0;

	module_of(string_of(tensor, "name", "?"), &name);
	while (i < *n && (strcmp(m[i].role, role) != 0 || strcmp(m[i].name, name.text) != 0))
		i++;
	if (i == cap)
		return false;
	if (i == *n) {
		m[(*n)++] = (struct module){ .role = role, .dtype = dtype };
		snprintf(m[i].name, sizeof(m[i].name), "%s", name.text);
	}
	m[i].n++;
	m[i].mixed |= strcmp(m[i].dtype, dtype) != 0;
	return true;
}

enum { MODULES_SHOWN = 32 };

static int print_modules(const cJSON *tensors)
{
	static const char *const head[] = { "MODULE", "ROLE", "DTYPE", "TENSORS" };
	struct table t = { .n_columns = sizeof(head) / sizeof(*head) };
	struct module m[MODULES_SHOWN];
	const cJSON *tensor;
	size_t n = 0, i;
	int unshown = 0;
	char count[16];

	if (!cJSON_GetArraySize(tensors))
		return 0;
	cJSON_ArrayForEach (tensor, tensors)
		unshown += !fold(m, &n, MODULES_SHOWN, tensor);
	for (i = 0; i < t.n_columns; i++)
		table_add(&t, head[i]);
	for (i = 0; i < n; i++) {
		table_add(&t, m[i].name);
		table_add(&t, m[i].role);
		table_add(&t, m[i].mixed                              ? "several"
			      : strncmp(m[i].dtype, "torch.", 6) == 0 ? m[i].dtype + 6
								      : m[i].dtype);
		snprintf(count, sizeof(count), "%d", m[i].n);
		table_add(&t, count);
	}
	printf("\ntensors (%d; --tensors lists them)\n", cJSON_GetArraySize(tensors));
	i = (size_t)print_table(&t);
	if (unshown)
		printf("  ... and %d more\n", unshown);
	return (int)i;
}

/* -- problems -- */

static int print_problem(void *ctx, const struct unshard_finding *f)
{
	bool *any = ctx;

	if (!*any)
		puts("\nproblems");
	*any = true;
	printf("  ");
	text_print(f->text);
	printf(" [%s]\n", f->id);
	return 0;
}

/* -- notes -- */

static int was_printed(const cJSON *views, const cJSON *stop, const char *text)
{
	const cJSON *v, *n;

	cJSON_ArrayForEach (v, views)
		cJSON_ArrayForEach (n, cJSON_GetObjectItemCaseSensitive(v, "notes")) {
			if (n == stop)
				return 0;
			if (!strcmp(cJSON_GetStringValue(n), text))
				return 1;
		}
	return 0;
}

/* What to know before a view is loaded; what holds for several views is printed once. */
static void print_notes(const cJSON *views)
{
	const cJSON *v, *n;
	const char *head = "\nbefore you load\n", *text;

	cJSON_ArrayForEach (v, views)
		cJSON_ArrayForEach (n, cJSON_GetObjectItemCaseSensitive(v, "notes")) {
			text = cJSON_GetStringValue(n);
			if (!text || was_printed(views, n, text))
				continue;
			printf("%s  ", head);
			text_print(text);
			putchar('\n');
			head = "";
		}
}

/* -- the whole -- */

struct shown {
	unshard *u;
	const char *name;
	const char *glob; /* --tensors; NULL = modules */
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

/* How to write the lines above for a mount of the run's directory, and of the directory above it. */
static void print_hint(const struct shown *s, const char *path)
{
	const char *slash = strrchr(path, '/'), *above = slash ? memrchr(path, '/', (size_t)(slash - path)) : NULL;
	int n = slash ? (int)(slash - path) : strcmp(path, ".") ? 1 : 2;

	if (!strstr(s->info, "MOUNTPOINT/"))
		return;
	printf("  (MOUNTPOINT: where you mount %.*s", n ? n : 1,
	       slash               ? n ? path : "/"
	       : strcmp(path, ".") ? "."
				   : "..");
	if (above && above > path)
		printf("; if you mount %.*s instead, write %s for %s", (int)(above - path), path, above + 1, slash + 1);
	puts(")");
}

static int print_text(const struct shown *s, const char *path)
{
	cJSON *info = cJSON_Parse(s->info), *tensors = cJSON_Parse(tensors_or_none(s));
	bool any = false;
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = &any, .finding = print_problem };
	int code = info && tensors ? 0 : -ENOMEM;

	if (!code) {
		print_facts(info, path);
		print_views(cJSON_GetObjectItemCaseSensitive(info, "views"));
		print_hint(s, path);
		print_notes(cJSON_GetObjectItemCaseSensitive(info, "views"));
		code = s->glob ? print_tensors(tensors, s->glob) : print_modules(tensors);
	}
	if (!code)
		code = unshard_problems(s->u, s->name, &calls, NULL, NULL);
	cJSON_Delete(info);
	cJSON_Delete(tensors);
	return code;
}

static int checkpoint_show(unshard *u, const char *name, const char *path, const char *glob, bool json)
{
	struct unshard_error err = { 0 };
	struct shown s = { .u = u, .name = name, .glob = glob };
	int status = EXIT_DONE;

	if (collect(&s, &err) < 0)
		status = command_fail("%s", err.text);
	else if (json)
		printf("{\"info\": %s, \"tensors\": %s}\n", s.info, tensors_or_none(&s));
	else if (print_text(&s, path) < 0)
		status = command_fail("out of memory");
	if (status == EXIT_DONE && s.n_serious)
		status = EXIT_PROBLEM;
	shown_fini(&s);
	return status;
}

/* The directory above is opened as SOURCE, so that the files of the run beside the checkpoint
 * (config, tokenizer, trackers) are seen as a mount of the run sees them. */
static int show_path(struct arguments *a, char *path)
{
	char *slash = strrchr(path, '/');
	char *typed = path_shown(a->argument, "");
	unshard *u = NULL;
	int status = typed ? -1 : command_fail("out of memory");

	*slash = '\0';
	if (status < 0)
		status = arguments_open(a, slash == path ? "/" : path, &u);
	if (status < 0)
		status = checkpoint_show(u, slash + 1, typed, a->tensors, a->json);
	free(typed);
	unshard_close(u);
	return status;
}

static int show_run(const struct command *self, int argc, char **argv)
{
	struct arguments a;
	int status = arguments_parse(&a, self, argc, argv);
	char *path = status < 0 ? realpath(a.argument, NULL) : NULL;

	if (status < 0)
		status = path ? show_path(&a, path) : command_fail("%s: %s", a.argument, strerror(errno));
	free(path);
	arguments_fini(&a);
	return status;
}

const struct command cmd_show = {
	.name = "show",
	.operands = "CHECKPOINT",
	.arguments = "CHECKPOINT [--tensors[=GLOB]] [--json] [-o OPTION,...] [--store FILE|none]",
	.summary = "describe a checkpoint: its content, its views, and why a view is not available",
	.help = "What the checkpoint holds, its views with the line to write for each (MOUNTPOINT stands for "
		"where the directory above CHECKPOINT is mounted), its modules, its problems.",
	.example = "unshard show runs/llama/checkpoint-8",
	.flags =
		(const struct flag[]){
			{ 't', "tensors", false, "[=GLOB]", "every tensor with its pieces, or those whose names match",
			  NAMES_TENSOR },
			FLAG_JSON("one object: info, tensors"),
			FLAG_O,
			FLAG_STORE,
			FLAG_HELP,
			FLAGS_END,
		},
	.names = { NAMES_CHECKPOINT },
	.options = VERB_SHOW,
	.run = show_run,
};
