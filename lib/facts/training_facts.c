/* What is known about the training a checkpoint belongs to, merged once for each snapshot: option >
 * store > the checkpoint's own files > its siblings and run directory > documented default. Owns
 * where facts are looked for and which of two wins; what trainer_state.json looks like is in files/.
 *
 * A checkpoint whose own trainer_state.json is whole keeps it as it is, and nothing beside it is
 * looked at: a run that goes on must not change what its finished checkpoints are.
 *
 * A source is passed over only where it is absent or was read and is invalid. Where a read fails for
 * another reason (-EIO, -EACCES, -EMFILE, ..) nothing is collected at all: the lookup fails with that
 * error and the next one asks again. */
#include "facts/training_facts.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "facts/siblings.h"
#include "files/megatron_model.h"
#include "files/megatron_schedule.h"
#include "files/resume_files.h"
#include "files/trainer_state.h"
#include "wire/json.h"
#include "wire/json_text.h"
#include "wire/torchfile.h"

enum { STATE_LIMIT_BYTES = 64 << 20, N_STEPS = 4 };

static const char STATE[] = "trainer_state.json";

/* Does the transformers version that saved this run have TrainerState.stateful_callbacks (4.41 and newer)?
 * UNTOLD: no file that was read shows it. KNOWN: it has. UNKNOWN: it has not. */
enum callbacks { CALLBACKS_UNTOLD, CALLBACKS_KNOWN, CALLBACKS_UNKNOWN };

struct collect {
	const struct training_input *in;
	struct training_found *out;
	const char *path;
	struct uns_arena scratch;
	struct siblings siblings;
	struct uns_fact *v; /* at most one for each key */
	size_t n;
	const char **note;
	size_t n_notes, cap_notes;
	enum callbacks callbacks;
	bool failed;          /* out of memory */
	struct uns_err fault; /* the first read that failed for a passing reason (-EIO, -EACCES, -EMFILE) */

	/* The training step as each source records it, the most trusted source first. what = NULL: the
	 * source was not read. step < 0: the source records none. */
	struct {
		int64_t step;
		const char *what;
	} step[N_STEPS];
};

static void collect_fini(struct collect *c)
{
	uns_arena_fini(&c->scratch);
}

/* -- reading -- */

/* `code` is what a read returned. Returns true if the file was read, and false if it is absent or invalid.
 * After a failure of the moment returns false too and keeps it in c->fault; training_collect then fails
 * with it. */
static bool is_read(struct collect *c, int code, const struct uns_err *why)
{
	uns_fail_if_passing(&c->fault, code, why);
	return code >= 0;
}

/* -- the list of facts -- */

/* Makes room for one fact of each key, and for all notes that can come up. */
static bool make_room(struct collect *c)
{
	size_t n_keys = 0;

	while (uns_trainer_state_key(n_keys))
		n_keys++;
	c->cap_notes = 32 + N_STEPS + c->in->n_option;
	c->v = UNS_NEW_N(&c->out->arena, struct uns_fact, n_keys);
	c->note = UNS_NEW_N(&c->out->arena, const char *, c->cap_notes);
	return c->v && c->note;
}

__attribute__((format(printf, 2, 3))) static void note(struct collect *c, const char *fmt, ...)
{
	va_list ap;

	if (c->n_notes == c->cap_notes)
		return;
	va_start(ap, fmt);
	c->note[c->n_notes] = uns_arena_vprintf(&c->out->arena, fmt, ap);
	va_end(ap);
	c->failed |= !c->note[c->n_notes++];
}

static const struct uns_fact *find(const struct collect *c, const char *key)
{
	size_t i;

	for (i = 0; i < c->n; i++)
		if (strcmp(c->v[i].key, key) == 0)
			return &c->v[i];
	return NULL;
}

static bool has(const struct collect *c, const char *key)
{
	return find(c, key) != NULL;
}

/* Takes a value for `key`, unless an earlier source had one. Ignores a value of the wrong type. */
static void offer(struct collect *c, const char *key, const char *json, size_t len,
		  const char *origin, bool assumed)
{
	struct uns_fact f = { .key = key, .assumed = assumed };
	int code = -ENOMEM;

	if (has(c, key))
		return;
	f.json = uns_arena_strn(&c->out->arena, json, len);
	f.origin = uns_arena_str(&c->out->arena, origin);
	if (f.json && f.origin)
		code = uns_trainer_state_check_fact(key, f.json, NULL);
	c->failed |= code == -ENOMEM;
	if (code == 0)
		c->v[c->n++] = f;
}

