/* What is known about the training a checkpoint belongs to, merged once for each snapshot: option >
 * store > the checkpoint's own files > its siblings and run directory > documented default. Owns
 * where facts are looked for and which of two wins; what trainer_state.json looks like is in files/.
 *
 * A checkpoint whose own trainer_state.json is whole keeps it as it is, and nothing beside it is
 * looked at: a run that goes on must not change what its finished checkpoints are. */
#include "session/session.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "files/resume_files.h"
#include "files/trainer_state.h"
#include "wire/json.h"
#include "wire/json_text.h"
#include "wire/torchfile.h"

enum { STATE_LIMIT_BYTES = 64 << 20, NEAR = 4, N_STEPS = 4 };

static const char STATE[] = "trainer_state.json";

struct collect {
	struct unshard *u;
	struct snapshot *snap;
	const char *path;
	struct uns_arena scratch;
	struct siblings siblings;
	struct uns_fact *v; /* one for each key at most */
	size_t n;
	const char **note;
	size_t n_notes, cap_notes;
	bool failed; /* out of memory */

	/* What each source says the step is, in order of trust; `what` NULL = it was not asked,
	 * step < 0 = it does not say. */
	struct {
		int64_t step;
		const char *what;
	} step[N_STEPS];
};

static void collect_fini(struct collect *c)
{
	uns_arena_fini(&c->scratch);
}

/* -- what lies beside -- */

static int descending(const void *a, const void *b)
{
	const unsigned long long x = *(const unsigned long long *)a,
				 y = *(const unsigned long long *)b;

	return x < y ? 1 : x > y ? -1 : 0;
}

static void choose_near(struct siblings *s, struct uns_arena *arena)
{
	size_t i, later = 0, first;

	while (later < s->n && s->number[later] > s->own)
		later++;
	for (i = later; i > 0 && later - i < NEAR; i--)
		s->near[s->n_near++].number = s->number[i - 1];
	for (first = later; first < s->n && s->number[first] == s->own; first++)
		;
	for (i = first; i < s->n && i - first < NEAR; i++)
		s->near[s->n_near++].number = s->number[i];
	for (i = 0; i < s->n_near; i++)
		s->near[i].state = uns_arena_printf(arena, "%s%scheckpoint-%llu/%s", s->run,
						    *s->run ? "/" : "", s->near[i].number, STATE);
}

int training_siblings(struct unshard *u, struct uns_arena *arena, const char *path,
		      struct siblings *s, struct uns_err *err)
{
	struct uns_listing list;
	size_t i;

	*s = (struct siblings){ .run = *path ? uns_path_parent(arena, path) : NULL };
	if (!s->run)
		return 0;
	s->numbered = uns_str_number(uns_path_name(path), "checkpoint-", "", &s->own);
	if (!s->numbered)
		return 0;
	UNS_TRY(uns_root_list(u->root, s->run, arena, &list, err));
	s->number = UNS_NEW_N(arena, unsigned long long, list.n);
	if (!s->number)
		return uns_oom(err);
	for (i = 0; i < list.n; i++)
		if (list.v[i].kind == UNS_KIND_DIR &&
		    uns_str_number(list.v[i].name, "checkpoint-", "", &s->number[s->n]))
			s->n++;
	qsort(s->number, s->n, sizeof(*s->number), descending);
	choose_near(s, arena);
	return 0;
}

/* It begins and ends as an object does: a save that was cut, or an empty file, does not. */
bool training_state_whole(struct unshard *u, struct uns_arena *arena, const char *path)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;
	const char *state = uns_path_join(arena, path, STATE);
	struct uns_stat st;
	char first, tail[2];

	if (!state || uns_root_open_file(u->root, state, &fd, &st, NULL) < 0 || st.id.size < 3 ||
	    uns_fd_pread(fd, &first, 1, 0, state, NULL) < 0 ||
	    uns_fd_pread(fd, tail, 2, st.id.size - 2, state, NULL) < 0)
		return false;
	return first == '{' && (tail[1] == '}' || (tail[1] == '\n' && tail[0] == '}'));
}

/* -- the list of facts -- */

