/* unshard why: where a file of a mount comes from, or why it is not there. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "arguments.h"
#include "command.h"
#include "fs.h"
#include "mounted.h"
#include "show.h"
#include "terminal.h"
#include "text.h"

enum { LONGEST_VALUE = 65536, FILES_NAMED = 8, NAME_COLUMNS = 12 };

struct why {
	char path[4096]; /* in the mount, absolute */
	struct fs_mount mount;
	const char *inside; /* of `path`: below the mount point */
};

static void line(const char *name, const char *text)
{
	printf("  %-*s", NAME_COLUMNS, name);
	terminal_wrap(stdout, text, terminal_width(stdout), NAME_COLUMNS + 2, NAME_COLUMNS + 2);
	putchar('\n');
}

/* On the heap; NULL = it has none. */
static char *attribute(const char *path, const char *name)
{
	char *value = malloc(LONGEST_VALUE + 1);
	ssize_t n = value ? getxattr(path, name, value, LONGEST_VALUE) : -1;

	if (n < 0) {
		free(value);
		return NULL;
	}
	value[n] = '\0';
	return value;
}

static void attribute_line(const struct why *w, const char *label, const char *name)
{
	char *value = attribute(w->path, name);

	if (value)
		line(label, value);
	free(value);
}

/* -- of a checkpoint -- */

/* The checkpoint that the path is in: it has .unshard/info.json. *below: the rest. */
static bool find_checkpoint(const struct why *w, char out[4096], const char **below)
{
	const size_t top = strlen(w->mount.path);
	size_t n = strlen(w->path);
	char info[4200];

	for (; n > top; n--) {
		if (w->path[n] && w->path[n] != '/')
			continue;
		snprintf(out, 4096, "%.*s", (int)n, w->path);
		snprintf(info, sizeof(info), "%s/.unshard/info.json", out);
		if (access(info, R_OK) == 0) {
			*below = w->path + n + (w->path[n] == '/');
			return true;
		}
	}
	return false;
}

static void print_checkpoint(const char *checkpoint, const char *below)
{
	cJSON *info = mounted_json(checkpoint, "info.json"), *made = mounted_json(checkpoint, "provenance.json");
	const cJSON *files = cJSON_GetObjectItemCaseSensitive(made, "files"), *note;
	const cJSON *file = *below ? cJSON_GetObjectItemCaseSensitive(files, below) : NULL;

	line("checkpoint", show_string(info, "path", "?"));
	line("format", show_string(info, "format", "?"));
	if (show_string(info, "framework", NULL))
		line("framework", show_string(info, "framework", ""));
	if (file)
		line("content", show_string(file, "origin", "made by unshard"));
	if (file && show_string(file, "from", NULL))
		line("from", show_string(file, "from", ""));
	cJSON_ArrayForEach (note, cJSON_GetObjectItemCaseSensitive(made, "notes"))
		if (cJSON_GetStringValue(note))
			line("note", cJSON_GetStringValue(note));
	cJSON_Delete(info);
	cJSON_Delete(made);
}

/* -- source files -- */

struct share {
	const char *file;
	double bytes;
};

static size_t add_share(struct share *v, size_t n, const char *file, double bytes)
{
	size_t i = 0;

	while (i < n && strcmp(v[i].file, file) != 0)
		i++;
	if (i == FILES_NAMED)
		return n;
	if (i == n)
		v[i].file = file;
	v[i].bytes += bytes;
	return i == n ? n + 1 : n;
}

