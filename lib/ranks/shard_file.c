/* Dicts of tensors into the files of one rank: a sharded tensor becomes the rank's rows of it inside a DTensor, any
 * other is written whole. */
#include "ranks/shard_file.h"

#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "files/torch_file.h"
#include "ranks/dtensor_new.h"
#include "wire/value_new.h"

const struct uns_value *uns_rank_shard_value(const struct uns_catalog *cat, const char *name)
{
	return uns_catalog_value(cat, "rank_files", name);
}

static bool is_optimizer(const char *root)
{
	return strcmp(root, "optimizer") == 0;
}

/* As optimizer.state_dict() has them. */
static bool is_numbered(const struct uns_catalog *cat)
{
	size_t i;

	for (i = 0; i < cat->n_tensors; i++)
		if (is_optimizer(cat->tensors[i].root) && cat->tensors[i].inferred)
			return true;
	return false;
}

/* Was it saved with FSDP1? veRL's fsdp_config.json says which FSDP. EasyR1's manager, which knows FSDP1 only, writes no
 * such file. Optimizer states that are numbered are FSDP1's too, but hold no DTensors. */
static bool is_fsdp1(const struct uns_catalog *cat)
{
	const char *config = uns_value_str(uns_rank_shard_value(cat, "fsdp_config"));
	const char *version = config ? strstr(config, "\"FSDP_version\"") : NULL;

	if (version)
		version += strcspn(version, "0123456789");
	return version ? *version == '1' : !is_numbered(cat);
}

/* -- one file under construction -- */

struct making {
	const struct uns_rank_shard *shard;
	struct uns_arena *out; /* of literals that the file holds */
	struct uns_arena arena;
	bool plain; /* FSDP1 on a single rank shards nothing, saves plain tensors and takes no others */
	struct uns_dtensor_form form;
	const struct uns_value *mesh; /* NULL = no tensor has needed it yet */
	struct uns_torch_leaves leaves;
	size_t *leaf_of; /* by index in the catalog: 1 + its leaf; 0 = none yet */
};

static void making_fini(struct making *m)
{
	uns_torch_leaves_fini(&m->leaves);
	uns_arena_fini(&m->arena);
}

static int making_init(struct making *m, struct uns_err *err)
{
	const struct uns_catalog *cat = m->shard->cat;
	const struct uns_value *like = uns_rank_shard_value(cat, "dtensor");

	m->leaf_of = UNS_NEW_N(&m->arena, size_t, cat->n_tensors);
	if (!m->leaf_of)
		return uns_oom(err);
	if (!like)
		return uns_catalog_fail(
			cat, UNS_FINDING(.id = UNS_FOUND_NO_DTENSORS, .scope = UNS_SCOPE_ALL), err);
	m->plain = m->shard->world == 1 && is_fsdp1(cat);
	if (uns_dtensor_form_of(like, &m->arena, &m->form, err) < 0)
		return uns_fail_in(err, "%s", cat->path);
	return 0;
}

/* -- tensors -- */

static int make_mesh(struct making *m, struct uns_err *err)
{
	uint64_t world = m->shard->world, r;
	unsigned size = uns_dtype_size(m->form.ranks), i;
	uint8_t *bytes = UNS_NEW_N(m->out, uint8_t, world * size);
	struct uns_torch_leaf leaf = { .out = m->form.ranks,
				       .shape = { .n = 1, .dim = { world } },
				       .literal = bytes };

	if (!bytes)
		return uns_oom(err);
	for (r = 0; r < world; r++)
		for (i = 0; i < size; i++)
			bytes[r * size + i] = (uint8_t)(r >> (8 * i));
	return uns_dtensor_mesh_new(&m->form, &m->arena, world, m->shard->rank,
				    uns_torch_leaf_add(&m->leaves, &m->arena, &leaf), &m->mesh, err);
}

/* The rank's rows, as torch.chunk cuts: ceil(rows / world) for each but the last ones. */
static void rows_of(const struct uns_rank_shard *shard, uint64_t rows, uint64_t *first, uint64_t *n)
{
	uint64_t part = rows / shard->world + (rows % shard->world != 0);

	*first = uns_u64_min(part * shard->rank, rows);
	*n = uns_u64_min(part, rows - *first);
}

static const struct uns_value *local_of(struct making *m, const struct uns_tensor *t)
{
	uint64_t rows = t->shape.dim[0], first, n, row_elems;
	struct uns_torch_leaf leaf = { .out = t->dtype, .shape = t->shape };
	struct uns_torch_part *part = UNS_NEW(&m->arena, struct uns_torch_part);

	rows_of(m->shard, rows, &first, &n);
	leaf.shape.dim[0] = n;
	if (!part)
		return NULL;
	if (n == rows) {
		leaf.tensor = t;
	} else {
		row_elems = uns_shape_elems(&t->shape) / rows;
		*part = (struct uns_torch_part){ t, first * row_elems, n * row_elems };
		leaf.part = part;
		leaf.n_parts = 1;
	}
	return uns_torch_leaf_add(&m->leaves, &m->arena, &leaf);
}

