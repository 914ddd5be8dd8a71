/* What the ranks hold of one tensor gets one dtype. A file is rewritten only where each tensor names its dtype for
 * itself: a storage or a description that two tensors share, of which one would change, is left alone, which the
 * report has. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/search.h"
#include "engine/cast.h"
#include "repair/leaves.h"
#include "wire/pickle_rename.h"

enum { MAX_LEAF_NODES = 4096, BLOCK_ELEMS = 32 << 10 };

/* What has to change in one rank's file. */
struct rewrite {
	struct repair_set *set;
	struct repair_rank *f;
	enum uns_dtype *site;      /* what each site of the pickle is to name; NONE = not determined */
	size_t *by_value;          /* sites sorted by their value's address */
	enum uns_dtype *from, *to; /* of storages; NONE = not determined */
	size_t n_storages;
	const struct repair_leaf *first_changed;
	size_t n_changed;                /* leaves */
	uint64_t n_rounded, n_converted; /* elements */
};

/* -- names -- */

static enum uns_dtype dtype_of_name(const char *cls, bool *storage)
{
	enum uns_dtype t = UNS_DTYPE_NONE;

	*storage = false;
	if (!uns_str_starts(cls, "torch."))
		return t;
	t = uns_dtype_of_torch(cls);
	if (t == UNS_DTYPE_NONE) {
		t = uns_dtype_of_storage(cls);
		*storage = t != UNS_DTYPE_NONE;
	}
	return t;
}

static int by_address(const void *a, const void *b, void *trace)
{
	const struct uns_pickle_site *v = ((const struct uns_pickle_trace *)trace)->v;
	uintptr_t x = (uintptr_t)v[*(const size_t *)a].value;
	uintptr_t y = (uintptr_t)v[*(const size_t *)b].value;

	return (x > y) - (x < y);
}

/* This name of a floating type belongs to a tensor that is to be of its target's. */
static int require_name(struct rewrite *w, const struct repair_leaf *leaf, const struct uns_value *v)
{
	const struct uns_pickle_trace *trace = &w->f->trace;
	enum uns_dtype target = leaf->votes->target, t, *site;
	bool storage;
	size_t i;

	t = dtype_of_name(v->cls, &storage);
	UNS_SEARCH(i, trace->n, (uintptr_t)trace->v[w->by_value[i]].value < (uintptr_t)v);
	if (t == UNS_DTYPE_NONE || !uns_dtype_info(t)->is_float || i == trace->n || trace->v[w->by_value[i]].value != v)
		return 0; /* no floating type, or no site of the pickle pushed it */
	site = &w->site[w->by_value[i]];
	if (t != target && leaf->dtype == target && leaf->declared == target)
		return 0; /* an attribute that speaks of something else */
	if (*site != UNS_DTYPE_NONE && *site != target)
		return repair_set_refuse(w->set, "%s: %s shares its description with a tensor of another dtype",
					 w->f->path, leaf->votes->name);
	if (t != target && (!uns_dtype_info(target)->storage || !uns_dtype_info(t)->storage))
		return repair_set_refuse(w->set,
					 "%s: %s would have to become %s, a dtype that has no storage class of its own",
					 w->f->path, leaf->votes->name, uns_dtype_info(target)->torch);
	*site = target;
	return 0;
}

static int require_names(struct rewrite *w, const struct repair_leaf *leaf, const struct uns_value *v)
{
	size_t i, n = 0;

	if (!v)
		return 0;
	if (v->kind == UNS_VALUE_GLOBAL)
		return require_name(w, leaf, v);
	if (v->kind == UNS_VALUE_LIST || v->kind == UNS_VALUE_TUPLE)
		n = v->n;
	for (i = 0; i < n; i++)
		UNS_TRY(require_names(w, leaf, v->item[i]));
	for (i = 0; v->kind == UNS_VALUE_DICT && i < v->n; i++)
		UNS_TRY(require_names(w, leaf, v->pair[i].value));
	if (v->kind == UNS_VALUE_OBJECT)
		UNS_TRY(require_names(w, leaf, v->object.args));
	return require_names(w, leaf, v->state);
}

/* -- storages -- */

