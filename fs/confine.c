/* Landlock has no functions in libc: https://docs.kernel.org/userspace-api/landlock.html */
#include "confine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fail.h"

#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14) /* Linux 6.2 */
#endif

enum { HAS_TRUNCATE = 3 }; /* version of Landlock's interface */

/* All that makes or changes a file or a directory. A rename to another directory is refused by itself. */
static const uint64_t changes = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
				LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
				LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
				LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
				LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;
static const char *const devices[] = { "/dev/fuse", "/dev/null" }; /* opened by each thread; by who leaves a terminal */

static int allow(int rules, const char *path, uint64_t access)
{
	struct landlock_path_beneath_attr beneath = { .allowed_access = access,
						      .parent_fd = open(path, O_PATH | O_CLOEXEC) };
	long code;

	if (beneath.parent_fd < 0)
		return 0;
	code = syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0);
	code = code < 0 ? -errno : 0;
	close(beneath.parent_fd);
	return (int)code;
}

/* in: NULL, or the directory in which directories may be made and removed, so renamed too. */
static int restrict_writing(const char *const *writable, size_t n, const char *in)
{
	long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	struct landlock_ruleset_attr attr = { .handled_access_fs = changes };
	int rules, code = 0;
	size_t i;

	if (version < 1)
		return 0; /* not in this kernel, or turned off */
	if (version >= HAS_TRUNCATE)
		attr.handled_access_fs |= LANDLOCK_ACCESS_FS_TRUNCATE;
	rules = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
	if (rules < 0)
		return -errno;
	for (i = 0; !code && i < n; i++)
		code = allow(rules, writable[i], attr.handled_access_fs);
	for (i = 0; !code && i < sizeof(devices) / sizeof(*devices); i++)
		code = allow(rules, devices[i], LANDLOCK_ACCESS_FS_WRITE_FILE);
	if (!code && in)
		code = allow(rules, in, LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_REMOVE_DIR);
	if (!code && syscall(SYS_landlock_restrict_self, rules, 0) < 0)
		code = -errno;
	close(rules);
	return code;
}

static int drop_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct set[_LINUX_CAPABILITY_U32S_3];
	size_t i;

	if (syscall(SYS_capget, &header, set) < 0)
		return -errno;
	for (i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
		set[i].permitted &= i == CAP_TO_INDEX(CAP_DAC_READ_SEARCH) ? CAP_TO_MASK(CAP_DAC_READ_SEARCH) : 0;
		set[i].effective &= set[i].permitted;
		set[i].inheritable = 0;
	}
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	return syscall(SYS_capset, &header, set) < 0 ? -errno : 0;
}

int fs_confine(const char *const *writable, size_t n, struct unshard_error *err)
{
	int code = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;

	if (!code)
		code = restrict_writing(writable, n, NULL);
	if (!code)
		code = drop_capabilities();
	return code < 0 ? fs_fail(err, code, "the serving process cannot give up its privileges: %s", strerror(-code))
			: 0;
}

int fs_confine_writing(const unshard *u, const char *directory, struct unshard_error *err)
{
	const char *const writable[] = { directory, unshard_cache_directory(u), unshard_store_directory(u) };
	const char *name = strrchr(directory, '/');
	char in[PATH_MAX];
	int code = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;

	if (!name || snprintf(in, sizeof(in), "%.*s", (int)(name - directory), directory) >= (int)sizeof(in))
		code = -EINVAL;
	if (!code)
		code = restrict_writing(writable, writable[2] ? 3 : 2, *in ? in : "/");
	return code < 0 ? fs_fail(err, code, "this process cannot give up writing elsewhere than %s: %s", directory,
				  strerror(-code))
			: 0;
}
