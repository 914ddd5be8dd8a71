/* See usage.h. */
#include "session/usage.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

void usage_init(struct usage *u)
{
	u->started_wall_ns = uns_wall_ns();
	pthread_mutex_init(&u->lock, NULL);
}

void usage_fini(struct usage *u)
{
	while (u->n) {
		u->n--;
		free(u->v[u->n].view);
		free(u->v[u->n].path);
	}
	pthread_mutex_destroy(&u->lock);
}

/* -- counting -- */

/* Lock held. NULL = there is no room, or no memory. */
static struct usage_entry *find_or_add(struct usage *u, const char *view, const char *path)
{
	struct usage_entry *e = u->v;

	while (e < u->v + u->n && (strcmp(e->path, path) != 0 || strcmp(e->view, view) != 0))
		e++;
	if (e < u->v + u->n)
		return e;
	if (u->n == USAGE_MOST)
		return NULL;
	e->view = strdup(view);
	e->path = strdup(path);
	if (e->view && e->path) {
		u->n++;
		return e;
	}
	free(e->view);
	free(e->path);
	e->view = e->path = NULL;
	return NULL;
}

struct usage_entry *usage_opened(struct usage *u, const char *view, const char *path)
{
	struct usage_entry *e;

	pthread_mutex_lock(&u->lock);
	e = find_or_add(u, view, path);
	pthread_mutex_unlock(&u->lock);
	if (!e)
		e = &u->v[USAGE_MOST];
	atomic_fetch_add_explicit(&e->n_opens, 1, memory_order_relaxed);
	return e;
}

static void add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static void raise_to(_Atomic uint64_t *most, uint64_t n)
{
	uint64_t was = atomic_load_explicit(most, memory_order_relaxed);

	while (was < n &&
	       !atomic_compare_exchange_weak_explicit(most, &was, n, memory_order_relaxed, memory_order_relaxed))
		;
}

static unsigned bucket_of(int64_t ns)
{
	uint64_t us = (uint64_t)ns / 1000 >> USAGE_FIRST_SHIFT;
	unsigned i = 0;

	for (; us && i + 1 < USAGE_BUCKETS; us >>= 1)
		i++;
	return i;
}

void usage_read(struct usage *u, struct usage_entry *e, int64_t ns, uint64_t n_bytes)
{
	ns = ns < 0 ? 0 : ns;
	add(&u->bucket[bucket_of(ns)], 1);
	add(&u->read_ns, (uint64_t)ns);
	if (!e)
		return;
	add(&e->n_reads, 1);
	add(&e->read_bytes, n_bytes);
	add(&e->read_ns, (uint64_t)ns);
	raise_to(&e->slowest_ns, (uint64_t)ns);
}

/* -- answers -- */

