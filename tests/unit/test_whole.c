/* whole/: models of made-up names, whole and with something missing; each with the one finding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "whole/whole.h"

enum { MAX_TENSORS = 70000 };

struct model {
	struct uns_arena arena;
	struct uns_tensor *tensor;
	struct uns_named_tensor *v;
	size_t n;
};

static struct model model_new(void)
{
	return (struct model){ .tensor = calloc(MAX_TENSORS, sizeof(struct uns_tensor)),
			       .v = calloc(MAX_TENSORS, sizeof(struct uns_named_tensor)) };
}

static void model_free(struct model *m)
{
	uns_arena_fini(&m->arena);
	free(m->tensor);
	free(m->v);
}

static void add(struct model *m, const char *name, uint64_t rows)
{
	assert_in_range(m->n, 0, MAX_TENSORS - 1);
	m->tensor[m->n] = (struct uns_tensor){ .dtype = UNS_BF16, .shape = { 2, { rows, 8 } } };
	m->v[m->n] = (struct uns_named_tensor){ .name = uns_arena_str(&m->arena, name),
						.tensor = &m->tensor[m->n],
						.out = UNS_BF16 };
	assert_non_null(m->v[m->n++].name);
}

/* A model of n layers, all dense before `first_moe`, with experts from there on. */
static void fill(struct model *m, unsigned n_layers, unsigned first_moe, unsigned n_experts)
{
	static const char *const each[] = { "input_layernorm", "self_attn.q_proj", "self_attn.o_proj" };
	unsigned i, k, e;
	char name[128];

	add(m, "model.embed_tokens.weight", 40);
	add(m, "model.norm.weight", 8);
	add(m, "lm_head.weight", 40);
	for (i = 0; i < n_layers; i++) {
		for (k = 0; k < 3; k++) {
			snprintf(name, sizeof(name), "model.layers.%u.%s.weight", i, each[k]);
			add(m, name, 8);
		}
		snprintf(name, sizeof(name), "model.layers.%u.mlp.%s.weight", i, i < first_moe ? "up_proj" : "gate");
		add(m, name, 16);
		for (e = 0; i >= first_moe && e < n_experts; e++) {
			snprintf(name, sizeof(name), "model.layers.%u.mlp.experts.%u.up_proj.weight", i, e);
			add(m, name, 4);
		}
	}
}

static size_t at(const struct model *m, const char *name)
{
	size_t i;

	for (i = 0; i < m->n && strcmp(m->v[i].name, name) != 0; i++)
		;
	assert_true(i < m->n);
	return i;
}

/* All that begin with this. */
static void take_away(struct model *m, const char *prefix)
{
	size_t i, kept = 0;

	for (i = 0; i < m->n; i++)
		if (strncmp(m->v[i].name, prefix, strlen(prefix)) != 0)
			m->v[kept++] = m->v[i];
	assert_true(kept < m->n);
	m->n = kept;
}

static void rows_set(struct model *m, const char *name, uint64_t rows)
{
	struct uns_tensor *t = &m->tensor[m->v[at(m, name)].tensor - m->tensor];

	t->shape.dim[0] = rows;
}

/* The findings' sentences, one a line. */
static char *found_in(struct model *m, const char *config)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_whole_input in = { .v = m->v, .n = m->n, .config = uns_span_of(config, strlen(config)) };
	struct uns_findings found = { 0 };
	struct uns_config_info info = { 0 };
	struct uns_text text = UNS_TEXT_INIT;
	struct uns_err err = { 0 };
	struct uns_finding f;
	size_t i;

	assert_int_equal(uns_config_parse(in.config, &arena, &info, &err), 0);
	in.info = &info;
	assert_int_equal(uns_whole_find(&in, &arena, &found, &err), 0);
	uns_text_str(&text, "");
	for (i = 0; i < found.n; i++) {
		f = found.v[i];
		f.checkpoint = "m";
		uns_text_printf(&text, "%s", i ? "\n" : "");
		uns_finding_print(&f, &text);
	}
	return uns_text_take(&text, NULL);
}

static void assert_found(struct model *m, const char *config, const char *expected)
{
	char *found = found_in(m, config);

	if (*expected && strncmp(found, expected, strlen(expected)) != 0)
		assert_string_equal(found, expected);
	if (!*expected)
		assert_string_equal(found, "");
	free(found);
}

#define LLAMA \
	"{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":6,\"vocab_size\":40}"
