/* The store as a session uses it: opened at the first need (never before a fork), looked for again when
 * another file was put in its place or it could not be used, and done without meanwhile.
 *
 * Threads: any. Its lock is held for reading while the handle is used, across I/O too. */
#ifndef UNS_STORE_STORE_LINK_H
#define UNS_STORE_STORE_LINK_H

#include <pthread.h>
#include <sys/stat.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/log.h"
#include "base/text.h"
#include "store/store.h"

struct store_link {
	pthread_rwlock_t lock;
	const struct uns_log *log;
	bool off;       /* none is used */
	bool own_place; /* the default path: its directories may be made */
	const char *path;
	const char *directory; /* below which it is made; NULL = none is used, or there is no place for it */
	const char *source; /* SOURCE's absolute name without links: what facts are kept under */
	struct uns_store *handle; /* NULL = not opened yet, or it could not be */
	struct stat was; /* the file when it was opened */
	unsigned n_failed; /* attempts to open it for writing, one after another */
	int64_t retry_ns;  /* monotonic; while there is no handle, or one that only reads */
	int problem_code; /* negative while there is no handle */
	char problem[UNS_ERR_TEXT + 256];
};

/* log: outlives the link. */
void store_link_init(struct store_link *link, const struct uns_log *log);
void store_link_fini(struct store_link *link);
/* `off`, `store`: unshard_options.no_store and .store. The texts live in the arena or are the caller's. */
int store_link_choose(struct store_link *link, bool off, const char *store, const char *source, struct uns_arena *arena,
		      struct uns_err *err);

/* The store, opened if need be; give it back. NULL = there is none, and why (err->code). */
struct uns_store *store_hold(struct store_link *link, struct uns_err *err);
/* The same for a change that a user asked for: a file on a network is opened in turn (turn.h), so that programs which
 * all want to change it do not keep each other from it. May wait for TURN_WAIT_S. */
struct uns_store *store_hold_to_change(struct store_link *link, struct uns_err *err);
void store_release(struct store_link *link);
/* A line on what is wrong with it, or nothing. */
void store_problem(struct store_link *link, struct uns_text *out);

/* What facts about a path below SOURCE are kept under. NULL = out of memory. */
char *store_subject(const struct store_link *link, const char *path, struct uns_arena *arena);
/* Facts about a path below SOURCE: its own and those of directories above it, the nearest of a key. */
int store_facts(struct store_link *link, const char *path, struct uns_arena *arena, struct uns_store_fact **out,
		size_t *n, struct uns_err *err);
/* The same if it is known whether there were any when the checkpoint was examined (has_facts): those that are
 * known of and cannot be read now are an error (-EIO); of a store that cannot be used there are none. */
int store_facts_known(struct store_link *link, const char *path, bool has_facts, struct uns_arena *arena,
		      struct uns_store_fact **out, size_t *n, struct uns_err *err);

/* Fingerprint of the store's facts for one checkpoint (a hash, not the values). digest 0: the store has none. */
struct facts_seen {
	bool known;
	bool settled; /* of the store, when they were read; and this: */
	uint64_t revision;
	uint64_t digest;
};

/* Bring `seen` up to date; it stays as it is while the store does not answer. */
void store_digest(struct store_link *link, const char *path, struct facts_seen *seen);

#endif
