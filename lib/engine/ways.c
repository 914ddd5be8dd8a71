/* Trials of ways, one storage at a time. */
#include "engine/ways.h"

#include <string.h>

#include "base/checked.h"

static const double enough = 1.2; /* times as fast as the page cache */
/* Where the page cache gets so much, requests do not wait for each other: as a disk, it is tried past it alone. */
static const double fast_bytes_per_s = 512e6;

void uns_ways_init(struct uns_ways *ways)
{
	memset(ways, 0, sizeof(*ways));
	pthread_mutex_init(&ways->lock, NULL);
}

void uns_ways_fini(struct uns_ways *ways)
{
	pthread_mutex_destroy(&ways->lock);
}

static struct uns_storage *find(struct uns_ways *ways, uint64_t dev)
{
	const size_t n = atomic_load_explicit(&ways->n, memory_order_acquire);
	size_t i;

	for (i = 0; i < n; i++)
		if (ways->storage[i].dev == dev)
			return &ways->storage[i];
	return NULL;
}

static void begin_stretch(struct uns_storage *s, unsigned trial, int64_t now_ns)
{
	s->trial = trial;
	s->stretch++;
	s->left = s->reading;
	s->way = s->tried[trial];
	s->begun = false;
	s->begun_bytes = s->bytes = s->asked_bytes = s->cached_bytes = 0;
	s->busy_ns = 0;
	s->since_ns = now_ns;
}

bool uns_ways_knows(struct uns_ways *ways, uint64_t dev)
{
	return find(ways, dev) != NULL;
}

/* The page cache first and, after the others, again; then the fastest of these again. Where to ask is not to wait, as
 * on a block device, many threads are no help. */
static void plan(struct uns_storage *s)
{
	unsigned n = 0;

	s->tried[n++] = UNS_WAY_CACHE;
	if (s->kind.is_far)
		s->tried[n++] = UNS_WAY_TURNS;
	if (s->kind.is_far && s->waits)
		s->tried[n++] = UNS_WAY_THREADS;
	if (!s->kind.keeps_pages)
		s->tried[n++] = UNS_WAY_LONG;
	s->tried[n++] = UNS_WAY_CACHE;
	s->n_trials = n + 1;
}

void uns_ways_learn(struct uns_ways *ways, uint64_t dev, struct uns_ways_kind kind, const enum uns_way *known)
{
	const bool has_one = kind.in_memory || (!kind.is_far && kind.keeps_pages);
	struct uns_storage *s;

	pthread_mutex_lock(&ways->lock);
	if (!find(ways, dev) && ways->n < UNS_WAYS_STORAGES) {
		s = &ways->storage[ways->n];
		s->dev = dev;
		s->kind = kind;
		s->waits = true;
		plan(s);
		s->way = known ? *known : UNS_WAY_CACHE;
		s->decided = known || has_one;
		atomic_fetch_add_explicit(&ways->n, 1, memory_order_release);
	}
	pthread_mutex_unlock(&ways->lock);
}

struct uns_trial uns_ways_begin(struct uns_ways *ways, uint64_t dev, uint64_t bytes, int64_t now_ns)
{
	struct uns_storage *s = find(ways, dev);
	struct uns_trial trial = { .way = UNS_WAY_CACHE };

	if (!s)
		return trial;
	if (atomic_load_explicit(&s->decided, memory_order_acquire))
		return (struct uns_trial){ .way = s->way };
	pthread_mutex_lock(&ways->lock);
	trial.waits = !s->decided && s->left;
	trial.counts = !s->decided && !s->left;
	if (!trial.waits)
		trial.way = s->way;
	if (trial.counts) {
		if (s->reading++ == 0)
			s->since_ns = now_ns;
		trial.stretch = s->stretch;
		s->begun_bytes += bytes;
		trial.left_bytes = UNS_WAYS_TRIAL_BYTES - uns_u64_min(s->begun_bytes, UNS_WAYS_TRIAL_BYTES);
		trial.first = !s->begun;
		s->begun = true;
	}
	pthread_mutex_unlock(&ways->lock);
	return trial;
}

enum uns_way uns_ways_chosen(struct uns_ways *ways, uint64_t dev, enum uns_way *trying)
{
	const struct uns_storage *s = find(ways, dev);
	bool decided;

	*trying = UNS_WAY_CACHE;
	if (!s)
		return UNS_WAY_CACHE;
	decided = atomic_load_explicit(&s->decided, memory_order_acquire);
	*trying = atomic_load_explicit(&s->way, memory_order_relaxed);
	return decided ? *trying : UNS_WAY_CACHE;
}

size_t uns_ways_known(struct uns_ways *ways, struct uns_way_of out[UNS_WAYS_STORAGES])
{
	const size_t all = atomic_load_explicit(&ways->n, memory_order_acquire);
	size_t i, n = 0;

	for (i = 0; i < all; i++)
		if (atomic_load_explicit(&ways->storage[i].decided, memory_order_acquire))
			out[n++] = (struct uns_way_of){ ways->storage[i].dev, ways->storage[i].way };
	return n;
}

