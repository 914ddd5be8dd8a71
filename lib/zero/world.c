/* The optimizer's shards of all data-parallel ranks: which there must be, which there are. */
#include "zero/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "zero/names.h"

enum { MAX_RANKS = 1 << 16 };

void uns_zero_world_fini(struct uns_zero_world *w)
{
	uns_arena_fini(&w->scratch);
}

int uns_zero_world_problem(struct uns_zero_world *w, int code, const char *fmt, ...)
{
	struct uns_err text = { 0 };
	va_list ap;

	w->broken = true;
	va_start(ap, fmt);
	vsnprintf(text.text, sizeof(text.text), fmt, ap);
	va_end(ap);
	return uns_catalog_add_problem(w->cat, w->scope, code, "%s", text.text);
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
	struct uns_err why = { 0 };
	int code;

	if (!optim)
		return uns_oom(err);
	if (w->cat->files[rank->file].missing)
		return 0; /* counted together */
	code = read_one(w, rank->file, optim, &why);
	if (code == -ENOMEM || code == -ESTALE)
		return uns_fail(err, code, "%s", why.text);
	if (code < 0)
		return uns_zero_world_problem(w, code, "%s", why.text);
	if (w->any && !agrees(w->any, optim))
		return uns_zero_world_problem(
			w, -EBADMSG,
			"%s: stage %d, %zu groups, cut for %llu ranks, but stage %d, %zu groups, %llu "
			"ranks in another rank's file: they are of different checkpoints",
			w->cat->files[rank->file].path, optim->stage, optim->n_groups,
			(unsigned long long)optim->partitions, w->any->stage, w->any->n_groups,
			(unsigned long long)w->any->partitions);
	if (w->any && !same_version(w->any, optim))
		return uns_zero_world_problem(
			w, -EBADMSG,
			"%s was saved by DeepSpeed %s, another rank's file by %s: they are of "
			"different checkpoints",
			w->cat->files[rank->file].path, optim->version, w->any->version);
	rank->optim = optim;
	if (!w->any)
		w->any = optim;
	return 0;
}

/* -- all of them -- */

/* What ranks there are by name; what lies between them is missing. */
static int list_ranks(struct uns_zero_world *w, const struct uns_root *root,
		      const struct uns_zero_path *files, size_t n, size_t n_ranks,
		      struct uns_err *err)
{
	const char *path;
	size_t r, i = 0;

	w->rank = UNS_NEW_N(&w->scratch, struct uns_zero_rank, n_ranks);
	if (!w->rank)
		return uns_oom(err);
	for (r = 0; r < n_ranks; r++) {
		while (i < n && (size_t)files[i].dp < r)
			i++;
		path = i < n && (size_t)files[i].dp == r ?
			       files[i].path :
			       uns_zero_name_of_rank(&w->scratch, files[0].path, (int32_t)r);
		if (!path)
			return uns_oom(err);
		UNS_TRY(uns_catalog_add_file(w->cat, root, path, &w->rank[r].file, err));
	}
	w->n_ranks = n_ranks;
	return 0;
}

static int tell_missing(struct uns_zero_world *w)
{
	size_t r, first = 0, n = 0;

	for (r = w->n_ranks; r-- > 0;)
		if (w->cat->files[w->rank[r].file].missing) {
			first = r;
			n++;
		}
	if (!n)
		return 0;
	return uns_zero_world_problem(
		w, -ENODATA,
		"%s (data-parallel rank %zu) is missing%s: expected the optimizer's shards of %zu "
		"ranks, found %zu; copy it back from the training machine",
		w->cat->files[w->rank[first].file].path, first,
		n > 1 ? ", and others after it" : "", w->n_ranks, w->n_ranks - n);
}

static size_t count_present(const struct uns_zero_world *w)
{
	size_t r, n = 0;

	for (r = 0; r < w->n_ranks; r++)
		n += !w->cat->files[w->rank[r].file].missing;
	return n;
}

/* How many ranks the optimizer was cut for says each file; the names say how many there are. */
static int check_ranks(struct uns_zero_world *w, size_t n_named)
{
	uint64_t want = w->any->partitions ? w->any->partitions : n_named;

	if (w->any->uneven)
		return uns_zero_world_problem(
			w, -ENOTSUP,
			"%s: its param groups are cut for different numbers of ranks (mixture of "
			"experts), which is not supported",
			w->cat->files[w->rank[0].file].path);
	if (want < n_named && count_present(w) <= want)
		return uns_zero_world_problem(
			w, -EBADMSG,
			"the optimizer is cut for %llu ranks, and %s would be the shard of rank %zu: "
			"a file was renamed, or is of another checkpoint",
			(unsigned long long)want, w->cat->files[w->rank[n_named - 1].file].path,
			n_named - 1);
	if (want < n_named)
		return uns_zero_world_problem(
			w, -ENOTSUP,
			"the optimizer is cut for %llu ranks, but there are shards of %zu (as %s): "
			"partitions that are kept several times (MiCS, hpZ) are not supported",
			(unsigned long long)want, n_named,
			w->cat->files[w->rank[n_named - 1].file].path);
	if (want > MAX_RANKS)
		return uns_zero_world_problem(w, -EBADMSG,
					      "the optimizer is said to be cut for %llu ranks",
					      (unsigned long long)want);
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
			const struct uns_zero_path *files, size_t n, struct uns_err *err)
{
	struct uns_zero_rank *read;
	size_t before, n_named = (size_t)files[n - 1].dp + 1;

	if (n_named > MAX_RANKS)
		return uns_zero_world_problem(w, -ENOTSUP, "%s: a rank above %d",
					      files[n - 1].path, MAX_RANKS);
	UNS_TRY(list_ranks(w, root, files, n, n_named, err));
	UNS_TRY(read_all(w, err));
	if (!w->any)
		return tell_missing(w);
	before = w->cat->n_problems;
	UNS_TRY(check_ranks(w, n_named));
	if (w->cat->n_problems > before) {
		w->any = NULL; /* whose part is whose is not known */
		return 0;
	}
	if (w->any->partitions > n_named) {
		read = w->rank; /* the last ranks' files are gone: give them names */
		UNS_TRY(list_ranks(w, root, files, n, (size_t)w->any->partitions, err));
		memcpy(w->rank, read, n_named * sizeof(*read));
	}
	return tell_missing(w);
}
