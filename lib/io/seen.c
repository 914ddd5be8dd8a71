/* What is asked about a path, and what of the answer counts. */
#include "io/seen.h"

#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/path.h"

enum { MOST_NAMES = 64 };

/* -- what counts of an answer -- */

static uint64_t hash_of_stat(int code, const struct uns_stat *st)
{
	uint64_t h = uns_hash_u64(UNS_HASH_INIT, (uint64_t)code);

	if (code < 0)
		return h;
	h = uns_hash_u64(uns_hash_u64(h, st->kind), st->id.ino);
	if (st->kind == UNS_KIND_DIR) /* which names it has is a question of its own */
		return h;
	h = uns_hash_u64(uns_hash_u64(h, (uint64_t)st->id.mtime_ns), (uint64_t)st->id.ctime_ns);
	h = st->id.mount ? uns_hash_u64(h, st->id.mount) : h;
	return st->kind == UNS_KIND_FILE ? uns_hash_u64(h, st->id.size) : h;
}

static bool fits(const char *const *globs, const char *name)
{
	if (!globs)
		return true;
	for (; *globs; globs++)
		if (uns_str_glob(*globs, name))
			return true;
	return false;
}

static uint64_t hash_of_names(int code, const struct uns_listing *list, const char *const *globs)
{
	uint64_t h = uns_hash_u64(UNS_HASH_INIT, (uint64_t)code);
	size_t i;

	for (i = 0; code == 0 && i < list->n; i++)
		if (fits(globs, list->v[i].name))
			h = uns_hash_u64(uns_hash_str(h, list->v[i].name), list->v[i].kind);
	return h;
}

/* -- asking -- */

/* The names may be the same as `before` without being listed: then *list stays empty, and 1 is returned. */
static int ask_names(struct uns_capture *c, struct uns_input *in, const struct uns_input *before,
		     const struct uns_listing **list, struct uns_err *why)
{
	struct uns_stat st = { 0 };
	int code;

	if (before && before->dir_is_old && uns_capture_stat_in(c, in->root, in->path, &st, NULL) == 0 &&
	    uns_identity_equal(&st.id, &before->dir)) {
		in->seen = before->seen;
		return 1;
	}
	code = uns_capture_list_in(c, in->root, in->path, list, &st, why);
	if (uns_capture_is_fault(code))
		return code;
	in->seen = hash_of_names(code, *list, in->globs);
	in->dir = st.id;
	in->dir_is_old = code == 0 && uns_identity_is_old(&st.id);
	return code;
}

/* Sets in->seen. Returns what the look itself did; what passes is no answer. */
static int ask_file(struct uns_capture *c, struct uns_input *in, struct uns_stat *st, struct uns_err *why)
{
	int code = in->root ? uns_capture_stat_in(c, in->root, in->path, st, why) : uns_path_stat(in->path, st, why);

	switch (in->kind) {
	case UNS_INPUT_THERE:
		in->seen = code == 0;
		break;
	case UNS_INPUT_SINCE:
		in->seen = code == 0 ? 1 + (st->id.mtime_ns >= in->since_ns) : 0;
		break;
	case UNS_INPUT_PLACE:
		in->seen = code == 0 ? uns_hash_u64(UNS_HASH_INIT, st->id.ino) : 0;
		break;
	case UNS_INPUT_FILE:
	case UNS_INPUT_NAMES:
	case UNS_INPUT_KINDS:
		in->seen = hash_of_stat(code, st);
		break;
	}
	return code;
}

static bool is_looked_at_anyway(const struct uns_capture *c, const struct uns_input *in)
{
	return in->root && uns_capture_filled(c, in->root, in->path, in->kind == UNS_INPUT_NAMES);
}

/* Adds what was asked to the capture's list, unless it is looked at anyway, or could not be seen at this moment. Where
 * memory is out for that, nothing may be made of the capture: a probe hands on no failure. */
static int input_add(struct uns_capture *c, const struct uns_input *in, int code, struct uns_err *err)
{
	struct uns_err why = { 0 };

	if (uns_capture_is_fault(code))
		return 0;
	if (is_looked_at_anyway(c, in))
		return 0;
	if (uns_inputs_add(uns_capture_inputs(c), in) == 0)
		return 0;
	uns_oom(&why);
	uns_capture_note_fault(c, &why);
	return uns_fail_as(err, &why);
}

/* -- the door -- */

int uns_stat_seen(const struct uns_root *root, struct uns_capture *c, const char *path, struct uns_stat *out,
		  struct uns_err *err)
{
	struct uns_input in = { .kind = UNS_INPUT_FILE, .root = root, .path = path };
	int code;

