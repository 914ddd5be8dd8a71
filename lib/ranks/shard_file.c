/* Makes the files of one rank. A sharded tensor becomes a DTensor with the rank's rows, any other tensor is written
 * whole. Owns the dicts in these files. */
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
	const char *config = uns_value_str(uns_rank_shard_value(cat, "fsdp_config"));
	const char *version = config ? strstr(config, "\"FSDP_version\"") : NULL;
	bool is_fsdp1;

	UNS_TRY_ALLOC(m->leaf_of = UNS_NEW_N(&m->arena, size_t, cat->n_tensors), err);
	if (!like)
		return UNS_CATALOG_FAIL(cat, err, NO_DTENSORS, .scope = UNS_SCOPE_ALL);
	/* veRL's fsdp_config.json has the version of FSDP. EasyR1's manager, which knows FSDP1 only, writes no such
	 * file. Optimizer states that are numbered are FSDP1's too, but hold no DTensors. */
	is_fsdp1 = version ? version[strcspn(version, "0123456789")] == '1' : !is_numbered(cat);
	m->plain = m->shard->world == 1 && is_fsdp1;
	if (uns_dtensor_form_of(like, &m->arena, &m->form, err) < 0)
		return uns_fail_in(err, "%s", cat->path);
	return 0;
}

/* -- tensors -- */

static int make_mesh(struct making *m, struct uns_err *err)
{
	uint64_t world = m->shard->world, r;
	unsigned size = uns_dtype_size(m->form.ranks), i;
	uint8_t *bytes = UNS_NEW_N(m->out, uint8_t, world *size);
	struct uns_torch_leaf leaf = { .out = m->form.ranks, .shape = { .n = 1, .dim = { world } }, .literal = bytes };

	UNS_TRY_ALLOC(bytes, err);
	for (r = 0; r < world; r++)
		for (i = 0; i < size; i++)
			bytes[r * size + i] = (uint8_t)(r >> (8 * i));
	return uns_dtensor_mesh_new(&m->form, &m->arena, world, m->shard->rank,
				    uns_torch_leaf_add(&m->leaves, &m->arena, &leaf), &m->mesh, err);
}

/* The tensor's value in the file. A rank has the rows that torch.chunk gives it: ceil(rows / world) for each rank but
 * the last ones. Names that share bytes in the checkpoint share one storage here too. */
static int tensor_value(struct making *m, const struct uns_tensor *t, const struct uns_value **out, struct uns_err *err)
{
	const struct uns_rank_shard *shard = m->shard;
	size_t *leaf_of = &m->leaf_of[t->alias_of == UNS_NONE ? (size_t)(t - shard->cat->tensors) : t->alias_of];
	struct uns_torch_leaf leaf = { .tensor = t, .out = t->dtype, .shape = t->shape };
	bool wrapped = t->sharded && !m->plain;
	uint64_t rows, part, first, row_elems;
	struct uns_torch_part *rows_part;

	if (wrapped && !m->mesh)
		UNS_TRY(make_mesh(m, err));
	if (*leaf_of) {
		*out = uns_value_new_tensor(&m->arena, *leaf_of - 1);
	} else {
		*leaf_of = m->leaves.n + 1;
		rows = t->sharded ? t->shape.dim[0] : 0;
		part = rows / shard->world + (rows % shard->world != 0);
		first = uns_u64_min(part * shard->rank, rows);
		part = uns_u64_min(part, rows - first);
		if (part != rows) {
			row_elems = uns_shape_elems(&t->shape) / rows;
			UNS_TRY_ALLOC(rows_part = UNS_NEW(&m->arena, struct uns_torch_part), err);
			*rows_part = (struct uns_torch_part){ t, first * row_elems, part * row_elems };
			leaf.tensor = NULL;
			leaf.shape.dim[0] = part;
			leaf.part = rows_part;
			leaf.n_parts = 1;
		}
		*out = uns_torch_leaf_add(&m->leaves, &m->arena, &leaf);
	}
	UNS_TRY_ALLOC(*out, err);
	return wrapped ? uns_dtensor_new(&m->form, &m->arena, m->mesh, t->dtype, t->shape.dim, t->shape.n, *out, out,
					 err)
		       : 0;
}

static int write_file(struct making *m, const struct uns_value *root, struct uns_layout *out, struct uns_err *err)
{
	const struct uns_torch_input in = { .cat = m->shard->cat,
					    .root = root,
					    .leaves = &m->leaves,
					    .stem = m->shard->stem,
					    .classes = uns_dtensor_classes };

	UNS_TRY(uns_arena_check(&m->arena, err));
	if (uns_part_torch_file(&in, m->out, out, err) < 0)
		return uns_fail_in(err, "%s", m->shard->cat->path);
	return 0;
}

/* -- model -- */

int uns_rank_shard_model(const struct uns_rank_shard *shard, struct uns_arena *arena, struct uns_layout *out,
			 struct uns_err *err)
{
	UNS_CLEANUP(making_fini) struct making m = { .shard = shard, .out = arena };
	const struct uns_catalog *cat = shard->cat;
	const struct uns_value *was = uns_rank_shard_value(cat, "state_dict"), *v;
	struct uns_value *dict = uns_value_new_dict(&m.arena, cat->n_tensors + cat->n_values);
	size_t i;

