/* A table like the kernel's own of a process's descriptors, and like that one the process's. */
#include "base/handle.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/array.h"

struct handle {
	void *what;
	void (*release)(void *what); /* NULL = free */
	size_t next_free; /* of a free one: the next one, plus one; 0 = none */
};

static struct {
	pthread_rwlock_t lock;
	struct handle *v;
	size_t n, cap;
	size_t first_free; /* plus one */
} table = { .lock = PTHREAD_RWLOCK_INITIALIZER };

/* Its place; table.cap = there is no memory. Lock held. */
static size_t take_place(void)
{
	size_t at;

	if (table.first_free) {
		at = table.first_free - 1;
		table.first_free = table.v[at].next_free;
		return at;
	}
	return UNS_HEAP_ROOM(table.v, table.n, table.cap) ? table.n++ : table.cap;
}

int uns_handle_new(void *what, void (*release)(void *what))
{
	size_t at, cap;

	pthread_rwlock_wrlock(&table.lock);
	at = take_place();
	cap = table.cap;
	if (at < cap)
		table.v[at] = (struct handle){ what, release, 0 };
	pthread_rwlock_unlock(&table.lock);
	if (at < cap)
		return UNS_FIRST_HANDLE + (int)at;
	release(what);
	return -ENOMEM;
}

void *uns_handle_get(int handle)
{
	void *what;

	pthread_rwlock_rdlock(&table.lock);
	what = table.v[handle - UNS_FIRST_HANDLE].what;
	pthread_rwlock_unlock(&table.lock);
	return what;
}

void uns_handle_close(int handle)
{
	const size_t at = (size_t)(handle - UNS_FIRST_HANDLE);
	struct handle h;

	pthread_rwlock_wrlock(&table.lock);
	h = table.v[at];
	table.v[at] = (struct handle){ .next_free = table.first_free };
	table.first_free = at + 1;
	pthread_rwlock_unlock(&table.lock);
	h.release(h.what);
}
