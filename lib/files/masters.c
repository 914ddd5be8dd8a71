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

/* A finding about the optimizer; code 0: any but what unshard cannot read. NULL = there is none. */
static const struct uns_finding *optimizer_finding(const struct uns_catalog *cat, int code)
{
	const struct uns_finding *f = cat->findings, *end = f + cat->n_findings;

	while (f < end && (f->scope != UNS_SCOPE_OPTIMIZER || (code ? f->code != code : f->code == -ENOTSUP)))
		f++;
	return f < end ? f : NULL;
}

/* Was an fp32 copy of the weight lost? Only DeepSpeed keeps copies apart from weights. Frozen parameters are in no
 * group. Without any groups, nothing of the optimizer could be read; if it was only left out (-ENODATA), there are no
 * copies. */
static bool lacks_master(const struct uns_catalog *cat, const struct uns_tensor *t)
{
	if (!uns_family_is_deepspeed(cat->summary.family) || t->role != UNS_ROLE_WEIGHT ||
	    (cat->n_groups && t->group < 0))
		return false;
	return optimizer_finding(cat, -EBADMSG) || (cat->n_groups && optimizer_finding(cat, -ENODATA));
}

int uns_masters_check(const struct uns_catalog *cat, struct uns_err *why)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map masters = UNS_MAP_INIT;
	const struct uns_tensor *t, *master;
	const struct uns_finding *finding;
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
		if (code >= 0 && (master != t || !lacks_master(cat, t)))
			continue;
		/* A finding about the optimizer has more details than which elements are missing. */
		finding = optimizer_finding(cat, 0);
		return finding ? uns_fail_with(why, finding) : uns_fail_copy(why, &hole);
	}
	return 0;
}
