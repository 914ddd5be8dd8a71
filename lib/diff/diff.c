/* unshard_diff: pair the tensors of two checkpoints, compare them block by block, and add up what differs.
 *
 * Blocks of up to WINDOW_UNITS units are compared in parallel, then added up in their order; then come the next. So the
 * sums do not depend on threads, and memory not on the size of the tensors. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "api/caller.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/pool.h"
#include "diff/groups.h"
#include "diff/values.h"
#include "model/cover.h"
#include "names/module_path.h"
#include "session/shows.h"
#include "tensors/tensors.h"

enum { WINDOW_UNITS = 512, BUFFER_BYTES = DIFF_BLOCK_ELEMS * 16 };

#define NO_TENSOR SIZE_MAX

struct side {
	unshard *u;
	const char *path;
	unshard_tensors *list;
	struct uns_arena arena;
	struct uns_map tied; /* names of tensors whose bytes another tensor has, to which config.json ties them */
};

struct pair {
	size_t a, b; /* indices in the lists, or NO_TENSOR */
};

/* A block of a pair; one of no element for a pair that is not compared, or is empty. */
struct unit {
	size_t pair;
	uint64_t first, n, expert;
	bool is_part; /* of a tensor of all experts: that of `expert` */
	bool ends_part, ends_pair;
	struct diff_tally tally;
};

struct buffers {
	struct buffers *next;
	uint8_t a[BUFFER_BYTES], b[BUFFER_BYTES];
};

struct diff {
	struct caller caller;
	struct unshard_diff_options o;
	struct diff_tolerance tolerance;
	struct side a, b;
	bool of_optimizer; /* the lists are the checkpoints' own, and their states are compared */
	struct pair *pair;
	size_t n_pairs;
	struct unit *unit;
	size_t n_units;
	struct uns_pool *pool;
	pthread_mutex_t lock; /* of: */
	struct buffers *free;
	_Atomic uint64_t done_bytes;
	uint64_t total_bytes;

	struct diff_tally sum, part; /* of the pair, and of its part, that are being added up */
	struct diff_groups groups;
	struct unshard_diff_counts counts;
	int told; /* what a callback ended the call with */
};

/* -- two lists of tensors -- */

/* Which of the two cannot be listed, unless the sentence has its path. */
static int list_fail(const struct side *side, int code, const char *text, struct uns_err *err)
{
	const char *root = uns_root_path(side->u->root);

	if (uns_str_starts(text, root))
		return uns_fail(err, code, "%s", text);
	return uns_fail(err, code, "%s%s%s: %s", root, *side->path ? "/" : "", side->path, text);
}

static int lists_open_as(struct diff *d, const char *view, bool published, struct uns_err *err)
{
	struct side *sides[] = { &d->a, &d->b };
	struct unshard_error why = { 0 };
	size_t i;

	for (i = 0; i < 2; i++) {
		unshard_tensors_close(UNS_TAKE(sides[i]->list));
		if (published)
			UNS_TRY(tensors_open_published(sides[i]->u, sides[i]->path, &sides[i]->list, err));
		else if (unshard_tensors_open(sides[i]->u, sides[i]->path, view, &sides[i]->list, &why) < 0)
			return list_fail(sides[i], why.code, why.text, err);
	}
	return 0;
}

static bool has_all_of(const struct side *side, const struct side *other)
{
	const size_t n = unshard_tensors_count(other->list);
	const struct unshard_tensor *t;
	size_t i, unused;

	for (i = 0; i < n; i++) {
		t = unshard_tensors_at(other->list, i);
		if (unshard_tensors_find(side->list, t->name, t->state, &unused, NULL) < 0)
			return false;
	}
	return true;
}

/* Where each has names that the other lacks, one may have those of the model in memory. */
static int lists_open(struct diff *d, const char *view, struct uns_err *err)
{
	UNS_TRY(lists_open_as(d, view, false, err));
	if (!view || strcmp(view, "weights") != 0 || has_all_of(&d->a, &d->b) || has_all_of(&d->b, &d->a))
		return 0;
	return lists_open_as(d, view, true, err);
}

