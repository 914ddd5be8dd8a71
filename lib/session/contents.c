/* Paths of a tree are sorted, and mostly begin as the one before; most files have the owner, mode and time of others.
 * So of each file is kept, as numbers of seven bits a byte (the least first, the eighth bit: more follow) and text:
 *
 *      bytes that the path shares with the one before | bytes of the rest | the rest | size | which of attr[]
 *
 * The first of each group of files, and the whole file, which is in front of all groups, share nothing. Behind attr[]
 * are the groups' places in the text that follows:
 *
 *      attr[n_attr] | uint32_t[n_starts] | text[n_bytes] */
#include "session/contents.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/search.h"
#include "base/text.h"

enum { GROUP = 32 };

static void number_put(struct uns_text *out, uint64_t n)
{
	uint8_t byte;

	do {
		byte = (uint8_t)((n & 127) | (n > 127 ? 128 : 0));
		uns_text_add(out, &byte, 1);
		n >>= 7;
	} while (n);
}

/* What number_put wrote: it is there. */
static uint64_t number_take(struct uns_span *from)
{
	uint64_t n = 0;
	uint8_t byte = 128;
	unsigned shift;

	for (shift = 0; byte & 128 && uns_take_u8(from, &byte); shift += 7)
		n |= (uint64_t)(byte & 127) << shift;
	return n;
}

/* -- making -- */

struct making {
	struct uns_text text;
	struct uns_attributes *attr; /* distinct ones; room for one of each file */
	uint32_t *start;
	uint32_t n_attr, n_starts, longest;
};

static void making_fini(struct making *m)
{
	uns_text_fini(&m->text);
	free(m->attr);
	free(m->start);
}

static bool attributes_equal(const struct uns_attributes *a, const struct uns_attributes *b)
{
	return a->mtime_ns == b->mtime_ns && a->access.uid == b->access.uid && a->access.gid == b->access.gid &&
	       a->access.mode == b->access.mode;
}

/* The last ones first: neighbours are alike. */
static uint32_t which_attributes(struct making *m, const struct uns_attributes *attr)
{
	uint32_t i = m->n_attr;

	while (i && !attributes_equal(&m->attr[i - 1], attr))
		i--;
	if (i)
		return i - 1;
	m->attr[m->n_attr] = *attr;
	return m->n_attr++;
}

static size_t shared(const char *a, const char *b)
{
	size_t n = 0;

	while (a[n] && a[n] == b[n])
		n++;
	return n;
}

static void making_add(struct making *m, const char *before, const struct uns_vfile *file,
		       const struct uns_attributes *attr)
{
	const size_t same = shared(before, file->path), rest = strlen(file->path) - same;

	number_put(&m->text, same);
	number_put(&m->text, rest);
	uns_text_add(&m->text, file->path + same, rest);
	number_put(&m->text, file->layout.size_bytes);
	number_put(&m->text, which_attributes(m, attr));
	if (m->longest < same + rest)
		m->longest = (uint32_t)(same + rest);
}

static int making_fill(struct making *m, const struct contents_source *from, struct uns_err *err)
{
	const int64_t newest_ns = uns_attributes_newest_ns(from->catalog, from->dir);
	const struct uns_vtree *tree = from->tree;
	struct uns_attributes attr;
	struct uns_access base;
	size_t i;

	UNS_TRY_ALLOC(m->attr = calloc(tree->n + 1, sizeof(*m->attr)), err);
	UNS_TRY_ALLOC(m->start = calloc(tree->n / GROUP + 1, sizeof(*m->start)), err);
	UNS_TRY(uns_attributes_base(from->catalog, from->dir, &base, err));
	if (tree->whole) {
		attr = uns_attributes_of(from->catalog, tree->whole, newest_ns, &base);
		making_add(m, "", tree->whole, &attr);
	}
	for (i = 0; i < tree->n; i++) {
		if (i % GROUP == 0)
			m->start[m->n_starts++] = (uint32_t)m->text.len;
		attr = uns_attributes_of(from->catalog, &tree->v[i], newest_ns, &base);
		making_add(m, i % GROUP ? tree->v[i - 1].path : "", &tree->v[i], &attr);
	}
	return m->text.failed || m->text.len > UINT32_MAX ? uns_oom(err) : 0;
}

