/* The texts of .unshard/: of the mount as a whole and of one checkpoint; and unshard_describe,
 * which gives the same. */
#include "paths/info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "files/describe.h"
#include "files/layout_map.h"
#include "files/tree_map.h"
#include "files/attributes.h"
#include "io/mounts.h"
#include "model/read_cost.h"
#include "paths/forms.h"
#include "session/reasons.h"
#include "session/resumes.h"
#include "session/shows.h"

const char *const root_info_names[] = {
	"errors.log", "metrics.prom", "problems.txt", "stats.json", "usage.json", NULL
};
const char *const info_names[] = { "info.json", "problems.txt", "provenance.json", "tensors.json", NULL };

/* -- the mount -- */

enum { MOST_FIGURES = 48 };

static size_t figures(struct unshard *u, struct uns_figure *out)
{
	struct uns_engine_stats s;
	uint64_t snapshot_bytes, n_directories;

	uns_engine_stats(u->engine, &s);
	pthread_mutex_lock(&u->lock);
	snapshot_bytes = u->snapshots.bytes + u->snapshots.contents.bytes;
	n_directories = u->records.map.n;
	pthread_mutex_unlock(&u->lock);
#define FIGURE(name, help, value, counter) { name, help, value, counter, false }
#define FOR_PEOPLE(name, value)            { name, "", value, false, true }
#define ATOMIC(value)                      __atomic_load_n(&(value), __ATOMIC_RELAXED)
	const struct uns_figure all[] = {
		FIGURE("opens", "files opened", ATOMIC(u->n_opens), true),
		FIGURE("reads", "read requests served", ATOMIC(u->n_reads), true),
		FIGURE("read_bytes", "bytes returned to readers", ATOMIC(u->n_read_bytes), true),
		FIGURE("errors", "reads that failed (see errors.log)", ATOMIC(u->n_errors), true),
		FIGURE("catalogs_opened", "checkpoints whose metadata files were read", ATOMIC(u->memo.n_opened), true),
		FIGURE("catalogs_remembered", "checkpoints whose metadata came from the store",
		       ATOMIC(u->memo.n_remembered), true),
		FIGURE("catalogs_from_memos", "checkpoints whose metadata came from a shared memo",
		       ATOMIC(u->memos.n_used), true),
		FIGURE("source_looks", "names opened, listed or stat'ed in SOURCE", uns_root_looks(u->root), true),
		FIGURE("source_reads", "reads of source files", s.source_reads, true),
		FIGURE("source_read_bytes", "bytes read from source files", s.source_read_bytes, true),
		FIGURE("direct_read_bytes",
		       "bytes of these that were read past the page cache, for a GPU or with -o reads=direct",
		       s.direct_read_bytes, true),
		FIGURE("ordered_read_bytes", "bytes of these that were read one read of a shard at a time",
		       s.ordered_read_bytes, true),
		FIGURE("items_resolved", "shard item headers read", s.items_resolved, true),
		FIGURE("decoded_pieces", "pieces decompressed or made dense", s.decoded_pieces, true),
		FIGURE("decoded_bytes", "bytes of decoded pieces", s.decoded_bytes, true),
		FIGURE("crc_exact", "CRCs in torch files that are right", s.crc_exact, true),
		FIGURE("crc_zero", "CRCs in torch files left 0 (not known; -o crc=exact computes them)", s.crc_zero,
		       true),
		FIGURE("crc_done", "bytes read to compute CRCs", s.crc_done_bytes, true),
		FIGURE("crc_total", "bytes that had to be read to compute CRCs", s.crc_total_bytes, true),
		FIGURE("stale", "reads refused because a source changed", s.stale, true),
		FIGURE("io_errors", "source reads that failed", s.io_errors, true),
		FIGURE("seals_made", "checkpoints sealed", ATOMIC(u->n_seals), true),
		FIGURE("seal_read_bytes", "bytes read to seal checkpoints", ATOMIC(u->seal_read_bytes), true),
		FIGURE("seals_differ", "checkpoints that are not what was sealed, at the last look",
		       ATOMIC(u->n_seals_differ), false),
		FIGURE("not_sealed", "checkpoints that are damaged or cannot be read, so not sealed, at the last look",
		       ATOMIC(u->n_not_sealed), false),
		FIGURE("cache_bytes", "decoded pieces in memory", s.cache_bytes, false),
		FIGURE("spill_bytes", "decoded pieces spilled to cache_dir", s.spill_bytes, false),
		FIGURE("open_files", "source files held open", s.open_files, false),
		FIGURE("snapshot_bytes", "catalogs, trees and listings of files in memory", snapshot_bytes, false),
		FIGURE("directories", "directories of SOURCE examined", n_directories, false),
		FOR_PEOPLE("read_p50_us", usage_percentile_us(&u->usage, 50)),
		FOR_PEOPLE("read_p90_us", usage_percentile_us(&u->usage, 90)),
		FOR_PEOPLE("read_p99_us", usage_percentile_us(&u->usage, 99)),
		FOR_PEOPLE("started", (uint64_t)u->usage.started_wall_ns / 1000000000),
	};
#undef FIGURE
#undef FOR_PEOPLE
#undef ATOMIC
	_Static_assert(sizeof(all) <= MOST_FIGURES * sizeof(*all), "there is room for all figures");

	memcpy(out, all, sizeof(all));
	return sizeof(all) / sizeof(*all);
}

