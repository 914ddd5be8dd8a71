/* Compares the times of shards with the end of their save. A shard that is newer was written by a later save, or is a
 * copy. It was written by a later save if it took much longer to write than its size explains: then it existed when the
 * first save ended. If it was created later, and long after everything else, unshard cannot decide. */
#include "model/save_times.h"

#include <inttypes.h>
#include <string.h>

#include "base/array.h"
#include "base/path.h"

#define SECOND_NS INT64_C(1000000000)

enum {
	PAUSE_S = 60,     /* between two files of one copy: hardly more */
	MODEL = 1,
	OPTIMIZER = 2,
};

static const double ns_per_byte_most = 1000; /* a copy writes 1 MB/s at least, */
static const double slower = 10;       /* and not ten times as slowly as the other shards were written */

struct shards {
	struct uns_catalog *cat;
	const struct uns_save_end *end;
	struct uns_stat last; /* of the file that ends the save */
	unsigned char *holds; /* of each file of the catalog: MODEL, OPTIMIZER; 0 = no shard */
	unsigned old, fresh;  /* what files hold that are older than `last`, and newer */
	double ns_per_byte;   /* of the slowest of the older ones */
	uint32_t file;        /* the newest of all */
	unsigned overwritten; /* what newer shards hold that existed before, or were written long after */
	bool grew;            /* a newer one was written to long after its birth, and after `last` */
};

static bool is_copy_with_times(const struct uns_stat *st)
{
	return st->born_ns > st->id.mtime_ns;
}

/* When the end of the save was there. Where only its copy kept its time, and the shard's did not, that is when
 * the copy was made. */
static int64_t ended_ns(const struct shards *s, const struct uns_stat *shard)
{
	if (is_copy_with_times(&s->last) && !is_copy_with_times(shard))
		return s->last.born_ns;
	return s->last.id.mtime_ns;
}

static int64_t late_ns(const struct shards *s, const struct uns_stat *shard)
{
	return shard->id.mtime_ns - ended_ns(s, shard);
}

/* How long a copy may need for the file. */
static int64_t patience_ns(const struct shards *s, const struct uns_stat *shard)
{
	double pace = s->ns_per_byte * slower;

	if (s->ns_per_byte == 0 || pace > ns_per_byte_most)
		pace = ns_per_byte_most;
	return PAUSE_S * SECOND_NS + (int64_t)(pace * (double)shard->id.size);
}

static void add_fresh_shard(struct shards *s, uint32_t file, unsigned holds)
{
	const struct uns_stat *st = &s->cat->files[file].stat;
	int64_t patience = patience_ns(s, st);

	if (!s->fresh || st->id.mtime_ns > s->cat->files[s->file].stat.id.mtime_ns)
		s->file = file;
	s->fresh |= holds;
	if (!is_copy_with_times(st) && (!st->born_ns || st->born_ns < ended_ns(s, st) || late_ns(s, st) > patience))
		s->overwritten |= holds;
	if (st->born_ns && st->id.mtime_ns - st->born_ns > patience && late_ns(s, st) > patience)
		s->grew = true;
}

/* The ends of the save that are older than its newest shard, after those in `list`, as seen from the checkpoint's
 * directory (trackers lie above it). *list begins with those of earlier calls. */
static int add_ends(const struct shards *s, const char **list, struct uns_err *err)
{
	const char *const alone[] = { s->end->path, NULL };
	const char *const *end = s->end->all ? s->end->all : alone;
	struct uns_arena *arena = &s->cat->arena;
	const char *dir, *up, *below;
	struct uns_err why = { 0 };
	struct uns_stat st;
	int code;

	for (; *end; end++) {
		code = uns_stat_beside(s->end->root, s->cat->capture, *end, &st, &why);
		UNS_TRY(uns_fail_if_passing(err, code, &why));
		why = (struct uns_err){ 0 };
		if (code < 0 || st.id.mtime_ns >= s->cat->files[s->file].stat.id.mtime_ns)
			continue;
		for (up = "", dir = s->cat->path; dir && up && !uns_path_within(*end, dir);
		     dir = uns_path_parent(arena, dir))
			up = uns_arena_printf(arena, "../%s", up);
		UNS_TRY_ALLOC(dir && up, err);
		below = *end + strlen(dir);
		*list = uns_arena_printf(arena, "%s%s%s%s", *list, **list ? " " : "", up, below + (*below == '/'));
		UNS_TRY_ALLOC(*list, err);
	}
	return 0;
}

