/* Reads common.pt. Knows where Megatron-Core puts param groups in it, and not what is in them. */
#include "dcp/megatron_groups.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "wire/torchfile.h"
#include "wire/value_new.h"

enum { MAX_OPTIMIZERS = 64, MAX_VALUES = 4096, MAX_DEPTH = 16 }; /* of one param group */

/* The file while it is open. */
struct common {
	struct uns_catalog *cat;
	struct uns_arena scratch;
	struct uns_reader reader;
	struct uns_torchfile torch;
};

static void common_fini(struct common *c)
{
	uns_arena_fini(&c->scratch);
}

/* A scalar tensor as a number. 1, 0 = it is none. */
static int scalar(const struct common *c, const struct uns_value *v, double *out, struct uns_err *err)
{
	struct uns_torch_tensor t;
	float narrow;

	if (!uns_torch_is_tensor(v))
		return uns_value_float(v, out);
	UNS_TRY(uns_torch_tensor(&c->torch, v, &t, err));
	if (t.n_dims || (t.dtype != UNS_F32 && t.dtype != UNS_F64))
		return 0;
	if (t.dtype == UNS_F64) {
		UNS_TRY(uns_reader_pread(&c->reader, out, sizeof(*out), t.data_bytes + t.first_elem * sizeof(*out), err));
		return 1;
	}
	UNS_TRY(uns_reader_pread(&c->reader, &narrow, sizeof(narrow), t.data_bytes + t.first_elem * sizeof(narrow), err));
	*out = narrow;
	return 1;
}

static int add_group(struct common *c, const struct uns_value *saved, const double *step, struct uns_err *err)
{
	struct uns_arena *arena = &c->cat->arena;
	struct uns_value *hyper = uns_value_new_dict_of(&c->scratch, saved, "params", 1);
	struct uns_group group = { .root = "optimizer" };

	if (step && !uns_value_get(saved, "step") &&
	    !uns_value_put_str(&c->scratch, hyper, "step", uns_value_new_float(&c->scratch, *step)))
		return uns_oom(err);
	if (hyper && !uns_value_fits(hyper, MAX_VALUES, MAX_DEPTH))
		return uns_fail(err, -ENOTSUP, "a param group has more than %d values, or they are nested too deep", MAX_VALUES);
	group.hyper = uns_value_copy(arena, hyper);
	group.param = UNS_NEW_N(arena, const char *, 1);
	if (!group.hyper || !group.param)
		return uns_oom(err);
	return uns_catalog_add_group(c->cat, &group, err);
}

static int add_optimizer(struct common *c, const struct uns_value *saved, struct uns_err *err)
{
	const struct uns_value *inner = uns_value_get(saved, "optimizer"), *groups, *group;
	double step;
	size_t i;
	int known;

	if (inner)
		saved = inner;
	groups = uns_value_get(saved, "param_groups");
	UNS_TRY(known = scalar(c, uns_value_get(uns_value_get(saved, "state"), "common_step"), &step, err));
	for (i = 0; (group = uns_value_at(groups, i)); i++)
		if (group->kind == UNS_VALUE_DICT)
			UNS_TRY(add_group(c, group, known ? &step : NULL, err));
	return 0;
}

static int add_optimizers(struct common *c, struct uns_err *err)
{
	const struct uns_value *saved = uns_value_get(c->torch.root, "optimizer"), *one;
	uint64_t i;

	if (!saved)
		return 0;
	UNS_TRY(add_optimizer(c, saved, err));
	for (i = 0; i < MAX_OPTIMIZERS && (one = uns_value_get_number(saved, i)); i++)
		UNS_TRY(add_optimizer(c, one, err));
	return 0;
}

static int add_option(struct common *c, uint32_t file, struct uns_err *err)
{
	const struct uns_value *on = uns_value_field(uns_value_get(c->torch.root, "args"), UNS_MEGATRON_QK_DECAY);
	const struct uns_named_value value = { .name = UNS_MEGATRON_QK_DECAY, .root = UNS_MEGATRON_COMMON,
					       .value = uns_value_new_bool(&c->cat->arena, true), .file = file };

	if (!on || on->kind != UNS_VALUE_BOOL || !on->b)
		return 0;
	return value.value ? uns_catalog_add_value(c->cat, &value, err) : uns_oom(err);
}

static int read_common(struct common *c, const struct uns_root *root, const char *path, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_open_file open_file = { .name = path };
	struct uns_stat now;
	uint32_t file;

	UNS_TRY(uns_catalog_add_file(c->cat, root, path, &file, err));
	UNS_TRY(uns_root_open_file(root, path, &fd, &now, err));
	if (!uns_identity_equal(&now.id, &c->cat->files[file].stat.id))
		return uns_fail(err, -ESTALE, "the file changed while it was being read");
	open_file.fd = fd;
	c->reader = uns_reader_of_file(&open_file, now.id.size);
	UNS_TRY(uns_torchfile_open(&c->reader, &c->scratch, &c->torch, err));
	UNS_TRY(add_option(c, file, err));
	return add_optimizers(c, err);
}

int uns_megatron_groups_add(struct uns_catalog *cat, const struct uns_root *root, const char *dir, struct uns_err *err)
{
	UNS_CLEANUP(common_fini) struct common c = { .cat = cat };
	struct uns_err why = { .keep = &cat->arena };
	char *path = uns_path_join(&cat->arena, dir, UNS_MEGATRON_COMMON);

	if (!path)
		return uns_oom(err);
	if (read_common(&c, root, path, &why) >= 0)
		return 0;
	uns_fail_in_file(&why, path);
	return uns_catalog_problem_or_fail(cat, UNS_SCOPE_OPTIMIZER, &why, err);
}
