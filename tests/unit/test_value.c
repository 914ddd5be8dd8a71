/* wire/value.c: lookups that answer only when the shape is as asked. wire/value_map.c: copies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "wire/value.h"
#include "wire/value_map.h"

#define STR(text)   { .kind = UNS_VALUE_STR, .bytes = text, .n = sizeof(text) - 1 }
#define INT(number) { .kind = UNS_VALUE_INT, .i = number }

static const struct uns_value a = STR("a"), b = STR("b"), nul = STR("a\0b"), empty = STR("");
static const struct uns_value one = INT(1), two = INT(2), minus = INT(-1);
static const struct uns_value yes = { .kind = UNS_VALUE_BOOL, .b = true };
static const struct uns_value half = { .kind = UNS_VALUE_FLOAT, .f = 0.5 };
static const struct uns_value none = { .kind = UNS_VALUE_NONE };

static struct uns_pair pairs[] = { { &a, &one }, { &b, &two }, { &a, &minus }, { &one, &a } };
static struct uns_pair other_pairs[] = { { &b, &one } };
static const struct uns_value dict = { .kind = UNS_VALUE_DICT, .pair = pairs, .n = 4 };
static const struct uns_value other_dict = { .kind = UNS_VALUE_DICT, .pair = other_pairs, .n = 1 };

static void test_get(void **state)
{
	(void)state;
	assert_ptr_equal(uns_value_get(&dict, "b"), &two);
	assert_ptr_equal(uns_value_get(&dict, "a"), &minus); /* the last of equal keys */
	assert_null(uns_value_get(&dict, ""));
	assert_null(uns_value_get(&dict, "ab"));
	assert_null(uns_value_get(&a, "a"));
	assert_null(uns_value_get(NULL, "a"));
}

static void test_get_number(void **state)
{
	static struct uns_pair numbered[] = { { &one, &a }, { &two, &b }, { &one, &none }, { &a, &one } };
	static const struct uns_value by_number = { .kind = UNS_VALUE_DICT, .pair = numbered, .n = 4 };

	(void)state;
	assert_ptr_equal(uns_value_get_number(&by_number, 2), &b);
	assert_ptr_equal(uns_value_get_number(&by_number, 1), &none); /* the last of equal keys */
	assert_null(uns_value_get_number(&by_number, 0));
	assert_null(uns_value_get_number(&a, 1));
	assert_null(uns_value_get_number(NULL, 1));
}

static void test_at(void **state)
{
	const struct uns_value *values[] = { &one, &two };
	const struct uns_value tuple = { .kind = UNS_VALUE_TUPLE, .item = values, .n = 2 };

	(void)state;
	assert_ptr_equal(uns_value_at(&tuple, 1), &two);
	assert_null(uns_value_at(&tuple, 2));
	assert_null(uns_value_at(&dict, 0));
	assert_null(uns_value_at(&a, 0));
	assert_null(uns_value_at(NULL, 0));
}

static void test_field(void **state)
{
	const struct uns_value *slots[] = { &none, &dict }, *both[] = { &dict, &other_dict };
	const struct uns_value tuple = { .kind = UNS_VALUE_TUPLE, .item = slots, .n = 2 };
	const struct uns_value pair = { .kind = UNS_VALUE_TUPLE, .item = both, .n = 2 };
	const struct uns_value plain = { .kind = UNS_VALUE_OBJECT, .cls = "m.C", .state = &dict };
	const struct uns_value slotted = { .kind = UNS_VALUE_OBJECT, .cls = "m.C", .state = &tuple };
	const struct uns_value mixed = { .kind = UNS_VALUE_OBJECT, .cls = "m.C", .state = &pair };
	const struct uns_value bare = { .kind = UNS_VALUE_OBJECT, .cls = "m.C" };

	(void)state;
	assert_ptr_equal(uns_value_field(&plain, "b"), &two);
	assert_ptr_equal(uns_value_field(&slotted, "b"), &two);
	assert_ptr_equal(uns_value_field(&mixed, "b"), &one); /* a slot before an attribute */
	assert_ptr_equal(uns_value_field(&mixed, "a"), &minus);
	assert_null(uns_value_field(&slotted, "c"));
	assert_null(uns_value_field(&bare, "b"));
	assert_null(uns_value_field(NULL, "b"));
}

