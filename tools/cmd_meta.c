/* unshard meta: the facts of the metadata store, from the command line. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "fs.h"
#include "json.h"
#include "log.h"
#include "options.h"
#include "table.h"
#include "text.h"

enum { N_COLUMNS = 5, VALUE_BYTES = 60 };

struct meta {
	const struct command *self;
	bool json;
	struct options options;
	struct log log;
	unshard *u; /* of "/": facts are kept under absolute paths; of a URL: of that, which is "/" there */
	int n;
	char **argument;
};

struct meta_action {
	const char *name;
	int min, max; /* arguments */
	int (*run)(struct meta *m);
};

/* -- paths -- */

/* As written, where it does not exist (any more). */
static char *absolute(const char *path)
{
	char here[PATH_MAX], *whole;
	size_t n;

	if (*path == '/')
		whole = strdup(path);
	else if (!getcwd(here, sizeof(here)) || asprintf(&whole, "%s/%s", here, path) < 0)
		return NULL;
	for (n = whole ? strlen(whole) : 0; n > 1 && whole[n - 1] == '/';)
		whole[--n] = '\0';
	return whole;
}

/* A path of a mount is another name for a checkpoint, which facts are not kept under. */
static bool is_in_mount(const char *path)
{
	struct fs_mount mount;
	const char *inside;

	return fs_mount_above(path, &mount, &inside);
}

/* The checkpoint's (or run's) path without links, below "/"; must_exist: to be a directory. */
static int find_path(const char *name, bool must_exist, char **out)
{
	char *real = path_is_url(name) ? strdup("/") : realpath(name, NULL);
	struct stat st;

	if (!real && !must_exist)
		real = absolute(name);
	if (!real)
		return command_fail("%s: %s", name, strerror(errno));
	if (path_is_url(name)) {
		*out = real;
		return -1;
	}
	if (must_exist && (stat(real, &st) < 0 || !S_ISDIR(st.st_mode))) {
		free(real);
		return command_fail("%s is not a directory: facts belong to a checkpoint's directory or a run's", name);
	}
	if (is_in_mount(real)) {
		free(real);
		return command_fail("%s is in a mount: give the checkpoint's own path, in the directory "
				    "that is mounted",
				    name);
	}
	*out = real;
	return -1;
}

/* -- list, get -- */

struct listing {
	bool json, first;
	const char *key; /* only this one */
	int n;
	struct table table;
};

static void print_string(const char *s)
{
	cJSON *string = json_string(s);
	char *text = string ? cJSON_PrintUnformatted(string) : NULL;

	if (text)
		fputs(text, stdout);
	else
		command_no_memory();
	cJSON_free(text);
	cJSON_Delete(string);
}

static void print_json(struct listing *l, const struct unshard_fact *fact)
{
	printf("%s\n  {\"subject\": ", l->first ? "" : ",");
	print_string(fact->subject);
	printf(", \"key\": ");
	print_string(fact->key);
	printf(", \"value\": %s, \"origin\": ", fact->json);
	print_string(fact->origin);
	printf(", \"time\": %lld}", (long long)fact->time_s);
	l->first = false;
}

/* A long value would make every row as wide: its beginning, cut between characters. */
static void add_value(struct table *t, const char *json)
{
	char text[VALUE_BYTES + sizeof("...")];
	size_t n = strlen(json);

	if (n > VALUE_BYTES)
		for (n = VALUE_BYTES; n && (json[n] & 0xc0) == 0x80;)
			n--;
	snprintf(text, sizeof(text), "%.*s%s", (int)n, json, json[n] ? "..." : "");
	table_add(t, text);
}

static void add_row(struct listing *l, const struct unshard_fact *fact)
{
	time_t when = (time_t)fact->time_s;
	char stamp[32] = "";
	struct tm tm;

	if (localtime_r(&when, &tm))
		strftime(stamp, sizeof(stamp), "%Y-%m-%d %H:%M", &tm);
	table_add(&l->table, fact->key);
	add_value(&l->table, fact->json);
	table_add(&l->table, fact->subject);
	table_add(&l->table, fact->origin);
	table_add(&l->table, stamp);
}

