/* A file that a view computes is readable only for users that may read all of its sources (io/access.h): the files that
 * contain its tensors' pieces, and those that only describe them (.metadata). A file that is shown unchanged has its
 * own owner, mode and time. */
#include "files/attributes.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "model/joined_tensor.h"
#include "model/scaled_tensor.h"
#include "model/sum_tensor.h"

/* Owner and group of the checkpoint's directory, unless all files of the sharded form have another owner and group. */
static struct uns_access owner_of(const struct uns_catalog *cat, const struct uns_stat *dir)
{
	struct uns_access own = uns_access_of(dir), access = own, other;
	bool any = false;
	size_t i;

	for (i = 0; i < cat->n_companions; i++) {
		if (!cat->companions[i].shard)
			continue;
		other = uns_access_of(&cat->files[cat->companions[i].file].stat);
		if (any && (other.uid != access.uid || other.gid != access.gid))
			return own;
		access = other;
		any = true;
	}
	return access;
}

int uns_attributes_base(const struct uns_catalog *cat, const struct uns_stat *dir, struct uns_access *out,
			struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) bool *with_pieces = calloc(cat->n_files + 1, sizeof(*with_pieces));
	const struct uns_companion *c = cat->companions, *end = c + cat->n_companions;
	size_t i;

	UNS_TRY_ALLOC(with_pieces, err);
	for (i = 0; i < cat->n_pieces; i++)
		with_pieces[cat->pieces[i].file] = true;
	*out = owner_of(cat, dir);
	for (; c < end; c++)
		if (c->shard && !with_pieces[c->file] && !cat->files[c->file].missing)
			uns_access_demand(out, &cat->files[c->file].stat);
	return 0;
}

/* Demands the files of a tensor's pieces. Thousands of segments may be of one tensor, whose pieces are looked at once:
 * `seen`, by the first piece; NULL = short of memory, and pieces are looked at again. */
static void pieces_demand(const struct uns_catalog *cat, const struct uns_tensor *tensor, bool *seen,
			  struct uns_attributes *attr)
{
	const struct uns_tensor *t = uns_tensor_with_bytes(cat, tensor);
	const struct uns_piece *piece = uns_tensor_pieces(cat, t), *end = piece + t->n_pieces;
	const struct uns_stat *st;

	if (seen && !t->own && t->n_pieces) {
		if (seen[t->first_piece])
			return;
		seen[t->first_piece] = true;
	}
	for (; piece < end; piece++) {
		st = &cat->files[piece->file].stat;
		uns_access_demand(&attr->access, st);
		if (st->id.mtime_ns > attr->mtime_ns)
			attr->mtime_ns = st->id.mtime_ns;
	}
}

/* Demands the files that have the tensor's elements. */
static void tensor_demand(const struct uns_catalog *cat, const struct uns_tensor *t, bool *seen,
			  struct uns_attributes *attr)
{
	const struct uns_piece *piece = t->own;
	size_t i, k;

	if (t->sum && t->sum->scale.by.tensor)
		tensor_demand(cat, t->sum->scale.by.tensor, seen, attr);
	for (i = 0; t->sum && i < t->sum->n; i++) {
		tensor_demand(cat, t->sum->term[i].left.tensor, seen, attr);
		if (t->sum->term[i].right.tensor)
			tensor_demand(cat, t->sum->term[i].right.tensor, seen, attr);
	}
	if (!uns_tensor_is_of_blocks(t)) {
		pieces_demand(cat, t, seen, attr);
		return;
	}
	for (i = 0; i < t->n_pieces; i++)
		for (k = 0; k < piece[i].block->n_sources; k++)
			pieces_demand(cat, piece[i].block->source[k].tensor, seen, attr);
}

static void segments_demand(const struct uns_catalog *cat, const struct uns_layout *l, bool *seen,
			    struct uns_attributes *attr)
{
	const struct uns_segment *s = l->segment, *end = s + l->n;

	for (; s < end; s++) {
		if (s->from == UNS_FROM_PIECES && s->tensor->scaled)
			segments_demand(cat, &s->tensor->scaled->source, seen, attr);
		else if (s->from == UNS_FROM_PIECES && s->tensor->joined)
			segments_demand(cat, &s->tensor->joined->source, seen, attr);
		else if (s->from == UNS_FROM_PIECES)
			tensor_demand(cat, s->tensor, seen, attr);
	}
}

int64_t uns_attributes_newest_ns(const struct uns_catalog *cat, const struct uns_stat *dir)
{
	int64_t newest_ns = INT64_MIN;
	const struct uns_file *file;
	size_t i;

	for (i = 0; i < cat->n_companions; i++) {
		file = &cat->files[cat->companions[i].file];
		if (cat->companions[i].shard && !file->missing && file->stat.id.mtime_ns > newest_ns)
			newest_ns = file->stat.id.mtime_ns;
	}
	return newest_ns == INT64_MIN ? dir->id.mtime_ns : newest_ns;
}

struct uns_attributes uns_attributes_of(const struct uns_catalog *cat, const struct uns_vfile *file, int64_t newest_ns,
					const struct uns_access *base)
{
	struct uns_attributes attr = { *base, newest_ns };
	UNS_CLEANUP(uns_free_p) bool *seen = calloc(cat->n_pieces + 1, sizeof(*seen));
	const struct uns_stat *st;

	if (file->source != UNS_NONE) {
		st = &cat->files[file->source].stat;
		return (struct uns_attributes){ { st->uid, st->gid, st->mode & 0555 }, st->id.mtime_ns };
	}
	segments_demand(cat, &file->layout, seen, &attr);
	return attr;
}
