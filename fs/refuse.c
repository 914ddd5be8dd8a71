/* EROFS, once for each signature. */
#include "ops.h"

#include <errno.h>

void fs_refuse_setattr(fuse_req_t req, fuse_ino_t id, struct stat *attr, int to_set, struct fuse_file_info *fi)
{
	(void)id, (void)attr, (void)to_set, (void)fi;
	fuse_reply_err(req, EROFS);
}

void fs_refuse_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	(void)parent, (void)name, (void)mode, (void)rdev;
	fuse_reply_err(req, EROFS);
}

void fs_refuse_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	(void)parent, (void)name, (void)mode;
	fuse_reply_err(req, EROFS);
}

void fs_refuse_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	(void)parent, (void)name;
	fuse_reply_err(req, EROFS);
}

void fs_refuse_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	(void)target, (void)parent, (void)name;
	fuse_reply_err(req, EROFS);
}

void fs_refuse_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to_parent, const char *to_name,
		      unsigned int flags)
{
	(void)parent, (void)name, (void)to_parent, (void)to_name, (void)flags;
	fuse_reply_err(req, EROFS);
}

void fs_refuse_link(fuse_req_t req, fuse_ino_t id, fuse_ino_t parent, const char *name)
{
	(void)id, (void)parent, (void)name;
	fuse_reply_err(req, EROFS);
}

void fs_refuse_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	(void)parent, (void)name, (void)mode, (void)fi;
	fuse_reply_err(req, EROFS);
}

void fs_refuse_write(fuse_req_t req, fuse_ino_t id, const char *buf, size_t len, off_t off, struct fuse_file_info *fi)
{
	(void)id, (void)buf, (void)len, (void)off, (void)fi;
	fuse_reply_err(req, EROFS);
}

void fs_refuse_setxattr(fuse_req_t req, fuse_ino_t id, const char *name, const char *value, size_t len, int flags)
{
	(void)id, (void)name, (void)value, (void)len, (void)flags;
	fuse_reply_err(req, EROFS);
}

void fs_refuse_removexattr(fuse_req_t req, fuse_ino_t id, const char *name)
{
	(void)id, (void)name;
	fuse_reply_err(req, EROFS);
}

void fs_refuse_fallocate(fuse_req_t req, fuse_ino_t id, int mode, off_t off, off_t len, struct fuse_file_info *fi)
{
	(void)id, (void)mode, (void)off, (void)len, (void)fi;
	fuse_reply_err(req, EROFS);
}
