/* The LRU of snapshots, and how one is built. */
#include "session/snapshots.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "facts/siblings.h"
#include "engine/places.h"
#include "facts/stored_units.h"
#include "session/last_look.h"
#include "session/means.h"
#include "session/open_catalog.h"
#include "session/sealed.h"
#include "session/shared_memos.h"

void shown_free(struct shown *shown)
{
	struct shown *next;

	for (; shown; shown = next) {
		next = shown->next;
		uns_vtree_fini(&shown->tree);
		free(shown);
	}
}

/* May close files and wait. */
static void snapshot_free(struct snapshot *snap)
{
	shown_free(snap->shown);
	uns_backing_free(snap->backing);
	uns_catalog_free(snap->cat);
	training_found_fini(&snap->training);
	steps_found_fini(&snap->steps);
	masters_found_fini(&snap->masters);
	uns_arena_fini(&snap->ties.arena);
	companions_fini(&snap->beside);
	free(snap);
}

/* -- the LRU; lock held for all of these -- */

static size_t snapshot_bytes(const struct snapshot *snap)
{
	const struct shown *shown;
	size_t bytes = sizeof(*snap) + snap->beside.arena.held_bytes;

	if (snap->cat)
		bytes += snap->cat->arena.held_bytes + snap->cat->n_pieces * sizeof(*snap->cat->pieces) +
			 snap->cat->n_tensors * sizeof(*snap->cat->tensors);
	if (snap->backing)
		bytes += uns_backing_bytes(snap->backing);
	if (snap->ties_learned.known)
		bytes += snap->ties.arena.held_bytes;
	if (snap->training_learned.known)
		bytes += snap->training.arena.held_bytes;
	if (snap->steps_learned.known)
		bytes += snap->steps.arena.held_bytes;
	if (snap->masters_learned.known)
		bytes += snap->masters.arena.held_bytes;
	for (shown = snap->shown; shown; shown = shown->next)
		if (!shown->making)
			bytes += shown->tree.arena.held_bytes;
	return bytes;
}

static void make_newest(struct snapshot_cache *c, struct snapshot *snap)
{
	snap->used_ns = uns_now_ns();
	TAILQ_INSERT_TAIL(&c->by_use, snap, by_use);
}

/* Takes it out of the table. If it has no references, the caller frees it after dropping the lock. */
static void table_remove(struct snapshot_cache *c, struct snapshot *snap)
{
	TAILQ_REMOVE(&c->by_use, snap, by_use);
	c->bytes -= snap->bytes;
	if (snap->record)
		snap->record->snap = NULL;
	snap->record = NULL;
}

void snapshots_account(struct snapshot_cache *c, struct snapshot *snap)
{
	size_t bytes = snapshot_bytes(snap);

	if (snap->record)
		c->bytes += bytes - snap->bytes;
	snap->bytes = bytes;
}

/* What is to be freed once the lock is dropped. */
struct dead {
	struct snapshot_list snapshots;
	struct shown *shown;
};

static void take_shown(struct snapshot_cache *c, struct snapshot *snap, struct dead *dead)
{
	struct shown **last = &snap->shown;

	while (*last)
		last = &(*last)->next;
	*last = dead->shown;
	dead->shown = UNS_TAKE(snap->shown);
	snapshots_account(c, snap);
}

static size_t room_bytes(const struct snapshot_cache *c)
{
	return c->budget_bytes - c->contents.bytes;
}

static const int64_t in_use_ns = 60 * INT64_C(1000000000);

/* Room is made for more than one snapshot, so that not each that comes needs a way through the whole list. */
static size_t goal_bytes(const struct snapshot_cache *c)
{
	return room_bytes(c) - room_bytes(c) / 16;
}

/* Snapshots last used before `before_ns`. The one that was used last of all stays, however large it is: a program that
 * opens a directory, lists it and reads a file has it made once, not for each of its calls. */
static void evict_whole(struct snapshot_cache *c, size_t goal, int64_t before_ns, struct dead *dead)
{
	struct snapshot *snap, *newer;

	for (snap = TAILQ_FIRST(&c->by_use); snap && c->bytes > goal && snap->used_ns < before_ns; snap = newer) {
		newer = TAILQ_NEXT(snap, by_use);
		if (snap->refs || !newer)
			continue;
		table_remove(c, snap);
		TAILQ_INSERT_TAIL(&dead->snapshots, snap, by_use);
	}
}

