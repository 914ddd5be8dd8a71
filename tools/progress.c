/* One line on stderr that is overwritten: nothing in the first second, then ten times a second. */
#include "progress.h"

#include <stdio.h>
#include <unistd.h>

#include "clock.h"
#include "text.h"

enum { FIRST_MS = 1000, EVERY_MS = 100 };

void progress_start(struct progress *p)
{
	const int64_t now = clock_ms();

	*p = (struct progress){ .wanted = isatty(STDERR_FILENO), .last_ms = now, .next_ms = now + FIRST_MS };
}

static bool is_time(struct progress *p, int64_t now)
{
	if (now < p->next_ms)
		return false;
	p->next_ms = now + EVERY_MS;
	p->shown = true;
	return true;
}

/* ", 640 MB/s, 1:05 left": as fast as since the phase began. */
static void print_rate(const struct progress *p, const struct unshard_progress *now)
{
	int64_t ms = p->last_ms - p->since_ms;
	uint64_t rate = ms > 0 ? now->done_bytes * 1000 / (uint64_t)ms : 0, left_s;
	char text[32];

	if (!rate || now->done_bytes > now->total_bytes)
		return;
	left_s = (now->total_bytes - now->done_bytes + rate - 1) / rate;
	text_bytes(rate, text);
	fprintf(stderr, ", %s/s, ", text);
	if (left_s >= 3600)
		fprintf(stderr, "%llu:", (unsigned long long)(left_s / 3600));
	fprintf(stderr, left_s >= 3600 ? "%02llu:%02llu left" : "%llu:%02llu left",
		(unsigned long long)(left_s / 60 % 60), (unsigned long long)(left_s % 60));
}

void progress_step(struct progress *p, const struct unshard_progress *now)
{
	char done[32], total[32];

	if (!p->wanted)
		return;
	if (now->phase != p->phase) { /* it began after the step before: what it has done took some time */
		p->phase = now->phase;
		p->since_ms = p->last_ms;
	}
	p->last_ms = clock_ms();
	if (!is_time(p, p->last_ms))
		return;
	if (now->phase == UNSHARD_SCANNING) {
		fprintf(stderr, "\r\033[Kscanning: %zu directories, %zu checkpoints", now->directories,
			now->checkpoints);
		return;
	}
	text_bytes(now->done_bytes, done);
	text_bytes(now->total_bytes, total);
	fprintf(stderr, "\r\033[K%s: %s of %s", now->phase == UNSHARD_READING ? "reading" : "writing", done, total);
	print_rate(p, now);
}

void progress_end(struct progress *p)
{
	if (p->shown)
		fputs("\r\033[K", stderr);
}
