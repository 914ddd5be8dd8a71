/* unshard_meta_*: facts about trainings as the user sets, lists, imports and exports them. What a fact may
 * be is facts/fact_keys.h's, where it is kept is the store's. */
#include "session/open_catalog.h"
#include "session/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/utf8.h"
#include "facts/fact_files.h"
#include "facts/fact_keys.h"
#include "facts/stored_units.h"
#include "api/caller.h"
#include "wire/json.h"
#include "wire/json_text.h"

enum { STORE_VERSION = 1 };
#define MAX_VALUE_BYTES  (UINT64_C(16) << 20)
#define MAX_IMPORT_BYTES (UINT64_C(512) << 20)

/* Answers come from a store, or with its sentence. */
static struct uns_store *store_hold_or_fail(struct unshard *u, struct uns_err *err, int *code)
{
	struct uns_store *store = store_hold(&u->store, err);

	*code = store ? 0 : err->code;
	return store;
}

static int facts_set(struct unshard *u, const struct uns_store_fact *facts, size_t n, struct uns_err *err)
{
	struct uns_store *store = store_hold_to_change(&u->store, err);
	int code;

	if (!store)
		return err->code;
	code = uns_store_set_all(store, facts, n, err);
	store_release(&u->store);
	return code;
}

int unshard_meta_list(unshard *u, const char *path, const struct unshard_calls *calls, struct unshard_error *error)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_store_fact *v = NULL;
	struct unshard_fact fact;
	struct uns_err err = { 0 };
	struct caller caller;
	size_t n = 0, i;
	int code = caller_init(&caller, calls, &err);

	if (code < 0)
		return give_error(error, &err, code);
	code = store_facts(&u->store, path, &arena, &v, &n, &err);
	if (code < 0 && err.code)
		code = err.code;
	for (i = 0; code == 0 && caller.calls.fact && i < n; i++) {
		fact = (struct unshard_fact){
			sizeof(fact), v[i].subject, v[i].key, v[i].json, v[i].origin, v[i].time_s
		};
		code = caller.calls.fact(caller.calls.ctx, &fact);
	}
	return give_error(error, &err, caller_fini(&caller, code));
}

/* The value as it is written, which may be more than a double holds, without its blanks. */
static int value_copy(struct uns_span value, struct uns_text *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) char *copy = strndup((const char *)value.p, uns_span_left(&value));

	UNS_TRY_ALLOC(copy, err);
	if (strlen(copy) > MAX_VALUE_BYTES)
		return uns_fail(err, -EFBIG, "the value is too long: %zu bytes", strlen(copy));
	cJSON_Minify(copy);
	uns_text_str(out, copy);
	return out->failed ? uns_oom(err) : 0;
}

/* JSON; what is none and does not begin like it is a text. */
static int value_json(const char *value, struct uns_text *out, struct uns_err *err)
{
	const struct uns_span span = uns_span_of(value, strlen(value));
	UNS_CLEANUP(uns_json_free_p) cJSON *parsed = NULL;
	struct uns_err why = { 0 };
	int code;

	if (!uns_utf8_valid(span.p, uns_span_left(&span), false))
		return uns_fail(err, -EINVAL, "the value is not UTF-8");
	code = uns_json_parse(span, &parsed, &why);
	if (code == 0)
		return value_copy(span, out, err);
	if (code != -EBADMSG)
		return uns_fail_as(err, &why);
	if (*value && strchr("{[\"", *value))
		return uns_fail(err, -EINVAL, "%.100s is not JSON", value);
	if (strlen(value) > MAX_VALUE_BYTES)
		return uns_fail(err, -EFBIG, "the value is too long: %zu bytes", strlen(value));
	uns_text_json_str(out, value);
	return out->failed ? uns_oom(err) : 0;
}

