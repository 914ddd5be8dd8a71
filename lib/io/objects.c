/* Listings, by prefix and in order of their keys; directories are what keys have before a slash. */
#include "io/objects.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/handle.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/path.h"
#include "base/search.h"
#include "io/numbers.h"
#include "io/object_blocks.h"
#include "object/bucket.h"

static const char scheme[] = "s3://";

enum {
	MOST_PAGES = 64, /* of a tree that is listed as a whole: 64,000 keys */
	MOST_LISTINGS = 512,
	NAME_BYTES = 255, /* the kernel takes no longer one */
};

/* For so long a listing is taken for what the store holds: at least so long, and for ten times as long as it took. */
static const int64_t kept_ns = 2000000000;

/* What is below one directory. Immutable once made. */
struct listing {
	unsigned refs; /* atomic */
	char *dir;     /* below the root; "" = the root */
	bool is_deep;  /* all that is below it, not its own level alone */
	int64_t at_ns, took_ns; /* monotonic: when it was asked for */
	struct uns_arena arena;
	struct uns_object_list list; /* keys below the root, sorted; "a/" is a common prefix */
};

struct uns_objects {
	unsigned refs; /* atomic */
	struct uns_bucket *bucket;
	struct uns_blocks *blocks;
	char *url;
	char *prefix; /* of every key: "" or "a/b/" */
	uint64_t dev;
	bool levels;  /* list no tree as a whole */

	pthread_mutex_t lock;
	pthread_cond_t listed; /* no listing is being made any more */
	bool is_listing;
	struct listing *kept[MOST_LISTINGS]; /* the newest first */
	size_t n_kept;
	struct uns_arena arena; /* of the names of `large` */
	struct uns_map large;   /* directories below which there are too many keys: -> the map */
};

/* An open file or directory. */
struct object {
	struct uns_objects *objects;
	char *path; /* below the root */
	struct uns_block_object *bytes; /* NULL = it is a directory */
	struct uns_identity id;
};

bool uns_objects_is_url(const char *path)
{
	return uns_str_starts(path, scheme);
}

/* -- listings -- */

static void listing_put(struct listing *l)
{
	if (!l || __atomic_sub_fetch(&l->refs, 1, __ATOMIC_ACQ_REL))
		return;
	uns_arena_fini(&l->arena);
	free(l->dir);
	free(l);
}

static void listing_put_p(struct listing **l)
{
	listing_put(*l);
}

/* The first key that is not before `key`. */
static size_t first_from(const struct listing *l, const char *key)
{
	size_t i;

	UNS_SEARCH(i, l->list.n, strcmp(l->list.v[i].key, key) < 0);
	return i;
}

static bool is_component(const char *name, size_t n)
{
	return n && n <= NAME_BYTES && !(n == 1 && name[0] == '.') && !(n == 2 && name[0] == '.' && name[1] == '.');
}

/* What a file system can have as a path. An object "a/" is an empty directory. */
static bool is_path(const char *key)
{
	size_t n;

	while (*key) {
		n = strcspn(key, "/");
		if (!is_component(key, n))
			return false;
		key += n + (key[n] == '/');
	}
	return true;
}

static int by_key(const void *a, const void *b)
{
	const struct uns_object *x = a, *y = b;

	return strcmp(x->key, y->key);
}

/* Keys of the pages as those below the root, without what is no path. */
static void take_keys(struct listing *l, const struct uns_objects *o)
{
	const size_t n_prefix = strlen(o->prefix);
	struct uns_object *v = l->list.v;
	size_t i, n = 0;

	for (i = 0; i < l->list.n; i++) {
		if (strncmp(v[i].key, o->prefix, n_prefix) != 0)
			continue;
		v[i].key += n_prefix;
		if (is_path(v[i].key))
			v[n++] = v[i];
	}
	l->list.n = n;
	if (n)
		qsort(v, n, sizeof(*v), by_key);
}

