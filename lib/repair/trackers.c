/* The file that names a run's last checkpoint, made again out of the checkpoints that are sound:
 *
 *   RUN/latest_checkpointed_iteration.txt  "10"                      veRL RUN/global_step_10/actor
 *   RUN/checkpoint_tracker.json            {"last_global_step": 10}  EasyR1    the same
 *   RUN/latest                             "global_step10"           DeepSpeed RUN/global_step10
 *
 * Which of them a checkpoint's run keeps, and where, is a fact of the checkpoint: where it has none, none is made. One
 * that names a sound checkpoint stays, even where there is a later one: that may be on purpose. Source: verl 0.9.1,
 * EasyR1 b44b311, deepspeed 0.19.8 (which want what is written here and no more). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "ranks/tracker.h"
#include "repair/repairing.h"
#include "wire/json.h"

static const char *const tracker_names[UNS_N_TRACKERS] = {
	[UNS_TRACKER_VERL] = "latest_checkpointed_iteration.txt",
	[UNS_TRACKER_EASYR1] = "checkpoint_tracker.json",
	[UNS_TRACKER_DEEPSPEED] = "latest",
};

/* What a tracker may name: a directory of the run, with all checkpoints in it. */
struct save {
	const char *name; /* "global_step_10" */
	bool sound;
	bool unread; /* some directory of it: whether it is sound is not known */
};

struct run {
	const char *path;
	enum uns_tracker tracker;
	struct save *v;
	size_t n, cap;
	struct uns_arena *arena;
};

/* -- which saves there are -- */

static bool is_sound(const struct repair_checkpoint *p)
{
	return !p->problem || p->changed;
}

static struct save *save_find(const struct run *run, const char *name)
{
	size_t i;

	for (i = 0; name && i < run->n; i++)
		if (strcmp(run->v[i].name, name) == 0)
			return &run->v[i];
	return NULL;
}

static int add_save(struct run *run, const char *name, bool sound, bool unread)
{
	struct save *save = save_find(run, name);

	if (save) {
		save->sound &= sound;
		save->unread |= unread;
		return 0;
	}
	name = uns_arena_str(run->arena, name);
	if (!name || !UNS_ARENA_ROOM(run->arena, run->v, run->n, run->cap))
		return -ENOMEM;
	run->v[run->n++] = (struct save){ name, sound, unread };
	return 0;
}

/* The save that `path` is, or is in, if it is one of this run's: DeepSpeed's are the checkpoints themselves,
 * whatever they are called; veRL and EasyR1 put several checkpoints into a global_step_N. */
static int add_save_of(struct run *run, const char *path, bool sound, bool unread)
{
	unsigned long long n;
	const char *rest;
	char *name;

	if (!uns_path_within(path, run->path) || strcmp(path, run->path) == 0)
		return 0;
	rest = path + strlen(run->path) + (*run->path ? 1 : 0);
	name = uns_arena_strn(run->arena, rest, strcspn(rest, "/"));
	if (!name)
		return -ENOMEM;
	if (run->tracker == UNS_TRACKER_DEEPSPEED ? strcmp(name, rest) != 0
						  : !uns_str_number(name, "global_step_", "", &n))
		return 0;
	return add_save(run, name, sound, unread);
}

/* A trainer's directory with its tags in it is one checkpoint, and its own run. */
static int add_tags(struct repair *r, struct run *run, const struct repair_checkpoint *p, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err why = { 0 };
	struct uns_listing list;
	unsigned long long n;
	size_t i;
	int code = uns_root_list(r->u->root, p->path, &arena, &list, &why);

	if (code < 0)
		return uns_fail_if_passing(err, code, &why);
	for (i = 0; i < list.n; i++)
		if (list.v[i].kind == UNS_KIND_DIR && uns_str_number(list.v[i].name, "global_step", "", &n))
			UNS_TRY(add_save(run, list.v[i].name, is_sound(p), false));
	return 0;
}

static int find_saves(struct repair *r, struct run *run, struct uns_err *err)
{
	const enum uns_family family = run->tracker == UNS_TRACKER_DEEPSPEED ? UNS_FAMILY_ZERO : UNS_FAMILY_RANKS;
	const struct repair_checkpoint *p = r->checkpoint, *end = p + r->n_checkpoints;
	size_t i;

	for (; p < end; p++)
		if (p->family == family && strcmp(p->path, run->path) == 0)
			UNS_TRY(add_tags(r, run, p, err));
		else if (p->family == family)
			UNS_TRY(add_save_of(run, p->path, is_sound(p), false));
	for (i = 0; i < r->n_unread; i++)
		UNS_TRY(add_save_of(run, r->unread[i], false, true));
	return 0;
}

/* -- what the tracker names -- */

static const char *step_name(struct run *run, int64_t step)
{
	return uns_arena_printf(run->arena, "global_step_%" PRId64, step);
}