static void test_scalars(void **state)
{
	uint64_t u = 7;
	int64_t i = 7;
	double f = 7;

	(void)state;
	assert_true(uns_value_int(&minus, &i) && i == -1);
	assert_true(uns_value_int(&yes, &i) && i == 1);
	assert_false(uns_value_int(&half, &i));
	assert_true(uns_value_u64(&two, &u) && u == 2);
	assert_false(uns_value_u64(&minus, &u));
	assert_false(uns_value_u64(&yes, &u));
	assert_true(uns_value_float(&half, &f) && f == 0.5);
	assert_true(uns_value_float(&two, &f) && f == 2);
	assert_false(uns_value_float(&a, &f));
	assert_false(uns_value_int(NULL, &i) || uns_value_u64(NULL, &u) || uns_value_float(NULL, &f));
	assert_string_equal(uns_value_str(&a), "a");
	assert_string_equal(uns_value_str(&empty), "");
	assert_null(uns_value_str(&nul));
	assert_null(uns_value_str(&one));
	assert_null(uns_value_str(NULL));
}

static void test_is(void **state)
{
	const struct uns_value global = { .kind = UNS_VALUE_GLOBAL, .cls = "torch.float32" };

	(void)state;
	assert_true(uns_value_is(&global, "torch.float32"));
	assert_false(uns_value_is(&global, "torch.float3"));
	assert_false(uns_value_is(&a, "a"));
	assert_false(uns_value_is(NULL, "a"));
}

static void test_dims(void **state)
{
	const struct uns_value *good[] = { &one, &two }, *bad[] = { &one, &minus };
	const struct uns_value tuple = { .kind = UNS_VALUE_TUPLE, .item = good, .n = 2 };
	const struct uns_value negative = { .kind = UNS_VALUE_LIST, .item = bad, .n = 2 };
	const struct uns_value *tuple_arg[] = { &tuple };
	const struct uns_value args = { .kind = UNS_VALUE_TUPLE, .item = tuple_arg, .n = 1 };
	const struct uns_value unit = { .kind = UNS_VALUE_TUPLE };
	const struct uns_value *unit_arg[] = { &unit };
	const struct uns_value unit_args = { .kind = UNS_VALUE_TUPLE, .item = unit_arg, .n = 1 };
	const struct uns_value size = { .kind = UNS_VALUE_OBJECT, .cls = "torch.Size", .object.args = &args };
	const struct uns_value scalar = { .kind = UNS_VALUE_OBJECT, .cls = "torch.Size", .object.args = &unit_args };
	const struct uns_value other = { .kind = UNS_VALUE_OBJECT, .cls = "torch.Other", .object.args = &args };
	uint64_t dims[2];
	size_t n = 9;

	(void)state;
	assert_true(uns_value_dims(&size, dims, 2, &n));
	assert_true(n == 2 && dims[0] == 1 && dims[1] == 2);
	assert_true(uns_value_dims(&tuple, dims, 2, &n) && n == 2);
	assert_true(uns_value_dims(&scalar, dims, 2, &n) && n == 0);
	assert_false(uns_value_dims(&size, dims, 1, &n));
	assert_false(uns_value_dims(&negative, dims, 2, &n));
	assert_false(uns_value_dims(&other, dims, 2, &n));
	assert_false(uns_value_dims(&a, dims, 2, &n));
	assert_false(uns_value_dims(NULL, dims, 2, &n));
}

