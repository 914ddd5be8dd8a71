/* What the kernel asks, answered from unshard.h's nodes. Owns the translation of generations and errors;
 * knows nothing of checkpoints. The table is at the bottom.
 *
 * Time: an answer marked stable holds as long as its directory's inode number, so the kernel may
 * keep it for an hour; everything else is asked again within seconds. A node whose source has changed
 * since it was looked up gives ESTALE: the kernel then looks it up again. */
#include "ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

enum {
	BACKGROUND_REQUESTS = 1024, /* read-ahead in flight, also that of readers whose source hangs */
	STAT_BLOCK_BYTES = 512,
	BIG_FILE_BYTES = 16 << 20,
	BIG_BLOCK_BYTES = 1 << 20, /* cp reads in pieces of this */
	SMALL_BLOCK_BYTES = 4096,
};

static const double stable_seconds = 3600, changing_seconds = 2, stable_absent_seconds = 60;

static struct fs *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

struct fs_node *fs_node_of(fuse_req_t req, fuse_ino_t id)
{
	return fs_nodes_of_id(&fs_of(req)->nodes, id);
}

static struct fs_handle *handle_of(fuse_req_t req, const struct fuse_file_info *fi)
{
	return fs_handles_given(&fs_of(req)->handles, fi->fh);
}

/* ENOSYS would make the kernel never ask again. */
void fs_reply_failure(struct fs_wait *wait, int code)
{
	fuse_req_t req = fs_wait_take(wait);

	if (req)
		fuse_reply_err(req, code < 0 && code != -ENOSYS ? -code : EIO);
}

int fs_gave_up(void *ctx, const struct unshard_progress *progress)
{
	struct fs_wait *wait = ctx;

	(void)progress;
	return fs_wait_is_over(wait) || fuse_session_exited(wait->fs->se) ? -EINTR : 0;
}

/* An application sees an errno; the sentence goes where people can look for it. */
static void complain(const struct fs *fs, const char *what, const char *path, const struct unshard_error *err)
{
	char line[4608]; /* a path and a sentence */

	if (!fs->log || err->code == -ENOENT || err->code == -ENOTDIR || err->code == -ESTALE)
		return; /* ESTALE: the kernel asks again */
	snprintf(line, sizeof(line), "%s %s: %s", what, path, err->code ? err->text : "failed");
	fs->log(fs->log_ctx, 0, line);
}

static mode_t type_of(enum unshard_kind kind)
{
	switch (kind) {
	case UNSHARD_DIR:
		return S_IFDIR;
	case UNSHARD_LINK:
		return S_IFLNK;
	case UNSHARD_FILE:
		break;
	}
	return S_IFREG;
}

static void fill_attr(const struct unshard_stat *st, struct stat *attr)
{
	struct timespec time = { .tv_sec = st->mtime_ns / 1000000000, .tv_nsec = st->mtime_ns % 1000000000 };

	if (time.tv_nsec < 0) {
		time.tv_sec--;
		time.tv_nsec += 1000000000;
	}
	memset(attr, 0, sizeof(*attr));
	attr->st_ino = st->ino;
	/* A link has no permissions of its own. */
	attr->st_mode = type_of(st->kind) | (st->kind == UNSHARD_LINK ? 0777 : st->mode & 07777);
	attr->st_nlink = st->nlink;
	attr->st_uid = st->uid;
	attr->st_gid = st->gid;
	attr->st_size = (off_t)st->size_bytes;
	attr->st_blocks = (blkcnt_t)(st->size_bytes / STAT_BLOCK_BYTES + (st->size_bytes % STAT_BLOCK_BYTES != 0));
	attr->st_blksize = st->size_bytes >= BIG_FILE_BYTES ? BIG_BLOCK_BYTES : SMALL_BLOCK_BYTES;
	attr->st_mtim = attr->st_ctim = attr->st_atim = time;
}

static double seconds_of(const struct unshard_stat *st)
{
	return st->stable ? stable_seconds : st->live ? 0 : changing_seconds;
}

/* The root's node cannot be replaced when its inode number changes, as others' are: where SOURCE is
 * a checkpoint by itself, the names below the root have to be asked for again. */
static double entry_seconds(const struct fs *fs, const struct fs_node *dir, const struct unshard_stat *st)
{
	return dir == fs->nodes.root && st->stable ? changing_seconds : seconds_of(st);
}

/* What a node is now. Files open on an older generation stay open: their node still describes them. */
static int stat_node(struct fs *fs, struct fs_node *node, struct unshard_stat *st)
{
	struct unshard_error err = { 0 };
	int code = unshard_node_stat(node->node, st, &err);

	if (code >= 0)
		return 0;
	if (atomic_load(&node->n_open)) {
		*st = node->stat;
		return 0;
	}
	complain(fs, "stat", unshard_node_path(node->node), &err);
	return code;
}

