/* The JSON texts about one checkpoint. Owns their keys and nothing else. Numbers are printed as integers of any size;
 * unknown ones (-1) as null. */
#include "files/describe.h"

#include "base/cleanup.h"
#include "base/path.h"

/* "key": -- with a comma in front unless it is the object's first. */
static void key_begin(struct uns_text *t, const char *name)
{
	if (t->len && t->p[t->len - 1] != '{')
		uns_text_str(t, ",");
	uns_text_json_str(t, name);
	uns_text_str(t, ":");
}

static void key_str(struct uns_text *t, const char *name, const char *s)
{
	key_begin(t, name);
	if (s)
		uns_text_json_str(t, s);
	else
		uns_text_str(t, "null");
}

static void key_u64(struct uns_text *t, const char *name, uint64_t v)
{
	key_begin(t, name);
	uns_text_printf(t, "%llu", (unsigned long long)v);
}

static void key_fact(struct uns_text *t, const char *name, int64_t v)
{
	key_begin(t, name);
	if (v == UNS_UNKNOWN)
		uns_text_str(t, "null");
	else
		uns_text_printf(t, "%lld", (long long)v);
}

static void key_u64s(struct uns_text *t, const char *name, const uint64_t *v, uint32_t n)
{
	uint32_t i;

	key_begin(t, name);
	uns_text_str(t, "[");
	for (i = 0; i < n; i++)
		uns_text_printf(t, "%s%llu", i ? "," : "", (unsigned long long)v[i]);
	uns_text_str(t, "]");
}

/* -- info -- */

/* Values that were saved as pickles of their own, and are in no view but dcp: random states, a module's extra state. */
static void key_objects(struct uns_text *t, const struct uns_catalog *cat)
{
	const struct uns_named_value *v = cat->values, *end = v + cat->n_values;
	size_t n = 0;

	key_begin(t, "objects");
	uns_text_str(t, "[");
	for (; v < end; v++) {
		if (v->value)
			continue;
		uns_text_str(t, n++ ? ",{" : "{");
		key_str(t, "name", v->name);
		key_str(t, "file", v->file < cat->n_files ? cat->files[v->file].path : NULL);
		key_u64(t, "length", v->length_bytes);
		uns_text_str(t, "}");
	}
	uns_text_str(t, "]");
}

static void key_printed(struct uns_text *t, const char *name, const struct uns_finding *f,
			void (*print)(const struct uns_finding *f, struct uns_text *out))
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;

	print(f, &text);
	t->failed |= text.failed;
	key_str(t, name, text.p);
}

/* A number or a text; null if there is none. */
static void key_datum(struct uns_text *t, const char *name, const struct uns_datum *d)
{
	if (d->kind != UNS_DATUM_NUMBER) {
		key_str(t, name, d->kind == UNS_DATUM_TEXT ? d->text : NULL);
		return;
	}
	key_begin(t, name);
	uns_datum_print(d, t);
}

void uns_describe_finding(struct uns_text *t, const struct uns_finding *f)
{
	uns_text_str(t, "{");
	key_str(t, "id", uns_finding_name(f->id));
	key_str(t, "severity", uns_severity_text(f->severity));
	key_str(t, "scope", uns_scope_text(f->scope));
	key_begin(t, "code");
	uns_text_printf(t, "%d", f->code);
	key_str(t, "file", f->file);
	key_datum(t, "rank", &f->rank);
	key_str(t, "tensor", f->tensor);
	key_datum(t, "expected", &f->expected);
	key_datum(t, "found", &f->found);
	key_printed(t, "text", f, uns_finding_print);
	key_printed(t, "advice", f, uns_finding_print_advice);
	uns_text_str(t, "}");
}

static void resume_print(struct uns_text *t, const struct uns_resume_read *v, size_t n)
{
	size_t i;

	uns_text_str(t, "[");
	for (i = 0; i < n; i++) {
		uns_text_str(t, i ? ",\n{" : "\n{");
		key_str(t, "trainer", v[i].trainer);
		key_str(t, "part", v[i].part);
		key_str(t, "files", v[i].files);
		key_begin(t, "found");
		uns_text_str(t, v[i].found ? "true" : "false");
		key_str(t, "without", v[i].effect);
		key_str(t, "unshard", v[i].supplied);
		uns_text_str(t, "}");
	}
	uns_text_str(t, "]");
}

