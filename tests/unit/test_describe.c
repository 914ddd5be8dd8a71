/* The JSON texts about a checkpoint: valid whatever the names hold, and with the keys promised. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "files/describe.h"
#include "wire/json.h"

static struct uns_file files[] = { { .path = "a/\"x\"\n.distcp", .stat.id.size = 1000 },
				   { .path = "gone", .missing = true } };
static struct uns_piece pieces[] = {
	{ .kind = UNS_PIECE_BOX,
	  .box = &(struct uns_box){ .n = 2, .lo = { 0, 3 }, .len = { 2, 4 } },
	  .file = 0,
	  .rank = 1,
	  .codec = UNS_CODEC_ZSTD,
	  .offset_bytes = 5000000000,
	  .length_bytes = 64 },
	{ .kind = UNS_PIECE_RANGE, .range = { 7, 9 }, .file = 1, .rank = -1 },
};
static struct uns_tensor tensors[] = {
	{ .name = "w\\\"",
	  .key = "model.w",
	  .root = "model",
	  .role = UNS_ROLE_WEIGHT,
	  .dtype = UNS_BF16,
	  .shape = { .n = 2, .dim = { 2, 7 } },
	  .n_pieces = 1,
	  .alias_of = UNS_NONE },
	{ .name = "w\\\"",
	  .key = "optimizer.w",
	  .root = "optimizer",
	  .state = "exp_avg",
	  .role = UNS_ROLE_EXP_AVG,
	  .dtype = UNS_F32,
	  .shape = { .n = 0 },
	  .first_piece = 1,
	  .n_pieces = 1,
	  .alias_of = UNS_NONE,
	  .inferred = true },
};
static struct uns_finding findings[] = { { .id = UNS_FOUND_RANK_FILE_MISSING,
					   .scope = UNS_SCOPE_OPTIMIZER,
					   .code = -ENODATA,
					   .file = "a \"b\"",
					   .rank = { UNS_DATUM_NUMBER, { .number = 3 } } } };

static const struct uns_catalog catalog = {
	.path = "run/checkpoint-2",
	.summary = { .format = "dcp", .framework = "torch", .step = 2, .world_size = UNS_UNKNOWN },
	.files = files,
	.n_files = 2,
	.tensors = tensors,
	.n_tensors = 2,
	.pieces = pieces,
	.n_pieces = 2,
	.findings = findings,
	.n_findings = 1,
};

static cJSON *parsed(struct uns_text *text)
{
	struct uns_err err = { 0 };
	cJSON *json = NULL;

	assert_false(text->failed);
	if (uns_json_parse(uns_span_of(text->p, text->len), &json, &err) < 0)
		fail_msg("%s in %s", err.text, text->p);
	uns_text_fini(text);
	return json;
}

static int64_t number(const cJSON *object, const char *key)
{
	int64_t v;

	assert_true(uns_json_int(object, key, &v));
	return v;
}

static void describes_info(void **state)
{
	static const char *const notes[] = { "one", "a \"second\"" };
	const struct uns_view_verdict views[] = {
		{ "weights", "ok", NULL, NULL, "from_pretrained(\"x\")", notes, 2, NULL, 0 },
		{ "dcp", "damaged", "gone is missing", "file_missing", NULL, NULL, 0, NULL, 0 },
	};
	struct uns_text text = UNS_TEXT_INIT;
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	const cJSON *v;

	(void)state;
	uns_describe_info(&text, &catalog, views, 2, &(struct uns_findings){ catalog.findings, catalog.n_findings, 0 });
	json = parsed(&text);
	assert_string_equal(uns_json_str(json, "path"), "run/checkpoint-2");
	assert_int_equal(number(json, "step"), 2);
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(json, "world_size")));
	assert_int_equal(number(json, "weights_bytes"), 28);
	assert_int_equal(number(json, "optimizer_bytes"), 4);
	assert_int_equal(number(json, "source_bytes"), 1000);
	assert_int_equal(number(json, "files_missing"), 1);
	assert_int_equal(number(json, "files_borrowed"), 2); /* neither is in run/checkpoint-2 */
	assert_int_equal(number(json, "borrowed_bytes"), 1000);
	v = cJSON_GetObjectItem(json, "views");
	assert_string_equal(uns_json_str(cJSON_GetObjectItem(v, "weights"), "usage"), "from_pretrained(\"x\")");
	assert_string_equal(uns_json_str(cJSON_GetObjectItem(v, "dcp"), "why"), "gone is missing");
	assert_null(cJSON_GetObjectItem(cJSON_GetObjectItem(v, "dcp"), "notes"));
	v = cJSON_GetObjectItem(cJSON_GetObjectItem(v, "weights"), "notes");
	assert_int_equal(cJSON_GetArraySize(v), 2);
	assert_string_equal(cJSON_GetArrayItem(v, 1)->valuestring, "a \"second\"");
	v = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "problems"), 0);
	assert_string_equal(uns_json_str(v, "scope"), "optimizer");
	assert_string_equal(uns_json_str(v, "text"),
			    "a \"b\" is missing: it holds rank 3's pieces; copy it back from the training machine");
	assert_string_equal(uns_json_str(v, "id"), "rank_file_missing");
	assert_string_equal(uns_json_str(v, "severity"), "problem");
	assert_string_equal(uns_json_str(v, "file"), "a \"b\"");
	assert_string_equal(uns_json_str(v, "advice"), "copy it back from the training machine");
	assert_int_equal(number(v, "rank"), 3);
	assert_int_equal(number(v, "code"), -ENODATA);
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(v, "tensor")));
}

