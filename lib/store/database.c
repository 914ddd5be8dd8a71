/* Statements on the SQLite file, and SQLite's errors as sentences. Knows no facts and no memos. */
#include "store/database.h"

#include <errno.h>
#include <string.h>

/* -- errors -- */

static bool file_read_failed(sqlite3_file *file)
{
	int last = 0;

	return file && file->pMethods &&
	       file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &last) == SQLITE_OK &&
	       (last == EIO || last == ENXIO || last == ERANGE);
}

/* SQLite also calls a file corrupt of which a read failed so (SQLITE_IOERR_CORRUPTFS), the log beside it too. */
static bool read_failed(sqlite3 *db)
{
	static const int pointer[] = { SQLITE_FCNTL_FILE_POINTER, SQLITE_FCNTL_JOURNAL_POINTER };
	sqlite3_file *file;
	size_t i;

	for (i = 0; db && i < sizeof(pointer) / sizeof(*pointer); i++) {
		file = NULL;
		if (sqlite3_file_control(db, "main", pointer[i], &file) == SQLITE_OK && file_read_failed(file))
			return true;
	}
	return false;
}

static int errno_of(struct uns_store *store, int code)
{
	int system = store->db ? sqlite3_system_errno(store->db) : 0;

	switch (code & 0xff) {
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
	case SQLITE_PROTOCOL:
		return -EBUSY;
	case SQLITE_READONLY:
	case SQLITE_PERM:
		return -EROFS;
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_CORRUPT:
		return read_failed(store->db) ? -EIO : -EBADMSG;
	case SQLITE_NOTADB:
		return -EBADMSG;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_TOOBIG:
		return -EFBIG;
	default:
		/* SHMSIZE: the file beside a WAL could not grow, which only a full disk explains. */
		if (code == SQLITE_IOERR_SHMSIZE || system == ENOSPC || system == EDQUOT)
			return -ENOSPC;
		return system == EACCES || system == EPERM || system == EROFS ? -EROFS : -EIO;
	}
}

static const char *advice(int code)
{
	switch (code) {
	case -EBUSY:
		return "another program keeps it locked: try again, or name another file with --store";
	case -EROFS:
		return "there is no permission to write it: " UNS_STORE_ELSEWHERE;
	case -ENOSPC:
		return "its disk is full: make room, or " UNS_STORE_ELSEWHERE;
	case -EBADMSG:
		return "it is damaged";
	default:
		return NULL;
	}
}

int database_fail(struct uns_store *store, int code, const char *doing, struct uns_err *err)
{
	int number = errno_of(store, code);
	const char *why = advice(number);

	if (number == -EROFS || number == -ENOSPC)
		return uns_fail(err, number, "metadata store %s cannot be written: %s", store->path, why);
	return uns_fail(err, number, "metadata store %s %s: %s%s%s", store->path, doing, why ? why : "",
			why ? " - " : "", store->db ? sqlite3_errmsg(store->db) : sqlite3_errstr(code));
}

/* -- statements -- */

int database_exec(struct uns_store *store, const char *sql, struct uns_err *err)
{
	int code = sqlite3_exec(store->db, sql, NULL, NULL, NULL);

	return code ? database_fail(store, code, "cannot be used", err) : 0;
}

/* There are few statements, and to parse one takes longer than to look it up. */
static sqlite3_stmt *prepared_before(struct uns_store *store, const char *sql)
{
	sqlite3_stmt *s = NULL;

	while ((s = sqlite3_next_stmt(store->db, s)) && strcmp(sqlite3_sql(s), sql) != 0)
		;
	return s;
}

int database_prepare(struct uns_store *store, const char *sql, sqlite3_stmt **out, struct uns_err *err)
{
	int code = SQLITE_OK;

	*out = prepared_before(store, sql);
	if (!*out)
		code = sqlite3_prepare_v3(store->db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
	return code ? database_fail(store, code, "cannot be read", err) : 0;
}

void statement_end(sqlite3_stmt **statement)
{
	if (!*statement)
		return;
	sqlite3_reset(*statement);
	sqlite3_clear_bindings(*statement);
}

void statements_free(struct uns_store *store)
{
	sqlite3_stmt *s;

	while (store->db && (s = sqlite3_next_stmt(store->db, NULL)))
		sqlite3_finalize(s);
}

int statement_step(struct uns_store *store, sqlite3_stmt *statement, struct uns_err *err)
{
	int code = sqlite3_step(statement);

	if (code == SQLITE_ROW)
		return 1;
	if (code == SQLITE_DONE)
		return 0;
	return database_fail(store, code, sqlite3_stmt_readonly(statement) ? "cannot be read" : "cannot be written",
			     err);
}

static int check_column(struct uns_store *store, const void *got, struct uns_err *err)
{
	const int code = got ? SQLITE_OK : sqlite3_errcode(store->db);

	return code == SQLITE_NOMEM ? database_fail(store, code, "cannot be read", err) : 0;
}

int statement_text(struct uns_store *store, sqlite3_stmt *s, int column, const char **out, struct uns_err *err)
{
	*out = (const char *)sqlite3_column_text(s, column);
	return check_column(store, *out, err);
}

int statement_bytes(struct uns_store *store, sqlite3_stmt *s, int column, struct uns_span *out, struct uns_err *err)
{
	const void *bytes = sqlite3_column_blob(s, column);

	UNS_TRY(check_column(store, bytes, err));
	*out = uns_span_of(bytes, (size_t)sqlite3_column_bytes(s, column));
	return 0;
}

int database_roll_back(struct uns_store *store, struct uns_err *err)
{
	if (sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL) == SQLITE_OK)
		return 0;
	return database_exec(store, "ROLLBACK", err);
}

/* After one that could not be rolled back, for want of memory, and is still open. */
static int begin(struct uns_store *store, const char *sql, const char *doing, struct uns_err *err)
{
	int code;

	if (!sqlite3_get_autocommit(store->db))
		UNS_TRY(database_roll_back(store, err));
	code = sqlite3_exec(store->db, sql, NULL, NULL, NULL);
	return code ? database_fail(store, code, doing, err) : 0;
}

int database_begin_reading(struct uns_store *store, struct uns_err *err)
{
	return begin(store, "BEGIN", "cannot be used", err);
}

int database_begin(struct uns_store *store, struct uns_err *err)
{
	if (store->why_read_only.code)
		return uns_fail_as(err, &store->why_read_only);
	if (store->read_only)
		return uns_fail(err, -EROFS,
				"metadata store %s cannot be written: it is read-only: " UNS_STORE_ELSEWHERE,
				store->path);
	return begin(store, "BEGIN IMMEDIATE", "cannot be written", err);
}

int database_end(struct uns_store *store, int result, struct uns_err *err)
{
	int code = result < 0 ? SQLITE_OK : sqlite3_exec(store->db, "COMMIT", NULL, NULL, NULL);

	if (code)
		result = database_fail(store, code, "cannot be written", err);
	if (result < 0 && !sqlite3_get_autocommit(store->db))
		database_roll_back(store, NULL);
	return result;
}

void database_shorten_log(struct uns_store *store)
{
	pthread_mutex_lock(&store->lock);
	sqlite3_exec(store->db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL);
	pthread_mutex_unlock(&store->lock);
}
