/* Compares two lists of names. Reads no files. */
#include "files/model_index.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "base/text.h"

/* The tensors of one kind of finding. */
struct some {
	const char *first, *other_file;
	size_t n;
};

static void some_add(struct some *s, const char *name, const char *other_file)
{
	if (!s->n++) {
		s->first = name;
		s->other_file = other_file;
	}
}

static const struct uns_file *file_of(const struct uns_catalog *cat, const struct uns_tensor *t)
{
	const struct uns_tensor *with_bytes = uns_tensor_with_bytes(cat, t);

	return with_bytes->n_pieces ? &cat->files[cat->pieces[with_bytes->first_piece].file] : NULL;
}

/* Is this the path of the tensor's file? A tensor without elements is in no piece. */
static bool is_in(const struct uns_catalog *cat, const struct uns_tensor *t, const char *path)
{
	const struct uns_file *file = file_of(cat, t);

	return !file || !path || strcmp(file->path, path) == 0;
}

/* -- what the index names -- */

static int check_named(struct uns_catalog *cat, const struct uns_model_index *index, const struct uns_map *by_name,
		       struct uns_err *err)
{
	struct some absent = { 0 }, elsewhere = { 0 };
	const struct uns_tensor *t;
	const cJSON *item;

	cJSON_ArrayForEach (item, cJSON_GetObjectItemCaseSensitive(index->json, "weight_map")) {
		t = uns_map_get(by_name, item->string);
		if (!t)
			some_add(&absent, item->string, item->valuestring);
		else if (!is_in(cat, t, uns_path_resolve(&cat->arena, index->dir, item->valuestring)))
			some_add(&elsewhere, item->string, item->valuestring);
	}
	if (absent.n)
		UNS_TRY(UNS_ADD_FINDING(
			cat, err, INDEX_NAMES_ABSENT_TENSOR, .scope = UNS_SCOPE_WEIGHTS, .file = index->path,
			.tensor = absent.first,
			.arg = { { "other_file", uns_str(absent.other_file) }, { "more", uns_more(absent.n - 1) } }));
	if (!elsewhere.n)
		return 0;
	return UNS_ADD_FINDING(
		cat, err, INDEX_NAMES_OTHER_FILE, .scope = UNS_SCOPE_SHARDED, .file = index->path,
		.tensor = elsewhere.first,
		.found = uns_str(uns_path_name(file_of(cat, uns_map_get(by_name, elsewhere.first))->path)),
		.arg = { { "other_file", uns_str(elsewhere.other_file) }, { "more", uns_more(elsewhere.n - 1) } });
}

/* -- what the index does not name -- */

static int check_unnamed_tensors(struct uns_catalog *cat, const struct uns_model_index *index,
				 const struct uns_map *named, struct uns_err *err)
{
	struct some orphans = { 0 };
	size_t i;

	for (i = 0; i < cat->n_tensors; i++)
		if (cat->tensors[i].role == UNS_ROLE_WEIGHT && !uns_map_get(named, cat->tensors[i].name) &&
		    file_of(cat, &cat->tensors[i]))
			some_add(&orphans, cat->tensors[i].name, file_of(cat, &cat->tensors[i])->path);
	if (!orphans.n)
		return 0;
	return UNS_ADD_FINDING(
		cat, err, INDEX_OMITS_TENSOR, .scope = UNS_SCOPE_SHARDED, .file = index->path, .tensor = orphans.first,
		.arg = { { "other_file", uns_str(orphans.other_file) }, { "more", uns_more(orphans.n - 1) } });
}

