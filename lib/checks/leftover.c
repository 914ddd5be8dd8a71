/* See leftover.h. What each framework leaves behind was seen: transformers 4.49 (save_only_model
 * with shards), Lightning 2.2.0 (an empty directory). */
#include "checks/leftover.h"

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

bool uns_leftover_is_deepspeed(const char *file)
{
	return uns_str_glob("*zero_pp_rank_*_mp_rank_*_states.pt", file) ||
	       uns_str_glob("mp_rank_*_model_states.pt", file);
}

const char *uns_leftover_check(const struct uns_leftover *l)
{
	if (l->deepspeed)
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
	if (l->deepspeed)
		uns_text_printf(out,
				"%s holds DeepSpeed shards (%s), which this version does not read",
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
