/* A checkpoint's weights against those of the model that it was made from, under the names that the view "weights"
 * gives both. Names, shapes and dtypes always; with --deep, which tensors still have the base's values. */
#include "check/checking.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"

enum { SHOWN = 4 };

static void close_list(unshard_tensors **list)
{
	unshard_tensors_close(*list);
}

/* Names, of which a sentence has the first few. */
struct named {
	struct uns_text text;
	const char *first;
	size_t n;
};

static void named_fini(struct named *n)
{
	uns_text_fini(&n->text);
}

static void named_add(struct named *n, const char *name)
{
	if (!n->n)
		n->first = name;
	if (n->n++ < SHOWN)
		uns_text_printf(&n->text, "%s%s", n->n > 1 ? ", " : "", name);
}

static int named_report(struct checking *c, enum uns_finding_id id, const struct named *n)
{
	if (!n->n)
		return 0;
	return n->text.failed
		       ? -ENOMEM
		       : checking_found(c,
					UNS_FINDING(.id = id, .scope = UNS_SCOPE_WEIGHTS, .tensor = n->first,
						    .arg = { { "n", uns_num(n->n) },
							     { "names", uns_str(n->text.p) },
							     { "more", uns_more(n->n > SHOWN ? n->n - SHOWN : 0) } }));
}

/* -- names, shapes, dtypes -- */

static int list_open(struct unshard *u, const char *path, unshard_tensors **out, struct uns_err *err)
{
	struct unshard_error why = { 0 };
	int code = unshard_tensors_open(u, path, "weights", out, &why);

	return code < 0 ? uns_fail(err, code, "%s", why.text) : 0;
}

static int list_map(const unshard_tensors *list, struct uns_map *out, struct uns_err *err)
{
	size_t i;

	for (i = 0; i < unshard_tensors_count(list); i++)
		UNS_TRY_ALLOC(
			uns_map_put(out, unshard_tensors_at(list, i)->name, (void *)unshard_tensors_at(list, i), NULL),
			err);
	return 0;
}

/* save_pretrained leaves a tied head out; other programs keep it. */
static bool may_be_tied(const struct snapshot *snap, const char *name)
{
	return snap->beside.config_info.ties_embeddings && uns_str_ends(name, "lm_head.weight");
}

static bool has_shape_of(const struct unshard_tensor *a, const struct unshard_tensor *b)
{
	return a->n_dims == b->n_dims && memcmp(a->shape, b->shape, a->n_dims * sizeof(*a->shape)) == 0;
}

static int missing_report(struct checking *c, const struct snapshot *snap, const unshard_tensors *base,
			  const struct uns_map *own)
{
	UNS_CLEANUP(named_fini) struct named missing = { 0 }, mtp = { 0 };
	const struct uns_config_info *info = &snap->beside.config_info;
	const char *name, *layer;
	size_t i;
	int code;

	for (i = 0; i < unshard_tensors_count(base); i++) {
		name = unshard_tensors_at(base, i)->name;
		if (uns_map_get(own, name) || may_be_tied(snap, name))
			continue;
		layer = uns_str_starts(name, "model.layers.") ? name + strlen("model.layers.") : NULL;
		if (uns_str_starts(name, "mtp.") || uns_str_starts(name, "model.mtp.") ||
		    (layer && info->num_hidden_layers > 0 && strtoll(layer, NULL, 10) >= info->num_hidden_layers))
			named_add(&mtp, name);
		else
			named_add(&missing, name);
	}
	code = named_report(c, UNS_FOUND_BASE_TENSORS_MISSING, &missing);
	return code ? code : named_report(c, UNS_FOUND_BASE_MTP_MISSING, &mtp);
}

static int unlike_report(struct checking *c, const unshard_tensors *own, const struct uns_map *in_base)
{
	UNS_CLEANUP(named_fini) struct named extra = { 0 }, reshaped = { 0 }, dtypes = { 0 };
	const struct unshard_tensor *t, *base;
	size_t i;
	int code;

	for (i = 0; i < unshard_tensors_count(own); i++) {
		t = unshard_tensors_at(own, i);
		base = uns_map_get(in_base, t->name);
		if (!base)
			named_add(&extra, t->name);
		else if (!has_shape_of(t, base))
			named_add(&reshaped, t->name);
		else if (t->dtype != base->dtype)
			named_add(&dtypes, t->name);
	}
	code = named_report(c, UNS_FOUND_BASE_SHAPES_DIFFER, &reshaped);
	if (code == 0)
		code = named_report(c, UNS_FOUND_BASE_LACKS_TENSORS, &extra);
	return code ? code : named_report(c, UNS_FOUND_BASE_DTYPES_DIFFER, &dtypes);
}

/* -- values -- */

/* Tensors whose names differ in numbers alone: "model.layers.*.mlp.experts.*.up_proj.weight". */
struct alike {
	size_t n, n_equal;
};

struct values {
	struct uns_arena arena;
	struct uns_map by_pattern; /* struct alike */
	const struct uns_map *trained; /* names of parameters that the optimizer has states of */
	struct named frozen; /* of them: a matrix that is equal to the base's */
	size_t n, n_equal;
};

static void values_fini(struct values *v)
{
	uns_map_fini(&v->by_pattern);
	uns_arena_fini(&v->arena);
	named_fini(&v->frozen);
}

