/* The store: facts survive, damage is kept aside, and each thing that can be wrong with its file has
 * its sentence. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "faults/faults.h"
#include "shell.h"
#include "store/database.h"
#include "store/look.h"
#include "store/store.h"
#include "store/store_link.h"

struct fixture {
	char dir[32], path[64];
	struct uns_arena arena;
	struct uns_err err;
	char *note;
};

static int setup(void **state)
{
	static struct fixture f;

	f = (struct fixture){ .dir = "/tmp/uns_store_XXXXXX" };
	assert_non_null(mkdtemp(f.dir));
	snprintf(f.path, sizeof(f.path), "%s/store.db", f.dir);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	uns_arena_fini(&f->arena);
	free(f->note);
	shell(f->dir, "rm -r ../$(basename $PWD)");
	return 0;
}

static struct uns_store *open_at(struct fixture *f, const char *path)
{
	struct uns_store *store = NULL;

	free(f->note);
	f->err = (struct uns_err){ 0 };
	if (uns_store_open(path, NULL, &store, &f->note, &f->err) < 0)
		fail_msg("%s", f->err.text);
	return store;
}

static struct uns_store *open_store(struct fixture *f)
{
	return open_at(f, f->path);
}

static void refused(struct fixture *f, int code, const char *words)
{
	struct uns_store *store = NULL;

	free(f->note);
	f->err = (struct uns_err){ 0 };
	assert_int_equal(uns_store_open(f->path, NULL, &store, &f->note, &f->err), code);
	if (!strstr(f->err.text, words) || !strstr(f->err.text, "store.db"))
		fail_msg("'%s' does not say '%s'", f->err.text, words);
}

/* Without the library, as another program or version would. */
static void sql(const struct fixture *f, const char *text)
{
	char *why = NULL;
	sqlite3 *db;

	assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
	if (sqlite3_exec(db, text, NULL, NULL, &why) != SQLITE_OK)
		fail_msg("%s: %s", text, why);
	sqlite3_close(db);
}

static void set(struct uns_store *store, const char *subject, const char *key, const char *json)
{
	struct uns_err err = { 0 };

	if (uns_store_set(store, subject, key, json, "test", &err) < 0)
		fail_msg("%s", err.text);
}

/* "subject key=json, ..." */
static void expect(struct fixture *f, struct uns_store *store, const char *subject, const char *wanted)
{
	struct uns_store_fact *v = NULL;
	char text[1024] = "";
	size_t n, i, at = 0;

	assert_int_equal(uns_store_facts(store, subject, &f->arena, &v, &n, NULL), 0);
	for (i = 0; i < n; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s %s=%s", i ? ", " : "", v[i].subject,
				       v[i].key, v[i].json);
	assert_string_equal(text, wanted);
}

/* -- facts -- */

static void facts_are_kept_with_origin_and_time(void **state)
{
	struct fixture *f = *state;
	struct uns_store *store = open_store(f);
	struct uns_store_fact *v;
	size_t n;

	assert_int_equal(uns_store_set(store, "/r/c", "global_step", "200", "scheduler.pt", NULL), 0);
	uns_store_close(store);
	store = open_store(f);
	assert_int_equal(uns_store_facts(store, "/r/c", &f->arena, &v, &n, NULL), 0);
	assert_int_equal(n, 1);
	assert_string_equal(v[0].origin, "scheduler.pt");
	assert_true(v[0].time_s > 1700000000);
	uns_store_close(store);
}

static void the_nearest_fact_counts(void **state)
{
	struct fixture *f = *state;
	struct uns_store *store = open_store(f);

	set(store, "/", "z", "0");
	set(store, "/r", "a", "1");
	set(store, "/r", "b", "1");
	set(store, "/r/c", "b", "2");
	set(store, "/r/c2", "b", "3");
	set(store, "/r/c", "a_b", "\"x\"");
	expect(f, store, "/r/c", "/ z=0, /r a=1, /r/c a_b=\"x\", /r/c b=2");
	expect(f, store, "/r/c/d", "/ z=0, /r a=1, /r/c a_b=\"x\", /r/c b=2");
	expect(f, store, "/r", "/ z=0, /r a=1, /r b=1");
	expect(f, store, "/", "/ z=0");
	expect(f, store, NULL, "/ z=0, /r a=1, /r b=1, /r/c a_b=\"x\", /r/c b=2, /r/c2 b=3");
	set(store, "/r", "a", "5");
	expect(f, store, "/r/x", "/ z=0, /r a=5, /r b=1");
	uns_store_close(store);
}

static void unset(void **state)
{
	struct fixture *f = *state;
	struct uns_store *store = open_store(f);

	set(store, "/r", "a", "1");
	assert_int_equal(uns_store_unset(store, "/r/c", "a", &f->err), -ENOENT);
	assert_non_null(strstr(f->err.text, "a is not set for /r/c"));
	assert_int_equal(uns_store_unset(store, "/r", "a", NULL), 0);
	assert_int_equal(uns_store_unset(store, "/r", "a", NULL), -ENOENT);
	expect(f, store, "/r", "");
	uns_store_close(store);
}

