/* unshard_warm: finds the CRCs that are not free, keeps them, and stops when it is told to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unshard.h"

struct warm {
	char dir[64], store[80];
	unshard *u;
	unsigned calls, stop_at; /* progress is called by one thread at a time */
	_Atomic unsigned inside;
	bool overlapped;
	uint64_t done, total;
};

static void start(struct warm *w, unsigned stop_at)
{
	struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_settling = true, .delay_read_us = 2000 };

	*w = (struct warm){ .stop_at = stop_at };
	strcpy(w->dir, "/tmp/unshard-warm-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	snprintf(w->store, sizeof(w->store), "%s/store.db", w->dir);
	options.store = w->store;
	assert_int_equal(unshard_open(UNSHARD_GOLDEN "/dcp/zstd", &options, &w->u, NULL), 0);
}

static void finish(struct warm *w)
{
	static const char *const suffix[] = { "", "-wal", "-shm" };
	char path[100];
	size_t i;

	unshard_close(w->u);
	for (i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s%s", w->store, suffix[i]);
		unlink(path);
	}
	assert_int_equal(rmdir(w->dir), 0);
}

static int progress(void *ctx, const struct unshard_progress *p)
{
	struct warm *w = ctx;

	w->overlapped |= atomic_fetch_add(&w->inside, 1) != 0;
	w->done = p->done_bytes;
	w->total = p->total_bytes;
	w->calls++;
	atomic_fetch_sub(&w->inside, 1);
	return w->stop_at && w->calls >= w->stop_at ? -EINTR : 0;
}

static void finds_all_and_keeps_them(void **state)
{
	struct unshard_error err = { 0 };
	struct warm w;
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = &w, .progress = progress };

	(void)state;
	start(&w, 0);
	if (unshard_warm(w.u, "ckpt", &calls, &err) < 0)
		fail_msg("%s", err.text);
	assert_true(w.calls > 0 && !w.overlapped);
	w.done = w.total = 0;
	assert_int_equal(unshard_warm(w.u, "ckpt", NULL, &err), 0);
	finish(&w);
}

/* The thread that is told to stop lets the others know: under TSan, without a race. */
static void stops_when_told(void **state)
{
	struct unshard_error err = { 0 };
	unsigned stop_at;
	struct warm w;
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = &w, .progress = progress };

	(void)state;
	for (stop_at = 1; stop_at < 12; stop_at++) {
		start(&w, stop_at);
		assert_int_equal(unshard_warm(w.u, "ckpt", &calls, &err), -EINTR);
		assert_int_equal(w.calls, stop_at);
		assert_false(w.overlapped);
		finish(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_all_and_keeps_them),
		cmocka_unit_test(stops_when_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
