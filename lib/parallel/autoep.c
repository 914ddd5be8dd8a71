/* Reads the layers that a model file records, and spreads a group's parameters over the ranks that share them. Reads no
 * tensors. */
#include "parallel/autoep.h"

#include <string.h>

enum { MAX_EXPERTS = 1 << 12, MAX_RANKS = 1 << 12, MAX_PARAMS = 1 << 20, MAX_OF_LAYER = 16 };

void uns_zero_autoep_fini(struct uns_zero_autoep *autoep)
{
	uns_zero_slices_fini(&autoep->slices);
}

static int not_understood(const char *file, const char *cause, struct uns_err *err)
{
	return UNS_FAIL_WITH(err, ZERO_AUTOEP, .scope = UNS_SCOPE_ALL, .file = file,
			     .arg = { { "cause", uns_str(cause) } });
}

/* -- layers -- */

/* Each expert of the layer is one index of the parameters' first dimension. */
static int check_params(const struct uns_zero_autoep *autoep, const struct uns_zero_autoep_layer *layer,
			const char *file, struct uns_err *err)
{
	const struct uns_zero_cut_up *cut;
	const char *name;
	size_t i;

	for (i = 0; i < layer->params->n; i++) {
		name = uns_value_str(layer->params->pair[i].key);
		cut = name ? uns_zero_cut_find(&autoep->slices, name) : NULL;
		if (!cut || cut->whole.n < 2 || cut->whole.dim[0] != layer->n_experts)
			return not_understood(file, "a parameter's first dimension is not that of the experts", err);
	}
	return 0;
}

static int read_layer(const struct uns_value *v, const char *file, struct uns_arena *arena, struct uns_zero_autoep *out,
		      struct uns_err *err)
{
	struct uns_zero_autoep_layer *layer = &out->layer[out->n];
	const struct uns_value *maps = uns_value_get(v, "affine_maps");
	uint64_t number, n_ranks, rank = 0;

	layer->module = uns_value_str(uns_value_get(v, "module_path"));
	uns_value_u64(uns_value_get(v, "ep_rank"), &rank);
	if (!layer->module || !uns_value_u64(uns_value_get(v, "moe_layer_id"), &number) || number > INT32_MAX ||
	    !uns_value_u64(uns_value_get(v, "num_experts"), &layer->n_experts) || layer->n_experts > MAX_EXPERTS ||
	    !uns_value_u64(uns_value_get(v, "ep_size"), &n_ranks) || !n_ranks || n_ranks > MAX_RANKS || rank >= n_ranks)
		return not_understood(file, "what it records of a layer has not the form that is known", err);
	if (out->n && (n_ranks != out->slices.n_ranks || rank != out->rank))
		return not_understood(file, "different numbers of ranks share the experts of its layers", err);
	layer->number = (int32_t)number;
	out->slices.n_ranks = (size_t)n_ranks;
	out->rank = (size_t)rank;
	UNS_TRY(uns_zero_slices_read_experts(maps, file, arena, &out->slices, err));
	layer->params = uns_value_get(maps, "params");
	if (layer->params->n > MAX_OF_LAYER)
		return not_understood(file, "a layer has too many parameters", err);
	out->n++;
	return check_params(out, layer, file, err);
}

int uns_zero_autoep_read(const struct uns_value *layers, const char *file, struct uns_arena *arena,
			 struct uns_zero_autoep *out, struct uns_err *err)
{
	size_t i, n = layers && layers->kind == UNS_VALUE_LIST ? layers->n : 0;

	*out = (struct uns_zero_autoep){ .slices = { .n_ranks = 1 },
					 .layer = UNS_NEW_N(arena, struct uns_zero_autoep_layer, n) };
	UNS_TRY_ALLOC(out->layer, err);
	for (i = 0; i < n; i++)
		UNS_TRY(read_layer(layers->item[i], file, arena, out, err));
	return 0;
}

/* -- names -- */

/* Behind "MODULE.", or NULL. */
static const char *name_inside(const struct uns_zero_autoep_layer *layer, const char *name)
{
	size_t n = strlen(layer->module);

	return strncmp(name, layer->module, n) == 0 && name[n] == '.' ? name + n + 1 : NULL;
}

int uns_zero_autoep_router(const struct uns_zero_autoep *autoep, const char *name, struct uns_arena *arena,
			   const char **out, struct uns_err *err)
{
	static const char *const own[] = { "router", "experts", "shared_experts", "shared_experts_gate" };
	const char *rest, *dot = NULL;
	size_t i, k;

	*out = NULL;
	for (i = 0; i < autoep->n && !dot; i++) {
		rest = name_inside(&autoep->layer[i], name);
		dot = rest ? strchr(rest, '.') : NULL;
		for (k = 0; dot && k < sizeof(own) / sizeof(*own); k++)
			if (strncmp(rest, own[k], (size_t)(dot - rest)) == 0 && !own[k][dot - rest])
				return 0;
		if (dot)
			*out = uns_arena_printf(arena, "%s.router%s", autoep->layer[i].module, dot);
	}
	return dot && !*out ? uns_oom(err) : 0;
}

/* -- shares of a group -- */

static struct uns_zero_param param_of(const char *name, const struct uns_shape *shape)
{
	return (struct uns_zero_param){ .name = name, .shape = *shape, .elems = uns_shape_elems(shape) };
}

int uns_zero_autoep_spread(const struct uns_zero_shapes *of, const struct uns_zero_autoep *autoep, const char *file,
			   size_t n, struct uns_arena *arena, struct uns_zero_spread *out, struct uns_err *err)
{
	const struct uns_zero_slices *slices = &autoep->slices;
	const struct uns_zero_cut_up *cut;
	size_t i, k;

	*out = (struct uns_zero_spread){ .slices = slices, .n = n };
	if (n != slices->n_ranks || n > MAX_PARAMS || n * of->n > MAX_PARAMS)
		return uns_fail(err, -ENOTSUP, "another number of ranks shares the experts");
	out->share = UNS_NEW_N(arena, struct uns_zero_shapes, n);
	out->whole = (struct uns_zero_shapes){ .v = UNS_NEW_N(arena, struct uns_zero_param, of->n), .n = of->n };
	UNS_TRY_ALLOC(out->share && out->whole.v, err);
	for (k = 0; k < n; k++) {
		out->share[k] =
			(struct uns_zero_shapes){ .v = UNS_NEW_N(arena, struct uns_zero_param, of->n), .n = of->n };
		UNS_TRY_ALLOC(out->share[k].v, err);
	}
	for (i = 0; i < of->n; i++) {
		const char *name = of->v[i].name;

		UNS_TRY(uns_zero_cut_get(slices, name, file, (int32_t)autoep->rank, &cut, err));
		UNS_TRY(uns_zero_slice_check(&cut->slice[autoep->rank], &of->v[i].shape, file, name,
					     (int32_t)autoep->rank, err));
		out->whole.v[i] = param_of(name, &cut->whole);
		for (k = 0; k < n; k++)
			out->share[k].v[i] = param_of(name, &cut->slice[k].shape);
	}
	return 0;
}
