/* Plain Hugging Face directories: which files are the weights, what is missing, and shards of
 * torch's HuggingFaceStorageWriter. Every case is a small directory made for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "formats/format.h"
#include "model/cover.h"
#include "said.h"

extern const struct uns_format uns_format_hf;

/* -- making a directory -- */

struct fixture {
	char run[64];  /* removed at the end */
	char path[96]; /* run/checkpoint-7 */
	struct uns_root *root;
	struct uns_arena arena;
	struct uns_listing list;
	struct uns_catalog *cat;
};

static void fixture_init(struct fixture *p, const char *name)
{
	memset(p, 0, sizeof(*p));
	strcpy(p->run, "/tmp/unshard-hf-XXXXXX");
	assert_non_null(mkdtemp(p->run));
	snprintf(p->path, sizeof(p->path), "%s/%s", p->run, name);
	assert_int_equal(mkdir(p->path, 0700), 0);
}

static void fixture_fini(struct fixture *p)
{
	char command[128];

	uns_catalog_free(p->cat);
	uns_root_close(p->root);
	uns_arena_fini(&p->arena);
	snprintf(command, sizeof(command), "rm -rf '%s'", p->run);
	assert_int_equal(system(command), 0);
}

static void put(const struct fixture *p, const char *name, const void *bytes, size_t len)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", p->path, name);
	f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

static void put_text(const struct fixture *p, const char *name, const char *text)
{
	put(p, name, text, strlen(text));
}

/* A safetensors file of this JSON and n_data zero bytes behind it. */
static void put_safetensors(const struct fixture *p, const char *name, const char *json, size_t n_data)
{
	unsigned char file[1024] = { 0 };
	size_t n = strlen(json);

	assert_true(8 + n + n_data <= sizeof(file));
	file[0] = (unsigned char)n;
	file[1] = (unsigned char)(n >> 8);
	memcpy(file + 8, json, n);
	put(p, name, file, 8 + n + n_data);
}

#define ONE(name) "{\"" name "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"

static int open_fixture(struct fixture *p, int *probe, struct uns_err *err)
{
	static const struct uns_format_options options;
	const char *name = uns_path_name(p->path);
	struct uns_directory dir;

	assert_int_equal(uns_root_open(p->run, &(struct uns_root_options){ 0 }, &p->root, err), 0);
	assert_int_equal(uns_root_list(p->root, name, &p->arena, &p->list, err), 0);
	dir = (struct uns_directory){ .root = p->root, .path = name, .list = &p->list };
	*probe = uns_format_hf.probe(&dir);
	assert_int_equal(uns_catalog_new(name, &p->cat, err), 0);
	return *probe ? uns_format_hf.open(&dir, &options, p->cat, err) : 0;
}

static void must_open(struct fixture *p)
{
	struct uns_err err = { 0 };
	int probe;

	if (open_fixture(p, &probe, &err) < 0)
		fail_msg("%s", err.text);
	assert_true(probe > 0);
}

static const char *weights_problem(const struct fixture *p)
{
	size_t i;

	for (i = 0; i < p->cat->n_findings; i++)
		if (p->cat->findings[i].scope == UNS_SCOPE_WEIGHTS)
			return said(&p->cat->findings[i]);
	return NULL;
}

static void must_cover(const struct fixture *p, const char *name)
{
	const struct uns_tensor *t = uns_catalog_find(p->cat, UNS_ROLE_WEIGHT, name);
	struct uns_err err = { 0 };

	assert_non_null(t);
	if (uns_cover_check(p->cat, t, &err) < 0)
		fail_msg("%s", err.text);
}

/* -- plain files -- */

static void reads_one_file(void **state)
{
	struct fixture p;

	(void)state;
	fixture_init(&p, "model");
	put_safetensors(&p, "model.safetensors", ONE("w"), 8);
	put_text(&p, "config.json", "{}");
	/* from_pretrained takes the first, so does this */
	put_text(&p, "model.safetensors.index.json", "not even JSON");
	must_open(&p);
	assert_null(weights_problem(&p));
	assert_int_equal(p.cat->n_tensors, 1);
	must_cover(&p, "w");
	assert_string_equal(p.cat->summary.format, "hf");
	assert_int_equal(p.cat->summary.step, UNS_UNKNOWN);
	assert_true(p.cat->summary.finished);
	assert_non_null(uns_catalog_companion(p.cat, "config.json"));
	assert_false(uns_catalog_companion(p.cat, "model.safetensors")->shard);
	fixture_fini(&p);
}

static void knows_trainer_files(void **state)
{
	static const struct {
		const char *last;
		bool finished;
	} cases[] = { { "optimizer.pt", false }, { "trainer_state.json", true } };
	size_t i;

	(void)state;
	for (i = 0; i < 2; i++) {
		struct fixture p;

		fixture_init(&p, "checkpoint-7");
		put_safetensors(&p, "model.safetensors", ONE("w"), 8);
		put_text(&p, "rng_state_0.pth", "");
		put_text(&p, "rng_state_3.pth", "");
		put_text(&p, cases[i].last, "");
		must_open(&p);
		assert_int_equal(p.cat->summary.step, 7);
		assert_int_equal(p.cat->summary.world_size, 4);
		assert_int_equal(p.cat->summary.finished, cases[i].finished);
		fixture_fini(&p);
	}
}

