/* Reads the optimizer's shards of all data-parallel ranks. Owns how many ranks there must be, whether their files are
 * of one save, and over how many ranks experts are shared. */
#include "zero/read/world.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"

enum { MAX_RANKS = 1 << 16 };

void uns_zero_world_fini(struct uns_zero_world *w)
{
	uns_arena_fini(&w->scratch);
}

int uns_zero_world_problem(struct uns_zero_world *w, const struct uns_finding *f, struct uns_err *err)
{
	struct uns_finding scoped = *f;

	scoped.scope = w->scope;
	w->broken = true;
	return uns_catalog_add_finding(w->cat, &scoped, err);
}

int uns_zero_world_problem_or_fail(struct uns_zero_world *w, const struct uns_err *why, struct uns_err *err)
{
	w->broken |= uns_code_is_finding(why->code);
	return uns_catalog_problem_or_fail(w->cat, w->scope, why, err);
}

/* -- one file -- */

static const char *name_of_group(const struct uns_zero_optim *o, size_t g)
{
	const char *name = uns_value_str(uns_value_get(uns_value_at(o->param_groups, g), "name"));

	return name ? name : "";
}

/* deepspeed.moe puts the groups of layers that are shared out differently into the order of a set of names, which
 * differs from process to process; groups of one name keep theirs. Here they are brought into the order of `as`. false:
 * they cannot be. */
static bool reorder_groups(struct uns_zero_optim *o, const struct uns_zero_optim *as,
			   struct uns_zero_rank_group *sorted)
{
	enum { MAX_GROUPS = 1 << 10 };
	bool same = true;
	size_t g, k, nth;

	for (g = 0; g < o->n_groups && same; g++)
		same = o->group[g].partitions == as->group[g].partitions &&
		       strcmp(name_of_group(o, g), name_of_group(as, g)) == 0;
	if (same || o->n_groups > MAX_GROUPS)
		return same;
	for (same = true, g = 0; g < o->n_groups; g++) {
		for (k = nth = 0; k < g; k++)
			nth += strcmp(name_of_group(as, k), name_of_group(as, g)) == 0;
		for (k = 0; k < o->n_groups; k++)
			if (strcmp(name_of_group(o, k), name_of_group(as, g)) == 0 && nth-- == 0)
				break;
		if (k == o->n_groups)
			return false;
		sorted[g] = o->group[k];
		same = same && sorted[g].partitions == as->group[g].partitions;
	}
	memcpy(o->group, sorted, o->n_groups * sizeof(*sorted));
	return same;
}

static int read_rank(struct uns_zero_world *w, struct uns_zero_rank *rank, struct uns_err *err)
{
	UNS_CLEANUP(uns_zero_file_close) struct uns_zero_file file = UNS_ZERO_FILE_INIT;
	struct uns_zero_optim *optim = UNS_NEW(&w->scratch, struct uns_zero_optim);
	/* Values of the first one stay: param groups, loss scaler. */
	struct uns_arena *arena = w->any ? &w->scratch : &w->cat->arena;
	struct uns_err why = { .keep = &w->scratch };
	const char *path = w->cat->files[rank->file].path;
	const struct uns_zero_optim *any = w->any;
	struct uns_zero_rank_group *sorted;

	UNS_TRY_ALLOC(optim, err);
	if (w->cat->files[rank->file].missing)
		return 0; /* counted together */
	if (uns_zero_file_open(w->cat, rank->file, arena, &file, &why) < 0 ||
	    uns_zero_optim_parse(&file, arena, optim, &why) < 0)
		return uns_zero_world_problem_or_fail(w, &why, err);
	UNS_TRY_ALLOC(sorted = UNS_NEW_N(&w->scratch, struct uns_zero_rank_group, optim->n_groups), err);
	if (any && (any->stage != optim->stage || any->partitions != optim->partitions ||
		    any->n_groups != optim->n_groups || !reorder_groups(optim, any, sorted)))
		return UNS_WORLD_PROBLEM(w, err, ZERO_RANKS_DIFFER, .file = path,
					 .rank = uns_num((size_t)(rank - w->rank)),
					 .arg = { { "stage", uns_num((uint64_t)optim->stage) },
						  { "groups", uns_num(optim->n_groups) },
						  { "cut", uns_num(optim->partitions) },
						  { "other_stage", uns_num((uint64_t)any->stage) },
						  { "other_groups", uns_num(any->n_groups) },
						  { "other_cut", uns_num(any->partitions) } });
	/* A job has one version: files of several are of several saves. */
	if (any && any->version && optim->version && strcmp(any->version, optim->version) != 0)
		return UNS_WORLD_PROBLEM(w, err, ZERO_VERSIONS_DIFFER, .file = path,
					 .rank = uns_num((size_t)(rank - w->rank)), .expected = uns_str(any->version),
					 .found = uns_str(optim->version));
	rank->optim = optim;
	if (!w->any)
		w->any = optim;
	return 0;
}