#define MOE                                                                                                      \
	"{\"model_type\":\"deepseek_v3\",\"architectures\":[\"DeepseekV3ForCausalLM\"],\"num_hidden_layers\":6," \
	"\"vocab_size\":40,\"first_k_dense_replace\":2,\"n_routed_experts\":4}"

static const struct {
	const char *config, *without, *expected;
} cases[] = {
	{ LLAMA, NULL, "" },
	{ MOE, NULL, "" },
	{ LLAMA, "model.layers.3.self_attn.q_proj.weight",
	  "1 tensor is missing from m that other layers of model.layers have, in layers 3: "
	  "model.layers.3.self_attn.q_proj.weight; " },
	{ LLAMA, "model.layers.3.self_attn.",
	  "2 tensors are missing from m that other layers of model.layers have, in layers 3: "
	  "model.layers.3.self_attn.q_proj.weight, model.layers.3.self_attn.o_proj.weight; " },
	{ LLAMA, "model.layers.4.", "model.layers of m has 5 of 6 layers: all tensors of layers 4 are missing; " },
	{ LLAMA, "model.embed_tokens.weight", "m has no model.embed_tokens.weight, which models of type llama have; " },
	{ LLAMA, "model.norm.weight", "m has no model.norm.weight, which models of type llama have; " },
	{ LLAMA, "lm_head.weight", "m has no lm_head.weight, which models of type llama have; " },
	{ MOE, "model.layers.0.mlp.up_proj", "" }, /* of two layers of a kind, one lacks it: which of them is right? */
	{ MOE, "model.layers.4.mlp.gate.",
	  "1 tensor is missing from m that other layers of model.layers have, in layers 4: model.layers.4.mlp.gate.weight; " },
	{ MOE, "model.layers.5.mlp.experts.3.",
	  "1 tensor is missing from m that other layers of model.layers have, in layers 5: "
	  "model.layers.5.mlp.experts.3.up_proj.weight; " },
	{ MOE, "model.layers.2.mlp.experts.",
	  "4 tensors are missing from m that other layers of model.layers have, in layers 2: "
	  "model.layers.2.mlp.experts.0.up_proj.weight, model.layers.2.mlp.experts.1.up_proj.weight, "
	  "model.layers.2.mlp.experts.2.up_proj.weight, model.layers.2.mlp.experts.3.up_proj.weight; " },
};

static void each_case(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct model m = model_new();

		fill(&m, 6, strcmp(cases[i].config, MOE) == 0 ? 2 : 6, 4);
		if (cases[i].without)
			take_away(&m, cases[i].without);
		assert_found(&m, cases[i].config, cases[i].expected);
		model_free(&m);
	}
}

static void shapes_and_dtypes(void **state)
{
	struct model m = model_new();

	(void)state;
	fill(&m, 6, 6, 0);
	rows_set(&m, "model.layers.2.mlp.up_proj.weight", 15);
	assert_found(&m, LLAMA,
		     "model.layers.2.mlp.up_proj.weight has another shape than in other layers: it is [15, 8], and "
		     "model.layers.0.mlp.up_proj.weight is [16, 8]; ");
	rows_set(&m, "model.layers.2.mlp.up_proj.weight", 16);
	m.v[at(&m, "model.layers.2.mlp.up_proj.weight")].out = UNS_F32;
	assert_found(&m, LLAMA,
		     "model.layers.2.mlp.up_proj.weight has another dtype than in other layers: it is float32, and "
		     "model.layers.0.mlp.up_proj.weight is bfloat16");
	model_free(&m);
}

/* 60,000 tensors take memory in proportion, and numbers that are no layers' do not take more. */
static void memory_is_bounded(void **state)
{
	struct model m = model_new();
	unsigned i;
	char name[64];

	(void)state;
	fill(&m, 60, 2, 1024);
	assert_in_range(m.n, 59000, 60000);
	assert_found(&m, "{\"num_hidden_layers\":60,\"vocab_size\":40,\"first_k_dense_replace\":2}", "");
	m.n = 0;
	for (i = 0; i < 4000; i++) {
		snprintf(name, sizeof(name), "layers.%u.attn%u.weight", i, i);
		add(&m, name, 8);
	}
	assert_found(&m, "{\"num_hidden_layers\":4000}", "");
	model_free(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_case),
		cmocka_unit_test(shapes_and_dtypes),
		cmocka_unit_test(memory_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
