/* Opening and closing a session: which part is given what. */
#include "session/session.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "api/caller.h"
#include "io/mounts.h"
#include "session/ways_kept.h"

/* From "global_step_7/actor" to the run. */
enum { RUN_ABOVE = 2 };

enum { AHEAD_STORAGES = 16 }; /* that are asked ahead at once by threads: engine/ahead.h */

static int choose_real_root(struct unshard *u, const char *source, struct uns_err *err)
{
	char real[PATH_MAX];

	if (uns_root_is_remote(u->root)) {
		u->real_root = uns_root_path(u->root);
		return 0;
	}
	if (!realpath(source, real))
		return uns_fail(err, -errno, "%s: %s", source, strerror(errno));
	u->real_root = uns_arena_str(&u->arena, real);
	return u->real_root ? 0 : uns_oom(err);
}

static int open_engine(struct unshard *u, const struct unshard_options *o, struct uns_err *err)
{
	const enum uns_way usual = ways_usual(u->top.id.dev);
	const struct uns_engine_options engine = {
		.cache_bytes = u->opt.mem_bytes / 2,
		.window_bytes = u->opt.mem_bytes / 2,
		.ahead_bytes = u->opt.mem_bytes,
		.ahead_storages = AHEAD_STORAGES,
		.spill_bytes = u->opt.cache_size_bytes,
		.way = u->opt.finds_way ? usual : u->opt.way,
		.finds_way = u->opt.finds_way && usual == UNS_WAY_CACHE, /* where another is known, trials only cost */
		.keeps_pages = u->opt.keeps_pages,
		.ways = { ways_recall, ways_keep, &u->ways },
		.cache_dir = u->opt.cache_dir,
		.delay_read_us = o->delay_read_us,
		.log = &u->log,
	};

	return uns_engine_new(&engine, &u->engine, err);
}

static void connect(struct unshard *u, const struct unshard_options *o)
{
	const struct memo_options memo = { o->weight_root,       o->n_weight_root,     o->follow,        o->n_follow,
					   o->assume_fsdp_units, u->opt.adapters.name, u->opt.adapters.n };

	memo_init(&u->memo, &u->store, u->root, u->real_root, &memo);
	u->memos = (struct shared_memos){
		.dir = u->opt.memos.v,
		.n = u->opt.memos.n,
		.salt = shared_memo_salt(&memo),
		.log = &u->log,
		.root = u->root,
		.hidden = u->opt.hidden,
		.store = &u->store,
		.engine = u->engine,
		.format = &u->opt.format,
		.adapters = u->opt.adapters.name,
	};
	u->records = (struct record_table){
		.root = u->root,
		.hidden = u->opt.hidden,
		.adapters = u->opt.adapters.name,
		.lists = &u->lists,
		.store = &u->store,
		.settle_ns = u->opt.settle_ns,
		.recheck_ns = u->opt.recheck_ns,
		.forget = snapshots_forget,
		.ctx = &u->snapshots,
		.lock = &u->lock,
		.changed = &u->changed,
	};
	u->snapshots = (struct snapshot_cache){
		.root = u->root,
		.engine = u->engine,
		.format = &u->opt.format,
		.models = &u->opt.models,
		.strip = u->opt.strip,
		.keep_names = u->opt.keep_names,
		.mean = &u->opt.mean,
		.adapters = &u->opt.adapters,
		.store = &u->store,
		.seals = { &u->store, u->opt.seals },
		.hidden = u->opt.hidden,
		.memo = &u->memo,
		.memos = &u->memos,
		.records = &u->records,
		.budget_bytes = u->opt.mem_bytes / 2,
		.contents = { .lock = &u->lock, .most_bytes = u->opt.mem_bytes / 4 },
		.trim = o->trim_memory,
		.untrimmed_bytes = SNAPSHOTS_TRIM_BYTES,
		.lock = &u->lock,
		.changed = &u->changed,
	};
	TAILQ_INIT(&u->snapshots.by_use);
	TAILQ_INIT(&u->snapshots.contents.by_use);
}

