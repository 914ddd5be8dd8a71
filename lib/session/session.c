/* Opening and closing a session; options; the errors that people look for afterwards. */
#include "session/session.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/path.h"

enum {
	DEFAULT_SETTLE_S = 60,
	RECHECK_MS = 1000, /* with the kernel's 2 s, what is new shows within 5 s */
};
#define DEFAULT_SHARD_BYTES UINT64_C(50000000000)
#define DEFAULT_MEM_BYTES   (UINT64_C(64) << 20)
#define DEFAULT_SPILL_BYTES (UINT64_C(16) << 30)

const char *unshard_version(void)
{
	return UNSHARD_VERSION;
}

int64_t session_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int give_error(struct unshard_error *out, const struct uns_err *err, int code)
{
	if (out && code < 0) {
		out->code = code;
		snprintf(out->text, sizeof(out->text), "%s",
			 err->text[0] ? err->text : strerror(-code));
	}
	return code;
}

void session_error(struct unshard *u, const struct uns_err *err, const char *where)
{
	struct uns_text line = UNS_TEXT_INIT;
	char stamp[32];
	time_t now = time(NULL);
	struct tm tm;
	char **slot;

	gmtime_r(&now, &tm);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%SZ", &tm);
	uns_log(&u->log, UNS_LOG_ERROR, "%s: %s", where, err->text);
	__atomic_add_fetch(&u->n_errors, 1, __ATOMIC_RELAXED);
	uns_text_printf(&line, "%s %s: %s", stamp, where, err->text);
	pthread_mutex_lock(&u->lock);
	slot = &u->error_line[u->n_error_lines++ % ERROR_LOG_LINES];
	free(*slot);
	*slot = uns_text_take(&line, NULL);
	pthread_mutex_unlock(&u->lock);
}

bool session_hides(const struct unshard *u, const char *path)
{
	return u->hidden && *u->hidden && uns_path_within(path, u->hidden);
}

const struct uns_view *view_find(const char *name, size_t len, uint64_t *parameter)
{
	char text[64];
	size_t i, n;

	if (len >= sizeof(text))
		return NULL;
	memcpy(text, name, len);
	text[len] = '\0';
	for (i = 0; uns_views[i]; i++) {
		n = strlen(uns_views[i]->name);
		if (strncmp(text, uns_views[i]->name, n) != 0)
			continue;
		if (text[n] == '\0' && uns_views[i]->parse("", parameter))
			return uns_views[i];
		if (text[n] == '-' && text[n + 1] && uns_views[i]->parse(text + n + 1, parameter))
			return uns_views[i];
	}
	return NULL;
}

static int copy_strings(struct unshard *u, const char *const *from, size_t n,
			const char *const **out)
{
	const char **copy = UNS_NEW_N(&u->arena, const char *, n);
	size_t i;

	for (i = 0; copy && i < n; i++)
		if (!(copy[i] = uns_arena_str(&u->arena, from[i])))
			return -ENOMEM;
	*out = copy;
	return copy ? 0 : -ENOMEM;
}

static int open_model_dir(struct unshard *u, const char *text, struct uns_err *err)
{
	struct model_dir *m = &u->model[u->n_model];
	const struct uns_root_options trusted = { .trusted = true };
	const char *equals = strchr(text, '=');

	/* A directory whose own name holds '=' wins over RUN=DIR. */
	if (equals && access(text, F_OK) != 0) {
		m->run = uns_arena_strn(&u->arena, text, (size_t)(equals - text));
		text = equals + 1;
	}
	UNS_TRY(uns_root_open(text, &trusted, &m->root, err));
	u->n_model++;
	return 0;
}

static int open_models(struct unshard *u, const struct unshard_options *o, struct uns_err *err)
{
	size_t i;

	u->model = UNS_NEW_N(&u->arena, struct model_dir, o->n_model);
	if (!u->model)
		return uns_oom(err);
	for (i = 0; i < o->n_model; i++)
		if (open_model_dir(u, o->model[i], err) < 0)
			return uns_fail_in(err, "model=%s", o->model[i]);
	return 0;
}

static int take_facts(struct unshard *u, const struct unshard_options *o, struct uns_err *err)
{
	size_t i;

	for (i = 0; i < o->n_fact; i++)
		UNS_TRY(training_check_option(o->fact[i], err));
	u->n_fact = o->n_fact;
	if (copy_strings(u, o->fact, o->n_fact, &u->fact) < 0)
		return uns_oom(err);
	return 0;
}

static int choose_view(struct unshard *u, const char *name, struct uns_err *err)
{
	if (!name)
		return 0;
	u->only = view_find(name, strlen(name), &u->only_parameter);
	return u->only ? 0 : uns_fail(err, -EINVAL, "view=%s: there is no such view", name);
}

/* Where the tree is mounted: goes into the lines to write; below SOURCE it is left out, so that the
 * session never looks into its own mount. */