/* Which file systems are read in which way. One that an option names, or the file system's type, holds for all. */
static size_t ways(struct unshard *u, struct uns_way_figure *out)
{
	struct uns_way_of of[UNS_WAYS_STORAGES];
	const size_t n = uns_engine_ways(u->engine, u->top.id.dev, of);
	size_t i;

	for (i = 0; i < n; i++) {
		out[i] = (struct uns_way_figure){ .way = uns_way_name(of[i].way) };
		snprintf(out[i].device, sizeof(out[i].device), "%u:%u", major(of[i].dev), minor(of[i].dev));
		uns_mount_type(major(of[i].dev), minor(of[i].dev), out[i].type, sizeof(out[i].type));
	}
	return n;
}

static void known_problem(const struct dir_record *record, const struct uns_finding *why, struct uns_text *out)
{
	const size_t from = out->len;

	uns_text_printf(out, "%s: ", *record->path ? record->path : ".");
	uns_finding_print(why, out);
	uns_text_end_line(out, from);
}

/* That a view does not go with a checkpoint is no problem of it. */
static bool is_problem(const struct verdict *v)
{
	return v->why && v->code != -ENOTSUP;
}

static bool is_told(const struct dir_record *record, const struct verdict *of)
{
	const struct verdict *v = record->verdict;

	while (v != of && !(is_problem(v) && uns_finding_equal(v->why, of->why)))
		v = v->next;
	return v != of;
}

/* Of one checkpoint; lock held. While it is saved, what is missing is no problem yet. */
static void known_problems_of(struct unshard *u, const struct dir_record *record, struct uns_text *out)
{
	const struct verdict *v;

	if ((!record->finished || record->overwritten || session_is_remote(u)) && record_unsettled(u, record))
		return;
	if (record->open_why)
		known_problem(record, record->open_why, out);
	for (v = record->verdict; v; v = v->next)
		if (is_problem(v) && !is_told(record, v))
			known_problem(record, v->why, out);
}

static bool has_problems(const struct dir_record *record)
{
	const struct verdict *v = record->verdict;

	while (v && !is_problem(v))
		v = v->next;
	return record->open_why || v;
}

/* The paths of checkpoints with problems; NULL = out of memory. */
static const char **problem_paths(struct unshard *u, struct uns_arena *arena, size_t *n)
{
	const struct dir_record *record;
	const char **path;
	size_t at = 0;
	void *value;

	*n = 0;
	pthread_mutex_lock(&u->lock);
	path = UNS_NEW_N(arena, const char *, u->records.map.n + 1);
	while (path && uns_map_next(&u->records.map, &at, NULL, &value)) {
		record = value;
		if (record->is.format && has_problems(record) && !(path[(*n)++] = uns_arena_str(arena, record->path)))
			path = NULL;
	}
	pthread_mutex_unlock(&u->lock);
	return path;
}

