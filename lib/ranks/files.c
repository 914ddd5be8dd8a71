/* The reader of per-rank torch.save files: each rank pickled its own state dict, in which a tensor is the rank's shard
 * (a DTensor or ShardedTensor, which records its rows) or a plain tensor that every rank has.
 *
 * Files are opened one after the other (ranks/reading.c). This file owns finding the tensors in their dicts, and their
 * names; ranks/merge.c merges all ranks' views of a tensor into one with many pieces, and reports both files if two
 * views contradict each other. Wrappers are read by ranks/dtensor.c. Optimizers of FSDP1 hold flattened stretches
 * without shapes: ranks/optim.c. */
#include "ranks/files.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "ranks/optim.h"
#include "ranks/reading.h"
#include "ranks/values.h"
#include "ranks/dtensor.h"
#include "wire/value_new.h"

#define MODEL_ROOT     "model"
#define OPTIMIZER_ROOT "optimizer"
#define PARAM_NAMES    "param_names" /* of a param group; torch 2.6 and newer */

/* The files of model or optimizer while they are being read. */
struct reading {
	struct uns_rank_reading files;
	const char *const *keys; /* path of the model's state dict in the file; NULL = the whole file */
	const char *beside; /* the key, if it is no model's, but another's of the same form; else NULL */
	const struct uns_rank_params *params; /* the parameters that numbers mean; NULL = numbers mean nothing */
	struct uns_rank_params without_twins;          /* what `params` points to where they are not counted */
	struct uns_rank_optim optim;    /* numbered states that are parts of flat tensors */
	const struct uns_value *groups; /* the first file's param groups */
	bool keeps_numbers; /* numbers stay numbers, unless the groups list names beside them */
	const char *first_path;
};

static void reading_fini(struct reading *r)
{
	uns_rank_reading_fini(&r->files);
	uns_rank_optim_fini(&r->optim);
}

static bool is_tensor(const struct uns_value *v)
{
	return uns_torch_is_tensor(v) || uns_dtensor_is(v);
}

/* An object that would be lost if it were a value: modules' own extra state may be anything. */
static bool is_unknown(const char *name, const struct uns_value *v)
{
	return !is_tensor(v) && v->kind == UNS_VALUE_OBJECT && v->cls && !uns_str_ends(name, "_extra_state");
}

/* Kept of the first file only: values are not sharded. */
static int add_value(struct reading *r, const struct uns_rank_source *source, const char *root, const char *name,
		     const struct uns_value *v, struct uns_err *err)
{
	struct uns_named_value named = { .name = name, .root = root, .value = v, .file = source->file };

	return r->files.n_read ? 0 : uns_catalog_add_value(r->files.cat, &named, err);
}

/* -- model -- */

static int add_model_entry(struct reading *r, struct uns_rank_source *source, const char *name,
			   const struct uns_value *v, struct uns_err *err)
{
	struct uns_tensor like = { .name = name, .key = name, .root = MODEL_ROOT, .role = UNS_ROLE_WEIGHT };

	if (r->beside) {
		like.root = r->beside;
		like.role = UNS_ROLE_OTHER;
	}

	if (is_unknown(name, v))
		return uns_rank_merge_add_unknown(&r->files.merge, source, name, v->cls, err);
	if (!is_tensor(v))
		return add_value(r, source, MODEL_ROOT, name, v, err);
	return uns_rank_merge_add(&r->files.merge, source, &like, v, err);
}

/* Keeps what view world-N needs to write such files: the class of the dict, and one DTensor as it was pickled. */
static int add_form(struct reading *r, const struct uns_rank_source *source, const struct uns_value *dict,
		    struct uns_err *err)
{
	struct uns_value *bare = UNS_NEW(&r->files.cat->arena, struct uns_value);
	const struct uns_value *v;
	size_t i;

