/* Requests by HTTP. libcurl does them: it is loaded when the first client is made, and nothing else of it is linked.
 * http_absent.c is built in its place where its headers were missing.
 *
 * Threads: a client serves any number at once; each request has a connection of its own meanwhile. */
#ifndef UNS_OBJECT_HTTP_H
#define UNS_OBJECT_HTTP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"
#include "base/text.h"

struct uns_http;

/* -ENOTSUP: built without libcurl, or it is not installed. */
int uns_http_new(struct uns_http **out, struct uns_err *err);
void uns_http_free(struct uns_http *http); /* NULL is allowed; no request is under way */

struct uns_http_request {
	const char *method; /* "GET", "PUT", "POST" */
	const char *body;   /* a form's; messages never have it; NULL = none */
	const char *url;    /* has no secret in it: messages name it */
	const char *const *header; /* "Name: value"; messages never have them */
	size_t n_headers;
	unsigned answer_s; /* the longest wait for a connection; 0 = the usual */
	unsigned total_s;  /* the longest in all; 0 = as long as bytes come */

	/* Where the body goes, one part after another; more than they hold is an answer of another length. NULL = into
	 * the answer's text. */
	const struct iovec *into;
	size_t n_into;
};

struct uns_http_answer {
	int status; /* 200, ... */
	struct uns_text text; /* the body, unless it was wanted elsewhere and the request succeeded; at most 16 MiB */
	size_t got; /* bytes that came at `into` */
	char date[64]; /* headers of those names, "" = none */
	char etag[128];
	char range[64]; /* content-range */
	char region[64]; /* x-amz-bucket-region */
	bool may_help; /* of a failed one: asking again may */
};

/* Returns 0 with any status. -EIO: there is no answer, or not all of one, with libcurl's reason. The caller
 * frees answer->text. */
int uns_http_do(struct uns_http *http, const struct uns_http_request *request, struct uns_http_answer *answer,
		struct uns_err *err);

#endif
