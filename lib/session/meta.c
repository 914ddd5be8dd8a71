/* The store as a session uses it: opened at the first need (never before a fork), looked for again
 * when it was put in another's place or could not be used, and done without meanwhile. And the
 * functions of unshard.h about facts. */
#include "session/session.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/path.h"
#include "session/meta_import.h"
#include "session/meta_keys.h"
#include "wire/json.h"

enum { RETRY_S = 10, STORE_VERSION = 1 };
#define MAX_VALUE_BYTES  (UINT64_C(16) << 20)
#define MAX_IMPORT_BYTES (UINT64_C(512) << 20)
#define NS               INT64_C(1000000000)

/* -- which file -- */

/* XDG: a relative directory is to be ignored. */
static const char *default_path(struct uns_arena *arena)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	struct passwd entry, *found = NULL;
	char text[1024];

	if (!home && getpwuid_r(geteuid(), &entry, text, sizeof(text), &found) == 0 && found)
		home = entry.pw_dir; /* mount(8) and systemd give its helpers no HOME */
	if (state && state[0] == '/')
		return uns_arena_printf(arena, "%s/unshard/store.db", state);
	if (home && home[0] == '/')
		return uns_arena_printf(arena, "%s/.local/state/unshard/store.db", home);
	return "";
}

int meta_init(struct unshard *u, const char *store, struct uns_err *err)
{
	if (store && strcmp(store, "none") == 0)
		u->store.off = true;
	else if (store)
		u->store.path = uns_arena_str(&u->arena, store);
	else
		u->store.path = default_path(&u->arena);
	u->store.own_place = !store;
	return u->store.off || u->store.path ? 0 : uns_oom(err);
}

void meta_fini(struct unshard *u)
{
	uns_store_close(u->store.handle);
	pthread_rwlock_destroy(&u->store.lock);
}

/* The directories of the default path, for their owner alone; what is there stays as it is. */
static int make_directories(const char *path, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) char *dir = strdup(path);
	char *slash = dir;

	if (!dir)
		return uns_oom(err);
	while ((slash = strchr(slash + 1, '/'))) {
		*slash = '\0';
		if (mkdir(dir, 0700) < 0 && errno != EEXIST && access(dir, F_OK) != 0)
			return uns_fail(err, -errno,
					"metadata store %s: the directory %s cannot be made: %s "
					"(--store FILE names another place, --store none does without)",
					path, dir, strerror(errno));
		*slash = '/';
	}
	return 0;
}

static int check_path(const struct unshard *u, struct uns_err *err)
{
	if (!*u->store.path)
		return uns_fail(err, -ENOENT, "there is no place for the metadata store: neither "
					      "XDG_STATE_HOME nor HOME is set (--store FILE names one)");
	if (u->store.own_place)
		return make_directories(u->store.path, err);
	if (strcmp(u->real_root, "/") != 0 && uns_path_within(u->store.path, u->real_root))
		return uns_fail(err, -EINVAL,
				"metadata store %s lies in SOURCE, where nothing is ever written: name "
				"a file elsewhere with --store", u->store.path);
	return 0;
}

/* -- holding it -- */

/* Is the open handle still the file of that name? */
static bool is_current(const struct session_store *s)
{
	struct stat st;

	return s->handle && stat(s->path, &st) == 0 && st.st_dev == s->dev && st.st_ino == s->ino;
}

static void note_identity(struct session_store *s)
{
	struct stat st;

	if (stat(s->path, &st) == 0) {
		s->dev = st.st_dev;
		s->ino = st.st_ino;
	}
}

/* Said when it is news, not at each retry. */
static void tell(struct session_store *s, const char *text)
{
	if (*text && strcmp(text, s->problem) != 0)
		uns_log(UNS_LOG_WARN, "%s", text);
	snprintf(s->problem, sizeof(s->problem), "%s", text);
}

/* Write lock held. */
static void reopen(struct unshard *u)
{
	struct session_store *s = &u->store;
	UNS_CLEANUP(uns_free_p) char *note = NULL;
	struct uns_err err = { 0 };

	uns_store_close(s->handle);
	s->handle = NULL;
	if (check_path(u, &err) == 0)
		uns_store_open(s->path, &s->handle, &note, &err);
	tell(s, s->handle ? "" : err.text);
	s->problem_code = err.code;
	if (note)
		tell(s, note);
	note_identity(s);
	s->tried = true;
	s->retry_ns = session_now_ns() + RETRY_S * NS;
}

