/* Groups tensors into parameters, by role and name. Knows roles, but neither which framework saved the tensors nor
 * which view uses them. */
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

/* Lists the optimizer's groups and their parameters. */
static int groups_add(struct search *s, struct uns_arena *arena, struct uns_err *err)
{
	const struct uns_catalog *cat = s->cat;
	struct uns_adam_params *out = s->out;
	const struct uns_group *g, *end = cat->groups + cat->n_groups;
	size_t i, n = 0;

	for (g = cat->groups; g < end; g++) {
		if (strcmp(g->root, out->root) != 0)
			return UNS_CATALOG_FAIL(
				cat, err, OPTIMIZERS_SEVERAL, .scope = UNS_SCOPE_OPTIMIZER,
				.arg = { { "one", uns_str(out->root) }, { "other", uns_str(g->root) } });
		if (g->guessed)
			return UNS_CATALOG_FAIL(cat, err, GROUPS_UNORDERED, .scope = UNS_SCOPE_OPTIMIZER);
		n += g->n_params;
	}
	UNS_TRY_ALLOC(out->group = UNS_NEW_N(arena, const struct uns_group *, cat->n_groups), err);
	UNS_TRY_ALLOC(out->v = UNS_NEW_N(arena, struct uns_adam_param, n), err);
	for (g = cat->groups; g < end; g++) {
		for (i = 0; i < g->n_params; i++) {
			out->v[out->n] = (struct uns_adam_param){ .name = g->param[i], .group = out->n_groups };
			UNS_TRY_ALLOC(uns_map_put(&s->by_name, g->param[i], &out->v[out->n++], NULL), err);
		}
		if (g->n_params) /* DeepSpeed leaves out a group without parameters as well */
			out->group[out->n_groups++] = g;
	}
	return 0;
}

/* Gives each parameter its fp32 copy, or else its weight, and its states. */
static int states_add(struct search *s, struct uns_err *err)
{
	const struct uns_tensor *t = s->cat->tensors, *end = t + s->cat->n_tensors;
	struct uns_adam_param *p;

	for (; t < end; t++) {
		p = uns_map_get(&s->by_name, t->name);
		if (p && (t->role == UNS_ROLE_MASTER || (t->role == UNS_ROLE_WEIGHT && !p->fp32)))
			p->fp32 = t;
		if (!uns_role_is_optimizer(t->role) || t->role == UNS_ROLE_MASTER || strcmp(t->root, s->out->root) != 0)
			continue;
		if (t->role == UNS_ROLE_OPTIM_OTHER)
			return UNS_CATALOG_FAIL(s->cat, err, OPTIMIZER_STATE_OTHER, .scope = UNS_SCOPE_OPTIMIZER,
						.tensor = t->name,
						.arg = { { "state", uns_str(uns_tensor_state(t)) } });
		if (!p)
			return UNS_CATALOG_FAIL(s->cat, err, OPTIMIZER_STATE_STRAY, .scope = UNS_SCOPE_OPTIMIZER,
						.tensor = t->key);
		if (t->role == UNS_ROLE_EXP_AVG)
			p->exp_avg = t;
		else if (t->role == UNS_ROLE_EXP_AVG_SQ)
			p->exp_avg_sq = t;
		else
			p->step = t;
	}
	return 0;
}

/* -- which parameters have states -- */

static int check_tensor(const struct uns_catalog *cat, const struct uns_adam_param *p, const struct uns_tensor *t,
			const char *what, struct uns_err *err)
{
	if (!t)
		return UNS_CATALOG_FAIL(cat, err, OPTIMIZER_STATE_MISSING, .scope = UNS_SCOPE_OPTIMIZER,
					.tensor = p->name, .arg = { { "state", uns_str(what) } });
	/* fp32 has every value of a float dtype of at most 4 bytes. */
	if (!uns_dtype_info(t->dtype)->is_float || uns_dtype_size(t->dtype) > 4)
		return UNS_CATALOG_FAIL(cat, err, OPTIMIZER_STATE_TOO_WIDE, .scope = UNS_SCOPE_OPTIMIZER,
					.tensor = p->name, .found = uns_str(uns_dtype_info(t->dtype)->torch),
					.arg = { { "state", uns_str(what) } });
	if (!uns_shape_equal(&t->shape, &p->fp32->shape))
		return UNS_CATALOG_FAIL(cat, err, OPTIMIZER_STATE_SHAPE, .scope = UNS_SCOPE_OPTIMIZER,
					.tensor = p->name, .arg = { { "state", uns_str(what) } });
	return 0;
}

