#include "object/credentials.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "object/profile.h"
#include "object/roles.h"
#include "object/web_identity.h"

/* A request that is signed now may be under way for a while. */
enum { LEAST_LEFT_S = 300 };

struct uns_credential_source {
	struct uns_http *http;
	pthread_mutex_t lock;
	pthread_cond_t found;
	bool is_looking, has;
	struct uns_credentials now;
};

int uns_credential_source_new(struct uns_http *http, struct uns_credential_source **out, struct uns_err *err)
{
	struct uns_credential_source *s = calloc(1, sizeof(*s));

	UNS_TRY_ALLOC(s, err);
	s->http = http;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->found, NULL);
	*out = s;
	return 0;
}

void uns_credential_source_free(struct uns_credential_source *s)
{
	if (!s)
		return;
	uns_credentials_fini(&s->now);
	pthread_cond_destroy(&s->found);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* -- where they are looked for -- */

static int take(const char *id, const char *secret, const char *token, struct uns_credentials *out, struct uns_err *err)
{
	out->id = strdup(id);
	out->secret = strdup(secret);
	out->token = token && *token ? strdup(token) : NULL;
	return out->id && out->secret && (!token || !*token || out->token) ? 1 : uns_oom(err);
}

/* 1 = found, 0 = none there. */
static int from_environment(struct uns_credentials *out, struct uns_err *err)
{
	const char *id = getenv("AWS_ACCESS_KEY_ID"), *secret = getenv("AWS_SECRET_ACCESS_KEY");

	return id && *id && secret && *secret ? take(id, secret, getenv("AWS_SESSION_TOKEN"), out, err) : 0;
}

static int from_profile(struct uns_credentials *out, struct uns_err *err)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	const char *id = uns_profile_value("aws_access_key_id", &arena);
	const char *secret = id ? uns_profile_value("aws_secret_access_key", &arena) : NULL;
	int code = secret ? take(id, secret, uns_profile_value("aws_session_token", &arena), out, err) : 0;

	if (arena.failed)
		code = uns_oom(err);
	uns_arena_fini(&arena);
	return code;
}

/* The next place would have the key of another one than the user means. */
static int refuse_profile(struct uns_err *err)
{
	static const char *const keys[] = { "role_arn", "sso_session", "sso_start_url", "credential_process" };
	struct uns_arena arena = UNS_ARENA_INIT;
	size_t i;
	int code = 0;

	for (i = 0; i < sizeof(keys) / sizeof(*keys) && !code; i++)
		if (uns_profile_value(keys[i], &arena))
			code = uns_fail(
				err, -ENOTSUP,
				"the profile \"%s\" gets its access key by %s, which unshard does not do: set the "
				"variables that `aws configure export-credentials --profile %s --format env` prints",
				uns_profile_name(), keys[i], uns_profile_name());
	uns_arena_fini(&arena);
	return code;
}

static int look(struct uns_http *http, struct uns_credentials *out, struct uns_err *err)
{
	int code = from_environment(out, err);

	if (code == 0)
		code = uns_role_of_web_identity(http, out, err);
	if (code == 0)
		code = refuse_profile(err);
	if (code == 0)
		code = from_profile(out, err);
	if (code == 0)
		code = uns_role_of_container(http, out, err);
	if (code == 0)
		code = uns_role_of_machine(http, out, err);
	return code;
}

/* -- keeping them -- */

static bool is_good(const struct uns_credentials *c)
{
	return !c->expires_s || c->expires_s - uns_wall_ns() / 1000000000 > LEAST_LEFT_S;
}

static char *copy(const char *text, bool *failed)
{
	char *own = text ? strdup(text) : NULL;

	*failed |= text && !own;
	return own;
}

static int give(const struct uns_credentials *from, struct uns_credentials *out, struct uns_err *err)
{
	bool failed = false;

	*out = (struct uns_credentials){ copy(from->id, &failed), copy(from->secret, &failed),
					 copy(from->token, &failed), from->expires_s };
	if (!failed)
		return 0;
	uns_credentials_fini(out);
	return uns_oom(err);
}

int uns_credentials_get(struct uns_credential_source *s, struct uns_credentials *out, struct uns_err *err)
{
	struct uns_credentials fresh = { 0 };
	int code = 0;

	pthread_mutex_lock(&s->lock);
	while (s->is_looking)
		pthread_cond_wait(&s->found, &s->lock);
	if (!s->has || !is_good(&s->now)) {
		s->is_looking = true;
		pthread_mutex_unlock(&s->lock);
		code = look(s->http, &fresh, err);
		pthread_mutex_lock(&s->lock);
		s->is_looking = false;
		pthread_cond_broadcast(&s->found);
		if (code >= 0) {
			uns_credentials_fini(&s->now);
			s->now = fresh;
			s->has = true;
		} else {
			uns_credentials_fini(&fresh);
		}
	}
	if (code >= 0)
		code = give(&s->now, out, err);
	pthread_mutex_unlock(&s->lock);
	return code;
}

void uns_credentials_refused(struct uns_credential_source *s)
{
	pthread_mutex_lock(&s->lock);
	s->has = false;
	pthread_mutex_unlock(&s->lock);
}
