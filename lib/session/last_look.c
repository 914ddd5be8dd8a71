/* Kept as a memo under the checkpoint's absolute path, whatever its files are:
 *
 *     "1\n", then for each file of the catalog's below the checkpoint: struct packed, and its name from there on with
 * NUL
 */
#include "session/last_look.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/path.h"
#include "base/text.h"

#define KIND    "files"
#define VERSION "1\n"

struct packed {
	uint64_t ino, mount, size;
	int64_t mtime_ns, born_ns;
};

struct named {
	struct packed is;
	const char *name;
	uint32_t index; /* in the list; of a file now, in the catalog */
};

struct names {
	struct named *v;
	size_t n;
};

/* -- the files now -- */

/* The name below the checkpoint; NULL = it is no file there whose inode lasts. */
static const char *own_name(const struct uns_catalog *cat, const struct uns_root *root, const struct uns_file *f)
{
	const size_t len = strlen(cat->path);

	if (f->root != root || f->missing || f->stat.kind != UNS_KIND_FILE || !f->stat.id.ino)
		return NULL;
	if (!len)
		return f->path;
	return strncmp(f->path, cat->path, len) == 0 && f->path[len] == '/' ? f->path + len + 1 : NULL;
}

static struct packed packed_of(const struct uns_stat *st)
{
	return (struct packed){ .ino = st->id.ino,
				.mount = st->id.mount,
				.size = st->id.size,
				.mtime_ns = st->id.mtime_ns,
				.born_ns = st->born_ns };
}

static int list_now(const struct uns_catalog *cat, const struct uns_root *root, struct uns_arena *arena,
		    struct names *out, struct uns_text *bytes, struct uns_err *err)
{
	const char *name;
	struct named *f;
	uint32_t i;

	*out = (struct names){ UNS_NEW_N(arena, struct named, cat->n_files + 1), 0 };
	UNS_TRY_ALLOC(out->v, err);
	uns_text_str(bytes, VERSION);
	for (i = 0; i < cat->n_files; i++) {
		if (!(name = own_name(cat, root, &cat->files[i])))
			continue;
		f = &out->v[out->n++];
		*f = (struct named){ packed_of(&cat->files[i].stat), name, i };
		uns_text_add(bytes, &f->is, sizeof(f->is));
		uns_text_add(bytes, name, strlen(name) + 1);
	}
	return bytes->failed ? uns_oom(err) : 0;
}

/* -- the files then -- */

/* Of anything that is not such a list, nothing is remembered. */
static int list_then(struct uns_span bytes, struct uns_arena *arena, struct names *out, struct uns_err *err)
{
	const uint8_t *p, *end;
	size_t cap = 0;

	*out = (struct names){ 0 };
	if (!uns_span_take(&bytes, strlen(VERSION), &p) || memcmp(p, VERSION, strlen(VERSION)) != 0)
		return 0;
	while (uns_span_take(&bytes, sizeof(struct packed), &p)) {
		if (!UNS_ARENA_ROOM(arena, out->v, out->n, cap))
			return uns_oom(err);
		memcpy(&out->v[out->n].is, p, sizeof(struct packed));
		end = memchr(bytes.p, '\0', uns_span_left(&bytes));
		if (!end)
			return 0;
		out->v[out->n++].name = (const char *)bytes.p;
		bytes.p = end + 1;
	}
	return 0;
}

/* -- which changed places -- */

