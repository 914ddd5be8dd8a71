/* Finds a run's checkpoints by the numbers in their names. Does not read what their files contain. */
#include "facts/siblings.h"

#include <stdio.h>
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

/* Complete = it begins with '{' and ends with '}'. A truncated or empty file does not. */
int siblings_state_whole(const struct uns_root *root, struct uns_arena *arena, const char *path)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;
	const char *state = uns_path_join(arena, path, STATE);
	struct uns_stat st;
	char first, tail[2];

	if (!state)
		return -ENOMEM;
	UNS_TRY(uns_root_open_file(root, state, &fd, &st, NULL));
	if (st.id.size < 3)
		return 0;
	UNS_TRY(uns_fd_pread(fd, &first, 1, 0, state, NULL));
	UNS_TRY(uns_fd_pread(fd, tail, 2, st.id.size - 2, state, NULL));
	return first == '{' && (tail[1] == '}' || (tail[1] == '\n' && tail[0] == '}'));
}

/* -- for the generation -- */

/* Returns 1 if the file exists, 0 if it does not. */
static int stat_one(const struct uns_root *root, struct uns_capture *capture, const char *path,
		    struct uns_stat *st, struct uns_err *err)
{
	struct uns_err why = { 0 };
	int code = path ? uns_stat_seen(root, capture, path, st, &why) : uns_oom(&why);

	return code == 0 ? 1 : uns_fail_if_passing(err, code, &why);
}

static int add_names(const struct uns_root *root, struct uns_capture *capture, struct uns_arena *arena,
		     const char *run, const char *const *names, size_t n, siblings_add *add, void *ctx,
		     struct uns_err *err)
{
	struct uns_stat st;
	size_t i;
	int found;

	if (root == uns_capture_root(capture))
		uns_capture_look(capture, run, names, n);
	for (i = 0; i < n; i++) {
		UNS_TRY(found = stat_one(root, capture, uns_path_join(arena, run, names[i]), &st, err));
		if (found)
			add(ctx, names[i], &st);
	}
	return 0;
}

int siblings_borrowed(struct uns_capture *capture, struct uns_arena *arena, const char *path,
		      siblings_add *add, void *ctx, struct uns_err *err)
{
	static const char *const names[] = { "config.json", "generation_config.json",
					     "tokenizer.json", "tokenizer_config.json",
					     "adapter_config.json" };
	const struct uns_root *root;
	const char *run;

	UNS_TRY(uns_root_up(uns_capture_root(capture), path, arena, &root, &run, err));
	return run ? add_names(root, capture, arena, run, names, sizeof(names) / sizeof(*names), add, ctx, err)
		   : 0;
}

int siblings_telling(struct uns_capture *capture, struct uns_arena *arena, const char *path,
		     siblings_add *add, void *ctx, struct uns_err *err)
{
	static const char *const names[] = { STATE, "training_args.json", "training_args.bin" };
	const struct uns_root *root = uns_capture_root(capture);
	struct siblings s;
	struct uns_stat st;
	struct uns_err why = { 0 };
	char number[32];
	size_t i;
	int code = siblings_find(root, capture, arena, path, &s, &why), found;

	if (code < 0 || !s.run)
		return uns_fail_if_passing(err, code, &why);
	for (i = 0; i < s.n; i++) {
		snprintf(number, sizeof(number), "%llu", s.number[i]);
		add(ctx, number, NULL);
	}
	for (i = 0; i < s.n_near; i++) {
		UNS_TRY(found = stat_one(root, capture, s.near[i].state, &st, err));
		if (found)
			add(ctx, s.near[i].state, &st);
	}
	return add_names(root, capture, arena, s.run, names, sizeof(names) / sizeof(*names), add, ctx, err);
}