static int fact_set(struct unshard *u, const char *path, const char *key, const char *value, const char *origin,
		    struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text json = UNS_TEXT_INIT;
	const char *subject = store_subject(&u->store, path, &arena);
	struct uns_store *store;
	int code;

	UNS_TRY_ALLOC(subject, err);
	UNS_TRY(value_json(value, &json, err));
	UNS_TRY(fact_key_check(key, json.p, err));
	store = store_hold_to_change(&u->store, err);
	if (!store)
		return err->code;
	code = uns_store_set(store, subject, key, json.p, origin ? origin : "set by the user", err);
	store_release(&u->store);
	return code;
}

const char *unshard_meta_key(size_t i)
{
	return fact_key_at(i);
}

int unshard_meta_set(unshard *u, const char *path, const char *key, const char *value, const char *origin,
		     struct unshard_error *error)
{
	struct uns_err err = { 0 };

	return give_error(error, &err, fact_set(u, path, key, value, origin, &err));
}

int unshard_meta_unset(unshard *u, const char *path, const char *key, struct unshard_error *error)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err err = { 0 };
	const char *subject = store_subject(&u->store, path, &arena);
	struct uns_store *store;
	int code;

	if (!subject)
		return give_error(error, &err, -ENOMEM);
	store = store_hold_to_change(&u->store, &err);
	code = err.code;
	if (store) {
		code = uns_store_unset(store, subject, key, &err);
		store_release(&u->store);
	}
	return give_error(error, &err, code);
}

/* -- a trainer's file -- */

/* Whether the checkpoint's optimizer is one that this layout names. */
static int try_layout(struct unshard *u, struct dir_record *record, const char *layout, struct uns_err *err)
{
	struct uns_format_options options = u->opt.format;
	const struct opening opening = { u->root, u->opt.adapters.name, record->path, &record->is, &options };
	struct uns_capture *capture = NULL;
	struct uns_catalog *cat = NULL;
	size_t i;
	int code;

	options.fsdp_units = layout;
	UNS_TRY(uns_catalog_new(record->path, &cat, err));
	code = records_capture(&u->records, record, &capture, err);
	if (code == 0)
		code = open_catalog(&opening, capture, cat, err);
	for (i = 0; code == 0 && i < cat->n_findings; i++)
		if (cat->findings[i].scope == UNS_SCOPE_OPTIMIZER)
			code = uns_fail_with(err, &cat->findings[i]);
	if (code == 0 && !cat->summary.units)
		code = uns_fail_with(err, UNS_FINDING(.id = UNS_FOUND_NO_FLAT_UNITS, .scope = UNS_SCOPE_OPTIMIZER,
						      .checkpoint = record->path));
	uns_catalog_free(cat);
	uns_capture_free(capture);
	return code;
}

/* An imported layout for the checkpoint at `path`: it must fit, and from then on belongs to the files that
 * are there now. For a run's directory it is compared with each checkpoint when that is read. */
static int bind_units(struct unshard *u, const char *path, struct uns_arena *arena, struct uns_store_fact *fact,
		      struct uns_err *err)
{
	struct dir_record *record;
	int code;

	UNS_TRY(record_get(u, path, &record, err));
	code = record->is.format && !record->is.format->wants_units
		       ? uns_fail(err, -ENOTSUP, "%s is not a checkpoint of rank files", path)
		       : 0;
	if (code == 0 && record->is.format)
		code = try_layout(u, record, fact->json, err);
	if (code == 0 && record->is.format)
		code = stored_units_bind(fact, record->is.own_generation, arena, err);
	record_put(u, record);
	return code;
}

