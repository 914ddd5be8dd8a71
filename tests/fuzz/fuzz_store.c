/* store/ and what is made of its rows: a metadata store that another program filled, beside a real checkpoint. An
 * input is rows one after the other: table and types (1 byte), then a length (1) and bytes of each column. */
#include "fuzz.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "edited.h"
#include "files.h"
#include "show.h"
#include "store/store.h"

/* Columns take anything, as they do where nothing checks them. */
static const char schema[] = "CREATE TABLE fact (subject, key, json, origin, time_s);"
			     "CREATE TABLE memo (kind, key, used_s, size, bytes);"
			     "CREATE TABLE revision (n);"
			     "PRAGMA application_id=1970172776; PRAGMA user_version=2";
enum { COLUMNS = 5 };

static struct uns_span take_column(struct uns_span *in)
{
	const uint8_t *p = in->p;
	uint8_t n = 0;

	uns_take_u8(in, &n);
	if (n > uns_span_left(in))
		n = (uint8_t)uns_span_left(in);
	uns_span_take(in, n, &p);
	return uns_span_of(p, n);
}

static void bind(sqlite3_stmt *s, int column, unsigned type, struct uns_span v)
{
	int len = (int)uns_span_left(&v);

	switch (type % 4) {
	case 0:
		sqlite3_bind_text(s, column, (const char *)v.p, len, SQLITE_TRANSIENT);
		break;
	case 1:
		sqlite3_bind_blob(s, column, v.p, len, SQLITE_TRANSIENT);
		break;
	case 2:
		sqlite3_bind_int64(s, column, len > 8 ? -1 : (int64_t)uns_le(v.p, (unsigned)len));
		break;
	default:
		sqlite3_bind_null(s, column);
	}
}

/* An empty subject stands for the checkpoint's, which no input can know. */
static void add_row(sqlite3 *db, struct uns_span *in)
{
	static const unsigned char usual[][COLUMNS] = { { 0, 0, 0, 0, 2 },
							{ 0, 2, 2, 2, 1 },
							{ 2 } }; /* as bind() has them */
	static const char *const sql[] = { "INSERT INTO fact VALUES (?, ?, ?, ?, ?)",
					   "INSERT INTO memo VALUES (?, ?, ?, ?, ?)",
					   "INSERT INTO revision VALUES (?)" };
	const char *subject = files_dir();
	struct uns_span v;
	sqlite3_stmt *s;
	uint8_t how = 0;
	int i, n;

	uns_take_u8(in, &how);
	if (sqlite3_prepare_v2(db, sql[how % 3], -1, &s, NULL) != SQLITE_OK)
		abort();
	n = sqlite3_bind_parameter_count(s);
	for (i = 0; i < n; i++) {
		v = take_column(in);
		if (i == 0 && how % 3 == 0 && !uns_span_left(&v))
			v = uns_span_of(subject, strlen(subject));
		bind(s, i + 1, how < 128 ? usual[how % 3][i] : (unsigned)how >> (i + 2), v);
	}
	sqlite3_step(s);
	sqlite3_finalize(s);
}

/* An input whose first byte is 255 is the file itself. */
static void fill(const char *path, struct uns_span in)
{
	sqlite3 *db;

	if (uns_span_left(&in) && *in.p == UINT8_MAX) {
		in.p++;
		files_put("store.db", in);
		return;
	}
	if (sqlite3_open(path, &db) != SQLITE_OK || sqlite3_exec(db, schema, NULL, NULL, NULL) != SQLITE_OK)
		_exit(2);
	sqlite3_exec(db, "PRAGMA synchronous=OFF; BEGIN", NULL, NULL, NULL);
	while (uns_span_left(&in))
		add_row(db, &in);
	sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
	sqlite3_close(db);
}

static void read_store(const char *path)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_store *store = NULL;
	struct uns_store_fact *facts;
	struct uns_err err = { 0 };
	struct uns_span memo;
	char *note = NULL;
	bool settled;
	uint64_t revision;
	size_t n, i;

	files_expect(uns_store_open(path, NULL, &store, &note, &err), &err);
	if (store)
		uns_store_facts(store, "/run/checkpoint-2", &arena, &facts, &n, NULL);
	if (store && uns_store_facts(store, NULL, &arena, &facts, &n, &err) == 0)
		for (i = 0; i < n; i++)
			if (!facts[i].subject || !facts[i].key || !facts[i].json || !facts[i].origin)
				abort();
	if (store) {
		uns_store_set(store, "/", "epoch", "1", "test", NULL);
		uns_store_unset(store, "/", "epoch", NULL);
		uns_store_unset(store, "/", "epoch", NULL);
		uns_store_revision(store, &revision, &settled, NULL);
		for (i = 0; i < 2; i++)
			uns_store_memo_get(store, i ? "crc" : "catalog", i, &arena, &memo, NULL);
		uns_store_memo_bound(store, 1);
		uns_store_memo_put(store, "crc", 7, "x", 1, NULL);
		if (uns_store_memo_get(store, "crc", 7, &arena, &memo, NULL) == 0 &&
		    (uns_span_left(&memo) != 1 || *memo.p != 'x'))
			abort();
		uns_store_memo_clear(store, NULL);
	}
	uns_store_close(store);
	free(note);
	uns_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct edited_tree run = { .golden = "run" };
	struct unshard_options options = { UNSHARD_OPTIONS_INIT };
	char path[512];

	edited_put(&run, uns_span_of(NULL, 0));
	snprintf(path, sizeof(path), "%s/store.db", files_dir());
	fill(path, uns_span_of(data, size));
	read_store(path);
	options.store = path;
	show_all(files_dir(), &options);
	return 0;
}
