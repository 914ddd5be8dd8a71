#include "io/other_url.h"

#include <string.h>

static const struct {
	const char *scheme, *advice;
} known[] = {
	{ "gs", "Google's buckets have an S3 interface: s3://BUCKET/PREFIX with AWS_ENDPOINT_URL and an HMAC key" },
	{ "http", "a plain web server does not say which files it has, how large and in which version they are" },
	{ "https", "a plain web server does not say which files it has, how large and in which version they are" },
	{ "S3", "write s3 in small letters" },
};

int uns_other_url_refuse(const char *path, struct uns_err *err)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-";
	const char *advice = "unshard reads directories and s3://BUCKET/PREFIX";
	const size_t n = strspn(path, letters);
	size_t i;

	if (!n || strncmp(path + n, "://", 3) != 0)
		return 0;
	for (i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (strlen(known[i].scheme) == n && strncmp(path, known[i].scheme, n) == 0)
			advice = known[i].advice;
	return uns_fail(err, -ENOTSUP, "%s: %s (docs/object-stores.md)", path, advice);
}
