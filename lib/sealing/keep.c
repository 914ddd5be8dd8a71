#include "sealing/keep.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "io/source.h"
#include "out/disk.h"

static int refuse_inside(const char *path, const char *source, struct uns_err *err)
{
	char real[PATH_MAX];

	if (realpath(path, real) && uns_path_within(real, source))
		return uns_fail(err, -EINVAL,
				"%s is inside %s, where nothing is ever written: name a place elsewhere with --seals",
				path, source);
	return 0;
}

/* The directory that has the file, or will have it. */
static char *directory_of(const char *file, struct uns_arena *arena)
{
	const char *slash = strrchr(file, '/');

	return slash == file ? uns_arena_str(arena, "/") : uns_arena_strn(arena, file, (size_t)(slash - file));
}

/* The nearest directory above that exists decides: a link may lead into SOURCE. */
static int check_above(const char *path, const char *source, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) char *above = strdup(path);
	struct stat st;
	char *slash;

	UNS_TRY_ALLOC(above, err);
	while (stat(above, &st) < 0 && (slash = strrchr(above, '/')) && slash != above)
		*slash = '\0';
	return refuse_inside(above, source, err);
}

int seal_keep_check(const struct uns_seal_place *place, const char *source, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err why = { 0 };
	const char *dir;

	if (!place->seals) {
		if (!store_hold(place->store, &why))
			return uns_fail(err, why.code, "seals are kept in the metadata store: %s", why.text);
		store_release(place->store);
		return 0;
	}
	dir = uns_seal_is_file(place->seals) ? directory_of(place->seals, &arena) : place->seals;
	UNS_TRY_ALLOC(dir, err);
	return check_above(dir, source, err);
}

static int make_directories(const char *dir, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) char *path = strdup(dir);
	char *slash = path;
	bool more = true;

	UNS_TRY_ALLOC(path, err);
	while (more) {
		slash = strchr(slash + 1, '/');
		more = slash != NULL;
		if (more)
			*slash = '\0';
		if (mkdir(path, 0777) < 0 && errno != EEXIST)
			return uns_fail_errno(path, err);
		if (more)
			*slash = '/';
	}
	return 0;
}

int seal_keep_prepare(const struct uns_seal_place *place, const char *directory, const char *source,
		      struct uns_err *err)
{
	UNS_TRY(seal_keep_check(place, source, err));
	if (!directory)
		return 0;
	UNS_TRY(make_directories(directory, err));
	return refuse_inside(directory, source, err);
}

static int write_whole(const char *file, const char *partial, const struct uns_text *text, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;

	UNS_TRY(uns_open_to_write(partial, O_WRONLY | O_CREAT | O_TRUNC, 0666, &fd, err));
	UNS_TRY(uns_write(fd, text->p, text->len, 0, partial, err));
	if (fsync(fd) < 0)
		return uns_fail_errno(partial, err);
	return rename(partial, file) < 0 ? uns_fail_errno(file, err) : 0;
}

static int keep_in_file(const char *file, const char *source, const struct uns_text *text, struct uns_arena *arena,
			struct uns_err *err)
{
	const char *dir = directory_of(file, arena);
	/* Hidden, so that `sha256sum -c *` does not find it. */
	const char *partial = uns_arena_printf(arena, "%s/.%s.partial", dir ? dir : "", uns_path_name(file));
	int code;

	UNS_TRY(uns_arena_check(arena, err));
	UNS_TRY(check_above(dir, source, err));
	UNS_TRY(make_directories(dir, err));
	UNS_TRY(refuse_inside(dir, source, err));
	code = write_whole(file, partial, text, err);
	if (code < 0)
		unlink(partial);
	return code < 0 ? code : uns_sync_dir(dir, err);
}

static int keep_in_store(struct store_link *link, const char *path, const struct uns_text *text,
			 struct uns_arena *arena, struct uns_err *err)
{
	const char *subject = store_subject(link, path, arena);
	struct uns_store *store;
	int code;

	UNS_TRY_ALLOC(subject, err);
	store = store_hold_to_change(link, err);
	if (!store)
		return -ENOENT;
	code = uns_store_seal_put(store, subject, text->p, text->len, err);
	store_release(link);
	return code;
}

int seal_keep(const struct uns_seal_place *place, const char *source, const char *path, const char *below,
	      const struct uns_seal *seal, struct uns_arena *arena, const char **where, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;

	uns_seal_emit(seal, &text);
	if (text.failed)
		return uns_oom(err);
	if (text.len > UNS_SEAL_MAX_BYTES)
		return uns_fail(err, -EFBIG, "%s has so many pieces that its seal would have %zu bytes", path,
				text.len);
	*where = "the metadata store";
	if (!place->seals)
		return keep_in_store(place->store, path, &text, arena, err);
	*where = uns_seal_is_file(place->seals)
			 ? place->seals
			 : uns_arena_printf(arena, "%s/%s%s", place->seals, below, UNS_SEAL_SUFFIX);
	UNS_TRY_ALLOC(*where, err);
	return keep_in_file(*where, source, &text, arena, err);
}
