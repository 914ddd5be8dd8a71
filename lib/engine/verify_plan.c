/* How a file is planned depends on what it is: torch.save items that the catalog knows the
 * positions of, one zip archive, a safetensors file, or plain data. */
#include "engine/verify_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/checked.h"
#include "base/path.h"
#include "engine/edges.h"
#include "engine/resolve.h"
#include "engine/source_read.h"
#include "wire/safetensors.h"
#include "wire/torchfile.h"
#include "wire/zip.h"

/* Reading a gap of this size costs less than a second read. */
enum { MAX_GAP_BYTES = 64 << 10 };

/* -- what the catalog has in each file -- */

void uns_verify_where_fini(struct uns_verify_where *w)
{
	free(w->use);
	free(w->first_use);
}

int uns_verify_where(const struct uns_catalog *cat, struct uns_verify_where *out,
		     struct uns_err *err)
{
	size_t *at, i, k, n = cat->n_files;

	out->use = calloc(cat->n_pieces + 1, sizeof(*out->use));
	out->first_use = at = calloc(n + 2, sizeof(*at));
	if (!out->use || !at)
		return uns_oom(err);
	for (i = 0; i < cat->n_pieces; i++)
		at[cat->pieces[i].file + 2]++;
	for (i = 2; i < n + 2; i++)
		at[i] += at[i - 1];
	for (i = 0; i < cat->n_tensors; i++)
		for (k = 0; k < cat->tensors[i].n_pieces; k++) {
			uint32_t piece = cat->tensors[i].first_piece + (uint32_t)k;

			out->use[at[cat->pieces[piece].file + 1]++] =
				(struct uns_verify_use){ (uint32_t)i, piece };
		}
	return 0;
}

/* -- adding -- */

struct plan {
	struct uns_backing *b;
	const struct uns_verify_where *where;
	uint32_t index;
	const struct uns_file *file;
	struct uns_verify_file *out;
	struct uns_reader r;
};

#define GROW(f, array, n, cap) UNS_ARENA_ROOM(&(f)->arena, (f)->array, (f)->n, (f)->cap)

int uns_verify_unreadable(struct uns_verify_file *f, const char *text)
{
	size_t i;

	for (i = 0; i < f->n_unreadable; i++)
		if (strcmp(f->unreadable[i], text) == 0)
			return 0;
	if (!GROW(f, unreadable, n_unreadable, cap_unreadable) ||
	    !(f->unreadable[f->n_unreadable] = uns_arena_str(&f->arena, text)))
		return -ENOMEM;
	f->n_unreadable++;
	return 0;
}

/* Note a failure with the file, and see to it that the sentence names the file. */
static int unreadable(struct plan *p, const struct uns_err *why)
{
	char text[UNS_ERR_TEXT + 4096];

	if (why->code == -ENOMEM)
		return -ENOMEM;
	if (strstr(why->text, p->file->path))
		return uns_verify_unreadable(p->out, why->text);
	snprintf(text, sizeof(text), "%s: %s", p->file->path, why->text);
	return uns_verify_unreadable(p->out, text);
}

static int add_record(struct plan *p, const struct uns_zip_record *rec, uint64_t at)
{
	struct uns_verify_file *f = p->out;

	if (!GROW(f, record, n_records, cap_records))
		return -ENOMEM;
	f->record[f->n_records++] = (struct uns_verify_record){
		.name = rec->name, .at = at, .len = rec->size_bytes, .expected = rec->crc32
	};
	/* No bytes have the CRC 0. */
	f->n_without_crc += rec->size_bytes && !rec->crc32;
	return 0;
}

static int add_span(struct plan *p, const struct uns_verify_span *span)
{
	struct uns_verify_file *f = p->out;

	if (!span->len)
		return 0;
	if (!GROW(f, span, n_spans, cap_spans))
		return -ENOMEM;
	f->span[f->n_spans++] = *span;
	return 0;
}

