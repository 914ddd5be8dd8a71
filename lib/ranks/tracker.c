/* See ranks/tracker.h. Both trainers start from scratch, with a line in their output, where the
 * tracker names a step that is not there; both fail where it cannot be read. */
#include "ranks/tracker.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "wire/json.h"

#define VERL      "latest_checkpointed_iteration.txt"
#define EASY      "checkpoint_tracker.json"
#define EASY_STEP "last_global_step"

const char *const uns_rank_trackers[] = { VERL, EASY, NULL };

/* Python's int(): digits with white space around. */
static int parse_number(struct uns_span text, int64_t *step, struct uns_err *err)
{
	const uint8_t *p = text.p, *end = text.end;
	char shown[24] = "";
	int64_t n = 0;

	while (p < end && isspace(*p))
		p++;
	while (end > p && isspace(end[-1]))
		end--;
	snprintf(shown, sizeof(shown), "%.*s", (int)(end - p < 20 ? end - p : 20), (const char *)p);
	if (p == end)
		return uns_fail(err, -EBADMSG, "is empty");
	if (end - p > 18)
		return uns_fail(err, -EBADMSG, "holds %s... instead of a step's number", shown);
	for (; p < end; p++) {
		if (!isdigit(*p))
			return uns_fail(err, -EBADMSG, "holds \"%s\" instead of a step's number", shown);
		n = n * 10 + (*p - '0');
	}
	*step = n;
	return 0;
}

static int parse_json(struct uns_span text, int64_t *step, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;

	if (uns_json_parse(text, &json, NULL) < 0)
		return uns_fail(err, -EBADMSG, "is not JSON");
	if (!uns_json_int(json, EASY_STEP, step) || *step < 0)
		return uns_fail(err, -EBADMSG, "has no number as " EASY_STEP);
	return 0;
}

int uns_rank_tracker_parse(const char *name, struct uns_span text, int64_t *step, struct uns_err *err)
{
	return strcmp(name, VERL) == 0 ? parse_number(text, step, err) : parse_json(text, step, err);
}

/* The highest step that has a directory; -1 = there is none. *has = that `step` has one. */
static int64_t newest_step(const struct uns_listing *list, int64_t step, bool *has)
{
	unsigned long long n;
	int64_t newest = -1;
	size_t i;

	for (*has = false, i = 0; i < list->n; i++) {
		if (list->v[i].kind == UNS_KIND_FILE || !uns_str_number(list->v[i].name, "global_step_", "", &n) ||
		    n > INT64_MAX)
			continue;
		*has |= (int64_t)n == step;
		newest = (int64_t)n > newest ? (int64_t)n : newest;
	}
	return newest;
}

/* Megatron-LM, and what trains with it, keeps a file of the same name beside its own directories (iter_0000010). */
static bool is_megatrons(const char *name, const struct uns_listing *list)
{
	size_t i;

	for (i = 0; strcmp(name, VERL) == 0 && i < list->n; i++)
		if (list->v[i].kind != UNS_KIND_FILE &&
		    (uns_str_glob("iter_*", list->v[i].name) || strcmp(list->v[i].name, "release") == 0))
			return true;
	return false;
}

bool uns_rank_tracker_check(const char *name, struct uns_span text, const struct uns_listing *list,
			    struct uns_arena *arena, struct uns_finding *out)
{
	struct uns_err why = { 0 };
	int64_t step = -1, newest;
	bool has;
	int code = uns_rank_tracker_parse(name, text, &step, &why);

	newest = newest_step(list, step, &has);
	if ((code == 0 && has) || (newest < 0 && is_megatrons(name, list)))
		return true;
	*out = (struct uns_finding){
		.id = code < 0 ? UNS_FOUND_TRACKER_UNUSABLE : UNS_FOUND_TRACKER_STALE,
		.found = uns_rank(step),
		.arg = { { "trainer", uns_str(strcmp(name, VERL) == 0 ? "veRL" : "EasyR1") },
			 { "cause", uns_str(uns_arena_str(arena, why.text)) },
			 { "newest", uns_rank(newest) } },
	};
	return false;
}
