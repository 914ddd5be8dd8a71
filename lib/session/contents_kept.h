/* Contents that were made of checkpoints, kept with their records: so that a listing opens nothing again, however many
 * checkpoints there are. Of one generation, as the record is. */
#ifndef UNS_SESSION_CONTENTS_KEPT_H
#define UNS_SESSION_CONTENTS_KEPT_H

#include "session/contents.h"
#include "session/dir_records.h"

struct contents_kept {
	pthread_mutex_t *lock; /* the records' own */
	struct records_by_use by_use; /* those that have contents; the oldest use first */
	size_t bytes, most_bytes; /* what has not been used for a minute gives way to others */
};

/* What is kept of this view, with a reference; NULL = nothing is. */
struct contents *contents_find(struct contents_kept *k, struct dir_record *record, const struct uns_view *view,
			       uint64_t parameter);
/* Whether more can be kept, without a look at what is idle. */
bool contents_have_room(struct contents_kept *k);
/* contents: just made, and never kept before. Returns whether they are kept: not if the view's are by now, if the
 * record was replaced, or if there is no room. */
bool contents_keep(struct contents_kept *k, struct dir_record *record, struct contents *contents);
/* The record is replaced, or freed. */
void contents_forget(struct contents_kept *k, struct dir_record *record);

#endif
