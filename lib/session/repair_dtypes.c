/* What the ranks hold of one tensor has one type: that of most elements. Files are compared leaf by leaf,
 * whatever they are called; both moments of a parameter count as one.
 *
 * A file is rewritten only where names of types stand in places of their own: a storage or a wrapper that
 * two tensors share, of which one would change, is left alone, and that is said. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "engine/cast.h"
#include "session/repair.h"
#include "wire/dtensor.h"
#include "wire/pickle_rename.h"
#include "wire/torchfile.h"

enum { MAX_PICKLE_BYTES = 1 << 28, MAX_NODES = 1 << 20, MAX_LEAF_NODES = 4096, MAX_DEPTH = 32,
       BLOCK_ELEMS = 32 << 10 };

/* -- one file -- */

struct file;

/* A tensor as one rank has it. */
struct leaf {
	struct votes *votes;
	const struct uns_value *value; /* wrapper and all */
	const struct uns_value **local;
	size_t n_local;
	enum uns_dtype dtype;    /* of the local data */
	enum uns_dtype declared; /* by the wrapper */
	uint64_t n_elems;
};

/* The same tensor in all files. */
struct votes {
	const char *name;
	uint64_t elems[UNS_N_DTYPES];
	bool seen[UNS_N_DTYPES];
	enum uns_dtype target; /* NONE = no majority */
};

struct file {
	const char *path;
	int fd;
	struct uns_open_file open;
	struct uns_reader reader;
	struct uns_torchfile torch;
	struct uns_span pickle;
	struct uns_pickle_trace trace;
	struct leaf *leaf;
	size_t n_leaves, cap_leaves;
	/* What the sites are to name, and what the storages are to be; NONE = nobody says. */
	enum uns_dtype *site;
	size_t *by_value; /* sites sorted by their value's address */
	enum uns_dtype *from, *to;
	size_t n_storages;
	size_t n_changed; /* leaves */
	const char *first_changed;
	uint64_t n_rounded, n_converted; /* elements */
};

struct comparing {
	struct repair *r;
	struct repair_place *place;
	struct uns_arena arena;
	struct uns_map votes; /* name -> struct votes */
	struct file *file;
	size_t n;
	const char *why; /* a refusal */
};

static void comparing_fini(struct comparing *c)
{
	size_t i;

	for (i = 0; i < c->n; i++)
		if (c->file[i].fd >= 0)
			close(c->file[i].fd);
	uns_map_fini(&c->votes);
	uns_arena_fini(&c->arena);
}

__attribute__((format(printf, 2, 3))) static int refuse(struct comparing *c, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!c->why)
		c->why = uns_arena_str(&c->arena, text);
	return c->why ? 0 : -ENOMEM;
}

static int open_file(struct comparing *c, struct file *f, struct uns_err *err)
{
	const struct uns_zip_record *rec;
	struct uns_span in;
	struct uns_stat st;

	UNS_TRY(uns_root_open_file(c->r->u->root, f->path, &f->fd, &st, err));
	f->open = (struct uns_open_file){ f->fd, f->path };
	f->reader = uns_reader_of_file(&f->open, st.id.size);
	f->torch.r = &f->reader;
	UNS_TRY(uns_zip_open(&f->reader, &c->arena, &f->torch.zip, err));
	rec = uns_zip_find(&f->torch.zip, "data.pkl");
	if (!rec)
		return uns_fail(err, -EBADMSG, "no data.pkl");
	UNS_TRY(uns_zip_read(&f->reader, rec, MAX_PICKLE_BYTES, &c->arena, &f->pickle, err));
	in = f->pickle;
	UNS_TRY(uns_pickle_parse_traced(&in, &c->arena, &f->torch.root, &f->trace, err));
	if (!uns_value_fits(f->torch.root, MAX_NODES, MAX_DEPTH))
		return uns_fail(err, -ENOTSUP, "its pickle is nested too deeply");
	return 0;
}

/* -- leaves -- */

static struct votes *votes_get(struct comparing *c, const char *name)
{
	struct votes *v = uns_map_get(&c->votes, name);

	if (v)
		return v;
	v = UNS_NEW(&c->arena, struct votes);
	if (!v || !(v->name = uns_arena_str(&c->arena, name)) ||
	    !uns_map_put(&c->votes, v->name, v, NULL))
		return NULL;
	v->target = UNS_DTYPE_NONE;
	return v;
}