static int add_decoded(struct plan *p, const struct uns_tensor *tensor,
		       const struct uns_piece *piece)
{
	struct uns_verify_file *f = p->out;

	if (!GROW(f, decoded, n_decoded, cap_decoded))
		return -ENOMEM;
	f->decoded[f->n_decoded++] =
		(struct uns_verify_decoded){ .tensor = tensor, .piece = piece };
	return 0;
}

/* -- archives -- */

/* The archive that fills [at, at+len) of the file. of_tensor: if it is damaged, that is noted when
 * the tensor in it is located. */
static int add_archive(struct plan *p, uint64_t at, uint64_t len, bool of_tensor)
{
	struct uns_subreader part = { &p->r, at };
	struct uns_reader whole = uns_reader_of_part(&part, len), r;
	struct uns_edges edges;
	struct uns_err why = { 0 };
	struct uns_zip zip;
	uint64_t start;
	size_t i;
	int code;

	r = uns_reader_of_edges(&edges, &whole);
	code = uns_zip_open(&r, &p->out->arena, &zip, &why);
	if (of_tensor && code == -EBADMSG)
		return 0;
	for (i = 0; i < zip.n && code == 0; i++) {
		if (zip.v[i].method != 0)
			continue; /* not torch's */
		code = uns_zip_data(&r, &zip.v[i], &start, &why);
		if (code == 0 && add_record(p, &zip.v[i], at + start) < 0)
			return -ENOMEM;
	}
	return code < 0 ? unreadable(p, &why) : 0;
}

/* A whole file that starts as archives do. */
static int add_if_archive(struct plan *p)
{
	struct uns_err why = { 0 };
	uint8_t head[4];

	if (p->r.size < sizeof(head))
		return 0;
	if (uns_reader_pread(&p->r, head, sizeof(head), 0, &why) < 0)
		return unreadable(p, &why);
	return memcmp(head, "PK\3\4", sizeof(head)) == 0 ? add_archive(p, 0, p->r.size, false) : 0;
}

/* -- tensors that the catalog holds -- */

static int add_piece(struct plan *p, const struct uns_verify_use *use)
{
	const struct uns_tensor *tensor = &p->b->cat->tensors[use->tensor];
	const struct uns_piece *piece = &p->b->cat->pieces[use->piece];
	struct uns_location where;
	struct uns_err why = { 0 };

	if (tensor->strange)
		return 0; /* its item's records are compared all the same */
	if (piece->codec != UNS_CODEC_NONE)
		return add_decoded(p, tensor, piece);
	if (uns_locate(p->b, tensor, piece, NULL, &where, &why) < 0)
		return unreadable(p, &why);
	if (!where.dense)
		return add_decoded(p, tensor, piece);
	return add_span(p, &(struct uns_verify_span){ .at = where.data_bytes,
						      .len = uns_piece_elems(piece) *
							     uns_dtype_size(tensor->dtype),
						      .dtype = tensor->dtype,
						      .name = tensor->key,
						      .piece = piece });
}

/* -- items: archives whose positions the catalog knows -- */

static bool is_item(const struct plan *p, const struct uns_verify_use *use)
{
	return p->b->cat->pieces[use->piece].container == UNS_TORCH_ITEM;
}

static bool is_item_value(const struct plan *p, const struct uns_named_value *v)
{
	return v->file == p->index && v->length_bytes;
}

static bool has_items(const struct plan *p)
{
	const struct uns_catalog *cat = p->b->cat;
	const size_t *first = &p->where->first_use[p->index];
	size_t i;

	for (i = first[0]; i < first[1]; i++)
		if (is_item(p, &p->where->use[i]))
			return true;
	for (i = 0; i < cat->n_values; i++)
		if (is_item_value(p, &cat->values[i]))
			return true;
	return false;
}

static int add_value(struct plan *p, const struct uns_named_value *v)
{
	struct uns_verify_file *f = p->out;

	if (v->codec == UNS_CODEC_NONE)
		return add_archive(p, v->offset_bytes, v->length_bytes, false);
	if (!GROW(f, value, n_values, cap_values))
		return -ENOMEM;
	f->value[f->n_values++] = v;
	return 0;
}

