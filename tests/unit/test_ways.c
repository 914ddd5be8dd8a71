/* Which way of reading a storage gets, by a clock of its own: storage takes so long for a MiB by each way. One reader
 * has several reads under way, as the kernel sends them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "engine/ways.h"

enum { MiB = 1 << 20, DEV = 7, AT_ONCE = 8, STRETCH_MiB = UNS_WAYS_TRIAL_BYTES / MiB };

/* Microseconds for a MiB: an answer takes 8 ms, whatever it is asked for. `cached` has a few of 128 KiB under way where
 * storage lets the one thread wait that asks ahead; then `threads` has some more, `direct` asks for 1 MiB at once, and
 * `ordered` for 128 KiB after 128 KiB. */
struct storage {
	int64_t us[UNS_WAY_N];
};
static const struct storage waits = {
	{ [UNS_WAY_CACHE] = 7100, [UNS_WAY_THREADS] = 3600, [UNS_WAY_LONG] = 5000, [UNS_WAY_TURNS] = 64000 }
};

static struct uns_ways ways;
static int64_t now_ns;
static unsigned read_MiB[UNS_WAY_N], n_read, n_found;
static struct uns_ways_found found;

static int setup(void **state)
{
	(void)state;
	now_ns = 1000;
	n_read = n_found = 0;
	memset(read_MiB, 0, sizeof(read_MiB));
	found = (struct uns_ways_found){ 0 };
	uns_ways_init(&ways);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	uns_ways_fini(&ways);
	return 0;
}

/* One MiB after the other. */
static void read_from(const struct storage *storage, unsigned many)
{
	unsigned i;

	for (i = 0; i < many; i++) {
		const struct uns_trial trial = uns_ways_begin(&ways, DEV, MiB, now_ns);

		n_read++;
		read_MiB[trial.way]++;
		now_ns += 1000 * storage->us[trial.way];
		if (trial.counts)
			n_found += uns_ways_end(&ways, DEV, trial.stretch, MiB, now_ns, &found);
		if (n_found)
			return;
	}
}

static const struct uns_ways_kind far = { .is_far = true }, disk = { .is_far = false };

static enum uns_way found_at(const struct storage *storage, struct uns_ways_kind kind)
{
	uns_ways_learn(&ways, DEV, kind, NULL);
	read_from(storage, UINT16_MAX);
	assert_int_equal(n_found, 1);
	assert_int_equal(found.dev, DEV);
	return found.way;
}

static void storage_that_lets_one_wait_is_asked_by_threads(void **state)
{
	enum uns_way trying;

	(void)state;
	assert_int_equal(found_at(&waits, far), UNS_WAY_THREADS);
	assert_int_equal(uns_ways_chosen(&ways, DEV, &trying), UNS_WAY_THREADS);
	assert_int_equal(uns_ways_begin(&ways, DEV, MiB, now_ns).way, UNS_WAY_THREADS);
	assert_false(uns_ways_begin(&ways, DEV, MiB, now_ns).counts);
	assert_true(n_read <= 256 - 8); /* MiB; a reader is known as one after 6 */
}

/* Whichever is the fastest of the four. */
static void each_way_can_be_the_fastest(void **state)
{
	static const enum uns_way all[] = { UNS_WAY_CACHE, UNS_WAY_THREADS, UNS_WAY_TURNS, UNS_WAY_LONG };
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(*all); i++) {
		struct storage one = waits;

		one.us[all[i]] = 1000;
		assert_int_equal(found_at(&one, far), all[i]);
		teardown(state);
		setup(state);
	}
}

/* Nothing else is worth a difference as small as noise. */
static void a_little_faster_is_not_enough(void **state)
{
	struct storage alike = {
		{ [UNS_WAY_CACHE] = 10000, [UNS_WAY_THREADS] = 8500, [UNS_WAY_LONG] = 9000, [UNS_WAY_TURNS] = 9500 }
	};

	assert_int_equal(found_at(&alike, far), UNS_WAY_CACHE);
	teardown(state);
	setup(state);
	alike.us[UNS_WAY_THREADS] = 8000;
	assert_int_equal(found_at(&alike, far), UNS_WAY_THREADS);
}

/* To ask a block device is not to wait; nor does it fetch a file as one stream. */
static void a_disk_is_tried_in_two_ways(void **state)
{
	(void)state;
	assert_int_equal(found_at(&waits, disk), UNS_WAY_LONG);
	assert_int_equal(read_MiB[UNS_WAY_THREADS] + read_MiB[UNS_WAY_TURNS], 0);
	assert_int_equal(n_read, 4 * STRETCH_MiB);
}

