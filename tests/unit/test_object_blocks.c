/* Blocks of objects: each byte is fetched once, in requests of a block; a failure is everybody's and not kept; what is
 * kept has a bound. The store is a function whose bytes follow from their place, and which waits if it is held. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "io/object_blocks.h"

enum {
	MiB = 1 << 20,
	PIECE = UNS_BLOCK_PIECE_BYTES,
	BLOCK = UNS_BLOCK_BYTES,
	READERS = 6,
	CALLS = 4096,
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned n, n_waiting, most_waiting, released;
	struct {
		uint64_t off;
		size_t len;
	} call[CALLS];
	unsigned held; /* requests wait until so many do */
	int fails;     /* with this code */
} store = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static uint8_t multiples[512]; /* of 31, as bytes */

static uint8_t byte_at(uint64_t off)
{
	return (uint8_t)(off * 31 + (off >> 8) * 7 + (off >> 18));
}

/* ThreadSanitizer has shadow memory of what is filled and compared, whose pages take seconds: it sees the beginning of
 * each page. */
enum {
	PAGE = 4096,
#ifdef __SANITIZE_THREAD__
	FILLED = 256 /* of a page */
#else
	FILLED = PAGE
#endif
};

static bool is_filled(uint64_t off)
{
	return off % PAGE < FILLED;
}

/* Up to the next multiple of 256 the bytes are those of multiples of 31, which are copied and compared at once: a
 * sanitizer looks at each access. */
static const uint8_t *bytes_at(uint64_t off, size_t *len)
{
	enum { INVERSE = 223 }; /* of 31 in a byte */

	if (*len > 256 - off % 256)
		*len = 256 - off % 256;
	return multiples + (uint8_t)(byte_at(off) * INVERSE);
}

static void fill(uint8_t *to, size_t len, uint64_t off)
{
	size_t i, n;

	for (i = 0; i < len; i += n) {
		const uint8_t *from;

		n = len - i;
		from = bytes_at(off + i, &n);
		if (is_filled(off + i))
			memcpy(to + i, from, n);
	}
}

static int fetch(void *ctx, const char *key, const char *etag, const struct iovec *into, size_t n_into, uint64_t off,
		 struct uns_err *err)
{
	size_t i, len = 0;
	int code;

	for (i = 0; i < n_into; i++)
		len += into[i].iov_len;
	(void)ctx;
	assert_string_equal(key, "a/key");
	assert_string_equal(etag, "an-etag");
	pthread_mutex_lock(&store.lock);
	assert_true(store.n < CALLS);
	store.call[store.n].off = off;
	store.call[store.n++].len = len;
	store.n_waiting++;
	if (store.n_waiting > store.most_waiting)
		store.most_waiting = store.n_waiting;
	pthread_cond_broadcast(&store.changed);
	while (store.held && store.most_waiting < store.held)
		pthread_cond_wait(&store.changed, &store.lock);
	store.n_waiting--;
	code = store.fails;
	pthread_mutex_unlock(&store.lock);
	for (i = 0; i < n_into; i++) {
		fill(into[i].iov_base, into[i].iov_len, off);
		off += into[i].iov_len;
	}
	return code ? uns_fail(err, code, "the store has failed") : 0;
}

static void release(void *ctx)
{
	(void)ctx;
	pthread_mutex_lock(&store.lock);
	store.released++;
	pthread_cond_broadcast(&store.changed);
	pthread_mutex_unlock(&store.lock);
}

static struct uns_blocks *open_blocks(uint64_t size, struct uns_block_object **object)
{
	const struct uns_block_store from = { fetch, release, NULL };
	struct uns_blocks *blocks;

	store.n = store.n_waiting = store.most_waiting = store.released = store.held = 0;
	store.fails = 0;
	assert_int_equal(uns_blocks_new(&from, &blocks, NULL), 0);
	assert_int_equal(uns_blocks_open(blocks, "a/key", "an-etag", size, object, NULL), 0);
	return blocks;
}

