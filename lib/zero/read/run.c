/* Finds the tag that is meant, and the summary, by names and small files. */
#include "zero/read/run.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "files/adapter.h"
#include "files/beside.h"
#include "files/empty_group.h"
#include "files/resume_files.h"
#include "model/client_state.h"
#include "model/save_times.h"
#include "zero/engine_state.h"
#include "zero/mark.h"
#include "zero/read/open.h"

enum { MAX_LISTED = 256 };

struct run {
	const struct uns_zero_form *form;
	const struct uns_directory *dir; /* the run's, or the tag's own */
	struct uns_arena scratch;
	/* Which is found when the catalog is made: */
	const char *tag;      /* "" = the directory itself is the tag's */
	const char *tag_path; /* below root; in the catalog's arena */
	struct uns_listing tag_list;
	bool named; /* `latest` names this tag, or a later one: its save has ended */
};

static void run_fini(struct run *run)
{
	uns_arena_fini(&run->scratch);
}

/* -- names -- */

/* 1 = the directory of that name is a tag's, 0 = it is none. */
static int tag_is_below(const struct run *run, const char *name, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_listing list = { 0 };
	struct uns_err why = { 0 };
	char *path = uns_path_join(&arena, run->dir->path, name);
	int code;

	UNS_TRY_ALLOC(path, err);
	code = uns_list_seen(run->dir->root, run->dir->capture, path, &arena, &list, &why);
	if (code < 0)
		return uns_fail_if_passing(err, code, &why);
	return run->form->is_tag(&list);
}

static bool is_trainer(const struct run *run)
{
	/* Scripts of diffusers, which save by Accelerate, give the Trainer's names. */
	return (uns_beside_named_step(run->dir->root, run->dir->path, "checkpoint-") != UNS_UNKNOWN &&
		!uns_listing_has_glob(run->dir->list, "random_states_*.pkl")) ||
	       uns_listing_has_file(run->dir->list, "trainer_state.json") ||
	       uns_listing_has_file(run->dir->list, "training_args.bin") ||
	       uns_listing_has_glob(run->dir->list, "rng_state*.pth");
}

static bool is_accelerate(const struct run *run)
{
	return uns_listing_has_glob(run->dir->list, "random_states_*.pkl") ||
	       uns_listing_has_glob(run->dir->list, "custom_checkpoint_*.pkl") ||
	       uns_listing_find(run->dir->list, "pytorch_model");
}

/* Lightning's tag is "checkpoint", and the only one. A plain engine may give one of several tags that name. */
static bool is_lightning(const struct run *run)
{
	size_t i;

	for (i = 0; i < run->dir->list->n; i++)
		if (run->dir->list->v[i].kind != UNS_KIND_FILE &&
		    uns_str_starts(run->dir->list->v[i].name, "global_step"))
			return false;
	return uns_listing_find(run->dir->list, "checkpoint") &&
	       (uns_str_ends(run->dir->path, ".ckpt") || uns_listing_has_file(run->dir->list, run->form->latest));
}

/* Beside weights in a form of their own, the whole directory is one checkpoint as well. */
static bool has_weights(const struct uns_listing *list)
{
	return uns_listing_has_glob(list, "model*.safetensors") || uns_listing_has_glob(list, "pytorch_model*.bin") ||
	       uns_listing_has_glob(list, "adapter_model.*");
}

/* -- probe -- */

static bool may_be_dir(const struct uns_entry *e)
{
	return e->kind != UNS_KIND_FILE && e->kind != UNS_KIND_OTHER;
}

/* A directory that trainers and DeepSpeed call so. */
static bool has_tag_name(const struct uns_entry *e)
{
	return may_be_dir(e) && (uns_str_starts(e->name, "global_step") || strcmp(e->name, "pytorch_model") == 0 ||
				 strcmp(e->name, "checkpoint") == 0);
}

/* Without `latest`, only directories of a tag's name are looked into. */
static bool has_tag(const struct run *run, struct uns_err *err)
{
	const bool any_name = uns_listing_has_file(run->dir->list, run->form->latest);
	const struct uns_entry *e = run->dir->list->v, *end = e + run->dir->list->n;
	size_t listed = 0;

	for (; e < end && listed < MAX_LISTED; e++) {
		if (!(any_name ? may_be_dir(e) : has_tag_name(e)))
			continue;
		listed++;
		if (tag_is_below(run, e->name, err) > 0)
			return true;
	}
	return false;
}

