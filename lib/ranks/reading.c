/* Opens the ranks' files. Owns the findings about files that are missing or cannot be read; does not know what the
 * files should hold. */
#include "ranks/reading.h"

#include <string.h>

#include "base/cleanup.h"

enum { MAX_UNREAD = 8 };

/* A file that exists and cannot be read. */
struct uns_rank_unread {
	const struct uns_rank_file *file;
	const char *why;
	int code;
	struct uns_rank_unread *next;
};

int uns_rank_reading_init(struct uns_rank_reading *r, struct uns_catalog *cat, const struct uns_root *root,
			  enum uns_scope scope, size_t n_files, struct uns_err *err)
{
	*r = (struct uns_rank_reading){ .cat = cat, .root = root, .keep = &cat->arena };
	r->unread_tail = &r->unread;
	return uns_rank_merge_init(&r->merge, cat, scope, n_files, err);
}

void uns_rank_reading_fini(struct uns_rank_reading *r)
{
	uns_rank_merge_fini(&r->merge);
	uns_text_fini(&r->missing.ranks);
}

/* -- one file -- */

struct one {
	const struct uns_rank_file *file;
	size_t index;
	uint32_t in_catalog;
	uns_rank_add *add;
	void *ctx;
};

/* Values of the first file stay, in the catalog's arena; of the others only numbers are kept. */
static int file_read(struct uns_rank_reading *r, const struct one *o, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_open_file open_file = { .name = o->file->path };
	struct uns_torchfile torch;
	struct uns_rank_source source = { o->file->path, o->in_catalog, o->file->rank, o->index, &torch };
	struct uns_reader reader;
	struct uns_stat now;

	UNS_TRY(uns_root_open_file(r->root, o->file->path, &fd, &now, err));
	if (!uns_identity_equal(&now.id, &r->cat->files[o->in_catalog].stat.id))
		return uns_fail(err, -ESTALE, "the file changed while it was being read");
	if (now.id.size == 0)
		return uns_fail(err, -EBADMSG, "the file is empty");
	open_file.fd = fd;
	reader = uns_reader_of_file(&open_file, r->cat->files[o->in_catalog].stat.id.size);
	UNS_TRY(uns_torchfile_open(&reader, r->n_read ? &scratch : r->keep, &torch, err));
	uns_rank_merge_begin_file(&r->merge, &source);
	UNS_TRY(o->add(o->ctx, &source, err));
	uns_rank_merge_end_file(&r->merge, &source);
	return 0;
}

/* -- files that are missing or unreadable -- */

/* "1", "1, 2", "1 to 5" behind the runs before. */
static void missing_end_run(struct uns_rank_missing *m)
{
	uns_text_printf(&m->ranks, "%s%d", m->ranks.len ? ", " : "", m->from);
	if (m->to != m->from)
		uns_text_printf(&m->ranks, m->to == m->from + 1 ? ", %d" : " to %d", m->to);
}

static void missing_add(struct uns_rank_missing *m, const struct uns_rank_file *f)
{
	if (m->n++ == 0) {
		m->path = f->path;
		m->first = m->from = f->rank;
	} else if (f->rank != m->to + 1) {
		missing_end_run(m);
		m->from = f->rank;
	}
	m->to = f->rank;
}

/* One finding: a node's files are missing together. */
static int report_missing(struct uns_rank_reading *r, enum uns_scope scope, bool copies, struct uns_err *err)
{
	struct uns_rank_missing *m = &r->missing;

	if (!m->n)
		return 0;
	missing_end_run(m);
	if (m->ranks.failed)
		return uns_oom(err);
	return uns_catalog_add_finding(
		r->cat,
		UNS_FINDING(.id = m->n > 1 ? UNS_FOUND_RANK_FILES_MISSING : UNS_FOUND_RANK_FILE_MISSING, .scope = scope,
			    .file = m->path, .rank = uns_rank(m->first),
			    .arg = { { "more", uns_more(m->n - 1) },
				     { "ranks", uns_str(m->ranks.p) },
				     { "copies", uns_more(copies) } }),
		err);
}

/* An unknown form is damage if other ranks' files have a known form. */
static int report_unread(struct uns_rank_reading *r, enum uns_scope scope, bool copies, struct uns_err *err)
{
	const struct uns_rank_unread *u = r->unread;
	size_t n = 0, more = 0, most = r->unknown ? 1 : MAX_UNREAD;
	int code;

	for (; u && n < most; u = u->next, n++) {
		if (r->skips_unknown && u->code == -ENOTSUP)
			continue;
		code = u->code == -ENOTSUP && r->n_read ? -EBADMSG : uns_finding_code(u->code);
		UNS_TRY(uns_catalog_add_finding(
			r->cat,
			UNS_FINDING(.id = code == -EBADMSG ? UNS_FOUND_RANK_FILE_UNREADABLE
							   : UNS_FOUND_RANK_FILE_UNKNOWN,
				    .scope = scope, .code = code, .file = u->file->path,
				    .rank = uns_rank(u->file->rank),
				    .arg = { { "cause", uns_str(u->why) }, { "copies", uns_more(copies) } }),
			err));
	}
	for (; u && !r->unknown; u = u->next)
		more++;
	if (!more)
		return 0;
	return UNS_ADD_FINDING(r->cat, err, RANK_FILES_UNREADABLE, .scope = scope, .arg = { { "n", uns_num(more) } });
}

/* -- all of them -- */

int uns_rank_reading_add(struct uns_rank_reading *r, const struct uns_rank_file *files, size_t n, uns_rank_add *add,
			 void *ctx, struct uns_err *err)
{
	struct uns_rank_missing *missing = &r->missing;
	struct one o = { .add = add, .ctx = ctx };
	struct uns_rank_unread *u;
	enum uns_scope scope;
	bool copies;
	int code;

	for (; o.index < n && !r->unknown; o.index++) {
		struct uns_err why = { 0 };

		o.file = &files[o.index];
		UNS_TRY(uns_catalog_add_file(r->cat, r->root, o.file->path, &o.in_catalog, err));
		if (r->cat->files[o.in_catalog].missing) {
			missing_add(missing, o.file);
			continue;
		}
		code = file_read(r, &o, &why);
		if (code == 0) {
			r->n_read++;
			continue;
		}
		if (!uns_code_is_finding(code)) {
			uns_fail_in_file(&why, o.file->path);
			return uns_fail_copy(err, &why);
		}
		r->n_unknown += code == -ENOTSUP;
		r->unknown = r->n_unknown > 1 && !r->n_read;
		UNS_TRY_ALLOC(u = UNS_NEW(&r->merge.scratch, struct uns_rank_unread), err);
		UNS_TRY_ALLOC(u->why = uns_arena_str(&r->merge.scratch, why.text), err);
		u->file = o.file;
		u->code = code;
		*r->unread_tail = u;
		r->unread_tail = &u->next;
	}
	/* Of what these files held nothing is lost but the sharded form, if other ranks' files are replicas. */
	copies = !r->unknown && !r->no_copies && uns_rank_merge_is_whole(&r->merge);
	scope = copies ? UNS_SCOPE_SHARDED : r->merge.scope;
	UNS_TRY(report_missing(r, scope, copies, err));
	UNS_TRY(report_unread(r, scope, copies, err));
	return uns_rank_merge_emit(&r->merge, err);
}