/* -- names -- */

/* What is absent where checkpoints come is asked for again at once: `latest` must not lead to a name that the kernel
 * still holds absent. */
static void reply_absent(struct fs_wait *wait)
{
	struct fuse_entry_param entry = { .ino = 0 };
	bool lasting = wait->node->stat.stable && wait->node != wait->fs->nodes.root;
	fuse_req_t req = fs_wait_take(wait);

	entry.entry_timeout = lasting ? stable_absent_seconds : 0;
	if (req)
		fuse_reply_entry(req, &entry);
}

/* One lookup more on the entry's node. Takes the reference. */
static int fill_entry(struct fs *fs, const struct fs_node *dir, unshard_node *handle, const struct unshard_stat *st,
		      struct fuse_entry_param *entry)
{
	struct fs_node *node = fs_nodes_ref(&fs->nodes, dir, handle, st);

	if (!node)
		return -ENOMEM;
	*entry = (struct fuse_entry_param){ .ino = fs_nodes_id(&fs->nodes, node) };
	fill_attr(st, &entry->attr);
	entry->attr_timeout = seconds_of(st);
	entry->entry_timeout = entry_seconds(fs, dir, st);
	return 0;
}

static void reply_entry(struct fs_wait *wait, unshard_node *handle, const struct unshard_stat *st)
{
	struct fs *fs = wait->fs;
	struct fuse_entry_param entry;
	int code = fill_entry(fs, wait->node, handle, st, &entry);
	fuse_req_t req;

	if (code < 0) {
		fs_reply_failure(wait, code);
		return;
	}
	req = fs_wait_take(wait);
	if (!req || fuse_reply_entry(req, &entry) < 0) /* interrupted: the kernel never saw it */
		fs_nodes_forget(&fs->nodes, fs_nodes_of_id(&fs->nodes, entry.ino), 1);
}

static void do_lookup(struct fs_wait *wait)
{
	struct unshard_error err = { 0 };
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	unshard_node *handle;
	int code = unshard_lookup(wait->node->node, wait->name, &handle, &st, &err);

	if (code == -ENOENT) {
		reply_absent(wait);
	} else if (code < 0) {
		complain(wait->fs, "look up a name in", unshard_node_path(wait->node->node), &err);
		fs_reply_failure(wait, code);
	} else {
		reply_entry(wait, handle, &st);
	}
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent_id, const char *name)
{
	fs_answer(&(struct fs_wait){ .req = req, .work = do_lookup, .node = fs_node_of(req, parent_id), .alone = true },
		  name);
}

static void op_forget(fuse_req_t req, fuse_ino_t id, uint64_t n)
{
	fs_nodes_forget(&fs_of(req)->nodes, fs_node_of(req, id), n);
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	size_t i;

	for (i = 0; i < count; i++)
		fs_nodes_forget(&fs_of(req)->nodes, fs_node_of(req, forgets[i].ino), forgets[i].nlookup);
	fuse_reply_none(req);
}

static void do_getattr(struct fs_wait *wait)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	struct stat attr;
	int code = stat_node(wait->fs, wait->node, &st);
	fuse_req_t req;

	if (code < 0) {
		fs_reply_failure(wait, code);
		return;
	}
	fill_attr(&st, &attr);
	req = fs_wait_take(wait);
	if (req)
		fuse_reply_attr(req, &attr, seconds_of(&st));
}

/* Every path below the mount begins there, that of .unshard too, which answers always. */
static void root_is_late(fuse_req_t req, struct fs *fs)
{
	struct stat attr;

	fill_attr(&fs->nodes.root->stat, &attr);
	fuse_reply_attr(req, &attr, changing_seconds);
}

static void op_getattr(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
	(void)fi;
	fs_answer(&(struct fs_wait){ .req = req,
				     .work = do_getattr,
				     .late = id == FUSE_ROOT_ID ? root_is_late : NULL,
				     .node = fs_node_of(req, id),
				     .alone = true },
		  NULL);
}

static void do_readlink(struct fs_wait *wait)
{
	struct unshard_error err = { 0 };
	char *target = NULL;
	int code = unshard_node_readlink(wait->node->node, &target, &err);
	fuse_req_t req;

	if (code < 0) {
		complain(wait->fs, "readlink", unshard_node_path(wait->node->node), &err);
		fs_reply_failure(wait, code);
	} else {
		req = fs_wait_take(wait);
		if (req)
			fuse_reply_readlink(req, target);
	}
	unshard_free(target);
}

