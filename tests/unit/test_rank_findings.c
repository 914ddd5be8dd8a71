/* ranks/findings.c: what repeats is counted. ranks/values.c: where two ranks' values
 * differ. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "ranks/findings.h"
#include "ranks/values.h"
#include "wire/value_new.h"
#include "said.h"

/* -- findings -- */

struct found {
	struct uns_catalog *cat;
	struct uns_rank_findings f;
};

static void found_init(struct found *x)
{
	assert_int_equal(uns_catalog_new("ckpt", &x->cat, NULL), 0);
	uns_rank_findings_init(&x->f, x->cat);
}

static void found_fini(struct found *x)
{
	uns_rank_findings_fini(&x->f);
	uns_catalog_free(x->cat);
}

static void add(struct found *x, enum uns_finding_id id, enum uns_scope scope, const char *path, const char *tensor)
{
	assert_int_equal(
		uns_rank_findings_add(&x->f, UNS_FINDING(.id = id, .scope = scope, .file = path, .tensor = tensor,
							 .found = uns_str("bfloat16"), .expected = uns_str("float32"),
							 .arg = { { "cause", uns_str("it is odd") },
								  { "other_file", uns_str("d/r0.pt") } })),
		0);
}

static void expect(const struct found *x, size_t i, enum uns_scope scope, int code, const char *text)
{
	assert_true(i < x->cat->n_findings);
	assert_int_equal(x->cat->findings[i].scope, scope);
	assert_int_equal(x->cat->findings[i].code, code);
	assert_string_equal(said(&x->cat->findings[i]), text);
}

static void one_sentence_a_file_and_kind(void **state)
{
	UNS_CLEANUP(found_fini) struct found x;

	(void)state;
	found_init(&x);
	add(&x, UNS_FOUND_RANK_TENSOR_DAMAGED, UNS_SCOPE_WEIGHTS, "r1.pt", "a");
	add(&x, UNS_FOUND_RANK_TYPES_DIFFER, UNS_SCOPE_WEIGHTS, "r1.pt", "b");
	add(&x, UNS_FOUND_RANK_PART_SHAPE, UNS_SCOPE_WEIGHTS, "r1.pt", "c");
	add(&x, UNS_FOUND_RANK_TENSOR_DAMAGED, UNS_SCOPE_WEIGHTS, "r2.pt", "d");
	add(&x, UNS_FOUND_RANK_TENSOR_DAMAGED, UNS_SCOPE_SHARDED, "r2.pt", "e");
	assert_true(uns_rank_findings_has(&x.f, UNS_FOUND_RANK_TENSOR_DAMAGED, UNS_SCOPE_SHARDED, "r2.pt"));
	assert_false(uns_rank_findings_has(&x.f, UNS_FOUND_RANK_TENSOR_DAMAGED, UNS_SCOPE_SHARDED, "r1.pt"));
	assert_int_equal(uns_rank_findings_emit(&x.f, NULL), 0);
	assert_int_equal(x.cat->n_findings, 4);
	expect(&x, 0, UNS_SCOPE_WEIGHTS, -EBADMSG,
	       "r1.pt: a: it is odd (and 1 more of its tensors); copy the file again from the training "
	       "machine");
	expect(&x, 1, UNS_SCOPE_WEIGHTS, -EBADMSG,
	       "r1.pt: dtype mismatch in b: bfloat16 here, float32 in r0.pt; --repair OUT writes a copy "
	       "with one dtype for all ranks where most of them agree; or copy the file again from the "
	       "training machine, or resume from the checkpoint before it");
	expect(&x, 2, UNS_SCOPE_WEIGHTS, -EBADMSG,
	       "r2.pt: d: it is odd; copy the file again from the training machine");
	expect(&x, 3, UNS_SCOPE_SHARDED, -EBADMSG,
	       "r2.pt: e: it is odd; copy the file again from the training machine");
}

/* All ranks write the form that is not known: one file stands for them. */
static void an_unknown_form_is_told_once(void **state)
{
	UNS_CLEANUP(found_fini) struct found x;

	(void)state;
	found_init(&x);
	add(&x, UNS_FOUND_RANK_TENSOR_UNKNOWN, UNS_SCOPE_OPTIMIZER, "r0.pt", "a");
	add(&x, UNS_FOUND_RANK_TENSOR_UNKNOWN, UNS_SCOPE_OPTIMIZER, "r0.pt", "b");
	add(&x, UNS_FOUND_RANK_TENSOR_UNKNOWN, UNS_SCOPE_OPTIMIZER, "r1.pt", "a");
	assert_int_equal(uns_rank_findings_emit(&x.f, NULL), 0);
	assert_int_equal(x.cat->n_findings, 1);
	expect(&x, 0, UNS_SCOPE_OPTIMIZER, -ENOTSUP, "r0.pt: a: it is odd (and 1 more of its tensors)");
}

