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
#include "text.h"

static const struct command *const commands[] = { &cmd_mount, &cmd_umount, &cmd_ls,   &cmd_show, &cmd_check,  &cmd_diff,
						  &cmd_seal,  &cmd_export, &cmd_meta, &cmd_warm, &cmd_explain };
enum { N_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static int help(FILE *to)
{
	size_t i;

	fprintf(to, "unshard shows sharded training checkpoints as the directories that frameworks load.\n\nusage:\n");
	for (i = 0; i < N_COMMANDS; i++)
		fprintf(to, "  unshard %s %s\n      %s\n", commands[i]->name, commands[i]->arguments,
			commands[i]->summary);
	fprintf(to, "  unshard COMMAND --help | --help | --version\n\n"
		    "Exit status: 0 done, 1 a checkpoint has a problem, 2 could not be done.\n");
	return to == stdout ? EXIT_DONE : EXIT_COULD_NOT;
}

static int version(void)
{
	printf("unshard %s\nlibfuse %s\nzstd %s\ncJSON %s\nzlib %s\n", unshard_version(), fs_libfuse_version(),
	       ZSTD_versionString(), cJSON_Version(), zlibVersion());
	return EXIT_DONE;
}

/* One line, with the command that was meant if one is near. */
static int no_such_command(const char *name)
{
	const struct command *near = NULL;
	size_t i, d, best = 3; /* "list", "unmount" */

	for (i = 0; i < N_COMMANDS; i++) {
		d = text_distance(name, commands[i]->name);
		if (d < best && d < strlen(name)) {
			best = d;
			near = commands[i];
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

int main(int argc, char **argv)
{
	size_t i;

	open_standard_descriptors();
	raise_open_files();
	if (argc > 0 && called_as_mount_helper(argv[0]))
		return cmd_mount.run(&cmd_mount, argc, argv);
	if (argc < 2)
		return help(stderr);
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
		return printed(help(stdout));
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))
		return printed(version());
	for (i = 0; i < N_COMMANDS; i++)
		if (!strcmp(argv[1], commands[i]->name))
			return command_run(commands[i], argc - 1, argv + 1);
	return no_such_command(argv[1]);
}
