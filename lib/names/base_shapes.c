/* Compares each tensor's shape with the base model's. */
#include "names/base_shapes.h"

#include "base/cleanup.h"
#include "base/map.h"
#include "base/text.h"
#include "model/block_tensor.h"

enum order { ALIKE, TRANSPOSED, SQUARE, UNREAD, ANOTHER, N_ORDERS };

struct comparing {
	const char *const *transposed; /* of the family */
	const struct uns_base_names *base;
	struct uns_map in_base; /* name -> index into base->name */
	size_t n[N_ORDERS];
	const struct uns_named_tensor *first[N_ORDERS];
	const struct uns_shape *another; /* the base model's, of first[ANOTHER] */
};

static void comparing_fini(struct comparing *c)
{
	uns_map_fini(&c->in_base);
}

/* NULL = the base model does not have the tensor. */
static const struct uns_shape *const *base_shape(const struct comparing *c, const struct uns_named_tensor *t)
{
	const uint32_t i = uns_map_index(&c->in_base, t->name);

	return i == UNS_MAP_NO_INDEX ? NULL : &c->base->shape[i];
}

static enum order order_of(const struct uns_shape *own, const struct uns_shape *in_base)
{
	struct uns_shape turned = *own;

	if (!in_base)
		return UNREAD;
	if (own->n != 3 || !uns_shape_elems(own) || own->dim[0] > UNS_MAX_EXPERTS)
		return ANOTHER;
	turned.dim[1] = own->dim[2];
	turned.dim[2] = own->dim[1];
	if (uns_shape_equal(&turned, own) && uns_shape_equal(own, in_base))
		return SQUARE;
	if (uns_shape_equal(own, in_base))
		return ALIKE;
	return uns_shape_equal(&turned, in_base) ? TRANSPOSED : ANOTHER;
}

/* Sorts the tensors by how the base model has them. */
static int tensors_compare(struct comparing *c, const struct uns_named_tensor *v, size_t n, struct uns_err *err)
{
	const struct uns_shape *const *shape;
	enum order order;
	size_t i;

	for (i = 0; i < c->base->n; i++)
		if (uns_published_may_be_transposed(c->transposed, c->base->name[i]) &&
		    !uns_map_put_index(&c->in_base, c->base->name[i], (uint32_t)i))
			return uns_oom(err);
	for (i = 0; i < n; i++) {
		shape = base_shape(c, &v[i]);
		if (!shape)
			continue;
		order = order_of(uns_named_shape(&v[i]), *shape);
		if (c->n[order]++)
			continue;
		c->first[order] = &v[i];
		if (order == ANOTHER)
			c->another = *shape;
	}
	return 0;
}

static int experts_transpose(const struct comparing *c, const struct uns_catalog *cat, struct uns_named_tensor *v,
			     size_t n, struct uns_vtree *out, struct uns_err *err)
{
	const size_t n_transposed = c->n[TRANSPOSED];
	const struct uns_shape *const *shape;
	size_t i;

	for (i = 0; i < n; i++) {
		shape = base_shape(c, &v[i]);
		if (shape && order_of(uns_named_shape(&v[i]), *shape) == TRANSPOSED)
			UNS_TRY(uns_block_tensor_transpose(cat, &v[i], &out->arena, err));
	}
	return uns_vtree_note(out, err,
			      "%zu %s transposed, as in the base model in %s (%s is one); -o "
			      "names=memory shows the saved order",
			      n_transposed, uns_plural(n_transposed, "tensor of experts is", "tensors of experts are"),
			      c->base->where, c->first[TRANSPOSED]->name);
}

int uns_base_shapes_apply(const struct uns_catalog *cat, const struct uns_config_info *config,
			  const struct uns_base_names *base, struct uns_named_tensor *v, size_t n,
			  struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(comparing_fini)
	struct comparing c = { .transposed = uns_published_transposed(config->model_type), .base = base };
	char own[128], in_base[128];

	if (!base || !base->n || !c.transposed)
		return 0;
	UNS_TRY(tensors_compare(&c, v, n, err));
	if (c.n[ANOTHER])
		return uns_vtree_note(
			out, err,
			"%s has the shape %s in the base model in %s, and %s in this checkpoint: the base model's "
			"shapes are not used",
			c.first[ANOTHER]->name, uns_shape_text(c.another, in_base, sizeof(in_base)), base->where,
			uns_shape_text(uns_named_shape(c.first[ANOTHER]), own, sizeof(own)));
	if (c.n[UNREAD])
		return uns_vtree_note(
			out, err,
			"the base model in %s does not have the file with %s, so that unshard does not know whether "
			"it is transposed there: the experts are shown as they were saved",
			base->where, c.first[UNREAD]->name);
	if (!c.n[TRANSPOSED])
		return 0;
	if (!c.n[SQUARE])
		return experts_transpose(&c, cat, v, n, out, err);
	uns_shape_text(uns_named_shape(c.first[SQUARE]), own, sizeof(own));
	return UNS_FAIL_WITH(err, EXPERTS_ORDER_UNKNOWN, .scope = UNS_SCOPE_WEIGHTS, .checkpoint = cat->path,
			     .tensor = c.first[SQUARE]->name,
			     .arg = { { "other_tensor", uns_str(c.first[TRANSPOSED]->name) },
				      { "shape", uns_str(own) },
				      { "where", uns_str(base->where) } });
}
