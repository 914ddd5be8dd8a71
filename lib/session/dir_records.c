/* What each directory of SOURCE is, and whether that is still so. Run-level directories are polled
 * (notification reports nothing on network file systems): an answer holds for recheck_ns, then the
 * directory's files are compared by identity. */
#include "session/dir_records.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "io/numbers.h"

/* -- records -- */

static void verdicts_free(struct dir_record *record)
{
	struct verdict *v = record->verdict, *next;

	for (; v; v = next) {
		next = v->next;
		free(v->why);
		free(v);
	}
	record->verdict = NULL;
}

static void record_free(struct dir_record *record)
{
	if (!record)
		return;
	free(record->key);
	verdicts_free(record);
	uns_capture_free(record->capture);
	examined_fini(&record->is);
	free(record->open_why);
	free(record->path);
	free(record);
}

/* No path has two slashes. NULL = out of memory. */
static char *key_of(const char *path, unsigned n_averaged)
{
	char *key;

	if (!n_averaged)
		return strdup(path);
	return asprintf(&key, "%s//%u", path, n_averaged) < 0 ? NULL : key;
}

static struct dir_record *record_new(const char *path, unsigned n_averaged)
{
	struct dir_record *record = calloc(1, sizeof(*record));

	if (!record)
		return NULL;
	record->path = strdup(path);
	record->key = key_of(path, n_averaged);
	record->n_averaged = n_averaged;
	record->step = record->world_size = UNS_UNKNOWN;
	if (record->path && record->key)
		return record;
	record_free(record);
	return NULL;
}

/* -- the table; lock held for all of these -- */

/* The table's reference goes to the caller. */
static struct dir_record *table_remove(struct record_table *t, struct dir_record *record)
{
	if (uns_map_get(&t->map, record->key) != record)
		return NULL;
	uns_map_del(&t->map, record->key);
	record->replaced = true;
	return record;
}

static bool table_add(struct record_table *t, struct dir_record *record)
{
	if (!uns_map_put(&t->map, record->key, record, NULL))
		return false;
	record->refs++;
	return true;
}

/* It was opened, and nothing of it has changed for so long that a save into it is not to be expected. */
static bool rests(const struct dir_record *record)
{
	const int64_t long_ns = 3600 * INT64_C(1000000000);

	return record->known && record->opened && !record->stale && !record->suspect && !record->young &&
	       uns_wall_ns() - record->newest_ns >= long_ns;
}

/* May it be looked at by its directories? */
static bool glance_is_enough(const struct dir_record *record, enum look look)
{
	const int64_t lists_ns = LISTS_S * INT64_C(1000000000);

	return look != LOOK_FULL && rests(record) &&
	       (look == LOOK_NAMES || uns_now_ns() - record->checked_ns < lists_ns);
}

/* For how long a look by its directories holds. */
static int64_t glance_holds_ns(const struct record_table *t, const struct dir_record *record)
{
	return t->recheck_ns + record->listing_ns;
}

static bool is_fresh(const struct record_table *t, const struct dir_record *record, enum look look)
{
	const int64_t now_ns = uns_now_ns();

	if (record->known && now_ns - record->checked_ns < t->recheck_ns)
		return true;
	return glance_is_enough(record, look) && now_ns - record->glanced_ns < glance_holds_ns(t, record);
}

/* The record, with a reference: fresh, or busy for the caller alone. NULL = out of memory. */
static struct dir_record *record_acquire(struct record_table *t, const char *path, unsigned n_averaged, enum look look,
					 bool *fresh)
{
	UNS_CLEANUP(uns_free_p) char *key = key_of(path, n_averaged);
	struct dir_record *record;

	if (!key)
		return NULL;
	while ((record = uns_map_get(&t->map, key)) && record->busy)
		pthread_cond_wait(t->changed, t->lock); /* it may have been replaced meanwhile */
	if (!record) {
		record = record_new(path, n_averaged);
		if (!record || !table_add(t, record)) {
			record_free(record);
			return NULL;
		}
	}
	record->refs++;
	*fresh = is_fresh(t, record, look);
	record->busy = !*fresh;
	return record;
}

