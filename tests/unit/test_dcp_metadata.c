/* dcp/metadata.c: files of real writers (golden/dcp_metadata), and what contradicts itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "dcp/metadata.h"

/* -- real files -- */

static const struct uns_dcp_entry *entry_of(const struct uns_dcp_metadata *meta, const char *key)
{
	size_t i;

	for (i = 0; i < meta->n_entries; i++)
		if (strcmp(meta->entry[i].key, key) == 0)
			return &meta->entry[i];
	return NULL;
}

static void parse_golden(const char *name, struct uns_arena *arena, struct uns_dcp_metadata *out)
{
	struct uns_err err = { 0 };
	uint8_t bytes[1 << 14];
	char path[512];
	size_t len;
	FILE *f;

	snprintf(path, sizeof(path), "%s/dcp_metadata/%s.metadata", UNSHARD_GOLDEN, name);
	f = fopen(path, "rb");
	assert_non_null(f);
	len = fread(bytes, 1, sizeof(bytes), f);
	fclose(f);
	if (uns_dcp_metadata_parse(uns_span_of(bytes, len), NULL, arena, out, &err) < 0)
		fail_msg("%s: %s", name, err.text);
}

static void add_storage(struct uns_text *t, const struct uns_dcp_storage *s)
{
	size_t i;

	if (!s) {
		uns_text_str(t, "nowhere");
		return;
	}
	uns_text_printf(t, "%s@%llu+%llu", s->path, (unsigned long long)s->offset_bytes,
			(unsigned long long)s->length_bytes);
	for (i = 0; i < s->n_transforms; i++)
		uns_text_printf(t, "|%s", s->transform[i]);
}

static void add_chunk(struct uns_text *t, const struct uns_dcp_chunk *c)
{
	size_t d;

	uns_text_str(t, " (");
	for (d = 0; d < c->box->n; d++)
		uns_text_printf(t, "%s%llu+%llu", d ? ", " : "", (unsigned long long)c->box->lo[d],
				(unsigned long long)c->box->len[d]);
	uns_text_str(t, ")");
	add_storage(t, c->storage);
}

static void add_path(struct uns_text *t, const struct uns_dcp_entry *e)
{
	size_t i;

	for (i = 0; i < e->n_path; i++)
		if (e->path[i].key)
			uns_text_printf(t, "/%s", e->path[i].key);
		else
			uns_text_printf(t, "/#%lld", (long long)e->path[i].index);
}

/* "key /path/elements dtype [shape] (chunk)where ..." */
static char *entry_text(const struct uns_dcp_entry *e)
{
	struct uns_text t = UNS_TEXT_INIT;
	size_t i;

	uns_text_printf(&t, "%s ", e->key);
	add_path(&t, e);
	uns_text_str(&t, " ");
	if (e->kind == UNS_DCP_UNKNOWN) {
		uns_text_printf(&t, "unknown %s: %s", e->code == -ENOTSUP ? "ENOTSUP" : "EBADMSG", e->why);
	} else if (e->kind == UNS_DCP_BYTES) {
		uns_text_str(&t, "bytes ");
		add_storage(&t, e->bytes);
	} else {
		uns_text_printf(&t, "%s [", uns_dtype_info(e->dtype)->torch);
		for (i = 0; i < e->n_dims; i++)
			uns_text_printf(&t, "%s%llu", i ? ", " : "", (unsigned long long)e->dims[i]);
		uns_text_str(&t, "]");
		for (i = 0; i < e->n_chunks; i++)
			add_chunk(&t, &e->chunk[i]);
	}
	return uns_text_take(&t, NULL);
}

static void check_entries(const struct uns_dcp_metadata *m, const char *const *lines, size_t n)
{
	size_t i;

	for (i = 0; i < n && i < m->n_entries; i++) {
		UNS_CLEANUP(uns_free_p) char *text = entry_text(&m->entry[i]);

		assert_string_equal(text, lines[i]);
	}
	assert_int_equal(m->n_entries, n);
}

#define CHECK(meta, lines) check_entries(meta, lines, sizeof(lines) / sizeof((lines)[0]))

