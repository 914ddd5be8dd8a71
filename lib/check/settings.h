/* A training config's settings for saving and loading, of any framework. Pure:
 * files are read, and configs that they name are fetched, by the session.
 *
 *   TrainingArguments (Hugging Face)  JSON or YAML, also with other programs' keys beside
 *   Accelerate config                 YAML: fsdp_config or deepspeed_config
 *   DeepSpeed config                  JSON
 *   LightningCLI config               YAML: trainer.strategy, trainer.callbacks
 *
 * Several files may describe one training: uns_settings_add is called for each. */
#ifndef UNS_CHECK_SETTINGS_H
#define UNS_CHECK_SETTINGS_H

#include <cjson/cJSON.h>
#include <stdint.h>

#include "base/arena.h"
#include "check/versions.h"

enum uns_config_kind {
	UNS_CONFIG_UNKNOWN,
	UNS_CONFIG_TRAINING_ARGUMENTS,
	UNS_CONFIG_ACCELERATE,
	UNS_CONFIG_DEEPSPEED,
	UNS_CONFIG_LIGHTNING,
};

enum uns_said { UNS_NOT_SAID, UNS_SAID_NO, UNS_SAID_YES };

enum uns_state_dict { UNS_STATE_DICT_NOT_SAID, UNS_FULL, UNS_LOCAL, UNS_SHARDED };

struct uns_settings {
	bool trainer, accelerate, lightning; /* a file of this kind was read */

	bool fsdp;
	int64_t fsdp_version; /* 0 = not set */
	enum uns_state_dict state_dict;
	bool save_only_model, load_best_model_at_end;
	double weight_decay; /* 0 = none or not set */

	bool deepspeed;
	int64_t zero_stage; /* 0 = none or not set */
	enum uns_said load_universal, gather_16bit;
	bool universal_key; /* "universal_checkpoint" and the like at the top, which is never read */
	bool round_robin, exclude_frozen;

	bool lightning_sharded, lightning_weights_only;

	const char *output_dir; /* NULL = not set */
	const char *output_dir_why; /* a sentence when it cannot be written: filled by the session */
	/* Configs that are named instead of written out; NULL = none, or read already. */
	const char *deepspeed_file, *fsdp_file;

	struct uns_version version[UNS_N_PACKAGES];
};

/* Looks at the top keys only. */
enum uns_config_kind uns_config_kind_of(const cJSON *json);
const char *uns_config_kind_text(enum uns_config_kind kind);

/* Adds the settings of `json`; strings are copied into the arena. -ENOMEM. */
int uns_settings_add(struct uns_settings *s, enum uns_config_kind kind, const cJSON *json, struct uns_arena *arena,
		     struct uns_err *err);
/* The content of fsdp_file. */
void uns_settings_add_fsdp(struct uns_settings *s, const cJSON *fsdp_config);

/* Does FSDP save shards, as far as is known? */
bool uns_settings_sharded(const struct uns_settings *s);
/* 2 or 1, also where the framework's default decides; 0 = its version would have to be known. */
int64_t uns_settings_fsdp_version(const struct uns_settings *s);

#endif