static int by_inode(const void *a, const void *b)
{
	const struct named *x = a, *y = b;

	return (x->is.ino > y->is.ino) - (x->is.ino < y->is.ino);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static bool same_file(const struct packed *a, const struct packed *b)
{
	return a->ino == b->ino && a->mount == b->mount && a->size == b->size && a->mtime_ns == b->mtime_ns &&
	       (!a->born_ns || !b->born_ns || a->born_ns == b->born_ns);
}

/* A number of an inode is used again. Files that differ in more than that are not taken for those that took their
 * numbers. */
static bool differ_in_more(const struct packed *a, const struct packed *b)
{
	return a->size != b->size || a->mtime_ns != b->mtime_ns ||
	       (a->born_ns && b->born_ns && a->born_ns != b->born_ns);
}

/* The list in that order, with each one's place in the list as it was. */
static struct named *ordered(const struct names *list, int (*by)(const void *, const void *), struct uns_arena *arena)
{
	struct named *v = UNS_NEW_N(arena, struct named, list->n + 1);
	size_t i;

	for (i = 0; v && i < list->n; i++) {
		v[i] = list->v[i];
		v[i].index = (uint32_t)i;
	}
	if (v && list->n)
		qsort(v, list->n, sizeof(*v), by);
	return v;
}

static const struct named *find_name(const struct named *v, size_t n, const char *name)
{
	const struct named key = { .name = name };

	return n ? bsearch(&key, v, n, sizeof(*v), by_name) : NULL;
}

enum { NONE = UINT32_MAX };

/* For each file now: which file has now the name that this one had then. NONE: it had the same, or was not there. */
static uint32_t *find_moves(const struct names *now, const struct names *then, struct uns_arena *arena)
{
	const struct named *inodes = ordered(then, by_inode, arena), *names = ordered(now, by_name, arena);
	const struct named *was_names = ordered(then, by_name, arena), *was, *at, *own;
	uint32_t *to = UNS_NEW_N(arena, uint32_t, now->n + 1);
	size_t i;

	if (!inodes || !names || !was_names || !to)
		return NULL;
	for (i = 0; i < now->n; i++) {
		to[i] = NONE;
		was = then->n ? bsearch(&now->v[i], inodes, then->n, sizeof(*inodes), by_inode) : NULL;
		own = find_name(was_names, then->n, now->v[i].name);
		if (!was || !own || !same_file(&now->v[i].is, &was->is) || strcmp(was->name, now->v[i].name) == 0 ||
		    !differ_in_more(&own->is, &was->is))
			continue;
		at = find_name(names, now->n, was->name);
		if (at)
			to[i] = at->index;
	}
	return to;
}

/* The names went round: a file that was only renamed leaves its name free, or to a new file. */
static bool went_round(const uint32_t *to, size_t n, uint32_t i)
{
	uint32_t at = to[i];
	size_t steps;

	for (steps = 0; at != NONE && at != i && steps < n; steps++)
		at = to[at];
	return at == i;
}

/* -- reporting -- */

/* Which views need the file: as those of a seal's files (seal/make.c). */
static enum uns_scope scope_of(const struct uns_catalog *cat, uint32_t file, int64_t *rank)
{
	enum uns_scope scope = UNS_SCOPE_ALL, of;
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	size_t n = 0;
	uint32_t i;

	*rank = -1;
	for (; t < end; t++)
		for (i = t->first_piece; i < t->first_piece + t->n_pieces; i++) {
			if (cat->pieces[i].file != file)
				continue;
			of = uns_role_is_model(t->role)                                     ? UNS_SCOPE_WEIGHTS
			     : uns_role_is_optimizer(t->role) && t->role != UNS_ROLE_MASTER ? UNS_SCOPE_OPTIMIZER
											    : UNS_SCOPE_ALL;
			scope = n++ && scope != of ? UNS_SCOPE_ALL : of;
			*rank = cat->pieces[i].rank;
		}
	return scope;
}

static int report(struct uns_catalog *cat, const struct named *is, const struct named *was, struct uns_err *err)
{
	int64_t rank, other_rank;
	const enum uns_scope scope = scope_of(cat, is->index, &rank);

	scope_of(cat, was->index, &other_rank);
	return uns_catalog_add_finding(cat,
				       UNS_FINDING(.id = UNS_FOUND_FILES_CHANGED_PLACES, .scope = scope,
						   .file = cat->files[is->index].path, .rank = uns_rank(rank),
						   .arg = { { "other_file", uns_str(cat->files[was->index].path) },
							    { "other_rank", uns_rank(other_rank) } }),
				       err);
}

static int compare(struct uns_catalog *cat, const struct names *now, const struct names *then, struct uns_arena *arena,
		   size_t *n, struct uns_err *err)
{
	uint32_t *to = find_moves(now, then, arena), i;

	*n = 0;
	UNS_TRY_ALLOC(to, err);
	for (i = 0; i < now->n; i++) {
		if (to[i] == NONE || !went_round(to, now->n, i))
			continue;
		(*n)++;
		UNS_TRY(report(cat, &now->v[i], &now->v[to[i]], err));
	}
	return 0;
}

/* -- the store -- */

int last_look_compare(struct store_link *store, const struct uns_root *root, bool is_sealed, struct uns_catalog *cat,
		      struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text bytes = UNS_TEXT_INIT;
	const char *subject = store_subject(store, cat->path, &arena);
	struct uns_span kept = { 0 };
	struct names now, then;
	struct uns_store *held;
	size_t n = 0;
	uint64_t key;
	int code;

	UNS_TRY_ALLOC(subject, err);
	UNS_TRY(list_now(cat, root, &arena, &now, &bytes, err));
	held = now.n ? store_hold(store, NULL) : NULL;
	if (!held)
		return 0;
	key = uns_hash_end(uns_hash_str(UNS_HASH_INIT, subject));
	code = uns_store_memo_get(held, KIND, key, &arena, &kept, NULL);
	store_release(store);
	if (code == 0 && uns_span_left(&kept) == bytes.len && memcmp(kept.p, bytes.p, bytes.len) == 0)
		return 0;
	if (code == 0 && !is_sealed) {
		UNS_TRY(list_then(kept, &arena, &then, err));
		UNS_TRY(compare(cat, &now, &then, &arena, &n, err));
	}
	held = n ? NULL : store_hold(store, NULL);
	if (!held)
		return 0;
	uns_store_memo_put(held, KIND, key, bytes.p, bytes.len, NULL);
	store_release(store);
	return 0;
}
