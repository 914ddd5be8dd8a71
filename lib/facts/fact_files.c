/* Reads files that a trainer wrote as facts. Takes only keys that are known (fact_keys.h) with values that fit them. */
#include "facts/fact_files.h"

#include <math.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "facts/fact_keys.h"
#include "wire/json.h"
#include "wire/torchfile.h"

#define UNITS_FILE     "unshard_fsdp_units"
#define MAX_JSON_BYTES (UINT64_C(256) << 20)

struct facts {
	struct uns_arena *arena;
	const char *origin;
	struct uns_store_fact *v;
	size_t n, cap;
};

/* Adds a value if the key is known and the value fits it; NULL adds nothing. */
static int fact_add(struct facts *f, const char *key, const cJSON *value, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) char *json = NULL;
	struct uns_store_fact fact = { .origin = f->origin };

	if (!key || !value || !fact_key_known(key))
		return 0;
	UNS_TRY_ALLOC(json = cJSON_PrintUnformatted(value), err);
	if (fact_key_check(key, json, NULL) < 0)
		return 0;
	UNS_TRY_ALLOC(UNS_ARENA_ROOM(f->arena, f->v, f->n, f->cap), err);
	fact.key = uns_arena_str(f->arena, key);
	fact.json = uns_arena_str(f->arena, json);
	f->v[f->n++] = fact;
	return uns_arena_check(f->arena, err);
}

/* -- JSON: trainer_state.json, training_args.json, a unit map -- */

/* The file is {"unshard_fsdp_units": 1, "units": [..]}; the list "units" becomes the fact. */
static int units_add(struct facts *f, const cJSON *json, const char *name, struct uns_err *err)
{
	const cJSON *units = cJSON_GetObjectItemCaseSensitive(json, "units");
	UNS_CLEANUP(uns_free_p)
	char *text = cJSON_IsArray(units) ? cJSON_PrintUnformatted(units) : NULL;
	int64_t version;

	if (!uns_json_int(json, UNITS_FILE, &version) || version != 1)
		return uns_fail(err, -ENOTSUP, "%s: " UNITS_FILE " is not 1", name);
	if (!text)
		return uns_fail(err, -EBADMSG, "%s has no list \"units\"", name);
	UNS_TRY_ALLOC(UNS_ARENA_ROOM(f->arena, f->v, f->n, f->cap), err);
	f->v[f->n++] = (struct uns_store_fact){ .key = UNITS_FACT,
						.json = uns_arena_printf(f->arena, "{\"units\":%s}", text),
						.origin = f->origin };
	return uns_arena_check(f->arena, err);
}

static int json_read(struct facts *f, const struct uns_root *root, const char *name, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	const cJSON *item;
	struct uns_span text;

	UNS_TRY(uns_root_read_file(root, name, MAX_JSON_BYTES, &scratch, &text, NULL, err));
	if (uns_json_parse(text, &json, err) < 0)
		return uns_fail_in(err, "%s", name);
	if (!cJSON_IsObject(json))
		return uns_fail(err, -ENOTSUP, "%s does not hold a JSON object", name);
	if (cJSON_GetObjectItemCaseSensitive(json, UNITS_FILE))
		return units_add(f, json, name, err);
	cJSON_ArrayForEach (item, json)
		UNS_TRY(fact_add(f, item->string, item, err));
	return 0;
}

/* -- torch.save: training_args.bin, scheduler.pt -- */

/* Adds a number, string, bool or None; any other value is left out. An enum's member is pickled as a call of its class,
 * as in SchedulerType("linear"). */
static int value_add(struct facts *f, const char *key, const struct uns_value *v, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;

	if (v && v->kind == UNS_VALUE_OBJECT && v->object.args && v->object.args->n == 1)
		v = v->object.args->item[0];
	if (!v)
		return 0;
	if (v->kind == UNS_VALUE_NONE)
		json = cJSON_CreateNull();
	else if (v->kind == UNS_VALUE_BOOL)
		json = cJSON_CreateBool(v->b);
	else if (v->kind == UNS_VALUE_INT)
		json = cJSON_CreateNumber((double)v->i);
	else if (v->kind == UNS_VALUE_FLOAT && isfinite(v->f))
		json = cJSON_CreateNumber(v->f);
	else if (uns_value_str(v))
		json = cJSON_CreateString(uns_value_str(v));
	return fact_add(f, key, json, err);
}

static int torch_read(struct facts *f, const struct uns_root *root, const char *name, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_open_file file = { .name = name };
	const struct uns_value *fields;
	struct uns_torchfile torch;
	struct uns_reader reader;
	struct uns_stat st;
	size_t i;

	UNS_TRY(uns_root_open_file(root, name, &fd, &st, err));
	file.fd = fd;
	reader = uns_reader_of_file(&file, st.id.size);
	if (uns_torchfile_open(&reader, &scratch, &torch, err) < 0)
		return uns_fail_in(err, "%s", name);
	if (torch.root && torch.root->kind == UNS_VALUE_DICT)
		/* A scheduler's last_epoch counts optimizer steps, as the Trainer's global_step does. */
		return value_add(f, "global_step", uns_value_get(torch.root, "last_epoch"), err);
	/* The fields of a pickled object are its __dict__, which pickle's BUILD sets. */
	fields = torch.root && torch.root->kind == UNS_VALUE_OBJECT ? torch.root->state : NULL;
	for (i = 0; fields && fields->kind == UNS_VALUE_DICT && i < fields->n; i++)
		UNS_TRY(value_add(f, uns_value_str(fields->pair[i].key), fields->pair[i].value, err));
	return 0;
}

int fact_file_read(const struct uns_root *root, const char *name, const char *origin, struct uns_arena *arena,
		   struct uns_store_fact **out, size_t *n, struct uns_err *err)
{
	struct facts f = { .arena = arena, .origin = origin };

	if (uns_str_ends(name, ".json"))
		UNS_TRY(json_read(&f, root, name, err));
	else
		UNS_TRY(torch_read(&f, root, name, err));
	if (!f.n)
		return uns_fail(err, -ENOTSUP,
				"%s holds no facts about a training: facts are imported from "
				"trainer_state.json, training_args.json, training_args.bin, "
				"scheduler.pt and unit maps of FSDP1's flat units",
				origin);
	*out = f.v;
	*n = f.n;
	return 0;
}
