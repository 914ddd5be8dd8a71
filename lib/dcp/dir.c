/* The reader of a torch.distributed.checkpoint directory. .metadata lists all tensors, the boxes (chunks) in which
 * ranks saved them, and the file and offset of each chunk's item. unshard makes one tensor of the catalog from each,
 * with a piece for each chunk. It reads the objects that hold param groups and scalars now, and all other bytes when a
 * view is read.
 *
 * unshard takes the places of bytes from storage_data only, and names from planner_data only, never from file names,
 * ranks or flat keys. This file owns reading the metadata, and the findings about metadata and items that are missing.
 * It does not know which framework wrote the directory: names.c finds out what an entry is. */
#include "dcp/dir.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "dcp/groups.h"
#include "dcp/item.h"
#include "dcp/names.h"
#include "dcp/metadata.h"
#include "dcp/numbered.h"
#include "dcp/plain.h"
#include "model/save_times.h"

/* A 70B model on 32 ranks has 10 MB of metadata; a larger one on a thousand ranks a few hundred MB. */
#define MAX_METADATA_BYTES (UINT64_C(1) << 30)
enum { MAX_RANK_METADATA = 65536 };

struct decoded {
	struct uns_span bytes;
	const struct uns_value *value;
};

/* The items of one file that could not be read: one finding, however many they are. */
struct broken {
	const struct uns_finding *worst;
	uint64_t n;
};

struct dir {
	struct uns_catalog *cat;
	const struct uns_root *root;
	const char *path, *prefix; /* in the catalog's arena */
	const struct uns_dcp_roots *roots;
	struct uns_arena scratch; /* holds the parsed metadata, which is needed only while this runs */
	struct uns_listing list;
	struct uns_dcp_metadata meta;
	struct uns_dcp_naming naming;
	struct uns_dcp_reader reader;
	struct uns_dcp_groups groups;
	struct uns_dcp_plain plain;
	struct uns_map file_of;      /* path in storage_data -> 1 + index of the catalog's file */
	struct uns_map reported;     /* transforms that a finding names already */
	struct uns_map broken;       /* path of a file -> struct broken; in the order of the items */
	struct uns_map last_decoded; /* name of a hyper-parameter -> the item of it that was decoded last */
	bool any_weight;
};

static void dir_fini(struct dir *d)
{
	uns_dcp_groups_fini(&d->groups);
	uns_dcp_plain_fini(&d->plain);
	uns_dcp_reader_fini(&d->reader);
	uns_map_fini(&d->file_of);
	uns_map_fini(&d->reported);
	uns_map_fini(&d->broken);
	uns_map_fini(&d->last_decoded);
	uns_arena_fini(&d->scratch);
}

/* -- metadata -- */

static bool is_rank_metadata(const char *name, unsigned long long *rank)
{
	return uns_str_number(name, "__", ".metadata", rank);
}

bool uns_dcp_dir_is(const struct uns_listing *list)
{
	return uns_listing_find(list, ".metadata") || uns_listing_find(list, "__0.metadata");
}

static int metadata_read(struct dir *d, const char *name, struct uns_dcp_metadata *out, struct uns_err *err)
{
	char *path = uns_path_join(&d->scratch, d->path, name);
	UNS_CLEANUP(uns_arena_fini) struct uns_arena file_arena = UNS_ARENA_INIT;
	struct uns_span bytes;
	struct uns_stat now;
	uint32_t file;

	UNS_TRY(uns_catalog_add_file(d->cat, d->root, path, &file, err));
	UNS_TRY(uns_root_read_file(d->root, path, MAX_METADATA_BYTES, &file_arena, &bytes, &now, err));
	if (!uns_identity_equal(&now.id, &d->cat->files[file].stat.id))
		return uns_fail(err, -ESTALE, "%s changed while it was read", path);
	if (uns_dcp_metadata_parse(bytes, &file_arena, &d->scratch, out, err) < 0)
		return uns_fail_in_file(err, path);
	return 0;
}

