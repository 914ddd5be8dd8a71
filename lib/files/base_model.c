/* Reads the base model into a catalog of its own, and takes from that the proof that each tensor is whole. */
#include "files/base_model.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "files/model_index.h"
#include "files/safetensors_set.h"
#include "model/cover.h"

static const char WHOLE[] = "model.safetensors";
static const char INDEX[] = "model.safetensors.index.json";

enum { INDEX_LIMIT_BYTES = 64 << 20 };

static void catalog_free_p(struct uns_catalog **cat)
{
	uns_catalog_free(*cat);
}

/* *n = 0: there are no files of weights. */
static int files_find(struct uns_catalog *cat, const struct uns_root *root, const char *dir, struct uns_arena *arena,
		      const char ***paths, size_t *n, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	const char *index = uns_path_join(arena, dir, INDEX), *whole = uns_path_join(arena, dir, WHOLE);
	struct uns_span text;
	int there;

	*n = 0;
	UNS_TRY_ALLOC(index && whole && (*paths = UNS_NEW(arena, const char *)), err);
	UNS_TRY(there = uns_is_there(root, cat->capture, whole, err));
	if (there) {
		(*paths)[(*n)++] = whole;
		return 0;
	}
	UNS_TRY(there = uns_is_there(root, cat->capture, index, err));
	if (!there)
		return 0;
	UNS_TRY(uns_read_seen(root, cat->capture, index, INDEX_LIMIT_BYTES, arena, &text, err));
	if (uns_json_parse(text, &json, err) < 0)
		return uns_fail_in_file(err, index);
	return uns_model_index_files(cJSON_GetObjectItemCaseSensitive(json, "weight_map"), dir, arena, paths, n, err);
}

/* A copy of a tensor of `from`, with pieces of its own, which name the same files in `cat`. */
static int tensor_take(const struct uns_catalog *from, const struct uns_tensor *t, struct uns_catalog *cat,
		       struct uns_arena *arena, struct uns_tensor *out, struct uns_err *err)
{
	const struct uns_piece *is = uns_tensor_pieces(from, t);
	struct uns_piece *own = UNS_NEW_N(arena, struct uns_piece, t->n_pieces + 1);
	struct uns_box *box = UNS_NEW_N(arena, struct uns_box, t->n_pieces + 1);
	const struct uns_file *file;
	uint32_t i;

	UNS_TRY(uns_cover_check(from, t, err));
	*out = *t;
	UNS_TRY_ALLOC(own && box && (out->name = uns_arena_str(arena, t->name)), err);
	for (i = 0; i < t->n_pieces; i++) {
		own[i] = is[i];
		box[i] = *is[i].box;
		own[i].box = &box[i];
		file = &from->files[is[i].file];
		UNS_TRY(uns_catalog_add_file(cat, file->root, uns_arena_str(arena, file->path), &own[i].file, err));
	}
	out->key = out->name;
	out->root = "";
	out->own = own;
	return 0;
}

static int read_all(struct uns_catalog *cat, const struct uns_root *root, const char *dir, struct uns_arena *arena,
		    struct uns_base_model *out, struct uns_err *err)
{
	UNS_CLEANUP(catalog_free_p) struct uns_catalog *base = NULL;
	const char **paths;
	struct uns_tensor *v;
	size_t n, i;

	UNS_TRY(files_find(cat, root, dir, arena, &paths, &n, err));
	if (!n)
		return 0;
	out->where = uns_root_path(root);
	UNS_TRY(uns_catalog_new(dir, &base, err));
	base->capture = cat->capture;
	UNS_TRY(uns_safetensors_set_add(base, root, paths, n, err));
	UNS_TRY(uns_cover_refusal(base, UNS_SCOPE_WEIGHTS, err));
	UNS_TRY(uns_catalog_seal(base, err));
	UNS_TRY_ALLOC(v = UNS_NEW_N(arena, struct uns_tensor, base->n_tensors + 1), err);
	for (i = 0; i < base->n_tensors; i++)
		UNS_TRY(tensor_take(base, &base->tensors[i], cat, arena, &v[i], err));
	out->v = v;
	out->n = base->n_tensors;
	return 0;
}

int uns_base_model_read(struct uns_catalog *cat, const struct uns_root *root, const char *dir, struct uns_arena *arena,
			struct uns_base_model *out, struct uns_err *err)
{
	struct uns_err why = { 0 };
	const int code = read_all(cat, root, dir, arena, out, &why);

	UNS_TRY(uns_fail_if_passing(err, code, &why));
	if (code < 0)
		UNS_TRY_ALLOC(out->why = uns_arena_str(arena, why.text), err);
	return 0;
}
