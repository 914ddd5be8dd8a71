/* Which checkpoints of a run are averaged: those whose names differ from this one's in their numbers alone, in natural
 * order up to this one. A checkpoint without a number (global_step_2/actor) has that of the directory above it. */
#include "session/means.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/number.h"
#include "base/path.h"
#include "io/seen.h"
#include "model/cover.h"
#include "model/sum_tensor.h"

struct mean {
	const struct dir_record *record;
	struct uns_capture *capture;
	const struct means_input *in;
	struct uns_catalog *cat;
	struct uns_arena arena; /* until it is made */
	/* The run's directory, what the checkpoint is called there, and where it lies below that; "" = it is that. */
	const struct uns_root *root;
	const char *run, *name, *inside;
	size_t k; /* checkpoints */
	struct input {
		const char *path; /* below root */
		struct uns_catalog *cat;
	} *input; /* k, the oldest first; the last is this one */
	uint32_t *weight; /* n_weights indices of the catalog's tensors that are averaged */
	size_t n_weights;
	uint32_t *term; /* of each weight k indices: where its tensors are in the catalog now */
};

static void mean_fini(struct mean *m)
{
	size_t i;

	for (i = 0; m->input && i + 1 < m->k; i++)
		uns_catalog_free(m->input[i].cat);
	free(m->weight);
	free(m->term);
	uns_arena_fini(&m->arena);
}

/* -- which checkpoints -- */

static bool has_number(const char *name)
{
	return name[strcspn(name, "0123456789")] != '\0';
}

static bool differ_in_numbers(const char *a, const char *b)
{
	for (;; a++, b++) {
		a += strspn(a, "0123456789");
		b += strspn(b, "0123456789");
		if (*a != *b)
			return false;
		if (!*a)
			return true;
	}
}

static int up(struct mean *m, const char *path, struct uns_err *err)
{
	UNS_TRY_ALLOC(m->name = uns_arena_str(&m->arena, uns_root_name(m->root, path)), err);
	UNS_TRY(uns_root_up(m->root, path, &m->arena, &m->root, &m->run, err));
	return m->run ? 0 : uns_fail(err, -ENOTSUP, "the directory of its run is not known");
}

static int find_run(struct mean *m, struct uns_err *err)
{
	m->inside = "";
	UNS_TRY(up(m, m->record->path, err));
	if (has_number(m->name))
		return 0;
	m->inside = m->name;
	UNS_TRY(up(m, m->run, err));
	return has_number(m->name) ? 0 : uns_fail(err, -ENOTSUP, "its name has no number");
}

/* Later checkpoints of a run come while it is trained, and are no inputs. Which names are there is one only where too
 * few are. */
static int choose_inputs(struct mean *m, struct uns_err *err)
{
	struct uns_listing list;
	const char *found;
	size_t i, n = m->k;

	UNS_TRY_ALLOC(m->input = UNS_NEW_N(&m->arena, struct input, m->k), err);
	UNS_TRY(uns_root_list(m->root, m->run, &m->arena, &list, err));
	for (i = list.n; i > 0 && n > 0; i--) {
		found = list.v[i - 1].name;
		if (list.v[i - 1].kind != m->record->is.stat.kind || !differ_in_numbers(found, m->name) ||
		    uns_str_natural(found, m->name) > 0)
			continue;
		found = uns_path_join(&m->arena, uns_path_join(&m->arena, m->run, found), m->inside);
		UNS_TRY_ALLOC(m->input[--n].path = found, err);
	}
	m->input[m->k - 1].cat = m->cat;
	if (!n)
		return 0;
	UNS_TRY(uns_list_seen(m->root, m->capture, m->run, &m->arena, &list, err));
	return uns_fail(err, -ENOTSUP, "the run has %zu up to this one", m->k - n);
}

/* -- their catalogs -- */

static int open_input(struct mean *m, struct input *in, struct uns_err *err)
{
	const struct uns_format *format = m->record->is.format;
	struct uns_directory dir = { .root = m->root, .path = in->path, .capture = m->capture };
	struct uns_listing list;
	int mine;

	if (m->record->is.stat.kind == UNS_KIND_DIR) {
		UNS_TRY(uns_list_seen(m->root, m->capture, in->path, &m->arena, &list, err));
		dir.list = &list;
		mine = format->probe(&dir) > 0;
	} else {
		UNS_TRY(mine = format->probe_file(m->root, in->path, err));
	}
	if (!mine)
		return uns_fail(err, -ENOTSUP, "it is no checkpoint of the format %s", format->name);
	UNS_TRY(uns_catalog_new(in->path, &in->cat, err));
	in->cat->capture = m->capture;
	UNS_TRY(format->open(&dir, m->in->options, in->cat, err));
	UNS_TRY(uns_arena_check(&in->cat->arena, err));
	return uns_cover_refusal(in->cat, UNS_SCOPE_WEIGHTS, err);
}

/* Of no other weight of the checkpoint. NULL = out of memory. */
static const char *identity_of(struct mean *m, const struct uns_tensor *t)
{
	return uns_arena_printf(&m->arena, "%s %s", t->root, t->name);
}

