#include "object/roles.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/cleanup.h"
#include "object/profile.h"

enum { LONGEST_S = 5, NOT_THERE_S = 1, MOST_HEADER = 8192 };

static const char *json_text(const cJSON *json, const char *key)
{
	return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, key));
}

static void json_free_p(cJSON **json)
{
	cJSON_Delete(*json);
}

int uns_role_parse(struct uns_span in, struct uns_credentials *out, struct uns_err *err)
{
	UNS_CLEANUP(json_free_p) cJSON *json = cJSON_ParseWithLength((const char *)in.p, uns_span_left(&in));
	const char *id = json_text(json, "AccessKeyId"), *secret = json_text(json, "SecretAccessKey");
	const char *token = json_text(json, "Token"), *expires = json_text(json, "Expiration");
	struct tm utc = { 0 };

	if (!id || !secret)
		return uns_fail(err, -EBADMSG, "the answer has no AccessKeyId and SecretAccessKey");
	if (expires && !strptime(expires, "%Y-%m-%dT%H:%M:%S", &utc))
		return uns_fail(err, -EBADMSG, "the answer's Expiration is no time");
	*out = (struct uns_credentials){ strdup(id), strdup(secret), token ? strdup(token) : NULL,
					 expires ? (int64_t)timegm(&utc) : 0 };
	return out->id && out->secret && (!token || out->token) ? 1 : uns_oom(err);
}

/* The body of a successful answer. */
static int ask(struct uns_http *http, const struct uns_http_request *request, struct uns_text *out, const char *who,
	       struct uns_err *err)
{
	struct uns_http_answer answer;
	int code = uns_http_do(http, request, &answer, err);

	if (code == 0 && answer.status != 200)
		code = uns_fail(err, -EACCES, "%s: %s answered with status %d", request->url, who, answer.status);
	if (code < 0)
		uns_text_fini(&answer.text);
	else
		*out = answer.text;
	return code;
}

static int ask_role(struct uns_http *http, const struct uns_http_request *request, const char *who,
		    struct uns_credentials *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	int code = ask(http, request, &text, who, err);

	if (code < 0)
		return code;
	code = uns_role_parse(uns_span_of(text.p ? text.p : "", text.len), out, err);
	if (text.p)
		explicit_bzero(text.p, text.len);
	return code < 0 ? uns_fail_in(err, "%s", who) : code;
}

/* -- containers -- */

/* "Authorization: ..."; "" = none is wanted. */
static int container_header(char out[MOST_HEADER], struct uns_err *err)
{
	const char *token = getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN");
	const char *file = getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_span text = { 0 };
	int n = 0;

	*out = '\0';
	if (file && !uns_profile_read(file, &arena, &text))
		uns_fail(err, -EACCES, "%s, which AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE names, cannot be read", file);
	else if (file)
		n = snprintf(out, MOST_HEADER, "Authorization: %.*s", (int)uns_span_left(&text), (const char *)text.p);
	else if (token)
		n = snprintf(out, MOST_HEADER, "Authorization: %s", token);
	uns_arena_fini(&arena);
	if (n < MOST_HEADER)
		out[strcspn(out, "\r\n")] = '\0';
	return n < MOST_HEADER ? err->code : uns_fail(err, -EINVAL, "the token of the container's role is too long");
}

/* Without encryption only to where a container's services are, as AWS's programs have it. */
static bool is_trusted(const char *url)
{
	static const char *const hosts[] = { "localhost",      "127.0.0.1",      "169.254.170.2",
					     "169.254.170.23", "[fd00:ec2::23]", "[::1]" };
	const char *host = url + strlen("http://");
	size_t i, n;

	if (strncasecmp(url, "https://", strlen("https://")) == 0)
		return true;
	if (strncasecmp(url, "http://", strlen("http://")) != 0)
		return false;
	for (i = 0; i < sizeof(hosts) / sizeof(*hosts); i++) {
		n = strlen(hosts[i]);
		if (strncmp(host, hosts[i], n) == 0 && (!host[n] || strchr("/:?", host[n])))
			return true;
	}
	return false;
}