	UNS_TRY_ALLOC(bare, err);
	bare->kind = UNS_VALUE_DICT;
	bare->cls = dict->cls;
	bare->state = dict->state;
	for (i = 0; i < dict->n; i++) {
		v = dict->pair[i].value;
		if (!uns_dtensor_is(v) || !uns_str_ends(uns_value_at(v->object.args, 1)->cls, ".DTensor"))
			continue;
		UNS_TRY(add_value(r, source, UNS_RANK_FORM, "dtensor", v, err));
		break;
	}
	return add_value(r, source, UNS_RANK_FORM, "state_dict", bare, err);
}

static int add_model(void *ctx, struct uns_rank_source *source, struct uns_err *err)
{
	struct reading *r = ctx;
	const struct uns_value *dict = source->torch->root;
	size_t i;

	for (i = 0; r->keys && r->keys[i]; i++)
		dict = uns_value_get(dict, r->keys[i]);
	if (!dict || dict->kind != UNS_VALUE_DICT)
		return uns_fail(err, -ENOTSUP, "the file holds no state dict");
	if (!r->files.n_read && !r->beside)
		UNS_TRY(add_form(r, source, dict, err));
	for (i = 0; i < dict->n; i++) {
		const char *name = uns_value_str(dict->pair[i].key);

		if (!name)
			return uns_fail(err, -ENOTSUP, "a state dict with a key that is not a name");
		UNS_TRY(add_model_entry(r, source, name, dict->pair[i].value, err));
	}
	return 0;
}

static int read_model(struct reading *r, struct uns_catalog *cat, const struct uns_root *root,
		      const struct uns_rank_file *files, size_t n, struct uns_err *err)
{
	UNS_TRY(uns_rank_reading_init(&r->files, cat, root, UNS_SCOPE_WEIGHTS, n, err));
	UNS_TRY(uns_rank_reading_add(&r->files, files, n, add_model, r, err));
	if (!r->files.n_read || r->files.merge.first || r->files.merge.findings.n)
		return 0;
	return UNS_ADD_FINDING(cat, err, RANK_NO_TENSORS, .scope = UNS_SCOPE_WEIGHTS, .file = files[0].path);
}

int uns_rank_files_add_model_params(struct uns_catalog *cat, const struct uns_root *root,
				    const struct uns_rank_file *files, size_t n, struct uns_rank_params *params,
				    struct uns_err *err)
{
	UNS_CLEANUP(reading_fini) struct reading r = { 0 };

	UNS_TRY(read_model(&r, cat, root, files, n, err));
	return params ? uns_rank_merge_params(&r.files.merge, params, err) : 0;
}

static int add_below(struct reading *r, struct uns_catalog *cat, const struct uns_root *root, const char *path,
		     struct uns_err *err)
{
	const struct uns_rank_file one = { .path = path };
	uint32_t file;

	UNS_TRY(uns_catalog_add_file(cat, root, path, &file, err));
	return read_model(r, cat, root, &one, 1, err);
}

int uns_rank_files_add_model_below(struct uns_catalog *cat, const struct uns_root *root, const char *path,
				   const char *const *keys, struct uns_err *err)
{
	UNS_CLEANUP(reading_fini) struct reading r = { .keys = keys };

	return add_below(&r, cat, root, path, err);
}

int uns_rank_files_add_beside(struct uns_catalog *cat, const struct uns_root *root, const char *path, const char *key,
			      struct uns_err *err)
{
	const char *const keys[] = { key, NULL };
	UNS_CLEANUP(reading_fini) struct reading r = { .keys = keys, .beside = key };

	return add_below(&r, cat, root, path, err);
}

int uns_rank_files_add_model(struct uns_catalog *cat, const struct uns_root *root, const struct uns_rank_file *files,
			     size_t n, struct uns_err *err)
{
	return uns_rank_files_add_model_params(cat, root, files, n, NULL, err);
}

/* -- optimizer -- */

/* The parameter that a state belongs to. */
struct owner {
	const char *name;
	const char *key;  /* the file's name or number for it */
	int64_t number;   /* -1 = it has a name */
};

