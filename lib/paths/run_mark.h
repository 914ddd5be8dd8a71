/* The file that names the last checkpoint of a run, made where a view needs one (uns_view.run_mark). */
#ifndef UNS_PATHS_RUN_MARK_H
#define UNS_PATHS_RUN_MARK_H

#include "session/session.h"

struct run_mark {
	struct uns_text text; /* its content; uns_text_fini, whatever run_mark_find returned */
	struct uns_stat stat; /* of SOURCE's own mark */
	uint64_t generation;  /* of the checkpoint that it names */
};

/* Does the view need one in a directory with these names? */
bool run_mark_is_wanted(const struct uns_view *view, const struct uns_listing *list);

/* 1 = `name` of SOURCE's directory `dir` is such a file, 0 = it is not. */
int run_mark_find(struct unshard *u, const struct uns_view *view, uint64_t parameter, const char *dir, const char *name,
		  struct uns_arena *arena, struct run_mark *out, struct uns_err *err);

#endif