static int add_local(struct comparing *c, struct file *f, struct leaf *leaf,
		     const struct uns_value *v)
{
	const struct uns_value **grown =
		uns_arena_grow(&c->arena, leaf->local, leaf->n_local, leaf->n_local + 1,
			       sizeof(*grown));
	struct uns_torch_tensor t;
	uint64_t n = 1;
	size_t d;

	if (!grown)
		return -ENOMEM;
	if (uns_torch_tensor(&f->torch, v, &t, NULL) < 0)
		return 0;
	for (d = 0; d < t.n_dims; d++)
		n *= t.dims[d];
	leaf->local = grown;
	leaf->local[leaf->n_local++] = v;
	leaf->dtype = t.dtype;
	leaf->n_elems += n;
	return 0;
}

static int add_locals(struct comparing *c, struct file *f, struct leaf *leaf)
{
	struct uns_sharded_tensor whole;
	size_t i;

	if (!uns_dtensor_is(leaf->value))
		return add_local(c, f, leaf, leaf->value);
	if (uns_dtensor_parse(&f->torch, leaf->value, -1, &c->arena, &whole, NULL) < 0)
		return 0;
	leaf->dtype = leaf->declared = whole.dtype;
	for (i = 0; i < whole.n_shards; i++)
		UNS_TRY(add_local(c, f, leaf, whole.shard[i].tensor));
	return 0;
}

