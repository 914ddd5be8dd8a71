/* Makes the tensors of all experts of the files of each, and checks that a file holds the expert that its name names.
 */
#include "zero/read/autoep_files.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "zero/read/compare.h"

#define MODEL_ROOT "model"

/* The experts' files of one layer. */
struct layer {
	struct uns_catalog *cat;
	const struct uns_zero_autoep_layer *is;
	struct uns_zero_names *names;
	struct uns_arena scratch;
	enum uns_dtype *dtype;   /* of each parameter; the first expert's */
	struct uns_piece *piece; /* of parameter k of expert e: [k * n_experts + e] */
};

static void layer_fini(struct layer *l)
{
	uns_arena_fini(&l->scratch);
}

/* Fails with a finding about the file of one expert; ..: its other fields. */
#define FAIL_EXPERT(l, e, err, KIND, ...)                                           \
	UNS_FAIL_WITH(err, KIND, .scope = UNS_SCOPE_WEIGHTS, .file = (e)->path,     \
		      .arg = { { "layer", uns_num((uint64_t)(l)->is->number) },     \
			       { "number", uns_num((uint64_t)(e)->name.expert) } }, \
		      __VA_ARGS__)

static const char *param_name(const struct layer *l, size_t k)
{
	return uns_value_str(l->is->params->pair[k].key);
}

static struct uns_piece *piece_at(const struct layer *l, size_t k, uint64_t expert)
{
	return &l->piece[k * l->is->n_experts + expert];
}

/* -- one file -- */

/* Is the key that of parameter k of the expert? */
static bool key_fits(const struct layer *l, size_t k, int32_t expert, const char *key)
{
	const char *name = param_name(l, k);
	unsigned long long number;
	size_t n = strlen(name);

	return strncmp(key, name, n) == 0 && key[n] == '.' && uns_str_number(key + n + 1, "", "", &number) &&
	       number == (unsigned long long)expert;
}

/* Index [expert] of a parameter as the file has it. */
static int take_tensor(struct layer *l, const struct uns_zero_entry *e, const struct uns_zero_file *file, size_t k,
		       const struct uns_value *v, const struct uns_shape *whole, struct uns_err *err)
{
	struct uns_piece *piece = piece_at(l, k, (uint64_t)e->name.expert);
	struct uns_shape one = { .n = whole->n - 1 };
	char found[128], want[128];
	struct uns_tensor t;
	struct uns_box *box;

	if (uns_zero_file_tensor(file, v, &l->cat->arena, &t, piece, err) < 0)
		return uns_fail_in(err, "%s", param_name(l, k));
	memcpy(one.dim, whole->dim + 1, one.n * sizeof(*one.dim));
	if (!uns_shape_equal(&t.shape, &one))
		return FAIL_EXPERT(l, e, err, ZERO_EXPERT_SHAPE, .tensor = param_name(l, k),
				   .found = uns_str(uns_shape_text(&t.shape, found, sizeof(found))),
				   .expected = uns_str(uns_shape_text(&one, want, sizeof(want))));
	if (piece->stride_elems || (e->name.expert && t.dtype != l->dtype[k]))
		return uns_fail(err, -ENOTSUP, "%s has another dtype than in the first expert's file, or other strides",
				param_name(l, k));
	l->dtype[k] = t.dtype;
	UNS_TRY_ALLOC(box = UNS_NEW(&l->scratch, struct uns_box), err);
	*box = (struct uns_box){ .n = whole->n, .lo = { (uint64_t)e->name.expert }, .len = { 1 } };
	memcpy(box->len + 1, one.dim, one.n * sizeof(*one.dim));
	piece->kind = UNS_PIECE_BOX;
	piece->box = box;
	return 0;
}

/* Where the expert's part of the fp32 copy begins, as a piece of as many elements as follow. false = not known. */
static bool find_master(const struct layer *l, size_t k, int32_t expert, const struct uns_tensor **tensor,
			struct uns_piece *out)
{
	uint32_t master = uns_map_index(&l->names->masters, param_name(l, k));
	const struct uns_tensor *m = master == UNS_NONE ? NULL : &l->cat->tensors[master];
	uint64_t elems, skip;
	size_t i;
	uint32_t d;