/* Requests that are under way for more than a second end after uns_blocks_free, on a busy machine. */
static void close_blocks(struct uns_blocks *blocks, struct uns_block_object *object)
{
	uns_blocks_close(object);
	uns_blocks_free(blocks);
	pthread_mutex_lock(&store.lock);
	while (!store.released)
		pthread_cond_wait(&store.changed, &store.lock);
	pthread_mutex_unlock(&store.lock);
	assert_int_equal(store.released, 1);
}

static int read_into(uint8_t *bytes, struct uns_block_object *object, uint64_t off, size_t len, struct uns_err *err)
{
	const int code = uns_blocks_read(object, bytes, len, off, err);
	bool wrong = false;
	size_t i, n;

	for (i = 0; i < len && code == 0; i += n) {
		const uint8_t *want;

		n = len - i;
		want = bytes_at(off + i, &n);
		wrong |= is_filled(off + i) && memcmp(bytes + i, want, n) != 0;
	}
	assert_false(wrong);
	return code;
}

/* Of the main thread, into memory that ends where what is read ends: AddressSanitizer sees what is written behind it.
 * New memory for each read would be new pages. */
static int read_at(struct uns_block_object *object, uint64_t off, size_t len, struct uns_err *err)
{
	static uint8_t memory[BLOCK];

	assert_in_range(len, 0, sizeof(memory));
	return read_into(memory + sizeof(memory) - len, object, off, len, err);
}

static uint64_t fetched(void)
{
	uint64_t sum = 0;
	unsigned i;

	for (i = 0; i < store.n; i++)
		sum += store.call[i].len;
	return sum;
}

static void front_to_back_each_byte_once_in_requests_of_a_block(void **state)
{
	const uint64_t size = 20 * (uint64_t)BLOCK + 12345, step = MiB;
	struct uns_block_object *object;
	struct uns_blocks *blocks = open_blocks(size, &object);
	uint64_t at;

	(void)state;
	for (at = 0; at < size; at += step)
		assert_int_equal(read_at(object, at, (size_t)(size - at < step ? size - at : step), NULL), 0);
	close_blocks(blocks, object);
	assert_int_equal(fetched(), size);
	assert_int_equal(store.n, 22); /* the first block's first read is one of its own */
}

static void reads_far_apart_fetch_their_pieces_alone(void **state)
{
	const uint64_t size = 40 * (uint64_t)BLOCK;
	struct uns_block_object *object;
	struct uns_blocks *blocks = open_blocks(size, &object);
	unsigned i;

	(void)state;
	for (i = 0; i < 40; i++) {
		assert_int_equal(read_at(object, i * (uint64_t)BLOCK + BLOCK / 2, 1000, NULL), 0);
		assert_int_equal(read_at(object, i * (uint64_t)BLOCK + BLOCK / 2 + 2000, 1000, NULL), 0);
	}
	close_blocks(blocks, object);
	assert_int_equal(store.n, 40);
	assert_int_equal(fetched(), 40 * PIECE);
}

/* So many bytes, and nothing is under way. */
static void wait_until_fetched(uint64_t bytes)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	bool done = false;

	for (; !done; nanosleep(&pause, NULL)) {
		pthread_mutex_lock(&store.lock);
		done = store.n_waiting == 0 && fetched() >= bytes;
		pthread_mutex_unlock(&store.lock);
	}
}

static void one_reader_has_several_requests_under_way(void **state)
{
	const uint64_t size = 24 * (uint64_t)BLOCK;
	struct uns_block_object *object;
	struct uns_blocks *blocks = open_blocks(size, &object);
	uint64_t at;

	(void)state;
	for (at = 0; at < 8 * (uint64_t)BLOCK; at += MiB)
		assert_int_equal(read_at(object, at, MiB, NULL), 0);
	wait_until_fetched(16 * (uint64_t)BLOCK); /* as far ahead as it goes: else the reader waits for one of few */
	pthread_mutex_lock(&store.lock);
	store.most_waiting = 0;
	store.held = 4; /* fewer would wait for ever */
	pthread_mutex_unlock(&store.lock);
	for (; at < size; at += MiB)
		assert_int_equal(read_at(object, at, MiB, NULL), 0);
	assert_true(store.most_waiting >= 4);
	close_blocks(blocks, object);
	assert_int_equal(fetched(), size);
}

