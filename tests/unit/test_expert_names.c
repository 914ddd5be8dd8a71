/* Names of experts in both forms; which list of tensors is refused. The families are compared with transformers itself
 * in tests/e2e/test_expert_forms.py. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "files/expert_forms.h"
#include "names/expert_names.h"

/* What a name is in a family: "fused FROM", "split FROM of TO kept EXPERT", "other", or "unknown" of the family. */
static const struct {
	const char *model_type, *text_type, *name, *want;
} names[] = {
	{ "qwen3_moe", NULL, "model.layers.0.mlp.experts.gate_up_proj", "fused mlp.experts.gate_up_proj" },
	{ "qwen3_moe", NULL, "mlp.experts.down_proj", "fused mlp.experts.down_proj" },
	{ "qwen3_moe", NULL, "x.mlp.experts.12.up_proj.weight", "split mlp.experts.gate_up_proj 1/2 kept 2 expert 12" },
	{ "qwen3_moe", NULL, "x.smlp.experts.12.up_proj.weight", "other" },
	{ "qwen3_moe", NULL, "x.mlp.experts.01.up_proj.weight", "other" },
	{ "qwen3_moe", NULL, "x.mlp.experts.1.up_proj.weight_scale_inv", "other" },
	{ "qwen3_moe", NULL, "x.mlp.gate.weight", "other" },
	{ "mixtral", NULL, "x.block_sparse_moe.experts.0.w3.weight",
	  "split mlp.experts.gate_up_proj 1/2 kept 2 expert 0" },
	{ "mixtral", NULL, "x.block_sparse_moe.gate.weight", "other" },
	{ "nemotron_h", NULL, "mixer.experts.3.up_proj.weight", "split mixer.experts.up_proj 0/1 kept 0 expert 3" },
	{ "gpt_oss", NULL, "x.mlp.experts.gate_up_proj_bias", "fused mlp.experts.gate_up_proj_bias" },
	{ "gpt_oss", NULL, "mlp.experts.3.down_proj.bias", "split mlp.experts.down_proj_bias 0/1 kept 0 expert 3" },
	{ "llama4", "llama4_text", "feed_forward.experts.gate_up_proj", "fused feed_forward.experts.gate_up_proj" },
	{ "granitemoe", NULL, "x.block_sparse_moe.input_linear.weight", "fused block_sparse_moe.input_linear.weight" },
	{ "granitemoe", NULL, "block_sparse_moe.experts.2.w1.weight",
	  "split block_sparse_moe.input_linear.weight 0/2 kept 0 expert 2" },
	{ "granitemoe", NULL, "block_sparse_moe.experts.gate_up_proj", "fused block_sparse_moe.experts.gate_up_proj" },
	{ "internvl", "qwen3_moe", "mlp.experts.gate_up_proj", "fused mlp.experts.gate_up_proj" },
	{ "llama", NULL, "mlp.experts.gate_up_proj", "unknown" },
	{ "esm", NULL, "mlp.experts.gate_up_proj", "unknown" },
	{ NULL, NULL, "mlp.experts.gate_up_proj", "unknown" },
};

static void names_are_found(void **state)
{
	const struct uns_name_rule *fused, *split;
	struct uns_expert_names of;
	char got[128];
	uint64_t expert;
	size_t i, kept;

	(void)state;
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const struct uns_config_info config = { .model_type = names[i].model_type,
							.text_type = names[i].text_type };

		strcpy(got, "unknown");
		if (uns_expert_names_of(&config, &of)) {
			fused = uns_expert_fused(&of, names[i].name);
			split = uns_expert_split(&of, names[i].name, &kept, &expert);
			assert_true(!fused || !split);
			if (fused)
				snprintf(got, sizeof(got), "fused %s", fused->from);
			else if (split)
				snprintf(got, sizeof(got), "split %s %u/%u kept %zu expert %llu", split->from,
					 split->part, split->of, kept, (unsigned long long)expert);
			else
				strcpy(got, "other");
		}
		assert_string_equal(got, names[i].want);
	}
}

static void what_may_be_of_experts(void **state)
{
	(void)state;
	assert_true(uns_expert_like("experts"));
	assert_true(uns_expert_like("a.experts"));
	assert_true(uns_expert_like("experts_x.experts.0"));
	assert_false(uns_expert_like("a.shared_experts.b"));
	assert_false(uns_expert_like("a.experts_b"));
	assert_false(uns_expert_like(""));
}

enum { MAX_IN = 6 };

