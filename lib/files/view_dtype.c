/* Which parameters there are, and config.json beside them. */
#include "files/view_dtype.h"

#include <string.h>

#include "names/config.h"

bool uns_view_dtype_parse(const char *parameter, uint64_t *out)
{
	static const struct {
		const char *text;
		enum uns_dtype dtype;
	} known[] = { { "", UNS_DTYPE_NONE }, { "bf16", UNS_BF16 }, { "fp16", UNS_F16 }, { "fp32", UNS_F32 } };
	size_t i;

	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(parameter, known[i].text) == 0) {
			*out = known[i].dtype;
			return true;
		}
	return false;
}

int uns_view_dtype_add_config(const struct uns_catalog *cat, const struct uns_companion *file, struct uns_span config,
			      enum uns_dtype dtype, struct uns_vtree *out, struct uns_err *err)
{
	const char *torch = uns_dtype_info(dtype)->torch;
	struct uns_span text;

	if (dtype == UNS_DTYPE_NONE || !uns_span_left(&config))
		return uns_vtree_add_companion(out, cat, file, err);
	UNS_TRY(uns_config_with_dtype(config, torch, &out->arena, &text, err));
	return uns_vtree_add_text(
		out, file->name, (const char *)text.p, uns_span_left(&text),
		uns_arena_printf(&out->arena, "the checkpoint's config.json with dtype set to %s", torch), err);
}