/* Rank 3 for "__3_0.distcp". Used in messages only. */
static int32_t rank_of(const char *path)
{
	const char *name = uns_path_name(path), *p;
	int32_t rank = 0;

	if (!uns_str_starts(name, "__"))
		return -1;
	for (p = name + 2; *p >= '0' && *p <= '9' && p < name + 11; p++)
		rank = 10 * rank + (*p - '0');
	return p > name + 2 && *p == '_' ? rank : -1;
}

static int report_rank_without_metadata(struct dir *d, unsigned long long rank, struct uns_err *err)
{
	const char *name = uns_arena_printf(&d->cat->arena, "__%llu.metadata", rank);

	return UNS_ADD_FINDING(d->cat, err, RANK_METADATA_MISSING, .scope = UNS_SCOPE_ALL,
			       .file = uns_path_join(&d->cat->arena, d->path, name), .rank = uns_num(rank));
}

static int report_other_rank(struct dir *d, const char *name, unsigned long long rank, const struct uns_dcp_storage *s,
			     struct uns_err *err)
{
	return UNS_ADD_FINDING(d->cat, err, RANK_METADATA_OF_OTHER, .scope = UNS_SCOPE_SHARDED,
			       .file = uns_path_join(&d->cat->arena, d->path, name), .rank = uns_num(rank),
			       .found = uns_str(s->path));
}

/* A rank's metadata names the files that it wrote itself. */
static int check_own_files(struct dir *d, const char *name, unsigned long long rank,
			   const struct uns_dcp_metadata *meta, struct uns_err *err)
{
	const struct uns_dcp_entry *e = meta->entry, *end = e + meta->n_entries;
	size_t i;

	for (; e < end; e++) {
		if (e->bytes && rank_of(e->bytes->path) != (int32_t)rank && rank_of(e->bytes->path) >= 0)
			return report_other_rank(d, name, rank, e->bytes, err);
		for (i = 0; i < e->n_chunks; i++) {
			const struct uns_dcp_storage *s = e->chunk[i].storage;

			if (s && rank_of(s->path) != (int32_t)rank && rank_of(s->path) >= 0)
				return report_other_rank(d, name, rank, s, err);
		}
	}
	return 0;
}

/* Each rank wrote metadata of its own (use_collectives=False). If a number is missing among them, that rank's tensors
 * are not described anywhere. Ranks above the last one with metadata are known only by their shards. */
static int metadata_read_of_ranks(struct dir *d, struct uns_err *err)
{
	struct uns_dcp_metadata *parts = UNS_NEW_N(&d->scratch, struct uns_dcp_metadata, d->list.n + 1);
	const struct uns_entry *torn = uns_listing_find(&d->list, ".metadata.tmp");
	const struct uns_entry *e = d->list.v, *end = e + d->list.n;
	unsigned long long rank, expected = 0;
	int32_t of_shard, last = -1;
	size_t n = 0;

	UNS_TRY_ALLOC(parts, err);
	for (; e < end && n < MAX_RANK_METADATA; e++) {
		if (!is_rank_metadata(e->name, &rank))
			continue;
		if (rank != expected)
			UNS_TRY(report_rank_without_metadata(d, expected, err));
		expected = rank + 1;
		UNS_TRY(metadata_read(d, e->name, &parts[n], err));
		UNS_TRY(check_own_files(d, e->name, rank, &parts[n++], err));
	}
	if (!n)
		return UNS_CATALOG_FAIL(d->cat, err, METADATA_MISSING, .scope = UNS_SCOPE_ALL,
					.file = uns_path_join(&d->cat->arena, d->path, ".metadata"),
					.arg = { { "torn", uns_str(torn ? torn->name : NULL) } });
	for (e = d->list.v; e < end; e++) {
		of_shard = uns_str_ends(e->name, ".distcp") ? rank_of(e->name) : -1;
		if (of_shard < 0 || (unsigned long long)of_shard < expected || of_shard == last)
			continue;
		last = of_shard;
		UNS_TRY(report_rank_without_metadata(d, (unsigned long long)of_shard, err));
	}
	if (uns_dcp_metadata_merge(parts, n, &d->scratch, &d->meta, err) < 0)
		return uns_fail_in_file(err, d->path);
	return 0;
}

