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
	char *run;  /* the directory of the checkpoints; "" = SOURCE */
	char *path, *text; /* of the first checkpoint that it held for */
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

/* Of the directory that holds the checkpoint: of run/global_step_2/actor, run. */
static size_t run_length(const char *path)
{
	static const char rounds[] = "global_step_";
	const char *end = strrchr(path, '/'), *above = end;

	while (above && above > path && above[-1] != '/')
		above--;
	if (above && !strncmp(above, rounds, strlen(rounds)))
		end = above > path ? above - 1 : NULL;
	return end ? (size_t)(end - path) : 0;
}

static const char *name_of(const char *path)
{
	const size_t n = run_length(path);

	return path + n + (path[n] == '/');
}

static const char *last_component(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Do two sentences differ in nothing but the names of their checkpoints, which they may quote? */
static bool is_same_but_name(const char *a, const char *a_path, const char *b, const char *b_path)
{
	const char *a_name = last_component(a_path), *b_name = last_component(b_path);
	const size_t a_len = strlen(a_name), b_len = strlen(b_name);

	while (*a && *b) {
		if (a_len && b_len && !strncmp(a, a_name, a_len) && !strncmp(b, b_name, b_len)) {
			a += a_len;
			b += b_len;
		} else if (*a++ != *b++) {
			return false;
		}
	}
	return *a == *b;
}

static void repeated_fini(struct repeated *r)
{
	free(r->run);
	free(r->path);
	free(r->text);
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
		if (!strcmp(r->id, f->id) && strlen(r->run) == n && !strncmp(r->run, f->path, n) &&
		    is_same_but_name(r->text, r->path, f->text, f->path)) {
			repeat(r, f->path);
			return true;
		}
	more = grown(g->repeated, g->n_repeated, sizeof(*more));
	if (!more)
		return false;
	g->repeated = more;
	r = &more[g->n_repeated];
	*r = (struct repeated){ .run = strndup(f->path, n), .path = strdup(f->path), .text = strdup(f->text) };
	snprintf(r->id, sizeof(r->id), "%s", f->id);
	if (r->run && r->path && r->text) {
		g->n_repeated++;
	} else {
		repeated_fini(r);
		command_no_memory();
	}
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

/* How many more there were of each kind. */
static void end_checkpoint(struct grouped *g)
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

bool grouped_add(struct grouped *g, const struct unshard_finding *f, bool begins)
{
	if (begins)
		end_checkpoint(g);
	if (f->severity == UNSHARD_NOTE && note_is_known(g, f))
		return false;
	return !is_one_of_many(g, f->id);
}

void grouped_end(struct grouped *g)
{
	struct repeated *r;
	char line[800];

	end_checkpoint(g);
	for (r = g->repeated; r < g->repeated + g->n_repeated; r++) {
		if (r->n) {
			snprintf(line, sizeof(line), "[%s] holds for %zu more%s%.100s: %s%s", r->id, r->n,
				 *r->run ? " of " : "", r->run, r->names, r->n > NAMED ? ", ..." : "");
			terminal_wrap(stdout, line, terminal_width(stdout), 0, 2);
			putchar('\n');
		}
		repeated_fini(r);
	}
	free(g->repeated);
	*g = (struct grouped){ .n_kinds = 0 };
}
