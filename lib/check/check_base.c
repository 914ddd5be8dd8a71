/* A checkpoint's weights against those of the model that it was made from, under the names that the view "weights"
 * gives both. Names, shapes and dtypes always; with --deep, which tensors still have the base's values. */
#include "check/checking.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "files/named_optimizer.h"

enum { SHOWN = 4 };

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

/* 0 or -ENOMEM. */
static int named_add(struct named *n, const char *name, struct uns_arena *arena)
{
	if (!n->n && !(n->first = uns_arena_str(arena, name)))
		return -ENOMEM;
	if (n->n++ < SHOWN)
		uns_text_printf(&n->text, "%s%s", n->n > 1 ? ", " : "", name);
	return n->text.failed ? -ENOMEM : 0;
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

struct unlike {
	const struct uns_config_info *info; /* of the model */
	struct named missing, mtp, reshaped, extra, dtypes;
};

static void unlike_fini(struct unlike *u)
{
	named_fini(&u->missing);
	named_fini(&u->mtp);
	named_fini(&u->reshaped);
	named_fini(&u->extra);
	named_fini(&u->dtypes);
}

/* save_pretrained leaves a tied head out; other programs keep it. */
static bool may_be_tied(const struct uns_config_info *info, const char *name)
{
	return info->ties_embeddings && uns_str_ends(name, "lm_head.weight");
}

static bool is_mtp(const struct uns_config_info *info, const char *name)
{
	const char *layer = uns_str_starts(name, "model.layers.") ? name + strlen("model.layers.") : NULL;

	return uns_str_starts(name, "mtp.") || uns_str_starts(name, "model.mtp.") ||
	       (layer && info->num_hidden_layers > 0 && strtoll(layer, NULL, 10) >= info->num_hidden_layers);
}

/* a: the model's tensor; b: the base's. The list where a pair is reported; NULL = nowhere. */
static struct named *list_of(struct unlike *u, const struct unshard_tensor_diff *diff)
{
	if (!diff->a && may_be_tied(u->info, diff->name))
		return NULL;
	if (!diff->a)
		return is_mtp(u->info, diff->name) ? &u->mtp : &u->missing;
	if (!diff->b)
		return &u->extra;
	if (diff->kind == UNSHARD_DIFF_SHAPE)
		return &u->reshaped;
	return diff->a->dtype != diff->b->dtype ? &u->dtypes : NULL;
}

static int unlike_report(struct checking *c, const struct unlike *u)
{
	int code = named_report(c, UNS_FOUND_BASE_TENSORS_MISSING, &u->missing);

	if (code == 0)
		code = named_report(c, UNS_FOUND_BASE_MTP_MISSING, &u->mtp);
	if (code == 0)
		code = named_report(c, UNS_FOUND_BASE_SHAPES_DIFFER, &u->reshaped);
	if (code == 0)
		code = named_report(c, UNS_FOUND_BASE_LACKS_TENSORS, &u->extra);
	return code ? code : named_report(c, UNS_FOUND_BASE_DTYPES_DIFFER, &u->dtypes);
}

/* -- values -- */

/* Tensors whose names differ in numbers alone: "model.layers.*.mlp.experts.*.up_proj.weight". */
struct alike {
	size_t n, n_equal;
};

struct values {
	struct uns_arena arena;
	struct uns_map by_pattern; /* struct alike */
	struct uns_map trained; /* keys of the weights that the optimizer has states of */
	struct unlike unlike;
	bool deep;
	struct named frozen; /* of them: a matrix that is equal to the base's */
	size_t n, n_equal;
};

static void values_fini(struct values *v)
{
	uns_map_fini(&v->by_pattern);
	uns_map_fini(&v->trained);
	unlike_fini(&v->unlike);
	named_fini(&v->frozen);
	uns_arena_fini(&v->arena);
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

static int visit_values(struct values *v, const struct unshard_tensor_diff *diff)
{
	const bool equal = diff->kind == UNSHARD_DIFF_EQUAL;
	struct alike *alike;
	const char *pattern;

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
	return equal && diff->a->n_dims >= 2 && uns_map_get(&v->trained, diff->a->key)
		       ? named_add(&v->frozen, diff->name, &v->arena)
		       : 0;
}

static int visit_tensor(void *ctx, const struct unshard_tensor_diff *diff)
{
	struct values *v = ctx;
	struct named *list = list_of(&v->unlike, diff);
	const int code = list ? named_add(list, diff->name, &v->arena) : 0;

	return code == 0 && v->deep ? visit_values(v, diff) : code;
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
			named_add(&list, uns_arena_printf(&v->arena, "%s (%zu)", pattern, alike->n), &v->arena);
	}
	if (list.text.failed || v->arena.failed)
		return -ENOMEM;
	return checking_found(c, UNS_FINDING(.id = UNS_FOUND_BASE_VALUES_EQUAL,
					     .arg = { { "n", uns_num(v->n_equal) },
						      { "total", uns_num(v->n) },
						      { "names", uns_str(list.text.p) },
						      { "more", uns_more(list.n > SHOWN ? list.n - SHOWN : 0) } }));
}

/* One tensor of the model may be published as several, under names that the optimizer does not have: they have its key.
 * Numbers in place of names are those of the model's order, if it is known. */
static int trained_find(struct values *v, const struct snapshot *snap, struct uns_err *err)
{
	UNS_CLEANUP(uns_vtree_fini) struct uns_vtree scratch = { .n = 0 };
	UNS_CLEANUP(uns_map_fini) struct uns_map names = UNS_MAP_INIT;
	const struct uns_catalog *cat = snap->cat;
	const struct uns_tensor *t;
	struct uns_err why = { 0 };
	int code = uns_numbered_name(&snap->beside.config_info, snap->beside.config, snap->cat, &scratch, &cat, &why);

	if (code < 0 && !uns_code_is_finding(code))
		return uns_fail_copy(err, &why);
	if (code < 0)
		cat = snap->cat;
	for (t = cat->tensors; t < cat->tensors + cat->n_tensors; t++)
		if (t->role == UNS_ROLE_EXP_AVG)
			UNS_TRY_ALLOC(uns_map_put(&names, t->name, (void *)t, NULL), err);
	for (t = cat->tensors; t < cat->tensors + cat->n_tensors; t++)
		if ((t->role == UNS_ROLE_WEIGHT || t->role == UNS_ROLE_MASTER) && uns_map_get(&names, t->name))
			UNS_TRY_ALLOC(uns_map_put(&v->trained, uns_arena_str(&v->arena, t->key), v, NULL), err);
	return 0;
}

static int base_compare(struct checking *c, struct values *v, struct uns_err *err)
{
	const struct unshard_diff_options options = {
		UNSHARD_DIFF_OPTIONS_INIT, .flags = UNSHARD_DIFF_TENSORS | (c->deep ? 0 : UNSHARD_DIFF_NAMES)
	};
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = v, .tensor_diff = visit_tensor };
	struct unshard_diff_counts counts = { UNSHARD_DIFF_COUNTS_INIT };
	struct unshard_error why = { 0 };
	int code = unshard_diff(c->u, c->path, c->base, c->base_path, &options, &calls, &counts, &why);

	c->counts.read_bytes += counts.read_bytes;
	return code < 0 ? uns_fail(err, code, "%s", why.text) : 0;
}

