/* libcurl's easy interface. Handles that are not in use keep their connections, and are kept themselves. */
#include "object/http.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/late_library.h"
#include "base/thread.h"

enum {
	MOST_IDLE = 64,
	CONNECT_S = 10,
	STALLED_S = 30, /* so long without a byte: the connection is given up */
	MOST_TEXT = 16 << 20,
	RECEIVE_BYTES = 512 << 10,
};

#define FUNCTIONS(ROW)    \
	ROW(global_init)  \
	ROW(easy_init)    \
	ROW(easy_setopt)  \
	ROW(easy_perform) \
	ROW(easy_getinfo) ROW(easy_reset) ROW(easy_cleanup) ROW(easy_strerror) ROW(slist_append) ROW(slist_free_all)

struct curl {
#define ROW(name) __typeof__(curl_##name) *name; /* NOLINT(bugprone-macro-parentheses): a declaration */
	FUNCTIONS(ROW)
#undef ROW
};

/* curl.h checks the types of options by macros of these names. */
#undef curl_easy_setopt
#undef curl_easy_getinfo

struct uns_http {
	struct curl curl;
	pthread_mutex_t lock;
	CURL *idle[MOST_IDLE];
	size_t n_idle;
	pid_t pid; /* whose connections they are */
};

/* -- the library -- */

static int find_functions(struct curl *curl, struct uns_err *err)
{
	static const char *const names[] = { "libcurl.so.4", "libcurl-gnutls.so.4" };
	static const struct uns_late_function functions[] = {
#define ROW(name) { "curl_" #name, offsetof(struct curl, name) },
		FUNCTIONS(ROW)
#undef ROW
	};
	const char *name, *missing;
	void *library = uns_late_library(names, 2, &name);

	if (!library)
		return uns_fail(err, -ENOTSUP,
				"object stores need libcurl.so.4, which is not installed (package libcurl4 or "
				"libcurl)");
	missing = uns_late_functions(library, functions, sizeof(functions) / sizeof(*functions), curl);
	if (missing)
		return uns_fail(err, -ENOTSUP, "%s has no function %s", name, missing);
	return 0;
}

int uns_http_new(struct uns_http **out, struct uns_err *err)
{
	struct uns_http *http = calloc(1, sizeof(*http));
	int code;

	UNS_TRY_ALLOC(http, err);
	code = find_functions(&http->curl, err);
	if (code == 0 && http->curl.global_init(CURL_GLOBAL_ALL) != CURLE_OK)
		code = uns_fail(err, -ENOTSUP, "libcurl could not be made ready");
	if (code < 0) {
		free(http);
		return code;
	}
	pthread_mutex_init(&http->lock, NULL);
	http->pid = getpid();
	*out = http;
	return 0;
}

void uns_http_free(struct uns_http *http)
{
	if (!http)
		return;
	while (http->n_idle && http->pid == getpid())
		http->curl.easy_cleanup(http->idle[--http->n_idle]);
	pthread_mutex_destroy(&http->lock);
	free(http);
}

/* -- handles -- */

/* After a fork the connections are the other process's: to end them properly would end them for it. */
static CURL *handle_take(struct uns_http *http)
{
	CURL *easy = NULL;

	pthread_mutex_lock(&http->lock);
	if (http->pid != getpid()) {
		http->n_idle = 0;
		http->pid = getpid();
	}
	if (http->n_idle)
		easy = http->idle[--http->n_idle];
	pthread_mutex_unlock(&http->lock);
	return easy ? easy : http->curl.easy_init();
}

static void handle_give(struct uns_http *http, CURL *easy)
{
	bool kept;

	http->curl.easy_reset(easy);
	pthread_mutex_lock(&http->lock);
	kept = http->n_idle < MOST_IDLE;
	if (kept)
		http->idle[http->n_idle++] = easy;
	pthread_mutex_unlock(&http->lock);
	if (!kept)
		http->curl.easy_cleanup(easy);
}

/* -- one request -- */

struct transfer {
	struct uns_http *http;
	CURL *easy;
	const struct uns_http_request *request;
	struct uns_http_answer *answer;
	size_t part, in_part; /* where the next byte of the body goes */
	bool too_long;       /* more came than was asked for */
};

static void put_body(struct transfer *t, const char *bytes, size_t len)
{
	const struct uns_http_request *r = t->request;
	size_t n;

	for (; len && t->part < r->n_into; bytes += n, len -= n) {
		n = r->into[t->part].iov_len - t->in_part;
		n = n < len ? n : len;
		memcpy((char *)r->into[t->part].iov_base + t->in_part, bytes, n);
		t->answer->got += n;
		t->in_part += n;
		if (t->in_part == r->into[t->part].iov_len) {
			t->part++;
			t->in_part = 0;
		}
	}
	t->too_long = len;
}

/* The answer of a request that failed is text. */
static size_t on_body(char *bytes, size_t one, size_t n, void *ctx)
{
	struct transfer *t = ctx;
	struct uns_http_answer *a = t->answer;
	const size_t len = one * n;
	long status = 0;

	t->http->curl.easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
	if (!t->request->into || status >= 300) {
		t->too_long = a->text.len + len > MOST_TEXT;
		if (!t->too_long)
			uns_text_add(&a->text, bytes, len);
		return t->too_long || a->text.failed ? 0 : len;
	}
	put_body(t, bytes, len);
	return t->too_long ? 0 : len;
}