static void test_fits(void **state)
{
	const struct uns_value *items[] = { &one, &one, &one };
	struct uns_value list = { .kind = UNS_VALUE_LIST, .item = items, .n = 3 }, laughs[40];
	const struct uns_value *twice[40][2];
	size_t i;

	(void)state;
	assert_true(uns_value_fits(&one, 1, 1));
	assert_true(uns_value_fits(&list, 4, 2));
	assert_false(uns_value_fits(&list, 3, 2));
	assert_false(uns_value_fits(&list, 4, 1));
	assert_true(uns_value_fits(&dict, 9, 2));
	assert_false(uns_value_fits(&dict, 8, 2));
	items[2] = &list; /* holds itself */
	assert_false(uns_value_fits(&list, 1000, 1000));
	for (i = 0; i < 40; i++) { /* 2^40 when written out */
		twice[i][0] = twice[i][1] = i ? &laughs[i - 1] : &one;
		laughs[i] = (struct uns_value){ .kind = UNS_VALUE_LIST, .item = twice[i], .n = 2 };
	}
	assert_false(uns_value_fits(&laughs[39], 100000, 1000));
}

/* Ones become twos; *ctx counts them. */
static int two_for_one(void *ctx, const struct uns_value *v, const struct uns_value **out, struct uns_err *err)
{
	(void)err;
	if (v != &one)
		return 0;
	++*(size_t *)ctx;
	*out = &two;
	return 1;
}

static void test_map(void **state)
{
	const struct uns_value *inner_items[] = { &two, &one }, *outer_items[] = { NULL, &half, &one };
	const struct uns_value *plain_items[] = { &two, &half };
	const struct uns_value inner = { .kind = UNS_VALUE_TUPLE, .item = inner_items, .n = 2 };
	const struct uns_value object = { .kind = UNS_VALUE_OBJECT, .cls = "m.C", .object.args = &inner };
	struct uns_value list = { .kind = UNS_VALUE_LIST, .item = outer_items, .n = 3 };
	const struct uns_value plain = { .kind = UNS_VALUE_LIST, .item = plain_items, .n = 2 };
	struct uns_pair mapped[] = { { &a, &list }, { &b, &object }, { &a, &plain } };
	const struct uns_value top = {
		.kind = UNS_VALUE_DICT, .cls = "collections.OrderedDict", .pair = mapped, .n = 3
	};
	struct uns_arena arena = UNS_ARENA_INIT;
	size_t n = 0;
	const struct uns_value_mapper mapper = { two_for_one, &n };
	const struct uns_value *got, *got_list;
	struct uns_err err = { 0 };

	(void)state;
	outer_items[0] = &inner;
	assert_int_equal(uns_value_map(&top, &mapper, &arena, &got, &err), 0);
	assert_int_equal(n, 2); /* not the one among the object's arguments */
	assert_string_equal(got->cls, top.cls);
	assert_ptr_equal(got->pair[0].key, &a);
	got_list = got->pair[0].value;
	assert_int_equal(got_list->kind, UNS_VALUE_LIST);
	assert_int_equal(uns_value_at(got_list, 0)->kind, UNS_VALUE_TUPLE);
	assert_ptr_equal(uns_value_at(uns_value_at(got_list, 0), 1), &two);
	assert_ptr_equal(uns_value_at(got_list, 1), &half);
	assert_ptr_equal(uns_value_at(got_list, 2), &two);
	assert_ptr_equal(got->pair[1].value, &object);
	assert_ptr_equal(got->pair[2].value, &plain); /* shared: nothing in it has changed */
	assert_ptr_equal(uns_value_at(&list, 2), &one);
	assert_int_equal(uns_value_map(&one, &mapper, &arena, &got, &err), 0);
	assert_ptr_equal(got, &two);
	outer_items[0] = &list; /* holds itself */
	assert_int_equal(uns_value_map(&top, &mapper, &arena, &got, &err), -ENOTSUP);
	uns_arena_fini(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_get),   cmocka_unit_test(test_get_number), cmocka_unit_test(test_at),
		cmocka_unit_test(test_field), cmocka_unit_test(test_scalars),    cmocka_unit_test(test_is),
		cmocka_unit_test(test_dims),  cmocka_unit_test(test_fits),       cmocka_unit_test(test_map),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