	if (!c)
		return uns_root_stat(root, path, true, out, err);
	code = ask_file(c, &in, out, err);
	UNS_TRY(input_add(c, &in, code, err));
	return code;
}

int uns_stat_beside(const struct uns_root *root, struct uns_capture *c, const char *path, struct uns_stat *out,
		    struct uns_err *err)
{
	return c ? uns_capture_stat_in(c, root, path, out, err) : uns_root_stat(root, path, true, out, err);
}

static int is_there(const struct uns_input *asked, struct uns_capture *c, struct uns_err *err)
{
	struct uns_input in = *asked;
	struct uns_err why = { 0 };
	struct uns_stat st;
	int code;

	if (!c) {
		code = uns_root_stat(in.root, in.path, true, &st, &why);
		in.seen = code == 0 ? 1 + (st.id.mtime_ns >= in.since_ns) : 0;
	} else {
		code = ask_file(c, &in, &st, &why);
		UNS_TRY(input_add(c, &in, code, err));
	}
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	return in.kind == UNS_INPUT_THERE ? code == 0 : in.seen == 2;
}

int uns_is_there(const struct uns_root *root, struct uns_capture *c, const char *path, struct uns_err *err)
{
	return is_there(&(struct uns_input){ .kind = UNS_INPUT_THERE, .root = root, .path = path }, c, err);
}

int uns_is_there_since(const struct uns_root *root, struct uns_capture *c, const char *path, int64_t since_ns,
		       struct uns_err *err)
{
	return is_there(
		&(struct uns_input){ .kind = UNS_INPUT_SINCE, .root = root, .path = path, .since_ns = since_ns }, c,
		err);
}

static int list_seen(struct uns_capture *c, struct uns_input *in, struct uns_listing *out, struct uns_err *err)
{
	const struct uns_listing *list = NULL;
	int code = ask_names(c, in, NULL, &list, err);

	UNS_TRY(input_add(c, in, code, err));
	if (code == 0)
		*out = *list;
	return code;
}

int uns_list_seen(const struct uns_root *root, struct uns_capture *c, const char *path, struct uns_arena *arena,
		  struct uns_listing *out, struct uns_err *err)
{
	struct uns_input in = { .kind = UNS_INPUT_NAMES, .root = root, .path = path };

	return c ? list_seen(c, &in, out, err) : uns_root_list(root, path, arena, out, err);
}

int uns_list_fitting(const struct uns_root *root, struct uns_capture *c, const char *path, const char *const *globs,
		     struct uns_arena *arena, struct uns_listing *out, struct uns_err *err)
{
	struct uns_input in = { .kind = UNS_INPUT_NAMES, .root = root, .path = path, .globs = globs };
	struct uns_listing all = { 0 };
	size_t i;

	UNS_TRY(c ? list_seen(c, &in, &all, err) : uns_root_list(root, path, arena, &all, err));
	*out = (struct uns_listing){ UNS_NEW_N(arena, struct uns_entry, all.n), 0 };
	UNS_TRY_ALLOC(out->v, err);
	for (i = 0; i < all.n; i++) {
		if (!fits(globs, all.v[i].name))
			continue;
		out->v[out->n] = all.v[i];
		out->v[out->n].name = uns_arena_str(arena, all.v[i].name); /* the capture's may be gone sooner */
		UNS_TRY_ALLOC(out->v[out->n++].name, err);
	}
	return 0;
}

int uns_open_seen(const struct uns_root *root, struct uns_capture *c, const char *path, int *fd, struct uns_stat *out,
		  struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int file = -1;
	struct uns_stat seen;

	UNS_TRY(uns_stat_seen(root, c, path, &seen, err));
	UNS_TRY(uns_root_open_file(root, path, &file, out, err));
	if (c && !uns_identity_equal(&seen.id, &out->id))
		return uns_fail(err, -ESTALE, "%s/%s has changed", uns_root_path(root), path);
	*fd = file;
	file = -1;
	return 0;
}

int uns_read_seen(const struct uns_root *root, struct uns_capture *c, const char *path, uint64_t max_bytes,
		  struct uns_arena *arena, struct uns_span *out, struct uns_err *err)
{
	struct uns_stat seen, now;

	UNS_TRY(uns_stat_seen(root, c, path, &seen, err));
	UNS_TRY(uns_root_read_file(root, path, max_bytes, arena, out, &now, err));
	if (c && !uns_identity_equal(&seen.id, &now.id))
		return uns_fail(err, -ESTALE, "%s/%s has changed", uns_root_path(root), path);
	return 0;
}

int uns_place_seen(struct uns_capture *c, const char *path, struct uns_err *err)
{
	struct uns_input in = { .kind = UNS_INPUT_PLACE, .path = path };
	struct uns_stat st;

	return c ? input_add(c, &in, ask_file(c, &in, &st, NULL), err) : 0;
}

