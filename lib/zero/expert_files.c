/* Which experts there must be, and whether a file holds the one that its name says. */
#include "zero/expert_files.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "zero/compare.h"
#include "parallel/experts.h"

struct experts {
	struct uns_catalog *cat;
	const struct uns_zero_model *model;
	struct uns_zero_names *names;
	const struct uns_zero_entry *v; /* n, sorted by layer and number */
	size_t n;
	struct uns_map buffers; /* names without the expert's number: a buffer of every expert of the layer */
};

#define OF_EXPERT(e, what)                                                                          \
	.id = (what), .scope = UNS_SCOPE_WEIGHTS, .file = (e)->path,                                \
	.arg = { { "layer", uns_num((uint64_t)((e)->name.layer < 0 ? 0 : (e)->name.layer)) },       \
		 { "number", uns_num((uint64_t)(e)->name.expert) } }

/* -- buffers: the model file lists those of its own rank's experts, which are numbered from 0 on each rank -- */

/* The name without the expert's number; NULL = it is no expert's, or memory is out. */
static const char *without_number(struct uns_arena *arena, const char *name)
{
	const char *rest;
	uint64_t number;
	size_t prefix;

	if (!uns_zero_expert_of(name, &prefix, &number, &rest))
		return NULL;
	return uns_arena_printf(arena, "%.*s%s", (int)prefix, name, rest);
}

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
		name = without_number(&x->cat->arena, name);
		if (!name || !uns_map_put(&x->buffers, name, (void *)list, NULL))
			return uns_oom(err);
	}
	return 0;
}

/* An expert's file does not say which of its tensors are buffers. */
static int find_role(const struct experts *x, struct uns_tensor *t, struct uns_err *err)
{
	const char *common;

	if (!x->buffers.n)
		return 0;
	common = without_number(&x->cat->arena, t->name);
	if (!common) /* check_names has seen that it is an expert's */
		return uns_oom(err);
	if (uns_map_get(&x->buffers, common))
		t->role = UNS_ROLE_BUFFER;
	return 0;
}

/* -- one file -- */

/* All that is in the file is this expert's, and nothing of it is in another file. */
static int check_names(const struct experts *x, const struct uns_zero_entry *e, const struct uns_value *dict,
		       struct uns_err *err)
{
	const char *name, *rest;
	uint64_t number;
	size_t i, prefix;

	for (i = 0; dict && dict->kind == UNS_VALUE_DICT && i < dict->n; i++) {
		name = uns_value_str(dict->pair[i].key);
		if (!name || !uns_zero_expert_of(name, &prefix, &number, &rest) ||
		    number != (uint64_t)e->name.expert || uns_map_get(&x->names->weights, name))
			return uns_fail_with(err, UNS_FINDING(OF_EXPERT(e, UNS_FOUND_ZERO_EXPERT_FOREIGN),
							      .tensor = name ? name : "?"));
	}
	return 0;
}

/* The tensor has the shape that the optimizer has for it. */
static int check_tensor(const struct experts *x, const struct uns_zero_entry *e, const struct uns_tensor *t,
			struct uns_err *err)
{
	uint32_t master = uns_map_index(&x->names->masters, t->name);
	char found[128], want[128];

	if (master == UNS_NONE || uns_shape_equal(&x->cat->tensors[master].shape, &t->shape))
		return 0;
	return uns_fail_with(
		err, UNS_FINDING(OF_EXPERT(e, UNS_FOUND_ZERO_EXPERT_SHAPE), .tensor = t->name,
				 .found = uns_str(uns_shape_text(&t->shape, found, sizeof(found))),
				 .expected = uns_str(uns_shape_text(&x->cat->tensors[master].shape, want, sizeof(want)))));
}

