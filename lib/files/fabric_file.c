/* Keys and state dicts of Fabric's checkpoints. Knows that a key at the top of the DCP directory is an optimizer's if
 * param groups or states are below it, and otherwise a model's; meta.pt has all other keys. */
#include "files/fabric_file.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "base/text.h"
#include "files/optimizer_state.h"
#include "model/cover.h"
#include "model/meta_file.h"
#include "wire/value_new.h"

/* -- which keys -- */

/* Not yet among the first `n` groups and, if these are all, the first `k` tensors. */
static bool is_new_root(const struct uns_catalog *cat, const char *root, size_t n, size_t k)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (strcmp(cat->groups[i].root, root) == 0)
			return false;
	for (i = 0; i < k; i++)
		if (uns_role_is_optimizer(cat->tensors[i].role) && strcmp(cat->tensors[i].root, root) == 0)
			return false;
	return true;
}

const char *uns_fabric_optimizer(const struct uns_catalog *cat, size_t number)
{
	size_t i;

	for (i = 0; i < cat->n_groups; i++)
		if (is_new_root(cat, cat->groups[i].root, i, 0) && !number--)
			return cat->groups[i].root;
	for (i = 0; i < cat->n_tensors; i++)
		if (uns_role_is_optimizer(cat->tensors[i].role) &&
		    is_new_root(cat, cat->tensors[i].root, cat->n_groups, i) && !number--)
			return cat->tensors[i].root;
	return NULL;
}

/* A tensor of some model: one whose weights views show, or one below another key. */
static bool is_of_model(const struct uns_tensor *t)
{
	return uns_role_is_model(t->role) || (t->role == UNS_ROLE_OTHER && strcmp(t->root, UNS_META_ROOT) != 0);
}

/* Its name in its model's state dict: without the key that weights of several keys have in front of their names. */
static const char *name_in_model(const struct uns_tensor *t)
{
	const size_t n = strlen(t->root);

	return strcmp(t->name, t->key) == 0 && uns_str_starts(t->name, t->root) && t->name[n] == '.' ? t->name + n + 1
												     : t->name;
}

size_t uns_fabric_count_keys(const struct uns_catalog *cat)
{
	size_t n = 0;

	while (uns_fabric_optimizer(cat, n))
		n++;
	return n + cat->n_tensors;
}

/* -- check -- */

static bool is_of_optimizer(const struct uns_catalog *cat, const char *root)
{
	const char *of;
	size_t i;

	for (i = 0; (of = uns_fabric_optimizer(cat, i)); i++)
		if (strcmp(of, root) == 0)
			return true;
	return false;
}

/* An object that is no tensor, in the state dict of a model: only where it lies is known. */
static int check_objects(const struct uns_catalog *cat, struct uns_err *why)
{
	const struct uns_named_value *v = cat->values, *end = v + cat->n_values;

	for (; v < end; v++)
		if (strcmp(v->root, UNS_META_ROOT) != 0 && strcmp(v->root, UNS_META_PICKLE) != 0 &&
		    !is_of_optimizer(cat, v->root))
			return UNS_CATALOG_FAIL(cat, why, FABRIC_OBJECT, .scope = UNS_SCOPE_OPTIMIZER,
						.tensor = v->name, .arg = { { "key", uns_str(v->root) } });
	return 0;
}

int uns_fabric_check(const struct uns_catalog *cat, bool resume, struct uns_err *why)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	const char *root;
	size_t i;

	UNS_TRY(check_objects(cat, why));
	for (; t < end; t++) {
		if (!is_of_model(t))
			continue;
		if (!*t->root)
			return UNS_CATALOG_FAIL(cat, why, FABRIC_OBJECT, .scope = UNS_SCOPE_OPTIMIZER,
						.tensor = t->name, .arg = { { "key", uns_str(t->key) } });
		UNS_TRY(uns_cover_check(cat, t, why));
	}
	for (i = 0; resume && (root = uns_fabric_optimizer(cat, i)); i++)
		UNS_TRY(uns_optimizer_check(cat, root, why));
	return 0;
}

/* -- building -- */

int uns_fabric_add_models(const struct uns_catalog *cat, enum uns_dtype out, struct uns_arena *arena,
			  struct uns_value *root, struct uns_torch_leaves *leaves, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map dicts = UNS_MAP_INIT;
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	struct uns_torch_leaf leaf;
	struct uns_value *dict;

	for (; t < end; t++) {
		if (!is_of_model(t))
			continue;
		dict = uns_map_get(&dicts, t->root);
		if (!dict) {
			dict = uns_value_new_dict(arena, cat->n_tensors);
			UNS_TRY_ALLOC(uns_value_put_str(arena, root, t->root, dict) &&
					      uns_map_put(&dicts, t->root, dict, NULL),
				      err);
		}
		leaf = (struct uns_torch_leaf){ .tensor = t, .out = t->dtype, .shape = t->shape };
		if (out != UNS_DTYPE_NONE && uns_dtype_info(t->dtype)->is_float)
			leaf.out = out;
		UNS_TRY_ALLOC(
			uns_value_put_str(arena, dict, name_in_model(t), uns_torch_leaf_add(leaves, arena, &leaf)),
			err);
	}
	return 0;
}

int uns_fabric_add_optimizers(const struct uns_catalog *cat, int64_t global_step, struct uns_arena *arena,
			      struct uns_value *root, struct uns_torch_leaves *leaves, struct uns_err *err)
{
	struct uns_optimizer_state state;
	const char *key;
	size_t i;

	for (i = 0; (key = uns_fabric_optimizer(cat, i)); i++) {
		UNS_TRY(uns_optimizer_state_build(cat, key, UNS_IDS_NAMES, global_step, arena, leaves, &state, err));
		UNS_TRY_ALLOC(uns_value_put_str(arena, root, key, state.root), err);
	}
	return 0;
}
