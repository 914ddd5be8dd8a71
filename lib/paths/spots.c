/* From a directory of the tree to a name in it, one step at a time: a path is as many steps. */
#include "paths/spots.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/path.h"
#include "paths/forms.h"
#include "paths/info.h"
#include "paths/newest.h"
#include "paths/run_mark.h"
#include "session/shows.h"

#define INFO_DIR SESSION_INFO_DIR

/* -- inode numbers -- */

/* They are made of what is the same after a remount and on another host where the files are: names, and
 * of the files inode number, size and times. The device's number is not (NFS, btrfs and overlays give one
 * out at each mount), and is not needed: it distinguishes files within one mount, and there a file that
 * replaces another at the same path differs in inode number or in ctime, which no one can set. That
 * the bytes of an open file are still those of its generation is a question of its own, which the engine
 * answers by all of uns_identity, device included, within this one mount. */
static uint64_t ino_of(const struct spot_key *key, uint64_t generation, const char *inside)
{
	uint64_t h = uns_hash_str(UNS_HASH_INIT, key->view ? key->view->name : "");

	h = uns_hash_u64(h, key->parameter);
	h = uns_hash_str(h, key->path);
	h = uns_hash_u64(h, generation);
	h = uns_hash_end(uns_hash_str(h, inside));
	return h < 2 ? h + 2 : h; /* 0 is no inode, 1 is FUSE's root */
}

/* A file outside checkpoints is its own generation. */
static uint64_t generation_of(const struct uns_stat *st)
{
	uint64_t h = uns_hash_u64(st->id.ino, (uint64_t)st->id.mtime_ns);

	h = uns_hash_u64(uns_hash_u64(h, st->id.size), (uint64_t)st->id.ctime_ns);
	return st->id.mount ? uns_hash_u64(h, st->id.mount) : h;
}

/* Two mounts with other options may show other bytes of equal size under one name, and programs that copy both
 * distinguish files by inode number and time.
 *
 * While a checkpoint is young a write may be going on that changes no time any more: what the kernel keeps of it then
 * belongs to an inode of its own, and not to the one that the same files have once they have settled. */
uint64_t spot_ino_inside(struct unshard *u, const struct spot *spot, const char *inside)
{
	const uint64_t generation = snapshots_generation(&u->snapshots, spot->record);

	return ino_of(&spot->key, uns_hash_u64(u->opt.shown, spot->record->young ? ~generation : generation), inside);
}

/* -- small helpers -- */

static bool known_name(const char *const *names, const char *name)
{
	for (; *names; names++)
		if (strcmp(name, *names) == 0)
			return true;
	return false;
}

static int absent(struct uns_err *err)
{
	return uns_fail(err, -ENOENT, "no such file");
}

static int not_a_directory(const char *path, struct uns_err *err)
{
	return uns_fail(err, -ENOTDIR, "%s is not a directory", path);
}

static void let_go(struct unshard *u, struct spot *spot)
{
	contents_unref(spot->contents);
	record_put(u, spot->record);
	spot->contents = NULL;
	spot->record = NULL;
	spot->is_file = false;
}

void spot_fini(struct unshard *u, struct spot *spot)
{
	let_go(u, spot);
	uns_text_fini(&spot->text);
	uns_arena_fini(&spot->arena);
	memset(spot, 0, sizeof(*spot));
}

/* -- inside a checkpoint -- */

int spot_load(struct unshard *u, struct spot *spot, struct uns_err *err)
{
	if (!spot->contents)
		UNS_TRY(show_contents(u, spot->record, spot->key.view, spot->key.parameter, &spot->contents, err));
	show_contents_ahead(u, spot->record);
	return 0;
}

