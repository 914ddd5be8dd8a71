/* Reads each rank's file, then puts the tensors together. Owns the names of files, keys and layers. */
#include "megatron/rank_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "files/beside.h"
#include "megatron/args.h"
#include "megatron/common_file.h"
#include "megatron/expert_names.h"
#include "megatron/rank_cuts.h"
#include "parallel/slice_pieces.h"
#include "wire/json.h"
#include "wire/torchfile.h"

enum { MAX_RANKS = 65536, MAX_CHUNKS = 64, MAX_CONFIG_BYTES = 16 << 20 };

static const char DIRECTORY[] = "mp_rank_", STATES[] = "distrib_optim.pt", LAYERS[] = "decoder.layers.";
static const char HEAD[] = "output_layer.weight", EMBEDDING[] = "embedding.word_embeddings.weight";

/* How many ranks share the model, and what else is recorded. */
struct split {
	uint64_t tensor, pipeline, expert;
	uint64_t n_layers, n_experts;
	bool tied; /* embedding and head */
};

/* A tensor of one rank's file. */
struct part {
	const char *name;               /* in the whole model */
	uint64_t tensor, stage, expert; /* the rank's numbers; stage: of all, virtual ones too */
	struct uns_shape shape;
	struct uns_piece piece;
	enum uns_dtype dtype;
	const char *key; /* in the file */
	struct part *next; /* of the same name */
};

struct rank_files {
	struct uns_catalog *cat;
	const struct uns_directory *dir;
	struct uns_arena scratch;
	cJSON *config; /* mcore_adapter's; NULL = Megatron-LM saved the files */
	struct split split;
	uint64_t n_chunks; /* virtual stages of a rank */
	uint64_t *n_layers; /* of each stage, in the order of the layers */
	struct part *part;
	size_t n, cap;
	struct uns_map by_name; /* -> index of the first part + 1 */
	bool has_optimizer;
};

static void rank_files_fini(struct rank_files *r)
{
	uns_map_fini(&r->by_name);
	uns_json_free_p(&r->config);
	free(r->part);
	uns_arena_fini(&r->scratch);
}

bool uns_megatron_is_rank_dir(const char *name)
{
	const char *at = name + strlen(DIRECTORY);
	unsigned numbers = 0;
	size_t digits;

	if (!uns_str_starts(name, DIRECTORY))
		return false;
	for (;; at += digits + 1) {
		digits = strspn(at, "0123456789");
		if (digits < 2 || ++numbers > 3)
			return false;
		if (!at[digits])
			return true;
		if (at[digits] != '_')
			return false;
	}
}

/* -- how ranks share the model -- */

/* The training's args in the file, or mcore_adapter's configuration. */
struct setting {
	const struct uns_value *args; /* NULL = the configuration has it */
	const cJSON *config;
};

/* *out = its number; `absent` where there is none. */
static int setting_number(const struct setting *s, const char *name, uint64_t absent, uint64_t *out,
			  struct uns_err *err)
{
	const struct uns_value *v = uns_value_field(s->args, name);
	const cJSON *json = cJSON_GetObjectItemCaseSensitive(s->config, name);
	int64_t number = 0;

	*out = absent;
	if ((!v || v->kind == UNS_VALUE_NONE) && (!json || cJSON_IsNull(json)))
		return 0;
	if (!(v ? uns_value_int(v, &number) : uns_json_int(s->config, name, &number)) || number < 1 ||
	    number > MAX_RANKS)
		return uns_fail(err, -EBADMSG, "%s, by which ranks share the model, is no number from 1 to %d", name,
				MAX_RANKS);
	*out = (uint64_t)number;
	return 0;
}

static bool setting_flag(const struct setting *s, const char *name, bool *out)
{
	const struct uns_value *v = uns_value_field(s->args, name);

	if (!s->args)
		return uns_json_bool(s->config, name, out);
	*out = v && v->kind == UNS_VALUE_BOOL && v->b;
	return v && v->kind == UNS_VALUE_BOOL;
}