/* -- all of it once more -- */

int uns_seen_elsewhere(struct uns_capture *c, struct uns_err *err)
{
	const struct uns_inputs *all = *uns_capture_inputs(c);
	struct uns_inputs *kept = uns_inputs_new();
	int code = kept ? 0 : -ENOMEM;
	size_t i;

	for (i = 0; code == 0 && i < all->n; i++)
		if (!is_looked_at_anyway(c, &all->v[i]))
			code = uns_inputs_add(&kept, &all->v[i]);
	if (code == 0)
		uns_capture_give_inputs(c, kept);
	else
		uns_inputs_put(kept);
	return code < 0 ? uns_oom(err) : 0;
}

static bool is_in(const struct uns_input *in, const struct uns_input *first)
{
	size_t n = (size_t)(uns_path_name(first->path) - first->path);

	return in->root == first->root && in->kind != UNS_INPUT_NAMES && first->kind != UNS_INPUT_NAMES &&
	       strncmp(in->path, first->path, n) == 0 && !strchr(in->path + n, '/');
}

/* Stats files that follow each other in the list and lie in one directory together. */
static int look_together(struct uns_capture *c, const struct uns_input *v, size_t n, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const char *name[MOST_NAMES], *dir;
	size_t i;

	for (i = 0; i < n && i < MOST_NAMES && is_in(&v[i], v); i++)
		name[i] = uns_path_name(v[i].path);
	if (i < 3)
		return 0;
	UNS_TRY_ALLOC(dir = uns_path_parent(&arena, v->path), err);
	uns_capture_look(c, v->root, dir, name, i);
	return 0;
}

static int ask_again(struct uns_capture *c, const struct uns_input *was, struct uns_input *now, struct uns_err *why)
{
	const struct uns_listing *list = NULL;
	struct uns_stat st;

	*now = *was;
	return was->kind == UNS_INPUT_NAMES ? ask_names(c, now, was, &list, why) : ask_file(c, now, &st, why);
}

int uns_seen_again(struct uns_capture *c, const struct uns_inputs *list, struct uns_err *err)
{
	struct uns_err why = { 0 };
	struct uns_input now;
	size_t i;
	int code;

	for (i = 0; i < list->n; i++) {
		if (list->v[i].root && (i == 0 || !is_in(&list->v[i], &list->v[i - 1])))
			UNS_TRY(look_together(c, list->v + i, list->n - i, err));
		code = ask_again(c, &list->v[i], &now, &why);
		if (code != -EACCES)
			UNS_TRY(uns_fail_if_passing(err, code, &why));
		why = (struct uns_err){ 0 };
		if (now.seen != list->v[i].seen)
			return 0;
	}
	return 1;
}

/* Without inode numbers and change times, which are one machine's, or one copy's. */
static uint64_t hash_anywhere(int code, const struct uns_stat *st)
{
	uint64_t h = uns_hash_u64(UNS_HASH_INIT, code < 0 ? 1 : 0);

	if (code < 0)
		return h;
	h = uns_hash_u64(h, st->kind);
	return st->kind == UNS_KIND_FILE ? uns_hash_u64(uns_hash_u64(h, st->id.size), (uint64_t)st->id.mtime_ns) : h;
}

int uns_seen_anywhere(struct uns_capture *c, const struct uns_input *in, uint64_t *answer, struct uns_err *err)
{
	const struct uns_listing *list = NULL;
	struct uns_err why = { 0 };
	struct uns_input now = *in;
	struct uns_stat st = { 0 };
	int code;

	if (in->kind == UNS_INPUT_PLACE || in->globs)
		return -ENOTSUP;
	code = in->kind == UNS_INPUT_NAMES ? ask_names(c, &now, NULL, &list, &why) : ask_file(c, &now, &st, &why);
	if (code != -EACCES)
		UNS_TRY(uns_fail_if_passing(err, code, &why));
	UNS_TRY(input_add(c, &now, code, err));
	*answer = in->kind == UNS_INPUT_FILE ? hash_anywhere(code, &st) : now.seen;
	return 0;
}

int uns_seen_unpacked(struct uns_capture *c, const struct uns_input *v, size_t n, struct uns_err *err)
{
	struct uns_err why = { 0 };
	struct uns_input now;
	size_t i;
	int code;

	for (i = 0; i < n; i++) {
		code = ask_again(c, &v[i], &now, &why);
		if (code != -EACCES)
			UNS_TRY(uns_fail_if_passing(err, code, &why));
		why = (struct uns_err){ 0 };
		UNS_TRY(input_add(c, &now, code, err));
		if (now.seen != v[i].seen)
			return 0;
	}
	return 1;
}
