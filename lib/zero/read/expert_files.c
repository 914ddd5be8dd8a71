/* Checks that every expert has a file, and that a file holds the expert that its name names. */
#include "zero/read/expert_files.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "zero/read/compare.h"
#include "parallel/experts.h"

struct experts {
	struct uns_catalog *cat;
	const struct uns_zero_model *model;
	struct uns_zero_names *names;
	const struct uns_zero_entry *v; /* n, sorted by layer and number */
	size_t n;
	struct uns_map buffers; /* names without the expert's number: a buffer of every expert of the layer */
};

/* A finding about the file of one expert; ..: its other fields. */
#define OF_EXPERT(e, KIND, ...)                                                                           \
	UNS_FINDING(.id = UNS_FOUND_##KIND, .scope = UNS_SCOPE_WEIGHTS, .file = (e)->path,                \
		    .arg = { { "layer", uns_num((uint64_t)((e)->name.layer < 0 ? 0 : (e)->name.layer)) }, \
			     { "number", uns_num((uint64_t)(e)->name.expert) } },                         \
		    __VA_ARGS__)

/* -- buffers: the model file lists those of its own rank's experts, which are numbered from 0 on each rank -- */

/* Lists the names without the expert's number. */
static int list_buffers(struct experts *x, struct uns_err *err)
{
	const struct uns_value *list = uns_value_get(x->model->root, "buffer_names");
	const char *name, *rest;
	uint64_t number;
	size_t i, prefix;

	for (i = 0; uns_value_at(list, i); i++) {
		name = uns_value_str(list->item[i]);
		if (!name || !uns_zero_expert_of(name, &prefix, &number, &rest))
			continue;
		name = uns_arena_printf(&x->cat->arena, "%.*s%s", (int)prefix, name, rest);
		UNS_TRY_ALLOC(name && uns_map_put(&x->buffers, name, (void *)list, NULL), err);
	}
	return 0;
}

/* -- one file -- */

/* The tensor has the shape that the optimizer has for it. The file records no step: only by the tensor's first
 * elements, which must be those of the fp32 copy rounded, can be seen that it is of the same save. */
static int check_tensor(const struct experts *x, const struct uns_zero_entry *e, const struct uns_zero_file *file,
			const struct uns_tensor *t, struct uns_err *err)
{
	uint32_t master = uns_map_index(&x->names->masters, t->name);
	const struct uns_zero_sample rounded = { &file->reader, &x->cat->pieces[t->first_piece] };
	const struct uns_piece *exact;
	const struct uns_tensor *m;
	char found[128], want[128];
	bool same;

	if (master == UNS_NONE)
		return 0;
	m = &x->cat->tensors[master];
	if (!uns_shape_equal(&m->shape, &t->shape))
		return uns_fail_with(err,
				     OF_EXPERT(e, ZERO_EXPERT_SHAPE, .tensor = t->name,
					       .found = uns_str(uns_shape_text(&t->shape, found, sizeof(found))),
					       .expected = uns_str(uns_shape_text(&m->shape, want, sizeof(want)))));
	exact = &x->cat->pieces[m->first_piece];
	if (!m->n_pieces || m->dtype != UNS_F32 || (exact->kind == UNS_PIECE_RANGE && exact->range.first))
		return 0;
	UNS_TRY(uns_zero_may_be_copy_of(x->cat, exact, &rounded, t->dtype, exact->length_bytes / sizeof(float), &same,
					err));
	return same ? 0
		    : uns_fail_with(err,
				    OF_EXPERT(e, ZERO_EXPERT_STALE, .tensor = t->name,
					      .arg[2] = { "other_file", uns_str(x->cat->files[exact->file].path) }));
}