static int index_weights(struct mean *m, const struct uns_catalog *cat, struct uns_map *by_name, size_t *n,
			 struct uns_err *err)
{
	const char *name;
	uint32_t i;

	*n = 0;
	for (i = 0; i < cat->n_tensors; i++) {
		if (!uns_role_is_model(cat->tensors[i].role))
			continue;
		UNS_TRY_ALLOC(name = identity_of(m, &cat->tensors[i]), err);
		if (uns_map_index(by_name, name) != UNS_MAP_NO_INDEX)
			return uns_fail(err, -ENOTSUP, "it has two tensors %s", cat->tensors[i].name);
		UNS_TRY_ALLOC(uns_map_put_index(by_name, name, i), err);
		(*n)++;
	}
	return 0;
}

/* -- sums -- */

static bool is_averaged(const struct uns_catalog *cat, const struct uns_tensor *t)
{
	const struct uns_tensor *stored = uns_tensor_with_bytes(cat, t);

	/* What shares the bytes of another weight is averaged with that one. */
	return uns_role_is_model(t->role) && uns_dtype_info(t->dtype)->is_float &&
	       (stored == t || !uns_role_is_model(stored->role));
}

static int compare(const struct uns_tensor *a, const struct uns_tensor *b, struct uns_err *err)
{
	char shape[128], other[128];

	if (a->strange || b->strange)
		return uns_fail(err, -ENOTSUP, "%s is quantised, or of a class of its own", a->name);
	if (a->dtype != b->dtype)
		return uns_fail(err, -ENOTSUP, "%s has dtype %s in the last checkpoint, and %s here", a->name,
				uns_dtype_info(a->dtype)->torch, uns_dtype_info(b->dtype)->torch);
	if (uns_shape_equal(&a->shape, &b->shape))
		return 0;
	return uns_fail(err, -ENOTSUP, "%s has shape %s in the last checkpoint, and %s here", a->name,
			uns_shape_text(&a->shape, shape, sizeof(shape)),
			uns_shape_text(&b->shape, other, sizeof(other)));
}

/* Another checkpoint's tensors come into the catalog. */
static int take_weights(struct mean *m, size_t input, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map by_name = UNS_MAP_INIT;
	const struct uns_catalog *from = m->input[input].cat;
	const struct uns_tensor *t, *own;
	const char *name;
	size_t i, n, n_own = 0;
	uint32_t at;

	UNS_TRY(index_weights(m, from, &by_name, &n, err));
	for (i = 0; i < m->cat->n_tensors; i++) {
		own = &m->cat->tensors[i];
		if (!uns_role_is_model(own->role))
			continue;
		UNS_TRY_ALLOC(name = identity_of(m, own), err);
		at = uns_map_index(&by_name, name);
		if (at == UNS_MAP_NO_INDEX)
			return uns_fail(err, -ENOTSUP, "it has no tensor %s", own->name);
		UNS_TRY(compare(own, &from->tensors[at], err));
		n_own++;
	}
	if (n != n_own)
		return uns_fail(err, -ENOTSUP, "it has %zu tensors, and the last checkpoint %zu", n, n_own);
	for (i = 0; i < m->n_weights; i++) {
		UNS_TRY_ALLOC(name = identity_of(m, &m->cat->tensors[m->weight[i]]), err);
		t = &from->tensors[uns_map_index(&by_name, name)];
		UNS_TRY(uns_cover_check(from, t, err));
		UNS_TRY(uns_catalog_take_tensor(m->cat, from, uns_tensor_with_bytes(from, t),
						&m->term[i * m->k + input], err));
	}
	return 0;
}

/* The catalog's own stay where they are, as tensors of no role: so does what is known of their pieces. */
static int take_own(struct mean *m, struct uns_err *err)
{
	struct uns_tensor own;
	uint32_t *term;
	size_t i;

	for (i = 0; i < m->n_weights; i++) {
		term = &m->term[i * m->k + m->k - 1];
		own = *uns_tensor_with_bytes(m->cat, &m->cat->tensors[m->weight[i]]);
		UNS_TRY(uns_cover_check(m->cat, &m->cat->tensors[m->weight[i]], err));
		own.role = UNS_ROLE_OTHER;
		own.root = "";
		own.state = NULL;
		UNS_TRY(uns_catalog_add_tensor(m->cat, &own, term, err));
		m->cat->tensors[*term].first_piece = own.first_piece;
		m->cat->tensors[*term].n_pieces = own.n_pieces;
	}
	return 0;
}

/* A moving mean begins with the oldest. */
static double ema_share(double decay, size_t k, size_t n)
{
	double share = k ? 1 - decay : 1;

	for (k++; k < n; k++)
		share *= decay;
	return share;
}

/* Checkpoint k's share is what the learning rate loses behind it, if it falls from 1 to 0 as 1 - sqrt(k / n): so an
 * update between two checkpoints has the weight that it would have had. WSM (arXiv 2507.17634), theorem 3.1, with
 * Megatron-LM's schedule minus-sqrt (tools/checkpoint/weighted_merge.py). */
static double wsm_share(size_t k, size_t n)
{
	return sqrt((double)(k + 1) / (double)n) - sqrt((double)k / (double)n);
}