static int require_storage(struct rewrite *w, const struct repair_leaf *leaf, const struct uns_value *local)
{
	enum uns_dtype target = leaf->votes->target;
	struct uns_torch_tensor t;
	unsigned long long key;

	if (uns_torch_tensor(&w->f->torch, local, &t, NULL) < 0)
		return 0;
	if (!uns_str_number(t.key, "", "", &key) || key >= w->n_storages)
		return repair_set_refuse(w->set, "%s: its storages are not numbered as torch.save numbers them",
					 w->f->path);
	if (w->to[key] != UNS_DTYPE_NONE && (w->to[key] != target || w->from[key] != t.dtype))
		return repair_set_refuse(w->set, "%s: %s shares its storage with a tensor of another dtype", w->f->path,
					 leaf->votes->name);
	w->from[key] = t.dtype;
	w->to[key] = target;
	return 0;
}

/* -- what has to change -- */

static int require_leaf(struct rewrite *w, const struct repair_leaf *leaf)
{
	enum uns_dtype target = leaf->votes->target;
	size_t i;

	if (!uns_cast_exists(leaf->dtype, target))
		return repair_set_refuse(w->set, "%s: %s is %s, which cannot become %s", w->f->path, leaf->votes->name,
					 uns_dtype_info(leaf->dtype)->torch, uns_dtype_info(target)->torch);
	if (leaf->dtype != target) {
		w->n_converted += leaf->n_elems;
		if (!w->n_changed++)
			w->first_changed = leaf;
	}
	for (i = 0; i < leaf->n_local; i++)
		UNS_TRY(require_storage(w, leaf, leaf->local[i]));
	if (!uns_dtype_info(target)->is_float)
		return 0;
	if (!uns_value_fits(leaf->value, MAX_LEAF_NODES, REPAIR_MAX_DEPTH))
		return repair_set_refuse(w->set, "%s: the description of %s is too long", w->f->path,
					 leaf->votes->name);
	return require_names(w, leaf, leaf->value);
}

static enum uns_dtype *new_dtypes(struct uns_arena *arena, size_t n)
{
	enum uns_dtype *v = UNS_NEW_N(arena, enum uns_dtype, n);
	size_t i;

	for (i = 0; v && i < n; i++)
		v[i] = UNS_DTYPE_NONE;
	return v;
}

static int rewrite_find(struct rewrite *w)
{
	struct uns_arena *arena = &w->set->arena;
	const struct uns_zip *zip = &w->f->torch.zip;
	size_t i, n = w->f->trace.n, prefix = strlen(zip->prefix);

	for (i = 0; i < zip->n; i++)
		w->n_storages += uns_str_starts(zip->v[i].name + prefix, "data/");
	w->site = new_dtypes(arena, n);
	w->from = new_dtypes(arena, w->n_storages);
	w->to = new_dtypes(arena, w->n_storages);
	w->by_value = UNS_NEW_N(arena, size_t, n);
	if (!w->site || !w->by_value || !w->from || !w->to)
		return -ENOMEM;
	for (i = 0; i < n; i++)
		w->by_value[i] = i;
	if (n)
		qsort_r(w->by_value, n, sizeof(*w->by_value), by_address, &w->f->trace);
	for (i = 0; i < w->f->n_leaves; i++)
		UNS_TRY(require_leaf(w, &w->f->leaf[i]));
	return 0;
}

/* -- the new file -- */

/* New names of the sites, in `to`; how many there are, or -ENOMEM. */
static int name_sites(const struct rewrite *w, const char **to)
{
	const struct uns_pickle_trace *trace = &w->f->trace;
	enum uns_dtype is, want;
	bool storage;
	size_t i;
	int n = 0;

	for (i = 0; i < trace->n; i++) {
		want = w->site[i];
		is = dtype_of_name(trace->v[i].value->cls, &storage);
		if (want == UNS_DTYPE_NONE || is == want)
			continue;
		to[i] = uns_arena_printf(&w->set->arena, "torch.%s",
					 storage ? uns_dtype_info(want)->storage : uns_dtype_info(want)->torch);
		if (!to[i])
			return -ENOMEM;
		n++;
	}
	return n;
}

static int find_storage(const struct rewrite *w, size_t i, struct repair_storage *out, struct uns_err *err)
{
	const struct uns_zip_record *rec;
	char name[40];

	snprintf(name, sizeof(name), "data/%zu", i);
	rec = uns_zip_find(&w->f->torch.zip, name);
	if (!rec)
		return uns_fail(err, -ENOTSUP, "the record %s is missing", name);
	*out = (struct repair_storage){ .len_bytes = rec->size_bytes, .from = UNS_U8, .to = UNS_U8 };
	if (w->to[i] != UNS_DTYPE_NONE && w->from[i] != w->to[i]) {
		out->from = w->from[i];
		out->to = w->to[i];
	}
	return uns_zip_data(&w->f->reader, rec, &out->at_bytes, err);
}

