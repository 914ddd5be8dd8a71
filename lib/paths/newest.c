/* Which checkpoint of a run is the newest that a view shows whole. One of two saves that run side by side may end
 * before the other, so names are tried from the newest on until one is whole. */
#include "paths/newest.h"

#include <ctype.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "paths/forms.h"
#include "session/shows.h"

struct search {
	struct unshard *u;
	const struct uns_view *view;
	uint64_t parameter;
	struct uns_arena *arena;
	struct uns_map series; /* of which a whole checkpoint was found: series_of(name) */
	const char *name;      /* the newest so far, as the view shows it */
	int64_t newest_ns;
};

/* The name without its digits: equal for all checkpoints that one training numbers. */
static const char *series_of(struct uns_arena *arena, const char *name)
{
	char *text = uns_arena_str(arena, name), *to = text;

	if (!text)
		return NULL;
	for (; *name; name++)
		if (!isdigit((unsigned char)*name))
			*to++ = *name;
	*to = '\0';
	return text;
}

static bool has_number(const char *name)
{
	return name[strcspn(name, "0123456789")] != '\0';
}

/* What has gone meanwhile, or is kept from us, is no checkpoint that can be shown; any other failure could let an
 * older one pass for the newest. */
static int left_out(int code, const struct uns_err *why, struct uns_err *err)
{
	return code == -EACCES || code == -ESTALE ? 0 : uns_fail_if_passing(err, code, why);
}

/* 1 = the view shows the checkpoint whole. */
static int is_whole(const struct search *s, struct dir_record *record, struct uns_err *err)
{
	struct uns_err why = { 0 };
	enum show_state state;
	int code = show_state_of(s->u, record, s->view, s->parameter, &state, &why);

	return code < 0 ? left_out(code, &why, err) : state == SHOW_OK;
}

/* 1 = the plain directory holds the parts of one step, and all of them are whole; *newest_ns: of the last of them. */
static int parts_are_whole(const struct search *s, const char *dir, int64_t *newest_ns, struct uns_err *err)
{
	struct uns_err why = { 0 };
	struct dir_record *record;
	struct uns_listing list;
	int code, whole = 0;
	const char *path;
	size_t i;

	code = uns_root_list(s->u->root, dir, s->arena, &list, &why);
	if (code < 0)
		return left_out(code, &why, err);
	for (i = 0; i < list.n; i++) {
		UNS_TRY_ALLOC(path = uns_path_join(s->arena, dir, list.v[i].name), err);
		if (list.v[i].kind != UNS_KIND_DIR || session_hides(s->u, path))
			continue;
		code = record_get_for(s->u, path, s->view, s->parameter, &record, &why);
		if (code < 0)
			return left_out(code, &why, err);
		if (!record->is.format) {
			record_put(s->u, record);
			continue;
		}
		code = has_number(list.v[i].name) ? 0 : is_whole(s, record, err);
		if (record->is.newest_ns > *newest_ns)
			*newest_ns = record->is.newest_ns;
		record_put(s->u, record);
		if (code <= 0)
			return code;
		whole = 1;
	}
	return whole;
}

/* The name of the checkpoint in the view: a directory's, where the view shows a file beside it. */
static int name_of(const struct search *s, struct dir_record *record, const char *own, const char **out,
		   struct uns_err *err)
{
	struct form_names names;

	*out = own;
	if (!forms_has_file(s->view, record))
		return 0;
	UNS_TRY(forms_names(s->u, s->view, record, s->arena, &names, err));
	*out = names.dir_is_listed ? names.dir : names.file;
	return 0;
}

/* 1 = it is whole. */
static int try_record(struct search *s, struct dir_record *record, const char *own, struct uns_err *err)
{
	int64_t newest_ns = record->is.newest_ns;
	const char *name;
	int whole;

	UNS_TRY(whole = record->is.format ? is_whole(s, record, err)
			: has_number(own) ? parts_are_whole(s, record->path, &newest_ns, err)
					  : 0);
	if (!whole || (s->name && newest_ns < s->newest_ns))
		return whole;
	UNS_TRY(name_of(s, record, own, &name, err));
	s->name = name;
	s->newest_ns = newest_ns;
	return 1;
}

static int try_entry(struct search *s, const char *dir, const struct uns_entry *entry, struct uns_err *err)
{
	const char *path = uns_path_join(s->arena, dir, entry->name);
	const char *series = series_of(s->arena, entry->name);
	struct uns_err why = { 0 };
	struct dir_record *record;
	int code;

	UNS_TRY_ALLOC(path && series, err);
	if (uns_map_get(&s->series, series) || !session_walks_into(s->u, path, entry->kind) ||
	    (entry->kind == UNS_KIND_FILE && !s->view->opens_files))
		return 0;
	code = record_get_for(s->u, path, s->view, s->parameter, &record, &why);
	if (code < 0)
		return code == -ENOTDIR ? 0 : left_out(code, &why, err);
	code = try_record(s, record, entry->name, err);
	record_put(s->u, record);
	if (code > 0 && !uns_map_put(&s->series, series, (void *)series, NULL))
		return uns_oom(err);
	return code < 0 ? code : 0;
}

static void search_fini(struct search *s)
{
	uns_map_fini(&s->series);
}

int newest_find(struct unshard *u, const struct uns_view *view, uint64_t parameter, const char *dir,
		struct uns_arena *arena, const char **out, struct uns_err *err)
{
	UNS_CLEANUP(search_fini) struct search s = { u, view, parameter, arena, .series = UNS_MAP_INIT };
	struct uns_listing list;
	size_t i;

	UNS_TRY(uns_root_list(u->root, dir, arena, &list, err));
	for (i = list.n; i > 0; i--)
		UNS_TRY(try_entry(&s, dir, &list.v[i - 1], err));
	*out = s.name;
	return s.name != NULL;
}