/* Room for a fact of every key, and for as many notes as there are things to say. */
static bool make_room(struct collect *c)
{
	size_t n_keys = 0;

	while (uns_trainer_state_key(n_keys))
		n_keys++;
	c->cap_notes = 8 + N_STEPS + c->u->n_fact;
	c->v = UNS_NEW_N(&c->snap->arena, struct uns_fact, n_keys);
	c->note = UNS_NEW_N(&c->snap->arena, const char *, c->cap_notes);
	return c->v && c->note;
}

__attribute__((format(printf, 2, 3))) static void note(struct collect *c, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (c->n_notes == c->cap_notes)
		return;
	c->note[c->n_notes] = uns_arena_str(&c->snap->arena, text);
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

/* The first that is offered wins. Values of the wrong type are no facts. */
static void offer(struct collect *c, const char *key, const char *json, size_t len,
		  const char *origin, bool assumed)
{
	struct uns_fact f = { .key = key, .assumed = assumed };

	if (has(c, key))
		return;
	f.json = uns_arena_strn(&c->snap->arena, json, len);
	f.origin = uns_arena_str(&c->snap->arena, origin);
	if (!f.json || !f.origin)
		c->failed = true;
	else if (uns_trainer_state_check_fact(key, f.json, NULL) == 0)
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

	for (i = 0; i < c->u->n_fact; i++) {
		equals = strchr(c->u->fact[i], '=');
		for (k = 0; uns_trainer_state_key(k); k++)
			if (strlen(uns_trainer_state_key(k)) == (size_t)(equals - c->u->fact[i]) &&
			    uns_str_starts(c->u->fact[i], uns_trainer_state_key(k)))
				offer(c, uns_trainer_state_key(k), equals + 1, strlen(equals + 1),
				      "-o fact=", false);
	}
}

/* -- store -- */

static void take_store(struct collect *c)
{
	struct uns_store_fact *v;
	const char *key, *origin;
	size_t n = 0, i, k;

	if (meta_facts(c->u, c->path, &c->scratch, &v, &n, NULL) < 0)
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

/* An object's text, or false (and why). */
static bool read_state(struct collect *c, const char *path, struct uns_span *text,
		       struct uns_err *why)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;

	if (uns_root_read_file(c->u->root, path, STATE_LIMIT_BYTES, &c->scratch, text, NULL, why) <
	    0)
		return false;
	if (!uns_span_left(text)) {
		uns_fail(why, -EBADMSG, "it is empty");
		return false;
	}
	if (uns_json_parse(*text, &json, why) < 0)
		return false;
	return cJSON_IsObject(json) || uns_fail(why, -EBADMSG, "it is not a JSON object") == 0;
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

/* Not valid as a whole, but what it does say is the checkpoint's own. */
static void take_own_state(struct collect *c, struct uns_span state)
{
	const char *key;
	struct uns_span v;
	size_t i;

	for (i = 0; (key = uns_trainer_state_key(i)); i++)
		if (strcmp(key, "global_step") != 0 && uns_json_text_get(state, key, &v))
			offer_span(c, key, v, "its own trainer_state.json");
}

/* Entries up to this step: what the checkpoint's own state held when it was written. */
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

/* The best so far, where a later state says that it was reached by then. */
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
		     said(c, "the share of this step in", path));
}

static void take_sibling(struct collect *c, const char *path, int64_t step)
{
	static const char *const keys[] = { "train_batch_size", "logging_steps", "eval_steps",
					    "save_steps",       "max_steps",     "num_train_epochs",
					    "trial_name",       "trial_params" };
	struct uns_span state, v;
	int64_t there;
	size_t i;

	if (!path || !read_state(c, path, &state, NULL))
		return;
	there = state_step(state);
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
	take_epoch(c, state, step, path);
}

