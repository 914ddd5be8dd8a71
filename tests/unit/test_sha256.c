/* SHA-256 of known texts, in one part and in many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/sha256.h"

/* FIPS 180-4's examples, and Python's hashlib: n bytes, byte i being i * 7 % 251. */
static const struct known {
	const char *text; /* NULL = made */
	size_t n;
	const char *sum;
} known[] = {
	{ "", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
	{ "abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
	{ "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
	  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
	{ NULL, 55, "8af594de0e003fdee5c8bb088216c824349b4137070f559574f4a4bddd27b714" },
	{ NULL, 63, "bd535b38bf0d0d1a09d370b7e34b2696cea3767801a45d5611a4aaa6954e8527" },
	{ NULL, 64, "292be91abe8c0909fe3d26575af5755eee74d23816dc68c3ba41765136967654" },
	{ NULL, 119, "d367ab298e74477421127b0b448667c37c006c636f5738f081c39388756e5fad" },
	{ NULL, 120, "be7beb9c82089eb08da8fe6eb30c13b9d56869014e228a8c3eb0fdfe832efab2" },
	{ NULL, 1000003, "6e0aa3a3e4afdd717e6af8d151be7c532fce9607f2086e89d0136acffec3f3ae" },
};

static void sum(const uint8_t *bytes, size_t n, size_t part, char out[2 * UNS_SHA256_BYTES + 1])
{
	uint8_t digest[UNS_SHA256_BYTES];
	struct uns_sha256 h;
	size_t i;

	uns_sha256_init(&h);
	for (i = 0; i < n; i += part)
		uns_sha256_add(&h, bytes + i, i + part < n ? part : n - i);
	uns_sha256_end(&h, digest);
	for (i = 0; i < sizeof(digest); i++)
		snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

/* A part of one block or less goes another way than many blocks. */
static void known_sums(void **state)
{
	static const size_t part[] = { 1, 63, 64, 65, 128, 1000, 1 << 20 };
	char got[2 * UNS_SHA256_BYTES + 1];
	const struct known *k;
	uint8_t *bytes;
	size_t i;

	(void)state;
	for (k = known; k < known + sizeof(known) / sizeof(known[0]); k++) {
		bytes = malloc(k->n + 1);
		assert_non_null(bytes);
		for (i = 0; i < k->n; i++)
			bytes[i] = k->text ? (uint8_t)k->text[i] : (uint8_t)(i * 7 % 251);
		for (i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
			sum(bytes, k->n, part[i], got);
			assert_string_equal(got, k->sum);
		}
		free(bytes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(known_sums) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
