/* Finds the run's directory, the tag that is meant, and the facts in names and small files. zero/open.c reads the
 * tag's own files. */
#include "zero/run.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "files/beside.h"
#include "model/save_times.h"
#include "zero/engine_state.h"
#include "zero/mark.h"

enum { MAX_LISTED = 256 };

/* -- names -- */

/* 1 = it is a tag's directory, 0 = it is none. */
static int look_below(const struct uns_zero_run *run, const char *name, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_listing list = { 0 };
	struct uns_err why = { 0 };
	char *path = uns_path_join(&arena, run->path, name);
	int code;

	if (!path)
		return uns_oom(err);
	code = uns_list_seen(run->root, run->capture, path, &arena, &list, &why);
	if (code < 0)
		return uns_fail_if_passing(err, code, &why);
	return run->is_tag(&list);
}

static bool is_trainer(const struct uns_zero_run *run)
{
	unsigned long long n;

	return uns_str_number(uns_root_name(run->root, run->path), "checkpoint-", "", &n) ||
	       uns_listing_has_file(run->list, "trainer_state.json") ||
	       uns_listing_has_file(run->list, "training_args.bin") ||
	       uns_listing_has_glob(run->list, "rng_state*.pth");
}

static bool is_accelerate(const struct uns_zero_run *run)
{
	return uns_listing_has_glob(run->list, "random_states_*.pkl") ||
	       uns_listing_has_glob(run->list, "custom_checkpoint_*.pkl") ||
	       uns_listing_find(run->list, "pytorch_model");
}

/* Lightning's tag is "checkpoint", and the only one. A plain engine may give one of several tags that name. */
static bool is_lightning(const struct uns_zero_run *run)
{
	size_t i;

	for (i = 0; i < run->list->n; i++)
		if (run->list->v[i].kind != UNS_KIND_FILE &&
		    uns_str_starts(run->list->v[i].name, "global_step"))
			return false;
	return uns_listing_find(run->list, "checkpoint") &&
	       (uns_str_ends(run->path, ".ckpt") || uns_listing_has_file(run->list, run->latest));
}

/* Beside weights in a form of their own, the whole directory is one checkpoint as well. */
static bool has_weights(const struct uns_listing *list)
{
	return uns_listing_has_glob(list, "model*.safetensors") ||
	       uns_listing_has_glob(list, "pytorch_model*.bin") ||
	       uns_listing_has_glob(list, "adapter_model.*");
}

/* -- probe -- */

/* A directory that trainers and DeepSpeed call so. */
static bool has_tag_name(const struct uns_entry *e)
{
	return e->kind != UNS_KIND_FILE && e->kind != UNS_KIND_OTHER &&
	       (uns_str_starts(e->name, "global_step") || strcmp(e->name, "pytorch_model") == 0 ||
		strcmp(e->name, "checkpoint") == 0);
}

/* By its name alone when there is no `latest`. */
static bool may_be_tag(const struct uns_zero_run *run, const struct uns_entry *e)
{
	if (uns_listing_has_file(run->list, run->latest))
		return e->kind != UNS_KIND_FILE && e->kind != UNS_KIND_OTHER;
	return has_tag_name(e);
}

static bool has_tag(const struct uns_zero_run *run)
{
	size_t i, listed = 0;

	for (i = 0; i < run->list->n && listed < MAX_LISTED; i++) {
		if (!may_be_tag(run, &run->list->v[i]))
			continue;
		listed++;
		if (look_below(run, run->list->v[i].name, NULL) > 0)
			return true;
	}
	return false;
}

int uns_zero_run_probe(const struct uns_zero_run *run)
{
	if (run->is_tag(run->list))
		return 90;
	if (!is_trainer(run) && !is_accelerate(run) && !is_lightning(run) && !has_weights(run->list))
		return 0; /* a run of several */
	return has_tag(run) ? 95 : 0;
}

/* A directory that merely holds one of such a name may hold others' checkpoints too. */
bool uns_zero_run_begun(const struct uns_zero_run *run)
{
	const char *name = uns_root_name(run->root, run->path);
	unsigned long long n;
	size_t i;

	if (uns_str_number(name, "global_step", "", &n))
		return true;
	if (!is_trainer(run) && !uns_str_ends(name, ".ckpt") &&
	    !uns_listing_has_glob(run->list, "random_states_*.pkl") &&
	    !uns_listing_has_glob(run->list, "custom_checkpoint_*.pkl") && !has_weights(run->list))
		return false;
	for (i = 0; i < run->list->n; i++)
		if (has_tag_name(&run->list->v[i]))
			return true;
	return false;
}

/* -- which tag -- */

void uns_zero_run_fini(struct uns_zero_run *run)
{
	uns_arena_fini(&run->scratch);
}

/* The tag that DIRECTORY's file names; NULL when there is none that is a name. Where the file cannot be
 * read now, that is an error: another tag would be taken in its place. */
static int read_latest(struct uns_zero_run *run, const struct uns_root *root, const char *directory,
		       const char **tag, struct uns_err *err)
{
	const char *path = uns_path_join(&run->scratch, directory, run->latest);

	return path ? uns_zero_read_mark(root, path, &run->scratch, tag, NULL, err) : uns_oom(err);
}

