/* The file that names the last checkpoint of a run, where a view needs one and each tag of the run is a
 * checkpoint of its own: mnt/universal/RUN/latest_universal, which DeepSpeed's engine reads to
 * load RUN. It is the text of SOURCE's own mark, with where that tag is in the view:
 *
 *   RUN/latest           "global_step3"
 *   latest_universal     "global_step3/global_step3": the tag, and the text of the view's own file in it
 *
 * SOURCE's latest_universal, from a ds_to_universal of the user's, counts before its `latest`, as it does for
 * the engine. */
#include "paths/run_mark.h"

#include <string.h>

#include "base/path.h"
#include "session/shows.h"
#include "zero/mark.h"

enum { MAX_MARK_BYTES = 4096 };

static const char LATEST[] = "latest";

bool run_mark_is_wanted(const struct uns_view *view, const struct uns_listing *list)
{
	return view && view->run_mark && (uns_listing_find(list, LATEST) || uns_listing_find(list, view->run_mark));
}

/* Where a mark is made: of which directory and view, what is found out. */
struct search {
	struct unshard *u;
	const struct uns_view *view;
	uint64_t parameter;
	const char *dir;
	struct uns_arena *arena;
	struct run_mark *out;
};

/* 1 = SOURCE has this mark, 0 = it has not. */
static int read_mark(const struct search *s, const char *mark, const char **tag, struct uns_err *err)
{
	const char *path = uns_path_join(s->arena, s->dir, mark);

	return path ? uns_zero_read_mark(s->u->root, path, s->arena, tag, &s->out->stat, err) : uns_oom(err);
}

/* The text of the view's own file of that name, in the checkpoint. */
static int read_own(const struct search *s, struct dir_record *record, struct snapshot *snap, const char *tag,
		    struct uns_err *err)
{
	const struct uns_vfile *file;
	const struct shown *shown;
	char text[MAX_MARK_BYTES];
	int64_t n;

	UNS_TRY(show_tree(s->u, record, snap, s->view, s->parameter, &shown, err));
	file = uns_vtree_find(&shown->tree, s->view->run_mark);
	if (!file || file->layout.size_bytes > sizeof(text))
		return 0;
	n = uns_read(snap->backing, &file->layout, text, (size_t)file->layout.size_bytes, 0, err);
	if (n < 0)
		return (int)n;
	uns_text_printf(&s->out->text, "%s/", tag);
	uns_text_add(&s->out->text, text, (size_t)n);
	s->out->generation = snapshots_generation(&s->u->snapshots, record);
	return s->out->text.failed ? uns_oom(err) : 1;
}

/* 1 = the tag's checkpoint can be loaded from the view. */
static int read_tag(const struct search *s, struct dir_record *record, const char *tag, struct uns_err *err)
{
	struct uns_err why = { 0 };
	enum show_state state;
	struct snapshot *snap;
	int code;

	if (!record->is.format)
		return 0;
	code = show_state_of(s->u, record, s->view, s->parameter, &state, &why);
	if (code < 0)
		return uns_fail_copy(err, &why);
	if (state != SHOW_OK)
		return 0;
	UNS_TRY(snapshot_get(s->u, record, &snap, err));
	code = read_own(s, record, snap, tag, err);
	snapshot_put(s->u, snap);
	return code;
}

static int find(const struct search *s, const char *name, struct uns_err *err)
{
	const char *tag = NULL, *path;
	struct uns_err why = { 0 };
	struct dir_record *record;
	int code;

	UNS_TRY(code = read_mark(s, name, &tag, err));
	if (!code)
		UNS_TRY(code = read_mark(s, LATEST, &tag, err));
	if (!code || !tag)
		return 0;
	UNS_TRY_ALLOC(path = uns_path_join(s->arena, s->dir, tag), err);
	if (session_hides(s->u, path))
		return 0;
	code = record_get(s->u, path, &record, &why);
	if (code < 0)
		return uns_fail_if_passing(err, code, &why);
	code = read_tag(s, record, tag, err);
	record_put(s->u, record);
	return code;
}

int run_mark_find(struct unshard *u, const struct uns_view *view, uint64_t parameter, const char *dir, const char *name,
		  struct uns_arena *arena, struct run_mark *out, struct uns_err *err)
{
	const struct search s = { u, view, parameter, dir, arena, out };

	*out = (struct run_mark){ .text = UNS_TEXT_INIT };
	if (!view || !view->run_mark || strcmp(name, view->run_mark) != 0)
		return 0;
	return find(&s, name, err);
}
