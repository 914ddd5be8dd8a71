/* The rules by which two records of the training's step (facts/step_records.h) contradict each other.
 *
 * What is certain:
 *   - An optimizer makes one step at most in each step of the training: it may have made fewer (a step that fp16
 *     overflowed, an optimizer that was started again), and never more. DeepSpeed makes one more before the training,
 * with gradients of 0 (deepspeed 0.14 to 0.19, runtime/zero/stage_1_and_2.py and stage3.py).
 *   - A learning rate scheduler of transformers' Trainer is stepped once in each step of the training at most.
 *   - A trainer names the directory by the step that it writes into its own file. Users rename directories. But if
 *     optimizer or scheduler have the name's step and the trainer's file another, that file is of another save.
 *   - Each step changes an optimizer's states. If the optimizer made fewer steps than the training, and a file of it
 * is, byte for byte, that of another checkpoint of the run, it is the other checkpoint's. All else is worth a note at
 * most. */
#include "facts/steps.h"

#include "facts/optimizer_steps.h"
#include "facts/step_records.h"

struct steps {
	struct step_records said;
	struct optimizer_steps taken;
};

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

static int finding_add(struct collect *c, struct steps_found *out, enum uns_finding_id id,
		       const struct step_record *one, const struct step_record *other, const char *cause,
		       struct uns_err *err)
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
static int check_counter(struct collect *c, const struct steps *s, const struct step_record *counter,
			 struct steps_found *out, struct uns_err *err)
{
	const struct step_record *name = step_record_of(&s->said, COUNTS_NAME),
				 taken = { COUNTS_TRAINING, optimizer, s->taken.most.step };
	const char *cause = NULL;

	if (taken.step > counter->step + steps_before(c))
		return finding_add(c, out, UNS_FOUND_STEPS_DIFFER, &taken, counter,
				   "an optimizer makes one step at most in each step of the training", err);
	if (!name || step_record_find(&s->said, COUNTS_NAME, counter->step))
		return 0;
	if (!took_all(c, s, counter->step) && !step_record_find(&s->said, COUNTS_SCHEDULER, counter->step))
		cause = took_all(c, s, name->step) ? "the optimizer has made as many steps as the name has"
			: step_record_find(&s->said, COUNTS_SCHEDULER, name->step)
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

static int check_scheduler(struct collect *c, const struct steps *s, struct steps_found *out, struct uns_err *err)
{
	const struct step_record *scheduler = step_record_of(&s->said, COUNTS_SCHEDULER),
				 *counter = step_record_of(&s->said, COUNTS_TRAINING);

	if (!scheduler || !counter || scheduler->step <= counter->step ||
	    scheduler->step == counter->step * n_processes(c))
		return 0;
	return finding_add(c, out, UNS_FOUND_STEPS_DIFFER, scheduler, counter,
			   "a Trainer steps its scheduler once in each step of the training", err);
}

/* veRL and EasyR1 step the scheduler once at most in each step that the directory is named by. */
static int check_rounds(struct collect *c, const struct steps *s, struct steps_found *out, struct uns_err *err)
{
	const struct step_record *rounds = step_record_of(&s->said, COUNTS_ROUNDS),
				 *name = step_record_of(&s->said, COUNTS_NAME);

	if (!rounds || !name || rounds->step <= name->step)
		return 0;
	return finding_add(c, out, UNS_FOUND_STEP_UNLIKE_NAME, rounds, name, NULL, err);
}

/* What records how many steps the optimizer should have made, if nothing came between: that of DeepSpeed, which knows
 * what came between, the scheduler of ranks' files, or a Trainer's, which is not stepped where the optimizer is not.
 * NULL = nothing does. */
static const struct step_record *updates_of(const struct steps *s)
{
	const struct step_record *training = step_record_of(&s->said, COUNTS_TRAINING),
				 *updates = step_record_of(&s->said, COUNTS_UPDATES),
				 *rounds = step_record_of(&s->said, COUNTS_ROUNDS);

	if (updates || rounds)
		return updates ? updates : rounds;
	return training && step_record_find(&s->said, COUNTS_SCHEDULER, training->step) ? training : NULL;
}

static const struct uns_finding *disproof_of(const struct steps_found *found)
{
	size_t i;

	for (i = 0; i < found->v.n; i++)
		if (found->v.v[i].scope != UNS_SCOPE_NOTE)
			return &found->v.v[i];
	return NULL;
}

/* An optimizer that made fewer steps than the training: an earlier save's, or begun later. */
static int check_behind(struct collect *c, const struct steps *s, struct steps_found *out, struct uns_err *err)
{
	const struct step_record taken = { COUNTS_TRAINING, optimizer, s->taken.most.step }, *updates = updates_of(s),
				 *expected = updates ? updates : step_record_of(&s->said, COUNTS_TRAINING);
	const char *twin;

	if (disproof_of(out) || taken.step < 0 || !expected || taken.step >= expected->step)
		return 0;
	UNS_TRY(optimizer_twin_find(c, &twin, err));
	if (twin && !step_record_find(&s->said, COUNTS_SCHEDULER, taken.step))
		return finding_add(
			c, out, UNS_FOUND_STEPS_DIFFER, &taken, expected,
			uns_arena_printf(&c->scratch, "%s holds the same bytes as the file of that name here", twin),
			err);
	return updates && !out->v.n ? finding_add(c, out, UNS_FOUND_OPTIMIZER_BEHIND, &taken, updates, NULL, err) : 0;
}

static int compare(struct collect *c, struct steps_found *out, struct uns_err *err)
{
	struct steps s;
	size_t i;

	step_records_read(c, &s.said);
	UNS_TRY(optimizer_steps_read(c, &s.taken, err));
	if (c->failed)
		return uns_oom(err);
	if (c->fault.code)
		return uns_fail_copy(err, &c->fault);
	for (i = 0; i < s.said.n; i++)
		if (s.said.v[i].counts == COUNTS_TRAINING)
			UNS_TRY(check_counter(c, &s, &s.said.v[i], out, err));
	UNS_TRY(check_scheduler(c, &s, out, err));
	UNS_TRY(check_rounds(c, &s, out, err));
	UNS_TRY(optimizer_steps_compare(c, &s.taken, out, err));
	UNS_TRY(check_behind(c, &s, out, err));
	return uns_arena_check(&c->scratch, err);
}

int steps_compare(const struct training_input *in, struct steps_found *out, struct uns_err *err)
{
	struct collect c = { .in = in, .path = in->path };
	int code = compare(&c, out, err);

	collect_fini(&c);
	UNS_TRY(code);
	out->disproof = disproof_of(out);
	return uns_arena_check(&out->arena, err);
}

void steps_found_fini(struct steps_found *found)
{
	uns_arena_fini(&found->arena);
}
