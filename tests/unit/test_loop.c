/* fs/loop.c: what is given back of the memory that a request was received into. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "../../fs/loop.c"

enum { SIZE = 1 << 20 };

static bool all_are(const unsigned char *p, size_t n, unsigned char c)
{
	while (n && *p == c)
		p++, n--;
	return n == 0;
}

/* Pages that were given back are zeros when they are read again. The request and the memory beside the buffer stay. */
static void give_back_behind(size_t n)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char *before = malloc(SIZE), *mem = malloc(SIZE), *after = malloc(SIZE);
	const struct fuse_buf buf = { .mem = mem, .size = SIZE };
	const size_t first = ((uintptr_t)mem + n + page - 1) / page * page - (uintptr_t)mem;
	const size_t end = ((uintptr_t)mem + SIZE) / page * page - (uintptr_t)mem;

	memset(before, 'b', SIZE);
	memset(mem, 'm', SIZE);
	memset(after, 'a', SIZE);
	give_pages_back(&buf, n);
	if (first < end) {
		assert_true(all_are(mem, first, 'm'));
		assert_true(all_are(mem + first, end - first, 0));
	} else
		assert_true(all_are(mem, n, 'm'));
	assert_true(all_are(before, SIZE, 'b'));
	assert_true(all_are(after, SIZE, 'a'));
	free(before);
	free(mem);
	free(after);
}

static void pages_behind_a_request_are_given_back(void **state)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const size_t n[] = { 1, 40, page - 1, page, page + 1, SIZE - page, SIZE - 1, SIZE };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(n) / sizeof(*n); i++)
		give_back_behind(n[i]);
}

/* Where the three lie side by side, as memory that was in use before does. */
static void so_are_those_of_the_heap(void **state)
{
	(void)state;
	mallopt(M_MMAP_THRESHOLD, 8 * SIZE); /* a sanitizer's heap has no such threshold */
	pages_behind_a_request_are_given_back(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_behind_a_request_are_given_back),
		cmocka_unit_test(so_are_those_of_the_heap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