/* Accelerate saves its first model in the tag pytorch_model, the next in pytorch_model_1. */
static bool has_several_models(const struct run *run, struct uns_err *err)
{
	return uns_listing_find(run->dir->list, "pytorch_model_1") && tag_is_below(run, "pytorch_model", err) > 0 &&
	       tag_is_below(run, "pytorch_model_1", err) > 0;
}

int uns_zero_run_probe(const struct uns_zero_form *form, const struct uns_directory *dir)
{
	const struct run run = { .form = form, .dir = dir };
	struct uns_err why = { 0 };
	bool mine;

	if (form->is_tag(dir->list))
		return 90;
	if (!is_trainer(&run) && !is_accelerate(&run) && !is_lightning(&run) && !has_weights(dir->list))
		return 0; /* a run of several */
	mine = !has_several_models(&run, &why) /* each of them is a checkpoint */ && has_tag(&run, &why);
	uns_capture_note_fault(dir->capture, &why);
	return mine ? 95 : 0;
}

/* A directory that merely holds one of such a name may hold others' checkpoints too. */
bool uns_zero_run_begun(const struct uns_directory *dir)
{
	const struct run run = { .dir = dir };
	size_t i;

	if (uns_beside_named_step(dir->root, dir->path, "global_step") != UNS_UNKNOWN)
		return true;
	if (!is_trainer(&run) && !uns_str_ends(uns_root_name(dir->root, dir->path), ".ckpt") &&
	    !uns_listing_has_glob(dir->list, "random_states_*.pkl") &&
	    !uns_listing_has_glob(dir->list, "custom_checkpoint_*.pkl") && !has_weights(dir->list))
		return false;
	for (i = 0; i < dir->list->n; i++)
		if (has_tag_name(&dir->list->v[i]))
			return true;
	return false;
}

/* -- which tag -- */

/* *tag: the tag that the directory's file names; NULL if there is none that is a name. If the file cannot be read now,
 * that is an error: another tag would be taken in its place. */
static int read_latest(struct run *run, const struct uns_root *root, const char *directory, const char **tag,
		       struct uns_err *err)
{
	const char *path = uns_path_join(&run->scratch, directory, run->form->latest);

	return path ? uns_zero_read_mark(root, path, &run->scratch, tag, NULL, err) : uns_oom(err);
}

/* Only a note: no view uses `latest`. */
static int note_stale(struct run *run, struct uns_catalog *cat, const char *where, const char *latest, const char *tag,
		      struct uns_err *err)
{
	const char *path = uns_path_join(&run->scratch, where, run->form->latest);

	UNS_TRY_ALLOC(path, err);
	return UNS_ADD_FINDING(cat, err, ZERO_LATEST_STALE, .file = path, .found = uns_str(latest),
			       .arg = { { "tag", uns_str(tag) } });
}

/* The tag of a run's directory: what `latest` names, else the last in natural order. */
static int choose_tag(struct run *run, struct uns_catalog *cat, struct uns_err *err)
{
	const struct uns_entry *e = run->dir->list->v, *end = e + run->dir->list->n;
	const char *latest, *last = NULL;
	int found, named = 0;
	size_t n = 0;

	UNS_TRY(read_latest(run, run->dir->root, run->dir->path, &latest, err));
	for (; e < end; e++) {
		if (!may_be_dir(e))
			continue;
		UNS_TRY(found = tag_is_below(run, e->name, err));
		if (found)
			last = e->name;
		n += (size_t)found;
	}
	if (latest)
		UNS_TRY(named = tag_is_below(run, latest, err));
	run->named = named;
	run->tag = run->named ? latest : last;
	if (!run->tag)
		return UNS_FAIL_WITH(err, ZERO_NO_TAG, .scope = UNS_SCOPE_ALL, .checkpoint = cat->path);
	if (latest && !run->named)
		return note_stale(run, cat, cat->path, latest, last, err);
	if (n > 1)
		return UNS_ADD_FINDING(cat, err, ZERO_SEVERAL_TAGS,
				       .arg = { { "n", uns_num(n) }, { "tag", uns_str(run->tag) } });
	return 0;
}