static void test_whole(void **state)
{
	static const char *const lines[] = {
		"model.z.weight /model/z.weight float32 [5, 3] (0+3, 0+3)__0_0.distcp@0+1577"
		" (3+2, 0+3)__1_0.distcp@2522+1577",
		"model.a.weight /model/a.weight float32 [1, 4] (0+1, 0+4)__0_0.distcp@1577+1577"
		" (1+0, 0+4)__1_0.distcp@4099+1513",
		"model.steps /model/steps int64 [] ()__1_0.distcp@5612+1577",
		"optimizer.param_groups.0.lr /optimizer/param_groups/#0/lr bytes __1_0.distcp@0+1261",
		"optimizer.param_groups.0.betas /optimizer/param_groups/#0/betas bytes "
		"__1_0.distcp@1261+1261",
		"optimizer.param_groups.0.t /optimizer/param_groups/#0/t float32 [2] "
		"(0+2)__1_0.distcp@7189+1577",
	};
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_dcp_metadata m;

	(void)state;
	parse_golden("whole", &arena, &m);
	CHECK(&m, lines);
	assert_true(m.has_paths);
	assert_string_equal(m.version, "1.0.0");
	assert_non_null(strstr(m.checkpoint_id, "/ckpt"));
	assert_int_equal(m.checkpoint_id[0], '/');
	assert_ptr_equal(entry_of(&m, "model.steps"), &m.entry[2]);
	assert_null(entry_of(&m, "model"));
}

/* torch 2.2: other class names, no storage_meta, no version. */
static void test_old(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_free_p) char *text = NULL;
	struct uns_dcp_metadata m;

	(void)state;
	parse_golden("torch2.2", &arena, &m);
	assert_int_equal(m.n_entries, 20);
	assert_null(m.version);
	assert_null(m.checkpoint_id);
	text = entry_text(&m.entry[11]);
	assert_string_equal(text, "model.conv.weight /model/conv.weight bfloat16 [7, 10, 3]"
				  " (0+4, 0+10, 0+3)__0_0.distcp@13236+1372"
				  " (4+3, 0+10, 0+3)__1_0.distcp@8452+1308");
}

/* Megatron-Core: without paths, with its plans; 0.15 has a class of its own. */
static void test_no_paths(void **state)
{
	static const char *const names[] = { "megatron", "megatron0.15" };
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_dcp_metadata m;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(names) / sizeof(*names); i++) {
		parse_golden(names[i], &arena, &m);
		assert_false(m.has_paths);
		assert_int_equal(m.n_entries, 6);
		assert_int_equal(m.entry[0].n_path, 1);
		assert_string_equal(m.entry[0].path[0].key, "model.z.weight");
	}
}

static void test_merge(void **state)
{
	static const char *const lines[] = {
		"model.z.weight /model/z.weight float32 [5, 3] (0+3, 0+3)__0_0.distcp@2522+1577"
		" (3+2, 0+3)__1_0.distcp@2522+1577",
		"model.a.weight /model/a.weight float32 [1, 4] (0+1, 0+4)__0_0.distcp@4099+1577"
		" (1+0, 0+4)__1_0.distcp@4099+1513",
		"model.steps /model/steps int64 [] ()__0_0.distcp@5676+1577",
		"optimizer.param_groups.0.lr /optimizer/param_groups/#0/lr bytes __0_0.distcp@0+1261",
		"optimizer.param_groups.0.betas /optimizer/param_groups/#0/betas bytes "
		"__0_0.distcp@1261+1261",
		"optimizer.param_groups.0.t /optimizer/param_groups/#0/t float32 [2] "
		"(0+2)__0_0.distcp@7253+1577",
	};
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_dcp_metadata parts[2], m;
	struct uns_err err = { 0 };

	(void)state;
	parse_golden("rank0", &arena, &parts[0]);
	parse_golden("rank1", &arena, &parts[1]);
	assert_int_equal(parts[0].entry[0].n_chunks, 1);
	assert_int_equal(uns_dcp_metadata_merge(parts, 2, &arena, &m, &err), 0);
	CHECK(&m, lines);
	assert_true(m.has_paths);
	assert_string_equal(m.version, "1.0.0");
	assert_int_equal(parts[0].entry[0].n_chunks, 1); /* parts are left alone */
	assert_int_equal(uns_dcp_metadata_merge(parts, 0, &arena, &m, &err), 0);
	assert_int_equal(m.n_entries, 0);
}