static void evict_trees(struct snapshot_cache *c, struct dead *dead)
{
	struct snapshot *snap;

	for (snap = TAILQ_FIRST(&c->by_use); snap && c->bytes > goal_bytes(c); snap = TAILQ_NEXT(snap, by_use))
		if (!snap->refs && snap->shown && TAILQ_NEXT(snap, by_use))
			take_shown(c, snap, dead);
}

/* A tree is made of its catalog in a fraction of the time that the catalog takes, and listing all checkpoints in one
 * view after the other needs each catalog again, each tree once. So of what is in use trees go first. */
static void evict(struct snapshot_cache *c, struct dead *dead)
{
	if (c->bytes <= room_bytes(c))
		return;
	evict_whole(c, goal_bytes(c), uns_now_ns() - in_use_ns, dead);
	evict_trees(c, dead);
	evict_whole(c, goal_bytes(c), INT64_MAX, dead);
}

/* -- the same without it -- */

static void free_all(struct dead *dead)
{
	struct snapshot *snap;

	shown_free(dead->shown);
	while ((snap = TAILQ_FIRST(&dead->snapshots))) {
		TAILQ_REMOVE(&dead->snapshots, snap, by_use);
		snapshot_free(snap);
	}
}

void snapshots_put(struct snapshot_cache *c, struct snapshot *snap)
{
	struct dead dead = { TAILQ_HEAD_INITIALIZER(dead.snapshots), NULL };

	if (!snap)
		return;
	pthread_mutex_lock(c->lock);
	snap->refs--;
	if (!snap->record && !snap->refs)
		TAILQ_INSERT_TAIL(&dead.snapshots, snap, by_use); /* snapshots_forget did this already */
	else
		evict(c, &dead);
	pthread_mutex_unlock(c->lock);
	free_all(&dead);
}

void snapshots_forget(void *ctx, struct dir_record *record)
{
	struct snapshot_cache *c = ctx;
	struct snapshot *snap;

	pthread_mutex_lock(c->lock);
	snap = record->snap;
	if (snap) {
		table_remove(c, snap);
		snap->refs++;
	}
	pthread_mutex_unlock(c->lock);
	contents_forget(&c->contents, record);
	if (snap) {
		uns_backing_let_go(snap->backing);
		snapshots_put(c, snap); /* frees it, unless it is read */
	}
}

void snapshots_rest(struct snapshot_cache *c)
{
	struct dead dead = { TAILQ_HEAD_INITIALIZER(dead.snapshots), NULL };

	pthread_mutex_lock(c->lock);
	evict_whole(c, c->budget_bytes / 8, uns_now_ns() - in_use_ns, &dead);
	pthread_mutex_unlock(c->lock);
	free_all(&dead);
	if (c->trim)
		malloc_trim(0);
}

bool snapshots_learn(struct snapshot_cache *c, struct learned *learned)
{
	bool mine;

	pthread_mutex_lock(c->lock);
	while (learned->busy)
		pthread_cond_wait(c->changed, c->lock);
	mine = !learned->known;
	learned->busy = mine;
	pthread_mutex_unlock(c->lock);
	return mine;
}

void snapshots_learned(struct snapshot_cache *c, struct snapshot *snap, struct learned *learned, bool known)
{
	pthread_mutex_lock(c->lock);
	learned->busy = false;
	learned->known = known;
	snapshots_account(c, snap);
	pthread_cond_broadcast(c->changed);
	pthread_mutex_unlock(c->lock);
}

/* -- building -- */

/* The format's options with what the store has for this checkpoint; texts live in the arena. */
static int options_for(const struct snapshot_cache *c, const struct dir_record *record, struct uns_arena *arena,
		       struct uns_format_options *out, struct uns_err *err)
{
	struct uns_store_fact *v = NULL;
	size_t n = 0;

