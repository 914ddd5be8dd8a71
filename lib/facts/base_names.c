/* Reads the names, and nothing else, of a directory's safetensors files. */
#include "facts/base_names.h"

#include "base/cleanup.h"
#include "base/path.h"
#include "wire/json.h"
#include "wire/safetensors.h"

static const char INDEX[] = "model.safetensors.index.json";
static const char WHOLE[] = "model.safetensors";

static int new_names(struct uns_base_names *out, size_t n, struct uns_arena *arena, struct uns_err *err)
{
	out->name = UNS_NEW_N(arena, const char *, n);
	return out->name ? 0 : uns_oom(err);
}

static int read_index(const struct uns_root *root, const char *path, struct uns_arena *arena,
		      struct uns_base_names *out, struct uns_err *err)
{
	enum { LIMIT_BYTES = 64 << 20 };
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	const cJSON *map, *entry;
	struct uns_span text;

	UNS_TRY(uns_root_read_file(root, path, LIMIT_BYTES, &scratch, &text, NULL, err));
	if (uns_json_parse(text, &json, err) < 0)
		return uns_fail_in_file(err, path);
	map = cJSON_GetObjectItemCaseSensitive(json, "weight_map");
	UNS_TRY(new_names(out, (size_t)cJSON_GetArraySize(map), arena, err));
	cJSON_ArrayForEach (entry, map) {
		if (!entry->string)
			continue;
		out->name[out->n] = uns_arena_str(arena, entry->string);
		if (!out->name[out->n++])
			return uns_oom(err);
	}
	return 0;
}

static int read_header(const struct uns_root *root, const char *path, struct uns_arena *arena,
		       struct uns_base_names *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_open_file open_file = { .name = path };
	struct uns_st_header header;
	struct uns_reader r;
	struct uns_stat st;

	UNS_TRY(uns_root_open_file(root, path, &fd, &st, err));
	open_file.fd = fd;
	r = uns_reader_of_file(&open_file, st.id.size);
	if (uns_st_open(&r, &scratch, &header, err) < 0)
		return uns_fail_in_file(err, path);
	UNS_TRY(new_names(out, header.n, arena, err));
	for (; out->n < header.n; out->n++) {
		out->name[out->n] = uns_arena_str(arena, header.v[out->n].name);
		if (!out->name[out->n])
			return uns_oom(err);
	}
	return 0;
}

int base_names_read(const struct uns_root *root, const char *dir, const struct uns_listing *list,
		    struct uns_arena *arena, struct uns_base_names *out, struct uns_err *err)
{
	bool split = uns_listing_find(list, INDEX) != NULL;
	const char *path = uns_path_join(arena, dir, split ? INDEX : WHOLE);

	if (!path)
		return uns_oom(err);
	if (split)
		return read_index(root, path, arena, out, err);
	return uns_listing_find(list, WHOLE) ? read_header(root, path, arena, out, err) : 0;
}