/* -- made ones: one tensor 'w' [4, 2] of two chunks, one value 'v', with something changed -- */

struct spec {
	const char *root, *tensor, *bytes, *dtype;    /* class names */
	const char *path, *key, *stored_key, *planned_key; /* strings */
	int64_t dims[2], lo[2][2], len[2][2], offset, length;
	const char *transform; /* NULL = None */
	bool no_paths, no_storage, one_item, twice;
	char state_kind; /* of state_dict_metadata: '}' a dict, ']' a list */
};

static const struct spec sound = {
	.root = "torch.distributed.checkpoint.metadata\nMetadata",
	.tensor = "torch.distributed.checkpoint.metadata\nTensorStorageMetadata",
	.bytes = "torch.distributed.checkpoint.metadata\nBytesStorageMetadata",
	.dtype = "torch\nfloat32",
	.path = "__0_0.distcp",
	.key = "w",
	.stored_key = "w",
	.planned_key = "w",
	.dims = { 4, 2 },
	.lo = { { 0, 0 }, { 3, 0 } },
	.len = { { 3, 2 }, { 1, 2 } },
	.offset = 100,
	.length = 50,
	.state_kind = '}',
};

static void put_str(struct uns_text *t, const char *s)
{
	uint32_t len = (uint32_t)strlen(s);

	uns_text_add(t, "X", 1);
	uns_text_add(t, &len, 4);
	uns_text_str(t, s);
}

static void put_int(struct uns_text *t, int64_t i)
{
	uns_text_add(t, "\x8a\x8", 2);
	uns_text_add(t, &i, 8);
}

static void put_size(struct uns_text *t, const int64_t v[2])
{
	uns_text_str(t, "ctorch\nSize\n");
	put_int(t, v[0]);
	put_int(t, v[1]);
	uns_text_str(t, "\x86\x85R");
}

/* An object whose fields follow, up to put_done. */
static void put_object(struct uns_text *t, const char *cls)
{
	uns_text_printf(t, "c%s\n)\x81}(", cls);
}

static void put_done(struct uns_text *t)
{
	uns_text_str(t, "ub");
}

static void put_tensor(struct uns_text *t, const struct spec *s)
{
	size_t i;

	put_object(t, s->tensor);
	put_str(t, "properties");
	uns_text_printf(t, "cm\nTensorProperties\n)\x81(c%s\nNtb", s->dtype);
	put_str(t, "size");
	put_size(t, s->dims);
	put_str(t, "chunks");
	uns_text_str(t, "](");
	for (i = 0; i < 2; i++) {
		put_object(t, "m\nChunkStorageMetadata");
		put_str(t, "offsets");
		put_size(t, s->lo[i]);
		put_str(t, "sizes");
		put_size(t, s->len[i]);
		put_done(t);
	}
	uns_text_str(t, "e");
	put_done(t);
}

static void put_item(struct uns_text *t, const struct spec *s, const char *key, const int64_t *lo)
{
	put_object(t, "m\nMetadataIndex");
	put_str(t, "fqn");
	put_str(t, key);
	if (lo) {
		put_str(t, "offset");
		put_size(t, lo);
	}
	put_done(t);
	put_object(t, "m\n_StorageInfo");
	put_str(t, "relative_path");
	put_str(t, s->path);
	put_str(t, "offset");
	put_int(t, s->offset);
	put_str(t, "length");
	put_int(t, s->length);
	put_str(t, "transform_descriptors");
	if (s->transform) {
		uns_text_str(t, "](");
		put_str(t, s->transform);
		uns_text_str(t, "e");
	} else {
		uns_text_str(t, "N");
	}
	put_done(t);
}

static void put_described(struct uns_text *t, const struct spec *s)
{
	put_str(t, "state_dict_metadata");
	uns_text_printf(t, "%c(", s->state_kind);
	put_str(t, s->key);
	put_tensor(t, s);
	if (s->twice) {
		put_str(t, s->key);
		put_tensor(t, s);
	}
	put_str(t, "v");
	uns_text_printf(t, "c%s\n)\x81", s->bytes);
	uns_text_str(t, s->state_kind == '}' ? "u" : "e");
}

