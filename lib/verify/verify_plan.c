/* How a file is planned depends on what it is: torch.save items that the catalog knows the
 * positions of, one zip archive, a safetensors file, or plain data. */
#include "verify/verify_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "engine/decode.h"
#include "engine/edges.h"
#include "engine/source_read.h"
#include "wire/json.h"
#include "wire/safetensors.h"
#include "wire/torchfile.h"
#include "wire/zip.h"

/* Reading a gap of this size costs less than a second read. */
enum { MAX_GAP_BYTES = 64 << 10, MAX_JSON_BYTES = 64 << 20 };

enum { DEFLATED = 8 }; /* a zip record's method */

/* -- what the catalog has in each file -- */

void uns_verify_where_fini(struct uns_verify_where *w)
{
	free(w->use);
	free(w->first_use);
}

int uns_verify_where(const struct uns_catalog *cat, struct uns_verify_where *out, struct uns_err *err)
{
	size_t *at, i, k, n = cat->n_files;

	out->use = calloc(cat->n_pieces + 1, sizeof(*out->use));
	out->first_use = at = calloc(n + 2, sizeof(*at));
	UNS_TRY_ALLOC(out->use && at, err);
	for (i = 0; i < cat->n_pieces; i++)
		at[cat->pieces[i].file + 2]++;
	for (i = 2; i < n + 2; i++)
		at[i] += at[i - 1];
	for (i = 0; i < cat->n_tensors; i++)
		for (k = 0; k < cat->tensors[i].n_pieces; k++) {
			uint32_t piece = cat->tensors[i].first_piece + (uint32_t)k;

			out->use[at[cat->pieces[piece].file + 1]++] = (struct uns_verify_use){ (uint32_t)i, piece };
		}
	return 0;
}

/* -- what a plan is made of. Memory that runs out is remembered by the plan's arena -- */

struct plan {
	struct uns_backing *b;
	const struct uns_verify_where *where;
	uint32_t index;
	const struct uns_file *file;
	struct uns_verify_file *out;
	struct uns_reader r;
};

#define GROW(f, array, n, cap) UNS_ARENA_ROOM(&(f)->arena, (f)->array, (f)->n, (f)->cap)

void uns_verify_unreadable(struct uns_verify_file *f, const char *text)
{
	size_t i;

	for (i = 0; i < f->n_unreadable; i++)
		if (strcmp(f->unreadable[i], text) == 0)
			return;
	text = uns_arena_str(&f->arena, text);
	if (text && GROW(f, unreadable, n_unreadable, cap_unreadable))
		f->unreadable[f->n_unreadable++] = text;
}

/* Notes a failure with the file, in a sentence that names the file. */
static void plan_unreadable(struct plan *p, const struct uns_err *why)
{
	char text[UNS_ERR_TEXT + 4096];

	if (why->code == -ENOMEM) {
		p->out->arena.failed = true;
		return;
	}
	snprintf(text, sizeof(text), "%s: %s", p->file->path, why->text);
	uns_verify_unreadable(p->out, strstr(why->text, p->file->path) ? why->text : text);
}

static void plan_span(struct plan *p, const struct uns_verify_span *span)
{
	struct uns_verify_file *f = p->out;

	if (span->len && GROW(f, span, n_spans, cap_spans))
		f->span[f->n_spans++] = *span;
}

/* -- archives -- */

/* The archive that fills [at, at+len) of the file. of_tensor: if it is damaged, that is noted when the tensor in it is
 * located. */
static void plan_archive(struct plan *p, uint64_t at, uint64_t len, bool of_tensor)
{
	struct uns_subreader part = { &p->r, at };
	struct uns_reader whole = uns_reader_of_part(&part, len), r;
	struct uns_verify_file *f = p->out;
	const struct uns_zip_record *rec;
	struct uns_err why = { 0 };
	struct uns_edges edges;
	struct uns_zip zip;
	uint64_t start;

	r = uns_reader_of_edges(&edges, &whole);
	if (uns_zip_open(&r, &f->arena, &zip, &why) < 0) {
		if (!of_tensor || why.code != -EBADMSG)
			plan_unreadable(p, &why);
		return;
	}
	if (len == p->r.size && strlen(zip.prefix) > 1)
		f->saved_as = uns_arena_strn(&f->arena, zip.prefix, strlen(zip.prefix) - 1);
	for (rec = zip.v; rec < zip.v + zip.n; rec++) {
		if (rec->method != 0 && rec->method != DEFLATED) {
			uns_fail(&why, -ENOTSUP, "zip: record %s is compressed by method %u, which torch cannot read",
				 rec->name, rec->method);
			plan_unreadable(p, &why);
			return;
		}
		if (rec->method != 0)
			continue; /* not torch's */
		if (uns_zip_data(&r, rec, &start, &why) < 0) {
			plan_unreadable(p, &why);
			return;
		}
		if (!GROW(f, record, n_records, cap_records))
			return;
		f->record[f->n_records++] = (struct uns_verify_record){
			.name = rec->name, .at = at + start, .len = rec->size_bytes, .expected = rec->crc32
		};
		/* The CRC of an empty record is 0; any other record with 0 has none. */
		f->n_without_crc += rec->size_bytes && !rec->crc32;
	}
}