static void offer_span(struct collect *c, const char *key, struct uns_span v, const char *origin)
{
	offer(c, key, (const char *)v.p, uns_span_left(&v), origin, false);
}

static void offer_number(struct collect *c, const char *key, double value, const char *origin)
{
	char text[40];

	snprintf(text, sizeof(text), value == floor(value) ? "%.0f" : "%.15g", value);
	offer(c, key, text, strlen(text), origin, false);
}

static const char *said(struct collect *c, const char *what, const char *path)
{
	const char *text = uns_arena_printf(&c->scratch, "%s %s", what, path);

	c->failed |= !text;
	return text ? text : what;
}

/* -- option -- */

static void take_options(struct collect *c)
{
	const char *equals;
	size_t i, k;

	for (i = 0; i < c->in->n_option; i++) {
		equals = strchr(c->in->option[i], '=');
		for (k = 0; uns_trainer_state_key(k); k++)
			if (strlen(uns_trainer_state_key(k)) == (size_t)(equals - c->in->option[i]) &&
			    uns_str_starts(c->in->option[i], uns_trainer_state_key(k)))
				offer(c, uns_trainer_state_key(k), equals + 1, strlen(equals + 1),
				      "-o fact=", false);
	}
}

/* -- store -- */

static void take_store(struct collect *c)
{
	struct uns_store_fact *v;
	struct uns_err why = { 0 };
	const char *key, *origin;
	size_t n, i, k;
	int code = store_facts_known(c->in->store, c->path, c->in->has_facts, &c->scratch, &v, &n,
				     &why);

	if (!is_read(c, code, &why))
		return;
	for (i = 0; i < n; i++) {
		origin = uns_arena_printf(&c->scratch, "the store (%s)", v[i].origin);
		key = strcmp(v[i].key, "per_device_train_batch_size") == 0 ? "train_batch_size" :
									     v[i].key;
		for (k = 0; origin && uns_trainer_state_key(k); k++)
			if (strcmp(uns_trainer_state_key(k), key) == 0)
				offer(c, uns_trainer_state_key(k), v[i].json, strlen(v[i].json),
				      origin, false);
		c->failed |= !origin;
	}
}

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

/* -- trainer_state.json, the checkpoint's own or another's -- */

/* Reads a file whose content must be a JSON object, of which *text is the text. Returns false otherwise;
 * *why says what is wrong. */
static bool read_state(struct collect *c, const char *path, struct uns_span *text,
		       struct uns_err *why)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	int code = uns_root_read_file(c->in->root, path, STATE_LIMIT_BYTES, &c->scratch, text, NULL,
				      why);

	if (code == 0 && !uns_span_left(text))
		code = uns_fail(why, -EBADMSG, "it is empty");
	if (code == 0)
		code = uns_json_parse(*text, &json, why);
	if (code == 0 && !cJSON_IsObject(json))
		code = uns_fail(why, -EBADMSG, "it is not a JSON object");
	return is_read(c, code, why);
}

static int64_t state_step(struct uns_span state)
{
	struct uns_span v;
	int64_t step;

	return uns_json_text_get(state, "global_step", &v) && uns_json_text_int(v, &step) &&
			       step >= 0 ?
		       step :
		       UNS_UNKNOWN;
}

/* -- stateful_callbacks: a Trainer looks it up when it saves (without it, transformers 4.46 to 5.23 fail
 * with KeyError "TrainerControl"), and may create callbacks from it when it resumes -- */

static const char CALLBACKS[] = "stateful_callbacks";

/* The entry that a Trainer writes when it saves at its cadence. */
#define CONTROL                                                              \
	"\"TrainerControl\":{\"args\":{\"should_epoch_stop\":false,"           \
	"\"should_evaluate\":false,\"should_log\":false,\"should_save\":true," \
	"\"should_training_stop\":false},\"attributes\":{}}"

static bool is_control(struct uns_span name)
{
	static const char control[] = "\"TrainerControl\"";

	return uns_span_left(&name) == strlen(control) &&
	       memcmp(name.p, control, strlen(control)) == 0;
}

/* Takes a callback from another checkpoint's state. Its arguments are the same for the whole run. Its
 * attributes count up to that checkpoint's step, so they are left out. */
