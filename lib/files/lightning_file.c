/* Lightning's checkpoint keys around tensors that stay where they are. Knows Lightning's dict, not
 * how a torch file is written. Source: lightning 2.6 trainer/connectors/checkpoint_connector.py,
 * strategies/{strategy,fsdp,model_parallel}.py. */
#include "files/lightning_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "model/client_state.h"
#include "model/cover.h"
#include "model/meta_file.h"
#include "files/optimizer_state.h"
#include "wire/torchfile.h"
#include "wire/value_new.h"

enum { MAX_OPTIMIZERS = 1024, MAX_META_NODES = 1 << 20, MAX_META_DEPTH = 64 };

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

/* Storage keys must be the numbers from 0 that torch gives: the new storages get the numbers after them. */
static int check_storages(const struct uns_catalog *cat, struct uns_err *why)
{
	size_t i, n = count_storages(cat);
	unsigned long long key;

	for (i = 0; i < cat->n_tensors; i++) {
		if (!is_meta_storage(&cat->tensors[i]))
			continue;
		if (!uns_str_number(cat->tensors[i].name, "", "", &key) || key >= n)
			return uns_catalog_fail(cat,
						UNS_FINDING(.id = UNS_FOUND_LIGHTNING_META_STORAGE,
							    .scope = UNS_SCOPE_ALL,
							    .found = uns_str(cat->tensors[i].name)),
						why);
		UNS_TRY(uns_cover_check(cat, &cat->tensors[i], why));
	}
	return 0;
}

int uns_lightning_front(const struct uns_catalog *cat, struct uns_span *pickle,
			struct uns_torch_leaves *leaves, struct uns_err *err)
{
	const struct uns_value *v = uns_catalog_value(cat, UNS_META_PICKLE, "");
	size_t i, n = count_storages(cat);
	const struct uns_tensor *t;

	if (!v)
		return uns_catalog_fail(cat,
					UNS_FINDING(.id = UNS_FOUND_LIGHTNING_META_UNREADABLE,
						    .scope = UNS_SCOPE_ALL),
					err);
	*pickle = uns_span_of(v->bytes, v->n);
	*leaves = (struct uns_torch_leaves){ calloc(n + 1, sizeof(*leaves->v)), n, n + 1 };
	if (!leaves->v)
		return uns_oom(err);
	for (i = 0; i < cat->n_tensors; i++) {
		t = &cat->tensors[i];
		if (is_meta_storage(t))
			leaves->v[strtoull(t->name, NULL, 10)] = (struct uns_torch_leaf){
				.tensor = t, .out = t->dtype, .shape = t->shape
			};
	}
	return 0;
}

/* -- optimizers -- */

static bool has_optimizer(const struct uns_catalog *cat, const char *root)
{
	size_t i;

	for (i = 0; i < cat->n_groups; i++)
		if (strcmp(cat->groups[i].root, root) == 0)
			return true;
	for (i = 0; i < cat->n_tensors; i++)
		if (uns_role_is_optimizer(cat->tensors[i].role) &&
		    strcmp(cat->tensors[i].root, root) == 0)
			return true;
	return false;
}

bool uns_lightning_has_optimizer(const struct uns_catalog *cat)
{
	return has_optimizer(cat, "optimizer_0");
}

static const char *optimizer_root(char *buf, size_t size, size_t index)
{
	snprintf(buf, size, "optimizer_%zu", index);
	return buf;
}

static size_t count_optimizers(const struct uns_catalog *cat)
{
	char root[32];
	size_t n = 0;

	while (n < MAX_OPTIMIZERS && has_optimizer(cat, optimizer_root(root, sizeof(root), n)))
		n++;
	return n;
}

/* -- check -- */