static void op_readlink(fuse_req_t req, fuse_ino_t id)
{
	fs_answer(&(struct fs_wait){ .req = req, .work = do_readlink, .node = fs_node_of(req, id), .alone = true },
		  NULL);
}

static void op_statfs(fuse_req_t req, fuse_ino_t id)
{
	struct statvfs st = { .f_bsize = SMALL_BLOCK_BYTES,
			      .f_frsize = SMALL_BLOCK_BYTES,
			      .f_namemax = 255,
			      .f_flag = ST_RDONLY | ST_NOSUID };

	(void)id;
	fuse_reply_statfs(req, &st);
}

/* -- directories -- */

static void reply_open(struct fs_wait *wait, struct fs_handle *handle)
{
	fuse_req_t req = fs_wait_take(wait);

	wait->fi.fh = (uint64_t)(uintptr_t)handle;
	if (!req || fuse_reply_open(req, &wait->fi) < 0) /* interrupted: no release will come */
		fs_handles_close(&wait->fs->handles, handle);
}

static void do_opendir(struct fs_wait *wait)
{
	struct fs *fs = wait->fs;
	struct fs_handle *handle;
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	int code = stat_node(fs, wait->node, &st);

	handle = code < 0 ? NULL : fs_handles_open(&fs->handles, wait->node, NULL, false);
	if (!handle) {
		fs_reply_failure(wait, code < 0 ? code : -ENOMEM);
		return;
	}
	wait->fi.keep_cache = wait->fi.cache_readdir = st.stable && wait->node != fs->nodes.root;
	reply_open(wait, handle);
}

static void op_opendir(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
	fs_answer(
		&(struct fs_wait){
			.req = req, .work = do_opendir, .node = fs_node_of(req, id), .fi = *fi, .alone = true },
		NULL);
}

/* The first read of a directory, and each one after rewinddir, sees it as it is then. One at a time runs on an open
 * directory: the kernel sees to that, and `alone` where one was interrupted. */
static int handle_list(struct fs *fs, struct fs_handle *handle, off_t off)
{
	struct unshard_error err = { 0 };
	unshard_listing *fresh = NULL;
	int code;

	if (off && handle->listing)
		return 0;
	code = unshard_node_list(handle->node->node, &fresh, &err);
	if (code < 0) {
		complain(fs, "list", unshard_node_path(handle->node->node), &err);
		return code;
	}
	unshard_listing_free(handle->listing);
	handle->listing = fresh;
	return 0;
}

struct dir_reply {
	struct fs *fs;
	struct fs_node *dir;
	const unshard_listing *listing;
	bool plus;
	char *buf;
	size_t size, used;
	fuse_ino_t *given; /* readdirplus: nodes that got a lookup more by this reply */
	size_t n_given;
};

enum { ENTRY_BYTES = 24 }; /* at least, of each entry in a reply */

static size_t room_of(const struct dir_reply *r)
{
	return r->size - r->used;
}

/* "." and "..", which the kernel does not count as lookups. 1 = added, 0 = the buffer is full. */
static int add_dot(struct dir_reply *r, const char *name, uint64_t ino, off_t next)
{
	struct fuse_entry_param entry = { .ino = 0 };
	size_t need;

	fill_attr(&r->dir->stat, &entry.attr);
	entry.attr.st_ino = ino;
	need = r->plus ? fuse_add_direntry_plus(NULL, r->buf + r->used, room_of(r), name, &entry, next)
		       : fuse_add_direntry(NULL, r->buf + r->used, room_of(r), name, &entry.attr, next);
	if (need > room_of(r))
		return 0;
	r->used += need;
	return 1;
}

/* Append entry i of the listing; or a negative errno. */
static int add_plain(struct dir_reply *r, size_t i, off_t next)
{
	const struct unshard_dirent *e = unshard_listing_at(r->listing, i);
	struct stat attr;
	size_t need;

	fill_attr(&e->stat, &attr);
	need = fuse_add_direntry(NULL, r->buf + r->used, room_of(r), e->name, &attr, next);
	if (need > room_of(r))
		return 0;
	r->used += need;
	return 1;
}