static int companions_add(struct dir *d, struct uns_err *err)
{
	const struct uns_entry *e = d->list.v, *end = e + d->list.n;
	unsigned long long rank;
	uint32_t file;

	for (; e < end; e++) {
		if (e->kind == UNS_KIND_DIR || (strcmp(e->name, ".metadata") != 0 &&
						!uns_str_ends(e->name, ".distcp") && !is_rank_metadata(e->name, &rank)))
			continue;
		UNS_TRY(uns_catalog_add_file(d->cat, d->root, uns_path_join(&d->scratch, d->path, e->name), &file,
					     err));
		UNS_TRY(uns_catalog_add_companion(d->cat, uns_path_join(&d->scratch, d->prefix, e->name), file, true,
						  err));
	}
	return 0;
}

/* -- locations in files -- */

static int file_of(struct dir *d, const char *name, uint32_t *out, struct uns_err *err)
{
	*out = uns_map_index(&d->file_of, name);
	if (*out != UNS_MAP_NO_INDEX)
		return 0;
	UNS_TRY(uns_catalog_add_file(d->cat, d->root, uns_path_join(&d->scratch, d->path, name), out, err));
	return uns_map_put_index(&d->file_of, name, *out) ? 0 : uns_oom(err);
}

static int report_entry(struct dir *d, enum uns_finding_id id, enum uns_scope scope, const char *key,
			struct uns_err *err)
{
	return uns_catalog_add_finding(d->cat, UNS_FINDING(.id = id, .scope = scope, .file = d->path, .tensor = key),
				       err);
}

/* Adds the finding unless there is one about this subject. */
static int report_once(struct dir *d, const char *subject, const struct uns_finding *f, struct uns_err *err)
{
	if (uns_map_get(&d->reported, subject))
		return 0;
	UNS_TRY_ALLOC(uns_map_put(&d->reported, uns_arena_str(&d->scratch, subject), d, NULL), err);
	return uns_catalog_add_finding(d->cat, f, err);
}

/* Returns 1 if the item's transforms are known. Otherwise reports them and returns 0. */
static int codec_of(struct dir *d, const struct uns_dcp_storage *s, enum uns_scope scope, enum uns_codec *out,
		    struct uns_err *err)
{
	static const char known[] = "stream.zstd/1";

	*out = UNS_CODEC_NONE;
	if (!s->n_transforms)
		return 1;
	*out = UNS_CODEC_ZSTD;
	if (s->n_transforms == 1 && strcmp(s->transform[0], known) == 0)
		return 1;
	UNS_TRY(report_once(d, s->transform[0],
			    UNS_FINDING(.id = UNS_FOUND_TRANSFORM_UNKNOWN, .scope = scope, .file = d->path,
					.found = uns_str(s->transform[0]), .expected = uns_str(known),
					.arg = { { "n", uns_num(s->n_transforms) } }),
			    err));
	return 0;
}

static enum uns_scope scope_of(const struct uns_dcp_meaning *meaning)
{
	switch (meaning->what) {
	case UNS_DCP_IS_WEIGHT:
		return UNS_SCOPE_WEIGHTS;
	case UNS_DCP_IS_OTHER:
		return UNS_SCOPE_NOTE;
	default:
		return UNS_SCOPE_OPTIMIZER;
	}
}

/* -- tensors -- */

/* Adds a piece for the chunk. A chunk that was not saved, or whose transform cannot be undone, gets no
 * piece, and model/cover.h then reports the hole. A chunk without elements gets none either. */
