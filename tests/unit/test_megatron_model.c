/* megatron/model.c: which parameters are in which param group, which tensors experts become, and what is refused.
 * Values are compared with the live states of megatron-core in tests/e2e/test_megatron_optimizer.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "megatron/model.h"
#include "megatron/schedule.h"
#include "wire/value_new.h"

/* clang-format off: tables, a case a row */

enum { MAX_TENSORS = 24, MAX_GROUPS = 3 };

#define CONFIG(type, more)                                                                           \
	"{\"model_type\": \"" type                                                                   \
	"\", \"transformers_version\": \"5.0.0\", \"hidden_size\": 2, \"num_attention_heads\": 4"    \
	", \"vocab_size\": 5, \"num_hidden_layers\": 1, \"num_key_value_heads\": 2, \"head_dim\": 1" \
	", \"intermediate_size\": 3" more "}"
#define TIED    CONFIG("mistral", ", \"tie_word_embeddings\": true")
#define MIXTRAL CONFIG("mixtral", ", \"tie_word_embeddings\": true, \"num_local_experts\": 2")

struct named {
	const char *name;
	struct uns_shape shape;
	bool frozen; /* the optimizer has no state of it */
};

#define LAYER           "decoder.layers.0."
#define EXPERT(n, part) LAYER "mlp.experts.experts." n "." part
#define AROUND                                                                                \
	{ "embedding.word_embeddings.weight", { 2, { 5, 2 } }, false },                       \
		{ LAYER "self_attention.linear_qkv.weight", { 2, { 8, 2 } }, false },         \
		{ LAYER "self_attention.linear_proj.weight", { 2, { 2, 4 } }, false },        \
		{ LAYER "self_attention.linear_qkv.layer_norm_weight", { 1, { 2 } }, false }, \
		{ LAYER "mlp.linear_fc1.layer_norm_weight", { 1, { 2 } }, false },            \
	{                                                                                     \
		"decoder.final_layernorm.weight", { 1, { 2 } }, false                         \
	}
#define DENSE                                                         \
	{ LAYER "mlp.linear_fc1.weight", { 2, { 6, 2 } }, false },    \
	{                                                             \
		LAYER "mlp.linear_fc2.weight", { 2, { 2, 3 } }, false \
	}
#define SPARSE(frozen_first, frozen_last)                                            \
	{ LAYER "mlp.router.weight", { 2, { 2, 2 } }, false },                       \
		{ EXPERT("0", "linear_fc1.weight_w"), { 2, { 3, 2 } }, false },      \
		{ EXPERT("0", "linear_fc1.weight_v"), { 2, { 3, 2 } }, false },      \
		{ EXPERT("0", "linear_fc2.weight"), { 2, { 2, 3 } }, frozen_first }, \
		{ EXPERT("1", "linear_fc1.weight_w"), { 2, { 3, 2 } }, false },      \
		{ EXPERT("1", "linear_fc1.weight_v"), { 2, { 3, 2 } }, false },      \
	{                                                                            \
		EXPERT("1", "linear_fc2.weight"), { 2, { 2, 3 } }, frozen_last       \
	}

struct group {
	double wd_mult, lr; /* lr 0 = none */
	int64_t step; /* 0 = not saved */
};
#define DECAY    { 1, 0.5, 3 }
#define NO_DECAY { 0, 0.5, 3 }