static int add_state_entry(struct reading *r, struct uns_rank_source *source, const struct owner *owner,
			   const char *state, const struct uns_value *v, struct uns_err *err)
{
	struct uns_arena *arena = r->files.n_read ? &r->files.merge.scratch : &r->files.cat->arena;
	struct uns_tensor like = { .name = owner->name,
				   .root = OPTIMIZER_ROOT,
				   .state = state,
				   .role = uns_role_of_state(state),
				   .inferred = owner->number >= 0 && !r->keeps_numbers };
	struct uns_torch_tensor plain = { 0 };

	UNS_TRY_ALLOC(like.key = uns_arena_printf(arena, "state.%s.%s", owner->key, state), err);
	if (is_unknown(state, v))
		return uns_rank_merge_add_unknown(&r->files.merge, source, like.key, v->cls, err);
	if (!is_tensor(v))
		return add_value(r, source, OPTIMIZER_ROOT, like.key, v, err);
	/* A plain tensor of one dimension does not record which range of a parameter it is. */
	if (owner->number >= 0 && !r->keeps_numbers && !uns_dtensor_is(v) &&
	    uns_torch_tensor(source->torch, v, &plain, NULL) == 0)
		r->optim.has_shapes |= plain.n_dims > 1;
	if (plain.n_dims == 1) {
		r->files.no_copies = true;
		return uns_rank_optim_add(&r->optim, source, (size_t)owner->number, state, like.role, v, err);
	}
	return uns_rank_merge_add(&r->files.merge, source, &like, v, err);
}

/* The name that torch's named_parameters() gave to this number, if the optimizer was made of names; else NULL. */
static const char *listed_name(const struct uns_value *groups, const struct uns_value *number)
{
	const struct uns_value *params, *names;
	int64_t wanted, is;
	uint32_t i, k;

	if (!uns_value_int(number, &wanted))
		return NULL;
	for (i = 0; i < groups->n; i++) {
		params = uns_value_get(groups->item[i], "params");
		names = uns_value_get(groups->item[i], PARAM_NAMES);
		for (k = 0; params && names && k < params->n && k < names->n; k++)
			if (uns_value_int(params->item[k], &is) && is == wanted)
				return uns_value_str(names->item[k]);
	}
	return NULL;
}

/* The owner in a file that keeps its numbers. */
static int numbered_owner_of(struct reading *r, const struct uns_value *key, struct owner *out, struct uns_err *err)
{
	struct uns_arena *arena = &r->files.cat->arena;
	int64_t number = 0;

	uns_value_int(key, &number);
	out->name = listed_name(r->groups, key);
	UNS_TRY_ALLOC(out->key = uns_arena_printf(arena, "%lld", (long long)number), err);
	if (out->name)
		out->key = out->name;
	else
		out->number = number;
	out->name = out->key;
	return 0;
}

/* A number counts the parameters of the one group; which one it means is known only where the group
 * holds them all, or where only their count matters (flat units). */
static int owner_of(struct reading *r, const struct uns_value *key, struct owner *out, struct uns_err *err)
{
	struct uns_arena *arena = r->files.n_read ? &r->files.merge.scratch : &r->files.cat->arena;

	*out = (struct owner){ .name = uns_value_str(key), .number = -1 };
	out->key = out->name;
	if (out->name)
		return 0;
	if (r->keeps_numbers)
		return numbered_owner_of(r, key, out, err);
	if (!r->params || !uns_value_int(key, &out->number) || out->number < 0)
		return uns_fail(err, -ENOTSUP,
				"the optimizer state is keyed by parameter numbers, and no file "
				"records which parameter has which number");
	if ((uint64_t)out->number >= r->optim.n_ids)
		return uns_fail(err, -EBADMSG,
				"the optimizer holds a state of parameter number %lld; expected a "
				"number below %zu, the number of parameters in its param group",
				(long long)out->number, r->optim.n_ids);
	UNS_TRY_ALLOC(out->key = uns_arena_printf(arena, "%lld", (long long)out->number), err);
	out->name = r->optim.n_ids == r->params->n ? r->params->v[out->number].name : out->key;
	return 0;
}