static int add_chunk(struct dir *d, const struct uns_dcp_chunk *chunk, enum uns_scope scope, struct uns_err *err)
{
	const struct uns_dcp_storage *s = chunk->storage;
	struct uns_piece piece = { .kind = UNS_PIECE_BOX, .box = chunk->box, .container = UNS_TORCH_ITEM };
	int code;

	if (!s || !uns_box_elems(chunk->box))
		return 0;
	code = codec_of(d, s, scope, &piece.codec, err);
	if (code <= 0)
		return code;
	piece.part = chunk->part;
	piece.offset_bytes = s->offset_bytes;
	piece.length_bytes = s->length_bytes;
	piece.rank = rank_of(s->path);
	UNS_TRY(file_of(d, s->path, &piece.file, err));
	return uns_catalog_add_piece(d->cat, &piece, err);
}

static int add_tensor(struct dir *d, const struct uns_dcp_entry *e, const char *key,
		      const struct uns_dcp_meaning *meaning, struct uns_err *err)
{
	struct uns_tensor t = {
		.name = meaning->name,
		.key = key,
		.root = meaning->root,
		.role = meaning->role,
		.dtype = e->dtype,
		.shape = { .n = (uint32_t)e->n_dims },
		UNS_TENSOR_ALONE,
		.inferred = meaning->inferred,
	};
	struct uns_err why = { 0 };
	size_t i;

	if (meaning->what == UNS_DCP_IS_STATE)
		t.state = meaning->state;
	memcpy(t.shape.dim, e->dims, e->n_dims * sizeof(*e->dims));
	if (uns_shape_check(&t.shape, t.dtype, &why) < 0)
		return UNS_ADD_FINDING(d->cat, err, TENSOR_UNREADABLE, .scope = scope_of(meaning), .code = why.code,
				       .file = d->path, .tensor = key, .arg = { { "cause", uns_str(why.text) } });
	UNS_TRY(uns_catalog_add_tensor(d->cat, &t, NULL, err));
	for (i = 0; i < e->n_chunks; i++)
		UNS_TRY(add_chunk(d, &e->chunk[i], scope_of(meaning), err));
	d->any_weight |= t.role == UNS_ROLE_WEIGHT;
	return uns_dcp_plain_judge(&d->plain, scope_of(meaning), err);
}

/* -- objects -- */

/* Of the findings about items of one file, the one that is most about the file. Another rank's file has most items at
 * other places, and may be shorter too: that it is shorter would name the wrong cause. */
static int weight_of(const struct uns_finding *f)
{
	if (f->id == UNS_FOUND_ITEM_FILE_MISSING)
		return 3;
	if (f->code == -EBADMSG)
		return f->id == UNS_FOUND_ITEM_CUT ? 1 : 2;
	return 0;
}

/* Keeps what is wrong with an item until all items of its file are known. */
static int item_broken(struct dir *d, const struct uns_finding *f, struct uns_err *err)
{
	struct broken *b = uns_map_get(&d->broken, f->file);
	bool first = !b;

	if (first) {
		UNS_TRY_ALLOC(b = UNS_NEW(&d->scratch, struct broken), err);
		UNS_TRY_ALLOC(uns_map_put(&d->broken, f->file, b, NULL), err);
	}
	b->n++;
	/* The whole file has to reach the end of its last item. */
	if (first || weight_of(f) > weight_of(b->worst) ||
	    (f->id == UNS_FOUND_ITEM_CUT && b->worst->id == f->id && f->expected.number > b->worst->expected.number))
		UNS_TRY_ALLOC(b->worst = uns_finding_copy(&d->scratch, f), err);
	return 0;
}

static int report_broken(struct dir *d, struct uns_err *err)
{
	const char *path;
	size_t at = 0, i;
	void *value;

	while (uns_map_next(&d->broken, &at, &path, &value)) {
		const struct broken *b = value;
		struct uns_finding f = *b->worst;

		if (f.id == UNS_FOUND_ITEM_UNREADABLE && f.code == -ENOTSUP)
			f.id = UNS_FOUND_ITEM_UNKNOWN;
		else if (f.id == UNS_FOUND_ITEM_UNREADABLE && b->n > 1)
			f.id = UNS_FOUND_ITEMS_UNREADABLE;
		for (i = 0; i + 1 < UNS_FINDING_ARGS && f.arg[i].name; i++)
			;
		f.arg[i] = (struct uns_finding_arg){ "more", uns_more(b->n - 1) };
		UNS_TRY(uns_catalog_add_finding(d->cat, &f, err));
	}
	return 0;
}

