/* ranks: what veRL and EasyR1 save of each model (actor, critic), one file per rank and kind.
 *
 *   RUN/global_step_<n>/actor/
 *       model_world_size_<w>_rank_<r>.pt         DTensors or ShardedTensors by name
 *       optim_world_size_<w>_rank_<r>.pt         EasyR1: by name; veRL: by number
 *       extra_state_world_size_<w>_rank_<r>.pt   scheduler, random states
 *       fsdp_config.json                         veRL: {"FSDP_version", "world_size"}
 *       huggingface/                             config and tokenizer
 *   RUN/latest_checkpointed_iteration.txt (veRL)  RUN/checkpoint_tracker.json (EasyR1): come last
 *
 * Owns the number of ranks and the facts; the names and what is in the files are in ranks/. Source: verl
 * 0.9.1 fsdp_checkpoint_manager.py, EasyR1 b44b311. */
#include "formats/format.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "base/text.h"
#include "model/cover.h"
#include "model/save_times.h"
#include "files/beside.h"
#include "files/adapter.h"
#include "files/resume_files.h"
#include "ranks/extra.h"
#include "ranks/files.h"
#include "ranks/names.h"
#include "ranks/tracker.h"
#include "wire/json.h"

enum { MAX_JSON = 1 << 20 };

/* A checkpoint being opened: RUN/global_step_7/actor, or RUN/global_step_7 itself. */
struct source {
	const struct uns_directory *dir;
	struct uns_catalog *cat;
	struct uns_arena scratch;
	int64_t world;  /* the number of ranks whose files are read */
	int64_t config; /* world_size of fsdp_config.json; 0 = there is none */
	int64_t step;   /* by the name of global_step_7 */
	const struct uns_root *run_root;
	const char *run; /* the run's directory, below run_root; NULL = it is in none, or may not be looked into */
	unsigned run_up; /* from the checkpoint's directory to the run's */
};

static void source_fini(struct source *s)
{
	uns_arena_fini(&s->scratch);
}

/* -- names -- */

static bool is_rank_file(const struct uns_entry *e, struct uns_rank_name *out)
{
	return e->kind != UNS_KIND_DIR && uns_rank_name_parse(e->name, out);
}

static int probe(const struct uns_directory *dir)
{
	struct uns_rank_name name;
	size_t i;

	for (i = 0; i < dir->list->n; i++)
		if (is_rank_file(&dir->list->v[i], &name) && name.kind != UNS_RANK_EXTRA)
			return 90;
	return 0;
}

/* The manager's other files, without a rank of the model. */
static bool begun(const struct uns_directory *dir)
{
	struct uns_rank_name name;
	size_t i;

	for (i = 0; i < dir->list->n; i++)
		if ((is_rank_file(&dir->list->v[i], &name) && name.kind == UNS_RANK_EXTRA) ||
		    strcmp(dir->list->v[i].name, "fsdp_config.json") == 0)
			return true;
	return false;
}

/* -- small files beside and above -- */

/* A small file's bytes. 1 = read, 0 = it is not there (or is no file, or too large to be one of these). */
static int read_small(struct source *s, const struct uns_root *root, const char *path, uint64_t max_bytes,
		      struct uns_span *text, struct uns_err *err)
{
	struct uns_err why = { 0 };
	int code = path ? uns_root_read_file(root, path, max_bytes, &s->scratch, text, NULL, &why) : uns_oom(&why);

	if (code == 0)
		return 1;
	return uns_fail_if_passing(err, code, &why);
}

static int read_config(struct source *s, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	const char *path;
	struct uns_span text = { 0 };
	int64_t world;
	int code;

	if (!uns_listing_find(s->dir->list, "fsdp_config.json"))
		return 0;
	UNS_TRY(code = read_small(s, s->dir->root, uns_path_join(&s->scratch, s->dir->path, "fsdp_config.json"),
				  MAX_JSON, &text, err));
	if (code && uns_json_parse(text, &json, NULL) == -ENOMEM)
		return uns_oom(err);
	if (json && uns_json_int(json, "world_size", &world) && world > 0 && world <= UNS_RANK_MAX_WORLD) {
		s->config = world;
		return 0;
	}
	UNS_TRY_ALLOC(path = uns_path_join(&s->scratch, s->cat->path, "fsdp_config.json"), err);
	return UNS_ADD_FINDING(s->cat, err, RANK_CONFIG_UNREADABLE, .scope = UNS_SCOPE_SHARDED, .file = path,
			       .arg = { { "json", uns_more(json != NULL) } });
}