static int add_group(struct reading *r, const struct uns_value *group, struct uns_err *err)
{
	const struct uns_value *params = uns_value_get(group, "params");
	struct uns_group out = { .root = OPTIMIZER_ROOT };
	struct owner owner;

	if (!params || params->kind != UNS_VALUE_LIST)
		return uns_fail(err, -ENOTSUP, "a param group has no list of parameters");
	out.hyper = uns_value_new_dict_of(&r->files.cat->arena, group, "params", 0);
	if (r->keeps_numbers)
		out.hyper = uns_value_new_dict_of(&r->files.cat->arena, out.hyper, PARAM_NAMES, 0);
	out.param = UNS_NEW_N(&r->files.cat->arena, const char *, params->n);
	UNS_TRY_ALLOC(out.hyper && out.param, err);
	for (; out.n_params < params->n; out.n_params++) {
		UNS_TRY(owner_of(r, params->item[out.n_params], &owner, err));
		out.param[out.n_params] = owner.name;
		out.numbered |= r->keeps_numbers && owner.number >= 0;
	}
	return uns_catalog_add_group(r->files.cat, &out, err);
}

/* Every rank holds the same groups; unshard takes the first file's. */
static int add_groups(struct reading *r, const struct uns_rank_source *source, const struct uns_value *groups,
		      struct uns_err *err)
{
	struct uns_rank_difference d;
	int differ;
	size_t i;

	if (!r->files.n_read) {
		r->groups = groups;
		r->first_path = source->path;
		for (i = 0; i < groups->n; i++)
			UNS_TRY(add_group(r, groups->item[i], err));
		return 0;
	}
	if (groups->n != r->groups->n)
		return uns_fail(err, -EBADMSG, "the number of param groups is %u here, but %u in %s", groups->n,
				r->groups->n, uns_path_name(r->first_path));
	for (i = 0; i < groups->n; i++) {
		differ = uns_rank_values_differ(r->groups->item[i], groups->item[i], &d, err);
		if (differ > 0)
			differ = uns_rank_findings_add(
				&r->files.merge.findings,
				UNS_FINDING(.id = UNS_FOUND_RANK_GROUPS_DIFFER, .scope = UNS_SCOPE_OPTIMIZER,
					    .file = source->path, .rank = uns_rank(source->rank),
					    .expected = uns_str(d.first), .found = uns_str(d.second),
					    .arg = { { "key", uns_str(d.key) },
						     { "group", uns_num(i) },
						     { "other_file", uns_str(r->first_path) } }));
		if (differ < 0)
			return uns_oom(err);
	}
	return 0;
}

/* Numbers count over all groups in turn. The model's order does not record which parameter is in which group, so
 * unshard accepts one group only. If the optimizer has as many parameters as the model without second names of tied
 * weights, numbers leave those out. */
static int check_numbers(struct reading *r, const struct uns_value *groups, struct uns_err *err)
{
	const struct uns_value *params = uns_value_get(uns_value_at(groups, 0), "params");
	const struct uns_rank_params *all = r->params;
	struct uns_rank_param *v;
	int64_t number;
	size_t i, n = 0;

	if (!all || !params || params->kind != UNS_VALUE_LIST || !params->n || params->item[0]->kind != UNS_VALUE_INT)
		return 0;
	if (groups->n > 1)
		return uns_fail(err, -ENOTSUP,
				"the optimizer numbers its parameters over %u param groups, and no file says which "
				"parameter is in which group",
				groups->n);
	for (i = 0; i < params->n; i++)
		if (!uns_value_int(params->item[i], &number) || number != (int64_t)i)
			return uns_fail(err, -ENOTSUP,
					"the optimizer's param group does not number its parameters 0, 1, 2, ...");
	if (r->files.n_read && r->optim.n_ids != params->n)
		return uns_fail(err, -EBADMSG,
				"the optimizer's number of parameters is %u here, but %zu in the first rank's file",
				params->n, r->optim.n_ids);
	r->optim.n_ids = params->n;
	if (!all->n_twins || r->optim.n_ids != all->n - all->n_twins)
		return 0;
	UNS_TRY_ALLOC(v = UNS_NEW_N(&r->files.cat->arena, struct uns_rank_param, all->n), err);
	for (i = 0; i < all->n; i++)
		if (!all->v[i].twin)
			v[n++] = all->v[i];
	r->without_twins = *all;
	r->without_twins.v = v;
	r->without_twins.n = n;
	r->without_twins.n_twins = 0;
	r->params = r->optim.params = &r->without_twins;
	return 0;
}

