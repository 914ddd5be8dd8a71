/* What is known about the training a checkpoint belongs to, merged once for each snapshot: option > store > the
 * checkpoint's own files > its siblings and run directory > documented default. Owns which source is asked first, and
 * so which of two wins; what each source holds is in state_facts.c and saved_facts.c, what trainer_state.json looks
 * like in files/.
 *
 * A checkpoint whose own trainer_state.json is whole keeps it as it is, and nothing beside it is read: a run that
 * continues must not change what its finished checkpoints are.
 *
 * A source is passed over only if it is absent, or was read and is invalid. If a read fails for another reason (-EIO,
 * -EACCES, -EMFILE, ..) nothing is collected at all: the lookup fails with that error and the next one asks again. */
#include "facts/training_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/text.h"
#include "facts/collect.h"
#include "files/beside.h"
#include "files/trainer_state.h"
#include "megatron/model.h"
#include "megatron/schedule.h"

int training_check_option(const char *text, struct uns_err *err)
{
	const char *equals = strchr(text, '=');
	char key[64];

	if (!equals || (size_t)(equals - text) >= sizeof(key))
		return uns_fail(err, -EINVAL, "fact=%s: KEY=VALUE is expected", text);
	snprintf(key, sizeof(key), "%.*s", (int)(equals - text), text);
	if (uns_trainer_state_check_fact(key, equals + 1, err) < 0)
		return uns_fail_in(err, "fact=%s", text);
	return 0;
}

/* -- option and store -- */

static void options_take(struct collect *c)
{
	const char *key, *value;
	size_t i;

	for (i = 0; i < c->in->n_option; i++) {
		value = strchr(c->in->option[i], '=') + 1;
		key = uns_arena_strn(&c->scratch, c->in->option[i], (size_t)(value - c->in->option[i]) - 1);
		if (key)
			collect_offer(c, key, uns_span_of(value, strlen(value)), "-o fact=", false);
	}
}

static void store_take(struct collect *c)
{
	struct uns_store_fact *v;
	struct uns_err why = { 0 };
	const char *key;
	size_t n, i;
	int code = store_facts_known(c->in->store, c->path, c->in->has_facts, &c->scratch, &v, &n, &why);

	if (!collect_is_read(c, code, &why))
		return;
	for (i = 0; i < n; i++) {
		key = strcmp(v[i].key, "per_device_train_batch_size") == 0 ? "train_batch_size" : v[i].key;
		collect_offer(c, key, uns_span_of(v[i].json, strlen(v[i].json)),
			      uns_arena_printf(&c->scratch, "the store (%s)", v[i].origin), false);
	}
}

/* -- the step -- */

static void step_offer(struct collect *c, int i, int64_t step, const char *what)
{
	c->step[i].step = step;
	c->step[i].what = what;
}

/* Chooses the training step. An option wins over the directory's name, and the name over all others. Each source that
 * records another step gets a note. */
static int64_t step_settle(struct collect *c)
{
	const struct uns_fact *given = collect_find(c, "global_step");
	int64_t step;
	int i;

	for (i = 0; i < N_STEPS && !given; i++) {
		if (!c->step[i].what || c->step[i].step < 0)
			continue;
		collect_offer_number(c, "global_step", (double)c->step[i].step, c->step[i].what);
		given = collect_find(c, "global_step");
	}
	if (!given)
		return UNS_UNKNOWN;
	step = strtoll(given->json, NULL, 10);
	for (i = 0; i < N_STEPS; i++)
		if (c->step[i].what && c->step[i].step >= 0 && c->step[i].step != step)
			collect_note(c,
				     "the training step is assumed to be %lld (found from %s), but by %s "
				     "it is %lld: check that these files are of one save",
				     (long long)step, given->origin, c->step[i].what, (long long)c->step[i].step);
	return step;
}