/* Lists of tensors: "name shape" of what comes, joined by ';', or a part of the sentence that refuses them. */
static const struct row {
	const char *model_type;
	enum uns_expert_form form;
	struct {
		const char *name;
		struct uns_shape shape;
	} in[MAX_IN];
	const char *want, *refused;
} rows[] = {
	{ "qwen3_moe",
	  UNS_EXPERTS_FUSED,
	  { { "b.mlp.experts.1.gate_proj.weight", { 2, { 2, 3 } } },
	    { "b.mlp.experts.0.up_proj.weight", { 2, { 2, 3 } } },
	    { "b.mlp.experts.0.gate_proj.weight", { 2, { 2, 3 } } },
	    { "b.mlp.experts.1.up_proj.weight", { 2, { 2, 3 } } },
	    { "a", { 1, { 4 } } } },
	  "a [4];b.mlp.experts.gate_up_proj [2, 4, 3]",
	  NULL },
	{ "gpt_oss",
	  UNS_EXPERTS_FUSED,
	  { { "mlp.experts.0.gate_proj.weight", { 2, { 2, 3 } } },
	    { "mlp.experts.0.up_proj.weight", { 2, { 2, 3 } } },
	    { "mlp.experts.0.gate_proj.bias", { 1, { 2 } } },
	    { "mlp.experts.0.up_proj.bias", { 1, { 2 } } },
	    { "mlp.experts.0.down_proj.weight", { 2, { 3, 2 } } } },
	  "mlp.experts.down_proj [1, 2, 3];mlp.experts.gate_up_proj [1, 3, 4];mlp.experts.gate_up_proj_bias [1, 4]",
	  NULL },
	{ "gpt_oss",
	  UNS_EXPERTS_SPLIT,
	  { { "mlp.experts.gate_up_proj", { 3, { 1, 3, 4 } } }, { "mlp.experts.down_proj_bias", { 2, { 1, 3 } } } },
	  "mlp.experts.0.down_proj.bias [3];mlp.experts.0.gate_proj.weight [2, 3];mlp.experts.0.up_proj.weight [2, 3]",
	  NULL },
	/* either order, by the shapes of both */
	{ "qwen3_vl_moe",
	  UNS_EXPERTS_SPLIT,
	  { { "mlp.experts.gate_up_proj", { 3, { 1, 5, 4 } } }, { "mlp.experts.down_proj", { 3, { 1, 2, 5 } } } },
	  "mlp.experts.0.down_proj.weight [5, 2];mlp.experts.0.gate_proj.weight [2, 5];mlp.experts.0.up_proj.weight [2, 5]",
	  NULL },
	{ "qwen3_vl_moe",
	  UNS_EXPERTS_SPLIT,
	  { { "mlp.experts.gate_up_proj", { 3, { 1, 4, 5 } } }, { "mlp.experts.down_proj", { 3, { 1, 5, 2 } } } },
	  "mlp.experts.0.down_proj.weight [5, 2];mlp.experts.0.gate_proj.weight [2, 5];mlp.experts.0.up_proj.weight [2, 5]",
	  NULL },
	{ "qwen3_vl_moe",
	  UNS_EXPERTS_SPLIT,
	  { { "mlp.experts.gate_up_proj", { 3, { 1, 4, 5 } } } },
	  NULL,
	  "without the layer's other" },
	{ "qwen3_vl_moe",
	  UNS_EXPERTS_SPLIT,
	  { { "mlp.experts.gate_up_proj", { 3, { 1, 4, 5 } } }, { "mlp.experts.down_proj", { 3, { 1, 4, 5 } } } },
	  NULL,
	  "which does not fit that of mlp.experts.down_proj, [1, 4, 5]" },
	/* no experts: the order stays */
	{ "qwen3_moe", UNS_EXPERTS_FUSED, { { "b", { 1, { 4 } } }, { "a", { 1, { 4 } } } }, "b [4];a [4]", NULL },
	{ "llama", UNS_EXPERTS_SPLIT, { { "b", { 1, { 4 } } }, { "a", { 1, { 4 } } } }, "b [4];a [4]", NULL },
	{ NULL, UNS_EXPERTS_PUBLISHED, { { "experts.0", { 1, { 4 } } } }, "experts.0 [4]", NULL },
	/* refused */
	{ NULL, UNS_EXPERTS_SPLIT, { { "a.experts.0.w", { 1, { 4 } } } }, NULL, "there is no config.json" },
	{ "llama", UNS_EXPERTS_SPLIT, { { "a.experts.0.w", { 1, { 4 } } } }, NULL, "knows for models of type llama" },
	{ "qwen3_moe",
	  UNS_EXPERTS_FUSED,
	  { { "mlp.experts.0.up_proj.weight", { 2, { 2, 3 } } } },
	  NULL,
	  "the first part (gate) of expert 0" },
	{ "qwen3_moe",
	  UNS_EXPERTS_FUSED,
	  { { "mlp.experts.0.gate_proj.weight", { 2, { 2, 3 } } } },
	  NULL,
	  "the second part (up) of expert 0" },
	{ "qwen3_moe",
	  UNS_EXPERTS_FUSED,
	  { { "mlp.experts.1.down_proj.weight", { 2, { 2, 3 } } } },
	  NULL,
	  "the part of expert 0" },
	{ "qwen3_moe",
	  UNS_EXPERTS_FUSED,
	  { { "mlp.experts.5000.down_proj.weight", { 2, { 2, 3 } } } },
	  NULL,
	  "beyond the 4096" },
	{ "qwen3_moe",
	  UNS_EXPERTS_FUSED,
	  { { "mlp.experts.0.down_proj.weight", { 1, { 2 } } } },
	  NULL,
	  "are not parts of one" },
	{ "qwen3_moe",
	  UNS_EXPERTS_SPLIT,
	  { { "mlp.experts.gate_up_proj", { 3, { 2, 5, 3 } } } },
	  NULL,
	  "not that of all experts" },
	{ "qwen3_moe",
	  UNS_EXPERTS_SPLIT,
	  { { "mlp.experts.down_proj", { 1, { 5 } } } },
	  NULL,
	  "not that of all experts" },
	{ "qwen3_moe",
	  UNS_EXPERTS_SPLIT,
	  { { "mlp.experts.down_proj", { .n = 0 } } },
	  NULL,
	  "not that of all experts" },
	{ "qwen3_moe",
	  UNS_EXPERTS_SPLIT,
	  { { "mlp.experts.down_proj", { 3, { 1ULL << 40, 0, 3 } } } },
	  NULL,
	  "not that of all experts" },
	{ "qwen3_moe",
	  UNS_EXPERTS_SPLIT,
	  { { "mlp.experts.down_proj", { 3, { 1, 2, 3 } } }, { "mlp.experts.0.down_proj.weight", { 2, { 2, 3 } } } },
	  NULL,
	  "two tensors would be called mlp.experts.0.down_proj.weight" },
};

