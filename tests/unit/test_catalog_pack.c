/* Catalogs as bytes and back: nothing is lost, and bytes that are cut or changed are refused or give
 * a catalog that holds together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "formats/format.h"
#include "model/catalog_pack.h"
#include "model/cover.h"
#include "files/describe.h"
#include "shell.h"
#include "wire/value_new.h"
#include "said.h"

/* clang-format off: tables, a case a row */

struct fixture {
	char dir[32];
	struct uns_root *root;
};

static int setup(void **state)
{
	static struct fixture f;

	strcpy(f.dir, "/tmp/uns_pack_XXXXXX");
	assert_non_null(mkdtemp(f.dir));
	shell(f.dir, "head -c 4096 /dev/zero > a.bin && head -c 100 /dev/zero > b.bin");
	assert_int_equal(uns_root_open(f.dir, NULL, &f.root, NULL), 0);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	uns_root_close(f->root);
	shell(f->dir, "rm -r ../$(basename $PWD)");
	return 0;
}

/* One of everything. */
static struct uns_catalog *example(const struct fixture *f)
{
	static const char *const params[] = { "w", "other" };
	static const struct uns_item_part part = { 3, 19 };
	static const uint64_t strides[] = { 1, 4 };
	struct uns_catalog *cat;
	struct uns_value *dict, *list;
	uint32_t a, b, gone;

