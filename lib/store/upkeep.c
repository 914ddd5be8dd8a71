/* What the store holds, whether it is whole, and copies of it. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "store/change.h"
#include "store/look.h"
#include "store/store.h"

/* Lock held. */
static int number(struct uns_store *store, const char *sql, uint64_t *out, struct uns_err *err)
{
	UNS_CLEANUP(statement_end) sqlite3_stmt *s = NULL;
	int row;

	UNS_TRY(database_prepare(store, sql, &s, err));
	row = statement_step(store, s, err);
	*out = row > 0 ? (uint64_t)sqlite3_column_int64(s, 0) : 0;
	return row < 0 ? row : 0;
}

static int count_all(struct uns_store *store, void *arg, struct uns_err *err)
{
	struct uns_store_figures *out = arg;

	UNS_TRY(number(store, "SELECT count(*) FROM fact", &out->facts, err));
	UNS_TRY(number(store, "SELECT count(*) FROM seal", &out->seals, err));
	UNS_TRY(number(store, "SELECT count(*) FROM memo", &out->cached, err));
	return number(store, "SELECT coalesce(sum(size), 0) FROM memo", &out->cached_bytes, err);
}

int uns_store_count(struct uns_store *store, struct uns_store_figures *out, struct uns_err *err)
{
	struct stat st;
	int code = store_look(store, BUSY_FACT_MS, count_all, out, err);

	out->size_bytes = stat(store->path, &st) == 0 ? (uint64_t)st.st_size : 0;
	out->read_only = store->read_only;
	return code;
}

static int verify(struct uns_store *store, void *arg, struct uns_err *err)
{
	UNS_CLEANUP(statement_end) sqlite3_stmt *s = NULL;
	const char *answer = NULL;
	int row;

	(void)arg;
	UNS_TRY(database_prepare(store, "PRAGMA integrity_check(1)", &s, err));
	UNS_TRY(row = statement_step(store, s, err));
	if (row)
		UNS_TRY(statement_text(store, s, 0, &answer, err));
	if (answer && strcmp(answer, "ok") == 0)
		return 0;
	return uns_fail(
		err, -EBADMSG,
		"metadata store %s is damaged (%.200s): keep its facts with `unshard meta export FILE`, move it away, and "
		"run `unshard meta import FILE`",
		store->path, answer ? answer : "SQLite gives no answer");
}

int uns_store_verify(struct uns_store *store, struct uns_err *err)
{
	return store_look(store, BUSY_FACT_MS, verify, NULL, err);
}

struct unused {
	int64_t before_s;
	uint64_t *n;
};

static int delete_unused(struct uns_store *store, const void *arg, struct uns_err *err)
{
	UNS_CLEANUP(statement_end) sqlite3_stmt *s = NULL;
	const struct unused *unused = arg;

	UNS_TRY(database_prepare(store, "DELETE FROM memo WHERE used_s < ?", &s, err));
	if (sqlite3_bind_int64(s, 1, unused->before_s) != SQLITE_OK)
		return uns_oom(err);
	UNS_TRY(statement_step(store, s, err));
	*unused->n = (uint64_t)sqlite3_changes(store->db);
	return database_exec(store, "PRAGMA incremental_vacuum", err);
}

int uns_store_memo_forget(struct uns_store *store, int64_t before_s, uint64_t *n, struct uns_err *err)
{
	int code = -EROFS;

	if (store->read_only)
		uns_fail(err, code, "metadata store %s is read-only", store->path);
	else
		code = store_change(store, delete_unused, &(struct unused){ before_s, n }, err);
	if (code < 0)
		*n = 0;
	else
		database_shorten_log(store);
	return code;
}

/* Made before SQLite writes it: facts are for their user alone. */
static int make_empty(const char *path, struct uns_err *err)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return uns_fail(err, -errno, "%s: %s", path, strerror(errno));
	close(fd);
	return 0;
}

/* Lock held. `to` is open and empty. */
static int copy_pages(struct uns_store *store, sqlite3 *to, const char *path, struct uns_err *err)
{
	sqlite3_backup *b = sqlite3_backup_init(to, "main", store->db, "main");
	int code;

	if (!b)
		return uns_fail(err, -EIO, "%s: %s", path, sqlite3_errmsg(to));
	do
		code = sqlite3_backup_step(b, -1);
	while (code == SQLITE_OK);
	sqlite3_backup_finish(b);
	return code == SQLITE_DONE ? 0 : uns_fail(err, -EIO, "%s: %s", path, sqlite3_errstr(code));
}

int uns_store_copy(struct uns_store *store, const char *path, struct uns_err *err)
{
	sqlite3 *to = NULL;
	int code;

	UNS_TRY(make_empty(path, err));
	pthread_mutex_lock(&store->lock);
	code = sqlite3_open_v2(path, &to, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK
		       ? copy_pages(store, to, path, err)
		       : uns_fail(err, -EIO, "%s: SQLite cannot open it", path);
	pthread_mutex_unlock(&store->lock);
	if (sqlite3_close(to) != SQLITE_OK && code == 0)
		code = uns_fail(err, -EIO, "%s: SQLite cannot close it", path);
	if (code < 0)
		unlink(path);
	return code;
}
