/* Published names of a few tensors: which rules apply, what is refused, which names and shapes the base decides. The
 * families are compared with transformers itself in tests/e2e/test_names.py. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "names/base_shapes.h"
#include "names/memory_names.h"
#include "names/published_names.h"
#include "model/block_tensor.h"

/* clang-format off: tables, a case a row */

struct named {
	const char *name;
	struct uns_shape shape;
};

static const struct row {
	const char *model_type, *text_type;
	struct named in[3];
	const char *base[4];
	const char *want; /* "name shape first_elem" of each, joined by ';' */
	const char *note; /* part of a sentence; NULL = there is none */
} rows[] = {
	{ "llama", NULL, { { "b", { 1, { 2 } } }, { "a", { 1, { 2 } } } }, { 0 }, "b [2] 0;a [2] 0", NULL },
	{ NULL,
	  NULL,
	  { { "model.layers.0.mlp.experts.down_proj", { 3, { 2, 4, 3 } } } },
	  { 0 },
	  "model.layers.0.mlp.experts.down_proj [2, 4, 3] 0",
	  NULL },
	{ "mixtral",
	  NULL,
	  { { "x.mlp.experts.gate_up_proj", { 3, { 2, 4, 3 } } }, { "x.mlp.gate.weight", { 2, { 2, 3 } } } },
	  { 0 },
	  "x.block_sparse_moe.experts.0.w1.weight [2, 3] 0;x.block_sparse_moe.experts.1.w1.weight [2, 3] 12;"
	  "x.block_sparse_moe.experts.0.w3.weight [2, 3] 6;x.block_sparse_moe.experts.1.w3.weight [2, 3] 18;"
	  "x.block_sparse_moe.gate.weight [2, 3] 0",
	  "model type mixtral" },
	/* components, not letters */
	{ "mixtral", NULL, { { "x.smlp.gate.weight", { 1, { 2 } } } }, { 0 }, "x.smlp.gate.weight [2] 0", NULL },
	{ "mixtral",
	  NULL,
	  { { "mlp.gate.weight", { 1, { 2 } } } },
	  { 0 },
	  "block_sparse_moe.gate.weight [2] 0",
	  "model type mixtral" },
	/* one head */
	{ "llava_next",
	  NULL,
	  { { "model.image_newline", { 1, { 2 } } }, { "model.image_newlines", { 1, { 2 } } } },
	  { 0 },
	  "image_newline [2] 0;model.image_newlines [2] 0",
	  "llava_next" },
	/* the text model's experts, behind the prefix of the whole */
	{ "internvl",
	  "qwen3_moe",
	  { { "model.language_model.layers.0.mlp.experts.down_proj", { 3, { 2, 4, 3 } } } },
	  { 0 },
	  "language_model.model.layers.0.mlp.experts.0.down_proj.weight [4, 3] 0;"
	  "language_model.model.layers.0.mlp.experts.1.down_proj.weight [4, 3] 12",
	  "internvl" },
	/* shapes that cannot be cut */
	{ "qwen3_moe",
	  NULL,
	  { { "mlp.experts.gate_up_proj", { 3, { 2, 5, 3 } } } },
	  { 0 },
	  "mlp.experts.gate_up_proj [2, 5, 3] 0",
	  "cannot be split into experts" },
	{ "qwen3_moe",
	  NULL,
	  { { "mlp.experts.down_proj", { 1, { 5 } } } },
	  { 0 },
	  "mlp.experts.down_proj [5] 0",
	  "cannot be split into experts" },
	{ "qwen3_moe",
	  NULL,
	  { { "mlp.experts.down_proj", { .n = 0 } } },
	  { 0 },
	  "mlp.experts.down_proj [] 0",
	  "cannot be split into experts" },
	{ "qwen3_moe",
	  NULL,
	  { { "mlp.experts.down_proj", { 3, { 1ULL << 40, 0, 3 } } } },
	  { 0 },
	  "mlp.experts.down_proj [1099511627776, 0, 3] 0",
	  "cannot be split into experts" },
	/* two of one name */
	{ "qwen2_vl",
	  NULL,
	  { { "model.visual.w", { 1, { 2 } } }, { "visual.w", { 1, { 2 } } } },
	  { 0 },
	  "model.visual.w [2] 0;visual.w [2] 0",
	  "two tensors would be called visual.w" },
	/* the base decides */
	{ "llava",
	  NULL,
	  { { "model.vision_tower.w", { 1, { 2 } } } },
	  { "vision_tower.w" },
	  "vision_tower.w [2] 0",
	  "names of the base model in BASE" },
	{ "llava",
	  NULL,
	  { { "model.vision_tower.w", { 1, { 2 } } } },
	  { "vision_tower.vision_model.w", "mtp.w" },
	  "vision_tower.vision_model.w [2] 0",
	  "has tensors that these weights do not have: mtp.w" },
	{ "qwen3_5_moe",
	  NULL,
	  { { "mlp.experts.down_proj", { 3, { 2, 4, 3 } } } },
	  { "mlp.experts.down_proj" },
	  "mlp.experts.down_proj [2, 4, 3] 0",
	  "names of the base model in BASE" },
	{ "qwen2_vl",
	  NULL,
	  { { "model.visual.w", { 1, { 2 } } } },
	  { "other" },
	  "visual.w [2] 0",
	  "has no tensor visual.w" },
};

