/* Parses storage_data and finds items in it. Knows nothing of tensors. */
#include "dcp/storage.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/keyed_hash.h"

enum { MAX_TRANSFORMS = 16 };

struct kept_string {
	const void *note;
	struct uns_dcp_item *first; /* of this name */
	bool has_more; /* then all of them are in the table of items */
	char text[];
};

static struct kept_string *kept_of(const char *text)
{
	return (struct kept_string *)(uintptr_t)(text - offsetof(struct kept_string, text));
}

static const char *string_keep(struct uns_dcp_strings *strings, const char *text, uint32_t hash)
{
	const size_t size = strlen(text) + 1;
	struct kept_string *kept = uns_arena_alloc(strings->arena, 1, sizeof(*kept) + size);

	if (!kept)
		return NULL;
	memcpy(kept->text, text, size);
	return uns_map_put_new(&strings->map, kept->text, hash, kept->text) ? kept->text : NULL;
}

const void **uns_dcp_string_note(const char *text)
{
	return &kept_of(text)->note;
}

static const char *string_find(struct uns_dcp_strings *strings, const char *text)
{
	uint32_t hash;
	const char *kept = uns_map_get_in_turn(&strings->map, text, &strings->turn, &hash);

	return kept ? kept : string_keep(strings, text, hash);
}

const char *uns_dcp_string(struct uns_dcp_strings *strings, const struct uns_value *v)
{
	const size_t at = (uintptr_t)v / sizeof(*v) % UNS_DCP_RECENT_STRINGS;
	const char *text, *kept;

	if (!v || v->kind != UNS_VALUE_STR || v->n > UNS_DCP_MAX_NAME)
		return NULL;
	if (strings->recent[at].value == v)
		return strings->recent[at].kept;
	text = uns_value_str(v);
	if (!text)
		return NULL;
	kept = string_find(strings, text);
	strings->failed |= !kept;
	if (kept) {
		strings->recent[at].value = v;
		strings->recent[at].kept = kept;
	}
	return kept;
}

/* Does the path stay below the directory that it is relative to? */
static bool path_stays_below(const char *path)
{
	const char *p, *slash;
	size_t len;

	if (*path == '\0' || *path == '/')
		return false;
	for (p = path; p; p = slash ? slash + 1 : NULL) {
		slash = strchr(p, '/');
		len = slash ? (size_t)(slash - p) : strlen(p);
		if (len == 2 && memcmp(p, "..", 2) == 0)
			return false;
	}
	return true;
}

static int parse_transforms(const struct uns_value *v, const char *name, struct uns_dcp_strings *strings,
			    struct uns_dcp_storage *out, struct uns_err *err)
{
	size_t i;

	if (!v || v->kind == UNS_VALUE_NONE)
		return 0;
	if ((v->kind != UNS_VALUE_LIST && v->kind != UNS_VALUE_TUPLE) || v->n > MAX_TRANSFORMS)
		return uns_fail(err, -ENOTSUP, "storage_data of '%s' has transforms that are not a short list", name);
	UNS_TRY_ALLOC(out->transform = UNS_NEW_N(strings->arena, const char *, v->n), err);
	for (i = 0; i < v->n; i++) {
		out->transform[i] = uns_dcp_string(strings, v->item[i]);
		if (!out->transform[i])
			return uns_fail(err, -ENOTSUP, "storage_data of '%s' has a transform without a name", name);
	}
	out->n_transforms = v->n;
	return 0;
}

static int parse_info(const struct uns_value *info, const char *name, struct uns_dcp_strings *strings,
		      struct uns_dcp_storage *out, struct uns_err *err)
{
	uint64_t end;

	out->path = uns_dcp_string(strings, uns_value_field(info, "relative_path"));
	if (!out->path || !uns_value_u64(uns_value_field(info, "offset"), &out->offset_bytes) ||
	    !uns_value_u64(uns_value_field(info, "length"), &out->length_bytes))
		return uns_fail(err, -EBADMSG, "storage_data of '%s' has no valid relative_path, offset and length",
				name);
	if (!path_stays_below(out->path))
		return uns_fail(err, -EBADMSG,
				"storage_data of '%s' leads out of the checkpoint: relative_path is '%s'", name,
				out->path);
	if (!uns_u64_add(out->offset_bytes, out->length_bytes, &end) || end > INT64_MAX)
		return uns_fail(err, -EBADMSG, "storage_data of '%s': offset %llu + length %llu overflows", name,
				(unsigned long long)out->offset_bytes, (unsigned long long)out->length_bytes);
	return parse_transforms(uns_value_field(info, "transform_descriptors"), name, strings, out, err);
}