/* What is known so far of the checkpoints that exist: one line for each checkpoint and problem. */
static void known_problems(struct unshard *u, struct uns_text *out)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct dir_record *record;
	size_t n, i;
	const char **path = problem_paths(u, &arena, &n);

	store_problem(&u->store, out);
	out->failed |= !path;
	for (i = 0; path && i < n; i++) {
		if (record_get(u, path[i], &record, NULL) < 0)
			continue;
		pthread_mutex_lock(&u->lock);
		known_problems_of(u, record, out);
		pthread_mutex_unlock(&u->lock);
		record_put(u, record);
	}
}

static void root_stats(struct unshard *u, struct uns_text *out)
{
	struct uns_figure f[MOST_FIGURES];
	struct uns_way_figure w[UNS_WAYS_STORAGES];

	uns_figures_json(out, f, figures(u, f), w, ways(u, w));
}

static void root_metrics(struct unshard *u, struct uns_text *out)
{
	struct uns_figure f[MOST_FIGURES];

	uns_figures_metrics(out, f, figures(u, f));
	usage_metrics(&u->usage, out);
}

int root_info_text(struct unshard *u, const char *name, struct uns_text *out)
{
	if (strcmp(name, "stats.json") == 0)
		root_stats(u, out);
	else if (strcmp(name, "metrics.prom") == 0)
		root_metrics(u, out);
	else if (strcmp(name, "usage.json") == 0)
		usage_json(&u->usage, out);
	else if (strcmp(name, "errors.log") == 0)
		uns_ring_print(&u->errors, out);
	else
		known_problems(u, out);
	return out->failed ? -ENOMEM : 0;
}

struct uns_access root_info_access(const char *name)
{
	const bool figures = strcmp(name, "stats.json") == 0 || strcmp(name, "metrics.prom") == 0;

	return (struct uns_access){ geteuid(), getegid(), figures ? 0444 : 0400 };
}

/* -- one checkpoint -- */

int info_access(struct unshard *u, struct dir_record *record, struct uns_access *out, struct uns_err *err)
{
	struct uns_err why = { 0 };
	struct snapshot *snap;
	int code = snapshot_get(u, record, &snap, &why);

	if (code < 0) {
		*out = uns_access_of(&record->is.stat);
		uns_access_demand(out, &record->is.stat);
		return uns_fail_if_passing(err, code, &why);
	}
	code = uns_attributes_base(snap->cat, &record->is.stat, out, err);
	snapshot_put(u, snap);
	return code;
}

struct views {
	struct uns_arena arena;
	struct uns_view_verdict *v;
	size_t n;
};

static size_t count_listed(void)
{
	size_t i, k, n = 0;

	for (i = 0; uns_views[i]; i++) {
		n += uns_views[i]->placeholder && !uns_views[i]->of_run;
		for (k = 0; uns_views[i]->listed[k]; k++)
			n++;
	}
	return n;
}

static char *expand_usage(struct uns_arena *arena, const char *usage, const char *path)
{
	const char *at = strstr(usage, "%s");

	if (!at)
		return uns_arena_str(arena, usage);
	return uns_arena_printf(arena, "%.*s%s%s", (int)(at - usage), usage, path, at + 2);
}

/* Where verdicts are collected. usage_path: where the mount is, for the lines to write. */
struct asked {
	struct unshard *u;
	struct dir_record *record;
	struct snapshot *snap;
	const char *usage_path;
};

/* The checkpoint's path below the view: its own, or that of the one file it appears as. */
static const char *shown_path(const struct asked *a, const struct uns_view *view, struct uns_arena *arena)
{
	struct form_names names;

	if (!forms_has_file(view, a->record))
		return a->record->path;
	if (forms_names(a->u, view, a->record, arena, &names, NULL) < 0)
		return NULL;
	return uns_path_join(arena, uns_path_parent(arena, a->record->path), names.file);
}

