/* A checkpoint beside its seal: what a snapshot's own quick look cannot have found. */
#include <stdatomic.h>
#include <string.h>

#include "base/cleanup.h"
#include "check/checking.h"
#include "seal/compare.h"
#include "session/sealed.h"

static bool has_file(const struct uns_catalog *cat, const char *path)
{
	size_t i;

	for (i = 0; cat && i < cat->n_files; i++)
		if (strcmp(cat->files[i].path, path) == 0)
			return true;
	return false;
}

static int report(void *ctx, const struct uns_finding *f, struct uns_err *err)
{
	(void)err;
	return checking_found(ctx, f);
}

static struct uns_seal_look look_at(const struct checking *c)
{
	return (struct uns_seal_look){ .root = c->u->root, .path = c->path, .hidden = c->u->opt.hidden };
}

int check_seal_unopened(struct checking *c, struct uns_err *err)
{
	const struct uns_seal_place place = { &c->u->store, c->u->opt.seals };
	const struct uns_seal_look look = look_at(c);

	return sealed_compare(&place, &look, report, c, NULL, err);
}

struct deep {
	struct checking *c;
	const struct uns_catalog *cat; /* NULL = the checkpoint cannot be opened */
	uint64_t total_bytes;
	_Atomic uint64_t done_bytes;
};

/* What cannot be read of the catalog's files is found by check_deep too, which names tensors. */
static int report_deep(void *ctx, const struct uns_finding *f, struct uns_err *err)
{
	const struct deep *d = ctx;

	return f->id == UNS_FOUND_BYTES_UNREADABLE && has_file(d->cat, f->file) ? 0 : report(d->c, f, err);
}

static bool reported(void *ctx, const char *path)
{
	const struct deep *d = ctx;
	size_t i;

	for (i = 0; d->cat && i < d->cat->n_findings; i++)
		if (uns_seal_is_about_content(d->cat->findings[i].id) && d->cat->findings[i].file &&
		    strcmp(d->cat->findings[i].file, path) == 0)
			return true;
	return false;
}

static int step(void *ctx, uint64_t n_bytes, struct uns_err *err)
{
	struct deep *d = ctx;
	uint64_t done = atomic_fetch_add(&d->done_bytes, n_bytes) + n_bytes;

	return caller_progress(&d->c->caller, UNSHARD_READING, done, d->total_bytes)
		       ? uns_fail(err, -EINTR, "interrupted")
		       : 0;
}

/* The quick look has reported more files than it names, or another save: their bytes would be the same finding again.
 */
static bool says_enough(const struct uns_catalog *cat)
{
	size_t i;

	for (i = 0; cat && i < cat->n_findings; i++)
		if (cat->findings[i].id == UNS_FOUND_MORE_SEALED_FILES_DIFFER ||
		    cat->findings[i].id == UNS_FOUND_SAVED_AFTER_SEAL)
			return true;
	return false;
}

int check_seal_deep(struct checking *c, const struct uns_catalog *cat, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_seal_place place = { &c->u->store, c->u->opt.seals };
	struct deep d = { .c = c, .cat = cat };
	const struct uns_seal_watch watch = { step, &d };
	struct uns_seal_look look = look_at(c);
	struct uns_seal seal;
	const char *where;
	size_t i;
	int code;

	if (says_enough(cat))
		return 0;
	if (uns_seal_load(&place, c->path, &arena, &seal, &where, NULL) < 0)
		return cat ? 0 : check_seal_unopened(c, err); /* a snapshot's quick look has reported it */
	for (i = 0; i < seal.n_files; i++)
		d.total_bytes += seal.file[i].size_bytes;
	look.pool = uns_engine_pool(c->u->engine);
	look.watch = &watch;
	look.known = reported;
	look.ctx = &d;
	c->sealed = true;
	code = uns_seal_compare_deep(&seal, &look, report_deep, &d, err);
	c->counts.read_bytes += d.done_bytes;
	return code;
}
