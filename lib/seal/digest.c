#include "seal/digest.h"

#include <stdlib.h>
#include <zlib.h>

#include "base/checked.h"
#include "base/cleanup.h"

enum { BLOCK_BYTES = 1 << 20 };

/* -- the sample -- */

int uns_seal_sample(int fd, const char *path, uint64_t size, uint64_t *out, struct uns_err *err)
{
	const uint64_t whole = (uint64_t)UNS_SEAL_SAMPLES * UNS_SEAL_SAMPLE_BYTES;
	uint8_t block[UNS_SEAL_SAMPLE_BYTES], hash[UNS_SHA256_BYTES];
	struct uns_sha256 h;
	uint64_t i, at;
	size_t n;

	uns_sha256_init(&h);
	for (i = 0; i < UNS_SEAL_SAMPLES; i++) {
		at = size <= whole ? i * UNS_SEAL_SAMPLE_BYTES
				   : (size - UNS_SEAL_SAMPLE_BYTES) / (UNS_SEAL_SAMPLES - 1) * i;
		if (size > whole && i == UNS_SEAL_SAMPLES - 1)
			at = size - UNS_SEAL_SAMPLE_BYTES;
		if (at >= size)
			break;
		n = (size_t)uns_u64_min(sizeof(block), size - at);
		UNS_TRY(uns_fd_pread(fd, block, n, at, path, err));
		uns_sha256_add(&h, block, n);
	}
	uns_sha256_end(&h, hash);
	*out = uns_le(hash, 8);
	return 0;
}

/* -- all of it -- */

struct reading {
	struct uns_seal_file *f;
	struct uns_seal_piece **open; /* pieces of which a part was read */
	size_t n_open, next;
};

static bool same_bytes(const struct uns_seal_piece *a, const struct uns_seal_piece *b)
{
	return a->offset_bytes == b->offset_bytes && a->length_bytes == b->length_bytes;
}

/* Adds what is at [at, at + len) of the file to the pieces that lie there. */
static void add_to_pieces(struct reading *r, const uint8_t *bytes, uint64_t at, size_t len)
{
	struct uns_seal_file *f = r->f;
	uint64_t from, to, end;
	size_t i, n = 0;

	for (; r->next < f->n_pieces && f->piece[r->next].offset_bytes < at + len; r->next++) {
		f->piece[r->next].crc = 0;
		/* Tied tensors: the checksum of the first is copied at the end. */
		if (!r->next || !same_bytes(&f->piece[r->next], &f->piece[r->next - 1]))
			r->open[r->n_open++] = &f->piece[r->next];
	}
	for (i = 0; i < r->n_open; i++) {
		end = r->open[i]->offset_bytes + r->open[i]->length_bytes;
		from = uns_u64_max(r->open[i]->offset_bytes, at);
		to = uns_u64_min(end, at + len);
		if (from < to)
			r->open[i]->crc = (uint32_t)crc32_z(r->open[i]->crc, bytes + (from - at), (size_t)(to - from));
		if (end > at + len)
			r->open[n++] = r->open[i];
	}
	r->n_open = n;
}

int uns_seal_read(int fd, const char *path, struct uns_seal_file *f, const struct uns_seal_watch *watch,
		  struct uns_err *err)
{
	struct reading r = { .f = f };
	UNS_CLEANUP(uns_free_p) uint8_t *block = malloc(BLOCK_BYTES);
	UNS_CLEANUP(uns_free_p) void *list = r.open = calloc(f->n_pieces + 1, sizeof(*r.open));
	struct uns_sha256 h;
	uint64_t at;
	size_t i, n;

	UNS_TRY_ALLOC(block && list, err);
	uns_sha256_init(&h);
	for (at = 0; at < f->size_bytes; at += n) {
		n = (size_t)uns_u64_min(BLOCK_BYTES, f->size_bytes - at);
		UNS_TRY(uns_fd_pread(fd, block, n, at, path, err));
		uns_sha256_add(&h, block, n);
		add_to_pieces(&r, block, at, n);
		if (watch && watch->step)
			UNS_TRY(watch->step(watch->ctx, n, err));
	}
	uns_sha256_end(&h, f->sha256);
	for (i = 0; i < f->n_pieces; i++)
		if (i && same_bytes(&f->piece[i], &f->piece[i - 1]))
			f->piece[i].crc = f->piece[i - 1].crc;
	return uns_seal_sample(fd, path, f->size_bytes, &f->sample, err);
}
