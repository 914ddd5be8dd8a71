/* hf: a Hugging Face model directory, or a Trainer checkpoint without sharding. Owns which of a
 * directory's files are the weights (in the order in which from_pretrained looks) and what its
 * other files mean; how weights files look inside is in files/ and ranks/.
 *
 *   model.safetensors | model.safetensors.index.json + the files it names
 *   pytorch_model.bin | pytorch_model.bin.index.json + the files it names
 *   adapter_model.safetensors | adapter_model.bin    (also beside the files of a model)
 *   NAME/adapter_model.safetensors, NAME of -o adapters=: PEFT saves adapters so that are not called "default"
 *   pytorch_model_fsdp.bin                           (Accelerate, FULL_STATE_DICT)
 *   [sharded/]shard-00001-model-00001-of-00002.safetensors   (torch's HuggingFaceStorageWriter)
 *   beside them: config, tokenizer; a Trainer's optimizer.pt, scheduler.pt, rng_state*.pth, trainer_state.json;
 *   Accelerate's optimizer.bin, scheduler.bin, random_states_<r>.pkl, custom_checkpoint_<i>.pkl */
#include "formats/format.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "model/cover.h"
#include "model/save_times.h"
#include "files/beside.h"
#include "ranks/files.h"
#include "files/adapter.h"
#include "files/model_index.h"
#include "files/resume_files.h"
#include "files/safetensors_set.h"
#include "wire/json.h"

enum { INDEX_LIMIT_BYTES = 64 << 20 };

static const char SHARD_GLOB[] = "shard-*-model-*-of-*.safetensors";
static const char SHARD_DIR[] = "sharded";
static const char TRAINER_STATE[] = "trainer_state.json";

static const struct source {
	const char *file, *index; /* index NULL = this one is never split */
	const char *parts;        /* the names of a split model's files */
	bool torch;
	int probe;
} sources[] = {
	{ "model.safetensors", "model.safetensors.index.json", "model-*-of-*.safetensors", false, 60 },
	{ "pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*-of-*.bin", true, 60 },
	{ "adapter_model.safetensors", NULL, NULL, false, 60 },
	{ "adapter_model.bin", NULL, NULL, true, 60 },
	{ "pytorch_model_fsdp.bin", NULL, NULL, true, 50 },
};

static const char *const training_globs[] = { "optimizer.pt", "optimizer.bin", "scheduler.pt", "rng_state*.pth", NULL };
static const char ACCELERATE_GLOB[] = "random_states_*.pkl";

/* -- probe -- */

static const struct source *source_of(const struct uns_directory *dir)
{
	size_t i;

	for (i = 0; i < sizeof(sources) / sizeof(sources[0]); i++)
		if (uns_listing_has_file(dir->list, sources[i].file) ||
		    (sources[i].index && uns_listing_has_file(dir->list, sources[i].index)))
			return &sources[i];
	return NULL;
}

/* Files of a split model whose index has not been written (yet). */
static const struct source *unindexed(const struct uns_directory *dir)
{
	size_t i;

	for (i = 0; i < sizeof(sources) / sizeof(sources[0]); i++)
		if (sources[i].parts && uns_listing_has_glob(dir->list, sources[i].parts))
			return &sources[i];
	return NULL;
}

/* 1 = there is such a directory below, and it is listed; 0 = there is none, or it cannot be read. */
static int list_below(const struct uns_directory *dir, const char *name, struct uns_arena *arena,
		      struct uns_listing *out, struct uns_err *err)
{
	const struct uns_entry *e = uns_listing_find(dir->list, name);
	struct uns_err why = { 0 };
	const char *path;
	int code;

	if (!e || e->kind != UNS_KIND_DIR)
		return 0;
	UNS_TRY_ALLOC(path = uns_path_join(arena, dir->path, name), err);
	code = uns_list_seen(dir->root, dir->capture, path, arena, out, &why);
	return code < 0 ? uns_fail_if_passing(err, code, &why) : 1;
}

/* 1 = there are shards in that directory, 0 = there are none. */
static int sharded_below(const struct uns_directory *dir, struct uns_arena *arena, struct uns_listing *out,
			 struct uns_err *err)
{
	const int code = list_below(dir, SHARD_DIR, arena, out, err);

	return code > 0 ? uns_listing_has_glob(out, SHARD_GLOB) : code;
}