static int groups_check(const struct setting *from, const struct split *s, struct uns_err *err)
{
	uint64_t groups;
	bool grouped = true;

	UNS_TRY(setting_number(from, "num_query_groups", s->tensor, &groups, err));
	if (from->args)
		setting_flag(from, "group_query_attention", &grouped);
	if (grouped && groups % s->tensor)
		return uns_fail(err, -ENOTSUP,
				"%llu tensor-parallel ranks share %llu query groups (num_query_groups): unshard knows "
				"no rule for that",
				(unsigned long long)s->tensor, (unsigned long long)groups);
	return 0;
}

static int split_check(const struct setting *from, const struct split *s, struct uns_err *err)
{
	uint64_t of_experts;

	UNS_TRY(setting_number(from, "expert_tensor_parallel_size", s->tensor, &of_experts, err));
	if (s->n_experts && of_experts != s->tensor)
		return uns_fail(
			err, -ENOTSUP,
			"expert_tensor_parallel_size is %llu, and tensor_model_parallel_size %llu: which rank's "
			"file has which part of an expert is not recorded then",
			(unsigned long long)of_experts, (unsigned long long)s->tensor);
	if (s->n_experts % s->expert)
		return uns_fail(err, -EBADMSG, "%llu ranks cannot share %llu experts", (unsigned long long)s->expert,
				(unsigned long long)s->n_experts);
	if (s->tensor * s->pipeline * s->expert > MAX_RANKS)
		return uns_fail(err, -ENOTSUP, "more than %d ranks share the model", MAX_RANKS);
	return groups_check(from, s, err);
}

static int split_take(const struct setting *from, struct split *s, struct uns_err *err)
{
	const char *flag = from->args ? "untie_embeddings_and_output_weights" : "tie_embeddings_and_output_weights";
	bool value;

	UNS_TRY(setting_number(from, "tensor_model_parallel_size", 1, &s->tensor, err));
	UNS_TRY(setting_number(from, "pipeline_model_parallel_size", 1, &s->pipeline, err));
	UNS_TRY(setting_number(from, "expert_model_parallel_size", 1, &s->expert, err));
	UNS_TRY(setting_number(from, "num_layers", 0, &s->n_layers, err));
	UNS_TRY(setting_number(from, from->args ? "num_experts" : "num_moe_experts", 0, &s->n_experts, err));
	if (!s->n_layers || !setting_flag(from, flag, &value))
		return uns_fail(err, -ENOTSUP, "num_layers or %s is not recorded", flag);
	s->tied = from->args ? !value : value;
	return split_check(from, s, err);
}

static int split_read(const struct rank_files *r, const struct uns_value *root, struct split *s, struct uns_err *err)
{
	const struct setting from = { uns_value_get(root, "args"), r->config };
	double version;

	if (!from.args && !from.config)
		return uns_fail(err, -ENOTSUP, "it has no args, which alone record how ranks share the model");
	if (from.args && (!uns_value_float(uns_value_get(root, "checkpoint_version"), &version) || version < 3))
		return uns_fail(err, -ENOTSUP,
				"it has no checkpoint_version of at least 3: before that, queries, keys and values had "
				"another order");
	return split_take(&from, s, err);
}

static bool split_equal(const struct split *a, const struct split *b)
{
	return a->tensor == b->tensor && a->pipeline == b->pipeline && a->expert == b->expert &&
	       a->n_layers == b->n_layers && a->n_experts == b->n_experts && a->tied == b->tied;
}

/* -- a file -- */

struct one {
	uint64_t tensor, stage, expert;
	uint32_t file;
	struct uns_open_file open;
	struct uns_reader reader;
	struct uns_torchfile torch;
	int fd;
};

static void one_fini(struct one *o)
{
	if (o->fd >= 0)
		uns_close_p(&o->fd);
}

/* Opens a rank's file; *out stays valid until its end. */
static int one_open(struct rank_files *r, const char *dir, struct uns_arena *arena, struct one *out,
		    struct uns_err *err)
{
	const struct uns_file *f;
	struct uns_stat now;

