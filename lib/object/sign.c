/* HMAC-SHA-256 (RFC 2104), and the four texts that are signed one after the other. */
#include "object/sign.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/sha256.h"

static const char algorithm[] = "AWS4-HMAC-SHA256", ending[] = "aws4_request";

void uns_sign_encode(struct uns_text *out, const char *text, bool path)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";

	for (; *text; text++) {
		if (strchr(plain, *text) || (path && *text == '/'))
			uns_text_add(out, text, 1);
		else
			uns_text_printf(out, "%%%02X", (unsigned)(unsigned char)*text);
	}
}

void uns_sign_date(int64_t unix_s, char out[UNS_SIGN_DATE])
{
	const time_t t = (time_t)unix_s;
	struct tm utc;

	gmtime_r(&t, &utc);
	strftime(out, UNS_SIGN_DATE, "%Y%m%dT%H%M%SZ", &utc);
}

/* The compiler must not leave it out because nothing reads it afterwards. */
static void forget(void *secret, size_t len)
{
	explicit_bzero(secret, len);
}

static void hmac(const void *key, size_t key_len, const void *text, size_t len, uint8_t out[UNS_SHA256_BYTES])
{
	uint8_t pad[UNS_SHA256_BLOCK] = { 0 }, inner[UNS_SHA256_BYTES];
	struct uns_sha256 h;
	size_t i;

	uns_sha256_init(&h);
	if (key_len > sizeof(pad)) {
		uns_sha256_add(&h, key, key_len);
		uns_sha256_end(&h, pad);
	} else {
		memcpy(pad, key, key_len);
	}
	for (i = 0; i < sizeof(pad); i++)
		pad[i] ^= 0x36;
	uns_sha256_init(&h);
	uns_sha256_add(&h, pad, sizeof(pad));
	uns_sha256_add(&h, text, len);
	uns_sha256_end(&h, inner);
	for (i = 0; i < sizeof(pad); i++)
		pad[i] ^= 0x36 ^ 0x5c;
	uns_sha256_init(&h);
	uns_sha256_add(&h, pad, sizeof(pad));
	uns_sha256_add(&h, inner, sizeof(inner));
	uns_sha256_end(&h, out);
	forget(pad, sizeof(pad));
	forget(&h, sizeof(h));
}

static void add_names(struct uns_text *out, const struct uns_sign *r)
{
	size_t i;

	for (i = 0; i < r->n_headers; i++)
		uns_text_printf(out, "%s%s", i ? ";" : "", r->header[i].name);
}

void uns_sign_canonical(const struct uns_sign *r, struct uns_text *out)
{
	size_t i;

	uns_text_printf(out, "%s\n%s\n%s\n", r->method, r->path, r->query);
	for (i = 0; i < r->n_headers; i++)
		uns_text_printf(out, "%s:%s\n", r->header[i].name, r->header[i].value);
	uns_text_str(out, "\n");
	add_names(out, r);
	uns_text_printf(out, "\n%s", r->content_sha256);
}

/* Of the day, the region and the service: so one that leaks is good for no other. */
static void derive_key(const struct uns_sign *r, uint8_t key[UNS_SHA256_BYTES])
{
	struct uns_text secret = UNS_TEXT_INIT;

	uns_text_printf(&secret, "AWS4%s", r->secret);
	hmac(secret.len ? secret.p : "", secret.len, r->date, 8, key);
	if (secret.p)
		forget(secret.p, secret.cap);
	uns_text_fini(&secret);
	hmac(key, UNS_SHA256_BYTES, r->region, strlen(r->region), key);
	hmac(key, UNS_SHA256_BYTES, r->service, strlen(r->service), key);
	hmac(key, UNS_SHA256_BYTES, ending, strlen(ending), key);
}

void uns_sign_authorization(const struct uns_sign *r, struct uns_text *out)
{
	struct uns_text canonical = UNS_TEXT_INIT, to_sign = UNS_TEXT_INIT;
	uint8_t digest[UNS_SHA256_BYTES], key[UNS_SHA256_BYTES];
	struct uns_sha256 h;
	char scope[160];

	snprintf(scope, sizeof(scope), "%.8s/%s/%s/%s", r->date, r->region, r->service, ending);
	uns_sign_canonical(r, &canonical);
	uns_sha256_init(&h);
	uns_sha256_add(&h, canonical.p, canonical.len);
	uns_sha256_end(&h, digest);
	uns_text_printf(&to_sign, "%s\n%s\n%s\n", algorithm, r->date, scope);
	uns_text_hex(&to_sign, digest, sizeof(digest));
	out->failed |= canonical.failed || to_sign.failed;
	if (!out->failed) {
		derive_key(r, key);
		hmac(key, sizeof(key), to_sign.p, to_sign.len, digest);
		forget(key, sizeof(key));
		uns_text_printf(out, "%s Credential=%s/%s, SignedHeaders=", algorithm, r->id, scope);
		add_names(out, r);
		uns_text_str(out, ", Signature=");
		uns_text_hex(out, digest, sizeof(digest));
	}
	uns_text_fini(&canonical);
	uns_text_fini(&to_sign);
}