static void print(const struct uns_named_tensor *v, size_t n, char *out, size_t size)
{
	char shape[128];
	size_t i, at = 0;

	for (i = 0; i < n && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%s %s %llu", i ? ";" : "", v[i].name,
				       uns_shape_text(uns_named_shape(&v[i]), shape, sizeof(shape)),
				       (unsigned long long)uns_named_first(&v[i]));
}

static bool noted(const struct uns_vtree *tree, const char *part)
{
	size_t i = 0;

	while (i < tree->n_notes && !(part && strstr(tree->note[i], part)))
		i++;
	return part ? i < tree->n_notes : tree->n_notes == 0;
}

static void names_are_published(void **state)
{
	const struct row *row = rows, *end = rows + sizeof(rows) / sizeof(rows[0]);

	(void)state;
	for (; row < end; row++) {
		struct uns_config_info config = { .model_type = row->model_type, .text_type = row->text_type };
		const char *base_name[4];
		struct uns_base_names base = { .name = base_name, .where = "BASE" };
		struct uns_named_tensor *v = calloc(3, sizeof(*v));
		struct uns_tensor tensor[3];
		struct uns_vtree out = { 0 };
		struct uns_err err = { 0 };
		char got[1024] = "";
		size_t n = 0;

		for (; base.n < 4 && row->base[base.n]; base.n++)
			base_name[base.n] = row->base[base.n];
		for (; n < 3 && row->in[n].name; n++) {
			tensor[n] = (struct uns_tensor){ .name = row->in[n].name, .shape = row->in[n].shape };
			v[n] = (struct uns_named_tensor){ row->in[n].name, &tensor[n], UNS_F32, NULL };
		}
		assert_int_equal(uns_published_apply(&config, &base, &v, &n, &out, &err), 0);
		print(v, n, got, sizeof(got));
		assert_string_equal(got, row->want);
		if (!noted(&out, row->note))
			fail_msg("%s: %s", row->want, out.n_notes ? out.note[out.n_notes - 1] : "no note");
		free(v);
		uns_vtree_fini(&out);
	}
}