	UNS_TRY(uns_beside_add_shard(r->cat, r->dir->root, uns_path_join(&r->scratch, r->dir->path, dir), dir,
				     UNS_MEGATRON_RANK_FILE, &out->file, err));
	f = &r->cat->files[out->file];
	if (f->missing)
		return UNS_FAIL_WITH(err, RANK_FILE_MISSING, .scope = UNS_SCOPE_WEIGHTS, .file = f->path,
				     .rank = uns_rank((int64_t)out->tensor), .arg = { { "copies", uns_more(0) } });
	UNS_TRY(uns_root_open_file(f->root, f->path, &out->fd, &now, err));
	if (!uns_identity_equal(&now.id, &f->stat.id))
		return uns_fail(err, -ESTALE, "%s: the file changed while it was being read", f->path);
	out->open = (struct uns_open_file){ .fd = out->fd, .name = f->path };
	out->reader = uns_reader_of_file(&out->open, f->stat.id.size);
	if (uns_torchfile_open(&out->reader, arena, &out->torch, err) < 0)
		return uns_fail_in_file(err, f->path);
	return 0;
}

/* -- a tensor of it -- */

/* The piece that a tensor is: all of it, as a tensor of its own. */
static int part_place(struct rank_files *r, const struct one *o, const struct uns_value *v, struct part *out,
		      struct uns_err *err)
{
	struct uns_box *box = UNS_NEW(&r->cat->arena, struct uns_box);
	struct uns_torch_tensor t;
	uint64_t *strides, reach = 1;
	size_t i;

	UNS_TRY_ALLOC(box, err);
	UNS_TRY(uns_torch_readable(v, err));
	UNS_TRY(uns_torch_tensor(&o->torch, v, &t, err));
	out->dtype = t.dtype;
	out->shape.n = box->n = (uint32_t)t.n_dims;
	memcpy(out->shape.dim, t.dims, sizeof(t.dims));
	memcpy(box->len, t.dims, sizeof(t.dims));
	UNS_TRY(uns_shape_check(&out->shape, t.dtype, err));
	for (i = 0; i < t.n_dims && reach; i++)
		reach = t.dims[i] ? reach + (t.dims[i] - 1) * t.stride_elems[i] : 0;
	out->piece = (struct uns_piece){ .kind = UNS_PIECE_BOX,
					 .box = box,
					 .file = o->file,
					 .rank = (int32_t)o->tensor,
					 .container = UNS_RAW,
					 .offset_bytes = t.data_bytes + t.first_elem * uns_dtype_size(t.dtype),
					 .length_bytes = reach * uns_dtype_size(t.dtype) };
	if (t.contiguous)
		return 0;
	UNS_TRY_ALLOC(strides = UNS_NEW_N(&r->cat->arena, uint64_t, t.n_dims), err);
	memcpy(strides, t.stride_elems, t.n_dims * sizeof(*strides));
	out->piece.stride_elems = strides;
	return 0;
}

/* The layer's number in its stage; false: it is of no layer. *rest: what follows the number. */
static bool layer_of(const char *name, uint64_t *out, const char **rest)
{
	const char *at = name + strlen(LAYERS);
	size_t digits;

	if (!uns_str_starts(name, LAYERS))
		return false;
	digits = strspn(at, "0123456789");
	if (!digits || digits > 6 || at[digits] != '.')
		return false;
	*out = strtoull(at, NULL, 10);
	*rest = at + digits;
	return true;
}

static int part_add(struct rank_files *r, const struct one *o, const char *key, const struct uns_value *v,
		    struct uns_err *err)
{
	const char *rest;
	uint64_t layer;

