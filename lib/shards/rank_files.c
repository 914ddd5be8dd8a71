/* Files of torch.save, one per rank, read one after the other: which values are tensors, and what
 * they are called. Merging is done by shards/rank_merge.c, wrappers are read by wire/dtensor.c. */
#include "shards/rank_files.h"

#include <string.h>

#include "base/cleanup.h"
#include "shards/rank_merge.h"
#include "shards/rank_optim.h"
#include "wire/dtensor.h"

#define MODEL_ROOT "model"
#define OPTIMIZER_ROOT "optimizer"

/* All files of one kind while they are being read. */
struct reading {
	struct uns_catalog *cat;
	const struct uns_root *root;
	struct uns_rank_merge merge;
	size_t n_read; /* files whose content was understood */
	bool unknown;  /* a form that is not known: the other ranks' files will have it too */
	size_t index;  /* of the file that is being read */
	const struct uns_rank_params *params; /* what numbers stand for; NULL = nothing */
	struct uns_rank_params without_twins; /* what `params` points to where they are not counted */
	struct uns_rank_optim optim;          /* numbered states that are parts of flat tensors */
	int (*add)(struct reading *r, struct uns_rank_source *source, struct uns_err *err);
};

static void reading_fini(struct reading *r)
{
	uns_rank_merge_fini(&r->merge);
	uns_rank_optim_fini(&r->optim);
}

static int no_memory(struct uns_err *err)
{
	return uns_fail(err, -ENOMEM, "out of memory while reading rank files");
}

static int refuse(struct reading *r, int code, const char *path, const char *why)
{
	return uns_catalog_add_problem(r->cat, r->merge.scope, code, "%s: %s", path, why);
}

/* -- one file -- */

static int open_same(struct reading *r, const char *path, uint32_t file, int *fd,
		     struct uns_err *err)
{
	struct uns_stat now;

	UNS_TRY(uns_root_open_file(r->root, path, fd, &now, err));
	if (!uns_identity_equal(&now.id, &r->cat->files[file].stat.id))
		return uns_fail(err, -ESTALE, "the file changed while it was being read");
	return 0;
}

/* Values of the first file stay, in the catalog's arena; of the others only numbers are kept. */
static int read_file(struct reading *r, const struct uns_rank_file *f, uint32_t file,
		     struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_open_file open_file = { .name = f->path };
	struct uns_torchfile torch;
	struct uns_rank_source source = { f->path, file, f->rank, &torch, false };
	struct uns_reader reader;

	UNS_TRY(open_same(r, f->path, file, &fd, err));
	open_file.fd = fd;
	reader = uns_reader_of_file(&open_file, r->cat->files[file].stat.id.size);
	UNS_TRY(uns_torchfile_open(&reader, r->n_read ? &scratch : &r->cat->arena, &torch, err));
	return r->add(r, &source, err);
}

static int add_file(struct reading *r, const struct uns_rank_file *f, struct uns_err *err)
{
	struct uns_err why = { 0 };
	uint32_t file;
	int code;

	UNS_TRY(uns_catalog_add_file(r->cat, r->root, f->path, &file, err));
	if (r->cat->files[file].missing)
		return refuse(r, -ENODATA, f->path,
			      "the file is missing; copy it back from the training machine");
	code = read_file(r, f, file, &why);
	if (code == -ENOMEM)
		return uns_fail(err, code, "%s", why.text);
	if (code < 0) {
		r->unknown = code == -ENOTSUP;
		return refuse(r, code, f->path, why.text);
	}
	r->n_read++;
	return 0;
}

static int add_files(struct reading *r, const struct uns_rank_file *files, size_t n,
		     struct uns_err *err)
{
	size_t i;

	for (i = 0; i < n && !r->unknown; i++) {
		r->index = i;
		UNS_TRY(add_file(r, &files[i], err));
	}
	return uns_rank_merge_emit(&r->merge, err);
}