static int listing_new(const char *dir, bool deep, struct listing **out, struct uns_err *err)
{
	struct listing *l = calloc(1, sizeof(*l));

	UNS_TRY_ALLOC(l, err);
	l->refs = 1;
	l->is_deep = deep;
	l->at_ns = uns_now_ns();
	l->dir = strdup(dir);
	if (!l->dir) {
		listing_put(l);
		return uns_oom(err);
	}
	*out = l;
	return 0;
}

/* 1 = there are more keys than a tree that is listed as a whole may have. */
static int fetch(struct uns_objects *o, const char *dir, bool deep, struct listing **out, struct uns_err *err)
{
	UNS_CLEANUP(listing_put_p) struct listing *l = NULL;
	UNS_CLEANUP(uns_free_p) char *prefix = NULL;
	size_t pages = 0;

	UNS_TRY(listing_new(dir, deep, &l, err));
	if (asprintf(&prefix, "%s%s%s", o->prefix, dir, *dir ? "/" : "") < 0) {
		prefix = NULL;
		return uns_oom(err);
	}
	do {
		if (deep && pages++ == MOST_PAGES)
			return 1;
		UNS_TRY(uns_bucket_list(o->bucket, prefix, !deep, l->list.next, &l->arena, &l->list, err));
	} while (l->list.next);
	take_keys(l, o);
	l->took_ns = uns_now_ns() - l->at_ns;
	*out = UNS_TAKE(l);
	return 0;
}

static bool is_new(const struct listing *l, int64_t now_ns)
{
	const int64_t longest_ns = l->took_ns * 10 > kept_ns ? l->took_ns * 10 : kept_ns;

	return now_ns - l->at_ns - l->took_ns <= longest_ns;
}

/* A new one that has `dir`, or NULL. Lock held. */
static struct listing *find_kept(const struct uns_objects *o, const char *dir)
{
	const int64_t now_ns = uns_now_ns();
	struct listing *l;
	size_t i;

	for (i = 0; i < o->n_kept; i++) {
		l = o->kept[i];
		if ((l->is_deep ? uns_path_within(dir, l->dir) : strcmp(dir, l->dir) == 0) && is_new(l, now_ns)) {
			__atomic_add_fetch(&l->refs, 1, __ATOMIC_RELAXED);
			return l;
		}
	}
	return NULL;
}

/* What it replaces, and what is old, is given back. Lock held. */
static void keep(struct uns_objects *o, struct listing *l)
{
	const int64_t now_ns = uns_now_ns();
	size_t i, n = 0;

	for (i = 0; i < o->n_kept; i++)
		if (n + 1 < MOST_LISTINGS && is_new(o->kept[i], now_ns))
			o->kept[n++] = o->kept[i];
		else
			listing_put(o->kept[i]);
	memmove(o->kept + 1, o->kept, n * sizeof(*o->kept));
	__atomic_add_fetch(&l->refs, 1, __ATOMIC_RELAXED);
	o->kept[0] = l;
	o->n_kept = n + 1;
}

/* The highest directory on the way to `dir` whose tree is not too large. Lock held; *deep is false where even its own
 * is. */
static char *tree_of(const struct uns_objects *o, const char *dir, bool *deep)
{
	const char *end = dir;
	char *tree = NULL;

	for (*deep = true; !o->levels; end += strcspn(end, "/")) {
		free(tree);
		tree = strndup(dir, (size_t)(end - dir));
		if (!tree || !uns_map_get(&o->large, tree))
			return tree;
		if (!*end)
			break;
		end += *end == '/';
	}
	free(tree);
	*deep = false;
	return strdup(dir);
}

/* Lock held. */
static void note_large(struct uns_objects *o, const char *dir)
{
	const char *own = uns_arena_str(&o->arena, dir);

	if (own)
		uns_map_put(&o->large, own, &o->large, NULL);
}

/* Asks the store; the lock is dropped meanwhile. One thread does at a time: what it gets is mostly what the others
 * want. */
