/* See grouped.h. */
#include "grouped.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "terminal.h"

enum { SHOWN_OF_A_KIND = 8, NAMED = 6 };

struct kind {
	char id[64];
	size_t n;
};

/* A note, and the other checkpoints of the run that it holds for. */
struct repeated {
	char id[64];
	char *run; /* the directory of the checkpoints; "" = SOURCE */
	char names[512];
	size_t n;
};

static void *grown(void *list, size_t n, size_t size)
{
	void *more = realloc(list, (n + 1) * size);

	if (!more)
		command_no_memory();
	return more;
}

static size_t run_length(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (size_t)(slash - path) : 0;
}

static const char *name_of(const char *path)
{
	const size_t n = run_length(path);

	return path + n + (path[n] == '/');
}

static void repeat(struct repeated *r, const char *path)
{
	if (r->n++ < NAMED)
		snprintf(r->names + strlen(r->names), sizeof(r->names) - strlen(r->names), "%s%.80s",
			 *r->names ? ", " : "", name_of(path));
}

/* Has the run had this note already? */
static bool note_is_known(struct grouped *g, const struct unshard_finding *f)
{
	const size_t n = run_length(f->path);
	struct repeated *r = g->repeated, *more;

	for (; r < g->repeated + g->n_repeated; r++)
		if (!strcmp(r->id, f->id) && strlen(r->run) == n && !strncmp(r->run, f->path, n)) {
			repeat(r, f->path);
			return true;
		}
	more = grown(g->repeated, g->n_repeated, sizeof(*more));
	if (!more)
		return false;
	g->repeated = more;
	r = &more[g->n_repeated];
	*r = (struct repeated){ .run = strndup(f->path, n) };
	snprintf(r->id, sizeof(r->id), "%s", f->id);
	if (r->run)
		g->n_repeated++;
	return false;
}

static bool is_one_of_many(struct grouped *g, const char *id)
{
	struct kind *k = g->kind, *more;

	while (k < g->kind + g->n_kinds && strcmp(k->id, id) != 0)
		k++;
	if (k == g->kind + g->n_kinds) {
		more = grown(g->kind, g->n_kinds, sizeof(*more));
		if (!more)
			return false;
		g->kind = more;
		k = &more[g->n_kinds++];
		k->n = 0;
		snprintf(k->id, sizeof(k->id), "%s", id);
	}
	return ++k->n > SHOWN_OF_A_KIND;
}

/* It is the same for each checkpoint: files beside the run are missing. */
static bool is_about_the_run(const struct unshard_finding *f)
{
	return f->severity == UNSHARD_NOTE && !f->file && !f->tensor && !strcmp(f->check, "config");
}

bool grouped_add(struct grouped *g, const struct unshard_finding *f, bool begins)
{
	if (begins)
		grouped_end_checkpoint(g);
	if (is_about_the_run(f) && note_is_known(g, f))
		return false;
	return !is_one_of_many(g, f->id);
}

void grouped_end_checkpoint(struct grouped *g)
{
	size_t i;

	for (i = 0; i < g->n_kinds; i++)
		if (g->kind[i].n > SHOWN_OF_A_KIND)
			printf("  ... and %zu more [%s]; --json has all\n", g->kind[i].n - SHOWN_OF_A_KIND,
			       g->kind[i].id);
	free(g->kind);
	g->kind = NULL;
	g->n_kinds = 0;
}

void grouped_end(struct grouped *g)
{
	const struct repeated *r;
	char line[800];

	grouped_end_checkpoint(g);
	for (r = g->repeated; r < g->repeated + g->n_repeated; r++) {
		if (r->n) {
			snprintf(line, sizeof(line), "[%s] holds for %zu more %s%.100s: %s%s", r->id, r->n,
				 *r->run ? "of " : "", r->run, r->names, r->n > NAMED ? ", ..." : "");
			terminal_wrap(stdout, line, terminal_width(stdout), 0, 2);
			putchar('\n');
		}
		free(r->run);
	}
	free(g->repeated);
	*g = (struct grouped){ .n_kinds = 0 };
}
