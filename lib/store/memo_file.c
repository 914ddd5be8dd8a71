#include "store/memo_file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/sha256.h"
#include "io/source.h"

static const char magic[8] = { 'U', 'N', 'S', 'M', 'E', 'M', 'O', '\n' };

enum { VERSION = 2, DIGEST_AT = 48, LEVEL = 3 };
#define MAX_BYTES (UINT64_C(1) << 30) /* of a file, and of what it holds */

static void digest_of(const uint8_t *head, const uint8_t *body, size_t n, uint8_t out[UNS_SHA256_BYTES])
{
	struct uns_sha256 h;

	uns_sha256_init(&h);
	uns_sha256_add(&h, head, DIGEST_AT);
	uns_sha256_add(&h, body, n);
	uns_sha256_end(&h, out);
}

/* -- reading -- */

struct head {
	uint32_t version;
	uint64_t key, n_inputs, n_catalog, n_places, n_all;
};

static bool take_head(struct uns_span in, struct head *h)
{
	uint32_t zero;

	return uns_span_skip(&in, sizeof(magic)) && uns_take_u32le(&in, &h->version) && uns_take_u32le(&in, &zero) &&
	       uns_take_u64le(&in, &h->key) && uns_take_u64le(&in, &h->n_inputs) &&
	       uns_take_u64le(&in, &h->n_catalog) && uns_take_u64le(&in, &h->n_places) && !zero &&
	       uns_u64_add(h->n_inputs, h->n_catalog, &h->n_all) && uns_u64_add(h->n_all, h->n_places, &h->n_all) &&
	       h->n_all <= MAX_BYTES;
}

static int unpack(struct uns_span body, const struct head *h, struct uns_arena *arena, struct memo_parts *out,
		  struct uns_err *err)
{
	uint8_t *bytes;
	size_t got;

	if (ZSTD_getFrameContentSize(body.p, uns_span_left(&body)) != h->n_all)
		return uns_fail(err, -EBADMSG, "its lengths do not fit each other");
	UNS_TRY_ALLOC(bytes = uns_arena_alloc(arena, (size_t)h->n_all + 1, 1), err);
	got = ZSTD_decompress(bytes, (size_t)h->n_all, body.p, uns_span_left(&body));
	if (ZSTD_isError(got) || got != h->n_all)
		return uns_fail(err, -EBADMSG, "it cannot be decompressed");
	out->inputs = uns_span_of(bytes, (size_t)h->n_inputs);
	out->catalog = uns_span_of(out->inputs.end, (size_t)h->n_catalog);
	out->places = uns_span_of(out->catalog.end, (size_t)h->n_places);
	return 0;
}

int memo_file_parse(struct uns_span bytes, uint64_t key, struct uns_arena *arena, struct memo_parts *out,
		    struct uns_err *err)
{
	const uint8_t *head = bytes.p;
	uint8_t digest[UNS_SHA256_BYTES];
	struct head h;

	if (uns_span_left(&bytes) < MEMO_FILE_HEAD_BYTES || memcmp(head, magic, sizeof(magic)) != 0)
		return uns_fail(err, -EBADMSG, "it is no memo");
	if (uns_le(head + sizeof(magic), 4) != VERSION)
		return uns_fail(err, -ENOTSUP, "it is of another version");
	if (!take_head(bytes, &h))
		return uns_fail(err, -EBADMSG, "its head is damaged");
	bytes.p += MEMO_FILE_HEAD_BYTES;
	digest_of(head, bytes.p, uns_span_left(&bytes), digest);
	if (memcmp(digest, head + DIGEST_AT, sizeof(digest)) != 0)
		return uns_fail(err, -EBADMSG, "its bytes are not those that were written");
	if (h.key != key)
		return uns_fail(err, -EEXIST, "it is another checkpoint's, under a wrong name");
	return unpack(bytes, &h, arena, out, err);
}

char *memo_file_name(const char *directory, uint64_t key, struct uns_arena *arena)
{
	return uns_arena_printf(arena, "%s/%016" PRIx64 MEMO_FILE_SUFFIX, directory, key);
}

