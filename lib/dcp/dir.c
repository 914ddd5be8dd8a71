/* The reader of a torch.distributed.checkpoint directory: .metadata lists all tensors, the boxes (chunks) in which ranks
 * saved them, and where in which .distcp file each chunk's item lies. A tensor becomes one of the catalog with a piece
 * for each chunk; objects that tell param groups and scalars are read now, all other bytes when they are asked for.
 *
 * Where bytes lie is taken from storage_data only, and names from planner_data only: file names, ranks and
 * flat keys are never taken for either. This file owns reading the metadata and what is said when it, or a part of
 * it, is not there. It must not know which framework wrote the directory: names.c says what an entry is. */
#include "dcp/dir.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "dcp/groups.h"
#include "dcp/item.h"
#include "dcp/megatron_space.h"
#include "dcp/names.h"
#include "dcp/metadata.h"
#include "dcp/numbered.h"
#include "dcp/plain.h"
#include "model/megatron_file.h"
#include "model/save_times.h"

/* A 70B model on 32 ranks has 10 MB of metadata; a larger one on a thousand ranks a few hundred MB. */
#define MAX_METADATA_BYTES (UINT64_C(1) << 30)
enum { MAX_RANK_METADATA = 65536 };

struct decoded {
	struct uns_span bytes;
	const struct uns_value *value;
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
	struct uns_map reported;     /* transforms and files that a finding names already */
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
	uns_map_fini(&d->last_decoded);
	uns_arena_fini(&d->scratch);
}

/* -- metadata -- */

static bool rank_metadata(const char *name, unsigned long long *rank)
{
	return uns_str_number(name, "__", ".metadata", rank);
}

bool uns_dcp_dir_is(const struct uns_listing *list)
{
	return uns_listing_find(list, ".metadata") || uns_listing_find(list, "__0.metadata");
}

static int parse_one(struct dir *d, const char *name, struct uns_dcp_metadata *out,
		     struct uns_err *err)
{
	char *path = uns_path_join(&d->scratch, d->path, name);
	UNS_CLEANUP(uns_arena_fini) struct uns_arena file_arena = UNS_ARENA_INIT;
	struct uns_span bytes;
	struct uns_stat now;
	uint32_t file;

	if (!path)
		return uns_oom(err);
	UNS_TRY(uns_catalog_add_file(d->cat, d->root, path, &file, err));
	UNS_TRY(uns_root_read_file(d->root, path, MAX_METADATA_BYTES, &file_arena, &bytes, &now,
				   err));
	if (!uns_identity_equal(&now.id, &d->cat->files[file].stat.id))
		return uns_fail(err, -ESTALE, "%s changed while it was read", path);
	if (uns_dcp_metadata_parse(bytes, &file_arena, &d->scratch, out, err) < 0)
		return uns_fail_in_file(err, path);
	return 0;
}

static int fail_no_metadata(struct dir *d, struct uns_err *err)
{
	const struct uns_entry *torn = uns_listing_find(&d->list, ".metadata.tmp");
	const char *path = uns_path_join(&d->scratch, d->path, ".metadata");

	if (!path)
		return uns_oom(err);
	return uns_fail_with(err, UNS_FINDING(.id = UNS_FOUND_METADATA_MISSING,
					      .scope = UNS_SCOPE_ALL, .file = path,
					      .checkpoint = d->cat->path,
					      .arg = { { "torn", uns_str(torn ? torn->name : NULL) } }));
}

static int32_t rank_of(const char *path);

static int report_rank(struct dir *d, unsigned long long rank, struct uns_err *err)
{
	const char *name = uns_arena_printf(&d->scratch, "__%llu.metadata", rank);
	const char *path = name ? uns_path_join(&d->scratch, d->path, name) : NULL;

	if (!path)
		return uns_oom(err);
	return uns_catalog_add_finding(d->cat,
				       UNS_FINDING(.id = UNS_FOUND_RANK_METADATA_MISSING,
						   .scope = UNS_SCOPE_ALL, .file = path,
						   .rank = uns_num(rank)),
				       err);
}

/* Each rank writes metadata of its own, so ranks above the last one with metadata are known only by their
 * shards: report each whose metadata is missing. */
static int report_silent_ranks(struct dir *d, unsigned long long n_ranks, struct uns_err *err)
{
	const struct uns_entry *e = d->list.v, *end = e + d->list.n;
	int32_t rank, last = -1;

	for (; e < end; e++) {
		rank = uns_str_ends(e->name, ".distcp") ? rank_of(e->name) : -1;
		if (rank < 0 || (unsigned long long)rank < n_ranks || rank == last)
			continue;
		last = rank;
		UNS_TRY(report_rank(d, (unsigned long long)rank, err));
	}
	return 0;
}