	*out = *c->format;
	if (!record->is.format->wants_units)
		return 0;
	UNS_TRY(store_facts_known(c->store, record->path, record_has_facts(record), arena, &v, &n, err));
	out->fsdp_units = stored_units_find(v, n, record->is.own_generation, &out->fsdp_units_stale);
	return 0;
}

/* From a memo that all machines share, from this one's store, else from the checkpoint's own metadata. *places is of
 * such a memo, in `kept`, or empty. */
static int find_catalog(const struct snapshot_cache *c, const struct dir_record *record, const struct memo_subject *of,
			struct uns_capture *capture, struct uns_arena *kept, struct snapshot *snap,
			struct uns_span *places, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_format_options options;
	const struct opening opening = { c->root, c->adapters->name, record->path, &record->is, &options };
	int found;

	snap->lasting = memo_lasts(__atomic_load_n(&record->newest_ns, __ATOMIC_RELAXED));
	UNS_TRY(found = shared_memos_load(c->memos, record, capture, kept, &snap->cat, places, err));
	if (found)
		return 0;
	if (memo_load_catalog(c->memo, of, capture, &snap->cat) == 0)
		return 0;
	UNS_TRY(uns_catalog_new(record->path, &snap->cat, err));
	UNS_TRY(options_for(c, record, &arena, &options, err));
	UNS_TRY(open_catalog(&opening, capture, snap->cat, err));
	if (snap->lasting)
		memo_save_catalog(c->memo, of, snap->cat);
	return 0;
}

static void load_crcs(const struct snapshot_cache *c, struct snapshot *snap)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_span bytes;

	if (memo_load_crcs(c->memo, snap->crc_key, &arena, &bytes) == 0)
		uns_backing_crc_import(snap->backing, bytes);
	snap->crcs_kept = uns_backing_crc_changes(snap->backing);
}

void snapshots_save_crcs(const struct snapshot_cache *c, struct snapshot *snap)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text bytes = UNS_TEXT_INIT;
	uint64_t changes = uns_backing_crc_changes(snap->backing);

	if (!snap->lasting || __atomic_exchange_n(&snap->crcs_kept, changes, __ATOMIC_RELAXED) == changes)
		return;
	uns_backing_crc_export(snap->backing, &bytes);
	memo_save_crcs(c->memo, snap->crc_key, &bytes);
}

/* What the seal disproves, or what changed places since the last look, is a finding of the catalog's, added after the
 * catalog was kept for others: it keeps views from being shown like any other. */
static int compare_with_before(const struct snapshot_cache *c, const struct dir_record *record,
			       struct uns_capture *capture, struct uns_catalog *cat, struct uns_err *err)
{
	const struct uns_seal_look look = {
		.root = c->root, .path = record->path, .hidden = c->hidden, .capture = capture
	};
	const size_t n = cat->n_findings;
	bool is_sealed;

	UNS_TRY(sealed_compare_catalog(&c->seals, &look, cat, &is_sealed, err));
	/* The seal has more of it. */
	return is_sealed && cat->n_findings > n ? 0 : last_look_compare(c->store, c->root, is_sealed, cat, err);
}

/* A file that another node wrote while this kernel read it may be kept with bytes of before, under the times of after
 * (CephFS does), or with those of another save in the same second. So what was written a moment ago, or while it was
 * known here, is read from its storage, once for each record: when it has settled, once more. */
static void forget_old_pages(struct dir_record *record, struct uns_capture *capture)
{
	if (!record->pages_forgotten && (record->young || record->changed_ns))
		uns_capture_forget_pages(capture);
	record->pages_forgotten = true;
}

static int fill(const struct snapshot_cache *c, const struct dir_record *record, struct uns_capture *capture,
		struct snapshot *snap, struct uns_err *err)
{
	const struct companions_input beside = {
		c->root,  record->path,  c->models,  c->store, record_has_facts(record),
		c->strip, c->keep_names, c->adapters
	};
	const struct means_input mean = { c->root, c->format, c->mean };
	UNS_CLEANUP(uns_arena_fini) struct uns_arena kept = UNS_ARENA_INIT;
	struct uns_span places = uns_span_of(NULL, 0);
	/* A catalog is made of the files, and of a layout from the store where the format has one. */
	const struct memo_subject of = { record->path, record->is.format->name, record->is.own_generation,
					 record->is.format->wants_units ? record->is.facts_digest : 0 };