static void take_header(const char *line, size_t len, const char *name, char *out, size_t size)
{
	const size_t n = strlen(name);

	if (len <= n || strncasecmp(line, name, n) != 0)
		return;
	line += n;
	len -= n;
	while (len && (*line == ' ' || *line == '\t')) {
		line++;
		len--;
	}
	while (len && (line[len - 1] == '\r' || line[len - 1] == '\n' || line[len - 1] == ' '))
		len--;
	if (len < size)
		snprintf(out, size, "%.*s", (int)len, line);
}

static size_t on_header(char *bytes, size_t one, size_t n, void *ctx)
{
	struct transfer *t = ctx;

	take_header(bytes, one * n, "date:", t->answer->date, sizeof(t->answer->date));
	take_header(bytes, one * n, "etag:", t->answer->etag, sizeof(t->answer->etag));
	take_header(bytes, one * n, "content-range:", t->answer->range, sizeof(t->answer->range));
	take_header(bytes, one * n, "x-amz-bucket-region:", t->answer->region, sizeof(t->answer->region));
	return one * n;
}

static bool prepare(struct transfer *t, struct curl_slist **headers)
{
	const struct uns_http_request *r = t->request;
	const struct curl *c = &t->http->curl;
	struct curl_slist *more;
	size_t i;

	for (i = 0; i < r->n_headers; i++) {
		more = c->slist_append(*headers, r->header[i]);
		if (!more)
			return false;
		*headers = more;
	}
	c->easy_setopt(t->easy, CURLOPT_URL, r->url);
	if (r->body)
		c->easy_setopt(t->easy, CURLOPT_POSTFIELDS, r->body);
	c->easy_setopt(t->easy, CURLOPT_CUSTOMREQUEST, r->method);
	c->easy_setopt(t->easy, CURLOPT_HTTPHEADER, *headers);
	c->easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, on_body);
	c->easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
	c->easy_setopt(t->easy, CURLOPT_HEADERFUNCTION, on_header);
	c->easy_setopt(t->easy, CURLOPT_HEADERDATA, t);
	c->easy_setopt(t->easy, CURLOPT_NOSIGNAL, 1L);
	c->easy_setopt(t->easy, CURLOPT_PATH_AS_IS, 1L); /* a key may have "..": it is signed as it is */
	c->easy_setopt(t->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	c->easy_setopt(t->easy, CURLOPT_CONNECTTIMEOUT, (long)(r->answer_s ? r->answer_s : CONNECT_S));
	c->easy_setopt(t->easy, CURLOPT_TIMEOUT, (long)r->total_s);
	c->easy_setopt(t->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
	c->easy_setopt(t->easy, CURLOPT_LOW_SPEED_TIME, (long)STALLED_S);
	c->easy_setopt(t->easy, CURLOPT_BUFFERSIZE, (long)RECEIVE_BYTES);
	c->easy_setopt(t->easy, CURLOPT_TCP_KEEPALIVE, 1L);
#if LIBCURL_VERSION_NUM >= 0x075500
	c->easy_setopt(t->easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
	c->easy_setopt(t->easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
	return true;
}

static CURLcode perform(const struct uns_http *http, CURL *easy)
{
	struct uns_sigpipe before;
	CURLcode code;

	uns_sigpipe_block(&before);
	code = http->curl.easy_perform(easy);
	uns_sigpipe_restore(&before);
	return code;
}

static bool may_help(CURLcode code)
{
	switch (code) {
	case CURLE_COULDNT_RESOLVE_HOST: /* the next second's answer may be another */
	case CURLE_COULDNT_CONNECT:
	case CURLE_PARTIAL_FILE:
	case CURLE_OPERATION_TIMEDOUT:
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_GOT_NOTHING:
	case CURLE_SEND_ERROR:
	case CURLE_RECV_ERROR:
	case CURLE_HTTP2:
	case CURLE_HTTP2_STREAM:
		return true;
	default:
		return false;
	}
}

/* The address without what is asked there. */
static int url_length(const char *url)
{
	return (int)strcspn(url, "?");
}

int uns_http_do(struct uns_http *http, const struct uns_http_request *request, struct uns_http_answer *answer,
		struct uns_err *err)
{
	struct transfer t = { .http = http, .request = request, .answer = answer };
	struct curl_slist *headers = NULL;
	const int len = url_length(request->url);
	CURLcode code = CURLE_OUT_OF_MEMORY;
	long status = 0;

	*answer = (struct uns_http_answer){ .text = UNS_TEXT_INIT };
	t.easy = handle_take(http);
	if (t.easy && prepare(&t, &headers))
		code = perform(http, t.easy);
	if (t.easy) {
		http->curl.easy_getinfo(t.easy, CURLINFO_RESPONSE_CODE, &status);
		handle_give(http, t.easy);
	}
	http->curl.slist_free_all(headers);
	answer->status = (int)status;
	if (code == CURLE_OK)
		return 0;
	answer->may_help = may_help(code) && !t.too_long;
	if (code == CURLE_OUT_OF_MEMORY || answer->text.failed)
		return uns_oom(err);
	if (t.too_long)
		return uns_fail(err, -EIO, "%.*s: the answer is longer than what was asked for", len, request->url);
	return uns_fail(err, -EIO, "%.*s: %s", len, request->url, http->curl.easy_strerror(code));
}