struct uns_store *store_hold(struct unshard *u, struct uns_err *err)
{
	struct session_store *s = &u->store;

	if (s->off) {
		uns_fail(err, -ENOENT, "there is no metadata store: --store none");
		return NULL;
	}
	pthread_rwlock_rdlock(&s->lock);
	if (!is_current(s)) {
		pthread_rwlock_unlock(&s->lock);
		pthread_rwlock_wrlock(&s->lock);
		if (!is_current(s) && (s->handle || !s->tried || session_now_ns() >= s->retry_ns))
			reopen(u);
		pthread_rwlock_unlock(&s->lock);
		pthread_rwlock_rdlock(&s->lock);
	}
	if (s->handle)
		return s->handle;
	uns_fail(err, s->problem_code, "%s", s->problem);
	pthread_rwlock_unlock(&s->lock);
	return NULL;
}

void store_release(struct unshard *u)
{
	pthread_rwlock_unlock(&u->store.lock);
}

void store_problem(struct unshard *u, struct uns_text *out)
{
	if (u->store.off)
		return;
	pthread_rwlock_rdlock(&u->store.lock);
	if (u->store.problem[0])
		uns_text_printf(out, "%s\n", u->store.problem);
	pthread_rwlock_unlock(&u->store.lock);
}

/* -- facts for the session -- */

/* "/runs" + "a/b"; the absolute, link-free name that facts are kept under. */
static char *subject_of(const struct unshard *u, const char *path, struct uns_arena *arena)
{
	const char *root = strcmp(u->real_root, "/") == 0 ? "" : u->real_root;

	return *path ? uns_arena_printf(arena, "%s/%s", root, path) :
		       uns_arena_str(arena, u->real_root);
}

int meta_facts(struct unshard *u, const char *path, struct uns_arena *arena,
	       struct uns_store_fact **out, size_t *n, struct uns_err *err)
{
	const char *subject = subject_of(u, path, arena);
	struct uns_store *store = subject ? store_hold(u, err) : NULL;
	int code;

	*n = 0;
	if (!subject)
		return uns_oom(err);
	if (!store)
		return -ENOENT;
	code = uns_store_facts(store, subject, arena, out, n, err);
	store_release(u);
	return code;
}

int meta_facts_of(struct unshard *u, const struct place *place, struct uns_arena *arena,
		  struct uns_store_fact **out, size_t *n, struct uns_err *err)
{
	const bool has_facts = place->generation != place->source_generation;
	struct uns_err why = { 0 };
	int code = meta_facts(u, place->path, arena, out, n, &why);

	if (code >= 0)
		return 0;
	*n = 0;
	if (code == -ENOMEM)
		return uns_oom(err);
	return has_facts ? uns_fail(err, -EIO, "%s", why.text) : 0;
}

static uint64_t digest(const struct uns_store_fact *v, size_t n)
{
	uint64_t h = UNS_HASH_INIT;
	size_t i;

	for (i = 0; i < n; i++) {
		h = uns_hash_str(uns_hash_str(h, v[i].subject), v[i].key);
		h = uns_hash_str(uns_hash_str(h, v[i].json), v[i].origin);
	}
	return n ? uns_hash_end(h) : 0;
}

static bool revision_of(struct unshard *u, uint64_t *out)
{
	struct uns_store *store = store_hold(u, NULL);
	bool ok = store && uns_store_revision(store, out, NULL) == 0;

	if (store)
		store_release(u);
	return ok;
}

void meta_digest(struct unshard *u, const char *path, struct facts_seen *seen)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_store_fact *v = NULL;
	uint64_t revision;
	size_t n;

	if (!revision_of(u, &revision) || (seen->known && seen->revision == revision))
		return;
	if (meta_facts(u, path, &arena, &v, &n, NULL) < 0)
		return;
	*seen = (struct facts_seen){ .known = true, .revision = revision, .digest = digest(v, n) };
}

/* -- unshard.h: facts -- */

/* Answers come from a store, or with its sentence. */
static struct uns_store *hold_or_fail(struct unshard *u, struct uns_err *err, int *code)
{
	struct uns_store *store = store_hold(u, err);

	*code = store ? 0 : err->code;
	return store;
}