static uint64_t count_unlike(enum uns_dtype t, const uint8_t *a, const uint8_t *b, size_t n)
{
	size_t size = uns_dtype_size(t), i;
	uint64_t unlike = 0;
	double x, y;

	for (i = 0; i < n; i++) {
		if (memcmp(a + i * size, b + i * size, size) == 0)
			continue;
		uns_cast(t, a + i * size, UNS_F64, &x, 1);
		uns_cast(t, b + i * size, UNS_F64, &y, 1);
		unlike += !(x != x && y != y);
	}
	return unlike;
}

/* There and back again: values that are other ones afterwards. */
static int count_rounded(struct rewrite *w, const struct repair_storage *s, struct uns_err *err)
{
	size_t from = uns_dtype_size(s->from), n;
	uint64_t elems = s->len_bytes / from, at;
	UNS_CLEANUP(uns_free_p) uint8_t *buf = NULL;
	uint8_t *there, *back;

	if (s->from == s->to)
		return 0;
	UNS_TRY_ALLOC(buf = malloc((size_t)BLOCK_ELEMS * 8 * 3), err);
	there = buf + (size_t)BLOCK_ELEMS * 8;
	back = there + (size_t)BLOCK_ELEMS * 8;
	for (at = 0; at < elems; at += n) {
		n = (size_t)uns_u64_min(BLOCK_ELEMS, elems - at);
		UNS_TRY(uns_reader_pread(&w->f->reader, buf, n * from, s->at_bytes + at * from, err));
		uns_cast(s->from, buf, s->to, there, n);
		uns_cast(s->to, there, s->from, back, n);
		w->n_rounded += count_unlike(s->from, buf, back, n);
	}
	return 0;
}

static const char *stem_of(struct uns_arena *arena, const struct uns_zip *zip)
{
	size_t n = strlen(zip->prefix);

	return n ? uns_arena_strn(arena, zip->prefix, n - 1) : uns_arena_str(arena, "archive");
}

static int plan_torch(struct rewrite *w, const char *const *to, struct repair_torch **out, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text pickle = UNS_TEXT_INIT;
	struct uns_arena *arena = &w->set->r->arena;
	struct repair_torch *t = UNS_NEW(arena, struct repair_torch);
	char *bytes;
	size_t i;

	UNS_TRY_ALLOC(t, err);
	t->path = w->f->path;
	t->stem = stem_of(arena, &w->f->torch.zip);
	t->n = w->n_storages;
	t->storage = UNS_NEW_N(arena, struct repair_storage, t->n);
	UNS_TRY_ALLOC(t->stem && t->storage, err);
	for (i = 0; i < t->n; i++) {
		UNS_TRY(find_storage(w, i, &t->storage[i], err));
		UNS_TRY(count_rounded(w, &t->storage[i], err));
	}
	UNS_TRY(uns_pickle_rename(w->f->pickle, &w->f->trace, to, &pickle, err));
	UNS_TRY_ALLOC(bytes = uns_arena_strn(arena, pickle.p, pickle.len), err);
	t->pickle = uns_span_of(bytes, pickle.len);
	*out = t;
	return 0;
}

static int add_change(const struct rewrite *w)
{
	char rounded[96] = "no value changed", more[64] = "";
	const struct repair_leaf *leaf = w->first_changed;

	if (!leaf)
		return repair_change(w->set->r, w->f->path, UNSHARD_CHANGE_DTYPE,
				     "the description of its tensors names the dtype that their data have");
	if (w->n_rounded)
		snprintf(rounded, sizeof(rounded), "%" PRIu64 " of %" PRIu64 " values were rounded", w->n_rounded,
			 w->n_converted);
	if (w->n_changed > 1)
		snprintf(more, sizeof(more), " and %zu more", w->n_changed - 1);
	return repair_change(w->set->r, w->f->path, UNSHARD_CHANGE_DTYPE,
			     "%s%s from %s to %s, the dtype of most elements: %s", leaf->votes->name, more,
			     uns_dtype_info(leaf->dtype)->torch, uns_dtype_info(leaf->votes->target)->torch, rounded);
}