/* The other way round. */
static const struct {
	const char *model_type;
	int64_t transformers;
	struct named in[5];
	const char *want, *hole;
} backwards[] = {
	{ "mixtral",
	  5,
	  { { "x.block_sparse_moe.experts.1.w1.weight", { 2, { 2, 3 } } },
	    { "x.block_sparse_moe.experts.1.w3.weight", { 2, { 2, 3 } } },
	    { "x.block_sparse_moe.experts.0.w3.weight", { 2, { 2, 3 } } },
	    { "x.block_sparse_moe.experts.0.w1.weight", { 2, { 2, 3 } } },
	    { "x.block_sparse_moe.gate.weight", { 2, { 2, 3 } } } },
	  "x.mlp.experts.gate_up_proj [2, 4, 3] 0;x.mlp.gate.weight [2, 3] 0",
	  NULL },
	/* what is known: a family, and from which version on */
	{ "mixtral", 4, { { "x.block_sparse_moe.gate.weight", { 2, { 2, 3 } } } }, "", NULL },
	{ "mixtral", 0, { { "x.block_sparse_moe.gate.weight", { 2, { 2, 3 } } } }, "", NULL },
	{ "llama", 5, { { "x.block_sparse_moe.gate.weight", { 2, { 2, 3 } } } }, "", NULL },
	{ "mixtral", 5, { { "x.mlp.gate.weight", { 2, { 2, 3 } } } }, "", NULL },
	/* heads: all of them, and none where the name is one in memory */
	{ "qwen2_vl",
	  5,
	  { { "visual.w", { 1, { 2 } } }, { "model.layers.0.w", { 1, { 2 } } }, { "lm_head.weight", { 1, { 2 } } } },
	  "lm_head.weight [2] 0;model.language_model.layers.0.w [2] 0;model.visual.w [2] 0",
	  NULL },
	{ "qwen2_vl", 5, { { "model.visual.w", { 1, { 2 } } }, { "model.language_model.w", { 1, { 2 } } } }, "", NULL },
	{ "llava", 5, { { "vision_tower.w", { 1, { 2 } } } }, "model.vision_tower.w [2] 0", NULL },
	{ "llava", 5, { { "vision_tower.vision_model.w", { 1, { 2 } } } }, "model.vision_tower.w [2] 0", NULL },
	/* a part that is not there, is not alike, is too much */
	{ "qwen3_moe",
	  5,
	  { { "mlp.experts.1.down_proj.weight", { 2, { 4, 3 } } } },
	  "",
	  "mlp.experts.1.down_proj.weight" },
	{ "qwen3_moe",
	  5,
	  { { "mlp.experts.0.gate_proj.weight", { 2, { 4, 3 } } },
	    { "mlp.experts.1.gate_proj.weight", { 2, { 4, 3 } } },
	    { "mlp.experts.0.up_proj.weight", { 2, { 4, 3 } } } },
	  "",
	  "mlp.experts.1.gate_proj.weight" },
	{ "qwen3_moe",
	  5,
	  { { "mlp.experts.0.gate_proj.weight", { 2, { 4, 3 } } },
	    { "mlp.experts.0.up_proj.weight", { 2, { 3, 3 } } } },
	  "",
	  "mlp.experts.0.up_proj.weight" },
	{ "qwen3_moe",
	  5,
	  { { "mlp.experts.0.down_proj.weight", { 2, { 4, 3 } } }, { "mlp.experts.down_proj", { 3, { 1, 4, 3 } } } },
	  "",
	  "mlp.experts.down_proj" },
	{ "qwen3_moe", 5, { { "mlp.experts.00.down_proj.weight", { 2, { 4, 3 } } } }, "", NULL },
	{ "qwen3_moe", 5, { { "mlp.experts.0.down_proj.weight", { .n = 0 } } }, "", "mlp.experts.0.down_proj.weight" },
	{ "qwen3_moe",
	  5,
	  { { "mlp.experts.0.gate_proj.weight", { 2, { 1ULL << 62, 0 } } },
	    { "mlp.experts.0.up_proj.weight", { 2, { 1ULL << 62, 0 } } } },
	  "",
	  "mlp.experts.0.gate_proj.weight" },
};

