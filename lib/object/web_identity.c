/* AssumeRoleWithWebIdentity: a form, which is not signed, and an answer in XML. */
#include "object/web_identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "object/answers.h"
#include "object/profile.h"
#include "object/sign.h"

enum { LONGEST_S = 30, MOST_VALUE = 16 << 10 };

static const char who[] = "the token service";

/* Its memory is overwritten, too: it has secrets. */
static void secret_fini(struct uns_text *text)
{
	if (text->p)
		explicit_bzero(text->p, text->cap);
	uns_text_fini(text);
}

static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static void address(struct uns_arena *arena, struct uns_text *out)
{
	const char *url = variable("AWS_ENDPOINT_URL_STS"), *region = variable("AWS_REGION");

	if (!url)
		url = variable("AWS_ENDPOINT_URL");
	if (!region)
		region = variable("AWS_DEFAULT_REGION");
	if (!region)
		region = uns_profile_value("region", arena);
	if (url)
		uns_text_printf(out, "%s%s", url, url[strlen(url) - 1] == '/' ? "" : "/");
	else
		uns_text_printf(out, "https://sts.%s%samazonaws.com%s/", region ? region : "", region ? "." : "",
				region && strncmp(region, "cn-", 3) == 0 ? ".cn" : "");
}

static void add_field(struct uns_text *body, const char *name, const char *value)
{
	uns_text_printf(body, "&%s=", name);
	uns_sign_encode(body, value, false);
}

/* The token's file is read for each request: Kubernetes writes it again before it expires. */
static int make_body(const char *role, const char *file, struct uns_arena *arena, struct uns_text *body,
		     struct uns_err *err)
{
	const char *session = variable("AWS_ROLE_SESSION_NAME"), *token;
	struct uns_span text;

	if (!uns_profile_read(file, arena, &text))
		return uns_fail(err, -EACCES, "%s, which AWS_WEB_IDENTITY_TOKEN_FILE names, cannot be read", file);
	token = uns_arena_strn(arena, (const char *)text.p, uns_span_left(&text));
	UNS_TRY_ALLOC(token, err);
	((char *)token)[strcspn(token, "\r\n")] = '\0';
	uns_text_str(body, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15");
	add_field(body, "RoleArn", role);
	add_field(body, "RoleSessionName", session ? session : "unshard");
	add_field(body, "WebIdentityToken", token);
	return body->failed ? uns_oom(err) : 0;
}

static bool take(struct uns_span xml, const char *name, char **out)
{
	char value[MOST_VALUE];
	const bool found = uns_answer_value(xml, name, value, sizeof(value));

	*out = found ? strdup(value) : NULL;
	explicit_bzero(value, sizeof(value));
	return *out;
}

static int parse(struct uns_span xml, struct uns_credentials *out, struct uns_err *err)
{
	char expires[64];
	struct tm utc = { 0 };

	if (!take(xml, "AccessKeyId", &out->id) || !take(xml, "SecretAccessKey", &out->secret) ||
	    !take(xml, "SessionToken", &out->token))
		return uns_fail(err, -EBADMSG, "%s: the answer has no AccessKeyId, SecretAccessKey and SessionToken",
				who);
	if (!uns_answer_value(xml, "Expiration", expires, sizeof(expires)) ||
	    !strptime(expires, "%Y-%m-%dT%H:%M:%S", &utc))
		return uns_fail(err, -EBADMSG, "%s: the answer's Expiration is no time", who);
	out->expires_s = (int64_t)timegm(&utc);
	return 1;
}

static int ask(struct uns_http *http, const char *url, const char *body, struct uns_credentials *out,
	       struct uns_err *err)
{
	static const char *const header[] = { "Content-Type: application/x-www-form-urlencoded" };
	const struct uns_http_request request = {
		.method = "POST", .url = url, .body = body, .header = header, .n_headers = 1, .total_s = LONGEST_S
	};
	struct uns_object_error why;
	struct uns_http_answer answer;
	struct uns_span xml;
	int code = uns_http_do(http, &request, &answer, err);

	xml = uns_span_of(answer.text.p ? answer.text.p : "", answer.text.len);
	if (code == 0 && answer.status == 200) {
		code = parse(xml, out, err);
	} else if (code == 0) {
		uns_object_error_parse(xml, &why);
		code = uns_fail(err, -EACCES, "%s: %s gives no credentials for AWS_ROLE_ARN: status %d (%s)", url, who,
				answer.status, *why.code ? why.code : "no reason given");
	}
	secret_fini(&answer.text);
	return code;
}

int uns_role_of_web_identity(struct uns_http *http, struct uns_credentials *out, struct uns_err *err)
{
	const char *role = variable("AWS_ROLE_ARN"), *file = variable("AWS_WEB_IDENTITY_TOKEN_FILE");
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text url = UNS_TEXT_INIT;
	UNS_CLEANUP(secret_fini) struct uns_text body = UNS_TEXT_INIT;

	if (!role || !file)
		return 0;
	UNS_TRY(make_body(role, file, &arena, &body, err));
	address(&arena, &url);
	UNS_TRY(uns_arena_check(&arena, err));
	return url.failed ? uns_oom(err) : ask(http, url.p, body.p, out, err);
}
