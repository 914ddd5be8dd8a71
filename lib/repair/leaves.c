/* Leaves are compared by the keys that lead to them, whatever the file is called or holds; both
 * moments of a parameter count as one. */
#include "repair/leaves.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/path.h"
#include "ranks/dtensor.h"

enum { MAX_NODES = 1 << 20 };

void repair_set_fini(struct repair_set *set)
{
	size_t i;

	for (i = 0; i < set->n; i++)
		if (set->rank[i].fd >= 0)
			close(set->rank[i].fd);
	uns_map_fini(&set->votes);
	uns_arena_fini(&set->arena);
}

static int open_file(struct repair_set *set, struct repair_rank *f, struct uns_err *err)
{
	struct uns_stat st;

	UNS_TRY(uns_root_open_file(set->r->u->root, f->path, &f->fd, &st, err));
	f->open = (struct uns_open_file){ f->fd, f->path };
	f->reader = uns_reader_of_file(&f->open, st.id.size);
	UNS_TRY(uns_torchfile_open_traced(&f->reader, &set->arena, &f->torch, &f->pickle, &f->trace, err));
	if (f->torch.big_endian)
		return uns_fail(err, -ENOTSUP, "its tensors are big-endian");
	if (!uns_value_fits(f->torch.root, MAX_NODES, REPAIR_MAX_DEPTH))
		return uns_fail(err, -ENOTSUP, "its pickle is nested too deeply");
	return 0;
}

/* -- leaves -- */

static int add_local(struct repair_set *set, struct repair_rank *f, struct repair_leaf *leaf, const struct uns_value *v)
{
	const struct uns_value **grown =
		uns_arena_grow(&set->arena, leaf->local, leaf->n_local, leaf->n_local + 1, sizeof(*grown));
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

static int add_locals(struct repair_set *set, struct repair_rank *f, struct repair_leaf *leaf)
{
	struct uns_sharded_tensor whole;
	size_t i;

	if (!uns_dtensor_is(leaf->value))
		return add_local(set, f, leaf, leaf->value);
	if (uns_dtensor_parse(&f->torch, leaf->value, -1, &set->arena, &whole, NULL) < 0)
		return 0;
	leaf->dtype = leaf->declared = whole.dtype;
	for (i = 0; i < whole.n_shards; i++)
		UNS_TRY(add_local(set, f, leaf, whole.shard[i].tensor));
	return 0;
}

static int add_leaf(struct repair_set *set, struct repair_rank *f, const struct uns_value *v, const char *name)
{
	struct repair_leaf leaf = { .value = v, .dtype = UNS_DTYPE_NONE, .declared = UNS_DTYPE_NONE };

	UNS_TRY(add_locals(set, f, &leaf));
	if (leaf.dtype == UNS_DTYPE_NONE)
		return 0; /* not read, not judged */
	if (leaf.declared == UNS_DTYPE_NONE)
		leaf.declared = leaf.dtype;
	if (!UNS_ARENA_ROOM(&set->arena, f->leaf, f->n_leaves, f->cap_leaves))
		return -ENOMEM;
	leaf.votes = uns_map_get(&set->votes, name);
	if (!leaf.votes) {
		leaf.votes = UNS_NEW(&set->arena, struct repair_votes);
		if (!leaf.votes || !(leaf.votes->name = uns_arena_str(&set->arena, name)) ||
		    !uns_map_put(&set->votes, leaf.votes->name, leaf.votes, NULL))
			return -ENOMEM;
		leaf.votes->target = UNS_DTYPE_NONE;
	}
	leaf.votes->elems[leaf.dtype] += leaf.n_elems;
	leaf.votes->seen[leaf.dtype] = true;
	f->leaf[f->n_leaves++] = leaf;
	return 0;
}

static int add_leaves(struct repair_set *set, struct repair_rank *f, const struct uns_value *v, const char *name)
{
	const bool dict = v->kind == UNS_VALUE_DICT;
	const bool seq = v->kind == UNS_VALUE_LIST || v->kind == UNS_VALUE_TUPLE;
	size_t i, n = dict ? v->n : seq ? v->n : 0;
	char *child;

	if (uns_torch_is_tensor(v) || uns_dtensor_is(v))
		return add_leaf(set, f, v, name);
	for (i = 0; i < n; i++) {
		child = uns_value_child_name(&set->arena, name, dict ? v->pair[i].key : NULL, i);
		if (!child)
			return -ENOMEM;
		UNS_TRY(add_leaves(set, f, dict ? v->pair[i].value : v->item[i], child));
	}
	return 0;
}

/* -- the majority -- */

/* The type of more than half of the elements; or the only one. */
static enum uns_dtype votes_majority(const uint64_t *elems, const bool *seen)
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
	return n == 1 || (best != UNS_DTYPE_NONE && elems[best] > sum - elems[best]) ? best : UNS_DTYPE_NONE;
}

static struct repair_votes *twin_of(struct repair_set *set, const struct repair_votes *v)
{
	char name[1024];
	size_t n = strlen(v->name);

	if (!uns_str_ends(v->name, "exp_avg") || n + 4 > sizeof(name))
		return NULL;
	snprintf(name, sizeof(name), "%s_sq", v->name);
	return uns_map_get(&set->votes, name);
}

/* Adam keeps both moments in one type. */
static void votes_agree(struct repair_votes *a, struct repair_votes *b)
{
	struct repair_votes both = *a;
	size_t t;

	if (a->target == b->target)
		return;
	for (t = 0; t < UNS_N_DTYPES; t++) {
		both.elems[t] += b->elems[t];
		both.seen[t] |= b->seen[t];
	}
	a->target = b->target = votes_majority(both.elems, both.seen);
}

static int votes_decide(struct repair_set *set)
{
	struct repair_votes *v, *twin;
	size_t at = 0;
	void *value;

	while (uns_map_next(&set->votes, &at, NULL, &value)) {
		v = value;
		v->target = votes_majority(v->elems, v->seen);
	}
	for (at = 0; uns_map_next(&set->votes, &at, NULL, &value);) {
		twin = twin_of(set, value);
		if (twin)
			votes_agree(value, twin);
	}
	for (at = 0; uns_map_next(&set->votes, &at, NULL, &value);) {
		v = value;
		if (v->target == UNS_DTYPE_NONE)
			UNS_TRY(repair_set_refuse(set,
						  "%s: no dtype of %s holds more than half of its elements, so no "
						  "dtype can be chosen",
						  set->checkpoint, v->name));
	}
	return 0;
}

int repair_set_read(struct repair_set *set, struct uns_err *err)
{
	struct repair_rank *f = set->rank, *end = f + set->n;

	for (; f < end; f++) {
		UNS_TRY(open_file(set, f, err));
		if (add_leaves(set, f, f->torch.root, "") < 0)
			return uns_oom(err);
	}
	return votes_decide(set) < 0 ? uns_oom(err) : 0;
}
