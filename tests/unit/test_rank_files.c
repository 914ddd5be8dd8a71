/* ranks/files.c on what four ranks of torch 2.13 save (golden/rank_files/make.py), and on files
 * of the first torch versions that saved DTensors and ShardedTensors: tensors put together again must
 * be the full ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/cover.h"
#include "ranks/files.h"
#include "ranks/dtensor.h"
#include "wire/safetensors.h"
#include "said.h"

#define DIR UNSHARD_GOLDEN "/rank_files"

struct loaded {
	struct uns_root *root;
	struct uns_catalog *cat;
};

static void loaded_fini(struct loaded *l)
{
	uns_catalog_free(l->cat);
	uns_root_close(l->root);
}

typedef int add_fn(struct uns_catalog *cat, const struct uns_root *root, const struct uns_rank_file *files, size_t n,
		   struct uns_err *err);

/* Files PREFIX0.pt, PREFIX1.pt, ... */
static void load(struct loaded *l, const char *dir, const char *prefix, int n, add_fn *add)
{
	static char path[8][64]; /* outlives the call: messages may name it */
	struct uns_rank_file files[8];
	struct uns_err err = { 0 };
	int i;

	for (i = 0; i < n; i++) {
		snprintf(path[i], sizeof(path[i]), "%s%d.pt", prefix, i);
		files[i] = (struct uns_rank_file){ path[i], i };
	}
	*l = (struct loaded){ 0 };
	if (uns_root_open(dir, NULL, &l->root, &err) < 0 || uns_catalog_new("test", &l->cat, &err) < 0 ||
	    add(l->cat, l->root, files, (size_t)n, &err) < 0 || uns_catalog_seal(l->cat, &err) < 0)
		fail_msg("%s", err.text);
}

static void gather_piece(const struct loaded *l, const struct uns_tensor *t, const struct uns_piece *piece,
			 uint8_t *full)
{
	uint64_t size = uns_dtype_size(t->dtype), n = uns_box_elems(piece->box), i;
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_err err = { 0 };

	assert_int_equal(uns_root_open_file(l->root, l->cat->files[piece->file].path, &fd, NULL, &err), 0);
	for (i = 0; i < n; i++) {
		uint64_t rest = i, at = 0, from = 0, step = 1, dense = 1, x;
		uint32_t d;

		for (d = piece->box->n; d-- > 0;) {
			x = rest % piece->box->len[d];
			rest /= piece->box->len[d];
			at += (piece->box->lo[d] + x) * step;
			step *= t->shape.dim[d];
			from += x * (piece->stride_elems ? piece->stride_elems[d] : dense);
			dense *= piece->box->len[d];
		}
		assert_true((from + 1) * size <= piece->length_bytes);
		assert_int_equal(uns_fd_pread(fd, full + at * size, size, piece->offset_bytes + from * size, "", &err),
				 0);
	}
}

/* Every piece in turn, so that replicas are looked at too: the last one wins. */
static uint8_t *gather(const struct loaded *l, const struct uns_tensor *t)
{
	size_t bytes = uns_shape_elems(&t->shape) * uns_dtype_size(t->dtype);
	uint8_t *full = calloc(1, bytes + 1);
	struct uns_err err = { 0 };
	uint32_t i;

	assert_non_null(full);
	if (uns_cover_check(l->cat, t, &err) < 0)
		fail_msg("%s: %s", t->key, err.text);
	for (i = 0; i < t->n_pieces; i++)
		gather_piece(l, t, &l->cat->pieces[t->first_piece + i], full);
	return full;
}

static float number(const struct uns_tensor *t, const uint8_t *bytes, uint64_t i)
{
	uint32_t bits;
	float out;

	if (t->dtype == UNS_BF16)
		bits = (uint32_t)(bytes[2 * i] << 16 | (uint32_t)bytes[2 * i + 1] << 24);
	else
		memcpy(&bits, bytes + 4 * i, 4);
	memcpy(&out, &bits, 4);
	return out;
}

static void check_counts(const struct loaded *l, const struct uns_tensor *t)
{
	UNS_CLEANUP(uns_free_p) uint8_t *full = gather(l, t);
	uint64_t i;

	for (i = 0; i < uns_shape_elems(&t->shape); i++)
		if (number(t, full, i) != (float)i)
			fail_msg("%s: element %llu is %g", t->key, (unsigned long long)i, (double)number(t, full, i));
}

