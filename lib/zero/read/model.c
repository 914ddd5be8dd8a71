/* Weights and buffers of model files. Owns which name is which tensor; frozen slices are in
 * zero/read/frozen.c. */
#include "zero/read/model.h"
#include "parallel/slice_pieces.h"

#include <string.h>

#include "base/cleanup.h"

#define MODEL_ROOT "model"

void uns_zero_names_fini(struct uns_zero_names *names)
{
	uns_map_fini(&names->weights);
	uns_map_fini(&names->masters);
}

int uns_zero_name_put(struct uns_map *map, const char *name, uint32_t index, struct uns_err *err)
{
	return uns_map_put_index(map, name, index) ? 0 : uns_oom(err);
}

int uns_zero_name_alias(struct uns_catalog *cat, struct uns_map *map, const char *name, uint32_t of,
			struct uns_err *err)
{
	struct uns_tensor t = cat->tensors[of];
	uint32_t index;

	t.name = t.key = name;
	t.group = t.position = -1;
	if (t.alias_of == UNS_NONE)
		t.alias_of = of;
	UNS_TRY(uns_catalog_add_tensor(cat, &t, &index, err));
	return uns_zero_name_put(map, name, index, err);
}

int uns_zero_names_add_rounded(struct uns_catalog *cat, struct uns_zero_names *names, struct uns_tensor *t,
			       struct uns_err *err)
{
	uint32_t master = uns_map_index(&names->masters, t->name), index;

	if (master == UNS_NONE)
		return 0;
	t->shape = cat->tensors[master].shape;
	t->alias_of = master;
	UNS_TRY(uns_catalog_add_tensor(cat, t, &index, err));
	return uns_zero_name_put(&names->weights, t->name, index, err);
}

int uns_zero_model_parse(const struct uns_value *root, struct uns_arena *arena, struct uns_zero_model *out,
			 struct uns_err *err)
{
	const struct uns_value *shapes = uns_value_get(root, "param_shapes");

	*out = (struct uns_zero_model){ .root = root };
	if (!root || root->kind != UNS_VALUE_DICT)
		return uns_fail(err, -ENOTSUP,
				"the file does not hold a dict: it is not a model "
				"file of DeepSpeed");
	if (!uns_value_get(root, "module") && !shapes && !uns_value_get(root, "global_steps"))
		return uns_fail(err, -EBADMSG,
				"the file holds neither module nor param_shapes nor global_steps: it is not a model "
				"file of DeepSpeed, or another file under its name");
	out->has_shapes = shapes && shapes->kind != UNS_VALUE_NONE;
	UNS_TRY(uns_zero_shapes_parse_list(shapes, arena, &out->shapes, &out->n_shapes, err));
	return uns_zero_shapes_parse(uns_value_get(root, "frozen_param_shapes"), arena, &out->frozen, err);
}

/* -- one tensor -- */

struct adding {
	struct uns_catalog *cat;
	const struct uns_zero_modules *modules;
	const struct uns_zero_file *file; /* the first rank's */
	struct uns_zero_names *names;
	struct uns_map buffers, storages; /* places: storage, offset and length -> index + 1 */
	struct uns_map shapes;          /* of trainable parameters, by name */
	struct uns_arena scratch;
	bool inferred; /* the name at hand was */
};

static void adding_fini(struct adding *a)
{
	uns_map_fini(&a->buffers);
	uns_map_fini(&a->storages);
	uns_map_fini(&a->shapes);
	uns_arena_fini(&a->scratch);
}

/* One name of the state dict. */
struct entry {
	const char *key;
	const struct uns_value *v;
	struct uns_piece piece; /* of the first rank's tensor */
};

/* What one tensor-parallel rank holds of the weight. */
static int add_slice(struct adding *a, const struct entry *e, const struct uns_tensor *t, size_t rank,
		     const struct uns_zero_slice *slice, struct uns_err *err)
{
	const struct uns_zero_file *file = a->modules->file[rank];
	const struct uns_value *v = uns_value_get(a->modules->dict[rank], e->key);
	struct uns_tensor held;
	struct uns_piece piece;

	if (!uns_torch_is_tensor(v))
		return uns_zero_slice_absent(file->open.name, t->name, (int32_t)rank, err);
	if (uns_zero_file_tensor(file, v, &a->cat->arena, &held, &piece, err) < 0)
		return uns_fail_in(err, "%s", t->name);
	UNS_TRY(uns_zero_slice_check(slice, &held.shape, file->open.name, t->name, (int32_t)rank, err));
	return uns_zero_slice_add(a->cat, slice, &piece, t->dtype, err);
}

