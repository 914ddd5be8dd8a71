/* What adapter_config.json records of a LoRA, as far as it decides what the adapter adds to a weight. Pure. */
#ifndef UNS_FILES_LORA_SETTINGS_H
#define UNS_FILES_LORA_SETTINGS_H

#include "wire/json.h"

struct uns_lora_settings {
	int64_t r;
	double alpha;
	bool rslora;
	bool fan_in_fan_out; /* weights are [in, out] */
	bool dora;           /* modules have magnitudes */
	const cJSON *ranks, *alphas; /* patterns of modules' names -> number; in `json`; NULL = none */
	cJSON *json;
};

/* Call uns_lora_settings_fini whatever this returned. -ENOTSUP with a sentence if the adapter is of another method, or
 * a key that unshard does not know is set: what it changes would be missing. */
int uns_lora_settings_read(struct uns_span adapter_config, struct uns_lora_settings *out, struct uns_err *err);
void uns_lora_settings_fini(struct uns_lora_settings *settings);

/* *scale = by what the product of the module's two matrices, whose rank is r, is multiplied. -ENOTSUP if the rank is
 * another one than the settings have, or a pattern is a regular expression that unshard does not read. */
int uns_lora_settings_scale(const struct uns_lora_settings *settings, const char *module, uint64_t r, double *scale,
			    struct uns_err *err);

#endif
