/* A directory of SOURCE is looked at: its names and identities are captured, and formats are asked. Looking again is to
 * capture its own files and to look at the rest of the list once more (io/seen.h). */
#include "examine/examine.h"

#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/path.h"
#include "io/seen.h"

enum { MAX_DEPTH = 4 }; /* of a checkpoint's own sub-directories */

/* Without the device's number, which is another at each mount of NFS, btrfs or an overlay and on each host:
 * inode numbers and memos are made of generations, and stay. The change time is in its place; the mount's number where
 * the identity has one. Of a directory whose entries are added as well (is_listed) no times: rclone and s3fs give it
 * other ones at each mount and on each host. */
static void examined_add(struct examined *f, const char *name, const struct uns_stat *st, bool is_listed)
{
	const struct uns_identity *id = &st->id;
	int64_t changed = id->mtime_ns > id->ctime_ns ? id->mtime_ns : id->ctime_ns;
	uint64_t h = uns_hash_str(f->own_generation, name);

	h = uns_hash_u64(h, id->ino);
	if (!is_listed) {
		h = uns_hash_u64(h, (uint64_t)id->mtime_ns);
		h = uns_hash_u64(h, (uint64_t)id->ctime_ns);
		h = id->mount ? uns_hash_u64(h, id->mount) : h;
	}
	f->content = uns_hash_u64(uns_hash_str(f->content, name), st->kind);
	if (st->kind == UNS_KIND_FILE) {
		h = uns_hash_u64(h, id->size);
		f->content = uns_hash_u64(uns_hash_u64(f->content, id->size), (uint64_t)id->mtime_ns);
		f->source_bytes += id->size;
		if (id->mtime_ns > f->newest_file_ns)
			f->newest_file_ns = id->mtime_ns;
	}
	f->own_generation = h;
	if (changed > f->newest_ns)
		f->newest_ns = changed;
}

/* How many entries the directory has, and each of them. Fails where one cannot be looked at, -EACCES included: without
 * it sizes and generation would be wrong. What a link leads to is elsewhere: a view that needs it fails. Its own times
 * are left out of the generation (a file that comes or goes shows by its name), but count as a change for `settle`. */