/* A view's order: a shard's second half first. The piece between the halves, of which both have a part, stays until the
 * other half was read, too. */
static void what_is_foreseen_is_fetched_once_by_many_at_once(void **state)
{
	enum { TENSORS = 12, TENSOR = 20 * MiB, UNDER_WAY = 12 };
	const uint64_t begin = 1000, size = begin + TENSORS * (uint64_t)TENSOR + 9 * (uint64_t)BLOCK;
	struct uns_block_object *object;
	struct uns_blocks *blocks = open_blocks(size, &object);
	uint64_t at;
	unsigned i;

	(void)state;
	for (i = 0; i < TENSORS; i += 6) {
		const unsigned first = TENSORS / 2 - i;

		pthread_mutex_lock(&store.lock);
		store.most_waiting = 0;
		store.held = UNDER_WAY; /* fewer would wait for ever */
		pthread_mutex_unlock(&store.lock);
		uns_blocks_will_read(object, begin + first * (uint64_t)TENSOR, begin + (first + 6) * (uint64_t)TENSOR);
		for (at = 0; at < 6 * (uint64_t)TENSOR; at += MiB)
			assert_int_equal(read_at(object, begin + first * (uint64_t)TENSOR + at, MiB, NULL), 0);
		assert_true(store.most_waiting >= UNDER_WAY);
	}
	close_blocks(blocks, object);
	assert_true(fetched() <= TENSORS * (uint64_t)TENSOR + PIECE);
	assert_true(store.n <= 2 * (6 * TENSOR / BLOCK + 2));
}

static void what_is_foreseen_beyond_the_end_or_without_room_is_left(void **state)
{
	const uint64_t size = UNS_BLOCKS_BYTES + 40 * (uint64_t)BLOCK + 1;
	struct uns_block_object *object;
	struct uns_blocks *blocks = open_blocks(size, &object);

	(void)state;
	uns_blocks_will_read(object, size, size + MiB);
	uns_blocks_will_read(object, size + MiB, size);
	uns_blocks_will_read(object, 0, UINT64_MAX);
	assert_int_equal(read_at(object, size - 1, 1, NULL), 0);
	assert_int_equal(read_at(object, 0, 1000, NULL), 0);
	close_blocks(blocks, object);
	assert_true(fetched() <= size + BLOCK);
}

static void *read_piece(void *arg)
{
	struct uns_err *err = malloc(sizeof(*err));
	uint8_t bytes[1000];

	assert_non_null(err);
	*err = (struct uns_err){ 0 };
	read_into(bytes, arg, 5 * (uint64_t)MiB, sizeof(bytes), err);
	return err;
}

/* Readers of the same piece; returns how many failed, with the store's sentence. */
static unsigned read_together(struct uns_block_object *object)
{
	pthread_t thread[READERS];
	struct uns_err *err;
	unsigned i, failed = 0;

	for (i = 0; i < READERS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, read_piece, object), 0);
	for (i = 0; i < READERS; i++) {
		void *got;

		pthread_join(thread[i], &got);
		err = got;
		if (err->code) {
			assert_string_equal(err->text, "the store has failed");
			failed++;
		}
		free(err);
	}
	return failed;
}

static void threads_that_want_the_same_share_one_request(void **state)
{
	struct uns_block_object *object;
	struct uns_blocks *blocks = open_blocks(2 * (uint64_t)BLOCK, &object);

	(void)state;
	assert_int_equal(read_together(object), 0);
	assert_int_equal(store.n, 1);
	close_blocks(blocks, object);
}

static void a_failure_is_not_kept(void **state)
{
	struct uns_block_object *object;
	struct uns_blocks *blocks = open_blocks(2 * (uint64_t)BLOCK, &object);

	(void)state;
	store.fails = -EIO;
	assert_int_equal(read_together(object), READERS);
	store.fails = 0;
	assert_int_equal(read_together(object), 0);
	close_blocks(blocks, object);
}