static void add_callback(struct collect *c, struct uns_text *out, struct uns_span name,
			 struct uns_span v, const char *origin)
{
	struct uns_span args, attributes, member;

	if (!uns_json_text_get(v, "args", &args))
		args = uns_span_of("{}", 2);
	uns_text_str(out, "{\"args\":");
	uns_text_add(out, args.p, uns_span_left(&args));
	uns_text_str(out, ",\"attributes\":{}}");
	if (uns_json_text_get(v, "attributes", &attributes) &&
	    uns_json_text_next(&attributes, NULL, &member))
		note(c,
		     "trainer_state.json: the callback %.*s has the arguments found in %s; its "
		     "counts at this step are not known, so it counts from the beginning",
		     (int)uns_span_left(&name), (const char *)name.p, origin);
}

/* The value is one callback, or a list of several of the same class. */
static void add_callbacks(struct collect *c, struct uns_text *out, struct uns_span name,
			  struct uns_span v, const char *origin)
{
	struct uns_span one;
	size_t n = 0;

	if (*v.p != '[') {
		add_callback(c, out, name, v, origin);
		return;
	}
	uns_text_str(out, "[");
	while (uns_json_text_next(&v, NULL, &one)) {
		uns_text_str(out, n++ ? "," : "");
		add_callback(c, out, name, one, origin);
	}
	uns_text_str(out, "]");
}

/* Takes the callbacks of a state. own = it is the checkpoint's own state, from which they are taken
 * unchanged; of another checkpoint's state the counts are left out (add_callback). */
static void take_callbacks(struct collect *c, struct uns_span state, bool own, const char *origin)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text made = UNS_TEXT_INIT;
	struct uns_span object, name, v;
	bool control = false;

	if (!uns_json_text_get(state, CALLBACKS, &object) || *object.p != '{') {
		if (c->callbacks == CALLBACKS_UNTOLD && !own)
			c->callbacks = CALLBACKS_UNKNOWN;
		return;
	}
	if (has(c, CALLBACKS))
		return;
	uns_text_str(&made, "{");
	while (uns_json_text_next(&object, &name, &v)) {
		if (is_control(name) && !own)
			continue;
		control |= is_control(name);
		uns_text_str(&made, made.len > 1 ? "," : "");
		uns_text_add(&made, name.p, uns_span_left(&name));
		uns_text_str(&made, ":");
		if (own)
			uns_text_add(&made, v.p, uns_span_left(&v));
		else
			add_callbacks(c, &made, name, v, origin);
	}
	if (!control)
		uns_text_printf(&made, "%s" CONTROL, made.len > 1 ? "," : "");
	uns_text_str(&made, "}");
	c->failed |= made.failed;
	if (!made.failed)
		offer(c, CALLBACKS, made.p, made.len, origin, false);
}

#define UNTOLD_CALLBACKS                                                                   \
	"a Trainer since transformers 4.41 looks it up when it saves; no file records "         \
	"whether the run had other callbacks with a state, such as EarlyStoppingCallback"

/* No file names the run's callbacks. Assume that it had none with a state, as a Trainer has by default. */
static void assume_callbacks(struct collect *c)
{
	if (has(c, CALLBACKS) || c->callbacks == CALLBACKS_UNKNOWN)
		return;
	offer(c, CALLBACKS, "{" CONTROL "}", strlen("{" CONTROL "}"),
	      c->callbacks == CALLBACKS_KNOWN ? UNTOLD_CALLBACKS : UNTOLD_CALLBACKS "; 4.40 needs null",
	      true);
}

/* The checkpoint's own trainer_state.json is not valid as a whole; its valid entries are used. */
static void take_own_state(struct collect *c, struct uns_span state)
{
	static const char origin[] = "its own trainer_state.json";
	const char *key;
	struct uns_span v;
	size_t i;

	take_callbacks(c, state, true, origin);
	for (i = 0; (key = uns_trainer_state_key(i)); i++)
		if (strcmp(key, "global_step") != 0 && strcmp(key, CALLBACKS) != 0 &&
		    uns_json_text_get(state, key, &v))
			offer_span(c, key, v, origin);
}

