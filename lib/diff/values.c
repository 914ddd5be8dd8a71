#include "diff/values.h"

#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/number.h"
#include "session/shows.h"
#include "wire/json.h"

/* Of one value that is taken apart: names and levels. What has more is left out. */
enum { MOST_NODES = 100000, MOST_LEVELS = 64 };

#define CONFIG  "config."
#define GROUPS  "param_groups."
#define TRAINER "trainer."

static int put(struct diff_values *v, const char *name, const char *json, struct uns_err *err)
{
	UNS_TRY_ALLOC(name && json && uns_map_put(&v->json, name, (void *)json, NULL), err);
	return 0;
}

/* -- one value as text -- */

/* 1 and 1.0 are the same number; NaN and infinity are texts. */
static const char *number_text(struct uns_arena *arena, double number)
{
	char text[UNS_NUMBER_ROOM];

	if (!isfinite(number))
		return isnan(number) ? "\"NaN\"" : number > 0 ? "\"Infinity\"" : "\"-Infinity\"";
	if (fabs(number) < 9007199254740992.0 && floor(number) >= number && floor(number) <= number)
		return uns_arena_printf(arena, "%lld", (long long)number);
	return uns_arena_str(arena, uns_number_print_exact(text, number));
}

static const char *string_text(struct uns_arena *arena, const char *s)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;

	uns_text_json_str(&text, s);
	return text.failed ? NULL : uns_arena_str(arena, text.p);
}

/* -- JSON, taken apart -- */

static int put_json(struct diff_values *v, const char *name, const cJSON *json, struct uns_err *err)
{
	const cJSON *item;
	size_t i = 0;

	UNS_TRY_ALLOC(name, err);
	cJSON_ArrayForEach (item, json)
		UNS_TRY(put_json(v,
				 item->string ? uns_arena_printf(&v->arena, "%s.%s", name, item->string)
					      : uns_arena_printf(&v->arena, "%s.%zu", name, i++),
				 item, err));
	if (json->child)
		return 0;
	return put(v, name,
		   cJSON_IsNumber(json)   ? number_text(&v->arena, json->valuedouble)
		   : cJSON_IsString(json) ? string_text(&v->arena, json->valuestring)
		   : cJSON_IsBool(json)   ? (cJSON_IsTrue(json) ? "true" : "false")
		   : cJSON_IsArray(json)  ? "[]"
		   : cJSON_IsObject(json) ? "{}"
					  : "null",
		   err);
}

static int collect_config(struct diff_values *v, struct uns_span text, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	const cJSON *item;
	struct uns_err why = { 0 };
	int code;

	if (!uns_span_left(&text))
		return 0;
	code = uns_json_parse(text, &json, &why);
	if (code < 0) /* a config that is damaged counts as none */
		return uns_fail_if_passing(err, code, &why);
	v->has_config = true;
	cJSON_ArrayForEach (item, json)
		UNS_TRY(put_json(v, item->string ? uns_arena_printf(&v->arena, CONFIG "%s", item->string) : "config",
				 item, err));
	return 0;
}

/* -- values of pickles, taken apart -- */

static const char *scalar_text(struct uns_arena *arena, const struct uns_value *value)
{
	switch (value->kind) {
	case UNS_VALUE_NONE:
		return "null";
	case UNS_VALUE_BOOL:
		return value->b ? "true" : "false";
	case UNS_VALUE_INT:
		return uns_arena_printf(arena, "%lld", (long long)value->i);
	case UNS_VALUE_FLOAT:
		return number_text(arena, value->f);
	case UNS_VALUE_STR:
		return string_text(arena, uns_value_str(value) ? uns_value_str(value) : "?");
	default:
		return string_text(arena, value->cls ? value->cls : "(an object)");
	}
}

static bool is_sequence(const struct uns_value *value)
{
	return value->kind == UNS_VALUE_LIST || value->kind == UNS_VALUE_TUPLE || value->kind == UNS_VALUE_SET;
}

/* `value` fits (uns_value_fits). */
static int put_value(struct diff_values *v, const char *name, const struct uns_value *value, struct uns_err *err)
{
	size_t i;

	UNS_TRY_ALLOC(name, err);
	if (value->kind != UNS_VALUE_DICT && !is_sequence(value))
		return put(v, name, scalar_text(&v->arena, value), err);
	for (i = 0; i < value->n; i++)
		UNS_TRY(put_value(v,
				  uns_value_child_name(&v->arena, name,
						       value->kind == UNS_VALUE_DICT ? value->pair[i].key : NULL, i),
				  value->kind == UNS_VALUE_DICT ? value->pair[i].value : value->item[i], err));
	return value->n ? 0 : put(v, name, is_sequence(value) ? "[]" : "{}", err);
}