static void names_are_those_in_memory(void **state)
{
	size_t row, n;

	(void)state;
	for (row = 0; row < sizeof(backwards) / sizeof(backwards[0]); row++) {
		const struct uns_config_info config = { .model_type = backwards[row].model_type,
							.transformers = backwards[row].transformers };
		struct uns_arena arena = UNS_ARENA_INIT;
		struct uns_catalog cat = { 0 };
		struct uns_memory_names found;
		struct uns_tensor tensor[5];
		struct uns_err err = { 0 };
		char got[1024] = "";

		for (n = 0; n < 5 && backwards[row].in[n].name; n++)
			tensor[n] = (struct uns_tensor){ .name = backwards[row].in[n].name,
							 .dtype = UNS_F32,
							 .shape = backwards[row].in[n].shape,
							 UNS_TENSOR_ALONE };
		cat.summary.is_published = true;
		cat.summary.resumed_by = UNS_BY_TRAINER;
		cat.tensors = tensor;
		cat.n_tensors = n;
		assert_int_equal(uns_memory_names_find(&config, &cat, &arena, &found, &err), 0);
		print(found.v, found.n, got, sizeof(got));
		assert_string_equal(got, backwards[row].want);
		if (backwards[row].hole)
			assert_string_equal(found.hole, backwards[row].hole);
		else
			assert_null(found.hole);
		uns_arena_fini(&arena);
	}
}

#define GATE "a.mlp.experts.gate_up_proj"
#define DOWN "a.mlp.experts.down_proj"

/* Two tensors, and what the base model has. */
static const struct {
	const char *model_type;
	struct named in[2], base[2]; /* base without dimensions: its file is not there */
	const char *want; /* "name shape" of each, joined by ';'; '~' in front: transposed */
	const char *note; /* part of a sentence; NULL = there is none */
	const char *refused;
} shapes[] = {
	{ "qwen3_vl_moe",
	  { { GATE, { 3, { 2, 6, 4 } } }, { DOWN, { 3, { 2, 4, 3 } } } },
	  { { GATE, { 3, { 2, 4, 6 } } }, { DOWN, { 3, { 2, 3, 4 } } } },
	  "~" GATE " [2, 4, 6];~" DOWN " [2, 3, 4]",
	  "2 tensors of experts are transposed, as in the base model in BASE",
	  NULL },
	{ "qwen3_vl_moe",
	  { { GATE, { 3, { 2, 6, 4 } } }, { DOWN, { 3, { 2, 4, 3 } } } },
	  { { GATE, { 3, { 2, 6, 4 } } }, { DOWN, { 3, { 2, 4, 3 } } } },
	  GATE " [2, 6, 4];" DOWN " [2, 4, 3]",
	  NULL,
	  NULL },
	/* each as the base has it */
	{ "qwen3_vl_moe",
	  { { GATE, { 3, { 2, 6, 4 } } }, { DOWN, { 3, { 2, 4, 3 } } } },
	  { { GATE, { 3, { 2, 6, 4 } } }, { DOWN, { 3, { 2, 3, 4 } } } },
	  GATE " [2, 6, 4];~" DOWN " [2, 3, 4]",
	  "1 tensor of experts is transposed, as",
	  NULL },
	/* square ones: alike where the others are, else not to be told */
	{ "qwen3_vl_moe",
	  { { GATE, { 3, { 2, 4, 4 } } }, { DOWN, { 3, { 2, 4, 2 } } } },
	  { { GATE, { 3, { 2, 4, 4 } } }, { DOWN, { 3, { 2, 4, 2 } } } },
	  GATE " [2, 4, 4];" DOWN " [2, 4, 2]",
	  NULL,
	  NULL },
	{ "qwen3_vl_moe",
	  { { GATE, { 3, { 2, 4, 4 } } }, { DOWN, { 3, { 2, 4, 2 } } } },
	  { { GATE, { 3, { 2, 4, 4 } } }, { DOWN, { 3, { 2, 2, 4 } } } },
	  NULL,
	  NULL,
	  GATE " has the shape [2, 4, 4]" },
	/* not the same model, a file that is not there, no such tensor */
	{ "qwen3_vl_moe",
	  { { GATE, { 3, { 2, 6, 4 } } }, { DOWN, { 3, { 2, 4, 3 } } } },
	  { { GATE, { 3, { 2, 4, 6 } } }, { DOWN, { 3, { 2, 3, 5 } } } },
	  GATE " [2, 6, 4];" DOWN " [2, 4, 3]",
	  DOWN " has the shape [2, 3, 5] in the base model in BASE, and [2, 4, 3]",
	  NULL },
	{ "qwen3_vl_moe",
	  { { GATE, { 3, { 2, 6, 4 } } }, { DOWN, { 2, { 4, 3 } } } },
	  { { GATE, { 3, { 2, 4, 6 } } }, { DOWN, { 2, { 3, 4 } } } },
	  GATE " [2, 6, 4];" DOWN " [4, 3]",
	  "shapes are not used",
	  NULL },
	{ "qwen3_vl_moe",
	  { { GATE, { 3, { 4097, 6, 4 } } } },
	  { { GATE, { 3, { 4097, 4, 6 } } } },
	  GATE " [4097, 6, 4]",
	  "shapes are not used",
	  NULL },
	{ "qwen3_vl_moe",
	  { { GATE, { 3, { 2, 0, 4 } } } },
	  { { GATE, { 3, { 2, 4, 0 } } } },
	  GATE " [2, 0, 4]",
	  "shapes are not used",
	  NULL },
	{ "qwen3_vl_moe",
	  { { GATE, { 3, { 2, 6, 4 } } }, { DOWN, { 3, { 2, 4, 3 } } } },
	  { { GATE, { 3, { 2, 4, 6 } } }, { DOWN, { .n = 0 } } },
	  GATE " [2, 6, 4];" DOWN " [2, 4, 3]",
	  "BASE does not have the file with " DOWN,
	  NULL },
	{ "qwen3_vl_moe",
	  { { GATE, { 3, { 2, 6, 4 } } } },
	  { { DOWN, { 3, { 2, 3, 4 } } } },
	  GATE " [2, 6, 4]",
	  NULL,
	  NULL },
	/* other tensors, other families */
	{ "qwen3_vl_moe",
	  { { "a.q_proj", { 3, { 2, 6, 4 } } } },
	  { { "a.q_proj", { 3, { 2, 4, 6 } } } },
	  "a.q_proj [2, 6, 4]",
	  NULL,
	  NULL },
	{ "qwen3_vl_moe",
	  { { "xmlp.experts.down_proj", { 3, { 2, 6, 4 } } } },
	  { { "xmlp.experts.down_proj", { 3, { 2, 4, 6 } } } },
	  "xmlp.experts.down_proj [2, 6, 4]",
	  NULL,
	  NULL },
	{ "qwen3_moe",
	  { { GATE, { 3, { 2, 6, 4 } } } },
	  { { GATE, { 3, { 2, 4, 6 } } } },
	  GATE " [2, 6, 4]",
	  NULL,
	  NULL },
	{ NULL, { { GATE, { 3, { 2, 6, 4 } } } }, { { GATE, { 3, { 2, 4, 6 } } } }, GATE " [2, 6, 4]", NULL, NULL },
};