/* What of the contents is at the spot's path. The checkpoint's own directory is there, whatever is in it. */
static int find_inside(struct spot *spot, struct uns_err *err)
{
	const char *inside = spot->key.inside;
	struct contents_file file;
	struct contents_at at;

	if (!*inside)
		return 0;
	UNS_TRY(contents_begin(spot->contents, inside, &spot->arena, &at, err));
	if (!contents_next(&at, &file))
		return uns_fail(err, -ENOENT, "the view %s makes no %s of this checkpoint", spot->key.view->name,
				inside);
	spot->is_file = !file.path[strlen(inside)];
	spot->file = file;
	return 0;
}

int spot_open(struct unshard *u, const struct spot *spot, struct snapshot **snap, const struct uns_vfile **file,
	      struct uns_err *err)
{
	const struct uns_vfile *found;
	const struct shown *shown;
	int code;

	UNS_TRY(snapshot_get(u, spot->record, snap, err));
	code = show_tree(u, spot->record, *snap, spot->key.view, spot->key.parameter, &shown, err);
	found = code < 0                                 ? NULL
		: spot->key.as_file && shown->tree.whole ? shown->tree.whole
							 : uns_vtree_find(&shown->tree, spot->key.inside);
	/* The kernel, and a program that listed it, have the size that it had. */
	if (code == 0 && (!found || found->layout.size_bytes != spot->file.size_bytes)) {
		records_suspect(&u->records, spot->record, true);
		code = uns_fail(err, -ESTALE, "%s has changed", spot->key.path);
	}
	if (code < 0)
		snapshot_put(u, UNS_TAKE(*snap)); /* a caller that cleans up has none to put */
	*file = found;
	return code;
}

static int check_shown(struct unshard *u, struct spot *spot, struct uns_err *err)
{
	enum show_state state;
	struct uns_err why = { 0 };
	int code = show_state_of(u, spot->record, spot->key.view, spot->key.parameter, &state, &why);

	if (code == -EACCES && spot_is_dir(spot) && !*spot->key.inside)
		return 0; /* we may not read it: its name is shown, and opening it fails */
	if (code < 0)
		return uns_fail_copy(err, &why);
	show_contents_ahead(u, spot->record);
	if (state == SHOW_OK || state == SHOW_DAMAGED)
		return 0;
	return uns_fail(err, -ENOENT, "%s", why.text);
}

/* The spot's checkpoint at spot->key.inside. */
static int go_inside(struct unshard *u, struct spot *spot, struct uns_err *err)
{
	const char *inside = spot->key.inside;

	spot->key.kind = SPOT_SHOWN;
	spot->ino = spot_ino_inside(u, spot, *inside || !spot->key.as_file ? inside : "/");
	spot->is_file = false;
	if (!*inside && !spot->key.as_file)
		return 0; /* a directory at least; spot_check asks whether it is shown */
	UNS_TRY(check_shown(u, spot, err));
	UNS_TRY(spot_load(u, spot, err));
	if (!spot->key.as_file || !spot->contents->has_whole)
		return find_inside(spot, err);
	spot->is_file = true;
	spot->file = contents_whole(spot->contents);
	return *inside ? not_a_directory(spot->key.path, err) : 0;
}

static int go_to_info(struct unshard *u, struct spot *spot, struct uns_err *err)
{
	const char *name = spot->key.inside, *inside;

	spot->key.kind = SPOT_INFO;
	UNS_TRY_ALLOC(inside = uns_path_join(&spot->arena, INFO_DIR, name), err);
	spot->ino = spot_ino_inside(u, spot, inside);
	if (!*name)
		return 0;
	if (!known_name(info_names, name))
		return absent(err);
	UNS_TRY(info_text(u, spot->record, spot->key.view, spot->key.parameter, name, &spot->text, err));
	return info_access(u, spot->record, &spot->access, err);
}

/* -- SOURCE's own directories -- */

/* spot->record is the record of spot->key.path. */
static int go_to_record(struct unshard *u, struct spot *spot, struct uns_err *err)
{
	spot->key.inside = "";
	if (spot->record->is.format)
		return go_inside(u, spot, err);
	if (records_in_the_making(&u->records, spot->record))
		return uns_fail(err, -ENOENT,
				"%s: something changed less than %lld s ago, and it may become a checkpoint "
				"(-o settle=)",
				spot->key.path, (long long)(u->opt.settle_ns / 1000000000));
	spot->key.kind = SPOT_SOURCE;
	spot->key.directory = true;
	spot->ino = ino_of(&spot->key, 0, "");
	return 0;
}