static int facts_import_file(struct unshard *u, const char *path, const char *file, size_t *n, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_root_options trusted = { .trusted = true };
	const char *slash = strrchr(file, '/');
	const char *dir = uns_arena_strn(&arena, file, slash ? (size_t)(slash - file) : 0);
	const char *origin = uns_arena_printf(&arena, "imported from %s", file);
	const char *subject = store_subject(&u->store, path, &arena);
	struct uns_store_fact *facts = NULL;
	struct uns_root *root;
	size_t i;
	int code;

	UNS_TRY_ALLOC(dir && origin && subject, err);
	UNS_TRY(uns_root_open(*dir ? dir : slash ? "/" : ".", &trusted, &root, err));
	code = fact_file_read(root, slash ? slash + 1 : file, origin, &arena, &facts, n, err);
	uns_root_close(root);
	UNS_TRY(code);
	for (i = 0; i < *n; i++) {
		facts[i].subject = subject;
		if (strcmp(facts[i].key, UNITS_FACT) == 0)
			UNS_TRY(bind_units(u, path, &arena, &facts[i], err));
	}
	return facts_set(u, facts, *n, err);
}

int unshard_meta_import_file(unshard *u, const char *path, const char *file, size_t *n_facts,
			     struct unshard_error *error)
{
	struct uns_err err = { 0 };
	size_t n = 0;
	int code = facts_import_file(u, path, file, &n, &err);

	if (n_facts)
		*n_facts = code < 0 ? 0 : n;
	return give_error(error, &err, code);
}

/* -- the whole store -- */

/* A directory's name may be any bytes, and JSON is UTF-8: then "subject" is for people, and "subject_hex" is the name.
 */
static void write_subject(struct uns_text *out, const char *subject)
{
	const uint8_t *p = (const uint8_t *)subject;

	uns_text_json_str(out, subject);
	if (uns_utf8_valid(p, strlen(subject), false))
		return;
	uns_text_str(out, ", \"subject_hex\": \"");
	uns_text_hex(out, p, strlen(subject));
	uns_text_str(out, "\"");
}

static void write_fact(struct uns_text *out, const struct uns_store_fact *f, bool first)
{
	uns_text_str(out, first ? "\n  {\"subject\": " : ",\n  {\"subject\": ");
	write_subject(out, f->subject);
	uns_text_str(out, ", \"key\": ");
	uns_text_json_str(out, f->key);
	uns_text_printf(out, ", \"value\": %s, \"origin\": ", f->json);
	uns_text_json_str(out, f->origin);
	uns_text_printf(out, ", \"time\": %lld}", (long long)f->time_s);
}

static int facts_export(struct unshard *u, char **json, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text out = UNS_TEXT_INIT;
	struct uns_store_fact *v = NULL;
	struct uns_store *store;
	size_t n = 0, i;
	int code;

	store = store_hold_or_fail(u, err, &code);
	if (!store)
		return code;
	code = uns_store_facts(store, NULL, &arena, &v, &n, err);
	store_release(&u->store);
	UNS_TRY(code);
	uns_text_printf(&out, "{\"unshard_store\": %d, \"facts\": [", STORE_VERSION);
	for (i = 0; i < n; i++)
		write_fact(&out, &v[i], i == 0);
	uns_text_str(&out, n ? "\n]}\n" : "]}\n");
	*json = uns_text_take(&out, NULL);
	return *json ? 0 : uns_oom(err);
}

int unshard_meta_export(unshard *u, char **json, struct unshard_error *error)
{
	struct uns_err err = { 0 };

	return give_error(error, &err, facts_export(u, json, &err));
}

/* NULL = it is absent, or no pairs of hexadecimal digits without 00. */
static const char *read_hex(const char *hex, struct uns_arena *arena)
{
	size_t n = hex ? strlen(hex) / 2 : 0, i;
	char *out = hex ? uns_arena_alloc(arena, n + 1, 1) : NULL;
	unsigned byte;

	if (!out || hex[2 * n] || hex[strspn(hex, "0123456789abcdefABCDEF")])
		return NULL;
	for (i = 0; i < n; i++) {
		if (sscanf(hex + 2 * i, "%2x", &byte) != 1 || !byte)
			return NULL;
		out[i] = (char)byte;
	}
	out[n] = '\0';
	return out;
}

