/* Every golden checkpoint as a SOURCE, with what a session may borrow for it. For tests that ask the same of all. */
#ifndef TESTS_GOLDEN_SOURCES_H
#define TESTS_GOLDEN_SOURCES_H

#include <stdbool.h>
#include <stddef.h>

struct golden_source {
	const char *name;
	const char *make;  /* a shell line in an empty SOURCE; $G = tests/golden */
	const char *model; /* -o model=, from SOURCE */
	bool has_facts;    /* the store has something about it */
};

static const struct golden_source golden_sources[] = {
	{ "fsdp", "cp -r $G/run/. .", NULL, false },
	{ "fsdp, no trainer_state",
	  "cp -r $G/run/. . && rm checkpoint-2/trainer_state.json && mv config.json ../base.json", NULL, false },
	{ "fsdp, siblings", "cp -r $G/run/. . && cp -r checkpoint-2 checkpoint-4 && rm checkpoint-2/trainer_state.json",
	  NULL, false },
	{ "fsdp, facts", "cp -r $G/run/. . && rm checkpoint-2/trainer_state.json", NULL, true },
	{ "fsdp, model elsewhere", "cp -r $G/run/checkpoint-2 . && mkdir ../base && cp $G/run/*.json ../base",
	  "../base", false },
	{ "hf", "mkdir ckpt && cp $G/run.model.safetensors ckpt/model.safetensors && cp $G/run/*.json ckpt", NULL,
	  false },
	{ "dcp ranks", "cp -r $G/dcp/ranks/ckpt .", NULL, false },
	{ "dcp zstd", "cp -r $G/dcp/zstd/ckpt .", NULL, false },
	{ "megatron", "cp -r $G/dcp/megatron/iter_0000010 .", NULL, false },
	{ "lightning", "cp -r $G/dcp/torch2.2.2_lightning/ckpt .", NULL, false },
	{ "zero 0", "cp -r $G/zero/z0_w1/. .", NULL, false },
	{ "zero 1", "cp -r $G/zero/z1_bf16_optimizer_w2/. .", NULL, false },
	{ "zero 2", "cp -r $G/zero/z2_w3/. . && rm -r *_universal", NULL, false },
	{ "zero 3", "cp -r $G/zero/z3_w2/. . && rm -r *_universal", NULL, false },
	{ "universal 2", "cp -r $G/zero/z2_w3/*_universal .", NULL, false },
	{ "universal 3", "cp -r $G/zero/z3_w2/*_universal .", NULL, false },
	{ "ranks", "mkdir -p step/actor && cp $G/ranks/fsdp2/* step/actor", NULL, false },
	{ "ranks orig", "mkdir -p step/actor && cp $G/ranks/orig/* step/actor", NULL, false },
	{ "ranks 2.0", "mkdir actor && cp $G/rank_files/torch2.0.1/*.pt actor", NULL, false },
	{ "ranks 2.1", "mkdir actor && cp $G/rank_files/torch2.1.2/*.pt actor", NULL, false },
	{ "accelerate", "cp -r $G/older/accelerate0.29.3-torch2.2.2_f1_sh_w3/run/ckpt .", NULL, false },
	{ "trainer 4.46", "cp -r $G/older/transformers4.46.3-torch2.4.1_f1_sh_w2/run/ckpt .", NULL, false },
	{ "fsdp2 2.4", "cp -r $G/older/torch2.4.1_fsdp2_w2_fp32_dcp/run/ckpt .", NULL, false },
};

#endif