static int parse_index(const struct uns_value *index, struct uns_dcp_strings *strings, struct uns_box_pool *boxes,
		       struct uns_dcp_item *out, struct uns_err *err)
{
	const struct uns_value *offset = uns_value_field(index, "offset");
	struct uns_box at = { 0 };
	size_t n;

	out->name = uns_dcp_string(strings, uns_value_field(index, "fqn"));
	if (!out->name)
		return uns_fail(err, -EBADMSG, "a key of storage_data names no tensor");
	if (!offset || offset->kind == UNS_VALUE_NONE)
		return 0;
	if (!uns_value_dims(offset, at.lo, UNS_MAX_DIMS, &n))
		return uns_fail(err, -ENOTSUP,
				"storage_data of '%s' has an offset that is not a list of at most %d numbers",
				out->name, UNS_MAX_DIMS);
	at.n = (uint32_t)n;
	out->at = uns_box_keep(boxes, strings->arena, &at);
	return out->at ? 0 : uns_oom(err);
}

static uint64_t item_hash(const char *name, const uint64_t *lo, size_t n_dims)
{
	uint64_t words[1 + UNS_MAX_DIMS] = { (uintptr_t)name };

	if (lo)
		memcpy(words + 1, lo, n_dims * sizeof(*lo));
	return uns_keyed_hash(words, (1 + n_dims) * sizeof(*words));
}

static bool item_is(const struct uns_dcp_item *item, const char *name, const uint64_t *lo, size_t n_dims)
{
	if (item->name != name || !item->at != !lo)
		return false;
	return !lo || (item->at->n == n_dims && memcmp(item->at->lo, lo, n_dims * sizeof(*lo)) == 0);
}

/* In the table. */
static struct uns_dcp_item **slot_of(const struct uns_dcp_items *items, const char *name, const uint64_t *lo,
				     size_t n_dims)
{
	size_t i = (size_t)item_hash(name, lo, n_dims) & (items->cap - 1);

	while (items->slot[i] && !item_is(items->slot[i], name, lo, n_dims))
		i = (i + 1) & (items->cap - 1);
	return &items->slot[i];
}

struct uns_dcp_item *uns_dcp_items_find(const struct uns_dcp_items *items, const char *name, const uint64_t *lo,
					size_t n_dims)
{
	const struct kept_string *kept = kept_of(name);

	if (kept->has_more)
		return *slot_of(items, name, lo, n_dims);
	return kept->first && item_is(kept->first, name, lo, n_dims) ? kept->first : NULL;
}

static int table_make(struct uns_dcp_items *items, struct uns_err *err)
{
	size_t cap = 16;

	while (cap < 2 * items->n_most)
		cap *= 2;
	UNS_TRY_ALLOC(items->slot = calloc(cap, sizeof(struct uns_dcp_item *)), err);
	items->cap = cap;
	return 0;
}

static int table_add(struct uns_dcp_items *items, struct uns_dcp_item *item, struct uns_err *err)
{
	struct uns_dcp_item **slot =
		slot_of(items, item->name, item->at ? item->at->lo : NULL, item->at ? item->at->n : 0);

	if (*slot)
		return uns_fail(err, -EBADMSG, "storage_data has '%s' twice at the same offset", item->name);
	*slot = item;
	return 0;
}

static int item_add(struct uns_dcp_items *items, struct uns_dcp_item *item, struct uns_err *err)
{
	struct kept_string *kept = kept_of(item->name);

	if (!kept->first) {
		kept->first = item;
		return 0;
	}
	if (!items->cap)
		UNS_TRY(table_make(items, err));
	if (!kept->has_more)
		UNS_TRY(table_add(items, kept->first, err));
	kept->has_more = true;
	return table_add(items, item, err);
}

int uns_dcp_items_parse(const struct uns_value *storage_data, struct uns_dcp_strings *strings,
			struct uns_box_pool *boxes, struct uns_dcp_items *out, struct uns_err *err)
{
	struct uns_dcp_item *item;
	size_t i;

	*out = (struct uns_dcp_items){ 0 };
	if (!storage_data || storage_data->kind == UNS_VALUE_NONE)
		return 0;
	if (storage_data->kind != UNS_VALUE_DICT)
		return uns_fail(err, -EBADMSG, "storage_data is not a dict");
	out->n_most = storage_data->n;
	for (i = 0; i < storage_data->n; i++) {
		UNS_TRY_ALLOC(item = UNS_NEW(strings->arena, struct uns_dcp_item), err);
		UNS_TRY(parse_index(storage_data->pair[i].key, strings, boxes, item, err));
		UNS_TRY(parse_info(storage_data->pair[i].value, item->name, strings, &item->storage, err));
		UNS_TRY(item_add(out, item, err));
	}
	return 0;
}

void uns_dcp_items_fini(struct uns_dcp_items *items)
{
	free(items->slot);
	*items = (struct uns_dcp_items){ 0 };
}