static int check_unnamed_files(struct uns_catalog *cat, const struct uns_model_index *index, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map named = UNS_MAP_INIT;
	struct some orphans = { 0 };
	const cJSON *item;
	size_t i;

	cJSON_ArrayForEach (item, cJSON_GetObjectItemCaseSensitive(index->json, "weight_map"))
		if (item->valuestring)
			UNS_TRY_ALLOC(uns_map_put(&named, item->valuestring, (void *)item, NULL), err);
	for (i = 0; i < index->list->n; i++)
		if (uns_str_glob(index->parts, index->list->v[i].name) && !uns_map_get(&named, index->list->v[i].name))
			some_add(&orphans, index->list->v[i].name, NULL);
	if (!orphans.n)
		return 0;
	return UNS_ADD_FINDING(
		cat, err, INDEX_OMITS_FILE, .file = index->path,
		.arg = { { "other_file", uns_str(orphans.first) }, { "more", uns_more(orphans.n - 1) } });
}

/* -- sizes -- */

/* Each tensor once; *known = false if the sum is too large to be one. */
static uint64_t bytes_of(const struct uns_catalog *cat, bool *known)
{
	uint64_t sum = 0, bytes;
	size_t i;

	*known = true;
	for (i = 0; i < cat->n_tensors; i++) {
		const struct uns_tensor *t = &cat->tensors[i];

		if (t->role != UNS_ROLE_WEIGHT || t->alias_of != UNS_NONE)
			continue;
		*known &= uns_u64_mul(uns_shape_elems(&t->shape), uns_dtype_size(t->dtype), &bytes) &&
			  uns_u64_add(sum, bytes, &sum);
	}
	return sum;
}

static int check_size(struct uns_catalog *cat, const struct uns_model_index *index, struct uns_err *err)
{
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(index->json, "metadata");
	int64_t expected;
	bool known;
	const uint64_t found = bytes_of(cat, &known);

	if (!known || !uns_json_int(meta, "total_size", &expected) || (uint64_t)expected == found)
		return 0;
	return UNS_ADD_FINDING(cat, err, INDEX_SIZE_DIFFERS, .file = index->path,
			       .expected = uns_num((uint64_t)expected), .found = uns_num(found));
}

int uns_model_index_check(struct uns_catalog *cat, const struct uns_model_index *index, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map by_name = UNS_MAP_INIT;
	UNS_CLEANUP(uns_map_fini) struct uns_map named = UNS_MAP_INIT;
	const cJSON *item;
	size_t i;

	for (i = 0; i < cat->n_tensors; i++)
		UNS_TRY_ALLOC(uns_map_put(&by_name, cat->tensors[i].name, &cat->tensors[i], NULL), err);
	cJSON_ArrayForEach (item, cJSON_GetObjectItemCaseSensitive(index->json, "weight_map"))
		UNS_TRY_ALLOC(uns_map_put(&named, item->string, (void *)item, NULL), err);
	UNS_TRY(check_named(cat, index, &by_name, err));
	UNS_TRY(check_unnamed_tensors(cat, index, &named, err));
	UNS_TRY(check_unnamed_files(cat, index, err));
	return check_size(cat, index, err);
}

/* -- files -- */

static int path_cmp(const void *a, const void *b)
{
	return uns_str_natural(*(const char *const *)a, *(const char *const *)b);
}

int uns_model_index_files(const cJSON *weight_map, const char *dir, struct uns_arena *arena, const char ***paths,
			  size_t *n, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map seen = UNS_MAP_INIT;
	const cJSON *item;
	const char *name, *path;
	size_t cap = 0;

	*paths = NULL;
	*n = 0;
	cJSON_ArrayForEach (item, weight_map) {
		name = cJSON_GetStringValue(item);
		path = name && *name ? uns_path_resolve(arena, dir, name) : NULL;
		if (!path || !uns_path_within(path, dir))
			return uns_fail(err, -EBADMSG,
					"the index names a file outside the checkpoint's "
					"directory for tensor %s",
					item->string);
		if (uns_map_get(&seen, path))
			continue;
		UNS_TRY_ALLOC(uns_map_put(&seen, path, (void *)path, NULL), err);
		UNS_TRY_ALLOC(UNS_ARENA_ROOM(arena, *paths, *n, cap), err);
		(*paths)[(*n)++] = path;
	}
	if (*n)
		qsort(*paths, *n, sizeof(**paths), path_cmp);
	return 0;
}