static void put_stored(struct uns_text *t, const struct spec *s)
{
	put_str(t, "storage_data");
	if (s->no_storage) {
		uns_text_str(t, "N");
		return;
	}
	uns_text_str(t, "}(");
	put_item(t, s, s->stored_key, s->lo[0]);
	if (!s->one_item)
		put_item(t, s, s->stored_key, s->lo[1]);
	put_item(t, s, "v", NULL);
	uns_text_str(t, "u");
}

static void put_planned(struct uns_text *t, const struct spec *s)
{
	put_str(t, "planner_data");
	if (s->no_paths) {
		uns_text_str(t, "N");
		return;
	}
	uns_text_str(t, "}(");
	put_str(t, "v");
	put_str(t, "top");
	put_int(t, 3);
	uns_text_str(t, "\x86");
	put_str(t, s->planned_key);
	put_str(t, "top");
	put_str(t, s->planned_key);
	uns_text_str(t, "\x86u");
}

static int parse_spec(const struct spec *s, struct uns_arena *arena, struct uns_dcp_metadata *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text t = UNS_TEXT_INIT;

	uns_text_add(&t, "\x80\x02", 2);
	put_object(&t, s->root);
	put_described(&t, s);
	put_stored(&t, s);
	put_planned(&t, s);
	put_done(&t);
	uns_text_str(&t, ".");
	return uns_dcp_metadata_parse(uns_span_of(t.p, t.len), NULL, arena, out, err);
}

#define W "(0+3, 0+2)__0_0.distcp@100+50 (3+1, 0+2)__0_0.distcp@100+50"

static void test_sound(void **state)
{
	static const char *const lines[] = { "v /top/#3 bytes __0_0.distcp@100+50", "w /top/w float32 [4, 2] " W };
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_dcp_metadata m;
	struct uns_err err = { 0 };

	(void)state;
	assert_int_equal(parse_spec(&sound, &arena, &m, &err), 0);
	CHECK(&m, lines);
}

/* What is odd about one entry stays with it: 'v' is always served. */
static void check_w(const struct spec *s, const char *line)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_free_p) char *text = NULL;
	struct uns_dcp_metadata m;
	struct uns_err err = { 0 };

	if (parse_spec(s, &arena, &m, &err) < 0)
		fail_msg("%s: %s", line, err.text);
	text = entry_text(entry_of(&m, "w"));
	assert_string_equal(text, line);
	assert_int_equal(entry_of(&m, "v")->kind, UNS_DCP_BYTES);
}

static void test_odd_entries(void **state)
{
	struct spec s;

	(void)state;
	s = sound;
	s.no_paths = true;
	check_w(&s, "w /w float32 [4, 2] " W);
	s = sound;
	s.no_storage = true;
	check_w(&s, "w /top/w float32 [4, 2] (0+3, 0+2)nowhere (3+1, 0+2)nowhere");
	s = sound;
	s.stored_key = "other";
	check_w(&s, "w /top/w float32 [4, 2] (0+3, 0+2)nowhere (3+1, 0+2)nowhere");
	s = sound;
	s.transform = "stream.zstd/1";
	check_w(&s, "w /top/w float32 [4, 2] (0+3, 0+2)__0_0.distcp@100+50|stream.zstd/1"
		    " (3+1, 0+2)__0_0.distcp@100+50|stream.zstd/1");
	s = sound;
	s.tensor = "mystery\nSparseStorageMetadata";
	check_w(&s, "w /top/w unknown ENOTSUP: 'w' is described by an object of class "
		    "mystery.SparseStorageMetadata, which unshard does not know");
	s = sound;
	s.dtype = "torch\nfloat4_e2m1fn_x2";
	check_w(&s, "w /top/w unknown ENOTSUP: 'w' has dtype torch.float4_e2m1fn_x2, which "
		    "unshard does not know");
	s = sound;
	s.dims[0] = -4;
	check_w(&s, "w /top/w unknown ENOTSUP: 'w' has a shape that is not a list of at most 8 sizes");
	s = sound;
	s.len[1][0] = 2;
	check_w(&s, "w /top/w unknown EBADMSG: 'w' has a chunk that ends behind the end of the tensor");
	s = sound;
	s.lo[1][0] = INT64_MAX;
	check_w(&s, "w /top/w unknown EBADMSG: 'w' has a chunk that ends behind the end of the tensor");
	s = sound; /* ranks with nothing name the same empty chunk: it is one */
	s.one_item = true;
	s.lo[0][0] = s.lo[1][0] = 4;
	s.len[0][0] = s.len[1][0] = 0;
	check_w(&s, "w /top/w float32 [4, 2] (4+0, 0+2)__0_0.distcp@100+50");
	s.lo[0][0] = s.lo[1][0] = 3;
	s.len[1][0] = 1;
	check_w(&s, "w /top/w unknown EBADMSG: 'w' has two chunks of different sizes at the same offset");
	s = sound;
	s.planned_key = "ghost";
	check_w(&s, "w /w float32 [4, 2] " W);
}

