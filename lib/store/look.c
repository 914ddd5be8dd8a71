#include "store/look.h"

#include <pthread.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "store/moment.h"

#define NS INT64_C(1000000000)

enum { LOOK_S = 5 };
static const int64_t known_ns = 2 * NS;      /* longer than a client knows what is old */
static const int64_t just_now_ns = NS / 10; /* to open it once more would show the same */

static bool may_pass(int code)
{
	return code == -EBUSY || code == -EIO || code == -EROFS || code == -EBADMSG;
}

static void open_anew(struct uns_store *store)
{
	if (database_open_anew(store, NULL) == 0)
		store->seen.opened_ns = uns_now_ns();
}

bool look_is_settled(struct uns_store *store)
{
	struct uns_store_seen *seen = &store->seen;
	const int64_t now_ns = uns_now_ns();
	int64_t mtime_ns;
	struct stat st;

	if (!seen->shared || stat(store->path, &st) < 0)
		return true;
	mtime_ns = st.st_mtim.tv_sec * NS + st.st_mtim.tv_nsec;
	if (st.st_size != seen->size_bytes || mtime_ns != seen->mtime_ns) {
		seen->size_bytes = st.st_size;
		seen->mtime_ns = mtime_ns;
		seen->changed_ns = now_ns;
	}
	if (!seen->changed_ns)
		return true;
	if (now_ns - seen->opened_ns >= just_now_ns)
		open_anew(store);
	if (seen->opened_ns - seen->changed_ns >= known_ns)
		seen->changed_ns = 0;
	return !seen->changed_ns;
}

static int look_once(struct uns_store *store, int busy_ms, look_fn *work, void *arg, struct uns_err *err)
{
	int code;

	sqlite3_busy_timeout(store->db, busy_ms);
	UNS_TRY(database_begin_reading(store, err));
	code = work(store, arg, err);
	UNS_TRY(database_roll_back(store, err));
	return code;
}

int store_look(struct uns_store *store, int busy_ms, look_fn *work, void *arg, struct uns_err *err)
{
	const int64_t until_ns = uns_now_ns() + LOOK_S * NS;
	struct uns_err why = { 0 };
	unsigned n;
	int code;

	pthread_mutex_lock(&store->lock);
	look_is_settled(store);
	for (n = 0; (code = look_once(store, busy_ms, work, arg, &why)) < 0; n++) {
		if (!may_pass(code) || uns_now_ns() >= until_ns || !store->seen.shared)
			break;
		pthread_mutex_unlock(&store->lock);
		moment_wait(n);
		pthread_mutex_lock(&store->lock);
		open_anew(store);
		why = (struct uns_err){ 0 };
	}
	pthread_mutex_unlock(&store->lock);
	return code < 0 ? uns_fail_as(err, &why) : 0;
}