static int list_one(void *ctx, const struct unshard_fact *fact)
{
	struct listing *l = ctx;

	l->n++;
	if (l->json)
		print_json(l, fact);
	else
		add_row(l, fact);
	return 0;
}

static int list_at(struct meta *m, const char *path)
{
	static const char *const head[N_COLUMNS] = { "KEY", "VALUE", "SET FOR", "FROM", "WHEN" };
	struct listing l = { .json = m->json, .first = true, .table = { .n_columns = N_COLUMNS } };
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = &l, .fact = list_one };
	struct unshard_error err = { 0 };
	int i, code;

	for (i = 0; i < N_COLUMNS; i++)
		table_add(&l.table, head[i]);
	if (l.json)
		putchar('[');
	code = unshard_meta_list(m->u, path + 1, &calls, &err);
	if (l.json)
		puts(l.n ? "\n]" : "]");
	else if (code == 0 && l.n)
		table_print(&l.table, "");
	table_fini(&l.table);
	return code < 0 ? log_fail(&m->log, &err) : EXIT_DONE;
}

static int get_one(void *ctx, const struct unshard_fact *fact)
{
	struct listing *l = ctx;

	if (strcmp(fact->key, l->key))
		return 0;
	puts(fact->json);
	l->n++;
	return 0;
}

static int get_at(struct meta *m, const char *path)
{
	struct listing l = { .json = false };
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = &l, .fact = get_one };
	struct unshard_error err = { 0 };
	int i, status = EXIT_DONE;

	for (i = 1; i < m->n; i++) {
		l.n = 0;
		l.key = m->argument[i];
		if (unshard_meta_list(m->u, path + 1, &calls, &err) < 0)
			return log_fail(&m->log, &err);
		if (l.n)
			continue;
		command_fail("%s is not set for %s", l.key, path);
		status = EXIT_PROBLEM;
	}
	return status;
}

/* -- set, unset -- */

/* A directory is stored with its absolute path: a relative one is of the current directory, and must exist. NULL: see
 * errno. */
static char *value_of(const char *key, const char *value)
{
	bool relative = !strcmp(key, "model") && *value != '"' && *value != '/';

	return relative ? realpath(value, NULL) : strdup(value);
}

/* It is kept: a later version may use it. The key that was meant is named if one is near. */
static void warn_of_unknown(const char *key)
{
	const char *known, *near = NULL;
	size_t i, d, best = 4; /* as many letters may differ, less one */

	for (i = 0; (known = unshard_meta_key(i)); i++) {
		d = text_distance(key, known);
		if (!d)
			return;
		if (d < best && d < strlen(key)) {
			best = d;
			near = known;
		}
	}
	if (near)
		command_fail("warning: %s is kept, but unshard does not use this key; did you mean %s?", key, near);
	else
		command_fail("warning: %s is kept, but unshard does not use this key", key);
}

static int set_one(struct meta *m, const char *path, char *pair)
{
	struct unshard_error err = { 0 };
	char *equals = strchr(pair, '='), *value;
	int code;

	if (!equals)
		return command_fail("%s: KEY=VALUE is expected", pair);
	*equals = '\0';
	value = value_of(pair, equals + 1);
	if (!value)
		return command_fail("%s=%s: %s", pair, equals + 1, strerror(errno));
	code = unshard_meta_set(m->u, path + 1, pair, value, NULL, &err);
	if (code == 0)
		printf("%s=%s\n", pair, value);
	free(value);
	fflush(stdout);
	if (code == 0)
		warn_of_unknown(pair);
	return code < 0 ? log_fail(&m->log, &err) : EXIT_DONE;
}

static int set_at(struct meta *m, const char *path)
{
	int i, status = EXIT_DONE;

	for (i = 1; i < m->n && status == EXIT_DONE; i++)
		status = set_one(m, path, m->argument[i]);
	return status;
}

static int unset_at(struct meta *m, const char *path)
{
	struct unshard_error err = { 0 };
	int i;

	for (i = 1; i < m->n; i++)
		if (unshard_meta_unset(m->u, path + 1, m->argument[i], &err) < 0)
			return log_fail(&m->log, &err);
	return EXIT_DONE;
}

/* -- import, export -- */

