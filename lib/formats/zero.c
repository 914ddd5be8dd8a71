/* zero: what DeepSpeed's engine saves, ZeRO stages 0 to 3, by itself or below Hugging Face Trainer,
 * Accelerate or Lightning.
 *
 *   RUN/latest   (text: the tag)   zero_to_fp32.py   zero_to_torch.py
 *   RUN/TAG/mp_rank_00_model_states.pt  [bf16_]zero_pp_rank_0_mp_rank_00_optim_states.pt ..
 *   Trainer:     RUN = checkpoint-N, TAG = global_stepN, beside it config, scheduler.pt, rng_state_*,
 *                trainer_state.json (written last), model.safetensors (stages 0 to 2, or gathered)
 *   Accelerate:  TAG = pytorch_model, beside it scheduler.bin, random_states_*.pkl
 *   Lightning:   RUN = NAME.ckpt, TAG = checkpoint
 *
 * A RUN that a trainer made is one checkpoint. A plain engine puts one tag after the other into the same
 * RUN: there each TAG is a checkpoint, at a path that stays when the next is saved. Opened by itself,
 * such a RUN is the tag that `latest` names.
 * Owns this layout and its facts; what is inside the shards is in shards/. */
#include "formats/format.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "shards/beside.h"
#include "shards/zero_open.h"
#include "wire/json.h"

enum { MAX_TAG_BYTES = 4096, MAX_LISTED = 256, MAX_STATE_JSON = 64 << 20 };

static int no_memory(struct uns_err *err)
{
	return uns_fail(err, -ENOMEM, "out of memory while reading a DeepSpeed checkpoint");
}

/* -- names -- */

static bool has_file(const struct uns_listing *list, const char *name)
{
	const struct uns_entry *e = uns_listing_find(list, name);

	return e && e->kind != UNS_KIND_DIR;
}

static bool has_glob(const struct uns_listing *list, const char *glob)
{
	size_t i;

	for (i = 0; i < list->n; i++)
		if (list->v[i].kind != UNS_KIND_DIR && uns_str_glob(glob, list->v[i].name))
			return true;
	return false;
}

/* Shards of a native checkpoint; a universal directory holds model files and zero/ instead. */
static bool is_tag(const struct uns_listing *list)
{
	const struct uns_entry *zero = uns_listing_find(list, "zero");

	if (uns_zero_count(list, UNS_ZERO_OPTIM))
		return true;
	return uns_zero_count(list, UNS_ZERO_MODEL) && !(zero && zero->kind != UNS_KIND_FILE);
}

static bool is_tag_below(const struct uns_directory *dir, const char *name)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_listing list = { 0 };
	char *path = uns_path_join(&arena, dir->path, name);

	return path && uns_root_list(dir->root, path, &arena, &list, NULL) == 0 && is_tag(&list);
}

static bool is_trainer(const struct uns_directory *dir)
{
	unsigned long long n;

	return uns_str_number(uns_path_name(dir->path), "checkpoint-", "", &n) ||
	       has_file(dir->list, "trainer_state.json") ||
	       has_file(dir->list, "training_args.bin") || has_glob(dir->list, "rng_state*.pth");
}

static bool is_accelerate(const struct uns_directory *dir)
{
	return has_glob(dir->list, "random_states_*.pkl") ||
	       has_glob(dir->list, "custom_checkpoint_*.pkl") ||
	       uns_listing_find(dir->list, "pytorch_model");
}

static bool is_lightning(const struct uns_directory *dir)
{
	return uns_str_ends(dir->path, ".ckpt") && uns_listing_find(dir->list, "checkpoint");
}

/* Beside weights in a form of their own, the whole directory is one checkpoint as well. */
static bool has_weights(const struct uns_listing *list)
{
	return has_glob(list, "model*.safetensors") || has_glob(list, "pytorch_model*.bin") ||
	       has_glob(list, "adapter_model.*");
}

static bool is_run_of_one(const struct uns_directory *dir)
{
	return is_trainer(dir) || is_accelerate(dir) || is_lightning(dir) ||
	       has_weights(dir->list);
}

/* -- probe -- */

/* A directory that may be a tag, by its name alone when there is no `latest`. */
static bool may_be_tag(const struct uns_directory *dir, const struct uns_entry *e)
{
	if (e->kind == UNS_KIND_FILE || e->kind == UNS_KIND_OTHER)
		return false;
	return has_file(dir->list, "latest") || uns_str_starts(e->name, "global_step") ||
	       strcmp(e->name, "pytorch_model") == 0 || strcmp(e->name, "checkpoint") == 0;
}

