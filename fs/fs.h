/* Serve a session as a FUSE mount, and what programs ask the kernel's mount table. */
#ifndef UNSHARD_FS_H
#define UNSHARD_FS_H

#include "unshard.h"

enum { FS_MOST_CLONES = 63, FS_LARGEST_FD = 1 << 20 };

/* Which pages the kernel keeps when a file of the mount was read. */
enum fs_cache {
	FS_CACHE_BOTH,
	FS_CACHE_MOUNT,   /* the mount's alone: those of SOURCE go behind a reader */
	FS_CACHE_SOURCES, /* those of SOURCE alone: the mount's go when the file's last reader has closed it */
};

struct fs_options {
	const char *source; /* for the mount table: fsname */
	/* A directory; or "/dev/fd/N", an open descriptor of a mount that another process has made (mount(2) with
	 * fd=N) and will end. Then no path is looked at and nothing is set that needs a privilege. */
	const char *mountpoint;
	/* Of "/dev/fd/N" alone: descriptors that were cloned from N (FUSE_DEV_IOC_CLONE). Threads share them
	 * out, so that they do not wait for each other at one. */
	const int *clones;
	size_t n_clones; /* at most FS_MOST_CLONES */
	const char *fuse_options; /* further -o options for libfuse / the kernel, or NULL */
	bool foreground;
	bool allow_other;       /* forces default_permissions */
	unsigned max_threads;   /* 0 = default 16 */
	enum fs_cache cache;
	bool seal;              /* checkpoints, in the background */
	uint64_t seal_bytes_per_s; /* 0 = default 200 MB */
	unsigned read_ahead_kb; /* 0 = default 4096; set on the bdi where privileged */
	/* Called once in the process that serves, after mounting and before the first request: the
	 * place to open logs after daemonising. */
	void (*ready)(void *ctx);
	/* The same, when that process has given up what it does not need: it may begin threads. May be NULL. */
	void (*confined)(void *ctx);
	/* Called once in the process that fs_serve was called in, when the mount is live. `hint` is
	 * a sentence for people on how to make it faster, or NULL. */
	void (*live)(void *ctx, const char *hint);
	/* A request that is no read failed (the session logs reads), and its caller sees an errno
	 * only. May be NULL. Any thread. */
	void (*log)(void *ctx, int level, const char *line); /* enum unshard_log_level */
	void *ctx;
};

/* Mounts, daemonises unless foreground, serves until unmounted. `u` is open and has started no
 * thread. When daemonising this returns twice: in the parent 0 when the mount is live, or a
 * negative errno and a sentence when it is not; in the process that served 0, after the mount has
 * gone. Both then close the session and end; what concerns people is reported in `live`. */
int fs_serve(unshard *u, const struct fs_options *options, struct unshard_error *err);

/* For a process that writes one new directory and nothing else (unshard_calls.writes): the calling thread, and all that
 * it starts later, can change what is below `directory` and the session's own two directories, and rename `directory`
 * where it is. Where the kernel has Landlock; elsewhere nothing changes. */
int fs_confine_writing(const unshard *u, const char *directory, struct unshard_error *err);

/* The version of the kernel's Landlock; below 1 = it has none, or it is turned off. */
long fs_landlock_version(void);

/* The N of "/dev/fd/N", up to FS_LARGEST_FD; -1 for what is not of that form. */
int fs_passed_fd(const char *mountpoint);

/* Is there a dead FUSE mount at path ("Transport endpoint is not connected")? Asks the process that serves it, and
 * waits. */
bool fs_is_stale(const char *path);

/* -- the mount table; never asks the mounted file system, so a dead mount blocks nothing -- */

struct fs_mount {
	uint64_t dev; /* as st_dev has it */
	char type[64]; /* "fuse.unshard" */
	char source[4096]; /* what was mounted */
	char path[4096]; /* the mount point */
};

/* Canonical absolute name of a mount point. The last component itself is not visited. */
int fs_mount_path(const char *path, char out[4096], struct unshard_error *err);

/* The topmost mount at an absolute, canonical path. false = nothing is mounted there. */
bool fs_mount_find(const char *path, struct fs_mount *out);
/* A mount of the file system with this number. */
bool fs_mount_of(uint64_t dev, struct fs_mount *out);

/* Every mount of unshard, in the order of the table. */
void fs_mounts_visit(void (*visit)(void *ctx, const struct fs_mount *mount), void *ctx);
/* The mount of unshard that a path is in, by its name alone (the path need not exist); *inside: the rest of it. */
bool fs_mount_above(const char *path, struct fs_mount *out, const char **inside);

/* By the program fusermount3, for users that may not unmount themselves. 0; -ENOSYS where there is no such program,
 * -EBUSY where it could not. */
int fs_fusermount_unmount(const char *path, bool lazy);

/* What libfuse calls itself, at run time. */
const char *fs_libfuse_version(void);

#endif
