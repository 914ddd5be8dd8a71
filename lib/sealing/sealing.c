/* unshard_seal: the checkpoints below a directory, each read once and sealed. */
#include <stdatomic.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/text.h"
#include "seal/make.h"
#include "sealing/keep.h"
#include "session/reasons.h"
#include "session/sealed.h"
#include "session/shows.h"
#include "session/walk.h"

/* What could not be read is not read again in the background before that. */
static const int64_t again_after_ns = 600 * INT64_C(1000000000);

struct sealing {
	struct unshard *u;
	struct caller caller;
	struct uns_seal_place place;
	bool again, gently;
	const char *top; /* what was asked for */
	const char *source; /* its absolute path, below which nothing is written */
	struct unshard_seal_counts counts;
	struct walk walk;
	_Atomic uint64_t done_bytes; /* of the checkpoint being read */
	uint64_t total_bytes;
	bool is_damaged; /* that checkpoint, and not only unreadable at this moment */
	bool cannot_keep; /* no seal can be written */
};

/* -- what the caller gets -- */

static void count(struct sealing *s, enum unshard_seal_state state)
{
	size_t *const of[] = { [UNSHARD_SEALED] = &s->counts.sealed,
			       [UNSHARD_SEALED_BEFORE] = &s->counts.sealed_before,
			       [UNSHARD_SEAL_DIFFERS] = &s->counts.differs,
			       [UNSHARD_SEAL_SAVING] = &s->counts.saving,
			       [UNSHARD_SEAL_REFUSED] = &s->counts.refused };

	(*of[state])++;
}

static int hand_over(struct sealing *s, struct unshard_seal *seal)
{
	seal->size = sizeof(*seal);
	count(s, seal->state);
	return s->caller.calls.sealed ? s->caller.calls.sealed(s->caller.calls.ctx, seal) : 0;
}

/* -- beside the seal that exists -- */

struct compared {
	struct uns_text text; /* the first thing that is not as it was */
	size_t n;
	bool only_saved_again;
};

static int note_difference(void *ctx, const struct uns_finding *f, struct uns_err *err)
{
	struct compared *c = ctx;

	if (f->id == UNS_FOUND_SEAL_UNUSABLE || uns_seal_is_about_content(f->id)) {
		if (!c->n++)
			uns_finding_print(f, &c->text);
		c->only_saved_again = f->id == UNS_FOUND_SAVED_AFTER_SEAL;
	}
	return c->text.failed ? uns_oom(err) : 0;
}

/* -- is it sound, as far as is known without reading all of it -- */

/* The seal that is made now settles it. */
static bool is_settled(const struct sealing *s, const struct uns_finding *f)
{
	return uns_seal_is_about_content(f->id) || (s->again && f->id == UNS_FOUND_FILES_CHANGED_PLACES);
}

static int find_reason(struct sealing *s, struct dir_record *record, bool *saving, struct uns_text *text,
		       struct uns_err *err)
{
	UNS_CLEANUP(reasons_fini) struct reasons reasons = { 0 };
	size_t i;

	UNS_TRY(reasons_find(s->u, record, &reasons, err));
	*saving = reasons.saving;
	if (reasons.moment.code)
		uns_text_str(text, reasons.moment.text);
	for (i = 0; i < reasons.n && !text->len; i++)
		if (reasons.v[i].serious && !is_settled(s, reasons.v[i].finding))
			reason_print(&reasons.v[i], text);
	s->is_damaged = text->len && !reasons.moment.code;
	return text->failed ? uns_oom(err) : 0;
}

/* -- sealing one -- */

static int step(void *ctx, uint64_t n_bytes, struct uns_err *err)
{
	struct sealing *s = ctx;
	uint64_t done = atomic_fetch_add(&s->done_bytes, n_bytes) + n_bytes;

	__atomic_fetch_add(&s->u->seal_read_bytes, n_bytes, __ATOMIC_RELAXED);
	return caller_progress(&s->caller, UNSHARD_READING, done, s->total_bytes) ? uns_fail(err, -EINTR, "interrupted")
										  : 0;
}

/* The checkpoint's path from the directory that was asked for; its own name where it is that itself. */
static const char *below_top(const struct sealing *s, const char *path)
{
	size_t len = strlen(s->top);

	if (strcmp(path, s->top) == 0)
		return uns_root_name(s->u->root, path);
	return len ? path + len + 1 : path;
}

static int make_and_keep(struct sealing *s, struct dir_record *record, const struct snapshot *snap,
			 struct unshard_seal *told, struct uns_arena *arena, struct uns_err *err)
{
	const struct uns_seal_watch watch = { step, s };
	struct uns_pool *pool = s->gently ? NULL : uns_engine_pool(s->u->engine);
	const char *hidden = s->u->opt.hidden;
	struct uns_seal_names names;
	struct uns_seal seal;
	size_t i;

