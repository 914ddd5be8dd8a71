/* wire/yaml.c, and the rules over whatever it gives: any bytes. */
#include "fuzz.h"

#include <stdlib.h>

#include "check/setting_rules.h"
#include "wire/yaml.h"

static void judge(const cJSON *json)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_settings settings = { 0 };
	int kind;
	size_t i;

	uns_config_kind_of(json);
	for (kind = UNS_CONFIG_UNKNOWN; kind <= UNS_CONFIG_LIGHTNING; kind++)
		if (uns_settings_add(&settings, (enum uns_config_kind)kind, json, &arena, NULL) < 0)
			abort();
	uns_settings_add_fsdp(&settings, json);
	for (i = 0; i < uns_n_setting_rules; i++)
		uns_setting_rules[i].judge(&settings);
	uns_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uns_err err = { 0 };
	cJSON *json = NULL;
	int rc = uns_yaml_parse(uns_span_of(data, size), &json, &err);

	if ((rc < 0) != (err.code < 0) || (rc == 0) != (json != NULL))
		abort();
	if (json)
		judge(json);
	cJSON_Delete(json);
	return 0;
}
