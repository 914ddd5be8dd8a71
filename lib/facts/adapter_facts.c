/* The settings of a LoRA in the files that trainers leave in a run:
 *
 *   args.json             ms-swift
 *   training_args.yaml    LLaMA-Factory's board
 *   torchtune_config.yaml torchtune: under the key model
 *   run_config.yaml       Megatron-Bridge: alpha under the key peft, and how the model was divided under model
 *   model.yaml            NeMo 2, in context/: alpha under the key model_transform
 *   training_args.json    a user's own
 *   training_args.bin     a Trainer, if its arguments have these fields
 *   README.md             PEFT, TRL: base_model between the lines "---"; axolotl: its config as well, in a block
 * ```yaml */
#include "facts/adapter_facts.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "facts/fact_keys.h"
#include "wire/json.h"
#include "wire/torchfile.h"
#include "wire/yaml.h"

enum { LIMIT_BYTES = 16 << 20 };

/* What trainers call them, up to NULL. */
static const char *const names[UNS_N_ADAPTER_FACTS][5] = {
	[UNS_ADAPTER_ALPHA] = { "lora_alpha", NULL },
	[UNS_ADAPTER_ALPHA_PATTERN] = { "alpha_pattern", NULL },
	[UNS_ADAPTER_BASE] = { "base_model_name_or_path", "model_name_or_path", "base_model", "model", NULL },
	[UNS_ADAPTER_RSLORA] = { "use_rslora", "peft_use_rslora", NULL },
};

struct taking {
	const struct adapter_facts_input *in;
	struct uns_adapter_facts *out;
	const char *origin;
};

/* Takes JSON text for a fact that is not known yet, if its value fits. */
static int take(struct taking *t, size_t fact, const char *json, struct uns_err *err)
{
	if (t->out->v[fact].json || strcmp(json, "null") == 0 ||
	    fact_key_check(uns_adapter_fact_key((enum uns_adapter_fact)fact), json, NULL) < 0)
		return 0;
	t->out->v[fact].json = uns_arena_str(t->in->arena, json);
	t->out->v[fact].origin = uns_arena_str(t->in->arena, t->origin);
	return uns_arena_check(t->in->arena, err);
}

static int object_take(struct taking *t, const cJSON *object, struct uns_err *err)
{
	const cJSON *value;
	size_t i, k;

	for (i = 0; i < UNS_N_ADAPTER_FACTS; i++)
		for (k = 0; names[i][k]; k++) {
			UNS_CLEANUP(uns_free_p) char *json = NULL;

			value = cJSON_GetObjectItemCaseSensitive(object, names[i][k]);
			if (!value)
				continue;
			UNS_TRY_ALLOC(json = cJSON_PrintUnformatted(value), err);
			UNS_TRY(take(t, i, json, err));
		}
	return 0;
}

int adapter_facts_of_store(const struct adapter_facts_input *in, struct uns_adapter_facts *out, struct uns_err *err)
{
	struct uns_store_fact *v;
	size_t n, i, k;

	UNS_TRY(store_facts_known(in->store, in->path, in->has_facts, in->arena, &v, &n, err));
	for (i = 0; i < n; i++) {
		struct taking t = { in, out, uns_arena_printf(in->arena, "the store (%s)", v[i].origin) };

		for (k = 0; k < UNS_N_ADAPTER_FACTS; k++)
			if (strcmp(v[i].key, names[k][0]) == 0)
				UNS_TRY(take(&t, k, v[i].json, err));
	}
	return uns_arena_check(in->arena, err);
}

/* -- files -- */

static int yaml_take(struct taking *t, struct uns_span text, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *parsed = NULL;

	return uns_yaml_parse(text, &parsed, NULL) < 0 ? 0 : object_take(t, parsed, err);
}

static int tune_take(struct taking *t, struct uns_span text, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *parsed = NULL;

	return uns_yaml_parse(text, &parsed, NULL) < 0
		       ? 0
		       : object_take(t, cJSON_GetObjectItemCaseSensitive(parsed, "model"), err);
}

/* Of Megatron-Bridge and NeMo: other methods than a LoRA have no alpha. */
static int megatron_take(struct taking *t, struct uns_span text, const char *key, const char *classes,
			 struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *parsed = NULL;
	UNS_CLEANUP(uns_free_p) char *json = NULL;
	const cJSON *method, *alpha;

	if (uns_yaml_parse(text, &parsed, NULL) < 0)
		return 0;
	method = cJSON_GetObjectItemCaseSensitive(parsed, key);
	alpha = cJSON_GetObjectItemCaseSensitive(method, "alpha");
	if (!uns_json_str(method, "_target_") || !uns_str_starts(uns_json_str(method, "_target_"), classes) || !alpha)
		return 0;
	uns_json_int(cJSON_GetObjectItemCaseSensitive(parsed, "model"), "expert_model_parallel_size",
		     &t->out->expert_ranks);
	UNS_TRY_ALLOC(json = cJSON_PrintUnformatted(alpha), err);
	return take(t, UNS_ADAPTER_ALPHA, json, err);
}

