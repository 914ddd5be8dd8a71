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

struct source {
	const struct uns_directory *dir;
	struct uns_catalog *cat;
	struct uns_arena scratch;
	int64_t world;  /* whose files are read */
	int64_t config; /* world_size of fsdp_config.json; 0 = there is none */
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
	int code = path ? uns_root_read_file(root, path, max_bytes, &s->scratch, text, NULL, &why)
			: uns_oom(&why);

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
	UNS_TRY(code = read_small(s, s->dir->root,
				  uns_path_join(&s->scratch, s->dir->path, "fsdp_config.json"), MAX_JSON,
				  &text, err));
	if (code && uns_json_parse(text, &json, NULL) == -ENOMEM)
		return uns_oom(err);
	if (json && uns_json_int(json, "world_size", &world) && world > 0 &&
	    world <= UNS_RANK_MAX_WORLD) {
		s->config = world;
		return 0;
	}
	path = uns_path_join(&s->scratch, s->cat->path, "fsdp_config.json");
	if (!path)
		return uns_oom(err);
	return uns_catalog_add_finding(s->cat,
				       UNS_FINDING(.id = UNS_FOUND_RANK_CONFIG_UNREADABLE,
						   .scope = UNS_SCOPE_SHARDED, .file = path,
						   .arg = { { "json", uns_more(json != NULL) } }),
				       err);
}

static int64_t step_of_name(const struct uns_root *root, const char *path)
{
	unsigned long long n;

	if (uns_str_number(uns_root_name(root, path), "global_step_", "", &n) && n <= INT64_MAX)
		return (int64_t)n;
	return UNS_UNKNOWN;
}

/* Where a checkpoint of RUN/global_step_7/actor, or RUN/global_step_7 itself, is in its run. */
struct in_run {
	int64_t step;
	unsigned up; /* from the checkpoint's directory to the run's */
	const struct uns_root *root;
	const char *run; /* below root; NULL = it is in none, or in one that is not to be looked into */
};

static int find_run(struct source *s, struct in_run *out, struct uns_err *err)
{
	const char *path = s->dir->path;

	*out = (struct in_run){ .step = UNS_UNKNOWN, .root = s->dir->root };
	while (path && out->up < 2 && out->step == UNS_UNKNOWN) {
		out->step = step_of_name(out->root, path);
		UNS_TRY(uns_root_up(out->root, path, &s->scratch, &out->root, &path, err));
		out->up++;
	}
	out->run = out->step == UNS_UNKNOWN ? NULL : path;
	return 0;
}

