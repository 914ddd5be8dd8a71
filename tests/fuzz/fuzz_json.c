/* wire/json.c: any bytes. */
#include "fuzz.h"

#include <stdlib.h>

#include "wire/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uns_err err = { 0 };
	cJSON *json = NULL;
	int64_t i;
	bool b;
	int rc = uns_json_parse(uns_span_of(data, size), &json, &err);

	if ((rc < 0) != (err.code < 0) || (rc == 0) != (json != NULL))
		abort();
	uns_json_int(json, "a", &i);
	uns_json_bool(json, "a", &b);
	uns_json_str(json, "a");
	cJSON_Delete(json);
	return 0;
}