/* The save that it names; NULL = none that can be read. */
static const char *save_named(struct run *run, struct uns_span text)
{
	size_t n = uns_span_left(&text);
	int64_t step;

	if (run->tracker != UNS_TRACKER_DEEPSPEED)
		return uns_rank_tracker_parse(tracker_names[run->tracker], text, &step, NULL) == 0
			       ? step_name(run, step)
			       : NULL;
	while (n && strchr(" \t\r\n", text.p[n - 1]))
		n--;
	return n ? uns_arena_strn(run->arena, (const char *)text.p, n) : NULL;
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

/* DeepSpeed's tags may be called anything; only numbers show which one is the last. */
static bool is_ordered(const struct run *run)
{
	size_t i, n_sound = 0, n_numbers = 0;
	unsigned long long n;

	for (i = 0; i < run->n; i++) {
		if (!run->v[i].sound)
			continue;
		n_sound++;
		n_numbers += uns_str_number(run->v[i].name, "global_step", "", &n) ||
			     uns_str_number(run->v[i].name, "global_step_", "", &n);
	}
	return n_sound < 2 || n_numbers == n_sound;
}

/* What EasyR1 notes beside the last step is kept as long as it is about existing saves. */
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
	best = uns_json_int(json, "best_global_step", &step) ? save_find(run, step_name(run, step)) : NULL;
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

static const char *text_of(struct run *run, struct uns_span old, const struct save *save)
{
	const char *number = save->name + strcspn(save->name, "0123456789");

	if (run->tracker == UNS_TRACKER_DEEPSPEED)
		return save->name;
	return run->tracker == UNS_TRACKER_VERL ? number : easyr1_text(run, old, number);
}

/* The copy is to be sound: the run's other saves are not in it. */
static int drop_unsound(struct repair *r, const struct run *run)
{
	struct repair_file file = { .drop = true };
	struct repair_checkpoint *p;
	size_t i, k;

	for (i = 0; i < run->n; i++) {
		if (run->v[i].sound)
			continue;
		file.path = uns_path_join(&r->arena, run->path, run->v[i].name);
		if (!file.path)
			return -ENOMEM;
		UNS_TRY(repair_plan_file(r, &file));
		for (k = 0; k < r->n_checkpoints; k++) {
			p = &r->checkpoint[k];
			if (p->dropped || !uns_path_within(p->path, file.path))
				continue;
			p->dropped = true;
			if (p->problem && !p->changed)
				UNS_TRY(repair_change(r, file.path, UNSHARD_CHANGE_LEFT_OUT, "left out: %s",
						      p->problem));
		}
	}
	return 0;
}

static int tracker_rebuild(struct repair *r, struct run *run, const char *path, struct uns_span old, const char *said)
{
	const struct save *last = last_sound(run), *before = save_find(run, said);
	struct repair_file file = { .path = path };

	if (!last)
		return repair_refuse(r, "no checkpoint of %s is sound", *run->path ? run->path : ".");
	if (!is_ordered(run))
		return repair_refuse(r, "the names of the tags in %s do not show which tag is the last",
				     *run->path ? run->path : ".");
	file.text = text_of(run, old, last);
	if (!file.text)
		return -ENOMEM;
	UNS_TRY(repair_plan_file(r, &file));
	if (said)
		UNS_TRY(repair_change(r, path, UNSHARD_CHANGE_TRACKER, "names %s now; before, %s, %s", last->name, said,
				      !before          ? "which does not exist"
				      : before->unread ? "which cannot be read"
						       : "which is not sound"));
	else
		UNS_TRY(repair_change(r, path, UNSHARD_CHANGE_TRACKER, "new: it names %s, the last sound checkpoint",
				      last->name));
	return drop_unsound(r, run);
}

/* of_unread: only if the tracker names what cannot be read. That alone is no reason for a copy; a copy that
 * is made anyway has another tracker. */
static int look_at_tracker(struct repair *r, struct run *run, const char *path, bool of_unread, struct uns_err *err)
{
	const char *said = NULL;
	struct uns_span text = uns_span_of("", 0);
	struct uns_err why = { 0 };
	const struct save *save;
	int code;

	UNS_TRY(find_saves(r, run, err));
	code = uns_root_read_file(r->u->root, path, UNS_TRACKER_MAX_BYTES, &r->arena, &text, NULL, &why);
	UNS_TRY(uns_fail_if_passing(err, code, &why)); /* then it is there: no reason for another */
	if (code == 0)
		said = save_named(run, text);
	save = save_find(run, said);
	if (!run->n || (save && save->sound) || (save && save->unread) != of_unread)
		return 0;
	return tracker_rebuild(r, run, path, text, said);
}

static int look_at_trackers(struct repair *r, bool of_unread, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map seen = UNS_MAP_INIT;
	const struct repair_checkpoint *p = r->checkpoint, *end = p + r->n_checkpoints;
	struct run run;
	char *path;

	for (; p < end; p++) {
		if (!p->run || !uns_path_within(p->run, r->path))
			continue;
		path = uns_path_join(&r->arena, p->run, tracker_names[p->tracker]);
		if (!path)
			return -ENOMEM;
		if (uns_map_get(&seen, path))
			continue;
		if (!uns_map_put(&seen, path, path, NULL))
			return -ENOMEM;
		run = (struct run){ .path = p->run, .tracker = p->tracker, .arena = &r->arena };
		UNS_TRY(look_at_tracker(r, &run, path, of_unread, err));
	}
	return 0;
}

int repair_trackers(struct repair *r, struct uns_err *err)
{
	int code = look_at_trackers(r, false, err);

	if (code == 0 && repair_is_needed(r))
		code = look_at_trackers(r, true, err);
	return code == -ENOMEM ? uns_oom(err) : code;
}