static uint64_t revision(struct uns_store *store)
{
	uint64_t n;
	bool settled;

	assert_int_equal(uns_store_revision(store, &n, &settled, NULL), 0);
	assert_true(settled); /* no other node changes it */
	return n;
}

static int fail_twice(struct uns_store *store, void *arg, struct uns_err *err)
{
	unsigned *n = arg;

	return ++*n > 2 ? 0 : uns_fail(err, -EBADMSG, "metadata store %s is damaged", store->path);
}

/* Its pages may be of before and of after another node's change. */
static void what_another_node_changes_is_read_again_before_it_counts_as_damaged(void **state)
{
	struct fixture *f = *state;
	struct uns_store *store = open_at(f, f->path);
	unsigned n = 0;

	assert_int_equal(store_look(store, 0, fail_twice, &n, &f->err), -EBADMSG);
	assert_int_equal(n, 1);
	store->seen.shared = true;
	n = 0;
	assert_int_equal(store_look(store, 0, fail_twice, &n, NULL), 0);
	assert_int_equal(n, 3);
	uns_store_close(store);
}

static void a_store_that_another_node_changed_is_opened_until_that_is_long_ago(void **state)
{
	struct fixture *f = *state;
	struct uns_store *store = open_at(f, f->path), *other = open_at(f, f->path);
	sqlite3 *before;

	store->seen.shared = true;
	look_is_settled(store); /* which file it is */
	store->seen.changed_ns = 0;
	before = store->db;
	assert_true(look_is_settled(store));
	assert_ptr_equal(store->db, before);

	assert_int_equal(uns_store_set(other, "/r", "epoch", "1", "test", NULL), 0);
	uns_store_close(other);
	shell(f->dir, "touch -d '+1 hour' store.db"); /* here the change is in the log */
	store->seen.opened_ns = 0;
	assert_false(look_is_settled(store));
	assert_ptr_not_equal(store->db, before);

	store->seen.opened_ns = 0;
	store->seen.changed_ns -= 60 * INT64_C(1000000000);
	before = store->db;
	assert_true(look_is_settled(store)); /* once more */
	assert_ptr_not_equal(store->db, before);
	before = store->db;
	assert_true(look_is_settled(store));
	assert_ptr_equal(store->db, before);
	expect(f, store, "/r", "/r epoch=1");
	uns_store_close(store);
}

static void the_revision_follows_facts_and_not_memos(void **state)
{
	struct fixture *f = *state;
	struct uns_store *one = open_store(f), *two = open_store(f);
	uint64_t n = revision(one);

	assert_int_equal(revision(two), n);
	assert_int_equal(uns_store_memo_put(two, "catalog", 1, "x", 1, NULL), 0);
	assert_int_equal(revision(one), n);
	set(two, "/r", "a", "1");
	assert_int_not_equal(revision(one), n);
	assert_int_equal(revision(one), revision(two));
	n = revision(one);
	assert_int_equal(uns_store_unset(two, "/r", "a", NULL), 0);
	assert_int_not_equal(revision(one), n);
	uns_store_close(one);
	uns_store_close(two);
}

