/* Facts: what the user states. Every change is one transaction that is on disk before it is acknowledged. */
#include "store/store.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "store/change.h"
#include "store/look.h"

/* -- changing -- */

static int revision_bump(struct uns_store *store, struct uns_err *err)
{
	return database_exec(store, "UPDATE revision SET n = n + 1", err);
}

static int fact_put(struct uns_store *store, const struct uns_store_fact *f, struct uns_err *err)
{
	UNS_CLEANUP(statement_end) sqlite3_stmt *s = NULL;

	UNS_TRY(database_prepare(store,
				 "INSERT INTO fact (subject, key, json, origin, time_s)"
				 " VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (subject, key) DO UPDATE"
				 " SET json = ?3, origin = ?4, time_s = ?5",
				 &s, err));
	sqlite3_bind_text(s, 1, f->subject, -1, SQLITE_STATIC);
	sqlite3_bind_text(s, 2, f->key, -1, SQLITE_STATIC);
	sqlite3_bind_text(s, 3, f->json, -1, SQLITE_STATIC);
	sqlite3_bind_text(s, 4, f->origin, -1, SQLITE_STATIC);
	sqlite3_bind_int64(s, 5, f->time_s ? f->time_s : (int64_t)time(NULL));
	return statement_step(store, s, err);
}

struct facts {
	const struct uns_store_fact *v;
	size_t n;
};

static int set_all(struct uns_store *store, const void *arg, struct uns_err *err)
{
	const struct facts *facts = arg;
	size_t i;

	for (i = 0; i < facts->n; i++)
		UNS_TRY(fact_put(store, &facts->v[i], err));
	return revision_bump(store, err);
}

int uns_store_set_all(struct uns_store *store, const struct uns_store_fact *facts, size_t n, struct uns_err *err)
{
	const struct facts all = { facts, n };

	return store_change(store, set_all, &all, err);
}

int uns_store_set(struct uns_store *store, const char *subject, const char *key, const char *json, const char *origin,
		  struct uns_err *err)
{
	const struct uns_store_fact fact = { .subject = subject, .key = key, .json = json, .origin = origin };

	return uns_store_set_all(store, &fact, 1, err);
}

static int fact_delete(struct uns_store *store, const void *arg, struct uns_err *err)
{
	UNS_CLEANUP(statement_end) sqlite3_stmt *s = NULL;
	const struct uns_store_fact *fact = arg;

	UNS_TRY(database_prepare(store, "DELETE FROM fact WHERE subject = ? AND key = ?", &s, err));
	sqlite3_bind_text(s, 1, fact->subject, -1, SQLITE_STATIC);
	sqlite3_bind_text(s, 2, fact->key, -1, SQLITE_STATIC);
	UNS_TRY(statement_step(store, s, err));
	if (!sqlite3_changes(store->db))
		return uns_fail(err, -ENOENT, "%s is not set for %s", fact->key, fact->subject);
	return revision_bump(store, err);
}

int uns_store_unset(struct uns_store *store, const char *subject, const char *key, struct uns_err *err)
{
	const struct uns_store_fact fact = { .subject = subject, .key = key };

	return store_change(store, fact_delete, &fact, err);
}

/* -- reading -- */

struct found {
	struct uns_arena *arena;
	struct uns_store_fact *v;
	size_t n, cap;
};

static int copy_column(struct uns_store *store, struct uns_arena *arena, sqlite3_stmt *s, int i, const char **out,
		       struct uns_err *err)
{
	const char *text;

	UNS_TRY(statement_text(store, s, i, &text, err));
	*out = uns_arena_str(arena, text ? text : "");
	return *out ? 0 : uns_oom(err);
}

