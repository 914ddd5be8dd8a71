/* The table of what records the training's step, and the rules by which two records contradict each other.
 *
 * What is certain:
 *   - An optimizer makes one step at most in each step of the training: it may have made fewer (a step that fp16
 *     overflowed, an optimizer that was started again), and never more. DeepSpeed makes one more before the training,
 * with gradients of 0 (deepspeed 0.14 to 0.19, runtime/zero/stage_1_and_2.py and stage3.py).
 *   - A learning rate scheduler of transformers' Trainer is stepped once in each step of the training at most.
 *   - A trainer names the directory by the step that it writes into its own file. Users rename directories. But if
 *     optimizer or scheduler have the name's step and the trainer's file another, that file is of another save.
 * All else is worth a note at most. */
#include "facts/steps.h"

#include <string.h>

#include "base/path.h"
#include "facts/optimizer_steps.h"
#include "files/beside.h"
#include "megatron/common_file.h"
#include "model/meta_file.h"

/* What a source counts. */
enum counts {
	COUNTS_NAME,      /* nothing: it is what the directory is called */
	COUNTS_TRAINING,  /* the steps of the training */
	COUNTS_SCHEDULER, /* the steps of the learning rate scheduler */
};

struct said {
	enum counts counts;
	const char *by;
	int64_t step;
};

/* -- the sources -- */

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

/* What records the step. The optimizer's own steps are in optimizer_steps.c, and those of DeepSpeed's ranks (zero/read)
 * and of other ranks' files (ranks/merge.c) are compared where they are read. */
static const struct source {
	enum counts counts;
	const char *by;
	int64_t (*read)(struct collect *c);
} sources[] = {
	{ COUNTS_NAME, "the directory's name", by_directory },
	{ COUNTS_NAME, "the tag's name", by_tag },
	{ COUNTS_TRAINING, "trainer_state.json", by_trainer_state },
	{ COUNTS_TRAINING, "meta.pt", by_lightning },
	{ COUNTS_TRAINING, "DeepSpeed's model file (global_steps)", by_engine },
	{ COUNTS_TRAINING, "common.pt (iteration)", by_megatron },
	{ COUNTS_TRAINING, "train_state.step", by_torchtitan },
	{ COUNTS_SCHEDULER, "scheduler.pt (last_epoch)", by_scheduler },
};

enum { N_SOURCES = sizeof(sources) / sizeof(*sources) };

/* -- the rules -- */

struct steps {
	struct said v[N_SOURCES];
	size_t n;
	struct optimizer_steps taken;
};

/* NULL = no source of that kind has this step. */
static const struct said *said_find(const struct steps *s, enum counts counts, int64_t step)
{
	size_t i;

	for (i = 0; i < s->n; i++)
		if (s->v[i].counts == counts && s->v[i].step == step)
			return &s->v[i];
	return NULL;
}

static const char optimizer[] = "the optimizer";

/* Steps that an optimizer makes before the training. */
static int64_t steps_before(const struct collect *c)
{
	return uns_family_is_deepspeed(c->in->cat->summary.family) ? 1 : 0;
}

/* May the optimizer have made so many steps when the training had made `step`, all of which it took part in? */
static bool took_all(const struct collect *c, const struct steps *s, int64_t step)
{
	return s->taken.most.step >= step && s->taken.most.step <= step + steps_before(c);
}

static const struct said *named_by(const struct steps *s)
{
	size_t i;

	for (i = 0; i < s->n; i++)
		if (s->v[i].counts == COUNTS_NAME)
			return &s->v[i];
	return NULL;
}

static int finding_add(struct collect *c, struct steps_found *out, enum uns_finding_id id, const struct said *one,
		       const struct said *other, const char *cause, struct uns_err *err)
{
	const bool is_note = uns_finding_words(id)->code == 0;

	return uns_findings_add(&out->v, &out->arena,
				UNS_FINDING(.id = id, .scope = is_note ? UNS_SCOPE_NOTE : UNS_SCOPE_OPTIMIZER,
					    .checkpoint = c->path, .found = uns_num((uint64_t)one->step),
					    .expected = uns_num((uint64_t)other->step),
					    .arg = { { "by", uns_str(one->by) },
						     { "other", uns_str(other->by) },
						     { "cause", uns_str(cause) } }),
				err);
}