static int find_run(struct source *s, struct uns_err *err)
{
	const char *path = s->dir->path;

	s->step = UNS_UNKNOWN;
	s->run_root = s->dir->root;
	while (path && s->run_up < 2 && s->step == UNS_UNKNOWN) {
		s->step = uns_beside_named_step(s->run_root, path, "global_step_");
		UNS_TRY(uns_root_up(s->run_root, path, &s->scratch, &s->run_root, &path, err));
		s->run_up++;
	}
	s->run = s->step == UNS_UNKNOWN ? NULL : path;
	return 0;
}

/* The last step whose save has ended, which veRL's or EasyR1's tracker names. */
static int find_tracked_step(struct source *s, int64_t *step, struct uns_err *err)
{
	const char *const *name;
	struct uns_span text = { 0 };
	int code;

	*step = UNS_UNKNOWN;
	for (name = uns_rank_trackers; s->run && *name; name++) {
		UNS_TRY(code = read_small(s, s->run_root, uns_path_join(&s->scratch, s->run, *name),
					  UNS_TRACKER_MAX_BYTES, &text, err));
		if (code && uns_rank_tracker_parse(*name, text, step, NULL) == 0)
			return 0;
		*step = UNS_UNKNOWN;
	}
	return 0;
}

/* -- number of ranks -- */

static int64_t count_files(const struct source *s, enum uns_rank_kind kind, int64_t world)
{
	const struct uns_listing *list = s->dir->list;
	struct uns_rank_name name;
	int64_t n = 0;
	size_t i;

	for (i = 0; i < list->n; i++)
		n += is_rank_file(&list->v[i], &name) && name.kind == kind && name.world == world;
	return n;
}

/* The numbers of ranks that files name, smallest first, as "2 (complete) and 3 (1 of 3 model files)"; s->world: the
 * smallest. Returns how many there are. */
static size_t list_worlds(struct source *s, struct uns_text *out)
{
	const struct uns_listing *list = s->dir->list;
	struct uns_rank_name name;
	enum uns_rank_kind kind;
	int64_t world = 0, last, n;
	size_t n_worlds = 0, i;

	for (;; n_worlds++) {
		last = world;
		world = INT64_MAX;
		for (i = 0; i < list->n; i++)
			if (is_rank_file(&list->v[i], &name) && name.world > last && name.world < world)
				world = name.world;
		if (world == INT64_MAX)
			return n_worlds;
		if (!n_worlds)
			s->world = world;
		uns_text_printf(out, "%s%lld", out->len ? " and " : "", (long long)world);
		for (kind = 0; kind < UNS_RANK_KINDS; kind++) {
			n = count_files(s, kind, world);
			if (n && n < world)
				break;
		}
		if (kind < UNS_RANK_KINDS)
			uns_text_printf(out, " (%lld of %lld %s files)", (long long)n, (long long)world,
					uns_rank_kind_text[kind]);
		else
			uns_text_str(out, " (complete)");
	}
}

static int add_worlds_finding(struct source *s, enum uns_finding_id id, enum uns_scope scope, const char *found,
			      struct uns_err *err)
{
	return uns_catalog_add_finding(
		s->cat,
		UNS_FINDING(.id = id, .scope = scope, .found = uns_str(found),
			    .expected = s->config ? uns_num((uint64_t)s->config) : uns_str(NULL)),
		err);
}

static int choose_world(struct source *s, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	size_t n = list_worlds(s, &text);

	if (text.failed)
		return uns_oom(err);
	UNS_TRY(read_config(s, err));
	if (s->config && !count_files(s, UNS_RANK_MODEL, s->config) && !count_files(s, UNS_RANK_OPTIM, s->config) &&
	    !count_files(s, UNS_RANK_EXTRA, s->config))
		return add_worlds_finding(s, UNS_FOUND_RANK_WORLD_UNLIKE_CONFIG, UNS_SCOPE_ALL, text.p, err);
	if (n == 1)
		return 0;
	if (!s->config)
		return add_worlds_finding(s, UNS_FOUND_RANK_WORLDS_MIXED, UNS_SCOPE_ALL, text.p, err);
	s->world = s->config;
	return add_worlds_finding(s, UNS_FOUND_RANK_OLD_WORLDS, UNS_SCOPE_NOTE, text.p, err);
}

/* -- shards -- */