int unshard_meta_list(unshard *u, const char *path,
		      int (*visit)(void *ctx, const struct unshard_fact *fact), void *ctx,
		      struct unshard_error *error)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_store_fact *v = NULL;
	struct unshard_fact fact;
	struct uns_err err = { 0 };
	size_t n = 0, i;
	int code = meta_facts(u, path, &arena, &v, &n, &err);

	if (code < 0)
		return give_error(error, &err, err.code ? err.code : code);
	for (i = 0; code == 0 && i < n; i++) {
		fact = (struct unshard_fact){ v[i].subject, v[i].key, v[i].json, v[i].origin,
					      v[i].time_s };
		code = visit(ctx, &fact);
	}
	return code;
}

/* JSON as it was written, without its blanks; what does not begin like JSON is a text. */
static int value_json(const char *value, struct uns_text *out, cJSON **parsed, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) char *copy = NULL;
	const char *nan = NULL;

	if (strlen(value) > MAX_VALUE_BYTES)
		return uns_fail(err, -EFBIG, "a value of %zu bytes is too long", strlen(value));
	*parsed = cJSON_ParseWithOpts(value, &nan, 1);
	if (*parsed) { /* again, by the rules for JSON from elsewhere */
		cJSON_Delete(*parsed);
		*parsed = NULL;
		UNS_TRY(uns_json_parse(uns_span_of(value, strlen(value)), parsed, err));
		copy = strdup(value);
		if (!copy)
			return uns_oom(err);
		cJSON_Minify(copy);
		uns_text_str(out, copy);
	} else if (*value && strchr("{[\"", *value)) {
		return uns_fail(err, -EINVAL, "%.100s is not JSON", value);
	} else {
		uns_text_json_str(out, value);
		UNS_TRY(uns_json_parse(uns_span_of(out->p, out->len), parsed, err));
	}
	return out->failed ? uns_oom(err) : 0;
}

static int set(struct unshard *u, const char *path, const char *key, const char *value,
	       const char *origin, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text json = UNS_TEXT_INIT;
	UNS_CLEANUP(uns_json_free_p) cJSON *parsed = NULL;
	const char *subject = subject_of(u, path, &arena);
	struct uns_store *store;
	int code;

	if (!subject)
		return uns_oom(err);
	UNS_TRY(value_json(value, &json, &parsed, err));
	UNS_TRY(meta_key_check(key, parsed, err));
	store = hold_or_fail(u, err, &code);
	if (!store)
		return code;
	code = uns_store_set(store, subject, key, json.p, origin ? origin : "set by the user", err);
	store_release(u);
	return code;
}

int unshard_meta_set(unshard *u, const char *path, const char *key, const char *value,
		     const char *origin, struct unshard_error *error)
{
	struct uns_err err = { 0 };

	return give_error(error, &err, set(u, path, key, value, origin, &err));
}

int unshard_meta_unset(unshard *u, const char *path, const char *key, struct unshard_error *error)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err err = { 0 };
	const char *subject = subject_of(u, path, &arena);
	struct uns_store *store;
	int code;

	if (!subject)
		return give_error(error, &err, -ENOMEM);
	store = hold_or_fail(u, &err, &code);
	if (store) {
		code = uns_store_unset(store, subject, key, &err);
		store_release(u);
	}
	return give_error(error, &err, code);
}

/* -- unshard.h: a trainer's file -- */

static int import_file(struct unshard *u, const char *path, const char *file, size_t *n,
		       struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_root_options trusted = { .trusted = true };
	const char *slash = strrchr(file, '/');
	const char *dir = uns_arena_strn(&arena, file, slash ? (size_t)(slash - file) : 0);
	const char *origin = uns_arena_printf(&arena, "imported from %s", file);
	const char *subject = subject_of(u, path, &arena);
	struct uns_store_fact *facts = NULL;
	struct uns_store *store;
	struct uns_root *root;
	size_t i;
	int code;

	if (!dir || !origin || !subject)
		return uns_oom(err);
	UNS_TRY(uns_root_open(*dir ? dir : slash ? "/" : ".", &trusted, &root, err));
	code = meta_import_read(root, slash ? slash + 1 : file, origin, &arena, &facts, n, err);
	uns_root_close(root);
	UNS_TRY(code);
	for (i = 0; i < *n; i++) {
		facts[i].subject = subject;
		if (strcmp(facts[i].key, UNITS_FACT) == 0)
			UNS_TRY(units_bind(u, path, &arena, &facts[i], err));
	}
	store = hold_or_fail(u, err, &code);
	if (!store)
		return code;
	code = uns_store_set_all(store, facts, *n, err);
	store_release(u);
	return code;
}

int unshard_meta_import_file(unshard *u, const char *path, const char *file, size_t *n_facts,
			     struct unshard_error *error)
{
	struct uns_err err = { 0 };
	size_t n = 0;
	int code = import_file(u, path, file, &n, &err);

