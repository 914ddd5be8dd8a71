/* zero/engine_state.c: what a training script saved through DeepSpeed's engine, tensors inside it
 * included, goes into the dict of a new model file; what cannot be written is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "model/client_state.h"
#include "zero/engine_state.h"

static const struct uns_value two = { .kind = UNS_VALUE_INT, .i = 2 };
static const struct uns_value no_args = { .kind = UNS_VALUE_TUPLE };
static const struct uns_value tensor = { .kind = UNS_VALUE_OBJECT,
					 .cls = "torch._utils._rebuild_tensor_v2",
					 .object.args = &no_args };
static const struct uns_value key = { .kind = UNS_VALUE_STR, .bytes = "k", .n = 1 };
static const struct uns_value object = { .kind = UNS_VALUE_OBJECT, .cls = "m.C", .object.args = &no_args };

static struct uns_pair held[] = { { &key, &tensor } };
static const struct uns_value dict = { .kind = UNS_VALUE_DICT, .pair = held, .n = 1 };
static const struct uns_value *items[] = { &two, &dict, &tensor };
static const struct uns_value list = { .kind = UNS_VALUE_LIST, .item = items, .n = 3 };

static void add_value(struct uns_catalog *cat, const char *root, const char *name, const struct uns_value *v)
{
	const struct uns_named_value value = { .name = name, .root = root, .value = v };

	assert_int_equal(uns_catalog_add_value(cat, &value, NULL), 0);
}

static void add_tensor(struct uns_catalog *cat, const char *root, const char *name, uint64_t n)
{
	const struct uns_tensor t = { .name = name,
				      .key = name,
				      .root = root,
				      .role = UNS_ROLE_OTHER,
				      .dtype = UNS_F32,
				      .group = -1,
				      .position = -1,
				      .alias_of = UNS_NONE,
				      .shape = { .n = 1, .dim = { n } } };

	assert_int_equal(uns_catalog_add_tensor(cat, &t, NULL, NULL), 0);
}

static uint64_t leaf_of(const struct uns_engine_state *state, const struct uns_value *v)
{
	assert_non_null(v);
	assert_int_equal(v->kind, UNS_VALUE_TENSOR);
	assert_true(v->tensor < state->leaves.n);
	return state->leaves.v[v->tensor].shape.dim[0];
}

static void client_state(void **unused)
{
	struct uns_engine_state state;
	struct uns_vtree out = { 0 };
	struct uns_catalog *cat;
	struct uns_err err = { 0 };
	const struct uns_value *v;

	(void)unused;
	assert_int_equal(uns_catalog_new("d", &cat, &err), 0);
	add_value(cat, "model_states", "dp_world_size", &two);
	add_value(cat, UNS_CLIENT_ROOT, "whole", &list);
	add_value(cat, UNS_CLIENT_ROOT, "gap", &list);
	add_value(cat, UNS_CLIENT_ROOT, "object", &object);
	add_tensor(cat, UNS_CLIENT_ROOT, "alone", 30);
	add_tensor(cat, UNS_CLIENT_INSIDE "whole", "0", 40);
	add_tensor(cat, UNS_CLIENT_INSIDE "whole", "1", 50);
	add_tensor(cat, UNS_CLIENT_INSIDE "gap", "1", 60); /* 0 could not be read */
	uns_engine_summary(cat);
	assert_int_equal(uns_engine_model_state(cat, 7, NULL, 0, &out, &state, &err), 0);

	v = uns_value_get(state.dict, "whole");
	assert_ptr_equal(uns_value_at(v, 0), &two);
	assert_int_equal(leaf_of(&state, uns_value_get(uns_value_at(v, 1), "k")), 40);
	assert_int_equal(leaf_of(&state, uns_value_at(v, 2)), 50);
	assert_int_equal(leaf_of(&state, uns_value_get(state.dict, "alone")), 30);
	assert_int_equal(state.leaves.n, 3);
	assert_null(uns_value_get(state.dict, "gap"));
	assert_null(uns_value_get(state.dict, "object"));
	assert_int_equal(out.n_notes, 2);
	assert_non_null(strstr(out.note[0], "gap is left out of client_state"));
	assert_non_null(strstr(out.note[1], "m.C"));
	uns_engine_state_fini(&state);
	uns_vtree_fini(&out);
	uns_catalog_free(cat);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(client_state) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