/* One file for every rank, whether it is there or not: the reader makes a finding of what is missing. */
static int name_files(struct source *s, enum uns_rank_kind kind, struct uns_rank_file **out, struct uns_err *err)
{
	struct uns_rank_file *v = UNS_NEW_N(&s->scratch, struct uns_rank_file, (size_t)s->world);
	const char *stem, *name;
	int64_t rank;

	UNS_TRY_ALLOC(v, err);
	for (rank = 0; rank < s->world; rank++) {
		stem = uns_rank_name_stem(&s->scratch, kind, (uint64_t)s->world, (uint64_t)rank);
		name = stem ? uns_arena_printf(&s->scratch, "%s.pt", stem) : NULL;
		v[rank].path = name ? uns_path_join(&s->cat->arena, s->dir->path, name) : NULL;
		v[rank].rank = (int32_t)rank;
		UNS_TRY_ALLOC(v[rank].path, err);
	}
	*out = v;
	return 0;
}

static int add_model(struct source *s, struct uns_rank_params *params, struct uns_err *err)
{
	struct uns_rank_file *files = NULL;
	struct uns_err why = { .keep = &s->scratch };

	if (!count_files(s, UNS_RANK_MODEL, s->world))
		return UNS_ADD_FINDING(s->cat, err, RANK_MODEL_NOT_SAVED);
	UNS_TRY(name_files(s, UNS_RANK_MODEL, &files, err));
	if (uns_rank_files_add_model_params(s->cat, s->dir->root, files, (size_t)s->world, params, &why) < 0)
		UNS_TRY(uns_catalog_problem_or_fail(s->cat, UNS_SCOPE_WEIGHTS, &why, err));
	/* The mesh that FSDP shards over holds all ranks. */
	if (!params->mesh_size || params->mesh_size == (uint64_t)s->world)
		return 0;
	return UNS_ADD_FINDING(s->cat, err, RANK_MESH_UNLIKE_NAMES, .scope = UNS_SCOPE_WEIGHTS,
			       .expected = uns_num((uint64_t)s->world), .found = uns_num(params->mesh_size));
}

static int add_optimizer(struct source *s, const struct uns_rank_params *params, struct uns_err *err)
{
	struct uns_rank_file *files = NULL;
	struct uns_err why = { .keep = &s->scratch };

	if (!count_files(s, UNS_RANK_OPTIM, s->world))
		return 0;
	UNS_TRY(name_files(s, UNS_RANK_OPTIM, &files, err));
	if (uns_rank_files_add_optimizer_of(s->cat, s->dir->root, files, (size_t)s->world, params, &why) < 0)
		return uns_catalog_problem_or_fail(s->cat, UNS_SCOPE_OPTIMIZER, &why, err);
	return 0;
}

static int add_extra(struct source *s, struct uns_err *err)
{
	struct uns_rank_file *files = NULL;

	if (!count_files(s, UNS_RANK_EXTRA, s->world))
		return 0;
	UNS_TRY(name_files(s, UNS_RANK_EXTRA, &files, err));
	return uns_rank_extra_add(s->cat, s->dir->root, files, (size_t)s->world, err);
}

/* fsdp_config.json as a text, to be written again for another number of ranks. */
static int add_config_value(struct source *s, uint32_t file, struct uns_err *err)
{
	struct uns_named_value v = { .name = "fsdp_config", .root = UNS_RANK_FORM, .file = file };
	struct uns_value *text = UNS_NEW(&s->cat->arena, struct uns_value);
	struct uns_span bytes = { 0 };
	int code;

	UNS_TRY_ALLOC(text, err);
	UNS_TRY(code = read_small(s, s->dir->root, s->cat->files[file].path, MAX_JSON, &bytes, err));
	if (!code)
		return 0;
	text->kind = UNS_VALUE_STR;
	UNS_TRY_ALLOC(text->bytes = uns_arena_strn(&s->cat->arena, (const char *)bytes.p, uns_span_left(&bytes)), err);
	text->n = (uint32_t)uns_span_left(&bytes);
	v.value = text;
	return uns_catalog_add_value(s->cat, &v, err);
}

/* What the managers put into directories beside their shards. Views that assemble take from there
 * what they need (facts/companions.c); those of the sharded form show it as it is. */
static int add_below(struct source *s, const char *dir, struct uns_err *err)
{
	const struct uns_entry *e = uns_listing_find(s->dir->list, dir);
	const char *below = uns_path_join(&s->scratch, s->dir->path, dir), *path, *name;
	struct uns_err why = { 0 };
	struct uns_listing list;
	uint32_t file;
	size_t i;
	int code;

	UNS_TRY_ALLOC(below, err);
	if (!e || e->kind != UNS_KIND_DIR)
		return 0;
	code = uns_list_seen(s->dir->root, s->dir->capture, below, &s->scratch, &list, &why);
	if (code < 0)
		return uns_fail_if_passing(err, code, &why);
	for (i = 0; i < list.n; i++) {
		if (list.v[i].kind == UNS_KIND_DIR)
			continue;
		path = uns_path_join(&s->cat->arena, below, list.v[i].name);
		name = uns_path_join(&s->cat->arena, dir, list.v[i].name);
		UNS_TRY_ALLOC(path && name, err);
		UNS_TRY(uns_catalog_add_file(s->cat, s->dir->root, path, &file, err));
		if (!s->cat->files[file].missing && s->cat->files[file].stat.kind == UNS_KIND_FILE)
			UNS_TRY(uns_catalog_add_companion(s->cat, name, file, true, err));
	}
	return 0;
}

