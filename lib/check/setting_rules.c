/* See setting_rules.h. Versions were looked up in the packages named: releases before and after the
 * boundary were compared. */
#include "check/setting_rules.h"

#include <stddef.h>

static enum uns_rule_verdict problem_if(bool broken)
{
	return broken ? UNS_RULE_PROBLEM : UNS_RULE_FINE;
}

/* The config asks for something that `package` has only since a.b.c. */
static enum uns_rule_verdict needs(const struct uns_settings *s, enum uns_package package, unsigned a, unsigned b,
				   unsigned c)
{
	if (!s->version[package].known)
		return UNS_RULE_UNJUDGED;
	return problem_if(uns_version_before(&s->version[package], a, b, c));
}

/* A rule's verdict on settings s. */
#define RULE(name, verdict)                                             \
	static enum uns_rule_verdict name(const struct uns_settings *s) \
	{                                                               \
		return (verdict);                                       \
	}

/* -- FSDP: what is saved -- */

RULE(sharded_save_only_model, problem_if(uns_settings_sharded(s) && s->save_only_model))
RULE(save_only_model_best, problem_if((s->fsdp || s->deepspeed) && s->save_only_model && s->load_best_model_at_end))
RULE(sharded_load_best, problem_if(uns_settings_sharded(s) && s->load_best_model_at_end))

/* -- FSDP2 and the versions that know it -- */

static bool is_fsdp2(const struct uns_settings *s)
{
	return s->fsdp && uns_settings_fsdp_version(s) == 2;
}

RULE(fsdp2_accelerate, is_fsdp2(s) ? needs(s, UNS_ACCELERATE, 1, 6, 0) : UNS_RULE_FINE)

/* A loop over Accelerate without a Trainer needs no transformers: if its version was given, it is used. */
static enum uns_rule_verdict fsdp2_transformers(const struct uns_settings *s)
{
	if (!is_fsdp2(s) || (!s->trainer && !s->version[UNS_TRANSFORMERS].known))
		return UNS_RULE_FINE;
	return needs(s, UNS_TRANSFORMERS, 4, 51, 0);
}

static enum uns_rule_verdict fsdp2_full(const struct uns_settings *s)
{
	if (!is_fsdp2(s) || s->state_dict != UNS_FULL)
		return UNS_RULE_FINE;
	/* Older ones do not know FSDP2 at all: fsdp2_accelerate's. */
	if (uns_version_before(&s->version[UNS_ACCELERATE], 1, 6, 0))
		return UNS_RULE_FINE;
	return needs(s, UNS_ACCELERATE, 1, 7, 0);
}

/* A config does not show whether there is an adapter. */
static enum uns_rule_verdict fsdp2_full_adapter(const struct uns_settings *s)
{
	if (!is_fsdp2(s) || s->state_dict != UNS_FULL || uns_version_before(&s->version[UNS_ACCELERATE], 1, 7, 0))
		return UNS_RULE_FINE;
	return uns_version_before(&s->version[UNS_ACCELERATE], 1, 15, 0) ? UNS_RULE_NOTE : UNS_RULE_FINE;
}

RULE(fsdp2_torch, is_fsdp2(s) ? needs(s, UNS_TORCH, 2, 6, 0) : UNS_RULE_FINE)
RULE(fsdp_version_default, s->fsdp &&uns_settings_fsdp_version(s) == 0 ? UNS_RULE_UNJUDGED : UNS_RULE_FINE)

/* -- Lightning -- */

/* 2.1.0 is the first that can save shards. */
static enum uns_rule_verdict lightning_weights_only(const struct uns_settings *s)
{
	if (!s->lightning_sharded || !s->lightning_weights_only)
		return UNS_RULE_FINE;
	return needs(s, UNS_LIGHTNING, 2, 2, 2);
}

/* -- DeepSpeed -- */

RULE(universal_key, problem_if(s->universal_key))

static bool loads_universal(const struct uns_settings *s)
{
	return s->load_universal == UNS_SAID_YES;
}

RULE(universal_frozen, loads_universal(s) ? UNS_RULE_NOTE : UNS_RULE_FINE)