static void test_planned_ghost(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct spec s = sound;
	struct uns_dcp_metadata m;

	(void)state;
	s.planned_key = "ghost";
	assert_int_equal(parse_spec(&s, &arena, &m, NULL), 0);
	assert_int_equal(m.n_entries, 3);
	assert_int_equal(entry_of(&m, "ghost")->code, -EBADMSG);
}

/* A rank that holds nothing of a tensor plans it and does not describe it: the others' description counts, whichever
 * comes first. Nobody's is none. */
static void test_merge_of_what_one_rank_only_plans(void **state)
{
	static const char *const lines[] = { "v /top/#3 bytes __0_0.distcp@100+50", "w /top/w float32 [4, 2] " W,
					     "other /other float32 [4, 2] " W };
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_dcp_metadata parts[3], m;
	struct spec without = sound;
	struct uns_err err = { 0 };

	(void)state;
	without.key = without.stored_key = "other";
	assert_int_equal(parse_spec(&without, &arena, &parts[0], &err), 0);
	assert_int_equal(parse_spec(&sound, &arena, &parts[1], &err), 0);
	parts[2] = parts[0];
	assert_int_equal(uns_dcp_metadata_merge(parts, 2, &arena, &m, &err), 0);
	CHECK(&m, lines);
	assert_int_equal(uns_dcp_metadata_merge(parts + 1, 2, &arena, &m, &err), 0);
	CHECK(&m, lines);
	assert_int_equal(uns_dcp_metadata_merge(parts, 1, &arena, &m, &err), 0);
	assert_string_equal(entry_of(&m, "w")->why, "'w' is in planner_data, but not in state_dict_metadata");
}

static void check_fails(const struct spec *s, int code, const char *says)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_dcp_metadata m;
	struct uns_err err = { 0 };

	assert_int_equal(parse_spec(s, &arena, &m, &err), code);
	if (!strstr(err.text, says))
		fail_msg("says '%s', not '%s'", err.text, says);
}

static void test_paths_that_leave(void **state)
{
	static const char *const paths[] = { "/etc/passwd", "../x", "a/../../x", "..", "a/..", "a..b/.." };
	struct spec s = sound;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		s.path = paths[i];
		check_fails(&s, -EBADMSG, "leads out of the checkpoint");
	}
	s.path = "";
	check_fails(&s, -EBADMSG, "leads out of the checkpoint");
	s.path = "sub/..dir/__0_0.distcp";
	check_w(&s, "w /top/w float32 [4, 2] (0+3, 0+2)sub/..dir/__0_0.distcp@100+50"
		    " (3+1, 0+2)sub/..dir/__0_0.distcp@100+50");
}

static void test_fails(void **state)
{
	struct spec s = sound;

	(void)state;
	s.root = "torch.nn\nModule";
	check_fails(&s, -EBADMSG, "holds torch.nn.Module");
	s = sound;
	s.state_kind = ']';
	check_fails(&s, -EBADMSG, "is not the metadata of a distributed checkpoint");
	s = sound;
	s.twice = true;
	check_fails(&s, -EBADMSG, "'w' is described twice");
	s = sound;
	s.offset = -1;
	check_fails(&s, -EBADMSG, "no valid relative_path, offset and length");
	s = sound;
	s.offset = INT64_MAX;
	check_fails(&s, -EBADMSG, "overflows");
	s = sound;
	s.lo[1][0] = 0; /* both chunks at the same place, and so both items */
	check_fails(&s, -EBADMSG, "'w' twice at the same offset");
}

