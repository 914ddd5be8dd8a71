/* The search: visits the tree of modules that the parameters' names spell. Each module either was wrapped, and then
 * the next unit holds its parameters that are in no wrapped module below it, or it was not wrapped. Of the decisions
 * so far, only the number of units and the number of elements matter: equal (units, elements) are followed once and
 * counted. */
#include "ranks/units.h"

#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/keyed_hash.h"
#include "base/map.h"

enum { MAX_STATES = 1 << 21, MAX_LIST = 1 << 12, MANY = 2 };

struct module {
	const char *name;
	struct module *parent, *first, *last, *next; /* children in the model's order */
	size_t n_children;
	uint64_t own, total; /* elements: of its own parameters, and with all below */
	uint64_t own_sum, total_sum; /* of their random numbers */
	bool numbered; /* all children are: a list, or modules that follow each other */
	size_t unit;         /* once it is decided; SIZE_MAX = not wrapped */
	struct known *known;
};

/* The modules wrapped, as a tree of choices that share their parts. */
struct choice {
	struct module *module;
	size_t unit;
	const struct choice *a, *b;
};

struct state {
	size_t next;   /* unit */
	uint64_t left; /* elements in no unit */
	uint64_t left_sum, units_sum; /* which parameters, and which are in which unit */
	unsigned ways; /* at most MANY */
	const struct choice *wrapped;
};

struct states {
	struct state *v;
	size_t n, cap;
};

/* What can become of a module when the next unit is `from`. */
struct known {
	size_t from;
	struct states states;
	struct known *next;
};

struct search {
	const struct uns_rank_unit_sizes *sizes;
	size_t ranks;   /* that a unit is cut for */
	uint64_t least; /* elements per rank of the smallest unit but the first */
	struct uns_arena arena;
	size_t n_states;
	bool failed, too_many;
};

bool uns_rank_unit_fits(uint64_t n, uint64_t elems, size_t ranks)
{
	return elems == UNS_RANK_UNIT_FROZEN || n / ranks + (n % ranks != 0) == elems;
}

/* -- modules -- */

struct tree {
	struct uns_arena arena;
	struct uns_map by_name;
	struct module *root;
	struct module **of; /* parallel to the parameters that are counted */
	const size_t *param;
	size_t n;
};

static void tree_fini(struct tree *t)
{
	uns_map_fini(&t->by_name);
	uns_arena_fini(&t->arena);
}

static uint64_t random_of(uint64_t a, uint64_t b)
{
	const uint64_t words[] = { a, b };

	return uns_keyed_hash(words, sizeof(words));
}

static struct module *module_new(struct tree *t, const char *name, struct module *parent)
{
	struct module *m = UNS_NEW(&t->arena, struct module);
	const char *dot = strrchr(name, '.'), *last = dot ? dot + 1 : name;

	if (!uns_map_put(&t->by_name, name, m, NULL))
		return NULL;
	m->name = name;
	m->unit = SIZE_MAX;
	m->parent = parent;
	if (!parent)
		return m;
	if (parent->last)
		parent->last->next = m;
	else
		parent->first = m;
	parent->last = m;
	parent->numbered = (parent->numbered || !parent->n_children) && !last[strspn(last, "0123456789")];
	parent->n_children++;
	return m;
}

/* The module that holds what is called `name`, made with those around it. NULL = out of memory. */
static struct module *module_of(struct tree *t, const char *name)
{
	struct module *m = t->root;
	const char *dot = name, *prefix;

	while (m && (dot = strchr(dot, '.'))) {
		struct module *known;

		prefix = uns_arena_strn(&t->arena, name, (size_t)(dot - name));
		known = uns_map_get(&t->by_name, prefix);
		m = known ? known : module_new(t, prefix, m);
		dot++;
	}
	return m;
}

static bool tree_build(struct tree *t, const struct uns_rank_params *params, bool with_twins)
{
	size_t *param = UNS_NEW_N(&t->arena, size_t, params->n), i;
	struct module *m;
	uint64_t elems;

	t->of = UNS_NEW_N(&t->arena, struct module *, params->n);
	t->root = param && t->of ? module_new(t, "", NULL) : NULL;
	for (i = 0; t->root && i < params->n; i++) {
		if (params->v[i].twin && !with_twins)
			continue;
		m = module_of(t, params->v[i].name);
		if (!m)
			return false;
		elems = uns_shape_elems(&params->v[i].shape);
		param[t->n] = i;
		t->of[t->n++] = m;
		m->own += elems;
		m->own_sum += random_of(i, 0);
		for (; m; m = m->parent) {
			m->total += elems; /* all lie in files: no overflow */
			m->total_sum += random_of(i, 0);
		}
	}
	t->param = param;
	return t->root != NULL;
}