static const char *usage_line(const struct asked *a, const struct uns_view *view, uint64_t parameter, const char *name,
			      struct uns_arena *arena)
{
	const struct uns_view_input in = show_input(a->u, a->snap);
	const char *below = shown_path(a, view, arena), *path;

	if (!below)
		return NULL;
	path = uns_arena_printf(arena, "%s/%s%s%s", a->usage_path ? a->usage_path : "MOUNTPOINT",
				a->u->opt.only ? "" : name, a->u->opt.only || !*below ? "" : "/", below);
	if (!path)
		return NULL;
	return expand_usage(arena, view->usage(&in, parameter, forms_has_file(view, a->record)), path);
}

static int copy_notes(const struct uns_vtree *from, struct uns_arena *arena, struct uns_view_verdict *row,
		      struct uns_err *err)
{
	const char **v = UNS_NEW_N(arena, const char *, from->n_notes);
	size_t i;

	UNS_TRY_ALLOC(v, err);
	for (i = 0; i < from->n_notes; i++) {
		UNS_TRY_ALLOC(v[i] = uns_arena_str(arena, from->note[i]), err);
	}
	row->note = v;
	row->n_notes = from->n_notes;
	return 0;
}

/* What reading costs, of a view that is asked for alone: of all views, their trees would be made. */
static int note_cost(const struct asked *a, const struct uns_view *view, uint64_t number, struct uns_vtree *out,
		     struct uns_err *err)
{
	const struct shown *shown;
	struct uns_read_cost cost;
	uint64_t hundredths;

	if (a->u->opt.only != view)
		return 0;
	UNS_TRY(show_tree(a->u, a->record, a->snap, view, number, &shown, err));
	cost = uns_read_cost_of(&shown->tree, a->snap->cat);
	if (!cost.n_computed || !cost.shown_bytes)
		return 0;
	hundredths = (cost.read_bytes * 100 + cost.shown_bytes / 2) / cost.shown_bytes;
	return uns_vtree_note(
		out, err,
		"%zu tensors are computed when they are read: in all, %llu.%02llu bytes are read for each "
		"byte shown",
		cost.n_computed, (unsigned long long)hundredths / 100, (unsigned long long)hundredths % 100);
}

static int notes_of(const struct asked *a, const struct uns_view *view, const char *parameter, uint64_t number,
		    struct uns_arena *arena, struct uns_view_verdict *row, struct uns_err *err)
{
	struct uns_findings misses = { 0 };
	struct uns_vtree told = { 0 };
	struct resume resume;
	bool known;
	int code = resumes_read(a->u, a->record, a->snap, view, parameter, number, arena, &resume, err);

	row->resume = resume.v;
	row->n_resume = resume.n;
	if (code == 0)
		code = resumes_judge(&resume, a->record, true, arena, &misses, &known, err);
	if (code == 0)
		code = uns_vtree_note_findings(&told, misses.v, misses.n, err);
	if (code == 0)
		code = show_notes(a->u, a->record, a->snap, view, &told, err);
	if (code == 0)
		code = note_cost(a, view, number, &told, err);
	if (code == 0)
		code = copy_notes(&told, arena, row, err);
	uns_vtree_fini(&told);
	return code;
}

/* A view that lists a checkpoint which it cannot show names the reason in a file. Not every reason is damage. */
static const char *state_text(enum show_state state, const struct uns_err *why)
{
	const bool unsupported = state == SHOW_DAMAGED && why->finding && why->finding->code == -ENOTSUP;

	return unsupported ? "unsupported" : show_state_text(state);
}

