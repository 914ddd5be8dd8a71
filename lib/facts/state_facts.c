/* What a trainer_state.json records of a checkpoint's training: the checkpoint's own, or that of another checkpoint of
 * the run. Of another one only what does not depend on the step is true here, and what it records up to this step. */
#include "facts/collect.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/number.h"
#include "base/path.h"
#include "files/trainer_state.h"
#include "wire/json.h"
#include "wire/json_text.h"

bool state_read(struct collect *c, const char *path, struct uns_span *text, struct uns_err *why)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	int code = uns_root_read_file(c->in->root, path, STATE_LIMIT_BYTES, &c->scratch, text, NULL, why);

	if (code == 0 && !uns_span_left(text))
		code = uns_fail(why, -EBADMSG, "the file is empty");
	if (code == 0)
		code = uns_json_parse(*text, &json, why);
	if (code == 0 && !cJSON_IsObject(json))
		code = uns_fail(why, -EBADMSG, "the file is not a JSON object");
	return collect_is_read(c, code, why);
}

/* Is the member `key` an integer? */
static bool member_int(struct uns_span object, const char *key, int64_t *out)
{
	struct uns_span v;

	return uns_json_text_get(object, key, &v) && uns_json_text_int(v, out);
}

int64_t state_step(struct uns_span state)
{
	int64_t step;

	return member_int(state, "global_step", &step) && step >= 0 ? step : UNS_UNKNOWN;
}

/* -- stateful_callbacks: a Trainer looks it up when it saves (without it, transformers 4.46 to 5.23 fail with KeyError
 * "TrainerControl"), and may create callbacks from it when it resumes -- */

/* The entry that a Trainer writes when it saves at its cadence. */
#define CONTROL                                                                \
	"\"TrainerControl\":{\"args\":{\"should_epoch_stop\":false,"           \
	"\"should_evaluate\":false,\"should_log\":false,\"should_save\":true," \
	"\"should_training_stop\":false},\"attributes\":{}}"

static bool is_control(struct uns_span name)
{
	static const char control[] = "\"TrainerControl\"";

	return uns_span_left(&name) == strlen(control) && memcmp(name.p, control, strlen(control)) == 0;
}

/* Adds a callback of another checkpoint's state. Its arguments are the same for the whole run. Its attributes count up
 * to that checkpoint's step, so they are left out. */
static void callback_add(struct collect *c, struct uns_text *out, struct uns_span name, struct uns_span v,
			 const char *origin)
{
	struct uns_span args, attributes, member;

	if (!uns_json_text_get(v, "args", &args))
		args = uns_span_of("{}", 2);
	uns_text_str(out, "{\"args\":");
	uns_text_add(out, args.p, uns_span_left(&args));
	uns_text_str(out, ",\"attributes\":{}}");
	if (uns_json_text_get(v, "attributes", &attributes) && uns_json_text_next(&attributes, NULL, &member))
		collect_note(c,
			     "trainer_state.json: the callback %.*s has the arguments found in %s; its "
			     "counts at this step are not known, so it counts from the beginning",
			     (int)uns_span_left(&name), (const char *)name.p, origin);
}

/* Takes the callbacks of a state. own = it is the checkpoint's own state, from which they are taken unchanged. Of
 * another state a value is one callback, or a list of several of the same class. */
static void callbacks_take(struct collect *c, struct uns_span state, bool own, const char *origin)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text made = UNS_TEXT_INIT;
	struct uns_span object, name, v, one;
	bool control = false;
	size_t n;

	if (!uns_json_text_get(state, CALLBACKS, &object) || *object.p != '{') {
		if (c->callbacks == CALLBACKS_UNRECORDED && !own)
			c->callbacks = CALLBACKS_UNKNOWN;
		return;
	}
	if (collect_find(c, CALLBACKS))
		return;
	uns_text_str(&made, "{");
	while (uns_json_text_next(&object, &name, &v)) {
		if (is_control(name) && !own)
			continue;
		control |= is_control(name);
		uns_text_str(&made, made.len > 1 ? "," : "");
		uns_text_add(&made, name.p, uns_span_left(&name));
		uns_text_str(&made, ":");
		if (own) {
			uns_text_add(&made, v.p, uns_span_left(&v));
		} else if (*v.p != '[') {
			callback_add(c, &made, name, v, origin);
		} else {
			uns_text_str(&made, "[");
			for (n = 0; uns_json_text_next(&v, NULL, &one); n++) {
				uns_text_str(&made, n ? "," : "");
				callback_add(c, &made, name, one, origin);
			}
			uns_text_str(&made, "]");
		}
	}
	if (!control)
		uns_text_printf(&made, "%s" CONTROL, made.len > 1 ? "," : "");
	uns_text_str(&made, "}");
	collect_offer_text(c, CALLBACKS, &made, origin);
}

#define UNRECORDED_CALLBACKS                                                            \
	"a Trainer since transformers 4.41 looks it up when it saves; no file records " \
	"whether the run had other callbacks with a state, such as EarlyStoppingCallback"

