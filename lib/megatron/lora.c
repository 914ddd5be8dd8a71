/* Megatron-Bridge 0.3.1. Source: peft/utils.py (ParallelLinearAdapter), dora_layers.py, canonical_lora.py (what is
 * saved), models/conversion/peft_bridge.py (which rows of it belong to which published weight).
 *
 *   X.linear_qkv.adapter.linear_in.weight [r, in]     the lora_A of q_proj, k_proj and v_proj
 *   X.linear_qkv.adapter.linear_out.weight [rows, r]  their lora_Bs: rows as linear_qkv.weight has them
 *   X.linear_qkv.adapter.weight_magnitude [rows]      their magnitudes (DoRA)
 *   X.linear_qkv.adapter.adapter_q.linear_in.weight   the lora_A of q_proj alone (canonical LoRA), and so on
 *
 * Experts that Transformer Engine computes together have one adapter on each rank of experts, and a save keeps that of
 * the first rank. */
#include "megatron/lora.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "megatron/names.h"

#define A_AND_B(within, only)                                                                          \
	{ ".adapter." within "linear_in.weight", ".lora_A.weight", UNS_MG_HAS_COLUMNS, only, false },  \
	{                                                                                              \
		".adapter." within "linear_out.weight", ".lora_B.weight", UNS_MG_HAS_ROWS, only, false \
	}

static const struct uns_megatron_part parts[] = {
	A_AND_B("", NULL),
	{ ".adapter.weight_magnitude", ".lora_magnitude_vector", UNS_MG_HAS_NUMBERS, NULL, false },
	A_AND_B("adapter_q.", ".q_proj.weight"),
	A_AND_B("adapter_k.", ".k_proj.weight"),
	A_AND_B("adapter_v.", ".v_proj.weight"),
	A_AND_B("adapter_gate.", ".gate_proj.weight"),
	A_AND_B("adapter_up.", ".up_proj.weight"),
};

enum { N_PARTS = sizeof(parts) / sizeof(*parts), MAGNITUDES = 2 };

struct converting {
	const struct uns_megatron_lora *in;
	struct uns_arena *arena;
	struct uns_named_tensor *v; /* malloc'd */
	size_t n, cap;
	bool magnitudes;
};

static bool is_part(const struct uns_tensor *t, const struct uns_megatron_part *part)
{
	return uns_role_is_model(t->role) && uns_str_ends(t->name, part->stored);
}

static const struct uns_tensor *first_of(const struct uns_catalog *cat, const struct uns_megatron_part *part)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;

	while (t < end && !(part ? is_part(t, part) : uns_other_lora_has(t)))
		t++;
	return t < end ? t : NULL;
}

/* A tensor of the adapter that is none of the parts: linear_out of a Mamba layer is five tensors, and ms-swift saves
 * what PEFT puts on Megatron's modules. */
static const struct uns_tensor *unknown_find(const struct uns_catalog *cat)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	size_t i = 0;

	for (; t < end; t++) {
		if (!uns_role_is_model(t->role) || (!strstr(t->name, ".adapter.") && !strstr(t->name, ".lora_")))
			continue;
		for (i = 0; i < N_PARTS && !is_part(t, &parts[i]); i++)
			;
		if (i == N_PARTS)
			return t;
	}
	return NULL;
}

static int part_convert(struct converting *c, const struct uns_megatron_part *part, struct uns_err *err)
{
	const struct uns_catalog *cat = c->in->catalog;
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors, *first = first_of(cat, part);
	UNS_CLEANUP(uns_free_p) struct uns_named_tensor *v = NULL;
	struct uns_megatron_part of = *part;
	struct uns_err why = { 0 };
	const struct uns_tensor *at;
	size_t n = 0, i;
	int code;

	if (!first)
		return 0;
	of.whole_columns = c->magnitudes;
	UNS_TRY_ALLOC(v = calloc(cat->n_tensors + 1, sizeof(*v)), err);
	for (; t < end; t++)
		if (is_part(t, part))
			v[n++] = uns_named_as_is(t);
	code = uns_megatron_apply_part(cat, c->in->info, c->in->config, &of, &v, &n, &at, c->arena, &why);
	if (uns_code_is_finding(code))
		return uns_other_lora_refuse(cat, at ? at : first, why.text, err);
	if (code < 0)
		return uns_fail_copy(err, &why);
	if (at && c->in->expert_ranks != 1)
		return uns_other_lora_refuse(
			cat, at,
			c->in->expert_ranks
				? "each rank of experts has an adapter of its own, and those of all but the first were "
				  "not saved"
				: "run_config.yaml does not say that all experts were on each rank, and those of other "
				  "ranks would have had other adapters, which are not saved",
			err);
	for (i = 0; i < n; i++) {
		UNS_TRY_ALLOC(UNS_HEAP_ROOM(c->v, c->n, c->cap), err);
		c->v[c->n] = v[i];
		c->v[c->n].name = uns_arena_printf(c->arena, "base_model.model.%s", v[i].name);
		UNS_TRY_ALLOC(c->v[c->n++].name, err);
	}
	return 0;
}

static void converting_fini(struct converting *c)
{
	free(c->v);
}

int uns_megatron_lora_convert(const struct uns_megatron_lora *in, struct uns_arena *arena, struct uns_other_lora *out,
			      struct uns_err *err)
{
	UNS_CLEANUP(converting_fini) struct converting c = { .in = in, .arena = arena };
	const struct uns_tensor *unknown = unknown_find(in->catalog);
	struct uns_named_tensor *v;
	size_t i;

	if (unknown)
		return uns_other_lora_refuse(
			in->catalog, unknown,
			"it is none of the tensors of a linear layer's LoRA or DoRA by Megatron-Bridge; the program that "
			"saved it converts it (ms-swift: swift export --mcore_adapters)",
			err);
	if (!uns_span_left(&in->config))
		return uns_other_lora_refuse(in->catalog, first_of(in->catalog, NULL),
					     "no config.json of its model was found", err);
	c.magnitudes = first_of(in->catalog, &parts[MAGNITUDES]) != NULL;
	for (i = 0; i < N_PARTS; i++)
		UNS_TRY(part_convert(&c, &parts[i], err));
	UNS_TRY_ALLOC(v = UNS_NEW_N(arena, struct uns_named_tensor, c.n + 1), err);
	if (c.n)
		memcpy(v, c.v, c.n * sizeof(*v));
	*out = (struct uns_other_lora){ v, c.n };
	return 0;
}
