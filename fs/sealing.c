#include "sealing.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "join.h"
#include "ops.h"

static const int64_t ms_ns = 1000 * 1000;
static const int64_t least_pause_ns = 2 * INT64_C(1000000000); /* between two looks */
static const int64_t failed_pause_ns = 600 * INT64_C(1000000000); /* after one that failed */
static const int64_t looks_share = 20; /* a look takes at most this part of the time, if it finds nothing to read */
static const int64_t quiet_ns = 100 * ms_ns; /* without a read of the mount: no program waits for its storage */
static const int64_t most_waited_ns = 200 * ms_ns; /* then the next MiB is read all the same */
static const uint64_t default_bytes_per_s = 200 * 1000 * 1000;

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* -- reads of the mount -- */

void fs_sealing_read_begins(struct fs_sealing *sealing)
{
	atomic_fetch_add_explicit(&sealing->reading, 1, memory_order_relaxed);
}

void fs_sealing_read_ends(struct fs_sealing *sealing)
{
	if (sealing->wanted)
		atomic_store_explicit(&sealing->last_read_ns, now_ns(), memory_order_relaxed);
	atomic_fetch_sub_explicit(&sealing->reading, 1, memory_order_relaxed);
}

static bool mount_is_read(const struct fs_sealing *sealing)
{
	return atomic_load_explicit(&sealing->reading, memory_order_relaxed) ||
	       now_ns() - atomic_load_explicit(&sealing->last_read_ns, memory_order_relaxed) < quiet_ns;
}

/* -- the thread -- */

/* Until then (monotonic), or until the mount ends: false. */
static bool sealing_sleep(struct fs_sealing *sealing, int64_t until_ns)
{
	const struct timespec until = { .tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000 };
	int code = 0;
	bool ended;

	pthread_mutex_lock(&sealing->lock);
	while (!sealing->ended && code != ETIMEDOUT)
		code = pthread_cond_clockwait(&sealing->changed, &sealing->lock, CLOCK_MONOTONIC, &until);
	ended = sealing->ended;
	pthread_mutex_unlock(&sealing->lock);
	return !ended;
}

static bool sealing_ended(struct fs_sealing *sealing)
{
	bool ended;

	pthread_mutex_lock(&sealing->lock);
	ended = sealing->ended;
	pthread_mutex_unlock(&sealing->lock);
	return ended;
}

/* As unshard_calls.progress, between two blocks of 1 MiB: waits for as long as the rate wants, and gives way to those
 * that read the mount. */
static int sealing_step(void *ctx, const struct unshard_progress *p)
{
	struct fs_sealing *sealing = ctx;
	const int64_t now = now_ns();
	uint64_t n;
	bool go_on;

	if (p->phase != UNSHARD_READING)
		return sealing_ended(sealing);
	n = p->done_bytes - (p->done_bytes < sealing->done_bytes ? 0 : sealing->done_bytes);
	sealing->done_bytes = p->done_bytes;
	sealing->has_read = true;
	if (sealing->free_at_ns < now)
		sealing->free_at_ns = now;
	sealing->free_at_ns += (int64_t)((double)n * 1e9 / (double)sealing->bytes_per_s);
	go_on = sealing_sleep(sealing, sealing->free_at_ns);
	while (go_on && mount_is_read(sealing) && now_ns() - now < most_waited_ns)
		go_on = sealing_sleep(sealing, now_ns() + 10 * ms_ns);
	return !go_on;
}

static int sealing_log(void *ctx, const struct unshard_seal *seal)
{
	const struct fs_sealing *sealing = ctx;
	const struct fs *fs = sealing->fs;
	const char *path = *seal->path ? seal->path : ".";
	const char *text = seal->text ? seal->text : "";
	char line[1024];

	if (!fs->log)
		return 0;
	if (seal->state == UNSHARD_SEALED) {
		snprintf(line, sizeof(line), "%s: sealed: %zu files, %llu bytes; the seal is in %s", path, seal->files,
			 (unsigned long long)seal->size_bytes, seal->where);
		fs->log(fs->log_ctx, UNSHARD_LOG_INFO, line);
	} else if (seal->state == UNSHARD_SEAL_DIFFERS || seal->state == UNSHARD_SEAL_REFUSED) {
		snprintf(line, sizeof(line), "%s: %s: %s", path,
			 seal->state == UNSHARD_SEAL_DIFFERS ? "differs from its seal" : "not sealed", text);
		fs->log(fs->log_ctx, UNSHARD_LOG_WARNING, line);
	}
	return 0;
}

/* What keeps failing is in the log once. */
static void failed(struct fs_sealing *sealing, const char *why)
{
	const struct fs *fs = sealing->fs;
	char line[640];

	if (*why && fs->log && strcmp(why, sealing->failure) != 0) {
		snprintf(line, sizeof(line), "checkpoints cannot be sealed: %s", why);
		fs->log(fs->log_ctx, UNSHARD_LOG_ERROR, line);
	}
	snprintf(sealing->failure, sizeof(sealing->failure), "%s", why);
}

/* Returns when the next look is due. */
static int64_t sealing_look(struct fs_sealing *sealing)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = sealing, .progress = sealing_step,
					     .sealed = sealing_log };
	const int64_t began_ns = now_ns();
	struct unshard_error err = { 0 };
	int64_t pause_ns = least_pause_ns;
	int code;

	sealing->has_read = false;
	code = unshard_seal(sealing->fs->u, "", UNSHARD_SEAL_GENTLY, &calls, NULL, &err);
	failed(sealing, code < 0 ? err.text : "");
	if (code < 0)
		pause_ns = failed_pause_ns;
	else if (!sealing->has_read && (now_ns() - began_ns) * looks_share > pause_ns)
		pause_ns = (now_ns() - began_ns) * looks_share;
	return now_ns() + pause_ns;
}

static void *sealing_run(void *ctx)
{
	struct fs_sealing *sealing = ctx;
	int64_t due_ns;

	do
		due_ns = sealing_look(sealing);
	while (sealing_sleep(sealing, due_ns));
	return NULL;
}

/* -- beginning and end -- */

void fs_sealing_init(struct fs_sealing *sealing, struct fs *fs, const struct fs_options *o)
{
	*sealing = (struct fs_sealing){
		.fs = fs,
		.wanted = o->seal,
		.bytes_per_s = o->seal_bytes_per_s ? o->seal_bytes_per_s : default_bytes_per_s,
	};
	pthread_mutex_init(&sealing->lock, NULL);
	pthread_cond_init(&sealing->changed, NULL);
}

void fs_sealing_fini(struct fs_sealing *sealing)
{
	pthread_cond_destroy(&sealing->changed);
	pthread_mutex_destroy(&sealing->lock);
}

void fs_sealing_start(struct fs_sealing *sealing)
{
	if (sealing->wanted)
		sealing->running = pthread_create(&sealing->thread, NULL, sealing_run, sealing) == 0;
	if (sealing->wanted && !sealing->running)
		failed(sealing, "no thread can begin");
}

bool fs_sealing_stop(struct fs_sealing *sealing, const struct timespec *until)
{
	pthread_mutex_lock(&sealing->lock);
	sealing->ended = true;
	pthread_cond_signal(&sealing->changed);
	pthread_mutex_unlock(&sealing->lock);
	if (sealing->running && !fs_join(sealing->thread, until))
		return false;
	sealing->running = false;
	return true;
}
