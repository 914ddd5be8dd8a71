/* Lightning's checkpoint keys around tensors that stay where they are: the Trainer's keys, or those of a script with
 * Fabric (fabric_file.h). Knows Lightning's dict, not how a torch file is written. Source: lightning 2.6
 * trainer/connectors/checkpoint_connector.py, strategies/{strategy,fsdp,model_parallel}.py. */
#include "files/lightning_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "model/cover.h"
#include "model/meta_file.h"
#include "files/fabric_file.h"
#include "files/optimizer_state.h"
#include "wire/torchfile.h"
#include "wire/value_new.h"

enum { MAX_OPTIMIZERS = 1024, MAX_META_NODES = 1 << 20, MAX_META_DEPTH = 64, ROOM_FOR_ROOT = 32 };

static bool is_fabric(const struct uns_catalog *cat)
{
	return cat->summary.resumed_by & UNS_BY_FABRIC;
}

/* -- meta.pt in the catalog -- */

static bool is_meta_storage(const struct uns_tensor *t)
{
	return t->role == UNS_ROLE_OTHER && strcmp(t->root, UNS_META_ROOT) == 0;
}

const struct uns_value *uns_lightning_value(const struct uns_catalog *cat, const char *key)
{
	return uns_catalog_value(cat, UNS_META_ROOT, key);
}

static size_t count_storages(const struct uns_catalog *cat)
{
	size_t i, n = 0;

	for (i = 0; i < cat->n_tensors; i++)
		n += is_meta_storage(&cat->tensors[i]);
	return n;
}

int uns_lightning_front(const struct uns_catalog *cat, struct uns_span *pickle, struct uns_torch_leaves *leaves,
			struct uns_err *err)
{
	const struct uns_value *v = uns_catalog_value(cat, UNS_META_PICKLE, "");
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	size_t n = count_storages(cat);

	if (!v)
		return UNS_CATALOG_FAIL(cat, err, LIGHTNING_META_UNREADABLE, .scope = UNS_SCOPE_ALL);
	*pickle = uns_span_of(v->bytes, v->n);
	*leaves = (struct uns_torch_leaves){ calloc(n + 1, sizeof(*leaves->v)), n, n + 1 };
	UNS_TRY_ALLOC(leaves->v, err);
	for (; t < end; t++)
		if (is_meta_storage(t))
			leaves->v[strtoull(t->name, NULL, 10)] =
				(struct uns_torch_leaf){ .tensor = t, .out = t->dtype, .shape = t->shape };
	return 0;
}

/* -- optimizers -- */

static const char *optimizer_root(char buf[ROOM_FOR_ROOT], size_t index)
{
	snprintf(buf, ROOM_FOR_ROOT, "optimizer_%zu", index);
	return buf;
}

/* How many optimizers, which have groups or states, follow each other without a gap. */
static size_t count_optimizers(const struct uns_catalog *cat)
{
	char root[ROOM_FOR_ROOT];
	size_t n, i, k;

	for (n = 0; n < MAX_OPTIMIZERS; n++) {
		optimizer_root(root, n);
		for (i = 0; i < cat->n_groups && strcmp(cat->groups[i].root, root) != 0; i++)
			;
		for (k = 0; i == cat->n_groups && k < cat->n_tensors; k++)
			if (uns_role_is_optimizer(cat->tensors[k].role) && strcmp(cat->tensors[k].root, root) == 0)
				break;
		if (i == cat->n_groups && k == cat->n_tensors)
			break;
	}
	return n;
}

bool uns_lightning_has_optimizer(const struct uns_catalog *cat)
{
	return is_fabric(cat) ? uns_fabric_optimizer(cat, 0) != NULL : count_optimizers(cat) > 0;
}

/* -- check -- */

/* Storage keys must be the numbers from 0 that torch gives: the new storages get the numbers after them. */
static int check_storages(const struct uns_catalog *cat, struct uns_err *why)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	const size_t n = count_storages(cat);
	unsigned long long key;

	for (; t < end; t++) {
		if (!is_meta_storage(t))
			continue;
		if (!uns_str_number(t->name, "", "", &key) || key >= n)
			return UNS_CATALOG_FAIL(cat, why, LIGHTNING_META_STORAGE, .scope = UNS_SCOPE_ALL,
						.found = uns_str(t->name));
		UNS_TRY(uns_cover_check(cat, t, why));
	}
	return 0;
}