static char *pattern_of(struct uns_arena *arena, const char *name)
{
	char *out = UNS_NEW_N(arena, char, strlen(name) + 1), *to = out;
	bool begins = true;
	size_t digits;

	if (!out)
		return NULL;
	while (*name) {
		digits = begins ? strspn(name, "0123456789") : 0;
		if (digits && (name[digits] == '.' || !name[digits])) {
			*to++ = '*';
			name += digits;
			begins = false;
			continue;
		}
		begins = *name == '.';
		*to++ = *name++;
	}
	*to = '\0';
	return out;
}

static int visit_tensor(void *ctx, const struct unshard_tensor_diff *diff)
{
	struct values *v = ctx;
	const bool equal = diff->kind == UNSHARD_DIFF_EQUAL;
	const char *pattern, *name;
	struct alike *alike;

	if (!diff->a || !diff->b || diff->kind == UNSHARD_DIFF_SHAPE || diff->kind == UNSHARD_DIFF_TIED)
		return 0;
	pattern = pattern_of(&v->arena, diff->name);
	if (!pattern)
		return -ENOMEM;
	alike = uns_map_get(&v->by_pattern, pattern);
	if (!alike) {
		alike = UNS_NEW(&v->arena, struct alike);
		if (!alike || !uns_map_put(&v->by_pattern, pattern, alike, NULL))
			return -ENOMEM;
	}
	alike->n++;
	alike->n_equal += equal;
	v->n++;
	v->n_equal += equal;
	/* A norm of ones in bfloat16 often stays as it is: a small step is rounded away. */
	if (!equal || diff->a->n_dims < 2 || !uns_map_get(v->trained, diff->name))
		return 0;
	name = uns_arena_str(&v->arena, diff->name);
	if (!name)
		return -ENOMEM;
	named_add(&v->frozen, name);
	return 0;
}

/* Patterns all of whose tensors are equal to the base's, the ones with most tensors first as long as they fit. */
static int equal_report(struct checking *c, struct values *v)
{
	UNS_CLEANUP(named_fini) struct named list = { 0 };
	const char *pattern;
	void *value;
	size_t at = 0;

	while (uns_map_next(&v->by_pattern, &at, &pattern, &value)) {
		const struct alike *alike = value;

		if (alike->n_equal == alike->n)
			named_add(&list, uns_arena_printf(&v->arena, "%s (%zu)", pattern, alike->n));
	}
	if (list.text.failed)
		return -ENOMEM;
	return checking_found(c, UNS_FINDING(.id = UNS_FOUND_BASE_VALUES_EQUAL,
					     .arg = { { "n", uns_num(v->n_equal) },
						      { "total", uns_num(v->n) },
						      { "names", uns_str(list.text.p) },
						      { "more", uns_more(list.n > SHOWN ? list.n - SHOWN : 0) } }));
}

static int trained_find(const struct uns_catalog *cat, struct uns_map *out, struct uns_err *err)
{
	size_t i;

	for (i = 0; i < cat->n_tensors; i++)
		if (cat->tensors[i].role == UNS_ROLE_EXP_AVG)
			UNS_TRY_ALLOC(uns_map_put(out, cat->tensors[i].name, (void *)&cat->tensors[i], NULL), err);
	return 0;
}

static int values_check(struct checking *c, const struct snapshot *snap, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map trained = UNS_MAP_INIT;
	UNS_CLEANUP(values_fini) struct values v = { .trained = &trained };
	const struct unshard_diff_options options = { UNSHARD_DIFF_OPTIONS_INIT, .flags = UNSHARD_DIFF_TENSORS };
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = &v, .tensor_diff = visit_tensor };
	struct unshard_diff_counts counts = { UNSHARD_DIFF_COUNTS_INIT };
	struct unshard_error why = { 0 };
	int code;

	UNS_TRY(trained_find(snap->cat, &trained, err));
	code = unshard_diff(c->u, c->path, c->base, c->base_path, &options, &calls, &counts, &why);
	if (code < 0)
		return uns_fail(err, code, "%s", why.text);
	c->counts.read_bytes += counts.read_bytes;
	code = named_report(c, UNS_FOUND_TRAINED_EQUALS_BASE, &v.frozen);
	return code == 0 && v.n_equal ? equal_report(c, &v) : code;
}

int check_base(struct checking *c, struct snapshot *snap, struct uns_err *err)
{
	UNS_CLEANUP(close_list) unshard_tensors *own = NULL;
	UNS_CLEANUP(close_list) unshard_tensors *base = NULL;
	UNS_CLEANUP(uns_map_fini) struct uns_map by_name = UNS_MAP_INIT;
	UNS_CLEANUP(uns_map_fini) struct uns_map in_base = UNS_MAP_INIT;
	struct uns_err why = { 0 };
	int code;

	if (!c->base)
		return 0;
	if (snap->cat->summary.adapter == UNS_ADAPTER_ALONE)
		return checking_found(c, UNS_FINDING(.id = UNS_FOUND_BASE_OF_ADAPTER));
	UNS_TRY(list_open(c->base, c->base_path, &base, err));
	code = list_open(c->u, c->path, &own, &why);
	if (code < 0) /* what keeps the view from showing it has findings of its own */
		return uns_code_is_finding(code) ? 0 : uns_fail_copy(err, &why);
	UNS_TRY(list_map(own, &by_name, err));
	UNS_TRY(list_map(base, &in_base, err));
	code = missing_report(c, snap, base, &by_name);
	if (code == 0)
		code = unlike_report(c, own, &in_base);
	return code == 0 && c->deep ? values_check(c, snap, err) : code;
}