/* save_steps, from the numbers of the checkpoints of the run: the smallest difference between two neighbours, if all
 * numbers but the last are multiples of it. The last may be none, because a Trainer also saves when the training ends.
 */
static void differences_take(struct collect *c)
{
	const struct siblings *s = &c->siblings;
	unsigned long long d = 0, gap;
	size_t i;

	for (i = 1; i < s->n; i++) {
		gap = s->number[i - 1] - s->number[i];
		if (gap && (!d || gap < d) && (i > 1 || s->n == 2))
			d = gap;
	}
	for (i = s->n > 2; d && i < s->n; i++)
		if (s->number[i] % d)
			return;
	if (d)
		collect_offer_number(c, "save_steps", (double)d,
				     "the differences between the numbers of the run's checkpoints");
}

/* -- what is assumed -- */

/* Assumes the default for each key that no file records, and adds a note about it.
 *
 * The arguments of the run that resumes do not count, whatever the file holds or lacks: every Trainer from 4.40 to 5.23
 * first computes the cadences from its arguments and then replaces its TrainerState by the file's (trainer.py,
 * compute_steps before load_from_json). For keys that the file lacks, TrainerState has 500. */
static void defaults_assume(struct collect *c)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	const char *key, *value, *path, *assumed[8];
	size_t i, n = 0;

	for (i = 0; (key = uns_trainer_state_key(i)); i++) {
		value = uns_trainer_state_assumed(key);
		if (!value || collect_find(c, key))
			continue;
		collect_offer(c, key, uns_span_of(value, strlen(value)),
			      "the default of transformers: no file records it", true);
		if (n < sizeof(assumed) / sizeof(*assumed))
			assumed[n++] = key;
	}
	if (!n)
		return;
	uns_text_str(&text, "a Trainer that resumes uses ");
	for (i = 0; i < n; i++)
		uns_text_printf(&text, "%s%s = %s", i ? ", " : "", assumed[i], uns_trainer_state_assumed(assumed[i]));
	uns_text_str(&text, " of trainer_state.json instead of its own arguments "
			    "(train_batch_size up to transformers 5.1). These defaults of transformers are "
			    "assumed here: before you resume, set them with `unshard meta set ");
	path = uns_path_for_shell(&c->scratch, uns_root_path(c->in->root), c->path);
	uns_text_str(&text, path ? path : "CHECKPOINT");
	for (i = 0; i < n; i++)
		uns_text_printf(&text, " %s=N", assumed[i]);
	uns_text_str(&text, "` or by mounting with -o ");
	for (i = 0; i < n; i++)
		uns_text_printf(&text, "%sfact=%s=N", i ? "," : "", assumed[i]);
	c->failed |= text.failed;
	if (text.failed)
		return;
	collect_note(c, "%s", text.p);
	c->out->assumed = uns_arena_str(&c->out->arena, text.p);
}

/* -- all of it -- */

/* The checkpoint's own trainer_state.json is valid: views show it unchanged. */
static void own_keep(struct collect *c, struct uns_span state, struct uns_span unknown)
{
	size_t i;

	c->out->state_valid = true;
	step_offer(c, 0, state_step(state), "its own trainer_state.json");
	step_offer(c, 1, uns_beside_named_step(c->in->root, c->path, "checkpoint-"), "the directory's name");
	if (unknown.p)
		collect_note(c,
			     "trainer_state.json has a key %.*s that transformers up to 5.23 does not "
			     "know: only the version that wrote the file can load it",
			     (int)uns_span_left(&unknown), (const char *)unknown.p);
	for (i = 0; i < c->in->n_option; i++)
		collect_note(c, "-o fact=%s is not used: the checkpoint has a valid trainer_state.json",
			     c->in->option[i]);
	step_settle(c);
}