	assert_int_equal(uns_catalog_new("", &cat, NULL), 0);
	cat->summary = (struct uns_summary){ .format = "hf_fsdp",
					     .framework = "Hugging Face",
					     .step = 200,
					     .world_size = 4,
					     .finished = true,
					     .units = "assumed: so",
					     .family = UNS_FAMILY_RANKS,
					     .resumed_by = UNS_BY_TRAINER | UNS_BY_ENGINE,
					     .tracker = UNS_TRACKER_EASYR1,
					     .tracker_up = 2,
					     .is_one_file = true,
					     .wants_config = true,
					     .is_round_robin = true };
	assert_int_equal(uns_catalog_add_file(cat, f->root, "a.bin", &a, NULL), 0);
	assert_int_equal(uns_catalog_add_file(cat, f->root, "b.bin", &b, NULL), 0);
	assert_int_equal(uns_catalog_add_file(cat, f->root, "gone.bin", &gone, NULL), 0);
	uns_catalog_add_tensor(cat,
			       &(struct uns_tensor){ .name = "w",
						     .key = "model.w",
						     .root = "model",
						     .role = UNS_ROLE_WEIGHT,
						     .dtype = UNS_F32,
						     .shape = { 2, { 4, 4 } },
						     .group = 0,
						     .position = 0,
						     .alias_of = UNS_NONE,
						     .inferred = true,
						     .strange = true },
			       NULL, NULL);
	uns_catalog_add_piece(cat,
			      &(struct uns_piece){ .kind = UNS_PIECE_BOX,
						   .box = &(struct uns_box){ 2, { 0, 0 }, { 2, 4 } },
						   .file = a,
						   .rank = 0,
						   .container = UNS_RAW,
						   .offset_bytes = 64,
						   .length_bytes = 32 },
			      NULL);
	uns_catalog_add_piece(cat,
			      &(struct uns_piece){ .kind = UNS_PIECE_BOX,
						   .box = &(struct uns_box){ 2, { 2, 0 }, { 2, 4 } },
						   .file = a,
						   .rank = 1,
						   .container = UNS_RAW,
						   .offset_bytes = 128,
						   .length_bytes = 64,
						   .stride_elems = strides },
			      NULL);
	uns_catalog_add_tensor(cat,
			       &(struct uns_tensor){ .name = "w",
						     .key = "optimizer.w.exp_avg",
						     .root = "optimizer",
						     .state = "exp_avg",
						     .role = UNS_ROLE_EXP_AVG,
						     .dtype = UNS_BF16,
						     .shape = { 1, { 16 } },
						     .group = -1,
						     .position = -1,
						     .alias_of = UNS_NONE },
			       NULL, NULL);
	uns_catalog_add_piece(cat,
			      &(struct uns_piece){ .kind = UNS_PIECE_RANGE,
						   .range = { 0, 16 },
						   .file = gone,
						   .rank = -1,
						   .container = UNS_TORCH_ITEM,
						   .codec = UNS_CODEC_ZSTD,
						   .offset_bytes = UINT64_C(1) << 40,
						   .length_bytes = 999 },
			      NULL);
	uns_catalog_add_tensor(cat,
			       &(struct uns_tensor){ .name = "w",
						     .key = "optimizer.w.exp_avg_sq",
						     .root = "optimizer",
						     .state = "exp_avg_sq",
						     .role = UNS_ROLE_EXP_AVG_SQ,
						     .dtype = UNS_F32,
						     .shape = { 2, { 4, 4 } },
						     .group = -1,
						     .position = -1,
						     .alias_of = UNS_NONE },
			       NULL, NULL);
	uns_catalog_add_piece(cat,
			      &(struct uns_piece){ .kind = UNS_PIECE_BOX,
						   .box = &(struct uns_box){ 2, { 0, 0 }, { 4, 4 } },
						   .file = a,
						   .rank = 0,
						   .container = UNS_TORCH_ITEM,
						   .offset_bytes = 64,
						   .length_bytes = 999,
						   .part = &part },
			      NULL);
	uns_catalog_add_tensor(cat,
			       &(struct uns_tensor){ .name = "tied",
						     .key = "model.tied",
						     .root = "model",
						     .role = UNS_ROLE_WEIGHT,
						     .dtype = UNS_F32,
						     .shape = { 2, { 4, 4 } },
						     .group = -1,
						     .position = -1,
						     .alias_of = 0 },
			       NULL, NULL);
	dict = uns_value_new_dict(&cat->arena, 2);
	list = uns_value_new_list(&cat->arena, 3);
	uns_value_append(list, uns_value_new_int(&cat->arena, -5));
	uns_value_append(list, uns_value_new_none(&cat->arena));
	uns_value_append(list, uns_value_new_bool(&cat->arena, true));
	uns_value_put(dict, uns_value_new_str(&cat->arena, "lr"), uns_value_new_float(&cat->arena, 1e-4));
	uns_value_put(dict, uns_value_new_str(&cat->arena, "betas"), list);
	uns_catalog_add_group(cat, &(struct uns_group){ dict, (const char **)params, 2, "optimizer", true, true, true },
			      NULL);
	uns_catalog_add_value(
		cat, &(struct uns_named_value){ .name = "step", .root = "optimizer", .value = list, .file = UNS_NONE },
		NULL);
	uns_catalog_add_value(cat,
			      &(struct uns_named_value){
				      .name = "late", .root = "", .file = b, .offset_bytes = 3, .length_bytes = 4 },
			      NULL);
	uns_catalog_add_companion(cat, "config.json", b, false, NULL);
	uns_catalog_add_companion(cat, ".metadata", a, true, NULL);
	uns_catalog_add_finding(cat,
				UNS_FINDING(.id = UNS_FOUND_SHARD_CUT, .scope = UNS_SCOPE_OPTIMIZER, .file = "a",
					    .rank = uns_num(3), .tensor = "w", .expected = uns_num(UINT64_C(1) << 40),
					    .found = uns_num(7),
					    .arg = { { "shape", uns_str("[4, 3]") }, { "n", uns_num(2) } }),
				NULL);
	assert_int_equal(uns_catalog_seal(cat, NULL), 0);
	return cat;
}

static void same_value(const struct uns_value *a, const struct uns_value *b)
{
	size_t i;

	assert_int_equal(!a, !b);
	if (!a)
		return;
	assert_int_equal(a->kind, b->kind);
	if (a->kind == UNS_VALUE_INT)
		assert_int_equal(a->i, b->i);
	if (a->kind == UNS_VALUE_BOOL)
		assert_int_equal(a->b, b->b);
	if (a->kind == UNS_VALUE_FLOAT)
		assert_memory_equal(&a->f, &b->f, sizeof(a->f));
	if (a->kind == UNS_VALUE_STR) {
		assert_int_equal(a->n, b->n);
		assert_memory_equal(a->bytes, b->bytes, a->n);
	}
	if (a->kind == UNS_VALUE_LIST || a->kind == UNS_VALUE_TUPLE) {
		assert_int_equal(a->n, b->n);
		for (i = 0; i < a->n; i++)
			same_value(a->item[i], b->item[i]);
	}
	if (a->kind == UNS_VALUE_DICT) {
		assert_int_equal(a->n, b->n);
		for (i = 0; i < a->n; i++) {
			same_value(a->pair[i].key, b->pair[i].key);
			same_value(a->pair[i].value, b->pair[i].value);
		}
	}
	same_value(a->state, b->state);
}