int memo_file_read(const char *file, uint64_t key, struct uns_arena *arena, struct memo_parts *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = open(file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	UNS_CLEANUP(uns_free_p) char *bytes = NULL;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return uns_fail(err, errno == ENOTDIR ? -ENOENT : -errno, "%s", strerror(errno));
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > MAX_BYTES)
		return uns_fail(err, -EBADMSG, "it is no memo");
	UNS_TRY_ALLOC(bytes = malloc((size_t)st.st_size + 1), err);
	UNS_TRY(uns_fd_pread(fd, bytes, (size_t)st.st_size, 0, file, err));
	return memo_file_parse(uns_span_of(bytes, (size_t)st.st_size), key, arena, out, err);
}

/* -- writing -- */

static void put_le(uint8_t *to, uint64_t v, unsigned n_bytes)
{
	while (n_bytes--) {
		*to++ = (uint8_t)v;
		v >>= 8;
	}
}

/* malloc'd; the three behind each other. */
static uint8_t *join(const struct memo_parts *parts, size_t n_all)
{
	const struct uns_span *const part[] = { &parts->inputs, &parts->catalog, &parts->places };
	uint8_t *all = malloc(n_all + 1), *to = all;
	size_t i, n;

	for (i = 0; all && i < sizeof(part) / sizeof(*part); i++) {
		n = uns_span_left(part[i]);
		if (n)
			memcpy(to, part[i]->p, n);
		to += n;
	}
	return all;
}

int memo_file_emit(uint64_t key, const struct memo_parts *parts, char **out, size_t *n, struct uns_err *err)
{
	const size_t n_inputs = uns_span_left(&parts->inputs), n_catalog = uns_span_left(&parts->catalog);
	const size_t n_places = uns_span_left(&parts->places), n_all = n_inputs + n_catalog + n_places;
	UNS_CLEANUP(uns_free_p) uint8_t *all = join(parts, n_all);
	UNS_CLEANUP(uns_free_p) char *file = malloc(MEMO_FILE_HEAD_BYTES + ZSTD_compressBound(n_all));
	uint8_t *head = (uint8_t *)file;
	size_t packed;

	UNS_TRY_ALLOC(all && file, err);
	if (n_all > MAX_BYTES)
		return uns_fail(err, -EFBIG, "a memo of %zu bytes is not written", n_all);
	packed = ZSTD_compress(file + MEMO_FILE_HEAD_BYTES, ZSTD_compressBound(n_all), all, n_all, LEVEL);
	if (ZSTD_isError(packed))
		return uns_fail(err, -ENOMEM, "zstd: %s", ZSTD_getErrorName(packed));
	memcpy(head, magic, sizeof(magic));
	put_le(head + 8, VERSION, 4);
	put_le(head + 12, 0, 4);
	put_le(head + 16, key, 8);
	put_le(head + 24, n_inputs, 8);
	put_le(head + 32, n_catalog, 8);
	put_le(head + 40, n_places, 8);
	digest_of(head, head + MEMO_FILE_HEAD_BYTES, packed, head + DIGEST_AT);
	*n = MEMO_FILE_HEAD_BYTES + packed;
	*out = UNS_TAKE(file);
	return 0;
}

static int write_whole(int fd, const char *bytes, size_t n)
{
	ssize_t got;

	while (n) {
		got = write(fd, bytes, n);
		if (got < 0 && errno != EINTR)
			return -errno;
		if (got > 0) {
			bytes += got;
			n -= (size_t)got;
		}
	}
	return fchmod(fd, 0644) < 0 || fsync(fd) < 0 ? -errno : 0;
}

/* A name of its own, so that each of two nodes may write the same memo. */
int memo_file_write(const char *file, const char *bytes, size_t n, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) char *partial = NULL;
	UNS_CLEANUP(uns_close_p) int fd = -1;
	int code = 0;

	if (asprintf(&partial, "%s.XXXXXX", file) < 0) {
		partial = NULL;
		return uns_oom(err);
	}
	fd = mkostemp(partial, O_CLOEXEC);
	if (fd < 0)
		return uns_fail(err, -errno, "%s: %s", file, strerror(errno));
	code = write_whole(fd, bytes, n);
	if (code == 0 && rename(partial, file) < 0)
		code = -errno;
	if (code < 0)
		unlink(partial);
	return code < 0 ? uns_fail(err, code, "%s: %s", file, strerror(-code)) : 0;
}
