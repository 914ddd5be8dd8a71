/* Directories that we may read below, and the files in them. Every path is opened relative to a
 * root's descriptor with RESOLVE_BENEATH; nothing is ever opened for writing; only regular files
 * are ever read (O_NONBLOCK + fstat, so a FIFO or device cannot hang us).
 *
 * Knows no formats. Threads: a root is immutable once opened; everything here may be called by any
 * number of threads at once. */
#ifndef UNS_IO_SOURCE_H
#define UNS_IO_SOURCE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/reader.h"
#include "io/listing.h"
#include "io/stat.h"

struct uns_root_options {
	/* Links may lead anywhere: only for a directory that the user named for its content
	 * (a hub snapshot's files are links to ../../blobs). */
	bool trusted;
	/* Absolute directories that links may lead into (`-o follow=`); borrowed at open. */
	const char *const *follow;
	size_t n_follow;
	/* So many directories above it are roots, too (uns_root_up): a checkpoint that is a root itself has its
	 * run's files there. */
	unsigned above;
};

struct uns_root;

/* path: any directory, or "s3://BUCKET/PREFIX" (io/objects.h). Its absolute name is kept for messages. */
int uns_root_open(const char *path, const struct uns_root_options *options, struct uns_root **out, struct uns_err *err);
void uns_root_close(struct uns_root *root); /* when it was closed once for each reference, it is gone */
struct uns_root *uns_root_ref(struct uns_root *root); /* one more */
const char *uns_root_path(const struct uns_root *root);
/* It is no directory: its path is a URL, and nothing in it has a path on this machine. */
bool uns_root_is_remote(const struct uns_root *root);

/* Nothing has been asked for a while: memory of what was fetched for this root goes back to the system. */
void uns_root_rest(const struct uns_root *root);

/* The directory that holds directory `rel`, as a root and a path below that (in the arena). Of the root itself
 * it is one above, where the options allow it: *rel_up is NULL if they do not, or if there is none. */
int uns_root_up(const struct uns_root *root, const char *rel, struct uns_arena *arena, const struct uns_root **root_up,
		const char **rel_up, struct uns_err *err);
/* The last component of a directory's absolute name, also of the root's. Lives as long as root and `rel`. */
const char *uns_root_name(const struct uns_root *root, const char *rel);

/* How often anything below was looked at so far: names opened, directories listed, entries stat'ed. */
uint64_t uns_root_looks(const struct uns_root *root);

/* All `rel` below: see base/path.h ("" = the root itself). Messages name the absolute path. */

/* Follows a final link only where the root's options allow it and `follow` is set; otherwise a link
 * is reported as UNS_KIND_LINK. */
int uns_root_stat(const struct uns_root *root, const char *rel, bool follow, struct uns_stat *out, struct uns_err *err);

/* The root itself, by its descriptor: nothing is opened. */
int uns_root_self(const struct uns_root *root, struct uns_stat *out, struct uns_err *err);

/* What an absolute path leads to, below no root. */
int uns_path_stat(const char *path, struct uns_stat *out, struct uns_err *err);

/* The link's target as text, in the arena. */
int uns_root_readlink(const struct uns_root *root, const char *rel, struct uns_arena *arena, const char **out,
		      struct uns_err *err);

int uns_root_list(const struct uns_root *root, const char *rel, struct uns_arena *arena, struct uns_listing *out,
		  struct uns_err *err);

/* -- for io/capture.c: one descriptor for many entries -- */

/* Open a directory to list it. */
int uns_root_open_dir(const struct uns_root *root, const char *rel, int *fd, struct uns_stat *out, struct uns_err *err);
/* Open it to stat what is in it only; negative errno. */
int uns_root_open_path(const struct uns_root *root, const char *rel);
/* The same, and what it is: what uns_root_open_dir gives, without opening it, which network file systems are asked for.
 */
int uns_root_open_dir_path(const struct uns_root *root, const char *rel, int *fd, struct uns_stat *out,
			   struct uns_err *err);
/* Open a directory to list it, of which `path` is such a descriptor. */
int uns_dir_open(const struct uns_root *root, const char *rel, int path, int *fd, struct uns_err *err);
/* `rel` is for the sentence. */
int uns_dir_list(const struct uns_root *root, const char *rel, int fd, struct uns_arena *arena, struct uns_listing *out,
		 struct uns_err *err);