static int list_now(struct uns_objects *o, const char *dir, struct listing **out, struct uns_err *err)
{
	bool deep;
	char *tree;
	int code;

	do {
		tree = tree_of(o, dir, &deep);
		if (!tree)
			return uns_oom(err);
		o->is_listing = true;
		pthread_mutex_unlock(&o->lock);
		code = fetch(o, tree, deep, out, err);
		pthread_mutex_lock(&o->lock);
		o->is_listing = false;
		if (code == 1)
			note_large(o, tree);
		free(tree);
	} while (code == 1 && !o->arena.failed);
	if (code == 0)
		keep(o, *out);
	pthread_cond_broadcast(&o->listed);
	return code == 1 ? uns_oom(err) : code;
}

/* A listing with what is in directory `dir`; the caller gives it back. */
static int get_listing(struct uns_objects *o, const char *dir, struct listing **out, struct uns_err *err)
{
	int code = 0;

	pthread_mutex_lock(&o->lock);
	while (!(*out = find_kept(o, dir)) && o->is_listing)
		pthread_cond_wait(&o->listed, &o->lock);
	if (!*out)
		code = list_now(o, dir, out, err);
	pthread_mutex_unlock(&o->lock);
	return code;
}

/* What is known is wrong. */
static void forget_listings(struct uns_objects *o)
{
	pthread_mutex_lock(&o->lock);
	while (o->n_kept)
		listing_put(o->kept[--o->n_kept]);
	pthread_mutex_unlock(&o->lock);
}

/* -- life -- */

static void objects_put(struct uns_objects *o)
{
	if (!o || __atomic_sub_fetch(&o->refs, 1, __ATOMIC_ACQ_REL))
		return;
	while (o->n_kept)
		listing_put(o->kept[--o->n_kept]);
	uns_map_fini(&o->large);
	uns_arena_fini(&o->arena);
	uns_blocks_free(o->blocks);
	uns_bucket_close(o->bucket);
	pthread_cond_destroy(&o->listed);
	pthread_mutex_destroy(&o->lock);
	free(o->url);
	free(o->prefix);
	free(o);
}

static void objects_put_p(struct uns_objects **o)
{
	objects_put(*o);
}

static int fetch_bytes(void *ctx, const char *key, const char *etag, const struct iovec *into, size_t n_into,
		       uint64_t off, struct uns_err *err)
{
	return uns_bucket_read(ctx, key, etag, into, n_into, off, err);
}

static void release_bucket(void *ctx)
{
	uns_bucket_close(ctx);
}

/* Takes the bucket. */
static int objects_new(struct uns_bucket *bucket, const char *path, size_t n, struct uns_objects **out,
		       struct uns_err *err)
{
	UNS_CLEANUP(objects_put_p) struct uns_objects *o = calloc(1, sizeof(*o));
	struct uns_block_store store = { fetch_bytes, release_bucket, NULL };

	if (!o) {
		uns_bucket_close(bucket);
		return uns_oom(err);
	}
	o->refs = 1;
	o->bucket = bucket;
	pthread_mutex_init(&o->lock, NULL);
	pthread_cond_init(&o->listed, NULL);
	o->dev = uns_objects_device(uns_bucket_hash(bucket));
	if (asprintf(&o->url, "%s%s%s%.*s", scheme, uns_bucket_name(bucket), n ? "/" : "", (int)n, path) < 0)
		o->url = NULL;
	if (asprintf(&o->prefix, "%.*s%s", (int)n, path, n ? "/" : "") < 0)
		o->prefix = NULL;
	UNS_TRY_ALLOC(o->url && o->prefix, err);
	store.ctx = uns_bucket_ref(bucket);
	UNS_TRY(uns_blocks_new(&store, &o->blocks, err));
	*out = UNS_TAKE(o);
	return 0;
}

/* Before anything is shown, the root has to be there. */
static int check_there(struct uns_objects *o, struct uns_err *err)
{
	UNS_CLEANUP(listing_put_p) struct listing *l = NULL;

	UNS_TRY(get_listing(o, "", &l, err));
	if (l->list.n)
		return 0;
	return uns_fail(err, -ENOENT, "%s: no object's key begins with \"%s\"", o->url, o->prefix);
}

