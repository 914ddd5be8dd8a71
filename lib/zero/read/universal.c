/* Makes a tensor of each file of a state, and checks that every parameter has its fp32 copy and the moments that others
 * have. */
#include "zero/read/universal.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/number.h"
#include "base/path.h"

/* A file below zero/, as a companion; *path is what it is called below zero/'s root. */
static int add_file(struct uns_zero_world *w, const struct uns_zero_universal *u, const char *name, uint32_t *file,
		    struct uns_err *err)
{
	const char *path = uns_path_join(&w->scratch, u->path, name);
	const char *shown = uns_path_join(&w->scratch, u->name, name);

	UNS_TRY_ALLOC(path && shown, err);
	UNS_TRY(uns_catalog_add_file(w->cat, u->root, path, file, err));
	if (w->cat->files[*file].missing)
		return 0;
	return uns_catalog_add_companion(w->cat, shown, *file, true, err);
}

/* -- optimizer_state.pt -- */

static int read_optimizer_state(struct uns_zero_world *w, struct uns_zero_universal *u, struct uns_zero_optim *optim,
				struct uns_err *err)
{
	UNS_CLEANUP(uns_zero_file_close) struct uns_zero_file file = UNS_ZERO_FILE_INIT;
	const struct uns_value *groups, *cut;

	UNS_TRY(uns_zero_file_open(w->cat, u->state_file, &w->cat->arena, &file, err));
	groups = uns_value_get(file.torch.root, "param_groups");
	if (!groups || groups->kind != UNS_VALUE_LIST)
		return uns_fail(err, -ENOTSUP, "%s has no param_groups", file.open.name);
	cut = uns_value_get(file.torch.root, "optimizer_state_dict");
	u->state = file.torch.root;
	optim->dict = u->state;
	optim->param_groups = groups;
	optim->stage = cut ? 3 : 1;
	return 0;
}

int uns_zero_universal_open(struct uns_zero_world *w, struct uns_zero_universal *u, struct uns_err *err)
{
	struct uns_zero_optim *optim = UNS_NEW(&w->scratch, struct uns_zero_optim);
	struct uns_err why = { .keep = &w->scratch };

	UNS_TRY_ALLOC(optim, err);
	optim->n_groups = w->n_shapes;
	optim->group = UNS_NEW_N(&w->scratch, struct uns_zero_rank_group, w->n_shapes);
	w->rank = UNS_NEW(&w->scratch, struct uns_zero_rank);
	UNS_TRY_ALLOC(optim->group && w->rank, err);
	UNS_TRY(add_file(w, u, "optimizer_state.pt", &u->state_file, err));
	w->rank[0].file = u->state_file;
	if (read_optimizer_state(w, u, optim, &why) < 0)
		return uns_zero_world_problem_or_fail(w, &why, err);
	w->any = optim;
	return 0;
}

/* -- one state of one parameter -- */

/* What a parameter has, all have. */
static const char *const per_param[] = { "exp_avg", "exp_avg_sq", "step" };

enum { N_PER_PARAM = sizeof(per_param) / sizeof(*per_param) };

struct param {
	struct uns_zero_world *w;
	const struct uns_zero_universal *u;
	const struct uns_zero_param *is;
	const char *dir; /* its name, below zero/ */
	int32_t group, position;
	bool has_fp32, has_step;
	bool state[N_PER_PARAM]; /* its file is there */
	uint32_t master;
	const struct uns_value **step; /* a plain number goes to the group */
	struct first_step *first;
};

/* The step of a param group's first parameter that has one. */
struct first_step {
	double value;
	const char *file; /* NULL = there is none so far */
	bool differs; /* another parameter's is another: one finding for each group */
};

/* The file's tensor as the whole parameter. A flat one may be longer: ds_to_universal keeps some padding
 * of parameters that are smaller than the number of ranks. */
static int fit_shape(const struct param *p, struct uns_tensor *t, struct uns_piece *piece, struct uns_err *err)
{
	char found[128], want[128];
	uint64_t elems = uns_shape_elems(&t->shape);

	if (uns_shape_equal(&t->shape, &p->is->shape))
		return 0;
	if (t->shape.n > 1 || elems < p->is->elems || piece->stride_elems)
		return UNS_FAIL_WITH(err, ZERO_STATE_SHAPE, .file = p->w->cat->files[piece->file].path,
				     .tensor = p->is->name,
				     .found = uns_str(uns_shape_text(&t->shape, found, sizeof(found))),
				     .expected = uns_str(uns_shape_text(&p->is->shape, want, sizeof(want))));
	t->shape = p->is->shape;
	piece->kind = UNS_PIECE_RANGE;
	piece->range = (struct uns_range){ 0, p->is->elems };
	return 0;
}

/* DeepSpeed's loader asserts that all parameters of a param group have one step (0.14 to 0.19,
 * runtime/base_optimizer.py, load_hp_checkpoint_state_from_checkpoint_dir). */
