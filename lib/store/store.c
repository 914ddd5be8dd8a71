/* Life of a store: opening, and what becomes of a damaged file. */
#include "store/store.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "io/mounts.h"
#include "store/database.h"
#include "store/shared.h"
#include "store/turn.h"

enum { N_ASIDE_NAMES = 100 };

#define MEMO_BOUND_BYTES (UINT64_C(1) << 30)

/* -- moving a damaged file aside -- */

/* Only a file that was once a store may be moved: it begins like one, or is named like one. A file
 * that the user named by mistake stays where it is. */
static bool may_be_moved(const char *path)
{
	static const char magic[16] = "SQLite format 3";
	UNS_CLEANUP(uns_close_p) int fd = open(path, O_RDONLY | O_CLOEXEC);
	char head[sizeof(magic)];
	size_t n = strlen(path);

	if (n > 3 && strcmp(path + n - 3, ".db") == 0)
		return true;
	return fd >= 0 && pread(fd, head, sizeof(head), 0) == (ssize_t)sizeof(head) &&
	       memcmp(head, magic, sizeof(magic)) == 0;
}

static int aside_name(const char *path, char **out)
{
	char stamp[32], number[16] = "";
	time_t now = time(NULL);
	struct tm tm;
	struct stat st;
	int i;

	localtime_r(&now, &tm);
	strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%S", &tm);
	for (i = 1; i < N_ASIDE_NAMES; i++) {
		if (asprintf(out, "%s.corrupt-%s%s", path, stamp, number) < 0) {
			*out = NULL;
			return -ENOMEM;
		}
		if (lstat(*out, &st) < 0 && errno == ENOENT)
			return 0;
		free(*out);
		*out = NULL;
		snprintf(number, sizeof(number), "-%d", i);
	}
	return -EEXIST;
}

static int move(const char *path, const char *aside, const char *suffix)
{
	UNS_CLEANUP(uns_free_p) char *from = NULL;
	UNS_CLEANUP(uns_free_p) char *to = NULL;

	if (asprintf(&from, "%s%s", path, suffix) < 0)
		return from = NULL, -ENOMEM;
	if (asprintf(&to, "%s%s", aside, suffix) < 0)
		return to = NULL, -ENOMEM;
	if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0 || errno == ENOENT)
		return 0;
	/* EINVAL: a file system that does not know the flag; the name was free a moment ago. */
	return errno == EINVAL && rename(from, to) == 0 ? 0 : -errno;
}

/* The log goes first: beside a new file SQLite would delete it. */
static int move_aside(const char *path, char **aside, struct uns_err *err)
{
	static const char *const suffix[] = { "-wal", "-shm", "-journal", "" };
	int code = aside_name(path, aside);
	size_t i;

	for (i = 0; code == 0 && i < sizeof(suffix) / sizeof(*suffix); i++)
		code = move(path, *aside, suffix[i]);
	return code < 0 ? uns_fail(err, code, "metadata store %s is damaged and cannot be moved aside: %s", path,
				   strerror(-code))
			: 0;
}

static int start_anew(struct uns_store *store, const struct uns_err *why, char **note, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) char *aside = NULL;

	if (!may_be_moved(store->path))
		return uns_fail(err, -EBADMSG,
				"%s is not a metadata store: move it away, or name another file with --store",
				store->path);
	UNS_TRY(move_aside(store->path, &aside, err));
	UNS_TRY(database_open(store, err));
	if (asprintf(note, "%s; unshard moved it to %s and began a new store", why->text, aside) < 0)
		*note = NULL;
	return 0;
}

/* -- life -- */

static int read_to_the_end(const char *path, const char *suffix, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) char *name = NULL;
	UNS_CLEANUP(uns_close_p) int fd = -1;
	char block[1 << 16];
	ssize_t n = 1;

	if (asprintf(&name, "%s%s", path, suffix) < 0)
		return name = NULL, uns_oom(err);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return 0;
	while (fd >= 0 && (n > 0 || (n < 0 && errno == EINTR)))
		n = read(fd, block, sizeof(block));
	return fd < 0 || n < 0 ? uns_fail(err, -errno, "metadata store %s: cannot be read: %s", path, strerror(errno))
			       : 0;
}

static bool is_new(const char *path)
{
	struct stat st;

	return stat(path, &st) < 0 ? errno == ENOENT : st.st_size == 0;
}

/* Of all nodes that find no file, one makes the tables. What goes wrong here has its sentence when the file is opened.
 */
static void wait_to_begin(const char *path, struct turn *turn)
{
	unsigned n;

	if (!is_new(path) || database_make_file(path, NULL) < 0 || uns_is_local(path))
		return;
	for (n = 0; n < SHARED_OPEN_S && is_new(path); n++)
		if (turn_take(turn, path, 1, NULL) != -EBUSY)
			return;
}

static int open_or_begin(struct uns_store *store, char **note, struct uns_err *err)
{
	struct uns_err why = { 0 };
	int code;

	wait_to_begin(store->path, &store->turn);
	code = database_open(store, &why);
	if (code == -EBADMSG) {
		if (!uns_is_local(store->path))
			UNS_TRY(turn_take(&store->turn, store->path, SHARED_OPEN_S, err));
		/* SQLite calls it damage too if a read of the file fails (EIO). Facts are moved aside only for what is
		 * found again, in a file that can be read. */
		why.code = 0;
		code = read_to_the_end(store->path, "", &why);
		if (code == 0)
			code = read_to_the_end(store->path, "-wal", &why);
		if (code == 0)
			code = database_open(store, &why);
	}
	if (code == -EBADMSG)
		return start_anew(store, &why, note, err);
	return code < 0 ? uns_fail_as(err, &why) : 0;
}

int uns_store_open_in_turn(const char *path, const struct uns_log *log, struct turn *turn, struct uns_store **out,
			   char **note, struct uns_err *err)
{
	struct uns_store *store = calloc(1, sizeof(*store));
	int code;

	*note = NULL;
	if (!store || !(store->path = strdup(path))) {
		free(store);
		return uns_oom(err);
	}
	pthread_mutex_init(&store->lock, NULL);
	store->log = log;
	store->memo_bound_bytes = MEMO_BOUND_BYTES;
	store->turn = *turn;
	*turn = TURN_INIT;
	code = open_or_begin(store, note, err);
	if (code < 0) {
		uns_store_close(store);
		return code;
	}
	store->seen = (struct uns_store_seen){ .shared = !uns_is_local(path), .opened_ns = uns_now_ns() };
	*out = store;
	return 0;
}

int uns_store_open(const char *path, const struct uns_log *log, struct uns_store **out, char **note,
		   struct uns_err *err)
{
	struct turn none = TURN_INIT;

	UNS_TRY(uns_store_open_in_turn(path, log, &none, out, note, err));
	uns_store_give_turn(*out);
	return 0;
}

void uns_store_give_turn(struct uns_store *store)
{
	pthread_mutex_lock(&store->lock);
	turn_give(&store->turn);
	pthread_mutex_unlock(&store->lock);
}

void uns_store_close(struct uns_store *store)
{
	if (!store)
		return;
	database_close(store);
	turn_give(&store->turn);
	pthread_mutex_destroy(&store->lock);
	free(store->path);
	free(store);
}

bool uns_store_read_only(const struct uns_store *store)
{
	return store->read_only;
}
