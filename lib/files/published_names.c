/* Applies the table's rules to names and shapes, and chooses among a family's candidates by the names of the base
 * model. */
#include "files/published_names.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "base/text.h"
#include "files/published_table.h"

/* -- families -- */

static int compare_type(const void *key, const void *family)
{
	return strcmp(key, ((const struct uns_name_family *)family)->model_type);
}

static const struct uns_name_family *family_of(const char *model_type)
{
	if (!model_type)
		return NULL;
	return bsearch(model_type, uns_published_table, uns_n_published_table,
		       sizeof(*uns_published_table), compare_type);
}

bool uns_published_knows(const char *model_type)
{
	return family_of(model_type) != NULL;
}

bool uns_published_rules(const struct uns_config_info *config, struct uns_naming *out)
{
	const struct uns_name_family *family = family_of(config->model_type);
	const struct uns_name_family *text = family_of(config->text_type);

	if (!family)
		return false;
	/* A model of several modes may contain a text model of a family with experts. */
	*out = (struct uns_naming){ family->head, family->new_head,
				    !family->tail->from && text ? text->tail : family->tail };
	return true;
}

/* -- rules -- */

bool uns_head_fits(const char *head, const char *name)
{
	return uns_str_ends(head, ".") ? uns_str_starts(name, head) : strcmp(name, head) == 0;
}

static const struct uns_name_rule *head_for(const struct uns_name_rule *rule, const char *name)
{
	for (; rule->from; rule++)
		if (uns_head_fits(rule->from, name))
			return rule;
	return NULL;
}

/* Does `name` end in these components? */
static bool tail_fits(const char *tail, const char *name)
{
	size_t n = strlen(name), m = strlen(tail);

	return uns_str_ends(name, tail) && (n == m || name[n - m - 1] == '.');
}

const char *const *uns_published_transposed(const char *model_type)
{
	const struct uns_name_family *family = family_of(model_type);

	return family && *family->transposed ? family->transposed : NULL;
}

bool uns_published_may_be_transposed(const char *const *transposed, const char *name)
{
	while (transposed && *transposed && !tail_fits(*transposed, name))
		transposed++;
	return transposed && *transposed;
}

static bool can_be_cut(const struct uns_name_rule *rule, const struct uns_shape *shape)
{
	uint32_t rows = rule->unstack;

	if (!rule->unstack && rule->of == 1)
		return true;
	return shape->n > rows && shape->dim[rows] % rule->of == 0 &&
	       (!rule->unstack || shape->dim[0] <= UNS_MAX_EXPERTS);
}

/* -- application: one candidate's names for all tensors -- */

struct candidate {
	const struct uns_name_rule *head, *tail;
};

struct published {
	struct uns_arena *arena; /* of names and slices */
	struct uns_named_tensor *v;
	size_t n, cap;
	size_t n_changed;             /* tensors under another name, or cut */
	const struct uns_tensor *odd; /* a tensor without the shape that a rule needs; NULL = none */
	const char *twice;            /* a name that two tensors would have; NULL = none */
};

static void published_fini(struct published *p)
{
	free(p->v);
}

static int add(struct published *p, const struct uns_named_tensor *t, struct uns_err *err)
{
	if (!t->name || !UNS_HEAP_ROOM(p->v, p->n, p->cap))
		return uns_oom(err);
	p->v[p->n++] = *t;
	return 0;
}

static struct uns_slice *slice_of(struct published *p, const struct uns_name_rule *rule,
				  const struct uns_shape *shape, uint64_t expert)
{
	struct uns_slice *s = UNS_NEW(p->arena, struct uns_slice);

	if (!s)
		return NULL;
	s->shape = *shape;
	if (rule->unstack) {
		s->shape.n--;
		memmove(s->shape.dim, shape->dim + 1, s->shape.n * sizeof(*s->shape.dim));
	}
	if (rule->of > 1)
		s->shape.dim[0] /= rule->of;
	s->joined = expert > 0; /* transformers cuts a stack into views of one storage, which must be in one file */
	s->first_elem = (expert * rule->of + rule->part) * uns_shape_elems(&s->shape);
	return s;
}

