#include "store/packed.h"

#include <stdlib.h>
#include <zstd.h>

enum { LEVEL = 3 };

int store_unpack(const struct uns_store *store, struct uns_span packed, const char *what, struct uns_arena *arena,
		 struct uns_span *out, struct uns_err *err)
{
	unsigned long long size = ZSTD_getFrameContentSize(packed.p, uns_span_left(&packed));
	size_t got;
	char *bytes;

	if (size > STORE_PACKED_MAX_BYTES) /* or one of zstd's error values, which are larger */
		return uns_fail(err, -EBADMSG, "metadata store %s: %s is damaged", store->path, what);
	UNS_TRY_ALLOC(bytes = uns_arena_alloc(arena, (size_t)size + 1, 1), err);
	got = ZSTD_decompress(bytes, (size_t)size, packed.p, uns_span_left(&packed));
	if (ZSTD_isError(got) || got != size)
		return uns_fail(err, -EBADMSG, "metadata store %s: %s is damaged", store->path, what);
	*out = uns_span_of(bytes, (size_t)size);
	return 0;
}

int store_pack(const void *bytes, size_t len, char **out, size_t *n, struct uns_err *err)
{
	size_t cap = ZSTD_compressBound(len);
	ZSTD_CCtx *ctx = ZSTD_createCCtx();

	*out = malloc(cap);
	if (!ctx || !*out) {
		ZSTD_freeCCtx(ctx);
		return uns_oom(err);
	}
	ZSTD_CCtx_setParameter(ctx, ZSTD_c_compressionLevel, LEVEL);
	ZSTD_CCtx_setParameter(ctx, ZSTD_c_checksumFlag, 1);
	*n = ZSTD_compress2(ctx, *out, cap, bytes, len);
	ZSTD_freeCCtx(ctx);
	return ZSTD_isError(*n) ? uns_fail(err, -ENOMEM, "zstd: %s", ZSTD_getErrorName(*n)) : 0;
}
