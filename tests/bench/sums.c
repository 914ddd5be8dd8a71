/* How fast elements of computed tensors are made by one processor, without storage and without a mount: all is in
 * memory, and asked for in requests of 1 MiB. Processor time, the best of PASSES. Prints a table in Markdown. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/backing.h"
#include "engine/cast.h"
#include "engine/sum.h"

enum { PASSES = 7, ELEMENTS = 4 << 20, MOST_TERMS = 8, REQUEST = 1 << 20 };

static const struct uns_tensor *tensors;
static uint8_t *bytes[MOST_TERMS];

static double uniform(void)
{
	static uint64_t seed = 35;

	seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (double)(seed >> 11) * 0x1p-52 - 1;
}

/* Nearly normal. */
static void tensor_make(struct uns_tensor *t, size_t i, enum uns_dtype dtype, size_t n, double deviation)
{
	const size_t size = uns_dtype_size(dtype);
	size_t j;
	float x;

	t[i] = (struct uns_tensor){ .dtype = dtype, .n_pieces = 1 };
	bytes[i] = malloc(n * size);
	if (!bytes[i])
		exit(1);
	for (j = 0; j < n; j++) {
		x = (float)((uniform() + uniform() + uniform() + uniform()) * deviation * sqrt(0.75));
		uns_cast(UNS_F32, &x, dtype, bytes[i] + j * size, 1);
	}
}

static int read_bytes(void *ctx, const struct uns_tensor *t, uint8_t *dst, uint64_t at, size_t len, struct uns_err *err)
{
	(void)ctx;
	(void)err;
	memcpy(dst, bytes[t - tensors] + at, len);
	return 0;
}

static int check_bytes(void *ctx, const struct uns_tensor *t, uint64_t at, size_t len, struct uns_err *err)
{
	(void)ctx;
	(void)t;
	(void)at;
	(void)len;
	(void)err;
	return 0;
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* MB/s of the result, bf16, of a sum of the first n tensors. */
static double measure(struct uns_tensor *t, size_t n, const struct uns_sum *sum)
{
	const struct uns_tensor made = { .dtype = UNS_BF16, .sum = sum };
	const struct uns_catalog cat = { .tensors = t, .n_tensors = n };
	const struct uns_cache_limits limits = { 64 << 20, 0, 0 };
	static uint8_t out[REQUEST];
	struct uns_engine engine = { 0 };
	struct uns_backing b = { .engine = &engine };
	const struct uns_sum_reader reader = { .read = read_bytes, .check = check_bytes, .b = &b };
	const size_t all = (size_t)ELEMENTS * 2;
	struct uns_err err = { 0 };
	double began, took, best = INFINITY;
	size_t i, at;

	tensors = t;
	if (uns_cache_new(&limits, NULL, &engine.count, NULL, &engine.cache, &err) < 0)
		exit(1);
	for (i = 0; i < PASSES; i++) {
		began = seconds();
		for (at = 0; at < all; at += REQUEST)
			if (uns_sum_bytes(&cat, &made, &reader, out, at, REQUEST, &err) < 0)
				exit(1);
		took = seconds() - began;
		best = took < best ? took : best;
	}
	uns_cache_free(engine.cache);
	for (i = 0; i < n; i++)
		free(bytes[i]);
	return (double)all / best / 1e6;
}

/* What is added is a hundredth of the weights' size. */
static void adapter_measure(size_t rank, enum uns_dtype dtype, size_t columns)
{
	const size_t rows = (ELEMENTS + columns - 1) / columns;
	struct uns_tensor t[3];
	const struct uns_term terms[] = {
		{ .times = 1, .left = { &t[0], UNS_BF16, 0 } },
		{ .times = 1, .left = { &t[1], dtype, 0 }, .right = { &t[2], dtype, 0 }, .inner = rank },
	};
	const struct uns_sum sum = { .term = terms, .n = 2, .columns = columns, .divisor = 1 };

	tensor_make(t, 0, UNS_BF16, rows * columns, 0.02);
	tensor_make(t, 1, dtype, rows * rank, 0.01);
	tensor_make(t, 2, dtype, columns * rank, 0.02 / sqrt((double)rank));
	printf("| `merged`, rank %zu, %s, %zu columns | %.0f MB/s |\n", rank, dtype == UNS_BF16 ? "bf16" : "fp32",
	       columns, measure(t, 3, &sum));
}

static void mean_measure(size_t n)
{
	struct uns_tensor t[MOST_TERMS];
	struct uns_term terms[MOST_TERMS] = { 0 };
	const struct uns_sum sum = { .term = terms, .n = n, .columns = 4096, .divisor = (double)n };
	size_t i;

	for (i = 0; i < n; i++) {
		tensor_make(t, i, UNS_BF16, ELEMENTS, 0.02);
		terms[i].times = 1;
		terms[i].left = (struct uns_factor){ &t[i], UNS_BF16, 0 };
	}
	printf("| `mean-%zu`, bf16 | %.0f MB/s |\n", n, measure(t, n, &sum));
}

int main(void)
{
	static const size_t ranks[] = { 16, 64, 256 };
	size_t i;

	printf("| computed by one processor, from memory | of the result |\n|---|---:|\n");
	for (i = 0; i < 3; i++)
		adapter_measure(ranks[i], UNS_BF16, 4096);
	adapter_measure(256, UNS_BF16, 14336);
	for (i = 0; i < 3; i++)
		adapter_measure(ranks[i], UNS_F32, 4096);
	adapter_measure(256, UNS_F32, 14336);
	mean_measure(3);
	mean_measure(8);
	return 0;
}