/* How much of the sum is checkpoint k's. */
static double share_of(const struct mean *m, size_t k)
{
	switch (m->in->how->weighting) {
	case MEAN_EMA:
		return ema_share(m->in->how->decay, k, m->k);
	case MEAN_WSM:
		return wsm_share(k, m->k);
	case MEAN_UNIFORM:
		break;
	}
	return 1;
}

/* "the mean". NULL = out of memory. */
static const char *title_of(const struct mean *m, struct uns_arena *arena)
{
	char decay[UNS_NUMBER_ROOM];

	switch (m->in->how->weighting) {
	case MEAN_EMA:
		uns_number_print_exact(decay, m->in->how->decay);
		return uns_arena_printf(arena, "the moving mean, of decay %s,", decay);
	case MEAN_WSM:
		return "the mean, weighted as WSM does by 1 - sqrt,";
	case MEAN_UNIFORM:
		break;
	}
	return "the mean";
}

/* A weight that is stored as the optimizer's copy alone is that, rounded to its own dtype. */
static int make_sums(struct mean *m, struct uns_err *err)
{
	struct uns_term *term = UNS_NEW_N(&m->arena, struct uns_term, m->k);
	const struct uns_sum sum = { .term = term,
				     .n = m->k,
				     .divisor = m->in->how->weighting == MEAN_UNIFORM ? (double)m->k : 1 };
	const struct uns_tensor *made;
	struct uns_tensor *of;
	size_t i, k;

	UNS_TRY_ALLOC(term, err);
	for (i = 0; i < m->n_weights; i++) {
		of = &m->cat->tensors[m->weight[i]];
		for (k = 0; k < m->k; k++) {
			term[k].times = share_of(m, k);
			term[k].left.tensor = &m->cat->tensors[m->term[i * m->k + k]];
			term[k].left.as = of->dtype;
		}
		UNS_TRY(uns_sum_tensor_make(of, of->dtype, &sum, &m->cat->arena, &made, err));
		*of = *made;
	}
	return 0;
}

static int choose_weights(struct mean *m, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map by_name = UNS_MAP_INIT;
	size_t n;
	uint32_t i;

	UNS_TRY(index_weights(m, m->cat, &by_name, &n, err));
	UNS_TRY_ALLOC(m->weight = calloc(n + 1, sizeof(*m->weight)), err);
	UNS_TRY_ALLOC(m->term = calloc(n + 1, m->k * sizeof(*m->term)), err);
	for (i = 0; i < m->cat->n_tensors; i++)
		if (is_averaged(m->cat, &m->cat->tensors[i]))
			m->weight[m->n_weights++] = i;
	return 0;
}

static int check_kind(const struct uns_catalog *cat, struct uns_err *err)
{
	size_t i;

	if (cat->summary.adapter != UNS_ADAPTER_NONE)
		return uns_fail(err, -ENOTSUP, "its weights are an adapter's, whose matrices are multiplied");
	for (i = 0; i < cat->n_companions; i++)
		if (cat->companions[i].of_model)
			return uns_fail(err, -ENOTSUP, "it has several models, of which one is in files of its own");
	return uns_cover_refusal(cat, UNS_SCOPE_WEIGHTS, err);
}

static int add(struct mean *m, struct uns_err *err)
{
	size_t i;

	UNS_TRY(check_kind(m->cat, err));
	UNS_TRY(find_run(m, err));
	UNS_TRY(choose_inputs(m, err));
	UNS_TRY(choose_weights(m, err));
	for (i = 0; i + 1 < m->k; i++)
		if (open_input(m, &m->input[i], err) < 0 || take_weights(m, i, err) < 0)
			return uns_fail_in(err, "%s", m->input[i].path);
	UNS_TRY(take_own(m, err));
	UNS_TRY(make_sums(m, err));
	m->cat->averaged = title_of(m, &m->cat->arena);
	for (i = 0; m->cat->averaged && i < m->k; i++)
		m->cat->averaged = uns_arena_printf(&m->cat->arena, "%s%s%s", m->cat->averaged, i ? ", " : " of ",
						    m->input[i].path);
	return m->cat->averaged ? 0 : uns_oom(err);
}

int means_add(const struct means_input *in, const struct dir_record *record, struct uns_capture *capture,
	      struct uns_catalog *cat, struct uns_err *err)
{
	UNS_CLEANUP(mean_fini)
	struct mean m = {
		.record = record, .capture = capture, .in = in, .cat = cat, .root = in->root, .k = record->n_averaged
	};
	struct uns_err why = { 0 };
	const int code = add(&m, &why);

	UNS_TRY(uns_fail_if_passing(err, code, &why));
	cat->n_averaged = record->n_averaged;
	if (code == 0)
		return 0;
	return uns_catalog_add_finding(cat,
				       UNS_FINDING(.id = UNS_FOUND_NOT_AVERAGED, .scope = UNS_SCOPE_WEIGHTS,
						   .code = why.code, .expected = uns_num(record->n_averaged),
						   .arg = { { "cause", uns_str(why.text) } }),
				       err);
}
