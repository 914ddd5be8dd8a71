/* DCP directories: what paths mean, how param groups come together, and real directories against what
 * torch reads of them (tests/golden/dcp/make.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/path.h"
#include "model/cover.h"
#include "dcp/dir.h"
#include "dcp/groups.h"
#include "dcp/names.h"
#include "dcp/numbered.h"
#include "said.h"

/* clang-format off: tables, a case a row */

/* -- names -- */

enum { MAX_ENTRIES = 8, MAX_STEPS = 7 };

/* A step "#3" is the int 3. */
struct named {
	const char *path[MAX_STEPS];
	enum uns_dcp_what what;
	const char *root, *name, *state;
	enum uns_role role;
	bool inferred;
};

static const struct {
	const char *name;
	bool flat; /* no planner_data */
	const char *given_root;
	struct named v[MAX_ENTRIES];
} name_cases[] = {
	{ .name = "model and optimizer",
	  .v = { { { "model", "a.weight" }, 0, "model", "a.weight", NULL, UNS_ROLE_WEIGHT, false },
		 { { "model", "blocks", "#0", "w" }, 0, "model", "blocks.0.w", NULL, UNS_ROLE_WEIGHT, false },
		 { { "optimizer", "state", "a.weight", "exp_avg" },
		   UNS_DCP_IS_STATE,
		   "optimizer",
		   "a.weight",
		   "exp_avg",
		   UNS_ROLE_EXP_AVG,
		   false },
		 { { "optimizer", "state", "a.weight", "momentum_buffer" },
		   UNS_DCP_IS_STATE,
		   "optimizer",
		   "a.weight",
		   "momentum_buffer",
		   UNS_ROLE_OPTIM_OTHER,
		   false },
		 { { "optimizer", "param_groups", "#1", "lr" },
		   UNS_DCP_IS_HYPER,
		   "optimizer",
		   NULL,
		   "lr",
		   UNS_ROLE_OTHER,
		   false },
		 { { "lr_scheduler", "last_epoch" },
		   UNS_DCP_IS_OTHER,
		   "lr_scheduler",
		   "last_epoch",
		   NULL,
		   UNS_ROLE_OTHER,
		   false } } },
	{ .name = "ModelParallelStrategy",
	  .v = { { { "state_dict", "a" }, 0, "state_dict", "a", NULL, UNS_ROLE_WEIGHT, false },
		 { { "optimizer_0", "param_groups" },
		   UNS_DCP_IS_GROUPS,
		   "optimizer_0",
		   NULL,
		   NULL,
		   UNS_ROLE_OTHER,
		   false } } },
	{ .name = "both below a wrapper",
	  .v = { { { "app", "model", "a" }, 0, "app.model", "a", NULL, UNS_ROLE_WEIGHT, false },
		 { { "app", "optim", "state", "a", "step" },
		   UNS_DCP_IS_STATE,
		   "optim",
		   "a",
		   "step",
		   UNS_ROLE_STEP,
		   false },
		 { { "app", "epoch" }, UNS_DCP_IS_OTHER, "app", "epoch", NULL, UNS_ROLE_OTHER, false } } },
	{ .name = "weights at the top, flat optimizer",
	  .v = { { { "layers.0.w" }, 0, "", "layers.0.w", NULL, UNS_ROLE_WEIGHT, false },
		 { { "optimizer", "state.layers.0.w.exp_avg_sq" },
		   UNS_DCP_IS_STATE,
		   "optimizer",
		   "layers.0.w",
		   "exp_avg_sq",
		   UNS_ROLE_EXP_AVG_SQ,
		   false },
		 { { "optimizer", "param_groups.layers.0.w.lr" },
		   UNS_DCP_IS_PARAM_HYPER,
		   "optimizer",
		   "layers.0.w",
		   "lr",
		   UNS_ROLE_OTHER,
		   false },
		 { { "train_state", "step" },
		   UNS_DCP_IS_OTHER,
		   "train_state",
		   "step",
		   NULL,
		   UNS_ROLE_OTHER,
		   false } } },
	{ .name = "one other root",
	  .v = { { { "net", "a.w" }, 0, "net", "a.w", NULL, UNS_ROLE_WEIGHT, false },
		 { { "net", "b.w" }, 0, "net", "b.w", NULL, UNS_ROLE_WEIGHT, false } } },
	{ .name = "a model and an optimizer by their shape",
	  .v = { { { "net", "a.w" }, 0, "net", "a.w", NULL, UNS_ROLE_WEIGHT, false },
		 { { "opt", "state", "a.w", "exp_avg" },
		   UNS_DCP_IS_STATE,
		   "opt",
		   "a.w",
		   "exp_avg",
		   UNS_ROLE_EXP_AVG,
		   false },
		 { { "opt", "param_groups", "#0", "lr" },
		   UNS_DCP_IS_HYPER,
		   "opt",
		   NULL,
		   "lr",
		   UNS_ROLE_OTHER,
		   false } } },
	{ .name = "Composer",
	  .v = { { { "state", "model", "a.w" }, 0, "state.model", "a.w", NULL, UNS_ROLE_WEIGHT, false },
		 { { "state", "optimizers", "AdamW", "state", "a.w", "step" },
		   UNS_DCP_IS_STATE,
		   "AdamW",
		   "a.w",
		   "step",
		   UNS_ROLE_STEP,
		   false },
		 { { "state", "optimizers", "AdamW", "param_groups", "#0", "lr" },
		   UNS_DCP_IS_HYPER,
		   "AdamW",
		   NULL,
		   "lr",
		   UNS_ROLE_OTHER,
		   false } } },
	{ .name = "two other roots keep their names apart",
	  .v = { { { "net", "w" }, 0, "", "net.w", NULL, UNS_ROLE_WEIGHT, false },
		 { { "ema", "w" }, 0, "", "ema.w", NULL, UNS_ROLE_WEIGHT, false } } },
	{ .name = "a given root",
	  .given_root = "ema",
	  .v = { { { "model", "w" }, UNS_DCP_IS_OTHER, "model", "w", NULL, UNS_ROLE_OTHER, false },
		 { { "ema", "w" }, 0, "ema", "w", NULL, UNS_ROLE_WEIGHT, false } } },
	{ .name = "an optimizer alone",
	  .v = { { { "state", "w", "exp_avg" },
		   UNS_DCP_IS_STATE,
		   "optimizer",
		   "w",
		   "exp_avg",
		   UNS_ROLE_EXP_AVG,
		   false },
		 { { "param_groups", "#0", "lr" },
		   UNS_DCP_IS_HYPER,
		   "optimizer",
		   NULL,
		   "lr",
		   UNS_ROLE_OTHER,
		   false } } },
	{ .name = "no paths: cut at the first known root only",
	  .flat = true,
	  .v = { { { "model.layers.0.model.w" }, 0, "model", "layers.0.model.w", NULL, UNS_ROLE_WEIGHT, true },
		 { { "optimizer.state.model.w.exp_avg" },
		   UNS_DCP_IS_STATE,
		   "optimizer",
		   "model.w",
		   "exp_avg",
		   UNS_ROLE_EXP_AVG,
		   true } } },
	{ .name = "no paths: Megatron",
	  .flat = true,
	  .v = { { { "decoder.layers.w" }, 0, "", "decoder.layers.w", NULL, UNS_ROLE_WEIGHT, false },
		 { { "optimizer.state.exp_avg.decoder.layers.w" },
		   UNS_DCP_IS_STATE,
		   "optimizer",
		   "decoder.layers.w",
		   "exp_avg",
		   UNS_ROLE_EXP_AVG,
		   true },
		 { { "optimizer.state.fp32_param.decoder.layers.w" },
		   UNS_DCP_IS_STATE,
		   "optimizer",
		   "decoder.layers.w",
		   "fp32_param",
		   UNS_ROLE_MASTER,
		   true },
		 { { "chained_1.optimizer.state.param.decoder.layers.w" },
		   UNS_DCP_IS_STATE,
		   "optimizer",
		   "decoder.layers.w",
		   "param",
		   UNS_ROLE_MASTER,
		   true },
		 { { "optimizer.state.param.w.exp_avg" },
		   UNS_DCP_IS_STATE,
		   "optimizer",
		   "param.w",
		   "exp_avg",
		   UNS_ROLE_EXP_AVG,
		   true },
		 { { "chained_0.optimizer.distributed.bucket_idx_0.param" },
		   UNS_DCP_IS_OTHER,
		   "",
		   "chained_0.optimizer.distributed.bucket_idx_0.param",
		   NULL,
		   UNS_ROLE_OTHER,
		   false },
		 { { "rng_state/shard_0_1" },
		   UNS_DCP_IS_OTHER,
		   "",
		   "rng_state/shard_0_1",
		   NULL,
		   UNS_ROLE_OTHER,
		   false } } },
};