/* Tied weights are saved as one storage with two names: the second is an alias of the first. */
static int add_whole(struct adding *a, const struct entry *e, struct uns_tensor *t, struct uns_err *err)
{
	const struct uns_zero_slices *slices = a->modules->slices;
	const struct uns_piece *piece = &e->piece;
	const struct uns_zero_cut_up *cut = NULL;
	const struct uns_tensor *first = NULL; /* the tensor that has these bytes already */
	const char *storage;
	uint32_t known = UNS_NONE, index;
	size_t rank;

	UNS_TRY_ALLOC(storage = uns_arena_printf(&a->scratch, "%u %llu %llu", piece->file,
						 (unsigned long long)piece->offset_bytes,
						 (unsigned long long)piece->length_bytes),
		      err);
	if (!piece->stride_elems && piece->length_bytes)
		known = uns_map_index(&a->storages, storage);
	if (known != UNS_NONE)
		first = &a->cat->tensors[known];
	/* Buffers, which all tensor-parallel ranks have, are taken from the first. */
	if (slices->n_ranks > 1 && t->role != UNS_ROLE_BUFFER)
		UNS_TRY(uns_zero_cut_get(slices, first ? first->name : t->name, a->file->open.name, 0, &cut, err));
	if (cut)
		t->shape = cut->whole;
	if (first && first->dtype == t->dtype && uns_shape_equal(&first->shape, &t->shape))
		t->alias_of = known;
	UNS_TRY(uns_catalog_add_tensor(a->cat, t, &index, err));
	for (rank = 0; cut && rank < slices->n_ranks; rank++)
		UNS_TRY(add_slice(a, e, t, rank, &cut->slice[rank], err));
	if (!cut)
		UNS_TRY(uns_catalog_add_piece(a->cat, piece, err));
	if (t->alias_of == UNS_NONE && !piece->stride_elems)
		UNS_TRY(uns_zero_name_put(&a->storages, storage, index, err));
	return uns_zero_name_put(&a->names->weights, t->name, index, err);
}

static int add_entry(struct adding *a, const char *name, struct entry *e, struct uns_err *err)
{
	const struct uns_zero_param *param = uns_map_get(&a->shapes, name);
	struct uns_tensor t = {
		.name = name, .key = name, .root = MODEL_ROOT, UNS_TENSOR_ALONE, .inferred = a->inferred
	};

	if (!uns_torch_is_tensor(e->v))
		return uns_catalog_add_value(
			a->cat,
			&(struct uns_named_value){
				.name = name, .root = MODEL_ROOT, .value = e->v, .file = a->file->index },
			err);
	if (uns_map_index(&a->names->weights, name) != UNS_NONE)
		return 0; /* gathered weights beside the shards, or a frozen parameter */
	if (uns_zero_file_tensor(a->file, e->v, &a->cat->arena, &t, &e->piece, err) < 0)
		return uns_fail_in(err, "%s", name);
	t.role = uns_map_get(&a->buffers, e->key) ? UNS_ROLE_BUFFER : UNS_ROLE_WEIGHT;
	/* Stage 3 saves an empty tensor in a parameter's place, which has the model's type. */
	if (t.shape.n && !uns_shape_elems(&t.shape) && t.role == UNS_ROLE_WEIGHT && (!param || param->elems))
		return uns_zero_names_add_rounded(a->cat, a->names, &t, err);
	return add_whole(a, e, &t, err);
}

/* -- the state dict -- */

/* A pipeline's layer that shares its weights with others: its file calls them by their local name, the
 * optimizer "tied_modules.KEY.LOCAL". Which KEY is not recorded; where only one fits, it is that one. */
static const char *tied_name(const struct adding *a, const char *key, const struct uns_value *v)
{
	const struct uns_tensor *m, *found = NULL;
	struct uns_tensor t;
	struct uns_piece piece;
	size_t i, n, len = strlen(key);

	if (!uns_torch_is_tensor(v) || uns_zero_file_tensor(a->file, v, &a->cat->arena, &t, &piece, NULL) < 0)
		return NULL;
	for (i = 0; i < a->cat->n_tensors; i++) {
		m = &a->cat->tensors[i];
		n = strlen(m->name);
		if (m->role != UNS_ROLE_MASTER || strncmp(m->name, "tied_modules.", 13) != 0 || n <= len + 13 ||
		    strcmp(m->name + n - len, key) != 0 || m->name[n - len - 1] != '.' ||
		    !uns_shape_equal(&m->shape, &t.shape))
			continue;
		if (found)
			return NULL;
		found = m;
	}
	return found ? found->name : NULL;
}

static int name_of(struct adding *a, const char *prefix, const char *key, const struct uns_value *v, const char **out,
		   struct uns_err *err)
{
	const char *tied;

	UNS_TRY_ALLOC(*out = *prefix ? uns_arena_printf(&a->cat->arena, "%s%s", prefix, key) : key, err);
	if (!*prefix || uns_map_index(&a->names->masters, *out) != UNS_NONE)
		return 0;
	tied = tied_name(a, key, v);
	if (tied)
		*out = tied;
	a->inferred = tied != NULL;
	return 0;
}

static int list_buffers(const struct uns_zero_model *model, struct uns_map *out, struct uns_err *err)
{
	const struct uns_value *list = uns_value_get(model->root, "buffer_names");
	const char *name;
	size_t i;

	for (i = 0; uns_value_at(list, i); i++) {
		name = uns_value_str(list->item[i]);
		if (name && !uns_map_put(out, name, (void *)list, NULL))
			return uns_oom(err);
	}
	return 0;
}

