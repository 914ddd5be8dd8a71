/* Source: peft 0.21.2, config.py and auto.py: base_model_name_or_path and revision are what from_pretrained got.
 *
 * A path is followed if it is absolute: from which directory another one leads is recorded nowhere. */
#include "facts/adapted_model.h"

#include <unistd.h>

#include "base/cleanup.h"
#include "facts/hub.h"
#include "wire/json.h"

int adapted_model_text(const cJSON *json, const char *key, struct uns_arena *arena, const char **out,
		       struct uns_err *err)
{
	const char *text = uns_json_str(json, key);

	*out = NULL;
	if (text && *text)
		UNS_TRY_ALLOC(*out = uns_arena_str(arena, text), err);
	return 0;
}

static int names_read(struct uns_span adapter_config, struct uns_arena *arena, struct adapted_model *out,
		      struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	struct uns_err why = { 0 };

	if (uns_json_parse(adapter_config, &json, &why) < 0)
		return uns_fail_if_passing(err, why.code, &why);
	UNS_TRY(adapted_model_text(json, "base_model_name_or_path", arena, &out->name, err));
	return adapted_model_text(json, "revision", arena, &out->revision, err);
}

static int directory_open(struct uns_capture *capture, const char *by, uint32_t uid, struct uns_arena *arena,
			  struct adapted_model *out, struct uns_err *err)
{
	/* Else a user, by a file in SOURCE, could have this process show models that only its own user may read. */
	if (uid && uid != geteuid())
		return uns_fail(err, -EACCES,
				"%s, which names it, belongs to another user, whose word opens no directory", by);
	if (*out->name == '/') {
		out->path = "";
		return hub_root_open(out->name, capture, &out->root, err);
	}
	if (!hub_is_model_name(out->name))
		return uns_fail(err, -ENOENT, "it is a path from a directory that is not recorded");
	return hub_snapshot_find(out->name, out->revision, capture, arena, &out->root, &out->path, err);
}

int adapted_model_find(struct uns_span adapter_config, uint32_t uid, struct uns_capture *capture,
		       struct uns_arena *arena, struct adapted_model *out, struct uns_err *err)
{
	UNS_TRY(names_read(adapter_config, arena, out, err));
	return out->name ? adapted_model_open(out, "adapter_config.json", uid, capture, arena, err) : 0;
}

int adapted_model_open(struct adapted_model *out, const char *by, uint32_t uid, struct uns_capture *capture,
		       struct uns_arena *arena, struct uns_err *err)
{
	struct uns_err why = { 0 };
	int code = directory_open(capture, by, uid, arena, out, &why);

	if (code < 0 && code != -EACCES)
		UNS_TRY(uns_fail_if_passing(err, code, &why));
	if (code < 0) {
		uns_root_close(out->root);
		out->root = NULL;
		UNS_TRY_ALLOC(out->why = uns_arena_str(arena, why.text), err);
	}
	return 0;
}
