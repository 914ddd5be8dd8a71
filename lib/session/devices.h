/* The file systems that SOURCE consists of, as they were seen: where each begins. */
#ifndef UNS_SESSION_DEVICES_H
#define UNS_SESSION_DEVICES_H

#include <stddef.h>
#include <stdint.h>

enum { DEVICES_MOST = 64 };

struct devices {
	uint64_t of_source;
	struct device {
		char *path; /* below SOURCE; what is mounted there lies on another file system than what is above */
		uint64_t number;
	} v[DEVICES_MOST];
	size_t n;
};

/* Directory `path` lies on this one. One more than there is room for counts as what is above it. */
void devices_saw(struct devices *d, const char *path, uint64_t number);
/* On which `path` lies. */
uint64_t devices_of(const struct devices *d, const char *path);
/* For which one a listing of directory `path` may have to wait: that of what is mounted in it, else its own. */
uint64_t devices_in(const struct devices *d, const char *path);
void devices_fini(struct devices *d);

#endif
