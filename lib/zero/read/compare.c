/* Decodes a few elements of both tensors, and computes to which values a master may have been rounded. */
#include "zero/read/compare.h"

#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"

enum { SAMPLE_ELEMS = 256 };

static double value_of(const uint8_t *p, enum uns_dtype dtype)
{
	uint32_t bits = dtype == UNS_F32    ? (uint32_t)uns_le(p, 4)
			: dtype == UNS_BF16 ? (uint32_t)uns_le(p, 2) << 16
					    : 0;
	uint32_t half = (uint32_t)uns_le(p, 2), exponent = half >> 10 & 31;
	double fraction = (half & 1023) / 1024.0;
	float f;

	if (dtype == UNS_F16 && exponent < 31) {
		fraction = exponent ? ldexp(1 + fraction, (int)exponent - 15) : ldexp(fraction, -14);
		return half >> 15 ? -fraction : fraction;
	}
	memcpy(&f, &bits, sizeof(f));
	return dtype == UNS_F16 ? NAN : (double)f;
}

/* The value is one that the fp32 value may have been rounded to. */
static bool may_be_rounded(double exact, double rounded, enum uns_dtype dtype)
{
	int exponent, bits = dtype == UNS_BF16 ? 8 : 11, least = dtype == UNS_BF16 ? -133 : -24;

	if (isnan(exact) || isnan(rounded))
		return isnan(exact) && isnan(rounded);
	if (dtype == UNS_F32)
		return exact == rounded;
	frexp(rounded, &exponent);
	exponent = exponent - bits > least ? exponent - bits : least;
	return fabs(exact - rounded) <= ldexp(0.5, exponent);
}

int uns_zero_may_be_copy(const struct uns_zero_sample *exact, const struct uns_zero_sample *rounded,
			 enum uns_dtype dtype, uint64_t elems, bool *out, struct uns_err *err)
{
	uint64_t n = uns_u64_min(SAMPLE_ELEMS, elems), i;
	size_t size = uns_dtype_size(dtype);
	uint8_t a[SAMPLE_ELEMS * 4], b[SAMPLE_ELEMS * 4];

	*out = false;
	if (exact->piece->stride_elems || rounded->piece->stride_elems || size > 4)
		return 0;
	UNS_TRY(uns_reader_pread(exact->reader, a, n * 4, exact->piece->offset_bytes, err));
	UNS_TRY(uns_reader_pread(rounded->reader, b, n * size, rounded->piece->offset_bytes, err));
	for (i = 0; i < n; i++)
		if (!may_be_rounded(value_of(a + 4 * i, UNS_F32), value_of(b + size * i, dtype), dtype))
			return 0;
	*out = true;
	return 0;
}

int uns_zero_may_be_copy_of(const struct uns_catalog *cat, const struct uns_piece *exact,
			    const struct uns_zero_sample *rounded, enum uns_dtype dtype, uint64_t elems, bool *out,
			    struct uns_err *err)
{
	const struct uns_file *f = &cat->files[exact->file];
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_open_file open = { .name = f->path };
	struct uns_reader reader;
	struct uns_stat now;

	*out = true;
	if (f->missing)
		return 0;
	UNS_TRY(uns_root_open_file(f->root, f->path, &fd, &now, err));
	if (!uns_identity_equal(&now.id, &f->stat.id))
		return uns_fail(err, -ESTALE, "%s: the file changed while it was being read", f->path);
	open.fd = fd;
	reader = uns_reader_of_file(&open, f->stat.id.size);
	return uns_zero_may_be_copy(&(struct uns_zero_sample){ &reader, exact }, rounded, dtype, elems, out, err);
}