static size_t entries_of(const struct named *v, struct uns_arena *arena, struct uns_dcp_entry *out)
{
	struct uns_dcp_step *step;
	size_t n, k;

	for (n = 0; n < MAX_ENTRIES && v[n].path[0]; n++) {
		step = UNS_NEW_N(arena, struct uns_dcp_step, MAX_STEPS);
		out[n] = (struct uns_dcp_entry){ .path = step, .kind = UNS_DCP_TENSOR };
		for (k = 0; k < MAX_STEPS && v[n].path[k]; k++) {
			if (v[n].path[k][0] == '#')
				step[k].index = atoi(v[n].path[k] + 1);
			else
				step[k].key = v[n].path[k];
			out[n].key = k ? uns_arena_printf(arena, "%s.%s", out[n].key, v[n].path[k] + !step[k].key)
				       : v[n].path[0];
		}
		out[n].n_path = k;
	}
	return n;
}

static void same_str(const char *a, const char *b)
{
	if (!a || !b)
		assert_ptr_equal(a, b);
	else
		assert_string_equal(a, b);
}

static void reads_paths(void **state)
{
	struct uns_dcp_entry entry[MAX_ENTRIES];
	size_t i, k, n;

	(void)state;
	for (i = 0; i < sizeof(name_cases) / sizeof(*name_cases); i++) {
		struct uns_arena arena = UNS_ARENA_INIT;
		struct uns_dcp_roots roots = { .weights = name_cases[i].given_root ? &name_cases[i].given_root : NULL,
					       .n_weights = 1 };
		struct uns_dcp_metadata meta = { .entry = entry, .has_paths = !name_cases[i].flat };
		struct uns_dcp_naming naming;
		struct uns_dcp_meaning meaning;

		print_message("%s\n", name_cases[i].name);
		meta.n_entries = n = entries_of(name_cases[i].v, &arena, entry);
		assert_int_equal(uns_dcp_naming_init(&naming, &meta, &roots, &arena, NULL), 0);
		for (k = 0; k < n; k++) {
			const struct named *want = &name_cases[i].v[k];

			assert_int_equal(uns_dcp_meaning_of(&naming, &entry[k], entry[k].key, &meaning, NULL), 0);
			assert_int_equal(meaning.what, want->what);
			assert_int_equal(meaning.role, want->role);
			same_str(meaning.root, want->root);
			same_str(meaning.state, want->state);
			same_str(meaning.name, want->name ? want->name : entry[k].key);
			assert_int_equal(meaning.inferred, want->inferred);
		}
		uns_arena_fini(&arena);
	}
}