/* Takes the entries up to `step`: those that the checkpoint's own state had when it was saved. */
static void take_history(struct collect *c, struct uns_span state, int64_t step,
			 const char *origin)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text cut = UNS_TEXT_INIT;
	struct uns_span list, entry, v;
	int64_t at;
	size_t n = 0;

	if (!uns_json_text_get(state, "log_history", &list) || *list.p != '[')
		return;
	uns_text_str(&cut, "[");
	while (uns_json_text_next(&list, NULL, &entry)) {
		if (!uns_json_text_get(entry, "step", &v) || !uns_json_text_int(v, &at) ||
		    at > step)
			continue;
		uns_text_str(&cut, n++ ? "," : "");
		uns_text_add(&cut, entry.p, uns_span_left(&entry));
		if (at == step && uns_json_text_get(entry, "epoch", &v))
			offer_span(c, "epoch", v, origin);
	}
	uns_text_str(&cut, "]");
	c->failed |= cut.failed;
	if (!cut.failed)
		offer(c, "log_history", cut.p, cut.len, origin, false);
}

/* Takes the best model of a later state, if that state records that it was reached by `step`. */
static void take_best(struct collect *c, struct uns_span state, int64_t step, const char *origin)
{
	static const char *const keys[] = { "best_metric", "best_model_checkpoint",
					    "best_global_step" };
	struct uns_span v;
	int64_t at;
	size_t i;

	if (!uns_json_text_get(state, "best_global_step", &v) || !uns_json_text_int(v, &at) ||
	    at > step)
		return;
	for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (uns_json_text_get(state, keys[i], &v))
			offer_span(c, keys[i], v, origin);
}

static void take_epoch(struct collect *c, struct uns_span state, int64_t step, const char *path)
{
	int64_t there = state_step(state);
	struct uns_span v;
	char text[40];

	if (step < 0 || there <= 0 || !uns_json_text_get(state, "epoch", &v) ||
	    uns_span_left(&v) >= sizeof(text))
		return;
	snprintf(text, sizeof(text), "%.*s", (int)uns_span_left(&v), (const char *)v.p);
	offer_number(c, "epoch", strtod(text, NULL) * (double)step / (double)there,
		     said(c, "the epoch scaled to this step from", path));
}

static void take_sibling(struct collect *c, const char *path, int64_t step)
{
	static const char *const keys[] = { "train_batch_size", "logging_steps", "eval_steps",
					    "save_steps",       "max_steps",     "num_train_epochs",
					    "trial_name",       "trial_params" };
	struct uns_err why = { 0 };
	struct uns_span state, v;
	int64_t there, seen;
	size_t i;

	if (!path) {
		c->failed = true;
		return;
	}
	if (!read_state(c, path, &state, &why))
		return;
	there = state_step(state);
	if (there >= 0)
		take_callbacks(c, state, false, path);
	for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (uns_json_text_get(state, keys[i], &v))
			offer_span(c, keys[i], v, path);
	if (step < 0 || there < 0)
		return;
	take_history(c, state, step, said(c, there < step ? "the part that is in" : "the part up "
									       "to this step of",
					  path));
	if (there >= step)
		take_best(c, state, step, path);
	/* This count never decreases, so a later state with 0 proves that it was 0 here. */
	if (there >= step && uns_json_text_get(state, "num_input_tokens_seen", &v) &&
	    uns_json_text_int(v, &seen) && seen == 0)
		offer_span(c, "num_input_tokens_seen", v, path);
	take_epoch(c, state, step, path);
}

static bool is_complete(const struct collect *c)
{
	return has(c, "train_batch_size") && has(c, "logging_steps") && has(c, "eval_steps") &&
	       has(c, "save_steps") && has(c, "log_history") && has(c, "max_steps") &&
	       has(c, "epoch") && has(c, "num_train_epochs") &&
	       (has(c, CALLBACKS) || c->callbacks == CALLBACKS_UNKNOWN);
}

static void take_siblings(struct collect *c, int64_t step)
{
	const struct siblings *s = &c->siblings;
	bool run_done = !s->run;
	size_t i;

	for (i = 0; i < s->n_near && !is_complete(c); i++) {
		if (s->near[i].number < s->own && !run_done) {
			run_done = true;
			take_sibling(c, uns_path_join(&c->scratch, s->run, STATE), step);
		}
		take_sibling(c, s->near[i].state, step);
	}
	if (!run_done && !is_complete(c))
		take_sibling(c, uns_path_join(&c->scratch, s->run, STATE), step);
}