/* Names that share bytes in the checkpoint share one storage here too. */
static const struct uns_value *storage_of(struct making *m, const struct uns_tensor *t)
{
	const struct uns_tensor *all = m->shard->cat->tensors;
	size_t *leaf = &m->leaf_of[t->alias_of == UNS_NONE ? (size_t)(t - all) : t->alias_of];

	if (*leaf)
		return uns_value_new_tensor(&m->arena, *leaf - 1);
	*leaf = m->leaves.n + 1;
	return t->sharded ? local_of(m, t) : uns_torch_tensor_add(&m->leaves, &m->arena, t);
}

static int tensor_value(struct making *m, const struct uns_tensor *t, const struct uns_value **out,
			struct uns_err *err)
{
	bool wrapped = t->sharded && !m->plain;
	const struct uns_value *local;

	if (wrapped && !m->mesh)
		UNS_TRY(make_mesh(m, err));
	local = storage_of(m, t);
	if (!local)
		return uns_oom(err);
	*out = local;
	return wrapped ? uns_dtensor_new(&m->form, &m->arena, m->mesh, t->dtype, t->shape.dim,
					 t->shape.n, local, out, err)
		       : 0;
}

static bool put(struct making *m, struct uns_value *dict, const char *name,
		const struct uns_value *v)
{
	return uns_value_put_str(&m->arena, dict, name, v);
}

static int write_file(struct making *m, const struct uns_value *root, struct uns_layout *out,
		      struct uns_err *err)
{
	const struct uns_torch_input in = { .cat = m->shard->cat,
					    .root = root,
					    .leaves = &m->leaves,
					    .stem = m->shard->stem,
					    .classes = uns_dtensor_classes };

	if (uns_part_torch_file(&in, m->out, out, err) < 0)
		return uns_fail_in(err, "%s", m->shard->cat->path);
	return 0;
}

/* -- model -- */

static int model_dict(struct making *m, struct uns_value **out, struct uns_err *err)
{
	const struct uns_catalog *cat = m->shard->cat;
	const struct uns_value *was = uns_rank_shard_value(cat, "state_dict"), *v;
	struct uns_value *dict = uns_value_new_dict(&m->arena, cat->n_tensors + cat->n_values);
	size_t i;

	if (!dict)
		return uns_oom(err);
	dict->cls = was ? was->cls : NULL;
	dict->state = was ? was->state : NULL;
	for (i = 0; i < cat->n_tensors; i++) {
		if (!uns_role_is_model(cat->tensors[i].role))
			continue;
		UNS_TRY(tensor_value(m, &cat->tensors[i], &v, err));
		if (!put(m, dict, cat->tensors[i].key, v))
			return uns_oom(err);
	}
	for (i = 0; i < cat->n_values; i++)
		if (strcmp(cat->values[i].root, "model") == 0 &&
		    !put(m, dict, cat->values[i].name, cat->values[i].value))
			return uns_oom(err);
	*out = dict;
	return 0;
}

int uns_rank_shard_model(const struct uns_rank_shard *shard, struct uns_arena *arena,
			 struct uns_layout *out, struct uns_err *err)
{
	UNS_CLEANUP(making_fini) struct making m = { .shard = shard, .out = arena };
	struct uns_value *dict;

	UNS_TRY(making_init(&m, err));
	UNS_TRY(model_dict(&m, &dict, err));
	return write_file(&m, dict, out, err);
}

/* -- optimizer: {state: {name or number: {..}}, param_groups: [..]} -- */

struct states {
	struct making *m;
	struct uns_map by_owner;
	struct uns_value *dict;
	bool numbered; /* parameters go by numbers */
};

static void states_fini(struct states *s)
{
	uns_map_fini(&s->by_owner);
}

/* "state.model.norm.weight.exp_avg" -> "model.norm.weight" and "exp_avg". NULL = another key. */
static const char *owner_of(struct uns_arena *arena, const char *key, const char **state)
{
	const char *dot = strrchr(key, '.');

	if (!uns_str_starts(key, "state.") || dot < key + 6)
		return NULL;
	*state = dot + 1;
	return uns_arena_strn(arena, key + 6, (size_t)(dot - key) - 6);
}

static const struct uns_value *owner_key(struct states *s, const char *owner)
{
	unsigned long long n;

	if (s->numbered && uns_str_number(owner, "", "", &n))
		return uns_value_new_int(&s->m->arena, (int64_t)n);
	return uns_value_new_str(&s->m->arena, owner);
}