/* -- groups -- */

static const struct uns_value number_1 = { .kind = UNS_VALUE_INT, .i = 1 },
			      number_2 = { .kind = UNS_VALUE_INT, .i = 2 },
			      name_a = { .kind = UNS_VALUE_STR, .bytes = "a", .n = 1 },
			      name_b = { .kind = UNS_VALUE_STR, .bytes = "b", .n = 1 };
static const struct uns_value *list_a[] = { &name_a }, *list_b[] = { &name_b }, *list_1[] = { &number_1 },
			      *list_1a[] = { &number_1, &name_a };
static const struct uns_value params_a = { .kind = UNS_VALUE_LIST, .item = list_a, .n = 1 },
			      params_b = { .kind = UNS_VALUE_LIST, .item = list_b, .n = 1 },
			      params_1 = { .kind = UNS_VALUE_LIST, .item = list_1, .n = 1 },
			      params_1a = { .kind = UNS_VALUE_LIST, .item = list_1a, .n = 2 };

static const struct {
	const char *name;
	struct {
		const char *root;
		int64_t index;
		const char *param; /* instead of the index */
		const char *key;
		const struct uns_value *value;
	} v[6];
	size_t n_groups;
	const char *first_params; /* of each group, one letter each; '-' = none */
	const char *problem;
} group_cases[] = {
	{ "two groups, any order",
	  { { "optimizer", 1, NULL, "params", &params_b },
	    { "optimizer", 0, NULL, "lr", &number_1 },
	    { "optimizer", 1, NULL, "lr", &number_2 },
	    { "optimizer", 0, NULL, "params", &params_a } },
	  2,
	  "ab",
	  NULL },
	{ "a group is missing",
	  { { "optimizer", 1, NULL, "params", &params_b } },
	  1,
	  "-",
	  "param group 0 of optimizer is missing" },
	{ "no parameters",
	  { { "optimizer", 0, NULL, "lr", &number_1 } },
	  1,
	  "-",
	  "param group 0 of optimizer does not record which parameters" },
	{ "numbered parameters", { { "optimizer", 0, NULL, "params", &params_1 } }, 1, "1", NULL },
	{ "names and numbers in one group",
	  { { "optimizer", 0, NULL, "params", &params_1a } },
	  1,
	  "-",
	  "lists its parameters neither all by name nor all by number" },
	{ "a negative group",
	  { { "optimizer", -1, NULL, "params", &params_a } },
	  1,
	  "-",
	  "param group 0 of optimizer is missing" },
	{ "stored with each parameter",
	  { { "optimizer", 0, "a", "lr", &number_1 },
	    { "optimizer", 0, "b", "lr", &number_2 },
	    { "optimizer", 0, "c", "lr", &number_1 } },
	  2,
	  "ab",
	  "(2 groups)" },
	{ "two optimizers",
	  { { "optimizer_1", 0, NULL, "params", &params_b }, { "optimizer_0", 0, NULL, "params", &params_a } },
	  2,
	  "ab",
	  NULL },
};

