/* What can be used of a checkpoint, or in its place, that cannot be repaired. */
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/text.h"
#include "repair/repairing.h"
#include "session/shows.h"

enum { MOST_TRIED = 16 }; /* of the checkpoints before */

int repair_find_weights(struct repair *r, struct repair_checkpoint *p, struct dir_record *record, struct uns_err *err)
{
	uint64_t parameter;
	const struct uns_view *view = view_find("weights", sizeof("weights") - 1, &parameter);
	struct uns_err why = { 0 };
	enum show_state state;
	int code = show_state_of(r->u, record, view, parameter, &state, &why);

	p->has_weights = code == 0 && state == SHOW_OK;
	return code == -ENOMEM ? uns_oom(err) : 0;
}

/* -- the checkpoints before -- */

struct before {
	struct repair *r;
	const char *path;
	const char **v;
	size_t n, cap;
};

static int visit_other(void *ctx, struct dir_record *record, struct uns_err *err)
{
	struct before *b = ctx;

	if (uns_path_within(record->path, b->path) || uns_str_natural(record->path, b->path) >= 0)
		return 0;
	UNS_TRY_ALLOC(UNS_ARENA_ROOM(&b->r->arena, b->v, b->n, b->cap), err);
	b->v[b->n++] = uns_arena_str(&b->r->arena, record->path);
	return uns_arena_check(&b->r->arena, err);
}

static int pass_over(void *ctx, const char *path, const struct uns_err *why, struct uns_err *err)
{
	(void)ctx, (void)path, (void)why, (void)err;
	return 0;
}

static int note_unsound(void *ctx, const struct unshard_finding *f)
{
	*(bool *)ctx |= f->severity != UNSHARD_NOTE;
	return 0;
}

static bool is_sound(struct repair *r, const char *path)
{
	bool unsound = false;
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = &unsound, .finding = note_unsound };

	return unshard_check(r->u, path, 0, &calls, NULL, NULL) == 0 && !unsound;
}

/* The newest sound checkpoint of the same directory that is older by its name; NULL = there is none. */
static int find_before(struct repair *r, const char *path, const char **out, struct uns_err *err)
{
	struct before b = { .r = r, .path = path };
	struct walk walk = { .u = r->u, .ctx = &b, .checkpoint = visit_other, .unreadable = pass_over };
	const char *parent = uns_path_parent(&r->arena, path);
	struct uns_err why = { 0 };
	size_t i, newest, tried;

	*out = NULL;
	UNS_TRY_ALLOC(parent, err);
	if (!*path || walk_checkpoints(&walk, parent, &why) < 0)
		return why.code == -ENOMEM ? uns_oom(err) : 0;
	for (tried = 0; b.n && tried < MOST_TRIED; tried++) {
		for (newest = 0, i = 1; i < b.n; i++)
			if (uns_str_natural(b.v[newest], b.v[i]) < 0)
				newest = i;
		if (is_sound(r, b.v[newest])) {
			*out = b.v[newest];
			return 0;
		}
		b.v[newest] = b.v[--b.n];
	}
	return 0;
}

/* -- in words -- */

int repair_name_instead(struct repair *r, const struct repair_checkpoint *p, const char **out, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	const char *before;

	*out = "";
	UNS_TRY(find_before(r, p->path, &before, err));
	if (p->has_weights)
		uns_text_printf(&text, "; its weights can still be used: unshard export writes them");
	if (before)
		uns_text_printf(&text, "; resume from %s, the newest sound checkpoint before it", before);
	if (!text.len)
		return 0;
	UNS_TRY_ALLOC(*out = text.failed ? NULL : uns_arena_strn(&r->arena, text.p, text.len), err);
	return 0;
}