/* If pages are to stay, nothing is read past them: of a disk, no other way is left. */
static void no_way_goes_past_pages_that_are_to_stay(void **state)
{
	struct uns_ways_kind kind = { .is_far = true, .keeps_pages = true };
	struct storage one = waits;
	struct uns_way_of of[UNS_WAYS_STORAGES];

	one.us[UNS_WAY_LONG] = 1000;
	assert_int_equal(found_at(&one, kind), UNS_WAY_THREADS);
	assert_int_equal(read_MiB[UNS_WAY_LONG], 0);
	teardown(state);
	setup(state);
	kind.is_far = false;
	uns_ways_learn(&ways, DEV, kind, NULL);
	read_from(&one, 1000);
	assert_int_equal(read_MiB[UNS_WAY_CACHE], 1000);
	assert_int_equal(n_found, 0);
	assert_int_equal(uns_ways_known(&ways, of), 1);
	assert_int_equal(of[0].way, UNS_WAY_CACHE);
}

/* It costs half the time of the same bytes, and one read. */
static void a_slow_way_ends_early(void **state)
{
	struct storage slow = waits;
	int64_t all_us = 5 * STRETCH_MiB * waits.us[UNS_WAY_CACHE];

	(void)state;
	slow.us[UNS_WAY_TURNS] = 10 * waits.us[UNS_WAY_CACHE];
	slow.us[UNS_WAY_THREADS] = slow.us[UNS_WAY_LONG] = waits.us[UNS_WAY_CACHE];
	all_us += STRETCH_MiB * waits.us[UNS_WAY_CACHE] / 2 + slow.us[UNS_WAY_TURNS];
	assert_int_equal(found_at(&slow, far), UNS_WAY_CACHE);
	assert_true(now_ns <= 1000 * (all_us + 1));
	assert_true(read_MiB[UNS_WAY_TURNS] < STRETCH_MiB / 4);
}

/* A stretch that takes as long as the first one ends: whatever it would reach, it was not faster. */
static void a_way_that_is_no_faster_ends_with_the_time_of_the_first(void **state)
{
	struct storage slow = waits;

	(void)state;
	slow.us[UNS_WAY_LONG] = slow.us[UNS_WAY_THREADS] = slow.us[UNS_WAY_TURNS] = waits.us[UNS_WAY_CACHE] * 3 / 2;
	assert_int_equal(found_at(&slow, far), UNS_WAY_CACHE);
	assert_true(now_ns <= 1000 * (6 * STRETCH_MiB * waits.us[UNS_WAY_CACHE] + 4 * slow.us[UNS_WAY_LONG] + 1));
	assert_true(read_MiB[UNS_WAY_TURNS] > STRETCH_MiB / 2); /* by half that time it had read enough to go on */
}

/* There, requests do not wait for each other: a trial of what helps against waiting would only cost. */
static void of_far_storage_as_fast_as_a_disk_two_ways_are_tried(void **state)
{
	const struct uns_ways_kind stays = { .is_far = true, .keeps_pages = true };
	struct storage fast = {
		{ [UNS_WAY_CACHE] = 1500, [UNS_WAY_THREADS] = 400, [UNS_WAY_LONG] = 1000, [UNS_WAY_TURNS] = 400 }
	};

	(void)state;
	assert_int_equal(found_at(&fast, far), UNS_WAY_LONG);
	assert_int_equal(read_MiB[UNS_WAY_THREADS] + read_MiB[UNS_WAY_TURNS], 0);
	teardown(state);
	setup(state);
	assert_int_equal(found_at(&fast, stays), UNS_WAY_CACHE);
	assert_int_equal(n_read, read_MiB[UNS_WAY_CACHE]);
}

/* Where storage answers without letting the thread that asks ahead wait, more of them ask for the same. */
static void many_threads_are_tried_only_where_one_waits(void **state)
{
	struct storage fast = waits;

	(void)state;
	fast.us[UNS_WAY_THREADS] = 1000;
	uns_ways_learn(&ways, DEV, far, NULL);
	uns_ways_note_waits(&ways, DEV, false);
	assert_int_equal(found_at(&fast, far), UNS_WAY_LONG);
	assert_int_equal(read_MiB[UNS_WAY_THREADS], 0);
	assert_true(read_MiB[UNS_WAY_TURNS] > 0);
}

/* From the beginning, and for good. */
static void of_what_is_in_memory_nothing_is_tried(void **state)
{
	const struct uns_ways_kind memory = { .is_far = true, .in_memory = true };
	struct uns_way_of of[UNS_WAYS_STORAGES];

	(void)state;
	uns_ways_learn(&ways, DEV, memory, NULL);
	assert_int_equal(uns_ways_known(&ways, of), 1);
	assert_int_equal(of[0].way, UNS_WAY_CACHE);
	read_from(&waits, 1000);
	assert_int_equal(read_MiB[UNS_WAY_CACHE], 1000);
	assert_int_equal(n_found, 0);
}