	if (uns_str_ends(key, "_extra_state"))
		return 0;
	UNS_TRY_ALLOC(UNS_HEAP_ROOM(r->part, r->n, r->cap), err);
	r->part[r->n] = (struct part){ .tensor = o->tensor, .stage = o->stage, .expert = o->expert };
	UNS_TRY_ALLOC(r->part[r->n].key = uns_arena_str(&r->cat->arena, key), err);
	if (part_place(r, o, v, &r->part[r->n], err) < 0)
		return uns_fail_in(err, "%s: %s", o->open.name, key);
	if (layer_of(key, &layer, &rest) && layer >= r->n_layers[o->stage])
		r->n_layers[o->stage] = layer + 1;
	r->n++;
	return 0;
}

static int chunk_add(struct rank_files *r, const struct one *o, const char *name, struct uns_err *err)
{
	const struct uns_value *dict = uns_value_get(o->torch.root, name);
	const char *key;
	size_t i;

	if (!dict || dict->kind != UNS_VALUE_DICT)
		return uns_fail(err, -ENOTSUP, "%s: %s is no state dict", o->open.name, name);
	for (i = 0; i < dict->n; i++) {
		key = uns_value_str(dict->pair[i].key);
		if (!key)
			return uns_fail(err, -ENOTSUP, "%s: %s has a key that is no text", o->open.name, name);
		UNS_TRY(part_add(r, o, key, dict->pair[i].value, err));
	}
	return 0;
}

/* -- all files -- */

static size_t count_chunks(const struct uns_value *root)
{
	char name[32];
	size_t n = 0;

	if (uns_value_get(root, "model"))
		return 1;
	do
		snprintf(name, sizeof(name), "model%zu", n);
	while (uns_value_get(root, name) && ++n < MAX_CHUNKS);
	return n;
}

static const char *dir_name(struct rank_files *r, const struct one *o)
{
	const struct split *s = &r->split;
	const char *out = uns_arena_printf(&r->scratch, "%s%02llu", DIRECTORY, (unsigned long long)o->tensor);

	if (out && s->pipeline > 1)
		out = uns_arena_printf(&r->scratch, "%s_%03llu", out, (unsigned long long)o->stage);
	if (out && s->expert > 1)
		out = uns_arena_printf(&r->scratch, "%s_%03llu", out, (unsigned long long)o->expert);
	return out;
}

static int one_read(struct rank_files *r, uint64_t tensor, uint64_t stage, uint64_t expert, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(one_fini) struct one o = { .tensor = tensor, .stage = stage, .expert = expert, .fd = -1 };
	const char *dir = dir_name(r, &o);
	struct split same;
	char name[32];
	size_t i;

	UNS_TRY_ALLOC(dir, err);
	UNS_TRY(one_open(r, dir, &arena, &o, err));
	if (split_read(r, o.torch.root, &same, err) < 0)
		return uns_fail_in_file(err, o.open.name);
	if (!split_equal(&same, &r->split) || count_chunks(o.torch.root) != r->n_chunks)
		return uns_fail(err, -EBADMSG,
				"%s: its args have another number of ranks, layers or experts than the "
				"first file's: the files are of different checkpoints",
				o.open.name);
	r->has_optimizer |= uns_value_get(o.torch.root, "optimizer") != NULL;
	if (r->n_chunks == 1 && uns_value_get(o.torch.root, "model"))
		return chunk_add(r, &o, "model", err);
	for (i = 0; i < r->n_chunks; i++) {
		snprintf(name, sizeof(name), "model%zu", i);
		o.stage = stage + i * r->split.pipeline;
		UNS_TRY(chunk_add(r, &o, name, err));
	}
	return 0;
}

/* The first file records how many there are. */
static int first_read(struct rank_files *r, const char *dir, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(one_fini) struct one o = { .fd = -1 };
	int64_t ranks;

	UNS_TRY(one_open(r, dir, &arena, &o, err));
	if (split_read(r, o.torch.root, &r->split, err) < 0)
		return uns_fail_in_file(err, o.open.name);
	r->n_chunks = count_chunks(o.torch.root);
	if (!r->n_chunks)
		return uns_fail(err, -ENOTSUP, "%s: it has neither model nor model0", o.open.name);
	UNS_TRY_ALLOC(r->n_layers = UNS_NEW_N(&r->scratch, uint64_t, r->split.pipeline * r->n_chunks), err);
	UNS_TRY(uns_megatron_args_add(r->cat, o.file, uns_value_get(o.torch.root, "args"), err));
	UNS_TRY(uns_megatron_iteration_add(r->cat, o.file, uns_value_get(o.torch.root, UNS_MEGATRON_ITERATION), err));
	if (uns_value_int(uns_value_field(uns_value_get(o.torch.root, "args"), "world_size"), &ranks) && ranks > 0)
		r->cat->summary.world_size = ranks;
	return 0;
}

