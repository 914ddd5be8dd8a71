/* CRCs of torch files found out on purpose: before a file is opened (-o crc=exact), or ahead of time
 * for all files of a checkpoint. One at a time for each snapshot: a second opener would read the same
 * data again. */
#include "session/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/log.h"

/* Lock held. Somebody who waits must be able to give up as well. */
static int wait_turn(struct unshard *u, const struct snapshot *snap, const struct uns_stop *stop,
		     struct uns_err *err)
{
	struct timespec until;

	while (snap->crcs_busy) {
		if (stop && stop->asked(stop->ctx))
			return uns_fail(err, -EINTR, "interrupted while waiting for CRCs");
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += (until.tv_nsec + 100000000) / 1000000000;
		until.tv_nsec = (until.tv_nsec + 100000000) % 1000000000;
		pthread_cond_timedwait(&u->changed, &u->lock, &until);
	}
	return 0;
}

int crcs_find(struct unshard *u, struct snapshot *snap, const struct uns_layout *layout,
	      const struct uns_stop *stop, struct uns_err *err)
{
	int code;

	pthread_mutex_lock(&u->lock);
	code = wait_turn(u, snap, stop, err);
	if (code == 0)
		snap->crcs_busy = true;
	pthread_mutex_unlock(&u->lock);
	if (code < 0)
		return code;

	code = uns_backing_crcs_find(snap->backing, layout, stop, err);

	pthread_mutex_lock(&u->lock);
	snap->crcs_busy = false;
	pthread_cond_broadcast(&u->changed);
	pthread_mutex_unlock(&u->lock);
	memo_save_crcs(u, snap);
	return code;
}

/* -- ahead of time -- */

struct warming {
	struct unshard *u;
	bool (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes);
	void *ctx;
	pthread_mutex_t lock; /* one thread at a time asks */
	bool stopped;
};

static bool asked(void *ctx)
{
	struct warming *w = ctx;
	struct uns_engine_stats s;

	if (!w->progress)
		return false;
	if (pthread_mutex_trylock(&w->lock) == 0) {
		uns_engine_stats(w->u->engine, &s);
		if (!w->stopped && w->progress(w->ctx, s.crc_done_bytes, s.crc_total_bytes))
			w->stopped = true;
		pthread_mutex_unlock(&w->lock);
	}
	return __atomic_load_n(&w->stopped, __ATOMIC_RELAXED);
}

static int warm_tree(struct warming *w, struct place *place, struct snapshot *snap,
		     const struct uns_view *view, uint64_t parameter, struct uns_err *err)
{
	const struct uns_stop stop = { asked, w };
	struct uns_err why = { 0 };
	const struct shown *shown;
	enum show_state state;
	size_t i;
	int code;

	code = show_state_of(w->u, place, view, parameter, &state, &why);
	if (code == 0 && state != SHOW_OK)
		return 0;
	if (code == 0)
		code = show_tree(w->u, place, snap, view, parameter, &shown, &why);
	if (code == -ENOMEM)
		return uns_fail(err, code, "out of memory");
	if (code < 0) { /* what one view lacks keeps no other from being warmed */
		uns_log(UNS_LOG_INFO, "%s: %s: %s", place->path, view->name, why.text);
		return 0;
	}
	for (i = 0; i < shown->tree.n; i++)
		UNS_TRY(crcs_find(w->u, snap, &shown->tree.v[i].layout, &stop, err));
	return 0;
}

static int warm_views(struct warming *w, struct place *place, struct snapshot *snap,
		      struct uns_err *err)
{
	uint64_t parameter;
	size_t i, k;

	for (i = 0; uns_views[i]; i++)
		for (k = 0; uns_views[i]->listed[k]; k++)
			if (uns_views[i]->parse(uns_views[i]->listed[k], &parameter))
				UNS_TRY(warm_tree(w, place, snap, uns_views[i], parameter, err));
	return 0;
}

static int warm(struct warming *w, const char *checkpoint, struct uns_err *err)
{
	struct snapshot *snap;
	struct place *place;
	int code;

	if (!store_hold(w->u, err))
		return uns_fail(err, -ENOENT, "there is no store to keep CRCs in");
	store_release(w->u);
	UNS_TRY(place_get(w->u, checkpoint, &place, err));
	code = place->format ? snapshot_get(w->u, place, &snap, err) :
			       uns_fail(err, -EINVAL, "%s is not a checkpoint", checkpoint);
	if (code == 0) {
		code = warm_views(w, place, snap, err);
		snapshot_put(w->u, snap);
	}
	place_put(w->u, place);
	return code;
}

int unshard_warm(unshard *u, const char *checkpoint,
		 bool (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes), void *ctx,
		 struct unshard_error *error)
{
	struct warming w = { .u = u, .progress = progress, .ctx = ctx };
	struct uns_err err = { 0 };
	int code;

	pthread_mutex_init(&w.lock, NULL);
	code = warm(&w, checkpoint, &err);
	pthread_mutex_destroy(&w.lock);
	return give_error(error, &err, code);
}