static int read_subject(const cJSON *item, struct uns_arena *arena, const char **out, struct uns_err *err)
{
	const char *subject = uns_json_str(item, "subject");

	if (cJSON_HasObjectItem(item, "subject_hex"))
		subject = read_hex(uns_json_str(item, "subject_hex"), arena);
	if (!subject || subject[0] != '/')
		return uns_fail(err, -EBADMSG, "a fact needs an absolute \"subject\", a \"key\" and a \"value\"");
	*out = uns_arena_str(arena, subject);
	return *out ? 0 : uns_oom(err);
}

static int read_fact(struct uns_span text, struct uns_arena *arena, struct uns_store_fact *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *item = NULL;
	UNS_CLEANUP(uns_text_fini) struct uns_text json = UNS_TEXT_INIT;
	const char *origin, *key;
	struct uns_span value;

	UNS_TRY(uns_json_parse(text, &item, err));
	UNS_TRY(read_subject(item, arena, &out->subject, err));
	key = uns_json_str(item, "key");
	if (!key || !uns_json_text_get(text, "value", &value))
		return uns_fail(err, -EBADMSG, "a fact needs an absolute \"subject\", a \"key\" and a \"value\"");
	UNS_TRY(value_copy(value, &json, err));
	UNS_TRY(fact_key_check(key, json.p, err));
	if (!uns_json_int(item, "time", &out->time_s) || out->time_s < 0)
		out->time_s = 0;
	origin = uns_json_str(item, "origin");
	out->origin = uns_arena_str(arena, origin ? origin : "imported");
	out->key = uns_arena_str(arena, key);
	out->json = uns_arena_str(arena, json.p);
	return out->origin && out->key && out->json ? 0 : uns_oom(err);
}

/* text: of `json`. */
static int read_facts(struct uns_span text, const cJSON *json, struct uns_arena *arena, struct uns_store_fact **out,
		      size_t *n, struct uns_err *err)
{
	struct uns_span list, key, item;
	struct uns_store_fact *facts = NULL;
	size_t cap = 0;
	int64_t version;

	if (!uns_json_int(json, "unshard_store", &version) || !uns_json_text_get(text, "facts", &list) ||
	    *list.p != '[')
		return uns_fail(err, -EINVAL, "not a file that `unshard meta export` wrote");
	if (version > STORE_VERSION)
		return uns_fail(err, -ENOTSUP, "exported by a newer unshard: import it with that version");
	while (uns_json_text_next(&list, &key, &item)) {
		UNS_TRY_ALLOC(UNS_ARENA_ROOM(arena, facts, *n, cap), err);
		facts[*n] = (struct uns_store_fact){ 0 };
		if (read_fact(item, arena, &facts[*n], err) < 0)
			return uns_fail_in(err, "fact %zu", *n + 1);
		++*n;
	}
	*out = facts;
	return 0;
}

static int facts_import(struct unshard *u, const char *text, size_t *n, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	struct uns_store_fact *facts = NULL;

	if (strlen(text) > MAX_IMPORT_BYTES)
		return uns_fail(err, -EFBIG, "the file is too long: %zu bytes", strlen(text));
	UNS_TRY(uns_json_parse(uns_span_of(text, strlen(text)), &json, err));
	UNS_TRY(read_facts(uns_span_of(text, strlen(text)), json, &arena, &facts, n, err));
	return facts_set(u, facts, *n, err);
}

int unshard_meta_import(unshard *u, const char *json, size_t *n_facts, struct unshard_error *error)
{
	struct uns_err err = { 0 };
	size_t n = 0;
	int code = facts_import(u, json, &n, &err);

	if (n_facts)
		*n_facts = code < 0 ? 0 : n;
	return give_error(error, &err, code);
}

int unshard_meta_clear_cache(unshard *u, struct unshard_error *error)
{
	struct uns_err err = { 0 };
	struct uns_store *store;
	int code;

	store = store_hold_to_change(&u->store, &err);
	code = err.code;
	if (store) {
		code = uns_store_memo_clear(store, &err);
		store_release(&u->store);
	}
	return give_error(error, &err, code);
}
