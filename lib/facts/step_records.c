/* The table of what records the training's step, for all families. Two kinds of records are elsewhere: the optimizer's
 * own, of each parameter or param group, in optimizer_steps.c; and those that each rank repeats, which decide whose
 * tensors may be put together, and are compared where those files are read:
 *
 *   the optimizer's step in each DeepSpeed rank's shard        zero/read/states.c
 *   global_steps in each DeepSpeed rank's model file           zero/read/counters.c
 *   step.pt of each parameter of a universal checkpoint        zero/read/universal.c
 *   the optimizer's step in each rank's file                   ranks/merge.c
 *   param groups and scheduler in each rank's file             ranks/files.c, ranks/extra.c
 *   `latest` and other files that name a tag                   zero/read/run.c, formats/ */
#include "facts/step_records.h"

#include <string.h>

#include "base/path.h"
#include "facts/optimizer_steps.h"
#include "files/beside.h"
#include "megatron/common_file.h"
#include "model/meta_file.h"

/* N of "global_step2", "step-2", "epoch=0-step=2.ckpt", "iter_0000002", "global_step2_universal", .. */
static int64_t step_in_name(const char *name)
{
	static const char *const before[] = { "checkpoint-", "global_step_", "global_step", "iter_",
					      "step-",       "step=",        "step_" };
	const char *at = NULL;
	int64_t n = 0;
	size_t i;

	for (i = 0; i < sizeof(before) / sizeof(*before) && !at; i++) {
		at = strcmp(before[i], "step=") == 0 ? strstr(name, before[i]) : name;
		at = at && uns_str_starts(at, before[i]) ? at + strlen(before[i]) : NULL;
	}
	if (!at || *at < '0' || *at > '9')
		return UNS_UNKNOWN;
	for (; *at >= '0' && *at <= '9'; at++) {
		if (n > INT64_MAX / 10 - 10)
			return UNS_UNKNOWN;
		n = 10 * n + (*at - '0');
	}
	return !*at || strcmp(at, "_universal") == 0 || *at == '.' || uns_str_starts(at, "-v") ? n : UNS_UNKNOWN;
}

static int64_t by_directory(struct collect *c)
{
	return step_in_name(uns_root_name(c->in->root, c->path));
}

/* veRL's and EasyR1's global_step_2/actor. */
static int64_t by_parent(struct collect *c)
{
	const char *parent = uns_path_parent(&c->scratch, c->path);

	return c->in->cat->summary.family == UNS_FAMILY_RANKS && parent && *parent ? step_in_name(uns_path_name(parent))
										   : UNS_UNKNOWN;
}

/* A directory of shards inside the checkpoint (checkpoint-2/global_step2/..). */
static int64_t by_tag(struct collect *c)
{
	const struct uns_companion *of = c->in->cat->companions, *end = of + c->in->cat->n_companions;
	const char *slash, *tag;
	int64_t step = UNS_UNKNOWN;

	for (; of < end && step == UNS_UNKNOWN; of++) {
		slash = of->shard && uns_str_starts(of->name, "global_step") ? strchr(of->name, '/') : NULL;
		tag = slash ? uns_arena_strn(&c->scratch, of->name, (size_t)(slash - of->name)) : NULL;
		step = tag ? step_in_name(tag) : UNS_UNKNOWN;
	}
	return step;
}

static int64_t by_trainer_state(struct collect *c)
{
	const char *path = uns_path_join(&c->scratch, c->path, STATE_FILE);
	struct uns_span state = { NULL, NULL };
	struct uns_err why = { 0 };

	if (!path || !uns_catalog_companion(c->in->cat, STATE_FILE) || !state_read(c, path, &state, &why))
		return UNS_UNKNOWN;
	return state_step(state);
}

static int64_t by_value(struct collect *c, const char *root, const char *name)
{
	int64_t step;

	return uns_value_int(uns_catalog_value(c->in->cat, root, name), &step) && step >= 0 ? step : UNS_UNKNOWN;
}

static int64_t by_lightning(struct collect *c)
{
	return by_value(c, UNS_META_ROOT, "global_step");
}

/* Under Lightning Fabric the engine makes no step, and has counted none. */
static int64_t by_engine(struct collect *c)
{
	const int64_t step = by_value(c, "model_states", "global_steps");

	return !step && c->in->cat->summary.resumed_by & UNS_BY_FABRIC ? UNS_UNKNOWN : step;
}

/* A step that overflowed in fp16 counts as one of the training, and its optimizer makes none. */
static int64_t by_engine_updates(struct collect *c)
{
	const int64_t step = by_engine(c), skipped = by_value(c, "model_states", "skipped_steps");

	return step >= 0 && skipped >= 0 && skipped <= step ? step - skipped : UNS_UNKNOWN;
}

static int64_t by_megatron(struct collect *c)
{
	return by_value(c, UNS_MEGATRON_COMMON, UNS_MEGATRON_ITERATION);
}

static int64_t by_torchtitan(struct collect *c)
{
	return saved_number(c, "train_state.step");
}

static int64_t by_scheduler(struct collect *c)
{
	return c->in->cat->summary.of_trainer ? saved_scheduler_step(c) : UNS_UNKNOWN;
}

static int64_t by_ranks_scheduler(struct collect *c)
{
	const struct uns_value *state = uns_catalog_value(c->in->cat, "rank_files", "lr_scheduler");
	int64_t step;

	return uns_value_int(uns_value_get(state, "last_epoch"), &step) && step >= 0 ? step : UNS_UNKNOWN;
}

static const struct source {
	enum step_counts counts;
	const char *by;
	int64_t (*read)(struct collect *c);
} sources[] = {
	{ COUNTS_NAME, "the directory's name", by_directory },
	{ COUNTS_NAME, "the directory's name", by_parent },
	{ COUNTS_NAME, "the tag's name", by_tag },
	{ COUNTS_TRAINING, "trainer_state.json", by_trainer_state },
	{ COUNTS_TRAINING, "meta.pt", by_lightning },
	{ COUNTS_TRAINING, "DeepSpeed's model file (global_steps)", by_engine },
	{ COUNTS_TRAINING, "Megatron's iteration", by_megatron },
	{ COUNTS_TRAINING, "train_state.step", by_torchtitan },
	{ COUNTS_UPDATES, "DeepSpeed's model file (global_steps without skipped_steps)", by_engine_updates },
	{ COUNTS_SCHEDULER, "scheduler.pt (last_epoch)", by_scheduler },
	{ COUNTS_ROUNDS, "the scheduler in extra_state (last_epoch)", by_ranks_scheduler },
};

enum { N_SOURCES = sizeof(sources) / sizeof(*sources) };

_Static_assert((int)N_SOURCES <= (int)MAX_STEP_RECORDS, "struct step_records has room for all");

void step_records_read(struct collect *c, struct step_records *out)
{
	int64_t step;
	size_t i;

	out->n = 0;
	for (i = 0; i < N_SOURCES; i++)
		if ((step = sources[i].read(c)) >= 0)
			out->v[out->n++] = (struct step_record){ sources[i].counts, sources[i].by, step };
}

const struct step_record *step_record_of(const struct step_records *all, enum step_counts counts)
{
	size_t i;

	for (i = 0; i < all->n; i++)
		if (all->v[i].counts == counts)
			return &all->v[i];
	return NULL;
}

const struct step_record *step_record_find(const struct step_records *all, enum step_counts counts, int64_t step)
{
	size_t i;

	for (i = 0; i < all->n; i++)
		if (all->v[i].counts == counts && all->v[i].step == step)
			return &all->v[i];
	return NULL;
}
