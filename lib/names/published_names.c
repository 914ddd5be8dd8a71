/* Applies the table's rules to names and shapes, and chooses among a family's candidates by the names of the base
 * model. */
#include "names/published_names.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "base/text.h"
#include "names/config_families.h"

/* -- families -- */

static const struct uns_name_family *family_of(const char *model_type)
{
	return uns_family_row(uns_published_table, uns_n_published_table, sizeof(*uns_published_table), model_type);
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

const char *const *uns_published_transposed(const char *model_type)
{
	const struct uns_name_family *family = family_of(model_type);

	return family && *family->transposed ? family->transposed : NULL;
}

bool uns_published_may_be_transposed(const char *const *transposed, const char *name)
{
	while (transposed && *transposed && !uns_name_ends(name, *transposed))
		transposed++;
	return transposed && *transposed;
}

/* -- application: one candidate's names for all tensors -- */

int uns_tail_apply(const struct uns_name_rule *rule, const char *name, const struct uns_named_tensor *t,
		   struct uns_name_list *out, struct uns_err *err)
{
	const struct uns_shape *shape = uns_named_shape(t);
	const uint32_t rows = rule->unstack;
	const bool is_cut = rule->unstack || rule->of > 1;
	const uint64_t n = rule->unstack && shape->n ? shape->dim[0] : 1;
	const int kept = (int)(strlen(name) - strlen(rule->from));
	struct uns_named_tensor one = *t;
	struct uns_slice *slice;
	char end[UNS_TEMPLATE_NAME];
	uint64_t e;

	if (is_cut && (shape->n <= rows || shape->dim[rows] % rule->of != 0 || (rule->unstack && n > UNS_MAX_EXPERTS)))
		return 0;
	for (e = 0; e < n; e++) {
		one.name = uns_arena_printf(out->arena, "%.*s%s", kept, name,
					    uns_template_fill(end, "", rule->to, -1, (int64_t)e));
		if (is_cut) {
			one.slice = slice = UNS_NEW(out->arena, struct uns_slice);
			UNS_TRY_ALLOC(slice, err);
			slice->shape.n = shape->n - rows;
			memcpy(slice->shape.dim, shape->dim + rows, slice->shape.n * sizeof(*shape->dim));
			slice->shape.dim[0] /= rule->of;
			slice->first_elem = (e * rule->of + rule->part) * uns_shape_elems(&slice->shape);
			/* transformers cuts a stack into views of one storage, which must be in one file */
			slice->joined = e > 0;
		}
		UNS_TRY(uns_name_list_add(out, &one, err));
	}
	return 1;
}

struct candidate {
	const struct uns_name_rule *head, *tail;
};

struct published {
	struct uns_name_list list;
	size_t n_changed;             /* tensors under another name, or cut */
	const struct uns_tensor *odd; /* a tensor without the shape that a rule needs; NULL = none */
	const char *twice;            /* a name that two tensors would have; NULL = none */
};

static void published_fini(struct published *p)
{
	uns_name_list_fini(&p->list);
}

static int tensor_publish(struct published *p, const struct candidate *by, const struct uns_named_tensor *t,
			  struct uns_err *err)
{
	const struct uns_name_rule *head = by->head, *rule;
	struct uns_named_tensor renamed = *t;
	const size_t n_before = p->list.n;
	bool changed;
	int cut;

	while (head->from && !uns_head_fits(head->from, t->name))
		head++;
	changed = head->from;
	if (changed)
		renamed.name = uns_arena_printf(p->list.arena, "%s%s", head->to, t->name + strlen(head->from));
	UNS_TRY_ALLOC(renamed.name, err);
	for (rule = by->tail; rule->from; rule++) {
		if (!uns_name_ends(renamed.name, rule->from))
			continue;
		UNS_TRY(cut = uns_tail_apply(rule, renamed.name, t, &p->list, err));
		if (!cut) {
			p->odd = t->tensor;
			return 0;
		}
		changed = true;
	}
	p->n_changed += changed;
	return p->list.n == n_before ? uns_name_list_add(&p->list, &renamed, err) : 0;
}

static int tensors_publish(struct published *p, const struct candidate *by, const struct uns_named_tensor *v, size_t n,
			   struct uns_err *err)
{
	size_t i;

	for (i = 0; i < n && !p->odd; i++)
		UNS_TRY(tensor_publish(p, by, &v[i], err));
	return p->odd ? 0 : uns_name_list_check(&p->list, &p->twice, err);
}

static int by_name(const void *a, const void *b)
{
	return uns_str_natural(((const struct uns_named_tensor *)a)->name, ((const struct uns_named_tensor *)b)->name);
}

/* -- which candidate: the names of the base model decide -- */

struct choice {
	const struct uns_config_info *config;
	const struct uns_base_names *base;
	struct candidate by;
	bool by_base;          /* the base model has all names of the candidate */
	const char *not_there; /* without by_base: a name of the table's row that the base model lacks */
};

/* A name that the base model lacks, or NULL. A tied head is in only one of two models whose configs tie it. */
static const char *name_lacking(const struct choice *c, const struct uns_map *in_base, const struct uns_name_list *list)
{
	size_t i;

	for (i = 0; i < list->n; i++)
		if (!uns_map_get(in_base, list->v[i].name) &&
		    !(c->config->ties_embeddings && uns_str_ends(list->v[i].name, "lm_head.weight")))
			return list->v[i].name;
	return NULL;
}

/* Chooses the candidate whose names the base model has, else the first, which is the table's row. */
static int candidate_choose(struct choice *c, const struct uns_naming *rules, const struct uns_named_tensor *v,
			    size_t n, struct uns_arena *arena, struct uns_err *err)
{
	static const struct uns_name_rule none[] = { { 0 } };
	const struct candidate candidate[] = {
		{ rules->head, rules->tail }, { rules->new_head, rules->tail }, { none, rules->tail },
		{ rules->head, none },        { rules->new_head, none },        { none, none },
	};
	UNS_CLEANUP(uns_map_fini) struct uns_map in_base = UNS_MAP_INIT;
	const char *lacking;
	size_t i;

	c->by = candidate[0];
	for (i = 0; i < c->base->n; i++)
		UNS_TRY_ALLOC(uns_map_put(&in_base, c->base->name[i], (void *)c->base->name[i], NULL), err);
	for (i = 0; c->base->n && i < sizeof(candidate) / sizeof(candidate[0]) && !c->by_base; i++) {
		UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
		UNS_CLEANUP(published_fini) struct published p = { .list.arena = &scratch };

		UNS_TRY(tensors_publish(&p, &candidate[i], v, n, err));
		if (p.odd || p.twice)
			continue;
		lacking = name_lacking(c, &in_base, &p.list);
		c->by_base = !lacking;
		if (c->by_base)
			c->by = candidate[i];
		else if (!c->not_there && !(c->not_there = uns_arena_str(arena, lacking)))
			return uns_oom(err);
	}
	return 0;
}

/* -- notes -- */

/* Tensors that only the base model has: extra layers of a model are not trained with it. */
static int note_extra(const struct choice *c, const struct uns_name_list *list, struct uns_vtree *out,
		      struct uns_err *err)
{
	enum { SHOWN = 4 };
	UNS_CLEANUP(uns_map_fini) struct uns_map have = UNS_MAP_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text names = UNS_TEXT_INIT;
	size_t i, n = 0;

	for (i = 0; i < list->n; i++)
		UNS_TRY_ALLOC(uns_map_put(&have, list->v[i].name, (void *)list->v[i].name, NULL), err);
	for (i = 0; i < c->base->n; i++)
		if (!uns_map_get(&have, c->base->name[i]) && !uns_str_ends(c->base->name[i], "lm_head.weight") &&
		    n++ < SHOWN)
			uns_text_printf(&names, "%s%s", n > 1 ? ", " : "", c->base->name[i]);
	if (n > SHOWN)
		uns_text_printf(&names, " and %zu more", n - SHOWN);
	if (names.failed)
		return uns_oom(err);
	return n ? uns_vtree_note(out, err, "the base model in %s has tensors that these weights do not have: %s",
				  c->base->where, names.p)
		 : 0;
}

static int note_choice(const struct choice *c, const struct published *p, struct uns_vtree *out, struct uns_err *err)
{
	const char *type = c->config->model_type;

	if (c->by_base) {
		UNS_TRY(uns_vtree_note(out, err, "the tensors have the names of the base model in %s (model type %s)",
				       c->base->where, type));
		return note_extra(c, &p->list, out, err);
	}
	if (c->not_there)
		UNS_TRY(uns_vtree_note(out, err,
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

static int note_kept(const struct choice *c, const struct published *p, struct uns_vtree *out, struct uns_err *err)
{
	char shape[128];
	const char *why =
		p->twice ? uns_arena_printf(&out->arena, "two tensors would be called %s", p->twice)
			 : uns_arena_printf(&out->arena, "%s has shape %s, which cannot be split into experts",
					    p->odd->name, uns_shape_text(&p->odd->shape, shape, sizeof(shape)));

	return why ? uns_vtree_note(
			     out, err,
			     "the tensors have the saved names, not those that %s publishes for model type %s: %s",
			     uns_published_source, c->config->model_type, why)
		   : uns_oom(err);
}

int uns_published_apply(const struct uns_config_info *config, const struct uns_base_names *base,
			struct uns_named_tensor **v, size_t *n, struct uns_vtree *out, struct uns_err *err)
{
	static const struct uns_base_names no_base = { 0 };
	UNS_CLEANUP(published_fini) struct published p = { .list.arena = &out->arena };
	struct choice c = { .config = config, .base = base ? base : &no_base };
	struct uns_naming rules;

	if (!uns_published_rules(config, &rules))
		return 0;
	UNS_TRY(candidate_choose(&c, &rules, *v, *n, &out->arena, err));
	/* transformers writes converted tensors in this order, and the others in the order of the model */
	qsort(*v, *n, sizeof(**v), by_name);
	UNS_TRY(tensors_publish(&p, &c.by, *v, *n, err));
	if (p.odd || p.twice)
		return note_kept(&c, &p, out, err);
	UNS_TRY(note_choice(&c, &p, out, err));
	uns_name_list_take(&p.list, v, n);
	return 0;
}