/* -- all of them -- */

/* Lists the ranks that the files' names have; a rank in between that has no file is missing. */
static int list_ranks(struct uns_zero_world *w, const struct uns_root *root, const struct uns_zero_entry *files,
		      size_t n, size_t n_ranks, struct uns_err *err)
{
	uint32_t *file = UNS_NEW_N(&w->scratch, uint32_t, n_ranks);
	size_t r;

	w->rank = UNS_NEW_N(&w->scratch, struct uns_zero_rank, n_ranks);
	UNS_TRY_ALLOC(w->rank && file, err);
	UNS_TRY(uns_zero_dir_ranks(w->cat, root, files, n, file, n_ranks, err));
	for (r = 0; r < n_ranks; r++)
		w->rank[r].file = file[r];
	w->n_ranks = n_ranks;
	return 0;
}

static int check_missing(struct uns_zero_world *w, struct uns_err *err)
{
	size_t r, first = 0, n = 0;

	for (r = w->n_ranks; r-- > 0;)
		if (w->cat->files[w->rank[r].file].missing) {
			first = r;
			n++;
		}
	if (!n)
		return 0;
	return UNS_WORLD_PROBLEM(w, err, ZERO_SHARDS_MISSING, .file = w->cat->files[w->rank[first].file].path,
				 .rank = uns_num(first), .expected = uns_num(w->n_ranks),
				 .found = uns_num(w->n_ranks - n), .arg = { { "more", uns_more(n - 1) } });
}

/* Each file records how many ranks the optimizer was cut for; n_named: as many as files' names have. */
static int check_ranks(struct uns_zero_world *w, size_t n_named, struct uns_err *err)
{
	uint64_t want = w->any->partitions ? w->any->partitions : n_named;
	const char *last = w->cat->files[w->rank[n_named - 1].file].path;
	size_t r, n_present = 0;

	for (r = 0; r < w->n_ranks; r++)
		n_present += !w->cat->files[w->rank[r].file].missing;
	if (want < n_named && n_present <= want)
		return UNS_WORLD_PROBLEM(w, err, ZERO_SHARD_TOO_MANY, .file = last, .rank = uns_num(n_named - 1),
					 .expected = uns_num(want));
	if (want < n_named)
		return UNS_WORLD_PROBLEM(w, err, ZERO_PARTITIONS_REPEATED, .file = last, .expected = uns_num(want),
					 .found = uns_num(n_named));
	return want > MAX_RANKS ? UNS_WORLD_PROBLEM(w, err, ZERO_TOO_MANY_RANKS, .found = uns_num(want)) : 0;
}

int uns_zero_world_read(struct uns_zero_world *w, const struct uns_root *root, const struct uns_zero_entry *files,
			size_t n, struct uns_err *err)
{
	struct uns_zero_rank *read;
	size_t r, before, n_named = (size_t)files[n - 1].name.dp + 1;

	if (n_named > MAX_RANKS)
		return UNS_WORLD_PROBLEM(w, err, ZERO_RANK_TOO_HIGH, .file = files[n - 1].path,
					 .expected = uns_num(MAX_RANKS));
	UNS_TRY(list_ranks(w, root, files, n, n_named, err));
	for (r = 0; r < w->n_ranks; r++)
		UNS_TRY(read_rank(w, &w->rank[r], err));
	if (!w->any)
		return check_missing(w, err);
	before = w->cat->n_findings;
	UNS_TRY(check_ranks(w, n_named, err));
	if (w->cat->n_findings > before) {
		w->any = NULL; /* which rank holds which part is not known */
		return 0;
	}
	if (w->any->partitions > n_named) {
		read = w->rank; /* the last ranks' files are gone: give them names */
		UNS_TRY(list_ranks(w, root, files, n, (size_t)w->any->partitions, err));
		memcpy(w->rank, read, n_named * sizeof(*read));
	}
	return check_missing(w, err);
}

