/* Reads a unit map, which is JSON. Owns the comparison of its names, shapes and sizes with those of the checkpoint. */
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "ranks/units.h"
#include "wire/json.h"

struct map_reading {
	const struct uns_rank_params *params;
	const struct uns_rank_unit_sizes *sizes;
	struct uns_map by_name; /* index + 1 */
	bool *seen;             /* parallel to the parameters */
	uint64_t *elems;        /* of each unit */
};

static void map_reading_fini(struct map_reading *l)
{
	uns_map_fini(&l->by_name);
}

/* -- one parameter -- */

static bool shape_of_json(const cJSON *list, struct uns_shape *out)
{
	const cJSON *item;

	*out = (struct uns_shape){ 0 };
	if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) > UNS_MAX_DIMS)
		return false;
	cJSON_ArrayForEach (item, list) {
		if (!cJSON_IsNumber(item) || item->valuedouble < 0 || item->valuedouble > 1e15)
			return false;
		out->dim[out->n++] = (uint64_t)item->valuedouble;
	}
	return true;
}

static int add_param(struct map_reading *l, size_t unit, const cJSON *item, size_t *out, struct uns_err *why)
{
	const char *name = uns_json_str(item, "name");
	uintptr_t index = name ? (uintptr_t)uns_map_get(&l->by_name, name) : 0;
	const struct uns_rank_param *p = index ? &l->params->v[index - 1] : NULL;
	struct uns_shape shape;
	char a[128], b[128];

	if (!name || !shape_of_json(cJSON_GetObjectItemCaseSensitive(item, "shape"), &shape))
		return uns_fail(why, -EBADMSG,
				"unit %zu of the unit map has a parameter without \"name\" and \"shape\"", unit);
	if (!p)
		return uns_fail(why, -EBADMSG, "unit %zu of the unit map has %s, which is not a parameter of the model",
				unit, name);
	if (!uns_shape_equal(&p->shape, &shape))
		return uns_fail(why, -EBADMSG, "%s has shape %s in the unit map, but %s in the model", name,
				uns_shape_text(&shape, a, sizeof(a)), uns_shape_text(&p->shape, b, sizeof(b)));
	if (l->seen[index - 1])
		return uns_fail(why, -EBADMSG, "the unit map has %s twice", name);
	l->seen[index - 1] = true;
	l->elems[unit] += uns_shape_elems(&shape);
	*out = index - 1;
	return 0;
}

static int add_unit(struct map_reading *l, size_t unit, const cJSON *item, struct uns_arena *arena,
		    struct uns_rank_unit *out, struct uns_err *why)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(item, "params"), *param;
	size_t *v;

	if (!cJSON_IsArray(list))
		return uns_fail(why, -EBADMSG, "unit %zu of the unit map has no list \"params\"", unit);
	UNS_TRY_ALLOC(v = UNS_NEW_N(arena, size_t, (size_t)cJSON_GetArraySize(list)), why);
	cJSON_ArrayForEach (param, list)
		UNS_TRY(add_param(l, unit, param, &v[out->n++], why));
	out->param = v;
	return 0;
}

/* -- all of them -- */

/* With HSDP units are cut for fewer ranks than there are. */
static int find_ranks(const struct map_reading *l, size_t *out, struct uns_err *why)
{
	size_t n = l->sizes->n_ranks, i = 0, odd = 0, ranks;

	for (ranks = n; ranks > 0; ranks--) {
		if (n % ranks)
			continue;
		for (i = 0; i < l->sizes->n; i++)
			if (!uns_rank_unit_fits(l->elems[i], l->sizes->elems[i], ranks))
				break;
		if (i == l->sizes->n) {
			*out = ranks;
			return 0;
		}
		if (ranks == n)
			odd = i;
	}
	return uns_fail(
		why, -EBADMSG,
		"unit %zu of the unit map has %llu elements, but the optimizer's unit has %llu on each of %zu ranks",
		odd, (unsigned long long)l->elems[odd], (unsigned long long)l->sizes->elems[odd], n);
}

int uns_rank_units_read(const char *text, const struct uns_rank_params *params, const struct uns_rank_unit_sizes *sizes,
			struct uns_arena *arena, struct uns_rank_units *out, struct uns_err *why)
{
	UNS_CLEANUP(map_reading_fini) struct map_reading l = { .params = params, .sizes = sizes };
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	struct uns_rank_unit *v = UNS_NEW_N(arena, struct uns_rank_unit, sizes->n);
	const cJSON *list, *item;
	size_t i, n = 0;

	UNS_TRY_ALLOC(v, why);
	UNS_TRY_ALLOC(l.seen = UNS_NEW_N(arena, bool, params->n), why);
	UNS_TRY_ALLOC(l.elems = UNS_NEW_N(arena, uint64_t, sizes->n), why);
	for (i = 0; i < params->n; i++)
		UNS_TRY_ALLOC(uns_map_put(&l.by_name, params->v[i].name, (void *)(uintptr_t)(i + 1), NULL), why);
	if (uns_json_parse(uns_span_of(text, strlen(text)), &json, why) < 0)
		return uns_fail_in(why, "the unit map");
	list = cJSON_GetObjectItemCaseSensitive(json, "units");
	if (!cJSON_IsArray(list) || (size_t)cJSON_GetArraySize(list) != sizes->n)
		return uns_fail(why, -EBADMSG, "the number of units is %d in the unit map, but %zu in the optimizer",
				cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0, sizes->n);
	cJSON_ArrayForEach (item, list) {
		UNS_TRY(add_unit(&l, n, item, arena, &v[n], why));
		n++;
	}
	for (i = 0; i < params->n; i++)
		if (!l.seen[i] && !params->v[i].twin) /* a second name of a tied weight is in no unit */
			return uns_fail(why, -EBADMSG, "no unit of the unit map has the model's parameter %s",
					params->v[i].name);
	out->v = v;
	return find_ranks(&l, &out->shard_ranks, why);
}
