/* Stretches of source files that were read, and when their pages go. */
#include "engine/behind.h"

#include <fcntl.h>
#include <stdlib.h>

#include "base/checked.h"
#include "engine/backing.h"
#include "engine/decode.h"
#include "engine/gather.h"

static const uint64_t KiB = UINT64_C(1) << 10, MiB = UINT64_C(1) << 20;

#define STEP_BYTES (4 * MiB)
/* What lies between two pieces: headers, which are read once. */
#define GAP_BYTES   (64 * KiB)
#define FOLIO_BYTES (2 * MiB) /* the largest */

static void pages_let_go(struct uns_backing *b, uint32_t file, uint64_t at, uint64_t end)
{
	struct uns_fd_slot *slot = &b->slot[file];

	if (uns_fds_pin(&b->engine->fds, slot, &b->cat->files[file], NULL) < 0)
		return;
	posix_fadvise(slot->fd, (off_t)at, (off_t)(end - at), POSIX_FADV_DONTNEED);
	uns_fds_unpin(&b->engine->fds, slot);
}

static uint64_t folios_of(const struct uns_backing *b, uint32_t file)
{
	return b->cat->files[file].stat.id.size / FOLIO_BYTES + 1;
}

/* Remember the folios that lie in [at, end). */
static void mark_gone(struct uns_backing *b, uint32_t file, uint64_t at, uint64_t end)
{
	struct uns_behind *behind = &b->behind[file];
	uint64_t i = (at + FOLIO_BYTES - 1) / FOLIO_BYTES, size = b->cat->files[file].stat.id.size;

	if (!behind->gone)
		behind->gone = calloc(folios_of(b, file) / 64 + 1, sizeof(*behind->gone));
	for (; behind->gone && uns_u64_min((i + 1) * FOLIO_BYTES, size) <= end && i < folios_of(b, file); i++)
		behind->gone[i / 64] |= UINT64_C(1) << i % 64;
}

/* With what lies before a file's first piece, and behind its last. */
static struct uns_stretch with_margins(const struct uns_backing *b, uint32_t file, struct uns_stretch s)
{
	const uint64_t size = b->cat->files[file].stat.id.size;

	if (s.at <= GAP_BYTES)
		s.at = 0;
	if (s.end + GAP_BYTES >= size)
		s.end = size;
	return s;
}

static struct uns_stretch stretch_take(struct uns_behind *behind, unsigned i)
{
	struct uns_stretch s = behind->stretch[i];

	for (behind->n--; i < behind->n; i++)
		behind->stretch[i] = behind->stretch[i + 1];
	return s;
}

/* Room is there. */
static void stretch_put_first(struct uns_behind *behind, struct uns_stretch s)
{
	unsigned i;

	for (i = behind->n++; i > 0; i--)
		behind->stretch[i] = behind->stretch[i - 1];
	behind->stretch[0] = s;
}

/* Put [at, end) to what it touches. */
static struct uns_stretch stretch_join(struct uns_behind *behind, uint64_t at, uint64_t end)
{
	struct uns_stretch s = { at, end, end - at }, other;
	unsigned i = 0;

	while (i < behind->n) {
		if (s.at > behind->stretch[i].end + GAP_BYTES || behind->stretch[i].at > s.end + GAP_BYTES) {
			i++;
			continue;
		}
		other = stretch_take(behind, i);
		s.at = uns_u64_min(s.at, other.at);
		s.end = uns_u64_max(s.end, other.end);
		s.fresh_bytes += other.fresh_bytes;
		i = 0; /* it is longer now, and may touch more */
	}
	return s;
}

/* Bytes [at, end) were read. Returns the stretch whose pages go now; an empty one for none. */
static struct uns_stretch stretch_add(struct uns_behind *behind, uint64_t at, uint64_t end)
{
	struct uns_stretch s = stretch_join(behind, at, end), gone = { 0 };
	const uint64_t len = uns_u64_min(s.end - s.at, FOLIO_BYTES); /* less where the same was read again */

