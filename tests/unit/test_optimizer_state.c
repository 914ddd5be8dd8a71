/* From optimizer tensors and param groups to a state dict: ids, order, steps that were not saved, and
 * what cannot be put together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "files/optimizer_state.h"
#include "wire/value_new.h"

enum { MAX = 8 };

/* Two groups: ("b"), ("c", "a"); exp_avg of all three and a step of "a". */
struct made {
	struct uns_arena arena;
	struct uns_catalog cat;
	struct uns_file file;
	struct uns_tensor tensors[MAX];
	struct uns_piece pieces[MAX];
	struct uns_group groups[2];
	struct uns_named_value value;
	struct uns_value *hyper[2];
	struct uns_torch_leaves leaves;
};

static void add(struct made *m, const char *name, enum uns_role role)
{
	static const struct uns_box two = { .n = 1, .len = { 2 } }, scalar = { 0 };
	uint32_t i = (uint32_t)m->cat.n_tensors++;
	uint32_t n_dims = role == UNS_ROLE_STEP ? 0 : 1;

	m->cat.n_pieces = m->cat.n_tensors;
	m->tensors[i] = (struct uns_tensor){ .name = name,
					     .key = name,
					     .root = "optimizer",
					     .role = role,
					     .dtype = UNS_F32,
					     .shape = { .n = n_dims, .dim = { 2 } },
					     .first_piece = i,
					     .n_pieces = 1,
					     .alias_of = UNS_NONE };
	m->pieces[i] = (struct uns_piece){ .box = n_dims ? &two : &scalar, .length_bytes = n_dims ? 8 : 4 };
}

static void start(struct made *m)
{
	static const char *first[] = { "b" }, *second[] = { "c", "a" };
	int i;

	memset(m, 0, sizeof(*m));
	m->file = (struct uns_file){ .path = "f", .stat = { .kind = UNS_KIND_FILE, .id.size = 64 } };
	for (i = 0; i < 2; i++) {
		m->hyper[i] = uns_value_new_dict(&m->arena, 2);
		uns_value_put(m->hyper[i], uns_value_new_str(&m->arena, "lr"), uns_value_new_float(&m->arena, 0.25));
	}
	m->groups[0] = (struct uns_group){ m->hyper[0], first, 1, "optimizer", false, false, false };
	m->groups[1] = (struct uns_group){ m->hyper[1], second, 2, "optimizer", false, false, false };
	m->cat = (struct uns_catalog){ .path = "run",
				       .files = &m->file,
				       .n_files = 1,
				       .tensors = m->tensors,
				       .pieces = m->pieces,
				       .groups = m->groups,
				       .n_groups = 2,
				       .values = &m->value };
	add(m, "a", UNS_ROLE_EXP_AVG);
	add(m, "b", UNS_ROLE_EXP_AVG);
	add(m, "c", UNS_ROLE_EXP_AVG);
	add(m, "a", UNS_ROLE_STEP);
}

static int build(struct made *m, enum uns_param_ids ids, int64_t step, struct uns_optimizer_state *out,
		 struct uns_err *err)
{
	return uns_optimizer_state_build(&m->cat, "optimizer", ids, step, &m->arena, &m->leaves, out, err);
}

static void finish(struct made *m)
{
	uns_torch_leaves_fini(&m->leaves);
	uns_arena_fini(&m->arena);
}

static void test_ids_are_positions_over_all_groups(void **state)
{
	struct uns_optimizer_state out;
	const struct uns_value *states, *groups, *ids;
	struct made m;
	int64_t id;
	size_t i;

	(void)state;
	start(&m);
	assert_int_equal(build(&m, UNS_IDS_NUMBERS, 7, &out, NULL), 0);
	states = uns_value_get(out.root, "state");
	assert_int_equal(states->n, 3);
	for (i = 0; i < 3; i++)
		assert_true(uns_value_int(states->pair[i].key, &id) && id == (int64_t)i);
	/* b is 0, c is 1, a is 2: whose exp_avg is whose? */
	assert_ptr_equal(m.leaves.v[uns_value_get(states->pair[0].value, "exp_avg")->tensor].tensor, &m.tensors[1]);
	assert_ptr_equal(m.leaves.v[uns_value_get(states->pair[2].value, "exp_avg")->tensor].tensor, &m.tensors[0]);
	groups = uns_value_get(out.root, "param_groups");
	ids = uns_value_get(uns_value_at(groups, 1), "params");
	assert_true(uns_value_int(uns_value_at(ids, 0), &id) && id == 1);
	assert_true(uns_value_int(uns_value_at(ids, 1), &id) && id == 2);
	assert_non_null(uns_value_get(uns_value_at(groups, 0), "lr"));
	finish(&m);
}

