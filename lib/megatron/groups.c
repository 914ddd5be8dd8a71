/* Reads common.pt and items of param groups. Knows where Megatron-Core puts these, and not what is in them. */
#include "megatron/groups.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "dcp/item.h"
#include "megatron/args.h"
#include "megatron/common_pickle.h"
#include "wire/torchfile.h"
#include "wire/value_new.h"

enum { MAX_OPTIMIZERS = 64, MAX_VALUES = 4096, MAX_DEPTH = 16 }; /* of one param group */

/* The file while it is open. */
struct common {
	struct uns_catalog *cat;
	struct uns_arena scratch;
	struct uns_reader reader;
	struct uns_torchfile torch;
	bool wants_groups;
};

static void common_fini(struct common *c)
{
	uns_arena_fini(&c->scratch);
}

/* A scalar tensor as a number. 1, 0 = it is none. */
static int scalar_read(const struct common *c, const struct uns_value *v, double *out, struct uns_err *err)
{
	struct uns_torch_tensor t;
	float narrow;

	if (!uns_torch_is_tensor(v))
		return uns_value_float(v, out);
	UNS_TRY(uns_torch_tensor(&c->torch, v, &t, err));
	if (t.n_dims || (t.dtype != UNS_F32 && t.dtype != UNS_F64))
		return 0;
	if (t.dtype == UNS_F64) {
		UNS_TRY(uns_reader_pread(&c->reader, out, sizeof(*out), t.data_bytes + t.first_elem * sizeof(*out),
					 err));
		return 1;
	}
	UNS_TRY(uns_reader_pread(&c->reader, &narrow, sizeof(narrow), t.data_bytes + t.first_elem * sizeof(narrow),
				 err));
	*out = narrow;
	return 1;
}

static int group_add(struct common *c, const struct uns_value *saved, const double *step, struct uns_err *err)
{
	struct uns_arena *arena = &c->cat->arena;
	struct uns_value *hyper = uns_value_new_dict_of(&c->scratch, saved, "params", 1);
	struct uns_group group = { .root = "optimizer" };

	if (step && !uns_value_get(saved, "step") &&
	    !uns_value_put_str(&c->scratch, hyper, "step", uns_value_new_float(&c->scratch, *step)))
		return uns_oom(err);
	if (hyper && !uns_value_fits(hyper, MAX_VALUES, MAX_DEPTH))
		return uns_fail(err, -ENOTSUP, "a param group has more than %d values, or they are nested too deep",
				MAX_VALUES);
	group.hyper = uns_value_copy(arena, hyper);
	group.param = UNS_NEW_N(arena, const char *, 1);
	UNS_TRY_ALLOC(group.hyper && group.param, err);
	return uns_catalog_add_group(c->cat, &group, err);
}

/* Adds the groups of {"param_groups": .., "state": ..}, or of the same as "optimizer" of a dict. */
static int optimizer_add(struct common *c, const struct uns_value *saved, struct uns_err *err)
{
	const struct uns_value *inner = uns_value_get(saved, "optimizer"), *groups, *group;
	double step;
	size_t i;
	int known;

	if (inner)
		saved = inner;
	groups = uns_value_get(saved, "param_groups");
	UNS_TRY(known = scalar_read(c, uns_value_get(uns_value_get(saved, "state"), "common_step"), &step, err));
	for (i = 0; (group = uns_value_at(groups, i)); i++)
		if (group->kind == UNS_VALUE_DICT)
			UNS_TRY(group_add(c, group, known ? &step : NULL, err));
	return 0;
}

