/* Files of torch.save, one per rank, read one after the other: which values are tensors, and what they
 * are called. Merging is done by shards/rank_merge.c, wrappers are read by wire/dtensor.c. */
#include "shards/rank_files.h"

#include <string.h>

#include "base/cleanup.h"
#include "shards/rank_merge.h"
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
	int (*add)(struct reading *r, struct uns_rank_source *source, struct uns_err *err);
};

static void reading_fini(struct reading *r)
{
	uns_rank_merge_fini(&r->merge);
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

	for (i = 0; i < n && !r->unknown; i++)
		UNS_TRY(add_file(r, &files[i], err));
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

int uns_rank_files_add_model(struct uns_catalog *cat, const struct uns_root *root,
			     const struct uns_rank_file *files, size_t n, struct uns_err *err)
{
	UNS_CLEANUP(reading_fini) struct reading r = { .cat = cat, .root = root, .add = add_model };

	uns_rank_merge_init(&r.merge, cat, UNS_SCOPE_WEIGHTS);
	UNS_TRY(add_files(&r, files, n, err));
	if (r.n_read && !r.merge.first && !r.merge.n_problems)
		return refuse(&r, -ENOTSUP, files[0].path, "the file holds no tensors by name");
	return 0;
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

static int add_state_entry(struct reading *r, struct uns_rank_source *source, const char *param,
			   const char *state, const struct uns_value *v, struct uns_err *err)
{
	struct uns_arena *arena = r->n_read ? &r->merge.scratch : &r->cat->arena;
	struct uns_tensor like = { .name = param, .root = OPTIMIZER_ROOT, .state = state,
				   .role = role_of_state(state) };

	like.key = uns_arena_printf(arena, "state.%s.%s", param, state);
	if (!like.key)
		return no_memory(err);
	if (!is_tensor(v))
		return add_value(r, source, OPTIMIZER_ROOT, like.key, v, err);
	return uns_rank_merge_add(&r->merge, source, &like, v, err);
}

static int add_param_state(struct reading *r, struct uns_rank_source *source, const char *param,
			   const struct uns_value *dict, struct uns_err *err)
{
	size_t i;

	if (!dict || dict->kind != UNS_VALUE_DICT)
		return uns_fail(err, -ENOTSUP, "the optimizer state of %s is no dict", param);
	for (i = 0; i < dict->dict.n; i++) {
		const char *state = uns_value_str(dict->dict.key[i]);

		if (!state)
			return uns_fail(err, -ENOTSUP, "the optimizer state of %s has no names",
					param);
		UNS_TRY(add_state_entry(r, source, param, state, dict->dict.v[i], err));
	}
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

	if (!params || params->kind != UNS_VALUE_LIST)
		return uns_fail(err, -ENOTSUP, "a param group without its list of parameters");
	out.hyper = without_params(&r->cat->arena, group);
	out.param = UNS_NEW_N(&r->cat->arena, const char *, params->seq.n);
	if (!out.hyper || !out.param)
		return no_memory(err);
	for (; out.n_params < params->seq.n; out.n_params++) {
		out.param[out.n_params] = uns_value_str(params->seq.v[out.n_params]);
		if (!out.param[out.n_params])
			return uns_fail(err, -ENOTSUP,
					"the param groups list numbers, not names of parameters");
	}
	return uns_catalog_add_group(r->cat, &out, err);
}

/* Every rank holds the same groups; the first file's are taken. */
static int add_groups(struct reading *r, const struct uns_value *groups, struct uns_err *err)
{
	size_t i;

	if (!groups || groups->kind != UNS_VALUE_LIST)
		return uns_fail(err, -ENOTSUP, "an optimizer state dict without param groups");
	for (i = 0; i < groups->seq.n && !r->n_read; i++)
		UNS_TRY(add_group(r, groups->seq.v[i], err));
	return 0;
}

static int add_optimizer(struct reading *r, struct uns_rank_source *source, struct uns_err *err)
{
	const struct uns_value *dict = uns_value_get(source->torch->root, "state");
	size_t i;

	if (!dict || dict->kind != UNS_VALUE_DICT)
		return uns_fail(err, -ENOTSUP, "the file holds no optimizer state dict");
	for (i = 0; i < dict->dict.n; i++) {
		const char *param = uns_value_str(dict->dict.key[i]);

		if (!param)
			return uns_fail(err, -ENOTSUP,
					"the optimizer state is keyed by numbers, and nothing says "
					"which parameter each one is");
		UNS_TRY(add_param_state(r, source, param, dict->dict.v[i], err));
	}
	return add_groups(r, uns_value_get(source->torch->root, "param_groups"), err);
}

int uns_rank_files_add_optimizer(struct uns_catalog *cat, const struct uns_root *root,
				 const struct uns_rank_file *files, size_t n, struct uns_err *err)
{
	UNS_CLEANUP(reading_fini) struct reading r = { .cat = cat, .root = root,
						       .add = add_optimizer };

	uns_rank_merge_init(&r.merge, cat, UNS_SCOPE_OPTIMIZER);
	UNS_TRY(add_files(&r, files, n, err));
	return uns_catalog_assign_groups(cat, err);
}
