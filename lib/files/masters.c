/* fp32 copies by name. */
#include "files/masters.h"

#include "base/cleanup.h"
#include "model/cover.h"

int uns_masters_find(const struct uns_catalog *cat, struct uns_map *out, struct uns_err *err)
{
	size_t i;

	for (i = 0; i < cat->n_tensors; i++)
		if (cat->tensors[i].role == UNS_ROLE_MASTER &&
		    !uns_map_put(out, cat->tensors[i].name, &cat->tensors[i], NULL))
			return uns_oom(err);
	return 0;
}

static bool is_rounded(const struct uns_tensor *t)
{
	return uns_dtype_info(t->dtype)->is_float && uns_dtype_size(t->dtype) < 4;
}

const struct uns_tensor *uns_masters_or(const struct uns_map *masters, const struct uns_tensor *t)
{
	const struct uns_tensor *master = is_rounded(t) ? uns_map_get(masters, t->name) : NULL;

	return master && uns_shape_equal(&master->shape, &t->shape) ? master : t;
}

/* If the optimizer has a finding, it says more than which elements are missing. */
static int refuse(const struct uns_catalog *cat, const struct uns_err *hole, struct uns_err *why)
{
	size_t i;

	for (i = 0; i < cat->n_findings; i++)
		if (cat->findings[i].scope == UNS_SCOPE_OPTIMIZER &&
		    cat->findings[i].code != -ENOTSUP)
			return uns_fail_with(why, &cat->findings[i]);
	return uns_fail_copy(why, hole);
}

static bool is_told(const struct uns_catalog *cat, int code)
{
	size_t i;

	for (i = 0; i < cat->n_findings; i++)
		if (cat->findings[i].scope == UNS_SCOPE_OPTIMIZER && cat->findings[i].code == code)
			return true;
	return false;
}

/* Was an fp32 copy of the weight lost? Only DeepSpeed keeps copies apart from weights. Frozen parameters are in no
 * group. Without any groups, nothing of the optimizer could be read; if it was only left out (-ENODATA), there are no
 * copies. */
static bool lacks_master(const struct uns_catalog *cat, const struct uns_tensor *t)
{
	if (!uns_family_is_deepspeed(cat->summary.family) || t->role != UNS_ROLE_WEIGHT)
		return false;
	if (cat->n_groups)
		return t->group >= 0 && (is_told(cat, -EBADMSG) || is_told(cat, -ENODATA));
	return is_told(cat, -EBADMSG);
}

int uns_masters_check(const struct uns_catalog *cat, struct uns_err *why)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map masters = UNS_MAP_INIT;
	const struct uns_tensor *t, *master;
	struct uns_err hole = { .keep = why ? why->keep : NULL };
	size_t i;
	int code;

	UNS_TRY(uns_masters_find(cat, &masters, why));
	for (i = 0; i < cat->n_tensors; i++) {
		t = &cat->tensors[i];
		if (!uns_role_is_model(t->role) || !is_rounded(t))
			continue;
		master = uns_masters_or(&masters, t);
		code = master != t ? uns_cover_check(cat, master, &hole) : 0;
		UNS_TRY(uns_fail_if_passing(why, code, &hole));
		if (code < 0 || (master == t && lacks_master(cat, t)))
			return refuse(cat, &hole, why);
	}
	return 0;
}
