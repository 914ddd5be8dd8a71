/* A run's checkpoints by their numbers. Must not know what their files say. */
#include "facts/siblings.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/path.h"

enum { NEAR = 4 };

static const char STATE[] = "trainer_state.json";

static int descending(const void *a, const void *b)
{
	const unsigned long long x = *(const unsigned long long *)a,
				 y = *(const unsigned long long *)b;

	return x < y ? 1 : x > y ? -1 : 0;
}

static void choose_near(struct siblings *s, struct uns_arena *arena)
{
	size_t i, later = 0, first;

	while (later < s->n && s->number[later] > s->own)
		later++;
	for (i = later; i > 0 && later - i < NEAR; i--)
		s->near[s->n_near++].number = s->number[i - 1];
	for (first = later; first < s->n && s->number[first] == s->own; first++)
		;
	for (i = first; i < s->n && i - first < NEAR; i++)
		s->near[s->n_near++].number = s->number[i];
	for (i = 0; i < s->n_near; i++)
		s->near[i].state = uns_arena_printf(arena, "%s%scheckpoint-%llu/%s", s->run,
						    *s->run ? "/" : "", s->near[i].number, STATE);
}

int siblings_find(const struct uns_root *root, struct uns_capture *capture, struct uns_arena *arena,
		  const char *path, struct siblings *s, struct uns_err *err)
{
	struct uns_listing list;
	size_t i;

	*s = (struct siblings){ .run = *path ? uns_path_parent(arena, path) : NULL };
	if (!s->run)
		return 0;
	s->numbered = uns_str_number(uns_path_name(path), "checkpoint-", "", &s->own);
	if (!s->numbered)
		return 0;
	UNS_TRY(uns_list_seen(root, capture, s->run, arena, &list, err));
	s->number = UNS_NEW_N(arena, unsigned long long, list.n);
	if (!s->number)
		return uns_oom(err);
	for (i = 0; i < list.n; i++)
		if (list.v[i].kind == UNS_KIND_DIR &&
		    uns_str_number(list.v[i].name, "checkpoint-", "", &s->number[s->n]))
			s->n++;
	qsort(s->number, s->n, sizeof(*s->number), descending);
	choose_near(s, arena);
	return 0;
}

/* It begins and ends as an object does: a save that was cut, or an empty file, does not. */
bool siblings_state_whole(const struct uns_root *root, struct uns_arena *arena, const char *path)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;
	const char *state = uns_path_join(arena, path, STATE);
	struct uns_stat st;
	char first, tail[2];

	if (!state || uns_root_open_file(root, state, &fd, &st, NULL) < 0 || st.id.size < 3 ||
	    uns_fd_pread(fd, &first, 1, 0, state, NULL) < 0 ||
	    uns_fd_pread(fd, tail, 2, st.id.size - 2, state, NULL) < 0)
		return false;
	return first == '{' && (tail[1] == '}' || (tail[1] == '\n' && tail[0] == '}'));
}
