/* The SQLite file behind a store: how it is opened, what its schema is, what its errors mean. Callers hold the lock of
 * the store they pass. */
#ifndef UNS_STORE_DATABASE_H
#define UNS_STORE_DATABASE_H

#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "base/span.h"
#include "store/turn.h"

/* What to do about a store whose file cannot be made or written. */
#define UNS_STORE_ELSEWHERE "name another file with --store FILE, or another directory with XDG_STATE_HOME"

/* Of a file that other nodes change: which one the connection was opened for. */
struct uns_store_seen {
	bool shared; /* there are other nodes */
	int64_t size_bytes, mtime_ns;
	int64_t opened_ns;  /* monotonic: when the file was last opened */
	int64_t changed_ns; /* monotonic: when it was first seen to be this one; 0 = it was opened long enough after */
};

struct uns_store {
	pthread_mutex_t lock;
	sqlite3 *db;
	char *path;
	const struct uns_log *log;
	bool read_only;
	bool has_wal;
	struct uns_err why_read_only; /* a full disk; code 0 = anything else */
	bool memo_failed; /* was logged once */
	uint64_t memo_bound_bytes;
	struct uns_store_seen seen;
	struct turn turn; /* held: while it is changed, and from its opening for a change (store_hold_to_change) on */
};

enum {
	BUSY_FACT_MS = 5000, /* a user waits for the answer */
	BUSY_MEMO_MS = 200, /* a mount waits for it: it does better without the memo */
};

/* SQLite's last error (or `code`, when there is no handle) as errno and sentence. */
int database_fail(struct uns_store *store, int code, const char *doing, struct uns_err *err);
int database_exec(struct uns_store *store, const char *sql, struct uns_err *err);
/* Ends the transaction that is open, without its changes. Tried twice: one that stays open keeps others from writing,
 * until the next one begins.
 */
int database_roll_back(struct uns_store *store, struct uns_err *err);
/* One that was prepared before, if it has the same text. Not two of the same text at once. */
int database_prepare(struct uns_store *store, const char *sql, sqlite3_stmt **out, struct uns_err *err);
void statement_end(sqlite3_stmt **statement); /* it stays prepared */
void statements_free(struct uns_store *store); /* before the file is closed */
/* 1 = a row, 0 = done, negative = failed. */
int statement_step(struct uns_store *store, sqlite3_stmt *statement, struct uns_err *err);
/* A column of the row, until the next step; NULL where it has none. SQLite gives NULL, too, where there is no memory
 * for it: that fails. */
int statement_text(struct uns_store *store, sqlite3_stmt *statement, int column, const char **out, struct uns_err *err);
int statement_bytes(struct uns_store *store, sqlite3_stmt *statement, int column, struct uns_span *out,
		    struct uns_err *err);
/* A transaction that only reads, all of it at one moment; database_roll_back ends it. */
int database_begin_reading(struct uns_store *store, struct uns_err *err);
/* A write transaction; database_end commits when code is 0, else rolls back, and returns the result. */
int database_begin(struct uns_store *store, struct uns_err *err);
int database_end(struct uns_store *store, int code, struct uns_err *err);
/* A WAL that grew gives its room back. Takes the store's lock. */
void database_shorten_log(struct uns_store *store);

/* open_database.c: an empty file, if there is none; */
int database_make_file(const char *path, struct uns_err *err);
/* opens store->path; -EBADMSG when it is damaged and may be moved aside. */
int database_open(struct uns_store *store, struct uns_err *err);
/* Again, after what this node held of the file was dropped. If it fails, the one that was open stays. */
int database_open_anew(struct uns_store *store, struct uns_err *err);
void database_close(struct uns_store *store);

/* schema.c: -ENOTSUP when the file has a newer schema or belongs to another program; writes nothing. *is_current: it
 * needs no upgrade. */
int schema_check(struct uns_store *store, bool *is_current, struct uns_err *err);
/* Bring the file to this program's schema. */
int schema_upgrade(struct uns_store *store, struct uns_err *err);

#endif
