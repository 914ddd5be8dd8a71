/* Owns the findings that need several ranks' files: keys that only some files have, copies that differ, and file names
 * that contradict the content. ranks/merge.c merges the ranks' views of a tensor. */
#include "ranks/merged.h"

#include <string.h>

#include "ranks/merge.h"

/* The part before `part` that holds the same elements; NULL = there is none. */
static const struct uns_rank_part *replica_of(const struct uns_merged *t, const struct uns_rank_part *part)
{
	const struct uns_rank_part *p = t->first;

	while (p != part && !uns_box_equal(p->piece.box, part->piece.box))
		p = p->next;
	return p == part ? NULL : p;
}

/* Elements of all parts, or only of those that are no replicas. Each element is in a file: no overflow. */
static uint64_t elems_held(const struct uns_merged *t, bool once)
{
	const struct uns_rank_part *p;
	uint64_t n = 0;

	for (p = t->first; p; p = p->next)
		if (!once || !replica_of(t, p))
			n += uns_box_elems(p->piece.box);
	return n;
}

/* O(parts * parts): only for tensors that have a finding. */
static bool is_complete(const struct uns_merged *t)
{
	return elems_held(t, true) == uns_shape_elems(&t->tensor.shape);
}

static bool all_complete(const struct uns_rank_merge *m)
{
	const struct uns_merged *t = m->first;

	while (t && !t->told && is_complete(t))
		t = t->next;
	return !t;
}

bool uns_rank_merge_is_whole(const struct uns_rank_merge *m)
{
	size_t i;

	if (!m->n_sharded || m->findings.n)
		return false;
	for (i = 0; i < m->n_files; i++)
		if (m->file[i].path && !m->file[i].whole)
			return false;
	return all_complete(m);
}

static bool is_renamed(const struct uns_rank_read *f)
{
	return f->writer >= 0 && f->rank >= 0 && f->writer != f->rank;
}

size_t uns_rank_merge_renamed(const struct uns_rank_merge *m)
{
	size_t i, n = 0;

	for (i = 0; i < m->n_files; i++)
		n += is_renamed(&m->file[i]);
	return n;
}

/* formats/ranks.c, which knows the number of ranks, reports a mesh with fewer ranks than there are files. */
static int judge_names(struct uns_rank_merge *m)
{
	size_t n = uns_rank_merge_renamed(m);
	const struct uns_rank_read *f = m->file, *other = m->file, *end = m->file + m->n_files;

	if (!n || (m->mesh_size && m->mesh_size < m->n_files))
		return 0;
	while (!is_renamed(f))
		f++;
	while (other < end && (other == f || other->writer != f->writer))
		other++;
	if (other < end) /* one rank wrote two files */
		return UNS_ADD_FINDING(m->cat, NULL, RANK_FILE_COPIED,
				       .scope = all_complete(m) ? UNS_SCOPE_SHARDED : m->scope, .file = f->path,
				       .rank = uns_rank(f->rank), .expected = uns_rank(f->rank),
				       .found = uns_rank(f->writer), .arg = { { "other_file", uns_str(other->path) } });
	return UNS_ADD_FINDING(m->cat, NULL, RANK_FILE_RENAMED, .scope = UNS_SCOPE_SHARDED, .file = f->path,
			       .rank = uns_rank(f->rank), .expected = uns_rank(f->rank), .found = uns_rank(f->writer),
			       .arg = { { "more", uns_more(n - 1) } });
}

/* A file that was read and that holds the tensor, or holds it not; NULL = there is none. */
static const struct uns_rank_read *file_that(const struct uns_rank_merge *m, const struct uns_merged *t, bool holds,
					     size_t *n)
{
	const struct uns_rank_read *found = NULL;
	size_t i;

	for (*n = 0, i = 0; i < m->n_files; i++) {
		if (!m->file[i].whole || t->in_file[i] != holds)
			continue;
		found = found ? found : &m->file[i];
		++*n;
	}
	return found;
}

