/* Makes the plan of one rank's files for another number of ranks, in this order: which parameters the groups have there
 * (keep_groups), which tensors of the catalog belong to each (find_members), and where in a flat tensor each of them
 * lies (make_cuts). Arithmetic and checks alone. */
#include "zero/write/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/checked.h"
#include "base/map.h"
#include "base/search.h"
#include "files/optimizer_state.h"
#include "parallel/experts.h"
#include "parallel/slice_pieces.h"
#include "zero/engine_state.h"
#include "zero/values.h"

struct planning {
	struct uns_zero_plan *plan;
	struct uns_arena *arena;
	struct uns_zero_member *member; /* all, in the order of the groups */
	struct uns_map by_name;
	const struct uns_value *config; /* ds_config */
	const struct uns_value *shapes; /* param_shapes */
	uint64_t old_world;
};

static void planning_fini(struct planning *p)
{
	uns_map_fini(&p->by_name);
}

static int unsupported(const struct planning *p, const char *why, struct uns_err *err)
{
	return UNS_CATALOG_FAIL(p->plan->cat, err, ZERO_CUT_NOT_POSSIBLE, .scope = UNS_SCOPE_OPTIMIZER,
				.arg = { { "cause", uns_str(why) } });
}

/* -- shares of experts, stages of a pipeline -- */

/* Of how many shares each group is one: the optimizer's "partition_count" is how many ranks it is cut for. */
static size_t shares_of(const struct uns_catalog *cat, size_t g)
{
	uint64_t world, n;

	if (cat->summary.is_autoep)
		return uns_engine_autoep_ranks(cat, &cat->groups[g]);
	if (!uns_value_u64(uns_catalog_value(cat, "model_states", "dp_world_size"), &world) ||
	    !uns_value_u64(uns_value_at(uns_catalog_value(cat, "optim_states", "partition_count"), g), &n) || !n ||
	    world % n)
		return 1;
	return (size_t)(world / n);
}

int uns_zero_plan_shares(const struct uns_catalog *cat, size_t *out, struct uns_err *err)
{
	size_t g, n;

	*out = 1;
	for (g = 0; g < cat->n_groups; g++) {
		n = shares_of(cat, g);
		if (n > 1 && *out > 1 && n != *out)
			return UNS_CATALOG_FAIL(cat, err, EXPERTS_VARY, .scope = UNS_SCOPE_OPTIMIZER);
		*out = n > 1 ? n : *out;
	}
	return 0;
}

/* The parameters of the group that the plan's share has: of each layer an equal part of its experts, which follow each
 * other. */
static int keep_share(struct planning *p, const struct uns_group *of, struct uns_group *out, struct uns_err *err)
{
	const struct uns_zero_plan *plan = p->plan;
	uint64_t number, n_experts;
	size_t i = 0, end, prefix;
	const char *rest;

	out->n_params = 0;
	UNS_TRY_ALLOC(out->param = UNS_NEW_N(p->arena, const char *, of->n_params), err);
	while (i < of->n_params) {
		if (!uns_zero_expert_of(of->param[i], &prefix, &number, &rest))
			return unsupported(p, "a group of experts holds a parameter that is none of an expert", err);
		n_experts = 0;
		for (end = i; end < of->n_params && uns_zero_experts_of_one_layer(of->param[i], of->param[end]);
		     end++) {
			uns_zero_expert_of(of->param[end], &prefix, &number, &rest);
			n_experts = uns_u64_max(n_experts, number + 1);
		}
		for (; i < end; i++) {
			uns_zero_expert_of(of->param[i], &prefix, &number, &rest);
			if (number * plan->n_shares / n_experts == plan->share)
				out->param[out->n_params++] = of->param[i];
		}
	}
	return 0;
}

/* Those that the pipeline's stage has, as its model file lists them. */
static int keep_stage(const struct planning *p, const struct uns_value *shapes, struct uns_group *out,
		      struct uns_err *err)
{
	size_t i;