static bool is_complete(const struct collect *c)
{
	return has(c, "train_batch_size") && has(c, "logging_steps") && has(c, "eval_steps") &&
	       has(c, "save_steps") && has(c, "log_history") && has(c, "max_steps");
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

/* The step of a regular series; the last save may stand outside it (the end of training). */
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

/* false: absent, or not a number; *none: there, and None. */
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

/* A cadence below 1 is a share of max_steps (TrainerState.compute_steps). */
static void take_cadence(struct collect *c, const struct args *a, const char *key,
			 const char *origin)
{
	const struct uns_fact *max = find(c, "max_steps");
	double value;
	bool none;

	if (!args_number(a, key, &value, &none)) {
		if (none) /* then TrainerState keeps its own default */
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
	if (!args_number(a, "_n_gpu", &devices, &none) || devices < 1)
		devices = 1;
	if (args_number(a, "per_device_train_batch_size", &value, &none) && value >= 1)
		offer_number(c, "train_batch_size", value * devices, origin);
}

static void take_args_json(struct collect *c, const char *path)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	struct args a = { 0 };
	struct uns_span text;

	if (uns_root_read_file(c->u->root, path, STATE_LIMIT_BYTES, &c->scratch, &text, NULL,
			       NULL) < 0 ||
	    uns_json_parse(text, &json, NULL) < 0)
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
	struct uns_stat st;

	if (uns_root_open_file(root, path, &s->fd, &st, NULL) < 0)
		return false;
	s->file = (struct uns_open_file){ s->fd, path };
	s->reader = uns_reader_of_file(&s->file, st.id.size);
	return uns_torchfile_open(&s->reader, &c->scratch, &s->torch, NULL) == 0;
}

static void take_args_bin(struct collect *c, const char *path)
{
	UNS_CLEANUP(torch_source_fini) struct torch_source s = { .fd = -1 };
	struct args a = { 0 };

	if (!torch_source_open(c, c->u->root, path, &s))
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
	const struct uns_companion *found = uns_catalog_companion(c->snap->cat, name);

	return found ? &c->snap->cat->files[found->file] : NULL;
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

/* One parameter's `step`, a 0-d tensor, of the sharded optimizer. */
static int64_t sharded_step(struct collect *c)
{
	const struct uns_catalog *cat = c->snap->cat;
	struct uns_layout_builder b = { .arena = &c->scratch };
	struct uns_layout layout;
	float value;
	size_t i;

	for (i = 0; i < cat->n_tensors; i++)
		if (cat->tensors[i].role == UNS_ROLE_STEP &&
		    uns_shape_elems(&cat->tensors[i].shape) == 1)
			break;
	if (i == cat->n_tensors)
		return UNS_UNKNOWN;
	uns_layout_tensor(&b, &cat->tensors[i], 0, 1, UNS_F32);
	if (uns_layout_build(&b, cat, &layout, NULL) < 0 ||
	    uns_read(c->snap->backing, &layout, &value, sizeof(value), 0, NULL) != sizeof(value))
		return UNS_UNKNOWN;
	return whole_step((double)value);
}

static int64_t tensor_step(const struct torch_source *s, const struct uns_value *v)
{
	struct uns_torch_tensor t;
	double number;
	float value;

	if (uns_value_float(v, &number))
		return whole_step(number);
	if (!v || !uns_torch_is_tensor(v) || uns_torch_tensor(&s->torch, v, &t, NULL) < 0 ||
	    t.dtype != UNS_F32 || t.storage_bytes < sizeof(value) ||
	    uns_reader_pread(&s->reader, &value, sizeof(value), t.data_bytes, NULL) < 0)
		return UNS_UNKNOWN;
	return whole_step((double)value);
}

/* The same of a plain optimizer.pt. */
static int64_t plain_step(struct collect *c)
{
	UNS_CLEANUP(torch_source_fini) struct torch_source s = { .fd = -1 };
	const struct uns_file *f = companion_file(c, "optimizer.pt");
	const struct uns_value *state;

	if (!f || !torch_source_open(c, f->root, f->path, &s))
		return UNS_UNKNOWN;
	state = uns_value_get(s.torch.root, "state");
	if (!state || state->kind != UNS_VALUE_DICT || !state->dict.n)
		return UNS_UNKNOWN;
	return tensor_step(&s, uns_value_get(state->dict.v[0], "step"));
}

static int64_t named_step(const struct collect *c)
{
	const char *path = *c->path ? c->path : uns_root_path(c->u->root);
	unsigned long long n;

	return uns_str_number(uns_path_name(path), "checkpoint-", "", &n) && n <= INT64_MAX ?
		       (int64_t)n :
		       UNS_UNKNOWN;
}

static void say_step(struct collect *c, int i, int64_t step, const char *what)
{
	c->step[i].step = step;
	c->step[i].what = what;
}

/* The name wins over the others, an option over the name; who says otherwise is named. */
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
			     "the training step is taken to be %lld (%s), but %s says %lld: do these "
			     "files belong together?",
			     (long long)step, given->origin, c->step[i].what,
			     (long long)c->step[i].step);
	return step;
}