static bool has_checkpoints(const struct uns_listing *list)
{
	static const char *const before_step[] = { "checkpoint-", "checkpoint_", "step_",
						   "step-",       "epoch_",      "global_step_" };
	const struct uns_entry *e = list->v, *end = e + list->n;
	unsigned long long step;
	size_t i;

	for (; e < end; e++)
		for (i = 0; e->kind == UNS_KIND_DIR && i < sizeof(before_step) / sizeof(*before_step); i++)
			if (uns_str_number(e->name, before_step[i], "", &step))
				return true;
	return false;
}

static const struct source *adapter_source(const struct uns_listing *list)
{
	const struct source *s = sources, *end = sources + sizeof(sources) / sizeof(sources[0]);

	while (s < end && !(uns_str_starts(s->file, "adapter_model.") && uns_listing_has_file(list, s->file)))
		s++;
	return s < end ? s : NULL;
}

/* PEFT saves this one in the directory itself. */
static bool is_at_top(const struct uns_directory *dir, const char *adapter)
{
	return strcmp(adapter, "default") == 0 && adapter_source(dir->list);
}

/* 1 = PEFT saved an adapter of each of the user's names, one of them at least in a directory of its own. */
static int has_named_adapters(const struct uns_directory *dir, struct uns_arena *arena, struct uns_err *err)
{
	const char *const *name;
	struct uns_listing below;
	int there, found = 0;

	for (name = dir->adapters; name && *name; name++) {
		if (is_at_top(dir, *name))
			continue;
		UNS_TRY(there = list_below(dir, *name, arena, &below, err));
		if (!there || !adapter_source(&below))
			return 0;
		found = 1;
	}
	return found;
}

/* The directory of a run, in which a trainer left its final model beside the checkpoints. They are what is shown:
 * from_pretrained reads the model as it is. */
static bool is_run(const struct uns_directory *dir, struct uns_arena *arena, struct uns_err *err)
{
	struct uns_listing below; /* Accelerate's automatic names */

	return has_checkpoints(dir->list) ||
	       (list_below(dir, "checkpoints", arena, &below, err) > 0 && has_checkpoints(&below));
}

static int sure(const struct uns_directory *dir, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct source *source = source_of(dir);
	struct uns_listing below;

	if (source && is_run(dir, &arena, err))
		return 0;
	if (source)
		return source->probe;
	if (has_named_adapters(dir, &arena, err) > 0)
		return 60;
	if (uns_listing_has_glob(dir->list, SHARD_GLOB) || sharded_below(dir, &arena, &below, err) > 0)
		return 60;
	return unindexed(dir) ? 40 : 0;
}

static int probe(const struct uns_directory *dir)
{
	struct uns_err why = { 0 };
	int answer = sure(dir, &why);

	uns_capture_note_fault(dir->capture, &why);
	return answer;
}

/* "checkpoint-N" is what a Trainer that resumes looks for, whatever is in it. */
static bool begun(const struct uns_directory *dir)
{
	const struct uns_entry *e = uns_listing_find(dir->list, SHARD_DIR);

	return uns_beside_named_step(dir->root, dir->path, "checkpoint-") != UNS_UNKNOWN ||
	       (e && e->kind == UNS_KIND_DIR);
}

/* -- weights -- */

struct paths {
	const char **v;
	size_t n, cap;
};

static int paths_add(struct paths *p, struct uns_arena *arena, const char *path, struct uns_err *err)
{
	UNS_TRY_ALLOC(path && UNS_ARENA_ROOM(arena, p->v, p->n, p->cap), err);
	p->v[p->n++] = path;
	return 0;
}

static int index_open(const struct uns_directory *dir, const char *path, struct uns_arena *arena, cJSON **out,
		      struct uns_err *err)
{
	struct uns_span text;

	UNS_TRY(uns_root_read_file(dir->root, path, INDEX_LIMIT_BYTES, arena, &text, NULL, err));
	if (uns_json_parse(text, out, err) < 0)
		return uns_fail_in_file(err, path);
	if (!cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(*out, "weight_map"))) {
		uns_fail(err, -EBADMSG, "has no weight_map");
		return uns_fail_in_file(err, path);
	}
	return 0;
}

static int add_files(struct uns_catalog *cat, const struct uns_root *root, const struct paths *p, bool torch,
		     struct uns_err *err)
{
	uint32_t file;
	size_t i;