	UNS_TRY(find_catalog(c, record, &of, capture, &kept, snap, &places, err));
	snap->crc_key = memo_crc_key(c->memo, &of, snap->cat); /* of the checkpoint's files, without borrowed ones */
	UNS_TRY(companions_choose(&beside, snap->cat, &snap->beside, err));
	if (snap->cat->summary.resumed_by & UNS_BY_TRAINER)
		UNS_TRY(siblings_look(c->root, capture, record->path, err));
	UNS_TRY(compare_with_before(c, record, capture, snap->cat, err));
	if (record->n_averaged) {
		UNS_TRY(means_add(&mean, record, capture, snap->cat, err));
		snap->lasting = false; /* the CRCs that are kept are of the checkpoint's own tensors */
	}
	snap->cat->capture = NULL;
	UNS_TRY(uns_backing_new(c->engine, snap->cat, &snap->backing, err));
	UNS_TRY(uns_places_import(snap->backing, places, err));
	if (!record->n_averaged)
		load_crcs(c, snap);
	return 0;
}

static int snapshot_build(const struct snapshot_cache *c, const struct dir_record *record, struct uns_capture *capture,
			  struct snapshot **out, struct uns_err *err)
{
	struct snapshot *snap = calloc(1, sizeof(*snap));
	int code;

	UNS_TRY_ALLOC(snap, err);
	code = fill(c, record, capture, snap, err);
	if (code < 0)
		snapshot_free(snap);
	else
		*out = snap;
	return code;
}

/* Lock held. The record may have been replaced while the snapshot was built: then the snapshot belongs
 * to its caller alone. */
static int publish(struct snapshot_cache *c, struct dir_record *record, struct snapshot *snap,
		   struct uns_inputs **inputs, struct dead *dead, struct uns_err *err)
{
	const bool reopened = record->opened;
	int code = record->replaced ? 0 : records_opened(record, inputs, err);

	if (code < 0) {
		TAILQ_INSERT_TAIL(&dead->snapshots, snap, by_use);
		return code;
	}
	snap->refs = 1;
	if (!record->replaced && !record->snap) {
		snap->record = record;
		record->snap = snap;
		record->reopened = reopened;
		record->finished = snap->cat->summary.finished;
		record->overwritten = snap->cat->summary.overwritten;
		record->weights_overwritten = snap->cat->summary.weights_overwritten;
		record->step = snap->cat->summary.step;
		record->world_size = snap->cat->summary.world_size;
		make_newest(c, snap);
		snapshots_account(c, snap);
	}
	evict(c, dead);
	return 0;
}

/* Lock held. Returns what is to be freed. */
static struct uns_finding *remember_failure(struct dir_record *record, const struct uns_finding *f,
					    struct uns_inputs **inputs)
{
	struct uns_finding *was = record->open_why;

	if (records_opened(record, inputs, NULL) < 0)
		return NULL;
	record->open_why = uns_finding_dup(f);
	return was;
}

/* Parsing metadata leaves holes, several times as large as the catalog. Giving them back costs as much for a small
 * one as for a large one, so that is done once for many small ones. */
static void give_memory_back(struct snapshot_cache *c, const struct snapshot *snap)
{
	size_t bytes = snap ? snapshot_bytes(snap) : SNAPSHOTS_TRIM_BYTES; /* what failed may have taken any amount */

	if (!c->trim || __atomic_add_fetch(&c->untrimmed_bytes, bytes, __ATOMIC_RELAXED) < SNAPSHOTS_TRIM_BYTES)
		return;
	__atomic_store_n(&c->untrimmed_bytes, 0, __ATOMIC_RELAXED);
	malloc_trim(0);
}