int uns_objects_open(const char *url, struct uns_objects **out, struct uns_err *err)
{
	UNS_CLEANUP(objects_put_p) struct uns_objects *o = NULL;
	UNS_CLEANUP(uns_free_p) char *name = NULL;
	const char *bucket = url + strlen(scheme), *path = bucket + strcspn(bucket, "/");
	struct uns_bucket *opened;
	size_t n;

	UNS_TRY_ALLOC(name = strndup(bucket, (size_t)(path - bucket)), err);
	path += *path == '/';
	for (n = strlen(path); n && path[n - 1] == '/'; n--)
		;
	if (n && !is_path(path))
		return uns_fail(err, -EINVAL, "%s: expected s3://BUCKET/PREFIX, without an empty name, \".\" or \"..\"",
				url);
	UNS_TRY(uns_bucket_open(name, &opened, err));
	UNS_TRY(objects_new(opened, path, n, &o, err));
	UNS_TRY(check_there(o, err));
	*out = UNS_TAKE(o);
	return 0;
}

int uns_objects_above(struct uns_objects *o, struct uns_objects **out, struct uns_err *err)
{
	const size_t n = strlen(o->prefix);
	const char *slash = n ? memrchr(o->prefix, '/', n - 1) : NULL;

	*out = NULL;
	if (!n)
		return 0;
	UNS_TRY(objects_new(uns_bucket_ref(o->bucket), o->prefix, slash ? (size_t)(slash - o->prefix) : 0, out, err));
	(*out)->levels = true;
	return 0;
}

void uns_objects_close(struct uns_objects *o)
{
	objects_put(o);
}

void uns_objects_rest(struct uns_objects *o)
{
	uns_blocks_rest(o->blocks);
	forget_listings(o);
}

const char *uns_objects_url(const struct uns_objects *o)
{
	return o->url;
}

/* -- stat and list -- */

/* ETags are texts: their hash takes the place of an inode's number. */
static void stat_file(const struct uns_objects *o, const struct uns_object *object, struct uns_stat *out)
{
	*out = (struct uns_stat){
		.kind = UNS_KIND_FILE,
		.mode = 0444,
		.uid = geteuid(),
		.gid = getegid(),
		.id = { .dev = o->dev,
			.ino = uns_hash_end(uns_hash_str(UNS_HASH_INIT, object->etag)) | 1,
			.size = object->size,
			.mtime_ns = object->mtime_ns,
			.ctime_ns = object->mtime_ns },
		.nlink = 1,
	};
}

/* One entry of a directory: keys that are longer than its name are below it. */
struct child {
	const char *name;
	size_t len;
	bool is_dir;
	const struct uns_object *object;
};

/* The entry at `*i`, and past all that is below it. */
static struct child next_child(const struct listing *l, size_t n_dir, size_t *i)
{
	const struct uns_object *first = &l->list.v[*i];
	struct child c = { .name = first->key + n_dir, .object = first };

	c.len = strcspn(c.name, "/");
	c.is_dir = c.name[c.len] == '/';
	for ((*i)++; *i < l->list.n && strncmp(l->list.v[*i].key, first->key, n_dir + c.len) == 0 &&
		     l->list.v[*i].key[n_dir + c.len] == '/' && c.is_dir;
	     (*i)++)
		;
	return c;
}

/* `dir` with a slash, "" for the root; in the listing's keys from *i on. */
static size_t enter(const struct listing *l, const char *dir, size_t *i)
{
	UNS_CLEANUP(uns_free_p) char *key = NULL;

	if (!*dir || asprintf(&key, "%s/", dir) < 0) {
		key = NULL;
		*i = 0;
		return 0;
	}
	*i = first_from(l, key);
	if (*i < l->list.n && strcmp(l->list.v[*i].key, key) == 0 && !l->list.v[*i].is_prefix)
		(*i)++; /* the directory's own object */
	return strlen(key);
}

static bool is_below(const struct listing *l, size_t i, const char *dir, size_t n_dir)
{
	return i < l->list.n &&
	       (!n_dir || (strncmp(l->list.v[i].key, dir, n_dir - 1) == 0 && l->list.v[i].key[n_dir - 1] == '/'));
}

