/* A memory file in place of descriptor 2: a child process inherits it, and nothing can block. */
#include "capture.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void fs_capture_begin(struct fs_capture *capture)
{
	fflush(stderr);
	capture->memory_fd = memfd_create("stderr", MFD_CLOEXEC);
	capture->saved_fd = dup(STDERR_FILENO);
	if (capture->memory_fd >= 0 && capture->saved_fd >= 0)
		dup2(capture->memory_fd, STDERR_FILENO);
}

static void first_line(char *text)
{
	static const char *const speakers[] = { "fuse: ", "fusermount3: " };
	size_t i, n;

	text[strcspn(text, "\n")] = '\0';
	for (i = 0; i < sizeof(speakers) / sizeof(speakers[0]); i++) {
		n = strlen(speakers[i]);
		if (!strncmp(text, speakers[i], n))
			memmove(text, text + n, strlen(text + n) + 1);
	}
}

void fs_capture_end(struct fs_capture *capture, char *text, size_t text_len)
{
	ssize_t n = -1;

	fflush(stderr);
	if (capture->memory_fd >= 0 && capture->saved_fd >= 0) {
		n = pread(capture->memory_fd, text, text_len - 1, 0);
		dup2(capture->saved_fd, STDERR_FILENO);
	}
	text[n > 0 ? n : 0] = '\0';
	first_line(text);
	if (capture->saved_fd >= 0)
		close(capture->saved_fd);
	if (capture->memory_fd >= 0)
		close(capture->memory_fd);
}
