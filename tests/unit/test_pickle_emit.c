/* What is pickled is read back as it was, by the machine that reads everybody's pickles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "wire/pickle.h"
#include "wire/pickle_emit.h"
#include "wire/torchfile.h"
#include "wire/value_new.h"

struct both {
	struct uns_arena arena;
	struct uns_text text;
};

static const struct uns_value *again(struct both *b, const struct uns_value *v, const struct uns_pickle_tensor *tensors,
				     size_t n)
{
	struct uns_err err = { 0 };
	const struct uns_value *out;
	struct uns_span in;

	uns_text_fini(&b->text);
	if (uns_pickle_emit(v, tensors, n, NULL, &b->text, &err) < 0)
		fail_msg("%s", err.text);
	in = uns_span_of(b->text.p, b->text.len);
	if (uns_pickle_parse(&in, &b->arena, &out, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(uns_span_left(&in), 0);
	return out;
}

static void done(struct both *b)
{
	uns_text_fini(&b->text);
	uns_arena_fini(&b->arena);
}

static void test_integers(void **state)
{
	static const int64_t numbers[] = { 0,         1,         255,          256,       65535,
					   65536,     INT32_MAX, INT32_MIN,    -1,        -256,
					   1LL << 31, 1LL << 40, -(1LL << 40), INT64_MAX, INT64_MIN };
	struct both b = { 0 };
	const struct uns_value *v;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		v = again(&b, uns_value_new_int(&b.arena, numbers[i]), NULL, 0);
		assert_int_equal(v->kind, UNS_VALUE_INT);
		assert_true(v->i == numbers[i]);
	}
	done(&b);
}

static void test_floats_and_words(void **state)
{
	static const double floats[] = { 0.0, -0.0, 0.1, 1e-308, 5e-324, 1.7976931348623157e308 };
	struct both b = { 0 };
	const struct uns_value *v;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(floats) / sizeof(floats[0]); i++) {
		v = again(&b, uns_value_new_float(&b.arena, floats[i]), NULL, 0);
		assert_int_equal(v->kind, UNS_VALUE_FLOAT);
		assert_memory_equal(&v->f, &floats[i], sizeof(double));
	}
	assert_int_equal(again(&b, uns_value_new_none(&b.arena), NULL, 0)->kind, UNS_VALUE_NONE);
	v = again(&b, uns_value_new_bool(&b.arena, true), NULL, 0);
	assert_true(v->kind == UNS_VALUE_BOOL && v->b);
	v = again(&b, uns_value_new_str(&b.arena, "exp_avg\xc3\xa9"), NULL, 0);
	assert_string_equal(uns_value_str(v), "exp_avg\xc3\xa9");
	done(&b);
}

static void test_containers_keep_their_order(void **state)
{
	struct both b = { 0 };
	struct uns_value *dict = uns_value_new_dict(&b.arena, 3);
	struct uns_value *list = uns_value_new_list(&b.arena, 2);
	const struct uns_value *v;

	(void)state;
	assert_true(uns_value_append(list, uns_value_new_int(&b.arena, 7)));
	assert_true(uns_value_append(list, uns_value_new_dict(&b.arena, 0)));
	assert_true(uns_value_put(dict, uns_value_new_str(&b.arena, "z"), list));
	assert_true(uns_value_put(dict, uns_value_new_int(&b.arena, 5), uns_value_new_list(&b.arena, 0)));
	assert_true(uns_value_put(dict, uns_value_new_str(&b.arena, "a"), uns_value_new_none(&b.arena)));
	v = again(&b, dict, NULL, 0);
	assert_int_equal(v->n, 3);
	assert_string_equal(uns_value_str(v->pair[0].key), "z");
	assert_true(v->pair[1].key->kind == UNS_VALUE_INT && v->pair[1].key->i == 5);
	assert_string_equal(uns_value_str(v->pair[2].key), "a");
	assert_true(uns_value_at(v->pair[0].value, 0)->i == 7);
	assert_int_equal(v->pair[1].value->n, 0);
	done(&b);
}

static void test_a_tensor_is_rebuilt(void **state)
{
	static const uint64_t dims[] = { 3, 4 };
	const struct uns_pickle_tensor tensors[] = { { UNS_F32, 2, dims }, { UNS_BF16, 0, NULL } };
	struct both b = { 0 };
	const struct uns_value *v, *id;
	uint64_t got[2];
	int64_t numel;
	size_t n;

	(void)state;
	v = again(&b, uns_value_new_tensor(&b.arena, 0), tensors, 2);
	assert_true(uns_torch_is_tensor(v));
	id = uns_value_at(v->object.args, 0);
	assert_true(uns_value_is(id, UNS_PERSISTENT_ID));
	assert_true(uns_value_is(uns_value_at(id->object.args, 1), "torch.FloatStorage"));
	assert_string_equal(uns_value_str(uns_value_at(id->object.args, 2)), "0");
	assert_true(uns_value_int(uns_value_at(id->object.args, 4), &numel) && numel == 12);
	assert_true(uns_value_dims(uns_value_at(v->object.args, 2), got, 2, &n));
	assert_true(n == 2 && got[0] == 3 && got[1] == 4);
	assert_true(uns_value_dims(uns_value_at(v->object.args, 3), got, 2, &n));
	assert_true(n == 2 && got[0] == 4 && got[1] == 1);
	v = again(&b, uns_value_new_tensor(&b.arena, 1), tensors, 2);
	id = uns_value_at(v->object.args, 0);
	assert_true(uns_value_is(uns_value_at(id->object.args, 1), "torch.BFloat16Storage"));
	assert_string_equal(uns_value_str(uns_value_at(id->object.args, 2)), "1");
	done(&b);
}

static void test_what_a_safe_loader_refuses_is_not_written(void **state)
{
	struct uns_value object = { .kind = UNS_VALUE_OBJECT, .cls = "os.system" };
	struct uns_value tuple = { .kind = UNS_VALUE_TUPLE };
	struct uns_text text = UNS_TEXT_INIT;
	struct uns_err err = { 0 };

	(void)state;
	object.object.args = &tuple;
	assert_int_equal(uns_pickle_emit(&object, NULL, 0, NULL, &text, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "os.system"));
	uns_text_fini(&text);
}

/* A subclass of list or dict is written as a list or dict, which can have no attributes. */
static void test_attributes_are_not_lost(void **state)
{
	static const enum uns_value_kind kinds[] = { UNS_VALUE_LIST, UNS_VALUE_DICT };
	struct uns_value attributes = { .kind = UNS_VALUE_DICT }, v = { .cls = "mine.Sub" };
	struct both b = { 0 };
	struct uns_err err = { 0 };
	size_t i;

	(void)state;
	for (i = 0; i < 2; i++) {
		v.kind = kinds[i];
		v.state = NULL;
		assert_int_equal(again(&b, &v, NULL, 0)->kind, kinds[i]);
		v.state = &attributes;
		assert_int_equal(uns_pickle_emit(&v, NULL, 0, NULL, &b.text, &err), -ENOTSUP);
		assert_non_null(strstr(err.text, "mine.Sub"));
	}
	v.cls = "collections.OrderedDict";
	assert_non_null(again(&b, &v, NULL, 0)->state);
	done(&b);
}

static void test_a_value_that_holds_itself_is_refused(void **state)
{
	struct both b = { 0 };
	struct uns_value *list = uns_value_new_list(&b.arena, 1);
	struct uns_err err = { 0 };

	(void)state;
	assert_true(uns_value_append(list, list));
	assert_true(uns_pickle_emit(list, NULL, 0, NULL, &b.text, &err) < 0);
	assert_true(err.text[0]);
	done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_integers),
		cmocka_unit_test(test_floats_and_words),
		cmocka_unit_test(test_containers_keep_their_order),
		cmocka_unit_test(test_a_tensor_is_rebuilt),
		cmocka_unit_test(test_what_a_safe_loader_refuses_is_not_written),
		cmocka_unit_test(test_attributes_are_not_lost),
		cmocka_unit_test(test_a_value_that_holds_itself_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