/* What is not told any more refuses as it would have. */
static void no_flood(void **state)
{
	UNS_CLEANUP(found_fini) struct found x;
	char path[16];
	int i;

	(void)state;
	found_init(&x);
	for (i = 0; i < 12; i++) {
		snprintf(path, sizeof(path), "r%d.pt", i);
		add(&x, UNS_FOUND_RANK_TYPES_DIFFER, i == 11 ? UNS_SCOPE_WEIGHTS : UNS_SCOPE_SHARDED, path, "a");
	}
	assert_int_equal(uns_rank_findings_emit(&x.f, NULL), 0);
	assert_int_equal(x.cat->n_findings, 9);
	expect(&x, 8, UNS_SCOPE_WEIGHTS, -EBADMSG, "4 more files have tensors with problems like these");
}

/* -- values -- */

static const struct uns_value *dict(struct uns_arena *arena, const char *key, const struct uns_value *v)
{
	struct uns_value *d = uns_value_new_dict(arena, 2);

	assert_true(uns_value_put(d, uns_value_new_str(arena, "same"), uns_value_new_int(arena, 3)));
	if (key)
		assert_true(uns_value_put(d, uns_value_new_str(arena, key), v));
	return d;
}

static const struct uns_value *pair(struct uns_arena *arena, double a, double b)
{
	struct uns_value *tuple = uns_value_new_tuple(arena, 2);

	assert_true(uns_value_append(tuple, uns_value_new_float(arena, a)));
	assert_true(uns_value_append(tuple, uns_value_new_float(arena, b)));
	return tuple;
}

static void values_differ(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_value *one = uns_value_new_float(&arena, 0.25);
	const struct uns_value *number = uns_value_new_int(&arena, 7);
	const struct uns_value *seven = uns_value_new_float(&arena, 7.0);
	struct uns_value *object = UNS_NEW(&arena, struct uns_value);
	struct uns_rank_difference d;

	(void)state;
	object->kind = UNS_VALUE_OBJECT;
	object->cls = "torch._utils._rebuild_tensor_v2";
	assert_false(uns_rank_values_differ(dict(&arena, "lr", number), dict(&arena, "lr", seven), &d, NULL));
	assert_true(uns_rank_values_differ(dict(&arena, "lr", one), dict(&arena, "lr", number), &d, NULL));
	assert_string_equal(d.key, "lr");
	assert_string_equal(d.first, "0.25");
	assert_string_equal(d.second, "7");
	assert_true(uns_rank_values_differ(dict(&arena, NULL, NULL), dict(&arena, "lr", one), &d, NULL));
	assert_string_equal(d.first, "missing");
	assert_true(uns_rank_values_differ(dict(&arena, "lr", one), dict(&arena, NULL, NULL), &d, NULL));
	assert_string_equal(d.second, "missing");
	assert_true(uns_rank_values_differ(dict(&arena, "betas", pair(&arena, 0.5, 0.75)),
					   dict(&arena, "betas", pair(&arena, 0.5, 1)), &d, NULL));
	assert_string_equal(d.first, "(0.5, 0.75)");
	assert_string_equal(d.second, "(0.5, 1)");
	/* What is opaque is not compared with its like, and no text is made of it. */
	assert_false(uns_rank_values_differ(dict(&arena, "lr", object), dict(&arena, "lr", object), &d, NULL));
	assert_true(uns_rank_values_differ(dict(&arena, "lr", object), dict(&arena, "lr", one), &d, NULL));
	assert_string_equal(d.first, "another value");
	assert_false(uns_rank_values_differ(one, number, &d, NULL));
	assert_false(uns_rank_values_differ(NULL, dict(&arena, "lr", one), &d, NULL));
}

/* A value that holds itself is not walked. */
static void cycles(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_value *list = UNS_NEW(&arena, struct uns_value);
	struct uns_rank_difference d;

	(void)state;
	list->kind = UNS_VALUE_LIST;
	list->item = UNS_NEW_N(&arena, const struct uns_value *, 1);
	list->item[0] = list;
	list->n = 1;
	assert_false(uns_rank_values_differ(dict(&arena, "l", list), dict(&arena, "l", list), &d, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_sentence_a_file_and_kind),
		cmocka_unit_test(an_unknown_form_is_told_once),
		cmocka_unit_test(no_flood),
		cmocka_unit_test(values_differ),
		cmocka_unit_test(cycles),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
