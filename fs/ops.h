/* The operations of one mount, and their state. */
#ifndef FS_OPS_H
#define FS_OPS_H

#include <stdint.h>

#include "buffers.h"
#include "connection.h"
#include "handles.h"
#include "idle.h"
#include "nodes.h"
#include "pages.h"
#include "sealing.h"
#include "waits.h"

struct fs {
	unshard *u;
	struct fuse_session *se; /* the first of its sessions, which a signal ends; while it serves */
	struct fs_sessions sessions;
	struct fs_connection connection;
	struct fs_nodes nodes;
	struct fs_handles handles;
	struct fs_waits waits;
	struct fs_buffers buffers;
	struct fs_pages pages;
	struct fs_sealing sealing;
	struct fs_idle idle;
	void (*log)(void *ctx, int level, const char *line); /* may be NULL */
	void *log_ctx;
};

/* The table; its user data is a struct fs. */
extern const struct fuse_lowlevel_ops fs_ops;

/* What operations have in common (ops.c). */
struct fs_node *fs_node_of(fuse_req_t req, fuse_ino_t id);
/* Answers with a negative errno, unless the request was answered before. */
void fs_reply_failure(struct fs_wait *wait, int code);
/* As unshard_calls.progress, whose ctx is the struct fs_wait: ends work that may take long (-o crc=exact, a sum of a
 * whole file) if its caller gave up, or the mount ends. */
int fs_gave_up(void *ctx, const struct unshard_progress *progress);

/* Extended attributes (xattrs.c). */
void fs_op_getxattr(fuse_req_t req, fuse_ino_t id, const char *name, size_t size);
void fs_op_listxattr(fuse_req_t req, fuse_ino_t id, size_t size);

/* Answers to whatever would change something (refuse.c). The kernel refuses most of it by itself,
 * because the mount is read-only; the rest reaches us after `mount -o remount,rw`. */
void fs_refuse_setattr(fuse_req_t req, fuse_ino_t id, struct stat *attr, int to_set, struct fuse_file_info *fi);
void fs_refuse_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void fs_refuse_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void fs_refuse_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_refuse_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void fs_refuse_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to_parent, const char *to_name,
		      unsigned int flags);
void fs_refuse_link(fuse_req_t req, fuse_ino_t id, fuse_ino_t parent, const char *name);
void fs_refuse_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi);
void fs_refuse_write(fuse_req_t req, fuse_ino_t id, const char *buf, size_t len, off_t off, struct fuse_file_info *fi);
void fs_refuse_setxattr(fuse_req_t req, fuse_ino_t id, const char *name, const char *value, size_t len, int flags);
void fs_refuse_removexattr(fuse_req_t req, fuse_ino_t id, const char *name);
void fs_refuse_fallocate(fuse_req_t req, fuse_ino_t id, int mode, off_t off, off_t len, struct fuse_file_info *fi);

#endif