/* parameter: as it is shown; number: what it means; noted: see show_state_told. */
static int verdict_of(const struct asked *a, const struct uns_view *view, const char *parameter, uint64_t number,
		      bool *noted, struct views *out, struct uns_err *err)
{
	struct uns_view_verdict *row = &out->v[out->n];
	struct uns_err why = { .keep = &out->arena };
	enum show_state state;
	int code;

	row->view = uns_arena_printf(&out->arena, "%s%s%s", view->name, *parameter ? "-" : "", parameter);
	UNS_TRY_ALLOC(row->view, err);
	code = show_state_told(a->u, a->record, a->snap, view, number, noted, &state, &why);
	if (code < 0)
		return uns_fail_copy(err, &why);
	row->state = state_text(state, &why);
	if (state != SHOW_OK) {
		row->why = uns_arena_str(&out->arena, why.text);
		row->why_id = why.finding ? uns_finding_name(why.finding->id) : NULL;
	} else {
		row->usage = usage_line(a, view, number, row->view, &out->arena);
	}
	if (!row->why && !row->usage)
		return uns_oom(err);
	out->n++;
	return state == SHOW_OK ? notes_of(a, view, parameter, number, &out->arena, row, err) : 0;
}

static int all_verdicts(const struct asked *a, struct views *out, struct uns_err *err)
{
	const int64_t ranks = a->snap->cat->summary.world_size;
	const struct uns_view *view;
	bool noted = false;
	uint64_t number;
	size_t i, k;

	UNS_TRY_ALLOC(out->v = UNS_NEW_N(&out->arena, struct uns_view_verdict, count_listed()), err);
	if (a->u->opt.only)
		return verdict_of(a, a->u->opt.only, a->u->opt.only_text, a->u->opt.only_parameter, &noted, out, err);
	for (i = 0; uns_views[i]; i++) {
		view = uns_views[i];
		noted = false;
		for (k = 0; view->listed[k]; k++)
			if (view->parse(view->listed[k], &number))
				UNS_TRY(verdict_of(a, view, view->listed[k], number, &noted, out, err));
		/* At as many ranks as saved it. What is made of several checkpoints is found out where it is asked for:
		 * the others would have to be opened. */
		if (view->placeholder && !view->of_run)
			UNS_TRY(verdict_of(a, view, view->placeholder, ranks > 0 ? (uint64_t)ranks : 1, &noted, out,
					   err));
	}
	return 0;
}

static void views_fini(struct views *v)
{
	uns_arena_fini(&v->arena);
}

/* A checkpoint that cannot even be opened still has a path, a format and a reason. */
static void failed_json(const struct dir_record *record, const struct uns_finding *why, struct uns_text *out)
{
	uns_text_str(out, "{\"path\":");
	uns_text_json_str(out, record->path);
	uns_text_str(out, ",\"format\":");
	uns_text_json_str(out, record->is.format->name);
	uns_text_str(out, ",\"views\":{},\"problems\":[");
	uns_describe_finding(out, why);
	uns_text_str(out, "]}\n");
}

/* What is wrong with the checkpoint, as unshard_problems has it, and which config.json is missing or not used. */
static int problems_of(struct unshard *u, struct dir_record *record, const struct snapshot *snap,
		       struct uns_arena *arena, struct uns_findings *out, struct uns_err *err)
{
	UNS_CLEANUP(reasons_fini) struct reasons reasons = { 0 };
	const struct uns_findings *notes = &snap->beside.notes;
	size_t i;

	UNS_TRY(reasons_find(u, record, &reasons, err));
	if (reasons.moment.code)
		return uns_fail_copy(err, &reasons.moment);
	for (i = 0; i < reasons.n; i++)
		UNS_TRY(uns_findings_add(out, arena, reasons.v[i].finding, err));
	for (i = 0; i < notes->n; i++)
		if (notes->v[i].id == UNS_FOUND_NAMED_MODEL_NOT_FOUND ||
		    (snap->cat->summary.wants_config && notes->v[i].id != UNS_FOUND_FILES_BORROWED))
			UNS_TRY(uns_findings_add(out, arena, &notes->v[i], err));
	return 0;
}