/* Every tag in the directory; *last is the last in natural order. */
static int count_tags(const struct uns_zero_run *run, size_t *n, const char **last,
		      struct uns_err *err)
{
	const struct uns_entry *e = run->list->v, *end = e + run->list->n;
	int found;

	for (*n = 0; e < end; e++) {
		if (e->kind == UNS_KIND_FILE || e->kind == UNS_KIND_OTHER)
			continue;
		UNS_TRY(found = look_below(run, e->name, err));
		if (found)
			*last = e->name;
		*n += (size_t)found;
	}
	return 0;
}

/* Only a note: no view uses `latest`. */
static int tell_stale(struct uns_zero_run *run, struct uns_catalog *cat, const char *where,
		      const char *latest, const char *tag, struct uns_err *err)
{
	const char *path = uns_path_join(&run->scratch, where, run->latest);

	if (!path)
		return uns_oom(err);
	return uns_catalog_add_finding(cat,
				       UNS_FINDING(.id = UNS_FOUND_ZERO_LATEST_STALE, .file = path,
						   .found = uns_str(latest),
						   .arg = { { "tag", uns_str(tag) } }),
				       err);
}

static int choose_tag(struct uns_zero_run *run, struct uns_catalog *cat, struct uns_err *err)
{
	const char *latest, *last = NULL;
	int named = 0;
	size_t n;

	UNS_TRY(read_latest(run, run->root, run->path, &latest, err));
	UNS_TRY(count_tags(run, &n, &last, err));
	if (latest)
		UNS_TRY(named = look_below(run, latest, err));
	run->named = named;
	run->tag = run->named ? latest : last;
	if (!run->tag)
		return uns_fail_with(err, UNS_FINDING(.id = UNS_FOUND_ZERO_NO_TAG,
						      .scope = UNS_SCOPE_ALL, .checkpoint = cat->path));
	if (latest && !run->named)
		return tell_stale(run, cat, cat->path, latest, last, err);
	if (n > 1)
		return uns_catalog_add_finding(cat,
					       UNS_FINDING(.id = UNS_FOUND_ZERO_SEVERAL_TAGS,
							   .arg = { { "n", uns_num(n) },
								    { "tag", uns_str(run->tag) } }),
					       err);
	return 0;
}

static bool is_there(struct uns_zero_run *run, const struct uns_root *root, const char *parent,
		     const char *tag)
{
	const char *path = uns_path_join(&run->scratch, parent, tag);
	struct uns_stat st;

	return !path || uns_stat_seen(root, run->capture, path, &st, NULL) != -ENOENT;
}

/* A tag's own directory: what `latest` beside it says. */
static int look_beside(struct uns_zero_run *run, struct uns_catalog *cat, struct uns_err *err)
{
	const char *name = uns_root_name(run->root, run->path), *latest = NULL, *parent;
	const struct uns_root *root;

	run->tag = "";
	UNS_TRY(uns_root_up(run->root, run->path, &run->scratch, &root, &parent, err));
	if (parent)
		UNS_TRY(read_latest(run, root, parent, &latest, err));
	run->named = latest && (strcmp(latest, name) == 0 || uns_str_natural(name, latest) < 0);
	if (!latest || is_there(run, root, parent, latest))
		return 0;
	return tell_stale(run, cat, parent, latest, name, err);
}

static int open_tag(struct uns_zero_run *run, struct uns_catalog *cat, struct uns_err *err)
{
	if (run->is_tag(run->list)) {
		UNS_TRY(look_beside(run, cat, err));
		run->tag_path = run->path;
		run->tag_list = *run->list;
		return 0;
	}
	UNS_TRY(choose_tag(run, cat, err));
	run->tag_path = uns_path_join(&cat->arena, run->path, run->tag);
	if (!run->tag_path)
		return uns_oom(err);
	return uns_list_seen(run->root, run->capture, run->tag_path, &run->scratch, &run->tag_list,
			     err);
}

/* -- files beside the shards -- */

/* DeepSpeed's own: part of the sharded form, of no use with an assembled one. */
static int add_marks(struct uns_zero_run *run, struct uns_catalog *cat, struct uns_err *err)
{
	static const char *const marks[] = { "latest", "latest_universal", "zero_to_fp32.py",
					     "zero_to_torch.py" };
	const char *path;
	uint32_t file;
	size_t i;

	for (i = 0; i < sizeof(marks) / sizeof(*marks); i++) {
		if (!uns_listing_has_file(run->list, marks[i]))
			continue;
		path = uns_path_join(&run->scratch, run->path, marks[i]);
		if (!path)
			return uns_oom(err);
		UNS_TRY(uns_catalog_add_file(cat, run->root, path, &file, err));
		UNS_TRY(uns_catalog_add_companion(cat, marks[i], file, true, err));
	}
	return 0;
}

/* -- the summary -- */