static void print_shapes(const struct uns_named_tensor *v, size_t n, char *out, size_t size)
{
	char shape[128];
	size_t i, at = 0;

	for (i = 0; i < n && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%s%s %s", i ? ";" : "", v[i].tensor->own ? "~" : "",
				       v[i].name, uns_shape_text(uns_named_shape(&v[i]), shape, sizeof(shape)));
}

static void the_base_decides_between_two_orders(void **state)
{
	size_t row, n;

	(void)state;
	for (row = 0; row < sizeof(shapes) / sizeof(shapes[0]); row++) {
		const struct uns_config_info config = { .model_type = shapes[row].model_type };
		const char *name[2];
		const struct uns_shape *in_base[2];
		struct uns_base_names base = { .name = name, .shape = in_base, .where = "BASE" };
		struct uns_catalog cat = { .path = "ckpt" };
		struct uns_named_tensor v[2];
		struct uns_tensor tensor[2];
		struct uns_vtree out = { 0 };
		struct uns_err err = { 0 };
		char got[1024] = "";
		int code;

		for (n = 0; n < 2 && shapes[row].in[n].name; n++) {
			tensor[n] = (struct uns_tensor){ .name = shapes[row].in[n].name,
							 .dtype = UNS_F32,
							 .shape = shapes[row].in[n].shape,
							 .alias_of = UNS_NONE };
			v[n] = (struct uns_named_tensor){ tensor[n].name, &tensor[n], UNS_F32, NULL };
		}
		cat.tensors = tensor;
		cat.n_tensors = n;
		for (; base.n < 2 && shapes[row].base[base.n].name; base.n++) {
			name[base.n] = shapes[row].base[base.n].name;
			in_base[base.n] = shapes[row].base[base.n].shape.n ? &shapes[row].base[base.n].shape : NULL;
		}
		code = uns_base_shapes_apply(&cat, &config, &base, v, n, &out, &err);
		print_shapes(v, n, got, sizeof(got));
		if (shapes[row].refused) {
			assert_int_equal(code, -ENOTSUP);
			assert_non_null(strstr(err.text, shapes[row].refused));
		} else {
			assert_int_equal(code, 0);
			assert_string_equal(got, shapes[row].want);
			if (!noted(&out, shapes[row].note))
				fail_msg("%s: %s", got, out.n_notes ? out.note[0] : "no note");
		}
		uns_vtree_fini(&out);
	}
}

