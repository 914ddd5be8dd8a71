/* Safetensors layouts: the header's bytes, the order of the data, and the split into files. What is
 * expected was written by safetensors 0.8 (save_file) and huggingface_hub 2.4 (split, index). */
#include <setjmp.h>
#include <stdarg.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "files/safetensors_file.h"

static const struct uns_catalog catalog = { .path = "checkpoint-1" };

static void matches_save_file(void **state)
{
	/* save_file({"b": zeros(2, 3), "a": zeros(4, bf16), "n": zeros((), int64)}) */
	static const char header[] = "\xc8\0\0\0\0\0\0\0"
				     "{\"__metadata__\":{\"format\":\"pt\"},"
				     "\"n\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
				     "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},"
				     "\"a\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[32,40]}}    ";
	const struct uns_tensor b = { .dtype = UNS_F32, .alias_of = UNS_NONE, .shape = { .n = 2, .dim = { 2, 3 } } };
	const struct uns_tensor a = { .dtype = UNS_F32, .alias_of = UNS_NONE, .shape = { .n = 1, .dim = { 4 } } };
	const struct uns_tensor n = { .dtype = UNS_I64, .alias_of = UNS_NONE, .shape = { .n = 0 } };
	const struct uns_named_tensor v[] = { { "b", &b, UNS_F32, NULL },
					      { "a", &a, UNS_BF16, NULL }, /* cast */
					      { "n", &n, UNS_I64, NULL } };
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_layout l;
	struct uns_err err = { 0 };

	(void)state;
	assert_int_equal(uns_part_safetensors(&catalog, v, 3, &arena, &l, &err), 0);
	assert_int_equal(l.size_bytes, 248);
	assert_int_equal(l.n, 4);
	assert_int_equal(l.segment[0].len_bytes, sizeof(header) - 1);
	assert_memory_equal(l.segment[0].literal, header, sizeof(header) - 1);
	assert_ptr_equal(l.segment[1].tensor, &n);
	assert_ptr_equal(l.segment[2].tensor, &b);
	assert_ptr_equal(l.segment[3].tensor, &a);
	assert_int_equal(l.segment[3].len_bytes, 8);
	assert_int_equal(l.segment[3].out, UNS_BF16);
	uns_arena_fini(&arena);
}

/* Six F32 tensors of 60, 60, 20, 60, 200 and 20 bytes. */
static const struct uns_tensor sixty = { .dtype = UNS_F32, .alias_of = UNS_NONE, .shape = { .n = 1, .dim = { 15 } } };
static const struct uns_tensor twenty = { .dtype = UNS_F32, .alias_of = UNS_NONE, .shape = { .n = 1, .dim = { 5 } } };
static const struct uns_tensor big = { .dtype = UNS_F32, .alias_of = UNS_NONE, .shape = { .n = 1, .dim = { 50 } } };
static const struct uns_named_tensor six[] = {
	{ "a", &sixty, UNS_F32, NULL }, { "b", &sixty, UNS_F32, NULL }, { "c", &twenty, UNS_F32, NULL },
	{ "d", &sixty, UNS_F32, NULL }, { "e", &big, UNS_F32, NULL },   { "f", &twenty, UNS_F32, NULL },
};

/* The names in a file's header, in header order. */
static void names_in(const struct uns_vfile *file, char *out)
{
	const char *header = (const char *)file->layout.segment[0].literal + 8;
	size_t i;

	for (i = 0; i < 6; i++) {
		char key[] = { '"', six[i].name[0], '"', ':', '{', 0 };

		if (strstr(header, key))
			*out++ = six[i].name[0];
	}
	*out = '\0';
}

static void splits_as_the_hub(void **state)
{
	static const struct {
		uint64_t max;
		const char *files[6]; /* names in file 1, 2, .. */
	} cases[] = {
		{ 80, { "a", "bc", "e", "df" } },
		{ 100, { "a", "bc", "e", "df" } },
		{ 59, { "a", "b", "d", "e", "cf" } },
		{ 1000, { "abcdef" } },
		{ 420, { "abcdef" } },
	};
	size_t i, k, n;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct uns_vtree tree = { 0 };
		struct uns_err err = { 0 };
		char path[64], names[8];

		for (n = 0; n < 6 && cases[i].files[n]; n++)
			;
		assert_int_equal(uns_part_safetensors_set(&catalog, six, 6, "model", cases[i].max, "made", &tree, &err),
				 0);
		uns_vtree_seal(&tree);
		assert_int_equal(tree.n, n == 1 ? 1 : n + 1);
		for (k = 0; k < n; k++) {
			const struct uns_vfile *f;

			snprintf(path, sizeof(path), "model-%05zu-of-%05zu.safetensors", k + 1, n);
			f = uns_vtree_find(&tree, n == 1 ? "model.safetensors" : path);
			assert_non_null(f);
			assert_string_equal(f->origin, "made");
			names_in(f, names);
			assert_string_equal(names, cases[i].files[k]);
		}
		uns_vtree_fini(&tree);
	}
}