/* Reads the object in an item. If the item cannot be read, *out is NULL and a finding reports its file as damage of the
 * optimizer (report_broken). A hyper-parameter may be stored with each parameter: if the item has the same bytes as the
 * last item of that name (`state`), its value is used again. */
static int object_read(struct dir *d, const char *key, const char *state, const struct uns_dcp_item_location *at,
		       const struct uns_value **out, struct uns_err *err)
{
	struct decoded *last = uns_map_get(&d->last_decoded, state);
	struct uns_err why = { .keep = &d->scratch };
	struct uns_finding f;
	struct uns_span bytes;

	*out = NULL;
	if (uns_dcp_item_bytes(&d->reader, at, &d->scratch, &bytes, &why) == 0) {
		if (last && uns_span_left(&last->bytes) == uns_span_left(&bytes) &&
		    memcmp(last->bytes.p, bytes.p, uns_span_left(&bytes)) == 0) {
			*out = last->value;
			return 0;
		}
		if (uns_dcp_item_value(bytes, &d->cat->arena, out, &why) == 0) {
			UNS_TRY_ALLOC(last = UNS_NEW(&d->scratch, struct decoded), err);
			*last = (struct decoded){ bytes, *out };
			return uns_map_put(&d->last_decoded, state, last, NULL) ? 0 : uns_oom(err);
		}
	}
	if (!uns_code_is_finding(why.code))
		return uns_fail_copy(err, &why);
	f = uns_finding_of_err(&why, UNS_SCOPE_OPTIMIZER);
	if (!why.finding)
		f.id = UNS_FOUND_ITEM_UNREADABLE;
	f.file = d->cat->files[at->file].path;
	f.rank = uns_rank(rank_of(f.file));
	f.tensor = key;
	return item_broken(d, &f, err);
}

/* Adds an object: what belongs to param groups to the groups, all else to the catalog's values. Of the optimizer's
 * objects the values are read, of others only the place is kept. */
static int add_object(struct dir *d, const char *key, const struct uns_dcp_meaning *meaning,
		      const struct uns_dcp_storage *s, struct uns_err *err)
{
	bool of_optimizer = meaning->what != UNS_DCP_IS_WEIGHT && meaning->what != UNS_DCP_IS_OTHER;
	struct uns_named_value named = { .name = meaning->name, .root = meaning->root };
	struct uns_dcp_item_location at = { 0 };
	int code;

	if (!s)
		return report_entry(d, UNS_FOUND_ITEM_NOT_SAVED, scope_of(meaning), key, err);
	code = codec_of(d, s, scope_of(meaning), &at.codec, err);
	if (code <= 0)
		return code;
	at.offset_bytes = s->offset_bytes;
	at.length_bytes = s->length_bytes;
	UNS_TRY(file_of(d, s->path, &at.file, err));
	if (of_optimizer) {
		UNS_TRY(object_read(d, key, meaning->state ? meaning->state : "", &at, &named.value, err));
		if (!named.value)
			return 0; /* it was reported above */
	}
	if (of_optimizer && meaning->what != UNS_DCP_IS_STATE && meaning->deep)
		return report_entry(d, UNS_FOUND_HYPER_IN_PARTS, UNS_SCOPE_OPTIMIZER, key, err);
	switch (meaning->what) {
	case UNS_DCP_IS_GROUPS:
		return uns_dcp_groups_add_list(&d->groups, meaning->root, named.value, err);
	case UNS_DCP_IS_HYPER:
		return uns_dcp_groups_add_key(&d->groups, meaning->root, meaning->group, meaning->state, named.value,
					      err);
	case UNS_DCP_IS_PARAM_HYPER:
		return uns_dcp_groups_add_param_key(&d->groups, meaning->root, meaning->name, meaning->state,
						    named.value, err);
	case UNS_DCP_IS_STATE:
		named.name = uns_arena_printf(&d->cat->arena, "state.%s.%s", meaning->name, meaning->state);
		break;
	default:
		break;
	}
	named.file = at.file;
	named.offset_bytes = at.offset_bytes;
	named.length_bytes = at.length_bytes;
	named.codec = at.codec;
	return uns_catalog_add_value(d->cat, &named, err);
}

