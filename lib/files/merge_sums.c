/* A weight becomes one sum of itself and of all terms, so that it is rounded once, to the dtype that is shown. */
#include "files/merge_sums.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

void uns_merge_sums_fini(struct uns_merge_sums *sums)
{
	uns_map_fini(&sums->at);
	free(sums->v);
}

static enum uns_dtype out_of(const struct uns_merge_sums *sums, const struct uns_tensor *t)
{
	return sums->out != UNS_DTYPE_NONE && uns_dtype_info(t->dtype)->is_float ? sums->out : t->dtype;
}

int uns_merge_sums_put(struct uns_merge_sums *sums, const struct uns_tensor *t, const char *name, struct uns_err *err)
{
	if (uns_merge_sums_find(sums, name))
		return uns_fail(err, -ENOTSUP, "the base model has two tensors that would be named %s", name);
	UNS_TRY_ALLOC(UNS_HEAP_ROOM(sums->v, sums->n, sums->cap), err);
	UNS_TRY_ALLOC(uns_map_put_index(&sums->at, name, (uint32_t)sums->n), err);
	sums->v[sums->n++] = (struct uns_merge_weight){ .shown = { name, t, out_of(sums, t), NULL },
							.dtype = t->dtype,
							.sum = { .divisor = 1 } };
	return 0;
}

struct uns_merge_weight *uns_merge_sums_find(const struct uns_merge_sums *sums, const char *name)
{
	const uint32_t i = uns_map_index(&sums->at, name);

	return i == UNS_MAP_NO_INDEX ? NULL : &sums->v[i];
}

int uns_merge_sums_need(const struct uns_merge_sums *sums, const char *module, const char *part,
			struct uns_merge_weight **out, struct uns_err *err)
{
	const char *name = uns_arena_printf(sums->arena, "%s.%s", module, part);

	UNS_TRY_ALLOC(name, err);
	*out = uns_merge_sums_find(sums, name);
	return *out ? 0 : uns_fail(err, -ENOTSUP, "the base model has no tensor %s, which the adapter changes", name);
}

int uns_merge_sums_add(struct uns_merge_sums *sums, struct uns_merge_weight *weight, uint64_t columns,
		       const struct uns_term *term, struct uns_err *err)
{
	struct uns_sum *sum = &weight->sum;
	struct uns_term *terms = UNS_NEW_N(sums->arena, struct uns_term, sum->n + 1);

	UNS_TRY_ALLOC(terms, err);
	if (sum->n)
		memcpy(terms, sum->term, sum->n * sizeof(*terms));
	terms[sum->n++] = *term;
	sum->term = terms;
	sum->columns = columns;
	weight->changed = true;
	return 0;
}

int uns_merge_sums_scale(struct uns_merge_weight *weight, const struct uns_scale *scale, struct uns_err *err)
{
	if (weight->sum.scale.by.tensor)
		return uns_fail(err, -ENOTSUP, "two tensors of the adapter multiply %s", weight->shown.name);
	weight->sum.scale = *scale;
	weight->changed = true;
	return 0;
}

int uns_merge_sums_make(struct uns_merge_sums *sums, size_t *n, struct uns_err *err)
{
	struct uns_merge_weight *w = sums->v, *end = w + sums->n;
	struct uns_sum sum;
	struct uns_term *terms;

	for (*n = 0; w < end; w++) {
		if (!w->changed)
			continue;
		sum = w->sum;
		UNS_TRY_ALLOC(terms = UNS_NEW_N(sums->arena, struct uns_term, sum.n + 1), err);
		/* A tensor that the adapter has in its place is of the base model's dtype first, as PEFT loads it. */
		terms[0] = (struct uns_term){ .times = 1, .left = { w->shown.tensor, w->dtype, 0 } };
		if (sum.n)
			memcpy(terms + 1, sum.term, sum.n * sizeof(*terms));
		sum.term = terms;
		sum.n++;
		UNS_TRY(uns_sum_tensor_make(w->shown.tensor, w->shown.out, &sum, sums->arena, &w->shown.tensor, err));
		++*n;
	}
	return 0;
}
