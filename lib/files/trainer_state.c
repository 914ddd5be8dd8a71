/* TrainerState's keys: which values each takes, and the value that is assumed. Knows the file, not where facts come
 * from. */
#include "files/trainer_state.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/number.h"
#include "wire/json.h"
#include "wire/json_text.h"

enum kind { INTEGER, CADENCE, NUMBER, BOOLEAN, TEXT, LIST, OBJECT };

static const char *const kind_text[] = {
	"an integer of 0 or more", "a positive number", "a number", "true or false", "a string", "a list", "an object"
};

static const struct key {
	const char *name;
	enum kind kind;
	const char *otherwise; /* the value (JSON) if no fact has one; NULL = the key is left out */
	bool nullable;
	const char *assumed; /* a Trainer acts on it: a value is needed, and reported as assumed */
} keys[] = {
	/* Two without `otherwise` are newer than 4.40: stateful_callbacks (4.41), best_global_step. */
	{ "best_global_step", INTEGER, NULL, true, NULL },
	{ "best_metric", NUMBER, "null", true, NULL },
	{ "best_model_checkpoint", TEXT, "null", true, NULL },
	{ "epoch", NUMBER, "0.0", true, NULL },
	{ "eval_steps", CADENCE, "500", false, "500" },
	{ "global_step", INTEGER, NULL, false, NULL },
	{ "is_hyper_param_search", BOOLEAN, "false", false, NULL },
	{ "is_local_process_zero", BOOLEAN, "true", false, NULL },
	{ "is_world_process_zero", BOOLEAN, "true", false, NULL },
	{ "log_history", LIST, "[]", true, NULL },
	{ "logging_steps", CADENCE, "500", false, "500" },
	{ "max_steps", INTEGER, "0", false, NULL },
	{ "num_input_tokens_seen", INTEGER, "0", true, NULL },
	{ "num_train_epochs", NUMBER, "0", false, NULL },
	{ "save_steps", CADENCE, "500", false, "500" },
	{ "stateful_callbacks", OBJECT, NULL, true, NULL },
	{ "total_flos", NUMBER, "0", true, NULL },
	{ "train_batch_size", INTEGER, "8", false, "8" },
	{ "trial_name", TEXT, "null", true, NULL },
	{ "trial_params", OBJECT, "null", true, NULL },
};
enum { N_KEYS = sizeof(keys) / sizeof(keys[0]) };

static const struct key *key_find(const char *name, size_t len)
{
	size_t i;

	for (i = 0; i < N_KEYS; i++)
		if (strlen(keys[i].name) == len && memcmp(keys[i].name, name, len) == 0)
			return &keys[i];
	return NULL;
}

const char *uns_trainer_state_key(size_t i)
{
	return i < N_KEYS ? keys[i].name : NULL;
}

const char *uns_trainer_state_takes(const char *key, bool *nullable)
{
	const struct key *k = key_find(key, strlen(key));

	if (k && nullable)
		*nullable = k->nullable;
	return k ? kind_text[k->kind] : NULL;
}

const char *uns_trainer_state_assumed(const char *key)
{
	const struct key *k = key_find(key, strlen(key));

	return k ? k->assumed : NULL;
}

/* -- values -- */

static bool text_is(struct uns_span v, const char *text)
{
	return uns_span_left(&v) == strlen(text) && memcmp(v.p, text, strlen(text)) == 0;
}

static bool value_fits(const struct key *k, struct uns_span v)
{
	double number;
	int64_t i;

	if (v.p >= v.end)
		return false;
	if (k->nullable && text_is(v, "null"))
		return true;
	switch (k->kind) {
	case INTEGER:
		return uns_json_text_int(v, &i) && (i >= 0 || strcmp(k->name, "max_steps") == 0);
	case CADENCE:
		return uns_number_parse(v, &number) && number > 0;
	case NUMBER:
		return uns_number_parse(v, &number) || text_is(v, "NaN") || text_is(v, "Infinity") ||
		       text_is(v, "-Infinity");
	case BOOLEAN:
		return text_is(v, "true") || text_is(v, "false");
	case TEXT:
		return *v.p == '"';
	case LIST:
		return *v.p == '[';
	case OBJECT:
		return *v.p == '{';
	}
	return false;
}

static struct uns_span text_trimmed(const char *json)
{
	size_t n = strlen(json);

	while (n && strchr(" \t\r\n", json[n - 1]))
		n--;
	while (n && strchr(" \t\r\n", *json))
		json++, n--;
	return uns_span_of(json, n);
}