/* A file's first bytes: torch.save's before 1.6, and of any pickle. */
static const uint8_t legacy[] = { 0x80, 0x02, 0x8a, 0x0a, 'l', 0xfc, 0x9c, 'F', 0xf9, ' ', 'j', 0xa8, 'P', 0x19, '.' };
enum { HEAD_BYTES = sizeof(legacy) };

/* Does a file that does not start as an archive hold what its name promises? Trainers load files of these names by
 * torch.load; a script may keep any pickle, and under .bin and .ckpt anything. */
static bool is_as_named(const char *path, const uint8_t *head)
{
	static const char *const of_torch[] = { "optimizer",     "scheduler",     "rng_state",
						"random_states", "pytorch_model", "custom_checkpoint" };
	const char *name = uns_path_name(path);
	const bool torch = uns_str_ends(name, ".pt") || uns_str_ends(name, ".pth");
	size_t i;

	for (i = 0; i < sizeof(of_torch) / sizeof(*of_torch); i++)
		if (uns_str_starts(name, of_torch[i]) &&
		    (torch || uns_str_ends(name, ".bin") || uns_str_ends(name, ".pkl")))
			return memcmp(head, legacy, sizeof(legacy)) == 0;
	return (!torch || head[0] == legacy[0]) && (!uns_str_ends(name, ".pkl") || head[0]);
}

/* A whole file that starts as archives do. */
static void plan_if_archive(struct plan *p)
{
	struct uns_err why = { 0 };
	static const uint8_t archive[] = { 'P', 'K', 3, 4 };
	uint8_t head[HEAD_BYTES] = { 0 };
	const size_t n = p->r.size < sizeof(head) ? (size_t)p->r.size : sizeof(head);

	if (n && uns_reader_pread(&p->r, head, n, 0, &why) < 0)
		plan_unreadable(p, &why);
	else if (memcmp(head, archive, sizeof(archive)) == 0)
		plan_archive(p, 0, p->r.size, false);
	else if (!is_as_named(p->file->path, head)) {
		uns_fail(&why, -EBADMSG, "torch.save did not write this file, or it is damaged at its beginning");
		plan_unreadable(p, &why);
	}
}

/* -- tensors that the catalog holds -- */

static void plan_piece(struct plan *p, const struct uns_verify_use *use)
{
	const struct uns_tensor *tensor = &p->b->cat->tensors[use->tensor];
	const struct uns_piece *piece = &p->b->cat->pieces[use->piece];
	struct uns_location where = { 0 };
	struct uns_verify_file *f = p->out;
	struct uns_err why = { 0 };

	if (tensor->strange)
		return; /* its item's records are compared all the same */
	if (piece->codec == UNS_CODEC_NONE && uns_locate(p->b, tensor, piece, NULL, &where, &why) < 0)
		plan_unreadable(p, &why);
	else if (uns_reads_in_place(piece, &where))
		plan_span(p, &(struct uns_verify_span){ .at = where.data_bytes,
							.len = uns_piece_elems(piece) * uns_dtype_size(tensor->dtype),
							.dtype = tensor->dtype,
							.name = tensor->key,
							.piece = piece });
	else if (GROW(f, decoded, n_decoded, cap_decoded))
		f->decoded[f->n_decoded++] = (struct uns_verify_decoded){ .tensor = tensor, .piece = piece };
}

/* -- items: archives whose positions the catalog knows -- */

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
		if (cat->pieces[p->where->use[i].piece].container == UNS_TORCH_ITEM)
			return true;
	for (i = 0; i < cat->n_values; i++)
		if (is_item_value(p, &cat->values[i]))
			return true;
	return false;
}