static void key_verdict(struct uns_text *t, const struct uns_view_verdict *view)
{
	size_t i;

	key_begin(t, view->view);
	uns_text_str(t, "{");
	key_str(t, "state", view->state);
	key_str(t, "why", view->why);
	key_str(t, "why_id", view->why_id);
	key_str(t, "usage", view->usage);
	if (view->n_resume) {
		key_begin(t, "resume");
		resume_print(t, view->resume, view->n_resume);
	}
	for (i = 0; i < view->n_notes; i++) {
		if (!i)
			key_begin(t, "notes");
		uns_text_str(t, i ? ",\n" : "[\n");
		uns_text_json_str(t, view->note[i]);
	}
	uns_text_str(t, i ? "]}" : "}");
}

/* From outside the checkpoint's directory, where its shards are: config and tokenizer of its run, for example. */
static bool is_borrowed(const struct uns_catalog *cat, const struct uns_file *f)
{
	const struct uns_root *root = cat->n_pieces ? cat->files[cat->pieces[0].file].root : f->root;

	return f->root != root || !uns_path_within(f->path, cat->path);
}

void uns_describe_info(struct uns_text *out, const struct uns_catalog *cat, const struct uns_view_verdict *views,
		       size_t n_views, const struct uns_findings *problems)
{
	uint64_t n_weights = 0, weights_bytes = 0, n_optimizer = 0, optimizer_bytes = 0, n_missing = 0,
		 source_bytes = 0, n_borrowed = 0, borrowed_bytes = 0;
	const struct uns_tensor *x = cat->tensors, *end = x + cat->n_tensors;
	uint64_t bytes;
	size_t i;

	for (; x < end; x++) {
		bytes = uns_shape_elems(&x->shape) * uns_dtype_size(x->dtype);
		if (uns_role_is_model(x->role)) {
			n_weights++;
			weights_bytes += bytes;
		} else if (uns_role_is_optimizer(x->role)) {
			n_optimizer++;
			optimizer_bytes += bytes;
		}
	}
	for (i = 0; i < cat->n_files; i++) {
		bytes = cat->files[i].missing ? 0 : cat->files[i].stat.id.size;
		n_missing += cat->files[i].missing;
		source_bytes += bytes;
		if (is_borrowed(cat, &cat->files[i])) {
			n_borrowed++;
			borrowed_bytes += bytes;
		}
	}
	uns_text_str(out, "{");
	key_str(out, "path", cat->path);
	key_str(out, "format", cat->summary.format);
	key_str(out, "framework", cat->summary.framework);
	key_fact(out, "step", cat->summary.step);
	key_fact(out, "world_size", cat->summary.world_size);
	key_begin(out, "finished");
	uns_text_str(out, cat->summary.finished ? "true" : "false");
	key_u64(out, "tensors", cat->n_tensors);
	key_u64(out, "weights", n_weights);
	key_u64(out, "weights_bytes", weights_bytes);
	key_u64(out, "optimizer_tensors", n_optimizer);
	key_u64(out, "optimizer_bytes", optimizer_bytes);
	key_u64(out, "files", cat->n_files);
	key_u64(out, "files_missing", n_missing);
	key_u64(out, "source_bytes", source_bytes);
	key_u64(out, "files_borrowed", n_borrowed);
	key_u64(out, "borrowed_bytes", borrowed_bytes);
	key_objects(out, cat);
	key_begin(out, "views");
	uns_text_str(out, "{");
	for (i = 0; i < n_views; i++)
		key_verdict(out, &views[i]);
	uns_text_str(out, "}");
	key_begin(out, "problems");
	for (i = 0; i < problems->n; i++) {
		uns_text_str(out, i ? ",\n" : "[\n");
		uns_describe_finding(out, &problems->v[i]);
	}
	uns_text_str(out, problems->n ? "]}\n" : "[]}\n");
}

/* -- tensors -- */

static void piece_print(struct uns_text *t, const struct uns_catalog *cat, const struct uns_piece *p)
{
	uns_text_str(t, "{");
	key_str(t, "file", p->file < cat->n_files ? cat->files[p->file].path : NULL);
	key_u64(t, "offset", p->offset_bytes);
	key_u64(t, "length", p->length_bytes);
	key_str(t, "codec", p->codec == UNS_CODEC_ZSTD ? "zstd" : "none");
	if (p->kind == UNS_PIECE_BOX) {
		key_begin(t, "box");
		uns_text_str(t, "{");
		key_u64s(t, "lo", p->box->lo, p->box->n);
		key_u64s(t, "len", p->box->len, p->box->n);
	} else {
		key_begin(t, "range");
		uns_text_str(t, "{");
		key_u64(t, "first", p->range.first);
		key_u64(t, "count", p->range.count);
	}
	uns_text_str(t, "}");
	key_fact(t, "rank", p->rank);
	uns_text_str(t, "}");
}