/* -- entries -- */

static int add_entry(struct dir *d, const struct uns_dcp_entry *e, struct uns_err *err)
{
	char *key = uns_arena_str(&d->cat->arena, e->key);
	struct uns_dcp_meaning meaning;
	enum uns_scope scope;

	UNS_TRY_ALLOC(key, err);
	UNS_TRY(uns_dcp_meaning_of(&d->naming, e, key, &meaning, err));
	if (meaning.stray)
		UNS_TRY(report_entry(d, UNS_FOUND_WEIGHT_NOT_PLANNED, UNS_SCOPE_WEIGHTS, key, err));
	if (e->kind == UNS_DCP_BYTES)
		return add_object(d, key, &meaning, e->bytes, err);
	if (e->kind != UNS_DCP_TENSOR) {
		/* An entry that contradicts itself may be anything, weights too. */
		scope = meaning.what == UNS_DCP_IS_OTHER && e->code == -EBADMSG ? UNS_SCOPE_ALL : scope_of(&meaning);
		return UNS_ADD_FINDING(d->cat, err, FILE_UNREADABLE, .scope = scope, .code = e->code, .file = d->path,
				       .tensor = e->key, .arg = { { "cause", uns_str(e->why) } });
	}
	UNS_TRY(add_tensor(d, e, key, &meaning, err));
	if (meaning.what != UNS_DCP_IS_HYPER && meaning.what != UNS_DCP_IS_PARAM_HYPER)
		return 0;
	/* Capturable optimizers keep lr on the device: the tensor is in the catalog, and its number is the group's. */
	if (e->n_chunks != 1)
		return report_entry(d, UNS_FOUND_HYPER_NOT_ONE_NUMBER, UNS_SCOPE_OPTIMIZER, key, err);
	return add_object(d, key, &meaning, e->chunk[0].storage, err);
}

static int add_entries(struct dir *d, struct uns_err *err)
{
	const char *const *two = d->naming.two_roots;
	size_t i;

	UNS_TRY(uns_dcp_naming_init(&d->naming, &d->meta, d->roots, &d->cat->arena, err));
	for (i = 0; i < d->meta.n_entries; i++)
		UNS_TRY(add_entry(d, &d->meta.entry[i], err));
	UNS_TRY(uns_dcp_plain_finish(&d->plain, err));
	UNS_TRY(report_broken(d, err));
	/* Of groups whose items cannot be read it is not known what they lack. */
	if (!d->broken.n)
		UNS_TRY(uns_dcp_groups_finish(&d->groups, err));
	UNS_TRY(uns_dcp_numbered_judge(d->cat, d->path, err));
	if (!d->any_weight && d->roots->weights && d->roots->n_weights)
		UNS_TRY(UNS_ADD_FINDING(d->cat, err, NO_TENSOR_BELOW_KEY, .scope = UNS_SCOPE_WEIGHTS, .file = d->path,
					.expected = uns_str(d->roots->weights[0]),
					.found = uns_str(d->meta.n_entries ? d->meta.entry[0].key : "nothing")));
	if (two[0])
		UNS_TRY(UNS_ADD_FINDING(d->cat, err, WEIGHTS_BELOW_KEYS, .file = d->path,
					.arg = { { "what", uns_str(two[0]) }, { "other", uns_str(two[1]) } }));
	return uns_catalog_assign_groups(d->cat, err);
}

static bool metadata_names(const struct uns_dcp_metadata *meta, const char *file)
{
	const struct uns_dcp_entry *e = meta->entry, *end = e + meta->n_entries;
	size_t i;

	for (; e < end; e++) {
		if (e->bytes && strcmp(e->bytes->path, file) == 0)
			return true;
		for (i = 0; i < e->n_chunks; i++)
			if (e->chunk[i].storage && strcmp(e->chunk[i].storage->path, file) == 0)
				return true;
	}
	return false;
}