static int files_read(struct rank_files *r, struct uns_err *err)
{
	const struct uns_listing *list = r->dir->list;
	const char *first = NULL;
	uint64_t tensor, stage, expert, n = 0;
	size_t i;

	for (i = 0; i < list->n; i++)
		if (uns_megatron_is_rank_dir(list->v[i].name)) {
			n++;
			if (!first || strcmp(list->v[i].name, first) < 0)
				first = list->v[i].name;
		}
	UNS_TRY(first_read(r, first, err));
	for (stage = 0; stage < r->split.pipeline; stage++)
		for (expert = 0; expert < r->split.expert; expert++)
			for (tensor = 0; tensor < r->split.tensor; tensor++)
				UNS_TRY(one_read(r, tensor, stage, expert, err));
	if (n != r->split.tensor * r->split.pipeline * r->split.expert)
		return uns_fail(err, -EBADMSG,
				"%llu model-parallel ranks share the model, but there are %llu directories "
				"mp_rank_*: some are of another save",
				(unsigned long long)(r->split.tensor * r->split.pipeline * r->split.expert),
				(unsigned long long)n);
	return 0;
}

/* -- names -- */

static int layers_check(const struct rank_files *r, struct uns_err *err)
{
	uint64_t i, all = 0;

	for (i = 0; i < r->split.pipeline * r->n_chunks; i++)
		all += r->n_layers[i];
	if (all != r->split.n_layers)
		return uns_fail(err, -EBADMSG, "the ranks' files have %llu layers in all, and num_layers is %llu",
				(unsigned long long)all, (unsigned long long)r->split.n_layers);
	return 0;
}

/* The number of a stage's first layer. Virtual stages follow each other as the model's layers do. */
static uint64_t first_layer(const struct rank_files *r, uint64_t stage)
{
	uint64_t i, out = 0;

	for (i = 0; i < stage; i++)
		out += r->n_layers[i];
	return out;
}

static int part_name(struct rank_files *r, struct part *p, struct uns_err *err)
{
	struct uns_arena *arena = &r->cat->arena;
	const char *name = p->key, *rest;
	uint64_t layer;

	if (layer_of(name, &layer, &rest))
		UNS_TRY_ALLOC(name = uns_arena_printf(arena, "%s%llu%s", LAYERS,
						      (unsigned long long)(first_layer(r, p->stage) + layer), rest),
			      err);
	else if (r->split.tied && strcmp(name, HEAD) == 0) /* the last stage's copy of the embedding */
		name = EMBEDDING;
	p->name = uns_megatron_expert_name(arena, name, r->split.n_experts / r->split.expert * p->expert);
	return p->name ? 0 : uns_oom(err);
}

/* Does it repeat what is taken from another rank? Of copies the first one counts: of what experts are not, that of the
 * first expert-parallel rank; of an embedding that the last stage has too, the first stage's. */
static bool is_copy(const struct part *p, const struct part *first)
{
	return p->stage != first->stage || p->expert != first->expert;
}