/* Once its list is open. optimizer: its states will be compared, and must be known in full. */
static int side_look(struct side *side, bool optimizer, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err why = { .keep = &arena };
	struct dir_record *record;
	struct snapshot *snap = NULL;
	const char *name;
	int code;
	size_t i;

	UNS_TRY(record_get(side->u, side->path, &record, err));
	code = snapshot_get(side->u, record, &snap, err);
	for (i = 0; code == 0 && i < snap->ties.n; i++) {
		name = uns_arena_str(&side->arena, snap->ties.v[i]->name);
		code = name && uns_map_put(&side->tied, name, (void *)name, NULL) ? 0 : uns_oom(err);
	}
	if (code == 0 && optimizer) {
		code = uns_cover_refusal(snap->cat, UNS_SCOPE_OPTIMIZER, &why);
		code = code < 0 ? uns_fail_copy(err, &why) : 0;
	}
	if (snap)
		snapshot_put(side->u, snap);
	record_put(side->u, record);
	return code;
}

static const struct unshard_tensor *tensor_at(const struct side *side, size_t i)
{
	return i == NO_TENSOR ? NULL : unshard_tensors_at(side->list, i);
}

/* The tensors that are compared now: of a view all; of the checkpoints' own the optimizer's states. */
static bool is_compared(const struct diff *d, const struct unshard_tensor *t)
{
	return !d->of_optimizer || t->state;
}

static bool shapes_equal(const struct unshard_tensor *a, const struct unshard_tensor *b)
{
	return a->n_dims == b->n_dims && memcmp(a->shape, b->shape, a->n_dims * sizeof(*a->shape)) == 0;
}

static int pairs_make(struct diff *d, struct uns_err *err)
{
	const size_t n_a = unshard_tensors_count(d->a.list), n_b = unshard_tensors_count(d->b.list);
	UNS_CLEANUP(uns_free_p) bool *taken = calloc(n_b + 1, sizeof(*taken));
	const struct unshard_tensor *a, *b;
	size_t i, k;

	free(d->pair);
	UNS_TRY_ALLOC(d->pair = calloc(n_a + n_b + 1, sizeof(*d->pair)), err);
	UNS_TRY_ALLOC(taken, err);
	d->n_pairs = 0;
	for (i = 0; i < n_a; i++) {
		a = unshard_tensors_at(d->a.list, i);
		if (!is_compared(d, a))
			continue;
		if (unshard_tensors_find(d->b.list, a->name, a->state, &k, NULL) < 0 || taken[k])
			k = NO_TENSOR;
		d->pair[d->n_pairs++] = (struct pair){ i, k };
		if (k == NO_TENSOR)
			continue;
		taken[k] = true;
		b = unshard_tensors_at(d->b.list, k);
		if (shapes_equal(a, b))
			d->total_bytes += a->size_bytes + b->size_bytes;
	}
	for (k = 0; k < n_b; k++)
		if (!taken[k] && is_compared(d, unshard_tensors_at(d->b.list, k)))
			d->pair[d->n_pairs++] = (struct pair){ NO_TENSOR, k };
	return 0;
}

/* -- what a unit's thread does -- */

static struct buffers *buffers_take(struct diff *d)
{
	struct buffers *found;

	pthread_mutex_lock(&d->lock);
	found = d->free;
	if (found)
		d->free = found->next;
	pthread_mutex_unlock(&d->lock);
	return found ? found : malloc(sizeof(*found));
}

static void buffers_put(struct diff *d, struct buffers *buffers)
{
	pthread_mutex_lock(&d->lock);
	buffers->next = d->free;
	d->free = buffers;
	pthread_mutex_unlock(&d->lock);
}

static int unit_compare(struct diff *d, struct unit *unit, struct buffers *buffers, struct uns_err *err)
{
	const struct pair *pair = &d->pair[unit->pair];
	const struct unshard_tensor *a = tensor_at(&d->a, pair->a), *b = tensor_at(&d->b, pair->b);
	uint64_t bytes = unit->n * (unshard_dtype_size(a->dtype) + unshard_dtype_size(b->dtype)), done;

	if (!unit->first) {
		UNS_TRY(tensor_check(d->a.list, pair->a, err));
		UNS_TRY(tensor_check(d->b.list, pair->b, err));
	}
	UNS_TRY(tensor_stretch_read(d->a.list, pair->a, unit->first, unit->n, buffers->a, err));
	UNS_TRY(tensor_stretch_read(d->b.list, pair->b, unit->first, unit->n, buffers->b, err));
	diff_tally_block((enum uns_dtype)a->dtype, buffers->a, (enum uns_dtype)b->dtype, buffers->b, (size_t)unit->n,
			 &d->tolerance, &unit->tally);
	done = atomic_fetch_add(&d->done_bytes, bytes) + bytes;
	return caller_progress(&d->caller, UNSHARD_READING, done, d->total_bytes) ? uns_fail(err, -EINTR, "interrupted")
										  : 0;
}