static const struct {
	const char *name;
	enum uns_dtype dtype;
	const char *shape;
	uint32_t pieces;
} model_cases[] = {
	{ "even", UNS_F32, "[8, 3]", 4 },
	{ "uneven", UNS_BF16, "[5, 3]", 3 },
	{ "tiny", UNS_F32, "[1]", 1 },
	{ "columns", UNS_F32, "[3, 5]", 3 },
	{ "tp", UNS_F32, "[7, 3]", 4 },
	{ "both", UNS_F32, "[5, 6]", 4 },
	{ "hsdp", UNS_F32, "[6, 2]", 4 },
	{ "loose", UNS_F32, "[9, 2]", 8 },
	{ "loose_columns", UNS_F32, "[6, 3]", 0 },
	{ "order", UNS_F32, "[7]", 4 },
	{ "transposed", UNS_F32, "[8, 2]", 4 },
	{ "replicated", UNS_F32, "[3]", 4 },
	{ "buffer", UNS_F32, "[4]", 4 },
	{ "tied", UNS_F32, "[8, 3]", 4 },
};

static void test_model(void **state)
{
	UNS_CLEANUP(loaded_fini) struct loaded l;
	char shape[64];
	size_t i;

	(void)state;
	load(&l, DIR, "model_rank_", 4, uns_rank_files_add_model);
	assert_int_equal(l.cat->n_tensors, 15);
	for (i = 0; i < sizeof(model_cases) / sizeof(model_cases[0]); i++) {
		const struct uns_tensor *t = uns_catalog_find(l.cat, UNS_ROLE_WEIGHT, model_cases[i].name);

		assert_non_null(t);
		assert_int_equal(t->dtype, model_cases[i].dtype);
		assert_string_equal(uns_shape_text(&t->shape, shape, sizeof(shape)), model_cases[i].shape);
		if (model_cases[i].pieces && t->n_pieces != model_cases[i].pieces)
			fail_msg("%s: %u pieces", t->key, t->n_pieces);
		assert_string_equal(t->root, "model");
		check_counts(&l, t);
	}
}

static void test_aliases_values_and_notes(void **state)
{
	UNS_CLEANUP(loaded_fini) struct loaded l;
	const struct uns_tensor *t;
	size_t i;

	(void)state;
	load(&l, DIR, "model_rank_", 4, uns_rank_files_add_model);
	for (i = 0; i < l.cat->n_tensors; i++) {
		t = &l.cat->tensors[i];
		if (strcmp(t->name, "tied") == 0)
			assert_string_equal(l.cat->tensors[t->alias_of].name, "even");
		else
			assert_int_equal(t->alias_of, UNS_NONE);
	}
	assert_int_equal(l.cat->n_values, 3);
	assert_string_equal(l.cat->values[0].name, "dtensor");
	assert_true(uns_dtensor_is(l.cat->values[0].value));
	assert_string_equal(l.cat->values[1].name, "state_dict");
	assert_string_equal(l.cat->values[2].name, "_extra_state");
	assert_int_equal(l.cat->n_findings, 1);
	assert_int_equal(l.cat->findings[0].scope, UNS_SCOPE_NOTE);
	assert_string_equal(said(&l.cat->findings[0]),
			    "differs differs between ranks; it is taken from model_rank_0.pt, not "
			    "model_rank_1.pt");
}

static void test_optimizer(void **state)
{
	UNS_CLEANUP(loaded_fini) struct loaded l;
	const struct uns_tensor *t;
	double lr;

	(void)state;
	load(&l, DIR, "optim_rank_", 4, uns_rank_files_add_optimizer);
	assert_int_equal(l.cat->n_findings, 0);
	assert_int_equal(l.cat->n_tensors, 7);
	t = uns_catalog_find(l.cat, UNS_ROLE_EXP_AVG_SQ, "tp");
	assert_non_null(t);
	assert_string_equal(t->key, "state.tp.exp_avg_sq");
	assert_string_equal(t->state, "exp_avg_sq");
	assert_int_equal(t->group, 0);
	assert_int_equal(t->position, 0);
	check_counts(&l, t);
	t = uns_catalog_find(l.cat, UNS_ROLE_STEP, "even");
	assert_non_null(t);
	assert_int_equal(t->shape.n, 0);
	assert_int_equal(t->position, 1);
	t = uns_catalog_find(l.cat, UNS_ROLE_OPTIM_OTHER, "tiny");
	assert_non_null(t);
	assert_string_equal(t->state, "momentum_buffer");
	assert_int_equal(t->group, 1);
	assert_int_equal(l.cat->n_groups, 2);
	assert_int_equal(l.cat->groups[0].n_params, 2);
	assert_string_equal(l.cat->groups[0].param[1], "even");
	assert_true(uns_value_float(uns_value_get(l.cat->groups[1].hyper, "lr"), &lr));
	assert_true(lr == 0.25);
	assert_null(uns_value_get(l.cat->groups[1].hyper, "params"));
	assert_int_equal(l.cat->n_values, 1);
	assert_string_equal(l.cat->values[0].name, "state.tiny.note");
}

