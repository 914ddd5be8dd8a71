/* Groups tensors into parameters, by role and name. Knows roles, but neither who saved the tensors nor who uses them. */
#include "files/adam_params.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "model/cover.h"
#include "files/optimizer_state.h"

struct search {
	const struct uns_catalog *cat;
	struct uns_adam_params *out;
	struct uns_map by_name;
};

static void search_fini(struct search *s)
{
	uns_map_fini(&s->by_name);
}

/* -- groups -- */

static int check_group(const struct uns_catalog *cat, const struct uns_group *g,
		       struct uns_err *err)
{
	if (!g->guessed)
		return 0;
	return uns_catalog_fail(
		cat, UNS_FINDING(.id = UNS_FOUND_GROUPS_UNORDERED, .scope = UNS_SCOPE_OPTIMIZER),
		err);
}

static int count_groups(struct search *s, struct uns_arena *arena, size_t *n_params,
			struct uns_err *err)
{
	const struct uns_catalog *cat = s->cat;
	struct uns_adam_params *out = s->out;
	size_t i;

	out->group = UNS_NEW_N(arena, const struct uns_group *, cat->n_groups);
	if (!out->group)
		return uns_oom(err);
	for (i = 0; i < cat->n_groups; i++) {
		if (strcmp(cat->groups[i].root, out->root) != 0)
			return uns_catalog_fail(
				cat,
				UNS_FINDING(.id = UNS_FOUND_OPTIMIZERS_SEVERAL,
					    .scope = UNS_SCOPE_OPTIMIZER,
					    .arg = { { "one", uns_str(out->root) },
						     { "other", uns_str(cat->groups[i].root) } }),
				err);
		UNS_TRY(check_group(cat, &cat->groups[i], err));
		if (!cat->groups[i].n_params)
			continue; /* as DeepSpeed */
		out->group[out->n_groups++] = &cat->groups[i];
		*n_params += cat->groups[i].n_params;
	}
	return 0;
}

static int add_group(struct search *s, size_t index, struct uns_err *err)
{
	const struct uns_group *g = s->out->group[index];
	struct uns_adam_param *p;
	size_t i;

	for (i = 0; i < g->n_params; i++) {
		p = &s->out->v[s->out->n++];
		*p = (struct uns_adam_param){ .name = g->param[i], .group = index };
		if (!uns_map_put(&s->by_name, p->name, p, NULL))
			return uns_oom(err);
	}
	return 0;
}

static int add_groups(struct search *s, struct uns_arena *arena, struct uns_err *err)
{
	size_t i, n = 0;

	UNS_TRY(count_groups(s, arena, &n, err));
	s->out->v = UNS_NEW_N(arena, struct uns_adam_param, n);
	if (!s->out->v)
		return uns_oom(err);
	for (i = 0; i < s->out->n_groups; i++)
		UNS_TRY(add_group(s, i, err));
	return 0;
}

/* -- states -- */

static const struct uns_tensor **slot_of(struct uns_adam_param *p, enum uns_role role)
{
	switch (role) {
	case UNS_ROLE_EXP_AVG:
		return &p->exp_avg;
	case UNS_ROLE_EXP_AVG_SQ:
		return &p->exp_avg_sq;
	default:
		return &p->step;
	}
}

static int add_state(struct search *s, const struct uns_tensor *t, struct uns_err *err)
{
	struct uns_adam_param *p = uns_map_get(&s->by_name, t->name);

	if (t->role == UNS_ROLE_OPTIM_OTHER)
		return uns_catalog_fail(s->cat,
					UNS_FINDING(.id = UNS_FOUND_OPTIMIZER_STATE_OTHER,
						    .scope = UNS_SCOPE_OPTIMIZER, .tensor = t->name,
						    .arg = { { "state", uns_str(uns_tensor_state(t)) } }),
					err);
	if (!p)
		return uns_catalog_fail(s->cat,
					UNS_FINDING(.id = UNS_FOUND_OPTIMIZER_STATE_STRAY,
						    .scope = UNS_SCOPE_OPTIMIZER, .tensor = t->key),
					err);
	*slot_of(p, t->role) = t;
	return 0;
}

static int add_states(struct search *s, struct uns_err *err)
{
	const struct uns_catalog *cat = s->cat;
	struct uns_adam_param *p;
	size_t i;

	for (i = 0; i < cat->n_tensors; i++) {
		const struct uns_tensor *t = &cat->tensors[i];

		p = uns_map_get(&s->by_name, t->name);
		if (t->role == UNS_ROLE_MASTER && p)
			p->fp32 = t;
		else if (t->role == UNS_ROLE_WEIGHT && p && !p->fp32)
			p->fp32 = t;
		else if (uns_role_is_optimizer(t->role) && t->role != UNS_ROLE_MASTER &&
			 strcmp(t->root, s->out->root) == 0)
			UNS_TRY(add_state(s, t, err));
	}
	return 0;
}

/* -- settling: which parameters have states -- */

/* fp32 has every value of the dtype. */
static bool widens(enum uns_dtype dtype)
{
	return uns_dtype_info(dtype)->is_float && uns_dtype_size(dtype) <= 4;
}