/* Puts each part behind the first of its name, in the order of ranks. */
static int parts_join(struct rank_files *r, struct uns_err *err)
{
	struct part *p, *first, *last;
	uint32_t known;
	size_t i;

	for (i = 0; i < r->n; i++) {
		p = &r->part[i];
		UNS_TRY(part_name(r, p, err));
		known = uns_map_index(&r->by_name, p->name);
		if (known == UNS_MAP_NO_INDEX) {
			UNS_TRY_ALLOC(uns_map_put_index(&r->by_name, p->name, (uint32_t)i), err);
			continue;
		}
		first = &r->part[known];
		if (is_copy(p, first))
			continue;
		for (last = first; last->next; last = last->next)
			;
		if (last->tensor == p->tensor)
			return uns_fail(err, -EBADMSG, "%s: two tensors would be %s", r->cat->files[p->piece.file].path,
					p->name);
		last->next = p;
	}
	return 0;
}

/* -- whole tensors -- */

static int part_check(const struct rank_files *r, const struct part *first, const struct part *p, struct uns_err *err)
{
	char is[128], was[128];

	if (p->dtype == first->dtype && uns_shape_equal(&p->shape, &first->shape))
		return 0;
	return uns_fail(err, -EBADMSG, "%s: %s is %s of shape %s here, but %s of shape %s in %s",
			r->cat->files[p->piece.file].path, p->key, uns_dtype_info(p->dtype)->torch,
			uns_shape_text(&p->shape, is, sizeof(is)), uns_dtype_info(first->dtype)->torch,
			uns_shape_text(&first->shape, was, sizeof(was)), r->cat->files[first->piece.file].path);
}

/* Of a projection into an MLP, how many there are below each other, gate and up or one: it follows from the columns of
 * the projection that comes back. */
static int projections_count(struct rank_files *r, const struct part *p, uint64_t *out, struct uns_err *err)
{
	static const char up[] = "linear_fc1.", back[] = "linear_fc2.weight";
	const char *at = strstr(p->name, up), *other;
	const struct part *down = NULL;
	uint32_t known;

	UNS_TRY_ALLOC(other = uns_arena_printf(&r->scratch, "%.*s%s", (int)(at - p->name), p->name, back), err);
	known = uns_map_index(&r->by_name, other);
	if (known != UNS_MAP_NO_INDEX)
		down = &r->part[known];
	if (down && down->shape.n == 2 && p->shape.dim[0] == down->shape.dim[1])
		*out = 1;
	else if (down && down->shape.n == 2 && p->shape.dim[0] == 2 * down->shape.dim[1])
		*out = 2;
	else
		return uns_fail(err, -EBADMSG,
				"%s: its %llu rows on one rank are neither as many as the columns of %s nor twice as "
				"many: whether it is gate and up is not known",
				p->name, (unsigned long long)p->shape.dim[0], other);
	return 0;
}

/* Adds the pieces of one rank's part: `blocks` equal stretches of it along the dimension, each of which is with the
 * other ranks' a stretch of the whole. */
static int part_emit(struct rank_files *r, const struct part *p, int dim, uint64_t blocks, struct uns_err *err)
{
	struct uns_zero_block block[2] = { 0 };
	const struct uns_zero_slice slice = { .shape = p->shape, .block = block, .n = blocks, .n_own = blocks };
	const uint64_t length = p->shape.dim[dim] / blocks;
	uint64_t i;

	for (i = 0; i < blocks; i++) {
		block[i].slice.n = p->shape.n;
		memcpy(block[i].slice.len, p->shape.dim, sizeof(block[i].slice.len));
		block[i].slice.len[dim] = length;
		block[i].whole = block[i].slice;
		block[i].slice.lo[dim] = i * length;
		block[i].whole.lo[dim] = (i * r->split.tensor + p->tensor) * length;
	}
	return uns_zero_slice_add(r->cat, &slice, &p->piece, p->dtype, err);
}