/* -- all of it -- */

static void assume(struct collect *c)
{
	const char *key, *value;
	size_t i;

	for (i = 0; (key = uns_trainer_state_key(i)); i++)
		if ((value = uns_trainer_state_assumed(key)))
			offer(c, key, value, strlen(value),
			      "the default of transformers: nothing here tells", true);
}

/* The checkpoint has a file of its own that a Trainer takes: it stays as it is. */
static void keep_own(struct collect *c, struct uns_span state, struct uns_span unknown)
{
	size_t i;

	c->snap->trainer_state_valid = true;
	say_step(c, 0, state_step(state), "its own trainer_state.json");
	say_step(c, 1, named_step(c), "the directory's name");
	if (unknown.p)
		note(c,
		     "trainer_state.json has a key %.*s that transformers up to 5.23 does not know: "
		     "only the version that wrote it takes the file",
		     (int)uns_span_left(&unknown), (const char *)unknown.p);
	for (i = 0; i < c->u->n_fact; i++)
		note(c, "-o fact=%s is not used: trainer_state.json is there, and valid",
		     c->u->fact[i]);
	settle_step(c);
}

static void synthesise(struct collect *c, struct uns_span state)
{
	int64_t step;

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
	take_args_of(c, c->path);
	take_siblings(c, step);
	if (c->siblings.run)
		take_args_of(c, c->siblings.run);
	take_differences(c);
	assume(c);
}

static void collect(struct collect *c)
{
	const char *own = uns_path_join(&c->scratch, c->path, STATE);
	struct uns_span state = { NULL, NULL }, unknown;
	struct uns_err why = { 0 };

	if (!own) {
		c->failed = true;
		return;
	}
	if (uns_catalog_companion(c->snap->cat, STATE)) {
		if (!read_state(c, own, &state, &why))
			state.p = NULL;
		else if (uns_trainer_state_check((const char *)state.p, uns_span_left(&state),
						 &unknown, &why) == 0) {
			keep_own(c, state, unknown);
			return;
		}
		note(c, "trainer_state.json of the checkpoint cannot be used and is made anew: %s",
		     why.text);
	}
	synthesise(c, state);
}

/* Of no Trainer's: what matters is the step, which DeepSpeed's engine counts too. The optimizer,
 * whose bytes must be read, is asked last. */
static void collect_step(struct collect *c)
{
	take_options(c);
	take_store(c);
	say_step(c, 0, c->snap->cat->facts.step, "the checkpoint");
	if (settle_step(c) >= 0)
		return;
	say_step(c, 3, sharded_step(c), "the optimizer's step");
	settle_step(c);
}

static int fact_cmp(const void *a, const void *b)
{
	return strcmp(((const struct uns_fact *)a)->key, ((const struct uns_fact *)b)->key);
}

int training_collect(struct unshard *u, struct snapshot *snap, const char *path,
		     struct uns_err *err)
{
	UNS_CLEANUP(collect_fini) struct collect c = { .u = u, .snap = snap, .path = path };
	bool trainer = snap->cat->facts.resumed_by & UNS_BY_TRAINER;

	if (!make_room(&c))
		return uns_oom(err);
	if (trainer && training_siblings(u, &c.scratch, path, &c.siblings, NULL) < 0)
		c.siblings = (struct siblings){ 0 };
	if (trainer)
		collect(&c);
	else
		collect_step(&c);
	if (c.failed)
		return uns_oom(err);
	qsort(c.v, c.n, sizeof(*c.v), fact_cmp); /* c.v is never NULL */
	snap->training = (struct uns_training){ c.v, c.n, c.note, c.n_notes };
	snap->has_training = true;
	return 0;
}