/* save_steps, from the numbers of the checkpoints of the run: the smallest difference between two
 * neighbours, if all numbers but the last are multiples of it. The last may be none, because a Trainer
 * also saves when the training ends. */
static void take_differences(struct collect *c)
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
		offer_number(c, "save_steps", (double)d,
			     "the differences between the numbers of the run's checkpoints");
}

/* -- training_args.json, training_args.bin -- */

struct args {
	const cJSON *json;
	const struct uns_value *object;
};

/* Returns false if the argument is absent, or is not a number. *none = it exists and is None. */
static bool args_number(const struct args *a, const char *key, double *out, bool *none)
{
	const cJSON *j = cJSON_GetObjectItemCaseSensitive(a->json, key);
	const struct uns_value *v = uns_value_field(a->object, key);

	*none = cJSON_IsNull(j) || (v && v->kind == UNS_VALUE_NONE);
	if (cJSON_IsNumber(j)) {
		*out = j->valuedouble;
		return true;
	}
	return uns_value_float(v, out);
}

/* A cadence below 1 means a share of max_steps (transformers, TrainerState.compute_steps). */
static void take_cadence(struct collect *c, const struct args *a, const char *key,
			 const char *origin)
{
	const struct uns_fact *max = find(c, "max_steps");
	double value;
	bool none;

	if (!args_number(a, key, &value, &none)) {
		if (none) /* the argument is None: TrainerState keeps its default */
			offer_number(c, key, 500, origin);
		return;
	}
	if (value < 1 && max)
		value = ceil(value * strtod(max->json, NULL));
	if (value >= 1)
		offer_number(c, key, value, origin);
}

static void take_args(struct collect *c, const struct args *a, const char *origin)
{
	double value, devices;
	bool none;

	if (args_number(a, "max_steps", &value, &none) && value > 0)
		offer_number(c, "max_steps", value, origin);
	else if (args_number(a, "num_train_epochs", &value, &none))
		offer_number(c, "num_train_epochs", ceil(value), origin);
	take_cadence(c, a, "save_steps", origin);
	take_cadence(c, a, "logging_steps", origin);
	take_cadence(c, a, "eval_steps", origin);
	/* TrainingArguments got this argument in the version that got stateful_callbacks, 4.41. */
	if (uns_value_field(a->object, "per_device_train_batch_size") &&
	    c->callbacks == CALLBACKS_UNTOLD)
		c->callbacks = uns_value_field(a->object, "restore_callback_states_from_checkpoint") ?
				       CALLBACKS_KNOWN :
				       CALLBACKS_UNKNOWN;
	if (!args_number(a, "_n_gpu", &devices, &none) || devices < 1)
		devices = 1;
	if (args_number(a, "per_device_train_batch_size", &value, &none) && value >= 1)
		offer_number(c, "train_batch_size", value * devices, origin);
}

static void take_args_json(struct collect *c, const char *path)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	struct uns_err why = { 0 };
	struct args a = { 0 };
	struct uns_span text;
	int code = uns_root_read_file(c->in->root, path, STATE_LIMIT_BYTES, &c->scratch, &text, NULL,
				      &why);

	if (code == 0)
		code = uns_json_parse(text, &json, &why);
	if (!is_read(c, code, &why))
		return;
	a.json = json;
	take_args(c, &a, path);
}

struct torch_source {
	int fd;
	struct uns_open_file file;
	struct uns_reader reader;
	struct uns_torchfile torch;
};

static void torch_source_fini(struct torch_source *s)
{
	uns_close_p(&s->fd);
}

static bool torch_source_open(struct collect *c, const struct uns_root *root, const char *path,
			      struct torch_source *s)
{
	struct uns_err why = { 0 };
	struct uns_stat st;
	int code = uns_root_open_file(root, path, &s->fd, &st, &why);

	if (code < 0)
		return is_read(c, code, &why);
	s->file = (struct uns_open_file){ s->fd, path };
	s->reader = uns_reader_of_file(&s->file, st.id.size);
	code = uns_torchfile_open(&s->reader, &c->scratch, &s->torch, &why);
	return is_read(c, code, &why);
}

static void take_args_bin(struct collect *c, const char *path)
{
	UNS_CLEANUP(torch_source_fini) struct torch_source s = { .fd = -1 };
	struct args a = { 0 };

	if (!torch_source_open(c, c->in->root, path, &s))
		return;
	a.object = s.torch.root;
	take_args(c, &a, path);
}

