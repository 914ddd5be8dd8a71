/* unshard_attribute and unshard_node_attribute: what is known of one name of the tree, as texts. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/caller.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/sha256.h"
#include "engine/extents.h"
#include "paths/files.h"
#include "paths/nodes.h"

enum { PART_BYTES = 1 << 20 };

/* One question. */
struct asking {
	struct unshard *u;
	const struct spot *spot;
	const char *name; /* its path in the tree */
	const struct unshard_calls *calls;
	struct uns_text out;
};

static int none(const char *what, struct uns_err *err)
{
	return uns_fail(err, -ENODATA, "%s: no such attribute here", what);
}

/* -- view, generation -- */

static int give_view(struct asking *a, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const char *view = spot_view(a->u, a->spot, a->name, &arena);

	if (!view)
		return a->spot->key.view ? uns_oom(err) : none("view", err);
	uns_text_str(&a->out, view);
	return 0;
}

static int give_generation(struct asking *a, struct uns_err *err)
{
	uint64_t generation;

	if (!spot_generation(a->u, a->spot, &generation))
		return none("generation", err);
	uns_text_printf(&a->out, "%016" PRIx64, generation);
	return 0;
}

/* -- source -- */

struct extents {
	struct uns_text *out;
	const struct uns_catalog *cat;
	size_t n;
};

static void extent_file(struct uns_text *out, const struct uns_file *file)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const char *path = uns_path_join(&arena, uns_root_path(file->root), file->path);

	out->failed |= !path;
	if (path)
		uns_text_json_str(out, path);
}

static int extent_add(void *ctx, const struct uns_extent *e)
{
	static const char *const from[] = { "file", "zeros", "computed" };
	struct extents *x = ctx;

	uns_text_printf(x->out, "%s{\"at\":%" PRIu64 ",\"length\":%" PRIu64 ",\"from\":\"%s\"", x->n++ ? "," : "",
			e->at_bytes, e->len_bytes, from[e->from]);
	if (e->from == UNS_EXTENT_FILE) {
		uns_text_str(x->out, ",\"file\":");
		extent_file(x->out, &x->cat->files[e->file]);
		uns_text_printf(x->out, ",\"offset\":%" PRIu64, e->offset_bytes);
	}
	uns_text_str(x->out, "}");
	return 0;
}

static int give_source(struct asking *a, struct unshard_file *file, struct uns_err *err)
{
	struct extents x = { .out = &a->out };
	const struct file_bytes bytes = file_bytes(file);
	int code = 0;

	uns_text_printf(&a->out, "{\"size_bytes\":%" PRIu64 ",\"extents\":[", bytes.size_bytes);
	if (bytes.layout) {
		x.cat = bytes.layout->catalog;
		code = uns_layout_extents(bytes.backing, bytes.layout, extent_add, &x, err);
	} else if (bytes.size_bytes) {
		extent_add(&x, &(struct uns_extent){ 0, bytes.size_bytes, UNS_EXTENT_COMPUTED, 0, 0 });
	}
	uns_text_str(&a->out, "]}");
	return code;
}

/* -- sha256 -- */

static int add_all(struct unshard_file *file, uint64_t size, struct uns_sha256 *sum, struct caller *caller,
		   struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) uint8_t *part = malloc(PART_BYTES);
	struct unshard_error why = { 0 };
	uint64_t at = 0;
	ssize_t got;

	UNS_TRY_ALLOC(part, err);
	while ((got = unshard_pread(file, part, PART_BYTES, at, &why)) > 0) {
		uns_sha256_add(sum, part, (size_t)got);
		at += (uint64_t)got;
		if (caller_progress(caller, UNSHARD_READING, at, size))
			return uns_fail(err, -EINTR, "ended by the caller");
	}
	return got < 0 ? uns_fail(err, (int)got, "%s", why.text) : 0;
}

static int give_sha256(struct asking *a, struct unshard_file *file, struct uns_err *err)
{
	struct uns_sha256 sum;
	struct caller caller;
	uint8_t digest[UNS_SHA256_BYTES];

	uns_sha256_init(&sum);
	UNS_TRY(caller_init(&caller, a->calls, err));
	UNS_TRY(caller_fini(&caller, add_all(file, file_bytes(file).size_bytes, &sum, &caller, err)));
	uns_sha256_end(&sum, digest);
	uns_text_hex(&a->out, digest, sizeof(digest));
	return 0;
}

/* -- all of them -- */

typedef int give_bytes(struct asking *a, struct unshard_file *file, struct uns_err *err);

/* Of what the file is while it is open. The spot ends. */
static int of_file(struct asking *a, struct spot *spot, give_bytes *give, struct uns_err *err)
{
	struct unshard_file *file;
	int code;

	if (spot_is_dir(spot) || spot_is_link(spot)) {
		spot_fini(a->u, spot);
		return none("of a directory or a link", err);
	}
	UNS_TRY(file_open_spot(a->u, spot, a->name, &file, err));
	code = give(a, file, err);
	unshard_file_close(file);
	return code;
}

/* Ends the spot. */
static int ask(struct unshard *u, struct spot *spot, const char *name, const char *what,
	       const struct unshard_calls *calls, char **text, struct uns_err *err)
{
	struct asking a = { .u = u, .spot = spot, .name = name, .calls = calls };
	int code;

	if (strcmp(what, "source") == 0 || strcmp(what, "sha256") == 0) {
		code = of_file(&a, spot, what[1] == 'o' ? give_source : give_sha256, err);
	} else {
		code = strcmp(what, "view") == 0         ? give_view(&a, err)
		       : strcmp(what, "generation") == 0 ? give_generation(&a, err)
							 : none(what, err);
		spot_fini(u, spot);
	}
	if (code == 0)
		*text = uns_text_take(&a.out, NULL);
	uns_text_fini(&a.out);
	return code || *text ? code : uns_oom(err);
}

int unshard_attribute(unshard *u, const char *path, const char *name, const struct unshard_calls *calls, char **text,
		      struct unshard_error *error)
{
	struct uns_err err = { 0 };
	struct spot spot;
	int code = spot_find(u, path, &spot, &err);

	*text = NULL;
	if (code == 0)
		code = ask(u, &spot, path, name, calls, text, &err);
	return give_error(error, &err, code);
}

int unshard_node_attribute(const unshard_node *node, const char *name, const struct unshard_calls *calls, char **text,
			   struct unshard_error *error)
{
	struct uns_err err = { 0 };
	struct spot spot;
	int code = node_spot(node, LOOK_FULL, &spot, NULL, &err);

	*text = NULL;
	if (code == 0)
		code = ask(node_session(node), &spot, unshard_node_path(node), name, calls, text, &err);
	return give_error(error, &err, code);
}
