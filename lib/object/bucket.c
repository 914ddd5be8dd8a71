/* Addresses, signatures, and what is done about a request that failed. */
#include "object/bucket.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "object/credentials.h"
#include "object/http.h"
#include "object/profile.h"
#include "object/sign.h"

enum {
	MOST_TRIES = 10,
	FIRST_PAUSE_MS = 50, /* twice as long after each try: 20 s in all */
	LONGEST_PAUSE_MS = 5000,
};

struct uns_bucket {
	unsigned refs; /* atomic */
	char *name;
	char *endpoint; /* "https://host:9000"; NULL = AWS's own */
	bool in_host; /* at that address, the bucket's name is in front of the host's, not in the path */
	struct uns_http *http;
	struct uns_credential_source *credentials;
	pthread_mutex_t lock;
	char region[64];
	int64_t skew_s; /* what the server's clock is ahead of this one, once it refused a request for that */
};

/* -- settings -- */

static const char *setting(const char *variable, const char *key, struct uns_arena *arena)
{
	const char *value = getenv(variable);

	return value && *value ? value : key ? uns_profile_value(key, arena) : NULL;
}

/* As S3 has it, and older buckets with capitals and underscores. */
static bool is_bucket_name(const char *name)
{
	const size_t n = strlen(name);

	return n >= 1 && n <= 255 && *name != '.' &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") == n;
}

static int choose_endpoint(struct uns_bucket *b, struct uns_arena *arena, struct uns_err *err)
{
	const char *url = setting("AWS_ENDPOINT_URL_S3", NULL, arena);
	const char *host;
	size_t n;

	if (!url)
		url = setting("AWS_ENDPOINT_URL", "endpoint_url", arena);
	if (!url)
		return 0;
	host = strncasecmp(url, "http://", 7) == 0 ? url + 7 : strncasecmp(url, "https://", 8) == 0 ? url + 8 : NULL;
	if (!host || !*host || *host == '/')
		return uns_fail(err, -EINVAL, "AWS_ENDPOINT_URL: expected http://HOST[:PORT] or https://HOST[:PORT]");
	if (strpbrk(host, "@?#"))
		return uns_fail(err, -EINVAL,
				"AWS_ENDPOINT_URL has a user, a password or a query in it: expected an address alone");
	for (n = strlen(url); url[n - 1] == '/'; n--)
		;
	b->endpoint = strndup(url, n);
	return b->endpoint ? 0 : uns_oom(err);
}