static void take_args_of(struct collect *c, const char *dir)
{
	const char *json = uns_path_join(&c->scratch, dir, "training_args.json"),
		   *bin = uns_path_join(&c->scratch, dir, "training_args.bin");

	if (!json || !bin) {
		c->failed = true;
		return;
	}
	take_args_json(c, json);
	take_args_bin(c, bin);
}

/* -- the step -- */

static const struct uns_file *companion_file(const struct collect *c, const char *name)
{
	const struct uns_companion *found = uns_catalog_companion(c->in->cat, name);

	return found ? &c->in->cat->files[found->file] : NULL;
}

static int64_t scheduler_step(struct collect *c)
{
	UNS_CLEANUP(torch_source_fini) struct torch_source s = { .fd = -1 };
	const struct uns_file *f = companion_file(c, "scheduler.pt");
	int64_t step;

	if (!f || !torch_source_open(c, f->root, f->path, &s) ||
	    !uns_value_int(uns_value_get(s.torch.root, "last_epoch"), &step) || step < 0)
		return UNS_UNKNOWN;
	return step;
}

static int64_t whole_step(double value)
{
	return value >= 0 && value < 1e15 && value == floor(value) ? (int64_t)value : UNS_UNKNOWN;
}

/* The `step` of one parameter of the sharded optimizer, a tensor without dimensions. */
static int64_t sharded_step(struct collect *c)
{
	const struct uns_catalog *cat = c->in->cat;
	struct uns_layout_builder b = { .arena = &c->scratch };
	struct uns_err why = { 0 };
	struct uns_layout layout;
	int64_t code;
	float value;
	size_t i;

	for (i = 0; i < cat->n_tensors; i++)
		if (cat->tensors[i].role == UNS_ROLE_STEP &&
		    uns_shape_elems(&cat->tensors[i].shape) == 1)
			break;
	if (i == cat->n_tensors)
		return UNS_UNKNOWN;
	uns_layout_tensor(&b, &cat->tensors[i], 0, 1, UNS_F32);
	code = uns_layout_build(&b, cat, &layout, &why);
	if (code == 0)
		code = uns_read(c->in->backing, &layout, &value, sizeof(value), 0, &why);
	return is_read(c, code < 0 ? (int)code : 0, &why) && code == sizeof(value) ?
		       whole_step((double)value) :
		       UNS_UNKNOWN;
}

static int64_t tensor_step(struct collect *c, const struct torch_source *s,
			   const struct uns_value *v)
{
	struct uns_err why = { 0 };
	struct uns_torch_tensor t;
	double number;
	float value;

	if (uns_value_float(v, &number))
		return whole_step(number);
	if (!v || !uns_torch_is_tensor(v) ||
	    !is_read(c, uns_torch_tensor(&s->torch, v, &t, &why), &why) || t.dtype != UNS_F32 ||
	    t.storage_bytes < sizeof(value) ||
	    !is_read(c, uns_reader_pread(&s->reader, &value, sizeof(value), t.data_bytes, &why),
		     &why))
		return UNS_UNKNOWN;
	return whole_step((double)value);
}

/* The same from an optimizer.pt that holds the whole optimizer. */
static int64_t plain_step(struct collect *c)
{
	UNS_CLEANUP(torch_source_fini) struct torch_source s = { .fd = -1 };
	const struct uns_file *f = companion_file(c, "optimizer.pt");
	const struct uns_value *state;

	if (!f || !torch_source_open(c, f->root, f->path, &s))
		return UNS_UNKNOWN;
	state = uns_value_get(s.torch.root, "state");
	if (!state || state->kind != UNS_VALUE_DICT || !state->n)
		return UNS_UNKNOWN;
	return tensor_step(c, &s, uns_value_get(state->pair[0].value, "step"));
}

static int64_t named_step(const struct collect *c)
{
	unsigned long long n;

	return uns_str_number(uns_root_name(c->in->root, c->path), "checkpoint-", "", &n) && n <= INT64_MAX ?
		       (int64_t)n :
		       UNS_UNKNOWN;
}

static void say_step(struct collect *c, int i, int64_t step, const char *what)
{
	c->step[i].step = step;
	c->step[i].what = what;
}