static int import_at(struct meta *m, const char *path)
{
	struct unshard_error err = { 0 };
	char *file = realpath(m->argument[1], NULL);
	size_t n;
	int code;

	if (!file)
		return command_fail("%s: %s", m->argument[1], strerror(errno));
	code = unshard_meta_import_file(m->u, path + 1, file, &n, &err);
	free(file);
	if (code < 0)
		return log_fail(&m->log, &err);
	printf("%zu %s for %s\n", n, plural(n, "fact", "facts"), path_is_url(m->argument[0]) ? m->argument[0] : path);
	return EXIT_DONE;
}

/* NULL: errno is the reason. */
static char *read_all(FILE *from)
{
	char *text = NULL, *grown;
	size_t n = 0, cap = 0;
	int saved;

	do {
		if (cap - n < 2) {
			cap = cap ? 2 * cap : 65536;
			grown = realloc(text, cap);
			if (!grown) {
				free(text);
				return NULL;
			}
			text = grown;
		}
		n += fread(text + n, 1, cap - n - 1, from);
		text[n] = '\0';
	} while (!feof(from) && !ferror(from));
	if (!ferror(from))
		return text;
	saved = errno;
	free(text);
	errno = saved;
	return NULL;
}

static int import_all(struct meta *m, const char *name)
{
	struct unshard_error err = { 0 };
	FILE *from = strcmp(name, "-") ? fopen(name, "re") : stdin;
	char *text = from ? read_all(from) : NULL;
	size_t n;
	int code;

	if (!text) {
		code = errno;
		if (from && from != stdin)
			fclose(from);
		return command_fail("%s: %s", name, strerror(code));
	}
	code = unshard_meta_import(m->u, text, &n, &err);
	free(text);
	if (from != stdin)
		fclose(from);
	if (code < 0)
		return command_fail("%s: %s", name, err.text);
	printf("%zu %s\n", n, plural(n, "fact", "facts"));
	return EXIT_DONE;
}

static int export_all(struct meta *m)
{
	struct unshard_error err = { 0 };
	const char *name = m->n && strcmp(m->argument[0], "-") ? m->argument[0] : NULL;
	FILE *to;
	char *json;
	int why = 0;

	if (unshard_meta_export(m->u, &json, &err) < 0)
		return log_fail(&m->log, &err);
	to = name ? fopen(name, "we") : stdout;
	if (!to || fputs(json, to) < 0 || fflush(to) != 0)
		why = errno;
	unshard_free(json);
	/* Network file systems may report only here that there is no room. */
	if (to && name && fclose(to) != 0 && !why)
		why = errno;
	return why ? command_fail("%s: %s", name ? name : "stdout", strerror(why)) : EXIT_DONE;
}

static int clear_cache(struct meta *m)
{
	struct unshard_error err = { 0 };

	return unshard_meta_clear_cache(m->u, &err) < 0 ? log_fail(&m->log, &err) : EXIT_DONE;
}

/* -- which -- */

static int with_path(struct meta *m, bool must_exist, int (*run)(struct meta *m, const char *path))
{
	char *path;
	int status = find_path(m->argument[0], must_exist, &path);

	if (status < 0) {
		status = run(m, path);
		free(path);
	}
	return status;
}

static int run_list(struct meta *m)
{
	return with_path(m, false, list_at);
}

static int run_get(struct meta *m)
{
	return with_path(m, false, get_at);
}

static int run_set(struct meta *m)
{
	return with_path(m, true, set_at);
}

static int run_unset(struct meta *m)
{
	return with_path(m, false, unset_at);
}

static int run_import(struct meta *m)
{
	return m->n == 1 ? import_all(m, m->argument[0]) : with_path(m, true, import_at);
}

static const struct meta_action actions[] = {
	{ "list", 1, 1, run_list },           { "get", 2, INT_MAX, run_get },       { "set", 2, INT_MAX, run_set },
	{ "unset", 2, INT_MAX, run_unset },   { "import", 1, 2, run_import },       { "export", 0, 1, export_all },
	{ "clear-cache", 0, 0, clear_cache }, { "clear-memos", 0, 0, clear_cache }, /* its older name */
};

