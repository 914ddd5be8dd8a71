/* unshard_memos_write: a memo of each checkpoint below a directory, for other machines. */
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/text.h"
#include "session/reasons.h"
#include "session/shared_memos.h"
#include "session/shows.h"
#include "session/walk.h"

struct writing {
	struct unshard *u;
	struct caller caller;
	const char *dir; /* where memos are written, absolute */
	struct unshard_memo_counts counts;
	bool cannot_write;
};

/* -- where -- */

static int refuse_inside(const char *path, const char *source, struct uns_err *err)
{
	char real[PATH_MAX];

	if (realpath(path, real) && uns_path_within(real, source))
		return uns_fail(err, -EINVAL,
				"%s is inside %s, where nothing is ever written: name a directory elsewhere", path,
				source);
	return 0;
}

static int prepare(const char *dir, const char *source, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) char *above = strdup(dir);
	char *slash = above ? strrchr(above, '/') : NULL;

	UNS_TRY_ALLOC(above, err);
	if (*dir != '/' || !slash)
		return uns_fail(err, -EINVAL, "%s: expected an absolute path", dir);
	slash[slash == above] = '\0';
	UNS_TRY(refuse_inside(above, source, err));
	if (mkdir(dir, 0777) < 0 && errno != EEXIST)
		return uns_fail(err, -errno, "%s: %s", dir, strerror(errno));
	return refuse_inside(dir, source, err);
}

/* -- one checkpoint -- */

static bool asked(void *ctx)
{
	struct writing *w = ctx;

	return caller_progress(&w->caller, UNSHARD_READING, w->counts.written, 0);
}

static int hand_over(struct writing *w, const struct unshard_memo *memo)
{
	struct unshard_memo told = *memo;

	told.size = sizeof(told);
	w->counts.checkpoints++;
	w->counts.written += memo->state == UNSHARD_MEMO_WRITTEN;
	w->counts.saving += memo->state == UNSHARD_MEMO_SAVING;
	w->counts.refused += memo->state == UNSHARD_MEMO_REFUSED;
	w->counts.size_bytes += memo->size_bytes;
	return w->caller.calls.memo ? w->caller.calls.memo(w->caller.calls.ctx, &told) : 0;
}

static int keep(struct writing *w, const struct shared_memo *made, struct unshard_memo *told, struct uns_arena *arena,
		struct uns_err *err)
{
	const struct memo_parts parts = { uns_span_of(made->inputs.p, made->inputs.len),
					  uns_span_of(made->catalog.p, made->catalog.len),
					  uns_span_of(made->places.p, made->places.len) };
	UNS_CLEANUP(uns_free_p) char *bytes = NULL;
	size_t n;

	UNS_TRY(memo_file_emit(made->key, &parts, &bytes, &n, err));
	UNS_TRY_ALLOC(told->file = memo_file_name(w->dir, made->key, arena), err);
	w->cannot_write = true;
	UNS_TRY(memo_file_write(told->file, bytes, n, err));
	w->cannot_write = false;
	told->state = UNSHARD_MEMO_WRITTEN;
	told->size_bytes = n;
	return 0;
}

static int write_one(struct writing *w, struct dir_record *record, struct unshard_memo *told, struct uns_arena *arena,
		     struct uns_err *err)
{
	const struct uns_stop stop = { asked, w };
	struct shared_memo made;
	int code;

	UNS_TRY(shared_memo_make(&w->u->memos, record, &stop, &made, err));
	code = keep(w, &made, told, arena, err);
	shared_memo_fini(&made);
	return code;
}

static int visit_checkpoint(void *ctx, struct dir_record *record, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	struct unshard_memo told = { .path = record->path, .state = UNSHARD_MEMO_REFUSED };
	struct writing *w = ctx;
	struct uns_err why = { 0 };
	struct uns_finding f;
	int code;

	if (record_saving(w->u, record)) {
		f = show_saving(w->u, record, NULL);
		uns_finding_print(&f, &text);
		told.state = UNSHARD_MEMO_SAVING;
	} else {
		code = write_one(w, record, &told, &arena, &why);
		if (code < 0 && (code == -ENOMEM || code == -EINTR || w->cannot_write))
			return uns_fail_copy(err, &why);
		if (code == -EAGAIN || code == -ESTALE)
			told.state = UNSHARD_MEMO_SAVING;
		if (code < 0)
			uns_text_str(&text, why.text);
	}
	if (text.failed)
		return uns_oom(err);
	told.text = text.len ? text.p : NULL;
	return hand_over(w, &told);
}

static int visit_unreadable(void *ctx, const char *path, const struct uns_err *why, struct uns_err *err)
{
	(void)err;
	return hand_over(ctx, &(struct unshard_memo){ .path = path, .state = UNSHARD_MEMO_REFUSED, .text = why->text });
}

/* -- all of them -- */

static int write_all(struct writing *w, const char *path, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct walk walk = { .u = w->u,
			     .ctx = w,
			     .caller = &w->caller,
			     .checkpoint = visit_checkpoint,
			     .unreadable = visit_unreadable };
	const char *source;

	UNS_TRY_ALLOC(source = store_subject(&w->u->store, path, &arena), err);
	UNS_TRY(prepare(w->dir, source, err));
	UNS_TRY(caller_writes(&w->caller, w->dir, err));
	return walk_checkpoints(&walk, path, err);
}

int unshard_memos_write(unshard *u, const char *path, const char *dir, const struct unshard_calls *calls,
			struct unshard_memo_counts *counts, struct unshard_error *error)
{
	struct writing w = { .u = u, .dir = dir, .counts = CALLER_OWN(struct unshard_memo_counts) };
	struct uns_err err = { 0 };
	int code = caller_init(&w.caller, calls, &err);

	if (code == 0)
		code = caller_fini(&w.caller, write_all(&w, path, &err));
	if (code == 0 && counts)
		code = caller_give(counts, &w.counts, "counts", &err);
	return give_error(error, &err, code);
}