	if (!m || m->dtype != UNS_F32 || !m->shape.dim[0])
		return false;
	*tensor = m;
	elems = uns_shape_elems(&m->shape) / m->shape.dim[0];
	for (i = 0; i < m->n_pieces; i++) {
		*out = l->cat->pieces[m->first_piece + i];
		if (out->stride_elems)
			continue;
		skip = (uint64_t)expert * elems - uns_piece_first(&m->shape, out);
		for (d = 1; out->kind == UNS_PIECE_BOX && d < m->shape.n && out->box->len[0] > 1; d++)
			if (out->box->len[d] != m->shape.dim[d])
				return false;
		if (skip >= uns_piece_elems(out)) /* of a later piece, or, wrapped around, of an earlier one */
			continue;
		out->offset_bytes += skip * sizeof(float);
		out->length_bytes = (uns_piece_elems(out) - skip) * sizeof(float);
		if (out->length_bytes > elems * sizeof(float))
			out->length_bytes = elems * sizeof(float);
		return true;
	}
	return false;
}

/* All that is in the file is this expert's, and all of the expert is in it. No step is recorded in it: only by the
 * first elements, which must be those of the fp32 copy rounded, can be seen that it is of the same save. */
static int read_file(struct layer *l, const struct uns_zero_autoep *autoep, const struct uns_zero_entry *e,
		     struct uns_err *err)
{
	UNS_CLEANUP(uns_zero_file_close) struct uns_zero_file file = UNS_ZERO_FILE_INIT;
	const uint64_t expert = (uint64_t)e->name.expert;
	const struct uns_tensor *m = NULL;
	const struct uns_value *dict;
	struct uns_zero_sample first;
	struct uns_piece master;
	const char *key;
	bool same = true;
	size_t i, k;

	UNS_TRY(uns_zero_file_open(l->cat, e->file, &l->cat->arena, &file, err));
	dict = file.torch.root;
	if (!dict || dict->kind != UNS_VALUE_DICT || dict->n != l->is->params->n)
		return uns_fail(err, -EBADMSG, "the file does not hold the %u tensors of an expert", l->is->params->n);
	for (i = 0; i < dict->n; i++) {
		key = uns_value_str(dict->pair[i].key);
		for (k = 0; k < l->is->params->n && !(key && key_fits(l, k, e->name.expert, key)); k++)
			;
		if (k == l->is->params->n || piece_at(l, k, expert)->box)
			return FAIL_EXPERT(l, e, err, ZERO_EXPERT_FOREIGN, .tensor = key ? key : "?");
		UNS_TRY(take_tensor(l, e, &file, k, dict->pair[i].value,
				    &uns_zero_cut_find(&autoep->slices, param_name(l, k))->whole, err));
	}
	if (!dict->n || !find_master(l, 0, e->name.expert, &m, &master))
		return 0;
	first = (struct uns_zero_sample){ &file.reader, piece_at(l, 0, expert) };
	UNS_TRY(uns_zero_may_be_copy_of(l->cat, &master, &first, l->dtype[0], master.length_bytes / sizeof(float),
					&same, err));
	return same ? 0
		    : FAIL_EXPERT(l, e, err, ZERO_EXPERT_STALE, .tensor = m->name,
				  .arg[2] = { "other_file", uns_str(l->cat->files[master.file].path) });
}

/* -- one layer -- */

static int add_tensors(const struct layer *l, const struct uns_zero_autoep *autoep, struct uns_err *err)
{
	uint64_t e;
	size_t k;

	for (k = 0; k < l->is->params->n; k++) {
		const char *name = param_name(l, k);
		struct uns_tensor t = { .name = name,
					.key = name,
					.root = MODEL_ROOT,
					UNS_TENSOR_ALONE,
					.role = UNS_ROLE_WEIGHT,
					.dtype = l->dtype[k],
					.shape = uns_zero_cut_find(&autoep->slices, name)->whole };
		uint32_t index;

		if (uns_map_index(&l->names->weights, name) != UNS_NONE)
			continue;
		UNS_TRY(uns_catalog_add_tensor(l->cat, &t, &index, err));
		for (e = 0; e < l->is->n_experts; e++)
			UNS_TRY(uns_catalog_add_piece(l->cat, piece_at(l, k, e), err));
		UNS_TRY(uns_zero_name_put(&l->names->weights, name, index, err));
	}
	return 0;
}