/* Adam has three states, others fewer or some more. */
static int put_state(struct states *s, const char *key, const struct uns_value *v,
		     struct uns_err *err)
{
	enum { MAX_STATES = 32 };
	const char *state, *owner = owner_of(&s->m->arena, key, &state);
	struct uns_value *dict;

	if (!owner)
		return uns_catalog_fail(s->m->shard->cat,
					UNS_FINDING(.id = UNS_FOUND_OPTIMIZER_STATE_PLACELESS,
						    .scope = UNS_SCOPE_OPTIMIZER, .tensor = key),
					err);
	dict = uns_map_get(&s->by_owner, owner);
	if (!dict) {
		dict = uns_value_new_dict(&s->m->arena, MAX_STATES);
		if (!dict || !uns_map_put(&s->by_owner, owner, dict, NULL) ||
		    !uns_value_put(s->dict, owner_key(s, owner), dict))
			return uns_oom(err);
	}
	if (dict->n == MAX_STATES)
		return uns_catalog_fail(s->m->shard->cat,
					UNS_FINDING(.id = UNS_FOUND_TOO_MANY_STATES,
						    .scope = UNS_SCOPE_OPTIMIZER, .tensor = owner,
						    .arg = { { "most", uns_num(MAX_STATES) } }),
					err);
	return put(s->m, dict, state, v) ? 0 : uns_oom(err);
}

static int put_states(struct states *s, struct uns_err *err)
{
	const struct uns_catalog *cat = s->m->shard->cat;
	const struct uns_value *v;
	size_t i;

	for (i = 0; i < cat->n_tensors; i++) {
		if (!is_optimizer(cat->tensors[i].root))
			continue;
		UNS_TRY(tensor_value(s->m, &cat->tensors[i], &v, err));
		UNS_TRY(put_state(s, cat->tensors[i].key, v, err));
	}
	for (i = 0; i < cat->n_values; i++)
		if (is_optimizer(cat->values[i].root))
			UNS_TRY(put_state(s, cat->values[i].name, cat->values[i].value, err));
	return 0;
}

static const struct uns_value *group_value(struct states *s, const struct uns_group *g)
{
	struct uns_arena *arena = &s->m->arena;
	struct uns_value *dict = uns_value_new_dict_of(arena, g->hyper, NULL, 1);
	struct uns_value *params = uns_value_new_list(arena, g->n_params);
	size_t i;

	for (i = 0; i < g->n_params; i++)
		if (!uns_value_append(params, s->numbered
						      ? uns_value_new_int(arena, (int64_t)i)
						      : uns_value_new_str(arena, g->param[i])))
			return NULL;
	return put(s->m, dict, "params", params) ? dict : NULL;
}

static int optim_dict(struct making *m, struct uns_value **out, struct uns_err *err)
{
	const struct uns_catalog *cat = m->shard->cat;
	UNS_CLEANUP(states_fini) struct states s = { .m = m };
	struct uns_value *groups = uns_value_new_list(&m->arena, cat->n_groups);
	size_t i;

	s.dict = uns_value_new_dict(&m->arena, cat->n_tensors + cat->n_values);
	if (!s.dict)
		return uns_oom(err);
	s.numbered = is_numbered(cat);
	UNS_TRY(put_states(&s, err));
	for (i = 0; i < cat->n_groups; i++)
		if (!uns_value_append(groups, group_value(&s, &cat->groups[i])))
			return uns_oom(err);
	*out = uns_value_new_dict(&m->arena, 2);
	return put(m, *out, "state", s.dict) && put(m, *out, "param_groups", groups)
		       ? 0
		       : uns_oom(err);
}

int uns_rank_shard_optim(const struct uns_rank_shard *shard, struct uns_arena *arena,
			 struct uns_layout *out, struct uns_err *err)
{
	UNS_CLEANUP(making_fini) struct making m = { .shard = shard, .out = arena };
	struct uns_value *dict;

	UNS_TRY(making_init(&m, err));
	UNS_TRY(optim_dict(&m, &dict, err));
	return write_file(&m, dict, out, err);
}

/* -- extra_state -- */

int uns_rank_shard_extra(const struct uns_rank_shard *shard, struct uns_arena *arena,
			 struct uns_layout *out, struct uns_err *err)
{
	UNS_CLEANUP(making_fini) struct making m = { .shard = shard, .out = arena };
	struct uns_value *dict = uns_value_new_dict(&m.arena, 1);

	if (!dict || !put(&m, dict, "lr_scheduler", uns_rank_shard_value(shard->cat, "lr_scheduler")))
		return uns_oom(err);
	return write_file(&m, dict, out, err);
}
