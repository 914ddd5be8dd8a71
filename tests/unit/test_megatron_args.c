/* megatron/args.c: which of the training's arguments contradict a config.json of the same shapes, and which say
 * nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "megatron/args.h"
#include "megatron/common_file.h"
#include "wire/value_new.h"

/* clang-format off: a table, a case a row */
#define LLAMA                                                                                                      \
	"\"model_type\": \"llama\", \"hidden_size\": 16, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, " \
	"\"rms_norm_eps\": 1e-06, \"rope_theta\": 500000.0"
#define GEMMA "\"model_type\": \"gemma\", \"hidden_size\": 16, \"num_attention_heads\": 4"
#define LATENT_HEADS                                                                         \
	"\"model_type\": \"deepseek_v3\", \"hidden_size\": 16, \"num_attention_heads\": 4, " \
	"\"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": 4, \"v_head_dim\": 8"

enum { MAX_ARGS = 6 };
static const struct row {
	const char *config;
	struct {
		const char *name;
		enum uns_value_kind kind;
		double number;
		const char *text;
	} arg[MAX_ARGS];
	const char *refused; /* NULL = they fit */
	int code;
} rows[] = {
	{ LLAMA,
	  { { "num_attention_heads", UNS_VALUE_INT, 4, NULL },
	    { "group_query_attention", UNS_VALUE_BOOL, 1, NULL },
	    { "num_query_groups", UNS_VALUE_INT, 2, NULL },
	    { "kv_channels", UNS_VALUE_INT, 4, NULL },
	    { "norm_epsilon", UNS_VALUE_FLOAT, 1e-6, NULL },
	    { "rotary_base", UNS_VALUE_INT, 500000, NULL } },
	  NULL,
	  0 },
	{ LLAMA,
	  { { "num_attention_heads", UNS_VALUE_INT, 8, NULL } },
	  "config.json: num_attention_heads is 4, but the model was trained with 8 (num_attention_heads in its arguments)",
	  -EBADMSG },
	{ LLAMA,
	  { { "group_query_attention", UNS_VALUE_BOOL, 1, NULL }, { "num_query_groups", UNS_VALUE_INT, 4, NULL } },
	  "num_key_value_heads is 2, but the model was trained with 4",
	  -EBADMSG },
	{ LLAMA,
	  { { "num_query_groups", UNS_VALUE_INT, 1, NULL } },
	  NULL,
	  0 }, /* its default; grouping is switched off */
	{ LLAMA,
	  { { "kv_channels", UNS_VALUE_INT, 2, NULL } },
	  "head_dim is 4, but the model was trained with 2",
	  -EBADMSG },
	{ LLAMA,
	  { { "multi_latent_attention", UNS_VALUE_BOOL, 1, NULL }, { "kv_channels", UNS_VALUE_INT, 2, NULL } },
	  NULL,
	  0 },
	{ LLAMA,
	  { { "norm_epsilon", UNS_VALUE_FLOAT, 1e-5, NULL } },
	  "rms_norm_eps is 1e-06, but the model was trained with 1e-05",
	  -EBADMSG },
	{ LLAMA,
	  { { "rotary_base", UNS_VALUE_INT, 10000, NULL } },
	  "rope_theta is 500000, but the model was trained with 10000",
	  -EBADMSG },
	{ LLAMA,
	  { { "position_embedding_type", UNS_VALUE_STR, 0, "learned_absolute" },
	    { "rotary_base", UNS_VALUE_INT, 10000, NULL } },
	  NULL,
	  0 },
	{ LLAMA, { { "apply_layernorm_1p", UNS_VALUE_BOOL, 1, NULL } }, "norms minus one", -ENOTSUP },
	{ LLAMA, { { "apply_layernorm_1p", UNS_VALUE_BOOL, 0, NULL } }, NULL, 0 },
	{ GEMMA,
	  { { "num_attention_heads", UNS_VALUE_INT, 4, NULL }, { "apply_layernorm_1p", UNS_VALUE_BOOL, 1, NULL } },
	  NULL,
	  0 },
	{ GEMMA, { { "num_attention_heads", UNS_VALUE_INT, 4, NULL } }, "did not keep", -ENOTSUP },
	{ GEMMA, { { NULL, UNS_VALUE_INT, 0, NULL } }, NULL, 0 }, /* the arguments were not saved */
	{ LLAMA, { { "moe_router_topk", UNS_VALUE_INT, 2, NULL } }, NULL, 0 },
	{ "\"num_experts_per_tok\": 4",
	  { { "num_experts", UNS_VALUE_INT, 8, NULL }, { "moe_router_topk", UNS_VALUE_INT, 2, NULL } },
	  "num_experts_per_tok is 4, but the model was trained with 2",
	  -EBADMSG },
	{ "\"rope_parameters\": {\"rope_theta\": 10000.0}",
	  { { "rotary_base", UNS_VALUE_FLOAT, 20000, NULL } },
	  "rope_theta is 10000, but the model was trained with 20000",
	  -EBADMSG },
	{ LATENT_HEADS, { { "qk_head_dim", UNS_VALUE_INT, 128, NULL } }, NULL, 0 }, /* its default */
	{ LATENT_HEADS,
	  { { "multi_latent_attention", UNS_VALUE_BOOL, 1, NULL },
	    { "qk_head_dim", UNS_VALUE_INT, 4, NULL },
	    { "qk_pos_emb_head_dim", UNS_VALUE_INT, 8, NULL } },
	  "qk_nope_head_dim is 8, but the model was trained with 4",
	  -EBADMSG },
	{ LLAMA, { { "num_attention_heads", UNS_VALUE_STR, 0, "8" } }, NULL, 0 }, /* not a number: it says nothing */
};
/* clang-format on */