static uint64_t value(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static uint64_t bound_us(unsigned bucket)
{
	return UINT64_C(1) << (bucket + USAGE_FIRST_SHIFT);
}

uint64_t usage_percentile_us(const struct usage *u, unsigned percent)
{
	uint64_t count[USAGE_BUCKETS], all = 0, seen = 0;
	unsigned i;

	for (i = 0; i < USAGE_BUCKETS; i++)
		all += count[i] = value(&u->bucket[i]);
	for (i = 0; all && i < USAGE_BUCKETS; i++) {
		seen += count[i];
		if (seen * 100 >= all * percent)
			return bound_us(i);
	}
	return 0;
}

/* The counter as it was: an order by numbers that other threads change is none. */
struct ranked {
	const struct usage_entry *entry;
	uint64_t read_bytes;
};

static struct ranked ranked(const struct usage_entry *e)
{
	return (struct ranked){ e, value(&e->read_bytes) };
}

static int by_bytes(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	return (x->read_bytes < y->read_bytes) - (x->read_bytes > y->read_bytes);
}

/* How many entries have a name at this moment. */
static size_t count(struct usage *u)
{
	size_t n;

	pthread_mutex_lock(&u->lock);
	n = u->n;
	pthread_mutex_unlock(&u->lock);
	return n;
}

static void entry_json(const struct usage_entry *e, struct uns_text *out)
{
	uns_text_str(out, "{\"view\": ");
	uns_text_json_str(out, e->view ? e->view : "(others)");
	uns_text_str(out, ", \"checkpoint\": ");
	uns_text_json_str(out, e->path ? e->path : "(others)");
	uns_text_printf(out,
			", \"opens\": %" PRIu64 ", \"reads\": %" PRIu64 ", \"read_bytes\": %" PRIu64
			", \"read_us\": %" PRIu64 ", \"slowest_us\": %" PRIu64 "}",
			value(&e->n_opens), value(&e->n_reads), value(&e->read_bytes), value(&e->read_ns) / 1000,
			value(&e->slowest_ns) / 1000);
}

void usage_json(struct usage *u, struct uns_text *out)
{
	struct ranked sorted[USAGE_MOST + 1];
	size_t n = count(u), i;

	for (i = 0; i < n; i++)
		sorted[i] = ranked(&u->v[i]);
	if (value(&u->v[USAGE_MOST].n_opens))
		sorted[n++] = ranked(&u->v[USAGE_MOST]);
	qsort(sorted, n, sizeof(*sorted), by_bytes);
	uns_text_str(out, "[");
	for (i = 0; i < n; i++) {
		uns_text_str(out, i ? ",\n " : "\n ");
		entry_json(sorted[i].entry, out);
	}
	uns_text_str(out, n ? "\n]\n" : "]\n");
}

/* By view alone: a reader of the metrics may not be allowed to know the names of checkpoints. */
static void view_metrics(struct usage *u, struct uns_text *out)
{
	const size_t n = count(u);
	uint64_t bytes;
	size_t i, k;

	uns_text_str(out, "# HELP unshard_view_read_bytes_total bytes returned to readers of a view\n"
			  "# TYPE unshard_view_read_bytes_total counter\n");
	for (i = 0; i < n; i++) {
		for (k = 0; k < i && strcmp(u->v[k].view, u->v[i].view) != 0;)
			k++;
		if (k < i)
			continue; /* its sum was printed */
		for (bytes = 0; k < n; k++)
			bytes += strcmp(u->v[k].view, u->v[i].view) ? 0 : value(&u->v[k].read_bytes);
		uns_text_printf(out, "unshard_view_read_bytes_total{view=\"%s\"} %" PRIu64 "\n", u->v[i].view, bytes);
	}
}

void usage_metrics(struct usage *u, struct uns_text *out)
{
	uint64_t sum = 0, us;
	unsigned i;

	uns_text_str(out, "# HELP unshard_read_seconds how long reads took\n# TYPE unshard_read_seconds histogram\n");
	for (i = 0; i < USAGE_BUCKETS; i++) {
		sum += value(&u->bucket[i]);
		us = bound_us(i);
		if (i + 1 < USAGE_BUCKETS)
			uns_text_printf(out,
					"unshard_read_seconds_bucket{le=\"%" PRIu64 ".%06" PRIu64 "\"} %" PRIu64 "\n",
					us / 1000000, us % 1000000, sum);
	}
	us = value(&u->read_ns) / 1000;
	uns_text_printf(out,
			"unshard_read_seconds_bucket{le=\"+Inf\"} %" PRIu64 "\nunshard_read_seconds_sum %" PRIu64
			".%06" PRIu64 "\nunshard_read_seconds_count %" PRIu64 "\n",
			sum, us / 1000000, us % 1000000, sum);
	view_metrics(u, out);
	uns_text_printf(out,
			"# HELP unshard_start_time_seconds when the mount began, Unix\n"
			"# TYPE unshard_start_time_seconds gauge\nunshard_start_time_seconds %lld\n"
			"# HELP unshard_build_info the version, always 1\n# TYPE unshard_build_info gauge\n"
			"unshard_build_info{version=\"" UNSHARD_VERSION "\"} 1\n",
			(long long)(u->started_wall_ns / 1000000000));
}