static int report_absent(struct uns_rank_merge *m, const struct uns_merged *t, enum uns_scope scope)
{
	size_t n_with, n_without, i;
	const struct uns_rank_read *with = file_that(m, t, true, &n_with);
	const struct uns_rank_read *without = file_that(m, t, false, &n_without);
	bool rare = n_with < n_without;

	if (!with)
		return 0;
	for (i = 0; i < m->n_files; i++) {
		const char *path = m->file[i].path;
		enum uns_scope lost = scope;

		if (!m->file[i].whole || t->in_file[i] != rare)
			continue;
		if (uns_rank_findings_has(&m->findings, UNS_FOUND_RANK_TENSOR_ABSENT, m->scope, path))
			lost = m->scope;
		UNS_TRY(uns_rank_findings_add(
			&m->findings,
			UNS_FINDING(.id = rare ? UNS_FOUND_RANK_TENSOR_ONLY_THERE : UNS_FOUND_RANK_TENSOR_ABSENT,
				    .scope = lost, .file = path, .rank = uns_rank(m->file[i].rank),
				    .tensor = t->tensor.key,
				    .arg = { { "other_file", uns_str((rare ? without : with)->path) } })));
	}
	return 0;
}

/* The ranks' state dicts have the same keys, but for plain states of parameters that a rank has no part of. If replicas
 * hold what one rank lacks, only the sharded form is damaged. */
static int judge_absent(struct uns_rank_merge *m, bool complete)
{
	const struct uns_merged *t;
	size_t n_without;

	for (t = m->first; t; t = t->next) {
		if ((uns_role_is_optimizer(t->tensor.role) && !t->sharded) || !file_that(m, t, false, &n_without) ||
		    is_complete(t) != complete || uns_map_get(&m->unread, t->tensor.key))
			continue;
		UNS_TRY(report_absent(m, t, complete ? UNS_SCOPE_SHARDED : m->scope));
	}
	return 0;
}

static int judge_replicas(struct uns_rank_merge *m, const struct uns_merged *t)
{
	const struct uns_file *files = m->cat->files;
	const struct uns_rank_part *p, *first;

	if (!t->sharded || elems_held(t, false) <= uns_shape_elems(&t->tensor.shape))
		return 0;
	for (p = t->first; p; p = p->next) {
		first = replica_of(t, p);
		if (first && first->piece.crc32 && p->piece.crc32 && first->piece.crc32 != p->piece.crc32)
			return uns_rank_findings_add(
				&m->findings,
				UNS_FINDING(.id = UNS_FOUND_RANK_REPLICAS_DIFFER, .scope = m->scope,
					    .file = files[p->piece.file].path, .rank = uns_rank(p->piece.rank),
					    .tensor = t->tensor.key,
					    .arg = { { "other_file", uns_str(files[first->piece.file].path) } }));
	}
	return 0;
}

static int note_buffers(struct uns_rank_merge *m)
{
	const struct uns_merged *t, *first = NULL;
	size_t n = 0;

	for (t = m->first; t; t = t->next) {
		if (!t->differs || t->tensor.role != UNS_ROLE_WEIGHT || !m->n_sharded)
			continue;
		first = first ? first : t;
		n++;
	}
	if (!n)
		return 0;
	return UNS_ADD_FINDING(m->cat, NULL, RANK_BUFFERS_DIFFER, .file = first->path, .tensor = first->tensor.key,
			       .arg = { { "more", uns_more(n - 1) }, { "other_file", uns_str(first->differs) } });
}

/* Buffers may differ between ranks, and then rank 0's is what a full state dict holds. Other plain tensors that differ
 * are parts cut by a rule that no file records. */
int uns_rank_judge(struct uns_rank_merge *m, struct uns_err *err)
{
	const struct uns_merged *t;
	int code = 0;

	for (t = m->first; t && code == 0; t = t->next) {
		if (t->differs && (t->tensor.role != UNS_ROLE_WEIGHT || !m->n_sharded))
			code = uns_rank_findings_add(
				&m->findings, UNS_FINDING(.id = UNS_FOUND_RANK_PLAIN_TENSORS_DIFFER, .scope = m->scope,
							  .file = t->differs, .tensor = t->tensor.key,
							  .arg = { { "other_file", uns_str(t->path) } }));
		if (code == 0)
			code = judge_replicas(m, t);
	}
	if (code < 0 || judge_absent(m, false) < 0 || judge_absent(m, true) < 0 || judge_names(m) < 0 ||
	    note_buffers(m) < 0)
		return uns_oom(err);
	return 0;
}