/* Shards that no metadata names are of another save. torch writes an empty file for a rank that has nothing to save. */
static int report_unnamed(struct dir *d, struct uns_err *err)
{
	const struct uns_entry *e = d->list.v, *end = e + d->list.n;
	const char *path, *first = NULL;
	struct uns_stat st;
	size_t n = 0;

	for (; e < end; e++) {
		if (!uns_str_ends(e->name, ".distcp") || uns_map_index(&d->file_of, e->name) != UNS_MAP_NO_INDEX ||
		    metadata_names(&d->meta, e->name))
			continue;
		UNS_TRY_ALLOC(path = uns_path_join(&d->scratch, d->path, e->name), err);
		UNS_TRY(uns_stat_seen(d->root, d->cat->capture, path, &st, err));
		if (st.kind != UNS_KIND_FILE || !st.id.size)
			continue;
		first = first ? first : path;
		n++;
	}
	return n ? UNS_ADD_FINDING(d->cat, err, SHARD_NOT_NAMED, .file = first, .arg = { { "more", uns_more(n - 1) } })
		 : 0;
}

/* Compares the shards' times with the end of the save (model/save_times.h): that of the oldest file of metadata. If
 * each rank wrote its own, no rank waited for another: a rank that began a second save has shards that are newer than
 * the other ranks' metadata. */
static int check_times(struct dir *d, struct uns_err *err)
{
	const char **all = UNS_NEW_N(&d->cat->arena, const char *, d->list.n + 1);
	struct uns_save_end end = { .root = d->root, .below = d->path, .all = all };
	const struct uns_entry *whole = uns_listing_find(&d->list, ".metadata");
	int64_t oldest = INT64_MAX;
	unsigned long long rank;
	struct uns_stat st;
	size_t i, n = 0;

	UNS_TRY_ALLOC(all, err);
	for (i = 0; i < d->list.n; i++) {
		if (whole ? &d->list.v[i] != whole : !is_rank_metadata(d->list.v[i].name, &rank))
			continue;
		UNS_TRY_ALLOC(all[n] = uns_path_join(&d->cat->arena, d->path, d->list.v[i].name), err);
		UNS_TRY(uns_stat_seen(d->root, d->cat->capture, all[n], &st, err));
		if (st.id.mtime_ns < oldest) {
			end.path = all[n];
			oldest = st.id.mtime_ns;
		}
		n++;
	}
	return uns_save_times_check(d->cat, &end, err);
}

int uns_dcp_dir_add(struct uns_catalog *cat, const struct uns_root *root, const char *path, const char *prefix,
		    const struct uns_dcp_roots *roots, struct uns_err *err)
{
	static const struct uns_dcp_roots find_out = { 0 };
	UNS_CLEANUP(dir_fini) struct dir d = { .cat = cat, .root = root };

	d.roots = roots ? roots : &find_out;
	d.path = uns_arena_str(&cat->arena, path);
	d.prefix = uns_arena_str(&cat->arena, prefix);
	uns_dcp_reader_init(&d.reader, cat);
	uns_dcp_groups_init(&d.groups, cat, d.path);
	uns_dcp_plain_init(&d.plain, cat, &d.reader, d.path);
	UNS_TRY_ALLOC(d.path && d.prefix, err);
	UNS_TRY(uns_list_seen(root, cat->capture, path, &d.scratch, &d.list, err));
	/* First, because the catalog needs its files even if the metadata is missing. */
	UNS_TRY(companions_add(&d, err));
	if (uns_listing_find(&d.list, ".metadata"))
		UNS_TRY(metadata_read(&d, ".metadata", &d.meta, err));
	else
		UNS_TRY(metadata_read_of_ranks(&d, err));
	if (d.roots->restore)
		UNS_TRY(d.roots->restore(&d.meta, &d.scratch, cat, err));
	UNS_TRY(add_entries(&d, err));
	UNS_TRY(report_unnamed(&d, err));
	return check_times(&d, err);
}
