/* Landlock as Linux has it since 5.13, and no libc: https://docs.kernel.org/userspace-api/landlock.html. Written out,
 * because the kernel's headers on a machine that builds may be older than the kernel that runs what is built. */
#ifndef FS_LANDLOCK_H
#define FS_LANDLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* On each architecture. */
enum { LANDLOCK_CREATE_RULESET = 444, LANDLOCK_ADD_RULE = 445, LANDLOCK_RESTRICT_SELF = 446 };
enum { LANDLOCK_ASK_VERSION = 1, LANDLOCK_PATH_BENEATH = 1 };

enum landlock_access {
	LANDLOCK_WRITE_FILE = 1 << 1,
	LANDLOCK_REMOVE_DIR = 1 << 4,
	LANDLOCK_REMOVE_FILE = 1 << 5,
	LANDLOCK_MAKE_CHAR = 1 << 6,
	LANDLOCK_MAKE_DIR = 1 << 7,
	LANDLOCK_MAKE_REG = 1 << 8,
	LANDLOCK_MAKE_SOCK = 1 << 9,
	LANDLOCK_MAKE_FIFO = 1 << 10,
	LANDLOCK_MAKE_BLOCK = 1 << 11,
	LANDLOCK_MAKE_SYM = 1 << 12,
	LANDLOCK_TRUNCATE = 1 << 14, /* version 3: Linux 6.2 */
};

struct landlock_ruleset {
	uint64_t handled_access_fs;
};

struct landlock_beneath {
	uint64_t allowed_access;
	int32_t parent_fd;
} __attribute__((packed));

/* The version of its interface; below 1 = this kernel has none, or it is turned off. */
static inline long landlock_version(void)
{
	return syscall(LANDLOCK_CREATE_RULESET, NULL, 0, LANDLOCK_ASK_VERSION);
}

/* These three return -1 and set errno if the kernel refuses. */
static inline int landlock_create(const struct landlock_ruleset *ruleset)
{
	return (int)syscall(LANDLOCK_CREATE_RULESET, ruleset, sizeof(*ruleset), 0);
}

static inline int landlock_allow(int rules, const struct landlock_beneath *beneath)
{
	return (int)syscall(LANDLOCK_ADD_RULE, rules, LANDLOCK_PATH_BENEATH, beneath, 0);
}

static inline int landlock_restrict_self(int rules)
{
	return (int)syscall(LANDLOCK_RESTRICT_SELF, rules, 0);
}

#endif
