/* Turns the pickle of a DCP `.metadata` into entries. A mistake in one entry spoils only that entry. The
 * tree of pickled values is freed at the end: it is ten times as large as the entries. */
#include "dcp/metadata.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/budget.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "base/text.h"
#include "dcp/storage.h"
#include "model/finding.h"
#include "wire/pickle.h"
#include "wire/value.h"

struct parse {
	struct uns_arena values; /* the pickle; freed at the end */
	struct uns_arena *arena; /* the result */
	struct uns_dcp_strings strings;
	struct uns_dcp_items items;
	struct uns_box_pool boxes;
	const struct uns_value *planner, *state_dict;
	/* Bytes that chunks and path elements may still take; entries may share them in the pickle, so the
	 * file's size does not limit them. */
	size_t budget_bytes;
	struct uns_dcp_metadata *out;
	struct uns_err *err;
};

static int spend(struct parse *p, size_t n, size_t each_bytes, const char *key)
{
	if (n > p->budget_bytes / each_bytes)
		return uns_fail(p->err, -EBADMSG, "'%s' has more chunks or path elements than fit into the file", key);
	p->budget_bytes -= n * each_bytes;
	return 0;
}

/* Makes the entry UNKNOWN; the other entries stay usable. */
__attribute__((format(printf, 4, 5))) static int odd(struct parse *p, struct uns_dcp_entry *e, int code,
						     const char *fmt, ...)
{
	struct uns_text text = UNS_TEXT_INIT;
	char buf[UNS_ERR_TEXT];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	uns_text_printf(&text, "'%s' %s", e->key, buf);
	e->kind = UNS_DCP_UNKNOWN;
	e->code = code;
	e->why = text.failed ? NULL : uns_arena_str(p->arena, text.p);
	uns_text_fini(&text);
	return e->why ? 0 : uns_oom(p->err);
}

static bool class_is(const struct uns_value *v, const char *name)
{
	return v && (v->kind == UNS_VALUE_OBJECT || v->kind == UNS_VALUE_RECORD) && v->cls &&
	       uns_str_ends(v->cls, name);
}

static const char *class_of(const struct uns_value *v)
{
	return v && v->cls ? v->cls : "a plain value";
}

/* -- tensors -- */

static const char *dtype_name(const struct uns_value *properties)
{
	bool has_state = properties && properties->kind != UNS_VALUE_RECORD;
	const struct uns_value *dtype = has_state ? uns_value_at(properties->state, 0) : NULL;

	if (!dtype)
		dtype = uns_value_field(properties, "dtype");
	return dtype && dtype->kind == UNS_VALUE_GLOBAL ? dtype->cls : "(no dtype)";
}

static bool chunk_inside(const struct uns_box *box, const struct uns_dcp_entry *e)
{
	size_t d;

	for (d = 0; d < e->n_dims; d++)
		if (box->lo[d] > e->dims[d] || box->len[d] > e->dims[d] - box->lo[d])
			return false;
	return true;
}

/* Ranks with empty shards list the same chunk more than once; it is added once. */
static int chunk_add(struct parse *p, struct uns_dcp_entry *e, const struct uns_box *box)
{
	struct uns_dcp_item *item = uns_dcp_items_find(&p->items, e->key, box->lo, e->n_dims);
	struct uns_dcp_chunk *kept = &e->chunk[e->n_chunks];

	if (item && item->claim) {
		if (uns_box_equal(e->chunk[item->claim - 1].box, box))
			return 0;
		return odd(p, e, -EBADMSG, "has two chunks of different sizes at the same offset");
	}
	UNS_TRY_ALLOC(kept->box = uns_box_keep(&p->boxes, p->arena, box), p->err);
	kept->storage = item ? &item->storage : NULL;
	e->n_chunks++;
	if (item)
		item->claim = e->n_chunks;
	return 0;
}

static int parse_chunk(struct parse *p, const struct uns_value *v, struct uns_dcp_entry *e)
{
	struct uns_box box = { .n = (uint32_t)e->n_dims };
	size_t n_lo, n_len;

	if (!uns_value_dims(uns_value_field(v, "offsets"), box.lo, UNS_MAX_DIMS, &n_lo) ||
	    !uns_value_dims(uns_value_field(v, "sizes"), box.len, UNS_MAX_DIMS, &n_len) || n_lo != e->n_dims ||
	    n_len != e->n_dims)
		return odd(p, e, -EBADMSG, "has a chunk without %zu offsets and sizes", e->n_dims);
	if (!chunk_inside(&box, e))
		return odd(p, e, -EBADMSG, "has a chunk that ends behind the end of the tensor");
	return chunk_add(p, e, &box);
}

