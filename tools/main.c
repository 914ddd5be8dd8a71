/* The `unshard` command: finds the verb, and lists the verbs. */
#include <cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "command.h"
#include "fs.h"
#include "terminal.h"
#include "text.h"

static int version(void)
{
	printf("unshard %s\nlibfuse %s\nzstd %s\ncJSON %s\nzlib %s\n", unshard_version(), fs_libfuse_version(),
	       ZSTD_versionString(), cJSON_Version(), zlibVersion());
	return EXIT_DONE;
}

/* One line, with the command that was meant if one is near. */
static int no_such_command(const char *name)
{
	const struct command *near = NULL, *const * c;
	size_t d, best = 3; /* "list", "unmount" */

	for (c = commands; *c; c++) {
		d = (*c)->hidden ? best : text_distance(name, (*c)->name);
		if (d < best && d < strlen(name)) {
			best = d;
			near = *c;
		}
	}
	return near ? command_fail("unknown command '%s'; did you mean '%s'? (unshard --help lists all)", name,
				   near->name)
		    : command_fail("unknown command '%s' (unshard --help lists all)", name);
}

/* As mount(8) calls its helper for type "unshard" in fstab: mount.unshard SOURCE DIR -o ... */
static bool called_as_mount_helper(const char *program)
{
	const char *slash = strrchr(program, '/');

	return !strcmp(slash ? slash + 1 : program, "mount.unshard");
}

/* A checkpoint may have thousands of shards; the library takes what it is given. */
static void raise_open_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* A file that is opened must not become stdin, stdout or stderr, which the mount's process replaces. What is opened in
 * their place cannot be used either, so that printing to a closed stdout fails. */
static void open_standard_descriptors(void)
{
	int fd;

	for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
			return;
}

/* A command whose output could not be written (a full disk, a closed stdout) has not done what it should. */
static int printed(int status)
{
	bool failed = ferror(stdout);

	if (command_lacks_memory() && status != EXIT_COULD_NOT)
		status = command_fail("out of memory");
	errno = 0; /* of an earlier write nothing is known any more */
	if ((fflush(stdout) == 0 && !failed) || status == EXIT_COULD_NOT)
		return status;
	return command_fail("stdout: %s", errno ? strerror(errno) : "it could not be written");
}

/* argv: from the command's name on. getopt begins its sentences with argv[0]. */
static int command_run(const struct command *command, int argc, char **argv)
{
	char name[64];

	snprintf(name, sizeof(name), "unshard %s", command->name);
	argv[0] = name;
	return printed(command->run(command, argc, argv));
}

/* `unshard help [VERB]`, --help, -h, and those of --version. -1 = it is none of them. */
static int about(int argc, char **argv)
{
	const bool help = !strcmp(argv[1], "help");

	if (help && argc == 3)
		return command_find(argv[2]) ? command_help(command_find(argv[2])) : no_such_command(argv[2]);
	if (help || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return help_print(stdout);
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V") || !strcmp(argv[1], "-v") ||
	    !strcmp(argv[1], "version"))
		return version();
	return -1;
}

int main(int argc, char **argv)
{
	const struct command *command;
	int status;

	open_standard_descriptors();
	raise_open_files();
	terminal_begin();
	command = command_find("mount");
	if (argc > 0 && called_as_mount_helper(argv[0]))
		return command->run(command, argc, argv);
	if (argc < 2)
		return help_print(stderr);
	status = about(argc, argv);
	if (status >= 0)
		return printed(status);
	command = command_find(argv[1]);
	return command ? command_run(command, argc - 1, argv + 1) : no_such_command(argv[1]);
}
