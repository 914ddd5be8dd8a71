/* Which file the store is, and when it is opened. Facts' functions of unshard.h are meta/'s. */
#include "store/store_link.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/path.h"
#include "io/mounts.h"
#include "store/database.h"
#include "store/turn.h"

enum { RETRY_S = 10, N_OWN_NAMES = 2 /* unshard/store.db */ };
#define NS INT64_C(1000000000)

/* -- which file -- */

/* XDG: a relative directory is to be ignored. */
static const char *default_path(struct uns_arena *arena)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	struct passwd entry, *found = NULL;
	char text[1024];

	if (!home && getpwuid_r(geteuid(), &entry, text, sizeof(text), &found) == 0 && found)
		home = entry.pw_dir; /* mount(8) and systemd give its helpers no HOME */
	if (state && state[0] == '/')
		return uns_arena_printf(arena, "%s/unshard/store.db", state);
	if (home && home[0] == '/')
		return uns_arena_printf(arena, "%s/.local/state/unshard/store.db", home);
	return "";
}

/* The directory n levels above a file; NULL = out of memory. */
static const char *directory_above(const char *path, unsigned n, struct uns_arena *arena)
{
	size_t len = strlen(path);

	for (; n && len; n--)
		while (len && path[--len] != '/')
			;
	if (len)
		return uns_arena_strn(arena, path, len);
	return *path == '/' ? "/" : ".";
}

void store_link_init(struct store_link *link, const struct uns_log *log)
{
	*link = (struct store_link){ .log = log, .off = true };
	pthread_rwlock_init(&link->lock, NULL);
}

void store_link_fini(struct store_link *link)
{
	uns_store_close(link->handle);
	pthread_rwlock_destroy(&link->lock);
}

int store_link_choose(struct store_link *link, bool off, const char *store, const char *source, struct uns_arena *arena,
		      struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p)
	char *target = store ? realpath(store, NULL) : NULL; /* SQLite writes where a link leads */

	link->off = off;
	link->own_place = !store;
	link->path = store ? uns_arena_str(arena, store) : default_path(arena);
	link->source = source;
	UNS_TRY_ALLOC(link->path, err);
	if (off || !*link->path)
		return 0;
	link->directory = directory_above(target ? target : link->path, store ? 1 : N_OWN_NAMES, arena);
	return link->directory ? 0 : uns_oom(err);
}

/* The directories of the default path, for their owner alone; existing ones stay as they are. */
static int make_directories(const char *path, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) char *dir = strdup(path);
	char *slash = dir;
	int code;

	UNS_TRY_ALLOC(dir, err);
	while ((slash = strchr(slash + 1, '/'))) {
		*slash = '\0';
		code = mkdir(dir, 0700) < 0 ? errno : 0;
		if (code && code != EEXIST && access(dir, F_OK) != 0)
			return uns_fail(err, -code,
					"metadata store %s: the directory %s cannot be made: %s: " UNS_STORE_ELSEWHERE,
					path, dir, strerror(code));
		*slash = '/';
	}
	return 0;
}

static int check_path(const struct store_link *s, struct uns_err *err)
{
	if (!*s->path)
		return uns_fail(err, -ENOENT,
				"there is no place for the metadata store, as neither XDG_STATE_HOME nor HOME names a "
				"directory: " UNS_STORE_ELSEWHERE);
	if (s->own_place)
		return make_directories(s->path, err);
	if (strcmp(s->source, "/") != 0 && uns_path_within(s->path, s->source))
		return uns_fail(err, -EINVAL,
				"metadata store %s is inside SOURCE, where nothing is ever written: name "
				"a file elsewhere with --store",
				s->path);
	return 0;
}

/* -- holding it -- */

static bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* A store that could only be opened for reading is opened again, too: that may have been a fault of the moment. It may
 * be read without locks, so a process outside this container could write it meanwhile: then it is opened at once. */
static bool wants_opening(const struct store_link *s)
{
	struct stat st;

	if (s->handle && (stat(s->path, &st) < 0 || st.st_dev != s->was.st_dev || st.st_ino != s->was.st_ino))
		return true; /* another file has its name now */
	if (s->handle && uns_store_read_only(s->handle) &&
	    (st.st_size != s->was.st_size || !same_time(st.st_mtim, s->was.st_mtim) ||
	     !same_time(st.st_ctim, s->was.st_ctim)))
		return true;
	return (!s->handle || uns_store_read_only(s->handle)) && uns_now_ns() >= s->retry_ns;
}

/* Logged when it is news, not at each retry. */
static void problem_log(struct store_link *s, const char *text)
{
	if (*text && strcmp(text, s->problem) != 0)
		uns_log(s->log, UNS_LOG_WARN, "%s", text);
	snprintf(s->problem, sizeof(s->problem), "%s", text);
}

/* turn: held for a change to come; NULL = none. */
static int open_for(struct store_link *s, struct turn *turn, char **note, struct uns_err *err)
{
	return turn ? uns_store_open_in_turn(s->path, s->log, turn, &s->handle, note, err)
		    : uns_store_open(s->path, s->log, &s->handle, note, err);
}

