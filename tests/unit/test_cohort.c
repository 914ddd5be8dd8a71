/* Small things that stay lie together, and their blocks go with the last of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static atomic_int n_blocks;

static void *block_malloc(size_t size)
{
	atomic_fetch_add(&n_blocks, 1);
	return malloc(size);
}

static void block_free(void *block)
{
	atomic_fetch_sub(&n_blocks, 1);
	free(block);
}

#define malloc block_malloc
#define free   block_free
#include "../../lib/base/cohort.c"
#undef malloc
#undef free

enum { N = 1000 };

static size_t size_of(size_t i)
{
	return 1 + i * 37 % 300;
}

static void things_are_whole_and_in_few_blocks(void **state)
{
	struct uns_cohorts cohorts;
	unsigned char *thing[N];
	size_t i, j, bytes = 0;

	(void)state;
	uns_cohorts_init(&cohorts);
	for (i = 0; i < N; i++) {
		thing[i] = uns_cohorts_take(&cohorts, size_of(i));
		assert_non_null(thing[i]);
		assert_int_equal((uintptr_t)thing[i] % 8, 0);
		memset(thing[i], (int)i, size_of(i));
		bytes += size_of(i) + 16;
	}
	assert_in_range(atomic_load(&n_blocks), 1, bytes / BLOCK_BYTES + 1);
	for (i = 0; i < N; i++)
		for (j = 0; j < size_of(i); j++)
			assert_int_equal(thing[i][j], i & 255);
	for (i = 0; i < N; i++)
		uns_cohorts_give_back(thing[i]);
	assert_int_equal(atomic_load(&n_blocks), 1); /* there is room in it */
	uns_cohorts_fini(&cohorts);
	assert_int_equal(atomic_load(&n_blocks), 0);
}

/* Whoever is left over, in whatever order the others go. */
static void a_block_goes_with_its_last_thing(void **state)
{
	struct uns_cohorts cohorts;
	void *thing[N];
	size_t i;

	(void)state;
	uns_cohorts_init(&cohorts);
	for (i = 0; i < N; i++)
		thing[i] = uns_cohorts_take(&cohorts, 100);
	for (i = 0; i < N; i++)
		if (i * 7 % N != N / 2)
			uns_cohorts_give_back(thing[i * 7 % N]);
	assert_int_equal(atomic_load(&n_blocks), 2);
	uns_cohorts_fini(&cohorts);
	assert_int_equal(atomic_load(&n_blocks), 1);
	uns_cohorts_give_back(thing[N / 2]);
	assert_int_equal(atomic_load(&n_blocks), 0);
}

static void one_larger_than_a_block(void **state)
{
	struct uns_cohorts cohorts;
	void *small, *large;

	(void)state;
	uns_cohorts_init(&cohorts);
	small = uns_cohorts_take(&cohorts, 10);
	large = uns_cohorts_take(&cohorts, 3 * BLOCK_BYTES);
	memset(large, 1, 3 * BLOCK_BYTES);
	uns_cohorts_give_back(small);
	uns_cohorts_give_back(large);
	uns_cohorts_give_back(NULL);
	uns_cohorts_fini(&cohorts);
	assert_int_equal(atomic_load(&n_blocks), 0);
}

static void *take_and_give_back(void *arg)
{
	struct uns_cohorts *cohorts = arg;
	void *kept[8] = { NULL };
	size_t i;

	for (i = 0; i < 20 * N; i++) {
		uns_cohorts_give_back(kept[i % 8]);
		kept[i % 8] = uns_cohorts_take(cohorts, size_of(i));
		memset(kept[i % 8], 1, size_of(i));
	}
	for (i = 0; i < 8; i++)
		uns_cohorts_give_back(kept[i]);
	return NULL;
}

static void threads_take_at_once(void **state)
{
	struct uns_cohorts cohorts;
	pthread_t thread[4];
	size_t i;

	(void)state;
	uns_cohorts_init(&cohorts);
	for (i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, take_and_give_back, &cohorts), 0);
	for (i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	uns_cohorts_fini(&cohorts);
	assert_int_equal(atomic_load(&n_blocks), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(things_are_whole_and_in_few_blocks),
		cmocka_unit_test(a_block_goes_with_its_last_thing),
		cmocka_unit_test(one_larger_than_a_block),
		cmocka_unit_test(threads_take_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
