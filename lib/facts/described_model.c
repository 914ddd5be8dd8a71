/* Reads the files. */
#include "facts/described_model.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "io/seen.h"
#include "megatron/described.h"
#include "wire/json.h"
#include "wire/yaml.h"

enum { LIMIT_BYTES = 4 << 20, TOKENIZER_LIMIT_BYTES = 64 << 20 };

static const struct {
	const char *file, *key; /* of the object with the fields */
} places[] = {
	{ "model.yaml", "config" },
	{ "run_config.yaml", "model" },
};

enum { N_PLACES = sizeof(places) / sizeof(places[0]) };

const char *described_model_file(const struct uns_listing *list)
{
	size_t i;

	for (i = 0; i < N_PLACES; i++)
		if (uns_listing_find(list, places[i].file))
			return places[i].file;
	return NULL;
}

/* *out stays empty if there is no such file. */
static int file_of_tokenizer(const struct described_input *in, const char *name, struct uns_arena *arena,
			     struct uns_span *out, struct uns_err *err)
{
	const char *path = uns_path_join(arena, in->tokenizer_dir, name);
	struct uns_err why = { 0 };
	int code;

	*out = (struct uns_span){ 0 };
	UNS_TRY_ALLOC(path, err);
	code = uns_read_seen(in->tokenizer_root, in->cat->capture, path, TOKENIZER_LIMIT_BYTES, arena, out, &why);
	return uns_fail_if_passing(err, code, &why);
}

static int tokenizer_read(const struct described_input *in, struct uns_tokenizer *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	struct uns_span tokens = { 0 }, config = { 0 };

	if (in->tokenizer_root) {
		UNS_TRY(file_of_tokenizer(in, "tokenizer.json", &scratch, &tokens, err));
		UNS_TRY(file_of_tokenizer(in, "tokenizer_config.json", &scratch, &config, err));
	}
	return uns_tokenizer_read(tokens, config, out, err);
}

/* Of the weights. A training in bf16 may save them as fp32. */
static const char *dtype_of(const struct uns_catalog *cat)
{
	size_t i = 0;

	while (i < cat->n_tensors && cat->tensors[i].role != UNS_ROLE_WEIGHT)
		i++;
	return i < cat->n_tensors ? uns_dtype_info(cat->tensors[i].dtype)->torch : "float32";
}

int described_model_read(const struct described_input *in, struct uns_arena *arena, struct described_model *out,
			 struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *root = NULL;
	const char *path = uns_path_join(arena, in->dir, in->file);
	struct uns_tokenizer tokens;
	const cJSON *fields;
	struct uns_span text;
	size_t i = 0;

	while (strcmp(places[i].file, in->file) != 0)
		i++;
	UNS_TRY_ALLOC(path, err);
	UNS_TRY(uns_read_seen(in->root, in->cat->capture, path, LIMIT_BYTES, arena, &text, err));
	UNS_TRY(uns_yaml_parse(text, &root, err));
	fields = cJSON_GetObjectItemCaseSensitive(root, places[i].key);
	if (!cJSON_IsObject(fields))
		return uns_fail(err, -ENOTSUP, "it has no object \"%s\"", places[i].key);
	UNS_TRY(tokenizer_read(in, &tokens, err));
	return uns_megatron_describe(fields, &tokens, dtype_of(in->cat), arena, &out->model_type, &out->config, err);
}