static bool has_tag(const struct uns_directory *dir)
{
	size_t i, listed = 0;

	for (i = 0; i < dir->list->n && listed < MAX_LISTED; i++) {
		if (!may_be_tag(dir, &dir->list->v[i]))
			continue;
		listed++;
		if (is_tag_below(dir, dir->list->v[i].name))
			return true;
	}
	return false;
}

static int probe(const struct uns_directory *dir)
{
	if (is_tag(dir->list))
		return 90;
	return is_run_of_one(dir) && has_tag(dir) ? 95 : 0;
}

/* -- which tag -- */

struct source {
	const struct uns_directory *dir;
	struct uns_catalog *cat;
	struct uns_arena scratch;
	const char *tag;  /* "" = the directory itself */
	const char *path; /* of the tag's directory, below root */
	struct uns_listing list;
	bool named; /* `latest` names this tag, or one behind it: its save has ended */
	struct uns_zero_found found;
};

static void source_fini(struct source *s)
{
	uns_arena_fini(&s->scratch);
}

/* The name in DIRECTORY/latest; NULL when there is none that is a name. */
static const char *read_latest(struct source *s, const char *directory)
{
	const char *path = uns_path_join(&s->scratch, directory, "latest");
	struct uns_span text;
	char *name;
	size_t n;

	if (!path || uns_root_read_file(s->dir->root, path, MAX_TAG_BYTES, &s->scratch, &text, NULL,
					NULL) < 0)
		return NULL;
	n = uns_span_left(&text);
	while (n && strchr(" \t\r\n", text.p[n - 1]))
		n--;
	name = uns_arena_strn(&s->scratch, (const char *)text.p, n);
	if (!name || !n || strlen(name) != n || strchr(name, '/') || strcmp(name, ".") == 0 ||
	    strcmp(name, "..") == 0)
		return NULL;
	return name;
}

/* Every tag in the directory; *last is the last in natural order. */
static size_t count_tags(struct source *s, const char **last)
{
	const struct uns_directory *dir = s->dir;
	size_t i, n = 0;

	for (i = 0; i < dir->list->n; i++)
		if (dir->list->v[i].kind != UNS_KIND_FILE &&
		    dir->list->v[i].kind != UNS_KIND_OTHER &&
		    is_tag_below(dir, dir->list->v[i].name)) {
			*last = dir->list->v[i].name;
			n++;
		}
	return n;
}

static int note_others(struct source *s, size_t n)
{
	if (n < 2)
		return 0;
	return uns_catalog_add_problem(s->cat, UNS_SCOPE_NOTE, 0,
				       "%s holds %zu tags; this is %s, which `latest` names. Give "
				       "another tag's directory as SOURCE to see it",
				       s->cat->path, n, s->tag);
}

static int choose_tag(struct source *s, struct uns_err *err)
{
	const char *latest = read_latest(s, s->dir->path), *last = NULL;
	size_t n = count_tags(s, &last);

	if (latest && is_tag_below(s->dir, latest)) {
		s->tag = latest;
		s->named = true;
		return note_others(s, n);
	}
	if (!n)
		return uns_fail(err, -ENODATA, "%s: there is no tag directory with shards in it",
				s->cat->path);
	s->tag = last;
	if (latest)
		return uns_catalog_add_problem(
			s->cat, UNS_SCOPE_NOTE, 0,
			"%s/latest names %s, which is not there; %s is shown instead", s->cat->path,
			latest, last);
	return 0;
}

/* A tag's own directory: what `latest` beside it says. */
static void look_beside(struct source *s)
{
	const char *name = uns_path_name(s->dir->path), *latest = NULL;
	const char *parent = uns_path_parent(&s->scratch, s->dir->path);

	s->tag = "";
	if (*s->dir->path && parent)
		latest = read_latest(s, parent);
	s->named = latest && (strcmp(latest, name) == 0 || uns_str_natural(name, latest) < 0);
}

static int find_tag(struct source *s, struct uns_err *err)
{
	if (is_tag(s->dir->list)) {
		look_beside(s);
		s->path = s->dir->path;
		s->list = *s->dir->list;
		return 0;
	}
	UNS_TRY(choose_tag(s, err));
	s->path = uns_path_join(&s->cat->arena, s->dir->path, s->tag);
	if (!s->path)
		return no_memory(err);
	return uns_root_list(s->dir->root, s->path, &s->scratch, &s->list, err);
}

/* -- what stands beside -- */

/* DeepSpeed's own: part of the sharded form, of no use with an assembled one. */
static int add_marks(struct source *s, struct uns_err *err)
{
	static const char *const marks[] = { "latest", "latest_universal", "zero_to_fp32.py",
					     "zero_to_torch.py" };
	const char *path;
	uint32_t file;
	size_t i;

	for (i = 0; i < sizeof(marks) / sizeof(*marks); i++) {
		if (!has_file(s->dir->list, marks[i]))
			continue;
		path = uns_path_join(&s->scratch, s->dir->path, marks[i]);
		if (!path)
			return no_memory(err);
		UNS_TRY(uns_catalog_add_file(s->cat, s->dir->root, path, &file, err));
		UNS_TRY(uns_catalog_add_companion(s->cat, marks[i], file, true, err));
	}
	return 0;
}

