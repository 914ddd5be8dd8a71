/* hf_fsdp: what Hugging Face Trainer and Accelerate save under FSDP.
 *
 *   pytorch_model_fsdp_<m>/  optimizer_<o>/         DCP directories      (SHARDED_STATE_DICT)
 *   pytorch_model_fsdp_<m>_rank<r>.bin  optimizer_<o>_rank<r>.bin        (use_dcp=False)
 *   pytorch_model_fsdp[_<m>].bin  optimizer[_<o>].bin                    (FULL_STATE_DICT)
 *   Trainer:    rng_state_<r>.pth  scheduler.pt  trainer_state.json      (the last one written)
 *   Accelerate: random_states_<r>.pkl  scheduler.bin  custom_checkpoint_<i>.pkl
 *
 * Owns this layout and its facts; what is inside the shards is in dcp/. Model 0 is the one whose
 * tensors are weights; of the others see files/full_files.c. */
#include "formats/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "model/wrappers.h"
#include "files/beside.h"
#include "files/adapter.h"
#include "files/resume_files.h"
#include "dcp/dir.h"
#include "model/save_times.h"
#include "ranks/files.h"

enum { MAX_INDEX = 1024 };

static const char MODEL[] = "pytorch_model_fsdp";
static const char OPTIMIZER[] = "optimizer";

struct source {
	const struct uns_directory *dir;
	struct uns_catalog *cat;
	const struct uns_format_options *options;
	struct uns_arena scratch;
	int64_t ranks; /* highest writer + 1 that shards name */
	bool torn;     /* a part's metadata is missing: the save did not end */
};

static void source_fini(struct source *s)
{
	uns_arena_fini(&s->scratch);
}

/* -- names -- */

/* STEM_<index> as a directory. */
static bool is_part_dir(const struct uns_entry *e, const char *stem, unsigned long long *index)
{
	char prefix[32];

	snprintf(prefix, sizeof(prefix), "%s_", stem);
	return (e->kind == UNS_KIND_DIR || e->kind == UNS_KIND_LINK) && uns_str_number(e->name, prefix, "", index) &&
	       *index < MAX_INDEX;
}

static bool has_part_dir(const struct uns_listing *list, const char *stem)
{
	unsigned long long unused;
	size_t i;

	for (i = 0; i < list->n; i++)
		if (is_part_dir(&list->v[i], stem, &unused))
			return true;
	return false;
}

/* Only the first model's and optimizer's: "pytorch_model_fsdp_0_rank3.bin", and, of LOCAL_STATE_DICT,
 * "pytorch_model_fsdp_rank3.bin". */
static bool is_rank_file(const char *name, const char *stem, unsigned long long *rank)
{
	char prefix[48];

	snprintf(prefix, sizeof(prefix), "%s_0_rank", stem);
	if (uns_str_number(name, prefix, ".bin", rank))
		return *rank < INT32_MAX;
	snprintf(prefix, sizeof(prefix), "%s_rank", stem);
	return uns_str_number(name, prefix, ".bin", rank) && *rank < INT32_MAX;
}

static bool has_rank_files(const struct uns_listing *list, const char *stem)
{
	unsigned long long unused;
	size_t i;

	for (i = 0; i < list->n; i++)
		if (is_rank_file(list->v[i].name, stem, &unused))
			return true;
	return false;
}

/* -- probe -- */

static bool is_dcp_below(const struct uns_directory *dir, const char *name)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_listing list = { 0 };
	struct uns_err why = { 0 };
	char *path = uns_path_join(&arena, dir->path, name);

	if ((path ? uns_list_seen(dir->root, dir->capture, path, &arena, &list, &why) : uns_oom(&why)) < 0) {
		uns_capture_note_fault(dir->capture, &why);
		return false;
	}
	return uns_dcp_dir_is(&list) || uns_beside_distcp_ranks(&list) > 0;
}

static int probe(const struct uns_directory *dir)
{
	unsigned long long unused;
	size_t i;

	if (has_part_dir(dir->list, MODEL) || has_rank_files(dir->list, MODEL))
		return 90;
	if (has_rank_files(dir->list, OPTIMIZER))
		return 70;
	for (i = 0; i < dir->list->n; i++) /* a name like "optimizer_0" alone proves little: it must hold shards */
		if (is_part_dir(&dir->list->v[i], OPTIMIZER, &unused) && is_dcp_below(dir, dir->list->v[i].name))
			return 70;
	/* FULL_STATE_DICT; Trainer writes the weights a second time as model.safetensors. */
	return uns_listing_has_file(dir->list, "pytorch_model_fsdp.bin") ? 65 : 0;
}

