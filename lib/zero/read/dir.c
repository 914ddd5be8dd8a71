/* Sorts the names of a tag directory by what they mean, and gives missing ranks the names that their files would have.
 */
#include "zero/read/dir.h"

#include <stdlib.h>

#include "files/beside.h"

static int entry_cmp(const void *a, const void *b)
{
	const struct uns_zero_name *x = &((const struct uns_zero_entry *)a)->name,
				   *y = &((const struct uns_zero_entry *)b)->name;

	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (x->mp != y->mp)
		return x->mp < y->mp ? -1 : 1;
	if (x->layer != y->layer)
		return x->layer < y->layer ? -1 : 1;
	if (x->expert != y->expert)
		return x->expert < y->expert ? -1 : 1;
	return x->dp < y->dp ? -1 : x->dp > y->dp;
}

static int list_mp(struct uns_arena *arena, struct uns_zero_dir *dir, struct uns_err *err)
{
	const struct uns_zero_entry *e;
	size_t i, k;

	UNS_TRY_ALLOC(dir->mp = UNS_NEW_N(arena, int32_t, dir->n), err);
	for (i = 0; i < dir->n; i++) {
		e = &dir->v[i];
		if (e->name.kind != UNS_ZERO_MODEL && e->name.kind != UNS_ZERO_OPTIM)
			continue;
		for (k = dir->n_mp; k > 0 && dir->mp[k - 1] > e->name.mp;)
			k--;
		if (k > 0 && dir->mp[k - 1] == e->name.mp)
			continue;
		/* Two ascending runs: what is put in between is rare. */
		for (size_t at = dir->n_mp++; at > k; at--)
			dir->mp[at] = dir->mp[at - 1];
		dir->mp[k] = e->name.mp;
	}
	return 0;
}

int uns_zero_dir_list(struct uns_catalog *cat, const struct uns_root *root, const char *path, const char *prefix,
		      const struct uns_listing *list, struct uns_zero_dir *out, struct uns_err *err)
{
	struct uns_zero_name name;
	struct uns_zero_entry *e;
	size_t i;

	*out = (struct uns_zero_dir){ 0 };
	UNS_TRY_ALLOC(out->v = UNS_NEW_N(&cat->arena, struct uns_zero_entry, list->n), err);
	for (i = 0; i < list->n; i++) {
		if (list->v[i].kind == UNS_KIND_DIR || !uns_zero_name_parse(list->v[i].name, &name))
			continue;
		e = &out->v[out->n++];
		e->name = name;
		UNS_TRY(uns_beside_add_shard(cat, root, path, prefix, list->v[i].name, &e->file, err));
		e->path = cat->files[e->file].path;
	}
	if (out->n)
		qsort(out->v, out->n, sizeof(*out->v), entry_cmp);
	return list_mp(&cat->arena, out, err);
}

const struct uns_zero_entry *uns_zero_dir_of(const struct uns_zero_dir *dir, enum uns_zero_kind kind, int32_t mp,
					     size_t *n)
{
	const struct uns_zero_entry *first = NULL, *e = dir->v, *end = e + dir->n;

	for (*n = 0; e < end; e++) {
		if (e->name.kind != kind || (mp >= 0 && e->name.mp != mp))
			continue;
		if (!first)
			first = e;
		++*n;
	}
	return first;
}

int uns_zero_dir_ranks(struct uns_catalog *cat, const struct uns_root *root, const struct uns_zero_entry *e, size_t n,
		       uint32_t *out, size_t n_ranks, struct uns_err *err)
{
	const char *path;
	size_t r, i = 0;

	for (r = 0; r < n_ranks; r++) {
		while (i < n && (size_t)e[i].name.dp < r)
			i++;
		UNS_TRY_ALLOC(path = i < n && (size_t)e[i].name.dp == r
					     ? e[i].path
					     : uns_zero_name_of_rank(&cat->arena, e[0].path, (int32_t)r),
			      err);
		UNS_TRY(uns_catalog_add_file(cat, root, path, &out[r], err));
	}
	return 0;
}