/* Applies one rule to a tensor: adds one tensor, or one per expert. */
static int add_tail(struct published *p, const struct uns_name_rule *rule, const char *name,
		    const struct uns_named_tensor *t, struct uns_err *err)
{
	const struct uns_shape *shape = uns_named_shape(t);
	uint64_t e, n = rule->unstack ? shape->dim[0] : 1;
	int kept = (int)(strlen(name) - strlen(rule->from)), before = (int)strcspn(rule->to, "#");
	struct uns_named_tensor cut = *t;

	for (e = 0; e < n; e++) {
		if (rule->unstack)
			cut.name = uns_arena_printf(p->arena, "%.*s%.*s%llu%s", kept, name, before, rule->to,
						    (unsigned long long)e, rule->to + before + 1);
		else
			cut.name = uns_arena_printf(p->arena, "%.*s%s", kept, name, rule->to);
		if (rule->unstack || rule->of > 1) {
			cut.slice = slice_of(p, rule, shape, e);
			if (!cut.slice)
				return uns_oom(err);
		}
		UNS_TRY(add(p, &cut, err));
	}
	return 0;
}

static int add_tensor(struct published *p, const struct candidate *by, const struct uns_named_tensor *t,
		      struct uns_err *err)
{
	const struct uns_name_rule *head = head_for(by->head, t->name), *rule = by->tail;
	struct uns_named_tensor renamed = *t;
	size_t n_before = p->n;

	if (head)
		renamed.name = uns_arena_printf(p->arena, "%s%s", head->to, t->name + strlen(head->from));
	if (!renamed.name)
		return uns_oom(err);
	for (; rule->from; rule++) {
		if (!tail_fits(rule->from, renamed.name))
			continue;
		if (!can_be_cut(rule, uns_named_shape(t))) {
			p->odd = t->tensor;
			return 0;
		}
		UNS_TRY(add_tail(p, rule, renamed.name, t, err));
		p->n_changed++;
	}
	p->n_changed += head != NULL;
	return p->n == n_before ? add(p, &renamed, err) : 0;
}

static int find_twice(struct published *p, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map seen = UNS_MAP_INIT;
	void *old = NULL;
	size_t i;

	for (i = 0; i < p->n && !p->twice; i++) {
		if (!uns_map_put(&seen, p->v[i].name, (void *)p->v[i].name, &old))
			return uns_oom(err);
		p->twice = old;
	}
	return 0;
}

static int publish(struct published *p, const struct candidate *by, const struct uns_named_tensor *v,
		   size_t n, struct uns_err *err)
{
	size_t i;

	for (i = 0; i < n && !p->odd; i++)
		UNS_TRY(add_tensor(p, by, &v[i], err));
	return p->odd ? 0 : find_twice(p, err);
}

static int by_name(const void *a, const void *b)
{
	return uns_str_natural(((const struct uns_named_tensor *)a)->name,
			       ((const struct uns_named_tensor *)b)->name);
}

/* -- which candidate: the names of the base model decide -- */

struct choice {
	const struct uns_config_info *config;
	const struct uns_base_names *base;
	struct uns_map in_base;
	struct candidate by;
	bool by_base;          /* the base model has all names of the candidate */
	const char *not_there; /* without by_base: a name of the table's row that the base model lacks */
};

static void choice_fini(struct choice *c)
{
	uns_map_fini(&c->in_base);
}

/* A name that the base model lacks, or NULL. A tied head is in only one of two models whose configs tie it. */
static const char *lacking(const struct choice *c, const struct published *p)
{
	size_t i;

	for (i = 0; i < p->n; i++)
		if (!uns_map_get(&c->in_base, p->v[i].name) &&
		    !(c->config->ties_embeddings && uns_str_ends(p->v[i].name, "lm_head.weight")))
			return p->v[i].name;
	return NULL;
}

static int try_candidate(struct choice *c, const struct candidate *by, const struct uns_named_tensor *v,
			 size_t n, struct uns_arena *arena, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	UNS_CLEANUP(published_fini) struct published p = { .arena = &scratch };
	const char *missing;

	UNS_TRY(publish(&p, by, v, n, err));
	if (p.odd || p.twice)
		return 0;
	missing = lacking(c, &p);
	if (!missing) {
		c->by = *by;
		c->by_base = true;
	} else if (!c->not_there && !(c->not_there = uns_arena_str(arena, missing))) {
		return uns_oom(err);
	}
	return 0;
}

static int choose(struct choice *c, const struct uns_naming *rules,
		  const struct uns_named_tensor *v, size_t n, struct uns_arena *arena,
		  struct uns_err *err)
{
	static const struct uns_name_rule none[] = { { 0 } };
	const struct candidate candidate[] = {
		{ rules->head, rules->tail }, { rules->new_head, rules->tail }, { none, rules->tail },
		{ rules->head, none },	      { rules->new_head, none },	{ none, none },
	};
	size_t i;