static int add_row(struct uns_store *store, struct found *f, sqlite3_stmt *s, struct uns_err *err)
{
	struct uns_store_fact *fact;

	UNS_TRY_ALLOC(UNS_ARENA_ROOM(f->arena, f->v, f->n, f->cap), err);
	fact = &f->v[f->n++];
	fact->time_s = sqlite3_column_int64(s, 4);
	UNS_TRY(copy_column(store, f->arena, s, 0, &fact->subject, err));
	UNS_TRY(copy_column(store, f->arena, s, 1, &fact->key, err));
	UNS_TRY(copy_column(store, f->arena, s, 2, &fact->json, err));
	return copy_column(store, f->arena, s, 3, &fact->origin, err);
}

/* Add the facts of one subject (NULL: of all) whose keys were not added yet. */
static int add_subject(struct uns_store *store, const char *subject, struct found *f, struct uns_err *err)
{
	UNS_CLEANUP(statement_end) sqlite3_stmt *s = NULL;
	const char *key;
	size_t i;
	int row;

	UNS_TRY(database_prepare(store,
				 subject ? "SELECT subject, key, json, origin, time_s FROM fact"
					   " WHERE subject = ?"
					 : "SELECT subject, key, json, origin, time_s FROM fact",
				 &s, err));
	if (subject)
		sqlite3_bind_text(s, 1, subject, -1, SQLITE_STATIC);
	while ((row = statement_step(store, s, err)) > 0) {
		UNS_TRY(statement_text(store, s, 1, &key, err));
		for (i = 0; subject && key && i < f->n && strcmp(f->v[i].key, key) != 0; i++)
			;
		if (!subject || (key && i == f->n))
			UNS_TRY(add_row(store, f, s, err));
	}
	return row;
}

/* "/a/b", "/a", "/" */
static int add_upwards(struct uns_store *store, const char *subject, struct found *f, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) char *path = strdup(subject);
	char *slash;

	UNS_TRY_ALLOC(path, err);
	UNS_TRY(add_subject(store, path, f, err));
	while ((slash = strrchr(path, '/')) && slash != path) {
		*slash = '\0';
		UNS_TRY(add_subject(store, path, f, err));
	}
	return strcmp(subject, "/") != 0 ? add_subject(store, "/", f, err) : 0;
}

static int by_subject_and_key(const void *a, const void *b)
{
	const struct uns_store_fact *x = a, *y = b;
	int order = strcmp(x->subject, y->subject);

	return order ? order : strcmp(x->key, y->key);
}

struct facts_wanted {
	const char *subject;
	struct found found;
};

static int find_facts(struct uns_store *store, void *arg, struct uns_err *err)
{
	struct facts_wanted *want = arg;

	want->found.n = 0;
	return want->subject ? add_upwards(store, want->subject, &want->found, err)
			     : add_subject(store, NULL, &want->found, err);
}

int uns_store_facts(struct uns_store *store, const char *subject, struct uns_arena *arena, struct uns_store_fact **out,
		    size_t *n, struct uns_err *err)
{
	struct facts_wanted want = { subject, { .arena = arena } };

	UNS_TRY(store_look(store, BUSY_FACT_MS, find_facts, &want, err));
	if (want.found.n)
		qsort(want.found.v, want.found.n, sizeof(*want.found.v), by_subject_and_key);
	*out = want.found.v;
	*n = want.found.n;
	return 0;
}

int uns_store_revision(struct uns_store *store, uint64_t *out, bool *settled, struct uns_err *err)
{
	sqlite3_stmt *s = NULL;
	int code;

	pthread_mutex_lock(&store->lock);
	*settled = look_is_settled(store);
	sqlite3_busy_timeout(store->db, BUSY_MEMO_MS);
	code = database_prepare(store, "SELECT n FROM revision", &s, err);
	if (code == 0)
		code = statement_step(store, s, err);
	if (code > 0)
		*out = (uint64_t)sqlite3_column_int64(s, 0);
	else if (code == 0)
		code = uns_fail(err, -EBADMSG, "metadata store %s is damaged: it has no revision", store->path);
	statement_end(&s);
	pthread_mutex_unlock(&store->lock);
	return code < 0 ? code : 0;
}