/* What `show` and tensors.json say covers tensors, pieces, files and facts. */
static void same_description(const struct uns_catalog *a, const struct uns_catalog *b)
{
	struct uns_text x = UNS_TEXT_INIT, y = UNS_TEXT_INIT;

	uns_describe_info(&x, a, NULL, 0, &(struct uns_findings){ a->findings, a->n_findings, 0 });
	uns_describe_tensors(&x, a);
	uns_describe_info(&y, b, NULL, 0, &(struct uns_findings){ b->findings, b->n_findings, 0 });
	uns_describe_tensors(&y, b);
	assert_string_equal(x.p, y.p);
	uns_text_fini(&x);
	uns_text_fini(&y);
}

static void same_pieces(const struct uns_catalog *a, const struct uns_catalog *b)
{
	size_t i, d;

	assert_int_equal(a->n_pieces, b->n_pieces);
	for (i = 0; i < a->n_pieces; i++) {
		struct uns_piece x = a->pieces[i], y = b->pieces[i];

		assert_int_equal(uns_piece_is_strided(&x), uns_piece_is_strided(&y));
		for (d = 0; uns_piece_is_strided(&x) && d < x.box->n; d++)
			assert_int_equal(x.stride_elems[d], y.stride_elems[d]);
		assert_int_equal(!uns_piece_part(&x), !uns_piece_part(&y));
		if (uns_piece_part(&x))
			assert_memory_equal(x.part, y.part, sizeof(*x.part));
		assert_int_equal(x.kind, y.kind);
		assert_int_equal(x.file, y.file);
		assert_int_equal(x.rank, y.rank);
		assert_int_equal(x.container, y.container);
		assert_int_equal(x.codec, y.codec);
		assert_int_equal(x.offset_bytes, y.offset_bytes);
		assert_int_equal(x.length_bytes, y.length_bytes);
		if (x.kind == UNS_PIECE_RANGE)
			assert_memory_equal(&x.range, &y.range, sizeof(x.range));
		else
			assert_memory_equal(x.box, y.box, sizeof(*x.box));
	}
}