	/* Once its pages have gone only its ends are of use, where a folio may belong to a neighbour too. */
	if (s.fresh_bytes >= STEP_BYTES) {
		while (behind->n + 2 > UNS_STRETCHES) /* the oldest is forgotten: its pages stay */
			stretch_take(behind, behind->n - 1);
		stretch_put_first(behind, (struct uns_stretch){ s.at, s.at + len, 0 });
		stretch_put_first(behind, (struct uns_stretch){ s.end - len, s.end, 0 });
		return s;
	}
	if (behind->n == UNS_STRETCHES)
		gone = stretch_take(behind, behind->n - 1);
	stretch_put_first(behind, s);
	return gone;
}

/* Bytes [first, end) of a piece's elements. */
static void read_of_piece(void *ctx, const struct uns_piece *piece, uint64_t first, uint64_t end)
{
	struct uns_backing *b = ctx;
	struct uns_location where = { .dense = true, .data_bytes = piece->offset_bytes };
	struct uns_stretch gone = { 0 };

	if (piece->container != UNS_RAW && !uns_location_known(b, piece, &where))
		return;
	if (uns_piece_is_strided(piece) || !uns_reads_in_place(piece, &where))
		return; /* it was not read as it lies there */
	pthread_mutex_lock(&b->behind_lock);
	if (!b->behind)
		b->behind = calloc(b->cat->n_files + 1, sizeof(*b->behind));
	if (b->behind)
		gone = stretch_add(&b->behind[piece->file], where.data_bytes + first, where.data_bytes + end);
	if (gone.fresh_bytes) {
		gone = with_margins(b, piece->file, gone);
		mark_gone(b, piece->file, gone.at, gone.end);
	}
	pthread_mutex_unlock(&b->behind_lock);
	if (gone.fresh_bytes)
		pages_let_go(b, piece->file, gone.at, gone.end);
}

void uns_behind_read(struct uns_backing *b, const struct uns_layout *layout, uint64_t at, size_t len)
{
	const uint64_t end = uns_u64_min(at + len, layout->size_bytes);

	if (at < end)
		uns_pieces_extents(b, layout, at, end, read_of_piece, b);
}

static bool is_set(const uint64_t *bits, uint64_t i)
{
	return bits[i / 64] >> i % 64 & 1;
}

static void pages_let_go_again(struct uns_backing *b, uint32_t file, const uint64_t *gone)
{
	const uint64_t n = folios_of(b, file), size = b->cat->files[file].stat.id.size;
	uint64_t i, first;

	for (i = 0; i < n; i++) {
		if (!is_set(gone, i))
			continue;
		for (first = i; i < n && is_set(gone, i);)
			i++;
		pages_let_go(b, file, first * FOLIO_BYTES, uns_u64_min(i * FOLIO_BYTES, size));
	}
}

/* What is known of a file so far; from here on nothing is. */
static struct uns_behind behind_take(struct uns_backing *b, uint32_t file)
{
	struct uns_behind all = { .n = 0 };

	pthread_mutex_lock(&b->behind_lock);
	if (b->behind) {
		all = b->behind[file];
		b->behind[file] = (struct uns_behind){ .n = 0 };
	}
	pthread_mutex_unlock(&b->behind_lock);
	return all;
}

void uns_behind_end(struct uns_backing *b)
{
	struct uns_behind all;
	struct uns_stretch s;
	uint32_t file;
	unsigned i;

	for (file = 0; file < b->cat->n_files; file++) {
		all = behind_take(b, file);
		if (all.gone)
			pages_let_go_again(b, file, all.gone);
		free(all.gone);
		for (i = 0; i < all.n; i++) {
			s = with_margins(b, file, all.stretch[i]);
			if (s.fresh_bytes)
				pages_let_go(b, file, s.at, s.end);
		}
	}
}