/* -- experts -- */

/* Over how many shares the group's experts are spread; 0 = not understood. */
static size_t shares_of(const struct uns_zero_world *w, size_t g)
{
	const uint64_t ranks = g < w->any->n_groups ? w->any->group[g].partitions : 0;

	if (!ranks || ranks == w->n_ranks)
		return 1;
	/* The order in which round_robin_gradients deals out a share is not its order in the whole model. */
	if (w->n_ranks % ranks || (ranks > 1 && uns_zero_is_round_robin(w->config)))
		return 0;
	return (size_t)(w->n_ranks / ranks);
}

/* Rank 0's file, which is not there, would show which of the groups are those whose shapes the model file lists. */
static bool order_is_lost(const struct uns_zero_world *w)
{
	const char *first = NULL, *name;
	size_t g;

	for (g = 0; w->any && !w->rank[0].optim && g < w->any->n_groups; g++) {
		name = name_of_group(w->any, g);
		if (!uns_str_starts(name, UNS_ZERO_EXPERTS))
			continue;
		if (first && strcmp(name, first) != 0)
			return true;
		first = name;
	}
	return false;
}

/* The group holds parameters that AutoEP shared out; it may hold no others. */
static bool is_autoep(const struct uns_zero_world *w, const struct uns_zero_shapes *shapes)
{
	size_t i;

	for (i = 0; w->autoep && i < shapes->n; i++)
		if (uns_zero_cut_find(&w->autoep->slices, shapes->v[i].name))
			return true;
	return false;
}

int uns_zero_world_spread(struct uns_zero_world *w, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map last = UNS_MAP_INIT;
	struct uns_zero_shapes *local = w->shapes;
	struct uns_err why = { .keep = &w->scratch };
	uint64_t partitions;
	bool autoep;
	size_t g, n;
	int code;

	if (order_is_lost(w))
		w->any = NULL; /* that the file is missing or damaged has been reported */
	w->spread = UNS_NEW_N(&w->cat->arena, struct uns_zero_spread, w->n_shapes);
	w->shapes = UNS_NEW_N(&w->cat->arena, struct uns_zero_shapes, w->n_shapes);
	UNS_TRY_ALLOC(w->spread && w->shapes, err);
	UNS_TRY(uns_zero_experts_count(local, w->n_shapes, &w->scratch, &last, err));
	for (g = 0; g < w->n_shapes; g++) {
		autoep = is_autoep(w, &local[g]);
		n = w->any ? shares_of(w, g) : autoep ? w->autoep->slices.n_ranks : 1;
		code = !n       ? -ENOTSUP
		       : autoep ? uns_zero_autoep_spread(&local[g], w->autoep, w->where, n, &w->cat->arena,
							 &w->spread[g], &why)
				: uns_zero_experts_spread(&local[g], &last, n, &w->cat->arena, &w->spread[g], &why);
		UNS_TRY(uns_fail_if_passing(err, code, &why));
		w->shapes[g] = w->spread[g].whole;
		if (code == 0)
			continue;
		partitions = w->any && g < w->any->n_groups ? w->any->group[g].partitions : 0;
		w->shapes = local;
		w->any = NULL;
		return code != -ENOTSUP
			       ? uns_zero_world_problem_or_fail(w, &why, err)
			       : UNS_WORLD_PROBLEM(w, err, ZERO_GROUPS_CUT_UNEVENLY,
						   .file = w->cat->files[w->rank[0].file].path,
						   .expected = uns_num(w->n_ranks), .found = uns_num(partitions),
						   .arg = { { "group", uns_num(g) } });
	}
	return 0;
}