/* A tag's own directory: compares its name with `latest` beside it. */
static int compare_latest(struct run *run, struct uns_catalog *cat, struct uns_err *err)
{
	const char *name = uns_root_name(run->dir->root, run->dir->path), *latest = NULL, *parent, *path;
	const struct uns_root *root;
	struct uns_err why = { 0 };
	int there;

	run->tag = "";
	UNS_TRY(uns_root_up(run->dir->root, run->dir->path, &run->scratch, &root, &parent, err));
	if (parent)
		UNS_TRY(read_latest(run, root, parent, &latest, err));
	run->named = latest && (strcmp(latest, name) == 0 || uns_str_natural(name, latest) < 0);
	if (!latest)
		return 0;
	UNS_TRY_ALLOC(path = uns_path_join(&run->scratch, parent, latest), err);
	there = uns_is_there(root, run->dir->capture, path, &why);
	if (there == -EACCES || there > 0) /* it is kept to others, or it is there */
		return 0;
	UNS_TRY(uns_fail_if_passing(err, there, &why));
	return note_stale(run, cat, parent, latest, name, err);
}

static int open_tag(struct run *run, struct uns_catalog *cat, struct uns_err *err)
{
	if (run->form->is_tag(run->dir->list)) {
		UNS_TRY(compare_latest(run, cat, err));
		run->tag_path = run->dir->path;
		run->tag_list = *run->dir->list;
		return 0;
	}
	UNS_TRY(choose_tag(run, cat, err));
	UNS_TRY_ALLOC(run->tag_path = uns_path_join(&cat->arena, run->dir->path, run->tag), err);
	return uns_list_seen(run->dir->root, run->dir->capture, run->tag_path, &run->scratch, &run->tag_list, err);
}

/* -- files beside the shards -- */

/* DeepSpeed's own: part of the sharded form, of no use with an assembled one. */
static int add_marks(struct run *run, struct uns_catalog *cat, struct uns_err *err)
{
	static const char *const marks[] = { "latest", "latest_universal", "zero_to_fp32.py", "zero_to_torch.py" };
	const struct uns_directory *dir = run->dir;
	uint32_t file;
	size_t i;

	for (i = 0; i < sizeof(marks) / sizeof(*marks); i++)
		if (uns_listing_has_file(dir->list, marks[i]))
			UNS_TRY(uns_beside_add_shard(cat, dir->root, dir->path, "", marks[i], &file, err));
	return 0;
}

/* -- the summary -- */

static bool is_finished(const struct run *run, const struct uns_catalog *cat)
{
	size_t i;

	if (*run->tag && is_trainer(run))
		return uns_listing_has_file(run->dir->list, "trainer_state.json");
	if (*run->tag && is_accelerate(run))
		return run->named && uns_listing_has_glob(run->dir->list, "random_states_*.pkl");
	if (*run->tag || *run->dir->path)
		return run->named;
	/* A tag that is SOURCE itself: nothing beside SOURCE is looked at, so it has ended if it is whole. */
	for (i = 0; i < cat->n_findings; i++)
		if (cat->findings[i].scope != UNS_SCOPE_NOTE && cat->findings[i].code != -ENOTSUP)
			return false;
	return true;
}

/* The listing's files that are no companions yet, and the summary. */
/* Fabric's strategy gives the tag that the Trainer's gives, and lacks what a Trainer saves. It steps the optimizer
 * itself: the engine counts no step then (lightning 2.6, fabric/wrappers.py). */
static bool is_fabric(const struct run *run, const struct uns_catalog *cat, const struct uns_zero_found *found)
{
	return *run->tag && !is_trainer(run) && !is_accelerate(run) && is_lightning(run) && !found->global_steps &&
	       !uns_catalog_value(cat, UNS_CLIENT_ROOT, "pytorch-lightning_version");
}

static const char *framework_of(const struct run *run, const struct uns_catalog *cat,
				const struct uns_zero_found *found)
{
	if (is_fabric(run, cat, found))
		return "Lightning Fabric, DeepSpeed";
	if (*run->tag && is_trainer(run))
		return "Hugging Face Trainer, DeepSpeed";
	if (*run->tag && is_accelerate(run))
		return "Hugging Face Accelerate, DeepSpeed";
	return *run->tag && is_lightning(run) ? "Lightning, DeepSpeed" : "DeepSpeed";
}

