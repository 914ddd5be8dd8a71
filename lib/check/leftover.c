/* See leftover.h. What each framework leaves behind was seen: transformers 4.49 (save_only_model
 * with shards), Lightning 2.2.0 (an empty directory). */
#include "check/leftover.h"

#include <string.h>

#include "base/path.h"

static bool all_digits(const char *s)
{
	return *s && s[strspn(s, "0123456789")] == '\0';
}

static bool is_numbered(const char *name)
{
	static const char *const prefix[] = { "global_step", "global_step_", "step-",  "step_",
					      "step",        "iter_",        "epoch-", "epoch_" };
	size_t i;

	for (i = 0; i < sizeof(prefix) / sizeof(prefix[0]); i++)
		if (uns_str_starts(name, prefix[i]) && all_digits(name + strlen(prefix[i])))
			return true;
	return false;
}

enum uns_checkpoint_name uns_checkpoint_name_of(const char *name)
{
	unsigned long long n;

	if (uns_str_number(name, "checkpoint-", "", &n))
		return UNS_NAME_TRAINER;
	if (uns_str_number(name, "tmp-checkpoint-", "", &n))
		return UNS_NAME_TRAINER_STAGING;
	if (uns_str_ends(name, ".ckpt") && strlen(name) > strlen(".ckpt"))
		return UNS_NAME_LIGHTNING;
	return is_numbered(name) ? UNS_NAME_STEP : UNS_NAME_OTHER;
}

/* What is not in here might be weights of a framework that unshard does not know. */
bool uns_leftover_is_weightless(const char *file)
{
	static const char *const globs[] = { "*.json",      "*.jsonl",     "*.txt",          "*.md",
					     "*.yaml",      "*.yml",       "*.py",           "*.log",
					     "*.jinja",     "*.model",     "*.lock",         "*.tmp",
					     "optimizer.*", "scheduler.*", "scaler.pt",      "rng_state*",
					     "latest*",     "meta.pt",     "random_states*", "training_args.bin",
					     ".*",          "events.out.*" };
	size_t i;

	for (i = 0; i < sizeof(globs) / sizeof(globs[0]); i++)
		if (uns_str_glob(globs[i], file))
			return true;
	return !strchr(file, '.');
}

enum uns_finding_id uns_leftover_id(const struct uns_leftover *l)
{
	if (l->unread)
		return UNS_FOUND_LEFTOVER_UNKNOWN;
	switch (l->name) {
	case UNS_NAME_TRAINER_STAGING:
		return UNS_FOUND_LEFTOVER_STAGING;
	case UNS_NAME_TRAINER:
		return l->n_files ? UNS_FOUND_NO_WEIGHTS_LEFT_OF_TRAINER : UNS_FOUND_NOTHING_LEFT_OF_TRAINER;
	case UNS_NAME_LIGHTNING:
		return l->n_files ? UNS_FOUND_NO_WEIGHTS_LEFT_OF_LIGHTNING : UNS_FOUND_NOTHING_LEFT_OF_LIGHTNING;
	default:
		return l->n_files ? UNS_FOUND_NO_WEIGHTS_LEFT : UNS_FOUND_NOTHING_LEFT;
	}
}