static void the_file_is_its_owners(void **state)
{
	struct fixture *f = *state;
	struct uns_store *store = open_store(f);
	struct stat st;

	assert_int_equal(stat(f->path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	uns_store_close(store);
}

/* -- memos -- */

static void memos(void **state)
{
	struct fixture *f = *state;
	struct uns_store *store = open_store(f);
	static char zeros[1 << 20];
	struct uns_span got;
	struct stat st;

	assert_int_equal(uns_store_memo_get(store, "catalog", 7, &f->arena, &got, NULL), -ENOENT);
	assert_int_equal(uns_store_memo_put(store, "catalog", 7, zeros, sizeof(zeros), NULL), 0);
	assert_int_equal(uns_store_memo_put(store, "crc", UINT64_MAX, "abc", 3, NULL), 0);
	assert_int_equal(uns_store_memo_put(store, "crc", 9, "", 0, NULL), 0);
	uns_store_close(store);
	assert_int_equal(stat(f->path, &st), 0);
	assert_true(st.st_size < 100000);

	store = open_store(f);
	assert_int_equal(uns_store_memo_get(store, "catalog", 7, &f->arena, &got, NULL), 0);
	assert_int_equal(uns_span_left(&got), sizeof(zeros));
	assert_memory_equal(got.p, zeros, sizeof(zeros));
	assert_int_equal(uns_store_memo_get(store, "crc", UINT64_MAX, &f->arena, &got, NULL), 0);
	assert_memory_equal(got.p, "abc", 3);
	assert_int_equal(uns_store_memo_get(store, "crc", 9, &f->arena, &got, NULL), 0);
	assert_int_equal(uns_span_left(&got), 0);
	assert_int_equal(uns_store_memo_get(store, "crc", 7, &f->arena, &got, NULL), -ENOENT);
	set(store, "/r", "a", "1");
	assert_int_equal(uns_store_memo_clear(store, NULL), 0);
	assert_int_equal(uns_store_memo_get(store, "crc", 9, &f->arena, &got, NULL), -ENOENT);
	expect(f, store, "/r", "/r a=1");
	uns_store_close(store);
}

static bool on_network;
int __real_statfs64(const char *path, struct statfs64 *out);
int __wrap_statfs64(const char *path, struct statfs64 *out);
int __wrap_statfs64(const char *path, struct statfs64 *out)
{
	int code = __real_statfs64(path, out);

	if (on_network)
		out->f_type = 0x6969; /* NFS */
	return code;
}

static int see_statement(unsigned kind, void *seen, void *statement, void *text)
{
	(void)kind;
	(void)statement;
	*(bool *)seen |= strstr(text, "synchronous=NORMAL") != NULL;
	return 0;
}

/* A rollback journal that is not synced may damage the whole file in a power cut, facts included. */
static void without_a_wal_a_memo_waits_for_the_disk(void **state)
{
	struct fixture *f = *state;
	sqlite3_stmt *asked;
	int i;

	for (i = 0; i < 2; i++) {
		struct uns_store *store;
		bool hurried = false;

		on_network = i;
		store = open_store(f);
		on_network = false;
		sqlite3_trace_v2(store->db, SQLITE_TRACE_STMT, see_statement, &hurried);
		assert_int_equal(uns_store_memo_put(store, "catalog", 1, "bytes", 5, NULL), 0);
		assert_int_equal(hurried, !i);
		assert_int_equal(sqlite3_prepare_v2(store->db, "PRAGMA temp_store", -1, &asked, NULL), SQLITE_OK);
		assert_int_equal(sqlite3_step(asked), SQLITE_ROW);
		assert_int_equal(sqlite3_column_int(asked, 0), 2); /* MEMORY: no directory for temporary files */
		sqlite3_finalize(asked);
		uns_store_close(store);
	}
}

static void the_oldest_memo_goes_first(void **state)
{
	struct fixture *f = *state;
	struct uns_store *store = open_store(f);
	unsigned char noise[1000];
	struct uns_span got;
	uint64_t key;
	size_t i;

	uns_store_memo_bound(store, 5000);
	for (key = 0; key < 8; key++) {
		for (i = 0; i < sizeof(noise); i++)
			noise[i] = (unsigned char)random();
		assert_int_equal(uns_store_memo_put(store, "catalog", key, noise, sizeof(noise), NULL), 0);
	}
	for (key = 0; key < 8; key++)
		assert_int_equal(uns_store_memo_get(store, "catalog", key, &f->arena, &got, NULL),
				 key < 4 ? -ENOENT : 0);
	uns_store_close(store);
}

static void a_damaged_memo_is_no_memo(void **state)
{
	struct fixture *f = *state;
	struct uns_store *store = open_store(f);
	struct uns_span got;

	uns_store_memo_put(store, "catalog", 1, "abcdefgh", 8, NULL);
	uns_store_memo_put(store, "catalog", 2, "abcdefgh", 8, NULL);
	uns_store_close(store);
	sql(f, "UPDATE memo SET bytes = x'0011223344' WHERE key = 1;"
	       "UPDATE memo SET bytes = substr(bytes, 1, length(bytes) - 1) || x'00' WHERE key = 2");
	store = open_store(f);
	assert_int_equal(uns_store_memo_get(store, "catalog", 1, &f->arena, &got, &f->err), -EBADMSG);
	assert_non_null(strstr(f->err.text, "an entry of the cached metadata is damaged"));
	assert_int_equal(uns_store_memo_get(store, "catalog", 2, &f->arena, &got, NULL), -EBADMSG);
	uns_store_close(store);
}

/* -- seals -- */

static void a_seal_stays_until_it_is_replaced(void **state)
{
	struct fixture *f = *state;
	struct uns_store *store = open_store(f);
	struct uns_span got;

	assert_int_equal(uns_store_seal_get(store, "/a", &f->arena, &got, &f->err), -ENOENT);
	assert_int_equal(uns_store_seal_put(store, "/a", "one", 3, NULL), 0);
	assert_int_equal(uns_store_seal_put(store, "/a", "other", 5, NULL), 0);
	assert_int_equal(uns_store_seal_put(store, "/b", "", 0, NULL), 0);
	uns_store_close(store);
	store = open_store(f);
	assert_int_equal(uns_store_memo_clear(store, NULL), 0);
	assert_int_equal(uns_store_seal_get(store, "/a", &f->arena, &got, NULL), 0);
	assert_int_equal(uns_span_left(&got), 5);
	assert_memory_equal(got.p, "other", 5);
	assert_int_equal(uns_store_seal_get(store, "/b", &f->arena, &got, NULL), 0);
	assert_int_equal(uns_span_left(&got), 0);
	uns_store_close(store);
	sql(f, "UPDATE seal SET bytes = x'28b52ffd0000'");
	store = open_store(f);
	assert_int_equal(uns_store_seal_get(store, "/a", &f->arena, &got, NULL), -EBADMSG);
	uns_store_close(store);
}

/* -- schemas -- */

/* What the first version of the schema left, byte for byte its SQL. */
static const char first_schema[] =
	"CREATE TABLE fact ("
	"  subject TEXT NOT NULL, key TEXT NOT NULL, json TEXT NOT NULL, origin TEXT NOT NULL,"
	"  time_s INTEGER NOT NULL, PRIMARY KEY (subject, key)) WITHOUT ROWID;"
	"CREATE TABLE revision (n INTEGER NOT NULL);"
	"INSERT INTO revision VALUES (77);"
	"PRAGMA application_id=1970172776; PRAGMA user_version=1;"
	"INSERT INTO fact VALUES ('/r', 'a', '1', 'long ago', 1600000000);";

static void an_older_schema_is_upgraded(void **state)
{
	struct fixture *f = *state;
	struct uns_store *store;
	struct uns_span got;

	sql(f, first_schema);
	store = open_store(f);
	assert_null(f->note);
	expect(f, store, "/r", "/r a=1");
	assert_int_equal(revision(store), 77);
	assert_int_equal(uns_store_memo_put(store, "crc", 1, "x", 1, NULL), 0);
	uns_store_close(store);
	store = open_store(f);
	assert_int_equal(uns_store_memo_get(store, "crc", 1, &f->arena, &got, NULL), 0);
	uns_store_close(store);
}

/* An upgrade that cannot be made leaves the file as it was. */
static void an_upgrade_is_whole_or_not_at_all(void **state)
{
	struct fixture *f = *state;
	struct uns_store *store;

	sql(f, first_schema);
	sql(f, "CREATE TABLE memo_by_use (x)"); /* in the way of the second step's last statement */
	refused(f, -EIO, "memo_by_use");
	sql(f, "DROP TABLE memo_by_use");
	store = open_store(f);
	expect(f, store, "/r", "/r a=1");
	uns_store_close(store);
}

static void a_newer_schema_is_refused_and_kept(void **state)
{
	struct fixture *f = *state;
	struct uns_store *store = open_store(f);

	set(store, "/r", "a", "1");
	uns_store_close(store);
	sql(f, "PRAGMA user_version=9");
	refused(f, -ENOTSUP, "newer unshard (schema 9, this one knows 3)");
	sql(f, "PRAGMA user_version=3");
	store = open_store(f);
	expect(f, store, "/r", "/r a=1");
	uns_store_close(store);
}

static void a_database_of_others_is_left_alone(void **state)
{
	struct fixture *f = *state;

	sql(f, "CREATE TABLE bookmarks (url); INSERT INTO bookmarks VALUES ('x')");
	shell(f->dir, "cp store.db before");
	refused(f, -ENOTSUP, "another program");
	shell(f->dir, "cmp store.db before");
}

/* -- damage -- */

/* The one file of its kind, whose name it gives. */
static void expect_aside(struct fixture *f, const char *like)
{
	char command[256];

	snprintf(command, sizeof(command),
		 "f=$(ls store.db.corrupt-* | grep -E "
		 "'corrupt-[0-9]{8}T[0-9]{6}$') && cmp $f %s",
		 like);
	shell(f->dir, command);
}

static const struct {
	const char *name, *damage;
} damages[] = {
	{ "no database at all", "printf 'not a database, but a good long line of text' > store.db" },
	{ "header overwritten", "dd if=/dev/urandom of=store.db bs=64 count=1 conv=notrunc" },
	{ "cut", "truncate -s 5000 store.db" },
	{ "tables overwritten", "dd if=/dev/urandom of=store.db bs=4096 seek=1 count=4 conv=notrunc" },
	{ "schema overwritten", "dd if=/dev/urandom of=store.db bs=100 seek=1 count=39 conv=notrunc" },
};

static void a_damaged_file_is_kept_aside(void **state)
{
	struct fixture *f = *state;
	struct uns_store *store;
	char command[256], key[16];
	size_t i, k;

	for (i = 0; i < sizeof(damages) / sizeof(*damages); i++) {
		store = open_store(f);
		for (k = 0; k < 200; k++) {
			snprintf(key, sizeof(key), "key%zu", k);
			set(store, "/r", key, "\"a value that takes some room\"");
		}
		uns_store_close(store);
		snprintf(command, sizeof(command), "%s 2>/dev/null; cp store.db damaged", damages[i].damage);
		shell(f->dir, command);
		store = open_store(f);
		if (!f->note || !strstr(f->note, "store.db.corrupt-"))
			fail_msg("%s: %s", damages[i].name, f->note ? f->note : "no note");
		expect_aside(f, "damaged");
		expect(f, store, NULL, "");
		set(store, "/r", "a", "1");
		uns_store_close(store);
		store = open_store(f);
		assert_null(f->note);
		expect(f, store, NULL, "/r a=1");
		uns_store_close(store);
		shell(f->dir, "rm -f store.db*");
	}
}

static void two_damaged_files_are_both_kept(void **state)
{
	struct fixture *f = *state;

	shell(f->dir, "echo one, and quite a few more bytes > store.db");
	uns_store_close(open_store(f));
	shell(f->dir, "echo two, and quite a few more bytes > store.db");
	uns_store_close(open_store(f));
	shell(f->dir, "cat store.db.corrupt-* | grep -c 'few more' | grep -x 2");
}

static void a_file_named_by_mistake_stays(void **state)
{
	struct fixture *f = *state;
	struct uns_store *store;
	char path[80];

	shell(f->dir, "seq 1000 > notes.txt && cp notes.txt before");
	snprintf(path, sizeof(path), "%s/notes.txt", f->dir);
	assert_int_equal(uns_store_open(path, NULL, &store, &f->note, &f->err), -EBADMSG);
	assert_non_null(strstr(f->err.text, "is not a metadata store"));
	shell(f->dir, "cmp notes.txt before");
}

/* -- locked, read-only, full -- */

static void a_locked_file_has_its_sentence(void **state)
{
	struct fixture *f = *state;
	struct uns_store *store = open_store(f);
	sqlite3 *other;

	set(store, "/r", "a", "1");
	assert_int_equal(sqlite3_open(f->path, &other), SQLITE_OK);
	assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(uns_store_set(store, "/r", "a", "2", "", &f->err), -EBUSY);
	assert_non_null(strstr(f->err.text, "another program keeps it locked"));
	expect(f, store, "/r", "/r a=1"); /* reading goes on */
	assert_int_equal(uns_store_memo_put(store, "crc", 1, "x", 1, NULL), -EBUSY);
	sqlite3_close(other);
	set(store, "/r", "a", "2");
	uns_store_close(store);
}

static void wholly_locked(void **state)
{
	struct fixture *f = *state;
	sqlite3 *other;

	uns_store_close(open_store(f));
	assert_int_equal(sqlite3_open(f->path, &other), SQLITE_OK);
	sqlite3_exec(other, "PRAGMA locking_mode=EXCLUSIVE; BEGIN EXCLUSIVE", NULL, NULL, NULL);
	refused(f, -EBUSY, "another program keeps it locked");
	sqlite3_close(other);
	uns_store_close(open_store(f));
}

/* In a namespace of its own, where a small file system can be mounted: exits 0 when all is well. */
static void in_small_filesystem(struct fixture *f, const char *size, void (*work)(struct fixture *f))
{
	char command[512];
	pid_t child;
	int status;

	snprintf(command, sizeof(command), "mkdir small && mount -t tmpfs -o size=%s none %s/small", size, f->dir);
	shell(f->dir, command);
	snprintf(f->path, sizeof(f->path), "%s/small/store.db", f->dir);
	child = fork();
	if (!child) {
		setenv("CMOCKA_TEST_ABORT", "1", 1); /* a failure ends the child, and not its test alone */
		work(f);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	shell(f->dir, "for m in *; do ! mountpoint -q $m || umount -l $m; done; rmdir small");
	assert_int_equal(status, 0);
}

static void read_only_work(struct fixture *f)
{
	struct uns_store *store = open_store(f);
	struct uns_span got;

	set(store, "/r", "a", "1");
	uns_store_memo_put(store, "crc", 1, "x", 1, NULL);
	uns_store_close(store);
	shell(f->dir, "mount -o remount,ro small");
	store = open_store(f);
	assert_true(uns_store_read_only(store));
	expect(f, store, "/r", "/r a=1");
	assert_int_equal(uns_store_memo_get(store, "crc", 1, &f->arena, &got, NULL), 0);
	assert_int_equal(uns_store_set(store, "/r", "a", "2", "", &f->err), -EROFS);
	assert_non_null(strstr(f->err.text, "cannot be written: it is read-only"));
	assert_int_equal(uns_store_memo_put(store, "crc", 1, "y", 1, NULL), -EROFS);
	uns_store_close(store);
	shell(f->dir, "mount -o remount,rw small");
}

static void a_read_only_file_is_read(void **state)
{
	in_small_filesystem(*state, "1m", read_only_work);
}

/* One directory of two mounts: a container has the one that can only be read. */
static void written_from_outside_work(struct fixture *f)
{
	char outside[64], inside[80];
	struct store_link link;
	struct uns_store *store;
	int value;

	shell(f->dir, "mkdir ro && mount --bind small ro && mount -o remount,bind,ro ro");
	strcpy(outside, f->path);
	snprintf(inside, sizeof(inside), "%s/ro/store.db", f->dir);
	store = open_store(f);
	set(store, "/r", "a", "1");
	uns_store_close(store);
	store_link_init(&link, NULL);
	assert_int_equal(store_link_choose(&link, false, inside, "/source", &f->arena, &f->err), 0);
	for (value = 1; value <= 4; value++) {
		store = store_hold(&link, &f->err);
		assert_non_null(store);
		assert_true(uns_store_read_only(store));
		expect(f, store, "/r", (const char *[]){ "", "/r a=1", "/r a=2", "/r a=3", "/r a=4" }[value]);
		store_release(&link);
		store = open_at(f, outside);
		set(store, "/r", "a", (const char *[]){ "", "2", "3", "4", "5" }[value]);
		uns_store_close(store);
	}
	store_link_fini(&link);
	shell(f->dir, "umount ro && rmdir ro");
}

static void a_read_only_file_that_is_written_from_outside(void **state)
{
	in_small_filesystem(*state, "1m", written_from_outside_work);
}

static void read_only_and_absent_work(struct fixture *f)
{
	shell(f->dir, "mount -o remount,ro small");
	refused(f, -EROFS, "Read-only file system");
}

static void a_store_that_cannot_be_made(void **state)
{
	in_small_filesystem(*state, "1m", read_only_and_absent_work);
}

static void full_work(struct fixture *f)
{
	struct uns_store *store = open_store(f);
	static char noise[500000];
	struct uns_store_fact *v;
	size_t i, n;

	for (i = 0; i < sizeof(noise); i++)
		noise[i] = (char)random();
	set(store, "/r", "a", "1");
	shell(f->dir, "head -c 10m /dev/zero > small/filler 2>/dev/null || true");
	assert_int_equal(uns_store_memo_put(store, "crc", 1, noise, sizeof(noise), NULL), -ENOSPC);
	for (i = 0; i < 100 && uns_store_set(store, "/r", "b", "\"more and more\"", "", &f->err) == 0; i++)
		;
	assert_int_equal(f->err.code, -ENOSPC);
	assert_non_null(strstr(f->err.text, "disk is full"));
	uns_store_close(store);
	store = open_store(f); /* nothing can be made beside it: for reading */
	assert_int_equal(uns_store_facts(store, "/r", &f->arena, &v, &n, NULL), 0);
	assert_true(n >= 1 && strcmp(v[0].json, "1") == 0);
	f->err = (struct uns_err){ 0 };
	assert_int_equal(uns_store_set(store, "/r", "c", "1", "", &f->err), -ENOSPC);
	assert_non_null(strstr(f->err.text, "disk is full"));
	uns_store_close(store);
	shell(f->dir, "rm small/filler");
	store = open_store(f);
	set(store, "/r", "b", "2");
	expect(f, store, "/r", "/r a=1, /r b=2");
	uns_store_close(store);
}

static void a_full_disk_loses_nothing(void **state)
{
	in_small_filesystem(*state, "512k", full_work);
}

/* -- a file that other nodes write, too -- */

static int open_and_set(struct fixture *f, const char *key)
{
	struct uns_store *store = NULL;
	struct uns_err err = { 0 };
	int code;

	free(f->note);
	f->note = NULL;
	code = uns_store_open(f->path, NULL, &store, &f->note, &err);
	if (code == 0)
		code = uns_store_set(store, "/r", key, "1", "test", &err);
	uns_store_close(store);
	if (code < 0)
		print_message("%s\n", err.text);
	return code;
}

/* Whatever SQLite calls it: each of its calls fails once. The last is not reached any more. */
static void what_fails_once_on_a_network_is_tried_again(void **state)
{
	static const int codes[] = { SQLITE_CANTOPEN, SQLITE_IOERR_READ, SQLITE_READONLY_ROLLBACK, SQLITE_BUSY };
	struct fixture *f = *state;
	uint64_t nth, failed = 0;
	size_t i;

	on_network = true;
	uns_store_close(open_store(f));
	for (i = 0; i < sizeof(codes) / sizeof(*codes); i++)
		for (nth = 1, faults_plan->struck = 1; faults_plan->struck; nth += 3) {
			*faults_plan = (struct faults_plan){
				.calls = 1u << FAULTS_SQLITE, .action = FAULTS_FAIL, .error = codes[i], .nth = nth
			};
			faults_arm();
			assert_int_equal(open_and_set(f, "k"), 0);
			faults_disarm();
			failed += faults_plan->struck;
		}
	on_network = false;
	assert_true(failed > 20);
}

static uint64_t first_failing;

static bool choose_the_rest(enum faults_call call, uint64_t where, uint32_t *action, int *error)
{
	(void)call;
	(void)where;
	*action = FAULTS_FAIL;
	*error = SQLITE_NOMEM;
	return faults_plan->seen >= first_failing;
}

/* From one of SQLite's calls on, all of them fail, also those that would end a transaction: the next change finds it
 * open. */
static void what_fails_for_a_while_is_over_then(void **state)
{
	struct fixture *f = *state;
	struct uns_store *store = open_store(f);
	struct uns_err err = { 0 };
	bool failed = true;

	faults_choose = choose_the_rest;
	for (first_failing = 1; failed; first_failing++) {
		*faults_plan = (struct faults_plan){ .calls = 1u << FAULTS_SQLITE };
		faults_arm();
		uns_store_set(store, "/r", "k", "1", "test", NULL);
		faults_disarm();
		failed = faults_plan->struck;
		if (uns_store_set(store, "/r", "k", "2", "test", &err) < 0)
			fail_msg("from call %d on: %s", (int)first_failing, err.text);
	}
	faults_choose = NULL;
	assert_true(first_failing > 5);
	uns_store_close(store);
}

/* A full disk is said to be so at once: the file is opened once to write it, and once to read it. */
static void a_full_disk_is_not_waited_for(void **state)
{
	struct fixture *f = *state;

	uns_store_close(open_store(f));
	on_network = true;
	*faults_plan =
		(struct faults_plan){ .calls = 1u << FAULTS_SQLITE, .action = FAULTS_FAIL, .error = SQLITE_FULL };
	faults_arm();
	assert_int_equal(open_and_set(f, "k"), -ENOSPC);
	faults_disarm();
	assert_int_equal(faults_plan->struck, 2);
	on_network = false;
}

/* 24 programs at once, by the journal that a network gets. */
static void all_of_many_writers_succeed(void **state)
{
	enum { WRITERS = 24 };
	struct fixture *f = *state;
	struct uns_store_fact *v;
	struct uns_store *store;
	pid_t pid[WRITERS];
	int i, status;
	char key[8];
	size_t n;

	on_network = true;
	uns_store_close(open_store(f));
	for (i = 0; i < WRITERS; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		pid[i] = fork();
		assert_true(pid[i] >= 0);
		if (!pid[i])
			_exit(open_and_set(f, key) < 0);
	}
	for (i = 0; i < WRITERS; i++) {
		assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
		assert_int_equal(status, 0);
	}
	store = open_store(f);
	assert_int_equal(uns_store_facts(store, "/r", &f->arena, &v, &n, NULL), 0);
	assert_int_equal(n, WRITERS);
	uns_store_close(store);
	on_network = false;
}

/* -- no memory -- */

static void fail_allocation(uint64_t nth)
{
	*faults_plan = (struct faults_plan){
		.calls = 1u << FAULTS_MALLOC, .action = FAULTS_FAIL, .error = ENOMEM, .nth = nth
	};
	faults_arm();
}

/* Columns too long for the memory that SQLite keeps for small ones: they are allocated. */
static void long_fact(struct fixture *f, struct uns_store_fact *fact)
{
	char *text = uns_arena_alloc(&f->arena, 4 * 5000, 1);
	int i;

	for (i = 0; i < 4; i++) {
		memset(text + i * 5000, 'a' + i, 4999);
		text[i * 5000 + 4999] = '\0';
	}
	text[0] = '/';
	text[10000] = text[14998] = '"';
	*fact = (struct uns_store_fact){ text, text + 5000, text + 10000, text + 15000, 1 };
}

static void expect_fact(const struct uns_store_fact *found, const struct uns_store_fact *fact)
{
	assert_string_equal(found->subject, fact->subject);
	assert_string_equal(found->key, fact->key);
	assert_string_equal(found->json, fact->json);
	assert_string_equal(found->origin, fact->origin);
}

static void without_memory_facts_are_not_read_as_less(void **state)
{
	struct fixture *f = *state;
	struct uns_store *store = open_store(f);
	struct uns_store_fact fact, *v;
	uint64_t nth, failed = 0;
	size_t n;
	int code;

	long_fact(f, &fact);
	assert_int_equal(uns_store_set_all(store, &fact, 1, NULL), 0);
	for (nth = 1, faults_plan->struck = 1; faults_plan->struck; nth++) {
		uns_store_close(store);
		store = open_store(f);
		fail_allocation(nth);
		code = uns_store_facts(store, nth % 2 ? fact.subject : NULL, &f->arena, &v, &n, NULL);
		faults_disarm();
		if (code == 0) {
			assert_int_equal(n, 1);
			expect_fact(v, &fact);
		} else {
			assert_int_equal(code, -ENOMEM);
			failed++;
		}
	}
	uns_store_close(store);
	assert_true(failed > 10);
}

static void without_memory_a_store_is_not_damaged(void **state)
{
	struct fixture *f = *state;
	struct uns_store *store = open_store(f);
	uint64_t nth;
	int code;

	set(store, "/r", "a", "1");
	uns_store_close(store);
	for (nth = 1, faults_plan->struck = 1; faults_plan->struck; nth++) {
		fail_allocation(nth);
		code = uns_store_open(f->path, NULL, &store, &f->note, NULL);
		faults_disarm();
		assert_true(code == 0 || code == -ENOMEM);
		assert_null(f->note); /* it was not moved aside */
		if (code == 0) {
			expect(f, store, "/r", "/r a=1");
			uns_store_close(store);
		}
	}
	assert_true(nth > 50);
}

/* -- killed -- */

/* A child that sets fact after fact and says each on a pipe once it is acknowledged; its nth call on the
 * store's files kills it. */
static pid_t start_setting(struct fixture *f, uint64_t nth, int *acknowledged)
{
	int pipe_fd[2];
	pid_t child;

	assert_int_equal(pipe(pipe_fd), 0);
	child = fork();
	if (!child) {
		struct uns_store *store;
		static char memo[50000];
		unsigned n;
		char json[16];

		*faults_plan =
			(struct faults_plan){ .calls = (1u << FAULTS_MALLOC) - 1, .action = FAULTS_KILL, .nth = nth };
		strncpy(faults_plan->path, f->path, sizeof(faults_plan->path) - 1);
		faults_arm();
		store = open_store(f);

		for (n = 1;; n++) {
			snprintf(json, sizeof(json), "%u", n);
			set(store, "/r", "n", json);
			if (write(pipe_fd[1], &n, sizeof(n)) != sizeof(n))
				_exit(1);
			snprintf(memo, sizeof(memo), "%u", n * 7919);
			uns_store_memo_put(store, "catalog", n % 50, memo, sizeof(memo), NULL);
		}
	}
	close(pipe_fd[1]);
	*acknowledged = pipe_fd[0];
	return child;
}

static void integrity(const struct fixture *f)
{
	sqlite3_stmt *s;
	sqlite3 *db;

	assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &s, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(s), SQLITE_ROW);
	assert_string_equal((const char *)sqlite3_column_text(s, 0), "ok");
	sqlite3_finalize(s);
	sqlite3_close(db);
}

static void killed_at_any_point(void **state)
{
	struct fixture *f = *state;
	struct uns_store_fact *v;
	struct uns_store *store;
	int rounds_cut = 0;
	unsigned last, n;
	int rounds = 60, round, pipe_fd, status;
	size_t n_facts;
	pid_t child;

#ifdef __SANITIZE_ADDRESS__ /* it finds in one call what it finds in the next one */
	if (!getenv("UNSHARD_LONG"))
		rounds = 20;
#endif
	for (round = 0; round < rounds; round++) {
		child = start_setting(f, 1 + (uint64_t)round * (60 / rounds) * 17, &pipe_fd);
		waitpid(child, &status, 0);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		for (last = 0; read(pipe_fd, &n, sizeof(n)) == sizeof(n);)
			last = n;
		rounds_cut += last > 0;
		close(pipe_fd);
		if (access(f->path, F_OK) == 0)
			integrity(f);
		store = open_store(f);
		assert_null(f->note);
		assert_int_equal(uns_store_facts(store, "/r", &f->arena, &v, &n_facts, NULL), 0);
		if (last) {
			assert_int_equal(n_facts, 1);
			assert_true(strtoul(v[0].json, NULL, 10) >= last);
		}
		uns_store_close(store);
	}
	assert_in_range(rounds_cut, rounds / 3, rounds - 1); /* the others were opening it */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(facts_are_kept_with_origin_and_time),
		TEST(the_nearest_fact_counts),
		TEST(unset),
		TEST(what_another_node_changes_is_read_again_before_it_counts_as_damaged),
		TEST(a_store_that_another_node_changed_is_opened_until_that_is_long_ago),
		TEST(the_revision_follows_facts_and_not_memos),
		TEST(the_file_is_its_owners),
		TEST(memos),
		TEST(without_a_wal_a_memo_waits_for_the_disk),
		TEST(the_oldest_memo_goes_first),
		TEST(a_damaged_memo_is_no_memo),
		TEST(a_seal_stays_until_it_is_replaced),
		TEST(an_older_schema_is_upgraded),
		TEST(an_upgrade_is_whole_or_not_at_all),
		TEST(a_newer_schema_is_refused_and_kept),
		TEST(a_database_of_others_is_left_alone),
		TEST(a_damaged_file_is_kept_aside),
		TEST(two_damaged_files_are_both_kept),
		TEST(a_file_named_by_mistake_stays),
		TEST(a_locked_file_has_its_sentence),
		TEST(wholly_locked),
		TEST(a_read_only_file_is_read),
		TEST(a_read_only_file_that_is_written_from_outside),
		TEST(a_store_that_cannot_be_made),
		TEST(a_full_disk_loses_nothing),
		TEST(what_fails_once_on_a_network_is_tried_again),
		TEST(what_fails_for_a_while_is_over_then),
		TEST(a_full_disk_is_not_waited_for),
		TEST(all_of_many_writers_succeed),
		TEST(without_memory_facts_are_not_read_as_less),
		TEST(without_memory_a_store_is_not_damaged),
		TEST(killed_at_any_point),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