/* v: the experts' files, n, sorted by layer and number. */
static int add_layer(struct layer *l, const struct uns_zero_autoep *autoep, const struct uns_zero_entry *v, size_t n,
		     struct uns_err *err)
{
	struct uns_zero_entry absent = { 0 };
	int32_t expert;
	char name[80];
	size_t i = 0;

	l->dtype = UNS_NEW_N(&l->scratch, enum uns_dtype, l->is->params->n);
	l->piece = UNS_NEW_N(&l->scratch, struct uns_piece, l->is->params->n * l->is->n_experts);
	UNS_TRY_ALLOC(l->dtype && l->piece, err);
	while (i < n && v[i].name.layer < l->is->number)
		i++;
	for (expert = 0; (uint64_t)expert < l->is->n_experts; expert++, i++) {
		if (i == n || v[i].name.layer != l->is->number || v[i].name.expert != expert) {
			snprintf(name, sizeof(name), "layer_%d_expert_%d_mp_rank_00_model_states.pt", l->is->number,
				 expert);
			absent.path = name;
			absent.name.expert = expert;
			return FAIL_EXPERT(l, &absent, err, ZERO_EXPERT_MISSING, .expected = uns_num(l->is->n_experts));
		}
		if (read_file(l, autoep, &v[i], err) < 0)
			return uns_fail_in_file(err, v[i].path);
	}
	return add_tensors(l, autoep, err);
}

int uns_zero_autoep_files_add(struct uns_catalog *cat, const struct uns_zero_dir *dir,
			      const struct uns_zero_autoep *autoep, struct uns_zero_names *names, struct uns_err *err)
{
	const struct uns_zero_entry *v;
	struct uns_err why;
	size_t i, n;

	v = uns_zero_dir_of(dir, UNS_ZERO_EXPERT, 0, &n);
	for (i = 0; i < autoep->n; i++) {
		UNS_CLEANUP(layer_fini) struct layer l = { .cat = cat, .is = &autoep->layer[i], .names = names };

		why = (struct uns_err){ .keep = &cat->arena };
		if (add_layer(&l, autoep, v, n, &why) < 0)
			UNS_TRY(uns_catalog_problem_or_fail(cat, UNS_SCOPE_WEIGHTS, &why, err));
	}
	return 0;
}

/* -- stage 3 -- */

int uns_zero_autoep_add_rounded(struct uns_catalog *cat, const struct uns_zero_autoep *autoep,
				struct uns_zero_names *names, struct uns_err *err)
{
	const struct uns_zero_autoep_layer *layer = autoep->layer, *end = layer + autoep->n;
	size_t k;

	for (; layer < end; layer++) {
		const char *name = uns_arena_printf(&cat->arena, "%s.router.gate.weight", layer->module);
		uint32_t router = name ? uns_map_index(&names->weights, name) : UNS_NONE;

		UNS_TRY_ALLOC(name, err);
		for (k = 0; k < layer->params->n && router != UNS_NONE; k++) {
			struct uns_tensor t = { .name = uns_value_str(layer->params->pair[k].key),
						.root = MODEL_ROOT,
						UNS_TENSOR_ALONE,
						.role = UNS_ROLE_WEIGHT,
						.dtype = cat->tensors[router].dtype };

			t.key = t.name;
			/* uns_zero_model_check finds a weight that has no master either. */
			if (uns_map_index(&names->weights, t.name) == UNS_NONE)
				UNS_TRY(uns_zero_names_add_rounded(cat, names, &t, err));
		}
	}
	return 0;
}

/* -- routers -- */

int uns_zero_autoep_add_routers(struct uns_catalog *cat, const struct uns_zero_autoep *autoep,
				const struct uns_value *module, struct uns_zero_names *names, struct uns_err *err)
{
	const char *name, *first;
	uint32_t of;
	size_t i;

	for (i = 0; module && module->kind == UNS_VALUE_DICT && i < module->n; i++) {
		name = uns_value_str(module->pair[i].key);
		if (!name || uns_map_index(&names->weights, name) != UNS_NONE)
			continue;
		UNS_TRY(uns_zero_autoep_router(autoep, name, &cat->arena, &first, err));
		of = first ? uns_map_index(&names->weights, first) : UNS_NONE;
		if (of != UNS_NONE)
			UNS_TRY(uns_zero_name_alias(cat, &names->weights, name, of, err));
	}
	return 0;
}
