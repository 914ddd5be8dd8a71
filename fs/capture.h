/* What libfuse and fusermount3 write to stderr, caught so that it can become part of a sentence. */
#ifndef FS_CAPTURE_H
#define FS_CAPTURE_H

#include <stddef.h>

struct fs_capture {
	int saved_fd, memory_fd; /* -1 when catching is not possible: then it just goes to stderr */
};

/* From here to fs_capture_end the process's stderr is ours: no other thread may run. */
void fs_capture_begin(struct fs_capture *capture);
/* `text` gets the first line, without the name of the program that wrote it; "" = nothing was written. */
void fs_capture_end(struct fs_capture *capture, char *text, size_t text_len);

#endif