static uint32_t *starts_of(const struct contents *contents)
{
	return (uint32_t *)(contents->attr + contents->n_attr);
}

static uint8_t *text_of(const struct contents *contents)
{
	return (uint8_t *)(starts_of(contents) + contents->n_starts);
}

size_t contents_bytes(const struct contents *contents)
{
	return (size_t)(text_of(contents) + contents->n_bytes - (const uint8_t *)contents);
}

int contents_new(const struct contents_source *from, struct contents **out, struct uns_err *err)
{
	UNS_CLEANUP(making_fini) struct making m = { 0 };
	struct contents *made;

	UNS_TRY(making_fill(&m, from, err));
	made = malloc(sizeof(*made) + m.n_attr * sizeof(*m.attr) + m.n_starts * sizeof(*m.start) + m.text.len);
	UNS_TRY_ALLOC(made, err);
	*made = (struct contents){ .view = from->view,
				   .parameter = from->parameter,
				   .refs = 1,
				   .has_whole = from->tree->whole != NULL,
				   .n_attr = m.n_attr,
				   .n_starts = m.n_starts,
				   .longest = m.longest,
				   .n_bytes = (uint32_t)m.text.len };
	memcpy(made->attr, m.attr, m.n_attr * sizeof(*m.attr));
	memcpy(starts_of(made), m.start, m.n_starts * sizeof(*m.start));
	if (m.text.len)
		memcpy(text_of(made), m.text.p, m.text.len);
	*out = made;
	return 0;
}

struct contents *contents_ref(struct contents *contents)
{
	__atomic_add_fetch(&contents->refs, 1, __ATOMIC_RELAXED);
	return contents;
}

void contents_unref(struct contents *contents)
{
	if (contents && __atomic_sub_fetch(&contents->refs, 1, __ATOMIC_ACQ_REL) == 0)
		free(contents);
}

/* -- reading -- */

static struct uns_span text_from(const struct contents *contents, uint32_t start)
{
	return uns_span_of(text_of(contents) + start, contents->n_bytes - start);
}

/* The file that begins where the text does. path: that of the one before, and then its own; NULL = not asked for. */
static struct contents_file take_file(const struct contents *contents, struct uns_span *text, char *path)
{
	struct contents_file file = { .path = path };
	const size_t same = number_take(text), n = number_take(text);
	const uint8_t *rest;

	if (uns_span_take(text, n, &rest) && path) {
		memcpy(path + same, rest, n);
		path[same + n] = '\0';
	}
	file.size_bytes = number_take(text);
	file.attr = contents->attr[number_take(text)];
	return file;
}

struct contents_file contents_whole(const struct contents *contents)
{
	struct uns_span text = text_from(contents, 0);

	return take_file(contents, &text, NULL);
}

static bool group_is_before(const struct contents_at *at, size_t i)
{
	struct uns_span text = text_from(at->of, starts_of(at->of)[i]);

	return uns_str_natural(take_file(at->of, &text, at->path).path, at->top) <= 0;
}

int contents_begin(const struct contents *contents, const char *path, struct uns_arena *arena, struct contents_at *out,
		   struct uns_err *err)
{
	size_t i;

	*out = (struct contents_at){ .of = contents,
				     .top = path,
				     .below = uns_arena_printf(arena, "%s/", path),
				     .path = UNS_NEW_N(arena, char, (size_t)contents->longest + 1) };
	UNS_TRY_ALLOC(out->below && out->path, err);
	if (!contents->n_starts)
		return 0;
	UNS_SEARCH(i, (size_t)contents->n_starts, group_is_before(out, i));
	out->text = text_from(contents, starts_of(contents)[i ? i - 1 : 0]);
	return 0;
}

bool contents_next(struct contents_at *at, struct contents_file *out)
{
	while (uns_span_left(&at->text)) {
		*out = take_file(at->of, &at->text, at->path);
		if (uns_path_within(out->path, at->top))
			return true;
		if (uns_str_natural(out->path, at->below) > 0)
			break;
	}
	return false;
}