/* -- the search -- */

static const struct choice *choice_new(struct search *s, struct module *m, size_t unit, const struct choice *a,
				       const struct choice *b)
{
	struct choice *c;

	if (!m && !(a && b))
		return a ? a : b;
	c = UNS_NEW(&s->arena, struct choice);
	if (c)
		*c = (struct choice){ m, unit, a, b };
	s->failed |= !c;
	return c;
}

static void states_add(struct search *s, struct states *list, struct state x)
{
	size_t i;

	for (i = 0; i < list->n; i++)
		if (list->v[i].next == x.next && list->v[i].left == x.left) {
			if (x.ways == MANY || list->v[i].left_sum != x.left_sum || list->v[i].units_sum != x.units_sum)
				list->v[i].ways = MANY;
			return;
		}
	if (!UNS_ARENA_ROOM(&s->arena, list->v, list->n, list->cap)) {
		s->failed = true;
		return;
	}
	list->v[list->n++] = x;
	s->too_many |= ++s->n_states > MAX_STATES || list->n > MAX_LIST;
}

static const struct states *states_of(struct search *s, struct module *m, size_t from);

/* What the module's own parameters and its children come to, itself not wrapped. Children are modules
 * of a real model: the depth of their names bounds the recursion (MAX_DEPTH is checked before). */
static struct states states_below(struct search *s, struct module *m, size_t from)
{
	struct states now = { 0 }, then;
	const struct states *of_child;
	const struct state *a, *b;
	struct module *child;
	size_t i, k;

	states_add(s, &now, (struct state){ .next = from, .left = m->own, .left_sum = m->own_sum, .ways = 1 });
	for (child = m->first; child && !s->failed && !s->too_many; child = child->next) {
		then = (struct states){ 0 };
		for (i = 0; i < now.n; i++) {
			of_child = states_of(s, child, now.v[i].next);
			for (k = 0; of_child && k < of_child->n; k++) {
				a = &now.v[i];
				b = &of_child->v[k];
				states_add(s, &then,
					   (struct state){
						   .next = b->next,
						   .left = a->left + b->left,
						   .left_sum = a->left_sum + b->left_sum,
						   .units_sum = a->units_sum + b->units_sum,
						   .ways = a->ways == MANY || b->ways == MANY ? MANY : 1,
						   .wrapped = choice_new(s, NULL, 0, a->wrapped, b->wrapped),
					   });
			}
		}
		now = then;
	}
	return now;
}

static void states_add_wrapped(struct search *s, struct module *m, size_t from, struct states *out)
{
	uint64_t elems = s->sizes->elems[from];
	/* FSDP gathers the parameters of a wrapped module when the module is called, and a list is not called: it is a
	 * unit at most as a whole (torch.nn.Sequential), never around other units. */
	const bool is_list = !m->own && m->numbered;
	struct states inner;
	struct state x;
	size_t i;

	/* A module with the same parameters as its only child: wrapping either is the same. */
	if ((!m->own && m->n_children == 1) ||
	    (elems != UNS_RANK_UNIT_FROZEN && m->total / s->ranks + (m->total % s->ranks != 0) < elems))
		return;
	inner = states_below(s, m, from + 1);
	for (i = 0; i < inner.n && !s->failed; i++) {
		x = inner.v[i];
		if (!x.left || !uns_rank_unit_fits(x.left, elems, s->ranks) || (x.left < m->total && is_list))
			continue;
		x.units_sum += random_of(x.left_sum, from + 1);
		x.left = x.left_sum = 0;
		x.wrapped = choice_new(s, m, from, x.wrapped, NULL);
		states_add(s, out, x);
	}
}

static const struct states *states_of(struct search *s, struct module *m, size_t from)
{
	struct known *k = m->known;

	while (k && k->from != from)
		k = k->next;
	if (k)
		return &k->states;
	k = UNS_NEW(&s->arena, struct known);
	s->failed |= !k;
	if (s->failed || s->too_many)
		return NULL;
	k->from = from;
	if (m->total / s->ranks + (m->total % s->ranks != 0) < s->least) {
		/* nothing in it is as large as a unit */
		states_add(s, &k->states,
			   (struct state){ .next = from, .left = m->total, .left_sum = m->total_sum, .ways = 1 });
	} else {
		k->states = states_below(s, m, from);
		if (from < s->sizes->n)
			states_add_wrapped(s, m, from, &k->states);
	}
	k->next = m->known;
	m->known = k;
	return &k->states;
}