bool records_changed_lately(const struct record_table *t, int64_t newest_ns)
{
	int64_t age_ns = uns_wall_ns() - newest_ns;

	return age_ns < t->settle_ns && age_ns > -t->settle_ns;
}

/* What was made of a checkpoint while it was young is not kept: a write may have been going on that had
 * changed its times before, and does not change them again. */
static bool has_settled(const struct record_table *t, const struct dir_record *record, const struct examined *f)
{
	return record->young && !records_changed_lately(t, f->newest_ns);
}

static bool same_as_known(const struct record_table *t, const struct dir_record *record, const struct examined *f)
{
	return record->known && record->is.format == f->format && !record->stale && !has_settled(t, record, f) &&
	       (f->same || (!f->format && record->is.begun == f->begun)) &&
	       uns_identity_equal(&record->is.stat.id, &f->stat.id) && record->is.stat.mode == f->stat.mode;
}

/* What may differ from one look to the next; all of it where the record is new. Leaves in *f and *capture what is
 * to be freed. */
static void record_update(const struct record_table *t, struct dir_record *record, struct examined *f,
			  struct uns_capture **capture, int64_t changed_ns)
{
	struct uns_inputs *was = record->is.inputs;
	struct own_dirs *dirs = record->is.dirs;

	if (!record->known)
		record->changed_ns = changed_ns;
	if (!f->glanced)
		__atomic_store_n(&record->newest_ns, f->newest_ns, __ATOMIC_RELAXED);
	if (!record->known) {
		record->young = f->format && records_changed_lately(t, f->newest_ns);
		record->is = *f;
		f->inputs = NULL;
		f->dirs = NULL;
		record->known = true;
	} else {
		record->is.at_ns = f->at_ns;
		record->is.facts = f->facts;
		record->is.dirs = f->dirs;
		f->dirs = dirs;
		if (!f->format) {
			record->is.inputs = f->inputs;
			f->inputs = was;
		}
	}
	if (!record->capture_taken && !f->glanced) {
		struct uns_capture *older = record->capture;

		record->capture = *capture;
		*capture = older;
	}
	record->glanced_ns = uns_now_ns();
	if (!f->glanced)
		record->checked_ns = record->glanced_ns;
	record->suspect &= f->glanced;
}

/* A record is constant once known, but for when it was looked at and what was concluded from it: where what was
 * examined differs, a new one replaces it. Returns the one that it is now; NULL = out of memory. */
static struct dir_record *record_renew(struct record_table *t, struct dir_record *record, const struct examined *f,
				       struct dir_record **old)
{
	struct dir_record *fresh;

	if (!record->known || same_as_known(t, record, f))
		return record;
	fresh = record_new(record->path, record->n_averaged);
	if (!fresh)
		return NULL;
	*old = table_remove(t, record);
	if (!table_add(t, fresh)) {
		record_free(fresh);
		return NULL;
	}
	fresh->refs++;
	return fresh;
}

/* Takes out the records below `path` that are not under one of `names` (NULL = all of them), chained by `next`. The
 * table's references go to the caller. */
static struct dir_record *table_remove_below(struct record_table *t, const char *path, const struct uns_map *names)
{
	const size_t skip = *path ? strlen(path) + 1 : 0;
	struct dir_record *record, *dead = NULL;
	char name[NAME_MAX + 1];
	size_t at = 0;
	void *value;

	while (uns_map_next(&t->map, &at, NULL, &value)) {
		record = value;
		if (strcmp(record->path, path) == 0 || !uns_path_within(record->path, path))
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(record->path + skip, "/"), record->path + skip);
		if (names && uns_map_get(names, name))
			continue;
		record->next = dead;
		dead = record;
	}
	for (record = dead; record; record = record->next)
		table_remove(t, record);
	return dead;
}