static int add_items(struct plan *p)
{
	const struct uns_catalog *cat = p->b->cat;
	const size_t *first = &p->where->first_use[p->index];
	const struct uns_item_part *part;
	const struct uns_piece *piece;
	size_t i;

	for (i = first[0]; i < first[1]; i++) {
		piece = &cat->pieces[p->where->use[i].piece];
		part = uns_piece_part(piece);
		if (part && part->first_elem)
			continue; /* the item was added for its first part */
		if (is_item(p, &p->where->use[i]) && piece->codec == UNS_CODEC_NONE)
			UNS_TRY(add_archive(p, piece->offset_bytes, piece->length_bytes, true));
	}
	for (i = 0; i < cat->n_values; i++)
		if (is_item_value(p, &cat->values[i]))
			UNS_TRY(add_value(p, &cat->values[i]));
	return 0;
}

/* -- safetensors that the catalog passes through as a file -- */

static int add_safetensors(struct plan *p)
{
	struct uns_err why = { 0 };
	struct uns_st_header h;
	size_t i;

	if (uns_st_open(&p->r, &p->out->arena, &h, &why) < 0)
		return unreadable(p, &why);
	for (i = 0; i < h.n; i++)
		UNS_TRY(add_span(
			p, &(struct uns_verify_span){ .at = h.data_bytes + h.v[i].begin_bytes,
						      .len = h.v[i].end_bytes - h.v[i].begin_bytes,
						      .dtype = h.v[i].dtype,
						      .name = h.v[i].name }));
	return 0;
}

/* -- torch files that it passes through -- */

enum { MAX_NODES = 1 << 20, MAX_DEPTH = 32 };

static int add_value_tensor(struct plan *p, const struct uns_torchfile *file,
			    const struct uns_value *v, const char *name)
{
	struct uns_torch_tensor t;
	uint64_t bytes;
	size_t d;

	if (uns_torch_tensor(file, v, &t, NULL) < 0 || !t.contiguous)
		return 0;
	bytes = uns_dtype_size(t.dtype);
	for (d = 0; d < t.n_dims; d++)
		bytes *= t.dims[d];
	return add_span(p, &(struct uns_verify_span){ .at = t.data_bytes +
							    t.first_elem * uns_dtype_size(t.dtype),
						      .len = bytes,
						      .dtype = t.dtype,
						      .name = name });
}

static char *child_name(struct uns_arena *arena, const char *name, const struct uns_value *key,
			size_t i)
{
	const char *dot = *name ? "." : "", *text = uns_value_str(key);
	int64_t number = (int64_t)i;

	if (text)
		return uns_arena_printf(arena, "%s%s%s", name, dot, text);
	uns_value_int(key, &number);
	return uns_arena_printf(arena, "%s%s%lld", name, dot, (long long)number);
}

/* Tensors anywhere below v, which dicts and lists lead to. */
static int add_value_tensors(struct plan *p, const struct uns_torchfile *file,
			     const struct uns_value *v, const char *name)
{
	const bool dict = v->kind == UNS_VALUE_DICT;
	const bool seq = v->kind == UNS_VALUE_LIST || v->kind == UNS_VALUE_TUPLE;
	size_t i, n = dict ? v->n : seq ? v->n : 0;
	char *child;

	if (uns_torch_is_tensor(v))
		return add_value_tensor(p, file, v, name);
	for (i = 0; i < n; i++) {
		child = child_name(&p->out->arena, name, dict ? v->pair[i].key : NULL, i);
		if (!child)
			return -ENOMEM;
		UNS_TRY(add_value_tensors(p, file, dict ? v->pair[i].value : v->item[i], child));
	}
	return 0;
}

/* A file that cannot be parsed has no tensors to look at; its records are verified all the same. */
static int add_torch_file(struct plan *p)
{
	struct uns_torchfile file;
	int code = p->out->n_records ? uns_torchfile_open(&p->r, &p->out->arena, &file, NULL) : -1;

	if (code < 0 || file.big_endian || !uns_value_fits(file.root, MAX_NODES, MAX_DEPTH))
		return code == -ENOMEM ? code : 0;
	return add_value_tensors(p, &file, file.root, "");
}

