/* Safetensors files into a catalog. Whole tensors, one piece each; or, where a file's metadata holds DCP_SHARDING_INFO
 * (torch's HuggingFaceStorageWriter), boxes of tensors whose full shape is nowhere recorded and is the furthest corner
 * that any file reaches:
 *
 *   __metadata__ = {"DCP_SHARDING_INFO": "{\"emb.weight\":{\"saved_offsets\":[5,0]}}", ...}
 *
 * Must not know directories: which files belong together is the format's business. */
#include "files/safetensors_set.h"

#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "wire/json.h"
#include "wire/safetensors.h"

/* One entry of one file: a box of a tensor, or a whole tensor. */
struct part {
	const struct uns_st_entry *entry;
	struct uns_box box;
	uint32_t file;
	uint64_t offset_bytes;
	bool whole;        /* of a file without sharding information */
	struct part *next; /* of the same name */
};

struct group {
	struct part *first, *last;
	struct group *next; /* in order of first appearance */
};

struct set {
	struct uns_catalog *cat;
	const struct uns_root *root;
	struct uns_arena temp;
	struct uns_map by_name; /* name -> group */
	struct group *first, **tail;
};

static void set_fini(struct set *s)
{
	uns_map_fini(&s->by_name);
	uns_arena_fini(&s->temp);
}

/* -- at which offsets of its tensors a file's entries begin -- */

static int offsets_of(const struct uns_map *info, const struct uns_st_entry *e, struct uns_box *box,
		      struct uns_err *err)
{
	const cJSON *mine = uns_map_get(info, e->name);
	const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(mine, "saved_offsets"), *item;
	size_t d = 0;

	if (!cJSON_IsArray(offsets) || (size_t)cJSON_GetArraySize(offsets) != e->n_dims)
		return uns_fail(err, -EBADMSG, "DCP_SHARDING_INFO has no saved_offsets with %zu numbers for %s",
				e->n_dims, e->name);
	cJSON_ArrayForEach (item, offsets) {
		if (!cJSON_IsNumber(item) || item->valuedouble < 0 || item->valuedouble > 9007199254740992.0)
			return uns_fail(err, -EBADMSG, "DCP_SHARDING_INFO has a wrong offset for %s", e->name);
		box->lo[d] = (uint64_t)item->valuedouble;
		d++;
	}
	return 0;
}

/* *json owns what the map (name -> its object) borrows; NULL = the file has no such information. */
static int sharding_info(const struct uns_st_header *h, cJSON **json, struct uns_map *by_name, struct uns_err *err)
{
	const char *text = uns_st_meta(h, "DCP_SHARDING_INFO");
	cJSON *item;

	if (!text)
		return 0;
	UNS_TRY(uns_json_parse(uns_span_of(text, strlen(text)), json, err));
	if (!cJSON_IsObject(*json))
		return uns_fail(err, -EBADMSG, "DCP_SHARDING_INFO is not an object");
	cJSON_ArrayForEach (item, *json)
		UNS_TRY_ALLOC(uns_map_put(by_name, item->string, item, NULL), err);
	return 0;
}

static int part_add(struct set *s, const struct part *part, struct uns_err *err)
{
	const char *name = part->entry->name;
	struct part *kept;
	struct group *g = uns_map_get(&s->by_name, name);

	if (!g) {
		UNS_TRY_ALLOC(g = UNS_NEW(&s->temp, struct group), err);
		UNS_TRY_ALLOC(uns_map_put(&s->by_name, name, g, NULL), err);
		*s->tail = g;
		s->tail = &g->next;
	}
	UNS_TRY_ALLOC(kept = UNS_NEW(&s->temp, struct part), err);
	*kept = *part;
	if (g->last)
		g->last->next = kept;
	else
		g->first = kept;
	g->last = kept;
	return 0;
}

static int entries_add(struct set *s, const struct uns_st_header *h, uint32_t file, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	UNS_CLEANUP(uns_map_fini) struct uns_map info = UNS_MAP_INIT;
	size_t i;

	UNS_TRY(sharding_info(h, &json, &info, err));
	for (i = 0; i < h->n; i++) {
		struct part part = { .entry = &h->v[i], .file = file, .whole = !json };

		part.box.n = (uint32_t)h->v[i].n_dims;
		memcpy(part.box.len, h->v[i].dims, sizeof(part.box.len));
		if (json)
			UNS_TRY(offsets_of(&info, part.entry, &part.box, err));
		part.offset_bytes = h->data_bytes + h->v[i].begin_bytes;
		UNS_TRY(part_add(s, &part, err));
	}
	return 0;
}

/* -- files -- */