/* -- the same without it -- */

/* Give n references back. */
static void unref(struct record_table *t, struct dir_record *record, unsigned n)
{
	bool last;

	pthread_mutex_lock(t->lock);
	record->refs -= n;
	last = !record->refs;
	pthread_mutex_unlock(t->lock);
	if (last)
		record_free(record);
}

/* A plain directory has changed, or is there no longer: forget what was below it and has gone. Which names it has is
 * asked again; where that fails, nothing is forgotten yet. */
static void forget_gone(struct record_table *t, const char *path, bool is_there)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_map_fini) struct uns_map names = UNS_MAP_INIT;
	struct uns_listing list = { 0 };
	struct dir_record *dead, *next;
	size_t i;

	if (is_there && uns_root_list(t->root, path, &arena, &list, NULL) < 0)
		return;
	for (i = 0; i < list.n; i++)
		if (!uns_map_put(&names, list.v[i].name, &list, NULL))
			return;
	pthread_mutex_lock(t->lock);
	dead = table_remove_below(t, path, is_there ? &names : NULL);
	pthread_mutex_unlock(t->lock);
	for (; dead; dead = next) {
		next = dead->next;
		t->forget(t->ctx, dead);
		unref(t, dead, 1);
	}
}

/* Examined: the table is brought up to date, and what was made of an older record is let go of. The
 * caller's reference moves from `record` to *out. */
static int conclude(struct record_table *t, struct dir_record *record, int code, struct examined *f,
		    struct uns_capture *capture, struct dir_record **out, struct uns_err *err)
{
	struct dir_record *now = NULL, *old = NULL;
	const bool gone = code == -ENOENT || code == -ENOTDIR;

	pthread_mutex_lock(t->lock);
	record->busy = false;
	if (code == 0) {
		now = record_renew(t, record, f, &old);
		code = now ? 0 : uns_oom(err);
	}
	if (now)
		devices_saw(&t->devices, now->path, f->stat.id.dev);
	if (now)
		record_update(t, now, f, &capture, now == record ? 0 : uns_now_ns());
	else if (!old) /* it has gone, or cannot be looked at */
		old = table_remove(t, record);
	pthread_cond_broadcast(t->changed);
	pthread_mutex_unlock(t->lock);

	if (old)
		t->forget(t->ctx, old);
	if (old && !old->is.format && (now || gone))
		forget_gone(t, record->path, now != NULL);
	if (now != record || old)
		unref(t, record, (now != record) + (old != NULL));
	uns_capture_free(capture);
	examined_fini(f);
	*out = now;
	return code;
}

/* What the record is at this moment, for an examination without the lock; ends with examined_fini. Lock held. */
static struct examined copy_known(const struct dir_record *record)
{
	struct examined copy = record->is;

	uns_inputs_ref(copy.inputs);
	own_dirs_ref(copy.dirs);
	return copy;
}

static struct examiner examiner_of(const struct record_table *t, const struct dir_record *record,
				   const struct examined *before)
{
	return (struct examiner){ .root = t->root,
				  .hidden = t->hidden,
				  .lists = t->lists,
				  .store = t->store,
				  .adapters = t->adapters,
				  .path = record->path,
				  .before = record->known ? before : NULL };
}

static int find_record(struct record_table *t, const char *path, unsigned n_averaged, enum look look,
		       struct dir_record **out, struct uns_err *err)
{
	struct uns_capture *capture = NULL;
	struct examined found, before = { 0 };
	struct dir_record *record;
	struct examiner x;
	bool fresh, glance;
	int code;

	pthread_mutex_lock(t->lock);
	record = record_acquire(t, path, n_averaged, look, &fresh);
	glance = record && glance_is_enough(record, look);
	if (record && !fresh)
		before = copy_known(record);
	pthread_mutex_unlock(t->lock);
	UNS_TRY_ALLOC(record, err);
	*out = record;
	if (fresh)
		return 0;
	x = examiner_of(t, record, &before);
	x.glance = glance && uns_written_elsewhere(major(before.stat.id.dev), minor(before.stat.id.dev));
	code = examine(&x, &found, &capture, err);
	examined_fini(&before);
	return conclude(t, record, code, &found, capture, out, err);
}