	if (n_facts)
		*n_facts = code < 0 ? 0 : n;
	return give_error(error, &err, code);
}

/* -- unshard.h: the whole store -- */

static void write_fact(struct uns_text *out, const struct uns_store_fact *f, bool first)
{
	uns_text_str(out, first ? "\n  {\"subject\": " : ",\n  {\"subject\": ");
	uns_text_json_str(out, f->subject);
	uns_text_str(out, ", \"key\": ");
	uns_text_json_str(out, f->key);
	uns_text_printf(out, ", \"value\": %s, \"origin\": ", f->json);
	uns_text_json_str(out, f->origin);
	uns_text_printf(out, ", \"time\": %lld}", (long long)f->time_s);
}

static int export(struct unshard *u, char **json, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text out = UNS_TEXT_INIT;
	struct uns_store_fact *v = NULL;
	struct uns_store *store;
	size_t n = 0, i;
	int code;

	store = hold_or_fail(u, err, &code);
	if (!store)
		return code;
	code = uns_store_facts(store, NULL, &arena, &v, &n, err);
	store_release(u);
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

	return give_error(error, &err, export(u, json, &err));
}

static int read_fact(const cJSON *item, struct uns_arena *arena, struct uns_store_fact *out,
		     struct uns_err *err)
{
	const cJSON *value = cJSON_GetObjectItemCaseSensitive(item, "value");
	const char *origin = uns_json_str(item, "origin");
	UNS_CLEANUP(uns_free_p) char *json = value ? cJSON_PrintUnformatted(value) : NULL;

	out->subject = uns_json_str(item, "subject");
	out->key = uns_json_str(item, "key");
	if (!out->subject || out->subject[0] != '/' || !out->key || !value)
		return uns_fail(err, -EBADMSG, "a fact needs an absolute \"subject\", a \"key\" and a "
					       "\"value\"");
	UNS_TRY(meta_key_check(out->key, value, err));
	if (!uns_json_int(item, "time", &out->time_s) || out->time_s < 0)
		out->time_s = 0;
	out->origin = origin ? origin : "imported";
	out->json = json ? uns_arena_str(arena, json) : NULL;
	return out->json ? 0 : uns_oom(err);
}

static int read_facts(const cJSON *json, struct uns_arena *arena, struct uns_store_fact **out,
		      size_t *n, struct uns_err *err)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "facts"), *item;
	int64_t version;

	if (!uns_json_int(json, "unshard_store", &version) || !cJSON_IsArray(list))
		return uns_fail(err, -EINVAL, "this is not what `unshard meta export` writes");
	if (version > STORE_VERSION)
		return uns_fail(err, -ENOTSUP, "this was exported by a newer unshard");
	*out = UNS_NEW_N(arena, struct uns_store_fact, (size_t)cJSON_GetArraySize(list));
	if (!*out)
		return uns_oom(err);
	cJSON_ArrayForEach(item, list) {
		if (read_fact(item, arena, &(*out)[*n], err) < 0)
			return uns_fail_in(err, "fact %zu", *n + 1);
		++*n;
	}
	return 0;
}

static int import(struct unshard *u, const char *text, size_t *n, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	struct uns_store_fact *facts = NULL;
	struct uns_store *store;
	int code;

	if (strlen(text) > MAX_IMPORT_BYTES)
		return uns_fail(err, -EFBIG, "an import of %zu bytes is too long", strlen(text));
	UNS_TRY(uns_json_parse(uns_span_of(text, strlen(text)), &json, err));
	UNS_TRY(read_facts(json, &arena, &facts, n, err));
	store = hold_or_fail(u, err, &code);
	if (!store)
		return code;
	code = uns_store_set_all(store, facts, *n, err);
	store_release(u);
	return code;
}

int unshard_meta_import(unshard *u, const char *json, size_t *n_facts, struct unshard_error *error)
{
	struct uns_err err = { 0 };
	size_t n = 0;
	int code = import(u, json, &n, &err);

	if (n_facts)
		*n_facts = code < 0 ? 0 : n;
	return give_error(error, &err, code);
}

int unshard_meta_clear_memos(unshard *u, struct unshard_error *error)
{
	struct uns_err err = { 0 };
	struct uns_store *store;
	int code;

	store = hold_or_fail(u, &err, &code);
	if (store) {
		code = uns_store_memo_clear(store, &err);
		store_release(u);
	}
	return give_error(error, &err, code);
}