static int check_param(const struct uns_catalog *cat, const struct uns_adam_param *p, struct uns_err *err)
{
	if (!p->fp32)
		UNS_TRY(uns_cover_refusal(cat, UNS_SCOPE_WEIGHTS, err)); /* its finding has more details */
	if (!p->fp32)
		return UNS_CATALOG_FAIL(cat, err, OPTIMIZER_WEIGHT_MISSING, .scope = UNS_SCOPE_OPTIMIZER,
					.tensor = p->name);
	UNS_TRY(check_tensor(cat, p, p->fp32, "fp32", err));
	UNS_TRY(check_tensor(cat, p, p->exp_avg, "exp_avg", err));
	UNS_TRY(check_tensor(cat, p, p->exp_avg_sq, "exp_avg_sq", err));
	if (p->step && uns_shape_elems(&p->step->shape) != 1)
		return UNS_CATALOG_FAIL(cat, err, OPTIMIZER_STEP_NOT_ONE, .scope = UNS_SCOPE_OPTIMIZER,
					.tensor = p->name);
	return 0;
}

/* Keeps the parameters that have states. A state that one parameter lacks may be lost. A state that all parameters lack
 * is not kept by this optimizer (Lion has no exp_avg_sq, Adagrad and schedule-free AdamW have no exp_avg). */
static int params_keep(struct search *s, struct uns_err *err)
{
	struct uns_adam_params *out = s->out;
	struct uns_adam_param *p = out->v, *end = p + out->n;
	size_t n_avg = 0, n_sq = 0;

	for (; p < end; p++) {
		n_avg += p->exp_avg != NULL;
		n_sq += p->exp_avg_sq != NULL;
	}
	if (!n_avg != !n_sq)
		return UNS_CATALOG_FAIL(s->cat, err, OPTIMIZER_NOT_ADAM, .scope = UNS_SCOPE_OPTIMIZER,
					.arg = { { "state", uns_str(n_avg ? "exp_avg_sq" : "exp_avg") } });
	for (out->n = 0, p = out->v; p < end; p++) {
		if (!p->exp_avg && !p->exp_avg_sq && !p->step) {
			if (!out->n_stateless++)
				out->stateless = p->name;
			continue;
		}
		UNS_TRY(check_param(s->cat, p, err));
		out->n_widened += p->fp32->dtype != UNS_F32;
		out->v[out->n++] = *p;
	}
	return out->n ? 0 : UNS_CATALOG_FAIL(s->cat, err, OPTIMIZER_STATELESS, .scope = UNS_SCOPE_OPTIMIZER);
}

int uns_adam_params_find(const struct uns_catalog *cat, struct uns_arena *arena, struct uns_adam_params *out,
			 struct uns_err *err)
{
	UNS_CLEANUP(search_fini) struct search s = { .cat = cat, .out = out };

	*out = (struct uns_adam_params){ .root = uns_optimizer_root(cat) };
	if (!out->root)
		UNS_TRY(uns_cover_refusal(cat, UNS_SCOPE_OPTIMIZER, err));
	if (!out->root)
		return UNS_CATALOG_FAIL(cat, err, OPTIMIZER_STATES_UNNAMED, .scope = UNS_SCOPE_OPTIMIZER);
	UNS_TRY(uns_optimizer_check(cat, out->root, err));
	UNS_TRY(uns_optimizer_check_names(cat, out->root, err));
	UNS_TRY(uns_optimizer_check_tensors(cat, out->root, err));
	UNS_TRY(groups_add(&s, arena, err));
	UNS_TRY(states_add(&s, err));
	return params_keep(&s, err);
}

/* A weight that cannot be shown cannot be used in place of its fp32 copy either. */
int uns_adam_params_cover(const struct uns_catalog *cat, const struct uns_adam_params *params, struct uns_err *err)
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