static int parse_chunks(struct parse *p, const struct uns_value *chunks, struct uns_dcp_entry *e)
{
	size_t i;

	if (!chunks || (chunks->kind != UNS_VALUE_LIST && chunks->kind != UNS_VALUE_TUPLE))
		return odd(p, e, -EBADMSG, "has no list of chunks");
	UNS_TRY(spend(p, chunks->n, sizeof(*e->chunk) + sizeof(*e->chunk->box), e->key));
	UNS_TRY_ALLOC(e->chunk = UNS_NEW_N(p->arena, struct uns_dcp_chunk, chunks->n), p->err);
	for (i = 0; i < chunks->n && e->kind == UNS_DCP_TENSOR; i++)
		UNS_TRY(parse_chunk(p, chunks->item[i], e));
	return 0;
}

static int parse_tensor(struct parse *p, const struct uns_value *v, struct uns_dcp_entry *e)
{
	const struct uns_value *size = uns_value_field(v, "size");
	const char *dtype = dtype_name(uns_value_field(v, "properties"));

	e->kind = UNS_DCP_TENSOR;
	e->dtype = uns_dtype_of_torch(dtype);
	if (e->dtype == UNS_DTYPE_NONE)
		return odd(p, e, -ENOTSUP, "has dtype %s, which unshard does not know", dtype);
	if (!uns_value_dims(size, e->dims, UNS_MAX_DIMS, &e->n_dims))
		return odd(p, e, -ENOTSUP, "has a shape that is not a list of at most %d sizes", UNS_MAX_DIMS);
	return parse_chunks(p, uns_value_field(v, "chunks"), e);
}

/* -- entries -- */

static int parse_path(struct parse *p, const struct uns_value *path, struct uns_dcp_entry *e)
{
	struct uns_dcp_step *step;
	size_t i;

	UNS_TRY(spend(p, path->n, sizeof(*step), e->key));
	UNS_TRY_ALLOC(step = UNS_NEW_N(p->arena, struct uns_dcp_step, path->n), p->err);
	for (i = 0; i < path->n; i++) {
		step[i].key = uns_dcp_string(&p->strings, path->item[i]);
		if (!step[i].key && !uns_value_int(path->item[i], &step[i].index))
			return odd(p, e, -EBADMSG, "has a path that holds something other than names and numbers");
	}
	e->path = step;
	e->n_path = path->n;
	return 0;
}

static int path_of_key(struct parse *p, struct uns_dcp_entry *e)
{
	struct uns_dcp_step *step = UNS_NEW(p->arena, struct uns_dcp_step);

	UNS_TRY_ALLOC(step, p->err);
	step->key = e->key;
	e->path = step;
	e->n_path = 1;
	return 0;
}

static int parse_described(struct parse *p, const struct uns_value *v, struct uns_dcp_entry *e)
{
	struct uns_dcp_item *item;

	if (class_is(v, ".TensorStorageMetadata"))
		return parse_tensor(p, v, e);
	if (!class_is(v, ".BytesStorageMetadata"))
		return odd(p, e, -ENOTSUP, "is described by an object of class %s, which unshard does not know",
			   class_of(v));
	e->kind = UNS_DCP_BYTES;
	item = uns_dcp_items_find(&p->items, e->key, NULL, 0);
	e->bytes = item ? &item->storage : NULL;
	return 0;
}

/* The note of a key that has become an entry. */
static const struct uns_value listed = { 0 };

static int entry_begin(struct parse *p, const char *key, struct uns_dcp_entry **out)
{
	*out = &p->out->entry[p->out->n_entries++];
	(*out)->key = key;
	(*out)->dtype = UNS_DTYPE_NONE;
	return path_of_key(p, *out);
}

static int list_entry(struct parse *p, const char *key, const struct uns_value *path)
{
	const void **note = uns_dcp_string_note(key);
	const struct uns_value *described = *note;
	bool has_path = path && (path->kind == UNS_VALUE_TUPLE || path->kind == UNS_VALUE_LIST) && path->n > 0;
	struct uns_dcp_entry *e;

	UNS_TRY(entry_begin(p, key, &e));
	if (described == &listed)
		return odd(p, e, -EBADMSG, "is listed twice in planner_data");
	e->is_elsewhere = !described;
	if (!described)
		return odd(p, e, -EBADMSG, "is in planner_data, but not in state_dict_metadata");
	*note = &listed;
	UNS_TRY(parse_described(p, described, e));
	return has_path ? parse_path(p, path, e) : 0;
}

static const char *entry_key(struct parse *p, const struct uns_value *v)
{
	const char *key = uns_dcp_string(&p->strings, v);

	if (!key)
		uns_fail(p->err, -EBADMSG, "a key of the metadata is not a name of at most %d bytes", UNS_DCP_MAX_NAME);
	return key;
}

/* A flat key's note is its value in state_dict_metadata, or `listed` once the key has become an entry. */
static int collect_described(struct parse *p)
{
	const struct uns_value *dict = p->state_dict;
	const void **note;
	const char *key;
	size_t i;

	for (i = 0; i < dict->n; i++) {
		key = entry_key(p, dict->pair[i].key);
		if (!key)
			return p->err ? p->err->code : -EBADMSG;
		note = uns_dcp_string_note(key);
		if (*note)
			return uns_fail(p->err, -EBADMSG, "'%s' is described twice", key);
		*note = dict->pair[i].value;
		if (!p->out->has_paths)
			UNS_TRY(list_entry(p, key, NULL));
	}
	return 0;
}