#define INDEX(a, b) "{\"metadata\":{},\"weight_map\":{\"x\":\"" a "\",\"w\":\"" b "\"}}"
#define PART(i)     "model-0000" i "-of-00002.safetensors"

static void reads_an_index(void **state)
{
	struct fixture p;

	(void)state;
	fixture_init(&p, "model");
	put_text(&p, "model.safetensors.index.json", INDEX(PART("2"), PART("1")));
	put_safetensors(&p, PART("1"), ONE("w"), 8);
	put_safetensors(&p, PART("2"), ONE("x"), 8);
	must_open(&p);
	assert_null(weights_problem(&p));
	assert_int_equal(p.cat->n_tensors, 2);
	assert_string_equal(p.cat->tensors[0].name, "w"); /* files in natural order */
	must_cover(&p, "w");
	must_cover(&p, "x");
	fixture_fini(&p);
}

/* Everything that keeps weights from being served is one sentence with the file in it. */
static void reports_damage(void **state)
{
	static const struct {
		const char *index;          /* NULL = none is written */
		const char *first, *second; /* JSON of the two files; NULL = absent */
		const char *why[2];
	} cases[] = {
		{ INDEX(PART("1"), PART("2")), ONE("x"), NULL, { PART("2") " is missing", "" } },
		{ INDEX(PART("1"), PART("2")),
		  ONE("x"),
		  ONE("y"),
		  { "model.safetensors.index.json names " PART("2") " as the file of tensor w",
		    "that file does not hold it" } },
		{ INDEX(PART("1"), PART("2")), ONE("w"), ONE("w"), { "tensor w is whole in both", PART("1") } },
		{ INDEX(PART("1"), PART("2")), ONE("x"), "{", { PART("2"), "" } },
		{ INDEX(PART("1"), "../out.safetensors"),
		  ONE("x"),
		  NULL,
		  { "tensor w", "the index names a file outside the checkpoint's directory" } },
		{ INDEX(PART("1"), "/etc/passwd"),
		  ONE("x"),
		  NULL,
		  { "tensor w", "the index names a file outside the checkpoint's directory" } },
		{ "{\"weight_map\":{\"x\":1}}", ONE("x"), NULL, { "tensor x", "outside" } },
		{ "{\"weight_map\":[]}", ONE("x"), NULL, { "has no weight_map", "index.json" } },
		{ "{", ONE("x"), NULL, { "model.safetensors.index.json", "" } },
		{ NULL, ONE("x"), NULL, { "model.safetensors.index.json is missing", "save" } },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *problem;
		struct fixture p;

		fixture_init(&p, "model");
		put_text(&p, "config.json", "{}");
		if (cases[i].index)
			put_text(&p, "model.safetensors.index.json", cases[i].index);
		if (cases[i].first)
			put_safetensors(&p, PART("1"), cases[i].first, 8);
		if (cases[i].second)
			put_safetensors(&p, PART("2"), cases[i].second, 8);
		must_open(&p);
		problem = weights_problem(&p);
		assert_non_null(problem);
		if (!strstr(problem, cases[i].why[0]) || !strstr(problem, cases[i].why[1]))
			fail_msg("case %zu: %s", i, problem);
		assert_false(p.cat->summary.finished);
		assert_non_null(uns_catalog_companion(p.cat, "config.json"));
		fixture_fini(&p);
	}
}

static void reports_missing_torch_file(void **state)
{
	struct fixture p;

	(void)state;
	fixture_init(&p, "model");
	put_text(&p, "pytorch_model.bin.index.json", "{\"weight_map\":{\"w\":\"pytorch_model-00001-of-00001.bin\"}}");
	must_open(&p);
	assert_non_null(weights_problem(&p));
	assert_non_null(strstr(weights_problem(&p), "pytorch_model-00001-of-00001.bin is missing"));
	fixture_fini(&p);
}

static void a_cut_file_is_not_finished(void **state)
{
	struct fixture p;

	(void)state;
	fixture_init(&p, "model");
	put_safetensors(&p, "model.safetensors", ONE("w"), 4);
	must_open(&p);
	assert_false(p.cat->summary.finished);
	if (!weights_problem(&p)) {
		struct uns_err err = { 0 };

		assert_int_equal(uns_cover_check(p.cat, &p.cat->tensors[0], &err), -EBADMSG);
		assert_non_null(strstr(err.text, "model.safetensors"));
	}
	fixture_fini(&p);
}

static void leaves_others_alone(void **state)
{
	static const char *const names[] = { "config.json", "optimizer.pt", "tokenizer.json", "model.txt" };
	struct uns_err err = { 0 };
	struct fixture p;
	size_t i;
	int probe;

	(void)state;
	fixture_init(&p, "run");
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		put_text(&p, names[i], "{}");
	assert_int_equal(open_fixture(&p, &probe, &err), 0);
	assert_int_equal(probe, 0);
	fixture_fini(&p);
}

/* -- HuggingFaceStorageWriter -- */

