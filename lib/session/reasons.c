/* All that is known to be wrong with one checkpoint, as values: what its catalog has, what keeps its views from
 * being shown, or why it cannot be opened at all. */
#include "session/reasons.h"

#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "io/capture.h"
#include "model/cover.h"
#include "session/shows.h"

const struct uns_finding *reason_of_failure(const struct dir_record *record, const struct uns_err *why,
					    struct uns_arena *arena)
{
	struct uns_finding f = uns_finding_quoting(UNS_FOUND_CHECKPOINT_UNREADABLE, why, UNS_SCOPE_ALL);

	if (!f.checkpoint)
		f.checkpoint = record->path;
	return uns_finding_copy(arena, &f);
}

const struct uns_finding *reason_of_directory(const char *path, const struct unshard *u, const struct uns_err *why,
					      struct uns_arena *arena)
{
	return uns_finding_copy(arena, UNS_FINDING(.id = UNS_FOUND_UNREADABLE_DIRECTORY, .scope = UNS_SCOPE_ALL,
						   .code = why->code, .checkpoint = path,
						   .file = *path ? path : uns_root_path(u->root),
						   .arg = { { "cause", uns_str(why->text) } }));
}

/* An optimizer that is sound but written in a form that holds too little is no damage. */
static bool is_serious(const struct uns_finding *f)
{
	return f->scope != UNS_SCOPE_NOTE && !(f->scope == UNS_SCOPE_OPTIMIZER && f->code == -ENOTSUP);
}

static int add(struct reasons *r, const struct uns_finding *f, const char *view, bool serious)
{
	const struct uns_finding *kept = f ? uns_finding_copy(&r->arena, f) : NULL;

	if (!kept || !UNS_ARENA_ROOM(&r->arena, r->v, r->n, r->cap))
		return -ENOMEM;
	r->n_serious += serious;
	r->v[r->n++] = (struct reason){ kept, view, serious };
	return 0;
}

/* It is about the whole file, which is missing, cut or another one; the tensor that it names is an example. */
static bool is_of_file(const struct uns_finding *f)
{
	switch (f->id) {
	case UNS_FOUND_ITEM_FILE_MISSING:
	case UNS_FOUND_ITEM_CUT:
	case UNS_FOUND_ITEMS_UNREADABLE:
	case UNS_FOUND_SHARD_MISSING:
	case UNS_FOUND_SHARD_CUT:
		return f->file != NULL;
	default:
		return false;
	}
}

bool reasons_tell_of_file(const struct reasons *reasons, const char *path, enum uns_scope scope)
{
	const struct uns_finding *f;
	size_t i;

	for (i = 0; i < reasons->n; i++) {
		f = reasons->v[i].finding;
		if (is_of_file(f) &&
		    (f->scope == scope || f->scope == UNS_SCOPE_ALL || f->id != UNS_FOUND_ITEMS_UNREADABLE) &&
		    strcmp(f->file, path) == 0)
			return true;
	}
	return false;
}

/* NULL = not yet. Views look at other tensors of a file and name another one as the first that it lacks. */
static struct reason *find(const struct reasons *r, const struct uns_finding *f)
{
	const struct uns_finding *known;
	size_t i;

	for (i = 0; i < r->n; i++) {
		known = r->v[i].finding;
		if (uns_finding_equal(known, f) ||
		    (is_of_file(known) && is_of_file(f) && strcmp(known->file, f->file) == 0))
			return &r->v[i];
	}
	return NULL;
}

/* Makes a known finding one about all that another about the same file concerns. */
static int widen(struct reasons *r, struct reason *known, const struct uns_finding *f)
{
	struct uns_finding own = *known->finding;

	if (own.scope == f->scope || own.scope == UNS_SCOPE_ALL)
		return 0;
	own.scope = UNS_SCOPE_ALL;
	known->finding = uns_finding_copy(&r->arena, &own);
	return known->finding ? 0 : -ENOMEM;
}