static int unit_work(void *ctx, size_t i, struct uns_err *err)
{
	struct diff *d = ctx;
	struct unit *unit = &d->unit[i];
	struct buffers *buffers;
	int code;

	unit->tally = (struct diff_tally){ 0 };
	if (!unit->n)
		return 0;
	UNS_TRY_ALLOC(buffers = buffers_take(d), err);
	code = unit_compare(d, unit, buffers, err);
	buffers_put(d, buffers);
	return code;
}

/* -- adding up -- */

static struct unshard_figures figures_of(const struct diff_tally *t)
{
	return (struct unshard_figures){ .size = sizeof(struct unshard_figures),
					 .n_elems = t->n_elems,
					 .n_changed = t->n_changed,
					 .n_beyond = t->n_beyond,
					 .n_not_finite_a = t->n_not_finite_a,
					 .n_not_finite_b = t->n_not_finite_b,
					 .n_not_finite_changed = t->n_not_finite_changed,
					 .max_abs = t->max_abs,
					 .mean_abs = t->n_finite ? uns_sum_value(&t->abs) / (double)t->n_finite : 0,
					 .norm_a = sqrt(uns_sum_value(&t->square_a)),
					 .norm_b = sqrt(uns_sum_value(&t->square_b)),
					 .norm_difference = sqrt(uns_sum_value(&t->square)) };
}

static enum unshard_diff_kind kind_of(const struct diff *d, const struct unshard_tensor *a,
				      const struct unshard_tensor *b, const struct diff_tally *t)
{
	const struct unshard_tensor *one = a ? a : b;

	if ((!a || !b) && !one->state && uns_map_get(a ? &d->a.tied : &d->b.tied, one->name))
		return UNSHARD_DIFF_TIED;
	if (!a || !b)
		return a ? UNSHARD_DIFF_ONLY_A : UNSHARD_DIFF_ONLY_B;
	if (!shapes_equal(a, b))
		return UNSHARD_DIFF_SHAPE;
	if (t->n_changed)
		return t->n_beyond ? UNSHARD_DIFF_VALUES : UNSHARD_DIFF_WITHIN;
	return a->dtype == b->dtype ? UNSHARD_DIFF_EQUAL : UNSHARD_DIFF_DTYPE;
}

static int pair_end(struct diff *d, const struct pair *pair, struct uns_err *err)
{
	const struct unshard_tensor *a = tensor_at(&d->a, pair->a), *b = tensor_at(&d->b, pair->b), *any = a ? a : b;
	const enum unshard_diff_kind kind = kind_of(d, a, b, &d->sum);
	const bool compared = a && b && kind != UNSHARD_DIFF_SHAPE && !(d->o.flags & UNSHARD_DIFF_NAMES);
	const struct unshard_figures figures = figures_of(&d->sum);
	const struct unshard_tensor_diff diff = { .size = sizeof(diff),
						  .name = any->name,
						  .state = any->state,
						  .kind = kind,
						  .a = a,
						  .b = b,
						  .figures = compared ? &figures : NULL };

	d->counts.kind[kind]++;
	if (compared && !any->state)
		UNS_TRY(diff_groups_add(&d->groups, any->name, &d->sum, kind != UNSHARD_DIFF_EQUAL, err));
	d->sum = (struct diff_tally){ 0 };
	if (d->caller.calls.tensor_diff)
		d->told = d->caller.calls.tensor_diff(d->caller.calls.ctx, &diff);
	return d->told ? uns_fail(err, -EINTR, "interrupted") : 0;
}

static int part_end(struct diff *d, const struct unit *unit, struct uns_err *err)
{
	const struct unshard_tensor *a = tensor_at(&d->a, d->pair[unit->pair].a),
				    *b = tensor_at(&d->b, d->pair[unit->pair].b);
	bool different = d->part.n_changed || a->dtype != b->dtype;
	int code = a->state ? 0 : diff_groups_add_part(&d->groups, a->name, unit->expert, &d->part, different, err);

	d->part = (struct diff_tally){ 0 };
	return code;
}

static int window_end(struct diff *d, struct uns_err *err)
{
	struct unit *unit = d->unit, *end = unit + d->n_units;

	UNS_TRY(uns_pool_each(d->pool, d->n_units, unit_work, d, err));
	for (; unit < end; unit++) {
		diff_tally_add(&d->sum, &unit->tally);
		if (unit->is_part)
			diff_tally_add(&d->part, &unit->tally);
		if (unit->ends_part)
			UNS_TRY(part_end(d, unit, err));
		if (unit->ends_pair)
			UNS_TRY(pair_end(d, &d->pair[unit->pair], err));
	}
	d->n_units = 0;
	return 0;
}

