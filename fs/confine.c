#include "confine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fail.h"
#include "landlock.h"

enum { HAS_TRUNCATE = 3 }; /* version of Landlock's interface */

/* All that makes or changes a file or a directory. A rename to another directory is refused by itself. */
static const uint64_t changes = LANDLOCK_WRITE_FILE | LANDLOCK_REMOVE_DIR | LANDLOCK_REMOVE_FILE | LANDLOCK_MAKE_CHAR |
				LANDLOCK_MAKE_DIR | LANDLOCK_MAKE_REG | LANDLOCK_MAKE_SOCK | LANDLOCK_MAKE_FIFO |
				LANDLOCK_MAKE_BLOCK | LANDLOCK_MAKE_SYM;
static const char *const devices[] = { "/dev/fuse", "/dev/null" }; /* opened by each thread; on leaving a terminal */

static int allow(int rules, const char *path, uint64_t access)
{
	struct landlock_beneath beneath = { .allowed_access = access, .parent_fd = open(path, O_PATH | O_CLOEXEC) };
	int code;

	if (beneath.parent_fd < 0)
		return 0;
	code = landlock_allow(rules, &beneath) < 0 ? -errno : 0;
	close(beneath.parent_fd);
	return code;
}

/* in: NULL, or the directory in which directories may be made and removed, so renamed too. */
static int restrict_writing(const char *const *writable, size_t n, const char *in)
{
	struct landlock_ruleset ruleset = { .handled_access_fs = changes };
	long version = landlock_version();
	int rules, code = 0;
	size_t i;

	if (version < 1)
		return 0;
	if (version >= HAS_TRUNCATE)
		ruleset.handled_access_fs |= LANDLOCK_TRUNCATE;
	rules = landlock_create(&ruleset);
	if (rules < 0)
		return -errno;
	for (i = 0; !code && i < n; i++)
		code = allow(rules, writable[i], ruleset.handled_access_fs);
	for (i = 0; !code && i < sizeof(devices) / sizeof(*devices); i++)
		code = allow(rules, devices[i], LANDLOCK_WRITE_FILE);
	if (!code && in)
		code = allow(rules, in, LANDLOCK_MAKE_DIR | LANDLOCK_REMOVE_DIR);
	if (!code && landlock_restrict_self(rules) < 0)
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

long fs_landlock_version(void)
{
	return landlock_version();
}
