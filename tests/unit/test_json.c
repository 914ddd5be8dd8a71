/* wire/json.c: what Python writes is read, what could mislead is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "wire/json.h"

static int parse(const char *text, cJSON **out, struct uns_err *err)
{
	return uns_json_parse(uns_span_of(text, strlen(text)), out, err);
}

static const struct {
	const char *text, *same_as;
} good[] = {
	{ "{}", "{}" },
	{ " [1, 2 ]\n", "[1,2]" },
	{ "{\"loss\": NaN, \"x\": [Infinity, -Infinity, -1]}", "{\"loss\":null,\"x\":[null,null,-1]}" },
	{ "[\"NaN\", \"-Infinity\", \"a\\\"NaN\", NaN]", "[\"NaN\",\"-Infinity\",\"a\\\"NaN\",null]" },
	{ "[\"\\\\u0000\"]", "[\"\\\\u0000\"]" }, /* a backslash, then text */
	{ "[\"\\u00e4\\ud83d\\ude00\"]", "[\"\xc3\xa4\xf0\x9f\x98\x80\"]" },
	{ "NaN", "null" },
	{ "[0,-0.5,10,1e3,1.25E-2,-7]", "[0,-0.5,10,1000,0.0125,-7]" },
};

static void test_good(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
		UNS_CLEANUP(uns_free_p) char *text = NULL;
		struct uns_err err = { 0 };

		assert_int_equal(parse(good[i].text, &json, &err), 0);
		text = cJSON_PrintUnformatted(json);
		assert_string_equal(text, good[i].same_as);
	}
}

static const struct {
	const char *text;
	int code;
	const char *says;
} bad[] = {
	{ "", -EBADMSG, "damaged" },
	{ "{\"a\":1", -EBADMSG, "damaged at byte" },
	{ "{} x", -EBADMSG, "continues after its end, at byte 3" },
	{ "[1,]", -EBADMSG, "damaged" },
	{ "[nan]", -EBADMSG, "damaged" },
	{ "[01]", -EBADMSG, "at byte 1: that is no number" }, /* cJSON reads it, and the next ones */
	{ "[-01]", -EBADMSG, "no number" },
	{ "[1. ]", -EBADMSG, "no number" },
	{ "{\"a\": 1.}", -EBADMSG, "at byte 6: that is no number" },
	{ "[1e+]", -EBADMSG, "no number" },
	{ "[-]", -EBADMSG, "no number" },
	{ "[NaNx]", -EBADMSG, "damaged" },
	{ "{\"a\\u0000b\":1}", -ENOTSUP, "NUL" },
	{ "[\"\xff\"]", -EBADMSG, "not UTF-8" },
	{ "[\"open", -EBADMSG, "damaged" },
	{ "[\"open\\", -EBADMSG, "damaged" },
};

static void test_bad(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct uns_err err = { 0 };
		cJSON *json = NULL;

		assert_int_equal(parse(bad[i].text, &json, &err), bad[i].code);
		assert_non_null(strstr(err.text, bad[i].says));
		assert_null(json);
	}
}

static void test_hostile(void **state)
{
	enum { DEEP = 100000 };
	UNS_CLEANUP(uns_free_p) char *deep = malloc(DEEP);
	struct uns_err err = { 0 };
	cJSON *json = NULL;

	(void)state;
	assert_non_null(deep);
	memset(deep, '[', DEEP);
	assert_int_equal(uns_json_parse(uns_span_of(deep, DEEP), &json, &err), -EBADMSG);
	err.code = 0;
	assert_int_equal(uns_json_parse(uns_span_of("[1]\0", 4), &json, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "NUL at byte 3"));
}

static void test_getters(void **state)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	int64_t i = 7;
	bool b = false;

	(void)state;
	assert_int_equal(parse("{\"i\":-3,\"f\":1.5,\"t\":true,\"s\":\"x\",\"n\":null,\"big\":1e300,"
			       "\"exact\":9007199254740991,\"over\":9007199254740993,\"twice\":1,"
			       "\"twice\":2,\"I\":4}",
			       &json, NULL),
			 0);
	assert_true(uns_json_int(json, "i", &i) && i == -3);
	assert_true(uns_json_int(json, "exact", &i) && i == INT64_C(9007199254740991));
	assert_false(uns_json_int(json, "over", &i));
	assert_false(uns_json_int(json, "f", &i));
	assert_false(uns_json_int(json, "big", &i));
	assert_false(uns_json_int(json, "t", &i));
	assert_false(uns_json_int(json, "absent", &i));
	assert_true(uns_json_int(json, "twice", &i) && i == 2); /* as Python reads it */
	assert_true(uns_json_bool(json, "t", &b) && b);
	assert_false(uns_json_bool(json, "i", &b));
	assert_string_equal(uns_json_str(json, "s"), "x");
	assert_null(uns_json_str(json, "n"));
	assert_null(uns_json_str(json, "i"));
	assert_null(uns_json_str(NULL, "i"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_getters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