/* -- older files, against the live tensors saved beside them -- */

static void check_older(const char *dir, const char *prefix, int n)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(loaded_fini) struct loaded l;
	struct uns_st_header want;
	struct uns_err err = { 0 };
	struct uns_span bytes;
	struct uns_reader r;
	size_t i;

	load(&l, dir, prefix, n, uns_rank_files_add_model);
	assert_int_equal(l.cat->n_findings, 0);
	assert_int_equal(uns_root_read_file(l.root, "model.safetensors", 1 << 20, &arena, &bytes, NULL, &err), 0);
	r = uns_reader_of_span(&bytes);
	assert_int_equal(uns_st_open(&r, &arena, &want, &err), 0);
	assert_int_equal(want.n, l.cat->n_tensors);
	for (i = 0; i < want.n; i++) {
		const struct uns_tensor *t = uns_catalog_find(l.cat, UNS_ROLE_WEIGHT, want.v[i].name);
		UNS_CLEANUP(uns_free_p) uint8_t *full = NULL;

		assert_non_null(t);
		full = gather(&l, t);
		assert_int_equal(t->dtype, want.v[i].dtype);
		assert_memory_equal(full, bytes.p + want.data_bytes + want.v[i].begin_bytes,
				    want.v[i].end_bytes - want.v[i].begin_bytes);
	}
}

static void test_older(void **state)
{
	(void)state;
	check_older(DIR "/torch2.0.1", "model_world_size_2_rank_", 2);
	check_older(DIR "/torch2.1.2", "model_world_size_3_rank_", 3);
}

/* -- problems -- */

#define AGAIN "; copy the file again from the training machine"
#define ONE_DTYPE                                                                                 \
	"; --repair OUT writes a copy with one dtype for all ranks where most of them agree; or " \
	"copy the file again from the training machine, or resume from the checkpoint before it"
#define OR_BEFORE AGAIN ", or resume from the checkpoint before it"

static const struct {
	const char *prefix;
	int n;
	add_fn *add;
	enum uns_scope scope;
	int code;
	const char *text;
} problem_cases[] = {
	{ "unlike_rank_", 2, uns_rank_files_add_model, UNS_SCOPE_WEIGHTS, -ENOTSUP,
	  "unlike_rank_1.pt: w differs from the tensor of that name and shape in "
	  "unlike_rank_0.pt, and neither file records which piece of the tensor it holds" },
	{ "shapes_rank_", 2, uns_rank_files_add_model, UNS_SCOPE_WEIGHTS, -EBADMSG,
	  "shapes_rank_1.pt: w is a plain tensor of shape [5] here, but a plain one of shape [4] "
	  "in shapes_rank_0.pt" OR_BEFORE },
	{ "types_rank_", 2, uns_rank_files_add_model, UNS_SCOPE_WEIGHTS, -EBADMSG,
	  "types_rank_1.pt: dtype mismatch in w: float16 here, float32 in types_rank_0.pt" ONE_DTYPE },
	{ "shapes_rank_", 3, uns_rank_files_add_model, UNS_SCOPE_WEIGHTS, -ENODATA,
	  "shapes_rank_2.pt is missing: it holds rank 2's pieces; copy it back from the training machine" },
	{ "optim_rank_", 1, uns_rank_files_add_model, UNS_SCOPE_WEIGHTS, -ENOTSUP,
	  "optim_rank_0.pt: the file holds no tensors by name" },
	{ "model_rank_", 1, uns_rank_files_add_optimizer, UNS_SCOPE_OPTIMIZER, -ENOTSUP,
	  "model_rank_0.pt: the file holds no optimizer state dict" },
};