static const struct meta_action *find_action(const char *name, int n)
{
	size_t i;

	for (i = 0; i < sizeof(actions) / sizeof(*actions); i++)
		if (!strcmp(actions[i].name, name))
			return n >= actions[i].min && n <= actions[i].max ? &actions[i] : NULL;
	return NULL;
}

static int open_store(struct meta *m)
{
	struct unshard_error err = { 0 };
	struct unshard_options *library = &m->options.library;
	char *source;
	int code;

	if (log_open(&m->log, NULL, true, &err) < 0)
		return command_fail("%s", err.text);
	library->size = sizeof(*library);
	library->log = log_line;
	library->log_ctx = &m->log;
	library->log_level = UNSHARD_LOG_WARNING;
	source = m->n && path_is_url(m->argument[0]) ? path_real(m->argument[0]) : strdup("/");
	code = source ? unshard_open(source, library, &m->u, &err) : -ENOMEM;
	free(source);
	return code < 0 ? command_fail("%s", code == -ENOMEM ? "out of memory" : err.text) : -1;
}

static int verb_run(struct meta *m, const char *name)
{
	const struct meta_action *action = find_action(name, m->n);
	int status;

	if (!action)
		return command_usage(m->self);
	status = open_store(m);
	if (status < 0)
		status = action->run(m);
	unshard_close(m->u);
	log_close(&m->log);
	return status;
}

static int meta_run(const struct command *self, int argc, char **argv)
{
	struct meta m = { .self = self, .log = { .fd = -1 } };
	struct unshard_error err = { 0 };
	int c, status;

	while ((c = flags_next(self->flags, argc, argv)) != -1) {
		if (c == 'h')
			return command_help(self);
		if (c == '?')
			return command_usage(self);
		if (c == 'j')
			m.json = true;
		if (c == 's' && options_store(&m.options, optarg, &err) < 0)
			return command_fail("%s", err.text);
	}
	if (optind == argc)
		return command_usage(self);
	m.argument = argv + optind + 1;
	m.n = argc - optind - 1;
	status = verb_run(&m, argv[optind]);
	options_fini(&m.options);
	return status;
}

const struct command cmd_meta = {
	.name = "meta",
	.operands = "ACTION [CHECKPOINT] [KEY[=VALUE]...]",
	.arguments = "list|get|set|unset CHECKPOINT [KEY[=VALUE]...] | import [CHECKPOINT] FILE | export [FILE] | "
		     "clear-cache [--json] [--store FILE]",
	.summary = "state what is known about a training: step, batch size, cadences, model directory",
	.help = "Facts belong to a checkpoint, or to a run's directory and then to all checkpoints in it; "
		"the nearest counts. Mounts show a change within seconds. Nothing is written to the "
		"checkpoint: facts are kept in the metadata store.",
	.example = "unshard meta set runs/llama model=/models/Llama-3.1-8B",
	.actions =
		(const struct action[]){
			{ "list", "CHECKPOINT", "the facts that hold for it" },
			{ "get", "CHECKPOINT KEY...", "their values, as JSON" },
			{ "set", "CHECKPOINT KEY=VALUE...",
			  "VALUE is JSON, or a word that is taken as a string; model=DIR: where config and tokenizer "
			  "are borrowed from" },
			{ "unset", "CHECKPOINT KEY...", "forget them" },
			{ "import", "CHECKPOINT FILE",
			  "facts out of a trainer_state.json, training_args.json, training_args.bin or scheduler.pt; "
			  "or a unit map of FSDP1's flat units" },
			{ "export", "[FILE]", "all facts, as JSON" },
			{ "import", "FILE", "the same back (-: from standard input)" },
			{ "clear-cache", "", "forget what unshard can find again" },
			{ NULL, NULL, NULL },
		},
	.flags =
		(const struct flag[]){
			{ 's', "store", false, "FILE",
			  "the store ($XDG_STATE_HOME/unshard/store.db, or ~/.local/state/unshard/store.db)",
			  NAMES_FILE },
			FLAG_JSON("list: as JSON"),
			FLAG_HELP,
			FLAGS_END,
		},
	.names = { NAMES_ACTION, NAMES_CHECKPOINT },
	.run = meta_run,
};
