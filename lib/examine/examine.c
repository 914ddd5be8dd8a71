/* A directory of SOURCE is looked at: its names and identities are captured, formats are asked, and a generation is
 * made of all that a checkpoint's views may use. */
#include "examine/examine.h"

#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/path.h"
#include "facts/siblings.h"

enum {
	MAX_DEPTH = 4, /* of a checkpoint's own sub-directories */
	FRESH_S = 5,   /* a directory changed so lately may change again within the same mtime */
};

/* Without the device's number, which is another at each mount of NFS, btrfs or an overlay and on each host:
 * inode numbers and memos are made of generations, and stay. The change time stands for it. */
static void examined_add(struct examined *f, const char *name, const struct uns_stat *st)
{
	const struct uns_identity *id = &st->id;
	int64_t changed = id->mtime_ns > id->ctime_ns ? id->mtime_ns : id->ctime_ns;
	uint64_t h = uns_hash_str(f->generation, name);

	h = uns_hash_u64(h, id->ino);
	h = uns_hash_u64(h, (uint64_t)id->mtime_ns);
	h = uns_hash_u64(h, (uint64_t)id->ctime_ns);
	if (st->kind == UNS_KIND_FILE) {
		h = uns_hash_u64(h, id->size);
		f->source_bytes += id->size;
		if (id->mtime_ns > f->newest_file_ns)
			f->newest_file_ns = id->mtime_ns;
	}
	f->generation = h;
	if (changed > f->newest_ns)
		f->newest_ns = changed;
}

/* Each entry of the directory. Its own times are left out of the generation (a file that comes or goes
 * shows by its name), but count as a change for `settle`. */
static int add_directory(struct uns_capture *capture, struct uns_arena *arena, const char *path,
			 struct examined *f, int depth, struct uns_err *err)
{
	const struct uns_listing *list;
	struct uns_stat st;
	const char *child;
	size_t i;

	UNS_TRY(uns_capture_list(capture, path, &list, err));
	for (i = 0; i < list->n; i++) {
		child = uns_path_join(arena, path, list->v[i].name);
		if (!child)
			return uns_oom(err);
		if (uns_capture_stat(capture, child, &st, NULL) < 0)
			continue;
		examined_add(f, list->v[i].name, &st);
		if (st.kind == UNS_KIND_DIR && list->v[i].kind == UNS_KIND_DIR && depth < MAX_DEPTH)
			UNS_TRY(add_directory(capture, arena, child, f, depth + 1, err));
	}
	return 0;
}

/* Old enough for its times to show any change from now on. */
static bool is_old(const struct uns_identity *id)
{
	return (uns_wall_ns() - id->mtime_ns) / 1000000000 > FRESH_S;
}

/* The file is read again only where it may be another than the last time. */
static bool state_is_whole(const struct examiner *x, struct uns_capture *capture,
			   struct uns_arena *arena, struct examined *f)
{
	const char *path = uns_path_join(arena, x->path, "trainer_state.json");
	struct uns_stat st;
	int whole;

	if (!path || uns_capture_stat(capture, path, &st, NULL) < 0)
		return false;
	if (x->before && uns_identity_equal(&st.id, &x->before->state_id) && is_old(&st.id))
		whole = x->before->state_whole;
	else
		whole = siblings_state_whole(uns_capture_root(capture), arena, x->path);
	if (whole >= 0) {
		f->state_id = st.id;
		f->state_whole = whole;
	}
	return whole > 0;
}

static void add_beside(void *ctx, const char *name, const struct uns_stat *st)
{
	struct examined *f = ctx;

	if (st)
		examined_add(f, name, st);
	else
		f->generation = uns_hash_str(f->generation, name);
}

/* Which files that end a save are missing, or older than the checkpoint's own (model/save_times.h): both say that
 * the save has not ended. No more than that: they are written again by each later save of the run. */
static int add_marks(const struct examiner *x, struct uns_capture *capture, struct uns_arena *arena,
		     struct examined *f, struct uns_err *err)
{
	const struct uns_root *root = uns_capture_root(capture);
	const char *const *name, *dir = x->path, *path;
	struct uns_err why = { 0 };
	struct uns_stat st;
	unsigned up;
	int code;