/* An optimizer's directory comes first, its shards later. */
static bool begun(const struct uns_directory *dir)
{
	return has_part_dir(dir->list, OPTIMIZER);
}

/* -- parts -- */

static int add_dcp_part(struct source *s, const char *name, const struct uns_dcp_roots *roots, enum uns_scope scope,
			struct uns_err *err)
{
	char *path = uns_path_join(&s->scratch, s->dir->path, name);
	struct uns_err why = { .keep = &s->scratch };
	struct uns_listing list = { 0 };
	int64_t ranks;
	int code;

	UNS_TRY_ALLOC(path, err);
	if (uns_dcp_dir_add(s->cat, s->dir->root, path, name, roots, &why) < 0)
		UNS_TRY(uns_catalog_problem_or_fail(s->cat, scope, &why, err));
	why = (struct uns_err){ 0 };
	code = uns_list_seen(s->dir->root, s->dir->capture, path, &s->scratch, &list, &why);
	if (code < 0) /* uns_dcp_dir_add has reported what is wrong with it */
		return uns_fail_if_passing(err, code, &why);
	ranks = uns_beside_distcp_ranks(&list);
	if (ranks > s->ranks)
		s->ranks = ranks;
	s->torn |= !uns_dcp_dir_is(&list);
	return uns_beside_add(s->cat, s->dir->root, path, name, &list, err);
}

static int add_other_model(struct source *s, const char *name, unsigned long long index, struct uns_err *err)
{
	static const char *const nothing[1] = { NULL };
	char as_root[32], *path = uns_path_join(&s->scratch, s->cat->path, name);
	const struct uns_dcp_roots roots = { .weights = nothing, .as_root = as_root };

	UNS_TRY_ALLOC(path, err);
	snprintf(as_root, sizeof(as_root), "model_%llu", index);
	UNS_TRY(UNS_ADD_FINDING(s->cat, err, SECOND_MODEL, .file = path,
				.arg = { { "model", uns_num((int64_t)index) } }));
	return add_dcp_part(s, name, &roots, UNS_SCOPE_OPTIMIZER, err); /* resuming needs it */
}

static int add_model_dirs(struct source *s, struct uns_err *err)
{
	const struct uns_format_options *o = s->options;
	const struct uns_dcp_roots roots = {
		.weights = o && o->n_weight_roots ? o->weight_roots : NULL,
		.n_weights = o ? o->n_weight_roots : 0,
	};
	const struct uns_entry *e = s->dir->list->v, *end = e + s->dir->list->n;
	unsigned long long index;

	for (; e < end; e++) {
		if (!is_part_dir(e, MODEL, &index))
			continue;
		if (index == 0)
			UNS_TRY(add_dcp_part(s, e->name, &roots, UNS_SCOPE_WEIGHTS, err));
		else
			UNS_TRY(add_other_model(s, e->name, index, err));
	}
	return 0;
}

static int add_optimizer_dirs(struct source *s, struct uns_err *err)
{
	static const char *const nothing[1] = { NULL };
	const struct uns_entry *e = s->dir->list->v, *end = e + s->dir->list->n;
	unsigned long long index;
	char as_root[32];

	for (; e < end; e++) {
		struct uns_dcp_roots roots = { .weights = nothing };

		if (!is_part_dir(e, OPTIMIZER, &index))
			continue;
		snprintf(as_root, sizeof(as_root), "optimizer_%llu", index);
		if (index > 0)
			roots.as_root = as_root;
		UNS_TRY(add_dcp_part(s, e->name, &roots, UNS_SCOPE_OPTIMIZER, err));
	}
	return 0;
}

/* -- files of one rank, or of the whole model -- */

typedef int add_files(struct uns_catalog *cat, const struct uns_root *root, const struct uns_rank_file *files, size_t n,
		      struct uns_err *err);

