/* Which file systems keep their inode numbers, and which others write: by the type of what is mounted under a device's
 * number at the time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>

#include "fake_clock.h"
#include "io/mounts.h"
#include "io/numbers.h"

static const char *mounted = "nfs4";
static unsigned asked;

bool __wrap_uns_mount_type(unsigned dev_major, unsigned dev_minor, char *type, size_t size);
bool __wrap_uns_mount_type(unsigned dev_major, unsigned dev_minor, char *type, size_t size)
{
	(void)dev_major, (void)dev_minor;
	asked++;
	snprintf(type, size, "%s", mounted);
	return true;
}

/* The kernel gives the lowest number that is free. */
static void a_number_that_is_given_again(void **state)
{
	unsigned i;

	(void)state;
	assert_true(uns_inodes_last(0, 7));
	mounted = "fuse.rclone";
	wait_recheck();
	assert_false(uns_inodes_last(0, 7));
	mounted = "nfs4";
	wait_recheck();
	assert_true(uns_inodes_last(0, 7));
	assert_true(uns_written_elsewhere(0, 7));
	asked = 0;
	for (i = 0; i < 1000; i++)
		assert_true(uns_inodes_last(0, 7));
	assert_int_equal(asked, 0);
}

static void more_devices_than_are_kept(void **state)
{
	unsigned i;

	(void)state;
	mounted = "cifs";
	for (i = 100; i < 400; i++)
		assert_false(uns_inodes_last(0, i));
	assert_true(uns_inodes_last(8, 100));
}

static void whose_files_this_kernel_alone_writes(void **state)
{
	(void)state;
	mounted = "tmpfs";
	assert_false(uns_written_elsewhere(0, 500));
	mounted = "fuse.sshfs";
	assert_true(uns_written_elsewhere(0, 501));
	assert_false(uns_written_elsewhere(8, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_number_that_is_given_again),
		cmocka_unit_test(more_devices_than_are_kept),
		cmocka_unit_test(whose_files_this_kernel_alone_writes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