	for (up = 0; f->format->marks && up < f->format->marks_up; up++) {
		UNS_TRY(uns_root_up(root, dir, arena, &root, &dir, err));
		for (name = f->format->marks; dir && *name; name++) {
			path = uns_path_join(arena, dir, *name);
			if (!path)
				return uns_oom(err);
			code = uns_stat_seen(root, capture, path, &st, &why);
			UNS_TRY(uns_fail_if_passing(err, code, &why));
			why = (struct uns_err){ 0 };
			if (code < 0 || st.id.mtime_ns < f->newest_file_ns)
				f->generation = uns_hash_u64(uns_hash_str(f->generation, *name), code == 0);
		}
		if (!dir)
			return 0;
	}
	return 0;
}

/* Files beside the checkpoint that its views may borrow or learn from. */
static int add_surroundings(const struct examiner *x, struct uns_capture *capture,
			    struct uns_arena *arena, struct examined *f, struct uns_err *err)
{
	int64_t newest = f->newest_ns; /* what happens beside it does not unsettle it */
	uint64_t bytes = f->source_bytes;

	UNS_TRY(siblings_borrowed(capture, arena, x->path, add_beside, f, err));
	/* A checkpoint with its own trainer_state.json does not change when its run saves the next one. */
	if (!state_is_whole(x, capture, arena, f))
		UNS_TRY(siblings_telling(capture, arena, x->path, add_beside, f, err));
	f->newest_ns = newest;
	f->source_bytes = bytes;
	return 0;
}

static const struct uns_format *probe(const struct uns_directory *dir)
{
	const struct uns_format *best = NULL;
	int sure = 0, answer;
	size_t i;

	for (i = 0; uns_formats[i]; i++) {
		if (!uns_formats[i]->probe)
			continue;
		answer = uns_formats[i]->probe(dir);
		if (answer > sure) {
			sure = answer;
			best = uns_formats[i];
		}
	}
	return best;
}

/* -- plain directories -- */

static bool begun(const struct uns_directory *dir)
{
	size_t i;

	for (i = 0; uns_formats[i]; i++)
		if (uns_formats[i]->begun && uns_formats[i]->begun(dir))
			return true;
	return false;
}

static bool watched_changed(const struct watched *w, struct uns_capture *capture)
{
	struct uns_stat st;
	size_t i;

	for (i = 0; i < w->n; i++)
		if (uns_capture_stat(capture, w->v[i].path, &st, NULL) < 0 ||
		    !uns_identity_equal(&st.id, &w->v[i].id) || !is_old(&st.id))
			return true;
	return false;
}

/* A plain directory whose entries have not changed for a while is still plain: listing it again would
 * cost as much as it is large. So is it only while those below it have not changed either that a format
 * looked into: shards may arrive there. */
static bool still_plain(const struct examiner *x, struct uns_capture *capture)
{
	const struct uns_identity *now = &uns_capture_top(capture)->id;

	return x->before && !x->before->format && !x->before->begun &&
	       uns_identity_equal(&x->before->stat.id, now) && is_old(now) &&
	       !watched_changed(&x->before->watched, capture);
}

/* Watch every directory below `path` that a format has listed in this capture. */
static int watch(struct uns_capture *capture, const char *path, struct watched *w,
		 struct uns_err *err)
{
	const char *listed;
	struct uns_stat st;
	size_t at = 0;

	while ((listed = uns_capture_listed(capture, &at, &st))) {
		if (strcmp(listed, path) == 0 || !uns_path_within(listed, path))
			continue;
		if (!UNS_ARENA_ROOM(&w->arena, w->v, w->n, w->cap) ||
		    !(w->v[w->n].path = uns_arena_str(&w->arena, listed)))
			return uns_oom(err);
		w->v[w->n++].id = st.id;
	}
	return 0;
}

/* When something in a directory that has begun, or below it where a format looked, last changed. */
static int find_newest(struct uns_capture *capture, const char *path, struct examined *f,
		       struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct examined of = { .newest_ns = f->stat.id.ctime_ns };

	int code = uns_capture_fill(capture, 1, NULL);

	if (code == 0)
		code = add_directory(capture, &arena, path, &of, MAX_DEPTH - 1, NULL);
	f->newest_ns =
		of.newest_ns; /* an entry that cannot be read does not keep the directory from being shown */
	return code == -ENOMEM ? uns_oom(err) : 0;
}

static int add_plain(const struct uns_directory *dir, struct examined *f, struct uns_err *err)
{
	f->begun = *dir->path && begun(dir);
	UNS_TRY(watch(dir->capture, dir->path, &f->watched, err));
	return f->begun ? find_newest(dir->capture, dir->path, f, err) : 0;
}

