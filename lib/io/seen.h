/* The one door by which files are looked at for a checkpoint: each of these functions asks a capture, and adds what it
 * saw to the capture's list of inputs. So the list is complete, and looking again is to ask all of it
 * once more. What lies in the capture's own directory is not in the list: all of that is looked at anyway.
 *
 * Each may be called without a capture (NULL): then it looks, and nothing is remembered. */
#ifndef UNS_IO_SEEN_H
#define UNS_IO_SEEN_H

#include "io/capture.h"
#include "io/inputs.h"

/* As uns_root_stat with `follow`. */
int uns_stat_seen(const struct uns_root *root, struct uns_capture *capture, const char *path, struct uns_stat *out,
		  struct uns_err *err);
/* The names in a directory. Without a capture they are in the arena, else they belong to the capture. */
int uns_list_seen(const struct uns_root *root, struct uns_capture *capture, const char *path, struct uns_arena *arena,
		  struct uns_listing *out, struct uns_err *err);
/* Those of them that one of the globs fits (a static list, up to NULL), in the arena. For directories in which other
 * names come and go. */
int uns_list_fitting(const struct uns_root *root, struct uns_capture *capture, const char *path,
		     const char *const *globs, struct uns_arena *arena, struct uns_listing *out, struct uns_err *err);
/* Is something of that name there? Returns 1 or 0; fails only in passing. For what changes while that it is there does
 * not. */
int uns_is_there(const struct uns_root *root, struct uns_capture *capture, const char *path, struct uns_err *err);
/* Is a file there, and was it written at `since_ns` or later? For what later saves write again. */
int uns_is_there_since(const struct uns_root *root, struct uns_capture *capture, const char *path, int64_t since_ns,
		       struct uns_err *err);
/* As uns_stat_seen, but not added to the list: for files of which uns_is_there_since has asked what counts. */
int uns_stat_beside(const struct uns_root *root, struct uns_capture *capture, const char *path, struct uns_stat *out,
		    struct uns_err *err);
/* As uns_root_read_file. -ESTALE: the file is no longer the one that the capture saw. */
int uns_read_seen(const struct uns_root *root, struct uns_capture *capture, const char *path, uint64_t max_bytes,
		  struct uns_arena *arena, struct uns_span *out, struct uns_err *err);
/* As uns_root_open_file, in the same way. */
int uns_open_seen(const struct uns_root *root, struct uns_capture *capture, const char *path, int *fd,
		  struct uns_stat *out, struct uns_err *err);
/* Which directory an absolute path leads to, if any, is looked at again as well. */
int uns_place_seen(struct uns_capture *capture, const char *path, struct uns_err *err);

/* Leaves in the capture's list only what lies outside of what uns_capture_fill has looked at. */
int uns_seen_elsewhere(struct uns_capture *capture, struct uns_err *err);
/* Looks at all of `list` once more, into the capture's memory. Returns 1 if all is as it was seen then, else 0. */
int uns_seen_again(struct uns_capture *capture, const struct uns_inputs *list, struct uns_err *err);
/* Looks at one of them once more, adds it to the capture's list, and gives what of the answer is the same on every
 * machine and in every copy that keeps times: of a file its kind, size and mtime. -ENOTSUP: nothing is. */
int uns_seen_anywhere(struct uns_capture *capture, const struct uns_input *in, uint64_t *answer, struct uns_err *err);
/* The same of what uns_inputs_unpack gave, which is added to the capture's list. */
int uns_seen_unpacked(struct uns_capture *capture, const struct uns_input *v, size_t n, struct uns_err *err);

#endif
