#include "seal/place.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "io/source.h"

bool uns_seal_is_file(const char *seals)
{
	return uns_str_ends(seals, UNS_SEAL_SUFFIX) && strlen(uns_path_name(seals)) > strlen(UNS_SEAL_SUFFIX);
}

static int read_text(const char *file, struct uns_arena *arena, struct uns_span *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = open(file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	char *bytes;

	if (fd < 0 || fstat(fd, &st) < 0)
		return errno == ENOTDIR ? uns_fail(err, -ENOENT, "%s does not exist", file)
					: uns_fail(err, -errno, "%s: %s", file, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return uns_fail(err, -EBADMSG, "%s: it is no regular file", file);
	if ((uint64_t)st.st_size > UNS_SEAL_MAX_BYTES)
		return uns_fail(err, -EBADMSG, "%s: it has more bytes than a seal may have", file);
	UNS_TRY_ALLOC(bytes = uns_arena_alloc(arena, (size_t)st.st_size + 1, 1), err);
	UNS_TRY(uns_fd_pread(fd, bytes, (size_t)st.st_size, 0, file, err));
	*out = uns_span_of(bytes, (size_t)st.st_size);
	return 0;
}

/* subject: the checkpoint's absolute path. */
static int find_in_directory(const char *directory, const char *subject, struct uns_arena *arena, struct uns_span *text,
			     const char **where, struct uns_err *err)
{
	struct uns_err why;
	int code;

	for (; subject; subject = strchr(subject + 1, '/')) {
		why = (struct uns_err){ 0 };
		*where = uns_arena_printf(arena, "%s%s%s", directory, subject, UNS_SEAL_SUFFIX);
		UNS_TRY_ALLOC(*where, err);
		code = read_text(*where, arena, text, &why);
		if (code != -ENOENT && code != -ENAMETOOLONG)
			return code < 0 ? uns_fail_as(err, &why) : 0;
	}
	return uns_fail(err, -ENOENT, "there is no seal below %s", directory);
}

static int find_in_store(struct store_link *link, const char *subject, struct uns_arena *arena, struct uns_span *text,
			 struct uns_err *err)
{
	struct uns_store *store = store_hold(link, NULL);
	int code;

	if (!store)
		return uns_fail(err, -ENOENT, "there is no metadata store");
	code = uns_store_seal_get(store, subject, arena, text, err);
	store_release(link);
	return code;
}

/* A file that the user named for one checkpoint is not that of another. */
static bool is_of(const char *file, const char *subject, const struct uns_seal *seal)
{
	const char *name = uns_path_name(subject), *own = uns_path_name(file);
	const size_t len = strlen(own) - strlen(UNS_SEAL_SUFFIX);

	return (strlen(name) == len && strncmp(own, name, len) == 0) || strcmp(seal->checkpoint, name) == 0;
}

int uns_seal_load(const struct uns_seal_place *place, const char *path, struct uns_arena *arena, struct uns_seal *out,
		  const char **where, struct uns_err *err)
{
	const char *subject = store_subject(place->store, path, arena);
	const bool file = place->seals && uns_seal_is_file(place->seals);
	struct uns_err why = { 0 };
	struct uns_span text;

	UNS_TRY_ALLOC(subject, err);
	*where = place->seals ? place->seals : "the metadata store";
	if (file)
		UNS_TRY(read_text(place->seals, arena, &text, err));
	else if (place->seals)
		UNS_TRY(find_in_directory(place->seals, subject, arena, &text, where, err));
	else
		UNS_TRY(find_in_store(place->store, subject, arena, &text, err));
	if (uns_seal_parse(text, arena, out, &why) < 0)
		return uns_fail(err, why.code, "%s: %s", *where, why.text);
	if (file && !is_of(place->seals, subject, out))
		return uns_fail(err, -EEXIST, "%s is the seal of another checkpoint (%s)", place->seals,
				out->checkpoint);
	return 0;
}