#define SHARD_JSON(offset, rows, end)                                                           \
	"{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"w\\\":{\\\"saved_offsets\\\":[" offset \
	",0]}}\",\"format\":\"pt\"},\"w\":{\"dtype\":\"F32\",\"shape\":[" rows ",2],\"data_offsets\":[0," end "]}}"
#define SHARD(i) "shard-0000" i "-model-00001-of-00001.safetensors"

static void reads_shards(void **state)
{
	static const char *const dirs[] = { "", "sharded/" };
	const struct uns_tensor *t;
	size_t i;

	(void)state;
	for (i = 0; i < 2; i++) {
		char path[128], name[64];
		struct fixture p;

		fixture_init(&p, "model");
		snprintf(path, sizeof(path), "%s/sharded", p.path);
		assert_int_equal(mkdir(path, 0700), 0);
		snprintf(name, sizeof(name), "%s" SHARD("1"), dirs[i]);
		put_safetensors(&p, name, SHARD_JSON("0", "2", "16"), 16);
		snprintf(name, sizeof(name), "%s" SHARD("2"), dirs[i]);
		put_safetensors(&p, name, SHARD_JSON("2", "1", "8"), 8);
		must_open(&p);
		assert_null(weights_problem(&p));
		assert_int_equal(p.cat->n_findings, 1);
		assert_non_null(strstr(said(&p.cat->findings[0]), "2 were found"));
		assert_int_equal(p.cat->n_tensors, 1);
		t = &p.cat->tensors[0];
		assert_int_equal(t->n_pieces, 2);
		assert_int_equal(t->shape.dim[0], 3);
		assert_int_equal(t->shape.dim[1], 2);
		must_cover(&p, "w");
		assert_true(uns_catalog_companion(p.cat, name)->shard);
		fixture_fini(&p);
	}
}

static void prefers_consolidated(void **state)
{
	struct fixture p;
	char path[128];

	(void)state;
	fixture_init(&p, "model");
	snprintf(path, sizeof(path), "%s/sharded", p.path);
	assert_int_equal(mkdir(path, 0700), 0);
	put_safetensors(&p, "sharded/" SHARD("1"), SHARD_JSON("0", "2", "16"), 16);
	put_safetensors(&p, "model.safetensors", ONE("whole"), 8);
	must_open(&p);
	assert_int_equal(p.cat->n_tensors, 1);
	assert_string_equal(p.cat->tensors[0].name, "whole");
	fixture_fini(&p);
}

static void reports_wrong_shards(void **state)
{
	static const struct {
		const char *second;
		const char *why;
	} cases[] = {
		{ SHARD_JSON("-1", "1", "8"), "wrong offset for w" },
		{ SHARD_JSON("1e300", "1", "8"), "wrong offset for w" },
		{ SHARD_JSON("9007199254740992,0", "1", "8"), "saved_offsets with 2 numbers for w" },
		{ "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"[]\"},\"w\":{\"dtype\":\"F32\","
		  "\"shape\":[1,2],\"data_offsets\":[0,8]}}",
		  "DCP_SHARDING_INFO is not an object" },
		{ "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"w\\\":{\\\"saved_offsets\\\":[2,"
		  "0]"
		  "}}\"},\"w\":{\"dtype\":\"I32\",\"shape\":[1,2],\"data_offsets\":[0,8]}}",
		  "tensor w has another dtype" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fixture p;

		fixture_init(&p, "model");
		put_safetensors(&p, SHARD("1"), SHARD_JSON("0", "2", "16"), 16);
		put_safetensors(&p, SHARD("2"), cases[i].second, 8);
		must_open(&p);
		assert_non_null(weights_problem(&p));
		if (!strstr(weights_problem(&p), cases[i].why))
			fail_msg("case %zu: %s", i, weights_problem(&p));
		assert_non_null(strstr(weights_problem(&p), SHARD("2")));
		fixture_fini(&p);
	}
}

/* A shard that is gone leaves a hole that only the proof can see: the shape is nowhere recorded. */
static void a_missing_shard_is_a_hole(void **state)
{
	struct uns_err err = { 0 };
	struct fixture p;

	(void)state;
	fixture_init(&p, "model");
	put_safetensors(&p, SHARD("1"), SHARD_JSON("0", "1", "8"), 8);
	put_safetensors(&p, SHARD("3"), SHARD_JSON("2", "1", "8"), 8);
	must_open(&p);
	assert_true(uns_cover_check(p.cat, &p.cat->tensors[0], &err) < 0);
	assert_non_null(strstr(err.text, "w"));
	fixture_fini(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_one_file),
		cmocka_unit_test(knows_trainer_files),
		cmocka_unit_test(reads_an_index),
		cmocka_unit_test(reports_damage),
		cmocka_unit_test(reports_missing_torch_file),
		cmocka_unit_test(a_cut_file_is_not_finished),
		cmocka_unit_test(leaves_others_alone),
		cmocka_unit_test(reads_shards),
		cmocka_unit_test(prefers_consolidated),
		cmocka_unit_test(reports_wrong_shards),
		cmocka_unit_test(a_missing_shard_is_a_hole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