static int bridge_take(struct taking *t, struct uns_span text, struct uns_err *err)
{
	return megatron_take(t, text, "peft", "megatron.bridge.peft.", err);
}

static int nemo_take(struct taking *t, struct uns_span text, struct uns_err *err)
{
	return megatron_take(t, text, "model_transform", "nemo.collections.llm.peft.", err);
}

static int json_take(struct taking *t, struct uns_span text, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *parsed = NULL;

	return uns_json_parse(text, &parsed, NULL) < 0 ? 0 : object_take(t, parsed, err);
}

/* What is between the first line `begin` and the next line `end`. The text ends with a NUL. */
static bool between(struct uns_span text, const char *begin, const char *end, struct uns_span *out)
{
	const char *from = strstr((const char *)text.p, begin);
	const char *to = from ? strstr(from + strlen(begin), end) : NULL;

	if (!to)
		return false;
	from += strlen(begin);
	*out = uns_span_of(from, (size_t)(to - from) + 1);
	return true;
}

static int readme_take(struct taking *t, struct uns_span text, struct uns_err *err)
{
	struct uns_span part;

	if (between(text, "```yaml\n", "\n```", &part))
		UNS_TRY(yaml_take(t, part, err));
	if (uns_str_starts((const char *)text.p, "---\n") && between(text, "---\n", "\n---", &part))
		UNS_TRY(yaml_take(t, part, err));
	return 0;
}

static int arguments_take(struct taking *t, const struct uns_root *root, const char *path, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_json_free_p) cJSON *object = cJSON_CreateObject();
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_open_file file = { .name = path };
	const struct uns_value *v;
	struct uns_torchfile torch;
	struct uns_reader reader;
	struct uns_err why = { 0 };
	struct uns_stat st;
	double number;
	size_t i, k;
	int code;

	UNS_TRY_ALLOC(object, err);
	code = uns_open_seen(root, t->in->capture, path, &fd, &st, &why);
	if (code == 0) {
		file.fd = fd;
		reader = uns_reader_of_file(&file, st.id.size);
		code = uns_torchfile_open(&reader, &scratch, &torch, &why);
	}
	if (code < 0)
		return uns_fail_if_passing(err, code, &why);
	for (i = 0; i < UNS_N_ADAPTER_FACTS; i++)
		for (k = 0; names[i][k]; k++) {
			v = uns_value_field(torch.root, names[i][k]);
			if (v && v->kind == UNS_VALUE_BOOL)
				cJSON_AddBoolToObject(object, names[i][k], v->b);
			else if (uns_value_float(v, &number))
				cJSON_AddNumberToObject(object, names[i][k], number);
			else if (uns_value_str(v))
				cJSON_AddStringToObject(object, names[i][k], uns_value_str(v));
		}
	return object_take(t, object, err);
}

int adapter_facts_of_dir(const struct adapter_facts_input *in, const struct uns_root *root, const char *dir,
			 struct uns_adapter_facts *out, struct uns_err *err)
{
	static const struct {
		const char *name;
		int (*take)(struct taking *t, struct uns_span text, struct uns_err *err);
	} files[] = {
		{ "args.json", json_take },
		{ "training_args.yaml", yaml_take },
		{ "torchtune_config.yaml", tune_take },
		{ "run_config.yaml", bridge_take },
		{ "model.yaml", nemo_take },
		{ "training_args.json", json_take },
		{ "README.md", readme_take },
	};
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	struct taking t = { in, out, NULL };
	struct uns_span text;
	size_t i;
	int code;

	UNS_TRY_ALLOC(t.origin = uns_path_join(&scratch, dir, "training_args.bin"), err);
	UNS_TRY(arguments_take(&t, root, t.origin, err));
	for (i = 0; i < sizeof(files) / sizeof(*files); i++) {
		struct uns_err why = { 0 };

		UNS_TRY_ALLOC(t.origin = uns_path_join(&scratch, dir, files[i].name), err);
		code = uns_read_seen(root, in->capture, t.origin, LIMIT_BYTES, &scratch, &text, &why);
		UNS_TRY(uns_fail_if_passing(err, code, &why));
		if (code == 0)
			UNS_TRY(files[i].take(&t, text, err));
	}
	return 0;
}