static void collects_groups(void **state)
{
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(group_cases) / sizeof(*group_cases); i++) {
		struct uns_dcp_groups groups;
		struct uns_catalog *cat;

		print_message("%s\n", group_cases[i].name);
		assert_int_equal(uns_catalog_new("ckpt", &cat, NULL), 0);
		uns_dcp_groups_init(&groups, cat, "ckpt");
		for (k = 0; k < 6 && group_cases[i].v[k].root; k++) {
			if (group_cases[i].v[k].param)
				uns_dcp_groups_add_param_key(&groups, group_cases[i].v[k].root,
							     group_cases[i].v[k].param, group_cases[i].v[k].key,
							     group_cases[i].v[k].value, NULL);
			else
				uns_dcp_groups_add_key(&groups, group_cases[i].v[k].root, group_cases[i].v[k].index,
						       group_cases[i].v[k].key, group_cases[i].v[k].value, NULL);
		}
		assert_int_equal(uns_dcp_groups_finish(&groups, NULL), 0);
		assert_int_equal(cat->n_groups, group_cases[i].n_groups);
		for (k = 0; k < cat->n_groups; k++) {
			if (group_cases[i].first_params[k] == '-') {
				assert_int_equal(cat->groups[k].n_params, 0);
				continue;
			}
			assert_true(cat->groups[k].n_params > 0);
			assert_int_equal(cat->groups[k].param[0][0], group_cases[i].first_params[k]);
		}
		assert_int_equal(cat->n_findings, group_cases[i].problem != NULL);
		if (group_cases[i].problem)
			assert_non_null(strstr(said(&cat->findings[0]), group_cases[i].problem));
		uns_dcp_groups_fini(&groups);
		uns_catalog_free(cat);
	}
}

/* -- numbered states -- */

#define SHAPE1(a)                    \
	{                            \
		.n = 1, .dim = { a } \
	}
#define SHAPE2(a, b)                    \
	{                               \
		.n = 2, .dim = { a, b } \
	}

struct numbered_state {
	const char *param, *state;
	struct uns_shape shape;
};

/* Beside weights of 7 x 5 and 5. */
static const struct {
	const char *name;
	bool by_name, no_weights;
	struct numbered_state v[4];
	const char *problem;
} numbered_cases[] = {
	{ "shapes of weights",
	  .v = { { "0", "exp_avg", SHAPE2(7, 5) }, { "0", "step", { .n = 0 } }, { "1", "exp_avg", SHAPE1(5) } } },
	{ "steps alone", .v = { { "0", "step", { .n = 0 } } } },
	{ "rows and columns", .v = { { "0", "exp_avg_sq_row", SHAPE1(7) }, { "0", "exp_avg_sq_col", SHAPE1(5) } } },
	{ "rows and columns with a 1", .v = { { "0", "row_var", SHAPE2(7, 1) }, { "0", "col_var", SHAPE2(1, 5) } } },
	{ "one state of a weight's shape is enough",
	  .v = { { "0", "absmax1", SHAPE1(2) }, { "0", "state1", SHAPE2(7, 5) } } },
	{ "a flat parameter's part", .v = { { "0", "step", { .n = 0 } }, { "0", "exp_avg", SHAPE1(20) } },
	  .problem = "a state of the shape of 0|exp_avg, [20]: it may be" },
	{ "parts of two",
	  .v = { { "0", "exp_avg", SHAPE1(20) }, { "1", "exp_avg", SHAPE1(0) }, { "2", "exp_avg", SHAPE1(5) } },
	  .problem = "[20] and of 1 more: it may be" },
	{ "rows of one and columns of another parameter",
	  .v = { { "0", "exp_avg_sq_row", SHAPE1(7) }, { "1", "exp_avg_sq_col", SHAPE1(5) } },
	  .problem = "0|exp_avg_sq_row, [7]" },
	{ "names are not judged", .by_name = true, .v = { { "w", "exp_avg", SHAPE1(20) } } },
	{ "an optimizer without a model", .no_weights = true, .v = { { "0", "exp_avg", SHAPE1(20) } } },
};