static int add_rest(struct run *run, struct uns_catalog *cat, const struct uns_zero_found *found, struct uns_err *err)
{
	const struct uns_directory *dir = run->dir;
	struct uns_summary *summary = &cat->summary;
	int64_t mp = found->mp_world_size > 0 ? found->mp_world_size : 1;
	bool of_run = *run->tag;

	UNS_TRY(add_marks(run, cat, err));
	if (of_run)
		UNS_TRY(uns_beside_add(cat, dir->root, run->tag_path, run->tag, &run->tag_list, err));
	UNS_TRY(uns_beside_add(cat, dir->root, dir->path, "", dir->list, err));
	if (of_run)
		UNS_TRY(uns_beside_add_models(cat, dir, err));
	summary->format = run->form->name;
	summary->family = run->form->family;
	summary->framework = framework_of(run, cat, found);
	if (found->stage >= 0)
		summary->framework =
			uns_arena_printf(&cat->arena, "%s ZeRO stage %d", summary->framework, found->stage);
	UNS_TRY_ALLOC(summary->framework, err);
	if (summary->family == UNS_FAMILY_ZERO) {
		summary->tracker = UNS_TRACKER_DEEPSPEED;
		summary->tracker_up = of_run ? 0 : 1;
	}
	summary->of_trainer = of_run && is_trainer(run);
	summary->wants_config = of_run && (is_trainer(run) || is_accelerate(run));
	/* The Trainer's step where there is one: that is what a resumed run continues from. */
	summary->step = found->global_steps;
	if (is_fabric(run, cat, found)) {
		summary->resumed_by = UNS_BY_FABRIC;
		summary->step = UNS_UNKNOWN;
	}
	UNS_TRY(uns_beside_step(dir->root, dir->path, dir->list, &summary->step, err));
	if (found->dp_world_size > 0 && found->dp_world_size <= INT32_MAX && mp <= INT32_MAX)
		summary->world_size = found->dp_world_size * mp;
	summary->finished = is_finished(run, cat);
	return 0;
}

/* Rank 0 writes `latest` after its shards (it may name another tag by now). The trainer that calls the engine writes
 * the state of the training after that. */
static int check_times(struct run *run, struct uns_catalog *cat, struct uns_err *err)
{
	const char *dir = *run->tag ? run->dir->path : uns_path_parent(&run->scratch, run->dir->path);
	const char *state = is_trainer(run) ? "trainer_state.json" : "random_states_0.pkl";
	struct uns_save_end end = { .root = run->dir->root, .below = run->tag_path };

	if (!*run->tag && !*run->dir->path)
		return 0;
	end.path = dir ? uns_path_join(&cat->arena, dir, run->form->latest) : NULL;
	UNS_TRY(uns_save_times_check(cat, &end, err));
	if (!*run->tag)
		return 0;
	end.path = uns_path_join(&cat->arena, run->dir->path, state);
	end.is_state = true;
	return uns_save_times_check(cat, &end, err);
}

int uns_zero_run_open(const struct uns_zero_form *form, const struct uns_directory *dir, struct uns_catalog *cat,
		      struct uns_err *err)
{
	UNS_CLEANUP(run_fini) struct run run = { .form = form, .dir = dir };
	struct uns_zero_input in = { .root = dir->root };
	struct uns_zero_found found;
	struct uns_zero_dir files;

	UNS_TRY(open_tag(&run, cat, err));
	UNS_TRY(uns_zero_dir_list(cat, dir->root, run.tag_path, run.tag, &run.tag_list, &files, err));
	in.dir = &files;
	if (form->family == UNS_FAMILY_UNIVERSAL) {
		in.universal_path = uns_path_join(&cat->arena, run.tag_path, "zero");
		in.universal_name = uns_path_join(&cat->arena, run.tag, "zero");
		UNS_TRY_ALLOC(in.universal_path && in.universal_name, err);
	} else if (*run.tag) {
		in.beside_path = dir->path;
		in.beside = dir->list;
	}
	UNS_TRY(uns_zero_add(cat, &in, &found, err));
	UNS_TRY(add_rest(&run, cat, &found, err));
	UNS_TRY(check_times(&run, cat, err));
	uns_engine_summary(cat);
	uns_resume_find(cat);
	UNS_TRY(uns_adapter_find(cat, err));
	UNS_TRY(uns_empty_group_find(cat, err));
	return uns_catalog_seal(cat, err);
}
