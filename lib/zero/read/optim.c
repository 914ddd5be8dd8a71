/* Finds the flat tensors of one shard, and what it records of them. Reads zip headers, and of tensors only single
 * numbers. */
#include "zero/read/optim.h"

#include <string.h>

#include "base/checked.h"

static bool is_list(const struct uns_value *v)
{
	return v && v->kind == UNS_VALUE_LIST;
}

static int parse_part(const struct uns_zero_file *file, const struct uns_value *v, const char *what, size_t g,
		      struct uns_zero_part *out, bool *scalar, struct uns_err *err)
{
	struct uns_torch_tensor t;
	uint64_t elems = 1;
	size_t i;

	if (uns_torch_tensor(&file->torch, v, &t, err) < 0)
		return uns_fail_in(err, "%s of group %zu", what, g);
	if (!t.contiguous)
		return uns_fail(err, -ENOTSUP, "%s of group %zu is not contiguous", what, g);
	for (i = 0; i < t.n_dims; i++)
		elems *= t.dims[i]; /* inside its storage: cannot overflow */
	*out = (struct uns_zero_part){ .there = true,
				       .file = file->index,
				       .dtype = t.dtype,
				       .offset_bytes = t.data_bytes + t.first_elem * uns_dtype_size(t.dtype),
				       .elems = elems };
	*scalar = t.n_dims == 0;
	return 0;
}

/* -- states -- */

static int parse_state(const struct uns_zero_file *file, const char *name, const struct uns_value *v, size_t g,
		       struct uns_zero_rank_group *out, struct uns_err *err)
{
	struct uns_zero_state *s = &out->state[out->n_states];
	bool is_step = strcmp(name, "step") == 0;
	double unused;

	if (!uns_torch_is_tensor(v)) {
		if (is_step && uns_value_float(v, &unused))
			out->step = v;
		else if (v->kind != UNS_VALUE_NONE)
			return uns_fail(err, -ENOTSUP, "%s of group %zu is neither a tensor nor a step", name, g);
		return 0;
	}
	s->name = name;
	UNS_TRY(parse_part(file, v, name, g, &s->part, &s->scalar, err));
	s->scalar |= is_step && s->part.elems == 1;
	if (s->scalar)
		UNS_TRY(uns_reader_pread(file->torch.r, s->value, uns_dtype_size(s->part.dtype), s->part.offset_bytes,
					 err));
	out->n_states++;
	return 0;
}

static int parse_states(const struct uns_zero_file *file, const struct uns_value *dict, size_t g,
			struct uns_arena *arena, struct uns_zero_rank_group *out, struct uns_err *err)
{
	const char *name;
	size_t i;

	if (!dict)
		return 0;
	if (dict->kind != UNS_VALUE_DICT)
		return uns_fail(err, -ENOTSUP, "the state of group %zu is not a dict", g);
	UNS_TRY_ALLOC(out->state = UNS_NEW_N(arena, struct uns_zero_state, dict->n), err);
	for (i = 0; i < dict->n; i++) {
		name = uns_value_str(dict->pair[i].key);
		if (!name)
			return uns_fail(err, -ENOTSUP,
					"the state of group %zu has a key that is "
					"not a name",
					g);
		UNS_TRY(parse_state(file, name, dict->pair[i].value, g, out, err));
	}
	return 0;
}

/* -- the file -- */

/* deepspeed.runtime.zero.config.ZeroStageEnum(n), or a plain number. */
static bool stage_of(const struct uns_value *v, uint64_t *out)
{
	if (v && v->kind == UNS_VALUE_OBJECT)
		v = uns_value_at(v->object.args, 0);
	return uns_value_u64(v, out);
}

static int find_stage(struct uns_zero_optim *o, const struct uns_value **fp32, struct uns_err *err)
{
	const struct uns_value *flat = uns_value_get(o->dict, "fp32_flat_groups"),
			       *single = uns_value_get(o->dict, "single_partition_of_fp32_groups");
	uint64_t stage = 0;
	bool known = stage_of(uns_value_get(o->dict, "zero_stage"), &stage);

	*fp32 = is_list(flat) ? flat : single;
	if (!is_list(*fp32))
		return uns_fail(err, -ENOTSUP,
				"the file has neither single_partition_of_fp32_groups nor "
				"fp32_flat_groups: it is not the shard of a ZeRO optimizer that "
				"unshard knows");
	o->stage = *fp32 == flat ? 3 : 1;
	if (known && (stage == 3) != (o->stage == 3))
		return uns_fail(err, -EBADMSG,
				"the file records ZeRO stage %llu, but its tensors are those of "
				"stage %s",
				(unsigned long long)stage, o->stage == 3 ? "3" : "1 or 2");
	return 0;
}

static int parse_group(const struct uns_zero_file *file, const struct uns_zero_optim *o, const struct uns_value *fp32,
		       const struct uns_value *base, size_t g, struct uns_arena *arena, struct uns_err *err)
{
	struct uns_zero_rank_group *out = &o->group[g];
	const struct uns_value *autoep = uns_value_at(uns_value_get(o->dict, "ds_zero_partition_groups"), g);
	bool unused;

	UNS_TRY(parse_part(file, fp32, "the fp32 partition", g, &out->fp32, &unused, err));
	uns_value_u64(uns_value_at(uns_value_get(o->dict, "partition_count"), g), &out->partitions);
	uns_value_u64(uns_value_get(autoep, "partition_count"), &out->partitions);
	out->has_padding = uns_value_u64(uns_value_at(uns_value_get(o->dict, "group_paddings"), g), &out->padding);
	return parse_states(
		file, is_list(base) ? uns_value_at(base, g) : uns_value_get_number(uns_value_get(base, "state"), g), g,
		arena, out, err);
}

static int parse_optimizer(const struct uns_zero_file *file, struct uns_arena *arena, struct uns_zero_optim *o,
			   struct uns_err *err)
{
	const struct uns_value *fp32, *base, *groups, *counts;
	uint64_t n;
	size_t g;

	o->dict = uns_value_get(file->torch.root, "optimizer_state_dict");
	o->version = uns_value_str(uns_value_get(file->torch.root, "ds_version"));
	UNS_TRY(find_stage(o, &fp32, err));
	counts = uns_value_get(o->dict, "partition_count"); /* a number, or a list with one of each group */
	if (!uns_value_u64(counts, &o->partitions) && is_list(counts))
		for (g = 0; g < counts->n; g++) {
			if (!uns_value_u64(counts->item[g], &n))
				return uns_fail(err, -EBADMSG, "partition_count is not a list of counts");
			o->partitions = uns_u64_max(o->partitions, n);
		}
	base = uns_value_get(o->dict, o->stage == 3 ? "optimizer_state_dict" : "base_optimizer_state");
	groups = uns_value_get(base, "param_groups");
	o->param_groups = is_list(groups) ? groups : NULL;
	o->n_groups = fp32->n;
	UNS_TRY_ALLOC(o->group = UNS_NEW_N(arena, struct uns_zero_rank_group, o->n_groups), err);
	for (g = 0; g < o->n_groups; g++)
		UNS_TRY(parse_group(file, o, fp32->item[g], base, g, arena, err));
	return 0;
}

int uns_zero_optim_parse(const struct uns_zero_file *file, struct uns_arena *arena, struct uns_zero_optim *out,
			 struct uns_err *err)
{
	*out = (struct uns_zero_optim){ 0 };
	if (parse_optimizer(file, arena, out, err) < 0)
		return uns_fail_in_file(err, file->open.name);
	return 0;
}
