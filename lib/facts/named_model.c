/* Looks into files that name a model. Owns the list of their keys. */
#include "facts/named_model.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "megatron/common_file.h"
#include "wire/json.h"
#include "wire/yaml.h"

enum { LIMIT_BYTES = 4 << 20, MAX_DEPTH = 3, MAX_PLACES = 3 };

static const struct naming_file {
	const char *name;
	int (*parse)(struct uns_span in, cJSON **out, struct uns_err *err);
	/* Where it names the model: keys, one behind the other; the revision is beside the name. */
	struct naming_place {
		const char *key[MAX_DEPTH], *revision;
	} at[MAX_PLACES];
} files[] = {
	{ "run_config.yaml",
	  uns_yaml_parse,
	  { { { "model", "hf_model_id" }, NULL },
	    { { "model", "extra_checkpoint_metadata", "hf_model_id" }, "hf_model_revision" },
	    { { "checkpoint", "hf_source_path" }, NULL } } },
	{ "args.json", uns_json_parse, { { { "model" }, NULL } } },
};

static int name_take(const struct naming_place *at, const cJSON *object, struct uns_arena *arena,
		     struct adapted_model *out, struct uns_err *err)
{
	size_t i = 0;

	for (; i + 1 < MAX_DEPTH && at->key[i + 1]; i++)
		object = cJSON_GetObjectItemCaseSensitive(object, at->key[i]);
	UNS_TRY(adapted_model_text(object, at->key[i], arena, &out->name, err));
	return out->name && at->revision ? adapted_model_text(object, at->revision, arena, &out->revision, err) : 0;
}

/* Reads the file if it is there. What is wrong with it is no reason to find another model's config. */
static int file_read(const struct naming_file *f, const struct named_model_place *place, struct uns_capture *capture,
		     struct uns_arena *arena, struct named_model *out, uint32_t *uid, struct uns_err *err)
{
	const char *path = uns_path_join(arena, place->path, f->name);
	UNS_CLEANUP(uns_json_free_p) cJSON *text = NULL;
	struct uns_err why = { 0 };
	struct uns_span bytes;
	struct uns_stat stat;
	size_t i;
	int code;

	UNS_TRY_ALLOC(path, err);
	code = uns_read_seen(place->root, capture, path, LIMIT_BYTES, arena, &bytes, &why);
	if (code >= 0)
		code = uns_stat_seen(place->root, capture, path, &stat, &why);
	if (code >= 0)
		code = f->parse(bytes, &text, &why);
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	if (code < 0)
		return 0;
	*uid = stat.uid;
	out->by = f->name;
	for (i = 0; i < MAX_PLACES && f->at[i].key[0] && !out->model.name; i++)
		UNS_TRY(name_take(&f->at[i], text, arena, &out->model, err));
	return 0;
}

/* slime's argument. */
static void argument_take(const struct uns_catalog *cat, struct named_model *out, uint32_t *uid)
{
	const struct uns_named_value *v = cat->values, *end = v + cat->n_values;

	for (; v < end; v++)
		if (strcmp(v->root, UNS_MEGATRON_COMMON) == 0 && strcmp(v->name, UNS_MEGATRON_MODEL) == 0 && v->value) {
			out->model.name = uns_value_str(v->value);
			out->by = UNS_MEGATRON_COMMON;
			*uid = cat->files[v->file].stat.uid;
			return;
		}
}

int named_model_find(const struct uns_catalog *cat, const struct named_model_place *places, size_t n_places,
		     struct uns_arena *arena, struct named_model *out, struct uns_err *err)
{
	uint32_t uid = 0;
	size_t i, k;

	for (i = 0; i < n_places; i++)
		for (k = 0; k < sizeof(files) / sizeof(*files) && !out->model.name; k++)
			UNS_TRY(file_read(&files[k], &places[i], cat->capture, arena, out, &uid, err));
	if (!out->model.name)
		argument_take(cat, out, &uid);
	return out->model.name ? adapted_model_open(&out->model, out->by, uid, cat->capture, arena, err) : 0;
}