static void what_is_known_is_not_looked_for(void **state)
{
	static const enum uns_way known = UNS_WAY_THREADS;
	struct uns_way_of of[UNS_WAYS_STORAGES];

	(void)state;
	assert_false(uns_ways_knows(&ways, DEV));
	uns_ways_learn(&ways, DEV, far, &known);
	assert_true(uns_ways_knows(&ways, DEV));
	read_from(&waits, 1000);
	assert_int_equal(read_MiB[UNS_WAY_THREADS], 1000);
	assert_int_equal(n_found, 0);
	uns_ways_learn(&ways, DEV + 1, far, NULL); /* nothing is known of this one */
	assert_int_equal(uns_ways_known(&ways, of), 1);
	assert_int_equal(of[0].dev, DEV);
	assert_int_equal(of[0].way, UNS_WAY_THREADS);
}

/* Reads that began by a slow way take long, after its stretch has ended. The time is not the next way's; and the next
 * way asks for nothing meanwhile, which would seem to take no time. */
static void a_stretch_waits_for_the_reads_of_the_one_before(void **state)
{
	struct uns_trial one[AT_ONCE];
	struct uns_trial trial;
	unsigned i;

	(void)state;
	uns_ways_learn(&ways, DEV, far, NULL);
	read_from(&waits, STRETCH_MiB);
	do { /* until the stretch of `ordered` ends */
		for (i = 0; i < AT_ONCE; i++)
			one[i] = uns_ways_begin(&ways, DEV, MiB, now_ns);
		assert_int_equal(one[0].way, UNS_WAY_TURNS);
		for (i = 0; i < AT_ONCE - 1; i++) {
			now_ns += 1000 * waits.us[UNS_WAY_TURNS];
			uns_ways_end(&ways, DEV, one[i].stretch, MiB, now_ns, &found);
		}
		trial = uns_ways_begin(&ways, DEV, MiB, now_ns);
		assert_int_equal(trial.waits, !trial.counts);
		now_ns += 1000 * waits.us[UNS_WAY_TURNS];
		uns_ways_end(&ways, DEV, one[i].stretch, MiB, now_ns, &found);
		if (trial.counts)
			uns_ways_end(&ways, DEV, trial.stretch, MiB, now_ns, &found);
	} while (trial.counts);
	assert_int_equal(trial.way, UNS_WAY_CACHE);
	trial = uns_ways_begin(&ways, DEV, MiB, now_ns);
	assert_true(trial.counts && trial.first && !trial.waits);
	assert_int_equal(trial.way, UNS_WAY_THREADS);
	assert_int_equal(trial.left_bytes, UNS_WAYS_TRIAL_BYTES - MiB);
	now_ns += 1000 * waits.us[UNS_WAY_THREADS];
	uns_ways_end(&ways, DEV, trial.stretch, MiB, now_ns, &found);
	read_from(&waits, UINT16_MAX);
	assert_int_equal(found.way, UNS_WAY_THREADS);
	assert_true(found.bytes_per_s[UNS_WAY_THREADS] > 0.99 * 1e6 * MiB / (double)waits.us[UNS_WAY_THREADS]);
}

/* Most of what a stretch asked for was in the page cache: all begins again when it has ended. */
static void what_was_in_memory_shows_nothing(void **state)
{
	enum uns_way trying;

	(void)state;
	uns_ways_learn(&ways, DEV, far, NULL);
	read_from(&waits, STRETCH_MiB + 1); /* into the second stretch */
	uns_ways_note(&ways, DEV, 8 * MiB, 5 * MiB);
	read_from(&waits, STRETCH_MiB);
	uns_ways_chosen(&ways, DEV, &trying);
	assert_int_equal(trying, UNS_WAY_CACHE);
	read_from(&waits, UINT16_MAX);
	assert_int_equal(n_found, 1);
	assert_true(read_MiB[UNS_WAY_CACHE] >= 3 * STRETCH_MiB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(storage_that_lets_one_wait_is_asked_by_threads, setup, teardown),
		cmocka_unit_test_setup_teardown(each_way_can_be_the_fastest, setup, teardown),
		cmocka_unit_test_setup_teardown(a_little_faster_is_not_enough, setup, teardown),
		cmocka_unit_test_setup_teardown(a_disk_is_tried_in_two_ways, setup, teardown),
		cmocka_unit_test_setup_teardown(no_way_goes_past_pages_that_are_to_stay, setup, teardown),
		cmocka_unit_test_setup_teardown(a_slow_way_ends_early, setup, teardown),
		cmocka_unit_test_setup_teardown(a_way_that_is_no_faster_ends_with_the_time_of_the_first, setup,
						teardown),
		cmocka_unit_test_setup_teardown(of_far_storage_as_fast_as_a_disk_two_ways_are_tried, setup, teardown),
		cmocka_unit_test_setup_teardown(many_threads_are_tried_only_where_one_waits, setup, teardown),
		cmocka_unit_test_setup_teardown(of_what_is_in_memory_nothing_is_tried, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_known_is_not_looked_for, setup, teardown),
		cmocka_unit_test_setup_teardown(a_stretch_waits_for_the_reads_of_the_one_before, setup, teardown),
		cmocka_unit_test_setup_teardown(what_was_in_memory_shows_nothing, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
