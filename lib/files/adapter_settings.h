/* What adapter_config.json records of an adapter, as far as it decides what the adapter does to a weight. Pure. */
#ifndef UNS_FILES_ADAPTER_SETTINGS_H
#define UNS_FILES_ADAPTER_SETTINGS_H

#include "wire/json.h"

/* The methods of PEFT whose result can be computed for any part of a weight by itself. */
enum uns_adapter_method { UNS_METHOD_LORA, UNS_METHOD_IA3, UNS_METHOD_LN_TUNING };

struct uns_adapter_settings {
	enum uns_adapter_method method;
	int64_t r; /* this, and what follows but fan_in_fan_out, of a LoRA only */
	double alpha;
	bool rslora;
	bool fan_in_fan_out; /* weights are [in, out] */
	bool dora;           /* modules have magnitudes */
	const cJSON *parameters; /* target_parameters: names of parameters that modules wrap; in `json`; NULL = none */
	int peft_minor; /* of peft 0.MINOR, which wrote the file; -1 = not recorded, or another major version */
	const cJSON *ranks, *alphas; /* patterns of modules' names -> number; in `json`; NULL = none */
	cJSON *json;
};

/* Call uns_adapter_settings_fini whatever this returned. -ENOTSUP with a sentence if the adapter is of another method,
 * or a key that unshard does not know is set: what it changes would be missing. */
int uns_adapter_settings_read(struct uns_span adapter_config, struct uns_adapter_settings *out, struct uns_err *err);
void uns_adapter_settings_fini(struct uns_adapter_settings *settings);

/* The rank and the lora_alpha that a module of this name has by the patterns, or else by the config's own. -ENOTSUP if
 * a pattern is a regular expression that unshard does not read. */
int uns_adapter_settings_numbers(const struct uns_adapter_settings *settings, const char *module, double *rank,
				 double *alpha, struct uns_err *err);

/* *scale = by what the product of the module's two matrices, whose rank is r, is multiplied. -ENOTSUP if the rank is
 * another one than the settings have, or a pattern is a regular expression that unshard does not read. */
int uns_adapter_settings_scale(const struct uns_adapter_settings *settings, const char *module, uint64_t r,
			       double *scale, struct uns_err *err);

#endif