static void add_shaped(struct uns_catalog *cat, const char *name, const char *state, enum uns_role role,
		       const struct uns_shape *shape)
{
	const struct uns_tensor t = { .name = name,
				      .root = state ? "optimizer" : "model",
				      .state = state,
				      .role = role,
				      .key = uns_arena_printf(&cat->arena, "%s|%s", name, state ? state : ""),
				      .dtype = UNS_F32,
				      .shape = *shape,
				      UNS_TENSOR_ALONE };

	assert_int_equal(uns_catalog_add_tensor(cat, &t, NULL, NULL), 0);
}

static void judges_numbered_states(void **state)
{
	static const struct uns_shape matrix = SHAPE2(7, 5), vector = SHAPE1(5);
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(numbered_cases) / sizeof(*numbered_cases); i++) {
		const struct numbered_state *v = numbered_cases[i].v;
		const struct uns_group group = { .root = "optimizer", .numbered = !numbered_cases[i].by_name };
		struct uns_catalog *cat;

		print_message("%s\n", numbered_cases[i].name);
		assert_int_equal(uns_catalog_new("ckpt", &cat, NULL), 0);
		assert_int_equal(uns_catalog_add_group(cat, &group, NULL), 0);
		if (!numbered_cases[i].no_weights) {
			add_shaped(cat, "w", NULL, UNS_ROLE_WEIGHT, &matrix);
			add_shaped(cat, "b", NULL, UNS_ROLE_WEIGHT, &vector);
		}
		for (k = 0; k < 4 && v[k].param; k++)
			add_shaped(cat, v[k].param, v[k].state, uns_role_of_state(v[k].state), &v[k].shape);
		assert_int_equal(uns_dcp_numbered_judge(cat, "ckpt", NULL), 0);
		assert_int_equal(cat->n_findings, numbered_cases[i].problem != NULL);
		if (numbered_cases[i].problem)
			assert_non_null(strstr(said(&cat->findings[0]), numbered_cases[i].problem));
		uns_catalog_free(cat);
	}
}

/* -- real directories -- */

static int key_cmp(const void *a, const void *b)
{
	const struct uns_tensor *const *x = a, *const *y = b;

	return strcmp((*x)->key, (*y)->key);
}

/* One line a tensor, sorted by key: what make.py's `expected` prints. */
static char *describe(const struct uns_catalog *cat)
{
	const struct uns_tensor **v = calloc(cat->n_tensors, sizeof(*v));
	size_t size = 0, i;
	char *text = NULL, shape[64];
	FILE *f = open_memstream(&text, &size);

	for (i = 0; i < cat->n_tensors; i++)
		v[i] = &cat->tensors[i];
	qsort(v, cat->n_tensors, sizeof(*v), key_cmp);
	for (i = 0; i < cat->n_tensors; i++)
		fprintf(f, "%s %s %s %u\n", v[i]->key, uns_dtype_info(v[i]->dtype)->torch,
			uns_shape_text(&v[i]->shape, shape, sizeof(shape)), v[i]->n_pieces);
	fclose(f);
	free(v);
	return text;
}

static struct uns_catalog *open_golden(const struct uns_root *root, const char *path)
{
	struct uns_catalog *cat;
	struct uns_err err = { 0 };
	size_t i;