int uns_role_of_container(struct uns_http *http, struct uns_credentials *out, struct uns_err *err)
{
	const char *relative = getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
	const char *full = getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
	char url[2048], header[MOST_HEADER];
	const char *const headers[] = { header };
	struct uns_http_request request = { .method = "GET", .url = url, .header = headers, .total_s = LONGEST_S };
	struct uns_err why = { 0 };

	if (!relative && !full)
		return 0;
	if (snprintf(url, sizeof(url), "%s%s", relative ? "http://169.254.170.2" : "", relative ? relative : full) >=
		    (int)sizeof(url) ||
	    (!relative && !is_trusted(url)))
		return uns_fail(err, -EINVAL,
				"AWS_CONTAINER_CREDENTIALS_FULL_URI: expected https, or an address of this host");
	if (container_header(header, &why) < 0)
		return uns_fail_as(err, &why);
	request.n_headers = *header != '\0';
	return ask_role(http, &request, "the container's credentials", out, err);
}

/* -- machines -- */

/* An attacker that makes a server ask elsewhere cannot make it send a PUT: therefore the token. */
static int machine_token(struct uns_http *http, const char *service, struct uns_text *out, struct uns_err *err)
{
	static const char *const header[] = { "X-aws-ec2-metadata-token-ttl-seconds: 21600" };
	char url[1200];
	const struct uns_http_request request = { .method = "PUT",
						  .url = url,
						  .header = header,
						  .n_headers = 1,
						  .answer_s = NOT_THERE_S,
						  .total_s = NOT_THERE_S };

	snprintf(url, sizeof(url), "%s/latest/api/token", service);
	return ask(http, &request, out, "the metadata service", err);
}

static int machine_role(struct uns_http *http, const char *service, const char *token, struct uns_credentials *out,
			struct uns_err *err)
{
	static const char roles[] = "latest/meta-data/iam/security-credentials";
	UNS_CLEANUP(uns_text_fini) struct uns_text name = UNS_TEXT_INIT;
	struct uns_http_answer answer;
	char url[1600], header[1024];
	const char *const headers[] = { header };
	const struct uns_http_request request = {
		.method = "GET", .url = url, .header = headers, .n_headers = 1, .total_s = LONGEST_S
	};
	int code;

	if (snprintf(header, sizeof(header), "X-aws-ec2-metadata-token: %s", token) >= (int)sizeof(header))
		return uns_fail(err, -EBADMSG, "the metadata service: its token is too long");
	snprintf(url, sizeof(url), "%s/%s/", service, roles);
	code = uns_http_do(http, &request, &answer, err);
	name = answer.text;
	if (code < 0 || answer.status == 404) /* it has no role */
		return code;
	if (answer.status != 200 || !name.len)
		return uns_fail(err, -EACCES, "%s: the metadata service answered with status %d", url, answer.status);
	name.p[strcspn(name.p, "\r\n")] = '\0';
	if (snprintf(url, sizeof(url), "%s/%s/%s", service, roles, name.p) >= (int)sizeof(url) ||
	    strpbrk(name.p, "/ ?#"))
		return uns_fail(err, -EBADMSG, "the metadata service: the role's name is none");
	return ask_role(http, &request, "the metadata service", out, err);
}

int uns_role_of_machine(struct uns_http *http, struct uns_credentials *out, struct uns_err *err)
{
	const char *given = getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT"), *off = getenv("AWS_EC2_METADATA_DISABLED");
	UNS_CLEANUP(uns_text_fini) struct uns_text token = UNS_TEXT_INIT;
	struct uns_err why = { 0 };
	char service[1024];
	size_t n;

	if (off && strcasecmp(off, "true") == 0)
		return 0;
	n = (size_t)snprintf(service, sizeof(service), "%s", given && *given ? given : "http://169.254.169.254");
	while (n && n < sizeof(service) && service[n - 1] == '/')
		service[--n] = '\0';
	if (machine_token(http, service, &token, &why) < 0) /* most machines have no such service */
		return given && *given ? uns_fail_as(err, &why) : 0;
	return machine_role(http, service, token.p ? token.p : "", out, err);
}