static void same(const struct uns_catalog *a, const struct uns_catalog *b)
{
	size_t i, k;

	same_description(a, b);
	same_pieces(a, b);
	assert_int_equal(a->summary.finished, b->summary.finished);
	assert_int_equal(a->summary.family, b->summary.family);
	assert_int_equal(a->summary.resumed_by, b->summary.resumed_by);
	assert_int_equal(a->summary.tracker, b->summary.tracker);
	assert_int_equal(a->summary.tracker_up, b->summary.tracker_up);
	assert_int_equal(a->summary.of_trainer, b->summary.of_trainer);
	assert_int_equal(a->summary.is_one_file, b->summary.is_one_file);
	assert_int_equal(a->summary.is_weights_only, b->summary.is_weights_only);
	assert_int_equal(a->summary.is_in_parts, b->summary.is_in_parts);
	assert_int_equal(a->summary.is_published, b->summary.is_published);
	assert_int_equal(a->summary.is_pretrained, b->summary.is_pretrained);
	assert_int_equal(a->summary.is_pipeline, b->summary.is_pipeline);
	assert_int_equal(a->summary.wants_config, b->summary.wants_config);
	assert_int_equal(a->summary.has_rng_of_ranks, b->summary.has_rng_of_ranks);
	assert_int_equal(a->summary.has_engine_state, b->summary.has_engine_state);
	assert_int_equal(a->summary.is_round_robin, b->summary.is_round_robin);
	assert_int_equal(a->n_files, b->n_files);
	for (i = 0; i < a->n_files; i++) {
		assert_string_equal(a->files[i].path, b->files[i].path);
		assert_int_equal(a->files[i].missing, b->files[i].missing);
		assert_true(a->files[i].missing || uns_identity_equal(&a->files[i].stat.id, &b->files[i].stat.id));
	}
	assert_int_equal(a->n_groups, b->n_groups);
	for (i = 0; i < a->n_groups; i++) {
		assert_string_equal(a->groups[i].root, b->groups[i].root);
		assert_int_equal(a->groups[i].n_params, b->groups[i].n_params);
		assert_true(a->groups[i].guessed == b->groups[i].guessed);
		assert_true(a->groups[i].bare == b->groups[i].bare);
		assert_true(a->groups[i].numbered == b->groups[i].numbered);
		for (k = 0; k < a->groups[i].n_params; k++)
			assert_string_equal(a->groups[i].param[k], b->groups[i].param[k]);
		same_value(a->groups[i].hyper, b->groups[i].hyper);
	}
	assert_int_equal(a->n_values, b->n_values);
	for (i = 0; i < a->n_values; i++) {
		assert_string_equal(a->values[i].name, b->values[i].name);
		assert_int_equal(a->values[i].file, b->values[i].file);
		assert_int_equal(a->values[i].length_bytes, b->values[i].length_bytes);
		same_value(a->values[i].value, b->values[i].value);
	}
	assert_int_equal(a->n_companions, b->n_companions);
	for (i = 0; i < a->n_companions; i++) {
		assert_string_equal(a->companions[i].name, b->companions[i].name);
		assert_int_equal(a->companions[i].shard, b->companions[i].shard);
		assert_int_equal(a->companions[i].of_model, b->companions[i].of_model);
	}
	assert_int_equal(a->n_findings, b->n_findings);
	for (i = 0; i < a->n_findings; i++) {
		assert_string_equal(said(&a->findings[i]), said(&b->findings[i]));
		assert_int_equal(a->findings[i].code, b->findings[i].code);
		assert_int_equal(a->findings[i].scope, b->findings[i].scope);
		assert_int_equal(a->findings[i].severity, b->findings[i].severity);
		assert_true(uns_finding_equal(&a->findings[i], &b->findings[i]));
	}
	for (i = 0; i < a->n_tensors; i++) {
		assert_int_equal(a->tensors[i].alias_of, b->tensors[i].alias_of);
		assert_int_equal(a->tensors[i].group, b->tensors[i].group);
		assert_int_equal(a->tensors[i].position, b->tensors[i].position);
		assert_int_equal(a->tensors[i].inferred, b->tensors[i].inferred);
		assert_int_equal(a->tensors[i].strange, b->tensors[i].strange);
	}
}

static void there_and_back(void **state)
{
	const struct fixture *f = *state;
	struct uns_catalog *cat = example(f), *back;
	struct uns_text bytes = UNS_TEXT_INIT;
	struct uns_err err = { 0 };

	assert_int_equal(uns_catalog_pack(cat, f->root, &bytes, NULL), 0);
	assert_int_equal(uns_catalog_new("", &back, NULL), 0);
	if (uns_catalog_unpack(uns_span_of(bytes.p, bytes.len), f->root, back, &err) < 0)
		fail_msg("%s", err.text);
	same(cat, back);
	uns_catalog_free(cat);
	uns_catalog_free(back);
	uns_text_fini(&bytes);
}

/* A real checkpoint, as its format opens it. */
static void real_checkpoint(void **state)
{
	extern const struct uns_format uns_format_hf_fsdp;
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_text bytes = UNS_TEXT_INIT;
	struct uns_directory dir = { .path = "checkpoint-2" };
	const struct uns_format_options options = { 0 };
	struct uns_catalog *cat, *back;
	struct uns_listing list;
	struct uns_root *root;
	struct uns_err err = { 0 };

	(void)state;
	assert_int_equal(uns_root_open(UNSHARD_GOLDEN "/run", NULL, &root, NULL), 0);
	assert_int_equal(uns_root_list(root, dir.path, &arena, &list, NULL), 0);
	dir.root = root;
	dir.list = &list;
	assert_int_equal(uns_catalog_new(dir.path, &cat, NULL), 0);
	assert_int_equal(uns_catalog_new(dir.path, &back, NULL), 0);
	if (uns_format_hf_fsdp.open(&dir, &options, cat, &err) < 0 || uns_catalog_pack(cat, root, &bytes, &err) < 0 ||
	    uns_catalog_unpack(uns_span_of(bytes.p, bytes.len), root, back, &err) < 0)
		fail_msg("%s", err.text);
	assert_true(cat->n_tensors > 10 && cat->n_groups > 0);
	same(cat, back);
	uns_catalog_free(cat);
	uns_catalog_free(back);
	uns_text_fini(&bytes);
	uns_arena_fini(&arena);
	uns_root_close(root);
}