static bool is_tensor(const struct uns_value *v)
{
	return uns_torch_is_tensor(v) || uns_dtensor_is(v);
}

/* Kept of the first file only: values are not sharded. */
static int add_value(struct reading *r, const struct uns_rank_source *source, const char *root,
		     const char *name, const struct uns_value *v, struct uns_err *err)
{
	struct uns_named_value named = { .name = name, .root = root, .value = v,
					 .file = source->file };

	return r->n_read ? 0 : uns_catalog_add_value(r->cat, &named, err);
}

/* -- model -- */

static int add_model_entry(struct reading *r, struct uns_rank_source *source, const char *name,
			   const struct uns_value *v, struct uns_err *err)
{
	struct uns_tensor like = { .name = name, .key = name, .root = MODEL_ROOT,
				   .role = UNS_ROLE_WEIGHT };

	if (!is_tensor(v))
		return add_value(r, source, MODEL_ROOT, name, v, err);
	return uns_rank_merge_add(&r->merge, source, &like, v, err);
}

static int add_model(struct reading *r, struct uns_rank_source *source, struct uns_err *err)
{
	const struct uns_value *dict = source->torch->root;
	size_t i;

	if (dict->kind != UNS_VALUE_DICT)
		return uns_fail(err, -ENOTSUP, "the file holds no state dict");
	for (i = 0; i < dict->dict.n; i++) {
		const char *name = uns_value_str(dict->dict.key[i]);

		if (!name)
			return uns_fail(err, -ENOTSUP, "a state dict with a key that is not a name");
		UNS_TRY(add_model_entry(r, source, name, dict->dict.v[i], err));
	}
	return 0;
}

/* -- what numbers stand for -- */

struct collecting {
	struct uns_rank_param *v;
	size_t n, n_twins;
};

static int count_param(void *ctx, const struct uns_tensor *t, bool twin)
{
	(void)t;
	(void)twin;
	++*(size_t *)ctx;
	return 0;
}

static int collect_param(void *ctx, const struct uns_tensor *t, bool twin)
{
	struct collecting *c = ctx;

	c->v[c->n++] = (struct uns_rank_param){ t->name, t->shape, twin };
	c->n_twins += twin;
	return 0;
}

static int collect_params(struct reading *r, struct uns_rank_params *out, struct uns_err *err)
{
	struct collecting c = { 0 };
	size_t n = 0;

	if (uns_rank_merge_each_param(&r->merge, count_param, &n) < 0)
		return no_memory(err);
	c.v = UNS_NEW_N(&r->cat->arena, struct uns_rank_param, n);
	if (!c.v || uns_rank_merge_each_param(&r->merge, collect_param, &c) < 0)
		return no_memory(err);
	*out = (struct uns_rank_params){ c.v, c.n, c.n_twins };
	return 0;
}

int uns_rank_files_add_model_params(struct uns_catalog *cat, const struct uns_root *root,
				    const struct uns_rank_file *files, size_t n,
				    struct uns_rank_params *params, struct uns_err *err)
{
	UNS_CLEANUP(reading_fini) struct reading r = { .cat = cat, .root = root, .add = add_model };

	uns_rank_merge_init(&r.merge, cat, UNS_SCOPE_WEIGHTS);
	UNS_TRY(add_files(&r, files, n, err));
	if (r.n_read && !r.merge.first && !r.merge.n_problems)
		return refuse(&r, -ENOTSUP, files[0].path, "the file holds no tensors by name");
	return params ? collect_params(&r, params, err) : 0;
}

int uns_rank_files_add_model(struct uns_catalog *cat, const struct uns_root *root,
			     const struct uns_rank_file *files, size_t n, struct uns_err *err)
{
	return uns_rank_files_add_model_params(cat, root, files, n, NULL, err);
}

/* -- optimizer -- */