/* Trainer makes two groups, one without weight decay; with none, they are alike. */
static enum uns_rule_verdict universal_groups(const struct uns_settings *s)
{
	if (!loads_universal(s) || s->zero_stage != 3)
		return UNS_RULE_FINE;
	if (s->trainer)
		return problem_if(s->weight_decay != 0);
	return UNS_RULE_NOTE;
}

static enum uns_rule_verdict round_robin(const struct uns_settings *s)
{
	if (!s->round_robin)
		return UNS_RULE_FINE;
	return loads_universal(s) ? UNS_RULE_PROBLEM : UNS_RULE_NOTE;
}

RULE(zero3_gather, problem_if(s->deepspeed && s->zero_stage == 3 && s->gather_16bit != UNS_SAID_YES))
RULE(exclude_frozen, problem_if(s->exclude_frozen))

/* -- where to -- */

RULE(output_dir, problem_if(s->output_dir_why != NULL))

static const char *output_dir_why(const struct uns_settings *s)
{
	return s->output_dir_why;
}

const struct uns_setting_rule uns_setting_rules[] = {
	/* Source: transformers 4.49.0 and 4.50.0, trainer.py (PR 36627). */
	{ .name = "sharded_save_only_model",
	  .judge = sharded_save_only_model,
	  .sentence = "save_only_model with FSDP SHARDED_STATE_DICT saves no weights: transformers "
		      "before 4.50 fails at the first save with FileNotFoundError for "
		      "trainer_state.json, newer ones refuse to start (transformers PR 36627); set "
		      "save_only_model to false, or fsdp_state_dict_type to FULL_STATE_DICT" },
	{ .name = "save_only_model_load_best",
	  .judge = save_only_model_best,
	  .sentence = "save_only_model and load_best_model_at_end exclude each other under FSDP and DeepSpeed: Trainer "
		      "refuses to start (transformers PR 28866); set one of them to false" },
	/* Source: Trainer._load_best_model, Trainer.save_model of transformers 5.23.0. */
	{ .name = "sharded_load_best_model",
	  .judge = sharded_load_best,
	  .sentence = "load_best_model_at_end with FSDP SHARDED_STATE_DICT reads the best model back from shards, so "
		      "every node must see all of output_dir (accelerate issue 3010), and trainer.save_model() "
		      "afterwards writes no weights (transformers issue 30491); set fsdp_state_dict_type to "
		      "FULL_STATE_DICT, or take the best checkpoint's weights from a mount" },
	/* Source: accelerate 1.5.2 and 1.6.0. */
	{ .name = "fsdp2_accelerate",
	  .judge = fsdp2_accelerate,
	  .needs = UNS_ACCELERATE,
	  .sentence = "FSDP2 needs accelerate 1.6.0 or newer: older ones do not know fsdp_version "
		      "(accelerate PR 3394); upgrade accelerate, or set fsdp_version to 1" },
	/* Source: transformers 4.50.3 and 4.51.0, trainer.py. */
	{ .name = "fsdp2_transformers",
	  .judge = fsdp2_transformers,
	  .needs = UNS_TRANSFORMERS,
	  .sentence = "FSDP2 with a Trainer needs transformers 4.51.0 or newer: older ones make the optimizer after "
		      "the model, which accelerate refuses for FSDP2 (accelerate issue 3476, transformers PR 37147); "
		      "upgrade transformers, or set fsdp_version to 1" },
	/* Source: FSDP2_STATE_DICT_TYPE in accelerate 1.6.0's and 1.7.0's utils/constants.py. */
	{ .name = "fsdp2_full_state_dict",
	  .judge = fsdp2_full,
	  .needs = UNS_ACCELERATE,
	  .sentence = "FSDP2 with FULL_STATE_DICT needs accelerate 1.7.0 or newer: 1.6 knows SHARDED_STATE_DICT only "
		      "(accelerate/utils/constants.py, FSDP2_STATE_DICT_TYPE); upgrade accelerate, or set "
		      "fsdp_state_dict_type to SHARDED_STATE_DICT" },
	/* Source: _get_model_state_dict in accelerate 1.14.0's and 1.15.0's utils/fsdp_utils.py. */
	{ .name = "fsdp2_full_adapter",
	  .judge = fsdp2_full_adapter,
	  .sentence = "a Trainer that trains an adapter of PEFT under FSDP2 with FULL_STATE_DICT saves rank 0's rows "
		      "only into pytorch_model_fsdp.bin before accelerate 1.15.0, and cannot resume from it; upgrade "
		      "accelerate, or set fsdp_state_dict_type to SHARDED_STATE_DICT" },
	/* Source: the same files: 2.5.1 in 1.6.0, whose imports need 2.6; 2.6.0 since 1.7.0. */
	{ .name = "fsdp2_torch",
	  .judge = fsdp2_torch,
	  .needs = UNS_TORCH,
	  .sentence = "FSDP2 needs torch 2.6.0 or newer (accelerate/utils/constants.py, "
		      "FSDP2_PYTORCH_VERSION); upgrade torch, or set fsdp_version to 1" },
	/* Source: transformers 5.9.0 and 5.10.1, training_args.py (PR 45640). */
	{ .name = "fsdp_version_default",
	  .judge = fsdp_version_default,
	  .needs = UNS_TRANSFORMERS,
	  .sentence = "fsdp_config names no version: transformers before 5.10 takes FSDP1, newer "
		      "ones FSDP2 (transformers PR 45640); set fsdp_config's version" },
	/* Source: pytorch-lightning 2.1.4, 2.2.0, 2.2.1 and 2.2.2, strategies/fsdp.py. */
	{ .name = "lightning_sharded_weights_only",
	  .judge = lightning_weights_only,
	  .needs = UNS_LIGHTNING,
	  .sentence = "FSDPStrategy(state_dict_type='sharded') with ModelCheckpoint(save_weights_only=True) fails at "
		      "the first save with KeyError 'optimizer_states' and leaves an empty directory before Lightning "
		      "2.2.2 (Lightning issue 19492); upgrade Lightning, or set save_weights_only to false, or "
		      "state_dict_type to 'full'" },
	/* Source: deepspeed/runtime/constants.py, LOAD_UNIVERSAL_CHECKPOINT. */
	{ .name = "deepspeed_universal_key",
	  .judge = universal_key,
	  .sentence = "universal_checkpoint, load_universal and load_universal_checkpoint have no effect at the top of "
		      "a DeepSpeed config; write \"checkpoint\": {\"load_universal\": true}" },
	/* Source: measured; DeepSpeedEngine._load_checkpoint skips load_module_state_dict. */
	{ .name = "load_universal_frozen",
	  .judge = universal_frozen,
	  .sentence = "load_universal restores neither frozen parameters nor buffers: those that "
		      "the base model does not contain keep their fresh values, without a "
		      "warning; load the model's weights before deepspeed.initialize" },
	{ .name = "load_universal_groups",
	  .judge = universal_groups,
	  .sentence = "load_universal at ZeRO stage 3 gives every parameter group the first group's "
		      "learning rate and weight decay, so several groups that differ (a Trainer with "
		      "weight_decay has two) train wrongly, without a warning; resume with stage 1 or "
		      "2, with one group, or without load_universal" },
	/* Source: measured: ds_to_universal cuts by param_slice_mappings, whose order is another. */
	{ .name = "round_robin_gradients",
	  .judge = round_robin,
	  .sentence = "round_robin_gradients makes ds_to_universal mix parameters up, without a warning; set "
		      "zero_optimization.round_robin_gradients to false if checkpoints will be converted with it" },
	/* Source: Trainer.save_model of transformers 5.23.0. */
	{ .name = "zero3_no_16bit_weights",
	  .judge = zero3_gather,
	  .sentence = "ZeRO stage 3 saves no weights that from_pretrained reads, only the ranks' "
		      "shards; set zero_optimization.stage3_gather_16bit_weights_on_model_save "
		      "(Accelerate: zero3_save_16bit_model) to true" },
	/* Source: DeepSpeedEngine.save_checkpoint. */
	{ .name = "exclude_frozen_parameters",
	  .judge = exclude_frozen,
	  .sentence = "exclude_frozen_parameters leaves frozen parameters out of checkpoints, so no "
		      "checkpoint can restore them; keep the base model, or set it to false" },
	{ .name = "output_dir",
	  .judge = output_dir,
	  .sentence = "output_dir cannot be written",
	  .detail = output_dir_why },
};
const size_t uns_n_setting_rules = sizeof(uns_setting_rules) / sizeof(uns_setting_rules[0]);