/* Its names are its identity, and are where a mount's number would be: a store knows no times of directories. The
 * latest file in it is as old as they are. */
static void stat_dir(const struct uns_objects *o, const struct listing *l, const char *dir, struct uns_stat *out)
{
	uint64_t names = UNS_HASH_INIT;
	int64_t latest_ns = 0;
	struct child c;
	size_t i, n_dir = enter(l, dir, &i);

	while (is_below(l, i, dir, n_dir)) {
		c = next_child(l, n_dir, &i);
		names = uns_hash_u64(uns_hash_bytes(names, c.name, c.len), c.is_dir);
		if (!c.is_dir && c.object->mtime_ns > latest_ns)
			latest_ns = c.object->mtime_ns;
	}
	*out = (struct uns_stat){
		.kind = UNS_KIND_DIR,
		.mode = 0555,
		.uid = geteuid(),
		.gid = getegid(),
		.id = { .dev = o->dev,
			.ino = uns_hash_end(uns_hash_str(uns_hash_str(UNS_HASH_INIT, o->prefix), dir)) | 1,
			.mtime_ns = latest_ns,
			.ctime_ns = latest_ns,
			.mount = uns_hash_end(names) },
		.nlink = 1,
	};
}

/* The object of that key; NULL if there is none, or if there are keys below it: then it is a directory. */
static const struct uns_object *find_file(const struct listing *l, const char *rel)
{
	const size_t i = first_from(l, rel);

	return i < l->list.n && strcmp(l->list.v[i].key, rel) == 0 ? &l->list.v[i] : NULL;
}

static bool has_dir(const struct listing *l, const char *rel)
{
	UNS_CLEANUP(uns_free_p) char *key = NULL;
	size_t i;

	if (!*rel)
		return true;
	if (asprintf(&key, "%s/", rel) < 0) {
		key = NULL;
		return false;
	}
	i = first_from(l, key);
	return i < l->list.n && uns_str_starts(l->list.v[i].key, key);
}

/* What names a directory has is in a listing of its own where trees are listed by level. */
static int stat_below(struct uns_objects *o, const struct listing *l, const char *rel, struct uns_stat *out,
		      struct uns_err *err)
{
	UNS_CLEANUP(listing_put_p) struct listing *own = NULL;
	const struct uns_object *file;

	if (has_dir(l, rel)) {
		if (l->is_deep || strcmp(rel, l->dir) == 0) {
			stat_dir(o, l, rel, out);
			return 0;
		}
		UNS_TRY(get_listing(o, rel, &own, err));
		stat_dir(o, own, rel, out);
		return 0;
	}
	file = find_file(l, rel);
	if (!file)
		return -ENOENT;
	stat_file(o, file, out);
	return 0;
}

static int listing_around(struct uns_objects *o, const char *rel, struct listing **out, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) char *dir = strndup(rel, (size_t)(uns_path_name(rel) - rel));

	UNS_TRY_ALLOC(dir, err);
	if (*dir)
		dir[strlen(dir) - 1] = '\0';
	return get_listing(o, dir, out, err);
}

int uns_objects_stat(struct uns_objects *o, const char *rel, struct uns_stat *out, struct uns_err *err)
{
	UNS_CLEANUP(listing_put_p) struct listing *l = NULL;

	UNS_TRY(listing_around(o, rel, &l, err));
	return stat_below(o, l, rel, out, err);
}

int uns_objects_list(struct uns_objects *o, const char *rel, struct uns_arena *arena, struct uns_listing *out,
		     struct uns_err *err)
{
	UNS_CLEANUP(listing_put_p) struct listing *l = NULL;
	struct child c;
	size_t i, n_dir, most;

