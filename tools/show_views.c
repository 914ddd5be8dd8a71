/* The lines to write, and the views with what to know of each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs.h"
#include "show.h"
#include "terminal.h"
#include "text.h"

#define HOLDER "MOUNTPOINT/" /* in the library's lines */

enum { NAME_COLUMNS = 15, INDENT = 2, NOTE_INDENT = 4, TEXT = INDENT + NAME_COLUMNS };

/* -- where it is mounted -- */

/* How "MOUNTPOINT/VIEW/" is written for a mount: "/mnt/VIEW/llama/". */
struct place {
	const char *real; /* the checkpoint */
	char mount[4096];
	char above[4096]; /* "llama/": from the mount's source to the directory of the checkpoint */
	bool itself; /* the mount's source is the checkpoint */
	bool found;
};

/* A mount with -o view= has no views at its root: its lines are not those of this program. */
static void consider(void *ctx, const struct fs_mount *mount)
{
	struct place *p = ctx;
	const size_t n = strcmp(mount->source, "/") ? strlen(mount->source) : 0;
	const char *rest = p->real + n, *name = strrchr(p->real, '/') + 1;
	char weights[4200];

	if (p->found || strncmp(p->real, mount->source, n) != 0 || (*rest && *rest != '/'))
		return;
	snprintf(weights, sizeof(weights), "%s/weights", mount->path);
	if (access(weights, F_OK) < 0)
		return;
	p->found = true;
	p->itself = !*rest;
	snprintf(p->mount, sizeof(p->mount), "%s", mount->path);
	snprintf(p->above, sizeof(p->above), "%.*s", p->itself ? 0 : (int)(name - rest - 1), rest + 1);
}

static struct place place_of(const struct shown_at *at)
{
	struct place p = { .real = at->real };

	fs_mounts_visit(consider, &p);
	return p;
}

/* The line with the mount's real path in it, on the heap. */
static char *line_at(const struct place *p, const char *usage)
{
	const char *holder = strstr(usage, HOLDER), *view, *name, *rest;
	char *line;

	if (!p->found || !holder)
		return strdup(usage);
	view = holder + strlen(HOLDER);
	name = view + strcspn(view, "/\"");
	name += *name == '/';
	rest = p->itself ? name + strcspn(name, "/\"") : name;
	if (asprintf(&line, "%.*s%s/%.*s%s%s", (int)(holder - usage), usage, p->mount,
		     (int)(name - view - (p->itself && name[-1] == '/')), view, p->above, rest) < 0)
		return NULL;
	return line;
}

char *show_line(const struct shown_at *at, const char *usage)
{
	const struct place p = place_of(at);

	return line_at(&p, usage);
}

/* A line to copy is not wrapped; the comment behind it goes below it if both do not fit. */
static void line_print(const struct place *p, const char *usage, size_t indent)
{
	char *line = line_at(p, usage), *comment = line ? strstr(line, "  # ") : NULL;
	const size_t width = terminal_width(stdout);

	if (comment && width && indent + terminal_columns(line) > width) {
		*comment = '\0';
		text_print(line);
		printf("\n%*s", (int)indent, "");
		terminal_wrap(stdout, comment + 2, width, indent, indent);
	} else {
		text_print(line ? line : usage);
	}
	putchar('\n');
	free(line);
}

/* -- answers first -- */

static bool is_ok(const cJSON *view)
{
	return !strcmp(show_string(view, "state", ""), "ok");
}

/* The first view of these that is available; a name that ends in '-' has a parameter. */
static const cJSON *first_ok(const cJSON *views, const char *const *name)
{
	const cJSON *v;

	for (; *name; name++)
		cJSON_ArrayForEach (v, views)
			if (is_ok(v) && (!strcmp(v->string, *name) || (name[0][strlen(*name) - 1] == '-' &&
								       !strncmp(v->string, *name, strlen(*name)))))
				return v;
	return NULL;
}

static bool answer(const struct place *p, const char *what, const cJSON *view)
{
	if (!view)
		return false;
	printf("%s\n%*s", what, INDENT, "");
	line_print(p, show_string(view, "usage", ""), INDENT);
	return true;
}

/* How to write the lines for a mount of the run's directory, and of the directory above it. */
static void print_hint(const char *path)
{
	const char *slash = strrchr(path, '/'), *above = slash ? memrchr(path, '/', (size_t)(slash - path)) : NULL;
	int n = slash ? (int)(slash - path) : strcmp(path, ".") ? 1 : 2;
	char text[9000];

	snprintf(text, sizeof(text), "  (MOUNTPOINT: where you mount %.*s", n ? n : 1,
		 slash               ? n ? path : "/"
		 : strcmp(path, ".") ? "."
				     : "..");
	if (above && above > path)
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
			 "; if you mount %.*s instead, write %s for %s", (int)(above - path), path, above + 1,
			 slash + 1);
	snprintf(text + strlen(text), sizeof(text) - strlen(text), ")");
	terminal_wrap(stdout, text, terminal_width(stdout), 0, INDENT);
	putchar('\n');
}