/* Write lock held. */
static void store_reopen(struct store_link *s, struct turn *turn)
{
	UNS_CLEANUP(uns_free_p) char *note = NULL;
	struct uns_err err = { 0 };
	const int64_t began_ns = uns_now_ns();
	int64_t now_ns;

	uns_store_close(s->handle);
	s->handle = NULL;
	if (stat(s->path, &s->was) < 0) /* it is made */
		memset(&s->was, 0, sizeof(s->was));
	if (check_path(s, &err) == 0)
		open_for(s, turn, &note, &err);
	problem_log(s, s->handle ? "" : err.text);
	s->problem_code = err.code;
	if (note)
		problem_log(s, note);
	if (!s->handle || !uns_store_read_only(s->handle) || !s->was.st_ino)
		stat(s->path, &s->was);
	s->n_failed = s->handle && !uns_store_read_only(s->handle) ? 0 : s->n_failed + 1;
	/* What failed once may have been a fault of that moment. What fails again, or took long (it waited for
	 * another's lock), is left alone for a while: a mount has others to serve. */
	now_ns = uns_now_ns();
	s->retry_ns = now_ns + (s->n_failed > 1 || now_ns - began_ns >= NS ? RETRY_S * NS : 0);
}

static struct uns_store *hold(struct store_link *s, struct turn *turn, struct uns_err *err)
{
	if (s->off) {
		uns_fail(err, -ENOENT, "there is no metadata store: --store none");
		return NULL;
	}
	pthread_rwlock_rdlock(&s->lock);
	if (wants_opening(s)) {
		pthread_rwlock_unlock(&s->lock);
		pthread_rwlock_wrlock(&s->lock);
		if (wants_opening(s))
			store_reopen(s, turn);
		pthread_rwlock_unlock(&s->lock);
		pthread_rwlock_rdlock(&s->lock);
	}
	if (s->handle)
		return s->handle;
	uns_fail(err, s->problem_code, "%s", s->problem);
	pthread_rwlock_unlock(&s->lock);
	return NULL;
}

struct uns_store *store_hold(struct store_link *s, struct uns_err *err)
{
	return hold(s, NULL, err);
}

/* One that exists, is not held yet, and that other nodes may change. */
static bool is_to_be_opened_in_turn(struct store_link *s)
{
	struct stat st;
	bool held;

	pthread_rwlock_rdlock(&s->lock);
	held = s->handle;
	pthread_rwlock_unlock(&s->lock);
	return !s->off && !held && stat(s->path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
	       access(s->path, W_OK) == 0 && !uns_is_local(s->path);
}

struct uns_store *store_hold_to_change(struct store_link *s, struct uns_err *err)
{
	UNS_CLEANUP(turn_give) struct turn turn = TURN_INIT;

	if (is_to_be_opened_in_turn(s) && turn_take(&turn, s->path, TURN_WAIT_S, err) < 0)
		return NULL;
	return hold(s, turn.fd >= 0 ? &turn : NULL, err);
}

void store_release(struct store_link *s)
{
	uns_store_give_turn(s->handle); /* if the change did not come to it */
	pthread_rwlock_unlock(&s->lock);
}

void store_problem(struct store_link *s, struct uns_text *out)
{
	if (s->off)
		return;
	pthread_rwlock_rdlock(&s->lock);
	if (s->problem[0])
		uns_text_printf(out, "%s\n", s->problem);
	pthread_rwlock_unlock(&s->lock);
}

/* -- facts for the session -- */

/* "/runs" + "a/b"; the absolute, link-free name that facts are kept under. */
char *store_subject(const struct store_link *s, const char *path, struct uns_arena *arena)
{
	const char *root = strcmp(s->source, "/") == 0 ? "" : s->source;

	return *path ? uns_arena_printf(arena, "%s/%s", root, path) : uns_arena_str(arena, s->source);
}

int store_facts(struct store_link *s, const char *path, struct uns_arena *arena, struct uns_store_fact **out, size_t *n,
		struct uns_err *err)
{
	const char *subject = store_subject(s, path, arena);
	struct uns_store *store = subject ? store_hold(s, err) : NULL;
	int code;

	*n = 0;
	UNS_TRY_ALLOC(subject, err);
	if (!store)
		return -ENOENT;
	code = uns_store_facts(store, subject, arena, out, n, err);
	store_release(s);
	return code;
}

int store_facts_known(struct store_link *s, const char *path, bool has_facts, struct uns_arena *arena,
		      struct uns_store_fact **out, size_t *n, struct uns_err *err)
{
	struct uns_err why = { 0 };
	int code = store_facts(s, path, arena, out, n, &why);

	if (code >= 0)
		return 0;
	*n = 0;
	if (code == -ENOMEM)
		return uns_oom(err);
	return has_facts ? uns_fail(err, -EIO, "%s", why.text) : 0;
}

static uint64_t facts_digest(const struct uns_store_fact *v, size_t n)
{
	uint64_t h = UNS_HASH_INIT;
	size_t i;

	for (i = 0; i < n; i++) {
		h = uns_hash_str(uns_hash_str(h, v[i].subject), v[i].key);
		h = uns_hash_str(uns_hash_str(h, v[i].json), v[i].origin);
	}
	return n ? uns_hash_end(h) : 0;
}

void store_digest(struct store_link *s, const char *path, struct facts_seen *seen)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_store_fact *v = NULL;
	struct uns_store *store = store_hold(s, NULL);
	uint64_t revision;
	bool settled;
	size_t n;
	int code;

	if (!store)
		return;
	code = uns_store_revision(store, &revision, &settled, NULL);
	store_release(s);
	if (code < 0 || (seen->known && seen->settled && seen->revision == revision))
		return;
	if (store_facts(s, path, &arena, &v, &n, NULL) < 0)
		return;
	*seen = (struct facts_seen){
		.known = true, .settled = settled, .revision = revision, .digest = facts_digest(v, n)
	};
}