static int check_step(struct param *p, const char *file, double step, struct uns_err *err)
{
	char expected[UNS_NUMBER_ROOM], found[UNS_NUMBER_ROOM];

	if (!p->first->file) {
		*p->first = (struct first_step){ .value = step, .file = file };
		return 0;
	}
	if (p->first->differs || p->first->value == step)
		return 0;
	p->first->differs = true;
	uns_number_print(expected, p->first->value, 15);
	uns_number_print(found, step, 15);
	return UNS_ADD_FINDING(p->w->cat, err, UNIVERSAL_STEPS_DIFFER, .scope = UNS_SCOPE_OPTIMIZER, .file = file,
			       .tensor = p->is->name, .expected = uns_str(expected), .found = uns_str(found),
			       .arg = { { "other_file", uns_str(p->first->file) } });
}

static int check_step_tensor(struct param *p, const struct uns_zero_file *file, const struct uns_tensor *t,
			     const struct uns_piece *piece, struct uns_err *err)
{
	uint8_t bytes[sizeof(uint64_t)];
	double value;

	if (!uns_dtype_counts(t->dtype) || uns_shape_elems(&t->shape) != 1)
		return 0;
	UNS_TRY(uns_reader_pread(file->torch.r, bytes, uns_dtype_size(t->dtype), piece->offset_bytes, err));
	uns_dtype_number(t->dtype, bytes, &value);
	return check_step(p, p->w->cat->files[piece->file].path, value, err);
}

static int add_tensor(struct param *p, const struct uns_zero_file *file, const struct uns_value *v, const char *state,
		      struct uns_err *err)
{
	struct uns_arena *arena = &p->w->cat->arena;
	enum uns_role role = strcmp(state, "fp32") == 0 ? UNS_ROLE_MASTER : uns_role_of_state(state);
	struct uns_tensor t = { .name = p->is->name,
				.key = uns_arena_printf(arena, "%s.%s", p->is->name, state),
				.root = role == UNS_ROLE_MASTER ? "fp32" : "optimizer",
				.state = role == UNS_ROLE_MASTER ? NULL : state,
				.role = role,
				.group = p->group,
				.position = p->position,
				.alias_of = UNS_NONE };
	struct uns_piece piece;
	uint32_t index;

	UNS_TRY_ALLOC(t.key, err);
	UNS_TRY(uns_zero_file_tensor(file, v, arena, &t, &piece, err));
	if (role != UNS_ROLE_STEP)
		UNS_TRY(fit_shape(p, &t, &piece, err));
	else
		UNS_TRY(check_step_tensor(p, file, &t, &piece, err));
	UNS_TRY(uns_catalog_add_tensor(p->w->cat, &t, &index, err));
	UNS_TRY(uns_catalog_add_piece(p->w->cat, &piece, err));
	if (role == UNS_ROLE_MASTER)
		p->master = index;
	p->has_fp32 |= role == UNS_ROLE_MASTER;
	p->has_step |= role == UNS_ROLE_STEP;
	return 0;
}

static int read_state_file(struct param *p, uint32_t index, const char *state, struct uns_err *err)
{
	UNS_CLEANUP(uns_zero_file_close) struct uns_zero_file file = UNS_ZERO_FILE_INIT;
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_value *v;
	struct uns_value *number;
	double step;

	UNS_TRY(uns_zero_file_open(p->w->cat, index, &arena, &file, err));
	v = file.torch.root;
	if (v && v->kind == UNS_VALUE_DICT)
		v = uns_value_get(v, "param");
	if (v && strcmp(state, "step") == 0 && uns_value_float(v, &step)) {
		UNS_TRY_ALLOC(number = UNS_NEW(&p->w->cat->arena, struct uns_value), err);
		*number = *v; /* an int or a float: nothing of the file's arena */
		*p->step = number;
		p->has_step = true;
		return check_step(p, file.open.name, step, err);
	}
	if (add_tensor(p, &file, v, state, err) < 0)
		return uns_fail_in_file(err, file.open.name);
	return 0;
}

/* -- one parameter -- */

static int add_states(struct param *p, const struct uns_listing *list, struct uns_err *err)
{
	const char *state, *name;
	struct uns_err why;
	uint32_t file;
	size_t i, k;

	for (i = 0; i < list->n; i++) {
		if (list->v[i].kind == UNS_KIND_DIR || !uns_str_ends(list->v[i].name, ".pt"))
			continue;
		state = uns_arena_strn(&p->w->cat->arena, list->v[i].name, strlen(list->v[i].name) - strlen(".pt"));
		name = uns_path_join(&p->w->scratch, p->dir, list->v[i].name);
		UNS_TRY_ALLOC(state && name, err);
		for (k = 0; k < N_PER_PARAM; k++)
			p->state[k] |= strcmp(per_param[k], state) == 0;
		UNS_TRY(add_file(p->w, p->u, name, &file, err));
		why = (struct uns_err){ .keep = &p->w->scratch };
		if (read_state_file(p, file, state, &why) < 0)
			UNS_TRY(uns_zero_world_problem_or_fail(p->w, &why, err));
	}
	return 0;
}