static int find_record(struct unshard *u, struct spot *spot, struct uns_err *err)
{
	const struct uns_view *view = spot->key.view;

	UNS_TRY(record_look(u, spot->key.path, spot->look, &spot->record, err));
	if (!view || !view->of_run || !spot->record->is.format)
		return 0;
	let_go(u, spot);
	return record_get_for(u, spot->key.path, view, spot->key.parameter, &spot->record, err);
}

static int go_to_directory(struct unshard *u, struct spot *spot, struct uns_err *err)
{
	if (session_hides(u, spot->key.path))
		return absent(err);
	UNS_TRY(find_record(u, spot, err));
	return go_to_record(u, spot, err);
}

/* A relative link that stays inside is a link of the view; others are followed, where that is
 * allowed. 1 = it was followed. */
static int stat_entry(struct unshard *u, struct spot *spot, struct uns_err *err)
{
	const char *path = spot->key.path, *target;
	struct uns_arena *arena = &spot->arena;

	UNS_TRY(uns_root_stat(u->root, path, false, &spot->stat, err));
	if (spot->stat.kind != UNS_KIND_LINK)
		return 0;
	UNS_TRY(uns_root_readlink(u->root, path, arena, &target, err));
	if (uns_path_resolve(arena, uns_path_parent(arena, path), target))
		return 0;
	UNS_TRY(uns_root_stat(u->root, path, true, &spot->stat, err));
	/* Behind it are the shards themselves, in a view that promises other files. */
	if (spot->stat.kind == UNS_KIND_LINK)
		return uns_fail(err, -ENOENT, "%s is a link to %s, which is outside SOURCE (-o follow=DIR)", path,
				target);
	return 1;
}

/* 1 = the entry is a file that is a checkpoint, and the view shows what is in it. */
static int go_to_file(struct unshard *u, struct spot *spot, struct uns_err *err)
{
	struct uns_err why = { 0 };
	int code;

	if (spot->stat.kind != UNS_KIND_FILE || !spot->key.view || !spot->key.view->opens_files ||
	    !examine_may_be_file(spot->key.path))
		return 0;
	code = find_record(u, spot, &why);
	if (code == -ENOTDIR)
		return 0;
	if (code < 0)
		return uns_fail_copy(err, &why);
	UNS_TRY(go_to_record(u, spot, err));
	return 1;
}

/* For a second a directory is what it was when it was examined. A file that is younger than that may be the first of a
 * checkpoint, which is not shown as it lies there. */
static int check_still_plain(struct unshard *u, struct spot *spot, struct uns_err *err)
{
	struct dir_record *record;
	const char *dir;
	bool plain;

	if (spot->stat.kind != UNS_KIND_FILE)
		return 0;
	UNS_TRY_ALLOC(dir = uns_path_parent(&spot->arena, spot->key.path), err);
	if (!records_outdated(&u->records, dir, spot->stat.id.ctime_ns))
		return 0;
	UNS_TRY(record_get(u, dir, &record, err));
	plain = !record->is.format && !records_in_the_making(&u->records, record);
	record_put(u, record);
	return plain ? 0 : uns_fail(err, -ESTALE, "%s is not a plain directory any more", dir);
}