/* -- order, and what is read -- */

static int by_record(const void *a, const void *b)
{
	const struct uns_verify_record *x = a, *y = b;

	return (x->at > y->at) - (x->at < y->at);
}

static int by_span(const void *a, const void *b)
{
	const struct uns_verify_span *x = a, *y = b;

	return x->at != y->at ? (x->at > y->at) - (x->at < y->at)
			      : (x->len > y->len) - (x->len < y->len);
}

/* Two names of one item (tied weights in DCP) lead to the same records. */
static void drop_twins(struct uns_verify_file *f)
{
	size_t i, n = 0;

	for (i = 0; i < f->n_records; i++)
		if (!n || f->record[i].at >= f->record[n - 1].at + f->record[n - 1].len)
			f->record[n++] = f->record[i];
	f->n_records = n;
}

static int find_reach(struct uns_verify_file *f)
{
	uint64_t end = 0;
	size_t i;

	f->reach = UNS_NEW_N(&f->arena, uint64_t, f->n_spans);
	if (!f->reach)
		return -ENOMEM;
	for (i = 0; i < f->n_spans; i++)
		f->reach[i] = end = uns_u64_max(end, f->span[i].at + f->span[i].len);
	return 0;
}

static void add_area(struct uns_verify_file *f, uint64_t at, uint64_t len)
{
	struct uns_verify_area *last = f->n_areas ? &f->area[f->n_areas - 1] : NULL;

	if (last && at <= last->at + last->len + MAX_GAP_BYTES)
		last->len = uns_u64_max(last->at + last->len, at + len) - last->at;
	else
		f->area[f->n_areas++] = (struct uns_verify_area){ at, len };
}

/* Both lists are sorted by position: merge them. */
static int find_areas(struct uns_verify_file *f)
{
	size_t i = 0, k = 0;

	f->area = UNS_NEW_N(&f->arena, struct uns_verify_area, f->n_records + f->n_spans);
	if (!f->area)
		return -ENOMEM;
	while (i < f->n_records || k < f->n_spans) {
		if (k == f->n_spans || (i < f->n_records && f->record[i].at <= f->span[k].at)) {
			add_area(f, f->record[i].at, f->record[i].len);
			i++;
		} else {
			add_area(f, f->span[k].at, f->span[k].len);
			k++;
		}
	}
	return 0;
}

static int arrange(struct uns_verify_file *f)
{
	if (f->n_records)
		qsort(f->record, f->n_records, sizeof(*f->record), by_record);
	if (f->n_spans)
		qsort(f->span, f->n_spans, sizeof(*f->span), by_span);
	drop_twins(f);
	UNS_TRY(find_reach(f));
	return find_areas(f);
}

static int plan_file(struct plan *p)
{
	const size_t *first = &p->where->first_use[p->index];
	size_t i;

	if (has_items(p))
		UNS_TRY(add_items(p));
	else
		UNS_TRY(add_if_archive(p));
	for (i = first[0]; i < first[1]; i++)
		UNS_TRY(add_piece(p, &p->where->use[i]));
	if (first[0] != first[1])
		return arrange(p->out);
	if (uns_str_ends(p->file->path, ".safetensors"))
		UNS_TRY(add_safetensors(p));
	else if (!has_items(p))
		UNS_TRY(add_torch_file(p));
	return arrange(p->out);
}

int uns_verify_plan(struct uns_backing *b, const struct uns_verify_where *where, uint32_t file,
		    struct uns_verify_file *out, struct uns_err *err)
{
	struct uns_source_file source = { b, file };
	struct plan p = {
		.b = b, .where = where, .index = file, .file = &b->cat->files[file], .out = out
	};

	if (p.file->missing || p.file->stat.kind != UNS_KIND_FILE)
		return 0;
	p.r = uns_reader_of_source(&source);
	return plan_file(&p) < 0 ? uns_oom(err) : 0;
}