	UNS_TRY(uns_seal_list(s->u->root, record->path, hidden, arena, &names, err));
	s->done_bytes = 0;
	s->total_bytes = names.size_bytes;
	UNS_TRY(uns_seal_make(s->u->root, snap->cat, hidden, &names, pool, &watch, arena, &seal, err));
	s->cannot_keep = true;
	UNS_TRY(seal_keep(&s->place, s->source, record->path, below_top(s, record->path), &seal, arena, &told->where,
			  err));
	s->cannot_keep = false;
	s->counts.read_bytes += names.size_bytes;
	__atomic_fetch_add(&s->u->n_seals, 1, __ATOMIC_RELAXED);
	told->state = UNSHARD_SEALED;
	told->files = seal.n_files;
	told->size_bytes = names.size_bytes;
	for (i = 0; i < seal.n_files; i++)
		told->pieces += seal.file[i].n_pieces;
	return 0;
}

/* What ends the call, and not only this checkpoint. */
static bool ends_all(int code)
{
	return code == -ENOMEM || code == -EINTR || code == -ENOSPC || code == -EDQUOT || code == -EROFS ||
	       code == -EFBIG || code == -EINVAL;
}

static int make_if_sound(struct sealing *s, struct dir_record *record, struct unshard_seal *told, struct uns_text *text,
			 struct uns_arena *arena, struct uns_err *err)
{
	struct snapshot *snap = NULL;
	struct uns_err why = { 0 };
	bool saving = false;
	int code;

	told->state = UNSHARD_SEAL_REFUSED;
	UNS_TRY(find_reason(s, record, &saving, text, err));
	if (saving)
		told->state = UNSHARD_SEAL_SAVING;
	if (saving || text->len)
		return 0;
	code = snapshot_get(s->u, record, &snap, &why);
	if (code == 0)
		code = make_and_keep(s, record, snap, told, arena, &why);
	snapshot_put(s->u, snap);
	if (code < 0 && (ends_all(code) || s->cannot_keep))
		return uns_fail_copy(err, &why);
	if (code == -ESTALE)
		told->state = UNSHARD_SEAL_SAVING;
	if (code < 0)
		uns_text_str(text, why.text);
	return text->failed ? uns_oom(err) : 0;
}

/* There is a seal already, and it is not to be replaced: *done. */
static int compare_before(struct sealing *s, const struct dir_record *record, const char *where, int loaded,
			  struct unshard_seal *told, struct uns_text *text, bool *done, struct uns_err *err)
{
	const struct uns_seal_look look = { .root = s->u->root, .path = record->path, .hidden = s->u->opt.hidden };
	struct compared c = { .text = UNS_TEXT_INIT };
	int code = sealed_compare(&s->place, &look, note_difference, &c, NULL, err);

	*done = false;
	if (code == 0 && loaded != -ENOENT) {
		*done = !s->again && !(s->gently && c.only_saved_again);
		told->state = c.n ? UNSHARD_SEAL_DIFFERS : UNSHARD_SEALED_BEFORE;
		told->where = where;
		uns_text_add(text, c.text.p, *done ? c.text.len : 0);
	}
	uns_text_fini(&c.text);
	return code;
}

/* One file cannot be the seal of two checkpoints. */
static bool refuse_second(const struct sealing *s, struct uns_text *text)
{
	if (!s->place.seals || !uns_seal_is_file(s->place.seals) || !s->counts.sealed)
		return false;
	uns_text_printf(text, "%s is the seal of one checkpoint: name a directory for several", s->place.seals);
	return true;
}

static int seal_checkpoint(struct sealing *s, struct dir_record *record, struct unshard_seal *told,
			   struct uns_text *text, struct uns_arena *arena, struct uns_err *err)
{
	struct uns_err why = { 0 };
	struct uns_seal seal;
	bool done = false, differed;
	int loaded;

	told->state = UNSHARD_SEAL_SAVING;
	if (record_saving(s->u, record) || (s->gently && record_unsettled(s->u, record))) {
		struct uns_finding f = show_saving(s->u, record, NULL);

		uns_finding_print(&f, text);
		return text->failed ? uns_oom(err) : 0;
	}
	loaded = uns_seal_load(&s->place, record->path, arena, &seal, &told->where, &why);
	if (loaded == -ENOMEM)
		return uns_oom(err);
	if (loaded == -EEXIST || refuse_second(s, text)) {
		told->state = UNSHARD_SEAL_REFUSED;
		uns_text_str(text, loaded == -EEXIST ? why.text : "");
		return text->failed ? uns_oom(err) : 0;
	}
	UNS_TRY(compare_before(s, record, told->where, loaded, told, text, &done, err));
	differed = told->state == UNSHARD_SEAL_DIFFERS;
	if (done)
		return 0;
	UNS_TRY(make_if_sound(s, record, told, text, arena, err));
	/* What was made of it has the old seal's findings. */
	if (told->state == UNSHARD_SEALED && differed)
		records_suspect(&s->u->records, record, true);
	return 0;
}