static void test_ids_are_names(void **state)
{
	struct uns_optimizer_state out;
	const struct uns_value *ids;
	struct made m;

	(void)state;
	start(&m);
	assert_int_equal(build(&m, UNS_IDS_NAMES, 7, &out, NULL), 0);
	assert_non_null(uns_value_get(uns_value_get(out.root, "state"), "c"));
	ids = uns_value_get(uns_value_at(uns_value_get(out.root, "param_groups"), 1), "params");
	assert_string_equal(uns_value_str(uns_value_at(ids, 0)), "c");
	finish(&m);
}

static float step_of(const struct made *m, const struct uns_optimizer_state *out, const char *name)
{
	const struct uns_value *v = uns_value_get(uns_value_get(uns_value_get(out->root, "state"), name), "step");
	const struct uns_torch_leaf *leaf = &m->leaves.v[v->tensor];
	float step;

	assert_true(leaf->shape.n == 0 && leaf->out == UNS_F32 && leaf->literal);
	memcpy(&step, leaf->literal, sizeof(step));
	return step;
}

static void test_a_missing_step_is_the_training_step(void **state)
{
	struct uns_optimizer_state out;
	struct made m;

	(void)state;
	start(&m);
	assert_int_equal(build(&m, UNS_IDS_NAMES, 7, &out, NULL), 0);
	assert_int_equal(out.n_steps_assumed, 2);
	assert_true(step_of(&m, &out, "b") == 7 && step_of(&m, &out, "c") == 7);
	finish(&m);
}

static void test_a_missing_step_is_the_groups(void **state)
{
	struct uns_optimizer_state out;
	struct made m;

	(void)state;
	start(&m);
	uns_value_put(m.hyper[0], uns_value_new_str(&m.arena, "step"), uns_value_new_int(&m.arena, 5));
	assert_int_equal(build(&m, UNS_IDS_NAMES, 7, &out, NULL), 0);
	assert_int_equal(out.n_steps_from_group, 1);
	assert_int_equal(out.n_steps_assumed, 1);
	assert_true(step_of(&m, &out, "b") == 5 && step_of(&m, &out, "c") == 7);
	finish(&m);
}

static void test_no_step_is_guessed(void **state)
{
	struct uns_optimizer_state out;
	struct uns_err err = { 0 };
	struct made m;

	(void)state;
	start(&m);
	assert_int_equal(build(&m, UNS_IDS_NAMES, UNS_UNKNOWN, &out, &err), -ENODATA);
	assert_non_null(strstr(err.text, "parameter b"));
	assert_non_null(strstr(err.text, "global_step=N"));
	finish(&m);
}

static void no_groups(struct made *m)
{
	m->cat.n_groups = 0;
}

static void a_parameter_of_no_group(struct made *m)
{
	add(m, "stranger", UNS_ROLE_EXP_AVG);
}

static void a_parameter_of_two_groups(struct made *m)
{
	m->groups[1].param[1] = "b";
}

static void a_hole(struct made *m)
{
	static const struct uns_box one = { .n = 1, .len = { 1 } };

	m->pieces[1].box = &one;
}

static void a_state_that_is_no_tensor(struct made *m)
{
	m->value = (struct uns_named_value){ .name = "state.a.mode", .root = "optimizer" };
	m->cat.n_values = 1;
}

static const struct {
	void (*spoil)(struct made *m);
	const char *why;
} wrongs[] = {
	{ no_groups, "param groups were not saved" },
	{ a_parameter_of_no_group, "stranger is of a parameter that no param group lists" },
	{ a_parameter_of_two_groups, "parameter b is in two param groups" },
	{ a_hole, "b" },
	{ a_state_that_is_no_tensor, "state.a.mode is not a tensor or a number: this view can show no other states" },
};

static void test_what_cannot_be_put_together(void **state)
{
	struct made m;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
		struct uns_err err = { 0 };
		const char *kept;

		start(&m);
		kept = m.groups[1].param[1];
		assert_int_equal(uns_optimizer_check(&m.cat, "optimizer", &err), 0);
		wrongs[i].spoil(&m);
		assert_true(uns_optimizer_check(&m.cat, "optimizer", &err) < 0);
		if (!strstr(err.text, wrongs[i].why))
			fail_msg("\"%s\" lacks \"%s\"", err.text, wrongs[i].why);
		m.groups[1].param[1] = kept;
		finish(&m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ids_are_positions_over_all_groups),
		cmocka_unit_test(test_ids_are_names),
		cmocka_unit_test(test_a_missing_step_is_the_training_step),
		cmocka_unit_test(test_a_missing_step_is_the_groups),
		cmocka_unit_test(test_no_step_is_guessed),
		cmocka_unit_test(test_what_cannot_be_put_together),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