static void index_matches(void **state)
{
	static const char want[] = "{\n"
				   "  \"metadata\": {\n"
				   "    \"total_parameters\": 105,\n"
				   "    \"total_size\": 420\n"
				   "  },\n"
				   "  \"weight_map\": {\n"
				   "    \"a\": \"model-00001-of-00004.safetensors\",\n"
				   "    \"b\": \"model-00002-of-00004.safetensors\",\n"
				   "    \"c\": \"model-00002-of-00004.safetensors\",\n"
				   "    \"d\": \"model-00004-of-00004.safetensors\",\n"
				   "    \"e\": \"model-00003-of-00004.safetensors\",\n"
				   "    \"f\": \"model-00004-of-00004.safetensors\"\n"
				   "  }\n"
				   "}\n";
	struct uns_vtree tree = { 0 };
	struct uns_err err = { 0 };
	const struct uns_vfile *f;

	(void)state;
	assert_int_equal(uns_part_safetensors_set(&catalog, six, 6, "model", 80, "made", &tree, &err), 0);
	uns_vtree_seal(&tree);
	f = uns_vtree_find(&tree, "model.safetensors.index.json");
	assert_non_null(f);
	assert_int_equal(f->layout.size_bytes, sizeof(want) - 1);
	assert_memory_equal(f->layout.segment[0].literal, want, sizeof(want) - 1);
	uns_vtree_fini(&tree);
}

static void refuses(void **state)
{
	const struct uns_tensor huge = { .dtype = UNS_BF16, .shape = { .n = 1, .dim = { UINT64_C(1) << 62 } } };
	const struct uns_tensor c128 = { .dtype = UNS_C128, .alias_of = UNS_NONE, .shape = { .n = 1, .dim = { 1 } } };
	const struct uns_named_tensor twice[] = { { "w", &sixty, UNS_F32, NULL }, { "w", &twenty, UNS_F32, NULL } };
	const struct uns_named_tensor overflow[] = { { "w", &huge, UNS_F32, NULL } };
	const struct uns_named_tensor complex128[] = { { "w", &c128, UNS_C128, NULL } };
	const struct {
		const struct uns_named_tensor *v;
		size_t n;
		uint64_t max;
		const char *why;
	} cases[] = {
		{ twice, 2, 1000, "w" },
		{ twice, 2, 60, "two tensors would be named w" },
		{ overflow, 1, 1000, "tensor w: too large as torch.float32" },
		{ complex128, 1, 1000, "tensor w: safetensors has no dtype for torch.complex128" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct uns_vtree tree = { 0 };
		struct uns_err err = { 0 };

		assert_true(uns_part_safetensors_set(&catalog, cases[i].v, cases[i].n, "model", cases[i].max, "made",
						     &tree, &err) < 0);
		assert_non_null(strstr(err.text, cases[i].why));
		uns_vtree_fini(&tree);
	}
}

/* So many that a thread makes the index: it has the names in order, each with the file that has the tensor; a name that
 * two files have is refused. */
static void index_of_many(void **state)
{
	enum { N = UNS_INDEX_IN_A_THREAD, IN_A_FILE = N / 2, NAME = 8, LINE = 64 };
	static char name[N][NAME], file[LINE], line[LINE];
	static struct uns_named_tensor v[N];
	struct uns_vtree tree = { 0 };
	struct uns_err err = { 0 };
	const struct uns_vfile *f;
	const char *at;
	size_t i;

	(void)state;
	for (i = 0; i < N; i++) { /* the other way round */
		snprintf(name[i], NAME, "t%06zu", N - 1 - i);
		v[i] = (struct uns_named_tensor){ name[i], &twenty, UNS_F32, NULL };
	}
	assert_int_equal(uns_part_safetensors_set(&catalog, v, N, "model", 20 * IN_A_FILE, "made", &tree, &err), 0);
	uns_vtree_seal(&tree);
	assert_int_equal(tree.n, 3);
	f = uns_vtree_find(&tree, "model.safetensors.index.json");
	assert_non_null(f);
	at = strstr((const char *)f->layout.segment[0].literal, "    \"t0");
	for (i = 0; i < N; i++) {
		snprintf(file, sizeof(file), "model-0000%d-of-00002.safetensors", i < IN_A_FILE ? 2 : 1);
		snprintf(line, sizeof(line), "    \"t%06zu\": \"%s\"%s\n", i, file, i + 1 < N ? "," : "");
		assert_non_null(at);
		assert_memory_equal(at, line, strlen(line));
		at += strlen(line);
	}
	assert_string_equal(at, "  }\n}\n");
	uns_vtree_fini(&tree);

	tree = (struct uns_vtree){ 0 };
	v[N - 1].name = name[0];
	assert_int_equal(uns_part_safetensors_set(&catalog, v, N, "model", 20 * IN_A_FILE, "made", &tree, &err),
			 -EBADMSG);
	assert_string_equal(err.text, "two tensors would be named t032767");
	uns_vtree_fini(&tree);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(matches_save_file), cmocka_unit_test(splits_as_the_hub),
		cmocka_unit_test(index_matches),     cmocka_unit_test(index_of_many),
		cmocka_unit_test(refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