static bool is_plain_state(const struct uns_value *v)
{
	double unused;

	if (uns_torch_is_tensor(v))
		return uns_torch_readable(v, NULL) == 0;
	return v->kind == UNS_VALUE_NONE || v->kind == UNS_VALUE_BOOL || uns_value_float(v, &unused);
}

/* Is it what torch's own optimizers save: groups that list numbers, and tensors or single numbers as states? */
static int check_plain(const struct uns_value *dict, const struct uns_value *groups, struct uns_err *err)
{
	const struct uns_value *params, *states;
	int64_t unused;
	uint32_t i, k;

	for (i = 0; i < groups->n; i++) {
		params = uns_value_get(groups->item[i], "params");
		for (k = 0; params && params->kind == UNS_VALUE_LIST && k < params->n; k++)
			if (!uns_value_int(params->item[k], &unused))
				return uns_fail(err, -ENOTSUP, "a param group does not number its parameters");
	}
	for (i = 0; i < dict->n; i++) {
		states = dict->pair[i].value;
		if (!uns_value_int(dict->pair[i].key, &unused) || states->kind != UNS_VALUE_DICT)
			return uns_fail(err, -ENOTSUP, "the states are not those of numbered parameters");
		for (k = 0; k < states->n; k++)
			if (!is_plain_state(states->pair[k].value))
				return uns_fail(err, -ENOTSUP, "a state is neither a plain tensor nor a number");
	}
	return 0;
}

static int add_optimizer(void *ctx, struct uns_rank_source *source, struct uns_err *err)
{
	struct reading *r = ctx;
	const struct uns_value *dict = uns_value_get(source->torch->root, "state"), *states;
	const struct uns_value *groups = uns_value_get(source->torch->root, "param_groups");
	struct owner owner;
	const char *state;
	size_t i, k;

	if (!dict || dict->kind != UNS_VALUE_DICT)
		return uns_fail(err, -ENOTSUP, "the file holds no optimizer state dict");
	if (!groups || groups->kind != UNS_VALUE_LIST)
		return uns_fail(err, -ENOTSUP, "the file's optimizer state dict has no param groups");
	if (r->keeps_numbers) {
		r->groups = groups;
		UNS_TRY(check_plain(dict, groups, err));
	} else {
		UNS_TRY(check_numbers(r, groups, err));
	}
	for (i = 0; i < dict->n; i++) {
		UNS_TRY(owner_of(r, dict->pair[i].key, &owner, err));
		states = dict->pair[i].value;
		if (!states || states->kind != UNS_VALUE_DICT)
			return uns_fail(err, -ENOTSUP, "the optimizer state of %s is not a dict", owner.key);
		for (k = 0; k < states->n; k++) {
			state = uns_value_str(states->pair[k].key);
			if (!state)
				return uns_fail(err, -ENOTSUP, "the optimizer state of %s has a key that is not a name",
						owner.key);
			UNS_TRY(add_state_entry(r, source, &owner, state, states->pair[k].value, err));
		}
	}
	return add_groups(r, source, groups, err);
}

/* Accepts numbers as parameters only if there are as many as the model has, and every state is as large as its
 * parameter, or a single number. */