static int choose(struct uns_bucket *b, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const char *region = setting("AWS_REGION", NULL, &arena),
		   *style = uns_profile_value("s3.addressing_style", &arena);

	if (!region)
		region = setting("AWS_DEFAULT_REGION", "region", &arena);
	snprintf(b->region, sizeof(b->region), "%s", region ? region : "us-east-1");
	if (strspn(b->region, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != strlen(b->region))
		return uns_fail(err, -EINVAL, "AWS_REGION: %s is no region", b->region);
	b->in_host = style && strcmp(style, "virtual") == 0;
	UNS_TRY(choose_endpoint(b, &arena, err));
	return uns_arena_check(&arena, err);
}

static void bucket_close_p(struct uns_bucket **b)
{
	uns_bucket_close(*b);
}

int uns_bucket_open(const char *name, struct uns_bucket **out, struct uns_err *err)
{
	UNS_CLEANUP(bucket_close_p) struct uns_bucket *b = NULL;

	if (!is_bucket_name(name))
		return uns_fail(err, -EINVAL, "\"%s\" is no name of a bucket: expected s3://BUCKET/PREFIX", name);
	UNS_TRY_ALLOC(b = calloc(1, sizeof(*b)), err);
	b->refs = 1;
	pthread_mutex_init(&b->lock, NULL);
	UNS_TRY_ALLOC(b->name = strdup(name), err);
	UNS_TRY(choose(b, err));
	UNS_TRY(uns_http_new(&b->http, err));
	UNS_TRY(uns_credential_source_new(b->http, &b->credentials, err));
	*out = UNS_TAKE(b);
	return 0;
}

struct uns_bucket *uns_bucket_ref(struct uns_bucket *b)
{
	__atomic_add_fetch(&b->refs, 1, __ATOMIC_RELAXED);
	return b;
}

void uns_bucket_close(struct uns_bucket *b)
{
	if (!b || __atomic_sub_fetch(&b->refs, 1, __ATOMIC_ACQ_REL))
		return;
	uns_credential_source_free(b->credentials);
	uns_http_free(b->http);
	pthread_mutex_destroy(&b->lock);
	free(b->endpoint);
	free(b->name);
	free(b);
}

const char *uns_bucket_name(const struct uns_bucket *b)
{
	return b->name;
}

uint64_t uns_bucket_hash(const struct uns_bucket *b)
{
	return uns_hash_end(uns_hash_str(uns_hash_str(UNS_HASH_INIT, b->endpoint ? b->endpoint : ""), b->name));
}

/* -- one try -- */

/* What is asked, until it is signed. */
struct ask {
	const char *key;   /* "" = the bucket itself */
	const char *query; /* as uns_sign has it */
	const char *range, *match; /* whole headers; NULL = none */
	const char *etag;          /* the answer's; NULL = none, or any */
	const struct iovec *into;
	size_t n_into;
	size_t len;
	uint64_t off;
};

enum { MOST_HEADERS = 6 };

/* The request with what it points to. */
struct made {
	struct uns_text url, path, authorization, token;
	char host[512], date_header[64];
	const char *header[MOST_HEADERS];
	size_t n_headers;
};

static void made_fini(struct made *m)
{
	if (m->token.p)
		explicit_bzero(m->token.p, m->token.len);
	uns_text_fini(&m->token);
	uns_text_fini(&m->url);
	uns_text_fini(&m->path);
	uns_text_fini(&m->authorization);
}

/* A certificate of *.s3.amazonaws.com holds for no name with a dot before it. Elsewhere the bucket is in the path,
 * unless the profile wants it otherwise: other stores rarely have a name for each. */
static void address(const struct uns_bucket *b, const char *region, const struct ask *ask, struct made *m)
{
	const char *china = strncmp(region, "cn-", 3) == 0 ? ".cn" : "", *rest;
	const bool in_path = b->endpoint ? !b->in_host : !!strchr(b->name, '.');
	const char *name = in_path ? "" : b->name, *dot = in_path ? "" : ".";

	if (b->endpoint) {
		rest = strstr(b->endpoint, "://") + 3;
		snprintf(m->host, sizeof(m->host), "%s%s%.*s", name, dot, (int)strcspn(rest, "/"), rest);
		uns_text_str(&m->path, rest + strcspn(rest, "/"));
	} else {
		snprintf(m->host, sizeof(m->host), "%s%ss3.%s.amazonaws.com%s", name, dot, region, china);
	}
	uns_text_str(&m->path, "/");
	if (in_path)
		uns_sign_encode(&m->path, b->name, true);
	if (in_path && *ask->key)
		uns_text_str(&m->path, "/");
	uns_sign_encode(&m->path, ask->key, true);
	uns_text_printf(&m->url, "%s://%s%s%s%s",
			b->endpoint && strncasecmp(b->endpoint, "http:", 5) == 0 ? "http" : "https", m->host,
			m->path.failed ? "" : m->path.p, *ask->query ? "?" : "", ask->query);
}

static void sign(const char *region, int64_t now_s, const struct ask *ask, const struct uns_credentials *c,
		 struct made *m)
{
	char date[UNS_SIGN_DATE];
	struct uns_sign_header header[4] = { { "host", m->host },
					     { "x-amz-content-sha256", UNS_SIGN_EMPTY },
					     { "x-amz-date", date },
					     { "x-amz-security-token", c->token } };
	const struct uns_sign request = { .method = "GET",
					  .path = m->path.p,
					  .query = ask->query,
					  .header = header,
					  .n_headers = c->token ? 4 : 3,
					  .content_sha256 = UNS_SIGN_EMPTY,
					  .date = date,
					  .region = region,
					  .service = "s3",
					  .id = c->id,
					  .secret = c->secret };

	uns_sign_date(now_s, date);
	snprintf(m->date_header, sizeof(m->date_header), "x-amz-date: %s", date);
	m->header[m->n_headers++] = "x-amz-content-sha256: " UNS_SIGN_EMPTY;
	m->header[m->n_headers++] = m->date_header;
	uns_text_str(&m->authorization, "Authorization: ");
	uns_sign_authorization(&request, &m->authorization);
	if (c->token)
		uns_text_printf(&m->token, "x-amz-security-token: %s", c->token);
	if (m->authorization.failed || m->token.failed)
		return;
	m->header[m->n_headers++] = m->authorization.p;
	if (c->token)
		m->header[m->n_headers++] = m->token.p;
}

static int try_once(struct uns_bucket *b, const struct ask *ask, struct uns_http_answer *answer, bool *is_signed,
		    struct uns_err *err)
{
	UNS_CLEANUP(made_fini) struct made m = { 0 };
	struct uns_credentials who;
	struct uns_http_request request;
	char region[sizeof(b->region)];
	int64_t skew_s;

	UNS_TRY(uns_credentials_get(b->credentials, &who, err));
	pthread_mutex_lock(&b->lock);
	memcpy(region, b->region, sizeof(region));
	skew_s = b->skew_s;
	pthread_mutex_unlock(&b->lock);
	address(b, region, ask, &m);
	*is_signed = who.id;
	if (who.id && !m.path.failed)
		sign(region, uns_wall_ns() / 1000000000 + skew_s, ask, &who, &m);
	uns_credentials_fini(&who);
	if (m.url.failed || m.path.failed || m.authorization.failed || m.token.failed)
		return uns_oom(err);
	if (ask->range)
		m.header[m.n_headers++] = ask->range;
	if (ask->match)
		m.header[m.n_headers++] = ask->match;
	request = (struct uns_http_request){ .method = "GET",
					     .url = m.url.p,
					     .header = m.header,
					     .n_headers = m.n_headers,
					     .into = ask->into,
					     .n_into = ask->n_into };
	return uns_http_do(b->http, &request, answer, err);
}

/* -- failures -- */

/* What was learned from a refusal, so that the next try differs. true = it does. */
struct lessons {
	bool region, clock, credentials; /* learned once already */
};

static bool learn_region(struct uns_bucket *b, const char *region, struct lessons *l)
{
	if (!*region || l->region || b->endpoint)
		return false;
	l->region = true;
	pthread_mutex_lock(&b->lock);
	snprintf(b->region, sizeof(b->region), "%s", region);
	pthread_mutex_unlock(&b->lock);
	return true;
}

/* "Fri, 24 May 2013 00:00:00 GMT", in whatever locale the program is. */
static bool parse_date(const char *text, int64_t *unix_s)
{
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	char month[4];
	const char *at;
	struct tm utc = { 0 };

	if (sscanf(text, "%*3s, %d %3s %d %d:%d:%d", &utc.tm_mday, month, &utc.tm_year, &utc.tm_hour, &utc.tm_min,
		   &utc.tm_sec) != 6 ||
	    strlen(month) != 3 || !(at = strstr(months, month)))
		return false;
	utc.tm_mon = (int)(at - months) / 3;
	utc.tm_year -= 1900;
	*unix_s = (int64_t)timegm(&utc);
	return true;
}

static bool learn_clock(struct uns_bucket *b, const char *date, struct lessons *l)
{
	int64_t server_s;

	if (l->clock || !parse_date(date, &server_s))
		return false;
	l->clock = true;
	pthread_mutex_lock(&b->lock);
	b->skew_s = server_s - uns_wall_ns() / 1000000000;
	pthread_mutex_unlock(&b->lock);
	return true;
}

static bool learn_credentials(struct uns_bucket *b, struct lessons *l)
{
	if (l->credentials)
		return false;
	l->credentials = true;
	uns_credentials_refused(b->credentials);
	return true;
}

static bool learn(struct uns_bucket *b, const struct uns_http_answer *a, const struct uns_object_error *e,
		  struct lessons *l)
{
	if (a->status == 301 || a->status == 307 || strcmp(e->code, "AuthorizationHeaderMalformed") == 0)
		return learn_region(b, *e->region ? e->region : a->region, l);
	if (strcmp(e->code, "RequestTimeTooSkewed") == 0)
		return learn_clock(b, a->date, l);
	if (strcmp(e->code, "ExpiredToken") == 0 || strcmp(e->code, "ExpiredTokenException") == 0)
		return learn_credentials(b, l);
	return false;
}

static bool passes(const struct uns_http_answer *a, const struct uns_object_error *e)
{
	return a->status >= 500 || a->status == 429 || a->status == 408 || strcmp(e->code, "RequestTimeout") == 0 ||
	       strcmp(e->code, "SlowDown") == 0;
}

static int fail_replaced(const struct uns_bucket *b, const struct ask *ask, const char *how, struct uns_err *err)
{
	return uns_fail(err, -ESTALE, "s3://%s/%s: the object was %s after unshard listed it", b->name, ask->key, how);
}

static int fail_answer(const struct uns_bucket *b, const struct ask *ask, const struct uns_http_answer *a,
		       const struct uns_object_error *e, bool is_signed, struct uns_err *err)
{
	const char *slash = *ask->key ? "/" : "", *reason = *e->code ? e->code : "no reason given";

	if (strcmp(e->code, "NoSuchBucket") == 0)
		return uns_fail(err, -ENOENT, "s3://%s: no such bucket%s%s", b->name, b->endpoint ? " at " : "",
				b->endpoint ? b->endpoint : "");
	switch (a->status) {
	case 404:
		return fail_replaced(b, ask, "removed", err);
	case 412:
	case 416:
		return fail_replaced(b, ask, "replaced by another", err);
	case 401:
	case 403:
		return uns_fail(err, -EACCES, "s3://%s%s%s: access is denied (%s)%s", b->name, slash, ask->key, reason,
				is_signed ? "" : "; no credentials were found, and requests were not signed");
	default:
		return uns_fail(err, -EIO, "s3://%s%s%s: the store answered with status %d (%s)", b->name, slash,
				ask->key, a->status, reason);
	}
}

/* Between half of that and all of it: readers that failed together do not come back together. */
static void pause_before(unsigned tries)
{
	uint64_t ms = (uint64_t)FIRST_PAUSE_MS << (tries < 8 ? tries : 8), ns;
	struct timespec t;

	if (ms > LONGEST_PAUSE_MS)
		ms = LONGEST_PAUSE_MS;
	ns = ms * 500000 + uns_hash_end((uint64_t)uns_now_ns()) % (ms * 500000);
	t = (struct timespec){ .tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000) };
	while (nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}

/* Some stores do not heed If-Match: then the answer's own ETag shows it. */
static bool is_other(const struct ask *ask, const struct uns_http_answer *a)
{
	const char *want = ask->etag, *got = a->etag;
	size_t n;

	if (!want || !*got || a->status >= 300)
		return false;
	want += *want == '"';
	got += *got == '"';
	n = strcspn(want, "\"");
	return n != strcspn(got, "\"") || strncmp(want, got, n) != 0;
}

/* rclone's server gives ranges with status 200, and only Content-Range names which. */
static bool is_range(const struct ask *ask, const struct uns_http_answer *a)
{
	char expected[48];

	snprintf(expected, sizeof(expected), "bytes %llu-", (unsigned long long)ask->off);
	return *a->range ? strncmp(a->range, expected, strlen(expected)) == 0 : a->status == 206 || !ask->off;
}

static bool succeeded(const struct ask *ask, const struct uns_http_answer *a)
{
	return ask->into ? (a->status == 200 || a->status == 206) && is_range(ask, a) : a->status == 200;
}

/* What came is not what was asked for. */
static int fail_short(const struct uns_bucket *b, const struct ask *ask, const struct uns_http_answer *a,
		      struct uns_err *err)
{
	if (!succeeded(ask, a))
		return uns_fail(err, -EIO, "s3://%s/%s: the store gives another part than the one that was asked for",
				b->name, ask->key);
	return uns_fail(err, -EIO, "s3://%s/%s: %zu bytes came; expected %zu", b->name, ask->key, a->got, ask->len);
}

/* What came of a try: 0 done, 1 try again (after a pause if *paused), else it has failed. */
static int judge(struct uns_bucket *b, const struct ask *ask, struct uns_http_answer *a, int code, bool is_signed,
		 struct lessons *lessons, bool *paused, struct uns_err *err)
{
	struct uns_object_error e = { 0 };

	*paused = true;
	if (code < 0)
		return code == -EIO && a->may_help ? 1 : code;
	if (is_other(ask, a))
		return fail_replaced(b, ask, "replaced by another", err);
	if (succeeded(ask, a) && (!ask->into || a->got == ask->len))
		return 0;
	if (a->status >= 200 && a->status < 300) {
		fail_short(b, ask, a, err);
		return succeeded(ask, a) ? 1 : -EIO;
	}
	uns_object_error_parse(uns_span_of(a->text.p ? a->text.p : "", a->text.len), &e);
	fail_answer(b, ask, a, &e, is_signed, err);
	if (learn(b, a, &e, lessons)) {
		*paused = false;
		return 1;
	}
	return passes(a, &e) ? 1 : err->code;
}

/* The caller frees answer->text. */
static int ask_bucket(struct uns_bucket *b, const struct ask *ask, struct uns_http_answer *answer, struct uns_err *err)
{
	struct lessons lessons = { 0 };
	struct uns_err why;
	bool is_signed = false, paused;
	unsigned tries;
	int code = 1;

	for (tries = 0; code == 1 && tries < MOST_TRIES; tries++) {
		why = (struct uns_err){ 0 };
		*answer = (struct uns_http_answer){ 0 };
		code = try_once(b, ask, answer, &is_signed, &why);
		code = judge(b, ask, answer, code, is_signed, &lessons, &paused, &why);
		if (code == 0)
			return 0;
		uns_text_fini(&answer->text);
		*answer = (struct uns_http_answer){ 0 };
		if (code == 1 && paused && tries + 1 < MOST_TRIES)
			pause_before(tries);
	}
	if (code == 1)
		uns_fail_in(&why, "after %u tries", tries);
	return uns_fail_as(err, &why);
}

/* -- requests -- */

int uns_bucket_list(struct uns_bucket *b, const char *prefix, bool level, const char *after, struct uns_arena *arena,
		    struct uns_object_list *list, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text query = UNS_TEXT_INIT;
	struct uns_http_answer answer;
	struct ask ask = { .key = "" };
	int code;

	if (after) {
		uns_text_str(&query, "continuation-token=");
		uns_sign_encode(&query, after, false);
		uns_text_str(&query, "&");
	}
	if (level) {
		uns_text_str(&query, "delimiter=");
		uns_sign_encode(&query, "/", false);
		uns_text_str(&query, "&");
	}
	uns_text_str(&query, "encoding-type=url&list-type=2&prefix=");
	uns_sign_encode(&query, prefix, false);
	if (query.failed)
		return uns_oom(err);
	ask.query = query.p;
	UNS_TRY(ask_bucket(b, &ask, &answer, err));
	code = uns_object_list_parse(uns_span_of(answer.text.p ? answer.text.p : "", answer.text.len), arena, list,
				     err);
	uns_text_fini(&answer.text);
	return code < 0 ? uns_fail_in(err, "s3://%s/%s", b->name, prefix) : 0;
}

int uns_bucket_read(struct uns_bucket *b, const char *key, const char *etag, const struct iovec *into, size_t n_into,
		    uint64_t off, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text match = UNS_TEXT_INIT;
	struct uns_http_answer answer;
	char range[64];
	struct ask ask = { .key = key, .query = "", .range = range, .into = into, .n_into = n_into, .off = off };
	size_t i;

	for (i = 0; i < n_into; i++)
		ask.len += into[i].iov_len;
	if (!ask.len)
		return 0;
	snprintf(range, sizeof(range), "Range: bytes=%llu-%llu", (unsigned long long)off,
		 (unsigned long long)(off + ask.len - 1));
	uns_text_printf(&match, *etag == '"' ? "If-Match: %s" : "If-Match: \"%s\"", etag);
	if (match.failed)
		return uns_oom(err);
	ask.match = *etag ? match.p : NULL;
	ask.etag = *etag ? etag : NULL;
	UNS_TRY(ask_bucket(b, &ask, &answer, err));
	uns_text_fini(&answer.text);
	return 0;
}