static void no_block_of_a_replaced_object_is_used(void **state)
{
	struct uns_block_object *object, *again;
	struct uns_blocks *blocks = open_blocks(2 * (uint64_t)BLOCK, &object);

	(void)state;
	assert_int_equal(read_at(object, 0, 1000, NULL), 0);
	store.fails = -ESTALE;
	assert_int_equal(read_at(object, 0, 1000, NULL), 0); /* not noticed yet */
	assert_int_equal(read_at(object, BLOCK, 1000, NULL), -ESTALE);
	assert_int_equal(read_at(object, 0, 1000, NULL), -ESTALE);
	assert_int_equal(uns_blocks_open(blocks, "a/key", "an-etag", 2 * (uint64_t)BLOCK, &again, NULL), 0);
	assert_int_equal(read_at(again, 0, 1000, NULL), -ESTALE);
	uns_blocks_close(again);
	close_blocks(blocks, object);
}

static void blocks_outlive_a_close_and_have_a_bound(void **state)
{
	const uint64_t size = UNS_BLOCKS_BYTES + 8 * (uint64_t)BLOCK;
	struct uns_block_object *object, *again;
	struct uns_blocks *blocks = open_blocks(size, &object);
	uint64_t at;
	unsigned n;

	(void)state;
#ifdef __SANITIZE_THREAD__ /* as above; one thread reads */
	if (!getenv("UNSHARD_LONG"))
		return;
#endif
	for (at = 0; at < size; at += 4 * MiB)
		assert_int_equal(read_at(object, at, 4 * MiB, NULL), 0);
	assert_int_equal(uns_blocks_open(blocks, "a/key", "an-etag", size, &again, NULL), 0);
	uns_blocks_close(object);
	n = store.n;
	assert_int_equal(read_at(again, size - MiB, MiB, NULL), 0);
	assert_int_equal(store.n, n);
	assert_int_equal(read_at(again, 0, MiB, NULL), 0); /* made room */
	assert_true(store.n > n);
	close_blocks(blocks, again);
}

/* The size of mappings that this process alone has. */
static size_t own_bytes(void)
{
	unsigned long long sum = 0, kb;
	char line[256];
	FILE *maps = fopen("/proc/self/smaps_rollup", "r");

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "Private_Dirty: %llu", &kb) == 1)
			sum += kb * 1024;
	fclose(maps);
	return (size_t)sum;
}

static void what_rests_gives_its_memory_back(void **state)
{
	enum { BLOCKS = 8 };
	const uint64_t size = BLOCKS * (uint64_t)BLOCK;
	struct uns_block_object *object;
	struct uns_blocks *blocks = open_blocks(size, &object);
	size_t full, i;

	(void)state;
	for (i = BLOCKS; i-- > 0;) /* the last one first: no thread looks ahead and has one when the others rest */
		assert_int_equal(read_at(object, i * BLOCK, BLOCK, NULL), 0);
	full = own_bytes();
	uns_blocks_rest(blocks);
	assert_true(own_bytes() < full - size / 2);
	assert_int_equal(read_at(object, 0, PIECE, NULL), 0);
	assert_int_equal(fetched(), size + PIECE);
	close_blocks(blocks, object);
}