/* The Trainer's step where there is one: that is what a resumed run goes on from. */
static int find_step(struct uns_zero_run *run, const struct uns_zero_found *found, int64_t *step,
		     struct uns_err *err)
{
	unsigned long long n;

	*step = found->global_steps;
	if (uns_str_number(uns_root_name(run->root, run->path), "checkpoint-", "", &n) && n <= INT64_MAX)
		*step = (int64_t)n;
	else
		UNS_TRY(uns_beside_step(run->root, run->path, run->list, step, err));
	return 0;
}

static bool is_whole(const struct uns_catalog *cat)
{
	size_t i;

	for (i = 0; i < cat->n_findings; i++)
		if (cat->findings[i].scope != UNS_SCOPE_NOTE && cat->findings[i].code != -ENOTSUP)
			return false;
	return true;
}

static bool find_finished(const struct uns_zero_run *run, const struct uns_catalog *cat)
{
	if (!*run->tag && !*run->path)
		return is_whole(cat); /* what is beside the source is not looked at */
	if (*run->tag && is_trainer(run))
		return uns_listing_has_file(run->list, "trainer_state.json");
	if (*run->tag && is_accelerate(run))
		return run->named && uns_listing_has_glob(run->list, "random_states_*.pkl");
	return run->named;
}

static const char *maker(const struct uns_zero_run *run)
{
	if (!*run->tag)
		return "DeepSpeed";
	if (is_trainer(run))
		return "Hugging Face Trainer, DeepSpeed";
	if (is_accelerate(run))
		return "Hugging Face Accelerate, DeepSpeed";
	return is_lightning(run) ? "Lightning, DeepSpeed" : "DeepSpeed";
}

/* The listing's files that are no companions yet, and the summary. */
static int finish(struct uns_zero_run *run, struct uns_catalog *cat,
		  const struct uns_zero_found *found, struct uns_err *err)
{
	struct uns_summary *summary = &cat->summary;
	int64_t mp = found->mp_world_size > 0 ? found->mp_world_size : 1;

	UNS_TRY(add_marks(run, cat, err));
	if (*run->tag)
		UNS_TRY(uns_beside_add(cat, run->root, run->tag_path, run->tag, &run->tag_list,
				       err));
	UNS_TRY(uns_beside_add(cat, run->root, run->path, "", run->list, err));
	summary->framework = maker(run);
	if (strcmp(run->latest, "latest") == 0) {
		summary->tracker = UNS_TRACKER_DEEPSPEED;
		summary->tracker_up = *run->tag ? 0 : 1;
	}
	summary->of_trainer = *run->tag && is_trainer(run);
	summary->wants_config = *run->tag && (is_trainer(run) || is_accelerate(run));
	if (found->stage >= 0)
		summary->framework = uns_arena_printf(&cat->arena, "%s ZeRO stage %d",
						    summary->framework, found->stage);
	if (!summary->framework)
		return uns_oom(err);
	UNS_TRY(find_step(run, found, &summary->step, err));
	if (found->dp_world_size > 0 && found->dp_world_size <= INT32_MAX && mp <= INT32_MAX)
		summary->world_size = found->dp_world_size * mp;
	summary->finished = find_finished(run, cat);
	return 0;
}

/* Rank 0 writes `latest` after its shards (it may name another tag by now). The trainer that calls the engine writes
 * the state of the training after that. */
static int check_times(struct uns_zero_run *run, struct uns_catalog *cat, struct uns_err *err)
{
	const char *dir = *run->tag ? run->path : uns_path_parent(&run->scratch, run->path);
	const char *state = is_trainer(run) ? "trainer_state.json" : "random_states_0.pkl";
	struct uns_save_end end = { .root = run->root, .below = run->tag_path };

	if (!*run->tag && !*run->path)
		return 0;
	end.path = dir ? uns_path_join(&cat->arena, dir, run->latest) : NULL;
	UNS_TRY(uns_save_times_check(cat, &end, err));
	if (!*run->tag)
		return 0;
	end.path = uns_path_join(&cat->arena, run->path, state);
	end.is_state = true;
	return uns_save_times_check(cat, &end, err);
}

int uns_zero_run_add(struct uns_zero_run *run, struct uns_catalog *cat, struct uns_err *err)
{
	struct uns_zero_input in = { .root = run->root };
	struct uns_zero_found found;
	struct uns_zero_dir files;

	UNS_TRY(open_tag(run, cat, err));
	UNS_TRY(uns_zero_dir_list(cat, run->root, run->tag_path, run->tag, &run->tag_list, &files,
				  err));
	in.dir = &files;
	if (run->universal) {
		in.universal_path = uns_path_join(&cat->arena, run->tag_path, "zero");
		in.universal_name = uns_path_join(&cat->arena, run->tag, "zero");
		if (!in.universal_path || !in.universal_name)
			return uns_oom(err);
	} else if (*run->tag) {
		in.beside_path = run->path;
		in.beside = run->list;
	}
	UNS_TRY(uns_zero_add(cat, &in, &found, err));
	UNS_TRY(finish(run, cat, &found, err));
	UNS_TRY(check_times(run, cat, err));
	uns_engine_summary(cat);
	return 0;
}