static void print(const struct uns_named_tensor *v, size_t n, char *out, size_t size)
{
	char shape[128];
	size_t i, at = 0;

	for (i = 0; i < n; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%s %s", i ? ";" : "", v[i].name,
				       uns_shape_text(uns_named_shape(&v[i]), shape, sizeof(shape)));
}

static void lists_are_converted(void **state)
{
	const struct row *row = rows, *end = rows + sizeof(rows) / sizeof(rows[0]);

	(void)state;
	for (; row < end; row++) {
		const struct uns_config_info config = { .model_type = row->model_type };
		struct uns_named_tensor *v = calloc(MAX_IN, sizeof(*v));
		struct uns_tensor tensor[MAX_IN];
		const struct uns_catalog cat = { .path = "ckpt", .tensors = tensor, .n_tensors = MAX_IN };
		struct uns_vtree out = { 0 };
		struct uns_arena arena = UNS_ARENA_INIT;
		struct uns_err err = { .keep = &arena };
		char got[1024] = "";
		size_t n = 0;
		int code;

		for (; n < MAX_IN && row->in[n].name; n++) {
			tensor[n] = (struct uns_tensor){ .name = row->in[n].name,
							 .key = row->in[n].name,
							 .root = "",
							 .dtype = UNS_F32,
							 .shape = row->in[n].shape,
							 UNS_TENSOR_ALONE };
			v[n] = (struct uns_named_tensor){ row->in[n].name, &tensor[n], UNS_F32, NULL };
		}
		code = uns_expert_forms_apply(&cat, &config, row->form, &v, &n, &out, &err);
		assert_int_equal(code, row->refused ? -ENOTSUP : 0);
		if (row->refused && !strstr(err.text, row->refused))
			fail_msg("\"%s\" expected in: %s", row->refused, err.text);
		print(v, n, got, sizeof(got));
		if (row->want)
			assert_string_equal(got, row->want);
		free(v);
		uns_vtree_fini(&out);
		uns_arena_fini(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_found),
		cmocka_unit_test(what_may_be_of_experts),
		cmocka_unit_test(lists_are_converted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
