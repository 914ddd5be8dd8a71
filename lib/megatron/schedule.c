/* Knows which values of Megatron-Core's param groups are which of a scheduler's. What course the learning rate takes
 * from there is no value: a Trainer makes it from its own arguments. (Sources: torch 2.13, optim/lr_scheduler.py;
 * megatron-core 0.16.1, optimizer_param_scheduler.py.) */
#include "megatron/schedule.h"

#include "files/torch_file.h"
#include "wire/value_new.h"

static const char HIGHEST[] = "max_lr", NOW[] = "lr";

static bool is_number(const struct uns_group *group, const char *key)
{
	double unused;

	return uns_value_float(uns_value_get(group->hyper, key), &unused);
}

bool uns_megatron_has_schedule(const struct uns_catalog *cat)
{
	size_t i = 0;

	while (i < cat->n_groups && is_number(&cat->groups[i], HIGHEST) && is_number(&cat->groups[i], NOW))
		i++;
	return cat->summary.is_megatron && cat->n_groups && i == cat->n_groups && !uns_resume_has_scheduler(cat);
}

int64_t uns_megatron_trainer_step(const struct uns_catalog *cat, const struct uns_training *training)
{
	return uns_megatron_has_schedule(cat) ? uns_training_step(training, cat->summary.step) : UNS_UNKNOWN;
}

/* A list with one value of each group; key NULL: with an empty dict, as a lambda that is no plain function has kept. */
static const struct uns_value *list_of_groups(const struct uns_catalog *cat, struct uns_arena *arena, const char *key)
{
	struct uns_value *list = uns_value_new_list(arena, cat->n_groups);
	double v = 0;
	size_t i;

	for (i = 0; i < cat->n_groups; i++) {
		if (key)
			uns_value_float(uns_value_get(cat->groups[i].hyper, key), &v);
		if (!uns_value_append(list, key ? uns_value_new_float(arena, v) : uns_value_new_dict(arena, 0)))
			return NULL;
	}
	return list;
}

static const struct uns_value *state_of(const struct uns_catalog *cat, int64_t step, struct uns_arena *arena)
{
	struct uns_value *v = uns_value_new_dict(arena, 7);

	if (!uns_value_put_str(arena, v, "base_lrs", list_of_groups(cat, arena, HIGHEST)) ||
	    !uns_value_put_str(arena, v, "last_epoch", uns_value_new_int(arena, step)) ||
	    !uns_value_put_str(arena, v, "_step_count", uns_value_new_int(arena, step + 1)) ||
	    !uns_value_put_str(arena, v, "_is_initial", uns_value_new_bool(arena, false)) ||
	    !uns_value_put_str(arena, v, "_get_lr_called_within_step", uns_value_new_bool(arena, false)) ||
	    !uns_value_put_str(arena, v, "_last_lr", list_of_groups(cat, arena, NOW)) ||
	    !uns_value_put_str(arena, v, "lr_lambdas", list_of_groups(cat, arena, NULL)))
		return NULL;
	return v;
}

static int file_add(const struct uns_catalog *model, int64_t step, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_torch_input file = { .cat = model,
					      .root = state_of(model, step, &out->arena),
					      .stem = "scheduler" };

	UNS_TRY_ALLOC(file.root, err);
	UNS_TRY(uns_torch_file_add(
		&file, "scheduler.pt",
		"made of Megatron-Core's param groups: max_lr is the base learning rate, lr the last one; its "
		"step is the training's",
		out, err));
	return uns_vtree_note(
		out, err,
		"scheduler.pt is made of max_lr and lr of Megatron-Core's param groups, because a Trainer restores "
		"the optimizer only with one. The first step has the learning rate that was saved. After it, the "
		"rate is max_lr times what the Trainer's own schedule gives (lr_scheduler_type, warmup_steps, "
		"max_steps): Megatron-Core's schedule has no form in transformers");
}

int uns_megatron_schedule_add(struct uns_resume_input *resume, struct uns_vtree *out, struct uns_err *err)
{
	const int64_t step = uns_megatron_trainer_step(resume->catalog, resume->training);
	struct uns_catalog *of_trainer;

	if (step == UNS_UNKNOWN)
		return 0;
	UNS_TRY_ALLOC(of_trainer = UNS_NEW(&out->arena, struct uns_catalog), err);
	*of_trainer = *resume->catalog;
	of_trainer->summary.resumed_by |= UNS_BY_TRAINER;
	resume->catalog = of_trainer;
	resume->schedule_made = true;
	return file_add(of_trainer, step, out, err);
}