static const struct row {
	const char *config;
	struct named in[MAX_TENSORS];
	struct group group[MAX_GROUPS];
	const char *want; /* the groups' parameters; NULL = refused */
	const char *refused;
} rows[] = {
	/* a Trainer has those with weight decay first */
	{ TIED,
	  { AROUND, DENSE },
	  { NO_DECAY, DECAY },
	  "embed_tokens q_proj k_proj v_proj o_proj gate_proj up_proj down_proj; input_layernorm post_attention_layernorm norm;",
	  NULL },
	{ TIED,
	  { AROUND, DENSE },
	  { DECAY },
	  "embed_tokens q_proj k_proj v_proj o_proj gate_proj up_proj down_proj input_layernorm post_attention_layernorm norm;",
	  NULL },
	{ TIED, { AROUND, DENSE }, { DECAY, { 0, 0.25, 3 } }, NULL, "its param groups differ in lr" },
	{ TIED,
	  { AROUND, DENSE },
	  { DECAY, { 0.5, 0.5, 3 } },
	  NULL,
	  "its param groups differ in more than weight decay" },
	{ TIED,
	  { AROUND, DENSE },
	  { DECAY, { 0, 0.5, 0 } },
	  NULL,
	  "the number of steps of its optimizer was not saved" },
	{ TIED,
	  { AROUND, SPARSE(false, false) },
	  { DECAY, NO_DECAY },
	  NULL,
	  "is made from " LAYER "mlp.linear_fc1.weight" },
	/* experts that were saved one by one */
	{ MIXTRAL,
	  { AROUND, SPARSE(false, false) },
	  { DECAY, NO_DECAY },
	  "embed_tokens q_proj k_proj v_proj o_proj gate gate_up_proj down_proj; input_layernorm post_attention_layernorm norm;",
	  NULL },
	{ MIXTRAL,
	  { AROUND, SPARSE(true, false) },
	  { DECAY, NO_DECAY },
	  NULL,
	  "model.layers.0.block_sparse_moe.experts.1.w2.weight does not fit the other experts' tensors" },
	{ MIXTRAL,
	  { AROUND, SPARSE(false, true) },
	  { DECAY, NO_DECAY },
	  NULL,
	  "exp_avg of model.layers.0.mlp.experts.down_proj has the shape [1, 2, 3], and the parameter [2, 2, 3]" },
	{ TIED,
	  { AROUND, DENSE, { "mtp.layers.0.enorm.weight", { 1, { 2 } }, false } },
	  { DECAY, NO_DECAY },
	  NULL,
	  "it has layers for multi-token prediction (mtp.layers)" },
};

/* A row's checkpoint. */
struct saved {
	struct uns_arena arena;
	struct uns_catalog cat;
	struct uns_tensor tensor[2 * MAX_TENSORS];
	struct uns_group group[MAX_GROUPS];
};

static void add_groups(struct saved *s, const struct row *row)
{
	const struct group *g = row->group;
	struct uns_value *hyper;

	for (; s->cat.n_groups < MAX_GROUPS && g->lr > 0; g++) {
		hyper = uns_value_new_dict(&s->arena, 4);
		uns_value_put_str(&s->arena, hyper, "wd_mult", uns_value_new_float(&s->arena, g->wd_mult));
		uns_value_put_str(&s->arena, hyper, "lr", uns_value_new_float(&s->arena, g->lr));
		uns_value_put_str(&s->arena, hyper, "max_lr", uns_value_new_float(&s->arena, 1));
		if (g->step)
			uns_value_put_str(&s->arena, hyper, "step", uns_value_new_int(&s->arena, g->step));
		s->group[s->cat.n_groups++] = (struct uns_group){ .hyper = hyper, .root = "optimizer" };
	}
}

static void make(const struct row *row, struct saved *s)
{
	const struct named *n = row->in;
	struct uns_tensor *t = s->tensor;

	memset(s, 0, sizeof(*s));
	for (; n < row->in + MAX_TENSORS && n->name; n++) {
		*t++ = (struct uns_tensor){ .name = n->name,
					    .key = n->name,
					    .root = "",
					    .role = UNS_ROLE_WEIGHT,
					    .dtype = UNS_F32,
					    .shape = n->shape,
					    UNS_TENSOR_ALONE };
		if (!n->frozen)
			*t++ = (struct uns_tensor){ .name = n->name,
						    .key = n->name,
						    .root = "optimizer",
						    .state = "exp_avg",
						    .role = UNS_ROLE_EXP_AVG,
						    .dtype = UNS_F32,
						    .shape = n->shape,
						    UNS_TENSOR_ALONE };
	}
	s->cat = (struct uns_catalog){ .path = "run",
				       .tensors = s->tensor,
				       .n_tensors = (size_t)(t - s->tensor),
				       .groups = s->group,
				       .summary.is_megatron = true };
	add_groups(s, row);
}

/* "model.layers.0.self_attn.q_proj.weight" -> "q_proj" */
static void add_name(const char *name, char *out, size_t size)
{
	const char *end = strstr(name, ".weight"), *from;

	end = end ? end : name + strlen(name);
	for (from = end; from > name && from[-1] != '.'; from--)
		;
	snprintf(out + strlen(out), size - strlen(out), "%s%.*s", *out && out[strlen(out) - 1] != ' ' ? " " : "",
		 (int)(end - from), from);
}