bool show_answers(const cJSON *views, const struct shown_at *at)
{
	/* The trainer's own form first: it restores the most. */
	static const char *const resume[] = { "torch_dist", "world-", "dcp", "full", "full-fsdp", "universal", NULL };
	static const char *const load[] = { "weights", "adapter", "weights-", NULL };
	const struct place p = place_of(at);
	bool any = answer(&p, "to resume the training", first_ok(views, resume));

	any |= answer(&p, "to load the weights", first_ok(views, load));
	if (any && !p.found)
		print_hint(at->typed);
	return any;
}

/* -- all views -- */

/* What another kind of checkpoint has. */
static bool never_applies(const cJSON *view)
{
	static const char *const id[] = { "no_adapter", "not_megatron", "not_zero" };
	size_t i;

	for (i = 0; i < sizeof(id) / sizeof(*id); i++)
		if (!strcmp(show_string(view, "why_id", ""), id[i]))
			return !strcmp(show_string(view, "state", ""), "none");
	return false;
}

static bool has_note(const cJSON *view, const char *text)
{
	const cJSON *n;

	cJSON_ArrayForEach (n, cJSON_GetObjectItemCaseSensitive(view, "notes"))
		if (!strcmp(cJSON_GetStringValue(n), text))
			return true;
	return false;
}

/* The same file in another dtype, with nothing more to know: named together behind the rest. */
static bool is_of_other_dtype(const cJSON *view, const cJSON *views)
{
	const cJSON *plain = cJSON_GetObjectItemCaseSensitive(views, "weights"), *n;

	if (!plain || !is_ok(plain) || !is_ok(view) || strncmp(view->string, "weights-", strlen("weights-")) != 0)
		return false;
	cJSON_ArrayForEach (n, cJSON_GetObjectItemCaseSensitive(view, "notes"))
		if (!has_note(plain, cJSON_GetStringValue(n)))
			return false;
	return true;
}

/* What holds for several views is printed below the first, which names the others. */
static void note_print(const cJSON *views, const cJSON *of, const char *text)
{
	const cJSON *v;
	bool before = true;
	char also[256] = "", *line;

	cJSON_ArrayForEach (v, views) {
		if (v == of) {
			before = false;
		} else if (has_note(v, text) && !is_of_other_dtype(v, views)) {
			if (before)
				return;
			snprintf(also + strlen(also), sizeof(also) - strlen(also), "%s%s",
				 *also ? ", " : " (also: ", v->string);
		}
	}
	if (asprintf(&line, "%s%s%s", text, also, *also ? ")" : "") < 0)
		return;
	printf("%*s- ", NOTE_INDENT, "");
	terminal_wrap(stdout, line, terminal_width(stdout), NOTE_INDENT + 2, NOTE_INDENT + 2);
	putchar('\n');
	free(line);
}

static void notes_print(const cJSON *views, const cJSON *of)
{
	const cJSON *n;

	cJSON_ArrayForEach (n, cJSON_GetObjectItemCaseSensitive(of, "notes"))
		if (cJSON_GetStringValue(n))
			note_print(views, of, cJSON_GetStringValue(n));
}

static void view_print(const struct place *p, const cJSON *v)
{
	const char *state = show_string(v, "state", "?");
	const bool none = !strcmp(state, "none");
	char text[2048];

	printf("%*s%-*s", INDENT, "", NAME_COLUMNS, v->string);
	if (is_ok(v)) {
		line_print(p, show_string(v, "usage", "ok"), TEXT);
		return;
	}
	snprintf(text, sizeof(text), "%s: %s",
		 none                       ? "not available"
		 : !strcmp(state, "saving") ? state
					    : "cannot be shown",
		 none ? show_string(v, "why", "no reason is given") : "see problems below");
	terminal_wrap(stdout, text, terminal_width(stdout), TEXT, TEXT);
	putchar('\n');
}

void show_views(const cJSON *views, const struct shown_at *at, bool all)
{
	const struct place p = place_of(at);
	const cJSON *v;
	char others[192] = "";
	int hidden = 0;

	if (!cJSON_GetArraySize(views))
		return;
	puts("\nviews");
	cJSON_ArrayForEach (v, views) {
		if (!all && never_applies(v)) {
			hidden++;
			continue;
		}
		if (!all && is_of_other_dtype(v, views)) {
			snprintf(others + strlen(others), sizeof(others) - strlen(others), "%s%s", *others ? ", " : "",
				 v->string);
			continue;
		}
		view_print(&p, v);
		notes_print(views, v);
	}
	if (*others) {
		snprintf(others + strlen(others), sizeof(others) - strlen(others),
			 ": the same as weights in that dtype");
		printf("%*s", INDENT, "");
		terminal_wrap(stdout, others, terminal_width(stdout), INDENT, INDENT);
		putchar('\n');
	}
	if (hidden)
		printf("%*s(%d %s of other kinds of checkpoints: --all)\n", INDENT, "", hidden,
		       plural((size_t)hidden, "view", "views"));
}