/* An entry that no form gives another name. */
static int go_to_entry(struct unshard *u, struct spot *spot, struct uns_err *err)
{
	int followed, opened;

	if (session_hides(u, spot->key.path))
		return absent(err);
	UNS_TRY(followed = stat_entry(u, spot, err));
	if (spot->stat.kind == UNS_KIND_DIR) {
		UNS_TRY(find_record(u, spot, err));
		if (!followed)
			records_seen_itself(&u->records, spot->record);
		return go_to_record(u, spot, err);
	}
	UNS_TRY(opened = go_to_file(u, spot, err));
	if (opened)
		return 0;
	if (spot->stat.kind == UNS_KIND_OTHER)
		return uns_fail(err, -ENOENT, "%s is neither file nor directory", spot->key.path);
	UNS_TRY(check_still_plain(u, spot, err));
	spot->key.kind = SPOT_SOURCE;
	spot->key.directory = false;
	spot->key.inside = "";
	spot->ino = ino_of(&spot->key, spot->stat.kind == UNS_KIND_FILE ? generation_of(&spot->stat) : 0, "");
	return 0;
}

/* 1 = `name` of the directory `dir` is a run's mark, and spot->key.path is its path. */
static int go_to_mark(struct unshard *u, struct spot *spot, const char *dir, const char *name, struct uns_err *err)
{
	struct run_mark mark;
	int found = run_mark_find(u, spot->key.view, spot->key.parameter, dir, name, &spot->arena, &mark, err);

	if (found <= 0) {
		uns_text_fini(&mark.text);
		return found;
	}
	spot->key.kind = SPOT_MARK;
	spot->key.inside = "";
	spot->stat = mark.stat;
	spot->text = mark.text;
	spot->ino = ino_of(&spot->key, mark.generation, "");
	return 1;
}

/* A link never changes where it leads: when a newer checkpoint is whole, the name gets another inode. So a program that
 * looked the link up gets there, and the kernel may keep what it read of it. */
static void go_to_link(struct spot *spot, const char *target)
{
	spot->key.kind = SPOT_NEWEST;
	spot->key.directory = false;
	spot->key.inside = target;
	spot->ino = ino_of(&spot->key, 0, target);
}

/* 1 = `name` of the directory `dir` is the made link, and spot->key.path is its path. A name of SOURCE wins. */
static int go_to_newest(struct unshard *u, struct spot *spot, const char *dir, const char *name, struct uns_err *err)
{
	const char *target;
	struct uns_stat st;
	int found;

	if (strcmp(name, NEWEST_NAME) != 0 || uns_root_stat(u->root, spot->key.path, false, &st, NULL) != -ENOENT)
		return 0;
	UNS_TRY(found = newest_find(u, spot->key.view, spot->key.parameter, dir, &spot->arena, &target, err));
	if (found)
		go_to_link(spot, target);
	return found;
}

static int enter_source(struct unshard *u, struct spot *spot, const char *name, struct uns_err *err)
{
	const char *dir = spot->key.path;
	const struct uns_view *view = spot->key.view;
	struct form_found form;
	int found;

	if (!spot->key.directory)
		return not_a_directory(dir, err);
	let_go(u, spot);
	UNS_TRY_ALLOC(spot->key.path = uns_path_join(&spot->arena, dir, name), err);
	/* What was looked at a moment ago is not looked at again. */
	spot->record = records_known(&u->records, spot->key.path, spot->look);
	if (spot->record && !forms_has_file(view, spot->record) && !(view->of_run && spot->record->is.format))
		return go_to_record(u, spot, err);
	let_go(u, spot);
	UNS_TRY(found = go_to_mark(u, spot, dir, name, err));
	if (found)
		return 0;
	UNS_TRY(found = forms_find(u, view, dir, name, &spot->arena, &form, err));
	if (found) {
		spot->key.path = form.path;
		spot->key.as_file = form.as_file;
		spot->record = form.record;
		return go_to_record(u, spot, err);
	}
	UNS_TRY(found = go_to_newest(u, spot, dir, name, err));
	return found ? 0 : go_to_entry(u, spot, err);
}

/* The kernel follows links by itself; paths of the tree (spot_find) are followed here. */
static int enter_newest(struct unshard *u, struct spot *spot, const char *name, struct uns_err *err)
{
	const char *target = spot->key.inside;

	UNS_TRY_ALLOC(spot->key.path = uns_path_parent(&spot->arena, spot->key.path), err);
	spot->key.kind = SPOT_SOURCE;
	spot->key.directory = true;
	UNS_TRY(enter_source(u, spot, target, err));
	return spot_enter(u, spot, name, err);
}

