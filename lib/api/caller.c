#include "api/caller.h"

#include <stdlib.h>
#include <string.h>

void unshard_free(void *memory)
{
	free(memory);
}

/* -- structs -- */

static size_t size_of(const void *any)
{
	size_t size;

	memcpy(&size, any, sizeof(size));
	return size;
}

static int check_size(size_t size, const char *name, struct uns_err *err)
{
	if (size >= sizeof(size))
		return 0;
	return uns_fail(err, -EINVAL,
			"struct unshard_%s: its field size is not set: initialise the struct with its macro ..._INIT",
			name);
}

int caller_take(void *own, const void *given, const char *name, struct uns_err *err)
{
	size_t size = size_of(own), theirs = size_of(given), i;
	const char *bytes = given;

	UNS_TRY(check_size(theirs, name, err));
	for (i = size; i < theirs; i++)
		if (bytes[i])
			return uns_fail(err, -E2BIG,
					"struct unshard_%s: the caller set a field that this "
					"version of libunshard (%s) does not know",
					name, unshard_version());
	memcpy((char *)own + sizeof(size), bytes + sizeof(size), (theirs < size ? theirs : size) - sizeof(size));
	return 0;
}

int caller_give(void *out, const void *own, const char *name, struct uns_err *err)
{
	size_t size = size_of(own), theirs = size_of(out);

	UNS_TRY(check_size(theirs, name, err));
	memcpy((char *)out + sizeof(size), (const char *)own + sizeof(size),
	       (theirs < size ? theirs : size) - sizeof(size));
	if (theirs > size)
		memset((char *)out + size, 0, theirs - size);
	return 0;
}

int caller_flags(unsigned flags, unsigned known, struct uns_err *err)
{
	return flags & ~known ? uns_fail(err, -EINVAL, "flag 0x%x: this function has no such flag", flags & ~known) : 0;
}

/* -- calls -- */

int caller_init(struct caller *c, const struct unshard_calls *calls, struct uns_err *err)
{
	c->calls = (struct unshard_calls)CALLER_OWN(struct unshard_calls);
	c->answer = 0;
	if (calls)
		UNS_TRY(caller_take(&c->calls, calls, "calls", err));
	pthread_mutex_init(&c->asking, NULL);
	return 0;
}

int caller_fini(struct caller *c, int code)
{
	pthread_mutex_destroy(&c->asking);
	return c->answer ? c->answer : code;
}

/* While another thread is being answered, the answer so far holds. */
static bool progress_ask(struct caller *c, const struct unshard_progress *p)
{
	if (!c->calls.progress)
		return false;
	if (pthread_mutex_trylock(&c->asking) == 0) {
		if (!c->answer)
			c->answer = c->calls.progress(c->calls.ctx, p);
		pthread_mutex_unlock(&c->asking);
	}
	return c->answer != 0;
}

bool caller_progress(struct caller *c, enum unshard_phase phase, uint64_t done_bytes, uint64_t total_bytes)
{
	return progress_ask(c, &(struct unshard_progress){ .size = sizeof(struct unshard_progress),
							   .phase = phase,
							   .done_bytes = done_bytes,
							   .total_bytes = total_bytes });
}

bool caller_scanned(struct caller *c, size_t directories, size_t checkpoints)
{
	return progress_ask(c, &(struct unshard_progress){ .size = sizeof(struct unshard_progress),
							   .phase = UNSHARD_SCANNING,
							   .directories = directories,
							   .checkpoints = checkpoints });
}

int caller_writes(struct caller *c, const char *directory, struct uns_err *err)
{
	if (c->calls.writes)
		c->answer = c->calls.writes(c->calls.ctx, directory);
	return c->answer ? uns_fail(err, -EINTR, "interrupted") : 0;
}

bool caller_crcs_asked(void *ctx)
{
	const struct caller_crcs *crcs = ctx;
	struct uns_engine_stats s;

	if (!crcs->caller->calls.progress)
		return false;
	uns_engine_stats(crcs->engine, &s);
	return caller_progress(crcs->caller, UNSHARD_READING, s.crc_done_bytes, s.crc_total_bytes);
}