static int common_read(struct common *c, const struct uns_root *root, const char *path, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_open_file open_file = { .name = path };
	const struct uns_value *saved, *one;
	struct uns_stat now;
	uint32_t file;
	uint64_t i;

	UNS_TRY(uns_catalog_add_file(c->cat, root, path, &file, err));
	UNS_TRY(uns_root_open_file(root, path, &fd, &now, err));
	if (!uns_identity_equal(&now.id, &c->cat->files[file].stat.id))
		return uns_fail(err, -ESTALE, "the file changed while it was being read");
	open_file.fd = fd;
	c->reader = uns_reader_of_file(&open_file, now.id.size);
	UNS_TRY(uns_torchfile_open(&c->reader, &c->scratch, &c->torch, err));
	/* How far the training was (megatron/training/checkpointing.py, generate_state_dict). */
	UNS_TRY(uns_megatron_iteration_add(c->cat, file, uns_value_get(c->torch.root, UNS_MEGATRON_ITERATION), err));
	UNS_TRY(uns_megatron_lightning_add(c->cat, file, c->torch.root, err));
	UNS_TRY(uns_megatron_args_add(c->cat, file, uns_value_get(c->torch.root, "args"), err));
	UNS_TRY(uns_megatron_common_keep(c->cat, file, &c->torch, err));
	saved = uns_value_get(c->torch.root, "optimizer");
	if (saved && saved->kind == UNS_VALUE_LIST) /* NeMo 2: of its one optimizer */
		saved = saved->n == 1 ? uns_value_at(saved, 0) : NULL;
	if (!saved || !c->wants_groups)
		return 0;
	UNS_TRY(optimizer_add(c, saved, err));
	for (i = 0; i < MAX_OPTIMIZERS && (one = uns_value_get_number(saved, i)); i++)
		UNS_TRY(optimizer_add(c, one, err));
	return 0;
}

/* -- of buckets -- */

struct items {
	struct uns_catalog *cat;
	struct uns_dcp_reader reader;
	struct uns_arena scratch;
	struct uns_span last; /* the bytes of the item before: most are equal */
};

static void items_fini(struct items *i)
{
	uns_dcp_reader_fini(&i->reader);
	uns_arena_fini(&i->scratch);
}

static bool has_bucket_groups(const char *key)
{
	static const char mark[] = "optimizer.distributed.dp_group_idx_";
	const char *at = strstr(key, mark);

	if (!at)
		return false;
	at += strlen(mark);
	at += strspn(at, "0123456789");
	return uns_str_starts(at, ".optimizer/shard_");
}

static int item_groups_add(struct items *items, const struct uns_named_value *item, struct uns_err *err)
{
	const struct uns_dcp_item_location at = { item->file, item->offset_bytes, item->length_bytes, item->codec };
	UNS_CLEANUP(common_fini) struct common c = { .cat = items->cat };
	const struct uns_value *saved, *one;
	struct uns_span bytes;
	size_t i;

	UNS_TRY(uns_dcp_item_bytes(&items->reader, &at, &items->scratch, &bytes, err));
	if (uns_span_left(&items->last) == uns_span_left(&bytes) && uns_span_left(&bytes) &&
	    memcmp(items->last.p, bytes.p, uns_span_left(&bytes)) == 0)
		return 0;
	items->last = bytes;
	UNS_TRY(uns_dcp_item_value(bytes, &items->scratch, &saved, err));
	for (i = 0; (one = uns_value_at(saved, i)); i++)
		UNS_TRY(optimizer_add(&c, one, err));
	return 0;
}

int uns_megatron_bucket_groups_read(struct uns_catalog *cat, struct uns_err *err)
{
	UNS_CLEANUP(items_fini) struct items items = { .cat = cat };
	struct uns_err why = { .keep = &cat->arena };
	size_t i;

	uns_dcp_reader_init(&items.reader, cat);
	for (i = 0; i < cat->n_values; i++) {
		if (!has_bucket_groups(cat->values[i].name))
			continue;
		if (item_groups_add(&items, &cat->values[i], &why) >= 0)
			continue;
		uns_fail_in_file(&why, cat->files[cat->values[i].file].path);
		UNS_TRY(uns_catalog_problem_or_fail(cat, UNS_SCOPE_OPTIMIZER, &why, err));
		return 0;
	}
	return 0;
}

/* -- the file -- */

int uns_megatron_common_read(struct uns_catalog *cat, const struct uns_root *root, const char *dir, bool wants_groups,
			     struct uns_err *err)
{
	UNS_CLEANUP(common_fini) struct common c = { .cat = cat, .wants_groups = wants_groups };
	struct uns_err why = { .keep = &cat->arena };
	char *path = uns_path_join(&cat->arena, dir, UNS_MEGATRON_COMMON);

	UNS_TRY_ALLOC(path, err);
	if (common_read(&c, root, path, &why) >= 0)
		return 0;
	uns_fail_in_file(&why, path);
	return uns_catalog_problem_or_fail(cat, UNS_SCOPE_OPTIMIZER, &why, err);
}