	c->by = candidate[0];
	if (!c->base->n)
		return 0;
	for (i = 0; i < c->base->n; i++)
		if (!uns_map_put(&c->in_base, c->base->name[i], (void *)c->base->name[i], NULL))
			return uns_oom(err);
	for (i = 0; i < sizeof(candidate) / sizeof(candidate[0]) && !c->by_base; i++)
		UNS_TRY(try_candidate(c, &candidate[i], v, n, arena, err));
	return 0;
}

/* -- notes -- */

/* Tensors that only the base model has: extra layers of a model are not trained with it. */
static int note_extra(const struct choice *c, const struct published *p, struct uns_vtree *out,
		      struct uns_err *err)
{
	enum { SHOWN = 4 };
	UNS_CLEANUP(uns_map_fini) struct uns_map have = UNS_MAP_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text names = UNS_TEXT_INIT;
	size_t i, n = 0;

	for (i = 0; i < p->n; i++)
		if (!uns_map_put(&have, p->v[i].name, (void *)p->v[i].name, NULL))
			return uns_oom(err);
	for (i = 0; i < c->base->n; i++) {
		const char *name = c->base->name[i];

		if (uns_map_get(&have, name) || uns_str_ends(name, "lm_head.weight"))
			continue;
		if (n++ < SHOWN)
			uns_text_printf(&names, "%s%s", n > 1 ? ", " : "", name);
	}
	if (!n)
		return 0;
	if (n > SHOWN)
		uns_text_printf(&names, " and %zu more", n - SHOWN);
	if (names.failed)
		return uns_oom(err);
	return uns_vtree_note(out, err, "the base model in %s has tensors that these weights do "
					"not have: %s",
			      c->base->where, names.p);
}

static int note_choice(const struct choice *c, const struct published *p, struct uns_vtree *out,
		       struct uns_err *err)
{
	const char *type = c->config->model_type;

	if (c->by_base) {
		UNS_TRY(uns_vtree_note(out, err,
				       "the tensors have the names of the base model in %s (model type %s)",
				       c->base->where, type));
		return note_extra(c, p, out, err);
	}
	if (c->not_there)
		UNS_TRY(uns_vtree_note(
			out, err,
			"the base model in %s has no tensor %s, under any name known for model "
			"type %s: its names are not used",
			c->base->where, c->not_there, type));
	if (!p->n_changed)
		return 0;
	return uns_vtree_note(out, err,
			      "the tensors have the names that %s publishes for model type %s; -o "
			      "names=memory shows the saved names",
			      uns_published_source, type);
}

static int note_kept(const struct choice *c, const struct published *p, struct uns_vtree *out,
		     struct uns_err *err)
{
	char shape[128];

	if (p->twice)
		return uns_vtree_note(out, err,
				      "the tensors have the saved names, not those that %s "
				      "publishes for model type %s: two tensors would be called "
				      "%s",
				      uns_published_source, c->config->model_type, p->twice);
	return uns_vtree_note(
		out, err,
		"the tensors have the saved names, not those that %s publishes for model type %s: "
		"%s has shape %s, which cannot be split into experts",
		uns_published_source, c->config->model_type, p->odd->name,
		uns_shape_text(&p->odd->shape, shape, sizeof(shape)));
}

int uns_published_apply(const struct uns_config_info *config, const struct uns_base_names *base,
			struct uns_named_tensor **v, size_t *n, struct uns_vtree *out,
			struct uns_err *err)
{
	static const struct uns_base_names no_base = { 0 };
	UNS_CLEANUP(choice_fini) struct choice c = { .config = config, .base = base ? base : &no_base };
	UNS_CLEANUP(published_fini) struct published p = { .arena = &out->arena };
	struct uns_naming rules;

	if (!uns_published_rules(config, &rules))
		return 0;
	UNS_TRY(choose(&c, &rules, *v, *n, &out->arena, err));
	/* transformers writes converted tensors in this order, and the others in the order of the model */
	qsort(*v, *n, sizeof(**v), by_name);
	UNS_TRY(publish(&p, &c.by, *v, *n, err));
	if (p.odd || p.twice)
		return note_kept(&c, &p, out, err);
	UNS_TRY(note_choice(&c, &p, out, err));
	free(*v);
	*v = UNS_TAKE(p.v);
	*n = p.n;
	return 0;
}
