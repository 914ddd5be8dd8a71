/* See whole_file.h. */
#include "whole_file.h"

#include <errno.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"

/* SOURCE is never written to. */
static int refuse_in_source(const struct whole_file *file)
{
	char *copy = strdup(file->name), *directory = copy ? realpath(dirname(copy), NULL) : NULL;
	const char *const *source;
	int status = -1;
	size_t n;

	if (!copy)
		status = command_fail("out of memory");
	else if (!directory)
		status = command_fail("%s: %s", file->name, strerror(errno));
	for (source = file->sources; status < 0 && *source; source++) {
		n = strlen(*source);
		if (!strncmp(directory, *source, n) && (!directory[n] || directory[n] == '/'))
			status = command_fail("%s is in %s itself: name a file elsewhere", file->name, *source);
	}
	free(directory);
	free(copy);
	return status;
}

static int written(const struct whole_file *file, FILE *to, const char *name)
{
	bool failed;

	file->put(to, file->ctx);
	failed = ferror(to) || fflush(to) == EOF;
	if (command_lacks_memory())
		return command_fail("out of memory");
	return failed ? command_fail("%s: %s", name, strerror(errno)) : EXIT_DONE;
}

static int written_beside(const struct whole_file *file)
{
	const mode_t mask = umask(0);
	char *beside;
	FILE *to = NULL;
	int fd, status;

	umask(mask);
	if (asprintf(&beside, "%s.XXXXXX", file->name) < 0)
		return command_fail("out of memory");
	fd = mkstemp(beside);
	if (fd >= 0)
		to = fdopen(fd, "w");
	status = to ? written(file, to, file->name) : command_fail("%s: %s", file->name, strerror(errno));
	if (to && (fchmod(fd, 0666 & ~mask) < 0 || fclose(to) == EOF ||
		   (status == EXIT_DONE && rename(beside, file->name) < 0)))
		status = command_fail("%s: %s", file->name, strerror(errno));
	if (fd >= 0 && status != EXIT_DONE)
		unlink(beside);
	free(beside);
	return status;
}

int whole_file_write(const struct whole_file *file)
{
	int status;

	if (!strcmp(file->name, "-"))
		return written(file, stdout, "standard output");
	status = refuse_in_source(file);
	return status < 0 ? written_beside(file) : status;
}