	assert_int_equal(uns_catalog_new(path, &cat, NULL), 0);
	if (uns_dcp_dir_add(cat, root, path, "", NULL, &err) < 0 || uns_catalog_seal(cat, &err) < 0)
		fail_msg("%s", err.text);
	for (i = 0; i < cat->n_tensors; i++)
		if (uns_cover_check(cat, &cat->tensors[i], &err) < 0)
			fail_msg("%s", err.text);
	return cat;
}

static void reads_what_torch_reads(void **state)
{
	static const char *const name[] = { "zstd", "ranks", "torch2.2.2_lightning" };
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_root *root;
	size_t i;

	(void)state;
	assert_int_equal(uns_root_open(UNSHARD_GOLDEN "/dcp", NULL, &root, NULL), 0);
	for (i = 0; i < 3; i++) {
		struct uns_catalog *cat = open_golden(root, uns_path_join(&arena, name[i], "ckpt"));
		struct uns_span expected;
		char *text = describe(cat);

		assert_int_equal(uns_root_read_file(root, uns_path_join(&arena, name[i], "expected.txt"), 1 << 20,
						    &arena, &expected, NULL, NULL),
				 0);
		assert_string_equal(text, (const char *)expected.p);
		assert_int_equal(cat->n_findings, 0);
		free(text);
		uns_catalog_free(cat);
	}
	uns_root_close(root);
	uns_arena_fini(&arena);
}

static double hyper(const struct uns_catalog *cat, const char *key)
{
	double v = -1;

	assert_int_equal(cat->n_groups, 1);
	assert_true(uns_value_float(uns_value_get(cat->groups[0].hyper, key), &v));
	assert_null(uns_value_get(cat->groups[0].hyper, "params"));
	return v;
}

static void reads_groups_of_real_directories(void **state)
{
	struct uns_root *root;
	struct uns_catalog *cat;
	const struct uns_tensor *t;

	(void)state;
	assert_int_equal(uns_root_open(UNSHARD_GOLDEN "/dcp", NULL, &root, NULL), 0);

	cat = open_golden(root, "zstd/ckpt"); /* compressed items, below a wrapper */
	assert_true(hyper(cat, "lr") == 0.5);
	assert_int_equal(cat->groups[0].n_params, 4);
	assert_string_equal(cat->groups[0].param[3], "1.bias");
	t = uns_catalog_find(cat, UNS_ROLE_WEIGHT, "1.weight");
	assert_non_null(t);
	assert_int_equal(t->group, 0);
	assert_int_equal(t->position, 2);
	assert_int_equal(cat->pieces[t->first_piece].codec, UNS_CODEC_ZSTD);
	t = uns_catalog_find(cat, UNS_ROLE_EXP_AVG_SQ, "1.weight");
	assert_non_null(t);
	assert_string_equal(t->state, "exp_avg_sq");
	assert_int_equal(t->position, 2);
	uns_catalog_free(cat);

	cat = open_golden(root, "torch2.2.2_lightning/ckpt"); /* one item for all groups */
	assert_true(hyper(cat, "initial_lr") == 0.01);
	assert_int_equal(cat->groups[0].n_params, 6);
	assert_string_equal(cat->groups[0].root, "optimizer_0");
	t = uns_catalog_find(cat, UNS_ROLE_STEP, "net.fc.1.bias");
	assert_non_null(t);
	assert_int_equal(t->position, 5);
	assert_int_equal(cat->pieces[t->first_piece].rank, 0);
	uns_catalog_free(cat);
	uns_root_close(root);
}

/* -- damage -- */

