#include "seal/compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "seal/make.h"

enum { NAMED_AT_MOST = 16 }; /* a checkpoint in another's place differs in all of its files */

enum state {
	AS_SEALED,
	OTHER_TIME, /* what was looked at of it is as it was */
	MISSING,
	OTHER_SIZE,
	OTHER_CONTENT,
	UNREADABLE, /* deep only: `why` */
	NOT_READ,      /* it may not be read, or is a link that is not followed */
	NOT_LOOKED_AT, /* it was left out */
};

/* What is at a sealed file's name now. */
struct seen {
	const struct uns_seal_file *file;
	const char *path; /* below root */
	enum state state;
	uint64_t size_bytes;
	int64_t mtime_ns;
	bool has_twin; /* another sealed file has its size and its time */
	bool sampled;
	uint64_t sample; /* of the present file */
	uint8_t sha256[UNS_SHA256_BYTES]; /* the same; deep only */
	/* Deep: pieces that differ. */
	size_t n_pieces;
	const struct uns_seal_piece *first;
	char why[UNS_ERR_TEXT];
};

struct comparing {
	const struct uns_seal *seal;
	const struct uns_seal_look *look;
	struct uns_arena arena;
	struct seen *seen; /* parallel to the seal's files */
	bool is_file, deep;
	uns_seal_found *found;
	void *ctx;
	size_t n_other_time, n_content; /* reported or not */
	const char *first_not_read;
	size_t n_not_read;
	enum uns_scope scope; /* of those not reported */
};

static void comparing_fini(struct comparing *c)
{
	uns_arena_fini(&c->arena);
	free(c->seen);
}

/* -- looking -- */

static int stat_now(const struct comparing *c, const char *path, struct uns_stat *out, struct uns_err *err)
{
	return c->look->capture ? uns_capture_stat(c->look->capture, path, out, err)
				: uns_root_stat(c->look->root, path, true, out, err);
}

static int by_size_and_time(const void *a, const void *b)
{
	const struct seen *x = *(struct seen *const *)a, *y = *(struct seen *const *)b;

	if (x->file->size_bytes != y->file->size_bytes)
		return x->file->size_bytes < y->file->size_bytes ? -1 : 1;
	return (x->file->mtime_ns > y->file->mtime_ns) - (x->file->mtime_ns < y->file->mtime_ns);
}

/* Files of one size and one time could change places without a difference in either. */
static int find_twins(struct comparing *c, struct uns_err *err)
{
	struct seen **order = UNS_NEW_N(&c->arena, struct seen *, c->seal->n_files);
	size_t i;

	UNS_TRY_ALLOC(order, err);
	for (i = 0; i < c->seal->n_files; i++)
		order[i] = &c->seen[i];
	if (c->seal->n_files)
		qsort(order, c->seal->n_files, sizeof(*order), by_size_and_time);
	for (i = 1; i < c->seal->n_files; i++)
		if (by_size_and_time(&order[i - 1], &order[i]) == 0)
			order[i - 1]->has_twin = order[i]->has_twin = true;
	return 0;
}

/* What is known without the file's bytes. */
static int look_at_stat(struct comparing *c, struct seen *s, struct uns_stat *stat, struct uns_err *err)
{
	struct uns_err why = { 0 };
	int code = stat_now(c, s->path, stat, &why);

	if (code == -ENOENT || code == -ENOTDIR)
		s->state = MISSING;
	else if (code == -EACCES || code == -ELOOP || code == -EXDEV || (code == 0 && stat->kind == UNS_KIND_LINK))
		s->state = NOT_READ;
	else if (code < 0)
		return uns_fail_as(err, &why);
	else if (stat->kind != UNS_KIND_FILE)
		s->state = MISSING;
	else if (stat->id.size != s->file->size_bytes)
		s->state = OTHER_SIZE;
	s->size_bytes = stat->id.size;
	s->mtime_ns = stat->id.mtime_ns;
	return 0;
}

/* Opens a file that has the size that was found before; *fd stays -1 if it may not be read. */
static int open_now(struct comparing *c, struct seen *s, int *fd, struct uns_stat *stat, struct uns_err *err)
{
	struct uns_err why = { 0 };
	int code = uns_root_open_file(c->look->root, s->path, fd, stat, &why);

	if (code == -EACCES)
		s->state = NOT_READ;
	else if (code < 0)
		return uns_fail_as(err, &why);
	else if (stat->id.size != s->size_bytes)
		return uns_fail(err, -ESTALE, "%s changes while it is being looked at", s->path);
	return 0;
}