static int check_tensor(const struct uns_catalog *cat, const struct uns_adam_param *p,
			const struct uns_tensor *t, const char *what, struct uns_err *err)
{
	if (!t)
		return uns_catalog_fail(cat,
					UNS_FINDING(.id = UNS_FOUND_OPTIMIZER_STATE_MISSING,
						    .scope = UNS_SCOPE_OPTIMIZER, .tensor = p->name,
						    .arg = { { "state", uns_str(what) } }),
					err);
	if (!widens(t->dtype))
		return uns_catalog_fail(
			cat,
			UNS_FINDING(.id = UNS_FOUND_OPTIMIZER_STATE_TOO_WIDE,
				    .scope = UNS_SCOPE_OPTIMIZER, .tensor = p->name,
				    .found = uns_str(uns_dtype_info(t->dtype)->torch),
				    .arg = { { "state", uns_str(what) } }),
			err);
	if (!uns_shape_equal(&t->shape, &p->fp32->shape))
		return uns_catalog_fail(cat,
					UNS_FINDING(.id = UNS_FOUND_OPTIMIZER_STATE_SHAPE,
						    .scope = UNS_SCOPE_OPTIMIZER, .tensor = p->name,
						    .arg = { { "state", uns_str(what) } }),
					err);
	return 0;
}

static int check_param(const struct uns_catalog *cat, const struct uns_adam_param *p,
		       struct uns_err *err)
{
	if (!p->fp32)
		UNS_TRY(uns_cover_refusal(cat, UNS_SCOPE_WEIGHTS, err)); /* its finding has more details */
	if (!p->fp32)
		return uns_catalog_fail(cat,
					UNS_FINDING(.id = UNS_FOUND_OPTIMIZER_WEIGHT_MISSING,
						    .scope = UNS_SCOPE_OPTIMIZER,
						    .tensor = p->name),
					err);
	UNS_TRY(check_tensor(cat, p, p->fp32, "fp32", err));
	UNS_TRY(check_tensor(cat, p, p->exp_avg, "exp_avg", err));
	UNS_TRY(check_tensor(cat, p, p->exp_avg_sq, "exp_avg_sq", err));
	if (p->step && uns_shape_elems(&p->step->shape) != 1)
		return uns_catalog_fail(cat,
					UNS_FINDING(.id = UNS_FOUND_OPTIMIZER_STEP_NOT_ONE,
						    .scope = UNS_SCOPE_OPTIMIZER,
						    .tensor = p->name),
					err);
	return 0;
}

/* A state that one parameter lacks may be lost. A state that all parameters lack is not kept by this optimizer (Lion
 * has no exp_avg_sq, Adagrad and schedule-free AdamW have no exp_avg). */
static int check_kind(const struct search *s, struct uns_err *err)
{
	static const char *const state[] = { "exp_avg", "exp_avg_sq" };
	const struct uns_adam_params *out = s->out;
	size_t i, n[2] = { 0 }, k;

	for (i = 0; i < out->n; i++) {
		n[0] += out->v[i].exp_avg != NULL;
		n[1] += out->v[i].exp_avg_sq != NULL;
	}
	for (k = 0; k < 2; k++)
		if (!n[k] && n[1 - k])
			return uns_catalog_fail(s->cat,
						UNS_FINDING(.id = UNS_FOUND_OPTIMIZER_NOT_ADAM,
							    .scope = UNS_SCOPE_OPTIMIZER,
							    .arg = { { "state", uns_str(state[k]) } }),
						err);
	return 0;
}

/* Keeps the parameters that have states. */
static int settle(struct search *s, struct uns_err *err)
{
	struct uns_adam_params *out = s->out;
	size_t i, n = 0;

	UNS_TRY(check_kind(s, err));
	for (i = 0; i < out->n; i++) {
		struct uns_adam_param *p = &out->v[i];

		if (!p->exp_avg && !p->exp_avg_sq && !p->step) {
			if (!out->n_stateless++)
				out->stateless = p->name;
			continue;
		}
		UNS_TRY(check_param(s->cat, p, err));
		out->n_widened += p->fp32->dtype != UNS_F32;
		out->v[n++] = *p;
	}
	out->n = n;
	return n ? 0
		 : uns_catalog_fail(s->cat,
				    UNS_FINDING(.id = UNS_FOUND_OPTIMIZER_STATELESS,
						.scope = UNS_SCOPE_OPTIMIZER),
				    err);
}

int uns_adam_params_find(const struct uns_catalog *cat, struct uns_arena *arena,
			 struct uns_adam_params *out, struct uns_err *err)
{
	UNS_CLEANUP(search_fini) struct search s = { .cat = cat, .out = out };

	*out = (struct uns_adam_params){ .root = uns_optimizer_root(cat) };
	if (!out->root)
		UNS_TRY(uns_cover_refusal(cat, UNS_SCOPE_OPTIMIZER, err));
	if (!out->root)
		return uns_catalog_fail(cat,
					UNS_FINDING(.id = UNS_FOUND_OPTIMIZER_STATES_UNNAMED,
						    .scope = UNS_SCOPE_OPTIMIZER),
					err);
	UNS_TRY(uns_optimizer_check(cat, out->root, err));
	UNS_TRY(uns_optimizer_check_names(cat, out->root, err));
	UNS_TRY(uns_optimizer_check_tensors(cat, out->root, err));
	UNS_TRY(add_groups(&s, arena, err));
	UNS_TRY(add_states(&s, err));
	return settle(&s, err);
}

/* A weight that cannot be shown cannot be used in place of its fp32 copy either. */
int uns_adam_params_cover(const struct uns_catalog *cat, const struct uns_adam_params *params,
			  struct uns_err *err)
{
	bool weights = false;
	size_t i;

	for (i = 0; i < params->n; i++)
		weights |= params->v[i].fp32->role == UNS_ROLE_WEIGHT;
	if (weights)
		UNS_TRY(uns_cover_refusal(cat, UNS_SCOPE_WEIGHTS, err));
	for (i = 0; i < params->n; i++) /* uns_optimizer_check has checked the states */
		UNS_TRY(uns_cover_check(cat, params->v[i].fp32, err));
	return 0;
}
