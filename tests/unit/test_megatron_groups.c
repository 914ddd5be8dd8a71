/* megatron/groups.c: which param groups common.pt has, in each of its forms, and what is said of a file that cannot
 * be read. The files are written by files/torch_file.c, which has a test of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/number.h"
#include "megatron/groups.h"
#include "files/torch_file.h"
#include "wire/value_new.h"

/* A file that is being made. */
struct made {
	struct uns_arena arena;
	struct uns_torch_leaves leaves;
};

static struct uns_value *dict(struct made *m)
{
	return uns_value_new_dict(&m->arena, 4);
}

static struct uns_value *with(struct made *m, struct uns_value *to, const char *key, const struct uns_value *v)
{
	assert_true(uns_value_put_str(&m->arena, to, key, v));
	return to;
}

/* {"lr": lr, "params": [0]}, and "step" if it is not 0 */
static struct uns_value *group(struct made *m, double lr, int64_t step)
{
	struct uns_value *params = uns_value_new_list(&m->arena, 1), *g = dict(m);

	assert_true(uns_value_append(params, uns_value_new_int(&m->arena, 0)));
	with(m, g, "lr", uns_value_new_float(&m->arena, lr));
	with(m, g, "params", params);
	return step ? with(m, g, "step", uns_value_new_int(&m->arena, step)) : g;
}

static struct uns_value *optimizer_of(struct made *m, const struct uns_value *g)
{
	struct uns_value *groups = uns_value_new_list(&m->arena, 1);

	assert_true(uns_value_append(groups, g));
	return with(m, dict(m), "param_groups", groups);
}

/* Not distributed: its step is a tensor. */
static struct uns_value *plain(struct made *m)
{
	const struct uns_value *step = uns_torch_step_add(&m->leaves, &m->arena, 7);
	struct uns_value *optimizer = optimizer_of(m, group(m, 0.5, 0));

	with(m, optimizer, "state", with(m, dict(m), "common_step", step));
	return with(m, dict(m), "optimizer", optimizer);
}

/* Several, of which each is distributed: its groups have the step. */
static struct uns_value *several(struct made *m)
{
	struct uns_value *all = dict(m), *one;
	int i;

	for (i = 0; i < 2; i++) {
		one = with(m, dict(m), "optimizer", optimizer_of(m, group(m, 0.5 + i, 3)));
		assert_true(uns_value_put(all, uns_value_new_int(&m->arena, i), one));
	}
	return with(m, dict(m), "optimizer", all);
}

static struct uns_value *with_args(struct made *m, bool on)
{
	struct uns_value *options = with(m, dict(m), UNS_MEGATRON_QK_DECAY, uns_value_new_bool(&m->arena, on));

	return with(m, plain(m), "args",
		    uns_value_new_object(&m->arena, "argparse.Namespace", uns_value_new_tuple(&m->arena, 0), options));
}

static struct uns_value *decays(struct made *m)
{
	return with_args(m, true);
}

static struct uns_value *does_not_decay(struct made *m)
{
	return with_args(m, false);
}

static struct uns_value *too_large(struct made *m)
{
	struct uns_value *list = uns_value_new_list(&m->arena, 5000), *g = group(m, 0.5, 3);
	size_t i;

	for (i = 0; i < 5000; i++)
		assert_true(uns_value_append(list, uns_value_new_int(&m->arena, 1)));
	with(m, g, "many", list);
	return with(m, dict(m), "optimizer", optimizer_of(m, g));
}

static const struct row {
	const char *name;
	struct uns_value *(*make)(struct made *m);
	size_t cut; /* so many bytes of the file are missing */
	const char *want; /* "lr step" of each group */
	bool qk_decay;
	const char *problem; /* part of the cause; NULL = there is none */
} rows[] = {
	{ "none", dict, 0, "", false, NULL },
	{ "plain", plain, 0, "0.5 7;", false, NULL },
	{ "several", several, 0, "0.5 3;1.5 3;", false, NULL },
	{ "norms of queries and keys decay", decays, 0, "0.5 7;", true, NULL },
	{ "they do not", does_not_decay, 0, "0.5 7;", false, NULL },
	{ "too large", too_large, 0, "", false, "a param group has more than 4096 values" },
	{ "truncated", plain, 40, "", false, "common.pt: truncated" },
};