/* Packed where the run is SOURCE, and read where the checkpoint is. A finding's file is seen from there. */
static void anywhere(void **state)
{
	extern const struct uns_format uns_format_hf_fsdp;
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_text bytes = UNS_TEXT_INIT, again = UNS_TEXT_INIT;
	struct uns_directory dir = { .path = "checkpoint-2" };
	const struct uns_format_options options = { 0 };
	struct uns_catalog *cat, *back;
	struct uns_root *run, *own;
	struct uns_listing list;
	struct uns_err err = { 0 };

	(void)state;
	assert_int_equal(uns_root_open(UNSHARD_GOLDEN "/run", NULL, &run, NULL), 0);
	assert_int_equal(uns_root_open(UNSHARD_GOLDEN "/run/checkpoint-2", NULL, &own, NULL), 0);
	assert_int_equal(uns_root_list(run, dir.path, &arena, &list, NULL), 0);
	dir.root = run;
	dir.list = &list;
	assert_int_equal(uns_catalog_new(dir.path, &cat, NULL), 0);
	assert_int_equal(uns_catalog_new("", &back, NULL), 0);
	if (uns_format_hf_fsdp.open(&dir, &options, cat, &err) < 0 ||
	    UNS_ADD_FINDING(cat, &err, FILE_MISSING, .file = "checkpoint-2/x/y") < 0 ||
	    uns_catalog_pack_anywhere(cat, run, &bytes, &err) < 0 ||
	    uns_catalog_unpack_anywhere(uns_span_of(bytes.p, bytes.len), own, back, &err) < 0 ||
	    uns_catalog_pack_anywhere(back, own, &again, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(bytes.len, again.len);
	assert_memory_equal(bytes.p, again.p, bytes.len);
	assert_int_equal(back->n_tensors, cat->n_tensors);
	assert_string_equal(back->findings[back->n_findings - 1].file, "x/y");
	assert_string_equal(back->findings[back->n_findings - 1].checkpoint, "");
	cat->files[cat->pieces[0].file].stat.id.size = 1; /* a shard that was cut */
	assert_int_equal(uns_catalog_pack_anywhere(cat, run, &again, &err), -ENOTSUP);
	uns_catalog_free(cat);
	uns_catalog_free(back);
	uns_text_fini(&bytes);
	uns_text_fini(&again);
	uns_arena_fini(&arena);
	uns_root_close(run);
	uns_root_close(own);
}

/* A tensor of 64 elements, in `n` pieces of a.bin; the last one begins there `late` bytes later than it could. */
static void add_cut(struct uns_catalog *cat, const char *name, uint64_t rows, unsigned n, uint64_t late)
{
	const uint64_t columns = 64 / rows;
	unsigned i;

	uns_catalog_add_tensor(cat,
			       &(struct uns_tensor){ .name = name,
						     .key = name,
						     .root = "",
						     .role = UNS_ROLE_WEIGHT,
						     .dtype = UNS_F32,
						     .shape = { 2, { rows, columns } },
						     UNS_TENSOR_ALONE },
			       NULL, NULL);
	for (i = 0; i < n; i++)
		uns_catalog_add_piece(
			cat,
			&(struct uns_piece){
				.kind = UNS_PIECE_BOX,
				.box = &(struct uns_box){ 2, { i * (rows / n), 0 }, { rows / n, columns } },
				.rank = (int32_t)i,
				.container = UNS_RAW,
				.offset_bytes = i * 256 / n + (i + 1 == n ? late : 0),
				.length_bytes = 256 / n },
			NULL);
}

/* Tensors that are cut like one before: what holds of the one need not hold of the other. */
static void cut_alike(void **state)
{
	static const struct {
		const char *name;
		uint64_t rows, late;
		unsigned n;
		bool whole;
	} tensor[] = {
		{ "first", 16, 0, 8, true },
		{ "alike", 16, 0, 8, true },
		{ "behind the end", 16, 5000, 8, false },
		{ "of another shape", 8, 0, 8, true },
		{ "cut in four", 16, 0, 4, true },
		{ "alike too", 16, 64, 8, true },
		{ "like four", 16, 32, 4, true },
		{ "none", 16, 0, 0, false },
		{ "in one", 16, 0, 1, true },
	};
	const size_t n = sizeof(tensor) / sizeof(*tensor);
	const struct fixture *f = *state;
	struct uns_text bytes = UNS_TEXT_INIT, again = UNS_TEXT_INIT;
	struct uns_catalog *cat, *back;
	struct uns_err err = { 0 };
	uint32_t id;
	size_t i;

	assert_int_equal(uns_catalog_new("", &cat, NULL), 0);
	assert_int_equal(uns_catalog_new("", &back, NULL), 0);
	assert_int_equal(uns_catalog_add_file(cat, f->root, "a.bin", &id, NULL), 0);
	for (i = 0; i < n; i++)
		add_cut(cat, tensor[i].name, tensor[i].rows, tensor[i].n, tensor[i].late);
	assert_int_equal(uns_catalog_seal(cat, NULL), 0);
	assert_int_equal(uns_catalog_pack(cat, f->root, &bytes, NULL), 0);
	if (uns_catalog_unpack(uns_span_of(bytes.p, bytes.len), f->root, back, &err) < 0)
		fail_msg("%s", err.text);
	same(cat, back);
	for (i = 0; i < n; i++) {
		assert_int_equal(uns_cover_check(cat, &cat->tensors[i], NULL) == 0, tensor[i].whole);
		assert_int_equal(uns_cover_check(back, &back->tensors[i], NULL) == 0, tensor[i].whole);
		assert_int_equal(uns_catalog_is_proven(back, &back->tensors[i]), tensor[i].whole);
		assert_false(uns_catalog_is_proven(cat, &cat->tensors[i]));
	}
	assert_int_equal(uns_catalog_pack(back, f->root, &again, NULL), 0);
	assert_int_equal(bytes.len, again.len);
	assert_memory_equal(bytes.p, again.p, bytes.len);
	uns_catalog_free(cat);
	uns_catalog_free(back);
	uns_text_fini(&bytes);
	uns_text_fini(&again);
}

/* A tensor more of 8 pieces is a few bytes, not 8 times a few. */
static void what_is_cut_alike_is_short(void **state)
{
	const struct fixture *f = *state;
	struct uns_text bytes = UNS_TEXT_INIT;
	struct uns_catalog *cat;
	size_t before = 0;
	unsigned n, i;
	char name[16];
	uint32_t id;

	for (n = 50; n <= 100; n += 50) {
		assert_int_equal(uns_catalog_new("", &cat, NULL), 0);
		assert_int_equal(uns_catalog_add_file(cat, f->root, "a.bin", &id, NULL), 0);
		for (i = 0; i < n; i++) {
			snprintf(name, sizeof(name), "t%u", i);
			add_cut(cat, uns_arena_str(&cat->arena, name), 16, 8, 0);
		}
		assert_int_equal(uns_catalog_seal(cat, NULL), 0);
		uns_text_fini(&bytes);
		bytes = UNS_TEXT_INIT;
		assert_int_equal(uns_catalog_pack(cat, f->root, &bytes, NULL), 0);
		uns_catalog_free(cat);
		if (!before)
			before = bytes.len;
	}
	assert_true(bytes.len - before < 50 * 40);
	uns_text_fini(&bytes);
}

static int unpack(const struct fixture *f, const char *p, size_t n, struct uns_err *err)
{
	char *copy = malloc(n + !n); /* so that a sanitizer sees the end */
	struct uns_catalog *back;
	int code;

	memcpy(copy, p, n);
	assert_int_equal(uns_catalog_new("", &back, NULL), 0);
	code = uns_catalog_unpack(uns_span_of(copy, n), f->root, back, err);
	if (code == 0)
		assert_true(back->sealed);
	uns_catalog_free(back);
	free(copy);
	return code;
}

static void cut_bytes_are_refused(void **state)
{
	const struct fixture *f = *state;
	struct uns_catalog *cat = example(f);
	struct uns_text bytes = UNS_TEXT_INIT;
	struct uns_err err;
	size_t n;

	uns_catalog_pack(cat, f->root, &bytes, NULL);
	for (n = 0; n < bytes.len; n++) {
		err = (struct uns_err){ 0 };
		assert_int_equal(unpack(f, bytes.p, n, &err), -EBADMSG);
		assert_non_null(strstr(err.text, "not a packed catalog"));
	}
	uns_text_add(&bytes, "", 1);
	assert_int_equal(unpack(f, bytes.p, bytes.len, NULL), -EBADMSG);
	uns_catalog_free(cat);
	uns_text_fini(&bytes);
}

/* Whatever is in the bytes: an answer, and no access outside of them (under a sanitizer). */
static void changed_bytes_are_survived(void **state)
{
	static const unsigned char values[] = { 0x00, 0x01, 0x7f, 0x80, 0xff };
	const struct fixture *f = *state;
	struct uns_catalog *cat = example(f);
	struct uns_text bytes = UNS_TEXT_INIT;
	size_t i, k;
	char kept;

	uns_catalog_pack(cat, f->root, &bytes, NULL);
	for (i = 0; i < bytes.len; i++) {
		kept = bytes.p[i];
		for (k = 0; k < sizeof(values); k++) {
			bytes.p[i] = (char)values[k];
			unpack(f, bytes.p, bytes.len, NULL);
		}
		bytes.p[i] = kept;
	}
	bytes.p[4] = UNS_CATALOG_PACK_VERSION + 1;
	assert_int_equal(unpack(f, bytes.p, bytes.len, NULL), -EBADMSG);
	uns_catalog_free(cat);
	uns_text_fini(&bytes);
}

static void changed_files_are_noticed(void **state)
{
	static const char *const change[] = { "printf x >> a.bin", "touch b.bin", "touch gone.bin" };
	const struct fixture *f = *state;
	struct uns_catalog *cat;
	struct uns_text bytes;
	struct uns_err err;
	size_t i;

	for (i = 0; i < sizeof(change) / sizeof(*change); i++) {
		cat = example(f);
		bytes = UNS_TEXT_INIT;
		err = (struct uns_err){ 0 };
		uns_catalog_pack(cat, f->root, &bytes, NULL);
		shell(f->dir, "sleep 0.02");
		shell(f->dir, change[i]);
		assert_int_equal(unpack(f, bytes.p, bytes.len, &err), -ESTALE);
		assert_non_null(strstr(err.text, "has changed"));
		shell(f->dir, "rm -f gone.bin");
		uns_catalog_free(cat);
		uns_text_fini(&bytes);
	}
}

static void values_that_hold_themselves_are_not_packed(void **state)
{
	const struct fixture *f = *state;
	struct uns_text bytes = UNS_TEXT_INIT;
	struct uns_catalog *cat;
	struct uns_value *list;
	struct uns_err err = { 0 };

	assert_int_equal(uns_catalog_new("", &cat, NULL), 0);
	list = uns_value_new_list(&cat->arena, 1);
	uns_value_append(list, list);
	uns_catalog_add_value(
		cat, &(struct uns_named_value){ .name = "x", .root = "", .value = list, .file = UNS_NONE }, NULL);
	assert_int_equal(uns_catalog_seal(cat, NULL), 0);
	assert_int_equal(uns_catalog_pack(cat, f->root, &bytes, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "too large"));
	uns_catalog_free(cat);
	uns_text_fini(&bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(there_and_back, setup, teardown),
		cmocka_unit_test(real_checkpoint),
		cmocka_unit_test(anywhere),
		cmocka_unit_test_setup_teardown(cut_alike, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_cut_alike_is_short, setup, teardown),
		cmocka_unit_test_setup_teardown(cut_bytes_are_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(changed_bytes_are_survived, setup, teardown),
		cmocka_unit_test_setup_teardown(changed_files_are_noticed, setup, teardown),
		cmocka_unit_test_setup_teardown(values_that_hold_themselves_are_not_packed, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