/* Objects of other sizes are others. One reader is faster than the next. */
static void read_eight_files_at_once(bool foreseen)
{
#ifdef __SANITIZE_THREAD__ /* whose shadow of so much memory takes seconds */
	const uint64_t size = 2 * (uint64_t)BLOCK, window = 24 * MiB;
#else
	const uint64_t size = 6 * (uint64_t)BLOCK, window = 24 * MiB;
#endif
	struct uns_block_object *object[8];
	struct uns_blocks *blocks = open_blocks(size, &object[0]);
	uint64_t at[8] = { 0 }, left = 8;
	unsigned i;

	for (i = 1; i < 8; i++)
		assert_int_equal(uns_blocks_open(blocks, "a/key", "an-etag", size + i, &object[i], NULL), 0);
	while (left)
		for (i = 0, left = 0; i < 8; i++) {
			const uint64_t end = size + i, step = (i + 8) * (uint64_t)(MiB / 8);
			const uint64_t len = end - at[i] < step ? end - at[i] : step;

			if (len && foreseen)
				uns_blocks_will_read(object[i], at[i] ? at[i] + window : 0, at[i] + len + window);
			if (len)
				assert_int_equal(read_at(object[i], at[i], (size_t)len, NULL), 0);
			at[i] += len;
			left += end - at[i];
		}
	for (i = 1; i < 8; i++)
		uns_blocks_close(object[i]);
	close_blocks(blocks, object[0]);
	assert_int_equal(fetched(), 8 * size + 28);
}

static void eight_files_at_once_are_fetched_once(void **state)
{
	(void)state;
	read_eight_files_at_once(false);
	read_eight_files_at_once(true);
}

/* Which tensor of a shard has that turn. */
static unsigned place_in_view(unsigned turn, unsigned n)
{
	return turn < n / 2 ? 2 * turn : 2 * (turn - n / 2) + 1;
}

/* Eight readers in a view's order, each of a file of its own: first every other tensor of the shard, then the rest. At
 * the middle more has been fetched of the blocks than is kept, and half of each block was read. */
static void pieces_between_those_that_were_read_stay(void **state)
{
	enum { N = 8, TENSORS = 20, TENSOR = 2 * MiB + 77777, WINDOW = 8 };
	const uint64_t size = TENSORS * (uint64_t)TENSOR;
	struct uns_block_object *object[N];
	struct uns_blocks *blocks = open_blocks(size, &object[0]);
	unsigned i, turn;

	(void)state;
#ifdef __SANITIZE_THREAD__ /* as above; one thread reads */
	if (!getenv("UNSHARD_LONG"))
		return;
#endif
	for (i = 1; i < N; i++)
		assert_int_equal(uns_blocks_open(blocks, "a/key", "an-etag", size + i, &object[i], NULL), 0);
	for (turn = 0; turn < TENSORS + WINDOW; turn++)
		for (i = 0; i < N; i++) {
			const uint64_t ahead = place_in_view(turn, TENSORS) * (uint64_t)TENSOR;
			const uint64_t now = place_in_view(turn - WINDOW, TENSORS) * (uint64_t)TENSOR;

			if (turn < TENSORS)
				uns_blocks_will_read(object[i], ahead, ahead + TENSOR);
			if (turn >= WINDOW)
				assert_int_equal(read_at(object[i], now, TENSOR, NULL), 0);
		}
	for (i = 1; i < N; i++)
		uns_blocks_close(object[i]);
	close_blocks(blocks, object[0]);
	assert_int_equal(fetched(), N * size + N * (N - 1) / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(front_to_back_each_byte_once_in_requests_of_a_block),
		cmocka_unit_test(reads_far_apart_fetch_their_pieces_alone),
		cmocka_unit_test(one_reader_has_several_requests_under_way),
		cmocka_unit_test(what_is_foreseen_is_fetched_once_by_many_at_once),
		cmocka_unit_test(what_is_foreseen_beyond_the_end_or_without_room_is_left),
		cmocka_unit_test(threads_that_want_the_same_share_one_request),
		cmocka_unit_test(a_failure_is_not_kept),
		cmocka_unit_test(no_block_of_a_replaced_object_is_used),
		cmocka_unit_test(what_rests_gives_its_memory_back),
		cmocka_unit_test(eight_files_at_once_are_fetched_once),
		cmocka_unit_test(pieces_between_those_that_were_read_stay),
		cmocka_unit_test(blocks_outlive_a_close_and_have_a_bound),
	};
	size_t i;

	for (i = 0; i < sizeof(multiples); i++)
		multiples[i] = (uint8_t)(i * 31);

	return cmocka_run_group_tests(tests, NULL, NULL);
}