	if (!torch)
		return uns_safetensors_set_add(cat, root, p->v, p->n, err);
	for (i = 0; i < p->n; i++) {
		/* Each file is a whole model of its own names: one rank each. */
		const struct uns_rank_file one = { .path = p->v[i], .rank = 0 };

		UNS_TRY(uns_catalog_add_file(cat, root, one.path, &file, err));
		if (cat->files[file].missing)
			UNS_TRY(UNS_ADD_FINDING(cat, err, WEIGHTS_FILE_MISSING, .scope = UNS_SCOPE_WEIGHTS,
						.file = one.path));
		else
			UNS_TRY(uns_rank_files_add_model(cat, root, &one, 1, err));
	}
	return 0;
}

static bool has_weights_problem(const struct uns_catalog *cat)
{
	size_t i;

	for (i = 0; i < cat->n_findings; i++)
		if (cat->findings[i].scope == UNS_SCOPE_WEIGHTS || cat->findings[i].scope == UNS_SCOPE_ALL)
			return true;
	return false;
}

static int add_indexed(struct uns_catalog *cat, const struct uns_directory *dir, const struct source *source,
		       struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *index = NULL;
	const char *path = uns_path_join(&cat->arena, dir->path, source->index);
	struct uns_err why = { .keep = &cat->arena };
	struct paths files = { 0 };
	const cJSON *map;
	int code;

	UNS_TRY_ALLOC(path, err);
	code = index_open(dir, path, &cat->arena, &index, &why);
	map = cJSON_GetObjectItemCaseSensitive(index, "weight_map");
	if (code == 0 && (code = uns_model_index_files(map, dir->path, &cat->arena, &files.v, &files.n, &why)) < 0)
		uns_fail_in_file(&why, path);
	if (code < 0)
		return uns_catalog_problem_or_fail(cat, UNS_SCOPE_WEIGHTS, &why, err);
	UNS_TRY(add_files(cat, dir->root, &files, source->torch, err));
	if (has_weights_problem(cat))
		return 0;
	return uns_model_index_check(cat, &(struct uns_model_index){ index, path, dir->path, dir->list, source->parts },
				     err);
}

static int add_shards(struct uns_catalog *cat, const struct uns_directory *dir, const struct uns_listing *list,
		      const char *prefix, struct uns_err *err)
{
	const char *below = uns_path_join(&cat->arena, dir->path, prefix);
	struct paths files = { 0 };
	uint32_t file;
	size_t i;

	UNS_TRY_ALLOC(below, err);
	for (i = 0; i < list->n; i++) {
		if (!uns_str_glob(SHARD_GLOB, list->v[i].name))
			continue;
		UNS_TRY(uns_beside_add_shard(cat, dir->root, below, prefix, list->v[i].name, &file, err));
		UNS_TRY(paths_add(&files, &cat->arena, cat->files[file].path, err));
	}
	/* How many ranks there were is nowhere recorded, and neither are full shapes. A hole shows;
	 * that the ranks behind the last file are gone cannot. */
	UNS_TRY(UNS_ADD_FINDING(cat, err, SHARD_COUNT_UNKNOWN, .arg = { { "n", uns_num(files.n) } }));
	return add_files(cat, dir->root, &files, false, err);
}

/* One adapter's tensors, under their names in memory: those in the files are the same for all adapters. */
static int add_named_adapter(struct uns_catalog *cat, const struct uns_directory *dir, const char *adapter,
			     struct uns_err *err)
{
	const struct source *source = adapter_source(dir->list);
	const char *path = dir->path;
	struct uns_listing below;
	struct paths one = { 0 };
	size_t i = cat->n_tensors;
	int there;

	if (!is_at_top(dir, adapter)) {
		UNS_TRY(there = list_below(dir, adapter, &cat->arena, &below, err));
		source = there ? adapter_source(&below) : NULL;
		UNS_TRY_ALLOC(path = uns_path_join(&cat->arena, path, adapter), err);
	}
	if (!source)
		return uns_fail(err, -ESTALE, "%s changed while it was read", path);
	UNS_TRY(paths_add(&one, &cat->arena, uns_path_join(&cat->arena, path, source->file), err));
	UNS_TRY(add_files(cat, dir->root, &one, source->torch, err));
	for (; i < cat->n_tensors; i++)
		UNS_TRY_ALLOC(cat->tensors[i].name =
				      uns_adapter_name_in_memory(&cat->arena, cat->tensors[i].name, adapter),
			      err);
	return 0;
}

