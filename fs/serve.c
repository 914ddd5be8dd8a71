/* A mount from birth to death: libfuse's session, the first request, the loop. Owns the order of
 * things; how a process goes to the background is daemon.c's, what is answered is ops.c's. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "capture.h"
#include "confine.h"
#include "daemon.h"
#include "fail.h"
#include "fs.h"
#include "loop.h"
#include "ops.h"
#include "readahead.h"

enum { DEFAULT_THREADS = 16, MOST_HANGING = 15, FILES_PER_THREAD = 8, DEFAULT_READ_AHEAD_KB = 4096, PATH_BYTES = 4096 };

const char *fs_libfuse_version(void)
{
	return fuse_pkgversion();
}

/* What libfuse would report less clearly, or only after a fork. */
static int check_mountpoint(const struct fs_options *o, char path[PATH_BYTES], struct unshard_error *err)
{
	const char *name = o->mountpoint;
	struct fs_mount mount;
	struct stat st;
	char *real;

	if (fs_passed_fd(name) >= 0) {
		snprintf(path, PATH_BYTES, "%s", name);
		return 0;
	}
	if (stat(name, &st) < 0) {
		if (errno == ENOTCONN)
			return fs_fail(err, -ENOTCONN,
				       "%s holds a mount whose serving process has ended (Transport "
				       "endpoint is not connected): run `unshard umount %s` (or "
				       "fusermount3 -u) first",
				       name, name);
		if (errno == ENOENT)
			return fs_fail(err, -ENOENT, "mount point %s does not exist: make it first (mkdir -p %s)", name,
				       name);
		return fs_fail(err, -errno, "mount point %s: %s", name, strerror(errno));
	}
	if (!S_ISDIR(st.st_mode))
		return fs_fail(err, -ENOTDIR, "mount point %s is not a directory", name);
	real = realpath(name, path);
	if (!real)
		return fs_fail(err, -errno, "mount point %s: %s", name, strerror(errno));
	if (fs_mount_find(path, &mount) && !strcmp(mount.type, "fuse.unshard"))
		return fs_fail(err, -EBUSY,
			       "%s already shows %s: run `unshard umount %s` first, or choose another "
			       "mount point",
			       name, mount.source, name);
	return 0;
}

/* Options for libfuse and fusermount3; NULL = out of memory. The kernel holds read requests to the size of our
 * buffers. */
static char *mount_options(const struct fs_options *o)
{
	char *opts = NULL, *fsname = NULL, max_read[32];
	int failed = asprintf(&fsname, "fsname=%s", o->source) < 0;

	snprintf(max_read, sizeof(max_read), "max_read=%d", FS_BUFFER_BYTES);
	failed = failed || fuse_opt_add_opt(&opts, "ro,nosuid,nodev,subtype=unshard") ||
		 fuse_opt_add_opt(&opts, max_read) || fuse_opt_add_opt_escaped(&opts, fsname) ||
		 (o->allow_other && fuse_opt_add_opt(&opts, "allow_other,default_permissions")) ||
		 (o->fuse_options && fuse_opt_add_opt(&opts, o->fuse_options));
	free(fsname);
	if (!failed)
		return opts;
	free(opts);
	return NULL;
}

/* Why a mount failed. device: as fs_connection_make has it; the text is what was on stderr. */
static int mount_failure(const char *path, int device, const char *said, struct unshard_error *err)
{
	if (device == -ENOENT || device == -ENODEV || device == -ENXIO)
		return fs_fail(err, -ENODEV,
			       "cannot mount at %s: /dev/fuse is missing. It comes with: modprobe fuse (your own "
			       "machine); --device /dev/fuse --cap-add SYS_ADMIN (Docker); a FUSE device plugin, or a "
			       "CSI driver that passes /dev/fd/N on (Kubernetes: CAP_SYS_ADMIN alone does not help); "
			       "the administrator (Slurm). Without it: unshard export, or the Python package",
			       path);
	if (device < 0)
		return fs_fail(err, device,
			       "cannot mount at %s: /dev/fuse cannot be opened: %s. Without it: unshard "
			       "export, or the Python package",
			       path, strerror(-device));
	if (strstr(said, "fusermount3: No such file"))
		return fs_fail(
			err, -ENOENT,
			"cannot mount at %s: fusermount3 is not installed (package fuse3). Root can mount without "
			"it, and unshard export and the Python package need no mount",
			path);
	return fs_fail(err, -EIO, "cannot mount at %s: %s", path, *said ? said : "libfuse did not say why");
}