void uns_ways_note(struct uns_ways *ways, uint64_t dev, uint64_t asked_bytes, uint64_t cached_bytes)
{
	struct uns_storage *s;

	pthread_mutex_lock(&ways->lock);
	s = find(ways, dev);
	if (s) {
		s->asked_bytes += asked_bytes;
		s->cached_bytes += cached_bytes;
	}
	pthread_mutex_unlock(&ways->lock);
}

void uns_ways_note_waits(struct uns_ways *ways, uint64_t dev, bool waits)
{
	struct uns_storage *s;

	pthread_mutex_lock(&ways->lock);
	s = find(ways, dev);
	if (s)
		s->waits = waits;
	pthread_mutex_unlock(&ways->lock);
}

void uns_ways_restart(struct uns_ways *ways, uint64_t dev)
{
	struct uns_storage *s;

	pthread_mutex_lock(&ways->lock);
	s = find(ways, dev);
	if (s && !s->decided)
		begin_stretch(s, 0, s->since_ns);
	pthread_mutex_unlock(&ways->lock);
}

/* The slower of its stretches; of those that it has so far. */
static double slowest(const struct uns_storage *s, enum uns_way way)
{
	double least = 0;
	unsigned i;

	for (i = 0; i < s->trial; i++)
		if (s->tried[i] == way && (least == 0 || s->bytes_per_s[i] < least))
			least = s->bytes_per_s[i];
	return least;
}

static double fastest(const struct uns_storage *s, enum uns_way way)
{
	double most = 0;
	unsigned i;

	for (i = 0; i < s->trial; i++)
		if (s->tried[i] == way && s->bytes_per_s[i] > most)
			most = s->bytes_per_s[i];
	return most;
}

/* Of the other ways than the page cache, each tried once. */
static enum uns_way fastest_other(const struct uns_storage *s)
{
	enum uns_way found = s->tried[1];
	unsigned i;

	for (i = 2; i < s->trial; i++)
		if (s->tried[i] != UNS_WAY_CACHE && slowest(s, s->tried[i]) > slowest(s, found))
			found = s->tried[i];
	return found;
}

static void decide(struct uns_storage *s, struct uns_ways_found *found)
{
	const enum uns_way other = s->tried[s->n_trials - 1];
	unsigned i;

	s->way = slowest(s, other) > enough * fastest(s, UNS_WAY_CACHE) ? other : UNS_WAY_CACHE;
	s->decided = true;
	*found = (struct uns_ways_found){ .dev = s->dev, .way = s->way };
	for (i = 0; i < s->n_trials; i++)
		found->bytes_per_s[s->tried[i]] = slowest(s, s->tried[i]);
}

/* Is the stretch read? Or is it clear that the first one, through the page cache, was faster: it took no longer, or by
 * half that time twice as much was read. */
static bool stretch_ends(const struct uns_storage *s)
{
	const double busy_ns = (double)s->busy_ns;
	double first_ns;

	if (s->bytes >= UNS_WAYS_TRIAL_BYTES || !s->trial)
		return s->bytes >= UNS_WAYS_TRIAL_BYTES;
	first_ns = 1e9 * UNS_WAYS_TRIAL_BYTES / s->bytes_per_s[0];
	return busy_ns > first_ns || (busy_ns > first_ns / 2 && s->bytes < UNS_WAYS_TRIAL_BYTES / 4);
}

/* Lock held. Returns whether that was the last stretch. */
static bool end_stretch(struct uns_storage *s, int64_t now_ns)
{
	if (2 * s->cached_bytes > s->asked_bytes) {
		begin_stretch(s, 0, now_ns);
		return false;
	}
	s->bytes_per_s[s->trial] = 1e9 * (double)s->bytes / (double)(s->busy_ns ? s->busy_ns : 1);
	if (s->trial == 0) {
		s->kind.is_far &= s->bytes_per_s[0] <= fast_bytes_per_s;
		plan(s);
	}
	if (++s->trial == s->n_trials)
		return true;
	if (s->trial + 1 == s->n_trials)
		s->tried[s->trial] = fastest_other(s);
	begin_stretch(s, s->trial, now_ns);
	return false;
}

/* A read of this stretch has ended. Returns whether that was the last stretch. Lock held. */
static bool add_bytes(struct uns_storage *s, uint64_t bytes, int64_t now_ns)
{
	s->bytes += bytes;
	return stretch_ends(s) && end_stretch(s, now_ns);
}

bool uns_ways_end(struct uns_ways *ways, uint64_t dev, unsigned stretch, uint64_t bytes, int64_t now_ns,
		  struct uns_ways_found *found)
{
	struct uns_storage *s;
	bool last = false;

	pthread_mutex_lock(&ways->lock);
	s = find(ways, dev);
	if (s && s->reading) {
		s->busy_ns += now_ns - s->since_ns;
		s->since_ns = now_ns;
		s->reading--;
	}
	if (s && !s->decided && stretch == s->stretch)
		last = add_bytes(s, bytes, now_ns);
	else if (s && !s->decided && --s->left == 0)
		s->busy_ns = 0;
	if (last)
		decide(s, found);
	pthread_mutex_unlock(&ways->lock);
	return last;
}