/* -- the mount's root -- */

static int go_to_root_info(struct unshard *u, struct spot *spot, struct uns_err *err)
{
	const struct spot_key under = { .path = INFO_DIR };

	spot->key.kind = SPOT_ROOT_INFO;
	spot->ino = ino_of(&under, 0, spot->key.inside);
	if (!*spot->key.inside)
		return 0;
	if (!known_name(root_info_names, spot->key.inside))
		return absent(err);
	spot->access = root_info_access(spot->key.inside);
	return root_info_text(u, spot->key.inside, &spot->text) < 0 ? uns_oom(err) : 0;
}

bool spot_is_root_info(const struct unshard *u, const struct spot_key *dir, const char *name)
{
	if (!dir->top)
		return false;
	return strcmp(name, INFO_DIR INFO_DIR) == 0 || (strcmp(name, INFO_DIR) == 0 && !u->has_info_name);
}

int spot_root_info(struct unshard *u, struct spot *spot, struct uns_err *err)
{
	spot->key = (struct spot_key){ .path = "", .inside = "" };
	return go_to_root_info(u, spot, err);
}

int spot_top(struct unshard *u, struct spot *out, struct uns_err *err)
{
	int code = 0;

	memset(out, 0, sizeof(*out));
	out->key = (struct spot_key){ .kind = SPOT_ROOT, .path = "", .inside = "" };
	out->ino = 1;
	if (u->opt.only) {
		out->key.view = u->opt.only;
		out->key.parameter = u->opt.only_parameter;
		code = go_to_directory(u, out, err);
	}
	out->key.top = true;
	if (code < 0)
		spot_fini(u, out);
	return code;
}

/* -- one step -- */

static int enter_shown(struct unshard *u, struct spot *spot, const char *name, struct uns_err *err)
{
	if (!*spot->key.inside && strcmp(name, INFO_DIR) == 0) {
		spot->key.inside = "";
		return go_to_info(u, spot, err);
	}
	spot->key.inside = uns_path_join(&spot->arena, spot->key.inside, name);
	return spot->key.inside ? go_inside(u, spot, err) : uns_oom(err);
}

static int enter_info(struct unshard *u, struct spot *spot, const char *name, struct uns_err *err)
{
	if (*spot->key.inside)
		return absent(err);
	UNS_TRY_ALLOC(spot->key.inside = uns_arena_str(&spot->arena, name), err);
	return spot->key.kind == SPOT_INFO ? go_to_info(u, spot, err) : go_to_root_info(u, spot, err);
}

int spot_enter(struct unshard *u, struct spot *spot, const char *name, struct uns_err *err)
{
	bool root_info = spot_is_root_info(u, &spot->key, name);

	spot->key.top = false;
	if (root_info) {
		let_go(u, spot);
		return spot_root_info(u, spot, err);
	}
	switch (spot->key.kind) {
	case SPOT_ROOT:
		spot->key.view = view_find(name, strlen(name), &spot->key.parameter);
		if (!spot->key.view)
			return uns_fail(err, -ENOENT, "view %s: no such view", name);
		return go_to_directory(u, spot, err);
	case SPOT_ROOT_INFO:
	case SPOT_INFO:
		return enter_info(u, spot, name, err);
	case SPOT_SHOWN:
		return enter_shown(u, spot, name, err);
	case SPOT_MARK:
		return not_a_directory(spot->key.path, err);
	case SPOT_NEWEST:
		return enter_newest(u, spot, name, err);
	case SPOT_SOURCE:
		break;
	}
	return enter_source(u, spot, name, err);
}

int spot_check(struct unshard *u, struct spot *spot, struct uns_err *err)
{
	if (spot->key.kind == SPOT_SHOWN && !*spot->key.inside && !spot->key.as_file)
		return check_shown(u, spot, err);
	return 0;
}