static const struct {
	const char *name, *from;
	const char *command; /* in a copy of the directory */
	int code;            /* of opening it */
	const char *error, *problem, *cover;
	enum uns_scope scope; /* of the problem */
} damage_cases[] = {
	{ "no metadata", "zstd", "rm .metadata", -ENODATA, ".metadata is missing: the save did", NULL, NULL, 0 },
	{ "an interrupted save", "zstd", "mv .metadata .metadata.tmp", -ENODATA,
	  "(.metadata.tmp was found: the save was interrupted)", NULL, NULL, 0 },
	{ "no metadata of rank 0", "ranks", "rm __0.metadata", 0, NULL,
	  "__0.metadata is missing: what rank 0 saved is not known",
	  "w: rows 0 to 2 of 5 are in no shard (found rank 1)", UNS_SCOPE_ALL },
	{ "no metadata of the last rank", "ranks", "rm __1.metadata", 0, NULL,
	  "__1.metadata is missing: what rank 1 saved is not known",
	  "w: rows 3 to 4 of 5 are in no shard (found rank 0)", UNS_SCOPE_ALL },
	{ "a shard is missing", "ranks", "rm __1_0.distcp", 0, NULL, NULL,
	  "__1_0.distcp is missing: it holds rank 1's piece of w (shape [5, 3])", 0 },
	{ "a shard is cut", "ranks", "truncate -s 2000 __0_0.distcp", 0, NULL, NULL,
	  "__0_0.distcp is truncated: expected at least", 0 },
	{ "the groups' shard is missing", "zstd", "rm __0_0.distcp", 0, NULL, "__0_0.distcp is missing; copy it back",
	  "__0_0.distcp is missing: it holds rank 0's piece of app.model", UNS_SCOPE_OPTIMIZER },
	{ "cut metadata", "zstd", "truncate -s 3000 .metadata", -EBADMSG, ".metadata: ", NULL, NULL, 0 },
	{ "a weight's key is damaged in one place", "torch2.2.2_lightning",
	  "python3 -c \"b=bytearray(open('.metadata','rb').read());"
	  "i=b.index(b'model.net.buf');b[i]=ord('x');open('.metadata','wb').write(b)\"",
	  0, NULL, "'model.net.buf'", "xodel.net.buf: elements 0 to 6 of 7 are in no shard", UNS_SCOPE_ALL },
	{ "damaged groups", "zstd", "dd if=/dev/zero of=__0_0.distcp bs=100 seek=0 count=1 conv=notrunc 2>/dev/null", 0,
	  NULL, "damaged zstd frame", NULL, UNS_SCOPE_OPTIMIZER },
};

static void run(const char *dir, const char *format, const char *a, const char *b)
{
	char command[1024];
	int n = snprintf(command, sizeof(command), "cd %s && ", dir);

	snprintf(command + n, sizeof(command) - (size_t)n, "%s %s %s", format, a, b);
	assert_int_equal(system(command), 0);
}

static void check_damage(const struct uns_root *root, size_t i)
{
	struct uns_err err = { 0 }, cover = { 0 };
	struct uns_catalog *cat;
	size_t k;
	bool found = !damage_cases[i].problem;

	assert_int_equal(uns_catalog_new("ckpt", &cat, NULL), 0);
	assert_int_equal(uns_dcp_dir_add(cat, root, "ckpt", "", NULL, &err), damage_cases[i].code);
	if (damage_cases[i].error && !strstr(err.text, damage_cases[i].error))
		fail_msg("said: %s", err.text);
	assert_int_equal(uns_catalog_seal(cat, NULL), 0);
	for (k = 0; k < cat->n_findings; k++)
		found |= damage_cases[i].problem && strstr(said(&cat->findings[k]), damage_cases[i].problem) &&
			 cat->findings[k].scope == damage_cases[i].scope;
	if (!found)
		fail_msg("%zu problems, first: %s", cat->n_findings, cat->n_findings ? said(&cat->findings[0]) : "");
	for (k = 0; k < cat->n_tensors; k++)
		uns_cover_check(cat, &cat->tensors[k], &cover);
	if (damage_cases[i].cover && !strstr(cover.text, damage_cases[i].cover))
		fail_msg("said: %s", cover.text);
	assert_int_equal(cover.code != 0, damage_cases[i].cover != NULL);
	uns_catalog_free(cat);
}

static void names_damage(void **state)
{
	struct uns_root *root;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(damage_cases) / sizeof(*damage_cases); i++) {
		char dir[] = "/tmp/uns_dcp_XXXXXX", from[600];

		print_message("%s\n", damage_cases[i].name);
		assert_non_null(mkdtemp(dir));
		snprintf(from, sizeof(from), "%s/%s/ckpt", UNSHARD_GOLDEN "/dcp", damage_cases[i].from);
		run(".", "cp -r", from, dir);
		run(dir, "chmod -R u+w", "ckpt", "");
		run(dir, "cd ckpt &&", damage_cases[i].command, "");
		assert_int_equal(uns_root_open(dir, NULL, &root, NULL), 0);
		check_damage(root, i);
		uns_root_close(root);
		run("/tmp", "rm -r", dir, "");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_paths),
		cmocka_unit_test(collects_groups),
		cmocka_unit_test(judges_numbered_states),
		cmocka_unit_test(reads_what_torch_reads),
		cmocka_unit_test(reads_groups_of_real_directories),
		cmocka_unit_test(names_damage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