/* -- ranks that disagree -- */

static void check_merge(const struct spec *first, const struct spec *second, const char *line)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_free_p) char *text = NULL;
	struct uns_dcp_metadata parts[2], m;
	struct uns_err err = { 0 };

	assert_int_equal(parse_spec(first, &arena, &parts[0], &err), 0);
	assert_int_equal(parse_spec(second, &arena, &parts[1], &err), 0);
	assert_int_equal(uns_dcp_metadata_merge(parts, 2, &arena, &m, &err), 0);
	assert_int_equal(m.n_entries, 2);
	text = entry_text(entry_of(&m, "w"));
	assert_string_equal(text, line);
}

static void test_merge_disagree(void **state)
{
	struct spec s = sound;

	(void)state;
	check_merge(&sound, &sound, "w /top/w float32 [4, 2] " W);
	s.no_storage = true; /* whoever has storage stays */
	check_merge(&s, &sound, "w /top/w float32 [4, 2] " W);
	check_merge(&sound, &s, "w /top/w float32 [4, 2] " W);
	s = sound;
	s.dtype = "torch\nbfloat16";
	check_merge(&sound, &s, "w /top/w unknown EBADMSG: 'w': ranks disagree about its dtype");
	s = sound;
	s.dims[0] = 5;
	check_merge(&sound, &s, "w /top/w unknown EBADMSG: 'w': ranks disagree about its shape");
	s = sound;
	s.tensor = s.bytes;
	check_merge(&sound, &s, "w /top/w unknown EBADMSG: 'w': ranks disagree about its kind");
	s = sound;
	s.len[0][0] = 2;
	check_merge(&sound, &s,
		    "w /top/w unknown EBADMSG: 'w': ranks disagree about its chunks: two "
		    "sizes at the same offset");
	s = sound;
	s.dtype = "torch\nqint8";
	check_merge(&sound, &s, "w /top/w unknown ENOTSUP: 'w' has dtype torch.qint8, which unshard does not know");
}

/* A chunk list that many tensors share is not copied for each of them. */
static void test_shared_chunks(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text t = UNS_TEXT_INIT;
	struct uns_dcp_metadata m;
	struct uns_err err = { 0 };
	char key[16];
	int i;

	(void)state;
	uns_text_add(&t, "\x80\x02", 2);
	put_tensor(&t, &sound);
	uns_text_str(&t, "q\1"
			 "0](");
	for (i = 0; i < 1000; i++)
		uns_text_str(&t, "cm\nChunkStorageMetadata\n)\x81");
	uns_text_str(&t, "eq\3"
			 "0");
	put_object(&t, sound.root);
	put_str(&t, "state_dict_metadata");
	uns_text_str(&t, "}(");
	for (i = 0; i < 1000; i++) {
		snprintf(key, sizeof(key), "w%d", i);
		put_str(&t, key);
		put_object(&t, sound.tensor);
		put_str(&t, "properties");
		uns_text_str(&t, "cm\nTensorProperties\n)\x81(ctorch\nfloat32\nNtb");
		put_str(&t, "size");
		put_size(&t, sound.dims);
		put_str(&t, "chunks");
		uns_text_str(&t, "h\3");
		put_done(&t);
	}
	uns_text_str(&t, "u");
	put_done(&t);
	uns_text_str(&t, ".");
	assert_int_equal(uns_dcp_metadata_parse(uns_span_of(t.p, t.len), NULL, &arena, &m, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "than fit into the file"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_old),
		cmocka_unit_test(test_no_paths),
		cmocka_unit_test(test_merge),
		cmocka_unit_test(test_sound),
		cmocka_unit_test(test_odd_entries),
		cmocka_unit_test(test_planned_ghost),
		cmocka_unit_test(test_merge_of_what_one_rank_only_plans),
		cmocka_unit_test(test_paths_that_leave),
		cmocka_unit_test(test_fails),
		cmocka_unit_test(test_merge_disagree),
		cmocka_unit_test(test_shared_chunks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