/* The file has no step of its own: that it is of this save is seen by its first elements. */
static int check_save(const struct experts *x, const struct uns_zero_entry *e, const struct uns_zero_file *file,
		      const struct uns_tensor *t, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;
	uint32_t master = uns_map_index(&x->names->masters, t->name);
	const struct uns_tensor *m = master == UNS_NONE ? NULL : &x->cat->tensors[master];
	const struct uns_piece *piece = m && m->n_pieces ? &x->cat->pieces[m->first_piece] : NULL;
	const struct uns_file *f = piece ? &x->cat->files[piece->file] : NULL;
	struct uns_open_file open;
	struct uns_reader reader;
	struct uns_stat now;
	bool same;

	if (!f || f->missing || m->dtype != UNS_F32 || (piece->kind == UNS_PIECE_RANGE && piece->range.first))
		return 0;
	UNS_TRY(uns_root_open_file(f->root, f->path, &fd, &now, err));
	open = (struct uns_open_file){ .fd = fd, .name = f->path };
	reader = uns_reader_of_file(&open, f->stat.id.size);
	const struct uns_zero_sample exact = { &reader, piece };
	const struct uns_zero_sample rounded = { &file->reader, &x->cat->pieces[t->first_piece] };

	UNS_TRY(uns_zero_may_be_copy(&exact, &rounded, t->dtype, piece->length_bytes / sizeof(float), &same, err));
	if (same)
		return 0;
	return uns_fail_with(err, UNS_FINDING(OF_EXPERT(e, UNS_FOUND_ZERO_EXPERT_STALE), .tensor = t->name,
					      .arg[2] = { "other_file", uns_str(f->path) }));
}

static int add_file(const struct experts *x, const struct uns_zero_entry *e, struct uns_err *err)
{
	UNS_CLEANUP(uns_zero_file_close) struct uns_zero_file file = UNS_ZERO_FILE_INIT;
	size_t i, first = x->cat->n_tensors;

	UNS_TRY(uns_zero_file_open(x->cat, e->file, &x->cat->arena, &file, err));
	UNS_TRY(check_names(x, e, file.torch.root, err));
	UNS_TRY(uns_zero_model_add_file(x->cat, &file, "", x->names, err));
	for (i = first; i < x->cat->n_tensors; i++)
		UNS_TRY(find_role(x, &x->cat->tensors[i], err));
	for (i = first; i < x->cat->n_tensors; i++)
		UNS_TRY(check_tensor(x, e, &x->cat->tensors[i], err));
	for (i = first; i < x->cat->n_tensors; i++)
		UNS_TRY(check_save(x, e, &file, &x->cat->tensors[i], err));
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
		return uns_catalog_add_finding(x->cat,
					       UNS_FINDING(OF_EXPERT(&e, UNS_FOUND_ZERO_EXPERT_MISSING),
							   .expected = uns_num(n)),
					       err);
	}
	return 0;
}

/* What the optimizer has of experts, the files have too. */
static int check_masters(const struct experts *x, const char *path, struct uns_err *err)
{
	const struct uns_tensor *t = x->cat->tensors, *end = t + x->cat->n_tensors;

	for (; t < end; t++)
		if (t->role == UNS_ROLE_MASTER && !uns_map_get(&x->names->weights, t->name))
			return uns_catalog_add_finding(x->cat,
						       UNS_FINDING(.id = UNS_FOUND_ZERO_WEIGHT_MISSING,
								   .scope = UNS_SCOPE_WEIGHTS, .file = path,
								   .tensor = t->name),
						       err);
	return 0;
}

/* "num_experts": of each layer that has experts. Before 0.5.3 one number, and a file had one expert of all layers. */
static int check_all(const struct experts *x, struct uns_err *err)
{
	const struct uns_value *list = uns_value_get(x->model->root, "num_experts");
	size_t i, at = 0;
	uint64_t n;

	for (i = 0; uns_value_at(list, i); i++)
		if (uns_value_u64(list->item[i], &n))
			UNS_TRY(check_layer(x, (int32_t)i, n, &at, err));
	return 0;
}

static void experts_fini(struct experts *x)
{
	uns_map_fini(&x->buffers);
}

int uns_zero_expert_files_add(struct uns_catalog *cat, const struct uns_zero_dir *dir,
			      const struct uns_zero_model *model, struct uns_zero_names *names,
			      struct uns_err *err)
{
	UNS_CLEANUP(experts_fini) struct experts x = { .cat = cat, .model = model, .names = names };
	struct uns_err why;
	size_t i, before = cat->n_findings;

	x.v = uns_zero_dir_of(dir, UNS_ZERO_EXPERT, 0, &x.n);
	UNS_TRY(list_buffers(&x, err));
	for (i = 0; i < x.n; i++) {
		why = (struct uns_err){ .keep = &cat->arena };
		if (add_file(&x, &x.v[i], &why) < 0)
			UNS_TRY(uns_catalog_problem_or_fail(cat, UNS_SCOPE_WEIGHTS, &why, err));
	}
	UNS_TRY(check_all(&x, err));
	return x.n && cat->n_findings == before ? check_masters(&x, x.v[0].path, err) : 0;
}
