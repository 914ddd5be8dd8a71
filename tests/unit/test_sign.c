/* Signatures, against those that AWS publishes: its test suite of Signature Version 4, and the examples in "Signature
 * Calculations for the Authorization Header" of S3's reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "object/sign.h"

#define SUITE_DATE "20150830T123600Z"
#define SUITE_ID   "AKIDEXAMPLE"
#define SUITE_KEY  "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
#define S3_DATE    "20130524T000000Z"
#define S3_ID      "AKIAIOSFODNN7EXAMPLE"
#define S3_KEY     "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

static const struct uns_sign_header of_suite[] = { { "host", "example.amazonaws.com" }, { "x-amz-date", SUITE_DATE } };
static const struct uns_sign_header of_object[] = { { "host", "examplebucket.s3.amazonaws.com" },
						    { "range", "bytes=0-9" },
						    { "x-amz-content-sha256", UNS_SIGN_EMPTY },
						    { "x-amz-date", S3_DATE } };
static const struct uns_sign_header of_bucket[] = { { "host", "examplebucket.s3.amazonaws.com" },
						    { "x-amz-content-sha256", UNS_SIGN_EMPTY },
						    { "x-amz-date", S3_DATE } };

#define SUITE(m, p, q)                      \
	{ .method = m,                      \
	  .path = p,                        \
	  .query = q,                       \
	  .header = of_suite,               \
	  .n_headers = 2,                   \
	  .content_sha256 = UNS_SIGN_EMPTY, \
	  .date = SUITE_DATE,               \
	  .region = "us-east-1",            \
	  .service = "service",             \
	  .id = SUITE_ID,                   \
	  .secret = SUITE_KEY }
#define S3(p, q, h)                            \
	{ .method = "GET",                     \
	  .path = p,                           \
	  .query = q,                          \
	  .header = h,                         \
	  .n_headers = sizeof(h) / sizeof(*h), \
	  .content_sha256 = UNS_SIGN_EMPTY,    \
	  .date = S3_DATE,                     \
	  .region = "us-east-1",               \
	  .service = "s3",                     \
	  .id = S3_ID,                         \
	  .secret = S3_KEY }

static const struct known {
	const char *what;
	struct uns_sign request;
	const char *signature;
} known[] = {
	{ "get-vanilla", SUITE("GET", "/", ""), "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31" },
	{ "get-vanilla-query-order-key-case", SUITE("GET", "/", "Param1=value1&Param2=value2"),
	  "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500" },
	{ "post-vanilla", SUITE("POST", "/", ""), "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b" },
	{ "S3: GET object", S3("/test.txt", "", of_object),
	  "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41" },
	{ "S3: GET bucket lifecycle", S3("/", "lifecycle=", of_bucket),
	  "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543" },
	{ "S3: GET bucket (list objects)", S3("/", "max-keys=2&prefix=J", of_bucket),
	  "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7" },
};

static void test_published(void **state)
{
	struct uns_text text;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(known) / sizeof(*known); i++) {
		text = UNS_TEXT_INIT;
		uns_sign_authorization(&known[i].request, &text);
		assert_false(text.failed);
		print_message("%s\n", known[i].what);
		assert_string_equal(strstr(text.p, "Signature=") + strlen("Signature="), known[i].signature);
		assert_null(strstr(text.p, known[i].request.secret));
		uns_text_fini(&text);
	}
}

static void test_header(void **state)
{
	struct uns_text text = UNS_TEXT_INIT;

	(void)state;
	uns_sign_authorization(&known[0].request, &text);
	assert_string_equal(text.p, "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
				    "SignedHeaders=host;x-amz-date, Signature="
				    "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
	uns_text_fini(&text);
}

static void test_encode(void **state)
{
	static const struct {
		const char *text;
		bool path;
		const char *encoded;
	} rows[] = {
		{ "a b/c+d", true, "a%20b/c%2Bd" },
		{ "a b/c+d", false, "a%20b%2Fc%2Bd" },
		{ "-._~AZaz09", false, "-._~AZaz09" },
		{ "\xc3\xbc=&%", true, "%C3%BC%3D%26%25" },
	};
	struct uns_text text;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		text = UNS_TEXT_INIT;
		uns_sign_encode(&text, rows[i].text, rows[i].path);
		assert_string_equal(text.p, rows[i].encoded);
		uns_text_fini(&text);
	}
}

static void test_date(void **state)
{
	char date[UNS_SIGN_DATE];

	(void)state;
	uns_sign_date(1440938160, date);
	assert_string_equal(date, SUITE_DATE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_published),
		cmocka_unit_test(test_header),
		cmocka_unit_test(test_encode),
		cmocka_unit_test(test_date),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