static int walk(struct unshard *u, struct spot *spot, const char *path, struct uns_err *err)
{
	size_t n;
	const char *name;

	for (path += strspn(path, "/"); *path; path += n, path += strspn(path, "/")) {
		n = strcspn(path, "/");
		UNS_TRY_ALLOC(name = uns_arena_strn(&spot->arena, path, n), err);
		UNS_TRY(spot_enter(u, spot, name, err));
	}
	return spot_check(u, spot, err);
}

int spot_find(struct unshard *u, const char *path, struct spot *out, struct uns_err *err)
{
	int code;

	UNS_TRY(spot_top(u, out, err));
	code = walk(u, out, path, err);
	if (code < 0)
		spot_fini(u, out);
	return code;
}

/* -- from a key -- */

static int go_to_key(struct unshard *u, struct spot *spot, struct uns_err *err)
{
	enum spot_kind kind = spot->key.kind;
	const char *inside = spot->key.inside, *path = spot->key.path;
	int found;

	if (kind == SPOT_ROOT_INFO)
		return go_to_root_info(u, spot, err);
	if (kind == SPOT_SOURCE)
		return spot->key.directory ? go_to_directory(u, spot, err) : go_to_entry(u, spot, err);
	if (kind == SPOT_MARK) {
		UNS_TRY(found = go_to_mark(u, spot, uns_path_parent(&spot->arena, path), uns_path_name(path), err));
		return found ? 0 : uns_fail(err, -ESTALE, "%s is not shown any more", path);
	}
	if (kind == SPOT_NEWEST) {
		go_to_link(spot, inside);
		return 0;
	}
	UNS_TRY(find_record(u, spot, err));
	if (!spot->record->is.format)
		return uns_fail(err, -ESTALE, "%s is not a checkpoint any more", spot->key.path);
	spot->key.inside = inside;
	return kind == SPOT_INFO ? go_to_info(u, spot, err) : go_inside(u, spot, err);
}

int spot_of(struct unshard *u, const struct spot_key *key, enum look look, struct spot *out, struct uns_err *err)
{
	int code;

	if (key->top)
		return spot_top(u, out, err);
	memset(out, 0, sizeof(*out));
	out->key = *key;
	out->look = look;
	out->key.path = uns_arena_str(&out->arena, key->path);
	out->key.inside = uns_arena_str(&out->arena, key->inside);
	code = out->key.path && out->key.inside ? go_to_key(u, out, err) : uns_oom(err);
	if (code < 0)
		spot_fini(u, out);
	return code;
}

/* -- attributes -- */

enum { DIR_MODE = 0555, FILE_MODE = 0444 };

bool spot_is_dir(const struct spot *spot)
{
	switch (spot->key.kind) {
	case SPOT_ROOT:
		return true;
	case SPOT_ROOT_INFO:
	case SPOT_INFO:
		return !*spot->key.inside;
	case SPOT_SHOWN:
		return !spot->is_file;
	case SPOT_MARK:
	case SPOT_NEWEST:
		return false;
	case SPOT_SOURCE:
		break;
	}
	return spot->key.directory;
}

bool spot_is_link(const struct spot *spot)
{
	return spot->key.kind == SPOT_NEWEST ||
	       (spot->key.kind == SPOT_SOURCE && !spot->key.directory && spot->stat.kind == UNS_KIND_LINK);
}

bool spot_generation(struct unshard *u, const struct spot *spot, uint64_t *out)
{
	if (spot->key.kind == SPOT_SHOWN)
		*out = snapshots_generation(&u->snapshots, spot->record);
	else if (spot->key.kind == SPOT_SOURCE && !spot->key.directory)
		*out = generation_of(&spot->stat);
	else
		return false;
	return true;
}