enum { ARG_LAST, ARG_TOUCH };

static int report_mixed(const struct shards *s, struct uns_err *err)
{
	const struct uns_file *newest = &s->cat->files[s->file];
	int64_t late = late_ns(s, &newest->stat);
	struct uns_finding *known = s->cat->findings,
			   *end = known + s->cat->n_findings; /* of another end of the save */
	const char *touch;
	struct uns_finding f = { .id = UNS_FOUND_SAVES_MAY_BE_MIXED,
				 .scope = UNS_SCOPE_NOTE,
				 .file = newest->path,
				 .found = uns_num((uint64_t)(late / (60 * SECOND_NS))),
				 .arg = { [ARG_LAST] = { "last", uns_str(s->end->path) } } };

	if (late <= patience_ns(s, &newest->stat))
		return 0;
	while (known < end && known->id != UNS_FOUND_SAVES_MIXED && known->id != UNS_FOUND_SAVES_MAY_BE_MIXED)
		known++;
	touch = known < end ? known->arg[ARG_TOUCH].is.text : "";
	UNS_TRY(add_ends(s, &touch, err));
	if (known < end) {
		known->arg[ARG_TOUCH].is = uns_str(touch);
		return 0;
	}
	f.arg[ARG_TOUCH] = (struct uns_finding_arg){ "touch", uns_str(touch) };
	if (s->grew) {
		f.id = UNS_FOUND_SAVES_MIXED;
		f.scope = s->old & s->fresh & MODEL ? UNS_SCOPE_ALL : UNS_SCOPE_OPTIMIZER;
	}
	return uns_catalog_add_finding(s->cat, &f, err);
}

int uns_save_times_check(struct uns_catalog *cat, const struct uns_save_end *end, struct uns_err *err)
{
	struct shards s = { .cat = cat, .end = end };
	const struct uns_tensor *t = cat->tensors, *t_end = t + cat->n_tensors;
	const struct uns_file *f;
	struct uns_err why = { 0 };
	double ns;
	uint32_t i;
	int code;

	UNS_TRY_ALLOC(end->path && end->below, err);
	if (uns_root_is_remote(end->root)) /* files are uploaded in any order */
		return 0;
	code = uns_stat_beside(end->root, cat->capture, end->path, &s.last, &why);
	if (code < 0)
		return uns_fail_if_passing(err, code, &why);
	UNS_TRY_ALLOC(s.holds = UNS_NEW_N(&cat->arena, unsigned char, cat->n_files), err);
	for (; t < t_end; t++)
		for (i = t->first_piece; i < t->first_piece + t->n_pieces; i++) {
			f = &cat->files[cat->pieces[i].file];
			if (!f->missing && f->root == end->root && uns_str_starts(f->path, end->below))
				s.holds[cat->pieces[i].file] |=
					uns_role_is_model(t->role) || t->role == UNS_ROLE_MASTER ? MODEL : OPTIMIZER;
		}
	for (i = 0; i < cat->n_files; i++) {
		f = &cat->files[i];
		if (!s.holds[i] || late_ns(&s, &f->stat) > 0)
			continue;
		ns = (double)(f->stat.id.mtime_ns - f->stat.born_ns);
		s.old |= s.holds[i];
		if (f->stat.born_ns && ns > 0 && f->stat.id.size && ns / (double)f->stat.id.size > s.ns_per_byte)
			s.ns_per_byte = ns / (double)f->stat.id.size;
	}
	for (i = 0; i < cat->n_files; i++)
		if (s.holds[i] && late_ns(&s, &cat->files[i].stat) > 0)
			add_fresh_shard(&s, i, s.holds[i]);
	cat->summary.overwritten |= s.overwritten != 0;
	cat->summary.weights_overwritten |= s.overwritten & MODEL && (!end->is_state || s.old & MODEL);
	return s.fresh && (s.old || end->is_state) ? report_mixed(&s, err) : 0;
}