static void look_at_top(struct unshard *u)
{
	struct uns_stat st;

	devices_saw(&u->records.devices, "", u->top.id.dev);
	u->has_info_name = u->opt.only && uns_root_stat(u->root, SESSION_INFO_DIR, false, &st, NULL) == 0;
}

static int session_open(struct unshard *u, const char *source, const struct unshard_options *o, struct uns_err *err)
{
	struct uns_root_options root = { .follow = o->follow, .n_follow = o->n_follow, .above = RUN_ABOVE };

	UNS_TRY(uns_root_open(source, &root, &u->root, err));
	UNS_TRY(choose_real_root(u, source, err));
	UNS_TRY(store_link_choose(&u->store, o->no_store, o->store, u->real_root, &u->arena, err));
	UNS_TRY(session_options_take(&u->opt, o, u->root, &u->arena, err));
	UNS_TRY(uns_root_self(u->root, &u->top, err));
	u->ways = (struct ways_kept){ &u->store, u->opt.keeps_pages };
	UNS_TRY(open_engine(u, o, err));
	connect(u, o);
	look_at_top(u);
	/* What such a mount shows are this SOURCE's checkpoints, or another's: once more. */
	return uns_mounts_below(u->real_root, "fuse.unshard", &u->arena, &u->records.mounts, &u->records.n_mounts, err);
}

/* Bytes kept free for flags to come count as a field that is not known. */
static int take_options(struct unshard_options *own, const struct unshard_options *options, struct uns_err *err)
{
	static const bool zero[sizeof(own->reserved)];

	UNS_TRY(caller_take(own, options, "options", err));
	if (memcmp(own->reserved, zero, sizeof(zero)) != 0)
		return uns_fail(err, -E2BIG, "struct unshard_options: its reserved bytes are not zero");
	return 0;
}

int unshard_open(const char *source, const struct unshard_options *options, unshard **out, struct unshard_error *error)
{
	struct unshard_options own = CALLER_OWN(struct unshard_options);
	struct uns_err err = { 0 };
	struct unshard *u;
	int code = options ? take_options(&own, options, &err) : 0;

	if (code < 0)
		return give_error(error, &err, code);
	u = calloc(1, sizeof(*u));
	if (!u)
		return give_error(error, &err, -ENOMEM);
	u->log = (struct uns_log){ own.log, own.log_ctx, (int)own.log_level };
	pthread_mutex_init(&u->lock, NULL);
	usage_init(&u->usage);
	uns_cohorts_init(&u->directories);
	pthread_cond_init(&u->changed, NULL);
	store_link_init(&u->store, &u->log);
	uns_kept_lists_init(&u->lists);
	uns_ring_init(&u->errors);
	code = session_open(u, source, &own, &err);
	if (code < 0) {
		unshard_close(u);
		return give_error(error, &err, code);
	}
	*out = u;
	return 0;
}

const char *unshard_store_directory(const unshard *u)
{
	return u->store.directory;
}

const char *unshard_cache_directory(const unshard *u)
{
	return uns_engine_cache_dir(u->engine);
}

const char *unshard_seals_directory(const unshard *u)
{
	return u->opt.seals_directory;
}

void unshard_rest(unshard *u)
{
	snapshots_rest(&u->snapshots);
	uns_root_rest(u->root);
}

void unshard_close(unshard *u)
{
	if (!u)
		return;
	records_fini(&u->records);
	uns_kept_lists_fini(&u->lists);
	uns_engine_free(u->engine);
	store_link_fini(&u->store);
	session_options_fini(&u->opt);
	uns_root_close(u->root);
	uns_ring_fini(&u->errors);
	uns_arena_fini(&u->arena);
	pthread_cond_destroy(&u->changed);
	pthread_mutex_destroy(&u->lock);
	usage_fini(&u->usage);
	uns_cohorts_fini(&u->directories);
	free(u);
}