static struct uns_value *args_new(struct uns_arena *arena, const struct row *row)
{
	struct uns_value *dict = uns_value_new_dict(arena, MAX_ARGS);
	const struct uns_value *v = NULL;
	size_t i;

	for (i = 0; i < MAX_ARGS && row->arg[i].name; i++) {
		if (row->arg[i].kind == UNS_VALUE_INT)
			v = uns_value_new_int(arena, (int64_t)row->arg[i].number);
		else if (row->arg[i].kind == UNS_VALUE_FLOAT)
			v = uns_value_new_float(arena, row->arg[i].number);
		else if (row->arg[i].kind == UNS_VALUE_BOOL)
			v = uns_value_new_bool(arena, row->arg[i].number != 0);
		else
			v = uns_value_new_str(arena, row->arg[i].text);
		assert_true(uns_value_put_str(arena, dict, row->arg[i].name, v));
	}
	return uns_value_new_object(arena, "argparse.Namespace", uns_value_new_tuple(arena, 0), dict);
}

static void args_and_config(void **state)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_megatron_sizes sizes;
	struct uns_catalog *cat;
	char config[512];
	size_t i;
	int code;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct uns_err err = { 0 };

		snprintf(config, sizeof(config), "{%s}", rows[i].config);
		assert_int_equal(uns_catalog_new("run", &cat, NULL), 0);
		assert_int_equal(uns_megatron_args_add(cat, 0, args_new(&arena, &rows[i]), NULL), 0);
		assert_int_equal(uns_megatron_sizes_read(uns_span_of(config, strlen(config)), &arena, &sizes, NULL), 0);
		code = uns_megatron_args_check(cat, uns_span_of(config, strlen(config)), &sizes,
					       strstr(config, "gemma") != NULL, &err);
		if (code != rows[i].code || (rows[i].refused && !strstr(err.text, rows[i].refused)))
			fail_msg("row %zu: %d %s", i, code, err.text);
		uns_catalog_free(cat);
	}
	uns_arena_fini(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(args_and_config) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