static int add_plus(struct dir_reply *r, size_t i, off_t next)
{
	const struct unshard_dirent *e = unshard_listing_at(r->listing, i);
	struct fuse_entry_param entry;
	unshard_node *handle;
	size_t need;

	/* Asked with no room: how much it takes, before there is anything to undo. */
	need = fuse_add_direntry_plus(NULL, NULL, 0, e->name, NULL, 0);
	if (need > room_of(r))
		return 0;
	if (unshard_listing_node(r->listing, i, &handle, NULL) < 0 ||
	    fill_entry(r->fs, r->dir, handle, &e->stat, &entry) < 0)
		return -ENOMEM;
	fuse_add_direntry_plus(NULL, r->buf + r->used, room_of(r), e->name, &entry, next);
	r->given[r->n_given++] = entry.ino;
	r->used += need;
	return 1;
}

/* Negative when not even the first entry could be added: what was added before is worth a reply, and the
 * kernel comes back for the rest. */
static int add_entries(struct dir_reply *r, off_t off)
{
	int added = 1;
	size_t i;

	if (off == 0 && (added = add_dot(r, ".", r->dir->stat.ino, 1)))
		off = 1;
	if (off == 1 && added && (added = add_dot(r, "..", r->dir->up_ino, 2)))
		off = 2;
	for (i = (size_t)off - 2; added > 0 && off >= 2 && i < unshard_listing_count(r->listing); i++)
		added = r->plus ? add_plus(r, i, (off_t)i + 3) : add_plain(r, i, (off_t)i + 3);
	return r->used ? 0 : added < 0 ? added : 0;
}

/* Undo what the kernel never saw. */
static void take_back(struct dir_reply *r)
{
	while (r->n_given)
		fs_nodes_forget(&r->fs->nodes, fs_nodes_of_id(&r->fs->nodes, r->given[--r->n_given]), 1);
}

static int fill_reply(struct dir_reply *r, struct fs_handle *handle, off_t off)
{
	int code;

	if (off < 0)
		return -EINVAL;
	r->buf = malloc(r->size);
	r->given = r->plus ? calloc(r->size / ENTRY_BYTES + 1, sizeof(*r->given)) : NULL;
	if (!r->buf || (r->plus && !r->given))
		return -ENOMEM;
	code = handle_list(r->fs, handle, off);
	r->listing = handle->listing;
	return code < 0 ? code : add_entries(r, off);
}

static void do_readdir(struct fs_wait *wait)
{
	struct dir_reply r = { .fs = wait->fs, .dir = wait->node, .plus = wait->plus, .size = wait->size };
	int code = fill_reply(&r, wait->handle, wait->off);
	fuse_req_t req;

	if (code < 0) {
		fs_reply_failure(wait, code);
	} else {
		req = fs_wait_take(wait);
		if (!req || fuse_reply_buf(req, r.buf, r.used) < 0) /* interrupted */
			take_back(&r);
	}
	free(r.given);
	free(r.buf);
}

static void read_directory(fuse_req_t req, size_t size, off_t off, const struct fuse_file_info *fi, bool plus)
{
	struct fs_handle *handle = handle_of(req, fi);

	fs_answer(&(struct fs_wait){ .req = req,
				     .work = do_readdir,
				     .node = handle->node,
				     .handle = handle,
				     .fi = *fi,
				     .size = size,
				     .off = off,
				     .plus = plus,
				     .alone = true },
		  off ? NULL : ""); /* more of a listing is in memory */
}

static void op_readdir(fuse_req_t req, fuse_ino_t id, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)id;
	read_directory(req, size, off, fi, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t id, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)id;
	read_directory(req, size, off, fi, true);
}

/* -- files -- */

/* The file is the one that the node was looked up as, or the kernel's size would be another's. */
static int open_node(struct fs_wait *wait, struct unshard_stat *st, struct fs_handle **out)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = wait, .progress = fs_gave_up };
	struct fs *fs = wait->fs;
	struct unshard_error err = { 0 };
	unshard_file *file = NULL;
	int code = unshard_node_open(wait->node->node, &calls, &file, st, &err);

	if (code == -EINTR)
		return code;
	if (code < 0) {
		complain(fs, "open", unshard_node_path(wait->node->node), &err);
		return code;
	}
	*out = fs_pages_open(&fs->pages, &fs->handles, wait->node, file, st->young);
	if (*out)
		return 0;
	unshard_file_close(file);
	return -ENOMEM;
}

static void do_open(struct fs_wait *wait)
{
	struct fs_handle *handle;
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	int code = open_node(wait, &st, &handle);

	if (code < 0) {
		fs_reply_failure(wait, code);
		return;
	}
	wait->fi.keep_cache = st.stable;
	wait->fi.direct_io = st.live; /* read to its end, whatever size stat had */
	wait->fi.noflush = true;
	reply_open(wait, handle);
}