/* All per-rank files belong to the sharded form, those of other numbers of ranks too. */
static int add_companions(struct source *s, struct uns_err *err)
{
	const struct uns_directory *dir = s->dir;
	struct uns_rank_name name;
	uint32_t file;
	bool is_rank;
	size_t i;

	for (i = 0; i < dir->list->n; i++) {
		is_rank = is_rank_file(&dir->list->v[i], &name);
		if (!is_rank && strcmp(dir->list->v[i].name, "fsdp_config.json") != 0)
			continue;
		UNS_TRY(uns_beside_add_shard(s->cat, dir->root, dir->path, "", dir->list->v[i].name, &file, err));
		if (!is_rank && s->config)
			UNS_TRY(add_config_value(s, file, err));
	}
	UNS_TRY(add_below(s, "huggingface", err));
	UNS_TRY(add_below(s, "lora_adapter", err));
	return uns_beside_add(s->cat, dir->root, dir->path, "", dir->list, err);
}

/* -- what no rank sees alone -- */

/* Adam keeps two moments of each parameter, both in one type. */
struct moments {
	const struct uns_tensor *avg, *sq;
};

static int add_moments_finding(struct source *s, const struct moments *m, size_t n, struct uns_err *err)
{
	const struct uns_tensor *one = m->avg ? m->avg : m->sq;
	struct uns_finding f = { .id = UNS_FOUND_RANK_MOMENT_MISSING,
				 .scope = UNS_SCOPE_OPTIMIZER,
				 .tensor = one->name,
				 .expected = uns_str(m->avg ? "exp_avg_sq" : "exp_avg"),
				 .found = uns_str(m->avg ? "exp_avg" : "exp_avg_sq"),
				 .arg = { { "more", uns_more(n - 1) } } };

	if (m->avg && m->sq) {
		f.id = UNS_FOUND_RANK_MOMENT_TYPES_DIFFER;
		f.expected = uns_str(uns_dtype_info(m->avg->dtype)->torch);
		f.found = uns_str(uns_dtype_info(m->sq->dtype)->torch);
	}
	return uns_catalog_add_finding(s->cat, &f, err);
}

static int check_moments(struct source *s, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map by_name = UNS_MAP_INIT;
	const struct uns_tensor *t = s->cat->tensors, *end = t + s->cat->n_tensors;
	struct moments *v = UNS_NEW_N(&s->scratch, struct moments, s->cat->n_tensors), *m;
	size_t n = 0, i, n_bad = 0, first = 0;

	if (uns_cover_refusal(s->cat, UNS_SCOPE_OPTIMIZER, NULL) < 0)
		return 0;
	UNS_TRY_ALLOC(v, err);
	for (; t < end; t++) {
		if (t->role != UNS_ROLE_EXP_AVG && t->role != UNS_ROLE_EXP_AVG_SQ)
			continue;
		m = uns_map_get(&by_name, t->name);
		if (!m && !uns_map_put(&by_name, t->name, m = &v[n++], NULL))
			return uns_oom(err);
		*(t->role == UNS_ROLE_EXP_AVG ? &m->avg : &m->sq) = t;
	}
	for (i = 0; i < n; i++)
		if (!v[i].avg || !v[i].sq || v[i].avg->dtype != v[i].sq->dtype)
			first = n_bad++ ? first : i;
	return n_bad ? add_moments_finding(s, &v[first], n_bad, err) : 0;
}

