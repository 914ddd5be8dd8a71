/* A view's directory as a sorted array of files. Knows no views and no I/O. */
#include "model/tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/path.h"
#include "base/search.h"

void uns_named_layout(struct uns_layout_builder *b, const struct uns_named_tensor *t)
{
	const uint64_t elems = uns_shape_elems(uns_named_shape(t));

	if (t->slice)
		uns_layout_slice(b, t->tensor, t->slice, 0, elems, t->out);
	else
		uns_layout_tensor(b, t->tensor, 0, elems, t->out);
}

int uns_vtree_add(struct uns_vtree *tree, const struct uns_vfile *file, struct uns_err *err)
{
	UNS_TRY(uns_arena_check(&tree->arena, err));
	UNS_TRY_ALLOC(UNS_ARENA_ROOM(&tree->arena, tree->v, tree->n, tree->cap), err);
	tree->v[tree->n] = *file;
	tree->v[tree->n].added = (uint32_t)tree->n;
	tree->n++;
	return 0;
}

int uns_vtree_add_text(struct uns_vtree *tree, const char *path, const char *text, size_t len, const char *origin,
		       struct uns_err *err)
{
	struct uns_vfile file = { .path = uns_arena_str(&tree->arena, path), .source = UNS_NONE, .origin = origin };
	struct uns_segment *segment = UNS_NEW(&tree->arena, struct uns_segment);
	char *copy = uns_arena_strn(&tree->arena, text, len);

	UNS_TRY_ALLOC(segment, err);
	*segment = (struct uns_segment){ .from = UNS_FROM_LITERAL, .literal = (const uint8_t *)copy, .len_bytes = len };
	file.layout = (struct uns_layout){ .segment = segment, .n = len > 0, .size_bytes = len };
	return uns_vtree_add(tree, &file, err);
}

int uns_vtree_add_file(struct uns_vtree *tree, const struct uns_catalog *cat, const char *path, uint32_t file,
		       struct uns_err *err)
{
	struct uns_vfile v = { .path = uns_arena_str(&tree->arena, path), .source = file };

	UNS_TRY(uns_layout_of_file(&tree->arena, cat, file, &v.layout, err));
	return uns_vtree_add(tree, &v, err);
}

int uns_vtree_add_companion(struct uns_vtree *tree, const struct uns_catalog *cat,
			    const struct uns_companion *companion, struct uns_err *err)
{
	const struct uns_span *text = &companion->text;

	if (!uns_span_left(text))
		return uns_vtree_add_file(tree, cat, companion->name, companion->file, err);
	return uns_vtree_add_text(tree, companion->name, (const char *)text->p, uns_span_left(text),
				  uns_arena_printf(&tree->arena,
						   companion->made ? "made from %s" : "a part of %s, unchanged",
						   cat->files[companion->file].path),
				  err);
}

int uns_vtree_note(struct uns_vtree *tree, struct uns_err *err, const char *fmt, ...)
{
	va_list ap;

	UNS_TRY_ALLOC(UNS_ARENA_ROOM(&tree->arena, tree->note, tree->n_notes, tree->cap_notes), err);
	va_start(ap, fmt);
	tree->note[tree->n_notes] = uns_arena_vprintf(&tree->arena, fmt, ap);
	va_end(ap);
	UNS_TRY_ALLOC(tree->note[tree->n_notes], err);
	tree->n_notes++;
	return 0;
}

int uns_vtree_note_missed(struct uns_vtree *tree, struct uns_err *err, const char *fmt, ...)
{
	const char *text;
	va_list ap;

	va_start(ap, fmt);
	text = uns_arena_vprintf(&tree->arena, fmt, ap);
	va_end(ap);
	UNS_TRY_ALLOC(text && UNS_ARENA_ROOM(&tree->arena, tree->missed, tree->n_missed, tree->cap_missed), err);
	UNS_TRY_ALLOC(UNS_ARENA_ROOM(&tree->arena, tree->note, tree->n_notes, tree->cap_notes), err);
	tree->note[tree->n_notes++] = tree->missed[tree->n_missed++] = text;
	return 0;
}

int uns_vtree_note_findings(struct uns_vtree *tree, const struct uns_finding *f, size_t n, struct uns_err *err)
{
	struct uns_text text = UNS_TEXT_INIT;
	int code = 0;

	for (; n && code == 0; n--, f++) {
		text.len = 0;
		uns_finding_print(f, &text);
		code = text.failed ? uns_oom(err) : uns_vtree_note(tree, err, "%s", text.p);
	}
	uns_text_fini(&text);
	return code;
}

static int by_path(const void *a, const void *b)
{
	const struct uns_vfile *x = a, *y = b;
	int c = uns_str_natural(x->path, y->path);

	return c ? c : (x->added > y->added) - (x->added < y->added);
}

static const struct uns_vfile *find_prefix(const struct uns_vtree *tree, size_t n, const char *path, size_t len)
{
	char name[4096];
	struct uns_vtree before = { .v = tree->v, .n = n };

	if (len >= sizeof(name))
		return NULL;
	memcpy(name, path, len);
	name[len] = '\0';
	return uns_vtree_find(&before, name);
}

/* A file at a path that would have to be a directory of `path`. A parent sorts before its children,
 * so it is enough to look at the first n entries, which are decided already. */
static const struct uns_vfile *file_above(const struct uns_vtree *tree, size_t n, const char *path)
{
	const struct uns_vfile *found = NULL;
	const char *slash = path;

	while (!found && (slash = strchr(slash, '/')))
		found = find_prefix(tree, n, path, (size_t)(slash++ - path));
	return found;
}

static bool keeps(struct uns_vtree *tree, size_t n, const struct uns_vfile *file)
{
	const struct uns_vfile *above;

	if (n && strcmp(tree->v[n - 1].path, file->path) == 0) {
		uns_vtree_note(tree, NULL, "%s: two files would have this name; only the first is shown", file->path);
		return false;
	}
	above = file_above(tree, n, file->path);
	if (above)
		uns_vtree_note(tree, NULL, "%s is not shown, because %s is a file", file->path, above->path);
	return !above;
}

void uns_vtree_seal(struct uns_vtree *tree)
{
	size_t i, n = 0;

	if (tree->n)
		qsort(tree->v, tree->n, sizeof(*tree->v), by_path);
	for (i = 0; i < tree->n; i++)
		if (keeps(tree, n, &tree->v[i]))
			tree->v[n++] = tree->v[i];
	tree->n = n;
}

const struct uns_vfile *uns_vtree_find(const struct uns_vtree *tree, const char *path)
{
	size_t i;

	UNS_SEARCH(i, tree->n, uns_str_natural(tree->v[i].path, path) < 0);
	return i < tree->n && strcmp(tree->v[i].path, path) == 0 ? &tree->v[i] : NULL;
}

int uns_vtree_set_tensors(struct uns_vtree *tree, const struct uns_named_tensor *v, size_t n, struct uns_err *err)
{
	struct uns_named_tensor *copy = UNS_NEW_N(&tree->arena, struct uns_named_tensor, n);

	UNS_TRY_ALLOC(copy, err);
	if (n)
		memcpy(copy, v, n * sizeof(*v));
	tree->tensor = copy;
	tree->n_tensors = n;
	return 0;
}

void uns_vtree_fini(struct uns_vtree *tree)
{
	uns_arena_fini(&tree->arena);
	*tree = (struct uns_vtree){ 0 };
}