int uns_lightning_check(const struct uns_catalog *cat, bool resume, struct uns_err *why)
{
	size_t i, n = resume ? count_optimizers(cat) : 0;
	char root[32];

	UNS_TRY(uns_cover_weights(cat, why));
	if (resume)
		UNS_TRY(uns_cover_refusal(cat, UNS_SCOPE_OPTIMIZER, why));
	if (!uns_catalog_value(cat, UNS_META_PICKLE, ""))
		return uns_catalog_fail(cat,
					UNS_FINDING(.id = UNS_FOUND_LIGHTNING_META_UNREADABLE,
						    .scope = UNS_SCOPE_ALL),
					why);
	UNS_TRY(check_storages(cat, why));
	for (i = 0; i < n; i++)
		UNS_TRY(uns_optimizer_check(cat, optimizer_root(root, sizeof(root), i), why));
	return 0;
}

/* -- building -- */

struct builder {
	const struct uns_lightning_input *in;
	struct uns_vtree *out;
	struct uns_value *root; /* the items after meta.pt's own */
	struct uns_torch_leaves leaves;
	const char *stand_in; /* what was assumed, for provenance; NULL = nothing */
};

static bool put(struct builder *b, const char *key, const struct uns_value *v)
{
	return uns_value_put_str(&b->out->arena, b->root, key, v);
}

static enum uns_dtype out_type(const struct builder *b, const struct uns_tensor *t)
{
	if (b->in->out == UNS_DTYPE_NONE || !uns_dtype_info(t->dtype)->is_float)
		return t->dtype;
	return b->in->out;
}

static int add_state_dict(struct builder *b, struct uns_err *err)
{
	const struct uns_catalog *cat = b->in->catalog;
	struct uns_arena *arena = &b->out->arena;
	struct uns_value *dict = uns_value_new_dict(arena, cat->n_tensors);
	struct uns_torch_leaf leaf;
	const struct uns_tensor *t;
	size_t i;

	for (i = 0; i < cat->n_tensors; i++) {
		t = &cat->tensors[i];
		if (!uns_role_is_model(t->role))
			continue;
		leaf = (struct uns_torch_leaf){ .tensor = t, .out = out_type(b, t), .shape = t->shape };
		if (!uns_value_put_str(arena, dict, t->name, uns_torch_leaf_add(&b->leaves, arena, &leaf)))
			return uns_oom(err);
	}
	return put(b, "state_dict", dict) ? 0 : uns_oom(err);
}

static int add_optimizer(struct builder *b, size_t index, struct uns_value *list,
			 struct uns_err *err)
{
	struct uns_optimizer_state state;
	char root[32];

	UNS_TRY(uns_optimizer_state_build(b->in->catalog, optimizer_root(root, sizeof(root), index),
					  UNS_IDS_NAMES, b->in->global_step, &b->out->arena,
					  &b->leaves, &state, err));
	if (state.n_steps_assumed || state.n_steps_from_group)
		b->stand_in = "; `step` of parameters that were saved without it is inferred";
	return uns_value_append(list, state.root) ? 0 : uns_oom(err);
}

static int add_optimizers(struct builder *b, struct uns_err *err)
{
	size_t i, n = count_optimizers(b->in->catalog);
	struct uns_value *list = uns_value_new_list(&b->out->arena, n);

	for (i = 0; i < n; i++)
		UNS_TRY(add_optimizer(b, i, list, err));
	if (!n && b->in->for_fsdp)
		return 0;
	return put(b, "optimizer_states", list) ? 0 : uns_oom(err);
}

/* Which strategies resume from empty states. Source: load_checkpoint of the strategies, lightning 2.6. */
static int note_who_takes_it(const struct builder *b, struct uns_err *err)
{
	return uns_vtree_note(b->out, err,
			   "the checkpoint was saved without optimizers. A Trainer on one device "
			   "resumes from the view full and one with FSDPStrategy from full-fsdp, "
			   "each with new optimizer states. ModelParallelStrategy needs the saved "
			   "states and resumes from neither: load the weights into the module and "
			   "call fit without ckpt_path");
}