int info_json(struct unshard *u, struct dir_record *record, enum unshard_what what, const char *usage_path,
	      struct uns_text *out, struct uns_err *err)
{
	UNS_CLEANUP(views_fini) struct views views = { 0 };
	struct uns_err why = { .keep = &views.arena };
	struct uns_findings problems = { 0 };
	const struct uns_finding *f;
	struct snapshot *snap;
	int code = snapshot_get(u, record, &snap, &why);

	if (code < 0 && !uns_code_is_finding(code))
		return uns_fail_copy(err, &why);
	if (code < 0) {
		f = reason_of_failure(record, &why, &views.arena);
		if (f)
			failed_json(record, f, out);
		return f && !out->failed ? 0 : uns_oom(err);
	}
	if (what == UNSHARD_TENSORS) {
		uns_describe_tensors(out, snap->cat);
	} else if (what == UNSHARD_MAP) {
		uns_layout_map_print(out, snap->cat);
	} else {
		code = all_verdicts(&(struct asked){ u, record, snap, usage_path }, &views, err);
		if (code == 0)
			code = problems_of(u, record, snap, &views.arena, &problems, err);
		if (code == 0)
			uns_describe_info(out, snap->cat, views.v, views.n, &problems);
	}
	snapshot_put(u, snap);
	return code == 0 && out->failed ? uns_oom(err) : code;
}

typedef void print_tree(struct uns_text *out, const struct uns_catalog *cat, const struct uns_vtree *tree);

static int tree_text(struct unshard *u, struct dir_record *record, const struct uns_view *view, uint64_t parameter,
		     print_tree *print, struct uns_text *out, struct uns_err *err)
{
	const struct shown *shown;
	struct snapshot *snap;
	int code;

	UNS_TRY(snapshot_get(u, record, &snap, err));
	code = show_tree(u, record, snap, view, parameter, &shown, err);
	if (code == 0)
		print(out, snap->cat, &shown->tree);
	snapshot_put(u, snap);
	return code == 0 && out->failed ? uns_oom(err) : code;
}

/* CHECKPOINT/.unshard/problems.txt of one view: what is wrong, then what that view's tree notes. */
static int view_problems(struct unshard *u, struct dir_record *record, const struct uns_view *view, uint64_t parameter,
			 struct uns_text *out, struct uns_err *err)
{
	UNS_CLEANUP(reasons_fini) struct reasons reasons = { 0 };
	const struct shown *shown;
	struct uns_err why = { 0 };
	struct snapshot *snap;
	size_t i, from;
	int code;

	UNS_TRY(reasons_find(u, record, &reasons, err));
	for (i = 0; i < reasons.n; i++) {
		from = out->len;
		reason_print(&reasons.v[i], out);
		uns_text_printf(out, " [%s]", uns_finding_name(reasons.v[i].finding->id));
		uns_text_end_line(out, from);
	}
	if (snapshot_get(u, record, &snap, NULL) < 0)
		return 0;
	code = show_tree(u, record, snap, view, parameter, &shown, &why);
	for (i = 0; code == 0 && i < shown->tree.n_notes; i++) {
		from = out->len;
		uns_text_str(out, shown->tree.note[i]);
		uns_text_end_line(out, from);
	}
	snapshot_put(u, snap);
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	return out->failed ? uns_oom(err) : 0;
}

int info_text(struct unshard *u, struct dir_record *record, const struct uns_view *view, uint64_t parameter,
	      const char *name, struct uns_text *out, struct uns_err *err)
{
	if (strcmp(name, "problems.txt") == 0)
		return view_problems(u, record, view, parameter, out, err);
	if (strcmp(name, "provenance.json") == 0)
		return tree_text(u, record, view, parameter, uns_describe_provenance, out, err);
	return info_json(u, record, strcmp(name, "tensors.json") == 0 ? UNSHARD_TENSORS : UNSHARD_INFO,
			 u->opt.mounted_at, out, err);
}

int info_view_map(struct unshard *u, struct dir_record *record, const struct uns_view *view, uint64_t parameter,
		  struct uns_text *out, struct uns_err *err)
{
	return tree_text(u, record, view, parameter, uns_tree_map_print, out, err);
}