/* A record of how far the training was, compared with the optimizer, and with the name. */
static int check_counter(struct collect *c, const struct steps *s, const struct said *counter, struct steps_found *out,
			 struct uns_err *err)
{
	const struct said *name = named_by(s), taken = { COUNTS_TRAINING, optimizer, s->taken.most.step };
	const char *cause = NULL;

	if (taken.step > counter->step + steps_before(c))
		return finding_add(c, out, UNS_FOUND_STEPS_DIFFER, &taken, counter,
				   "an optimizer makes one step at most in each step of the training", err);
	if (!name || said_find(s, COUNTS_NAME, counter->step))
		return 0;
	if (!took_all(c, s, counter->step) && !said_find(s, COUNTS_SCHEDULER, counter->step))
		cause = took_all(c, s, name->step) ? "the optimizer has made as many steps as the name has"
			: said_find(s, COUNTS_SCHEDULER, name->step)
				? "scheduler.pt has counted as many steps as the name has"
				: NULL;
	return finding_add(c, out, cause ? UNS_FOUND_STEPS_DIFFER : UNS_FOUND_STEP_UNLIKE_NAME, counter, name, cause,
			   err);
}

/* Processes that a scheduler may have been stepped for (accelerate's AcceleratedScheduler does that). */
static int64_t n_processes(const struct collect *c)
{
	const struct uns_catalog *cat = c->in->cat;
	int64_t n = cat->summary.world_size;
	size_t i;

	for (i = 0; i < cat->n_pieces; i++)
		if (cat->pieces[i].rank >= n)
			n = cat->pieces[i].rank + 1;
	return n > 0 ? n : 1;
}

static int check_scheduler(struct collect *c, const struct steps *s, const struct said *scheduler,
			   struct steps_found *out, struct uns_err *err)
{
	const struct said *counter = NULL;
	size_t i;

	for (i = 0; i < s->n && !counter; i++)
		if (s->v[i].counts == COUNTS_TRAINING)
			counter = &s->v[i];
	if (!counter || scheduler->step <= counter->step || scheduler->step == counter->step * n_processes(c))
		return 0;
	return finding_add(c, out, UNS_FOUND_STEPS_DIFFER, scheduler, counter,
			   "a Trainer steps its scheduler once in each step of the training", err);
}

static int read_all(struct collect *c, struct steps *s, struct uns_err *err)
{
	struct said one;
	size_t i;

	for (i = 0; i < N_SOURCES; i++) {
		one = (struct said){ sources[i].counts, sources[i].by, sources[i].read(c) };
		if (one.step >= 0)
			s->v[s->n++] = one;
	}
	return optimizer_steps_read(c, &s->taken, err);
}

static int compare(struct collect *c, struct steps_found *out, struct uns_err *err)
{
	struct steps s = { .n = 0 };
	size_t i;

	UNS_TRY(read_all(c, &s, err));
	if (c->failed)
		return uns_oom(err);
	if (c->fault.code)
		return uns_fail_copy(err, &c->fault);
	for (i = 0; i < s.n; i++) {
		if (s.v[i].counts == COUNTS_TRAINING)
			UNS_TRY(check_counter(c, &s, &s.v[i], out, err));
		if (s.v[i].counts == COUNTS_SCHEDULER)
			UNS_TRY(check_scheduler(c, &s, &s.v[i], out, err));
	}
	UNS_TRY(optimizer_steps_compare(c, &s.taken, out, err));
	return uns_arena_check(&c->scratch, err);
}

int steps_compare(const struct training_input *in, struct steps_found *out, struct uns_err *err)
{
	struct collect c = { .in = in, .path = in->path };
	int code = compare(&c, out, err);
	size_t i;

	collect_fini(&c);
	UNS_TRY(code);
	for (i = 0; i < out->v.n && !out->disproof; i++)
		if (out->v.v[i].scope != UNS_SCOPE_NOTE)
			out->disproof = &out->v.v[i];
	return uns_arena_check(&out->arena, err);
}

void steps_found_fini(struct steps_found *found)
{
	uns_arena_fini(&found->arena);
}
