/* YAML into JSON trees: what words mean, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "wire/json.h"
#include "wire/yaml.h"

static int parse(const char *text, cJSON **out, struct uns_err *err)
{
	*out = NULL;
	memset(err, 0, sizeof(*err));
	return uns_yaml_parse(uns_span_of(text, strlen(text)), out, err);
}

static void values(void **state)
{
	static const struct {
		const char *yaml, *json;
	} cases[] = {
		{ "a: 1", "{\"a\":1}" },
		{ "a: -2.5e3\nb: .5", "{\"a\":-2500,\"b\":0.5}" },
		{ "a: yes\nb: Off\nc: TRUE\nd: n", "{\"a\":true,\"b\":false,\"c\":true,\"d\":\"n\"}" },
		{ "a: ~\nb:\nc: null", "{\"a\":null,\"b\":null,\"c\":null}" },
		{ "a: 'no'\nb: \"1\"\nc: !!str 2", "{\"a\":\"no\",\"b\":\"1\",\"c\":\"2\"}" },
		{ "a: 1_000\nb: 0x10\nc: 12:30\nd: 1.2.3\ne: nan\nf: inf\ng: 1e999",
		  "{\"a\":\"1_000\",\"b\":\"0x10\",\"c\":\"12:30\",\"d\":\"1.2.3\",\"e\":\"nan\","
		  "\"f\":\"inf\",\"g\":\"1e999\"}" },
		{ "[1, [2, {x: 3}], []]", "[1,[2,{\"x\":3}],[]]" },
		{ "- a\n- b: c\n  d: [e]\n", "[\"a\",{\"b\":\"c\",\"d\":[\"e\"]}]" },
		{ "a: 1\nb: 2\na: 3", "{\"b\":2,\"a\":3}" },
		{ "a: |\n  two\n  lines\n", "{\"a\":\"two\\nlines\\n\"}" },
		{ "a: &named x", "{\"a\":\"x\"}" },
		{ "{\"a\": true, \"b\": [1, null]}", "{\"a\":true,\"b\":[1,null]}" },
		{ "# only a comment", "null" },
		{ "", "null" },
	};
	struct uns_err err;
	cJSON *json;
	char *text;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(parse(cases[i].yaml, &json, &err), 0);
		text = cJSON_PrintUnformatted(json);
		assert_string_equal(text, cases[i].json);
		cJSON_free(text);
		cJSON_Delete(json);
	}
}

static void refused(void **state)
{
	static const struct {
		const char *yaml;
		int code;
		const char *text;
	} cases[] = {
		{ "a: &x 1\nb: *x", -ENOTSUP, "line 2: YAML aliases (*name) are not read" },
		{ "a:\n  <<: {b: 1}", -ENOTSUP, "line 2: YAML merge keys (<<) are not read" },
		{ "a: !!python/object/apply:os.system [x]", -ENOTSUP,
		  "line 1: the YAML tag tag:yaml.org,2002:python/object/apply:os.system is not "
		  "read" },
		{ "a: !mine x", -ENOTSUP, "line 1: the YAML tag !mine is not read" },
		{ "? [a, b]\n: c", -ENOTSUP, "line 1: a YAML key is not a word" },
		{ "a: 1\n---\nb: 2", -ENOTSUP, "line 2: a second YAML document; expected one" },
		{ "a: \"x\\0y\"", -EBADMSG, "line 1: a value holds a NUL" },
		{ "a: [1", -EBADMSG, "line 2: YAML is damaged: did not find expected ',' or ']'" },
		{ "a: 1\n b: 2", -EBADMSG, "line 2: YAML is damaged: mapping values are not allowed in this context" },
		{ "a: \xff", -EBADMSG, "line 1: YAML is damaged: invalid leading UTF-8 octet" },
	};
	struct uns_err err;
	cJSON *json;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(parse(cases[i].yaml, &json, &err), cases[i].code);
		assert_string_equal(err.text, cases[i].text);
		assert_null(json);
	}
}

/* n times `unit`, parsed. */
static int repeated(const char *unit, size_t n, struct uns_err *err)
{
	struct uns_text t = UNS_TEXT_INIT;
	cJSON *json;
	int code;

	while (n--)
		uns_text_str(&t, unit);
	code = parse(t.p, &json, err);
	cJSON_Delete(json);
	uns_text_fini(&t);
	return code;
}

static void bounds(void **state)
{
	struct uns_err err;

	(void)state;
	assert_int_equal(repeated("[", 100000, &err), -ENOTSUP);
	assert_string_equal(err.text, "line 1: YAML is nested deeper than 64");
	assert_int_equal(repeated("- - ", 5000, &err), -ENOTSUP);
	assert_int_equal(repeated("- x\n", 100000, &err), -ENOTSUP);
	assert_string_equal(err.text, "line 9998: YAML has more than 10000 nodes");
	assert_int_equal(repeated("- x\n", 9000, &err), 0);
	assert_int_equal(repeated("a: 1\n", 4000, &err), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values),
		cmocka_unit_test(refused),
		cmocka_unit_test(bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