/* What work in the background found before, which it does not look at again yet; 0 = nothing. */
static unsigned known_before(struct sealing *s, const struct dir_record *record)
{
	unsigned seal;

	pthread_mutex_lock(&s->u->lock);
	seal = uns_now_ns() < record->seal_until_ns ? record->seal : 0;
	pthread_mutex_unlock(&s->u->lock);
	return s->gently && !s->again ? seal : 0;
}

static void remember(struct sealing *s, struct dir_record *record, enum unshard_seal_state state)
{
	const bool passes = state == UNSHARD_SEAL_REFUSED && !s->is_damaged;

	if (state == UNSHARD_SEALED)
		state = UNSHARD_SEALED_BEFORE; /* from now on */
	pthread_mutex_lock(&s->u->lock);
	record->seal = state == UNSHARD_SEAL_SAVING ? 0 : 1 + (unsigned)state;
	record->seal_until_ns = passes ? uns_now_ns() + again_after_ns : INT64_MAX;
	pthread_mutex_unlock(&s->u->lock);
}

static int visit_checkpoint(void *ctx, struct dir_record *record, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	struct sealing *s = ctx;
	struct unshard_seal told = { .path = record->path };
	const unsigned known = known_before(s, record);

	s->counts.checkpoints++;
	if (known) {
		count(s, (enum unshard_seal_state)(known - 1));
		return 0;
	}
	s->is_damaged = false;
	UNS_TRY(seal_checkpoint(s, record, &told, &text, &arena, err));
	remember(s, record, told.state);
	told.text = text.len ? text.p : NULL;
	return hand_over(s, &told);
}

/* -- all of them -- */

static int visit_unreadable(void *ctx, const char *path, const struct uns_err *why, struct uns_err *err)
{
	struct sealing *s = ctx;

	(void)err;
	if (s->gently) { /* it would be at each call */
		count(s, UNSHARD_SEAL_REFUSED);
		return 0;
	}
	return hand_over(s, &(struct unshard_seal){ .path = path, .state = UNSHARD_SEAL_REFUSED, .text = why->text });
}

/* What looks like the beginning of a checkpoint. */
static int visit_other(void *ctx, struct dir_record *record, size_t mark, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	struct sealing *s = ctx;
	struct uns_finding f;

	(void)mark;
	if (!records_in_the_making(&s->u->records, record))
		return 0;
	f = show_saving(s->u, record, NULL);
	uns_finding_print(&f, &text);
	if (text.failed)
		return uns_oom(err);
	return hand_over(s,
			 &(struct unshard_seal){ .path = record->path, .state = UNSHARD_SEAL_SAVING, .text = text.p });
}

static int seal_all(struct sealing *s, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;

	UNS_TRY_ALLOC(s->source = store_subject(&s->u->store, s->top, &arena), err);
	UNS_TRY(seal_keep_check(&s->place, s->source, err));
	s->walk = (struct walk){ .u = s->u,
				 .ctx = s,
				 .caller = &s->caller,
				 .checkpoint = visit_checkpoint,
				 .leave = visit_other,
				 .unreadable = visit_unreadable };
	return walk_checkpoints(&s->walk, s->top, err);
}

int unshard_seals_prepare(unshard *u, struct unshard_error *error)
{
	const struct uns_seal_place place = { &u->store, u->opt.seals };
	struct uns_err err = { 0 };
	int code = seal_keep_prepare(&place, u->opt.seals_directory, u->real_root, &err);

	return give_error(error, &err, code);
}

int unshard_seal(unshard *u, const char *path, unsigned flags, const struct unshard_calls *calls,
		 struct unshard_seal_counts *counts, struct unshard_error *error)
{
	struct sealing s = { .u = u,
			     .place = { &u->store, u->opt.seals },
			     .again = flags & UNSHARD_SEAL_AGAIN,
			     .gently = flags & UNSHARD_SEAL_GENTLY,
			     .top = path,
			     .counts = CALLER_OWN(struct unshard_seal_counts) };
	struct uns_err err = { 0 };
	int code = caller_flags(flags, UNSHARD_SEAL_AGAIN | UNSHARD_SEAL_GENTLY, &err);

	if (code == 0 && counts) /* a wrong size is reported before the work */
		code = caller_give(counts, &s.counts, "seal_counts", &err);
	if (code == 0)
		code = caller_init(&s.caller, calls, &err);
	if (code < 0)
		return give_error(error, &err, code);
	code = caller_fini(&s.caller, seal_all(&s, &err));
	__atomic_store_n(&u->n_seals_differ, s.counts.differs, __ATOMIC_RELAXED);
	__atomic_store_n(&u->n_not_sealed, s.counts.refused, __ATOMIC_RELAXED);
	if (counts)
		caller_give(counts, &s.counts, "seal_counts", &err);
	return give_error(error, &err, code);
}
