#include "seal/make.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/path.h"

enum { MAX_DEPTH = 4 }; /* of sub-directories: as deep as a checkpoint's generation looks */

/* -- which files -- */

struct listing {
	const struct uns_root *root;
	const char *hidden;
	struct uns_arena *arena;
	struct uns_seal_names *out;
	size_t cap;
};

static int by_name(const void *a, const void *b)
{
	const struct uns_seal_name *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int add_name(struct listing *l, const char *name, const char *path, const struct uns_stat *stat,
		    struct uns_err *err)
{
	if (!UNS_ARENA_ROOM(l->arena, l->out->v, l->out->n, l->cap))
		return uns_oom(err);
	l->out->v[l->out->n++] = (struct uns_seal_name){ name, path, *stat };
	l->out->size_bytes += stat->id.size;
	return 0;
}

static int list_directory(struct listing *l, const char *path, const char *name, unsigned depth, struct uns_err *err);

static int list_entry(struct listing *l, const char *path, const char *name, const struct uns_entry *entry,
		      unsigned depth, struct uns_err *err)
{
	const char *child = uns_path_join(l->arena, path, entry->name);
	const char *inside = uns_path_join(l->arena, name, entry->name);
	struct uns_err why = { 0 };
	struct uns_stat stat;
	int code;

	UNS_TRY_ALLOC(child && inside, err);
	if (l->hidden && strcmp(child, l->hidden) == 0)
		return 0;
	if (entry->kind == UNS_KIND_DIR)
		return depth < MAX_DEPTH ? list_directory(l, child, inside, depth + 1, err) : 0;
	code = uns_root_stat(l->root, child, true, &stat, &why);
	if (code == -ENOENT || code == -ELOOP || code == -EXDEV)
		return 0; /* it went meanwhile, or is a link that is not followed */
	if (code < 0)
		return uns_fail_as(err, &why);
	return stat.kind == UNS_KIND_FILE ? add_name(l, inside, child, &stat, err) : 0;
}

static int list_directory(struct listing *l, const char *path, const char *name, unsigned depth, struct uns_err *err)
{
	struct uns_listing list;
	size_t i;

	UNS_TRY(uns_root_list(l->root, path, l->arena, &list, err));
	for (i = 0; i < list.n; i++)
		UNS_TRY(list_entry(l, path, name, &list.v[i], depth, err));
	return 0;
}

int uns_seal_list(const struct uns_root *root, const char *path, const char *hidden, struct uns_arena *arena,
		  struct uns_seal_names *out, struct uns_err *err)
{
	struct listing l = { root, hidden, arena, out, 0 };
	struct uns_stat stat;

	*out = (struct uns_seal_names){ 0 };
	UNS_TRY(uns_root_stat(root, path, true, &stat, err));
	if (stat.kind == UNS_KIND_FILE)
		return add_name(&l, uns_path_name(path), path, &stat, err);
	UNS_TRY(list_directory(&l, path, "", 0, err));
	if (out->n)
		qsort(out->v, out->n, sizeof(*out->v), by_name);
	return 0;
}

/* -- what the catalog has in each -- */

static const char *elements_text(const struct uns_piece *p, struct uns_arena *arena)
{
	char text[UNS_MAX_DIMS * 44];
	size_t at = 0;
	uint32_t i;

	if (p->kind == UNS_PIECE_RANGE)
		return uns_arena_printf(arena, "%" PRIu64 "+%" PRIu64, p->range.first, p->range.count);
	for (i = 0; i < p->box->n; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%" PRIu64 ":%" PRIu64, i ? "," : "",
				       p->box->lo[i], p->box->len[i]);
	return uns_arena_strn(arena, at ? text : ".", at ? at : 1);
}

/* For each of the catalog's files the file of the seal; NULL = it is none of the checkpoint's own. */
static struct uns_seal_file **own_files(const struct uns_root *root, const struct uns_catalog *cat,
					const struct uns_seal_names *names, struct uns_seal *seal)
{
	struct uns_seal_file **of = calloc(cat->n_files + 1, sizeof(*of));
	struct uns_map by_path = { 0 };
	uint32_t at;
	size_t i;
	bool whole = of != NULL;

	for (i = 0; i < names->n && whole; i++)
		whole = uns_map_put_index(&by_path, names->v[i].path, (uint32_t)i);
	for (i = 0; i < cat->n_files && whole; i++) {
		at = cat->files[i].root == root ? uns_map_index(&by_path, cat->files[i].path) : UNS_MAP_NO_INDEX;
		of[i] = at == UNS_MAP_NO_INDEX ? NULL : &seal->file[at];
	}
	uns_map_fini(&by_path);
	if (!whole)
		free(of);
	return whole ? of : NULL;
}

static int by_offset(const void *a, const void *b)
{
	const struct uns_seal_piece *x = a, *y = b;

	if (x->offset_bytes != y->offset_bytes)
		return x->offset_bytes < y->offset_bytes ? -1 : 1;
	if (x->length_bytes != y->length_bytes)
		return x->length_bytes < y->length_bytes ? -1 : 1;
	return strcmp(x->tensor, y->tensor);
}

static void count_piece(struct uns_seal_file *f, enum uns_role role)
{
	/* Weights may be made of the optimizer's fp32 copies. */
	const enum uns_scope of = uns_role_is_model(role)                                  ? UNS_SCOPE_WEIGHTS
				  : uns_role_is_optimizer(role) && role != UNS_ROLE_MASTER ? UNS_SCOPE_OPTIMIZER
											   : UNS_SCOPE_ALL;

	f->scope = f->n_pieces && f->scope != of ? UNS_SCOPE_ALL : of;
	f->n_pieces++;
}

/* What was checked when it was saved, so that it is in the seal as a file at least. */
static bool can_be_listed(const struct uns_tensor *t, const struct uns_piece *p, const struct uns_seal_file *f)
{
	return f && *t->key && p->length_bytes <= f->size_bytes && p->offset_bytes <= f->size_bytes - p->length_bytes;
}

typedef void each_piece(void *ctx, struct uns_seal_file *f, const struct uns_tensor *t, const struct uns_piece *p);

static void visit_pieces(const struct uns_catalog *cat, struct uns_seal_file *const *of, each_piece *visit, void *ctx)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	const struct uns_piece *p;
	uint32_t i;

	for (; t < end; t++)
		for (i = 0; i < t->n_pieces; i++) {
			p = &cat->pieces[t->first_piece + i];
			if (can_be_listed(t, p, of[p->file]))
				visit(ctx, of[p->file], t, p);
		}
}