static int add_named_adapters(struct uns_catalog *cat, const struct uns_directory *dir, struct uns_err *err)
{
	const char *const *name;

	for (name = dir->adapters; *name; name++)
		UNS_TRY(add_named_adapter(cat, dir, *name, err));
	return 0;
}

static int add_weights(struct uns_catalog *cat, const struct uns_directory *dir, struct uns_err *err)
{
	const struct source *source = source_of(dir);
	struct uns_listing below;
	struct paths one = { 0 };
	int sharded, named = 0;

	if (!source || source == adapter_source(dir->list))
		UNS_TRY(named = has_named_adapters(dir, &cat->arena, err));
	if (named)
		return add_named_adapters(cat, dir, err);
	if (source && !uns_listing_has_file(dir->list, source->file))
		return add_indexed(cat, dir, source, err);
	if (source) {
		UNS_TRY(paths_add(&one, &cat->arena, uns_path_join(&cat->arena, dir->path, source->file), err));
		return add_files(cat, dir->root, &one, source->torch, err);
	}
	if (uns_listing_has_glob(dir->list, SHARD_GLOB))
		return add_shards(cat, dir, dir->list, "", err);
	UNS_TRY(sharded = sharded_below(dir, &cat->arena, &below, err));
	if (sharded)
		return add_shards(cat, dir, &below, SHARD_DIR, err);
	source = unindexed(dir);
	return UNS_ADD_FINDING(cat, err, INDEX_MISSING, .scope = UNS_SCOPE_WEIGHTS,
			       .file = source ? source->index : sources[0].index);
}

/* torchtune saves the adapter beside the model into which it was merged. Neither is the other's. */
static int add_adapter(struct uns_catalog *cat, const struct uns_directory *dir, struct uns_err *err)
{
	const struct source *source = source_of(dir), *s = adapter_source(dir->list);
	struct paths one = { 0 };
	size_t i = cat->n_tensors;

	if (!source || !source->index || !s)
		return 0;
	UNS_TRY(paths_add(&one, &cat->arena, uns_path_join(&cat->arena, dir->path, s->file), err));
	UNS_TRY(add_files(cat, dir->root, &one, s->torch, err));
	for (; i < cat->n_tensors; i++) {
		cat->tensors[i].role = UNS_ROLE_OTHER;
		cat->tensors[i].of_adapter = true;
	}
	cat->summary.adapter = UNS_ADAPTER_BESIDE;
	return 0;
}

/* -- files beside them -- */

/* Every other file. One that is gone meanwhile, or a link to something that is not a file, is none. */
static int add_companions(struct uns_catalog *cat, const struct uns_directory *dir, struct uns_err *err)
{
	const struct uns_entry *e = dir->list->v, *end = e + dir->list->n;
	const char *path;
	uint32_t file;

	for (; e < end; e++) {
		if (e->kind == UNS_KIND_DIR || e->kind == UNS_KIND_OTHER || uns_str_glob(SHARD_GLOB, e->name))
			continue;
		UNS_TRY_ALLOC(path = uns_path_join(&cat->arena, dir->path, e->name), err);
		UNS_TRY(uns_catalog_add_file(cat, dir->root, path, &file, err));
		if (!cat->files[file].missing && cat->files[file].stat.kind == UNS_KIND_FILE)
			UNS_TRY(uns_catalog_add_companion(cat, e->name, file, false, err));
	}
	return 0;
}

/* Accelerate's save_state: every rank's random states are written, last of all (accelerate/checkpointing.py). */
static bool is_accelerate(const struct uns_directory *dir)
{
	return uns_listing_has_glob(dir->list, ACCELERATE_GLOB) && !uns_listing_has_file(dir->list, TRAINER_STATE);
}

static bool is_training(const struct uns_directory *dir)
{
	size_t i;

	if (is_accelerate(dir))
		return false;

	for (i = 0; training_globs[i]; i++)
		if (uns_listing_has_glob(dir->list, training_globs[i]))
			return true;
	return uns_listing_has_file(dir->list, TRAINER_STATE);
}