/* Chooses the training step. An option wins over the directory's name, and the name over all others. Each
 * source that records another step gets a note. */
static int64_t settle_step(struct collect *c)
{
	const struct uns_fact *given = find(c, "global_step");
	int64_t step;
	int i;

	for (i = 0; i < N_STEPS && !given; i++) {
		if (!c->step[i].what || c->step[i].step < 0)
			continue;
		offer_number(c, "global_step", (double)c->step[i].step, c->step[i].what);
		given = find(c, "global_step");
	}
	if (!given)
		return UNS_UNKNOWN;
	step = strtoll(given->json, NULL, 10);
	for (i = 0; i < N_STEPS; i++)
		if (c->step[i].what && c->step[i].step >= 0 && c->step[i].step != step)
			note(c,
			     "the training step is assumed to be %lld (found from %s), but by %s "
			     "it is %lld: check that these files are of one save",
			     (long long)step, given->origin, c->step[i].what,
			     (long long)c->step[i].step);
	return step;
}

/* -- all of it -- */

/* Writes the checkpoint's path so that it can be pasted into a shell. */
static void write_path(struct collect *c, struct uns_text *out)
{
	const char *root = uns_root_path(c->in->root);
	char *path = uns_path_join(&c->scratch, strcmp(root, "/") == 0 ? "" : root, c->path);
	bool plain = path && !path[strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
						"0123456789_./=+,:@%-")];

	if (!path || strchr(path, '\''))
		uns_text_str(out, "CHECKPOINT");
	else
		uns_text_printf(out, plain ? "%s%s" : "'%s%s'", strcmp(root, "/") == 0 ? "/" : "",
				path);
}

/* The arguments of the run that resumes do not count, whatever the file holds or lacks: every Trainer from
 * 4.40 to 5.23 first computes the cadences from its arguments and then replaces its TrainerState by the
 * file's (trainer.py, compute_steps before load_from_json). For keys that the file lacks, TrainerState has
 * 500. */
static void say_what_is_assumed(struct collect *c, const char *const *keys, size_t n)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	size_t i;

	if (!n)
		return;
	uns_text_str(&text, "a Trainer that resumes uses ");
	for (i = 0; i < n; i++)
		uns_text_printf(&text, "%s%s = %s", i ? ", " : "", keys[i], uns_trainer_state_assumed(keys[i]));
	uns_text_str(&text, " of trainer_state.json instead of its own arguments "
			    "(train_batch_size up to transformers 5.1). These defaults of transformers are "
			    "assumed here: before you resume, set them with `unshard meta set ");
	write_path(c, &text);
	for (i = 0; i < n; i++)
		uns_text_printf(&text, " %s=N", keys[i]);
	uns_text_str(&text, "` or by mounting with -o ");
	for (i = 0; i < n; i++)
		uns_text_printf(&text, "%sfact=%s=N", i ? "," : "", keys[i]);
	c->failed |= text.failed;
	if (text.failed)
		return;
	note(c, "%s", text.p);
	c->out->assumed = uns_arena_str(&c->out->arena, text.p);
	c->failed |= !c->out->assumed;
}

static void assume(struct collect *c)
{
	const char *key, *value, *assumed[8];
	size_t i, n = 0;

	for (i = 0; (key = uns_trainer_state_key(i)); i++) {
		value = uns_trainer_state_assumed(key);
		if (!value || has(c, key))
			continue;
		offer(c, key, value, strlen(value),
		      "the default of transformers: no file records it", true);
		if (n < sizeof(assumed) / sizeof(*assumed))
			assumed[n++] = key;
	}
	say_what_is_assumed(c, assumed, n);
}

/* The checkpoint's own trainer_state.json is valid: views show it unchanged. */
static void keep_own(struct collect *c, struct uns_span state, struct uns_span unknown)
{
	size_t i;

	c->out->state_valid = true;
	say_step(c, 0, state_step(state), "its own trainer_state.json");
	say_step(c, 1, named_step(c), "the directory's name");
	if (unknown.p)
		note(c,
		     "trainer_state.json has a key %.*s that transformers up to 5.23 does not "
		     "know: only the version that wrote the file can load it",
		     (int)uns_span_left(&unknown), (const char *)unknown.p);
	for (i = 0; i < c->in->n_option; i++)
		note(c, "-o fact=%s is not used: the checkpoint has a valid trainer_state.json",
		     c->in->option[i]);
	settle_step(c);
}

