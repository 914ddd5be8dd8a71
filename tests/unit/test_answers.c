/* What object stores answer: pages of listings and errors, whole, cut and wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "object/answers.h"

/* As S3's reference has it. */
static const char page[] =
	"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
	"<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\n"
	"  <Name>bucket</Name><Prefix/><KeyCount>3</KeyCount><MaxKeys>1000</MaxKeys>\n"
	"  <EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>\n"
	"  <NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=</NextContinuationToken>\n"
	"  <!-- a comment > with signs -->\n"
	"  <Contents><Key>a%20b%2Bc+d/%C3%BC.json</Key><LastModified>2009-10-12T17:50:30.123Z</LastModified>"
	"<ETag>&quot;fba9dede5f27731c9771645a39863328&quot;</ETag><Size>434234</Size>"
	"<Owner><ID>1</ID><DisplayName>x</DisplayName></Owner><StorageClass>STANDARD</StorageClass></Contents>\n"
	"  <Contents><Key>empty</Key><LastModified>2009-10-12T17:50:30Z</LastModified><Size>0</Size></Contents>\n"
	"  <CommonPrefixes><Prefix>photos/</Prefix></CommonPrefixes>\n"
	"</ListBucketResult>";

static int parse(const char *xml, size_t len, struct uns_arena *arena, struct uns_object_list *list,
		 struct uns_err *err)
{
	uint8_t *copy = malloc(len ? len : 1); /* so that a sanitizer sees what is read behind it */
	int code;

	assert_non_null(copy);
	memcpy(copy, xml, len);
	code = uns_object_list_parse(uns_span_of(copy, len), arena, list, err);
	free(copy);
	return code;
}

static void test_page(void **state)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_object_list list = { 0 };
	struct uns_err err = { 0 };

	(void)state;
	assert_int_equal(parse(page, strlen(page), &arena, &list, &err), 0);
	assert_int_equal(list.n, 3);
	assert_string_equal(list.v[0].key, "a b+c d/\xc3\xbc.json");
	assert_string_equal(list.v[0].etag, "\"fba9dede5f27731c9771645a39863328\"");
	assert_int_equal(list.v[0].size, 434234);
	assert_true(list.v[0].mtime_ns == INT64_C(1255369830123000000));
	assert_false(list.v[0].is_prefix);
	assert_string_equal(list.v[1].key, "empty");
	assert_string_equal(list.v[1].etag, "");
	assert_true(list.v[1].mtime_ns == INT64_C(1255369830000000000));
	assert_string_equal(list.v[2].key, "photos/");
	assert_true(list.v[2].is_prefix);
	assert_string_equal(list.next, "1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=");
	uns_arena_fini(&arena);
}

/* Two pages make one list. */
static void test_pages(void **state)
{
	static const char last[] = "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>z+%41</Key>"
				   "<LastModified>2009-10-12T17:50:30Z</LastModified><Size>1</Size></Contents>"
				   "</ListBucketResult>";
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_object_list list = { 0 };

	(void)state;
	assert_int_equal(parse(page, strlen(page), &arena, &list, NULL), 0);
	assert_int_equal(parse(last, strlen(last), &arena, &list, NULL), 0);
	assert_int_equal(list.n, 4);
	assert_string_equal(list.v[3].key, "z+%41"); /* this page does not say that its keys are encoded */
	assert_null(list.next);
	uns_arena_fini(&arena);
}

#define OBJECT(key, time, size)                                                                             \
	"<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>" key "</Key><LastModified>" time \
	"</LastModified><Size>" size "</Size></Contents></ListBucketResult>"
#define TIME "2009-10-12T17:50:30Z"

static void test_wrong(void **state)
{
	static const struct {
		const char *xml, *sentence;
	} rows[] = {
		{ "", "no ListBucketResult" },
		{ "<html><body>proxy</body></html>", "an element that is not ListBucketResult" },
		{ "<ListBucketResult><Contents>", "it ends within an element" },
		{ "<ListBucketResult></Contents>", "an end of an element that is not open" },
		{ "<ListBucketResult", "a tag without an end" },
		{ "<!-- ", "a declaration without an end" },
		{ OBJECT("a", "yesterday", "1"), "a LastModified that is no time" },
		{ OBJECT("a", TIME, "-1"), "a Size that is none" },
		{ OBJECT("a", TIME, ""), "a Size that is none" },
		{ OBJECT("a", TIME, "9223372036854775808"), "a Size that is none" },
		{ OBJECT("a%4", TIME, "1"), "a key that is not encoded as asked" },
		{ OBJECT("a%00", TIME, "1"), "a key that is not encoded as asked" },
		{ OBJECT("a&b", TIME, "1"), "an unknown entity" },
		{ OBJECT("a&lol;", TIME, "1"), "an unknown entity" },
		{ OBJECT("a&#0;", TIME, "1"), "an unknown entity" },
		{ OBJECT("a&#xD800;", TIME, "1"), "an unknown entity" },
		{ "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
		  "an object without Key, Size or LastModified" },
		{ "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
		  "more pages follow and none is named" },
		{ "<ListBucketResult><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a>",
		  "more elements within each other than any listing has" },
	};
	struct uns_object_list list;
	struct uns_arena arena;
	struct uns_err err;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		arena = UNS_ARENA_INIT;
		list = (struct uns_object_list){ 0 };
		err = (struct uns_err){ 0 };
		assert_int_equal(parse(rows[i].xml, strlen(rows[i].xml), &arena, &list, &err), -EBADMSG);
		if (!strstr(err.text, rows[i].sentence))
			fail_msg("%s: %s", rows[i].xml, err.text);
		uns_arena_fini(&arena);
	}
}

static void test_entities(void **state)
{
	static const char xml[] = OBJECT("a&amp;&lt;&gt;&quot;&apos;&#65;&#x42;&#xfc;&#x20ac;&#x1F600;", TIME, "1");
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_object_list list = { 0 };

	(void)state;
	assert_int_equal(parse(xml, strlen(xml), &arena, &list, NULL), 0);
	assert_string_equal(list.v[0].key, "a&<>\"'AB\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80");
	uns_arena_fini(&arena);
}

/* Cut anywhere, it is no page. */
static void test_cut(void **state)
{
	struct uns_object_list list;
	struct uns_arena arena;
	size_t n;

	(void)state;
	for (n = 0; n < strlen(page); n++) {
		arena = UNS_ARENA_INIT;
		list = (struct uns_object_list){ 0 };
		assert_int_equal(parse(page, n, &arena, &list, NULL), -EBADMSG);
		uns_arena_fini(&arena);
	}
}

static void test_error(void **state)
{
	static const char xml[] =
		"<?xml version=\"1.0\"?><Error><Code>PermanentRedirect</Code><Region>eu-west-1</Region>"
		"</Error>";
	struct uns_object_error e;

	(void)state;
	uns_object_error_parse(uns_span_of(xml, strlen(xml)), &e);
	assert_string_equal(e.code, "PermanentRedirect");
	assert_string_equal(e.region, "eu-west-1");
	uns_object_error_parse(uns_span_of("<html>", 6), &e);
	assert_string_equal(e.code, "");
	assert_string_equal(e.region, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_page),     cmocka_unit_test(test_pages), cmocka_unit_test(test_wrong),
		cmocka_unit_test(test_entities), cmocka_unit_test(test_cut),   cmocka_unit_test(test_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