static int can_be_listed(struct unshard *u, const char *path, struct uns_err *err)
{
	unshard_tensors *list = NULL;
	struct unshard_error why = { 0 };
	int code = unshard_tensors_open(u, path, "weights", &list, &why);

	unshard_tensors_close(list);
	return code < 0 ? uns_fail(err, code, "%s", why.text) : 0;
}

int check_base(struct checking *c, struct snapshot *snap, struct uns_err *err)
{
	UNS_CLEANUP(values_fini) struct values v = { .deep = c->deep, .unlike.info = &snap->beside.config_info };
	struct uns_err why = { 0 };
	int code;

	if (!c->base)
		return 0;
	if (snap->cat->summary.adapter == UNS_ADAPTER_ALONE)
		return checking_found(c, UNS_FINDING(.id = UNS_FOUND_BASE_OF_ADAPTER));
	UNS_TRY(can_be_listed(c->base, c->base_path, err));
	code = can_be_listed(c->u, c->path, &why);
	if (code < 0) /* what keeps the view from showing it has findings of its own */
		return uns_code_is_finding(code) ? 0 : uns_fail_copy(err, &why);
	if (c->deep)
		UNS_TRY(trained_find(&v, snap, err));
	UNS_TRY(base_compare(c, &v, err));
	code = unlike_report(c, &v.unlike);
	if (code == 0)
		code = named_report(c, UNS_FOUND_TRAINED_EQUALS_BASE, &v.frozen);
	return code == 0 && v.n_equal ? equal_report(c, &v) : code;
}