static void plan_items(struct plan *p)
{
	const struct uns_catalog *cat = p->b->cat;
	const size_t *first = &p->where->first_use[p->index];
	const struct uns_named_value *v = cat->values;
	struct uns_verify_file *f = p->out;
	const struct uns_item_part *part;
	const struct uns_piece *piece;
	size_t i;

	for (i = first[0]; i < first[1]; i++) {
		piece = &cat->pieces[p->where->use[i].piece];
		part = uns_piece_part(piece);
		if (part && part->first_elem)
			continue; /* the item was added for its first part */
		if (piece->container == UNS_TORCH_ITEM && piece->codec == UNS_CODEC_NONE)
			plan_archive(p, piece->offset_bytes, piece->length_bytes, true);
	}
	for (; v < cat->values + cat->n_values; v++) {
		if (!is_item_value(p, v))
			continue;
		if (v->codec == UNS_CODEC_NONE)
			plan_archive(p, v->offset_bytes, v->length_bytes, false);
		else if (GROW(f, value, n_values, cap_values))
			f->value[f->n_values++] = v;
	}
}

/* -- files that the catalog passes through: safetensors -- */

static void plan_safetensors(struct plan *p)
{
	struct uns_err why = { 0 };
	struct uns_st_header h;
	size_t i;

	if (uns_st_open(&p->r, &p->out->arena, &h, &why) < 0) {
		plan_unreadable(p, &why);
		return;
	}
	for (i = 0; i < h.n; i++)
		plan_span(p, &(struct uns_verify_span){ .at = h.data_bytes + h.v[i].begin_bytes,
							.len = h.v[i].end_bytes - h.v[i].begin_bytes,
							.dtype = h.v[i].dtype,
							.name = h.v[i].name });
}

/* -- files that it passes through: JSON -- */

static void plan_json(struct plan *p)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	struct uns_err why = { 0 };
	uint8_t *text;

	if (p->r.size > MAX_JSON_BYTES)
		return;
	text = uns_arena_alloc(&scratch, (size_t)p->r.size + 1, 1);
	if (!text)
		p->out->arena.failed = true;
	else if (uns_reader_pread(&p->r, text, (size_t)p->r.size, 0, &why) < 0 ||
		 (uns_json_parse(uns_span_of(text, (size_t)p->r.size), &json, &why) < 0 && why.code != -ENOTSUP))
		plan_unreadable(p, &why);
}

/* -- files that it passes through: torch files -- */

enum { MAX_NODES = 1 << 20, MAX_DEPTH = 32 };

/* Tensors in v and anywhere below it, which dicts and lists lead to. `name`: the keys that led to v. */
static void plan_value_tensors(struct plan *p, const struct uns_torchfile *file, const struct uns_value *v,
			       const char *name)
{
	const bool dict = v->kind == UNS_VALUE_DICT;
	const bool seq = v->kind == UNS_VALUE_LIST || v->kind == UNS_VALUE_TUPLE;
	struct uns_torch_tensor t;
	const char *child;
	uint64_t bytes;
	size_t i;

	if (uns_torch_is_tensor(v)) {
		if (uns_torch_tensor(file, v, &t, NULL) < 0 || !t.contiguous)
			return;
		bytes = uns_dtype_size(t.dtype);
		for (i = 0; i < t.n_dims; i++)
			bytes *= t.dims[i];
		plan_span(p, &(struct uns_verify_span){ .at = t.data_bytes + t.first_elem * uns_dtype_size(t.dtype),
							.len = bytes,
							.dtype = t.dtype,
							.name = name });
		return;
	}
	for (i = 0; (dict || seq) && i < v->n; i++) {
		child = uns_value_child_name(&p->out->arena, name, dict ? v->pair[i].key : NULL, i);
		if (child)
			plan_value_tensors(p, file, dict ? v->pair[i].value : v->item[i], child);
	}
}

static bool is_float_tensor(const struct uns_torchfile *file, const struct uns_value *v)
{
	struct uns_torch_tensor t;

	return uns_torch_is_tensor(v) && uns_torch_tensor(file, v, &t, NULL) == 0 && uns_dtype_info(t.dtype)->is_float;
}

static bool is_weights(const struct uns_torchfile *file, const struct uns_value *root)
{
	size_t i;

	for (i = 0; root->kind == UNS_VALUE_DICT && i < root->n; i++)
		if (!is_float_tensor(file, root->pair[i].value))
			return false;
	return root->kind == UNS_VALUE_DICT && root->n;
}

/* An optimizer's state dict, a scheduler's, a Trainer's random states, or tensors. */
static enum uns_object object_of(const struct uns_torchfile *file)
{
	const struct uns_value *root = file->root;