static int take_sample(struct comparing *c, struct seen *s, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_stat stat;

	UNS_TRY(open_now(c, s, &fd, &stat, err));
	if (fd < 0)
		return 0;
	s->sampled = true;
	return uns_seal_sample(fd, s->path, s->size_bytes, &s->sample, err);
}

/* A sealed file has the size that this one has now. */
static bool is_size_of_other(const struct comparing *c, const struct seen *s)
{
	const struct seen *o = c->seen, *end = o + c->seal->n_files;

	while (o < end && o->file->size_bytes != s->size_bytes)
		o++;
	return o < end;
}

static int look_quickly(struct comparing *c, struct seen *s, struct uns_err *err)
{
	struct uns_stat stat = { 0 };

	UNS_TRY(look_at_stat(c, s, &stat, err));
	if (s->state == OTHER_SIZE)
		return is_size_of_other(c, s) ? take_sample(c, s, err) : 0;
	if (s->state != AS_SEALED || (stat.id.mtime_ns == s->file->mtime_ns && !s->has_twin))
		return 0;
	s->state = stat.id.mtime_ns == s->file->mtime_ns ? AS_SEALED : OTHER_TIME;
	UNS_TRY(take_sample(c, s, err));
	if (s->sampled && s->sample != s->file->sample)
		s->state = OTHER_CONTENT;
	return 0;
}

/* The pieces of `now`, which was read with the seal's own list of them, whose bytes are not the sealed ones. */
static void find_pieces(struct seen *s, const struct uns_seal_file *now)
{
	const struct uns_seal_piece *was = s->file->piece;
	size_t i;

	for (i = 0; i < now->n_pieces; i++) {
		if (now->piece[i].crc == was[i].crc)
			continue;
		s->first = s->first ? s->first : &was[i];
		s->n_pieces++;
	}
}

/* fd is of a file that has the sealed size. */
static int read_deeply(struct comparing *c, struct seen *s, int fd, const struct uns_stat *stat, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct uns_seal_piece *pieces = NULL;
	struct uns_seal_file now = *s->file;
	struct uns_identity after;

	UNS_TRY_ALLOC(pieces = malloc((now.n_pieces + 1) * sizeof(*pieces)), err);
	if (now.n_pieces)
		memcpy(pieces, now.piece, now.n_pieces * sizeof(*pieces));
	now.piece = pieces;
	uns_fd_forget_pages(fd, &stat->id);
	UNS_TRY(uns_seal_read(fd, s->path, &now, c->look->watch, err));
	UNS_TRY(uns_fd_identity(fd, true, &after, NULL, err));
	if (!uns_identity_equal(&after, &stat->id))
		return uns_fail(err, -ESTALE, "%s changes while it is being read", s->path);
	if (memcmp(now.sha256, s->file->sha256, sizeof(now.sha256)) == 0)
		return 0;
	s->state = OTHER_CONTENT;
	s->sampled = true;
	s->sample = now.sample;
	memcpy(s->sha256, now.sha256, sizeof(s->sha256));
	find_pieces(s, &now);
	return 0;
}

static int look_at_bytes(struct comparing *c, struct seen *s, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_stat stat = { 0 };

	UNS_TRY(look_at_stat(c, s, &stat, err));
	if (s->state == OTHER_SIZE && is_size_of_other(c, s))
		return take_sample(c, s, err);
	if (s->state != AS_SEALED)
		return 0;
	UNS_TRY(open_now(c, s, &fd, &stat, err));
	return fd < 0 ? 0 : read_deeply(c, s, fd, &stat, err);
}

/* What cannot be read at this moment is no reason not to look at the others. */
static int look_deeply(void *ctx, size_t i, struct uns_err *err)
{
	struct comparing *c = ctx;
	struct seen *s = &c->seen[i];
	struct uns_err why = { 0 };
	int code;

	if (c->look->known && c->look->known(c->look->ctx, s->path)) {
		s->state = NOT_LOOKED_AT;
		return 0;
	}
	code = look_at_bytes(c, s, &why);
	if (code == -ENOMEM || code == -EINTR)
		return uns_fail_as(err, &why);
	if (code < 0) {
		s->state = UNREADABLE;
		snprintf(s->why, sizeof(s->why), "%s", why.text);
	}
	return 0;
}

/* -- reporting -- */