static enum uns_role role_of_state(const char *state)
{
	static const struct {
		const char *state;
		enum uns_role role;
	} known[] = {
		{ "exp_avg", UNS_ROLE_EXP_AVG },
		{ "exp_avg_sq", UNS_ROLE_EXP_AVG_SQ },
		{ "step", UNS_ROLE_STEP },
	};
	size_t i;

	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(known[i].state, state) == 0)
			return known[i].role;
	return UNS_ROLE_OPTIM_OTHER;
}

/* Whose state it is. */
struct owner {
	const char *name; /* of the parameter */
	const char *key;  /* what the file calls it: the name, or a number */
	int64_t number;   /* -1 = it has a name */
};

static size_t plain_dims(const struct uns_rank_source *source, const struct uns_value *v)
{
	struct uns_torch_tensor t;

	return !uns_dtensor_is(v) && uns_torch_tensor(source->torch, v, &t, NULL) == 0 ? t.n_dims : 0;
}

/* A plain tensor of one dimension says nothing of its place in a parameter. */
static bool is_stretch(const struct uns_rank_source *source, const struct uns_value *v)
{
	return plain_dims(source, v) == 1;
}

static bool has_shape(const struct uns_rank_source *source, const struct uns_value *v)
{
	return plain_dims(source, v) > 1;
}

static int add_state_entry(struct reading *r, struct uns_rank_source *source,
			   const struct owner *owner, const char *state, const struct uns_value *v,
			   struct uns_err *err)
{
	struct uns_arena *arena = r->n_read ? &r->merge.scratch : &r->cat->arena;
	struct uns_tensor like = { .name = owner->name, .root = OPTIMIZER_ROOT, .state = state,
				   .role = role_of_state(state), .inferred = owner->number >= 0 };

	like.key = uns_arena_printf(arena, "state.%s.%s", owner->key, state);
	if (!like.key)
		return no_memory(err);
	if (!is_tensor(v))
		return add_value(r, source, OPTIMIZER_ROOT, like.key, v, err);
	r->optim.has_shapes |= owner->number >= 0 && has_shape(source, v);
	if (owner->number >= 0 && is_stretch(source, v))
		return uns_rank_optim_add(&r->optim, source, r->index, (size_t)owner->number, state,
					  like.role, v, err);
	return uns_rank_merge_add(&r->merge, source, &like, v, err);
}

static int add_param_state(struct reading *r, struct uns_rank_source *source,
			   const struct owner *owner, const struct uns_value *dict,
			   struct uns_err *err)
{
	size_t i;

	if (!dict || dict->kind != UNS_VALUE_DICT)
		return uns_fail(err, -ENOTSUP, "the optimizer state of %s is no dict", owner->key);
	for (i = 0; i < dict->dict.n; i++) {
		const char *state = uns_value_str(dict->dict.key[i]);

		if (!state)
			return uns_fail(err, -ENOTSUP, "the optimizer state of %s has no names",
					owner->key);
		UNS_TRY(add_state_entry(r, source, owner, state, dict->dict.v[i], err));
	}
	return 0;
}

/* A number counts the parameters of the one group; which one it means is known only where the group
 * holds them all, or where only their count matters (flat units). */
static int owner_of(struct reading *r, const struct uns_value *key, struct owner *out,
		    struct uns_err *err)
{
	struct uns_arena *arena = r->n_read ? &r->merge.scratch : &r->cat->arena;

	*out = (struct owner){ .name = uns_value_str(key), .number = -1 };
	out->key = out->name;
	if (out->name)
		return 0;
	if (!r->params || !uns_value_int(key, &out->number) || out->number < 0)
		return uns_fail(err, -ENOTSUP,
				"the optimizer state is keyed by numbers, and nothing says which "
				"parameter each one is");
	if ((uint64_t)out->number >= r->optim.n_ids)
		return uns_fail(err, -EBADMSG,
				"the optimizer holds state %lld, but its param group ends at %zu",
				(long long)out->number, r->optim.n_ids);
	out->key = uns_arena_printf(arena, "%lld", (long long)out->number);
	if (!out->key)
		return no_memory(err);
	out->name = r->optim.n_ids == r->params->n ? r->params->v[out->number].name : out->key;
	return 0;
}