static void describes_tensors(void **state)
{
	struct uns_text text = UNS_TEXT_INIT;
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	const cJSON *t, *p;

	(void)state;
	uns_describe_tensors(&text, &catalog);
	assert_non_null(strstr(text.p, "\"offset\":5000000000,"));
	json = parsed(&text);
	assert_int_equal(cJSON_GetArraySize(json), 2);
	t = cJSON_GetArrayItem(json, 0);
	assert_string_equal(uns_json_str(t, "name"), "w\\\"");
	assert_string_equal(uns_json_str(t, "dtype"), "bfloat16");
	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(t, "shape")), 2);
	p = cJSON_GetArrayItem(cJSON_GetObjectItem(t, "pieces"), 0);
	assert_string_equal(uns_json_str(p, "file"), "a/\"x\"\n.distcp");
	assert_string_equal(uns_json_str(p, "codec"), "zstd");
	assert_int_equal(number(p, "rank"), 1);
	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(cJSON_GetObjectItem(p, "box"), "len")), 2);
	t = cJSON_GetArrayItem(json, 1);
	assert_string_equal(uns_json_str(t, "state"), "exp_avg");
	p = cJSON_GetArrayItem(cJSON_GetObjectItem(t, "pieces"), 0);
	assert_int_equal(number(cJSON_GetObjectItem(p, "range"), "first"), 7);
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(p, "rank")));
}

static void describes_provenance(void **state)
{
	struct uns_vfile v[] = { { .path = "config.json", .source = 0 },
				 { .path = "model.safetensors", .source = UNS_NONE, .origin = "assembled" } };
	const char *notes[] = { "a \"note\"" };
	const struct uns_vtree tree = { .v = v, .n = 2, .note = notes, .n_notes = 1 };
	struct uns_text text = UNS_TEXT_INIT;
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	const cJSON *f;

	(void)state;
	uns_describe_provenance(&text, &catalog, &tree);
	json = parsed(&text);
	assert_non_null(uns_json_str(json, "version"));
	f = cJSON_GetObjectItem(json, "files");
	assert_string_equal(uns_json_str(cJSON_GetObjectItemCaseSensitive(f, "config.json"), "from"), files[0].path);
	assert_string_equal(uns_json_str(cJSON_GetObjectItemCaseSensitive(f, "model.safetensors"), "origin"),
			    "assembled");
	assert_string_equal(cJSON_GetArrayItem(cJSON_GetObjectItem(json, "notes"), 0)->valuestring, "a \"note\"");
	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(json, "inferred")), 1);
}

static void describes_nothing(void **state)
{
	static const struct uns_catalog empty = { .path = "", .summary.step = UNS_UNKNOWN };
	const struct uns_vtree tree = { 0 };
	struct uns_text text[3] = { UNS_TEXT_INIT, UNS_TEXT_INIT, UNS_TEXT_INIT };
	size_t i;

	(void)state;
	uns_describe_info(&text[0], &empty, NULL, 0, &(struct uns_findings){ NULL, 0, 0 });
	uns_describe_tensors(&text[1], &empty);
	uns_describe_provenance(&text[2], &empty, &tree);
	for (i = 0; i < 3; i++)
		cJSON_Delete(parsed(&text[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(describes_info),
		cmocka_unit_test(describes_tensors),
		cmocka_unit_test(describes_provenance),
		cmocka_unit_test(describes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