static void tensor_print(struct uns_text *t, const struct uns_catalog *cat, const struct uns_tensor *x)
{
	uint32_t i;

	uns_text_str(t, "{");
	key_str(t, "name", x->name);
	key_str(t, "key", x->key);
	key_str(t, "role", uns_role_text(x->role));
	key_str(t, "state", x->state);
	key_str(t, "dtype", uns_dtype_info(x->dtype)->torch);
	key_u64s(t, "shape", x->shape.dim, x->shape.n);
	if (x->alias_of != UNS_NONE && x->alias_of < cat->n_tensors)
		key_str(t, "alias_of", cat->tensors[x->alias_of].name);
	key_begin(t, "pieces");
	uns_text_str(t, "[");
	for (i = 0; i < x->n_pieces; i++) {
		uns_text_str(t, i ? "," : "");
		piece_print(t, cat, &cat->pieces[x->first_piece + i]);
	}
	uns_text_str(t, "]}");
}

void uns_describe_tensors(struct uns_text *out, const struct uns_catalog *cat)
{
	size_t i;

	uns_text_str(out, "[");
	for (i = 0; i < cat->n_tensors; i++) {
		uns_text_str(out, i ? ",\n" : "\n");
		tensor_print(out, cat, &cat->tensors[i]);
	}
	uns_text_str(out, "]\n");
}

/* -- provenance -- */

static void key_file(struct uns_text *t, const struct uns_catalog *cat, const struct uns_vfile *f)
{
	key_begin(t, f->path);
	uns_text_str(t, "{");
	key_str(t, "origin", f->origin ? f->origin : "passed through unchanged");
	key_str(t, "from", f->source < cat->n_files ? cat->files[f->source].path : NULL);
	uns_text_str(t, "}");
}

void uns_describe_provenance(struct uns_text *out, const struct uns_catalog *cat, const struct uns_vtree *tree)
{
	size_t i, n = 0;

	uns_text_str(out, "{");
	key_str(out, "version", UNSHARD_VERSION);
	key_begin(out, "files");
	uns_text_str(out, "{");
	if (tree->whole)
		key_file(out, cat, tree->whole);
	for (i = 0; i < tree->n; i++)
		key_file(out, cat, &tree->v[i]);
	uns_text_str(out, "}");
	key_begin(out, "notes");
	uns_text_str(out, "[");
	for (i = 0; i < tree->n_notes; i++) {
		uns_text_str(out, i ? "," : "");
		uns_text_json_str(out, tree->note[i]);
	}
	uns_text_str(out, "]");
	key_begin(out, "inferred");
	uns_text_str(out, "[");
	for (i = 0; i < cat->n_tensors; i++)
		if (cat->tensors[i].inferred) {
			uns_text_str(out, n++ ? "," : "");
			uns_text_json_str(out, cat->tensors[i].name);
		}
	uns_text_str(out, "]");
	key_str(out, "flat_units", cat->summary.units);
	uns_text_str(out, "}\n");
}

/* -- figures -- */

void uns_figures_json(struct uns_text *out, const struct uns_figure *v, size_t n, const struct uns_way_figure *ways,
		      size_t n_ways)
{
	size_t i;

	uns_text_printf(out, "{\n  \"version\": \"%s\"", UNSHARD_VERSION);
	for (i = 0; i < n; i++)
		uns_text_printf(out, ",\n  \"%s\": %llu", v[i].name, (unsigned long long)v[i].value);
	uns_text_str(out, ",\n  \"ways\": [");
	for (i = 0; i < n_ways; i++) {
		uns_text_printf(out, "%s{\"device\": \"%s\", \"file_system\": ", i ? ", " : "", ways[i].device);
		uns_text_json_str(out, ways[i].type);
		uns_text_printf(out, ", \"reads\": \"%s\"}", ways[i].way);
	}
	uns_text_str(out, "]\n}\n");
}

void uns_figures_metrics(struct uns_text *out, const struct uns_figure *v, size_t n)
{
	const char *suffix;
	size_t i;

	for (i = 0; i < n; i++) {
		if (v[i].for_people)
			continue;
		suffix = v[i].counter ? "_total" : "";
		uns_text_printf(out,
				"# HELP unshard_%s%s %s\n# TYPE unshard_%s%s %s\n"
				"unshard_%s%s %llu\n",
				v[i].name, suffix, v[i].help, v[i].name, suffix, v[i].counter ? "counter" : "gauge",
				v[i].name, suffix, (unsigned long long)v[i].value);
	}
}