static const struct uns_pickle_class classes[] = { { .name = "argparse.Namespace" }, { .name = NULL } };

static void write_file(const struct row *row, const char *path)
{
	struct made m = { 0 };
	const struct uns_catalog cat = { .path = "run" };
	struct uns_torch_input in = { .cat = &cat, .leaves = &m.leaves, .stem = "common", .classes = classes };
	struct uns_layout layout;
	struct uns_err err = { 0 };
	FILE *f = fopen(path, "w");
	uint64_t left;
	size_t i, n;

	in.root = row->make(&m);
	assert_non_null(f);
	if (uns_part_torch_file(&in, &m.arena, &layout, &err) < 0)
		fail_msg("%s", err.text);
	left = layout.size_bytes - row->cut;
	for (i = 0; i < layout.n; i++, left -= n) {
		assert_int_equal(layout.segment[i].from, UNS_FROM_LITERAL);
		n = (size_t)(layout.segment[i].len_bytes < left ? layout.segment[i].len_bytes : left);
		assert_int_equal(fwrite(layout.segment[i].literal, 1, n, f), n);
	}
	assert_int_equal(fclose(f), 0);
	uns_torch_leaves_fini(&m.leaves);
	uns_arena_fini(&m.arena);
}

static void assert_groups(const struct uns_catalog *cat, const char *want)
{
	char got[128] = "", rate[UNS_NUMBER_ROOM];
	double lr = 0, step = 0;
	size_t i;

	for (i = 0; i < cat->n_groups; i++) {
		assert_string_equal(cat->groups[i].root, "optimizer");
		assert_int_equal(cat->groups[i].n_params, 0);
		assert_null(uns_value_get(cat->groups[i].hyper, "params"));
		assert_true(uns_value_float(uns_value_get(cat->groups[i].hyper, "lr"), &lr));
		assert_true(uns_value_float(uns_value_get(cat->groups[i].hyper, "step"), &step));
		snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s %d;", uns_number_print(rate, lr, 6),
			 (int)step);
	}
	assert_string_equal(got, want);
}

static void check(const struct row *row, const struct uns_root *root)
{
	struct uns_catalog *cat;
	struct uns_err err = { 0 }, said = { 0 };

	print_message("%s\n", row->name);
	assert_int_equal(uns_catalog_new("run", &cat, NULL), 0);
	if (uns_megatron_common_read(cat, root, "run", true, &err) < 0)
		fail_msg("%s", err.text);
	assert_groups(cat, row->want);
	assert_int_equal(uns_catalog_value(cat, UNS_MEGATRON_COMMON, UNS_MEGATRON_QK_DECAY) != NULL, row->qk_decay);
	assert_int_equal(cat->n_findings, row->problem != NULL);
	if (row->problem) {
		assert_int_equal(cat->findings[0].scope, UNS_SCOPE_OPTIMIZER);
		uns_fail_with(&said, &cat->findings[0]);
		if (!strstr(said.text, row->problem))
			fail_msg("%s", said.text);
	}
	uns_catalog_free(cat);
}

static void groups_of_each_form(void **state)
{
	char dir[] = "/tmp/uns_megatron_XXXXXX", path[64], run[64];
	struct uns_root *root;
	size_t i;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(run, sizeof(run), "%s/run", dir);
	snprintf(path, sizeof(path), "%s/common.pt", run);
	assert_int_equal(mkdir(run, 0700), 0);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		write_file(&rows[i], path);
		assert_int_equal(uns_root_open(dir, NULL, &root, NULL), 0);
		check(&rows[i], root);
		uns_root_close(root);
		assert_int_equal(unlink(path), 0);
	}
	assert_int_equal(rmdir(run) || rmdir(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(groups_of_each_form) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