	out->n_params = 0;
	UNS_TRY_ALLOC(out->param = UNS_NEW_N(p->arena, const char *, shapes ? shapes->n : 0), err);
	for (i = 0; shapes && shapes->kind == UNS_VALUE_DICT && i < shapes->n; i++) {
		const char *name = uns_value_str(shapes->pair[i].key);

		if (!name)
			return unsupported(p, "param_shapes has a key that is not a name", err);
		out->param[out->n_params++] = name;
	}
	return 0;
}

/* The groups as the plan's ranks have them. */
static int keep_groups(struct planning *p, struct uns_err *err)
{
	struct uns_zero_plan *plan = p->plan;
	struct uns_group *group = UNS_NEW_N(p->arena, struct uns_group, plan->n_groups);
	size_t g;

	UNS_TRY(uns_zero_plan_shares(plan->cat, &plan->n_shares, err));
	uns_zero_experts_ranks(p->config, plan->world, plan->n_shares, plan->share, &plan->first, &plan->stride);
	UNS_TRY_ALLOC(group, err);
	for (g = 0; g < plan->n_groups; g++) {
		group[g] = plan->cat->groups[g];
		if (shares_of(plan->cat, g) > 1 && !plan->cat->summary.is_autoep)
			UNS_TRY(keep_share(p, &plan->cat->groups[g], &group[g], err));
		if (plan->cat->summary.is_pipeline)
			UNS_TRY(keep_stage(p, uns_value_at(p->shapes, g), &group[g], err));
	}
	plan->group = group;
	return 0;
}

/* -- members -- */

static int add_names(struct planning *p, struct uns_err *err)
{
	struct uns_zero_plan *plan = p->plan;
	size_t g, i, n = 0;

	for (g = 0; g < plan->n_groups; g++)
		plan->n_members += plan->group[g].n_params;
	UNS_TRY_ALLOC(p->member = UNS_NEW_N(p->arena, struct uns_zero_member, plan->n_members), err);
	for (g = 0; g < plan->n_groups; g++)
		for (i = 0; i < plan->group[g].n_params; i++, n++) {
			p->member[n].name = plan->group[g].param[i];
			UNS_TRY_ALLOC(uns_map_put(&p->by_name, p->member[n].name, &p->member[n], NULL), err);
		}
	return 0;
}

/* Which state of the plan this is; the first parameter that has states decides which there are. */
static int state_index(struct planning *p, const char *name, size_t *out, struct uns_err *err)
{
	enum { MAX_STATES = 16 };
	struct uns_zero_plan *plan = p->plan;

	for (*out = 0; *out < plan->n_states; ++*out)
		if (strcmp(plan->state[*out], name) == 0)
			return 0;
	if (plan->n_states == MAX_STATES)
		return unsupported(p, "the optimizer has too many states for each parameter", err);
	if (!plan->state)
		plan->state = UNS_NEW_N(p->arena, const char *, MAX_STATES);
	UNS_TRY_ALLOC(plan->state, err);
	plan->state[plan->n_states++] = name;
	return 0;
}

static int list_states(struct planning *p, struct uns_err *err)
{
	const struct uns_catalog *cat = p->plan->cat;
	size_t i, unused;

	for (i = 0; i < cat->n_tensors; i++) {
		const struct uns_tensor *t = &cat->tensors[i];

		if (uns_role_is_optimizer(t->role) && t->role != UNS_ROLE_MASTER && t->role != UNS_ROLE_STEP &&
		    uns_map_get(&p->by_name, t->name))
			UNS_TRY(state_index(p, uns_tensor_state(t), &unused, err));
	}
	for (i = 0; i < p->plan->n_members; i++)
		UNS_TRY_ALLOC(p->member[i].state = UNS_NEW_N(p->arena, const struct uns_tensor *, p->plan->n_states),
			      err);
	return 0;
}

static int add_tensors(struct planning *p, struct uns_err *err)
{
	const struct uns_catalog *cat = p->plan->cat;
	struct uns_zero_member *m;
	size_t i, s;

	for (i = 0; i < cat->n_tensors; i++) {
		const struct uns_tensor *t = &cat->tensors[i];

		m = uns_map_get(&p->by_name, t->name);
		if (!m || !uns_role_is_optimizer(t->role))
			continue;
		if (t->role == UNS_ROLE_MASTER) {
			m->fp32 = t;
		} else if (t->role == UNS_ROLE_STEP) {
			m->step = t;
		} else {
			UNS_TRY(state_index(p, uns_tensor_state(t), &s, err));
			m->state[s] = t;
		}
	}
	return 0;
}

