/* The file that names a run's last checkpoint, made again out of the checkpoints that are sound:
 *
 *   RUN/latest_checkpointed_iteration.txt  "10"                      veRL RUN/global_step_10/actor
 *   RUN/checkpoint_tracker.json            {"last_global_step": 10}  EasyR1    the same
 *   RUN/latest                             "global_step10"           DeepSpeed RUN/global_step10
 *
 * One that names a sound checkpoint stays, even where there is a later one: that may be on purpose.
 * Source: verl 0.9.1, EasyR1 b44b311, deepspeed 0.19.8 (which want what is written here and no
 * more). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "repair/repair.h"
#include "ranks/tracker.h"
#include "wire/json.h"

enum { MAX_TRACKER_BYTES = 1 << 16 };

enum family { VERL, EASYR1, DEEPSPEED };

static const char *const tracker_names[] = { "latest_checkpointed_iteration.txt",
					     "checkpoint_tracker.json", "latest" };

/* One save of a run: all checkpoints in its directory. */
struct save {
	const char *name; /* the directory, below the run: "global_step_10" */
	bool sound;
};

struct run {
	const char *path;
	struct save *v;
	size_t n;
	bool verl, deepspeed;
	struct uns_arena *arena;
	struct uns_err *err; /* what could not be read just now */
};

/* -- which saves there are -- */

static bool is_step(const char *path)
{
	unsigned long long n;

	return uns_str_number(uns_path_name(path), "global_step_", "", &n);
}

/* The directory of the save that a checkpoint is, or is in; NULL = of no run that keeps a tracker.
 */
static const char *save_of(struct repair *r, const struct repair_place *p)
{
	const char *parent = *p->path ? uns_path_parent(&r->arena, p->path) : NULL;

	if (!parent)
		return NULL;
	if (p->family == UNS_FAMILY_ZERO)
		return p->path;
	if (p->family != UNS_FAMILY_RANKS)
		return NULL;
	return is_step(p->path) ? p->path : is_step(parent) ? parent : NULL;
}