static int collect_groups(struct diff_values *v, const struct uns_catalog *cat, struct uns_err *err)
{
	const struct uns_group *g;
	size_t i;

	for (i = 0; i < cat->n_groups; i++) {
		g = &cat->groups[i];
		if (g->bare || !g->hyper || !uns_value_fits(g->hyper, MOST_NODES, MOST_LEVELS))
			continue;
		v->has_groups = true;
		UNS_TRY(put_value(v, uns_arena_printf(&v->arena, GROUPS "%zu", i), g->hyper, err));
	}
	return 0;
}

/* -- the training -- */

static int collect_training(struct diff_values *v, const struct uns_training *training, struct uns_err *err)
{
	const struct uns_fact *f;
	size_t i;

	for (i = 0; i < training->n; i++) {
		UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
		const char *name = uns_arena_printf(&v->arena, TRAINER "%s", training->v[i].key);

		f = &training->v[i];
		if (f->assumed)
			continue;
		/* A list, which may be a log of thousands of steps, stays one value. */
		if (uns_json_parse(uns_span_of(f->json, strlen(f->json)), &json, NULL) < 0 || json->child)
			UNS_TRY(put(v, name, uns_arena_str(&v->arena, f->json), err));
		else
			UNS_TRY(put_json(v, name, json, err));
	}
	return 0;
}

static int collect_summary(struct diff_values *v, const struct uns_catalog *cat, struct uns_err *err)
{
	const struct uns_summary *s = &cat->summary;

	if (s->step != UNS_UNKNOWN)
		UNS_TRY(put(v, "step", uns_arena_printf(&v->arena, "%lld", (long long)s->step), err));
	if (s->world_size != UNS_UNKNOWN)
		UNS_TRY(put(v, "world_size", uns_arena_printf(&v->arena, "%lld", (long long)s->world_size), err));
	return put(v, "format", string_text(&v->arena, s->format), err);
}

static int collect_from(struct unshard *u, struct dir_record *record, struct snapshot *snap, struct diff_values *out,
			struct uns_err *err)
{
	const struct uns_training *training;

	UNS_TRY(collect_summary(out, snap->cat, err));
	UNS_TRY(collect_config(out, snap->beside.config, err));
	UNS_TRY(collect_groups(out, snap->cat, err));
	UNS_TRY(show_training(u, record, snap, &training, err));
	return collect_training(out, training, err);
}

int diff_values_collect(struct unshard *u, const char *checkpoint, struct diff_values *out, struct uns_err *err)
{
	struct dir_record *record;
	struct snapshot *snap;
	int code;

	UNS_TRY(record_get(u, checkpoint, &record, err));
	code = snapshot_get(u, record, &snap, err);
	if (code == 0) {
		code = collect_from(u, record, snap, out, err);
		snapshot_put(u, snap);
	}
	record_put(u, record);
	return code;
}

void diff_values_fini(struct diff_values *v)
{
	uns_map_fini(&v->json);
	uns_arena_fini(&v->arena);
}

/* -- two of them -- */

static bool starts(const char *name, const char *with)
{
	return strncmp(name, with, strlen(with)) == 0;
}

/* Of a value that one side lacks: is that a difference? Not if that side has no config.json, or no hyper-parameters, at
 * all; and what is not known about a training may be equal. */
static bool is_lacked(const struct diff_values *a, const struct diff_values *b, const char *name)
{
	return starts(name, CONFIG)   ? a->has_config && b->has_config
	       : starts(name, GROUPS) ? a->has_groups && b->has_groups
				      : false;
}

/* How it was saved, and not what. */
static bool is_of_save(const char *name)
{
	return !strcmp(name, "world_size") || !strcmp(name, "format");
}

static int hand_over(const char *name, const char *json_a, const char *json_b, bool counts,
		     int (*visit)(void *ctx, const struct unshard_value_diff *diff), void *ctx)
{
	const struct unshard_value_diff diff = {
		.size = sizeof(diff), .name = name, .json_a = json_a, .json_b = json_b, .counts = counts
	};

	return visit(ctx, &diff);
}

int diff_values_compare(const struct diff_values *a, const struct diff_values *b,
			int (*visit)(void *ctx, const struct unshard_value_diff *diff), void *ctx)
{
	const char *name, *other, *present = "\"present\"";
	size_t at = 0;
	void *json;
	int told = 0;

	if (a->has_config != b->has_config)
		told = hand_over("config.json", a->has_config ? present : NULL, b->has_config ? present : NULL, false,
				 visit, ctx);
	if (!told && a->has_groups != b->has_groups)
		told = hand_over("hyper-parameters", a->has_groups ? present : NULL, b->has_groups ? present : NULL,
				 false, visit, ctx);
	while (!told && uns_map_next(&a->json, &at, &name, &json)) {
		other = uns_map_get(&b->json, name);
		if (other ? strcmp(json, other) != 0 : is_lacked(a, b, name))
			told = hand_over(name, json, other, !is_of_save(name), visit, ctx);
	}
	for (at = 0; !told && uns_map_next(&b->json, &at, &name, &json);)
		if (!uns_map_get(&a->json, name) && is_lacked(a, b, name))
			told = hand_over(name, NULL, json, true, visit, ctx);
	return told;
}
