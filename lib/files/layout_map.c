/* The map of a checkpoint. Owns its keys, and how tensors share a layout. */
#include "files/layout_map.h"

#include "base/cleanup.h"
#include "files/shared_texts.h"

static void numbers_print(struct uns_text *t, const uint64_t *v, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		uns_text_printf(t, ",%llu", (unsigned long long)v[i]);
}

static void piece_print(struct uns_text *t, const struct uns_piece *p)
{
	uns_text_printf(t, "[%d,%u", p->rank, p->file);
	if (p->kind == UNS_PIECE_BOX) {
		numbers_print(t, p->box->lo, p->box->n);
		numbers_print(t, p->box->len, p->box->n);
	} else {
		numbers_print(t, &p->range.first, 1);
		numbers_print(t, &p->range.count, 1);
	}
	uns_text_str(t, "]");
}

static uint32_t layout_index(struct shared_texts *layouts, const struct uns_piece *piece, size_t n)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	size_t i;

	for (i = 0; i < n; i++) {
		uns_text_str(&text, i ? "," : "[");
		piece_print(&text, &piece[i]);
	}
	uns_text_str(&text, "]");
	return shared_texts_index(layouts, &text);
}

static void files_print(struct uns_text *t, const struct uns_catalog *cat)
{
	size_t i;

	for (i = 0; i < cat->n_files; i++) {
		uns_text_str(t, i ? ",\n{\"path\":" : "\n{\"path\":");
		uns_text_json_str(t, cat->files[i].path);
		uns_text_printf(t, ",\"bytes\":%llu,\"missing\":%s}",
				(unsigned long long)(cat->files[i].missing ? 0 : cat->files[i].stat.id.size),
				cat->files[i].missing ? "true" : "false");
	}
}

static void string_or_null(struct uns_text *t, const char *key, const char *s)
{
	uns_text_printf(t, ",\"%s\":", key);
	if (s)
		uns_text_json_str(t, s);
	else
		uns_text_str(t, "null");
}

static void tensor_print(struct uns_text *t, const struct uns_catalog *cat, const struct uns_tensor *x,
			 struct shared_texts *layouts)
{
	const bool is_alias = x->alias_of != UNS_NONE && x->alias_of < cat->n_tensors;
	uint32_t i;

	uns_text_str(t, "{\"name\":");
	uns_text_json_str(t, x->name);
	string_or_null(t, "key", x->key);
	string_or_null(t, "role", uns_role_text(x->role));
	string_or_null(t, "state", x->state);
	string_or_null(t, "dtype", uns_dtype_info(x->dtype)->torch);
	uns_text_printf(t, ",\"size\":%u,\"shape\":[", uns_dtype_size(x->dtype));
	for (i = 0; i < x->shape.n; i++)
		uns_text_printf(t, "%s%llu", i ? "," : "", (unsigned long long)x->shape.dim[i]);
	uns_text_printf(t, "],\"group\":%d", x->group);
	string_or_null(t, "alias_of", is_alias ? cat->tensors[x->alias_of].name : NULL);
	if (x->n_pieces)
		uns_text_printf(t, ",\"layout\":%u}", layout_index(layouts, &cat->pieces[x->first_piece], x->n_pieces));
	else
		uns_text_str(t, ",\"layout\":null}");
}

void uns_layout_map_print(struct uns_text *out, const struct uns_catalog *cat)
{
	UNS_CLEANUP(shared_texts_fini) struct shared_texts layouts = SHARED_TEXTS_INIT;
	size_t i;

	uns_text_str(out, "{\"files\":[");
	files_print(out, cat);
	uns_text_str(out, "],\n\"tensors\":[");
	for (i = 0; i < cat->n_tensors; i++) {
		uns_text_str(out, i ? ",\n" : "\n");
		tensor_print(out, cat, &cat->tensors[i], &layouts);
	}
	uns_text_str(out, "],\n\"layouts\":[");
	shared_texts_print(out, &layouts);
	uns_text_str(out, "]}\n");
}