static int rank_cmp(const void *a, const void *b)
{
	const struct uns_rank_file *x = a, *y = b;

	return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* STEM's per-rank files, or the one full file. */
static int find_files(struct source *s, const char *stem, struct uns_rank_file *out, size_t *n, struct uns_err *err)
{
	const struct uns_directory *dir = s->dir;
	const struct uns_entry *e = dir->list->v, *end = e + dir->list->n;
	unsigned long long rank;
	char full[48];
	uint32_t file;

	for (*n = 0; e < end; e++) {
		if (e->kind == UNS_KIND_DIR || !is_rank_file(e->name, stem, &rank))
			continue;
		UNS_TRY(uns_beside_add_shard(s->cat, dir->root, dir->path, "", e->name, &file, err));
		out[(*n)++] = (struct uns_rank_file){ .path = s->cat->files[file].path, .rank = (int32_t)rank };
		if ((int64_t)rank >= s->ranks)
			s->ranks = (int64_t)rank + 1;
	}
	snprintf(full, sizeof(full), "%s.bin", stem);
	if (*n || !uns_listing_has_file(dir->list, full))
		return 0;
	UNS_TRY(uns_beside_add_shard(s->cat, dir->root, dir->path, "", full, &file, err));
	out[(*n)++] = (struct uns_rank_file){ .path = s->cat->files[file].path, .rank = 0 };
	return 0;
}

static int add_rank_files(struct source *s, const char *stem, add_files *add, enum uns_scope scope, struct uns_err *err)
{
	struct uns_rank_file *files = UNS_NEW_N(&s->scratch, struct uns_rank_file, s->dir->list->n + 1);
	struct uns_err why = { .keep = &s->scratch };
	size_t n;

	UNS_TRY_ALLOC(files, err);
	UNS_TRY(find_files(s, stem, files, &n, err));
	if (!n)
		return 0;
	qsort(files, n, sizeof(*files), rank_cmp);
	if (add(s->cat, s->dir->root, files, n, &why) < 0)
		return uns_catalog_problem_or_fail(s->cat, scope, &why, err);
	return 0;
}

/* The sharded form is what a run with it resumes from; full files beside it are left alone. */
static int add_model(struct source *s, struct uns_err *err)
{
	if (has_part_dir(s->dir->list, MODEL))
		return add_model_dirs(s, err);
	return add_rank_files(s, MODEL, uns_rank_files_add_model, UNS_SCOPE_WEIGHTS, err);
}

static int add_optimizer(struct source *s, struct uns_err *err)
{
	if (has_part_dir(s->dir->list, OPTIMIZER))
		return add_optimizer_dirs(s, err);
	return add_rank_files(s, OPTIMIZER, uns_rank_files_add_optimizer, UNS_SCOPE_OPTIMIZER, err);
}

/* Full or per-rank files of models and optimizers that are not read here are still not files that a
 * view may pass through. */
static int add_unread(struct source *s, struct uns_err *err)
{
	const struct uns_entry *e = s->dir->list->v, *end = e + s->dir->list->n;
	uint32_t file;

	for (; e < end; e++)
		if (e->kind != UNS_KIND_DIR &&
		    (uns_str_glob("pytorch_model_fsdp*.bin", e->name) || uns_str_glob("optimizer*.bin", e->name)) &&
		    !uns_catalog_companion(s->cat, e->name))
			UNS_TRY(uns_beside_add_shard(s->cat, s->dir->root, s->dir->path, "", e->name, &file, err));
	return 0;
}

static bool has_model_zero(const struct uns_listing *list)
{
	const struct uns_entry *e = uns_listing_find(list, "pytorch_model_fsdp_0");

	return (e && e->kind != UNS_KIND_FILE) || has_rank_files(list, MODEL) ||
	       uns_listing_has_file(list, "pytorch_model_fsdp.bin");
}

/* -- facts -- */

static int find_summary(struct source *s, struct uns_err *err)
{
	const struct uns_directory *dir = s->dir;
	const struct uns_listing *list = dir->list;
	struct uns_summary *summary = &s->cat->summary;
	size_t n;
	int64_t rng = uns_beside_ranks(list, "rng_state_", ".pth", NULL),
		states = uns_beside_ranks(list, "random_states_", ".pkl", &n);

	summary->format = "hf_fsdp";
	summary->family = UNS_FAMILY_DCP;
	summary->is_in_parts = summary->is_pretrained = summary->wants_config = true;
	/* Of FULL_STATE_DICT rank 0 writes model and optimizer, and every rank its random states. */
	summary->has_rng_of_ranks = has_part_dir(list, MODEL) || has_part_dir(list, OPTIMIZER) ||
				    has_rank_files(list, MODEL) || has_rank_files(list, OPTIMIZER);
	/* Scripts of diffusers, which save by Accelerate, give the Trainer's names. */
	summary->step = uns_beside_named_step(dir->root, dir->path, "checkpoint-");
	summary->of_trainer = uns_listing_has_file(list, "trainer_state.json") ||
			      uns_listing_has_file(list, "rng_state.pth") || rng ||
			      (summary->step != UNS_UNKNOWN && !states);
	if (summary->of_trainer) {
		summary->framework = "Hugging Face Trainer, FSDP";
		summary->finished = uns_listing_has_file(list, "trainer_state.json");
		summary->step = UNS_UNKNOWN;
		UNS_TRY(uns_beside_step(dir->root, dir->path, list, &summary->step, err));
	} else {
		summary->framework = "Hugging Face Accelerate, FSDP";
		/* Nothing marks the end of such a save. Its random states come last, one of each rank. */
		summary->finished = !s->torn && states > 0 && (int64_t)n == states && states >= s->ranks;
	}
	if (uns_listing_has_file(list, "rng_state.pth"))
		summary->world_size = 1;
	if (rng || states || s->ranks)
		summary->world_size = rng ? rng : states ? states : s->ranks;
	return 0;
}

/* A save that left the model out: its part is there, and nothing is in it. */
static int check_model(struct source *s, struct uns_err *err)
{
	const struct uns_tensor *t = s->cat->tensors, *end = t + s->cat->n_tensors, *state = NULL;
	const char *part = has_part_dir(s->dir->list, MODEL) ? "pytorch_model_fsdp_0" : "pytorch_model_fsdp.bin";
	const char *path = uns_path_join(&s->scratch, s->cat->path, part);
	size_t i;

	UNS_TRY_ALLOC(path, err);

	for (; t < end; t++) {
		if (uns_role_is_model(t->role))
			return 0;
		if (!state && uns_role_is_optimizer(t->role))
			state = t;
	}
	for (i = 0; i < s->cat->n_findings; i++)
		if (s->cat->findings[i].scope == UNS_SCOPE_WEIGHTS || s->cat->findings[i].scope == UNS_SCOPE_ALL)
			return 0; /* it has been reported what is wrong */
	if (!state)
		return 0;
	return UNS_ADD_FINDING(s->cat, err, MODEL_EMPTY, .scope = UNS_SCOPE_WEIGHTS, .file = path,
			       .tensor = state->name);
}

/* One file that by its name holds the whole model, but holds only what rank 0 had of it. */
static int check_slices(struct source *s, struct uns_err *err)
{
	const struct uns_tensor *t = s->cat->tensors, *end = t + s->cat->n_tensors;
	const struct uns_piece *p;
	const char *full;

	if (has_part_dir(s->dir->list, MODEL) || has_rank_files(s->dir->list, MODEL) ||
	    !uns_listing_has_file(s->dir->list, "pytorch_model_fsdp.bin"))
		return 0;
	UNS_TRY_ALLOC(full = uns_path_join(&s->scratch, s->cat->path, "pytorch_model_fsdp.bin"), err);
	for (; t < end; t++) {
		p = &s->cat->pieces[t->first_piece];
		if (uns_role_is_model(t->role) && t->sharded && t->n_pieces == 1 && p->kind == UNS_PIECE_BOX &&
		    uns_box_elems(p->box) < uns_shape_elems(&t->shape))
			return UNS_ADD_FINDING(s->cat, err, MODEL_SLICED, .scope = UNS_SCOPE_WEIGHTS, .file = full,
					       .tensor = t->name);
	}
	return 0;
}

static int open_dir(const struct uns_directory *dir, const struct uns_format_options *options, struct uns_catalog *cat,
		    struct uns_err *err)
{
	UNS_CLEANUP(source_fini) struct source s = { .dir = dir, .cat = cat, .options = options };
	struct uns_save_end end = { .root = dir->root, .below = dir->path, .is_state = true };

	UNS_TRY(add_model(&s, err));
	UNS_TRY(add_optimizer(&s, err));
	UNS_TRY(add_unread(&s, err));
	if (!has_model_zero(dir->list))
		UNS_TRY(UNS_ADD_FINDING(cat, err, MODEL_MISSING, .scope = UNS_SCOPE_WEIGHTS));
	UNS_TRY(check_model(&s, err));
	UNS_TRY(check_slices(&s, err));
	UNS_TRY(uns_beside_add(cat, dir->root, dir->path, "", dir->list, err));
	UNS_TRY(uns_beside_add_models(cat, dir, err));
	UNS_TRY(find_summary(&s, err));
	/* Of an Accelerate save the random states come last; those of the first rank are always there. */
	end.path = uns_path_join(&cat->arena, dir->path,
				 cat->summary.of_trainer ? "trainer_state.json" : "random_states_0.pkl");
	UNS_TRY(uns_save_times_check(cat, &end, err));
	uns_resume_find(cat);
	UNS_TRY(uns_wrappers_clean(cat, err));
	UNS_TRY(uns_adapter_find(cat, err));
	UNS_TRY(uns_empty_group_find(cat, err));
	return uns_catalog_seal(cat, err);
}

const struct uns_format uns_format_hf_fsdp = {
	.name = "hf_fsdp",
	.family = UNS_FAMILY_DCP,
	.probe = probe,
	.begun = begun,
	.open = open_dir,
};