/* Every member has all that the first one has, in the same types: they become one tensor. */
static int check_member(const struct planning *p, const struct uns_zero_member *m, struct uns_err *err)
{
	const struct uns_zero_member *first = p->member;
	bool is_number;
	size_t s;

	if (!m->fp32 || m->fp32->dtype != first->fp32->dtype || !m->step != !first->step)
		return UNS_CATALOG_FAIL(p->plan->cat, err, ZERO_COPY_UNLIKE, .scope = UNS_SCOPE_OPTIMIZER,
					.tensor = m->name);
	for (s = 0; s < p->plan->n_states; s++) {
		is_number = m->state[s] && m->state[s]->shape.n == 0 && m->fp32->shape.n > 0;
		if (is_number || !m->state[s] || !first->state[s] || m->state[s]->dtype != first->state[s]->dtype ||
		    !uns_shape_equal(&m->state[s]->shape, &m->fp32->shape))
			return uns_catalog_fail(p->plan->cat,
						UNS_FINDING(.id = is_number ? UNS_FOUND_OPTIMIZER_STATE_IS_A_NUMBER
									    : UNS_FOUND_OPTIMIZER_STATE_UNLIKE,
							    .scope = UNS_SCOPE_OPTIMIZER, .tensor = m->name,
							    .arg = { { "state", uns_str(p->plan->state[s]) } }),
						err);
	}
	return 0;
}

const struct uns_tensor *uns_zero_plan_held(const struct uns_zero_plan *plan, const struct uns_tensor *t,
					    struct uns_arena *arena)
{
	const struct uns_zero_cut_up *cut = uns_zero_cut_find(plan->slices, t->name);

	if (!cut && t->alias_of != UNS_NONE) /* the maps have the other tensor's name */
		cut = uns_zero_cut_find(plan->slices, plan->cat->tensors[t->alias_of].name);
	return cut ? uns_zero_slice_of(plan->cat, t, &cut->slice[plan->slice], arena) : t;
}

static int slice_member(const struct planning *p, struct uns_zero_member *m, struct uns_err *err)
{
	size_t s;

	UNS_TRY_ALLOC(m->fp32 = uns_zero_plan_held(p->plan, m->fp32, p->arena), err);
	m->elems = uns_shape_elems(&m->fp32->shape);
	if (!m->elems && p->plan->slices->n_ranks > 1)
		return unsupported(p, "a tensor-parallel rank has nothing of one of the parameters", err);
	for (s = 0; s < p->plan->n_states; s++)
		UNS_TRY_ALLOC(m->state[s] = uns_zero_plan_held(p->plan, m->state[s], p->arena), err);
	return 0;
}

static int find_members(struct planning *p, struct uns_err *err)
{
	size_t i;

	UNS_TRY(add_names(p, err));
	if (!p->plan->n_members)
		return unsupported(p, "the optimizer has no parameters", err);
	UNS_TRY(list_states(p, err));
	UNS_TRY(add_tensors(p, err));
	if (!p->member[0].fp32)
		return unsupported(p, "the optimizer keeps no fp32 copies", err);
	for (i = 0; i < p->plan->n_members; i++)
		UNS_TRY(check_member(p, &p->member[i], err));
	for (i = 0; i < p->plan->n_members; i++)
		UNS_TRY(slice_member(p, &p->member[i], err));
	return 0;
}

/* -- order -- */

static int deal_members(struct uns_zero_member *v, size_t n, uint64_t world, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	struct uns_zero_member *original = UNS_NEW_N(&scratch, struct uns_zero_member, n);
	size_t *order = UNS_NEW_N(&scratch, size_t, n), k;

	UNS_TRY_ALLOC(original && order, err);
	memcpy(original, v, n * sizeof(*v));
	uns_zero_deal(n, world, order);
	for (k = 0; k < n; k++)
		v[k] = original[order[k]];
	return 0;
}