/* -- checkpoints -- */

/* With the facts that the store has about it. */
static void end_generation(const struct examiner *x, struct examined *f)
{
	f->source_generation = f->generation = uns_hash_end(f->generation);
	if (x->before)
		f->facts = x->before->facts;
	store_digest(x->store, x->path, &f->facts);
	if (f->facts.digest)
		f->generation = uns_hash_end(uns_hash_u64(f->generation, f->facts.digest));
}

/* A checkpoint's generation, out of everything that its views may be made of. */
static int add_generation(const struct examiner *x,
			  struct uns_capture *capture, struct examined *f, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const char *path = x->path;

	UNS_TRY(uns_capture_fill(capture, MAX_DEPTH, err));
	f->newest_ns = f->stat.id.ctime_ns;
	f->generation = uns_hash_str(f->generation, f->format->name);
	UNS_TRY(add_directory(capture, &arena, path, f, 0, err));
	f->own_generation = uns_hash_end(f->generation);
	UNS_TRY(add_marks(x, capture, &arena, f, err));
	UNS_TRY(add_surroundings(x, capture, &arena, f, err));
	end_generation(x, f);
	return 0;
}

/* -- checkpoints that are one file -- */

static bool has_ending(const struct uns_format *format, const char *path)
{
	const char *const *ending = format->file_endings;

	for (; ending && *ending; ending++)
		if (uns_str_ends(path, *ending))
			return true;
	return false;
}

bool examine_may_be_file(const char *path)
{
	size_t i;

	for (i = 0; uns_formats[i]; i++)
		if (has_ending(uns_formats[i], path))
			return true;
	return false;
}

static int probe_file(const struct uns_root *root, const char *path, const struct uns_format **out,
		      struct uns_err *err)
{
	int mine = 0;
	size_t i;

	*out = NULL;
	for (i = 0; uns_formats[i] && !mine; i++) {
		if (!has_ending(uns_formats[i], path))
			continue;
		UNS_TRY(mine = uns_formats[i]->probe_file(root, path, err));
		if (mine)
			*out = uns_formats[i];
	}
	return 0;
}

static int look_at_file(const struct examiner *x,
			struct uns_capture *capture, struct examined *f, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;

	if (x->before && uns_identity_equal(&x->before->stat.id, &f->stat.id) && is_old(&f->stat.id))
		f->format = x->before->format;
	else
		UNS_TRY(probe_file(x->root, x->path, &f->format, err));
	if (!f->format)
		return 0;
	f->generation = uns_hash_str(f->generation, f->format->name);
	examined_add(f, uns_path_name(x->path), &f->stat);
	f->own_generation = uns_hash_end(f->generation);
	UNS_TRY(add_surroundings(x, capture, &arena, f, err));
	end_generation(x, f);
	return uns_capture_fault(capture, err);
}

static int look(const struct examiner *x, struct uns_capture *capture,
		struct examined *f, struct uns_err *err)
{
	struct uns_directory dir = { .root = x->root, .path = x->path, .capture = capture };

	f->stat = *uns_capture_top(capture);
	if (f->stat.kind == UNS_KIND_FILE)
		return look_at_file(x, capture, f, err);
	if (still_plain(x, capture)) {
		f->still_plain = true;
		return 0;
	}
	if (x->before && x->before->format) /* still one, most likely: its names and stats at one go */
		UNS_TRY(uns_capture_fill(capture, MAX_DEPTH, err));
	UNS_TRY(uns_capture_list(capture, x->path, &dir.list, err));
	f->format = probe(&dir);
	UNS_TRY(f->format ? add_generation(x, capture, f, err) : add_plain(&dir, f, err));
	return uns_capture_fault(capture, err);
}

int examine(const struct examiner *x, struct examined *f, struct uns_capture **capture, struct uns_err *err)
{
	int code;

	*f = (struct examined){ .generation = UNS_HASH_INIT, .at_ns = uns_wall_ns() };
	*capture = NULL;
	UNS_TRY(uns_capture_new_of(x->root, x->path, x->hidden, examine_may_be_file(x->path), x->lists, capture, err));
	code = look(x, *capture, f, err);
	if (code < 0 || !f->format) {
		uns_capture_free(*capture);
		*capture = NULL;
	}
	if (code < 0)
		examined_fini(f);
	return code;
}

void examined_fini(struct examined *f)
{
	uns_arena_fini(&f->watched.arena);
}
