/* The names and numbers of experts, and the ranks that have them. Arithmetic alone. */
#include "parallel/experts.h"

#include <string.h>

bool uns_zero_expert_of(const char *name, size_t *prefix, uint64_t *number, const char **rest)
{
	static const char mark[] = ".deepspeed_experts.";
	const char *at = NULL, *next = name;

	while ((next = strstr(next, mark)) != NULL)
		at = next += strlen(mark);
	if (!at || *at < '0' || *at > '9')
		return false;
	*prefix = (size_t)(at - name);
	for (*number = 0; *at >= '0' && *at <= '9' && *number < UINT32_MAX; at++)
		*number = *number * 10 + (uint64_t)(*at - '0');
	*rest = at;
	return *at == '.';
}

bool uns_zero_experts_of_one_layer(const char *a, const char *b)
{
	size_t prefix_a, prefix_b;
	const char *rest;
	uint64_t number;

	return uns_zero_expert_of(a, &prefix_a, &number, &rest) && uns_zero_expert_of(b, &prefix_b, &number, &rest) &&
	       prefix_a == prefix_b && memcmp(a, b, prefix_a) == 0;
}

void uns_zero_experts_ranks(const struct uns_value *config, uint64_t world, size_t n, size_t e, uint64_t *first,
			    uint64_t *stride)
{
	const struct uns_value *v = uns_value_get(config, "use_data_before_expert_parallelism");
	bool data_first = v && v->kind == UNS_VALUE_BOOL && v->b;

	*stride = data_first ? 1 : n;
	*first = data_first ? e * (world / n) : e;
}

/* "LAYER.deepspeed_experts." */
static const char *layer_of(const char *name, uint64_t *number, struct uns_arena *arena)
{
	const char *rest;
	size_t prefix;

	return uns_zero_expert_of(name, &prefix, number, &rest) ? uns_arena_strn(arena, name, prefix) : NULL;
}

int uns_zero_experts_count(const struct uns_zero_shapes *shapes, size_t n_shapes, struct uns_arena *arena,
			   struct uns_map *out, struct uns_err *err)
{
	const char *layer;
	uint64_t number;
	size_t g, i;

	for (g = 0; g < n_shapes; g++)
		for (i = 0; i < shapes[g].n; i++) {
			layer = layer_of(shapes[g].v[i].name, &number, arena);
			if (layer &&
			    (uns_map_index(out, layer) == UNS_MAP_NO_INDEX || number > uns_map_index(out, layer)) &&
			    !uns_map_put_index(out, layer, (uint32_t)number))
				return uns_oom(err);
		}
	return 0;
}

/* Behind the last parameter of the layer that parameter `first` belongs to. */
static size_t end_of_layer(const struct uns_zero_shapes *of, size_t first)
{
	size_t i = first;

	while (i < of->n && uns_zero_experts_of_one_layer(of->v[first].name, of->v[i].name))
		i++;
	return i;
}

struct spreading {
	struct uns_zero_spread *out;
	uint32_t *owner;
	struct uns_arena *arena;
};

static int add_param(struct spreading *s, const struct uns_zero_param *p, uint64_t n_local, uint32_t share,
		     struct uns_err *err)
{
	struct uns_zero_shapes *whole = &s->out->whole, *part = &s->out->share[share];
	struct uns_zero_param named = *p;
	const char *rest;
	uint64_t number;
	size_t prefix;

	if (!uns_zero_expert_of(p->name, &prefix, &number, &rest))
		return uns_fail(err, -ENOTSUP, "%s is none of an expert's parameters", p->name);
	UNS_TRY_ALLOC(named.name = uns_arena_printf(s->arena, "%.*s%llu%s", (int)prefix, p->name,
						    (unsigned long long)(share * n_local + number), rest),
		      err);
	s->owner[whole->n] = share;
	whole->v[whole->n++] = part->v[part->n++] = named;
	return 0;
}

int uns_zero_experts_spread(struct uns_zero_shapes *of, const struct uns_map *last, size_t n, struct uns_arena *arena,
			    struct uns_zero_spread *out, struct uns_err *err)
{
	enum { MAX_PARAMS = 1 << 20 };
	struct spreading s = { out, NULL, arena };
	size_t i, k, end;
	uint64_t n_local, unused;
	const char *layer;
	uint32_t e;

	*out = (struct uns_zero_spread){ .whole = *of, .share = of, .n = 1 };
	if (n == 1)
		return 0;
	if (n > MAX_PARAMS || n * of->n > MAX_PARAMS)
		return uns_fail(err, -ENOTSUP, "too many parameters of experts");
	out->n = n;
	out->share = UNS_NEW_N(arena, struct uns_zero_shapes, n);
	out->whole = (struct uns_zero_shapes){ .v = UNS_NEW_N(arena, struct uns_zero_param, n * of->n) };
	out->owner = s.owner = UNS_NEW_N(arena, uint32_t, n * of->n);
	UNS_TRY_ALLOC(out->share && out->whole.v && s.owner, err);
	for (k = 0; k < n; k++) {
		UNS_TRY_ALLOC(out->share[k].v = UNS_NEW_N(arena, struct uns_zero_param, of->n), err);
	}
	for (i = 0; i < of->n; i = end) {
		layer = layer_of(of->v[i].name, &unused, arena);
		if (!layer)
			return uns_fail(err, -ENOTSUP, "%s is none of an expert's parameters", of->v[i].name);
		n_local = (uint64_t)uns_map_index(last, layer) + 1;
		end = end_of_layer(of, i);
		for (e = 0; e < n; e++)
			for (k = i; k < end; k++)
				UNS_TRY(add_param(&s, &of->v[k], n_local, e, err));
	}
	return 0;
}