/* Empty optimizer states and schedulers: a checkpoint of weights only has neither, and a Trainer needs both. */
static int add_stand_ins(struct builder *b, struct uns_err *err)
{
	const struct uns_catalog *cat = b->in->catalog;
	bool optimizers = !cat->summary.is_weights_only,
	     schedulers = uns_catalog_value(cat, UNS_META_ROOT, "lr_schedulers") != NULL;

	if (!optimizers) {
		b->stand_in = "; it was saved without optimizers and learning rate schedulers, so "
			      "empty ones are synthesised: they start from the beginning";
		UNS_TRY(note_who_takes_it(b, err));
	} else if (!schedulers) {
		b->stand_in = "; empty learning rate schedulers are synthesised: none were saved";
	}
	if (schedulers)
		return 0;
	return put(b, "lr_schedulers", uns_value_new_list(&b->out->arena, 0)) ? 0 : uns_oom(err);
}

static const char *origin_of(const struct builder *b)
{
	const char *torch = uns_dtype_info(b->in->out)->torch;

	return uns_arena_printf(
		&b->out->arena, "meta.pt, continued with the checkpoint's tensors%s%s%s",
		b->in->out == UNS_DTYPE_NONE ? "" : ", floating dtypes converted to ",
		b->in->out == UNS_DTYPE_NONE ? "" : torch, b->stand_in ? b->stand_in : "");
}

static const char *file_name(const struct builder *b)
{
	const char *name = uns_path_name(b->in->catalog->path);

	if (!*name)
		return "checkpoint.ckpt";
	if (uns_str_ends(name, ".ckpt"))
		return name;
	return uns_arena_printf(&b->out->arena, "%s.ckpt", name);
}

/* -- objects -- */

/* The first class in v that weights_only=True refuses, or NULL. v is a tree of known size. */
static const char *object_in(const struct uns_value *v)
{
	const char *found = NULL;
	size_t i;

	if (!v || uns_torch_is_tensor(v) || uns_value_is(v, "torch.Size"))
		return NULL;
	if (v->kind == UNS_VALUE_OBJECT || (v->cls && !uns_value_is(v, "collections.OrderedDict") &&
					    strncmp(v->cls, "torch.", 6) != 0))
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

static int give(struct builder *b, struct uns_vfile *file, struct uns_err *err)
{
	struct uns_vfile *whole;

	if (!*b->in->catalog->path)
		return uns_vtree_add(b->out, file, err);
	whole = UNS_NEW(&b->out->arena, struct uns_vfile);
	if (!whole)
		return uns_oom(err);
	*whole = *file;
	b->out->whole = whole;
	return 0;
}

static void builder_fini(struct builder *b)
{
	uns_torch_leaves_fini(&b->leaves);
}

int uns_lightning_add(const struct uns_lightning_input *in, struct uns_vtree *out,
		      struct uns_err *err)
{
	UNS_CLEANUP(builder_fini)
	struct builder b = { .in = in, .out = out, .root = uns_value_new_dict(&out->arena, 4) };
	struct uns_torch_input torch = {
		.cat = in->catalog, .root = b.root, .leaves = &b.leaves, .stem = "archive"
	};
	struct uns_vfile file = { .source = UNS_NONE };

	if (!b.root)
		return uns_oom(err);
	UNS_TRY(uns_lightning_front(in->catalog, &torch.front, &b.leaves, err));
	UNS_TRY(add_state_dict(&b, err));
	if (in->resume) {
		UNS_TRY(add_optimizers(&b, err));
		UNS_TRY(add_stand_ins(&b, err));
	}
	file.path = file_name(&b);
	file.origin = origin_of(&b);
	if (!file.path || !file.origin)
		return uns_oom(err);
	UNS_TRY(uns_part_torch_file(&torch, &out->arena, &file.layout, err));
	UNS_TRY(note_objects(&b, err));
	return give(&b, &file, err);
}
