/* The optimizer's shards of all data-parallel ranks: which there must be, which there are. */
#include "zero/world.h"

#include <string.h>

#include "base/cleanup.h"

enum { MAX_RANKS = 1 << 16 };

void uns_zero_world_fini(struct uns_zero_world *w)
{
	uns_arena_fini(&w->scratch);
}

int uns_zero_world_problem(struct uns_zero_world *w, const struct uns_finding *f,
			   struct uns_err *err)
{
	struct uns_finding scoped = *f;

	scoped.scope = w->scope;
	w->broken = true;
	return uns_catalog_add_finding(w->cat, &scoped, err);
}

int uns_zero_world_problem_or_fail(struct uns_zero_world *w, const struct uns_err *why,
				   struct uns_err *err)
{
	w->broken |= uns_code_is_finding(why->code);
	return uns_catalog_problem_or_fail(w->cat, w->scope, why, err);
}

/* -- one file -- */

static int read_one(struct uns_zero_world *w, uint32_t index, struct uns_zero_optim *out,
		    struct uns_err *err)
{
	UNS_CLEANUP(uns_zero_file_close) struct uns_zero_file file = UNS_ZERO_FILE_INIT;
	/* Values of the first one stay: param groups, loss scaler. */
	struct uns_arena *arena = w->any ? &w->scratch : &w->cat->arena;

	UNS_TRY(uns_zero_file_open(w->cat, index, arena, &file, err));
	return uns_zero_optim_parse(&file, arena, out, err);
}

static bool agrees(const struct uns_zero_optim *a, const struct uns_zero_optim *b)
{
	return a->stage == b->stage && a->partitions == b->partitions &&
	       a->n_groups == b->n_groups;
}

/* A job has one version: files of several are of several saves. */
static bool same_version(const struct uns_zero_optim *a, const struct uns_zero_optim *b)
{
	return !a->version || !b->version || strcmp(a->version, b->version) == 0;
}

static int read_rank(struct uns_zero_world *w, struct uns_zero_rank *rank, struct uns_err *err)
{
	struct uns_zero_optim *optim = UNS_NEW(&w->scratch, struct uns_zero_optim);
	struct uns_err why = { .keep = &w->scratch };
	const char *path = w->cat->files[rank->file].path;
	const struct uns_zero_optim *any = w->any;

	if (!optim)
		return uns_oom(err);
	if (w->cat->files[rank->file].missing)
		return 0; /* counted together */
	if (read_one(w, rank->file, optim, &why) < 0)
		return uns_zero_world_problem_or_fail(w, &why, err);
	if (any && !agrees(any, optim))
		return uns_zero_world_problem(
			w,
			UNS_FINDING(.id = UNS_FOUND_ZERO_RANKS_DIFFER, .file = path,
				    .rank = uns_num((size_t)(rank - w->rank)),
				    .arg = { { "stage", uns_num((uint64_t)optim->stage) },
					     { "groups", uns_num(optim->n_groups) },
					     { "cut", uns_num(optim->partitions) },
					     { "other_stage", uns_num((uint64_t)any->stage) },
					     { "other_groups", uns_num(any->n_groups) },
					     { "other_cut", uns_num(any->partitions) } }),
			err);
	if (any && !same_version(any, optim))
		return uns_zero_world_problem(w,
					      UNS_FINDING(.id = UNS_FOUND_ZERO_VERSIONS_DIFFER,
							  .file = path,
							  .rank = uns_num((size_t)(rank - w->rank)),
							  .expected = uns_str(any->version),
							  .found = uns_str(optim->version)),
					      err);
	rank->optim = optim;
	if (!w->any)
		w->any = optim;
	return 0;
}

/* -- all of them -- */

/* Lists the ranks that the files' names have; a rank in between that has no file is missing. */
static int list_ranks(struct uns_zero_world *w, const struct uns_root *root,
		      const struct uns_zero_entry *files, size_t n, size_t n_ranks,
		      struct uns_err *err)
{
	uint32_t *file = UNS_NEW_N(&w->scratch, uint32_t, n_ranks);
	size_t r;