static void assert_groups(const struct uns_catalog *model, const char *want)
{
	char got[512] = "";
	size_t i, k;

	for (i = 0; i < model->n_groups; i++) {
		for (k = 0; k < model->groups[i].n_params; k++)
			add_name(model->groups[i].param[k], got, sizeof(got));
		strncat(got, i + 1 < model->n_groups ? "; " : ";", sizeof(got) - strlen(got) - 1);
	}
	assert_string_equal(got, want);
}

/* The second name of tied embeddings is the last tensor. */
static void assert_tied(const struct uns_catalog *model)
{
	const struct uns_tensor *tied = uns_megatron_tied(model);

	assert_non_null(tied);
	assert_string_equal(tied->name, "lm_head.weight");
	assert_string_equal(model->tensors[tied->alias_of].name, "model.embed_tokens.weight");
}

static void parameters_are_dealt_out(void **state)
{
	struct uns_config_info info;
	const struct uns_catalog *model;
	struct uns_span config;
	struct saved s;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct uns_vtree tree = { 0 };
		struct uns_err err = { .keep = &tree.arena };
		int code;

		make(&rows[i], &s);
		config = uns_span_of(rows[i].config, strlen(rows[i].config));
		assert_int_equal(uns_config_parse(config, &tree.arena, &info, &err), 0);
		assert_true(uns_megatron_has_optimizer(&s.cat) && uns_megatron_has_schedule(&s.cat));
		code = uns_megatron_model(&info, config, &s.cat, &tree, &model, &err);
		if (rows[i].refused ? code >= 0 || !strstr(err.text, rows[i].refused) : code < 0)
			fail_msg("row %zu: %d %s", i, code, err.text);
		if (rows[i].want) {
			assert_groups(model, rows[i].want);
			assert_tied(model);
		}
		uns_vtree_fini(&tree);
		uns_arena_fini(&s.arena);
	}
}

static const struct uns_tensor *named(const struct uns_catalog *cat, const char *name, enum uns_role role)
{
	size_t i = 0;

	while (i < cat->n_tensors && (cat->tensors[i].role != role || strcmp(cat->tensors[i].name, name) != 0))
		i++;
	if (i == cat->n_tensors)
		fail_msg("%s", name);
	return &cat->tensors[i];
}

/* Each expert is a block: its half of gate, then that of up. */
static void experts_become_one_tensor(void **state)
{
	static const enum uns_role roles[] = { UNS_ROLE_WEIGHT, UNS_ROLE_EXP_AVG };
	const struct row *row = &rows[6];
	const struct uns_span config = uns_span_of(row->config, strlen(row->config));
	const struct uns_catalog *model;
	const struct uns_tensor *t;
	const struct uns_block *block;
	struct uns_vtree tree = { 0 };
	struct uns_config_info info;
	struct uns_err err = { 0 };
	struct saved s;
	char shape[64];
	size_t i;

	(void)state;
	make(row, &s);
	assert_int_equal(uns_config_parse(config, &tree.arena, &info, &err), 0);
	assert_int_equal(uns_megatron_model(&info, config, &s.cat, &tree, &model, &err), 0);
	for (i = 0; i < 2; i++) {
		t = named(model, "model.layers.0.mlp.experts.gate_up_proj", roles[i]);
		assert_string_equal(uns_shape_text(&t->shape, shape, sizeof(shape)), "[2, 6, 2]");
		assert_int_equal(t->n_pieces, 2);
		block = t->own[1].block;
		assert_int_equal(block->n_sources, 2);
		assert_ptr_equal(block->source[0].tensor, named(&s.cat, EXPERT("1", "linear_fc1.weight_w"), roles[i]));
		assert_ptr_equal(block->source[1].tensor, named(&s.cat, EXPERT("1", "linear_fc1.weight_v"), roles[i]));
	}
	uns_vtree_fini(&tree);
	uns_arena_fini(&s.arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(parameters_are_dealt_out),
					    cmocka_unit_test(experts_become_one_tensor) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