static int build_for(struct snapshot_cache *c, struct dir_record *record, struct snapshot **out, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct dead dead = { TAILQ_HEAD_INITIALIZER(dead.snapshots), NULL };
	struct snapshot *snap = NULL;
	struct uns_capture *capture = NULL;
	struct uns_err own = { .keep = &arena };
	bool seen = records_capture(c->records, record, &capture, &own) == 0;
	struct uns_inputs *inputs = NULL;
	struct uns_finding *was = NULL;
	struct uns_finding f;
	int code = own.code;

	if (seen) {
		forget_old_pages(record, capture);
		code = snapshot_build(c, record, capture, &snap, &own);
		inputs = uns_inputs_ref(*uns_capture_inputs(capture));
	}
	f = uns_finding_quoting(UNS_FOUND_CHECKPOINT_UNREADABLE, &own, UNS_SCOPE_ALL);
	uns_capture_free(capture);
	give_memory_back(c, snap);
	pthread_mutex_lock(c->lock);
	if (code == 0)
		code = publish(c, record, snap, &inputs, &dead, &own);
	else if (seen && uns_code_is_finding(code)) /* what is wrong with the moment is forgotten */
		was = remember_failure(record, &f, &inputs);
	record->building = false;
	pthread_cond_broadcast(c->changed);
	pthread_mutex_unlock(c->lock);
	free(was);
	free_all(&dead);
	uns_inputs_put(inputs);
	*out = code == 0 ? snap : NULL;
	if (code < 0 && seen && uns_code_is_finding(code))
		return uns_fail_with(err, &f); /* the next caller gets the same finding from record->open_why */
	return code < 0 ? uns_fail_copy(err, &own) : 0;
}

int snapshots_get(struct snapshot_cache *c, struct dir_record *record, struct snapshot **out, struct uns_err *err)
{
	struct snapshot *snap;
	int code = 0;

	pthread_mutex_lock(c->lock);
	while (record->building)
		pthread_cond_wait(c->changed, c->lock);
	snap = record->snap;
	if (snap) {
		snap->refs++;
		TAILQ_REMOVE(&c->by_use, snap, by_use);
		make_newest(c, snap);
	} else if (record->open_why) {
		code = uns_fail_with(err, record->open_why);
	} else {
		record->building = true;
	}
	pthread_mutex_unlock(c->lock);
	if (snap || code < 0) {
		*out = snap;
		return code;
	}
	return build_for(c, record, out, err);
}

uint64_t snapshots_generation(struct snapshot_cache *c, struct dir_record *record)
{
	struct snapshot *snap = NULL;
	bool opened;
	uint64_t generation = records_generation(c->records, record, &opened);

	if (opened || !record->is.format)
		return generation;
	if (snapshots_get(c, record, &snap, NULL) == 0)
		snapshots_put(c, snap);
	return records_generation(c->records, record, &opened);
}

/* -- CRCs, one asker at a time: a second would read the same data again -- */

/* Lock held. A caller can also give up while it waits for its turn. */
static int wait_turn(const struct snapshot_cache *c, const struct snapshot *snap, const struct uns_stop *stop,
		     struct uns_err *err)
{
	struct timespec until;

	while (snap->crcs_busy) {
		if (stop && stop->asked(stop->ctx))
			return uns_fail(err, -EINTR, "interrupted while waiting for CRCs");
		clock_gettime(CLOCK_MONOTONIC, &until); /* the wall clock may be set meanwhile */
		until.tv_sec += (until.tv_nsec + 100000000) / 1000000000;
		until.tv_nsec = (until.tv_nsec + 100000000) % 1000000000;
		pthread_cond_clockwait(c->changed, c->lock, CLOCK_MONOTONIC, &until);
	}
	return 0;
}

int snapshots_find_crcs(const struct snapshot_cache *c, struct snapshot *snap, const struct uns_layout *layout,
			const struct uns_stop *stop, struct uns_err *err)
{
	int code;

	pthread_mutex_lock(c->lock);
	code = wait_turn(c, snap, stop, err);
	if (code == 0)
		snap->crcs_busy = true;
	pthread_mutex_unlock(c->lock);
	if (code < 0)
		return code;

	code = uns_backing_crcs_find(snap->backing, layout, stop, err);

	pthread_mutex_lock(c->lock);
	snap->crcs_busy = false;
	pthread_cond_broadcast(c->changed);
	pthread_mutex_unlock(c->lock);
	snapshots_save_crcs(c, snap);
	return code;
}
