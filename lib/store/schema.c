/* The tables, as the steps that made them: a new file runs all of them, an older one those it lacks.
 * A step that was released is never changed; a change is a new step. */
#include "store/database.h"

#include "base/cleanup.h"

static const int application_id = 0x756e7368; /* "unsh" in the file's header */

static const char *const step[] = {
	/* 1: facts. `revision` has one row, which every change of a fact increments. It begins at a
	 * random number, so that a file put in another's place is noticed. */
	"CREATE TABLE fact ("
	"  subject TEXT NOT NULL, key TEXT NOT NULL, json TEXT NOT NULL, origin TEXT NOT NULL,"
	"  time_s INTEGER NOT NULL, PRIMARY KEY (subject, key)) WITHOUT ROWID;"
	"CREATE TABLE revision (n INTEGER NOT NULL);"
	"INSERT INTO revision VALUES (abs(random() % 1000000000) * 1000000)",

	/* 2: memos, and what is needed to forget the oldest without reading them. */
	"CREATE TABLE memo ("
	"  kind TEXT NOT NULL, key INTEGER NOT NULL, used_s INTEGER NOT NULL,"
	"  size INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (kind, key));"
	"CREATE INDEX memo_by_use ON memo (used_s, size)",

	/* 3: seals. The subject is a checkpoint's absolute path; the bytes are compressed. */
	"CREATE TABLE seal (subject TEXT NOT NULL PRIMARY KEY, time_s INTEGER NOT NULL, bytes BLOB NOT NULL)",
};
enum { CURRENT = sizeof(step) / sizeof(*step) };

static int number(struct uns_store *store, const char *sql, int *out, struct uns_err *err)
{
	UNS_CLEANUP(statement_end) sqlite3_stmt *s = NULL;
	int row;

	UNS_TRY(database_prepare(store, sql, &s, err));
	row = statement_step(store, s, err);
	*out = row > 0 ? sqlite3_column_int(s, 0) : 0;
	return row < 0 ? row : 0;
}

/* The version of a file that is ours; 0 = a new one. */
static int version_of(struct uns_store *store, int *version, struct uns_err *err)
{
	int application, tables;

	UNS_TRY(number(store, "PRAGMA user_version", version, err));
	UNS_TRY(number(store, "PRAGMA application_id", &application, err));
	UNS_TRY(number(store, "SELECT count(*) FROM sqlite_schema", &tables, err));
	if (*version == 0 && application == 0 && tables == 0)
		return 0;
	if (application != application_id || *version < 1)
		return uns_fail(err, -ENOTSUP,
				"%s is a database of another program: name a file of unshard's own with --store",
				store->path);
	if (*version > CURRENT)
		return uns_fail(err, -ENOTSUP,
				"metadata store %s was written by a newer unshard (schema %d, this "
				"one knows %d): use that version, or name another file with --store",
				store->path, *version, CURRENT);
	return 0;
}

/* The same while other processes may be making the tables: all of it at one moment. */
static int version_now(struct uns_store *store, int *version, struct uns_err *err)
{
	int code;

	UNS_TRY(database_begin_reading(store, err));
	code = version_of(store, version, err);
	UNS_TRY(database_roll_back(store, err));
	return code;
}

static int run_steps(struct uns_store *store, struct uns_err *err)
{
	char sql[96];
	int version; /* another process may have done it meanwhile */

	UNS_TRY(version_of(store, &version, err));
	if (version == CURRENT)
		return 0;
	for (; version < CURRENT; version++)
		UNS_TRY(database_exec(store, step[version], err));
	sqlite3_snprintf(sizeof(sql), sql, "PRAGMA application_id=%d; PRAGMA user_version=%d", application_id,
			 (int)CURRENT);
	return database_exec(store, sql, err);
}

int schema_check(struct uns_store *store, bool *is_current, struct uns_err *err)
{
	int version;

	UNS_TRY(version_now(store, &version, err));
	*is_current = version == CURRENT;
	return 0;
}

int schema_upgrade(struct uns_store *store, struct uns_err *err)
{
	int version;

	UNS_TRY(version_now(store, &version, err));
	if (version == CURRENT)
		return 0;
	if (store->read_only)
		return uns_fail(err, -EROFS, "metadata store %s is %s and cannot be written: it cannot be %s",
				store->path, version ? "of an older unshard" : "empty", version ? "upgraded" : "used");
	UNS_TRY(database_begin(store, err));
	UNS_TRY(database_end(store, run_steps(store, err), err));
	/* The file gets its full size now, so that a page of it can be changed later even when the disk is full. */
	sqlite3_exec(store->db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL);
	return 0;
}
