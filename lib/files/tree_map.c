/* The map of a view. Owns its keys. */
#include "files/tree_map.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "files/shared_texts.h"

enum { PADDING = -1, OF_THE_VIEW = -2, NOTHING = -3 };

static int64_t index_of(const struct uns_catalog *cat, const struct uns_tensor *t)
{
	if (t->of)
		t = t->of;
	if (t->renamed)
		t = t->renamed;
	return t >= cat->tensors && t < cat->tensors + cat->n_tensors ? t - cat->tensors : OF_THE_VIEW;
}

static int64_t tensor_of(const struct uns_catalog *cat, const struct uns_segment *s)
{
	if (s->from == UNS_FROM_ZEROS)
		return PADDING;
	return s->from == UNS_FROM_PIECES ? index_of(cat, s->tensor) : NOTHING;
}

/* Stretches of one tensor that follow each other are one. */
static void list_print(struct uns_text *t, const struct uns_catalog *cat, const struct uns_layout *layout)
{
	int64_t of = NOTHING, next;
	uint64_t bytes = 0;
	size_t i;

	uns_text_str(t, "[");
	for (i = 0; i <= layout->n; i++) {
		next = i < layout->n ? tensor_of(cat, &layout->segment[i]) : NOTHING;
		if (next != of && of != NOTHING)
			uns_text_printf(t, "%s%lld,%llu", t->len > 1 ? "," : "", (long long)of,
					(unsigned long long)bytes);
		bytes = next == of ? bytes : 0;
		of = next;
		if (of != NOTHING)
			bytes += layout->segment[i].len_bytes;
	}
	uns_text_str(t, "]");
}

static void file_print(struct uns_text *out, const struct uns_catalog *cat, const struct uns_vfile *file,
		       struct shared_texts *lists)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text list = UNS_TEXT_INIT;

	if (file->source == UNS_NONE)
		list_print(&list, cat, &file->layout);
	uns_text_str(out, "{\"path\":");
	uns_text_json_str(out, file->path);
	uns_text_printf(out, ",\"bytes\":%llu,\"list\":", (unsigned long long)file->layout.size_bytes);
	if (list.len > 2)
		uns_text_printf(out, "%u}", shared_texts_index(lists, &list));
	else
		uns_text_str(out, "null}");
	out->failed |= list.failed;
}

/* The names that a view has for a tensor: it may be cut into many. */
struct names {
	const char *first, *last;
	size_t n;
};

static void names_print(struct uns_text *out, const struct uns_catalog *cat, const struct uns_vtree *tree)
{
	UNS_CLEANUP(uns_free_p) struct names *names = calloc(cat->n_tensors + 1, sizeof(*names));
	const char *between = "\n";
	int64_t k;
	size_t i;

	if (!names) {
		out->failed = true;
		return;
	}
	for (i = 0; i < tree->n_tensors; i++) {
		k = index_of(cat, tree->tensor[i].tensor);
		if (k == OF_THE_VIEW)
			continue;
		if (!names[k].n++)
			names[k].first = tree->tensor[i].name;
		names[k].last = tree->tensor[i].name;
	}
	for (i = 0; i < cat->n_tensors; i++) {
		if (!names[i].n || (names[i].n == 1 && strcmp(names[i].first, cat->tensors[i].name) == 0))
			continue;
		uns_text_printf(out, "%s[%zu,%zu,", between, i, names[i].n);
		uns_text_json_str(out, names[i].first);
		uns_text_str(out, ",");
		uns_text_json_str(out, names[i].last);
		uns_text_str(out, "]");
		between = ",\n";
	}
}

void uns_tree_map_print(struct uns_text *out, const struct uns_catalog *cat, const struct uns_vtree *tree)
{
	UNS_CLEANUP(shared_texts_fini) struct shared_texts lists = SHARED_TEXTS_INIT;
	size_t i;

	uns_text_str(out, "{\"files\":[");
	for (i = 0; i < tree->n; i++) {
		uns_text_str(out, i ? ",\n" : "\n");
		file_print(out, cat, &tree->v[i], &lists);
	}
	uns_text_str(out, "],\n\"lists\":[");
	shared_texts_print(out, &lists);
	uns_text_str(out, "],\n\"names\":[");
	names_print(out, cat, tree);
	uns_text_str(out, "]}\n");
}