/* -1 = libfuse's reason is on stderr. Then the session may be there still. */
static int make_session(struct fs *fs, const char *path, const char *opts, int *device)
{
	fs->se = fs_sessions_first(&fs->sessions, opts);
	if (!fs->se || fuse_set_signal_handlers(fs->se) < 0)
		return -1;
	if (fs_connection_make(&fs->connection, fs->se, path, opts, device) == 0)
		return 0;
	fuse_remove_signal_handlers(fs->se);
	return -1;
}

static int start(struct fs *fs, const char *path, const char *opts, struct unshard_error *err)
{
	struct fs_capture capture;
	char said[256];
	int code, device = 0;

	fs_capture_begin(&capture);
	code = make_session(fs, path, opts, &device);
	fs_capture_end(&capture, said, sizeof(said));
	return code < 0 ? mount_failure(path, device, said, err) : 0;
}

/* FUSE_INIT is answered here and not in the loop: once its answer is written the mount is live, and
 * read-ahead can be raised. */
static int answer_init(struct fs *fs, const char *path, struct unshard_error *err)
{
	if (fs_sessions_begin(&fs->sessions, fs->se) < 0)
		return fs_fail(err, -EIO, "the mount at %s ended before it was ready", path);
	return fs_connection_spread(fs) < 0 ? fs_fail(err, -ENOMEM, "out of memory") : 0;
}

static void raise_read_ahead(const struct fs_options *o, const char *path, char *hint, size_t hint_len)
{
	struct fs_mount mount;

	if (fs_mount_find(path, &mount))
		fs_readahead_set(mount.dev, o->read_ahead_kb ? o->read_ahead_kb : DEFAULT_READ_AHEAD_KB, hint,
				 hint_len);
}

/* Each thread has a descriptor of its own, for as long as the mount lives; source files keep most of a low limit. */
static unsigned within_files(unsigned n)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur / FILES_PER_THREAD < n)
		n = (unsigned)(files.rlim_cur / FILES_PER_THREAD);
	return n ? n : 1;
}

/* That run requests on one file system of SOURCE. */
static unsigned threads(const struct fs_options *o)
{
	return within_files(o->max_threads ? o->max_threads : DEFAULT_THREADS);
}

/* As many for each of a few that hang, and one more, which receives what others may answer. */
static unsigned all_threads(const struct fs_options *o)
{
	const unsigned n = threads(o), all = within_files((1 + MOST_HANGING) * n);

	return all > n ? all : n + 1;
}

/* Threads wait for storage, and what they use cannot be freed under them. The mount has gone, all was answered, and the
 * store's file is whole at any moment. */
static _Noreturn void leave_waiting(const struct fs *fs)
{
	if (fs->log)
		fs->log(fs->log_ctx, 0, "unmounted while the source does not answer: the process ends without it");
	_exit(EXIT_SUCCESS);
}

static int loop(struct fs *fs, const struct fs_options *o, const char *path, struct unshard_error *err)
{
	int code = fs_loop(fs, all_threads(o));

	if (code > 0)
		leave_waiting(fs);
	return code < 0 ? fs_fail(err, code, "the mount at %s ended: serving it failed: %s", path, strerror(-code)) : 0;
}

/* Last before requests are served: threads inherit what the process may still do. */
static int give_up_privileges(const struct fs *fs, struct unshard_error *err)
{
	const char *writable[3];
	size_t n = 0;

	writable[n++] = unshard_cache_directory(fs->u);
	if (unshard_store_directory(fs->u))
		writable[n++] = unshard_store_directory(fs->u);
	if (fs->sealing.wanted && unshard_seals_directory(fs->u))
		writable[n++] = unshard_seals_directory(fs->u);
	return fs_confine(writable, n, err);
}

/* The mount is there. */
static int serve_mounted(struct fs *fs, const struct fs_options *o, const char *path, struct fs_daemon *daemon,
			 struct unshard_error *err)
{
	char hint[256] = "";
	int code = answer_init(fs, path, err);