static int add_directory(struct uns_capture *capture, struct uns_arena *arena, const char *path, struct examined *f,
			 int depth, struct uns_err *err)
{
	const char *top = uns_capture_path(capture);
	const size_t skip = strlen(top) + (*top != 0);
	const struct uns_listing *list;
	struct uns_err why = { 0 };
	struct uns_stat st;
	const char *child;
	bool is_listed;
	size_t i;
	int code;

	UNS_TRY(uns_capture_list_in(capture, uns_capture_root(capture), path, &list, &st, err));
	if (f->dirs && own_dirs_add(f->dirs, depth ? path + skip : "", &st) < 0)
		return uns_oom(err);
	f->own_generation = uns_hash_u64(f->own_generation, list->n);
	f->content = uns_hash_u64(f->content, list->n);
	for (i = 0; i < list->n; i++) {
		UNS_TRY_ALLOC(child = uns_path_join(arena, path, list->v[i].name), err);
		code = uns_capture_stat(capture, child, &st, &why);
		if (code < 0 && list->v[i].kind != UNS_KIND_LINK)
			UNS_TRY(uns_fail_if_passing(err, code, &why));
		if (code < 0) {
			why = (struct uns_err){ 0 };
			continue;
		}
		is_listed = st.kind == UNS_KIND_DIR && list->v[i].kind == UNS_KIND_DIR && depth < MAX_DEPTH;
		examined_add(f, list->v[i].name, &st, is_listed);
		if (is_listed)
			UNS_TRY(add_directory(capture, arena, child, f, depth + 1, err));
	}
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

/* A plain directory whose entries have not changed for a while is still plain: listing it again would
 * cost as much as it is large. So is it only while those below it have the same names that a format looked into: shards
 * may arrive there. Returns 1 or 0. */
static int still_plain(const struct examiner *x, struct uns_capture *capture, struct uns_err *err)
{
	const struct uns_identity *now = &uns_capture_top(capture)->id;

	if (!x->before || x->before->format || x->before->begun || !x->before->inputs ||
	    !uns_identity_equal(&x->before->stat.id, now) || !uns_identity_is_old(now))
		return 0;
	return uns_seen_again(capture, x->before->inputs, err);
}

/* When something in a directory that has begun, or below it where a format looked, last changed. */
static int find_newest(struct uns_capture *capture, const char *path, struct examined *f, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct examined of = { .newest_ns = f->stat.id.ctime_ns };

	int code = uns_capture_fill(capture, 1, NULL);

	if (code == 0)
		code = add_directory(capture, &arena, path, &of, MAX_DEPTH - 1, NULL);
	f->newest_ns = of.newest_ns; /* an entry that cannot be read does not keep the directory from being shown */
	return code == -ENOMEM ? uns_oom(err) : 0;
}

static int add_plain(const struct uns_directory *dir, struct examined *f, struct uns_err *err)
{
	f->begun = *dir->path && begun(dir);
	f->inputs = uns_inputs_ref(*uns_capture_inputs(dir->capture));
	return f->begun ? find_newest(dir->capture, dir->path, f, err) : 0;
}

/* -- checkpoints -- */

/* Which files that end a save are missing, or older than the checkpoint's own (model/save_times.h): both mean that
 * the save has not ended. No more than that: they are written again by each later save of the run. */
static int look_at_marks(const struct examiner *x, struct uns_capture *capture, const struct examined *f,
			 struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_root *root = uns_capture_root(capture);
	const char *const *name, *dir = x->path, *path;
	unsigned up;

	for (up = 0; f->format->marks && up < f->format->marks_up; up++) {
		UNS_TRY(uns_root_up(root, dir, &arena, &root, &dir, err));
		if (!dir)
			return 0;
		for (name = f->format->marks; *name; name++) {
			UNS_TRY_ALLOC(path = uns_path_join(&arena, dir, *name), err);
			UNS_TRY(uns_is_there_since(root, capture, path, f->newest_file_ns, err));
		}
	}
	return 0;
}

uint64_t examined_generation(const struct examined *f, const struct uns_inputs *inputs)
{
	uint64_t h = uns_hash_end(uns_hash_u64(f->own_generation, uns_inputs_hash(inputs)));

	return f->facts_digest ? uns_hash_end(uns_hash_u64(h, f->facts_digest)) : h;
}

/* All is as it was when `before` was found out: then the capture has the same list. Returns 1 or 0. */
static int is_same(const struct examiner *x, struct uns_capture *capture, const struct examined *f, struct uns_err *err)
{
	int same;

	if (!x->before || x->before->format != f->format || x->before->own_generation != f->own_generation ||
	    x->before->facts_digest != f->facts_digest)
		return 0;
	UNS_TRY(same = uns_seen_again(capture, x->before->inputs, err));
	if (same)
		uns_capture_give_inputs(capture, uns_inputs_ref(x->before->inputs));
	return same;
}

/* f->own_generation is known. */
static int add_generation(const struct examiner *x, struct uns_capture *capture, struct examined *f,
			  struct uns_err *err)
{
	int same;

	f->own_generation = uns_hash_end(f->own_generation);
	if (x->before)
		f->facts = x->before->facts;
	store_digest(x->store, x->path, &f->facts);
	f->facts_digest = f->facts.digest;
	UNS_TRY(same = is_same(x, capture, f, err));
	f->same = same;
	if (!same && f->stat.kind == UNS_KIND_DIR) {
		UNS_TRY(uns_seen_elsewhere(capture, err));
		UNS_TRY(look_at_marks(x, capture, f, err));
	}
	f->inputs = uns_inputs_ref(*uns_capture_inputs(capture));
	f->generation = examined_generation(f, f->inputs);
	return 0;
}

/* All of its own files. */
static int add_own(const struct examiner *x, struct uns_capture *capture, struct examined *f, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;

	UNS_TRY(uns_capture_fill(capture, MAX_DEPTH, err));
	f->newest_ns = f->stat.id.ctime_ns;
	f->own_generation = uns_hash_str(f->own_generation, f->format->name);
	UNS_TRY_ALLOC(f->dirs = own_dirs_new(), err);
	UNS_TRY(add_directory(capture, &arena, x->path, f, 0, err));
	if (!own_dirs_were_old(f->dirs)) {
		own_dirs_put(f->dirs);
		f->dirs = NULL;
	}
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

static int probe_file(const struct uns_root *root, const char *path, const struct uns_format **out, struct uns_err *err)
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

static int look_at_file(const struct examiner *x, struct uns_capture *capture, struct examined *f, struct uns_err *err)
{
	if (x->before && uns_identity_equal(&x->before->stat.id, &f->stat.id) && uns_identity_is_old(&f->stat.id))
		f->format = x->before->format;
	else
		UNS_TRY(probe_file(x->root, x->path, &f->format, err));
	if (!f->format)
		return 0;
	f->own_generation = uns_hash_str(f->own_generation, f->format->name);
	examined_add(f, uns_path_name(x->path), &f->stat, false);
	return add_generation(x, capture, f, err);
}

/* A checkpoint of which the directories and what lies outside are as they were has the same files. Returns 1 or 0. */
static int is_same_at_a_glance(const struct examiner *x, struct uns_capture *capture, struct examined *f,
			       struct uns_err *err)
{
	const struct examined *was = x->before;
	int same;

	if (!x->glance || !was || !was->format || !was->dirs)
		return 0;
	UNS_TRY(same = own_dirs_same(was->dirs, capture, err));
	f->facts = was->facts;
	store_digest(x->store, x->path, &f->facts);
	if (!same || f->facts.digest != was->facts_digest)
		return 0;
	return uns_seen_again(capture, was->inputs, err);
}

/* All but what a glance looks at itself. */
static void take_known(struct examined *f, const struct examined *was)
{
	const struct examined now = *f;

	*f = *was;
	f->stat = now.stat;
	f->facts = now.facts;
	f->inputs = uns_inputs_ref(was->inputs);
	f->dirs = own_dirs_ref(was->dirs);
	f->same = f->glanced = true;
}

static int look_at_directory(const struct examiner *x, struct uns_capture *capture, struct examined *f,
			     struct uns_err *err)
{
	struct uns_directory dir = { .root = x->root, .path = x->path, .capture = capture, .adapters = x->adapters };
	int plain, same;

	UNS_TRY(same = is_same_at_a_glance(x, capture, f, err));
	if (same) {
		take_known(f, x->before);
		return 0;
	}
	UNS_TRY(plain = still_plain(x, capture, err));
	if (plain) {
		f->same = true;
		f->inputs = uns_inputs_ref(x->before->inputs);
		return 0;
	}
	if (x->before && x->before->format) /* still one, most likely: its names and stats at one go */
		UNS_TRY(uns_capture_fill(capture, MAX_DEPTH, err));
	UNS_TRY(uns_capture_list(capture, x->path, &dir.list, err));
	f->format = probe(&dir);
	if (!f->format)
		return add_plain(&dir, f, err);
	UNS_TRY(add_own(x, capture, f, err));
	return add_generation(x, capture, f, err);
}

static int look(const struct examiner *x, struct uns_capture *capture, struct examined *f, struct uns_err *err)
{
	f->stat = *uns_capture_top(capture);
	UNS_TRY(f->stat.kind == UNS_KIND_FILE ? look_at_file(x, capture, f, err)
					      : look_at_directory(x, capture, f, err));
	return uns_capture_fault(capture, err);
}

int examine(const struct examiner *x, struct examined *f, struct uns_capture **capture, struct uns_err *err)
{
	int code;

	*f = (struct examined){ .own_generation = UNS_HASH_INIT, .content = UNS_HASH_INIT, .at_ns = uns_wall_ns() };
	*capture = NULL;
	UNS_TRY(uns_capture_new_of(x->root, x->path, x->hidden, examine_may_be_file(x->path), x->lists, capture, err));
	code = look(x, *capture, f, err);
	if (code < 0 || !f->format || f->glanced) {
		uns_capture_free(*capture);
		*capture = NULL;
	}
	if (code < 0)
		examined_fini(f);
	return code;
}

void examined_fini(struct examined *f)
{
	uns_inputs_put(f->inputs);
	own_dirs_put(f->dirs);
	f->inputs = NULL;
	f->dirs = NULL;
}