static int list_planned(struct parse *p)
{
	const char *key;
	size_t i;

	for (i = 0; p->out->has_paths && i < p->planner->n; i++) {
		key = entry_key(p, p->planner->pair[i].key);
		if (!key)
			return p->err ? p->err->code : -EBADMSG;
		UNS_TRY(list_entry(p, key, p->planner->pair[i].value));
	}
	return 0;
}

/* The keys that planner_data does not have; without planner_data they are entries already. */
static int list_unplanned(struct parse *p)
{
	const char *key;
	size_t i;

	for (i = 0; p->out->has_paths && i < p->state_dict->n; i++) {
		UNS_TRY_ALLOC(key = uns_dcp_string(&p->strings, p->state_dict->pair[i].key), p->err);
		if (*uns_dcp_string_note(key) != &listed)
			UNS_TRY(list_entry(p, key, NULL));
	}
	return 0;
}

static int list_entries(struct parse *p)
{
	size_t n_planned = p->out->has_paths ? p->planner->n : 0;

	UNS_TRY_ALLOC(p->out->entry = UNS_NEW_N(p->arena, struct uns_dcp_entry, n_planned + p->state_dict->n), p->err);
	UNS_TRY(collect_described(p));
	UNS_TRY(list_planned(p));
	return list_unplanned(p);
}

/* -- the rest -- */

/* The path that was saved to: a string, or a call of pathlib's class with the path's parts as arguments. */
static const char *path_text(struct parse *p, const struct uns_value *v)
{
	const struct uns_value *parts = v && v->kind == UNS_VALUE_OBJECT ? v->object.args : NULL;
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	const char *part;
	size_t i;

	if (!parts || !uns_str_starts(v->cls, "pathlib."))
		return uns_dcp_string(&p->strings, v);
	for (i = 0; i < parts->n && text.len < UNS_DCP_MAX_NAME; i++) {
		part = uns_dcp_string(&p->strings, parts->item[i]);
		if (!part)
			return NULL;
		if (text.len && text.p[text.len - 1] != '/')
			uns_text_str(&text, "/");
		uns_text_str(&text, part);
	}
	p->strings.failed |= text.failed;
	return text.len && !text.failed ? uns_arena_str(p->arena, text.p) : NULL;
}

/* Also megatron-core 0.15's own class, whose additional field repeats what shapes of tensors show. */
static bool is_metadata(const struct uns_value *root)
{
	return class_is(root, ".Metadata") || class_is(root, ".MCoreMetadata");
}

static int parse_root(struct parse *p, struct uns_span in, struct uns_arena *in_arena)
{
	const struct uns_value *root, *meta;

	UNS_TRY(uns_pickle_parse_records(&in, &p->values, &root, p->err));
	if (in_arena)
		uns_arena_fini(in_arena);
	p->state_dict = uns_value_field(root, "state_dict_metadata");
	p->planner = uns_value_field(root, "planner_data");
	if (!is_metadata(root) || !p->state_dict || p->state_dict->kind != UNS_VALUE_DICT)
		return uns_fail(p->err, -EBADMSG, "is not the metadata of a distributed checkpoint: it holds %s",
				class_of(root));
	UNS_TRY_ALLOC(uns_map_reserve(&p->strings.map, p->state_dict->n), p->err);
	UNS_TRY(uns_dcp_items_parse(uns_value_field(root, "storage_data"), &p->strings, &p->boxes, &p->items, p->err));
	meta = uns_value_field(root, "storage_meta");
	p->out->has_paths = p->planner && p->planner->kind == UNS_VALUE_DICT;
	p->out->version = uns_dcp_string(&p->strings, uns_value_field(root, "version"));
	p->out->checkpoint_id = path_text(p, uns_value_field(meta, "checkpoint_id"));
	return list_entries(p);
}

static void parse_fini(struct parse *p)
{
	uns_arena_fini(&p->values);
	uns_map_fini(&p->strings.map);
	uns_dcp_items_fini(&p->items);
	uns_box_pool_fini(&p->boxes);
}

bool uns_dcp_step_is(const struct uns_dcp_entry *e, size_t i, const char *key)
{
	return i < e->n_path && e->path[i].key && strcmp(e->path[i].key, key) == 0;
}

int uns_dcp_metadata_parse(struct uns_span in, struct uns_arena *in_arena, struct uns_arena *arena,
			   struct uns_dcp_metadata *out, struct uns_err *err)
{
	struct uns_err why = { .keep = err ? err->keep : NULL };
	UNS_CLEANUP(parse_fini)
	struct parse p = { .arena = arena,
			   .strings.arena = arena,
			   .out = out,
			   .budget_bytes = uns_parse_budget(uns_span_left(&in)),
			   .err = &why };
	int code;

	*out = (struct uns_dcp_metadata){ 0 };
	code = parse_root(&p, in, in_arena);
	if (p.strings.failed)
		return uns_oom(err);
	return code < 0 ? uns_fail_copy(err, &why) : code;
}