/* Slices, and tensors that are blocks already. */
static void what_is_cut_or_in_several_tensors_is_transposed(void **state)
{
	struct uns_tensor tensor[3] = {
		{ .name = "stack", .dtype = UNS_BF16, .shape = { 4, { 3, 2, 6, 4 } }, .alias_of = UNS_NONE },
		{ .name = "one", .dtype = UNS_BF16, .shape = { 2, { 6, 4 } }, .alias_of = UNS_NONE },
		{ .name = "two", .dtype = UNS_BF16, .shape = { 2, { 6, 4 } }, .alias_of = UNS_NONE }
	};
	const struct uns_catalog cat = { .path = "ckpt", .tensors = tensor, .n_tensors = 3 };
	const struct uns_slice layer = { .first_elem = 48, .shape = { 3, { 2, 6, 4 } } };
	const struct uns_shape each = { 3, { 2, 6, 4 } };
	const struct uns_block block[2] = { { .source = { { &tensor[1], 0 } }, .n_sources = 1, .len = { 1, 6, 4 } },
					    { .source = { { &tensor[2], 0 } }, .n_sources = 1, .len = { 1, 6, 4 } } };
	struct uns_named_tensor sliced = { "x", &tensor[0], UNS_BF16, &layer }, joined = { "y", NULL, UNS_F32, NULL };
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err err = { 0 };
	const struct uns_block *b;

	(void)state;
	assert_int_equal(uns_block_tensor_transpose(&cat, &sliced, &arena, &err), 0);
	assert_null(sliced.slice);
	assert_int_equal(sliced.tensor->n_pieces, 2);
	b = sliced.tensor->own[1].block;
	assert_ptr_equal(b->source[0].tensor, &tensor[0]);
	assert_int_equal(b->source[0].first_elem, 48 + 24);
	assert_true(b->reversed && b->len[0] == 1 && b->len[1] == 6 && b->len[2] == 4);

	assert_int_equal(uns_block_tensor_make(&cat, &each, block, 2, &arena, &joined.tensor, &err), 0);
	assert_int_equal(uns_block_tensor_transpose(&cat, &joined, &arena, &err), 0);
	assert_int_equal(joined.tensor->shape.dim[1], 4);
	assert_int_equal(joined.tensor->shape.dim[2], 6);
	assert_int_equal(joined.out, UNS_F32);
	b = joined.tensor->own[1].block;
	assert_ptr_equal(b->source[0].tensor, &tensor[2]);
	assert_true(b->reversed && b->len[1] == 6);
	uns_arena_fini(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(names_are_published),
					    cmocka_unit_test(the_base_decides_between_two_orders),
					    cmocka_unit_test(what_is_cut_or_in_several_tensors_is_transposed),
					    cmocka_unit_test(names_are_those_in_memory) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