/* -- one number of ranks, with or without the twins -- */

struct answer {
	unsigned ways;
	struct uns_rank_units units;
};

static void mark_wrapped(const struct choice *c)
{
	if (!c)
		return;
	if (c->module)
		c->module->unit = c->unit;
	mark_wrapped(c->a);
	mark_wrapped(c->b);
}

static const struct module *wrapper_of(const struct module *m)
{
	while (m && m->unit == SIZE_MAX)
		m = m->parent;
	return m;
}

static int units_of_tree(const struct tree *t, size_t n_units, struct uns_arena *arena, struct uns_rank_units *out)
{
	struct uns_rank_unit *v = UNS_NEW_N(arena, struct uns_rank_unit, n_units);
	size_t **param = UNS_NEW_N(arena, size_t *, n_units), i, unit;

	if (!v || !param)
		return -ENOMEM;
	for (i = 0; i < t->n; i++)
		v[wrapper_of(t->of[i])->unit].n++;
	for (i = 0; i < n_units; i++) {
		param[i] = UNS_NEW_N(arena, size_t, v[i].n);
		if (!param[i])
			return -ENOMEM;
		v[i].param = param[i];
		v[i].n = 0;
	}
	for (i = 0; i < t->n; i++) {
		unit = wrapper_of(t->of[i])->unit;
		param[unit][v[unit].n++] = t->param[i];
	}
	out->v = v;
	return 0;
}

static void search_fini(struct search *s)
{
	uns_arena_fini(&s->arena);
}

static int try_ranks(const struct uns_rank_params *params, bool with_twins, const struct uns_rank_unit_sizes *sizes,
		     size_t ranks, struct uns_arena *arena, struct answer *answer, struct uns_err *why)
{
	UNS_CLEANUP(search_fini)
	struct search s = { .sizes = sizes, .ranks = ranks, .least = UINT64_MAX };
	UNS_CLEANUP(tree_fini) struct tree t = { 0 };
	const struct states *all;
	size_t i;

	for (i = 0; i < sizes->n; i++)
		if (sizes->elems[i] == UNS_RANK_UNIT_FROZEN)
			s.least = 0;
		else if (sizes->elems[i] < s.least)
			s.least = sizes->elems[i];
	UNS_TRY_ALLOC(tree_build(&t, params, with_twins), why);
	all = states_of(&s, t.root, 0);
	if (s.too_many)
		return uns_fail(why, -ENOTSUP, "the model's modules can be wrapped in more ways than unshard tries");
	UNS_TRY_ALLOC(all, why);
	for (i = 0; i < all->n; i++) {
		if (all->v[i].next != sizes->n || all->v[i].left)
			continue;
		answer->ways += all->v[i].ways;
		if (answer->ways > 1)
			continue;
		mark_wrapped(all->v[i].wrapped);
		answer->units.shard_ranks = ranks;
		if (units_of_tree(&t, sizes->n, arena, &answer->units) < 0)
			return uns_oom(why);
	}
	return s.failed ? uns_oom(why) : 0;
}

static int check_names(const struct uns_rank_params *params, struct uns_err *why)
{
	enum { MAX_DEPTH = 64 };
	const char *p;
	size_t i, depth;

	for (i = 0; i < params->n; i++) {
		for (p = params->v[i].name, depth = 0; (p = strchr(p, '.')); p++)
			depth++;
		if (depth > MAX_DEPTH)
			return uns_fail(why, -ENOTSUP, "%s is nested in more than %d modules", params->v[i].name,
					MAX_DEPTH);
	}
	return 0;
}

int uns_rank_units_find(const struct uns_rank_params *params, const struct uns_rank_unit_sizes *sizes,
			struct uns_arena *arena, struct uns_rank_units *out, struct uns_err *why)
{
	struct answer answer = { 0 };
	size_t ranks;
	int twins;

	UNS_TRY(check_names(params, why));
	for (ranks = sizes->n_ranks; ranks > 0; ranks--)
		for (twins = 0; twins < (params->n_twins ? 2 : 1); twins++)
			if (sizes->n_ranks % ranks == 0)
				UNS_TRY(try_ranks(params, twins, sizes, ranks, arena, &answer, why));
	*out = answer.units;
	if (answer.ways == 1)
		return 0;
	return uns_fail(why, -ENOTSUP,
			answer.ways ? "several ways to wrap the model's modules give units of these sizes"
				    : "no way to wrap the model's modules gives units of these sizes");
}
