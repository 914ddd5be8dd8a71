/* Takes the place of the mount where unshard is built without libfuse (-DUNSHARD_MOUNT=OFF). */
#include <errno.h>

#include "fail.h"
#include "fs.h"

int fs_serve(unshard *u, const struct fs_options *options, struct unshard_error *err)
{
	(void)u;
	return fs_fail(
		err, -ENOSYS,
		"cannot mount at %s: this unshard was built without libfuse (UNSHARD_MOUNT=OFF). Instead: unshard "
		"export, or the Python package",
		options->mountpoint);
}

int fs_passed_fd(const char *mountpoint)
{
	(void)mountpoint;
	return -1;
}

const char *fs_libfuse_version(void)
{
	return "none: built without mount";
}