static int get(struct record_table *t, const char *path, unsigned n_averaged, enum look look, struct dir_record **out,
	       struct uns_err *err)
{
	UNS_TRY(find_record(t, path, n_averaged, look, out, err));
	if ((*out)->is.format || (*out)->is.stat.kind == UNS_KIND_DIR)
		return 0;
	records_put(t, *out);
	*out = NULL;
	return uns_fail(err, -ENOTDIR, "%s is not a directory", path);
}

int records_get(struct record_table *t, const char *path, struct dir_record **out, struct uns_err *err)
{
	return get(t, path, 0, LOOK_FULL, out, err);
}

int records_get_averaged(struct record_table *t, const char *path, unsigned n, struct dir_record **out,
			 struct uns_err *err)
{
	return get(t, path, n, LOOK_FULL, out, err);
}

int records_look(struct record_table *t, const char *path, enum look look, struct dir_record **out, struct uns_err *err)
{
	return get(t, path, 0, look, out, err);
}

/* Was its name seen to be a directory so lately that it is not asked for again? Lock held. */
static bool is_still_itself(const struct record_table *t, const struct dir_record *record, enum look look)
{
	const int64_t holds_ns = glance_is_enough(record, look) ? glance_holds_ns(t, record) : t->recheck_ns;

	return record->itself_ns && uns_now_ns() - record->itself_ns < holds_ns;
}

struct dir_record *records_known(struct record_table *t, const char *path, enum look look)
{
	struct dir_record *record;

	pthread_mutex_lock(t->lock);
	record = uns_map_get(&t->map, path);
	if (record && !record->busy && is_fresh(t, record, look) && is_still_itself(t, record, look))
		record->refs++;
	else
		record = NULL;
	pthread_mutex_unlock(t->lock);
	return record;
}

void records_listed(struct record_table *t, const char *dir, const struct uns_listing *list, int64_t took_ns)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct dir_record *record;
	const char *path;
	size_t i;

	pthread_mutex_lock(t->lock);
	for (i = 0; i < list->n; i++) {
		path = uns_path_join(&arena, dir, list->v[i].name);
		record = path ? uns_map_get(&t->map, path) : NULL;
		if (record)
			record->listing_ns = took_ns;
	}
	pthread_mutex_unlock(t->lock);
}

void records_seen_itself(struct record_table *t, struct dir_record *record)
{
	pthread_mutex_lock(t->lock);
	record->itself_ns = uns_now_ns();
	pthread_mutex_unlock(t->lock);
}

void records_put(struct record_table *t, struct dir_record *record)
{
	if (record)
		unref(t, record, 1);
}

void records_suspect(struct record_table *t, struct dir_record *record, bool stale)
{
	pthread_mutex_lock(t->lock);
	record->stale |= stale;
	record->suspect = true;
	record->checked_ns = record->glanced_ns = uns_now_ns() - t->recheck_ns;
	pthread_mutex_unlock(t->lock);
}

/* The record of a plain directory, with a reference, unless the directory changed after the file did; else NULL.
 * *certain: by the clock, the file changed after the directory was examined. */
static struct dir_record *record_before(struct record_table *t, const char *path, int64_t ctime_ns, bool *certain)
{
	const int64_t tick_ns = 20000000; /* a file's times are as coarse as the kernel's clock */
	struct dir_record *record;

	pthread_mutex_lock(t->lock);
	record = uns_map_get(&t->map, path);
	if (record && record->known && !record->is.format && ctime_ns >= record->is.stat.id.ctime_ns) {
		record->refs++;
		*certain = ctime_ns + tick_ns >= record->is.at_ns;
	} else {
		record = NULL;
	}
	pthread_mutex_unlock(t->lock);
	return record;
}