/* -- cutting pairs into units -- */

static int unit_add(struct diff *d, const struct unit *unit, struct uns_err *err)
{
	if (d->n_units == WINDOW_UNITS)
		UNS_TRY(window_end(d, err));
	d->unit[d->n_units++] = *unit;
	return 0;
}

/* A block ends where a part ends. */
static int pair_cut(struct diff *d, size_t i, struct uns_err *err)
{
	const struct unshard_tensor *a = tensor_at(&d->a, d->pair[i].a), *b = tensor_at(&d->b, d->pair[i].b);
	uint64_t n = 1, n_experts, of_part, k;
	struct unit unit = { .pair = i };

	if (!a || !b || !shapes_equal(a, b)) {
		unit.ends_pair = true;
		return unit_add(d, &unit, err);
	}
	for (k = 0; k < a->n_dims; k++)
		n *= a->shape[k];
	n_experts = n ? uns_name_experts(a->name, a->shape, a->n_dims) : 0;
	of_part = n_experts ? n / n_experts : n;
	unit.is_part = n_experts > 0;
	do {
		unit.expert = unit.is_part ? unit.first / of_part : 0;
		unit.n = uns_u64_min(DIFF_BLOCK_ELEMS, of_part ? of_part - unit.first % of_part : 0);
		unit.ends_pair = unit.first + unit.n == n;
		unit.ends_part = unit.is_part && (unit.first + unit.n) % of_part == 0;
		UNS_TRY(unit_add(d, &unit, err));
		unit.first += unit.n;
	} while (unit.first < n);
	return 0;
}

static int lists_compare(struct diff *d, struct uns_err *err)
{
	size_t i;

	UNS_TRY(pairs_make(d, err));
	for (i = 0; i < d->n_pairs; i++)
		UNS_TRY(d->o.flags & UNSHARD_DIFF_NAMES ? pair_end(d, &d->pair[i], err) : pair_cut(d, i, err));
	return window_end(d, err);
}

/* -- the call -- */

static int groups_hand_over(struct diff *d, const struct diff_group *g)
{
	const struct unshard_figures figures = figures_of(&g->tally);
	const struct unshard_group_diff diff = { .size = sizeof(diff),
						 .group = g->group,
						 .name = g->name ? g->name : "",
						 .n_tensors = g->n_tensors,
						 .n_different = g->n_different,
						 .figures = &figures };

	if (!d->told && d->caller.calls.group_diff)
		d->told = d->caller.calls.group_diff(d->caller.calls.ctx, &diff);
	return d->told;
}

static int all_groups_hand_over(struct diff *d, struct uns_err *err)
{
	const struct uns_map *maps[] = { &d->groups.layer, &d->groups.expert };
	size_t i, at;
	void *group;

	groups_hand_over(d, &d->groups.all);
	for (i = 0; i < 2; i++)
		for (at = 0; !d->told && uns_map_next(maps[i], &at, NULL, &group);)
			groups_hand_over(d, group);
	return d->told ? uns_fail(err, -EINTR, "interrupted") : 0;
}

static int value_differs(void *ctx, const struct unshard_value_diff *diff)
{
	struct diff *d = ctx;

	d->counts.n_values += diff->counts;
	if (d->caller.calls.value_diff)
		d->told = d->caller.calls.value_diff(d->caller.calls.ctx, diff);
	return d->told;
}

static int values_compare(struct diff *d, struct uns_err *err)
{
	UNS_CLEANUP(diff_values_fini) struct diff_values a = { 0 }, b = { 0 };

	UNS_TRY(diff_values_collect(d->a.u, d->a.path, &a, err));
	UNS_TRY(diff_values_collect(d->b.u, d->b.path, &b, err));
	return diff_values_compare(&a, &b, value_differs, d) ? uns_fail(err, -EINTR, "interrupted") : 0;
}

/* Fails with -EAGAIN if the checkpoint may still be being saved. */
static int side_check(const struct side *side, const char *name, bool whole, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err why = { .keep = &arena };
	enum show_state state = SHOW_OK;
	const struct uns_view *view;
	struct dir_record *record;
	uint64_t parameter;
	int code = 0;

	view = view_find(name, strlen(name), &parameter);
	if (!view)
		return uns_fail(err, -ENOENT, "view %s: no such view (unshard show lists the views)", name);
	UNS_TRY(record_get(side->u, side->path, &record, err));
	if (record->is.format)
		code = show_state_of(side->u, record, view, parameter, &state, &why);
	if (code == 0 && (state == SHOW_SAVING || (whole && record->is.format && record_saving(side->u, record))))
		code = uns_fail(
			err, -EAGAIN,
			"%s/%s may still be being saved: compare it when it has not changed for a while (-o settle=)",
			side->u->real_root, side->path);
	record_put(side->u, record);
	return code == -EAGAIN || code == 0 ? code : uns_fail_copy(err, &why);
}