static int add_leaf(struct comparing *c, struct file *f, const struct uns_value *v,
		    const char *name)
{
	struct leaf leaf = { .value = v, .dtype = UNS_DTYPE_NONE, .declared = UNS_DTYPE_NONE };
	struct leaf *grown;

	UNS_TRY(add_locals(c, f, &leaf));
	if (leaf.dtype == UNS_DTYPE_NONE)
		return 0; /* not read, not judged */
	if (leaf.declared == UNS_DTYPE_NONE)
		leaf.declared = leaf.dtype;
	if (f->n_leaves == f->cap_leaves) {
		f->cap_leaves = f->cap_leaves ? 2 * f->cap_leaves : 64;
		grown = uns_arena_grow(&c->arena, f->leaf, f->n_leaves, f->cap_leaves,
				       sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		f->leaf = grown;
	}
	leaf.votes = votes_get(c, name);
	if (!leaf.votes)
		return -ENOMEM;
	leaf.votes->elems[leaf.dtype] += leaf.n_elems;
	leaf.votes->seen[leaf.dtype] = true;
	f->leaf[f->n_leaves++] = leaf;
	return 0;
}

static char *child_name(struct uns_arena *arena, const char *name, const struct uns_value *key,
			size_t i)
{
	const char *text = uns_value_str(key);
	int64_t number = (int64_t)i;

	if (text)
		return uns_arena_printf(arena, "%s%s%s", name, *name ? "." : "", text);
	uns_value_int(key, &number);
	return uns_arena_printf(arena, "%s%s%" PRId64, name, *name ? "." : "", number);
}

static int add_leaves(struct comparing *c, struct file *f, const struct uns_value *v,
		      const char *name)
{
	const bool dict = v->kind == UNS_VALUE_DICT;
	const bool seq = v->kind == UNS_VALUE_LIST || v->kind == UNS_VALUE_TUPLE;
	size_t i, n = dict ? v->dict.n : seq ? v->seq.n : 0;
	char *child;

	if (uns_torch_is_tensor(v) || uns_dtensor_is(v))
		return add_leaf(c, f, v, name);
	for (i = 0; i < n; i++) {
		child = child_name(&c->arena, name, dict ? v->dict.key[i] : NULL, i);
		if (!child)
			return -ENOMEM;
		UNS_TRY(add_leaves(c, f, dict ? v->dict.v[i] : v->seq.v[i], child));
	}
	return 0;
}

/* -- the majority -- */

/* The type of more than half of the elements; or the only one. */
static enum uns_dtype majority(const uint64_t *elems, const bool *seen)
{
	enum uns_dtype best = UNS_DTYPE_NONE;
	uint64_t sum = 0;
	size_t t, n = 0;

	for (t = 0; t < UNS_N_DTYPES; t++) {
		sum += elems[t];
		n += seen[t];
		if (seen[t] && (best == UNS_DTYPE_NONE || elems[t] > elems[best]))
			best = (enum uns_dtype)t;
	}
	return n == 1 || (best != UNS_DTYPE_NONE && elems[best] > sum - elems[best]) ?
		       best :
		       UNS_DTYPE_NONE;
}

static struct votes *twin_of(struct comparing *c, const struct votes *v)
{
	char name[1024];
	size_t n = strlen(v->name);

	if (!uns_str_ends(v->name, "exp_avg") || n + 4 > sizeof(name))
		return NULL;
	snprintf(name, sizeof(name), "%s_sq", v->name);
	return uns_map_get(&c->votes, name);
}

/* Adam keeps both moments in one type. */
static void agree(struct votes *a, struct votes *b)
{
	struct votes both = *a;
	size_t t;

	if (a->target == b->target)
		return;
	for (t = 0; t < UNS_N_DTYPES; t++) {
		both.elems[t] += b->elems[t];
		both.seen[t] |= b->seen[t];
	}
	a->target = b->target = majority(both.elems, both.seen);
}

static int decide(struct comparing *c)
{
	struct votes *v, *twin;
	size_t at = 0;
	void *value;

	while (uns_map_next(&c->votes, &at, NULL, &value)) {
		v = value;
		v->target = majority(v->elems, v->seen);
	}
	for (at = 0; uns_map_next(&c->votes, &at, NULL, &value);) {
		twin = twin_of(c, value);
		if (twin)
			agree(value, twin);
	}
	for (at = 0; uns_map_next(&c->votes, &at, NULL, &value);) {
		v = value;
		if (v->target == UNS_DTYPE_NONE)
			UNS_TRY(refuse(c,
				       "%s: no type of %s holds more than half of its elements: "
				       "nothing says which one is right",
				       c->place->path, v->name));
	}
	return 0;
}

/* -- what has to change in a file -- */

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

static size_t *site_of(const struct file *f, const struct uns_value *v)
{
	size_t lo = 0, hi = f->trace.n, mid;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if ((uintptr_t)f->trace.v[f->by_value[mid]].value < (uintptr_t)v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < f->trace.n && f->trace.v[f->by_value[lo]].value == v ? &f->by_value[lo] : NULL;
}

/* This name of a floating type belongs to a tensor that is to be `target`. */
static int require_name(struct comparing *c, struct file *f, const struct leaf *leaf,
			const struct uns_value *v)
{
	enum uns_dtype target = leaf->votes->target, t;
	size_t *site = site_of(f, v);
	bool storage;

	t = dtype_of_name(v->cls, &storage);
	if (t == UNS_DTYPE_NONE || !uns_dtype_info(t)->is_float || !site)
		return 0;
	if (t != target && leaf->dtype == target && leaf->declared == target)
		return 0; /* an attribute that speaks of something else */
	if (f->site[*site] != UNS_DTYPE_NONE && f->site[*site] != target)
		return refuse(c, "%s: %s shares its description with a tensor of another type", f->path,
			      leaf->votes->name);
	if (t != target && (!uns_dtype_info(target)->storage || !uns_dtype_info(t)->storage))
		return refuse(c, "%s: %s would have to become %s, which has no storage of its own",
			      f->path, leaf->votes->name, uns_dtype_info(target)->torch);
	f->site[*site] = target;
	return 0;
}

static int require(struct comparing *c, struct file *f, const struct leaf *leaf,
		   const struct uns_value *v)
{
	size_t i, n = 0;

	if (!v)
		return 0;
	if (v->kind == UNS_VALUE_GLOBAL)
		return require_name(c, f, leaf, v);
	if (v->kind == UNS_VALUE_LIST || v->kind == UNS_VALUE_TUPLE)
		n = v->seq.n;
	for (i = 0; i < n; i++)
		UNS_TRY(require(c, f, leaf, v->seq.v[i]));
	for (i = 0; v->kind == UNS_VALUE_DICT && i < v->dict.n; i++)
		UNS_TRY(require(c, f, leaf, v->dict.v[i]));
	if (v->kind == UNS_VALUE_OBJECT)
		UNS_TRY(require(c, f, leaf, v->object.args));
	return require(c, f, leaf, v->state);
}

static int require_storage(struct comparing *c, struct file *f, const struct leaf *leaf,
			   const struct uns_value *local)
{
	enum uns_dtype target = leaf->votes->target;
	struct uns_torch_tensor t;
	unsigned long long key;

	if (uns_torch_tensor(&f->torch, local, &t, NULL) < 0)
		return 0;
	if (!uns_str_number(t.key, "", "", &key) || key >= f->n_storages)
		return refuse(c, "%s: its storages are not numbered as torch.save numbers them", f->path);
	if (f->to[key] != UNS_DTYPE_NONE && (f->to[key] != target || f->from[key] != t.dtype))
		return refuse(c, "%s: %s shares its storage with a tensor of another type", f->path,
			      leaf->votes->name);
	f->from[key] = t.dtype;
	f->to[key] = target;
	return 0;
}

static int require_leaf(struct comparing *c, struct file *f, const struct leaf *leaf)
{
	enum uns_dtype target = leaf->votes->target;
	size_t i;

	if (target == UNS_DTYPE_NONE)
		return 0; /* refused already */
	if (leaf->dtype != target && !(uns_cast_exists(leaf->dtype, target)))
		return refuse(c, "%s: %s is %s, which cannot become %s", f->path, leaf->votes->name,
			      uns_dtype_info(leaf->dtype)->torch, uns_dtype_info(target)->torch);
	if (leaf->dtype != target) {
		f->n_changed++;
		f->n_converted += leaf->n_elems;
		if (!f->first_changed)
			f->first_changed = leaf->votes->name;
	}
	for (i = 0; i < leaf->n_local; i++)
		UNS_TRY(require_storage(c, f, leaf, leaf->local[i]));
	if (!uns_dtype_info(target)->is_float)
		return 0;
	if (!uns_value_fits(leaf->value, MAX_LEAF_NODES, MAX_DEPTH))
		return refuse(c, "%s: the description of %s is too long", f->path, leaf->votes->name);
	return require(c, f, leaf, leaf->value);
}

static int by_address(const void *a, const void *b, void *trace)
{
	const struct uns_pickle_site *v = ((const struct uns_pickle_trace *)trace)->v;
	uintptr_t x = (uintptr_t)v[*(const size_t *)a].value, y = (uintptr_t)v[*(const size_t *)b].value;

	return (x > y) - (x < y);
}

static size_t count_storages(const struct file *f)
{
	size_t i, n = 0, prefix = strlen(f->torch.zip.prefix);

	for (i = 0; i < f->torch.zip.n; i++)
		n += uns_str_starts(f->torch.zip.v[i].name + prefix, "data/");
	return n;
}

static int require_all(struct comparing *c, struct file *f)
{
	size_t i;

	f->n_storages = count_storages(f);
	f->site = UNS_NEW_N(&c->arena, enum uns_dtype, f->trace.n);
	f->by_value = UNS_NEW_N(&c->arena, size_t, f->trace.n);
	f->from = UNS_NEW_N(&c->arena, enum uns_dtype, f->n_storages);
	f->to = UNS_NEW_N(&c->arena, enum uns_dtype, f->n_storages);
	if (!f->site || !f->by_value || !f->from || !f->to)
		return -ENOMEM;
	for (i = 0; i < f->n_storages; i++)
		f->from[i] = f->to[i] = UNS_DTYPE_NONE;
	for (i = 0; i < f->trace.n; i++) {
		f->site[i] = UNS_DTYPE_NONE;
		f->by_value[i] = i;
	}
	if (f->trace.n)
		qsort_r(f->by_value, f->trace.n, sizeof(*f->by_value), by_address, &f->trace);
	for (i = 0; i < f->n_leaves; i++)
		UNS_TRY(require_leaf(c, f, &f->leaf[i]));
	return 0;
}

/* -- the new file -- */

/* New names of the sites, in `to`; how many there are. */
static size_t name_sites(const struct file *f, struct uns_arena *arena, const char **to)
{
	enum uns_dtype is, want;
	bool storage;
	size_t i, n = 0;

	for (i = 0; i < f->trace.n; i++) {
		want = f->site[i];
		is = dtype_of_name(f->trace.v[i].value->cls, &storage);
		if (want == UNS_DTYPE_NONE || is == want)
			continue;
		to[i] = uns_arena_printf(arena, "torch.%s",
					 storage ? uns_dtype_info(want)->storage :
						   uns_dtype_info(want)->torch);
		n++;
	}
	return n;
}

static int find_storage(const struct file *f, size_t i, struct repair_storage *out,
			struct uns_err *err)
{
	const struct uns_zip_record *rec;
	char name[40];

	snprintf(name, sizeof(name), "data/%zu", i);
	rec = uns_zip_find(&f->torch.zip, name);
	if (!rec)
		return uns_fail(err, -ENOTSUP, "there is no record %s", name);
	*out = (struct repair_storage){ .len_bytes = rec->size_bytes, .from = UNS_U8, .to = UNS_U8 };
	if (f->to[i] != UNS_DTYPE_NONE && f->from[i] != f->to[i]) {
		out->from = f->from[i];
		out->to = f->to[i];
	}
	return uns_zip_data(&f->reader, rec, &out->at_bytes, err);
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
static int count_rounded(struct file *f, const struct repair_storage *s, struct uns_err *err)
{
	size_t from = uns_dtype_size(s->from), n;
	uint64_t elems = s->len_bytes / from, at;
	UNS_CLEANUP(uns_free_p) uint8_t *buf = NULL;
	uint8_t *there, *back;

	if (s->from == s->to)
		return 0;
	buf = malloc((size_t)BLOCK_ELEMS * 8 * 3);
	if (!buf)
		return uns_fail(err, -ENOMEM, "out of memory");
	there = buf + (size_t)BLOCK_ELEMS * 8;
	back = there + (size_t)BLOCK_ELEMS * 8;
	for (at = 0; at < elems; at += n) {
		n = (size_t)uns_u64_min(BLOCK_ELEMS, elems - at);
		UNS_TRY(uns_reader_pread(&f->reader, buf, n * from, s->at_bytes + at * from, err));
		uns_cast(s->from, buf, s->to, there, n);
		uns_cast(s->to, there, s->from, back, n);
		f->n_rounded += count_unlike(s->from, buf, back, n);
	}
	return 0;
}

static const char *stem_of(struct uns_arena *arena, const struct file *f)
{
	size_t n = strlen(f->torch.zip.prefix);

	return n ? uns_arena_strn(arena, f->torch.zip.prefix, n - 1) : uns_arena_str(arena, "archive");
}

static int plan_torch(struct comparing *c, struct file *f, const char *const *to,
		      struct repair_torch **out, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text pickle = UNS_TEXT_INIT;
	struct uns_arena *arena = &c->r->arena;
	struct repair_torch *t = UNS_NEW(arena, struct repair_torch);
	char *bytes;
	size_t i;

	if (!t)
		return uns_fail(err, -ENOMEM, "out of memory");
	t->path = f->path;
	t->stem = stem_of(arena, f);
	t->n = f->n_storages;
	t->storage = UNS_NEW_N(arena, struct repair_storage, t->n);
	if (!t->stem || !t->storage)
		return uns_fail(err, -ENOMEM, "out of memory");
	for (i = 0; i < t->n; i++) {
		UNS_TRY(find_storage(f, i, &t->storage[i], err));
		UNS_TRY(count_rounded(f, &t->storage[i], err));
	}
	UNS_TRY(uns_pickle_rename(f->pickle, &f->trace, to, &pickle, err));
	bytes = uns_arena_strn(arena, pickle.p, pickle.len);
	if (!bytes)
		return uns_fail(err, -ENOMEM, "out of memory");
	t->pickle = uns_span_of(bytes, pickle.len);
	*out = t;
	return 0;
}

static int tell_change(struct comparing *c, const struct file *f)
{
	char rounded[96] = "no value changed";
	const struct leaf *leaf = f->leaf;

	if (!f->n_changed)
		return repair_change(c->r, f->path, "dtype",
				     "what describes its tensors says the type that their data have");
	while (leaf->dtype == leaf->votes->target)
		leaf++;
	if (f->n_rounded)
		snprintf(rounded, sizeof(rounded), "%" PRIu64 " of %" PRIu64 " values were rounded",
			 f->n_rounded, f->n_converted);
	if (f->n_changed == 1)
		return repair_change(c->r, f->path, "dtype", "%s from %s to %s, as most of it is: %s",
				     f->first_changed, uns_dtype_info(leaf->dtype)->torch,
				     uns_dtype_info(leaf->votes->target)->torch, rounded);
	return repair_change(c->r, f->path, "dtype",
			     "%s and %zu more tensors from %s to %s, as most of them are: %s",
			     f->first_changed, f->n_changed - 1, uns_dtype_info(leaf->dtype)->torch,
			     uns_dtype_info(leaf->votes->target)->torch, rounded);
}

static int plan_file(struct comparing *c, struct file *f, struct uns_err *err)
{
	const char **to = UNS_NEW_N(&c->arena, const char *, f->trace.n);
	struct repair_file plan = { .path = f->path };
	struct repair_torch *torch = NULL;
	struct uns_err why = { 0 };
	int code;

	if (!to)
		return uns_fail(err, -ENOMEM, "out of memory");
	if (!name_sites(f, &c->arena, to))
		return 0;
	code = plan_torch(c, f, to, &torch, &why);
	if (code == -ENOMEM)
		return uns_fail(err, code, "out of memory");
	if (code < 0)
		return refuse(c, "%s: %s", f->path, why.text);
	plan.torch = torch;
	c->place->changed = true;
	if (repair_plan_file(c->r, &plan) < 0 || tell_change(c, f) < 0)
		return uns_fail(err, -ENOMEM, "out of memory");
	return 0;
}

/* -- a set of files -- */

static int compare(struct comparing *c, struct uns_err *err)
{
	struct uns_err why = { 0 };
	int code = 0;
	size_t i;

	for (i = 0; i < c->n && code == 0; i++) {
		code = open_file(c, &c->file[i], &why);
		if (code == 0 && add_leaves(c, &c->file[i], c->file[i].torch.root, "") < 0)
			code = -ENOMEM;
	}
	if (code < 0 && code != -ENOMEM)
		return 0; /* a rank's file that cannot be read: told as such already */
	if (code == 0)
		code = decide(c);
	for (i = 0; i < c->n && code == 0 && !c->why; i++)
		code = require_all(c, &c->file[i]);
	if (code < 0)
		return uns_fail(err, code, "out of memory");
	for (i = 0; i < c->n && !c->why; i++)
		UNS_TRY(plan_file(c, &c->file[i], err));
	if (c->why && repair_refuse(c->r, "%s", c->why) < 0)
		return uns_fail(err, -ENOMEM, "out of memory");
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
static int compare_set(struct repair *r, struct repair_place *place, const char **path, size_t n,
		       struct uns_err *err)
{
	UNS_CLEANUP(comparing_fini) struct comparing c = { .r = r, .place = place };
	char set[4096], other[4096];
	size_t i;

	c.file = UNS_NEW_N(&c.arena, struct file, n);
	if (!c.file)
		return uns_fail(err, -ENOMEM, "out of memory");
	if (!set_of(path[0], set, sizeof(set)))
		return 0;
	for (i = 0; i < n; i++) {
		if (!path[i] || !set_of(path[i], other, sizeof(other)) || strcmp(set, other) != 0)
			continue;
		c.file[c.n++] = (struct file){ .path = path[i], .fd = -1 };
		path[i] = NULL;
	}
	return compare(&c, err);
}

int repair_dtypes(struct repair *r, struct repair_place *place, const struct uns_catalog *cat,
		  struct uns_err *err)
{
	const char **path = UNS_NEW_N(&r->arena, const char *, cat->n_companions);
	const struct uns_file *file;
	size_t i, n = 0;

	if (!path)
		return uns_fail(err, -ENOMEM, "out of memory");
	for (i = 0; i < cat->n_companions; i++) {
		file = &cat->files[cat->companions[i].file];
		if (!cat->companions[i].shard || file->missing || file->root != r->u->root ||
		    !uns_str_ends(file->path, ".pt") || repair_file_of(r, file->path))
			continue;
		path[n] = uns_arena_str(&r->arena, file->path);
		if (!path[n++])
			return uns_fail(err, -ENOMEM, "out of memory");
	}
	for (i = 0; i < n; i++)
		if (path[i])
			UNS_TRY(compare_set(r, place, path + i, n - i, err));
	return 0;
}
