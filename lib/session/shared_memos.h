/* Memos that many machines read (-o memos=): looked for when a checkpoint is opened, made afresh for `unshard warm
 * --write` and to compare one with. */
#ifndef UNS_SESSION_SHARED_MEMOS_H
#define UNS_SESSION_SHARED_MEMOS_H

#include "engine/engine.h"
#include "session/dir_records.h"
#include "store/memo_file.h"
#include "store/shared_memo.h"

/* Where memos are, and what it takes to open a checkpoint without one. */
struct shared_memos {
	const char *const *dir; /* -o memos=, absolute */
	size_t n;
	uint64_t salt; /* of the options (store/shared_memo.h) */
	uint64_t n_used; /* atomic: catalogs that came from memos */
	const struct uns_log *log;

	const struct uns_root *root;
	const char *hidden; /* a path below SOURCE that is never looked at; NULL = none */
	struct store_link *store;
	struct uns_engine *engine;
	const struct uns_format_options *format;
	const char *const *adapters;
};

/* Looks in each of these directories. 1: *cat and *places (in the arena; for uns_places_import) are those of the first
 * memo that can be used; 0: there is none. One that cannot be used is named in the log. Negative: a fault of this
 * moment.
 */
int shared_memos_load(struct shared_memos *m, const struct dir_record *record, struct uns_capture *capture,
		      struct uns_arena *arena, struct uns_catalog **cat, struct uns_span *places, struct uns_err *err);

/* A memo as it would be now. */
struct shared_memo {
	uint64_t key;
	struct uns_text inputs, catalog, places;
	uint64_t n_pieces, n_places; /* of the catalog; of items whose header was read */
};

/* Opens the checkpoint once more, from its own files alone, and reads the header of every item. -ENOTSUP: it cannot be
 * described for other machines, and why. Waits 3 s at most where it changed a moment ago. -EAGAIN: it still
 * changes. -EINTR when `stop` asks for it. */
int shared_memo_make(struct shared_memos *m, const struct dir_record *record, const struct uns_stop *stop,
		     struct shared_memo *out, struct uns_err *err);
void shared_memo_fini(struct shared_memo *memo);

/* Whether the first memo of the checkpoint that can be read is equal to `now`: 1, and where it differs: *file (in the
 * arena) is it, *what is "tensors and values" or the like. 0: it does not differ, or there is none. */
int shared_memos_differ(struct shared_memos *m, const struct shared_memo *now, struct uns_arena *arena,
			const char **file, const char **what, struct uns_err *err);

#endif