/* Each rank wrote metadata of its own (use_collectives=False). If a number is missing among them, that
 * rank's tensors are not described anywhere. */
static int parse_ranks(struct dir *d, struct uns_err *err)
{
	struct uns_dcp_metadata *parts =
		UNS_NEW_N(&d->scratch, struct uns_dcp_metadata, d->list.n + 1);
	unsigned long long rank, expected = 0;
	size_t i, n = 0;

	if (!parts)
		return uns_oom(err);
	for (i = 0; i < d->list.n && n < MAX_RANK_METADATA; i++) {
		if (!rank_metadata(d->list.v[i].name, &rank))
			continue;
		if (rank != expected)
			UNS_TRY(report_rank(d, expected, err));
		expected = rank + 1;
		UNS_TRY(parse_one(d, d->list.v[i].name, &parts[n++], err));
	}
	if (!n)
		return fail_no_metadata(d, err);
	UNS_TRY(report_silent_ranks(d, expected, err));
	if (uns_dcp_metadata_merge(parts, n, &d->scratch, &d->meta, err) < 0)
		return uns_fail_in_file(err, d->path);
	return 0;
}

static int read_metadata(struct dir *d, struct uns_err *err)
{
	if (uns_listing_find(&d->list, ".metadata"))
		return parse_one(d, ".metadata", &d->meta, err);
	return parse_ranks(d, err);
}

static bool is_part(const char *name)
{
	unsigned long long rank;

	return strcmp(name, ".metadata") == 0 || uns_str_ends(name, ".distcp") ||
	       rank_metadata(name, &rank);
}

static int add_companions(struct dir *d, struct uns_err *err)
{
	const struct uns_entry *e = d->list.v, *end = e + d->list.n;
	char *path, *name;
	uint32_t file;

	for (; e < end; e++) {
		if (!is_part(e->name) || e->kind == UNS_KIND_DIR)
			continue;
		path = uns_path_join(&d->scratch, d->path, e->name);
		name = uns_path_join(&d->scratch, d->prefix, e->name);
		if (!path || !name)
			return uns_oom(err);
		UNS_TRY(uns_catalog_add_file(d->cat, d->root, path, &file, err));
		UNS_TRY(uns_catalog_add_companion(d->cat, name, file, true, err));
	}
	return 0;
}

/* -- locations in files -- */