/* param_shapes has the order in the shards, the catalog's groups the order in the optimizer. If both are equal in a
 * group of more parameters than ranks, the setting had no effect. A group of fewer parameters has one parameter a
 * rank: both orders are then equal with and without the setting, which still counts for another number of ranks. */
static bool is_dealt(const struct planning *p)
{
	const struct uns_value *shapes;
	size_t g, i;

	if (!uns_zero_is_round_robin(p->config))
		return false;
	for (g = 0; g < p->plan->n_groups && p->old_world > 1; g++) {
		shapes = uns_value_at(p->shapes, g);
		if (!shapes || shapes->kind != UNS_VALUE_DICT || shapes->n <= p->old_world ||
		    shares_of(p->plan->cat, g) > 1)
			continue;
		for (i = 0; i < shapes->n && i < p->plan->cat->groups[g].n_params; i++) {
			const char *name = uns_value_str(shapes->pair[i].key);

			if (name && strcmp(name, p->plan->cat->groups[g].param[i]) != 0)
				return true;
		}
		return false;
	}
	return uns_zero_obeys_round_robin(p->config,
					  uns_value_str(uns_catalog_value(p->plan->cat, "model_states", "ds_version")));
}

/* -- cuts -- */

static int add_padding(const struct planning *p, size_t group, size_t i, uint64_t *at, struct uns_err *err)
{
	uint64_t padding;

	if (!uns_zero_alignment(p->plan->paddings, group, i, &padding))
		return UNS_CATALOG_FAIL(p->plan->cat, err, ZERO_PADDINGS, .scope = UNS_SCOPE_OPTIMIZER);
	if (padding && p->plan->reordered)
		return unsupported(p,
				   "with both parameter_alignment and round_robin_gradients, "
				   "another number of ranks is not supported",
				   err);
	*at += padding;
	return 0;
}

static int make_flat(struct planning *p, size_t group, struct uns_zero_member *v, struct uns_err *err)
{
	struct uns_zero_plan *plan = p->plan;
	struct uns_zero_cut *cut = &plan->cut[plan->n_cuts++];
	size_t i;

	*cut = (struct uns_zero_cut){ .group = group,
				      .world = plan->world / shares_of(plan->cat, group),
				      .v = v,
				      .n = plan->group[group].n_params };
	if (!cut->world)
		return unsupported(p, "there are fewer ranks than shares of the experts", err);
	if (plan->dealt)
		UNS_TRY(deal_members(v, cut->n, cut->world, err));
	for (i = 0; i < cut->n; i++) {
		v[i].at = cut->end;
		cut->end += v[i].elems;
		UNS_TRY(add_padding(p, group, i, &cut->end, err));
	}
	cut->part = uns_zero_part(cut->end, cut->world);
	return 0;
}

/* One group into sub-groups; how many for `world` ranks. out NULL = only count. */
static size_t make_sliced(const struct planning *p, size_t group, struct uns_zero_member *v, uint64_t world,
			  struct uns_zero_cut *out)
{
	size_t n = p->plan->group[group].n_params, i, first = 0, n_cuts = 0;
	uint64_t full = uns_zero_sub_group_size(p->config), sum = 0;

	for (i = 0; i < n; i++) {
		if (out)
			v[i].at = sum;
		sum += uns_zero_slice(v[i].elems, world);
		if (!uns_zero_sub_group_is_full(sum, full) && i + 1 < n)
			continue;
		if (out)
			out[n_cuts] = (struct uns_zero_cut){ .group = group,
							     .world = world,
							     .v = v + first,
							     .n = i + 1 - first,
							     .end = sum,
							     .part = sum };
		n_cuts++;
		first = i + 1;
		sum = 0;
	}
	return n_cuts;
}

