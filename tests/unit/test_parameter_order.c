/* The order of parameters: by the rows of a family, and by numbers where a row has '*'. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "names/parameter_order.h"

static void order_is(const char *model_type, const char *const *names, size_t n)
{
	const struct uns_parameter_family *family = uns_parameter_family_find(model_type);
	struct uns_ordered_parameter v[16];
	size_t i;

	assert_non_null(family);
	for (i = 0; i < n; i++) { /* the other way round */
		v[i] = (struct uns_ordered_parameter){ names[n - 1 - i], NULL };
		v[i].row = uns_parameter_row_find(family, v[i].name);
		assert_non_null(v[i].row);
	}
	uns_parameters_sort(v, n);
	for (i = 0; i < n; i++)
		assert_string_equal(v[i].name, names[i]);
}

static void test_layers_come_by_number(void **state)
{
	static const char *const names[] = {
		"model.embed_tokens.weight",
		"model.layers.2.self_attn.q_proj.weight",
		"model.layers.2.self_attn.k_proj.weight",
		"model.layers.2.mlp.gate_proj.weight",
		"model.layers.2.mlp.down_proj.weight",
		"model.layers.2.input_layernorm.weight",
		"model.layers.10.self_attn.q_proj.weight",
		"model.norm.weight",
		"lm_head.weight",
	};

	(void)state;
	order_is("llama", names, sizeof(names) / sizeof(*names));
}

/* A dense layer and a sparse one: what only one of them has comes where the other has something else. */
static void test_layers_of_two_kinds(void **state)
{
	static const char *const names[] = {
		"model.layers.0.self_attn.o_proj.weight", "model.layers.0.mlp.gate_proj.weight",
		"model.layers.0.input_layernorm.weight",  "model.layers.1.self_attn.o_proj.weight",
		"model.layers.1.mlp.gate.weight",         "model.layers.1.mlp.shared_experts.gate_proj.weight",
		"model.layers.1.input_layernorm.weight",  "model.layers.1.post_attention_layernorm.weight",
	};

	(void)state;
	order_is("deepseek_v3", names, sizeof(names) / sizeof(*names));
}

static void test_names_of_no_row(void **state)
{
	const struct uns_parameter_family *llama = uns_parameter_family_find("llama");

	(void)state;
	assert_null(uns_parameter_family_find(NULL));
	assert_null(uns_parameter_family_find("llamas"));
	assert_null(uns_parameter_row_find(llama, "model.layers.x.self_attn.q_proj.weight"));
	assert_null(uns_parameter_row_find(llama, "model.layers.1.self_attn.q_proj"));
	assert_null(uns_parameter_row_find(llama, "model.layers.1.self_attn.q_proj.weight.x"));
	assert_null(uns_parameter_row_find(llama, "model.layers.1a.self_attn.q_proj.weight"));
	assert_null(uns_parameter_row_find(llama, ""));
}

static void test_what_decays(void **state)
{
	const struct uns_parameter_family *llama = uns_parameter_family_find("llama");

	(void)state;
	assert_int_equal(uns_parameter_row_find(llama, "model.norm.weight")->kind, UNS_PARAMETER_PLAIN);
	assert_int_equal(uns_parameter_row_find(llama, "lm_head.weight")->kind, UNS_PARAMETER_DECAYS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layers_come_by_number),
		cmocka_unit_test(test_layers_of_two_kinds),
		cmocka_unit_test(test_names_of_no_row),
		cmocka_unit_test(test_what_decays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