static int add_beside(struct source *s, struct uns_err *err)
{
	UNS_TRY(add_marks(s, err));
	if (*s->tag)
		UNS_TRY(uns_beside_add(s->cat, s->dir->root, s->path, s->tag, &s->list, err));
	return uns_beside_add(s->cat, s->dir->root, s->dir->path, "", s->dir->list, err);
}

/* -- facts -- */

static int64_t step_of_state(struct source *s)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	char *path = uns_path_join(&s->scratch, s->dir->path, "trainer_state.json");
	struct uns_span text;
	int64_t step;

	if (!path || !has_file(s->dir->list, "trainer_state.json") ||
	    uns_root_read_file(s->dir->root, path, MAX_STATE_JSON, &s->scratch, &text, NULL, NULL) <
		    0 ||
	    uns_json_parse(text, &json, NULL) < 0 || !uns_json_int(json, "global_step", &step) ||
	    step < 0)
		return UNS_UNKNOWN;
	return step;
}

/* The Trainer's step where there is one: that is what a resumed run goes on from. */
static int64_t find_step(struct source *s)
{
	unsigned long long n;
	int64_t step;

	if (uns_str_number(uns_path_name(s->dir->path), "checkpoint-", "", &n) && n <= INT64_MAX)
		return (int64_t)n;
	step = step_of_state(s);
	return step == UNS_UNKNOWN ? s->found.global_steps : step;
}

static bool is_whole(const struct uns_catalog *cat)
{
	size_t i;

	for (i = 0; i < cat->n_problems; i++)
		if (cat->problems[i].scope != UNS_SCOPE_NOTE && cat->problems[i].code != -ENOTSUP)
			return false;
	return true;
}

static bool find_finished(const struct source *s)
{
	if (!*s->tag && !*s->dir->path)
		return is_whole(s->cat); /* what is beside the source is not looked at */
	if (*s->tag && is_trainer(s->dir))
		return has_file(s->dir->list, "trainer_state.json");
	if (*s->tag && is_accelerate(s->dir))
		return s->named && has_glob(s->dir->list, "random_states_*.pkl");
	return s->named;
}

static const char *maker(const struct source *s)
{
	if (!*s->tag)
		return "DeepSpeed";
	if (is_trainer(s->dir))
		return "Hugging Face Trainer, DeepSpeed";
	if (is_accelerate(s->dir))
		return "Hugging Face Accelerate, DeepSpeed";
	return is_lightning(s->dir) ? "Lightning, DeepSpeed" : "DeepSpeed";
}

static int find_facts(struct source *s, struct uns_err *err)
{
	struct uns_facts *facts = &s->cat->facts;
	const struct uns_zero_found *found = &s->found;
	int64_t mp = found->mp_world_size > 0 ? found->mp_world_size : 1;

	facts->format = "zero";
	facts->framework = maker(s);
	if (found->stage >= 0)
		facts->framework = uns_arena_printf(&s->cat->arena, "%s ZeRO stage %d",
						    facts->framework, found->stage);
	if (!facts->framework)
		return no_memory(err);
	facts->step = find_step(s);
	if (found->dp_world_size > 0 && found->dp_world_size <= INT32_MAX && mp <= INT32_MAX)
		facts->world_size = found->dp_world_size * mp;
	facts->finished = find_finished(s);
	return 0;
}

static int open_dir(const struct uns_directory *dir, const struct uns_format_options *options,
		    struct uns_catalog *cat, struct uns_err *err)
{
	UNS_CLEANUP(source_fini) struct source s = { .dir = dir, .cat = cat };
	struct uns_zero_input in = { .root = dir->root };
	struct uns_zero_dir files;

	(void)options;
	UNS_TRY(find_tag(&s, err));
	UNS_TRY(uns_zero_dir_list(cat, dir->root, s.path, s.tag, &s.list, &files, err));
	in.dir = &files;
	if (*s.tag) {
		in.beside_path = dir->path;
		in.beside = dir->list;
	}
	UNS_TRY(uns_zero_add(cat, &in, &s.found, err));
	UNS_TRY(add_beside(&s, err));
	UNS_TRY(find_facts(&s, err));
	return uns_catalog_seal(cat, err);
}

extern const struct uns_format uns_format_zero;
const struct uns_format uns_format_zero = {
	.name = "zero",
	.probe = probe,
	.open = open_dir,
};