/* code: -EINVAL of what a user wrote, -EBADMSG of a file. */
static int check_value(const struct key *k, struct uns_span v, int code, struct uns_err *why)
{
	if (value_fits(k, v))
		return 0;
	return uns_fail(why, code, "%s is %.*s where %s is expected", k->name,
			(int)(uns_span_left(&v) < 40 ? uns_span_left(&v) : 40), (const char *)v.p, kind_text[k->kind]);
}

int uns_trainer_state_check_fact(const char *key, const char *json, struct uns_err *why)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *parsed = NULL;
	const struct key *k = key_find(key, strlen(key));
	struct uns_span v = text_trimmed(json);
	int code;

	if (!k)
		return uns_fail(why, -EINVAL, "%s is not a key of trainer_state.json", key);
	code = uns_json_parse(v, &parsed, why);
	if (code < 0) {
		uns_fail_in(why, "%s=%s", key, json);
		return code;
	}
	return check_value(k, v, -EINVAL, why);
}

/* -- a whole file -- */

/* TrainerState's own default for train_batch_size is None, which it also writes. */
static bool is_unset(const struct key *k, struct uns_span v)
{
	return k->assumed && k->kind == INTEGER && text_is(v, "null");
}

/* A Trainer that does not log, evaluate or save at steps may write 0 or null for that, and does not use the value. */
static bool is_unused(const struct key *k, struct uns_span v)
{
	double number;

	return k->kind == CADENCE && (text_is(v, "null") || (uns_number_parse(v, &number) && number == 0));
}

const char *uns_trainer_state_absent(const char *json, size_t len, size_t i)
{
	const struct uns_span text = uns_span_of(json, len);
	const struct key *k = keys;
	struct uns_span value;

	for (; k < keys + N_KEYS; k++)
		if (k->assumed && (!uns_json_text_get(text, k->name, &value) || is_unset(k, value)) && !i--)
			return k->name;
	return NULL;
}

int uns_trainer_state_check(const char *json, size_t len, struct uns_span *unknown, struct uns_err *why)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *parsed = NULL;
	struct uns_span text = uns_span_of(json, len), name, value;
	const struct key *k;

	if (unknown)
		*unknown = (struct uns_span){ NULL, NULL };
	if (!len)
		return uns_fail(why, -EBADMSG, "the file is empty");
	UNS_TRY(uns_json_parse(text, &parsed, why));
	if (!cJSON_IsObject(parsed))
		return uns_fail(why, -EBADMSG, "the file is not a JSON object");
	if (!uns_json_text_get(text, "global_step", &value))
		return uns_fail(why, -EBADMSG, "the file has no global_step, without which a Trainer counts from 0");
	while (uns_json_text_next(&text, &name, &value)) {
		k = uns_span_left(&name) < 2 ? NULL : key_find((const char *)name.p + 1, uns_span_left(&name) - 2);
		if (k && !is_unset(k, value) && !is_unused(k, value))
			UNS_TRY(check_value(k, value, -EBADMSG, why));
		else if (!k && unknown)
			*unknown = name;
	}
	return 0;
}

/* -- writing -- */

/* The value that a fact has for the key; NULL = no fact has one that fits. */
static const char *fact_of(const struct uns_training *t, const struct key *k)
{
	const struct uns_fact *fact = uns_training_find(t, k->name);

	return fact && value_fits(k, text_trimmed(fact->json)) ? fact->json : NULL;
}

const char *uns_trainer_state_made_up(const struct uns_training *t, size_t i, const char **json)
{
	const struct key *k = keys;

	for (; k < keys + N_KEYS; k++)
		if (k->otherwise && k->kind != BOOLEAN && strcmp(k->otherwise, "null") != 0 && !fact_of(t, k) && !i--) {
			*json = k->otherwise;
			return k->name;
		}
	return NULL;
}

int uns_trainer_state_emit(const struct uns_training *t, struct uns_text *out, struct uns_err *err)
{
	const char *json, *between = "";
	size_t i;

	if (!uns_training_find(t, "global_step"))
		return uns_fail(err, -ENODATA,
				"the training step is not known: it is neither in the directory's name nor in the "
				"scheduler or the optimizer; set it with -o fact=global_step=N or `unshard meta set "
				"CHECKPOINT global_step=N`");
	uns_text_str(out, "{");
	for (i = 0; i < N_KEYS; i++) {
		json = fact_of(t, &keys[i]);
		/* The fact null leaves out a key that not all versions know. */
		if (json && !keys[i].otherwise && keys[i].nullable && text_is(text_trimmed(json), "null"))
			continue;
		json = json ? json : keys[i].otherwise;
		if (!json)
			continue;
		uns_text_printf(out, "%s\n  \"%s\": ", between, keys[i].name);
		uns_json_text_indent(out, text_trimmed(json), 1);
		between = ",";
	}
	uns_text_str(out, "\n}\n");
	return out->failed ? uns_oom(err) : 0;
}