static void find_mountpoint(struct unshard *u, const char *mountpoint)
{
	char real[PATH_MAX];
	const char *root = uns_root_path(u->root);

	if (!mountpoint || !realpath(mountpoint, real))
		return;
	u->mounted_at = uns_arena_str(&u->arena, real);
	if (uns_path_within(real, root) && strlen(real) > strlen(root))
		u->hidden = uns_arena_str(&u->arena,
					  real + strlen(root) + (root[strlen(root) - 1] != '/'));
}

static void set_defaults(struct unshard *u)
{
	struct unshard_options *o = &u->opt;

	if (!o->max_shard_size_bytes)
		o->max_shard_size_bytes = DEFAULT_SHARD_BYTES;
	if (!o->mem_bytes)
		o->mem_bytes = DEFAULT_MEM_BYTES;
	if (!o->cache_size_bytes)
		o->cache_size_bytes = DEFAULT_SPILL_BYTES;
	if (!o->settle_seconds)
		o->settle_seconds = DEFAULT_SETTLE_S;
	u->settle_ns = o->settle_seconds == UINT_MAX ? 0 : (int64_t)o->settle_seconds * 1000000000;
	u->recheck_ns = (int64_t)RECHECK_MS * 1000000;
}

static int choose_real_root(struct unshard *u, const char *source, struct uns_err *err)
{
	char real[PATH_MAX];

	if (!realpath(source, real))
		return uns_fail(err, -errno, "%s: %s", source, strerror(errno));
	u->real_root = uns_arena_str(&u->arena, real);
	return u->real_root ? 0 : uns_oom(err);
}

static int session_open(struct unshard *u, const char *source, const struct unshard_options *o,
			struct uns_err *err)
{
	struct uns_root_options root = { .follow = o->follow, .n_follow = o->n_follow };
	struct uns_engine_options engine = { 0 };

	u->opt = *o;
	set_defaults(u);
	UNS_TRY(uns_root_open(source, &root, &u->root, err));
	UNS_TRY(choose_real_root(u, source, err));
	UNS_TRY(meta_init(u, o->store, err));
	UNS_TRY(choose_view(u, o->view, err));
	UNS_TRY(open_models(u, o, err));
	UNS_TRY(take_facts(u, o, err));
	find_mountpoint(u, o->mountpoint);
	UNS_TRY(copy_strings(u, o->weight_root, o->n_weight_root,
			     &u->format_options.weight_roots));
	u->format_options.n_weight_roots = o->n_weight_root;
	UNS_TRY(units_assume(u, o->assume, err));
	memo_init(u, o);
	engine.cache_bytes = u->opt.mem_bytes / 2;
	engine.window_bytes = u->opt.mem_bytes / 2;
	engine.spill_bytes = u->opt.cache_size_bytes;
	engine.delay_read_us = o->delay_read_us;
	engine.log = &u->log;
	if (o->strip && !(u->opt.strip = uns_arena_str(&u->arena, o->strip)))
		return uns_oom(err);
	if (o->cache_dir && !(engine.cache_dir = uns_arena_str(&u->arena, o->cache_dir)))
		return uns_oom(err);
	return uns_engine_new(&engine, &u->engine, err);
}

int unshard_open(const char *source, const struct unshard_options *options, unshard **out,
		 struct unshard_error *error)
{
	static const struct unshard_options none;
	struct uns_err err = { 0 };
	struct unshard *u = calloc(1, sizeof(*u));
	int code;

	if (!options)
		options = &none;
	if (!u)
		return give_error(error, &err, -ENOMEM);
	u->log = (struct uns_log){ options->log, options->log_ctx, options->log_level };
	pthread_mutex_init(&u->lock, NULL);
	pthread_cond_init(&u->changed, NULL);
	pthread_rwlock_init(&u->store.lock, NULL);
	code = session_open(u, source, options, &err);
	if (code < 0) {
		unshard_close(u);
		return give_error(error, &err, code);
	}
	*out = u;
	return 0;
}

static void close_places(struct unshard *u)
{
	struct place *place;
	size_t at = 0;
	void *value;

	while (uns_map_next(&u->places, &at, NULL, &value)) {
		place = value;
		pthread_mutex_lock(&u->lock);
		snapshot_detach(u, place);
		pthread_mutex_unlock(&u->lock);
		place_put(u, place);
	}
	uns_map_fini(&u->places);
}

void unshard_close(unshard *u)
{
	size_t i;

	if (!u)
		return;
	close_places(u);
	uns_engine_free(u->engine);
	meta_fini(u);
	for (i = 0; i < u->n_model; i++)
		uns_root_close(u->model[i].root);
	uns_root_close(u->root);
	for (i = 0; i < ERROR_LOG_LINES; i++)
		free(u->error_line[i]);
	uns_arena_fini(&u->arena);
	pthread_cond_destroy(&u->changed);
	pthread_mutex_destroy(&u->lock);
	free(u);
}
