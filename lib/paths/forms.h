/* Checkpoints that are one file in some views, and under which names. */
#ifndef UNS_PATHS_FORMS_H
#define UNS_PATHS_FORMS_H

#include "session/session.h"

struct form_names {
	const char *file, *dir;
	bool dir_is_listed;
};

bool forms_has_file(const struct uns_view *view, const struct dir_record *record);
/* Only for one that has a file. */
int forms_names(struct unshard *u, const struct uns_view *view, const struct dir_record *record,
		struct uns_arena *arena, struct form_names *out, struct uns_err *err);

struct form_found {
	const char *path;    /* the checkpoint's, in the arena */
	struct dir_record *record; /* a reference */
	bool as_file;
};

/* 1 = `name` of directory `dir` (of SOURCE) is such a checkpoint. 0 = it is not. */
int forms_find(struct unshard *u, const struct uns_view *view, const char *dir, const char *name,
	       struct uns_arena *arena, struct form_found *out, struct uns_err *err);

#endif