/* The rule must give what was saved for as many ranks as saved it: param_shapes are the first rank's. */
static int check_sliced(struct planning *p, struct uns_err *err)
{
	size_t g, n = 0, first = 0;

	if (p->plan->mp)
		return 0;
	for (g = 0; g < p->plan->n_groups; g++) {
		if (p->old_world < shares_of(p->plan->cat, g))
			return unsupported(p, "there were fewer ranks than shares of the experts", err);
		n += make_sliced(p, g, p->member + first, p->old_world / shares_of(p->plan->cat, g), NULL);
		first += p->plan->group[g].n_params;
	}
	if (p->shapes->n != n)
		return UNS_CATALOG_FAIL(p->plan->cat, err, ZERO_SUB_GROUPS, .scope = UNS_SCOPE_OPTIMIZER,
					.expected = uns_num(n), .found = uns_num(p->shapes->n),
					.arg = { { "ranks", uns_num(p->old_world) } });
	return 0;
}

static int make_cuts(struct planning *p, struct uns_err *err)
{
	struct uns_zero_plan *plan = p->plan;
	size_t g, first = 0;

	/* A sub-group has at least one parameter. */
	UNS_TRY_ALLOC(plan->cut = UNS_NEW_N(p->arena, struct uns_zero_cut, plan->n_members + plan->n_groups), err);
	if (plan->sliced)
		UNS_TRY(check_sliced(p, err));
	for (g = 0; g < plan->n_groups; g++) {
		if (plan->sliced)
			plan->n_cuts += make_sliced(p, g, p->member + first, plan->world / shares_of(plan->cat, g),
						    plan->cut + plan->n_cuts);
		else
			UNS_TRY(make_flat(p, g, p->member + first, err));
		first += plan->group[g].n_params;
	}
	return 0;
}

/* -- the plan -- */

/* Flat groups are param_shapes' dicts; the catalog's groups must be the same. */
static int check_shapes(const struct planning *p, struct uns_err *err)
{
	size_t g, n = 0;

	if (!p->shapes || p->shapes->kind != UNS_VALUE_LIST)
		return unsupported(p, "param_shapes is not a list of groups", err);
	for (g = 0; g < p->shapes->n; g++) {
		if (p->shapes->item[g]->kind != UNS_VALUE_DICT)
			return unsupported(p, "param_shapes is not a list of groups", err);
		n += p->shapes->item[g]->n;
	}
	if ((!p->plan->sliced && p->shapes->n != p->plan->n_groups) || n != p->plan->n_members)
		return UNS_CATALOG_FAIL(p->plan->cat, err, ZERO_SHAPES_UNLIKE_GROUPS, .scope = UNS_SCOPE_OPTIMIZER,
					.expected = uns_num(p->plan->n_members), .found = uns_num(n),
					.arg = { { "found_groups", uns_num(p->shapes->n) },
						 { "expected_groups", uns_num(p->plan->n_groups) } });
	return 0;
}

static int find_settings(struct planning *p, struct uns_err *err)
{
	const struct uns_catalog *cat = p->plan->cat;
	char stage_name[24];
	int64_t stage = 0;

	if (!cat->summary.has_engine_state ||
	    !uns_value_u64(uns_catalog_value(cat, "model_states", "dp_world_size"), &p->old_world) || !p->old_world)
		return unsupported(p, "DeepSpeed did not save it", err);
	snprintf(stage_name, sizeof(stage_name), "%zu", p->plan->mp);
	p->shapes = cat->summary.is_pipeline ? uns_catalog_value(cat, UNS_ZERO_STAGE_SHAPES, stage_name)
					     : uns_catalog_value(cat, "model_states", "param_shapes");
	p->plan->paddings = cat->summary.is_pipeline
				    ? uns_catalog_value(cat, UNS_ZERO_STAGE_PADDINGS, stage_name)
				    : uns_catalog_value(cat, "optim_states", "param_alignment_paddings");
	p->config = uns_catalog_value(cat, "model_states", "ds_config");
	uns_value_int(uns_zero_setting(p->config, "stage"), &stage);
	p->plan->sliced = stage == 3;
	p->plan->pads_fp32 = stage != 3 && !uns_catalog_value(cat, "optim_states", "zero_stage");
	/* BF16_Optimizer, which pads, does not know the setting. */
	p->plan->dealt = stage != 3 && !p->plan->pads_fp32 && is_dealt(p);
	if (p->plan->dealt && cat->summary.is_pipeline)
		return unsupported(p, "round_robin_gradients of a pipeline is not supported", err);
	p->plan->reordered = p->plan->dealt && p->plan->world != p->old_world;
	return 0;
}

