/* Opens the SQLite file so that neither a hostile content nor other files beside it can do harm. */
#include "store/database.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "io/mounts.h"
#include "store/shared.h"

/* A new file is for its owner alone; SQLite gives the same mode to the files beside it. A file that
 * exists is not opened here: closing it would drop this process's locks on it. */
int database_make_file(const char *path, struct uns_err *err)
{
	struct stat st;
	int fd;

	if (stat(path, &st) == 0)
		return S_ISREG(st.st_mode) ? 0 : uns_fail(err, -EINVAL, "metadata store %s is not a file", path);
	if (errno != ENOENT)
		return uns_fail(err, -errno, "metadata store %s: %s", path, strerror(errno));
	fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0)
		close(fd);
	else if (errno != EEXIST)
		return uns_fail(err, errno == EACCES ? -EROFS : -errno,
				"metadata store %s cannot be made: %s: " UNS_STORE_ELSEWHERE, path, strerror(errno));
	return 0;
}

/* Pages of a file that another node changes, which this node may have kept. Not while this process holds a lock on the
 * file: to close a descriptor of it drops them. */
static void drop_pages(const char *path)
{
	UNS_CLEANUP(uns_close_p) int fd = uns_is_local(path) ? -1 : open(path, O_RDONLY | O_CLOEXEC);

	if (fd >= 0)
		(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

static int database_connect(struct uns_store *store, const char *name, int flags, struct uns_err *err)
{
	int code;

	drop_pages(store->path);
	code = sqlite3_open_v2(name, &store->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
	if (code)
		return database_fail(store, store->db ? sqlite3_extended_errcode(store->db) : code, "cannot be opened",
				     err);
	sqlite3_extended_result_codes(store->db, 1);
	sqlite3_db_config(store->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(store->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	sqlite3_db_config(store->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
	sqlite3_db_config(store->db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
	sqlite3_limit(store->db, SQLITE_LIMIT_ATTACHED, 0);
	/* A file that turns out to be damaged is left as it is, its log included. */
	sqlite3_db_config(store->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	sqlite3_busy_timeout(store->db, BUSY_FACT_MS);
	/* No temporary files: SQLite would choose a directory by its own rules, in which this process may not write. */
	return database_exec(store, "PRAGMA cell_size_check=ON; PRAGMA mmap_size=0; PRAGMA temp_store=MEMORY", err);
}

/* One row, one text; "" when there is none. */
static int pragma_ask(struct uns_store *store, const char *sql, char *out, size_t size, struct uns_err *err)
{
	UNS_CLEANUP(statement_end) sqlite3_stmt *s = NULL;
	const char *text = NULL;
	int row;

	out[0] = '\0';
	UNS_TRY(database_prepare(store, sql, &s, err));
	row = statement_step(store, s, err);
	if (row > 0)
		UNS_TRY(statement_text(store, s, 0, &text, err));
	if (text)
		snprintf(out, size, "%s", text);
	return row < 0 ? row : 0;
}

/* A new file is set up so that the room of deleted memos can be given back to the file system. SQLite writes
 * the file each time: a full disk is found so; but a file that other nodes change is written in turn only. */
static int choose_journal(struct uns_store *store, struct uns_err *err)
{
	char mode[16];

	if (store->read_only)
		return 0;
	UNS_TRY(pragma_ask(store, "PRAGMA auto_vacuum", mode, sizeof(mode), err));
	if (uns_is_local(store->path) || strcmp(mode, "2") != 0)
		UNS_TRY(database_exec(store, "PRAGMA auto_vacuum=INCREMENTAL", err));
	UNS_TRY(database_exec(store, "PRAGMA journal_size_limit=16777216", err));
	UNS_TRY(pragma_ask(store, uns_is_local(store->path) ? "PRAGMA journal_mode=WAL" : "PRAGMA journal_mode=DELETE",
			   mode, sizeof(mode), err));
	store->has_wal = strcmp(mode, "wal") == 0;
	return database_exec(store, "PRAGMA synchronous=FULL", err);
}

/* All facts are checked at each opening; memos are checked when they are read. */
static int facts_check(struct uns_store *store, struct uns_err *err)
{
	char found[256];

	UNS_TRY(pragma_ask(store, "PRAGMA quick_check(fact)", found, sizeof(found), err));
	if (strcmp(found, "ok") == 0)
		return 0;
	return uns_fail(err, -EBADMSG, "metadata store %s is damaged: %s", store->path, found);
}

/* A file that other nodes change, too, is upgraded in turn. Returns 1 if there had to be a wait for it: then one of
 * them may have done it, and the file is to be opened again. */
static int wait_to_upgrade(struct uns_store *store, bool is_current, struct uns_err *err)
{
	if (is_current || store->read_only || store->turn.fd >= 0 || uns_is_local(store->path))
		return 0;
	UNS_TRY(turn_take(&store->turn, store->path, SHARED_OPEN_S, err));
	return store->turn.fd >= 0;
}

static int connect_to_write(struct uns_store *store, bool *is_current, struct uns_err *err)
{
	UNS_TRY(database_connect(store, store->path, SQLITE_OPEN_READWRITE, err));
	store->read_only = sqlite3_db_readonly(store->db, "main") == 1;
	return schema_check(store, is_current, err); /* the journal's kind is a change of the file */
}

static int open_writable(struct uns_store *store, struct uns_err *err)
{
	bool is_current;
	int waited;

	UNS_TRY(database_make_file(store->path, err));
	UNS_TRY(connect_to_write(store, &is_current, err));
	UNS_TRY(waited = wait_to_upgrade(store, is_current, err));
	if (waited) {
		database_close(store);
		UNS_TRY(connect_to_write(store, &is_current, err));
	}
	UNS_TRY(choose_journal(store, err));
	UNS_TRY(schema_upgrade(store, err));
	UNS_TRY(facts_check(store, err));
	sqlite3_db_config(store->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
	return 0;
}

/* -- reading where nothing can be written -- */

static bool has_log(const struct uns_store *store)
{
	UNS_CLEANUP(uns_free_p) char *wal = NULL;
	struct stat st;

	if (asprintf(&wal, "%s-wal", store->path) < 0) {
		wal = NULL;
		return true;
	}
	return stat(wal, &st) == 0 && st.st_size > 0;
}

/* "file:" with everything escaped that could end a path. */
static char *immutable_uri(const char *path)
{
	struct uns_text uri = UNS_TEXT_INIT;

	uns_text_str(&uri, "file:");
	for (; *path; path++)
		uns_text_printf(&uri, isalnum((unsigned char)*path) || strchr("/._-", *path) ? "%c" : "%%%02X",
				(unsigned char)*path);
	uns_text_str(&uri, "?immutable=1");
	return uns_text_take(&uri, NULL);
}

/* To read a file that has a WAL, SQLite creates files beside it. If that fails (a full disk, a read-only mount) and the
 * log is empty, the file alone holds everything, and is opened without them. */
static int open_immutable(struct uns_store *store, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) char *uri = immutable_uri(store->path);

	UNS_TRY_ALLOC(uri, err);
	UNS_TRY(database_connect(store, uri, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, err));
	store->read_only = true;
	UNS_TRY(schema_upgrade(store, err));
	return facts_check(store, err);
}

void database_close(struct uns_store *store)
{
	statements_free(store);
	sqlite3_close(store->db);
	store->db = NULL;
}

/* Also one that could be opened only for reading, although it may be written. */
static int open_patiently(struct uns_store *store, struct uns_err *err)
{
	struct shared_tries tries = { 0 };
	struct uns_err why = { 0 };
	int code;

	while (((code = open_writable(store, &why)) < 0 || store->read_only) &&
	       shared_try_again(store, code < 0 ? code : -EROFS, SHARED_OPEN_S, &tries)) {
		database_close(store);
		store->read_only = false;
		why = (struct uns_err){ 0 };
	}
	return code < 0 ? uns_fail_as(err, &why) : 0;
}

int database_open(struct uns_store *store, struct uns_err *err)
{
	struct uns_err why = { 0 };
	int code = open_patiently(store, &why);

	if (code == 0)
		return 0;
	database_close(store);
	if ((code == -EROFS || code == -ENOSPC || code == -EIO) && !has_log(store) && access(store->path, R_OK) == 0 &&
	    open_immutable(store, NULL) == 0) {
		if (code == -ENOSPC)
			store->why_read_only = why;
		return 0;
	}
	database_close(store);
	return uns_fail_as(err, &why);
}

int database_open_anew(struct uns_store *store, struct uns_err *err)
{
	sqlite3 *const before = store->db;
	const bool was_read_only = store->read_only;
	sqlite3 *anew;
	struct uns_err why = { 0 };
	int code;

	store->db = NULL;
	code = open_writable(store, &why);
	if (code == 0 && store->read_only && !was_read_only)
		code = uns_fail(&why, -EROFS, "metadata store %s cannot be written at the moment", store->path);
	if (code < 0)
		database_close(store);
	anew = store->db;
	store->db = before;
	store->read_only = was_read_only;
	if (code < 0)
		return uns_fail_as(err, &why);
	database_close(store);
	store->db = anew;
	return 0;
}