	UNS_TRY(get_listing(o, rel, &l, err));
	if (!has_dir(l, rel))
		return find_file(l, rel) ? -ENOTDIR : -ENOENT;
	n_dir = enter(l, rel, &i);
	most = l->list.n - i;
	UNS_TRY_ALLOC(out->v = UNS_NEW_N(arena, struct uns_entry, most), err);
	while (is_below(l, i, rel, n_dir)) {
		c = next_child(l, n_dir, &i);
		if (!c.is_dir && has_dir(l, c.object->key))
			continue; /* "a" beside "a/b" */
		out->v[out->n].kind = c.is_dir ? UNS_KIND_DIR : UNS_KIND_FILE;
		out->v[out->n].name = uns_arena_strn(arena, c.name, c.len);
		UNS_TRY_ALLOC(out->v[out->n++].name, err);
	}
	return 0;
}

/* -- what is open -- */

static void object_free(void *what)
{
	struct object *f = what;

	uns_blocks_close(f->bytes);
	objects_put(f->objects);
	free(f->path);
	free(f);
}

static int open_bytes(struct object *f, const char *etag, struct uns_err *err)
{
	struct uns_objects *o = f->objects;
	UNS_CLEANUP(uns_free_p) char *key = NULL;

	if (asprintf(&key, "%s%s", o->prefix, f->path) < 0) {
		key = NULL;
		return uns_oom(err);
	}
	return uns_blocks_open(o->blocks, key, etag, f->id.size, &f->bytes, err);
}

static int object_new(struct uns_objects *o, const char *path, const char *etag, const struct uns_identity *id, int *fd,
		      struct uns_err *err)
{
	struct object *f = calloc(1, sizeof(*f));
	int code;

	UNS_TRY_ALLOC(f, err);
	__atomic_add_fetch(&o->refs, 1, __ATOMIC_RELAXED);
	f->objects = o;
	f->id = *id;
	f->path = strdup(path);
	code = f->path ? 0 : uns_oom(err);
	if (code == 0 && etag)
		code = open_bytes(f, etag, err);
	if (code < 0) {
		object_free(f);
		return code;
	}
	*fd = uns_handle_new(f, object_free);
	return *fd < 0 ? uns_oom(err) : 0;
}

int uns_objects_open_dir(struct uns_objects *o, const char *rel, int *fd, struct uns_stat *out, struct uns_err *err)
{
	UNS_TRY(uns_objects_stat(o, rel, out, err));
	return out->kind == UNS_KIND_DIR ? object_new(o, rel, NULL, &out->id, fd, err) : -ENOTDIR;
}

int uns_objects_stat_in(int dir, const char *name, struct uns_stat *out)
{
	const struct object *f = uns_handle_get(dir);
	UNS_CLEANUP(uns_free_p) char *path = NULL;

	if (asprintf(&path, "%s%s%s", f->path, *f->path ? "/" : "", name) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	return uns_objects_stat(f->objects, path, out, NULL);
}

int uns_objects_open_file(struct uns_objects *o, const char *rel, int *fd, struct uns_stat *out, struct uns_err *err)
{
	UNS_CLEANUP(listing_put_p) struct listing *l = NULL;

	UNS_TRY(listing_around(o, rel, &l, err));
	UNS_TRY(stat_below(o, l, rel, out, err));
	if (out->kind != UNS_KIND_FILE)
		return -EISDIR;
	return object_new(o, rel, find_file(l, rel)->etag, &out->id, fd, err);
}

const struct uns_identity *uns_object_identity(int fd)
{
	const struct object *f = uns_handle_get(fd);

	return &f->id;
}

int uns_object_pread(int fd, void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	const struct object *f = uns_handle_get(fd);
	int code;

	if (off > f->id.size || len > f->id.size - off)
		return uns_fail(err, -ESTALE, "%s/%s: the object ends at byte %llu", f->objects->url, f->path,
				(unsigned long long)f->id.size);
	code = uns_blocks_read(f->bytes, buf, len, off, err);
	if (code == -ESTALE)
		forget_listings(f->objects);
	return code;
}

void uns_object_will_read(int fd, uint64_t at, uint64_t end)
{
	const struct object *f = uns_handle_get(fd);

	uns_blocks_will_read(f->bytes, at, end);
}