/* The entry itself, links not followed; negative errno. */
int uns_dir_stat(const struct uns_root *root, int dir, const char *name, struct uns_stat *out);
/* "ROOT/rel: No such file or directory" */
int uns_root_fail(const struct uns_root *root, const char *rel, int code, struct uns_err *err);

/* Borrowed entry by name, or NULL. O(n). */
const struct uns_entry *uns_listing_find(const struct uns_listing *list, const char *name);

/* An entry that is no directory, of that name, or of one that fits the pattern (uns_str_glob). O(n). */
bool uns_listing_has_file(const struct uns_listing *list, const char *name);
bool uns_listing_has_glob(const struct uns_listing *list, const char *glob);

/* A read-only descriptor of a regular file and what it was at that moment.
 * -ENOENT absent, -ELOOP/-EXDEV a link that may not be followed, -ENOTSUP not a regular file. */
int uns_root_open_file(const struct uns_root *root, const char *rel, int *fd, struct uns_stat *out,
		       struct uns_err *err);

/* A whole small file. -ENOTSUP when it is larger than max_bytes. The bytes are in the arena,
 * followed by one NUL that is not counted. `out_stat` may be NULL. */
int uns_root_read_file(const struct uns_root *root, const char *rel, uint64_t max_bytes, struct uns_arena *arena,
		       struct uns_span *out, struct uns_stat *out_stat, struct uns_err *err);

/* fstat as an identity; *nlink (may be NULL): how many names the file has. Where the kernel keeps attributes of a
 * network's files for a while, it asks the server if `fresh`. */
int uns_fd_identity(int fd, bool fresh, struct uns_identity *out, uint64_t *nlink, struct uns_err *err);

/* A number of the path at which this kernel has the open file, 0 where it has no answer (without /proc). Another one
 * once that name was renamed or removed here, also where the client of a network keeps a removed file under a hidden
 * name for as long as it is open (.nfsXXXX, .fuse_hiddenXXXX). Asks no storage; one system call. */
uint64_t uns_fd_name(int fd);

/* What the kernel keeps of the file's bytes is dropped where others may have written them without its knowledge: on
 * file systems that are not this machine's alone (io/numbers.h). Pages that are mapped stay. */
void uns_fd_forget_pages(int fd, const struct uns_identity *id);

/* On the same file systems: from now on the kernel reads nothing of the file ahead by itself. For one call it reads as
 * much as twice what it would read ahead there. Returns false if the file stays as it is. The caller needs to do so
 * before the first read: if the kernel has read ahead once, it leaves out calls while that storage is busy. */
bool uns_fd_read_as_asked(int fd, const struct uns_identity *id);

/* pread until len bytes are there, EINTR retried; -EIO on error, -ESTALE at end of file (the caller
 * knew the size, so the file was cut). `name` is for the sentence. */
int uns_fd_pread(int fd, void *buf, size_t len, uint64_t off, const char *name, struct uns_err *err);
/* What such a read fails with: `got` is -1, with errno, or 0, at the end of the file. */
int uns_fd_pread_fail(ssize_t got, size_t len, uint64_t off, const char *name, struct uns_err *err);
/* The same without waiting for storage: -EAGAIN, without a sentence, when the bytes are not in
 * memory or the file system does not know. Some, FUSE among them, have no such read: there the kernel is asked whether
 * the pages are in its cache, and one that storage is about to deliver is waited for. */
int uns_fd_pread_now(int fd, void *buf, size_t len, uint64_t off);
/* Do reads of this descriptor take what they can from pages in the kernel's cache? Not where a FUSE program wants each
 * read for itself (direct_io): to ask there for bytes that are not wanted yet (posix_fadvise) fetches them twice. */
bool uns_fd_reads_pages(int fd, const struct uns_identity *id);
/* Of an object of a store: threads of its own fetch bytes that will be read; never waits. false: it is a file, of which
 * the kernel keeps pages. */
bool uns_fd_will_read(int fd, uint64_t at, uint64_t end);
/* Are these bytes in memory, or on their way there? len > 0. Never waits; false where that is not known. */
bool uns_fd_has(int fd, size_t len, uint64_t off);

/* An open file as a reader (base/reader.h); `file` must outlive it. Not for long-lived use: takes no
 * identity check. */
struct uns_open_file {
	int fd;
	const char *name;
};
struct uns_reader uns_reader_of_file(struct uns_open_file *file, uint64_t size);

#endif