/* What only this view found out; the same thing once for all views. */
static int add_of_view(struct unshard *u, struct dir_record *record, struct snapshot *snap, const struct uns_view *view,
		       const char *parameter, bool *noted, struct reasons *r)
{
	struct uns_err why = { .keep = &r->arena };
	const char *name = uns_arena_printf(&r->arena, "%s%s%s", view->name, *parameter ? "-" : "", parameter);
	const struct uns_finding *f;
	struct reason *known;
	struct uns_finding own;
	enum show_state state;
	uint64_t number;
	int code;

	if (!name || !view->parse(parameter, &number))
		return -ENOMEM;
	code = show_state_told(u, record, snap, view, number, noted, &state, &why);
	if (code == 0 && state == SHOW_SAVING && why.finding)
		return add(r, why.finding, NULL, false);
	if (code == -ENOMEM || (code == 0 && state != SHOW_DAMAGED))
		return code;
	if (code < 0)
		uns_fail_copy(&r->moment, &why);
	f = why.finding ? why.finding : reason_of_failure(record, &why, &r->arena);
	if (!f)
		return -ENOMEM;
	own = *f;
	/* Not understood, of something that should be shown: that is damage. */
	own.code = own.code == -ENOTSUP ? -EBADMSG : own.code;
	known = find(r, f);
	known = known ? known : find(r, &own);
	if (!known)
		return add(r, &own, name, true);
	known->view = NULL; /* it concerns several */
	r->n_serious++;
	return is_of_file(known->finding) ? widen(r, known, f) : 0;
}

/* A view stops at the first file that it lacks. What is to be copied again is all of them. */
static int add_further_files(const struct uns_catalog *cat, struct reasons *r)
{
	struct uns_findings files = { 0 };
	struct uns_err err = { 0 };
	size_t i;

	UNS_TRY(uns_cover_files(cat, &files, &r->arena, &err));
	for (i = 0; i < files.n; i++)
		if (!find(r, &files.v[i]))
			UNS_TRY(add(r, &files.v[i], NULL, true));
	return 0;
}

static int add_all(struct unshard *u, struct dir_record *record, struct snapshot *snap, struct reasons *r)
{
	const struct uns_catalog *cat = snap->cat;
	struct uns_err why = { .keep = &r->arena };
	bool noted;
	size_t i, k;
	int code;

	for (i = 0; i < cat->n_findings; i++)
		UNS_TRY(add(r, &cat->findings[i], NULL, is_serious(&cat->findings[i])));
	code = show_steps(u, record, snap, &why);
	if (code == -ENOMEM)
		return code;
	if (code < 0) {
		uns_fail_copy(&r->moment, &why);
		UNS_TRY(add(r, reason_of_failure(record, &why, &r->arena), NULL, true));
	}
	for (i = 0; code == 0 && i < snap->steps.v.n; i++)
		UNS_TRY(add(r, &snap->steps.v.v[i], NULL, is_serious(&snap->steps.v.v[i])));
	for (i = 0; uns_views[i]; i++) {
		noted = false;
		for (k = 0; uns_views[i]->listed[k]; k++)
			UNS_TRY(add_of_view(u, record, snap, uns_views[i], uns_views[i]->listed[k], &noted, r));
	}
	for (i = 0; i < r->n; i++)
		if (is_of_file(r->v[i].finding))
			return add_further_files(cat, r);
	return 0;
}

/* What is missing while it is saved is no damage: one note in place of all that was found. */
static int only_saving(struct unshard *u, const struct dir_record *record, struct reasons *r)
{
	const char *file = NULL;
	struct uns_finding f;
	size_t i;

	for (i = 0; i < r->n && !file; i++)
		if (r->v[i].serious || r->v[i].finding->id == UNS_FOUND_STILL_SAVING)
			file = r->v[i].finding->file;
	f = show_saving(u, record, file);
	r->n = r->n_serious = 0;
	r->outside = false;
	r->saving = true;
	return add(r, &f, NULL, false);
}

/* -- what is outside SOURCE -- */

/* A path as a value of an option of -o: a comma begins the next option. */
static const char *option_value(const char *path, struct uns_arena *arena)
{
	char *text = uns_arena_alloc(arena, 2 * strlen(path) + 1, 1), *to = text;

	for (; text && *path; path++) {
		if (*path == ',' || *path == '\\')
			*to++ = '\\';
		*to++ = *path;
	}
	if (text)
		*to = '\0';
	return text;
}

const struct uns_finding *reason_of_link(const char *path, const struct uns_unfollowed *link, struct uns_arena *arena)
{
	const char *dir = option_value(link->dir, arena);

	return dir ? uns_finding_copy(arena, UNS_FINDING(.id = UNS_FOUND_LINK_NOT_FOLLOWED, .scope = UNS_SCOPE_ALL,
							 .checkpoint = path, .file = link->link,
							 .found = uns_str(link->target), .expected = uns_str(dir)))
		   : NULL;
}

