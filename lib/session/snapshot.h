/* What is made of one checkpoint: its catalog, its backing, and the views' trees made of it so far.
 * Large; snapshots.h keeps some of them in memory. */
#ifndef UNS_SESSION_SNAPSHOT_H
#define UNS_SESSION_SNAPSHOT_H

#include <sys/queue.h>

#include "engine/engine.h"
#include "facts/companions.h"
#include "facts/masters_proof.h"
#include "facts/steps.h"
#include "facts/ties.h"
#include "facts/training_facts.h"
#include "session/dir_records.h"

/* A view's tree of one snapshot. */
struct shown {
	struct shown *next;
	const struct uns_view *view;
	uint64_t parameter;
	bool making; /* a thread makes it; the rest is that thread's until then */
	struct uns_vtree tree;
};

void shown_free(struct shown *shown); /* with those that follow it; NULL is allowed */

/* Something that takes long to find out: at the first need, by one thread, without keeping those waiting
 * that do not need it. */
struct learned {
	bool known, busy; /* guarded by the session's lock */
};

TAILQ_HEAD(snapshot_list, snapshot);

struct snapshot {
	TAILQ_ENTRY(snapshot) by_use; /* while it has a record; else among those to be freed */
	struct dir_record *record;          /* NULL once the record was replaced */
	unsigned refs;
	size_t bytes;
	int64_t used_ns; /* when it last was, by uns_now_ns */

	struct uns_catalog *cat;
	struct uns_backing *backing;
	uint64_t crc_key;       /* of the CRCs' memo */
	bool lasting;           /* they may be put into the store */
	uint64_t crcs_kept;     /* atomic: uns_backing_crc_changes when they last were */

	struct companions beside; /* chosen while the snapshot is built */
	struct learned ties_learned, training_learned, steps_learned, masters_learned;
	struct ties ties;
	struct training_found training;
	struct steps_found steps;
	struct masters_found masters;

	/* Guarded by the session's lock. */
	bool crcs_busy; /* a thread finds out CRCs */
	struct shown *shown;
};

#endif
