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

/* What is not in here might be weights of a framework that nobody here knows. */
bool uns_leftover_is_weightless(const char *file)
{
	static const char *const globs[] = {
		"*.json",     "*.jsonl",     "*.txt",       "*.md",           "*.yaml",
		"*.yml",      "*.py",        "*.log",       "*.jinja",        "*.model",
		"*.lock",     "*.tmp",       "optimizer.*", "scheduler.*",    "scaler.pt",
		"rng_state*", "latest*",     "meta.pt",     "random_states*", "training_args.bin",
		".*",         "events.out.*"
	};
	size_t i;

	for (i = 0; i < sizeof(globs) / sizeof(globs[0]); i++)
		if (uns_str_glob(globs[i], file))
			return true;
	return !strchr(file, '.');
}

const char *uns_leftover_check(const struct uns_leftover *l)
{
	if (l->unread)
		return "not_read";
	if (l->name == UNS_NAME_TRAINER_STAGING)
		return "staging";
	return l->n_files ? "no_weights" : "empty";
}

static const char *what_to_do(enum uns_checkpoint_name name)
{
	switch (name) {
	case UNS_NAME_TRAINER:
		return "FSDP SHARDED_STATE_DICT with save_only_model does this (transformers "
		       "before "
		       "4.50): set save_only_model to false, or fsdp_state_dict_type to "
		       "FULL_STATE_DICT; if the shards are on other nodes' disks, copy them here";
	case UNS_NAME_LIGHTNING:
		return "FSDPStrategy(state_dict_type='sharded') with "
		       "ModelCheckpoint(save_weights_only=True) does this before Lightning 2.2.2: "
		       "upgrade Lightning, or set save_weights_only to false, or state_dict_type "
		       "to "
		       "'full'";
	default:
		return "the save did not begin, or the shards are on other nodes' disks: copy them "
		       "here, or delete the directory";
	}
}

void uns_leftover_sentence(const struct uns_leftover *l, struct uns_text *out)
{
	if (l->unread)
		uns_text_printf(out,
				"%s is in a form that is not known here (%s), so nothing of it was "
				"checked",
				l->path, l->some_file);
	else if (l->name == UNS_NAME_TRAINER_STAGING)
		uns_text_printf(out,
				"%s is what a Trainer renames when a save has ended: this one did "
				"not end; go on from the checkpoint before it and delete this "
				"directory",
				l->path);
	else if (l->n_files)
		uns_text_printf(out,
				"%s holds no weights, only files such as %s: nothing can be "
				"recovered from it; %s",
				l->path, l->some_file, what_to_do(l->name));
	else
		uns_text_printf(out, "%s is empty: nothing can be recovered from it; %s", l->path,
				what_to_do(l->name));
}
