/* wire/json_text.c: text that wire/json.c accepts, walked member by member. Laid out anew it is JSON still,
 * and laid out again it stays as it is. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "wire/json.h"
#include "wire/json_text.h"

static void walk(struct uns_span all, unsigned depth)
{
	struct uns_span at = all, key, value;
	int64_t i;

	uns_json_text_int(all, &i);
	uns_json_text_get(all, "a", &value);
	while (depth && uns_json_text_next(&at, &key, &value)) {
		if (value.p < all.p || value.end > all.end || value.p >= value.end || at.p < value.end ||
		    at.end != all.end)
			abort();
		if (*value.p == '{' || *value.p == '[')
			walk(value, depth - 1);
	}
}

static void lay_out(struct uns_span in, struct uns_text *out)
{
	cJSON *json = NULL;

	uns_json_text_indent(out, in, 0);
	if (out->failed || uns_json_parse(uns_span_of(out->p, out->len), &json, NULL) < 0)
		abort();
	cJSON_Delete(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uns_text once = UNS_TEXT_INIT, twice = UNS_TEXT_INIT;
	struct uns_span in = uns_span_of(data, size);
	cJSON *json = NULL;

	if (size > 1 << 16 || uns_json_parse(in, &json, NULL) < 0)
		return 0;
	cJSON_Delete(json);
	uns_json_text_depth(in);
	walk(in, 64);
	lay_out(in, &once);
	lay_out(uns_span_of(once.p, once.len), &twice);
	uns_text_fini(&once);
	uns_text_fini(&twice);
	return 0;
}
