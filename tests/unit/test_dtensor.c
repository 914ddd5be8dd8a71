/* ranks/dtensor.c: which boxes a rank holds, on files of torch 2.13 (golden/rank_files/make.py) and on
 * older ones. That the boxes' bytes are right is test_rank_files.c's matter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "ranks/dtensor.h"

struct file {
	uint8_t bytes[32 * 1024];
	struct uns_span span;
	struct uns_reader r;
	struct uns_arena arena;
	struct uns_torchfile torch;
};

static void fini(struct file *f)
{
	uns_arena_fini(&f->arena);
}

static void load(struct file *f, const char *name)
{
	char path[512];
	FILE *in;

	snprintf(path, sizeof(path), "%s/rank_files/%s", UNSHARD_GOLDEN, name);
	in = fopen(path, "rb");
	if (!in)
		fail_msg("%s is missing", path);
	f->span = uns_span_of(f->bytes, fread(f->bytes, 1, sizeof(f->bytes), in));
	fclose(in);
	f->r = uns_reader_of_span(&f->span);
	f->arena = UNS_ARENA_INIT;
}

static void parse_file(struct file *f)
{
	struct uns_err err = { 0 };

	if (uns_torchfile_open(&f->r, &f->arena, &f->torch, &err) < 0)
		fail_msg("%s", err.text);
}

static int parse(struct file *f, const char *name, int64_t rank, struct uns_sharded_tensor *out, struct uns_err *err)
{
	const struct uns_value *v = uns_value_get(f->torch.root, name);

	assert_true(uns_dtensor_is(v));
	return uns_dtensor_parse(&f->torch, v, rank, &f->arena, out, err);
}

static const struct {
	const char *file, *name;
	int64_t rank, mesh_size;
	bool replicated;
	size_t n_boxes;
	uint64_t lo[2][2], len[2][2];
} cases[] = {
	{ "model_rank_0.pt", "even", 0, 4, false, 1, { { 0, 0 } }, { { 2, 3 } } },
	{ "model_rank_3.pt", "even", 3, 4, false, 1, { { 6, 0 } }, { { 2, 3 } } },
	{ "model_rank_2.pt", "uneven", 2, 4, false, 1, { { 4, 0 } }, { { 1, 3 } } },
	{ "model_rank_3.pt", "uneven", 3, 4, false, 1, { { 5, 0 } }, { { 0, 3 } } },
	{ "model_rank_2.pt", "columns", 2, 4, false, 1, { { 0, 4 } }, { { 3, 1 } } },
	{ "model_rank_3.pt", "columns", 3, 4, false, 1, { { 0, 5 } }, { { 3, 0 } } },
	/* 7 rows: tensor parallelism cuts 4 + 3, then FSDP 2 + 2 and 2 + 1 */
	{ "model_rank_0.pt", "tp", 0, 4, false, 1, { { 0, 0 } }, { { 2, 3 } } },
	{ "model_rank_1.pt", "tp", 1, 4, false, 1, { { 4, 0 } }, { { 2, 3 } } },
	{ "model_rank_2.pt", "tp", 2, 4, false, 1, { { 2, 0 } }, { { 2, 3 } } },
	{ "model_rank_3.pt", "tp", 3, 4, false, 1, { { 6, 0 } }, { { 1, 3 } } },
	{ "model_rank_3.pt", "both", 3, 4, false, 1, { { 3, 3 } }, { { 2, 3 } } },
	{ "model_rank_1.pt", "hsdp", 1, 4, true, 1, { { 3, 0 } }, { { 3, 2 } } },
	/* 9 rows: 5 + 4, of each the second half */
	{ "model_rank_2.pt", "loose", 2, 4, true, 2, { { 3, 0 }, { 7, 0 } }, { { 2, 2 }, { 2, 2 } } },
	{ "model_rank_2.pt", "order", 2, 4, false, 1, { { 2 } }, { { 2 } } },
	{ "model_rank_1.pt", "replicated", 1, 4, true, 1, { { 0 } }, { { 3 } } },
};

static void test_boxes(void **state)
{
	size_t i, k, d;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		UNS_CLEANUP(fini) struct file f;
		struct uns_sharded_tensor t;
		struct uns_err err = { 0 };

		load(&f, cases[i].file);
		parse_file(&f);
		if (parse(&f, cases[i].name, cases[i].rank, &t, &err) < 0)
			fail_msg("%s: %s", cases[i].name, err.text);
		assert_int_equal(t.rank, cases[i].rank);
		assert_int_equal(t.mesh_size, cases[i].mesh_size);
		assert_int_equal(t.replicated, cases[i].replicated);
		assert_int_equal(t.n_shards, 1);
		assert_int_equal(t.shard->n_boxes, cases[i].n_boxes);
		for (k = 0; k < t.shard->n_boxes; k++)
			for (d = 0; d < t.n_dims; d++)
				if (t.shard->lo[k][d] != cases[i].lo[k][d] || t.shard->len[k][d] != cases[i].len[k][d])
					fail_msg("%s of %s: box %zu, dimension %zu: %d + %d", cases[i].name,
						 cases[i].file, k, d, (int)t.shard->lo[k][d], (int)t.shard->len[k][d]);
	}
}