static int file_of(struct dir *d, const char *name, uint32_t *out, struct uns_err *err)
{
	char *path;

	*out = uns_map_index(&d->file_of, name);
	if (*out != UNS_MAP_NO_INDEX)
		return 0;
	path = uns_path_join(&d->scratch, d->path, name);
	if (!path)
		return uns_oom(err);
	UNS_TRY(uns_catalog_add_file(d->cat, d->root, path, out, err));
	return uns_map_put_index(&d->file_of, name, *out) ? 0 : uns_oom(err);
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

static int report(struct dir *d, enum uns_finding_id id, enum uns_scope scope, const char *key,
		  struct uns_err *err)
{
	return uns_catalog_add_finding(
		d->cat, UNS_FINDING(.id = id, .scope = scope, .file = d->path, .tensor = key), err);
}

/* Adds the finding unless there is one about this subject: one for a file, not one for each of its
 * tensors. */
static int report_once(struct dir *d, const char *subject, const struct uns_finding *f,
		       struct uns_err *err)
{
	if (uns_map_get(&d->reported, subject))
		return 0;
	subject = uns_arena_str(&d->scratch, subject);
	if (!subject || !uns_map_put(&d->reported, subject, d, NULL))
		return uns_oom(err);
	return uns_catalog_add_finding(d->cat, f, err);
}

/* Returns 1 if the item's transforms are known. Otherwise reports them and returns 0. */
static int codec_of(struct dir *d, const struct uns_dcp_storage *s, enum uns_scope scope,
		    enum uns_codec *out, struct uns_err *err)
{
	static const char known[] = "stream.zstd/1";

	*out = UNS_CODEC_NONE;
	if (!s->n_transforms)
		return 1;
	*out = UNS_CODEC_ZSTD;
	if (s->n_transforms == 1 && strcmp(s->transform[0], known) == 0)
		return 1;
	UNS_TRY(report_once(d, s->transform[0],
			    UNS_FINDING(.id = UNS_FOUND_TRANSFORM_UNKNOWN, .scope = scope,
					.file = d->path, .found = uns_str(s->transform[0]),
					.expected = uns_str(known),
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
		.shape = { .n = (uint32_t)e->n_dims }, UNS_TENSOR_ALONE,
		.inferred = meaning->inferred,
	};
	struct uns_err why = { 0 };
	size_t i;

	if (meaning->what == UNS_DCP_IS_STATE)
		t.state = meaning->state;
	memcpy(t.shape.dim, e->dims, e->n_dims * sizeof(*e->dims));
	if (uns_shape_check(&t.shape, t.dtype, &why) < 0)
		return uns_catalog_add_finding(
			d->cat,
			UNS_FINDING(.id = UNS_FOUND_TENSOR_UNREADABLE, .scope = scope_of(meaning),
				    .code = why.code, .file = d->path, .tensor = key,
				    .arg = { { "cause", uns_str(why.text) } }),
			err);
	UNS_TRY(uns_catalog_add_tensor(d->cat, &t, NULL, err));
	for (i = 0; i < e->n_chunks; i++)
		UNS_TRY(add_chunk(d, &e->chunk[i], scope_of(meaning), err));
	d->any_weight |= t.role == UNS_ROLE_WEIGHT;
	return uns_dcp_plain_judge(&d->plain, scope_of(meaning), err);
}

/* -- objects -- */

static bool is_decoded(const struct uns_dcp_meaning *meaning)
{
	return meaning->what != UNS_DCP_IS_WEIGHT && meaning->what != UNS_DCP_IS_OTHER;
}

/* Reports an object that cannot be read, as damage of what it belongs to. A missing file is reported once. */
static int report_item(struct dir *d, const char *key, uint32_t file, const struct uns_err *why,
		       struct uns_err *err)
{
	struct uns_finding f = uns_finding_of_err(why, UNS_SCOPE_OPTIMIZER);

	if (!uns_code_is_finding(why->code))
		return uns_fail_copy(err, why);
	if (!why->finding)
		f.id = UNS_FOUND_ITEM_UNREADABLE;
	f.file = d->cat->files[file].path;
	f.rank = uns_rank(rank_of(f.file));
	f.tensor = key;
	return report_once(d, f.code == -ENODATA ? f.file : key, &f, err);
}

/* Decodes an item's object, unless the item before it of the same hyper-parameter has the same bytes: one
 * may be stored with each parameter. */
static int value_of(struct dir *d, const char *kind, struct uns_span bytes,
		    const struct uns_value **out, struct uns_err *err)
{
	struct decoded *last = uns_map_get(&d->last_decoded, kind);

	if (last && uns_span_left(&last->bytes) == uns_span_left(&bytes) &&
	    memcmp(last->bytes.p, bytes.p, uns_span_left(&bytes)) == 0) {
		*out = last->value;
		return 0;
	}
	UNS_TRY(uns_dcp_item_value(bytes, &d->cat->arena, out, err));
	last = UNS_NEW(&d->scratch, struct decoded);
	if (!last || !uns_map_put(&d->last_decoded, kind, last, NULL))
		return uns_oom(err);
	*last = (struct decoded){ bytes, *out };
	return 0;
}

static int decode(struct dir *d, const char *key, const char *kind,
		  const struct uns_dcp_item_location *at, const struct uns_value **out,
		  struct uns_err *err)
{
	struct uns_err why = { .keep = &d->scratch };
	struct uns_span bytes;

	*out = NULL;
	if (uns_dcp_item_bytes(&d->reader, at, &d->scratch, &bytes, &why) < 0 ||
	    value_of(d, kind, bytes, out, &why) < 0)
		return report_item(d, key, at->file, &why, err);
	return 0;
}

static int add_hyper(struct dir *d, const char *key, const struct uns_dcp_meaning *meaning,
		     const struct uns_value *value, struct uns_err *err)
{
	if (meaning->deep)
		return report(d, UNS_FOUND_HYPER_IN_PARTS, UNS_SCOPE_OPTIMIZER, key, err);
	if (meaning->what == UNS_DCP_IS_GROUPS)
		return uns_dcp_groups_add_list(&d->groups, meaning->root, value, err);
	if (meaning->what == UNS_DCP_IS_HYPER)
		return uns_dcp_groups_add_key(&d->groups, meaning->root, meaning->group, meaning->state,
					      value, err);
	return uns_dcp_groups_add_param_key(&d->groups, meaning->root, meaning->name, meaning->state,
					    value, err);
}

static int add_value(struct dir *d, const struct uns_dcp_meaning *meaning,
		     const struct uns_dcp_item_location *at, const struct uns_value *value,
		     struct uns_err *err)
{
	struct uns_named_value named = { .name = meaning->name,
					 .root = meaning->root,
					 .value = value,
					 .file = at->file,
					 .offset_bytes = at->offset_bytes,
					 .length_bytes = at->length_bytes,
					 .codec = at->codec };

	if (meaning->what == UNS_DCP_IS_STATE)
		named.name = uns_arena_printf(&d->cat->arena, "state.%s.%s", meaning->name,
					      meaning->state);
	return named.name ? uns_catalog_add_value(d->cat, &named, err) : uns_oom(err);
}

static int add_object(struct dir *d, const char *key, const struct uns_dcp_meaning *meaning,
		      const struct uns_dcp_storage *s, struct uns_err *err)
{
	struct uns_dcp_item_location at = { 0 };
	const struct uns_value *value = NULL;
	int code;

	if (!s)
		return report(d, UNS_FOUND_ITEM_NOT_SAVED, scope_of(meaning), key, err);
	code = codec_of(d, s, scope_of(meaning), &at.codec, err);
	if (code <= 0)
		return code;
	at.offset_bytes = s->offset_bytes;
	at.length_bytes = s->length_bytes;
	UNS_TRY(file_of(d, s->path, &at.file, err));
	if (is_decoded(meaning)) {
		UNS_TRY(decode(d, key, meaning->state ? meaning->state : "", &at, &value, err));
		if (!value)
			return 0; /* it was reported above */
	}
	if (is_decoded(meaning) && meaning->what != UNS_DCP_IS_STATE)
		return add_hyper(d, key, meaning, value, err);
	return add_value(d, meaning, &at, value, err);
}

/* The hyper-parameter is a tensor: capturable optimizers keep lr on the device. The catalog lists the
 * tensor, and its number becomes the group's. */
static int add_hyper_tensor(struct dir *d, const struct uns_dcp_entry *e, const char *key,
			    const struct uns_dcp_meaning *meaning, struct uns_err *err)
{
	UNS_TRY(add_tensor(d, e, key, meaning, err));
	if (e->n_chunks != 1)
		return report(d, UNS_FOUND_HYPER_NOT_ONE_NUMBER, UNS_SCOPE_OPTIMIZER, key, err);
	return add_object(d, key, meaning, e->chunk[0].storage, err);
}

/* -- entries -- */

/* The entry contradicts itself, so it may be anything: report it as a weight. */
static int report_unknown(struct dir *d, const struct uns_dcp_entry *e,
			  const struct uns_dcp_meaning *meaning, struct uns_err *err)
{
	enum uns_scope scope = scope_of(meaning);

	if (meaning->what == UNS_DCP_IS_OTHER && e->code == -EBADMSG)
		scope = UNS_SCOPE_ALL;
	return uns_catalog_add_finding(d->cat,
				       UNS_FINDING(.id = UNS_FOUND_FILE_UNREADABLE, .scope = scope,
						   .code = e->code, .file = d->path, .tensor = e->key,
						   .arg = { { "cause", uns_str(e->why) } }),
				       err);
}

static int add_entry(struct dir *d, const struct uns_dcp_entry *e, struct uns_err *err)
{
	char *key = uns_arena_str(&d->cat->arena, e->key);
	struct uns_dcp_meaning meaning;

	if (!key)
		return uns_oom(err);
	UNS_TRY(uns_dcp_meaning_of(&d->naming, e, key, &meaning, err));
	if (meaning.stray)
		UNS_TRY(report(d, UNS_FOUND_WEIGHT_NOT_PLANNED, UNS_SCOPE_WEIGHTS, key, err));
	switch (e->kind) {
	case UNS_DCP_TENSOR:
		if (meaning.what == UNS_DCP_IS_HYPER || meaning.what == UNS_DCP_IS_PARAM_HYPER)
			return add_hyper_tensor(d, e, key, &meaning, err);
		return add_tensor(d, e, key, &meaning, err);
	case UNS_DCP_BYTES:
		return add_object(d, key, &meaning, e->bytes, err);
	default:
		return report_unknown(d, e, &meaning, err);
	}
}

static int report_no_weights(struct dir *d, struct uns_err *err)
{
	const char *first = d->meta.n_entries ? d->meta.entry[0].key : "nothing";

	if (d->any_weight || !d->roots->weights || !d->roots->n_weights)
		return 0;
	return uns_catalog_add_finding(d->cat,
				       UNS_FINDING(.id = UNS_FOUND_NO_TENSOR_BELOW_KEY,
						   .scope = UNS_SCOPE_WEIGHTS, .file = d->path,
						   .expected = uns_str(d->roots->weights[0]),
						   .found = uns_str(first)),
				       err);
}

static int report_two_roots(struct dir *d, struct uns_err *err)
{
	const char *const *roots = d->naming.two_roots;

	if (!roots[0])
		return 0;
	return uns_catalog_add_finding(d->cat,
				       UNS_FINDING(.id = UNS_FOUND_WEIGHTS_BELOW_KEYS, .file = d->path,
						   .arg = { { "what", uns_str(roots[0]) },
							    { "other", uns_str(roots[1]) } }),
				       err);
}

static int add_entries(struct dir *d, struct uns_err *err)
{
	size_t i;

	UNS_TRY(uns_dcp_naming_init(&d->naming, &d->meta, d->roots, &d->cat->arena, err));
	for (i = 0; i < d->meta.n_entries; i++)
		UNS_TRY(add_entry(d, &d->meta.entry[i], err));
	UNS_TRY(uns_dcp_plain_finish(&d->plain, err));
	UNS_TRY(uns_dcp_groups_finish(&d->groups, err));
	UNS_TRY(uns_dcp_numbered_judge(d->cat, d->path, err));
	UNS_TRY(report_no_weights(d, err));
	UNS_TRY(report_two_roots(d, err));
	return uns_catalog_assign_groups(d->cat, err);
}

/* Finds the metadata, and of its files the oldest (the end of the save, model/save_times.h). If each rank
 * wrote its own, no rank waited for another: a rank that began a second save has shards that are newer
 * than the other ranks' metadata. */
static int find_metadata(struct dir *d, struct uns_save_end *end, struct uns_err *err)
{
	const char **all = UNS_NEW_N(&d->cat->arena, const char *, d->list.n + 1);
	const struct uns_entry *whole = uns_listing_find(&d->list, ".metadata");
	int64_t oldest = INT64_MAX;
	unsigned long long rank;
	struct uns_stat st;
	const char *path;
	size_t i, n = 0;

	if (!all)
		return uns_oom(err);
	end->all = all;
	for (i = 0; i < d->list.n; i++) {
		if (whole ? &d->list.v[i] != whole : !rank_metadata(d->list.v[i].name, &rank))
			continue;
		path = uns_path_join(&d->cat->arena, d->path, d->list.v[i].name);
		if (!path)
			return uns_oom(err);
		UNS_TRY(uns_stat_seen(d->root, d->cat->capture, path, &st, err));
		if (st.id.mtime_ns < oldest)
			end->path = path;
		all[n++] = path;
		oldest = st.id.mtime_ns < oldest ? st.id.mtime_ns : oldest;
	}
	return 0;
}

static int check_times(struct dir *d, struct uns_err *err)
{
	struct uns_save_end end = { .root = d->root, .below = d->path };

	UNS_TRY(find_metadata(d, &end, err));
	return uns_save_times_check(d->cat, &end, err);
}

int uns_dcp_dir_add(struct uns_catalog *cat, const struct uns_root *root, const char *path,
		    const char *prefix, const struct uns_dcp_roots *roots, struct uns_err *err)
{
	static const struct uns_dcp_roots find_out = { 0 };
	UNS_CLEANUP(dir_fini) struct dir d = { .cat = cat, .root = root };

	d.roots = roots ? roots : &find_out;
	d.path = uns_arena_str(&cat->arena, path);
	d.prefix = uns_arena_str(&cat->arena, prefix);
	uns_dcp_reader_init(&d.reader, cat);
	uns_dcp_groups_init(&d.groups, cat, d.path);
	uns_dcp_plain_init(&d.plain, cat, &d.reader, d.path);
	if (!d.path || !d.prefix)
		return uns_oom(err);
	UNS_TRY(uns_list_seen(root, cat->capture, path, &d.scratch, &d.list, err));
	/* First, because the catalog needs its files even if the metadata is missing. */
	UNS_TRY(add_companions(&d, err));
	UNS_TRY(read_metadata(&d, err));
	if (uns_listing_find(&d.list, UNS_MEGATRON_COMMON))
		UNS_TRY(uns_megatron_space_restore(&d.meta, &d.scratch, &cat->arena, err));
	UNS_TRY(add_entries(&d, err));
	return check_times(&d, err);
}