int uns_lightning_check(const struct uns_catalog *cat, bool resume, struct uns_err *why)
{
	size_t i, n_optimizers = resume && !is_fabric(cat) ? count_optimizers(cat) : 0;
	char root[ROOM_FOR_ROOT];

	UNS_TRY(uns_cover_weights(cat, why));
	if (resume)
		UNS_TRY(uns_cover_refusal(cat, UNS_SCOPE_OPTIMIZER, why));
	if (!uns_catalog_value(cat, UNS_META_PICKLE, ""))
		return UNS_CATALOG_FAIL(cat, why, LIGHTNING_META_UNREADABLE, .scope = UNS_SCOPE_ALL);
	UNS_TRY(check_storages(cat, why));
	for (i = 0; i < n_optimizers; i++)
		UNS_TRY(uns_optimizer_check(cat, optimizer_root(root, i), why));
	return is_fabric(cat) ? uns_fabric_check(cat, resume, why) : 0;
}

/* -- building -- */

struct builder {
	const struct uns_lightning_input *in;
	struct uns_vtree *out;
	struct uns_value *root; /* the items after meta.pt's own */
	struct uns_torch_leaves leaves;
	const char *stand_in; /* what was assumed, for provenance; NULL = nothing */
};

static int state_dict_add(struct builder *b, struct uns_err *err)
{
	const struct uns_tensor *t = b->in->catalog->tensors, *end = t + b->in->catalog->n_tensors;
	struct uns_arena *arena = &b->out->arena;
	struct uns_value *dict = uns_value_new_dict(arena, b->in->catalog->n_tensors);
	struct uns_torch_leaf leaf;

	for (; t < end; t++) {
		if (!uns_role_is_model(t->role))
			continue;
		leaf = (struct uns_torch_leaf){ .tensor = t, .out = t->dtype, .shape = t->shape };
		if (b->in->out != UNS_DTYPE_NONE && uns_dtype_info(t->dtype)->is_float)
			leaf.out = b->in->out;
		UNS_TRY_ALLOC(uns_value_put_str(arena, dict, t->name, uns_torch_leaf_add(&b->leaves, arena, &leaf)),
			      err);
	}
	UNS_TRY_ALLOC(uns_value_put_str(arena, b->root, "state_dict", dict), err);
	return 0;
}

static int optimizers_add(struct builder *b, struct uns_err *err)
{
	struct uns_arena *arena = &b->out->arena;
	size_t i, n = count_optimizers(b->in->catalog);
	struct uns_value *list = uns_value_new_list(arena, n);
	struct uns_optimizer_state state;
	char root[ROOM_FOR_ROOT];

	for (i = 0; i < n; i++) {
		UNS_TRY(uns_optimizer_state_build(b->in->catalog, optimizer_root(root, i), UNS_IDS_NAMES,
						  b->in->global_step, arena, &b->leaves, &state, err));
		if (state.n_steps_assumed || state.n_steps_from_group)
			b->stand_in = "; `step` of parameters that were saved without it is inferred";
		UNS_TRY_ALLOC(uns_value_append(list, state.root), err);
	}
	if (n || !b->in->for_fsdp)
		UNS_TRY_ALLOC(uns_value_put_str(arena, b->root, "optimizer_states", list), err);
	return 0;
}

/* Empty optimizer states and schedulers: a checkpoint of weights only has neither, and a Trainer needs both. Which
 * strategies resume from empty states: load_checkpoint of the strategies, lightning 2.6. */
static int stand_ins_add(struct builder *b, struct uns_err *err)
{
	const struct uns_catalog *cat = b->in->catalog;
	const bool schedulers = uns_catalog_value(cat, UNS_META_ROOT, "lr_schedulers") != NULL;
	struct uns_arena *arena = &b->out->arena;

	if (cat->summary.is_weights_only) {
		b->stand_in = "; it was saved without optimizers and learning rate schedulers, so "
			      "empty ones are synthesised: they start from the beginning";
		UNS_TRY(uns_vtree_note(b->out, err,
				       "the checkpoint was saved without optimizers. A Trainer on one device "
				       "resumes from the view full and one with FSDPStrategy from full-fsdp, "
				       "each with new optimizer states. ModelParallelStrategy needs the saved "
				       "states and resumes from neither: load the weights into the module and "
				       "call fit without ckpt_path"));
	} else if (!schedulers) {
		b->stand_in = "; empty learning rate schedulers are synthesised: none were saved";
	}
	if (!schedulers)
		UNS_TRY_ALLOC(uns_value_put_str(arena, b->root, "lr_schedulers", uns_value_new_list(arena, 0)), err);
	return 0;
}