static void print_source(const struct why *w)
{
	char *value = attribute(w->path, "user.unshard.source"), text[4200], size[32];
	cJSON *map = value ? cJSON_Parse(value) : NULL;
	struct share v[FILES_NAMED] = { { NULL, 0 } };
	const cJSON *extent;
	double computed = 0;
	size_t n = 0, i;

	cJSON_ArrayForEach (extent, cJSON_GetObjectItemCaseSensitive(map, "extents")) {
		const char *file = show_string(extent, "file", NULL);
		const double bytes = mounted_number(extent, "length");

		if (file)
			n = add_share(v, n, file, bytes);
		else
			computed += bytes;
	}
	for (i = 0; i < n; i++) {
		text_bytes((uint64_t)v[i].bytes, size);
		snprintf(text, sizeof(text), "%s of %s", size, v[i].file);
		line("bytes", text);
	}
	if (computed > 0) {
		text_bytes((uint64_t)computed, size);
		snprintf(text, sizeof(text), "%s made by unshard (headers, casts, what is compressed)", size);
		line("bytes", text);
	}
	cJSON_Delete(map);
	free(value);
}

static int fact_line(void *ctx, const struct unshard_fact *f)
{
	char text[1024];

	(void)ctx;
	snprintf(text, sizeof(text), "%.100s=%.400s (%.200s, for %.200s)", f->key, f->json, f->origin, f->subject);
	line("fact", text);
	return 0;
}

/* What the metadata store has for the checkpoint, or for its run. */
static void print_facts(const struct why *w, struct arguments *a, const char *checkpoint)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .fact = fact_line };
	cJSON *info = mounted_json(checkpoint, "info.json");
	unshard *u = NULL;

	if (!a->options.library.no_store && arguments_open(a, w->mount.source, &u) < 0)
		unshard_meta_list(u, show_string(info, "path", ""), &calls, NULL);
	unshard_close(u);
	cJSON_Delete(info);
}

static int explain_existing(const struct why *w, struct arguments *a, const struct stat *st)
{
	char checkpoint[4096];
	const char *below;

	text_print(w->path);
	putchar('\n');
	line("source", w->mount.source);
	attribute_line(w, "view", "user.unshard.view");
	if (find_checkpoint(w, checkpoint, &below)) {
		print_checkpoint(checkpoint, below);
		print_facts(w, a, checkpoint);
	}
	attribute_line(w, "generation", "user.unshard.generation");
	if (S_ISREG(st->st_mode))
		print_source(w);
	return EXIT_DONE;
}

/* -- what is not there -- */

/* What is in a directory of the tree, for a name that is not. */
static void print_names(unshard *u, const char *directory)
{
	unshard_listing *list = NULL;
	char text[1024] = "";
	size_t i;

	if (unshard_list(u, directory, &list, NULL) < 0)
		return;
	for (i = 0; i < unshard_listing_count(list) && strlen(text) + 300 < sizeof(text); i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%.200s", i ? ", " : "",
			 unshard_listing_at(list, i)->name);
	if (i < unshard_listing_count(list))
		snprintf(text + strlen(text), sizeof(text) - strlen(text), ", ...");
	line("there is", *text ? text : "nothing");
	unshard_listing_free(list);
}

/* In the source there is something of this name, which the view does not show. */
static void print_raw(const struct why *w, const char *view_path)
{
	const char *below = strchr(view_path, '/');
	char raw[8300];
	struct stat st;

	snprintf(raw, sizeof(raw), "%s/%s", w->mount.source, below ? below + 1 : "");
	if (below && lstat(raw, &st) == 0)
		line("in SOURCE", raw);
}

/* Why the view does not show the checkpoint that `directory`/name would be. */
static bool print_verdict(unshard *u, const char *path)
{
	const char *below = strchr(path, '/');
	char view[256], *json = NULL;
	const cJSON *v;
	cJSON *info;
	bool known;

	if (!below || unshard_describe(u, below + 1, UNSHARD_INFO, NULL, &json, NULL) < 0)
		return false;
	snprintf(view, sizeof(view), "%.*s", (int)(below - path), path);
	info = cJSON_Parse(json);
	v = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(info, "views"), view);
	known = v && show_string(v, "why", NULL);
	if (known)
		line("because", show_string(v, "why", ""));
	cJSON_Delete(info);
	unshard_free(json);
	return known;
}

