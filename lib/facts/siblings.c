/* Finds a run's checkpoints by the numbers in their names. Does not read what their files contain. */
#include "facts/siblings.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/path.h"

enum { NEAR = 4 };

#define STATE "trainer_state.json"

static const char *const checkpoints[] = { "checkpoint-*", NULL };

static int descending(const void *a, const void *b)
{
	const unsigned long long x = *(const unsigned long long *)a, y = *(const unsigned long long *)b;

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
		s->near[i].state = uns_arena_printf(arena, "%s%scheckpoint-%llu/%s", s->run, *s->run ? "/" : "",
						    s->near[i].number, STATE);
}

int siblings_find(const struct uns_root *root, struct uns_capture *capture, struct uns_arena *arena, const char *path,
		  struct siblings *s, struct uns_err *err)
{
	struct uns_listing list;
	size_t i;

	*s = (struct siblings){ .run = *path ? uns_path_parent(arena, path) : NULL };
	if (!s->run)
		return 0;
	s->numbered = uns_str_number(uns_path_name(path), "checkpoint-", "", &s->own);
	if (!s->numbered)
		return 0;
	UNS_TRY(uns_list_fitting(root, capture, s->run, checkpoints, arena, &list, err));
	UNS_TRY_ALLOC(s->number = UNS_NEW_N(arena, unsigned long long, list.n), err);
	for (i = 0; i < list.n; i++)
		if (list.v[i].kind == UNS_KIND_DIR &&
		    uns_str_number(list.v[i].name, "checkpoint-", "", &s->number[s->n]))
			s->n++;
	qsort(s->number, s->n, sizeof(*s->number), descending);
	choose_near(s, arena);
	return 0;
}

/* Is the checkpoint's own trainer_state.json complete? It begins with '{' and ends with '}' then. A truncated or empty
 * file does not. Returns 1 or 0; fails only in passing. */
static int state_is_whole(const struct uns_root *root, struct uns_capture *capture, struct uns_arena *arena,
			  const char *path, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_err why = { 0 };
	struct uns_stat st;
	char first, tail[2];
	const char *state;
	int code;

	UNS_TRY_ALLOC(state = uns_path_join(arena, path, STATE), err);
	code = uns_open_seen(root, capture, state, &fd, &st, &why);
	if (code < 0)
		return uns_fail_if_passing(err, code, &why);
	if (st.id.size < 3)
		return 0;
	UNS_TRY(uns_fd_pread(fd, &first, 1, 0, state, err));
	UNS_TRY(uns_fd_pread(fd, tail, 2, st.id.size - 2, state, err));
	return first == '{' && (tail[1] == '}' || (tail[1] == '\n' && tail[0] == '}'));
}

static int look_at(const struct uns_root *root, struct uns_capture *capture, const char *path, struct uns_err *err)
{
	struct uns_err why = { 0 };
	struct uns_stat st;
	int code = path ? uns_stat_seen(root, capture, path, &st, &why) : uns_oom(&why);

	return code == -EACCES ? 0 : uns_fail_if_passing(err, code, &why);
}

int siblings_look(const struct uns_root *root, struct uns_capture *capture, const char *path, struct uns_err *err)
{
	static const char *const names[] = { STATE, "training_args.json", "training_args.bin" };
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err why = { 0 };
	struct siblings s;
	size_t i;
	int code, whole;

	UNS_TRY(whole = state_is_whole(root, capture, &arena, path, err));
	if (whole)
		return 0;
	code = siblings_find(root, capture, &arena, path, &s, &why);
	if (code < 0 || !s.run)
		return uns_fail_if_passing(err, code, &why);
	for (i = 0; i < sizeof(names) / sizeof(*names); i++)
		UNS_TRY(look_at(root, capture, uns_path_join(&arena, s.run, names[i]), err));
	for (i = 0; i < s.n_near; i++)
		UNS_TRY(look_at(root, capture, s.near[i].state, err));
	return 0;
}