/* The last step whose save has ended, as either family's tracker says. */
static int tracked_step(struct source *s, const struct in_run *in, int64_t *step, struct uns_err *err)
{
	const char *const *name = uns_rank_trackers;
	struct uns_span text = { 0 };
	int code;

	*step = UNS_UNKNOWN;
	for (; *name; name++) {
		UNS_TRY(code = read_small(s, in->root, uns_path_join(&s->scratch, in->run, *name),
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

static int64_t next_world(const struct source *s, int64_t last)
{
	const struct uns_listing *list = s->dir->list;
	int64_t next = INT64_MAX;
	struct uns_rank_name name;
	size_t i;

	for (i = 0; i < list->n; i++)
		if (is_rank_file(&list->v[i], &name) && name.world > last && name.world < next)
			next = name.world;
	return next;
}

/* "2 (complete)", "3 (1 of 3 model files)" */
static void add_world(const struct source *s, int64_t world, struct uns_text *out)
{
	enum uns_rank_kind kind;
	int64_t n;

	uns_text_printf(out, "%s%lld", out->len ? " and " : "", (long long)world);
	for (kind = 0; kind < UNS_RANK_KINDS; kind++) {
		n = count_files(s, kind, world);
		if (n && n < world) {
			uns_text_printf(out, " (%lld of %lld %s files)", (long long)n,
					(long long)world, uns_rank_kind_text[kind]);
			return;
		}
	}
	uns_text_str(out, " (complete)");
}

/* The numbers of ranks that files name, smallest first. */
static size_t list_worlds(struct source *s, struct uns_text *out)
{
	int64_t world = 0;
	size_t n = 0;

	while ((world = next_world(s, world)) != INT64_MAX) {
		add_world(s, world, out);
		if (n++ == 0)
			s->world = world;
	}
	return n;
}

static bool has_any(const struct source *s, int64_t world)
{
	return count_files(s, UNS_RANK_MODEL, world) || count_files(s, UNS_RANK_OPTIM, world) ||
	       count_files(s, UNS_RANK_EXTRA, world);
}

static int tell_worlds(struct source *s, enum uns_finding_id id, enum uns_scope scope,
		       const char *found, struct uns_err *err)
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
	if (s->config && !has_any(s, s->config))
		return tell_worlds(s, UNS_FOUND_RANK_WORLD_UNLIKE_CONFIG, UNS_SCOPE_ALL, text.p,
				   err);
	if (n == 1)
		return 0;
	if (!s->config)
		return tell_worlds(s, UNS_FOUND_RANK_WORLDS_MIXED, UNS_SCOPE_ALL, text.p, err);
	s->world = s->config;
	return tell_worlds(s, UNS_FOUND_RANK_OLD_WORLDS, UNS_SCOPE_NOTE, text.p, err);
}

/* -- shards -- */

/* One file for every rank, whether it is there or not: what is missing is told by the reader. */
static int name_files(struct source *s, enum uns_rank_kind kind, struct uns_rank_file **out,
		      struct uns_err *err)
{
	struct uns_rank_file *v = UNS_NEW_N(&s->scratch, struct uns_rank_file, (size_t)s->world);
	const char *stem, *name;
	int64_t rank;

	if (!v)
		return uns_oom(err);
	for (rank = 0; rank < s->world; rank++) {
		stem = uns_rank_name_stem(&s->scratch, kind, (uint64_t)s->world, (uint64_t)rank);
		name = stem ? uns_arena_printf(&s->scratch, "%s.pt", stem) : NULL;
		v[rank].path = name ? uns_path_join(&s->cat->arena, s->dir->path, name) : NULL;
		v[rank].rank = (int32_t)rank;
		if (!v[rank].path)
			return uns_oom(err);
	}
	*out = v;
	return 0;
}

static int add_model(struct source *s, struct uns_rank_params *params, struct uns_err *err)
{
	struct uns_rank_file *files = NULL;
	struct uns_err why = { .keep = &s->scratch };

	if (!count_files(s, UNS_RANK_MODEL, s->world))
		return uns_catalog_add_finding(
			s->cat, UNS_FINDING(.id = UNS_FOUND_RANK_MODEL_NOT_SAVED), err);
	UNS_TRY(name_files(s, UNS_RANK_MODEL, &files, err));
	if (uns_rank_files_add_model_params(s->cat, s->dir->root, files, (size_t)s->world, params,
					    &why) < 0)
		return uns_catalog_problem_or_fail(s->cat, UNS_SCOPE_WEIGHTS, &why, err);
	return 0;
}

static int add_optimizer(struct source *s, const struct uns_rank_params *params,
			 struct uns_err *err)
{
	struct uns_rank_file *files = NULL;
	struct uns_err why = { .keep = &s->scratch };

	if (!count_files(s, UNS_RANK_OPTIM, s->world))
		return 0;
	UNS_TRY(name_files(s, UNS_RANK_OPTIM, &files, err));
	if (uns_rank_files_add_optimizer_of(s->cat, s->dir->root, files, (size_t)s->world, params,
					    &why) < 0)
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

/* As a text, to be written again for another number of ranks. */
static int keep_config(struct source *s, uint32_t file, struct uns_err *err)
{
	struct uns_named_value v = { .name = "fsdp_config", .root = UNS_RANK_FORM, .file = file };
	struct uns_value *text = UNS_NEW(&s->cat->arena, struct uns_value);
	struct uns_span bytes = { 0 };
	int code;

	if (!text)
		return uns_oom(err);
	UNS_TRY(code = read_small(s, s->dir->root, s->cat->files[file].path, MAX_JSON, &bytes, err));
	if (!code)
		return 0;
	text->kind = UNS_VALUE_STR;
	text->bytes = uns_arena_strn(&s->cat->arena, (const char *)bytes.p, uns_span_left(&bytes));
	if (!text->bytes)
		return uns_oom(err);
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

	if (!below)
		return uns_oom(err);
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
		if (!path || !name)
			return uns_oom(err);
		UNS_TRY(uns_catalog_add_file(s->cat, s->dir->root, path, &file, err));
		if (!s->cat->files[file].missing && s->cat->files[file].stat.kind == UNS_KIND_FILE)
			UNS_TRY(uns_catalog_add_companion(s->cat, name, file, true, err));
	}
	return 0;
}

/* All per-rank files belong to the sharded form, those of other numbers of ranks too. */
static int add_companions(struct source *s, struct uns_err *err)
{
	const struct uns_listing *list = s->dir->list;
	struct uns_rank_name name;
	const char *path;
	uint32_t file;
	bool is_rank;
	size_t i;

	for (i = 0; i < list->n; i++) {
		is_rank = is_rank_file(&list->v[i], &name);
		if (!is_rank && strcmp(list->v[i].name, "fsdp_config.json") != 0)
			continue;
		path = uns_path_join(&s->cat->arena, s->dir->path, list->v[i].name);
		if (!path)
			return uns_oom(err);
		UNS_TRY(uns_catalog_add_file(s->cat, s->dir->root, path, &file, err));
		UNS_TRY(uns_catalog_add_companion(s->cat, uns_path_name(path), file, true, err));
		if (!is_rank && s->config)
			UNS_TRY(keep_config(s, file, err));
	}
	UNS_TRY(add_below(s, "huggingface", err));
	UNS_TRY(add_below(s, "lora_adapter", err));
	return uns_beside_add(s->cat, s->dir->root, s->dir->path, "", list, err);
}

/* -- what no rank sees alone -- */

/* The mesh that FSDP shards over holds all ranks. */
static int check_mesh(struct source *s, const struct uns_rank_params *params, struct uns_err *err)
{
	if (!params->mesh_size || params->mesh_size == (uint64_t)s->world)
		return 0;
	return uns_catalog_add_finding(s->cat,
				       UNS_FINDING(.id = UNS_FOUND_RANK_MESH_UNLIKE_NAMES,
						   .scope = UNS_SCOPE_WEIGHTS,
						   .expected = uns_num((uint64_t)s->world),
						   .found = uns_num(params->mesh_size)),
				       err);
}

/* Adam keeps two moments of each parameter, both in one type. */
struct moments {
	const struct uns_tensor *avg, *sq;
};

/* Into `by_name`, and in order into `v` (of as many as there are tensors). */
static int find_moments(struct source *s, struct uns_map *by_name, struct moments *v, size_t *n)
{
	const struct uns_tensor *t = s->cat->tensors, *end = t + s->cat->n_tensors;
	struct moments *m;

	for (*n = 0; t < end; t++) {
		if (t->role != UNS_ROLE_EXP_AVG && t->role != UNS_ROLE_EXP_AVG_SQ)
			continue;
		m = uns_map_get(by_name, t->name);
		if (!m && !uns_map_put(by_name, t->name, m = &v[(*n)++], NULL))
			return -ENOMEM;
		*(t->role == UNS_ROLE_EXP_AVG ? &m->avg : &m->sq) = t;
	}
	return 0;
}

static int tell_moments(struct source *s, const struct moments *m, size_t n, struct uns_err *err)
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
	struct moments *v = UNS_NEW_N(&s->scratch, struct moments, s->cat->n_tensors);
	size_t n, i, n_bad = 0, first = 0;

	if (uns_cover_refusal(s->cat, UNS_SCOPE_OPTIMIZER, NULL) < 0)
		return 0;
	if (!v || find_moments(s, &by_name, v, &n) < 0)
		return uns_oom(err);
	for (i = 0; i < n; i++) {
		if (v[i].avg && v[i].sq && v[i].avg->dtype == v[i].sq->dtype)
			continue;
		first = n_bad++ ? first : i;
	}
	return n_bad ? tell_moments(s, &v[first], n_bad, err) : 0;
}

/* Overlaps and holes that no single file tells: once, not in every view. */
static int check_cover(struct source *s, enum uns_scope scope, bool (*is_part)(enum uns_role role),
		       struct uns_err *err)
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
static int is_in_run(struct source *s, const struct in_run *in, const char *name, struct uns_err *err)
{
	const char *path = in->run ? uns_path_join(&s->scratch, in->run, name) : NULL;
	struct uns_err why = { 0 };
	struct uns_stat st;
	int code;

	if (!path)
		return in->run ? uns_oom(err) : 0;
	code = uns_stat_seen(in->root, s->dir->capture, path, &st, &why);
	return code == 0 ? 1 : uns_fail_if_passing(err, code, &why);
}

/* fsdp_config.json is veRL's; without it, a tracker tells whose trainer keeps one here. */
static int find_framework(struct source *s, const struct in_run *in, struct uns_err *err)
{
	bool verl = uns_listing_find(s->dir->list, "fsdp_config.json");
	struct uns_summary *summary = &s->cat->summary;
	int easy, tracked;

	UNS_TRY(easy = is_in_run(s, in, "checkpoint_tracker.json", err));
	UNS_TRY(tracked = is_in_run(s, in, "latest_checkpointed_iteration.txt", err));
	summary->framework = verl ? "veRL, FSDP" : easy ? "EasyR1, FSDP" : "FSDP, one file per rank";
	if (easy && !(verl && tracked))
		summary->tracker = UNS_TRACKER_EASYR1;
	else if (in->run && (verl || tracked))
		summary->tracker = UNS_TRACKER_VERL;
	return 0;
}

/* Each of them is written last by its trainer. */
static int check_times(struct source *s, struct uns_err *err)
{
	struct uns_save_end end = { .below = s->dir->path };
	const char *const *name;
	struct in_run in;

	UNS_TRY(find_run(s, &in, err));
	end.root = in.root;
	for (name = uns_rank_trackers; in.run && *name; name++) {
		end.path = uns_path_join(&s->cat->arena, in.run, *name);
		UNS_TRY(uns_save_times_check(s->cat, &end, err));
	}
	return 0;
}

static int find_summary(struct source *s, struct uns_err *err)
{
	struct uns_summary *summary = &s->cat->summary;
	int64_t saved = UNS_UNKNOWN;
	struct in_run in;

	UNS_TRY(find_run(s, &in, err));
	summary->format = "ranks";
	summary->family = UNS_FAMILY_RANKS;
	summary->is_pretrained = true;
	UNS_TRY(find_framework(s, &in, err));
	if (summary->tracker)
		summary->tracker_up = in.up;
	summary->step = in.step;
	summary->world_size = s->world ? s->world : UNS_UNKNOWN;
	if (in.run)
		UNS_TRY(tracked_step(s, &in, &saved, err));
	summary->finished = summary->step != UNS_UNKNOWN && saved >= summary->step;
	return 0;
}

static bool is_refused(const struct uns_catalog *cat)
{
	return cat->n_findings && cat->findings[cat->n_findings - 1].scope == UNS_SCOPE_ALL;
}

static int open_dir(const struct uns_directory *dir, const struct uns_format_options *options,
		    struct uns_catalog *cat, struct uns_err *err)
{
	UNS_CLEANUP(source_fini) struct source s = { .dir = dir, .cat = cat };
	struct uns_rank_params params = { 0 };

	UNS_TRY(choose_world(&s, err));
	UNS_TRY(find_summary(&s, err));
	if (!is_refused(cat)) {
		UNS_TRY(add_model(&s, &params, err));
		if (options)
			params.units = (struct uns_rank_unit_options){
				options->assume_fsdp_units,
				options->fsdp_units,
				options->fsdp_units_stale,
			};
		UNS_TRY(check_mesh(&s, &params, err));
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
