/* A torch file written again: the records of torch.save around storages that are read from the old
 * file and converted on the way. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "files/torch_file.h"
#include "out/disk.h"
#include "repair/repairing.h"

enum { WRITE_BYTES = 1 << 20 };

/* A catalog of storages. */
struct rewriting {
	struct uns_catalog *cat;
	struct uns_backing *backing;
	struct uns_arena arena;
	struct uns_layout layout;
};

static void rewriting_fini(struct rewriting *w)
{
	uns_backing_free(w->backing);
	uns_catalog_free(w->cat);
	uns_arena_fini(&w->arena);
}

static int add_storage(struct rewriting *w, uint32_t file, size_t i, const struct repair_storage *s,
		       struct uns_err *err)
{
	const char *name = uns_arena_printf(&w->cat->arena, "data/%zu", i);
	uint64_t elems = s->len_bytes / uns_dtype_size(s->from);
	const struct uns_tensor t = { .name = name,
				      .key = name,
				      .root = "",
				      .role = UNS_ROLE_OTHER,
				      .dtype = s->from,
				      .shape = { .n = 1, .dim = { elems } },
				      UNS_TENSOR_ALONE };
	const struct uns_piece piece = { .kind = UNS_PIECE_RANGE,
					 .range = { 0, elems },
					 .file = file,
					 .rank = -1,
					 .container = UNS_RAW,
					 .offset_bytes = s->at_bytes,
					 .length_bytes = s->len_bytes };

	UNS_TRY_ALLOC(name, err);
	UNS_TRY(uns_catalog_add_tensor(w->cat, &t, &file, err));
	return elems ? uns_catalog_add_piece(w->cat, &piece, err) : 0;
}

static int open_storages(struct repair *r, const struct repair_torch *torch, struct rewriting *w, struct uns_err *err)
{
	uint32_t file;
	size_t i;

	UNS_TRY(uns_catalog_new(torch->path, &w->cat, err));
	UNS_TRY(uns_catalog_add_file(w->cat, r->u->root, torch->path, &file, err));
	for (i = 0; i < torch->n; i++)
		UNS_TRY(add_storage(w, file, i, &torch->storage[i], err));
	UNS_TRY(uns_catalog_seal(w->cat, err));
	return uns_backing_new(r->u->engine, w->cat, &w->backing, err);
}

static int lay_out(const struct repair_torch *torch, struct rewriting *w, struct uns_err *err)
{
	struct uns_torch_leaf *leaf = UNS_NEW_N(&w->arena, struct uns_torch_leaf, torch->n);
	const struct uns_torch_leaves leaves = { .v = leaf, .n = torch->n };
	const struct uns_torch_input in = {
		.cat = w->cat, .leaves = &leaves, .stem = torch->stem, .pickle = torch->pickle
	};
	size_t i;

	UNS_TRY_ALLOC(leaf, err);
	for (i = 0; i < torch->n; i++) {
		leaf[i] = (struct uns_torch_leaf){ .out = torch->storage[i].to, .shape = w->cat->tensors[i].shape };
		if (torch->storage[i].len_bytes)
			leaf[i].tensor = &w->cat->tensors[i];
		else
			leaf[i].literal = (const uint8_t *)"";
	}
	UNS_TRY(uns_part_torch_file(&in, &w->arena, &w->layout, err));
	return uns_backing_crcs_find(w->backing, &w->layout, NULL, err);
}

int repair_torch_write(struct repair *r, const struct repair_torch *torch, int fd, const char *out, struct uns_err *err)
{
	UNS_CLEANUP(rewriting_fini) struct rewriting w = { 0 };
	UNS_CLEANUP(uns_free_p) uint8_t *buf = malloc(WRITE_BYTES);
	uint64_t at;
	ssize_t n;

	UNS_TRY_ALLOC(buf, err);
	UNS_TRY(open_storages(r, torch, &w, err));
	UNS_TRY(lay_out(torch, &w, err));
	for (at = 0; at < w.layout.size_bytes; at += (uint64_t)n) {
		n = uns_read(w.backing, &w.layout, buf, WRITE_BYTES, at, err);
		if (n < 0)
			return uns_fail_in(err, "%s", torch->path);
		UNS_TRY(uns_write(fd, buf, (size_t)n, UNS_AT_CURSOR, out, err));
	}
	return 0;
}
