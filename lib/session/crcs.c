/* CRCs of torch files found out on purpose: before a file is opened (-o crc=exact), or ahead of time
 * (warm/warm.c). One at a time for each snapshot: a second opener would read the same
 * data again. */
#include "session/crcs.h"

#include <time.h>

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
	memo_save_crcs(&u->memo, snap->backing, &snap->crcs);
	return code;
}