static void visit_count(void *ctx, struct uns_seal_file *f, const struct uns_tensor *t, const struct uns_piece *p)
{
	(void)ctx;
	(void)p;
	count_piece(f, t->role);
}

static void visit_add(void *ctx, struct uns_seal_file *f, const struct uns_tensor *t, const struct uns_piece *p)
{
	f->piece[f->n_pieces++] = (struct uns_seal_piece){ .tensor = t->key,
							   .elements = elements_text(p, ctx),
							   .rank = p->rank,
							   .offset_bytes = p->offset_bytes,
							   .length_bytes = p->length_bytes };
}

static int find_pieces(const struct uns_root *root, const struct uns_catalog *cat, const struct uns_seal_names *names,
		       struct uns_arena *arena, struct uns_seal *seal, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct uns_seal_file **of = own_files(root, cat, names, seal);
	struct uns_seal_file *f, *end = seal->file + seal->n_files;

	UNS_TRY_ALLOC(of, err);
	visit_pieces(cat, of, visit_count, NULL);
	for (f = seal->file; f < end; f++) {
		UNS_TRY_ALLOC(f->piece = UNS_NEW_N(arena, struct uns_seal_piece, f->n_pieces), err);
		f->n_pieces = 0;
	}
	visit_pieces(cat, of, visit_add, arena);
	for (f = seal->file; f < end; f++)
		if (f->n_pieces)
			qsort(f->piece, f->n_pieces, sizeof(*f->piece), by_offset);
	return uns_arena_check(arena, err);
}

/* -- reading -- */

struct making {
	const struct uns_root *root;
	const struct uns_seal_names *names;
	const struct uns_seal_watch *watch;
	struct uns_seal *seal;
};

static int changed(const struct uns_seal_name *n, struct uns_err *err)
{
	return uns_fail(err, -ESTALE,
			"%s changed while its checkpoint was being sealed: seal it when nothing writes it", n->path);
}

static int make_file(void *ctx, size_t i, struct uns_err *err)
{
	struct making *m = ctx;
	const struct uns_seal_name *n = &m->names->v[i];
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_identity now;
	struct uns_stat stat;

	UNS_TRY(uns_root_open_file(m->root, n->path, &fd, &stat, err));
	if (!uns_identity_equal(&stat.id, &n->stat.id))
		return changed(n, err);
	uns_fd_forget_pages(fd, &stat.id);
	UNS_TRY(uns_seal_read(fd, n->path, &m->seal->file[i], m->watch, err));
	UNS_TRY(uns_fd_identity(fd, true, &now, NULL, err));
	return uns_identity_equal(&now, &n->stat.id) ? 0 : changed(n, err);
}

static bool same_files(const struct uns_seal_names *a, const struct uns_seal_names *b)
{
	size_t i;

	for (i = 0; i < a->n && i < b->n; i++)
		if (strcmp(a->v[i].name, b->v[i].name) != 0 || !uns_identity_equal(&a->v[i].stat.id, &b->v[i].stat.id))
			return false;
	return a->n == b->n;
}

int uns_seal_make(const struct uns_root *root, const struct uns_catalog *cat, const char *hidden,
		  const struct uns_seal_names *names, struct uns_pool *pool, const struct uns_seal_watch *watch,
		  struct uns_arena *arena, struct uns_seal *out, struct uns_err *err)
{
	struct making m = { root, names, watch, out };
	struct uns_seal_names again;
	size_t i;

	if (!names->n)
		return uns_fail(err, -ENODATA, "%s: it has no file to be sealed", cat->path);
	*out = (struct uns_seal){ .checkpoint = uns_arena_str(arena, uns_root_name(root, cat->path)),
				  .made_s = uns_wall_ns() / 1000000000,
				  .file = UNS_NEW_N(arena, struct uns_seal_file, names->n),
				  .n_files = names->n };
	UNS_TRY(uns_arena_check(arena, err));
	for (i = 0; i < names->n; i++)
		out->file[i] = (struct uns_seal_file){ .name = names->v[i].name,
						       .size_bytes = names->v[i].stat.id.size,
						       .mtime_ns = names->v[i].stat.id.mtime_ns,
						       .scope = UNS_SCOPE_ALL };
	UNS_TRY(find_pieces(root, cat, names, arena, out, err));
	if (pool)
		UNS_TRY(uns_pool_each(pool, names->n, make_file, &m, err));
	for (i = 0; i < names->n && !pool; i++)
		UNS_TRY(make_file(&m, i, err));
	UNS_TRY(uns_seal_list(root, cat->path, hidden, arena, &again, err));
	if (!same_files(names, &again))
		return uns_fail(err, -ESTALE, "%s changed while it was being sealed: seal it when nothing writes it",
				cat->path);
	return 0;
}