static const struct uns_value *without_params(struct uns_arena *arena,
					      const struct uns_value *group)
{
	struct uns_value *hyper = UNS_NEW(arena, struct uns_value);
	size_t i, n = group->dict.n;

	if (!hyper)
		return NULL;
	hyper->kind = UNS_VALUE_DICT;
	hyper->dict.key = UNS_NEW_N(arena, const struct uns_value *, n);
	hyper->dict.v = UNS_NEW_N(arena, const struct uns_value *, n);
	if (!hyper->dict.key || !hyper->dict.v)
		return NULL;
	for (i = 0; i < n; i++) {
		const char *key = uns_value_str(group->dict.key[i]);

		if (key && strcmp(key, "params") == 0)
			continue;
		hyper->dict.key[hyper->dict.n] = group->dict.key[i];
		hyper->dict.v[hyper->dict.n++] = group->dict.v[i];
	}
	return hyper;
}

static int add_group(struct reading *r, const struct uns_value *group, struct uns_err *err)
{
	const struct uns_value *params = uns_value_get(group, "params");
	struct uns_group out = { .root = OPTIMIZER_ROOT };
	struct owner owner;

	if (!params || params->kind != UNS_VALUE_LIST)
		return uns_fail(err, -ENOTSUP, "a param group without its list of parameters");
	out.hyper = without_params(&r->cat->arena, group);
	out.param = UNS_NEW_N(&r->cat->arena, const char *, params->seq.n);
	if (!out.hyper || !out.param)
		return no_memory(err);
	for (; out.n_params < params->seq.n; out.n_params++) {
		UNS_TRY(owner_of(r, params->seq.v[out.n_params], &owner, err));
		out.param[out.n_params] = owner.name;
	}
	return uns_catalog_add_group(r->cat, &out, err);
}

/* Every rank holds the same groups; the first file's are taken. */
static int add_groups(struct reading *r, const struct uns_value *groups, struct uns_err *err)
{
	size_t i;

	for (i = 0; i < groups->seq.n && !r->n_read; i++)
		UNS_TRY(add_group(r, groups->seq.v[i], err));
	return 0;
}

/* Numbers are counted over all groups in turn, and a model's order says nothing about who is in
 * which group: one group only. */
static int check_numbers(struct reading *r, const struct uns_value *groups, struct uns_err *err)
{
	const struct uns_value *params = uns_value_get(uns_value_at(groups, 0), "params");
	int64_t number;
	size_t i;

	if (!r->params || !params || params->kind != UNS_VALUE_LIST || !params->seq.n ||
	    params->seq.v[0]->kind != UNS_VALUE_INT)
		return 0;
	if (groups->seq.n > 1)
		return uns_fail(err, -ENOTSUP,
				"the optimizer numbers its parameters over %zu param groups, and no "
				"file says which parameter is in which group",
				groups->seq.n);
	for (i = 0; i < params->seq.n; i++)
		if (!uns_value_int(params->seq.v[i], &number) || number != (int64_t)i)
			return uns_fail(err, -ENOTSUP,
					"the optimizer's param group does not number its parameters "
					"0, 1, 2, ...");
	if (r->n_read && r->optim.n_ids != params->seq.n)
		return uns_fail(err, -EBADMSG,
				"the optimizer has %zu parameters there, but %zu in the first rank's "
				"file",
				params->seq.n, r->optim.n_ids);
	r->optim.n_ids = params->seq.n;
	return 0;
}

/* torch hands a tied weight out once, under its first name. */
static int leave_twins_out(struct reading *r, struct uns_err *err)
{
	const struct uns_rank_params *all = r->params;
	struct uns_rank_param *v;
	size_t i, n = 0;

	if (!all || !all->n_twins || r->optim.n_ids != all->n - all->n_twins)
		return 0;
	v = UNS_NEW_N(&r->cat->arena, struct uns_rank_param, all->n);
	if (!v)
		return no_memory(err);
	for (i = 0; i < all->n; i++)
		if (!all->v[i].twin)
			v[n++] = all->v[i];
	r->without_twins = (struct uns_rank_params){ .v = v, .n = n };
	r->params = r->optim.params = &r->without_twins;
	return 0;
}