/* Overlaps and holes, which show only when all files are looked at together: one finding here, not one in each view. */
static int check_cover(struct source *s, enum uns_scope scope, bool (*is_part)(enum uns_role role), struct uns_err *err)
{
	const struct uns_tensor *t = s->cat->tensors, *end = t + s->cat->n_tensors;
	struct uns_err first = { .keep = &s->scratch };
	struct uns_finding f;
	struct uns_err why;
	size_t n = 0;
	int code;

	if (uns_cover_refusal(s->cat, scope, NULL) < 0)
		return 0;
	for (; t < end; t++) {
		why = (struct uns_err){ .keep = &s->scratch };
		code = is_part(t->role) ? uns_cover_check(s->cat, t, &why) : 0;
		UNS_TRY(uns_fail_if_passing(err, code, &why));
		if (code < 0 && n++ == 0)
			first = why;
	}
	if (!n)
		return 0;
	f = uns_finding_of_err(&first, scope);
	f.id = UNS_FOUND_TENSORS_NOT_COVERED;
	memset(f.arg, 0, sizeof(f.arg));
	f.arg[0] = (struct uns_finding_arg){ "cause", uns_str(first.text) };
	f.arg[1] = (struct uns_finding_arg){ "more", uns_more(n - 1) };
	return uns_catalog_add_finding(s->cat, &f, err);
}

/* -- facts -- */

/* 1 = the run's directory holds such a file; 0 = none, or it is no run. */
static int is_in_run(struct source *s, const char *name, struct uns_err *err)
{
	const char *path = s->run ? uns_path_join(&s->scratch, s->run, name) : NULL;

	if (!path)
		return s->run ? uns_oom(err) : 0;
	return uns_is_there(s->run_root, s->dir->capture, path, err);
}

/* Each of them is written last by its trainer. */
static int check_times(struct source *s, struct uns_err *err)
{
	struct uns_save_end end = { .below = s->dir->path, .root = s->run_root };
	const char *const *name;

	for (name = uns_rank_trackers; s->run && *name; name++) {
		end.path = uns_path_join(&s->cat->arena, s->run, *name);
		UNS_TRY(uns_save_times_check(s->cat, &end, err));
	}
	return 0;
}

/* fsdp_config.json is veRL's. Without it, the tracker that the run's directory holds shows which trainer wrote it. */
static int find_summary(struct source *s, struct uns_err *err)
{
	struct uns_summary *summary = &s->cat->summary;
	bool verl = uns_listing_find(s->dir->list, "fsdp_config.json");
	int64_t saved;
	int easy, tracked;

	UNS_TRY(find_run(s, err));
	UNS_TRY(easy = is_in_run(s, "checkpoint_tracker.json", err));
	UNS_TRY(tracked = is_in_run(s, "latest_checkpointed_iteration.txt", err));
	summary->format = "ranks";
	summary->family = UNS_FAMILY_RANKS;
	summary->framework = verl ? "veRL, FSDP" : easy ? "EasyR1, FSDP" : "FSDP, one file per rank";
	summary->is_pretrained = true;
	if (easy && !(verl && tracked))
		summary->tracker = UNS_TRACKER_EASYR1;
	else if (s->run && (verl || tracked))
		summary->tracker = UNS_TRACKER_VERL;
	if (summary->tracker)
		summary->tracker_up = s->run_up;
	summary->step = s->step;
	summary->world_size = s->world ? s->world : UNS_UNKNOWN;
	UNS_TRY(find_tracked_step(s, &saved, err));
	summary->finished = summary->step != UNS_UNKNOWN && saved >= summary->step;
	return 0;
}

static int open_dir(const struct uns_directory *dir, const struct uns_format_options *options, struct uns_catalog *cat,
		    struct uns_err *err)
{
	UNS_CLEANUP(source_fini) struct source s = { .dir = dir, .cat = cat };
	struct uns_rank_params params = { 0 };

	UNS_TRY(choose_world(&s, err));
	UNS_TRY(find_summary(&s, err));
	if (!cat->n_findings || cat->findings[cat->n_findings - 1].scope != UNS_SCOPE_ALL) {
		UNS_TRY(add_model(&s, &params, err));
		if (options)
			params.units = (struct uns_rank_unit_options){
				options->assume_fsdp_units,
				options->fsdp_units,
				options->fsdp_units_stale,
			};

		UNS_TRY(add_optimizer(&s, &params, err));
		UNS_TRY(add_extra(&s, err));
		UNS_TRY(check_moments(&s, err));
	}
	UNS_TRY(add_companions(&s, err));
	UNS_TRY(check_times(&s, err));
	uns_resume_find(cat);
	UNS_TRY(uns_adapter_find(cat, err));
	UNS_TRY(uns_catalog_seal(cat, err));
	UNS_TRY(check_cover(&s, UNS_SCOPE_WEIGHTS, uns_role_is_model, err));
	return check_cover(&s, UNS_SCOPE_OPTIMIZER, uns_role_is_optimizer, err);
}

const struct uns_format uns_format_ranks = {
	.name = "ranks",
	.family = UNS_FAMILY_RANKS,
	.probe = probe,
	.begun = begun,
	.open = open_dir,
	.wants_units = true,
	.marks = uns_rank_trackers,
	.marks_up = 2,
};