/* Stage 3 has the step in optimizer_state.pt only: of each sub-group, or of the first for all. */
static int add_common_step(struct param *p, size_t g, struct uns_err *err)
{
	UNS_CLEANUP(uns_zero_file_close) struct uns_zero_file file = UNS_ZERO_FILE_INIT;
	const struct uns_value *states = uns_value_get(uns_value_get(p->u->state, "optimizer_state_dict"), "state");
	const struct uns_value *state = uns_value_get_number(states, g), *v;
	double step;

	v = uns_value_get(state ? state : uns_value_get_number(states, 0), "step");
	if (uns_value_float(v, &step))
		*p->step = v;
	if (!uns_torch_is_tensor(v))
		return 0;
	UNS_TRY(uns_zero_file_open(p->w->cat, p->u->state_file, &p->w->scratch, &file, err));
	return add_tensor(p, &file, v, "step", err);
}

static int add_dir(struct param *p, size_t g, struct uns_err *err)
{
	const char *path = uns_path_join(&p->w->scratch, p->u->path, p->dir);
	const char *fp32 = path ? uns_path_join(&p->w->scratch, path, "fp32.pt") : NULL;
	struct uns_err why = { .keep = &p->w->scratch };
	struct uns_listing list = { 0 };
	int code = -ENOENT;

	UNS_TRY_ALLOC(fp32, err);
	if (!strchr(p->dir, '/') && strcmp(p->dir, "..") != 0)
		code = uns_list_seen(p->u->root, p->w->cat->capture, path, &p->w->scratch, &list, &why);
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	if (code < 0)
		return UNS_WORLD_PROBLEM(p->w, err, ZERO_PARAMETER_MISSING, .file = path, .tensor = p->is->name,
					 .arg = { { "other_file", uns_str(p->w->where) } });
	UNS_TRY(add_states(p, &list, err));
	if (!p->has_fp32)
		return UNS_WORLD_PROBLEM(p->w, err, FILE_MISSING, .file = fp32, .tensor = p->is->name);
	if (p->has_step || !p->u->state)
		return 0;
	return add_common_step(p, g, &why) < 0 ? uns_zero_world_problem_or_fail(p->w, &why, err) : 0;
}

/* Of a parameter that could be read. */
struct has {
	const struct uns_zero_param *param;
	bool state[N_PER_PARAM];
};

/* An optimizer has a state of all its parameters, or of none yet; stage 3 keeps the step elsewhere. */
static int check_states(const struct has *v, size_t n, struct uns_zero_world *w, const struct uns_zero_universal *u,
			struct uns_err *err)
{
	const char *path;
	bool any;
	size_t i, k;

	for (k = 0; k < N_PER_PARAM; k++) {
		for (i = 0, any = false; i < n; i++)
			any |= v[i].state[k];
		for (i = 0; any && i < n; i++) {
			if (v[i].state[k])
				continue;
			UNS_TRY_ALLOC(path = uns_arena_printf(&w->scratch, "%s/%s/%s.pt", u->path, v[i].param->name,
							      per_param[k]),
				      err);
			UNS_TRY(UNS_ADD_FINDING(w->cat, err, ZERO_STATE_MISSING, .scope = UNS_SCOPE_OPTIMIZER,
						.file = path, .tensor = v[i].param->name));
		}
	}
	return 0;
}

int uns_zero_universal_add(struct uns_zero_world *w, const struct uns_zero_universal *u, const int32_t *group_of,
			   struct uns_map *seen, struct uns_err *err)
{
	struct has *has;
	struct param p;
	int32_t position;
	size_t g, i, n = 0;

	for (g = 0; g < w->n_shapes; g++)
		n += w->shapes[g].n;
	UNS_TRY_ALLOC(has = UNS_NEW_N(&w->scratch, struct has, n), err);
	n = 0;
	for (g = 0; g < w->n_shapes; g++) {
		const struct uns_value *step = NULL;
		struct first_step first = { 0 };

		position = group_of[g] < 0 ? -1 : uns_zero_next_position(w->cat, group_of[g]);
		for (i = 0; i < w->shapes[g].n; i++) {
			p = (struct param){ .w = w,
					    .u = u,
					    .is = &w->shapes[g].v[i],
					    .dir = w->shapes[g].v[i].name,
					    .group = group_of[g],
					    .position = position,
					    .step = &step,
					    .first = &first };
			if (uns_map_get(seen, p.is->name))
				continue;
			UNS_TRY(add_dir(&p, g, err));
			if (p.has_fp32) {
				has[n].param = p.is;
				memcpy(has[n++].state, p.state, sizeof(p.state));
			}
			if (p.has_fp32 && !uns_map_put_index(seen, p.is->name, p.master))
				return uns_oom(err);
			position += position >= 0;
		}
		if (w->any)
			w->any->group[g].step = step;
	}
	return check_states(has, n, w, u, err);
}