static int whole_add(struct rank_files *r, const struct part *first, struct uns_err *err)
{
	struct uns_tensor t = { .name = first->name,
				.key = first->key,
				.root = "model",
				.role = UNS_ROLE_WEIGHT,
				.dtype = first->dtype,
				.shape = first->shape,
				UNS_TENSOR_ALONE };
	struct uns_megatron_cut cut = { .dim = -1 };
	const struct part *p;
	uint64_t blocks = 1, n = 0;

	for (p = first; p; p = p->next, n++)
		UNS_TRY(part_check(r, first, p, err));
	if (n != r->split.tensor)
		return uns_fail(err, -EBADMSG, "%s: %llu of %llu tensor-parallel ranks' files have it", first->name,
				(unsigned long long)n, (unsigned long long)r->split.tensor);
	if (r->split.tensor > 1)
		UNS_TRY(uns_megatron_cut_of(first->name, &cut, err));
	if (cut.dim >= 0 && (uint32_t)cut.dim >= first->shape.n)
		return uns_fail(err, -EBADMSG, "%s has %u dimensions, and tensor parallelism cuts dimension %d of it",
				first->name, first->shape.n, cut.dim);
	if (cut.by_projection)
		UNS_TRY(projections_count(r, first, &blocks, err));
	if (cut.dim >= 0 && !uns_u64_mul(t.shape.dim[cut.dim], r->split.tensor, &t.shape.dim[cut.dim]))
		return uns_fail(err, -EBADMSG, "%s: its shape is too large", first->name);
	UNS_TRY(uns_shape_check(&t.shape, t.dtype, err));
	UNS_TRY(uns_catalog_add_tensor(r->cat, &t, NULL, err));
	if (cut.dim < 0)
		return uns_catalog_add_piece(r->cat, &first->piece, err);
	for (p = first; p; p = p->next)
		UNS_TRY(part_emit(r, p, cut.dim, blocks, err));
	return 0;
}

static int config_read(struct rank_files *r, const struct uns_megatron_config_place *place, struct uns_err *err)
{
	struct uns_span text;

	if (!place->path)
		return 0;
	UNS_TRY(uns_read_seen(place->root, r->dir->capture, place->path, MAX_CONFIG_BYTES, &r->scratch, &text, err));
	return uns_json_parse(text, &r->config, err) < 0 ? uns_fail_in_file(err, place->path) : 0;
}

static int weights_add(struct rank_files *r, const struct uns_megatron_config_place *place, struct uns_err *err)
{
	size_t i;

	UNS_TRY(config_read(r, place, err));
	UNS_TRY(files_read(r, err));
	UNS_TRY(layers_check(r, err));
	UNS_TRY(parts_join(r, err));
	for (i = 0; i < r->n; i++)
		if (uns_map_index(&r->by_name, r->part[i].name) == i)
			UNS_TRY(whole_add(r, &r->part[i], err));
	return 0;
}

/* Companions of the sharded form. */
static int states_add(struct rank_files *r, struct uns_err *err)
{
	const struct uns_listing *list = r->dir->list;
	const char *dir;
	uint32_t file;
	size_t i;

	for (i = 0; i < list->n; i++) {
		if (!uns_megatron_is_rank_dir(list->v[i].name))
			continue;
		UNS_TRY_ALLOC(dir = uns_path_join(&r->scratch, r->dir->path, list->v[i].name), err);
		if (uns_is_there(r->dir->root, r->dir->capture, uns_path_join(&r->scratch, dir, STATES), err) != 1)
			continue;
		UNS_TRY(uns_beside_add_shard(r->cat, r->dir->root, dir, list->v[i].name, STATES, &file, err));
		r->has_optimizer = true;
	}
	return 0;
}

int uns_megatron_rank_files_add(struct uns_catalog *cat, const struct uns_directory *dir,
				const struct uns_megatron_config_place *config, struct uns_err *err)
{
	UNS_CLEANUP(rank_files_fini) struct rank_files r = { .cat = cat, .dir = dir };
	struct uns_err why = { .keep = &cat->arena };

	if (weights_add(&r, config, &why) < 0)
		UNS_TRY(uns_catalog_problem_or_fail(cat, UNS_SCOPE_WEIGHTS, &why, err));
	UNS_TRY(states_add(&r, err));
	return r.has_optimizer ? UNS_ADD_FINDING(cat, err, MEGATRON_RANKS_OPTIMIZER, .scope = UNS_SCOPE_OPTIMIZER) : 0;
}
