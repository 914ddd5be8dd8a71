/* What memory is left, by the files of made machines: the least of the machine's and of each control group's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/memory_left.h"
#include "shell.h"

#define V2      "sys/fs/cgroup/"
#define V1      "sys/fs/cgroup/memory/"
#define MEMINFO { "proc/meminfo", "MemTotal:       8000 kB\nMemFree:         100 kB\nMemAvailable:    4000 kB\n" }

struct file {
	const char *path, *text;
};

static const struct {
	const char *what;
	uint64_t left;
	struct file files[12];
} machines[] = {
	{ "of which nothing can be read", UINT64_MAX, { { NULL, NULL } } },
	{ "without control groups", 4000 * 1024, { MEMINFO } },
	{ "a group with a limit",
	  100000,
	  { MEMINFO,
	    { "proc/self/cgroup", "0::/a/b\n" },
	    { V2 "a/b/memory.max", "300000\n" },
	    { V2 "a/b/memory.current", "200000\n" } } },
	{ "pages of files will go",
	  160000,
	  { MEMINFO,
	    { "proc/self/cgroup", "0::/a\n" },
	    { V2 "a/memory.max", "300000\n" },
	    { V2 "a/memory.current", "200000\n" },
	    { V2 "a/memory.stat", "anon 1\nfile 90000\ninactive_file 50000\nactive_file 10000\n" } } },
	{ "a group above has less",
	  7000,
	  { MEMINFO,
	    { "proc/self/cgroup", "0::/a/b/c\n" },
	    { V2 "a/b/c/memory.max", "max\n" },
	    { V2 "a/b/c/memory.current", "200000\n" },
	    { V2 "a/memory.max", "300000\n" },
	    { V2 "a/memory.current", "293000\n" } } },
	{ "a container whose hierarchy begins at its own group",
	  50,
	  { MEMINFO,
	    { "proc/self/cgroup", "0::/\n" },
	    { V2 "memory.max", "150\n" },
	    { V2 "memory.current", "100\n" } } },
	{ "a container that has the machine's path of its group",
	  50,
	  { MEMINFO,
	    { "proc/self/cgroup", "0::/kubepods/pod7\n" },
	    { V2 "memory.max", "150\n" },
	    { V2 "memory.current", "100\n" } } },
	{ "version 1",
	  70,
	  { MEMINFO,
	    { "proc/self/cgroup", "9:name=systemd:/x\n4:cpu,memory:/a\n0::/\n" },
	    { V1 "a/memory.limit_in_bytes", "150\n" },
	    { V1 "a/memory.usage_in_bytes", "100\n" },
	    { V1 "a/memory.stat", "inactive_file 9\ntotal_inactive_file 15\ntotal_active_file 5\n" },
	    { V1 "x/memory.limit_in_bytes", "1\n" },
	    { V1 "x/memory.usage_in_bytes", "1\n" } } },
	{ "no limit in version 1",
	  4000 * 1024,
	  { MEMINFO,
	    { "proc/self/cgroup", "4:memory:/a\n" },
	    { V1 "a/memory.limit_in_bytes", "9223372036854771712\n" },
	    { V1 "a/memory.usage_in_bytes", "100\n" } } },
	{ "more is used than may be",
	  0,
	  { MEMINFO,
	    { "proc/self/cgroup", "0::/a\n" },
	    { V2 "a/memory.max", "100\n" },
	    { V2 "a/memory.current", "150\n" } } },
	{ "files of another form limit nothing",
	  4000 * 1024,
	  { MEMINFO,
	    { "proc/self/cgroup", "nothing\n0::\n::\n" },
	    { V2 "memory.max", "\n" },
	    { V2 "memory.current", "x\n" } } },
};

static void put(const char *root, const struct file *f)
{
	char path[256], command[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", root, f->path);
	snprintf(command, sizeof(command), "mkdir -p $(dirname %s)", f->path);
	shell(root, command);
	file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fputs(f->text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void is_the_least_of_all(void **state)
{
	char root[] = "/tmp/unshard-memory-XXXXXX";
	const struct file *f;
	size_t i;

	(void)state;
	assert_non_null(mkdtemp(root));
	for (i = 0; i < sizeof(machines) / sizeof(*machines); i++) {
		for (f = machines[i].files; f->path; f++)
			put(root, f);
		print_message("%s\n", machines[i].what);
		assert_int_equal(uns_memory_left(root), machines[i].left);
		shell(root, "rm -rf *");
	}
	assert_int_equal(rmdir(root), 0);
}

static void is_known_of_this_machine(void **state)
{
	const uint64_t left = uns_memory_left("");

	(void)state;
	assert_true(left > 0 && left < UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(is_the_least_of_all),
		cmocka_unit_test(is_known_of_this_machine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
