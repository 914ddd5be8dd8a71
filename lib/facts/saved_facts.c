/* What a trainer saved beside trainer_state.json: its arguments, and the training step as other files count it. */
#include "facts/collect.h"

#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/number.h"
#include "base/path.h"
#include "wire/json.h"

/* A file of torch.save while it is open. */
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

static bool torch_source_open(struct collect *c, const struct uns_root *root, const char *path, struct torch_source *s)
{
	struct uns_err why = { 0 };
	struct uns_stat st;
	int code = uns_root_open_file(root, path, &s->fd, &st, &why);

	if (code < 0)
		return collect_is_read(c, code, &why);
	s->file = (struct uns_open_file){ s->fd, path };
	s->reader = uns_reader_of_file(&s->file, st.id.size);
	code = uns_torchfile_open(&s->reader, &c->scratch, &s->torch, &why);
	return collect_is_read(c, code, &why);
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
static void cadence_take(struct collect *c, const struct args *a, const char *key, const char *origin)
{
	const struct uns_fact *max = collect_find(c, "max_steps");
	double value, steps;
	bool none;

	if (!args_number(a, key, &value, &none)) {
		if (none) /* the argument is None: TrainerState keeps its default */
			collect_offer_number(c, key, 500, origin);
		return;
	}
	if (value < 1 && max && uns_number_parse(uns_span_of(max->json, strlen(max->json)), &steps))
		value = ceil(value * steps);
	if (value >= 1)
		collect_offer_number(c, key, value, origin);
}

static void args_take(struct collect *c, const struct args *a, const char *origin)
{
	double value, devices;
	bool none;

	if (args_number(a, "max_steps", &value, &none) && value > 0)
		collect_offer_number(c, "max_steps", value, origin);
	else if (args_number(a, "num_train_epochs", &value, &none))
		collect_offer_number(c, "num_train_epochs", ceil(value), origin);
	cadence_take(c, a, "save_steps", origin);
	cadence_take(c, a, "logging_steps", origin);
	cadence_take(c, a, "eval_steps", origin);
	/* TrainingArguments got this argument in the version that got stateful_callbacks, 4.41. */
	if (uns_value_field(a->object, "per_device_train_batch_size") && c->callbacks == CALLBACKS_UNRECORDED)
		c->callbacks = uns_value_field(a->object, "restore_callback_states_from_checkpoint")
				       ? CALLBACKS_KNOWN
				       : CALLBACKS_UNKNOWN;
	if (!args_number(a, "_n_gpu", &devices, &none) || devices < 1)
		devices = 1;
	if (args_number(a, "per_device_train_batch_size", &value, &none) && value >= 1)
		collect_offer_number(c, "train_batch_size", value * devices, origin);
}

void saved_take_args(struct collect *c, const char *dir)
{
	const char *json = uns_path_join(&c->scratch, dir, "training_args.json");
	const char *bin = uns_path_join(&c->scratch, dir, "training_args.bin");
	UNS_CLEANUP(torch_source_fini) struct torch_source s = { .fd = -1 };
	UNS_CLEANUP(uns_json_free_p) cJSON *parsed = NULL;
	struct uns_err why = { 0 };
	struct uns_span text;
	int code;

	if (!json || !bin)
		return;
	code = uns_root_read_file(c->in->root, json, STATE_LIMIT_BYTES, &c->scratch, &text, NULL, &why);
	if (code == 0)
		code = uns_json_parse(text, &parsed, &why);
	if (collect_is_read(c, code, &why))
		args_take(c, &(struct args){ .json = parsed }, json);
	if (torch_source_open(c, c->in->root, bin, &s))
		args_take(c, &(struct args){ .object = s.torch.root }, bin);
}

/* -- the step -- */

static bool companion_open(struct collect *c, const char *name, struct torch_source *s)
{
	const struct uns_companion *found = uns_catalog_companion(c->in->cat, name);
	const struct uns_file *f = found ? &c->in->cat->files[found->file] : NULL;

	return f && torch_source_open(c, f->root, f->path, s);
}

int64_t saved_scheduler_step(struct collect *c)
{
	UNS_CLEANUP(torch_source_fini) struct torch_source s = { .fd = -1 };
	int64_t step;

	return companion_open(c, "scheduler.pt", &s) &&
			       uns_value_int(uns_value_get(s.torch.root, "last_epoch"), &step) && step >= 0
		       ? step
		       : UNS_UNKNOWN;
}

static int64_t whole_step(double value)
{
	return value >= 0 && value < 1e15 && value == floor(value) ? (int64_t)value : UNS_UNKNOWN;
}

/* The `step` of one parameter of the sharded optimizer, a tensor without dimensions. */
int64_t saved_sharded_step(struct collect *c)
{
	const struct uns_catalog *cat = c->in->cat;
	struct uns_layout_builder b = { .arena = &c->scratch };
	struct uns_err why = { 0 };
	struct uns_layout layout;
	int64_t code;
	float value;
	size_t i;

	for (i = 0; i < cat->n_tensors; i++)
		if (cat->tensors[i].role == UNS_ROLE_STEP && uns_shape_elems(&cat->tensors[i].shape) == 1)
			break;
	if (i == cat->n_tensors)
		return UNS_UNKNOWN;
	uns_layout_tensor(&b, &cat->tensors[i], 0, 1, UNS_F32);
	code = uns_layout_build(&b, cat, &layout, &why);
	if (code == 0)
		code = uns_read(c->in->backing, &layout, &value, sizeof(value), 0, &why);
	return collect_is_read(c, code < 0 ? (int)code : 0, &why) && code == sizeof(value) ? whole_step((double)value)
											   : UNS_UNKNOWN;
}

/* Of an optimizer.pt that holds the whole optimizer: the `step` of its first parameter, a number or a tensor. */
int64_t saved_plain_step(struct collect *c)
{
	UNS_CLEANUP(torch_source_fini) struct torch_source s = { .fd = -1 };
	const struct uns_value *state, *step;
	struct uns_err why = { 0 };
	struct uns_torch_tensor t;
	double number;
	float value;

	if (!companion_open(c, "optimizer.pt", &s))
		return UNS_UNKNOWN;
	state = uns_value_get(s.torch.root, "state");
	if (!state || state->kind != UNS_VALUE_DICT || !state->n)
		return UNS_UNKNOWN;
	step = uns_value_get(state->pair[0].value, "step");
	if (uns_value_float(step, &number))
		return whole_step(number);
	if (!step || !uns_torch_is_tensor(step) ||
	    !collect_is_read(c, uns_torch_tensor(&s.torch, step, &t, &why), &why) || t.dtype != UNS_F32 ||
	    t.storage_bytes < sizeof(value) ||
	    !collect_is_read(c, uns_reader_pread(&s.reader, &value, sizeof(value), t.data_bytes, &why), &why))
		return UNS_UNKNOWN;
	return whole_step((double)value);
}
