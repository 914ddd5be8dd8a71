#include "model/pack.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* A text is NULL, new, or one that was written before. */
enum { TEXT_NULL, TEXT_NEW, TEXT_FIRST };

void pack_fini(struct pack *p)
{
	uns_map_fini(&p->texts);
	uns_map_fini(&p->cuts);
	uns_arena_fini(&p->scratch);
	free(p->column);
	free(p->text);
}

/* -- numbers -- */

static void write_u64(struct pack *p, uint64_t v)
{
	unsigned char b[10];
	size_t n = 0;

	do {
		b[n++] = (unsigned char)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
		v >>= 7;
	} while (v);
	uns_text_add(p->out, b, n);
}

static uint64_t read_u64(struct pack *p)
{
	uint64_t v = 0;
	unsigned shift;
	uint8_t b;

	for (shift = 0; shift < 64; shift += 7) {
		if (!uns_take_u8(&p->in, &b) || (shift == 63 && b > 1))
			break;
		v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80))
			return v;
	}
	p->bad = true;
	p->in.p = p->in.end;
	return 0;
}

uint64_t pack_u64(struct pack *p, uint64_t v)
{
	if (!p->out)
		return read_u64(p);
	write_u64(p, v);
	return v;
}

int64_t pack_i64(struct pack *p, int64_t v)
{
	uint64_t zigzag = pack_u64(p, ((uint64_t)v << 1) ^ (v < 0 ? UINT64_MAX : 0));

	return (int64_t)((zigzag >> 1) ^ (0 - (zigzag & 1)));
}

uint64_t pack_below(struct pack *p, uint64_t v, uint64_t bound)
{
	v = pack_u64(p, v);
	if (v < bound)
		return v;
	p->bad = true;
	return 0;
}

bool pack_yes(struct pack *p, bool v)
{
	return pack_below(p, v, 2);
}

int32_t pack_i32(struct pack *p, int32_t v)
{
	int64_t wide = pack_i64(p, v);

	p->bad |= wide < INT32_MIN || wide > INT32_MAX;
	return (int32_t)wide;
}

size_t pack_count(struct pack *p, size_t n)
{
	return (size_t)pack_below(p, n, p->out ? UINT64_MAX : (uint64_t)uns_span_left(&p->in) + 1);
}

void pack_dims(struct pack *p, uint64_t *dim, uint32_t n)
{
	uint32_t d;

	for (d = 0; d < n; d++)
		dim[d] = pack_u64(p, dim[d]);
}

/* -- texts -- */

void *pack_room(struct pack *p, size_t n, size_t size)
{
	void *v = p->bad ? NULL : uns_arena_alloc(&p->cat->arena, n, size);

	if (!v) {
		p->no_memory |= !p->bad;
		p->bad = true;
	}
	return v;
}

const char *pack_bytes(struct pack *p, const char *v, size_t *n)
{
	const uint8_t *at;
	char *copy;

	*n = pack_count(p, *n);
	if (p->out) {
		uns_text_add(p->out, v, *n);
		return v;
	}
	if (p->bad || !uns_span_take(&p->in, *n, &at)) {
		p->bad = true;
		*n = 0;
		return "";
	}
	copy = uns_arena_strn(&p->cat->arena, (const char *)at, *n);
	p->no_memory |= !copy;
	return copy ? copy : "";
}

/* Writes the text, or the number of one that was written before. Returns its number. */
static uint64_t text_find(struct pack *p, const char *s)
{
	uint32_t hash;
	void *known = uns_map_get_in_turn(&p->texts, s, &p->turn, &hash);
	size_t n;

	if (known) {
		write_u64(p, (uintptr_t)known);
		return (uintptr_t)known;
	}
	n = strlen(s);
	write_u64(p, TEXT_NEW);
	pack_bytes(p, s, &n);
	known = (void *)(TEXT_FIRST + p->n_texts++);
	if (!uns_map_put_new(&p->texts, s, hash, known))
		p->out->failed = true;
	return (uintptr_t)known;
}

static const char *write_text(struct pack *p, const char *s)
{
	struct pack_recent *recent = &p->recent[(uintptr_t)s / sizeof(void *) % PACK_RECENT_TEXTS];

	if (!s) {
		write_u64(p, TEXT_NULL);
	} else if (recent->text == s) {
		write_u64(p, recent->number);
	} else {
		recent->number = text_find(p, s);
		recent->text = s;
	}
	return s;
}

static const char *read_text(struct pack *p)
{
	uint64_t v = pack_below(p, 0, TEXT_FIRST + (uint64_t)p->n_texts);
	size_t n = 0;

	if (v == TEXT_NULL)
		return NULL;
	if (v != TEXT_NEW)
		return p->text[v - TEXT_FIRST];
	if (!UNS_HEAP_ROOM(p->text, p->n_texts, p->cap_texts)) {
		p->bad = p->no_memory = true;
		return "";
	}
	return p->text[p->n_texts++] = pack_bytes(p, NULL, &n);
}

const char *pack_text_or_null(struct pack *p, const char *s)
{
	return p->out ? write_text(p, s) : read_text(p);
}

const char *pack_text(struct pack *p, const char *s)
{
	s = pack_text_or_null(p, s);
	p->bad |= !s;
	return s ? s : "";
}

int pack_result(const struct pack *p, struct uns_err *err)
{
	if (p->no_memory || (p->out && p->out->failed))
		return uns_oom(err);
	return p->bad ? uns_fail(err, p->out ? -ENOTSUP : -EBADMSG,
				 p->out ? "a catalog that cannot be packed" : "these bytes are not a packed catalog")
		      : 0;
}