static int trainer_keys_add(struct builder *b, struct uns_err *err)
{
	UNS_TRY(state_dict_add(b, err));
	if (!b->in->resume)
		return 0;
	UNS_TRY(optimizers_add(b, err));
	return stand_ins_add(b, err);
}

static int fabric_keys_add(struct builder *b, struct uns_err *err)
{
	const struct uns_lightning_input *in = b->in;

	UNS_TRY(uns_fabric_add_models(in->catalog, in->out, &b->out->arena, b->root, &b->leaves, err));
	return in->resume ? uns_fabric_add_optimizers(in->catalog, in->global_step, &b->out->arena, b->root, &b->leaves,
						      err)
			  : 0;
}

/* -- objects -- */

/* The first class in v that weights_only=True refuses, or NULL. v is a tree of known size. */
static const char *object_in(const struct uns_value *v)
{
	const char *found = NULL;
	size_t i;

	if (!v || uns_torch_is_tensor(v) || uns_value_is(v, "torch.Size"))
		return NULL;
	if (v->kind == UNS_VALUE_OBJECT ||
	    (v->cls && !uns_value_is(v, "collections.OrderedDict") && strncmp(v->cls, "torch.", 6) != 0))
		return v->cls;
	if (v->kind == UNS_VALUE_DICT)
		for (i = 0; i < v->n && !found; i++)
			found = object_in(v->pair[i].value);
	if (v->kind == UNS_VALUE_LIST || v->kind == UNS_VALUE_TUPLE || v->kind == UNS_VALUE_SET)
		for (i = 0; i < v->n && !found; i++)
			found = object_in(v->item[i]);
	return found;
}

static int note_objects(const struct builder *b, struct uns_err *err)
{
	const struct uns_catalog *cat = b->in->catalog;
	const char *cls = NULL;
	size_t i;

	for (i = 0; i < cat->n_values && !cls; i++)
		if (strcmp(cat->values[i].root, UNS_META_ROOT) == 0 &&
		    uns_value_fits(cat->values[i].value, MAX_META_NODES, MAX_META_DEPTH))
			cls = object_in(cat->values[i].value);
	if (!cls)
		return 0;
	return uns_vtree_note(b->out, err,
			      "meta.pt holds an object of class %s, which the training script "
			      "saved: torch.load reads this file, as it reads meta.pt, only with "
			      "weights_only=False or with that class among its safe globals",
			      cls);
}

/* -- the file -- */

static void builder_fini(struct builder *b)
{
	uns_torch_leaves_fini(&b->leaves);
}

int uns_lightning_add(const struct uns_lightning_input *in, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(builder_fini)
	struct builder b = { .in = in,
			     .out = out,
			     .root = uns_value_new_dict(
				     &out->arena, is_fabric(in->catalog) ? uns_fabric_count_keys(in->catalog) : 4) };
	struct uns_torch_input torch = { .cat = in->catalog, .root = b.root, .leaves = &b.leaves, .stem = "archive" };
	const char *name = uns_path_name(in->catalog->path);
	struct uns_vfile file = { .source = UNS_NONE, .path = name }, *whole;

	UNS_TRY_ALLOC(b.root, err);
	UNS_TRY(uns_lightning_front(in->catalog, &torch.front, &b.leaves, err));
	if (is_fabric(in->catalog))
		UNS_TRY(fabric_keys_add(&b, err));
	else
		UNS_TRY(trainer_keys_add(&b, err));
	if (!*name)
		file.path = "checkpoint.ckpt";
	else if (!uns_str_ends(name, ".ckpt"))
		file.path = uns_arena_printf(&out->arena, "%s.ckpt", name);
	file.origin = uns_arena_printf(&out->arena, "meta.pt, continued with the checkpoint's tensors%s%s%s",
				       in->out == UNS_DTYPE_NONE ? "" : ", floating dtypes converted to ",
				       in->out == UNS_DTYPE_NONE ? "" : uns_dtype_info(in->out)->torch,
				       b.stand_in ? b.stand_in : "");
	UNS_TRY(uns_part_torch_file(&torch, &out->arena, &file.layout, err));
	UNS_TRY(note_objects(&b, err));
	if (!*in->catalog->path)
		return uns_vtree_add(out, &file, err);
	UNS_TRY_ALLOC(whole = UNS_NEW(&out->arena, struct uns_vfile), err);
	*whole = file;
	out->whole = whole;
	return uns_arena_check(&out->arena, err);
}
