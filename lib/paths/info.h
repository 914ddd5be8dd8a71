/* The texts of .unshard/: of the mount as a whole, and of one checkpoint. */
#ifndef UNS_PATHS_INFO_H
#define UNS_PATHS_INFO_H

#include "session/session.h"

extern const char *const root_info_names[]; /* NULL-terminated */
extern const char *const info_names[];

int root_info_text(struct unshard *u, const char *name, struct uns_text *out);
/* Figures are for all, what names files and tensors is for the user of this process. */
struct uns_access root_info_access(const char *name);
/* The permissions of a checkpoint's: it has what its metadata has. */
int info_access(struct unshard *u, struct dir_record *record, struct uns_access *out, struct uns_err *err);
/* usage_path: goes into the lines to write, NULL = the path below the mount. */
int info_json(struct unshard *u, struct dir_record *record, enum unshard_what what, const char *usage_path,
	      struct uns_text *out, struct uns_err *err);
int info_text(struct unshard *u, struct dir_record *record, const struct uns_view *view, uint64_t parameter,
	      const char *name, struct uns_text *out, struct uns_err *err);
/* Which of the view's files hold how much of which tensor (files/tree_map.h). */
int info_view_map(struct unshard *u, struct dir_record *record, const struct uns_view *view, uint64_t parameter,
		  struct uns_text *out, struct uns_err *err);

#endif