	UNS_TRY_ALLOC(dict, err);
	UNS_TRY(making_init(&m, err));
	dict->cls = was ? was->cls : NULL;
	dict->state = was ? was->state : NULL;
	for (i = 0; i < cat->n_tensors; i++) {
		if (!uns_role_is_model(cat->tensors[i].role))
			continue;
		UNS_TRY(tensor_value(&m, &cat->tensors[i], &v, err));
		uns_value_put_str(&m.arena, dict, cat->tensors[i].key, v);
	}
	for (i = 0; i < cat->n_values; i++)
		if (strcmp(cat->values[i].root, "model") == 0)
			uns_value_put_str(&m.arena, dict, cat->values[i].name, cat->values[i].value);
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

/* Puts the value under its owner and state: "state.model.norm.weight.exp_avg" is state "exp_avg" of
 * "model.norm.weight". Adam has three states, others fewer or some more. */
static int put_state(struct states *s, const char *key, const struct uns_value *v, struct uns_err *err)
{
	enum { MAX_STATES = 32, PREFIX = sizeof("state.") - 1 };
	struct uns_arena *arena = &s->m->arena;
	const char *dot = strrchr(key, '.'), *owner;
	struct uns_value *dict;
	unsigned long long n;

	if (!uns_str_starts(key, "state.") || dot < key + PREFIX)
		return UNS_CATALOG_FAIL(s->m->shard->cat, err, OPTIMIZER_STATE_PLACELESS, .scope = UNS_SCOPE_OPTIMIZER,
					.tensor = key);
	owner = uns_arena_strn(arena, key + PREFIX, (size_t)(dot - key) - PREFIX);
	dict = uns_map_get(&s->by_owner, owner);
	if (!dict) {
		dict = uns_value_new_dict(arena, MAX_STATES);
		UNS_TRY_ALLOC(uns_map_put(&s->by_owner, owner, dict, NULL), err);
		uns_value_put(s->dict,
			      s->numbered && uns_str_number(owner, "", "", &n) ? uns_value_new_int(arena, (int64_t)n)
									       : uns_value_new_str(arena, owner),
			      dict);
	}
	if (dict->n == MAX_STATES)
		return UNS_CATALOG_FAIL(s->m->shard->cat, err, TOO_MANY_STATES, .scope = UNS_SCOPE_OPTIMIZER,
					.tensor = owner, .arg = { { "most", uns_num(MAX_STATES) } });
	uns_value_put_str(arena, dict, dot + 1, v);
	return uns_arena_check(arena, err);
}

int uns_rank_shard_optim(const struct uns_rank_shard *shard, struct uns_arena *arena, struct uns_layout *out,
			 struct uns_err *err)
{
	UNS_CLEANUP(making_fini) struct making m = { .shard = shard, .out = arena };
	UNS_CLEANUP(states_fini) struct states s = { .m = &m, .numbered = is_numbered(shard->cat) };
	const struct uns_catalog *cat = shard->cat;
	struct uns_value *root = uns_value_new_dict(&m.arena, 2), *group, *params;
	struct uns_value *groups = uns_value_new_list(&m.arena, cat->n_groups);
	const struct uns_value *v;
	size_t i, k;

	s.dict = uns_value_new_dict(&m.arena, cat->n_tensors + cat->n_values);
	UNS_TRY(making_init(&m, err));
	for (i = 0; i < cat->n_tensors; i++) {
		if (!is_optimizer(cat->tensors[i].root))
			continue;
		UNS_TRY(tensor_value(&m, &cat->tensors[i], &v, err));
		UNS_TRY(put_state(&s, cat->tensors[i].key, v, err));
	}
	for (i = 0; i < cat->n_values; i++)
		if (is_optimizer(cat->values[i].root))
			UNS_TRY(put_state(&s, cat->values[i].name, cat->values[i].value, err));
	for (i = 0; i < cat->n_groups; i++) {
		group = uns_value_new_dict_of(&m.arena, cat->groups[i].hyper, NULL, 1);
		params = uns_value_new_list(&m.arena, cat->groups[i].n_params);
		for (k = 0; k < cat->groups[i].n_params; k++)
			uns_value_append(params, s.numbered ? uns_value_new_int(&m.arena, (int64_t)k)
							    : uns_value_new_str(&m.arena, cat->groups[i].param[k]));
		uns_value_put_str(&m.arena, group, "params", params);
		uns_value_append(groups, group);
	}
	uns_value_put_str(&m.arena, root, "state", s.dict);
	uns_value_put_str(&m.arena, root, "param_groups", groups);
	return write_file(&m, root, out, err);
}

/* -- extra_state -- */

int uns_rank_shard_extra(const struct uns_rank_shard *shard, struct uns_arena *arena, struct uns_layout *out,
			 struct uns_err *err)
{
	UNS_CLEANUP(making_fini) struct making m = { .shard = shard, .out = arena };
	struct uns_value *dict = uns_value_new_dict(&m.arena, 1);

	uns_value_put_str(&m.arena, dict, "lr_scheduler", uns_rank_shard_value(shard->cat, "lr_scheduler"));
	return write_file(&m, dict, out, err);
}
