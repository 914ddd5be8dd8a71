/* unshard umount: ends a mount of unshard, live, busy or dead. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "fs.h"

enum how { PLAIN, LAZY, FORCED };

enum { BUSY_TRIES = 5, GONE_TRIES = 250, PAUSE_MS = 20 };

static void pause_a_little(void)
{
	const struct timespec t = { .tv_nsec = PAUSE_MS * 1000000L };

	nanosleep(&t, NULL);
}

static int detach(const char *path, bool lazy)
{
	if (geteuid() != 0)
		return fs_fusermount_unmount(path, lazy);
	return umount2(path, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) < 0 ? -errno : 0;
}

/* Everything that waits for the mount gets an error, and the serving process ends. */
static void abort_connection(const struct fs_mount *mount)
{
	char path[96];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%u/abort",
		 (unsigned)(mount->dev & 0xff) | (unsigned)(mount->dev >> 12 & 0xfff00));
	file = fopen(path, "we");
	if (!file)
		return;
	fputs("1\n", file);
	fclose(file);
}

static void force(const char *path, const struct fs_mount *mount)
{
	abort_connection(mount);
	if (geteuid() == 0)
		umount2(path, UMOUNT_NOFOLLOW | MNT_FORCE);
}

/* A reader that ends just now should not make the difference. */
static int try_plain(const char *path)
{
	int i, code = -EBUSY;

	for (i = 0; i < BUSY_TRIES && code == -EBUSY; i++) {
		if (i)
			pause_a_little();
		code = detach(path, false);
	}
	return code;
}

static bool is_ours(const char *path, struct fs_mount *mount)
{
	return fs_mount_find(path, mount) && !strcmp(mount->type, "fuse.unshard");
}

static int wait_until_gone(const char *path, uint64_t dev)
{
	struct fs_mount mount;
	int i;

	for (i = 0; i < GONE_TRIES; i++) {
		if (!is_ours(path, &mount) || mount.dev != dev)
			return EXIT_DONE;
		pause_a_little();
	}
	return command_fail("%s is still mounted", path);
}

static int umount_path(const char *path, enum how how)
{
	struct fs_mount mount;
	int code;

	if (!is_ours(path, &mount))
		return command_fail("%s is not a mount of unshard", path);
	if (how == FORCED)
		force(path, &mount);
	code = how == PLAIN ? try_plain(path) : detach(path, true);
	if (code == -EBUSY && how == PLAIN) {
		code = detach(path, true);
		if (!code)
			fprintf(stderr,
				"unshard: %s was in use and is detached: files that are open in "
				"it can be read until they are closed\n",
				path);
	}
	if (how == FORCED && code == -EINVAL)
		code = 0; /* already gone with the connection */
	if (code == -ENOSYS)
		return command_fail("%s: only root can unmount without fusermount3, which is not installed", path);
	if (code < 0)
		return command_fail("%s: %s", path,
				    geteuid() == 0 ? strerror(-code) : "fusermount3 could not unmount it (not yours?)");
	return wait_until_gone(path, mount.dev);
}

/* By its name as written, since a dead mount cannot be visited; through links otherwise. */
static int resolve(const char *name, char path[4096], struct unshard_error *err)
{
	struct fs_mount mount;
	char *real;
	int code = fs_mount_path(name, path, err);

	if (code < 0 || fs_mount_find(path, &mount))
		return code;
	real = realpath(name, NULL);
	if (real)
		snprintf(path, 4096, "%s", real);
	free(real);
	return 0;
}

struct all {
	char **path;
	size_t n;
};

static void collect(void *ctx, const struct fs_mount *mount)
{
	struct all *all = ctx;
	char **grown = realloc(all->path, (all->n + 1) * sizeof(*grown));

	if (!grown) {
		command_no_memory();
		return;
	}
	all->path = grown;
	grown[all->n] = strdup(mount->path);
	all->n += grown[all->n] != NULL;
}

/* The last one first: one may lie in another. */
static int umount_all(enum how how)
{
	struct all all = { .n = 0 };
	int status = EXIT_DONE;

	fs_mounts_visit(collect, &all);
	while (all.n) {
		if (umount_path(all.path[--all.n], how) != EXIT_DONE)
			status = EXIT_COULD_NOT;
		free(all.path[all.n]);
	}
	free(all.path);
	return status;
}

static int umount_run(const struct command *self, int argc, char **argv)
{
	struct unshard_error err = { 0 };
	enum how how = PLAIN;
	bool every = false;
	char path[4096];
	int c;

	while ((c = flags_next(self->flags, argc, argv)) != -1) {
		if (c == 'h')
			return command_help(self);
		if (c == '?')
			return command_usage(self);
		if (c == 'a')
			every = true;
		else
			how = c == 'f' ? FORCED : LAZY;
	}
	if (every && argc == optind)
		return umount_all(how);
	if (every)
		return command_usage(self);
	if (argc - optind != 1)
		return command_operands(self, argc - optind, argv + optind);
	if (resolve(argv[optind], path, &err) < 0)
		return command_fail("%s", err.text);
	return umount_path(path, how);
}

const struct command cmd_umount = {
	.name = "umount",
	.operands = "MOUNTPOINT",
	.arguments = "MOUNTPOINT | --all [-z | -f]",
	.summary = "end a mount",
	.help = "A mount that is in use is detached: it disappears from the directory tree at once, files "
		"that are open can still be read, and the serving process ends when the last of them is "
		"closed.",
	.example = "unshard umount mnt",
	.flags =
		(const struct flag[]){
			{ 'z', "lazy", true, NULL, "detach without trying the ordinary way first", NAMES_NOTHING },
			{ 'f', "force", true, NULL, "readers get errors, the serving process ends", NAMES_NOTHING },
			{ 'a', "all", false, NULL, "end every mount of unshard on this machine", NAMES_NOTHING },
			FLAG_HELP,
			FLAGS_END,
		},
	.names = { NAMES_MOUNT },
	.run = umount_run,
};