	if (is_float_tensor(file, root))
		return UNS_OBJECT_TENSOR;
	if (is_weights(file, root))
		return UNS_OBJECT_WEIGHTS;
	if (uns_value_get(root, "state") && uns_value_get(root, "param_groups"))
		return UNS_OBJECT_OPTIMIZER;
	if (uns_value_get(root, "last_epoch") && uns_value_get(root, "_step_count"))
		return UNS_OBJECT_SCHEDULER;
	return uns_value_get(root, "python") && uns_value_get(root, "numpy") ? UNS_OBJECT_RNG : UNS_OBJECT_UNKNOWN;
}

/* A file that cannot be parsed has no tensors to look at; its records are verified all the same. */
static void plan_torch_file(struct plan *p)
{
	struct uns_torchfile file;
	int code = p->out->n_records ? uns_torchfile_open(&p->r, &p->out->arena, &file, NULL) : -1;

	if (code == -ENOMEM)
		p->out->arena.failed = true;
	if (code == 0)
		p->out->holds = object_of(&file);
	if (code == 0 && !file.big_endian && uns_value_fits(file.root, MAX_NODES, MAX_DEPTH))
		plan_value_tensors(p, &file, file.root, "");
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

	return x->at != y->at ? (x->at > y->at) - (x->at < y->at) : (x->len > y->len) - (x->len < y->len);
}

static void add_area(struct uns_verify_file *f, uint64_t at, uint64_t len)
{
	struct uns_verify_area *last = f->n_areas ? &f->area[f->n_areas - 1] : NULL;

	if (last && at <= last->at + last->len + MAX_GAP_BYTES)
		last->len = uns_u64_max(last->at + last->len, at + len) - last->at;
	else
		f->area[f->n_areas++] = (struct uns_verify_area){ at, len };
}

/* Sorts records and spans by position, and merges both into the areas that are read. */
static void arrange(struct uns_verify_file *f)
{
	uint64_t end = 0;
	size_t i, k, n = 0;

	if (f->n_records)
		qsort(f->record, f->n_records, sizeof(*f->record), by_record);
	/* Two names of one item (tied weights in DCP) lead to the same records. */
	for (i = 0; i < f->n_records; i++)
		if (!n || f->record[i].at >= f->record[n - 1].at + f->record[n - 1].len)
			f->record[n++] = f->record[i];
	f->n_records = n;
	if (f->n_spans)
		qsort(f->span, f->n_spans, sizeof(*f->span), by_span);
	f->reach = UNS_NEW_N(&f->arena, uint64_t, f->n_spans);
	f->area = UNS_NEW_N(&f->arena, struct uns_verify_area, f->n_records + f->n_spans);
	if (f->arena.failed)
		return;
	for (i = 0; i < f->n_spans; i++)
		f->reach[i] = end = uns_u64_max(end, f->span[i].at + f->span[i].len);
	for (i = k = 0; i < f->n_records || k < f->n_spans;)
		if (k == f->n_spans || (i < f->n_records && f->record[i].at <= f->span[k].at)) {
			add_area(f, f->record[i].at, f->record[i].len);
			i++;
		} else {
			add_area(f, f->span[k].at, f->span[k].len);
			k++;
		}
}

int uns_verify_plan(struct uns_backing *b, const struct uns_verify_where *where, uint32_t file,
		    struct uns_verify_file *out, struct uns_err *err)
{
	struct uns_source_file source = { b, file, NULL };
	struct plan p = { .b = b, .where = where, .index = file, .file = &b->cat->files[file], .out = out };
	const size_t *first = &where->first_use[file];
	bool items;
	size_t i;

	if (p.file->missing || p.file->stat.kind != UNS_KIND_FILE)
		return 0;
	p.r = uns_reader_of_source(&source);
	items = has_items(&p);
	if (items)
		plan_items(&p);
	else
		plan_if_archive(&p);
	for (i = first[0]; i < first[1]; i++)
		plan_piece(&p, &where->use[i]);
	out->n_pieces = first[1] - first[0];
	if (out->n_pieces) {
		out->first_tensor = &b->cat->tensors[where->use[first[0]].tensor];
		out->first_piece = &b->cat->pieces[where->use[first[0]].piece];
	}
	out->is_unchecked = uns_str_ends(p.file->path, ".safetensors");
	if (first[0] == first[1] && out->is_unchecked)
		plan_safetensors(&p);
	else if (first[0] == first[1] && uns_str_ends(p.file->path, ".json"))
		plan_json(&p);
	else if (first[0] == first[1] && !items)
		plan_torch_file(&p);
	arrange(out);
	return uns_arena_check(&out->arena, err);
}
