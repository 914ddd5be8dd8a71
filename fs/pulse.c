/* See pulse.h. */
#include "pulse.h"

#include <errno.h>

#include "join.h"

/* A second, or less if the mount ends. Returns false then. */
static bool pulse_wait(struct fs_pulse *pulse)
{
	struct timespec until;
	int code = 0;
	bool ended;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec++;
	pthread_mutex_lock(&pulse->lock);
	while (!pulse->ended && code != ETIMEDOUT)
		code = pthread_cond_clockwait(&pulse->changed, &pulse->lock, CLOCK_MONOTONIC, &until);
	ended = pulse->ended;
	pthread_mutex_unlock(&pulse->lock);
	return !ended;
}

static void *pulse_run(void *ctx)
{
	struct fs_pulse *pulse = ctx;

	while (pulse_wait(pulse))
		pulse->beat(pulse->fs);
	return NULL;
}

void fs_pulse_start(struct fs_pulse *pulse, struct fs *fs, void (*beat)(struct fs *fs))
{
	*pulse = (struct fs_pulse){ .fs = fs, .beat = beat };
	pthread_mutex_init(&pulse->lock, NULL);
	pthread_cond_init(&pulse->changed, NULL);
	pulse->running = pthread_create(&pulse->thread, NULL, pulse_run, pulse) == 0;
}

bool fs_pulse_stop(struct fs_pulse *pulse, const struct timespec *until)
{
	pthread_mutex_lock(&pulse->lock);
	pulse->ended = true;
	pthread_cond_signal(&pulse->changed);
	pthread_mutex_unlock(&pulse->lock);
	if (pulse->running && !fs_join(pulse->thread, until))
		return false;
	pthread_cond_destroy(&pulse->changed);
	pthread_mutex_destroy(&pulse->lock);
	return true;
}