static int add_save(struct run *run, const char *name, bool sound)
{
	struct save *grown;
	size_t i;

	for (i = 0; i < run->n; i++)
		if (strcmp(run->v[i].name, name) == 0) {
			run->v[i].sound &= sound;
			return 0;
		}
	grown = uns_arena_grow(run->arena, run->v, run->n, run->n + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	run->v = grown;
	run->v[run->n++] = (struct save){ name, sound };
	return 0;
}

/* A trainer's directory with its tag in it is one checkpoint, and its own run. */
static int add_tags(struct repair *r, struct run *run, const struct repair_place *p)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err why = { 0 };
	struct uns_listing list;
	const char *name;
	unsigned long long n;
	size_t i;
	int code = uns_root_list(r->u->root, p->path, &arena, &list, &why);

	if (code < 0)
		return uns_fail_if_passing(run->err, code, &why);
	for (i = 0; i < list.n; i++) {
		if (list.v[i].kind != UNS_KIND_DIR ||
		    !uns_str_number(list.v[i].name, "global_step", "", &n))
			continue;
		name = uns_arena_str(run->arena, list.v[i].name);
		if (!name || add_save(run, name, !p->problem || p->changed) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int find_saves(struct repair *r, struct run *run)
{
	const struct repair_place *p = r->place, *end = p + r->n_places;
	const char *save, *parent;

	for (; p < end; p++) {
		save = save_of(r, p);
		parent = save ? uns_path_parent(&r->arena, save) : NULL;
		if (save && !parent)
			return -ENOMEM;
		if (strcmp(p->path, run->path) == 0 && p->family == UNS_FAMILY_ZERO) {
			run->deepspeed = true;
			UNS_TRY(add_tags(r, run, p));
		}
		if (!save || strcmp(parent, run->path) != 0)
			continue;
		run->deepspeed |= p->family == UNS_FAMILY_ZERO;
		run->verl |= p->tracker == UNS_TRACKER_VERL;
		UNS_TRY(add_save(run, uns_path_name(save), !p->problem || p->changed));
	}
	return 0;
}

/* -- what the tracker says -- */

static const char *step_name(struct run *run, int64_t step)
{
	return uns_arena_printf(run->arena, "global_step_%" PRId64, step);
}

/* The save that it names; NULL = none that can be read. */
static const char *named(struct run *run, enum family family, struct uns_span text)
{
	size_t n = uns_span_left(&text);
	int64_t step;

	if (family != DEEPSPEED)
		return uns_rank_tracker_parse(tracker_names[family], text, &step, NULL) == 0
			       ? step_name(run, step)
			       : NULL;
	while (n && strchr(" \t\r\n", text.p[n - 1]))
		n--;
	return n ? uns_arena_strn(run->arena, (const char *)text.p, n) : NULL;
}

static const struct save *save_find(const struct run *run, const char *name)
{
	size_t i;

	for (i = 0; name && i < run->n; i++)
		if (strcmp(run->v[i].name, name) == 0)
			return &run->v[i];
	return NULL;
}

/* -- the new one -- */

static const struct save *last_sound(const struct run *run)
{
	const struct save *last = NULL;
	size_t i;

	for (i = 0; i < run->n; i++)
		if (run->v[i].sound && (!last || uns_str_natural(last->name, run->v[i].name) < 0))
			last = &run->v[i];
	return last;
}

/* DeepSpeed's tags may be called anything; only numbers say which one is the last. */
static bool is_ordered(const struct run *run)
{
	unsigned long long n;
	size_t i;

	for (i = 0; i < run->n && run->n > 1; i++)
		if (!uns_str_number(run->v[i].name, "global_step", "", &n) &&
		    !uns_str_number(run->v[i].name, "global_step_", "", &n))
			return false;
	return true;
}

/* What EasyR1 notes beside the last step is kept as long as it speaks of saves that are there. */
static const char *easyr1_text(struct run *run, struct uns_span old, const char *number)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	const struct save *best;
	char *text = NULL;
	int64_t step;

	if (uns_json_parse(old, &json, NULL) < 0 || !cJSON_IsObject(json))
		return uns_arena_printf(run->arena, "{\n  \"last_global_step\": %s\n}", number);
	cJSON_DeleteItemFromObjectCaseSensitive(json, "last_global_step");
	cJSON_DeleteItemFromObjectCaseSensitive(json, "last_actor_path");
	best = uns_json_int(json, "best_global_step", &step) ? save_find(run, step_name(run, step))
							     : NULL;
	if (!best || !best->sound) {
		cJSON_DeleteItemFromObjectCaseSensitive(json, "best_global_step");
		cJSON_DeleteItemFromObjectCaseSensitive(json, "best_val_reward_score");
	}
	cJSON_AddItemToObject(json, "last_global_step", cJSON_CreateRaw(number));
	text = cJSON_Print(json);
	number = text ? uns_arena_str(run->arena, text) : NULL;
	cJSON_free(text);
	return number;
}

static const char *text_of(struct run *run, enum family family, struct uns_span old,
			   const struct save *save)
{
	const char *number = save->name + strcspn(save->name, "0123456789");

	if (family == DEEPSPEED)
		return save->name;
	return family == VERL ? number : easyr1_text(run, old, number);
}

/* Saves that are not sound go: the copy is to be. */
static int drop_unsound(struct repair *r, const struct run *run)
{
	struct repair_file file = { .drop = true };
	struct repair_place *p;
	size_t i, k;

	for (i = 0; i < run->n; i++) {
		if (run->v[i].sound)
			continue;
		file.path = uns_path_join(&r->arena, run->path, run->v[i].name);
		if (!file.path)
			return -ENOMEM;
		UNS_TRY(repair_plan_file(r, &file));
		for (k = 0; k < r->n_places; k++) {
			p = &r->place[k];
			if (!uns_path_within(p->path, file.path))
				continue;
			if (p->problem && !p->changed)
				UNS_TRY(repair_change(r, file.path, UNSHARD_CHANGE_LEFT_OUT, "left out: %s",
						      p->problem));
			p->dropped = true;
		}
	}
	return 0;
}

static int rebuild(struct repair *r, struct run *run, enum family family, const char *path,
		   struct uns_span old, const char *said)
{
	const struct save *last = last_sound(run);
	struct repair_file file = { .path = path };
	const char *how =
		said ? save_find(run, said) ? "which is not sound" : "which is not there" : NULL;

	if (!last)
		return repair_refuse(r, "no checkpoint of %s is sound",
				     *run->path ? run->path : ".");
	if (!is_ordered(run))
		return repair_refuse(r,
				     "the names of the tags in %s do not say which one is the last",
				     *run->path ? run->path : ".");
	file.text = text_of(run, family, old, last);
	if (!file.text)
		return -ENOMEM;
	UNS_TRY(repair_plan_file(r, &file));
	if (said)
		UNS_TRY(repair_change(r, path, UNSHARD_CHANGE_TRACKER, "names %s now; before, %s, %s",
				      last->name, said, how));
	else
		UNS_TRY(repair_change(r, path, UNSHARD_CHANGE_TRACKER,
				      "made: it names %s, the last checkpoint that "
				      "is sound",
				      last->name));
	return drop_unsound(r, run);
}

static int look_at_tracker(struct repair *r, struct run *run, enum family family)
{
	const char *path = uns_path_join(&r->arena, run->path, tracker_names[family]), *said = NULL;
	struct uns_span text = uns_span_of("", 0);
	struct uns_err why = { 0 };
	const struct save *save;
	bool there;
	int code;

	if (!path)
		return -ENOMEM;
	code = uns_root_read_file(r->u->root, path, MAX_TRACKER_BYTES, &r->arena, &text, NULL,
				  &why);
	UNS_TRY(uns_fail_if_passing(run->err, code, &why)); /* then it is there: no reason for another */
	there = code == 0;
	if (there)
		said = named(run, family, text);
	save = save_find(run, said);
	/* Which family without a word for it wrote these is not known. */
	if ((save && save->sound) || (!there && family == EASYR1) ||
	    (!there && family == VERL && !run->verl))
		return 0;
	return rebuild(r, run, family, path, text, said);
}

static int look_at_run(struct repair *r, const char *path, struct uns_err *err)
{
	struct run run = { .path = path, .arena = &r->arena, .err = err };

	UNS_TRY(find_saves(r, &run));
	if (!run.n)
		return 0;
	if (run.deepspeed)
		return look_at_tracker(r, &run, DEEPSPEED);
	UNS_TRY(look_at_tracker(r, &run, EASYR1));
	return look_at_tracker(r, &run, VERL);
}

/* A run that lies within what is copied, once. */
static int visit_run(struct repair *r, struct uns_map *seen, const char *path, struct uns_err *err)
{
	if (!path || !uns_path_within(path, r->path) || uns_map_get(seen, path))
		return 0;
	if (!uns_map_put(seen, path, seen, NULL))
		return -ENOMEM;
	return look_at_run(r, path, err);
}

int repair_trackers(struct repair *r, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map seen = UNS_MAP_INIT;
	const char *save;
	int code = 0;
	size_t i;

	for (i = 0; i < r->n_places && code == 0; i++) {
		save = save_of(r, &r->place[i]);
		if (save)
			code = visit_run(r, &seen, uns_path_parent(&r->arena, save), err);
		if (code == 0 && r->place[i].family == UNS_FAMILY_ZERO)
			code = visit_run(r, &seen, r->place[i].path, err);
	}
	return code == -ENOMEM ? uns_oom(err) : code;
}