/* Whose content it has now; NULL = no other sealed file's. */
static const struct seen *find_other(const struct comparing *c, const struct seen *s)
{
	const struct seen *o = c->seen, *end = o + c->seal->n_files;

	for (; o < end; o++)
		if (s->sampled && o != s && o->file->size_bytes == s->size_bytes && o->file->sample == s->sample &&
		    (!c->deep || s->state == OTHER_SIZE || memcmp(o->file->sha256, s->sha256, sizeof(s->sha256)) == 0))
			return o;
	return NULL;
}

static int64_t rank_of(const struct uns_seal_file *f)
{
	size_t i;

	for (i = 1; i < f->n_pieces; i++)
		if (f->piece[i].rank != f->piece[0].rank)
			return -1;
	return f->n_pieces ? f->piece[0].rank : -1;
}

/* How many of the file's pieces are lost, all of them if it is not known which. */
static size_t lost(const struct seen *s)
{
	return s->first ? s->n_pieces : s->file->n_pieces;
}

static int report_content(struct comparing *c, struct seen *s, struct uns_err *err)
{
	static const enum uns_finding_id of[] = { [MISSING] = UNS_FOUND_SEALED_FILE_MISSING,
						  [OTHER_SIZE] = UNS_FOUND_SEALED_FILE_RESIZED,
						  [OTHER_CONTENT] = UNS_FOUND_SEALED_FILE_DIFFERS };
	const struct uns_seal_file *f = s->file;
	const struct uns_seal_piece *first = s->first ? s->first : f->piece;
	const struct seen *other = NULL;
	struct uns_finding found = {
		.id = of[s->state],
		.scope = f->scope,
		.file = s->path,
		.tensor = lost(s) ? first->tensor : NULL,
		.rank = uns_rank(s->first ? first->rank : rank_of(f)),
		.arg = { { "more", uns_more(lost(s) > 1 ? lost(s) - 1 : 0) } },
	};

	if (c->n_content++ >= NAMED_AT_MOST) {
		c->scope = c->n_content > NAMED_AT_MOST + 1 && c->scope != f->scope ? UNS_SCOPE_ALL : f->scope;
		return 0;
	}
	if (s->state == OTHER_SIZE) {
		found.expected = uns_num(f->size_bytes);
		found.found = uns_num(s->size_bytes);
	}
	if (s->state != MISSING)
		other = find_other(c, s);
	if (other) {
		found.id = UNS_FOUND_SEALED_FILES_EXCHANGED;
		found.arg[1] = (struct uns_finding_arg){ "other_file", uns_str(other->path) };
		found.arg[2] = (struct uns_finding_arg){ "other_rank", uns_rank(rank_of(other->file)) };
	}
	return c->found(c->ctx, &found, err);
}

static int report_file(struct comparing *c, struct seen *s, struct uns_err *err)
{
	if (s->state == OTHER_TIME)
		c->n_other_time++;
	if (s->state == UNREADABLE)
		return c->found(c->ctx,
				UNS_FINDING(.id = UNS_FOUND_BYTES_UNREADABLE, .scope = s->file->scope, .file = s->path,
					    .arg = { { "cause", uns_str(s->why) } }),
				err);
	if (s->state == NOT_READ && !c->n_not_read++)
		c->first_not_read = s->path;
	return s->state == MISSING || s->state == OTHER_SIZE || s->state == OTHER_CONTENT ? report_content(c, s, err)
											  : 0;
}

/* Files that came after the seal contradict nothing in it. */
static int report_new(struct comparing *c, struct uns_err *err)
{
	struct uns_seal_names names;
	struct uns_err why = { 0 };
	const char *first = NULL;
	size_t i, n = 0;

	if (c->is_file || uns_seal_list(c->look->root, c->look->path, c->look->hidden, &c->arena, &names, &why) < 0)
		return why.code == -ENOMEM ? uns_oom(err) : 0;
	for (i = 0; i < names.n; i++)
		if (!uns_seal_find(c->seal, names.v[i].name)) {
			first = first ? first : names.v[i].path;
			n++;
		}
	if (!n)
		return 0;
	return c->found(
		c->ctx,
		UNS_FINDING(.id = UNS_FOUND_FILES_AFTER_SEAL, .file = first, .arg = { { "more", uns_more(n - 1) } }),
		err);
}

/* Every file was written after the seal, and every shard holds something that no shard held then: that is another save
 * in the same place, which the seal does not cover. */