/* A file beside the shards that is such a link is in no view, and nothing else of the checkpoint depends on it. */
static int add_links_left_out(const struct uns_catalog *cat, struct reasons *r)
{
	const struct uns_file *f = cat->files, *end = f + cat->n_files, *first = NULL;
	struct uns_unfollowed link;
	const char *dir;
	uint64_t n = 0;
	int code;

	for (; f < end; f++) {
		if (f->missing || f->stat.kind != UNS_KIND_LINK)
			continue;
		first = n++ ? first : f;
	}
	code = first ? uns_unfollowed_find(first->root, first->path, &r->arena, &link, NULL) : 0;
	if (code <= 0)
		return code;
	dir = option_value(link.dir, &r->arena);
	return dir ? add(r,
			 uns_finding_copy(&r->arena,
					  UNS_FINDING(.id = UNS_FOUND_LINK_LEFT_OUT, .file = link.link,
						      .found = uns_str(link.target), .expected = uns_str(dir),
						      .arg = { { "more", uns_more(n - 1) } })),
			 NULL, false)
		   : -ENOMEM;
}

/* In place of all that was found, which might be otherwise if it had been read. */
static int only_outside(struct reasons *r, const struct uns_finding *f)
{
	r->n = r->n_serious = 0;
	r->outside = true;
	return f ? add(r, f, NULL, true) : -ENOMEM;
}

/* 1 = directory `dir` lies in a checkpoint; *above: that one's path. */
static int checkpoint_above(struct unshard *u, const char *dir, struct uns_arena *arena, const char **above,
			    struct uns_err *err)
{
	const struct uns_root *root;
	struct examiner x;
	struct uns_capture *capture = NULL;
	struct examined found;
	const char *path;
	int code;

	UNS_TRY(uns_root_up(u->root, dir, arena, &root, &path, err));
	if (!path)
		return 0;
	x = (struct examiner){ .root = root, .path = path, .store = &u->store };
	code = examine(&x, &found, &capture, NULL);
	if (code < 0)
		return code == -ENOMEM ? code : 0;
	code = found.format != NULL;
	uns_capture_free(capture);
	examined_fini(&found);
	UNS_TRY_ALLOC(*above = uns_path_join(arena, uns_root_path(root), path), err);
	return code;
}

static bool has_weights(const struct uns_catalog *cat)
{
	size_t i;

	for (i = 0; i < cat->n_tensors; i++)
		if (!uns_role_is_optimizer(cat->tensors[i].role))
			return true;
	return false;
}

static int look_outside(struct unshard *u, const struct dir_record *record, const struct uns_catalog *cat,
			struct reasons *r, struct uns_err *err)
{
	struct uns_unfollowed link;
	const char *above;
	size_t i;
	int code = 0;

	for (i = 0; i < r->n && code == 0; i++)
		if (r->v[i].serious && r->v[i].finding->file)
			code = uns_unfollowed_find(u->root, r->v[i].finding->file, &r->arena, &link, err);
	if (code > 0)
		return only_outside(r, reason_of_link(record->path, &link, &r->arena));
	if (code < 0 || (cat && has_weights(cat)))
		return code;
	UNS_TRY(code = checkpoint_above(u, record->path, &r->arena, &above, err));
	return code ? only_outside(r, uns_finding_copy(&r->arena,
						       UNS_FINDING(.id = UNS_FOUND_PART_OF_CHECKPOINT,
								   .scope = UNS_SCOPE_ALL,
								   .checkpoint = uns_root_name(u->root, record->path),
								   .found = uns_str(above))))
		    : 0;
}

int reasons_find(struct unshard *u, struct dir_record *record, struct reasons *out, struct uns_err *err)
{
	struct uns_err why = { .keep = &out->arena };
	struct snapshot *snap;
	int code;

	*out = (struct reasons){ 0 };
	code = snapshot_get(u, record, &snap, &why);
	if (code == 0) {
		code = add_all(u, record, snap, out);
		if (code == 0 && out->n_serious && !out->moment.code)
			code = look_outside(u, record, snap->cat, out, &why);
		if (code == 0 && !out->outside)
			code = add_links_left_out(snap->cat, out);
		snapshot_put(u, snap);
	} else if (code != -ENOMEM) {
		if (!uns_code_is_finding(code))
			uns_fail_copy(&out->moment, &why);
		code = add(out, reason_of_failure(record, &why, &out->arena), NULL, true);
		if (code == 0 && !out->moment.code)
			code = look_outside(u, record, NULL, out, &why);
	}
	if (code == 0 && !out->moment.code && record_saving(u, record))
		code = only_saving(u, record, out);
	return code < 0 ? uns_oom(err) : 0;
}

void reasons_fini(struct reasons *reasons)
{
	uns_arena_fini(&reasons->arena);
}