static int add_optimizer(struct reading *r, struct uns_rank_source *source, struct uns_err *err)
{
	const struct uns_value *dict = uns_value_get(source->torch->root, "state");
	const struct uns_value *groups = uns_value_get(source->torch->root, "param_groups");
	struct owner owner;
	size_t i;

	if (!dict || dict->kind != UNS_VALUE_DICT)
		return uns_fail(err, -ENOTSUP, "the file holds no optimizer state dict");
	if (!groups || groups->kind != UNS_VALUE_LIST)
		return uns_fail(err, -ENOTSUP, "an optimizer state dict without param groups");
	UNS_TRY(check_numbers(r, groups, err));
	UNS_TRY(leave_twins_out(r, err));
	for (i = 0; i < dict->dict.n; i++) {
		UNS_TRY(owner_of(r, dict->dict.key[i], &owner, err));
		UNS_TRY(add_param_state(r, source, &owner, dict->dict.v[i], err));
	}
	return add_groups(r, groups, err);
}

/* Numbers that stand for parameters: as many as the model has, and every state as large as its
 * parameter, or a single number. */
static int check_numbered(struct reading *r)
{
	const struct uns_rank_params *params = r->params;
	const struct uns_rank_param *p;
	char a[128], b[128];
	size_t i, at = 0;

	if (!r->optim.n_ids || r->optim.is_refused)
		return 0; /* names; or what is wrong is said */
	if (r->optim.n_ids != params->n)
		return uns_catalog_add_problem(
			r->cat, UNS_SCOPE_OPTIMIZER, -ENOTSUP,
			"%s: the optimizer numbers %zu parameters, the model has %zu: no file says "
			"which ones they are",
			r->cat->path, r->optim.n_ids, params->n);
	for (i = 0; i < r->cat->n_tensors; i++) {
		const struct uns_tensor *t = &r->cat->tensors[i];

		if (!t->inferred || !uns_role_is_optimizer(t->role) || !t->shape.n)
			continue;
		while (strcmp(params->v[at].name, t->name) != 0)
			at = (at + 1) % params->n;
		p = &params->v[at];
		if (!uns_shape_equal(&p->shape, &t->shape))
			return uns_catalog_add_problem(
				r->cat, UNS_SCOPE_OPTIMIZER, -EBADMSG,
				"%s: optimizer state %s has shape %s; expected %s, that of %s, which "
				"is the parameter of that number in the model's order",
				r->cat->path, t->key, uns_shape_text(&t->shape, a, sizeof(a)),
				uns_shape_text(&p->shape, b, sizeof(b)), p->name);
	}
	return 0;
}

int uns_rank_files_add_optimizer_of(struct uns_catalog *cat, const struct uns_root *root,
				    const struct uns_rank_file *files, size_t n,
				    const struct uns_rank_params *params, struct uns_err *err)
{
	UNS_CLEANUP(reading_fini) struct reading r = { .cat = cat, .root = root, .params = params,
						       .add = add_optimizer };

	uns_rank_merge_init(&r.merge, cat, UNS_SCOPE_OPTIMIZER);
	uns_rank_optim_init(&r.optim, cat, params, n);
	UNS_TRY(add_files(&r, files, n, err));
	UNS_TRY(uns_rank_optim_emit(&r.optim, err));
	UNS_TRY(check_numbered(&r));
	return uns_catalog_assign_groups(cat, err);
}

int uns_rank_files_add_optimizer(struct uns_catalog *cat, const struct uns_root *root,
				 const struct uns_rank_file *files, size_t n, struct uns_err *err)
{
	return uns_rank_files_add_optimizer_of(cat, root, files, n, NULL, err);
}
