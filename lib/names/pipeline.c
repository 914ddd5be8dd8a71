#include "names/pipeline.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/text.h"
#include "wire/json.h"

/* One name of a directory: not hidden, and without '/'. */
static bool is_name(const char *name)
{
	return *name && *name != '.' && !strchr(name, '/');
}

int uns_pipeline_read(struct uns_span json, struct uns_arena *arena, struct uns_pipeline *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *parsed = NULL;
	const cJSON *item, *library;
	const char *stem;

	*out = (struct uns_pipeline){ 0 };
	UNS_TRY(uns_json_parse(json, &parsed, err));
	if (!cJSON_IsObject(parsed) || !uns_json_str(parsed, "_class_name"))
		return uns_fail(err, -EBADMSG, "it is no object with a _class_name");
	UNS_TRY_ALLOC(out->v = UNS_NEW_N(arena, struct uns_component, (size_t)cJSON_GetArraySize(parsed) + 1), err);
	cJSON_ArrayForEach (item, parsed) {
		library = cJSON_IsArray(item) && cJSON_GetArraySize(item) == 2 ? cJSON_GetArrayItem(item, 0) : NULL;
		if (!library || !cJSON_IsString(library) || *item->string == '_')
			continue;
		if (!is_name(item->string))
			return uns_fail(err, -EBADMSG, "\"%s\" is no name of a directory", item->string);
		stem = strcmp(library->valuestring, "diffusers") == 0 ? "diffusion_pytorch_model" : "model";
		out->v[out->n].name = uns_arena_str(arena, item->string);
		out->v[out->n].stem = uns_path_join(arena, item->string, stem);
		out->v[out->n++].model = UNS_NO_MODEL;
	}
	return uns_arena_check(arena, err);
}

const struct uns_component *uns_pipeline_of_model(const struct uns_pipeline *pipeline, int model)
{
	size_t i = 0;

	while (i < pipeline->n && pipeline->v[i].model != model)
		i++;
	return i < pipeline->n ? &pipeline->v[i] : NULL;
}

/* Weights exist in many forms (variants, .bin, .msgpack, each with an index): what is none is named. */
bool uns_pipeline_keeps(const char *name)
{
	static const char *const globs[] = { "*.json", "*.txt", "*.model", "*.py", NULL };
	size_t i = 0;

	while (globs[i] && !uns_str_glob(globs[i], name))
		i++;
	return globs[i] && !uns_str_glob("*.index*.json", name);
}