static void find_siblings(struct collect *c)
{
	struct uns_err why = { 0 };

	if (!is_read(c, siblings_find(c->in->root, NULL, &c->scratch, c->path, &c->siblings, &why), &why))
		c->siblings = (struct siblings){ 0 };
}

static void synthesise(struct collect *c, struct uns_span state)
{
	int64_t step;

	find_siblings(c);
	take_options(c);
	take_store(c);
	say_step(c, 0, named_step(c), "the directory's name");
	say_step(c, 1, state.p ? state_step(state) : UNS_UNKNOWN, "its own trainer_state.json");
	say_step(c, 2, scheduler_step(c), "scheduler.pt (last_epoch)");
	step = sharded_step(c);
	say_step(c, 3, step >= 0 ? step : plain_step(c), "the optimizer's step");
	step = settle_step(c);
	if (state.p)
		take_own_state(c, state);
	if (state.p && step >= 0)
		take_history(c, state, step, "the history in its own trainer_state.json");
	take_args_of(c, c->path);
	take_siblings(c, step);
	if (c->siblings.run)
		take_args_of(c, c->siblings.run);
	take_differences(c);
	assume_callbacks(c);
	if (!c->fault.code)
		assume(c);
}

static void collect(struct collect *c)
{
	const char *own = uns_path_join(&c->scratch, c->path, STATE);
	struct uns_span state = { NULL, NULL }, unknown = { NULL, NULL };
	struct uns_err why = { 0 };

	if (!own) {
		c->failed = true;
		return;
	}
	if (uns_catalog_companion(c->in->cat, STATE)) {
		if (!read_state(c, own, &state, &why))
			state = (struct uns_span){ NULL, NULL };
		else if (uns_trainer_state_check((const char *)state.p, uns_span_left(&state),
						 &unknown, &why) == 0) {
			keep_own(c, state, unknown);
			return;
		}
		if (c->fault.code || why.code == -ENOMEM) {
			c->failed |= why.code == -ENOMEM;
			return;
		}
		/* The file is too large to be checked, which is no reason to replace it. */
		if (why.code == -ENOTSUP) {
			note(c, "trainer_state.json is shown unchanged and was not checked: %s",
			     why.text);
			keep_own(c, state, unknown);
			return;
		}
		note(c, "a Trainer cannot load the checkpoint's trainer_state.json, so the view "
			"shows another in its place: %s",
		     why.text);
	}
	synthesise(c, state);
}

/* The checkpoint was not saved by a Trainer. Only the step matters, because DeepSpeed's engine counts it
 * too. The optimizer comes last, because its bytes must be read. */
static void collect_step(struct collect *c)
{
	take_options(c);
	take_store(c);
	say_step(c, 0, c->in->cat->summary.step, "the checkpoint");
	if (settle_step(c) >= 0)
		return;
	say_step(c, 3, sharded_step(c), "the optimizer's step");
	settle_step(c);
}

/* The view full has what a Trainer resumes from, and no file says what trainer_state.json would. */
static void collect_for_trainer(struct collect *c)
{
	collect_step(c);
	assume_callbacks(c);
	if (!c->fault.code)
		assume(c);
}

static int fact_cmp(const void *a, const void *b)
{
	return strcmp(((const struct uns_fact *)a)->key, ((const struct uns_fact *)b)->key);
}

int training_collect(const struct training_input *in, struct training_found *out,
		     struct uns_err *err)
{
	UNS_CLEANUP(collect_fini) struct collect c = { .in = in, .out = out, .path = in->path };
	bool trainer = in->cat->summary.resumed_by & UNS_BY_TRAINER;

	if (!make_room(&c))
		return uns_oom(err);
	if (trainer)
		collect(&c);
	else if (uns_megatron_has_optimizer(in->cat) && uns_megatron_has_schedule(in->cat))
		collect_for_trainer(&c);
	else
		collect_step(&c);
	if (c.failed)
		return uns_oom(err);
	if (c.fault.code)
		return uns_fail_copy(err, &c.fault);
	qsort(c.v, c.n, sizeof(*c.v), fact_cmp); /* c.v is never NULL */
	out->training = (struct uns_training){ c.v, c.n, c.note, c.n_notes };
	return 0;
}

void training_found_fini(struct training_found *found)
{
	uns_arena_fini(&found->arena);
}