static int diff_make(struct diff *d, struct uns_err *err)
{
	const char *view = d->o.view ? d->o.view : "weights";
	const bool optimizer = d->o.flags & UNSHARD_DIFF_OPTIMIZER;

	d->tolerance = (struct diff_tolerance){ d->o.tolerance, d->o.relative_tolerance };
	if (!(d->o.tolerance >= 0) || !(d->o.relative_tolerance >= 0))
		return uns_fail(err, -EINVAL, "a tolerance is a number that is not negative");
	UNS_TRY(side_check(&d->a, view, optimizer, err));
	UNS_TRY(side_check(&d->b, view, optimizer, err));
	UNS_TRY_ALLOC(d->unit = calloc(WINDOW_UNITS, sizeof(*d->unit)), err);
	UNS_TRY(uns_pool_new(UNS_THREADS_DIFF - 1, NULL, &d->pool, err)); /* the caller's thread works too */
	UNS_TRY(lists_open(d, view, err));
	UNS_TRY(side_look(&d->a, optimizer, err));
	UNS_TRY(side_look(&d->b, optimizer, err));
	UNS_TRY(lists_compare(d, err));
	if (optimizer) {
		d->of_optimizer = true;
		UNS_TRY(lists_open(d, NULL, err));
		UNS_TRY(lists_compare(d, err));
	}
	UNS_TRY(all_groups_hand_over(d, err));
	return d->o.flags & UNSHARD_DIFF_TENSORS ? 0 : values_compare(d, err);
}

static bool is_different(const struct diff *d)
{
	const bool tolerant = d->o.tolerance > 0 || d->o.relative_tolerance > 0;
	const size_t *n = d->counts.kind;

	return n[UNSHARD_DIFF_VALUES] || n[UNSHARD_DIFF_SHAPE] || n[UNSHARD_DIFF_ONLY_A] || n[UNSHARD_DIFF_ONLY_B] ||
	       (n[UNSHARD_DIFF_DTYPE] && !tolerant) || d->counts.n_values;
}

static void side_fini(struct side *side)
{
	unshard_tensors_close(side->list);
	uns_map_fini(&side->tied);
	uns_arena_fini(&side->arena);
}

static void diff_fini(struct diff *d)
{
	struct buffers *buffers;

	if (d->pool)
		uns_pool_free(d->pool);
	while ((buffers = d->free)) {
		d->free = buffers->next;
		free(buffers);
	}
	side_fini(&d->a);
	side_fini(&d->b);
	diff_groups_fini(&d->groups);
	pthread_mutex_destroy(&d->lock);
	free(d->pair);
	free(d->unit);
}

int unshard_diff(unshard *a, const char *path_a, unshard *b, const char *path_b,
		 const struct unshard_diff_options *options, const struct unshard_calls *calls,
		 struct unshard_diff_counts *counts, struct unshard_error *error)
{
	UNS_CLEANUP(diff_fini)
	struct diff d = { .a = { .u = a, .path = path_a },
			  .b = { .u = b, .path = path_b },
			  .o = CALLER_OWN(struct unshard_diff_options),
			  .lock = PTHREAD_MUTEX_INITIALIZER,
			  .counts = CALLER_OWN(struct unshard_diff_counts) };
	struct uns_err err = { 0 };
	int code = options ? caller_take(&d.o, options, "diff_options", &err) : 0;

	if (code == 0)
		code = caller_flags(d.o.flags, UNSHARD_DIFF_OPTIMIZER | UNSHARD_DIFF_TENSORS | UNSHARD_DIFF_NAMES,
				    &err);
	if (code == 0)
		code = caller_init(&d.caller, calls, &err);
	if (code < 0)
		return give_error(error, &err, code);
	code = diff_make(&d, &err);
	d.counts.read_bytes = d.done_bytes;
	if (code == 0 && counts)
		code = caller_give(counts, &d.counts, "diff_counts", &err);
	if (code == 0)
		code = is_different(&d);
	return give_error(error, &err, caller_fini(&d.caller, d.told ? d.told : code));
}