/* *changed = there was something to do. */
static int rewrite_plan(struct rewrite *w, bool *changed, struct uns_err *err)
{
	const char **to = UNS_NEW_N(&w->set->arena, const char *, w->f->trace.n);
	struct repair_file plan = { .path = w->f->path };
	struct repair_torch *torch = NULL;
	struct uns_err why = { 0 };
	int code = to ? name_sites(w, to) : -ENOMEM;

	if (code == 0)
		return 0;
	if (code > 0)
		code = plan_torch(w, to, &torch, &why);
	if (code < 0 && code != -ENOMEM)
		return repair_set_refuse(w->set, "%s: %s", w->f->path, why.text);
	plan.torch = torch;
	*changed = true;
	if (code < 0 || repair_plan_file(w->set->r, &plan) < 0 || add_change(w) < 0)
		return uns_oom(err);
	return 0;
}

/* -- a set of files -- */

static int plan_set(struct repair_set *set, bool *changed, struct uns_err *err)
{
	struct rewrite *w = UNS_NEW_N(&set->arena, struct rewrite, set->n);
	size_t i;

	UNS_TRY_ALLOC(w, err);
	for (i = 0; i < set->n && !set->refused; i++) {
		w[i] = (struct rewrite){ .set = set, .f = &set->rank[i] };
		if (rewrite_find(&w[i]) < 0)
			return uns_oom(err);
	}
	for (i = 0; i < set->n && !set->refused; i++)
		UNS_TRY(rewrite_plan(&w[i], changed, err));
	return 0;
}

/* "model_world_size_2_rank_*.pt": the name without its first rank number; false = a file of no rank. */
static bool set_of(const char *path, char *out, size_t size)
{
	const char *rank = strstr(uns_path_name(path), "rank");
	size_t skip;

	if (!rank)
		return false;
	rank += strlen("rank");
	rank += *rank == '_';
	skip = strspn(rank, "0123456789");
	if (!skip)
		return false;
	return (size_t)snprintf(out, size, "%.*s*%s", (int)(rank - path), path, rank + skip) < size;
}

/* The files of the first one's set, which are then done. */
static int set_collect(struct repair_set *set, const char **path, size_t n)
{
	char mine[4096], other[4096];
	size_t i;

	set->rank = UNS_NEW_N(&set->arena, struct repair_rank, n);
	if (!set->rank)
		return -ENOMEM;
	if (!set_of(path[0], mine, sizeof(mine)))
		return 0;
	for (i = 0; i < n; i++) {
		if (!path[i] || !set_of(path[i], other, sizeof(other)) || strcmp(mine, other) != 0)
			continue;
		set->rank[set->n++] = (struct repair_rank){ .path = path[i], .fd = -1 };
		path[i] = NULL;
	}
	return 0;
}

static int repair_one_set(struct repair *r, struct repair_checkpoint *checkpoint, const char **path, size_t n,
			  struct uns_err *err)
{
	UNS_CLEANUP(repair_set_fini) struct repair_set set = { .r = r, .checkpoint = checkpoint->path };
	struct uns_err why = { 0 };
	int code = set_collect(&set, path, n);

	if (code == 0)
		code = repair_set_read(&set, &why);
	if (code == -ENOMEM)
		return uns_oom(err);
	if (code < 0)
		return 0; /* a rank's file that cannot be read: check has found that already */
	return plan_set(&set, &checkpoint->changed, err);
}

int repair_dtypes(struct repair *r, struct repair_checkpoint *checkpoint, const struct uns_catalog *cat,
		  struct uns_err *err)
{
	const char **path = UNS_NEW_N(&r->arena, const char *, cat->n_companions);
	const struct uns_file *file;
	size_t i, n = 0;

	UNS_TRY_ALLOC(path, err);
	for (i = 0; i < cat->n_companions; i++) {
		file = &cat->files[cat->companions[i].file];
		if (!cat->companions[i].shard || file->missing || file->root != r->u->root ||
		    repair_file_of(r, file->path) ||
		    !(uns_str_ends(file->path, ".pt") || uns_str_ends(file->path, ".bin")))
			continue;
		path[n] = uns_arena_str(&r->arena, file->path);
		if (!path[n++])
			return uns_oom(err);
	}
	for (i = 0; i < n; i++)
		if (path[i])
			UNS_TRY(repair_one_set(r, checkpoint, path + i, n - i, err));
	return 0;
}
