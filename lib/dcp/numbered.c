/* Compares numbered states with the weights by shape alone, which is all that both have. One parameter fits if
 *
 *   - one of its states has the shape of a weight (exp_avg, momentum_buffer), or
 *   - two neighbours are a weight's rows and columns (Adafactor: [7, 5] -> [7] and [5], or [7, 1] and [1, 5]), or
 *   - all of its states are scalars (step). */
#include "dcp/numbered.h"

#include <string.h>

#include "base/cleanup.h"

enum { SHAPE_TEXT = 512 };

struct judge {
	const struct uns_catalog *cat;
	struct uns_arena scratch;
	struct uns_map roots;  /* of numbered optimizers */
	struct uns_map shapes; /* "[7, 5]" of a weight, "[7] [5]" of its rows and columns */
	struct uns_map params; /* "ROOT NUMBER" -> struct param, in the order of the catalog */
};

struct param {
	const struct uns_tensor *last; /* the state before */
	const struct uns_tensor *odd;  /* the first that is no scalar */
	bool fits;
};

static void numbered_fini(struct judge *j)
{
	uns_map_fini(&j->roots);
	uns_map_fini(&j->shapes);
	uns_map_fini(&j->params);
	uns_arena_fini(&j->scratch);
}

static const char *shape_text(struct judge *j, const struct uns_shape *a, const struct uns_shape *b)
{
	char first[SHAPE_TEXT], second[SHAPE_TEXT];

	uns_shape_text(a, first, sizeof(first));
	if (!b)
		return uns_arena_str(&j->scratch, first);
	return uns_arena_printf(&j->scratch, "%s %s", first, uns_shape_text(b, second, sizeof(second)));
}

static bool shapes_put(struct judge *j, const struct uns_shape *a, const struct uns_shape *b)
{
	return uns_map_put(&j->shapes, shape_text(j, a, b), j, NULL);
}

/* The shape without dimension d. */
static struct uns_shape shape_without(const struct uns_shape *shape, uint32_t d)
{
	struct uns_shape out = { .n = shape->n - 1 };

	memcpy(out.dim, shape->dim, d * sizeof(*out.dim));
	memcpy(out.dim + d, shape->dim + d + 1, (out.n - d) * sizeof(*out.dim));
	return out;
}

/* Rows and columns, without the dimension that was averaged over, and with it as 1. */
static bool put_factors(struct judge *j, const struct uns_shape *shape)
{
	struct uns_shape rows = shape_without(shape, shape->n - 1), columns = shape_without(shape, shape->n - 2);

	if (!shapes_put(j, &rows, &columns))
		return false;
	rows = columns = *shape;
	rows.dim[shape->n - 1] = 1;
	columns.dim[shape->n - 2] = 1;
	return shapes_put(j, &rows, &columns);
}

static int find_shapes(struct judge *j, struct uns_err *err)
{
	const struct uns_tensor *t = j->cat->tensors, *end = t + j->cat->n_tensors;

	for (; t < end; t++)
		if (uns_role_is_model(t->role) &&
		    (!shapes_put(j, &t->shape, NULL) || (t->shape.n > 1 && !put_factors(j, &t->shape))))
			return uns_oom(err);
	return 0;
}

static int param_add_state(struct judge *j, const struct uns_tensor *t, struct uns_err *err)
{
	const char *key = uns_arena_printf(&j->scratch, "%s %s", t->root, t->name);
	const char *own = shape_text(j, &t->shape, NULL);
	struct param *p = uns_map_get(&j->params, key);

	if (!p) {
		UNS_TRY_ALLOC(p = UNS_NEW(&j->scratch, struct param), err);
		UNS_TRY_ALLOC(uns_map_put(&j->params, key, p, NULL), err);
	}
	p->fits |= uns_map_get(&j->shapes, own) ||
		   (p->last && uns_map_get(&j->shapes, shape_text(j, &p->last->shape, &t->shape)));
	p->last = t;
	if (t->shape.n && !p->odd)
		p->odd = t;
	return uns_arena_check(&j->scratch, err);
}

static int report_first(struct judge *j, struct uns_catalog *cat, const char *where, struct uns_err *err)
{
	const struct uns_tensor *first = NULL;
	char shape[SHAPE_TEXT];
	uint64_t n = 0;
	size_t at = 0;
	const char *key;
	void *value;

	while (uns_map_next(&j->params, &at, &key, &value)) {
		const struct param *p = value;

		if (p->fits || !p->odd)
			continue;
		first = first ? first : p->odd;
		n++;
	}
	if (!first)
		return 0;
	uns_shape_text(&first->shape, shape, sizeof(shape));
	return UNS_ADD_FINDING(cat, err, NUMBERED_STATE_UNLIKE, .scope = UNS_SCOPE_OPTIMIZER, .file = where,
			       .tensor = first->key, .found = uns_str(shape), .arg = { { "more", uns_more(n - 1) } });
}

int uns_dcp_numbered_judge(struct uns_catalog *cat, const char *where, struct uns_err *err)
{
	UNS_CLEANUP(numbered_fini) struct judge j = { .cat = cat };
	struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	size_t i;

	for (i = 0; i < cat->n_groups; i++)
		if (cat->groups[i].numbered)
			UNS_TRY_ALLOC(uns_map_put(&j.roots, cat->groups[i].root, &j, NULL), err);
	if (!j.roots.n)
		return 0;
	UNS_TRY(find_shapes(&j, err));
	for (; t < end; t++) {
		if (!uns_role_is_optimizer(t->role) || !uns_map_get(&j.roots, t->root))
			continue;
		if (t->role == UNS_ROLE_MASTER) /* of a weight that no file names */
			t->role = UNS_ROLE_OPTIM_OTHER;
		UNS_TRY(param_add_state(&j, t, err));
	}
	return j.shapes.n ? report_first(&j, cat, where, err) : 0;
}