static void test_sharded_tensor(void **state)
{
	UNS_CLEANUP(fini) struct file f;
	struct uns_sharded_tensor t;
	struct uns_err err = { 0 };
	size_t i;

	(void)state;
	load(&f, "torch2.0.1/model_world_size_2_rank_1.pt");
	parse_file(&f);
	for (i = 0; i < f.torch.root->n; i++) {
		const struct uns_value *v = f.torch.root->pair[i].value;

		if (!uns_dtensor_is(v))
			continue;
		assert_int_equal(uns_dtensor_parse(&f.torch, v, 1, &f.arena, &t, &err), 0);
		assert_int_equal(t.rank, 1);
		assert_int_equal(t.mesh_size, 2);
		assert_true(t.n_shards <= 1);
		if (t.n_shards)
			assert_true(t.shard->lo[0][0] + t.shard->len[0][0] == t.dims[0]);
	}
}

/* The first record's CRC is set to "not recorded", so that a change of the pickle is seen. */
static void change(struct file *f, const char *from, const char *to)
{
	size_t len = uns_span_left(&f->span);
	uint8_t *entry = memmem(f->bytes, len, "PK\1\2", 4);
	uint8_t *p = memmem(f->bytes, len, from, strlen(from));

	assert_non_null(entry);
	if (!p)
		fail_msg("%s is not in the file", from);
	memset(entry + 16, 0, 4);
	memcpy(p, to, strlen(to));
}

/* Without a coordinate the file's rank is looked up in the mesh. */
static void test_coordinate_from_the_file_name(void **state)
{
	static const char *const name = "_coordinate_on_dim";
	UNS_CLEANUP(fini) struct file f, g;
	struct uns_sharded_tensor said, found;
	struct uns_err err = { 0 };
	size_t i;

	(void)state;
	load(&f, "torch2.1.2/model_world_size_3_rank_1.pt");
	parse_file(&f);
	load(&g, "torch2.1.2/model_world_size_3_rank_1.pt");
	change(&g, name, "_coordinate_xx_dim");
	parse_file(&g);
	for (i = 0; i < f.torch.root->n; i++) {
		const struct uns_value *v = f.torch.root->pair[i].value;
		const struct uns_value *w = g.torch.root->pair[i].value;

		if (!uns_dtensor_is(v))
			continue;
		assert_int_equal(uns_dtensor_parse(&f.torch, v, 1, &f.arena, &said, &err), 0);
		assert_int_equal(uns_dtensor_parse(&g.torch, w, 1, &g.arena, &found, &err), 0);
		assert_int_equal(said.mesh_size, 3);
		assert_int_equal(found.n_shards, 1);
		assert_memory_equal(said.shard->lo[0], found.shard->lo[0], sizeof(said.shard->lo[0]));
		assert_memory_equal(said.shard->len[0], found.shard->len[0], sizeof(said.shard->len[0]));
		assert_int_equal(uns_dtensor_parse(&g.torch, w, 7, &g.arena, &found, &err), 0);
		assert_int_equal(found.n_shards, 0);
		assert_int_equal(uns_dtensor_parse(&g.torch, w, -1, &g.arena, &found, &err), -ENOTSUP);
		assert_non_null(strstr(err.text, "does not record its place"));
		err.code = 0;
	}
}

static const struct {
	const char *name, *from, *to, *words;
} changes[] = {
	{ "unknown placement", "Replicate", "Replicant", "placement_types.Replicant" },
	{ "no spec", "_spec", "_spoc", "without its local tensor" },
	{ "no local tensor", "_local_tensor", "_lokal_tensor", "without its local tensor" },
	{ "no mesh", "_layoutq", "_layautq", "device mesh has no known form" },
	{ "no placements", "placements", "placemints", "one placement per mesh dimension" },
	{ "another type", "torch\nfloat32", "torch\nfloat23", "unknown dtype torch.float23" },
};

static void test_changed(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		UNS_CLEANUP(fini) struct file f;
		struct uns_sharded_tensor t;
		struct uns_err err = { 0 };
		int rc;

		load(&f, "model_rank_1.pt");
		change(&f, changes[i].from, changes[i].to);
		parse_file(&f);
		rc = parse(&f, "replicated", 1, &t, &err);
		if (rc == 0 || !strstr(err.text, changes[i].words))
			fail_msg("%s: %d %s", changes[i].name, rc, err.text);
	}
}

static void test_is(void **state)
{
	UNS_CLEANUP(fini) struct file f;
	struct uns_sharded_tensor t;
	struct uns_err err = { 0 };

	(void)state;
	load(&f, "model_rank_1.pt");
	parse_file(&f);
	assert_false(uns_dtensor_is(uns_value_get(f.torch.root, "buffer")));
	assert_false(uns_dtensor_is(f.torch.root));
	assert_false(uns_dtensor_is(NULL));
	assert_int_equal(uns_dtensor_parse(&f.torch, f.torch.root, 0, &f.arena, &t, &err), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_boxes),
		cmocka_unit_test(test_sharded_tensor),
		cmocka_unit_test(test_coordinate_from_the_file_name),
		cmocka_unit_test(test_changed),
		cmocka_unit_test(test_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