static void test_problems(void **state)
{
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(problem_cases) / sizeof(problem_cases[0]); i++) {
		UNS_CLEANUP(loaded_fini) struct loaded l;
		const struct uns_finding *p = NULL;

		load(&l, DIR, problem_cases[i].prefix, problem_cases[i].n, problem_cases[i].add);
		for (k = 0; k < l.cat->n_findings; k++)
			if (l.cat->findings[k].code == problem_cases[i].code)
				p = &l.cat->findings[k];
		assert_non_null(p);
		assert_int_equal(p->scope, problem_cases[i].scope);
		assert_string_equal(said(p), problem_cases[i].text);
	}
}

static void load_one(struct loaded *l, const char *path, int rank, add_fn *add)
{
	struct uns_rank_file file = { path, rank };
	struct uns_err err = { 0 };

	*l = (struct loaded){ 0 };
	if (uns_root_open(DIR, NULL, &l->root, &err) < 0 || uns_catalog_new("test", &l->cat, &err) < 0 ||
	    add(l->cat, l->root, &file, 1, &err) < 0)
		fail_msg("%s", err.text);
}

static void expect_problem(const struct loaded *l, const char *text)
{
	size_t i;

	for (i = 0; i < l->cat->n_findings; i++)
		if (strcmp(said(&l->cat->findings[i]), text) == 0)
			return;
	for (i = 0; i < l->cat->n_findings; i++)
		print_message("%s\n", said(&l->cat->findings[i]));
	fail_msg("no problem says: %s", text);
}

static void test_odd_tensors(void **state)
{
	UNS_CLEANUP(loaded_fini) struct loaded l;

	(void)state;
	load_one(&l, "odd_rank_1.pt", 1, uns_rank_files_add_model);
	assert_int_equal(l.cat->n_findings, 3);
	expect_problem(&l, "odd_rank_1.pt: partial: a DTensor with the placement "
			   "torch.distributed.tensor.placement_types.Partial, which does not "
			   "record where its data are (and 1 more of its tensors)");
	expect_problem(&l, "odd_rank_1.pt: shape: this rank holds a piece of shape [3]; expected "
			   "[2]" AGAIN);
	expect_problem(&l, "odd_rank_1.pt: dtype mismatch in dtype: declared float32, stored "
			   "bfloat16" ONE_DTYPE);
}

static void test_numbered_optimizer(void **state)
{
	UNS_CLEANUP(loaded_fini) struct loaded l;

	(void)state;
	load_one(&l, "numbers.pt", 0, uns_rank_files_add_optimizer);
	assert_int_equal(l.cat->n_findings, 1);
	expect_problem(&l, "numbers.pt: the optimizer state is keyed by parameter numbers, and no "
			   "file records which parameter has which number");
}

static void test_renamed_file(void **state)
{
	UNS_CLEANUP(loaded_fini) struct loaded l;

	(void)state;
	load_one(&l, "model_rank_2.pt", 0, uns_rank_files_add_model);
	assert_int_equal(l.cat->n_findings, 1);
	assert_int_equal(l.cat->findings[0].scope, UNS_SCOPE_SHARDED);
	expect_problem(&l, "model_rank_2.pt is named rank 0, but its content is rank 2's: the "
			   "mount shows the right data, a trainer that resumes from these files "
			   "would load another rank's; rename the files back, or copy them again "
			   "from the training machine");
}

static void test_missing_rank_leaves_a_hole(void **state)
{
	UNS_CLEANUP(loaded_fini) struct loaded l;
	struct uns_err err = { 0 };

	(void)state;
	load(&l, DIR, "model_rank_", 3, uns_rank_files_add_model);
	assert_true(uns_cover_check(l.cat, uns_catalog_find(l.cat, UNS_ROLE_WEIGHT, "even"), &err) < 0);
	assert_non_null(strstr(err.text, "rows 6 to 7 of 8 are in no shard"));
	err.code = 0;
	assert_int_equal(uns_cover_check(l.cat, uns_catalog_find(l.cat, UNS_ROLE_WEIGHT, "uneven"), &err), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model),
		cmocka_unit_test(test_aliases_values_and_notes),
		cmocka_unit_test(test_optimizer),
		cmocka_unit_test(test_older),
		cmocka_unit_test(test_problems),
		cmocka_unit_test(test_odd_tensors),
		cmocka_unit_test(test_numbered_optimizer),
		cmocka_unit_test(test_renamed_file),
		cmocka_unit_test(test_missing_rank_leaves_a_hole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