/* Collects the facts of a trainer_state.json that the checkpoint does not have, or that is not valid as a whole. */
static void sources_take(struct collect *c, struct uns_span state)
{
	struct uns_err why = { 0 };
	int64_t step;

	if (!collect_is_read(c, siblings_find(c->in->root, NULL, &c->scratch, c->path, &c->siblings, &why), &why))
		c->siblings = (struct siblings){ 0 };
	options_take(c);
	store_take(c);
	step_offer(c, 0, uns_beside_named_step(c->in->root, c->path, "checkpoint-"), "the directory's name");
	step_offer(c, 1, state.p ? state_step(state) : UNS_UNKNOWN, "its own trainer_state.json");
	step_offer(c, 2, saved_scheduler_step(c), "scheduler.pt (last_epoch)");
	step = saved_sharded_step(c);
	step_offer(c, 3, step >= 0 ? step : saved_plain_step(c), "the optimizer's step");
	step = step_settle(c);
	if (state.p)
		state_take_own(c, state, step);
	saved_take_args(c, c->path);
	state_take_siblings(c, step);
	if (c->siblings.run)
		saved_take_args(c, c->siblings.run);
	differences_take(c);
}

/* Collects for a checkpoint that a Trainer saved. Returns true if its own trainer_state.json stays. */
static bool trainer_collect(struct collect *c)
{
	const char *own = uns_path_join(&c->scratch, c->path, STATE_FILE);
	struct uns_span state = { NULL, NULL }, unknown = { NULL, NULL };
	struct uns_err why = { 0 };
	const char *absent;
	bool valid = false;

	if (own && uns_catalog_companion(c->in->cat, STATE_FILE)) {
		if (!state_read(c, own, &state, &why))
			state = (struct uns_span){ NULL, NULL };
		else
			valid = uns_trainer_state_check((const char *)state.p, uns_span_left(&state), &unknown, &why) ==
				0;
		c->failed |= why.code == -ENOMEM;
		if (c->fault.code || c->failed)
			return true;
		/* A file that is too large to be checked is no reason to replace it. */
		if (!valid && why.code == -ENOTSUP)
			collect_note(c, "trainer_state.json is shown unchanged and was not checked: %s", why.text);
		absent = valid ? uns_trainer_state_absent((const char *)state.p, uns_span_left(&state), 0) : NULL;
		if ((valid && !absent) || why.code == -ENOTSUP) {
			own_keep(c, state, unknown);
			return true;
		}
		if (absent)
			collect_note(c,
				     "the checkpoint's trainer_state.json has no %s, so the view shows a copy with "
				     "what is missing",
				     absent);
		else
			collect_note(c,
				     "a Trainer cannot load the checkpoint's trainer_state.json, so the view "
				     "shows another in its place: %s",
				     why.text);
	}
	sources_take(c, state);
	return false;
}

int training_collect(const struct training_input *in, struct training_found *out, struct uns_err *err)
{
	UNS_CLEANUP(collect_fini) struct collect c = { .in = in, .out = out, .path = in->path };
	bool assumes;

	UNS_TRY(collect_begin(&c, err));
	if (in->cat->summary.resumed_by & UNS_BY_TRAINER) {
		assumes = !trainer_collect(&c);
	} else {
		/* Only the step matters, because DeepSpeed's engine counts it too. The optimizer comes last, because
		 * its bytes must be read. */
		options_take(&c);
		store_take(&c);
		step_offer(&c, 0, in->cat->summary.step, "the checkpoint");
		if (step_settle(&c) < 0) {
			step_offer(&c, 3, saved_sharded_step(&c), "the optimizer's step");
			step_settle(&c);
		}
		/* The view full has what a Trainer resumes from, and no file records what trainer_state.json would. */
		assumes = uns_megatron_has_optimizer(in->cat) && uns_megatron_has_schedule(in->cat);
	}
	if (assumes)
		state_assume_callbacks(&c);
	if (assumes && !c.fault.code)
		defaults_assume(&c);
	return collect_end(&c, err);
}

void training_found_fini(struct training_found *found)
{
	uns_arena_fini(&found->arena);
}
