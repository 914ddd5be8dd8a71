/* Reads files that a trainer wrote as facts. Takes only keys that are known (fact_keys.h) with values that
 * fit them. */
#include "facts/fact_files.h"

#include <math.h>
#include <string.h>

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

static int add(struct facts *f, const char *key, const cJSON *value, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) char *json = NULL;

	if (!fact_key_known(key))
		return 0;
	json = cJSON_PrintUnformatted(value);
	if (!json || !UNS_ARENA_ROOM(f->arena, f->v, f->n, f->cap))
		return uns_oom(err);
	if (fact_key_check(key, json, NULL) < 0)
		return 0;
	f->v[f->n] = (struct uns_store_fact){
		.key = uns_arena_str(f->arena, key),
		.json = uns_arena_str(f->arena, json),
		.origin = f->origin,
	};
	if (!f->v[f->n].key || !f->v[f->n].json)
		return uns_oom(err);
	f->n++;
	return 0;
}

/* -- JSON: trainer_state.json, training_args.json, a unit map -- */

/* The file is {"unshard_fsdp_units": 1, "units": [..]}; the list "units" becomes the fact. */
static int add_units(struct facts *f, const cJSON *json, const char *name, struct uns_err *err)
{
	const cJSON *units = cJSON_GetObjectItemCaseSensitive(json, "units");
	UNS_CLEANUP(uns_free_p)
	char *text = cJSON_IsArray(units) ? cJSON_PrintUnformatted(units) : NULL;
	int64_t version;

	if (!uns_json_int(json, UNITS_FILE, &version) || version != 1)
		return uns_fail(err, -ENOTSUP, "%s: " UNITS_FILE " is not 1", name);
	if (!text)
		return uns_fail(err, -EBADMSG, "%s has no list \"units\"", name);
	f->v = UNS_NEW(f->arena, struct uns_store_fact);
	if (!f->v)
		return uns_oom(err);
	f->v[0] = (struct uns_store_fact){
		.key = UNITS_FACT,
		.json = uns_arena_printf(f->arena, "{\"units\":%s}", text),
		.origin = f->origin,
	};
	f->n = 1;
	return f->v[0].json ? 0 : uns_oom(err);
}

static int from_json(struct facts *f, const struct uns_root *root, const char *name,
		     struct uns_err *err)
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
		return add_units(f, json, name, err);
	cJSON_ArrayForEach (item, json)
		UNS_TRY(add(f, item->string, item, err));
	return 0;
}

/* -- torch.save: training_args.bin, scheduler.pt -- */

/* The value of an enum's member, which is pickled as a call of its class, as in SchedulerType("linear");
 * any other value unchanged. */
static const struct uns_value *plain(const struct uns_value *v)
{
	if (v->kind == UNS_VALUE_OBJECT && v->object.args && v->object.args->n == 1)
		return v->object.args->item[0];
	return v;
}

/* Converts a number, string, bool or None; returns NULL for anything else, and if out of memory. */
static cJSON *to_json(const struct uns_value *v)
{
	const char *text = uns_value_str(v);

	if (v->kind == UNS_VALUE_NONE)
		return cJSON_CreateNull();
	if (v->kind == UNS_VALUE_BOOL)
		return cJSON_CreateBool(v->b);
	if (v->kind == UNS_VALUE_INT)
		return cJSON_CreateNumber((double)v->i);
	if (v->kind == UNS_VALUE_FLOAT && isfinite(v->f))
		return cJSON_CreateNumber(v->f);
	return text ? cJSON_CreateString(text) : NULL;
}

static int add_value(struct facts *f, const char *key, const struct uns_value *v,
		     struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = key && v ? to_json(plain(v)) : NULL;

	return json ? add(f, key, json, err) : 0;
}

/* Takes the fields of a pickled object: its __dict__, which pickle's BUILD sets. */
static int from_fields(struct facts *f, const struct uns_value *object, struct uns_err *err)
{
	const struct uns_value *state = object->state;
	size_t i;

	for (i = 0; state && state->kind == UNS_VALUE_DICT && i < state->n; i++)
		UNS_TRY(add_value(f, uns_value_str(state->pair[i].key), state->pair[i].value, err));
	return 0;
}

/* A scheduler's last_epoch counts optimizer steps, as the Trainer's global_step does. */
static int from_scheduler(struct facts *f, const struct uns_value *dict, struct uns_err *err)
{
	return add_value(f, "global_step", uns_value_get(dict, "last_epoch"), err);
}

static int from_torch(struct facts *f, const struct uns_root *root, const char *name,
		      struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_open_file file = { .name = name };
	struct uns_torchfile torch;
	struct uns_reader reader;
	struct uns_stat st;

	UNS_TRY(uns_root_open_file(root, name, &fd, &st, err));
	file.fd = fd;
	reader = uns_reader_of_file(&file, st.id.size);
	if (uns_torchfile_open(&reader, &scratch, &torch, err) < 0)
		return uns_fail_in(err, "%s", name);
	if (torch.root && torch.root->kind == UNS_VALUE_OBJECT)
		return from_fields(f, torch.root, err);
	if (torch.root && torch.root->kind == UNS_VALUE_DICT)
		return from_scheduler(f, torch.root, err);
	return 0;
}

int fact_file_read(const struct uns_root *root, const char *name, const char *origin,
		   struct uns_arena *arena, struct uns_store_fact **out, size_t *n,
		   struct uns_err *err)
{
	struct facts f = { .arena = arena, .origin = origin };

	if (uns_str_ends(name, ".json"))
		UNS_TRY(from_json(&f, root, name, err));
	else
		UNS_TRY(from_torch(&f, root, name, err));
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