int uns_zero_plan_make(const struct uns_catalog *cat, const struct uns_zero_slices *slices, size_t mp, size_t share,
		       uint64_t world, struct uns_arena *arena, struct uns_zero_plan *out, struct uns_err *err)
{
	UNS_CLEANUP(planning_fini) struct planning p = { .plan = out, .arena = arena };

	*out = (struct uns_zero_plan){ .cat = cat,
				       .slices = slices,
				       .slice = cat->summary.is_autoep ? share : mp,
				       .mp = mp,
				       .share = share,
				       .world = world,
				       .n_groups = cat->n_groups };
	UNS_TRY(find_settings(&p, err));
	UNS_TRY(keep_groups(&p, err));
	UNS_TRY(uns_optimizer_check(cat, uns_optimizer_root(cat), err));
	UNS_TRY(uns_optimizer_check_hyper(cat, err));
	UNS_TRY(find_members(&p, err));
	UNS_TRY(check_shapes(&p, err));
	return make_cuts(&p, err);
}

/* -- what a rank holds -- */

struct row {
	struct uns_torch_part *v;
	size_t n;
	uint64_t elems; /* of all so far */
};

/* t NULL = zeros. */
static void add_part(struct row *row, const struct uns_tensor *t, uint64_t first, uint64_t n)
{
	if (!n)
		return;
	row->v[row->n++] = (struct uns_torch_part){ t, first, n };
	row->elems += n;
}

static struct uns_zero_layout layout_of(const struct uns_zero_plan *plan, const struct uns_zero_cut *cut)
{
	return (struct uns_zero_layout){ plan->sliced, cut->world, cut->part };
}

/* Among the ranks that the cut is for. */
static uint64_t rank_in(const struct uns_zero_plan *plan, const struct uns_zero_cut *cut, uint64_t rank)
{
	return cut->world == plan->world ? rank : (rank - plan->first) / plan->stride;
}

uint64_t uns_zero_plan_padding(const struct uns_zero_plan *plan, const struct uns_zero_cut *cut, uint64_t rank)
{
	const struct uns_zero_layout layout = layout_of(plan, cut);

	return uns_zero_padding(&layout, cut->end, rank_in(plan, cut, rank), plan->pads_fp32);
}

struct uns_torch_leaf uns_zero_plan_leaf(const struct uns_zero_plan *plan, const struct uns_zero_cut *cut, size_t s,
					 uint64_t rank, struct uns_arena *arena)
{
	const struct uns_zero_layout layout = layout_of(plan, cut);
	const struct uns_zero_member *m, *end = cut->v + cut->n;
	struct row row = { .v = UNS_NEW_N(arena, struct uns_torch_part, 2 * cut->n + 2) };
	struct uns_torch_leaf leaf = { .out = (s == SIZE_MAX ? cut->v->fp32 : cut->v->state[s])->dtype, .part = row.v };
	struct uns_zero_stretch stretch;
	uint64_t elems;
	size_t first = 0;

	if (!row.v)
		return leaf;
	rank = rank_in(plan, cut, rank);
	elems = s != SIZE_MAX || plan->pads_fp32 ? cut->part : uns_zero_held(&layout, cut->end, rank);
	if (!plan->sliced) /* the first member that ends behind where the rank's part begins */
		UNS_SEARCH(first, cut->n, cut->v[first].at + cut->v[first].elems <= rank * cut->part);
	for (m = cut->v + first; m < end && (plan->sliced || m->at < (rank + 1) * cut->part); m++) {
		if (!uns_zero_stretch_of(&layout, m->at, m->elems, rank, &stretch))
			continue;
		add_part(&row, NULL, 0, stretch.local - row.elems); /* padding between members */
		add_part(&row, s == SIZE_MAX ? m->fp32 : m->state[s], stretch.first, stretch.count);
	}
	add_part(&row, NULL, 0, elems - row.elems);
	leaf.shape = (struct uns_shape){ .n = 1, .dim = { elems } };
	leaf.n_parts = row.n;
	return leaf;
}
