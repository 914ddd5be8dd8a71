/* Requests signed as AWS has it (Signature Version 4): the server computes the same from the secret that it knows.
 * Pure; any thread. */
#ifndef UNS_OBJECT_SIGN_H
#define UNS_OBJECT_SIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

/* The SHA-256 of no bytes, as x-amz-content-sha256 has it. */
#define UNS_SIGN_EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

enum { UNS_SIGN_DATE = 17 }; /* "20150830T123600Z" and its NUL */

struct uns_sign_header {
	const char *name, *value; /* the name in lower case, the value without spaces at its ends */
};

struct uns_sign {
	const char *method;
	const char *path;  /* encoded as it is sent (uns_sign_encode), with its leading slash */
	const char *query; /* the same, sorted by name: "a=1&b=" */
	const struct uns_sign_header *header; /* what is signed of them, sorted by name */
	size_t n_headers;
	const char *content_sha256;
	const char *date; /* the value of x-amz-date */
	const char *region, *service;
	const char *id, *secret;
};

/* Percent-encodes what is not a letter, a digit or one of "-._~"; a slash stays if `path`. */
void uns_sign_encode(struct uns_text *out, const char *text, bool path);

void uns_sign_date(int64_t unix_s, char out[UNS_SIGN_DATE]);

/* What is signed, to be compared with what AWS publishes. */
void uns_sign_canonical(const struct uns_sign *request, struct uns_text *out);
/* The value of the header Authorization. It has no secret in it, and is good for a quarter of an hour. out->failed: out
 * of memory. */
void uns_sign_authorization(const struct uns_sign *request, struct uns_text *out);

#endif