static bool saved_again(const struct comparing *c)
{
	const struct seen *s = c->seen, *end = s + c->seal->n_files;
	size_t n = 0;

	for (; s < end; s++) {
		const bool differs = s->state == OTHER_SIZE || s->state == OTHER_CONTENT;

		if (s->state == MISSING || s->state == UNREADABLE || s->state == NOT_READ ||
		    s->state == NOT_LOOKED_AT || s->mtime_ns / 1000000000 <= c->seal->made_s ||
		    (s->file->n_pieces && !differs) || (differs && find_other(c, s)))
			return false;
		n += differs;
	}
	return n > 0;
}

static int report(struct comparing *c, struct uns_err *err)
{
	size_t i;

	if (saved_again(c))
		return c->found(c->ctx, UNS_FINDING(.id = UNS_FOUND_SAVED_AFTER_SEAL), err);
	for (i = 0; i < c->seal->n_files; i++)
		UNS_TRY(report_file(c, &c->seen[i], err));
	if (c->n_content > NAMED_AT_MOST)
		UNS_TRY(c->found(c->ctx,
				 UNS_FINDING(.id = UNS_FOUND_MORE_SEALED_FILES_DIFFER, .scope = c->scope,
					     .arg = { { "n", uns_num(c->n_content - NAMED_AT_MOST) } }),
				 err));
	if (c->n_not_read)
		UNS_TRY(c->found(c->ctx,
				 UNS_FINDING(.id = UNS_FOUND_SEALED_FILE_NOT_READ, .file = c->first_not_read,
					     .arg = { { "more", uns_more(c->n_not_read - 1) } }),
				 err));
	if (c->n_other_time)
		UNS_TRY(c->found(c->ctx,
				 UNS_FINDING(.id = UNS_FOUND_SEALED_AT_OTHER_TIMES,
					     .arg = { { "n", uns_num(c->n_other_time) } }),
				 err));
	return c->deep ? 0 : report_new(c, err);
}

static int begin(struct comparing *c, struct uns_err *err)
{
	const char *path;
	struct uns_stat stat;
	size_t i;

	UNS_TRY(stat_now(c, c->look->path, &stat, err));
	c->is_file = stat.kind == UNS_KIND_FILE;
	UNS_TRY_ALLOC(c->seen = calloc(c->seal->n_files + 1, sizeof(*c->seen)), err);
	for (i = 0; i < c->seal->n_files; i++) {
		path = c->is_file ? c->look->path : uns_path_join(&c->arena, c->look->path, c->seal->file[i].name);
		UNS_TRY_ALLOC(path, err);
		c->seen[i] = (struct seen){ .file = &c->seal->file[i], .path = path };
	}
	return 0;
}

int uns_seal_compare(const struct uns_seal *seal, const struct uns_seal_look *look, uns_seal_found *found, void *ctx,
		     struct uns_err *err)
{
	UNS_CLEANUP(comparing_fini)
	struct comparing c = { .seal = seal, .look = look, .found = found, .ctx = ctx };
	size_t i;

	UNS_TRY(begin(&c, err));
	UNS_TRY(find_twins(&c, err));
	for (i = 0; i < seal->n_files; i++)
		UNS_TRY(look_quickly(&c, &c.seen[i], err));
	return report(&c, err);
}

int uns_seal_compare_deep(const struct uns_seal *seal, const struct uns_seal_look *look, uns_seal_found *found,
			  void *ctx, struct uns_err *err)
{
	UNS_CLEANUP(comparing_fini)
	struct comparing c = { .seal = seal, .look = look, .found = found, .ctx = ctx, .deep = true };
	size_t i;

	UNS_TRY(begin(&c, err));
	if (look->pool)
		UNS_TRY(uns_pool_each(look->pool, seal->n_files, look_deeply, &c, err));
	for (i = 0; i < seal->n_files && !look->pool; i++)
		UNS_TRY(look_deeply(&c, i, err));
	return report(&c, err);
}

bool uns_seal_is_about_content(enum uns_finding_id id)
{
	return id == UNS_FOUND_SEALED_FILE_MISSING || id == UNS_FOUND_SEALED_FILE_RESIZED ||
	       id == UNS_FOUND_SEALED_FILE_DIFFERS || id == UNS_FOUND_SEALED_FILES_EXCHANGED ||
	       id == UNS_FOUND_MORE_SEALED_FILES_DIFFER || id == UNS_FOUND_SAVED_AFTER_SEAL;
}
