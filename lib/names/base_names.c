/* Reads the names, and the shapes where the family needs them, of a directory's safetensors files. */
#include "names/base_names.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "wire/json.h"
#include "wire/safetensors.h"

struct reading {
	const struct base_files *files;
	const char *index, *whole; /* names of files in its directory */
	const char *const *transposed; /* of the family */
	struct uns_arena *arena; /* of what is read */
	struct uns_base_names *out;
	struct uns_arena scratch;
	struct uns_map to_read; /* names whose shapes are wanted -> index into out->name */
};

static void reading_fini(struct reading *r)
{
	uns_arena_fini(&r->scratch);
	uns_map_fini(&r->to_read);
}

/* -- names -- */

static int new_names(struct reading *r, size_t n, struct uns_err *err)
{
	r->out->name = UNS_NEW_N(r->arena, const char *, n);
	r->out->shape = UNS_NEW_N(r->arena, const struct uns_shape *, n);
	return r->out->name && r->out->shape ? 0 : uns_oom(err);
}

static int add_name(struct reading *r, const char *name, struct uns_err *err)
{
	const size_t i = r->out->n;

	UNS_TRY_ALLOC(r->out->name[i] = uns_arena_str(r->arena, name), err);
	r->out->n++;
	if (!r->files->all_shapes && !uns_published_may_be_transposed(r->transposed, name))
		return 0;
	return uns_map_put_index(&r->to_read, r->out->name[i], (uint32_t)i) ? 0 : uns_oom(err);
}

static int is_there(struct reading *r, const char *name, struct uns_err *err)
{
	const char *path = uns_path_join(&r->scratch, r->files->dir, name);

	return path ? uns_is_there(r->files->root, r->files->capture, path, err) : uns_oom(err);
}

/* -- headers -- */

static int open_header(struct reading *r, const char *name, struct uns_st_header *out, struct uns_err *err)
{
	const char *path = uns_path_join(&r->scratch, r->files->dir, name);
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_open_file open_file = { .name = path };
	struct uns_reader reader;
	struct uns_stat st;

	UNS_TRY_ALLOC(path, err);
	UNS_TRY(uns_open_seen(r->files->root, r->files->capture, path, &fd, &st, err));
	open_file.fd = fd;
	reader = uns_reader_of_file(&open_file, st.id.size);
	return uns_st_open(&reader, &r->scratch, out, err) < 0 ? uns_fail_in_file(err, path) : 0;
}

static int take_shapes(struct reading *r, const struct uns_st_header *header, struct uns_err *err)
{
	const struct uns_st_entry *e = header->v, *end = e + header->n;
	struct uns_shape *shape;
	uint32_t i;

	for (; e < end; e++) {
		i = uns_map_index(&r->to_read, e->name);
		if (i == UNS_MAP_NO_INDEX)
			continue;
		r->out->shape[i] = shape = UNS_NEW(r->arena, struct uns_shape);
		UNS_TRY_ALLOC(shape, err);
		shape->n = (uint32_t)e->n_dims;
		memcpy(shape->dim, e->dims, e->n_dims * sizeof(*e->dims));
	}
	return 0;
}

static int read_whole(struct reading *r, struct uns_err *err)
{
	struct uns_st_header header;
	size_t i;

	UNS_TRY(open_header(r, r->whole, &header, err));
	UNS_TRY(new_names(r, header.n, err));
	for (i = 0; i < header.n; i++)
		UNS_TRY(add_name(r, header.v[i].name, err));
	return take_shapes(r, &header, err);
}

/* -- an index -- */

/* Of existing files that hold tensors whose shapes are wanted: an index may have been copied alone. */
static int read_shapes(struct reading *r, const cJSON *map, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map read = UNS_MAP_INIT;
	struct uns_st_header header;
	const cJSON *entry;
	void *before;
	int there;

	cJSON_ArrayForEach (entry, map) {
		if (!entry->string || !cJSON_IsString(entry) ||
		    uns_map_index(&r->to_read, entry->string) == UNS_MAP_NO_INDEX)
			continue;
		before = NULL;
		UNS_TRY_ALLOC(uns_map_put(&read, entry->valuestring, r, &before), err);
		if (before)
			continue;
		UNS_TRY(there = is_there(r, entry->valuestring, err));
		if (!there)
			continue;
		UNS_TRY(open_header(r, entry->valuestring, &header, err));
		UNS_TRY(take_shapes(r, &header, err));
	}
	return 0;
}

static int read_index(struct reading *r, struct uns_err *err)
{
	enum { LIMIT_BYTES = 64 << 20 };
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	const char *path = uns_path_join(&r->scratch, r->files->dir, r->index);
	const cJSON *map, *entry;
	struct uns_span text;

	UNS_TRY_ALLOC(path, err);
	UNS_TRY(uns_read_seen(r->files->root, r->files->capture, path, LIMIT_BYTES, &r->scratch, &text, err));
	if (uns_json_parse(text, &json, err) < 0)
		return uns_fail_in_file(err, path);
	map = cJSON_GetObjectItemCaseSensitive(json, "weight_map");
	UNS_TRY(new_names(r, (size_t)cJSON_GetArraySize(map), err));
	cJSON_ArrayForEach (entry, map)
		if (entry->string)
			UNS_TRY(add_name(r, entry->string, err));
	return read_shapes(r, map, err);
}

int base_names_read(const struct base_files *files, struct uns_arena *arena, struct uns_base_names *out,
		    struct uns_err *err)
{
	UNS_CLEANUP(reading_fini)
	struct reading r = {
		.files = files, .transposed = uns_published_transposed(files->model_type), .arena = arena, .out = out
	};
	int there;

	UNS_TRY_ALLOC(r.whole = uns_arena_printf(&r.scratch, "%s.safetensors", files->stem), err);
	UNS_TRY_ALLOC(r.index = uns_arena_printf(&r.scratch, "%s.index.json", r.whole), err);
	UNS_TRY(there = is_there(&r, r.index, err));
	if (there)
		return read_index(&r, err);
	UNS_TRY(there = is_there(&r, r.whole, err));
	return there ? read_whole(&r, err) : 0;
}