static void op_open(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
	if ((fi->flags & O_ACCMODE) != O_RDONLY || fi->flags & O_TRUNC)
		fuse_reply_err(req, EROFS);
	else
		fs_answer(
			&(struct fs_wait){
				.req = req, .work = do_open, .node = fs_node_of(req, id), .fi = *fi, .alone = true },
			NULL);
}

static void reply_bytes(struct fs_wait *wait, const void *buf, ssize_t n)
{
	fuse_req_t req;

	if (n < 0) {
		fs_reply_failure(wait, (int)n); /* the session logs reads by itself */
		return;
	}
	fs_pages_read(&wait->fs->pages, wait->handle, &wait->fi, wait->off, (size_t)n);
	req = fs_wait_take(wait);
	if (req)
		fuse_reply_buf(req, buf, (size_t)n);
}

static void do_read(struct fs_wait *wait)
{
	struct fs *fs = wait->fs;
	void *buf = fs_buffers_get(&fs->buffers);
	ssize_t n = -ENOMEM;

	fs_sealing_read_begins(&fs->sealing);
	/* More than was agreed in op_init: the kernel would take a shorter answer for the end of the file. */
	if (buf)
		n = wait->size > FS_BUFFER_BYTES
			    ? -EIO
			    : unshard_pread(wait->handle->file, buf, wait->size, (uint64_t)wait->off, NULL);
	fs_sealing_read_ends(&fs->sealing);
	reply_bytes(wait, buf, n);
	if (buf)
		fs_buffers_put(&fs->buffers, buf);
}

static void op_read(fuse_req_t req, fuse_ino_t id, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct fs_handle *handle = handle_of(req, fi);

	(void)id;
	fs_answer(&(struct fs_wait){ .req = req,
				     .work = do_read,
				     .node = handle->node,
				     .handle = handle,
				     .fi = *fi,
				     .size = size,
				     .off = off },
		  NULL);
}

/* To close a source file may take as long as to read it. The kernel forgets no node before it has this answer. */
static void do_release(struct fs_wait *wait)
{
	struct fs *fs = wait->fs;
	struct fs_handle *handle = fs_handles_given(&fs->handles, wait->fi.fh);
	bool is_file = handle->file;
	fuse_req_t req;

	fs_handles_close(&fs->handles, handle);
	if (is_file)
		fs_pages_closed(&fs->pages, fs->se, fs_nodes_id(&fs->nodes, wait->node), wait->node);
	req = fs_wait_take(wait);
	if (req)
		fuse_reply_err(req, 0);
}

static void op_release(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
	(void)id;
	fs_answer(&(struct fs_wait){ .req = req, .work = do_release, .node = handle_of(req, fi)->node, .fi = *fi },
		  NULL);
}

/* -- the connection -- */

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	const unsigned want = FUSE_CAP_ASYNC_READ | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_READDIRPLUS |
			      FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_ASYNC_DIO;
	/* No signal ends a program that reads a link which the kernel is just keeping (CACHE_SYMLINKS). Replies are
	 * memory: a splice would only add system calls. */
	const unsigned unwanted = FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE |
				  FUSE_CAP_EXPORT_SUPPORT | FUSE_CAP_CACHE_SYMLINKS;

	(void)userdata;
	conn->want &= ~unwanted;
	conn->want |= conn->capable & want;
	conn->max_read = FS_BUFFER_BYTES; /* as the mount option: libfuse needs both */
	conn->max_write = FS_BUFFER_BYTES; /* bounds reads too where others mounted: libfuse makes max_pages of it */
	conn->max_background = BACKGROUND_REQUESTS;
	conn->congestion_threshold = BACKGROUND_REQUESTS * 3 / 4;
}

/* Absent on purpose, because libfuse answers ENOSYS once and the kernel then never asks again:
 * access (mode bits are the kernel's with default_permissions, else the owner alone may come here), flush, fsync, locks
 * (local ones do). */
const struct fuse_lowlevel_ops fs_ops = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.readlink = op_readlink,
	.statfs = op_statfs,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.releasedir = op_release,
	.open = op_open,
	.read = op_read,
	.release = op_release,
	.getxattr = fs_op_getxattr,
	.listxattr = fs_op_listxattr,
	.setattr = fs_refuse_setattr,
	.mknod = fs_refuse_mknod,
	.mkdir = fs_refuse_mkdir,
	.unlink = fs_refuse_unlink,
	.rmdir = fs_refuse_unlink,
	.symlink = fs_refuse_symlink,
	.rename = fs_refuse_rename,
	.link = fs_refuse_link,
	.create = fs_refuse_create,
	.write = fs_refuse_write,
	.setxattr = fs_refuse_setxattr,
	.removexattr = fs_refuse_removexattr,
	.fallocate = fs_refuse_fallocate,
};