/* A Trainer's or Accelerate's optimizer. One of several models' is left as it is, and so are all of them then. */
static int add_optimizer(struct uns_catalog *cat, const struct uns_directory *dir, struct uns_err *err)
{
	const struct uns_companion *own;
	int named;

	if (!is_training(dir) && !is_accelerate(dir))
		return 0;
	/* Which of the adapters was trained is not recorded, and so are the optimizer's parameters not. */
	UNS_TRY(named = has_named_adapters(dir, &cat->arena, err));
	if (named)
		return 0;
	own = uns_resume_own_optimizer(cat);
	if (!own || uns_listing_has_glob(dir->list, "optimizer_*.bin"))
		return 0;
	return uns_rank_files_add_numbered_optimizer(cat, dir->root, cat->files[own->file].path, err);
}

static int64_t world_size(const struct uns_directory *dir)
{
	int64_t ranks = uns_beside_ranks(dir->list, "rng_state_", ".pth", NULL);

	if (is_accelerate(dir))
		return uns_beside_ranks(dir->list, "random_states_", ".pkl", NULL);

	return uns_listing_has_file(dir->list, "rng_state.pth") ? 1 : ranks ? ranks : UNS_UNKNOWN;
}

static void find_summary(struct uns_catalog *cat, const struct uns_directory *dir)
{
	cat->summary.format = "hf";
	cat->summary.of_trainer = is_training(dir);
	cat->summary.framework = is_accelerate(dir) ? "Hugging Face Accelerate"
				 : is_training(dir) ? "Hugging Face Trainer"
						    : "Hugging Face model";
	cat->summary.family = UNS_FAMILY_WHOLE;
	cat->summary.is_published = cat->summary.is_pretrained = cat->summary.wants_config = true;
	cat->summary.step = uns_beside_named_step(dir->root, dir->path, "checkpoint-");
	cat->summary.world_size = world_size(dir);
}

/* A Trainer writes trainer_state.json last (source: Trainer._save_checkpoint), Accelerate the random states of each
 * rank. A plain save_pretrained has no last file: it has ended when nothing of the weights is missing. */
static int find_finished(const struct uns_catalog *cat, const struct uns_directory *dir, bool *out, struct uns_err *err)
{
	struct uns_err why = { 0 };
	size_t i;
	int code;

	*out = false;
	if (is_accelerate(dir)) {
		*out = uns_listing_has_file(dir->list, "random_states_0.pkl");
		return 0;
	}
	if (is_training(dir) || cat->summary.step != UNS_UNKNOWN) {
		*out = uns_listing_has_file(dir->list, TRAINER_STATE);
		return 0;
	}
	for (i = 0; i < cat->n_tensors; i++) {
		code = uns_cover_check(cat, &cat->tensors[i], &why);
		if (code < 0)
			return uns_fail_if_passing(err, code, &why);
	}
	*out = !has_weights_problem(cat);
	return 0;
}

/* save_pretrained writes the index after the files that it names, a Trainer its state after everything. */
static int check_times(struct uns_catalog *cat, const struct uns_directory *dir, struct uns_err *err)
{
	const struct source *source = source_of(dir);
	struct uns_save_end end = { .root = dir->root, .below = dir->path };

	if (source && source->index) {
		end.path = uns_path_join(&cat->arena, dir->path, source->index);
		UNS_TRY(uns_save_times_check(cat, &end, err));
	}
	end.path = uns_path_join(&cat->arena, dir->path, is_accelerate(dir) ? "random_states_0.pkl" : TRAINER_STATE);
	end.is_state = true;
	return uns_save_times_check(cat, &end, err);
}

static int open_hf(const struct uns_directory *dir, const struct uns_format_options *options, struct uns_catalog *cat,
		   struct uns_err *err)
{
	(void)options;
	find_summary(cat, dir);
	UNS_TRY(add_weights(cat, dir, err));
	UNS_TRY(add_adapter(cat, dir, err));
	UNS_TRY(add_companions(cat, dir, err));
	UNS_TRY(add_optimizer(cat, dir, err));
	UNS_TRY(check_times(cat, dir, err));
	uns_resume_find(cat);
	UNS_TRY(uns_adapter_find(cat, err));
	UNS_TRY(uns_catalog_seal(cat, err));
	return find_finished(cat, dir, &cat->summary.finished, err);
}

extern const struct uns_format uns_format_hf;
const struct uns_format uns_format_hf = {
	.name = "hf",
	.family = UNS_FAMILY_WHOLE,
	.probe = probe,
	.begun = begun,
	.open = open_hf,
};