static void stat_shown(struct unshard *u, const struct spot *spot, struct unshard_stat *out)
{
	const struct uns_attributes *attr = &spot->file.attr;

	/* A checkpoint's own directory is looked at again like any run-level one: its inode
	 * shows that the checkpoint changed. So is all of one that is unsettled: its times may change less
	 * than its bytes. */
	out->young = spot->record->young || record_unsettled(u, spot->record);
	out->stable = *spot->key.inside && !out->young;
	if (!spot->is_file)
		return;
	out->kind = UNSHARD_FILE;
	out->mode = attr->access.mode;
	out->uid = attr->access.uid;
	out->gid = attr->access.gid;
	out->size_bytes = spot->file.size_bytes;
	out->mtime_ns = attr->mtime_ns;
	out->nlink = 1;
}

static void stat_info(const struct spot *spot, struct unshard_stat *out)
{
	out->live = true;
	if (!*spot->key.inside) {
		out->mode = DIR_MODE;
		return;
	}
	out->kind = UNSHARD_FILE;
	out->mode = spot->access.mode;
	out->uid = spot->access.uid;
	out->gid = spot->access.gid;
	out->size_bytes = spot->text.len;
	out->nlink = 1;
}

/* SOURCE's own mark, with another content. */
static void stat_mark(const struct spot *spot, struct unshard_stat *out)
{
	out->live = true;
	out->mode &= FILE_MODE;
	out->size_bytes = spot->text.len;
}

static void stat_newest(const struct spot *spot, struct unshard_stat *out)
{
	out->live = true;
	out->kind = UNSHARD_LINK;
	out->size_bytes = strlen(spot->key.inside);
	out->nlink = 1;
}

static void stat_source(const struct uns_stat *st, struct unshard_stat *out)
{
	out->kind = st->kind == UNS_KIND_DIR ? UNSHARD_DIR : st->kind == UNS_KIND_LINK ? UNSHARD_LINK : UNSHARD_FILE;
	out->mode = st->mode & DIR_MODE;
	out->uid = st->uid;
	out->gid = st->gid;
	out->mtime_ns = st->id.mtime_ns;
	if (st->kind != UNS_KIND_DIR) {
		out->size_bytes = st->id.size;
		out->nlink = 1;
	}
}

/* A directory, also of what is one file in SOURCE: a user that may read that may look into it. */
static void stat_record(const struct uns_stat *st, struct unshard_stat *out)
{
	stat_source(st, out);
	if (st->kind == UNS_KIND_DIR)
		return;
	out->kind = UNSHARD_DIR;
	out->mode |= (st->mode & 0444) >> 2;
	out->size_bytes = 0;
	out->nlink = 2;
}

void spot_stat(struct unshard *u, const struct spot *spot, struct unshard_stat *out)
{
	/* No byte of the stack between the fields: an initializer may leave one there. */
	memset(out, 0, sizeof(*out));
	out->size = sizeof(*out);
	out->kind = UNSHARD_DIR;
	out->nlink = 2;
	out->ino = spot->ino;
	if (spot->record) {
		stat_record(&spot->record->is.stat, out);
	} else if (spot->key.kind == SPOT_SOURCE || spot->key.kind == SPOT_MARK) {
		stat_source(&spot->stat, out);
	} else {
		stat_source(&u->top, out);
	}
	if (spot->key.kind == SPOT_SHOWN)
		stat_shown(u, spot, out);
	else if (spot->key.kind == SPOT_MARK)
		stat_mark(spot, out);
	else if (spot->key.kind == SPOT_NEWEST)
		stat_newest(spot, out);
	else if (spot->key.kind == SPOT_INFO || spot->key.kind == SPOT_ROOT_INFO)
		stat_info(spot, out);
}

const char *spot_view(struct unshard *u, const struct spot *spot, const char *name, struct uns_arena *arena)
{
	if (!spot->key.view)
		return NULL;
	if (u->opt.only)
		return uns_arena_printf(arena, "%s%s%s", u->opt.only->name, *u->opt.only_text ? "-" : "",
					u->opt.only_text);
	name += strspn(name, "/");
	return uns_arena_strn(arena, name, strcspn(name, "/"));
}