static int check_numbered(struct reading *r, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map by_name = UNS_MAP_INIT;
	const struct uns_rank_params *params = r->params;
	const struct uns_rank_param *p;
	char a[128], b[128];
	uint32_t i, at;

	if (!r->optim.n_ids || r->optim.is_refused || r->optim.units.v)
		return 0; /* it has names; or a finding reports it; or it has units, whose sizes were compared */
	if (r->optim.n_ids != params->n)
		return UNS_ADD_FINDING(r->files.cat, err, RANK_NUMBERS_UNLIKE_MODEL, .scope = UNS_SCOPE_OPTIMIZER,
				       .expected = uns_num(params->n), .found = uns_num(r->optim.n_ids));
	for (i = 0; i < params->n; i++)
		UNS_TRY_ALLOC(uns_map_put_index(&by_name, params->v[i].name, i), err);
	for (i = 0; i < r->files.cat->n_tensors; i++) {
		const struct uns_tensor *t = &r->files.cat->tensors[i];

		if (!t->inferred || !uns_role_is_optimizer(t->role) || !t->shape.n)
			continue;
		at = uns_map_index(&by_name, t->name);
		if (at == UNS_MAP_NO_INDEX)
			continue; /* it is of a file that could not be read to its end, which a finding reports */
		p = &params->v[at];
		if (!uns_shape_equal(&p->shape, &t->shape))
			return UNS_ADD_FINDING(r->files.cat, err, RANK_NUMBERED_SHAPE, .scope = UNS_SCOPE_OPTIMIZER,
					       .tensor = t->key,
					       .found = uns_str(uns_shape_text(&t->shape, a, sizeof(a))),
					       .expected = uns_str(uns_shape_text(&p->shape, b, sizeof(b))),
					       .arg = { { "parameter", uns_str(p->name) } });
	}
	return 0;
}

int uns_rank_files_add_optimizer_of(struct uns_catalog *cat, const struct uns_root *root,
				    const struct uns_rank_file *files, size_t n, const struct uns_rank_params *params,
				    struct uns_err *err)
{
	UNS_CLEANUP(reading_fini) struct reading r = { .params = params };
	struct uns_finding *f, *end;

	uns_rank_optim_init(&r.optim, cat, params, n);
	UNS_TRY(uns_rank_reading_init(&r.files, cat, root, UNS_SCOPE_OPTIMIZER, n, err));
	UNS_TRY(uns_rank_reading_add(&r.files, files, n, add_optimizer, &r, err));
	/* Numbers mean the model's parameters. If the model is damaged they mean nothing, and the damage is reported.
	 */
	f = cat->findings;
	end = f + cat->n_findings;
	while (f < end && f->scope != UNS_SCOPE_WEIGHTS)
		f++;
	if (r.optim.n_ids && f < end) {
		f->scope = UNS_SCOPE_ALL;
		return uns_catalog_assign_groups(cat, err);
	}
	UNS_TRY(uns_rank_optim_emit(&r.optim, err));
	UNS_TRY(check_numbered(&r, err));
	return uns_catalog_assign_groups(cat, err);
}

int uns_rank_files_add_optimizer(struct uns_catalog *cat, const struct uns_root *root,
				 const struct uns_rank_file *files, size_t n, struct uns_err *err)
{
	return uns_rank_files_add_optimizer_of(cat, root, files, n, NULL, err);
}

int uns_rank_files_add_numbered_optimizer(struct uns_catalog *cat, const struct uns_root *root, const char *path,
					  struct uns_err *err)
{
	const struct uns_rank_file one = { .path = path, .rank = -1 };
	UNS_CLEANUP(reading_fini) struct reading r = { .keeps_numbers = true };

	uns_rank_optim_init(&r.optim, cat, NULL, 1);
	UNS_TRY(uns_rank_reading_init(&r.files, cat, root, UNS_SCOPE_OPTIMIZER, 1, err));
	r.files.skips_unknown = true;
	UNS_TRY(uns_rank_reading_add(&r.files, &one, 1, add_optimizer, &r, err));
	return uns_catalog_assign_groups(cat, err);
}