static int list_shapes(const struct uns_zero_model *model, struct uns_map *out, struct uns_err *err)
{
	size_t g, i;

	for (g = 0; g < model->n_shapes; g++)
		for (i = 0; i < model->shapes[g].n; i++)
			UNS_TRY_ALLOC(uns_map_put(out, model->shapes[g].v[i].name, &model->shapes[g].v[i], NULL), err);
	return 0;
}

int uns_zero_model_add(struct uns_catalog *cat, const struct uns_zero_model *model,
		       const struct uns_zero_modules *modules, const char *prefix, struct uns_zero_names *names,
		       struct uns_err *err)
{
	UNS_CLEANUP(adding_fini)
	struct adding a = { .cat = cat, .modules = modules, .file = modules->file[0], .names = names };
	const struct uns_value *module = modules->dict[0];
	struct entry e;
	const char *name;
	size_t i;

	if (!module || module->kind != UNS_VALUE_DICT)
		return uns_fail(err, -ENOTSUP, "the file holds no state dict of the model");
	UNS_TRY(list_buffers(model, &a.buffers, err));
	UNS_TRY(list_shapes(model, &a.shapes, err));
	for (i = 0; i < module->n; i++) {
		e = (struct entry){ .key = uns_value_str(module->pair[i].key), .v = module->pair[i].value };
		if (!e.key)
			return uns_fail(err, -ENOTSUP, "a state dict with a key that is not a name");
		UNS_TRY(name_of(&a, prefix, e.key, e.v, &name, err));
		UNS_TRY(add_entry(&a, name, &e, err));
	}
	return 0;
}

int uns_zero_model_add_file(struct uns_catalog *cat, const struct uns_zero_file *file, const char *prefix,
			    struct uns_zero_names *names, struct uns_err *err)
{
	const struct uns_zero_slices uncut = { .n_ranks = 1 };
	const struct uns_value *dict = file->torch.root;
	const struct uns_zero_modules modules = { .slices = &uncut, .file = &file, .dict = &dict };
	const struct uns_zero_model none = { 0 };

	if (uns_zero_model_add(cat, &none, &modules, prefix, names, err) < 0)
		return uns_fail_in_file(err, file->open.name);
	return 0;
}

/* -- names of others' tensors -- */

/* The tensor `owner`, if it is there, has the name as well. */
static int add_shared(struct uns_catalog *cat, struct uns_map *map, const char *name, const char *owner,
		      struct uns_err *err)
{
	uint32_t of = uns_map_index(map, owner);

	return of == UNS_NONE || uns_map_index(map, name) != UNS_NONE ? 0
								      : uns_zero_name_alias(cat, map, name, of, err);
}

int uns_zero_model_add_shared(struct uns_catalog *cat, const struct uns_zero_model *model, struct uns_zero_names *names,
			      struct uns_err *err)
{
	const struct uns_value *shared = uns_value_get(model->root, "shared_params");
	const char *name, *owner;
	size_t i;

	for (i = 0; shared && shared->kind == UNS_VALUE_DICT && i < shared->n; i++) {
		name = uns_value_str(shared->pair[i].key);
		owner = uns_value_str(shared->pair[i].value);
		if (!name || !owner)
			return uns_fail(err, -ENOTSUP, "shared_params does not map names to names");
		UNS_TRY(add_shared(cat, &names->masters, name, owner, err));
		UNS_TRY(add_shared(cat, &names->weights, name, owner, err));
	}
	return 0;
}

/* -- check -- */

static const char *lacking_of(const struct uns_zero_shapes *shapes, const struct uns_zero_names *names)
{
	size_t i;

	for (i = 0; i < shapes->n; i++)
		if (!uns_map_get(&names->weights, shapes->v[i].name))
			return shapes->v[i].name;
	return NULL;
}

int uns_zero_model_check(struct uns_catalog *cat, const struct uns_zero_model *model, const char *path,
			 const struct uns_zero_names *names, struct uns_err *err)
{
	const struct uns_value *module = uns_value_get(model->root, "module");
	const char *lacking = NULL, *name;
	size_t i;

	for (i = 0; !lacking && module && module->kind == UNS_VALUE_DICT && i < module->n; i++) {
		name = uns_value_str(module->pair[i].key);
		if (name && uns_torch_is_tensor(module->pair[i].value) && !uns_map_get(&names->weights, name))
			lacking = name;
	}
	for (i = 0; !lacking && i < model->n_shapes; i++)
		lacking = lacking_of(&model->shapes[i], names);
	if (!lacking)
		lacking = lacking_of(&model->frozen, names);
	return lacking ? UNS_ADD_FINDING(cat, err, ZERO_WEIGHT_MISSING, .scope = UNS_SCOPE_WEIGHTS, .file = path,
					 .tensor = lacking)
		       : 0;
}