/* All that is in the file is this expert's, and nothing of it is in another file. */
static int add_file(const struct experts *x, const struct uns_zero_entry *e, struct uns_err *err)
{
	UNS_CLEANUP(uns_zero_file_close) struct uns_zero_file file = UNS_ZERO_FILE_INIT;
	const struct uns_value *dict;
	const char *name, *rest;
	uint64_t number;
	size_t i, prefix, first = x->cat->n_tensors;

	UNS_TRY(uns_zero_file_open(x->cat, e->file, &x->cat->arena, &file, err));
	dict = file.torch.root;
	for (i = 0; dict && dict->kind == UNS_VALUE_DICT && i < dict->n; i++) {
		name = uns_value_str(dict->pair[i].key);
		if (!name || !uns_zero_expert_of(name, &prefix, &number, &rest) || number != (uint64_t)e->name.expert ||
		    uns_map_get(&x->names->weights, name))
			return uns_fail_with(err, OF_EXPERT(e, ZERO_EXPERT_FOREIGN, .tensor = name ? name : "?"));
	}
	UNS_TRY(uns_zero_model_add_file(x->cat, &file, "", x->names, err));
	/* An expert's file does not record which of its tensors are buffers. */
	for (i = first; x->buffers.n && i < x->cat->n_tensors; i++) {
		uns_zero_expert_of(x->cat->tensors[i].name, &prefix, &number, &rest);
		UNS_TRY_ALLOC(
			name = uns_arena_printf(&x->cat->arena, "%.*s%s", (int)prefix, x->cat->tensors[i].name, rest),
			err);
		if (uns_map_get(&x->buffers, name))
			x->cat->tensors[i].role = UNS_ROLE_BUFFER;
	}
	for (i = first; i < x->cat->n_tensors; i++)
		UNS_TRY(check_tensor(x, e, &file, &x->cat->tensors[i], err));
	return 0;
}

/* -- all of them -- */

/* *at: the first of the layer's files, then behind the last. */
static int check_layer(const struct experts *x, int32_t layer, uint64_t n, size_t *at, struct uns_err *err)
{
	struct uns_zero_entry e = { .name = { .layer = layer } };
	char name[80];

	while (*at < x->n && x->v[*at].name.layer < layer)
		++*at;
	for (; (uint64_t)e.name.expert < n; e.name.expert++) {
		if (*at < x->n && x->v[*at].name.layer == layer && x->v[*at].name.expert == e.name.expert) {
			++*at;
			continue;
		}
		snprintf(name, sizeof(name), "layer_%d_expert_%d_mp_rank_00_model_states.pt", layer, e.name.expert);
		e.path = name;
		return uns_catalog_add_finding(x->cat, OF_EXPERT(&e, ZERO_EXPERT_MISSING, .expected = uns_num(n)), err);
	}
	return 0;
}

static void experts_fini(struct experts *x)
{
	uns_map_fini(&x->buffers);
}

int uns_zero_expert_files_add(struct uns_catalog *cat, const struct uns_zero_dir *dir,
			      const struct uns_zero_model *model, struct uns_zero_names *names, struct uns_err *err)
{
	UNS_CLEANUP(experts_fini) struct experts x = { .cat = cat, .model = model, .names = names };
	const struct uns_value *list = uns_value_get(model->root, "num_experts");
	const size_t before = cat->n_findings;
	struct uns_err why;
	uint64_t n;
	size_t i, at = 0;

	x.v = uns_zero_dir_of(dir, UNS_ZERO_EXPERT, 0, &x.n);
	UNS_TRY(list_buffers(&x, err));
	for (i = 0; i < x.n; i++) {
		why = (struct uns_err){ .keep = &cat->arena };
		if (add_file(&x, &x.v[i], &why) < 0)
			UNS_TRY(uns_catalog_problem_or_fail(cat, UNS_SCOPE_WEIGHTS, &why, err));
	}
	/* Of each layer that has experts. Before 0.5.3 it was one number, and a file had one expert of all layers. */
	for (i = 0; uns_value_at(list, i); i++)
		if (uns_value_u64(list->item[i], &n))
			UNS_TRY(check_layer(&x, (int32_t)i, n, &at, err));
	/* What the optimizer has of experts, the files have too. */
	for (i = 0; x.n && cat->n_findings == before && i < cat->n_tensors; i++)
		if (cat->tensors[i].role == UNS_ROLE_MASTER && !uns_map_get(&names->weights, cat->tensors[i].name))
			return UNS_ADD_FINDING(cat, err, ZERO_WEIGHT_MISSING, .scope = UNS_SCOPE_WEIGHTS,
					       .file = x.v[0].path, .tensor = cat->tensors[i].name);
	return 0;
}