static int explain_absent(struct why *w, struct arguments *a)
{
	char inside[4096], *slash, *cut = NULL;
	struct unshard_error err = { 0 }, first = { 0 };
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	unshard *u = NULL;
	int status = arguments_open(a, w->mount.source, &u);

	if (status >= 0)
		return status;
	snprintf(inside, sizeof(inside), "%s", w->inside);
	text_print(w->path);
	printf(" does not exist\n");
	line("source", w->mount.source);
	/* The first part of the path that is missing, and the reason for it. */
	while (unshard_stat(u, inside, &st, &err) < 0) {
		first = err;
		slash = strrchr(inside, '/');
		if (cut)
			*cut = '/';
		if (!slash && !*inside)
			break;
		cut = slash;
		if (!slash)
			break;
		*slash = '\0';
	}
	if (cut) { /* inside: the part that exists; behind the cut, the name that does not */
		char missing[4096];

		snprintf(missing, sizeof(missing), "%s/%.*s", inside, (int)strcspn(cut + 1, "/"), cut + 1);
		line("missing", missing);
		if (!print_verdict(u, missing))
			line("because", first.text);
		print_raw(w, missing);
		print_names(u, inside);
	} else if (*inside) {
		inside[strcspn(inside, "/")] = '\0';
		line("missing", inside);
		line("because", first.text);
		print_names(u, "");
	} else {
		line("because", "the source has it by now: look again");
	}
	unshard_close(u);
	return EXIT_PROBLEM;
}

/* -- which mount -- */

/* The longest part that exists is resolved: the rest may be absent. */
static int resolve(const char *name, struct why *w)
{
	char here[2048] = "", whole[4096], *real = NULL, *slash;
	size_t n;

	if (*name != '/' && !getcwd(here, sizeof(here)))
		return command_fail("%s: %s", name, strerror(errno));
	if (snprintf(whole, sizeof(whole), "%s%s%s", here, *here ? "/" : "", name) >= (int)sizeof(whole))
		return command_fail("%.60s...: the path is too long", name);
	for (n = strlen(whole); n > 1 && whole[n - 1] == '/';)
		whole[--n] = '\0';
	snprintf(w->path, sizeof(w->path), "%s", whole);
	slash = whole + strlen(whole);
	while (!(real = realpath(whole, NULL)) && (slash = strrchr(whole, '/')) && slash > whole)
		*slash = '\0';
	n = strlen(whole);
	if (real && strlen(real) + strlen(w->path + n) < sizeof(whole)) {
		snprintf(whole, sizeof(whole), "%s%s", real, w->path + n);
		strcpy(w->path, whole);
	}
	free(real);
	if (!fs_mount_above(w->path, &w->mount, &w->inside))
		return command_fail("%s is not in a mount of unshard (unshard mounts lists them)", name);
	return -1;
}

static int why_run(const struct command *self, int argc, char **argv)
{
	struct arguments a;
	struct why w = { .inside = "" };
	struct stat st;
	int status = arguments_parse(&a, self, argc, argv);

	if (status < 0)
		status = resolve(a.argument, &w);
	if (status < 0)
		status = lstat(w.path, &st) == 0 ? explain_existing(&w, &a, &st) : explain_absent(&w, &a);
	arguments_fini(&a);
	return status;
}

const struct command cmd_why = {
	.name = "why",
	.operands = "PATH",
	.arguments = "PATH [-o OPTION,...] [--store FILE|none]",
	.summary = "say where a file of a mount comes from, or why it is not there",
	.help = "PATH is a file or directory in a mount. If it exists: view, checkpoint, format, what the file is made of, the "
		"facts of the metadata store, the shards that its bytes are in, and what was assumed. If it does not: the first part of the path that is "
		"missing, the reason, and the names beside it; the source is looked at with the options given, which should be the "
		"mount's. Exit status: 0 PATH exists, 1 it does not, 2 could not run.",
	.example = "unshard why mnt/weights/llama/checkpoint-8/model.safetensors",
	.flags =
		(const struct flag[]){
			FLAG_O,
			FLAG_STORE,
			FLAG_HELP,
			FLAGS_END,
		},
	.names = { NAMES_MOUNTED },
	.options = VERB_SHOW,
	.run = why_run,
};