	w->rank = UNS_NEW_N(&w->scratch, struct uns_zero_rank, n_ranks);
	if (!w->rank || !file)
		return uns_oom(err);
	UNS_TRY(uns_zero_dir_ranks(w->cat, root, files, n, file, n_ranks, err));
	for (r = 0; r < n_ranks; r++)
		w->rank[r].file = file[r];
	w->n_ranks = n_ranks;
	return 0;
}

static int tell_missing(struct uns_zero_world *w, struct uns_err *err)
{
	size_t r, first = 0, n = 0;

	for (r = w->n_ranks; r-- > 0;)
		if (w->cat->files[w->rank[r].file].missing) {
			first = r;
			n++;
		}
	if (!n)
		return 0;
	return uns_zero_world_problem(w,
				      UNS_FINDING(.id = UNS_FOUND_ZERO_SHARDS_MISSING,
						  .file = w->cat->files[w->rank[first].file].path,
						  .rank = uns_num(first),
						  .expected = uns_num(w->n_ranks),
						  .found = uns_num(w->n_ranks - n),
						  .arg = { { "more", uns_more(n - 1) } }),
				      err);
}

static size_t count_present(const struct uns_zero_world *w)
{
	size_t r, n = 0;

	for (r = 0; r < w->n_ranks; r++)
		n += !w->cat->files[w->rank[r].file].missing;
	return n;
}

/* How many ranks the optimizer was cut for says each file; the names say how many there are. */
static int check_ranks(struct uns_zero_world *w, size_t n_named, struct uns_err *err)
{
	uint64_t want = w->any->partitions ? w->any->partitions : n_named;
	const char *last = w->cat->files[w->rank[n_named - 1].file].path;

	if (w->any->uneven)
		return uns_zero_world_problem(w,
					      UNS_FINDING(.id = UNS_FOUND_ZERO_GROUPS_CUT_UNEVENLY,
							  .file = w->cat->files[w->rank[0].file].path),
					      err);
	if (want < n_named && count_present(w) <= want)
		return uns_zero_world_problem(w,
					      UNS_FINDING(.id = UNS_FOUND_ZERO_SHARD_TOO_MANY,
							  .file = last, .rank = uns_num(n_named - 1),
							  .expected = uns_num(want)),
					      err);
	if (want < n_named)
		return uns_zero_world_problem(w,
					      UNS_FINDING(.id = UNS_FOUND_ZERO_PARTITIONS_REPEATED,
							  .file = last, .expected = uns_num(want),
							  .found = uns_num(n_named)),
					      err);
	if (want > MAX_RANKS)
		return uns_zero_world_problem(w,
					      UNS_FINDING(.id = UNS_FOUND_ZERO_TOO_MANY_RANKS,
							  .found = uns_num(want)),
					      err);
	return 0;
}

static int read_all(struct uns_zero_world *w, struct uns_err *err)
{
	size_t r;

	for (r = 0; r < w->n_ranks; r++)
		if (!w->rank[r].optim)
			UNS_TRY(read_rank(w, &w->rank[r], err));
	return 0;
}

int uns_zero_world_read(struct uns_zero_world *w, const struct uns_root *root,
			const struct uns_zero_entry *files, size_t n, struct uns_err *err)
{
	struct uns_zero_rank *read;
	size_t before, n_named = (size_t)files[n - 1].name.dp + 1;

	if (n_named > MAX_RANKS)
		return uns_zero_world_problem(w,
					      UNS_FINDING(.id = UNS_FOUND_ZERO_RANK_TOO_HIGH,
							  .file = files[n - 1].path,
							  .expected = uns_num(MAX_RANKS)),
					      err);
	UNS_TRY(list_ranks(w, root, files, n, n_named, err));
	UNS_TRY(read_all(w, err));
	if (!w->any)
		return tell_missing(w, err);
	before = w->cat->n_findings;
	UNS_TRY(check_ranks(w, n_named, err));
	if (w->cat->n_findings > before) {
		w->any = NULL; /* whose part is whose is not known */
		return 0;
	}
	if (w->any->partitions > n_named) {
		read = w->rank; /* the last ranks' files are gone: give them names */
		UNS_TRY(list_ranks(w, root, files, n, (size_t)w->any->partitions, err));
		memcpy(w->rank, read, n_named * sizeof(*read));
	}
	return tell_missing(w, err);
}
