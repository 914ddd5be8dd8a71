/* See contents_kept.h. */
#include "session/contents_kept.h"

#include "base/cleanup.h"
#include "base/clock.h"

/* -- lock held for all of these -- */

static struct contents *record_contents(const struct dir_record *record, const struct uns_view *view,
					uint64_t parameter)
{
	struct contents *c = record->contents;

	while (c && (c->view != view || c->parameter != parameter))
		c = c->next;
	return c;
}

/* Returns all contents of the record, for contents_free. */
static struct contents *record_clear(struct contents_kept *k, struct dir_record *record)
{
	const struct contents *c;

	if (!record->contents)
		return NULL;
	for (c = record->contents; c; c = c->next)
		k->bytes -= contents_bytes(c);
	TAILQ_REMOVE(&k->by_use, record, by_use);
	return UNS_TAKE(record->contents);
}

static void make_newest(struct contents_kept *k, struct dir_record *record)
{
	record->contents_used_ns = uns_now_ns();
	TAILQ_REMOVE(&k->by_use, record, by_use);
	TAILQ_INSERT_TAIL(&k->by_use, record, by_use);
}

static void record_add(struct contents_kept *k, struct dir_record *record, struct contents *contents)
{
	if (!record->contents)
		TAILQ_INSERT_TAIL(&k->by_use, record, by_use);
	contents->next = record->contents;
	record->contents = contents_ref(contents);
	k->bytes += contents_bytes(contents);
	make_newest(k, record);
}

/* Of what is in use, nothing goes: a program that lists more checkpoints than there is room for, again and again, finds
 * the first ones here each time, and would find none if they gave way to the last. Returns what is to be freed. */
static struct contents *make_room(struct contents_kept *k, size_t bytes)
{
	const int64_t in_use_since_ns = uns_now_ns() - 60 * INT64_C(1000000000);
	struct contents *old = NULL, **last = &old;
	struct dir_record *oldest;

	while (k->bytes + bytes > k->most_bytes && (oldest = TAILQ_FIRST(&k->by_use)) &&
	       oldest->contents_used_ns < in_use_since_ns) {
		*last = record_clear(k, oldest);
		while (*last)
			last = &(*last)->next;
	}
	return old;
}

/* -- the same without it -- */

static void contents_free(struct contents *c)
{
	struct contents *next;

	for (; c; c = next) {
		next = c->next;
		contents_unref(c);
	}
}

struct contents *contents_find(struct contents_kept *k, struct dir_record *record, const struct uns_view *view,
			       uint64_t parameter)
{
	struct contents *found;

	pthread_mutex_lock(k->lock);
	found = record_contents(record, view, parameter);
	if (found) {
		make_newest(k, record);
		contents_ref(found);
	}
	pthread_mutex_unlock(k->lock);
	return found;
}

bool contents_have_room(struct contents_kept *k)
{
	bool room;

	pthread_mutex_lock(k->lock);
	room = k->bytes < k->most_bytes;
	pthread_mutex_unlock(k->lock);
	return room;
}

bool contents_keep(struct contents_kept *k, struct dir_record *record, struct contents *contents)
{
	const size_t bytes = contents_bytes(contents);
	struct contents *old;
	bool kept;

	pthread_mutex_lock(k->lock);
	old = make_room(k, bytes);
	kept = !record->replaced && !record_contents(record, contents->view, contents->parameter) &&
	       k->bytes + bytes <= k->most_bytes;
	if (kept)
		record_add(k, record, contents);
	pthread_mutex_unlock(k->lock);
	contents_free(old);
	return kept;
}

void contents_forget(struct contents_kept *k, struct dir_record *record)
{
	struct contents *old;

	pthread_mutex_lock(k->lock);
	old = record_clear(k, record);
	pthread_mutex_unlock(k->lock);
	contents_free(old);
}