	if (code < 0)
		return code;
	raise_read_ahead(o, path, hint, sizeof(hint));
	if (o->ready)
		o->ready(o->ctx);
	if (o->seal)
		code = unshard_seals_prepare(fs->u, err);
	if (!code)
		code = give_up_privileges(fs, err);
	if (code < 0)
		return code;
	if (o->confined)
		o->confined(o->ctx);
	fs_daemon_live(daemon, o, hint);
	code = loop(fs, o, path, err);
	if (code < 0 && fs->log && !o->foreground) /* no process waits any more */
		fs->log(fs->log_ctx, 0, err ? err->text : strerror(-code));
	return code;
}

/* libfuse unmounts what is at the path, which may be another mount by now: the keeper has unmounted. It does not where
 * the session's descriptor shows that the connection has ended, as the end of a pipe without a reader does. */
static void keep_from_unmounting(struct fuse_session *se)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return;
	close(ends[0]);
	dup3(ends[1], fuse_session_fd(se), O_CLOEXEC);
	close(ends[1]);
}

static void end_session(struct fuse_session *se)
{
	fuse_remove_signal_handlers(se);
	keep_from_unmounting(se);
	fuse_session_unmount(se);
}

static int serve_session(struct fs *fs, const struct fs_options *o, const char *path, const char *opts,
			 struct fs_daemon *daemon, struct unshard_error *err)
{
	int code = start(fs, path, opts, err);

	if (code < 0)
		return code;
	code = fs_keeper_start(&fs->connection.keeper, path, err);
	if (!code)
		code = serve_mounted(fs, o, path, daemon, err);
	fs_connection_unmount(fs);
	end_session(fs->se);
	return code;
}

/* From here on there are sessions, and descriptors that they close. */
static int serve_connection(struct fs *fs, const struct fs_options *o, const char *path, struct fs_daemon *daemon,
			    struct unshard_error *err)
{
	char *opts = mount_options(o);
	int code = opts ? serve_session(fs, o, path, opts, daemon, err) : fs_fail(err, -ENOMEM, "out of memory");

	fs_sessions_fini(&fs->sessions);
	free(opts);
	return code;
}

static int serve(unshard *u, const struct fs_options *o, const char *path, struct fs_daemon *daemon,
		 struct unshard_error *err)
{
	struct fs fs = { .u = u, .log = o->log, .log_ctx = o->ctx };
	struct unshard_stat stat = { UNSHARD_STAT_INIT };
	struct unshard_error why = { .text = "out of memory" };
	unshard_node *root;
	int code = unshard_root(u, &root, &why);

	if (!code && (code = unshard_node_stat(root, &stat, &why)) < 0)
		unshard_node_unref(root);
	if (!code)
		code = fs_nodes_init(&fs.nodes, root, &stat);
	if (code < 0)
		return fs_fail(err, code, "the root of %s cannot be shown: %s", o->source, why.text);
	fs_handles_init(&fs.handles);
	fs_waits_init(&fs.waits, threads(o));
	fs_buffers_init(&fs.buffers);
	fs_pages_init(&fs.pages, o->cache);
	fs_sealing_init(&fs.sealing, &fs, o);
	fs_sessions_init(&fs.sessions, &fs);
	code = fs_connection_passed(&fs.connection, o, err);
	if (!code)
		code = serve_connection(&fs, o, path, daemon, err);
	fs_waits_fini(&fs.waits);
	fs_handles_fini(&fs.handles);
	fs_sealing_fini(&fs.sealing);
	fs_pages_fini(&fs.pages);
	fs_buffers_fini(&fs.buffers);
	fs_nodes_fini(&fs.nodes);
	return code;
}

int fs_serve(unshard *u, const struct fs_options *o, struct unshard_error *err)
{
	char path[PATH_BYTES];
	struct fs_daemon daemon;
	int code = check_mountpoint(o, path, err);

	if (code < 0)
		return code;
	code = fs_daemon_start(&daemon, o, err);
	if (code < 0 || daemon.is_parent)
		return code;
	code = serve(u, o, path, &daemon, err);
	return fs_daemon_end(&daemon, code, err);
}
