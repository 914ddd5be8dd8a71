/* lib/device/absent.c: what a library says that was built without CUDA. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "unshard.h"

static void one_sentence(void **state)
{
	struct unshard_error err = { 0 };
	unshard_device *device = NULL;

	(void)state;
	assert_int_equal(unshard_device_open(3, NULL, &device, &err), -ENODEV);
	assert_int_equal(err.code, -ENODEV);
	assert_non_null(strstr(err.text, "GPU 3: this libunshard was built without CUDA"));
	assert_null(device);
	unshard_device_close(device);
	unshard_transfer_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(one_sentence) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