void state_assume_callbacks(struct collect *c)
{
	static const char control[] = "{" CONTROL "}";

	if (c->callbacks != CALLBACKS_UNKNOWN)
		collect_offer(c, CALLBACKS, uns_span_of(control, strlen(control)),
			      c->callbacks == CALLBACKS_KNOWN ? UNRECORDED_CALLBACKS
							      : UNRECORDED_CALLBACKS "; 4.40 needs null",
			      true);
}

/* -- what depends on the step -- */

/* Takes the entries up to `step`: those that the checkpoint's own state had when it was saved. */
static void history_take(struct collect *c, struct uns_span state, int64_t step, const char *origin)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text cut = UNS_TEXT_INIT;
	struct uns_span list, entry;
	int64_t at;
	size_t n = 0;

	if (!uns_json_text_get(state, "log_history", &list) || *list.p != '[')
		return;
	uns_text_str(&cut, "[");
	while (uns_json_text_next(&list, NULL, &entry)) {
		if (!member_int(entry, "step", &at) || at > step)
			continue;
		uns_text_str(&cut, n++ ? "," : "");
		uns_text_add(&cut, entry.p, uns_span_left(&entry));
		if (at == step)
			collect_offer_member(c, "epoch", entry, origin);
	}
	uns_text_str(&cut, "]");
	collect_offer_text(c, "log_history", &cut, origin);
}

void state_take_own(struct collect *c, struct uns_span state, int64_t step)
{
	static const char origin[] = "its own trainer_state.json";
	const char *key;
	size_t i;

	callbacks_take(c, state, true, origin);
	for (i = 0; (key = uns_trainer_state_key(i)); i++)
		if (strcmp(key, "global_step") != 0 && strcmp(key, CALLBACKS) != 0)
			collect_offer_member(c, key, state, origin);
	if (step >= 0)
		history_take(c, state, step, "the history in its own trainer_state.json");
}

/* -- the states of the run's other checkpoints, and of its directory -- */

static void sibling_take(struct collect *c, const char *path, int64_t step)
{
	static const char *const constant[] = { "train_batch_size", "logging_steps",    "eval_steps", "save_steps",
						"max_steps",        "num_train_epochs", "trial_name", "trial_params" };
	static const char *const best[] = { "best_metric", "best_model_checkpoint", "best_global_step" };
	struct uns_err why = { 0 };
	struct uns_span state, v;
	int64_t there, at;
	double epoch;
	size_t i;

	if (!path || !state_read(c, path, &state, &why))
		return;
	there = state_step(state);
	if (there >= 0)
		callbacks_take(c, state, false, path);
	for (i = 0; i < sizeof(constant) / sizeof(*constant); i++)
		collect_offer_member(c, constant[i], state, path);
	if (step < 0 || there < 0)
		return;
	history_take(c, state, step,
		     uns_arena_printf(&c->scratch, "the part %s %s", there < step ? "that is in" : "up to this step of",
				      path));
	/* The best model of a later state, if that state records that it was reached by `step`. */
	if (there >= step && member_int(state, "best_global_step", &at) && at <= step)
		for (i = 0; i < sizeof(best) / sizeof(*best); i++)
			collect_offer_member(c, best[i], state, path);
	/* This count never decreases, so a later state with 0 proves that it was 0 here. */
	if (there >= step && member_int(state, "num_input_tokens_seen", &at) && at == 0)
		collect_offer_member(c, "num_input_tokens_seen", state, path);
	if (there > 0 && uns_json_text_get(state, "epoch", &v) && uns_number_parse(v, &epoch))
		collect_offer_number(c, "epoch", epoch * (double)step / (double)there,
				     uns_arena_printf(&c->scratch, "the epoch scaled to this step from %s", path));
}

/* Has every fact that another state may have been found? */
static bool is_complete(const struct collect *c)
{
	static const char *const keys[] = { "train_batch_size", "logging_steps", "eval_steps", "save_steps",
					    "log_history",      "max_steps",     "epoch",      "num_train_epochs" };
	size_t i = 0;

	while (i < sizeof(keys) / sizeof(*keys) && collect_find(c, keys[i]))
		i++;
	return i == sizeof(keys) / sizeof(*keys) && (c->callbacks == CALLBACKS_UNKNOWN || collect_find(c, CALLBACKS));
}

void state_take_siblings(struct collect *c, int64_t step)
{
	const struct siblings *s = &c->siblings;
	bool run_done = !s->run;
	size_t i;

	/* The run's own state is behind the later checkpoints and in front of the earlier ones. */
	for (i = 0; i <= s->n_near && !is_complete(c); i++) {
		if (!run_done && (i == s->n_near || s->near[i].number < s->own)) {
			run_done = true;
			sibling_take(c, uns_path_join(&c->scratch, s->run, STATE_FILE), step);
		}
		if (i < s->n_near)
			sibling_take(c, s->near[i].state, step);
	}
}
