/* CRCs of tensors that somebody reads whole anyway. Requests of one reader arrive out of order, by
 * several threads, so each stretch gets a CRC of its own and neighbours are joined. Memory is fixed:
 * what does not fit is forgotten, and the CRC stays unknown. */
#include "engine/crc.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { SLOTS = 32, STRETCHES = 24 };

struct stretch {
	uint64_t at, end;
	uint32_t crc;
};

struct slot {
	const struct uns_tensor *tensor;
	enum uns_dtype out;
	size_t n;
	struct stretch v[STRETCHES]; /* ascending, neither touching nor overlapping */
};

struct uns_crc_stream {
	pthread_mutex_t lock;
	struct slot slot[SLOTS];
};

struct uns_crc_stream *uns_crc_stream_new(void)
{
	struct uns_crc_stream *stream = calloc(1, sizeof(*stream));

	if (stream)
		pthread_mutex_init(&stream->lock, NULL);
	return stream;
}

void uns_crc_stream_free(struct uns_crc_stream *stream)
{
	if (!stream)
		return;
	pthread_mutex_destroy(&stream->lock);
	free(stream);
}

static struct slot *slot_of(struct uns_crc_stream *stream, const struct uns_tensor *t,
			    enum uns_dtype out)
{
	struct slot *slot = &stream->slot[((uintptr_t)t / sizeof(*t)) % SLOTS];

	if (slot->tensor != t || slot->out != out)
		*slot = (struct slot){ .tensor = t, .out = out };
	return slot;
}

static void join_next(struct slot *slot, size_t i)
{
	struct stretch *s = &slot->v[i];

	if (i + 1 >= slot->n || s[0].end != s[1].at)
		return;
	s->crc = (uint32_t)crc32_combine64(s->crc, s[1].crc, (z_off64_t)(s[1].end - s[1].at));
	s->end = s[1].end;
	slot->n--;
	memmove(s + 1, s + 2, (slot->n - i - 1) * sizeof(*s));
}

/* Bytes that were seen already, or more holes than are kept, change nothing. */
static void slot_add(struct slot *slot, struct stretch add)
{
	size_t i = 0;

	while (i < slot->n && slot->v[i].at < add.at)
		i++;
	if ((i > 0 && slot->v[i - 1].end > add.at) || (i < slot->n && slot->v[i].at < add.end) ||
	    slot->n == STRETCHES)
		return;
	memmove(&slot->v[i + 1], &slot->v[i], (slot->n - i) * sizeof(add));
	slot->v[i] = add;
	slot->n++;
	join_next(slot, i);
	if (i > 0)
		join_next(slot, i - 1);
}

void uns_crc_stream_add(struct uns_backing *b, const struct uns_tensor *t, enum uns_dtype out,
			uint64_t at, const uint8_t *bytes, size_t len)
{
	uint64_t size = uns_shape_elems(&t->shape) * uns_dtype_size(out);
	struct stretch add = { at, at + len, (uint32_t)crc32_z(0, bytes, len) };
	struct uns_crc_stream *stream = b->stream;
	struct slot *slot;

	pthread_mutex_lock(&stream->lock);
	slot = slot_of(stream, t, out);
	slot_add(slot, add);
	if (slot->n == 1 && slot->v[0].at == 0 && slot->v[0].end == size) {
		uns_crc_learn(b, t, out, slot->v[0].crc);
		slot->tensor = NULL;
	}
	pthread_mutex_unlock(&stream->lock);
}