static int file_read(struct set *s, const char *path, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_open_file open_file = { .name = path };
	const struct uns_file *f;
	struct uns_st_header h;
	struct uns_reader r;
	struct uns_stat st;
	uint32_t file;

	UNS_TRY(uns_catalog_add_file(s->cat, s->root, path, &file, err));
	f = &s->cat->files[file];
	if (f->missing)
		return UNS_FAIL_WITH(err, WEIGHTS_FILE_MISSING, .scope = UNS_SCOPE_WEIGHTS, .file = path);
	UNS_TRY(uns_root_open_file(s->root, f->path, &fd, &st, err));
	if (!uns_identity_equal(&st.id, &f->stat.id))
		return uns_fail(err, -ESTALE, "%s changed while it was read", f->path);
	open_file.fd = fd;
	r = uns_reader_of_file(&open_file, st.id.size);
	if (uns_st_open(&r, &s->cat->arena, &h, err) < 0 || entries_add(s, &h, file, err) < 0)
		return uns_fail_in_file(err, path);
	return 0;
}

/* -- tensors -- */

/* An entry that contradicts the first one of its name. */
static int part_refuse(const struct set *s, enum uns_finding_id id, const struct group *g, const struct part *p,
		       struct uns_err *err)
{
	const struct uns_file *files = s->cat->files;

	return uns_fail_with(err, UNS_FINDING(.id = id, .checkpoint = s->cat->path, .file = files[p->file].path,
					      .tensor = g->first->entry->name,
					      .arg = { { "other_file", uns_str(files[g->first->file].path) } }));
}

/* All entries of one name must be of one tensor; sets its full shape. */
static int parts_agree(const struct set *s, const struct group *g, struct uns_shape *shape, struct uns_err *err)
{
	const struct uns_st_entry *a = g->first->entry;
	const struct part *p;
	uint64_t end;
	uint32_t d;

	*shape = (struct uns_shape){ .n = (uint32_t)a->n_dims };
	for (p = g->first; p; p = p->next) {
		if (p != g->first && (p->whole || g->first->whole))
			return part_refuse(s, UNS_FOUND_TENSOR_IN_TWO_FILES, g, p, err);
		if (p->entry->dtype != a->dtype || p->entry->n_dims != a->n_dims)
			return part_refuse(s, UNS_FOUND_TENSOR_UNLIKE_IN_FILES, g, p, err);
		for (d = 0; d < shape->n; d++) {
			if (!uns_u64_add(p->box.lo[d], p->box.len[d], &end))
				return part_refuse(s, UNS_FOUND_TENSOR_OFFSET_OVERFLOWS, g, p, err);
			shape->dim[d] = uns_u64_max(shape->dim[d], end);
		}
	}
	if (uns_shape_check(shape, a->dtype, err) < 0) {
		uns_fail_in(err, "tensor %s", a->name);
		return uns_fail_in_file(err, s->cat->files[g->first->file].path);
	}
	return 0;
}

static int tensor_add(struct set *s, const struct group *g, struct uns_err *err)
{
	const struct uns_st_entry *e = g->first->entry;
	struct uns_tensor tensor = { .name = e->name,
				     .key = e->name,
				     .root = "",
				     .role = UNS_ROLE_WEIGHT,
				     .dtype = e->dtype,
				     UNS_TENSOR_ALONE };
	struct uns_piece piece = { .kind = UNS_PIECE_BOX, .rank = -1, .container = UNS_RAW };
	struct uns_err why = { .keep = &s->temp };
	const struct part *p;
	uint32_t index;

	if (parts_agree(s, g, &tensor.shape, &why) < 0)
		return uns_catalog_problem_or_fail(s->cat, UNS_SCOPE_WEIGHTS, &why, err);
	UNS_TRY(uns_catalog_add_tensor(s->cat, &tensor, &index, err));
	for (p = g->first; p; p = p->next) {
		piece.box = &p->box;
		piece.file = p->file;
		piece.offset_bytes = p->offset_bytes;
		piece.length_bytes = p->entry->end_bytes - p->entry->begin_bytes;
		UNS_TRY(uns_catalog_add_piece(s->cat, &piece, err));
	}
	return 0;
}

int uns_safetensors_set_add(struct uns_catalog *cat, const struct uns_root *root, const char *const *paths,
			    size_t n_paths, struct uns_err *err)
{
	UNS_CLEANUP(set_fini) struct set s = { .cat = cat, .root = root };
	const struct group *g;
	size_t i;

	s.tail = &s.first;
	for (i = 0; i < n_paths; i++) {
		struct uns_err why = { .keep = &s.temp };

		/* If a file cannot be read, the weights cannot be shown, but everything else can. */
		if (file_read(&s, paths[i], &why) < 0)
			UNS_TRY(uns_catalog_problem_or_fail(cat, UNS_SCOPE_WEIGHTS, &why, err));
	}
	for (g = s.first; g; g = g->next)
		UNS_TRY(tensor_add(&s, g, err));
	return 0;
}
