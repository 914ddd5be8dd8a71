/* Published names of a few tensors: which rules apply, what is refused, and which names the base decides. The
 * families are compared with transformers itself in tests/e2e/test_names.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "files/memory_names.h"
#include "files/published_names.h"

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
	{ NULL, NULL, { { "model.layers.0.mlp.experts.down_proj", { 3, { 2, 4, 3 } } } }, { 0 },
	  "model.layers.0.mlp.experts.down_proj [2, 4, 3] 0", NULL },
	{ "mixtral", NULL, { { "x.mlp.experts.gate_up_proj", { 3, { 2, 4, 3 } } }, { "x.mlp.gate.weight", { 2, { 2, 3 } } } },
	  { 0 },
	  "x.block_sparse_moe.experts.0.w1.weight [2, 3] 0;x.block_sparse_moe.experts.1.w1.weight [2, 3] 12;"
	  "x.block_sparse_moe.experts.0.w3.weight [2, 3] 6;x.block_sparse_moe.experts.1.w3.weight [2, 3] 18;"
	  "x.block_sparse_moe.gate.weight [2, 3] 0",
	  "model type mixtral" },
	/* components, not letters */
	{ "mixtral", NULL, { { "x.smlp.gate.weight", { 1, { 2 } } } }, { 0 }, "x.smlp.gate.weight [2] 0", NULL },
	{ "mixtral", NULL, { { "mlp.gate.weight", { 1, { 2 } } } }, { 0 }, "block_sparse_moe.gate.weight [2] 0",
	  "model type mixtral" },
	/* one head */
	{ "llava_next", NULL, { { "model.image_newline", { 1, { 2 } } }, { "model.image_newlines", { 1, { 2 } } } }, { 0 },
	  "image_newline [2] 0;model.image_newlines [2] 0", "llava_next" },
	/* the text model's experts, behind the prefix of the whole */
	{ "internvl", "qwen3_moe", { { "model.language_model.layers.0.mlp.experts.down_proj", { 3, { 2, 4, 3 } } } }, { 0 },
	  "language_model.model.layers.0.mlp.experts.0.down_proj.weight [4, 3] 0;"
	  "language_model.model.layers.0.mlp.experts.1.down_proj.weight [4, 3] 12",
	  "internvl" },
	/* shapes that cannot be cut */
	{ "qwen3_moe", NULL, { { "mlp.experts.gate_up_proj", { 3, { 2, 5, 3 } } } }, { 0 },
	  "mlp.experts.gate_up_proj [2, 5, 3] 0", "cannot be split into experts" },
	{ "qwen3_moe", NULL, { { "mlp.experts.down_proj", { 1, { 5 } } } }, { 0 }, "mlp.experts.down_proj [5] 0",
	  "cannot be split into experts" },
	{ "qwen3_moe", NULL, { { "mlp.experts.down_proj", { .n = 0 } } }, { 0 }, "mlp.experts.down_proj [] 0",
	  "cannot be split into experts" },
	{ "qwen3_moe", NULL, { { "mlp.experts.down_proj", { 3, { 1ULL << 40, 0, 3 } } } }, { 0 },
	  "mlp.experts.down_proj [1099511627776, 0, 3] 0", "cannot be split into experts" },
	/* two of one name */
	{ "qwen2_vl", NULL, { { "model.visual.w", { 1, { 2 } } }, { "visual.w", { 1, { 2 } } } }, { 0 },
	  "model.visual.w [2] 0;visual.w [2] 0", "two tensors would be called visual.w" },
	/* the base decides */
	{ "llava", NULL, { { "model.vision_tower.w", { 1, { 2 } } } }, { "vision_tower.w" }, "vision_tower.w [2] 0",
	  "names of the base model in BASE" },
	{ "llava", NULL, { { "model.vision_tower.w", { 1, { 2 } } } }, { "vision_tower.vision_model.w", "mtp.w" },
	  "vision_tower.vision_model.w [2] 0", "has tensors that these weights do not have: mtp.w" },
	{ "qwen3_5_moe", NULL, { { "mlp.experts.down_proj", { 3, { 2, 4, 3 } } } }, { "mlp.experts.down_proj" },
	  "mlp.experts.down_proj [2, 4, 3] 0", "names of the base model in BASE" },
	{ "qwen2_vl", NULL, { { "model.visual.w", { 1, { 2 } } } }, { "other" }, "visual.w [2] 0",
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
	{ "mixtral", 5,
	  { { "x.block_sparse_moe.experts.1.w1.weight", { 2, { 2, 3 } } },
	    { "x.block_sparse_moe.experts.1.w3.weight", { 2, { 2, 3 } } },
	    { "x.block_sparse_moe.experts.0.w3.weight", { 2, { 2, 3 } } },
	    { "x.block_sparse_moe.experts.0.w1.weight", { 2, { 2, 3 } } },
	    { "x.block_sparse_moe.gate.weight", { 2, { 2, 3 } } } },
	  "x.mlp.experts.gate_up_proj [2, 4, 3] 0;x.mlp.gate.weight [2, 3] 0", NULL },
	/* what is known: a family, and from which version on */
	{ "mixtral", 4, { { "x.block_sparse_moe.gate.weight", { 2, { 2, 3 } } } }, "", NULL },
	{ "mixtral", 0, { { "x.block_sparse_moe.gate.weight", { 2, { 2, 3 } } } }, "", NULL },
	{ "llama", 5, { { "x.block_sparse_moe.gate.weight", { 2, { 2, 3 } } } }, "", NULL },
	{ "mixtral", 5, { { "x.mlp.gate.weight", { 2, { 2, 3 } } } }, "", NULL },
	/* heads: all of them, and none where the name is one in memory */
	{ "qwen2_vl", 5, { { "visual.w", { 1, { 2 } } }, { "model.layers.0.w", { 1, { 2 } } }, { "lm_head.weight", { 1, { 2 } } } },
	  "lm_head.weight [2] 0;model.language_model.layers.0.w [2] 0;model.visual.w [2] 0", NULL },
	{ "qwen2_vl", 5, { { "model.visual.w", { 1, { 2 } } }, { "model.language_model.w", { 1, { 2 } } } }, "", NULL },
	{ "llava", 5, { { "vision_tower.w", { 1, { 2 } } } }, "model.vision_tower.w [2] 0", NULL },
	{ "llava", 5, { { "vision_tower.vision_model.w", { 1, { 2 } } } }, "model.vision_tower.w [2] 0", NULL },
	/* a part that is not there, is not alike, is too much */
	{ "qwen3_moe", 5, { { "mlp.experts.1.down_proj.weight", { 2, { 4, 3 } } } }, "", "mlp.experts.1.down_proj.weight" },
	{ "qwen3_moe", 5,
	  { { "mlp.experts.0.gate_proj.weight", { 2, { 4, 3 } } }, { "mlp.experts.1.gate_proj.weight", { 2, { 4, 3 } } },
	    { "mlp.experts.0.up_proj.weight", { 2, { 4, 3 } } } }, "", "mlp.experts.1.gate_proj.weight" },
	{ "qwen3_moe", 5,
	  { { "mlp.experts.0.gate_proj.weight", { 2, { 4, 3 } } }, { "mlp.experts.0.up_proj.weight", { 2, { 3, 3 } } } }, "",
	  "mlp.experts.0.up_proj.weight" },
	{ "qwen3_moe", 5,
	  { { "mlp.experts.0.down_proj.weight", { 2, { 4, 3 } } }, { "mlp.experts.down_proj", { 3, { 1, 4, 3 } } } }, "",
	  "mlp.experts.down_proj" },
	{ "qwen3_moe", 5, { { "mlp.experts.00.down_proj.weight", { 2, { 4, 3 } } } }, "", NULL },
	{ "qwen3_moe", 5, { { "mlp.experts.0.down_proj.weight", { .n = 0 } } }, "", "mlp.experts.0.down_proj.weight" },
	{ "qwen3_moe", 5,
	  { { "mlp.experts.0.gate_proj.weight", { 2, { 1ULL << 62, 0 } } },
	    { "mlp.experts.0.up_proj.weight", { 2, { 1ULL << 62, 0 } } } }, "", "mlp.experts.0.gate_proj.weight" },
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
			tensor[n] = (struct uns_tensor){ .name = backwards[row].in[n].name, .dtype = UNS_F32,
							 .shape = backwards[row].in[n].shape, UNS_TENSOR_ALONE };
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

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(names_are_published),
					    cmocka_unit_test(names_are_those_in_memory) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