bool records_outdated(struct record_table *t, const char *path, int64_t ctime_ns)
{
	bool outdated;
	struct dir_record *record = record_before(t, path, ctime_ns, &outdated);
	struct uns_stat now;

	if (!record)
		return false;
	/* The clock of a server may be behind: a file that is new in the directory has changed the directory too. */
	if (!outdated)
		outdated = uns_root_stat(t->root, path, true, &now, NULL) < 0 ||
			   !uns_identity_equal(&record->is.stat.id, &now.id);
	if (outdated)
		records_suspect(t, record, false);
	unref(t, record, 1);
	return outdated;
}

void records_fini(struct record_table *t)
{
	size_t at = 0;
	void *record;

	while (uns_map_next(&t->map, &at, NULL, &record)) {
		t->forget(t->ctx, record);
		record_free(record);
	}
	uns_map_fini(&t->map);
	devices_fini(&t->devices);
}

uint64_t records_device(struct record_table *t, const char *path, bool all)
{
	uint64_t device;

	pthread_mutex_lock(t->lock);
	device = all ? devices_in(&t->devices, path) : devices_of(&t->devices, path);
	pthread_mutex_unlock(t->lock);
	return device;
}

static int capture_again(struct record_table *t, const struct dir_record *record, const struct examined *was,
			 struct uns_capture **out, struct uns_err *err)
{
	struct examiner x = examiner_of(t, record, was);
	struct examined now;

	UNS_TRY(examine(&x, &now, out, err));
	examined_fini(&now);
	if (now.format == was->format && now.same)
		return 0;
	uns_capture_free(*out);
	*out = NULL;
	return uns_fail(err, -ESTALE, "%s has changed", record->path);
}

int records_capture(struct record_table *t, struct dir_record *record, struct uns_capture **out, struct uns_err *err)
{
	struct examined was;
	int code = 0;

	pthread_mutex_lock(t->lock);
	was = copy_known(record);
	*out = UNS_TAKE(record->capture);
	record->capture_taken = true;
	pthread_mutex_unlock(t->lock);
	if (!*out)
		code = capture_again(t, record, &was, out, err);
	examined_fini(&was);
	if (code < 0)
		records_suspect(t, record, false);
	return code;
}

uint64_t records_generation(struct record_table *t, struct dir_record *record, bool *opened)
{
	uint64_t generation;

	pthread_mutex_lock(t->lock);
	generation = record->is.generation;
	*opened = record->opened;
	pthread_mutex_unlock(t->lock);
	return generation;
}

int records_opened(struct dir_record *record, struct uns_inputs **inputs, struct uns_err *err)
{
	const uint64_t generation = examined_generation(&record->is, *inputs);
	struct uns_inputs *was = record->is.inputs;

	if (record->opened && generation != record->is.generation)
		return uns_fail(err, -ESTALE, "%s has changed", record->path);
	record->is.inputs = *inputs;
	*inputs = was;
	record->is.generation = generation;
	record->opened = true;
	return 0;
}

/* -- questions -- */

bool records_unsettled(const struct record_table *t, const struct dir_record *record)
{
	const int64_t newest_ns = __atomic_load_n(&record->newest_ns, __ATOMIC_RELAXED);

	if (records_changed_lately(t, newest_ns))
		return true;
	/* The times of a file server whose clock is ahead mean nothing: what was seen to change does. */
	return newest_ns > uns_wall_ns() && record->changed_ns && uns_now_ns() - record->changed_ns < t->settle_ns;
}

bool records_in_the_making(const struct record_table *t, const struct dir_record *record)
{
	return record->is.begun && records_unsettled(t, record);
}

bool records_hide(const struct record_table *t, const char *path)
{
	size_t i;

	for (i = 0; i < t->n_mounts; i++)
		if (uns_path_within(path, t->mounts[i]))
			return true;
	return t->hidden && *t->hidden && uns_path_within(path, t->hidden);
}
