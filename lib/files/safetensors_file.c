/* A set of full tensors as safetensors files: a literal header and the tensors behind it, split as huggingface_hub
 * splits (2.4, serialization/_base.py) with the index that save_pretrained writes (transformers 5.23,
 * modeling_utils.py). Layouts only: knows no engine, and no view's names. */
#include "files/safetensors_file.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/text.h"
#include "base/thread.h"
#include "model/finding.h"
#include "wire/safetensors.h"

static int entry_of(const struct uns_named_tensor *t, struct uns_st_entry *out, struct uns_err *err)
{
	const struct uns_shape *shape = uns_named_shape(t);
	uint64_t bytes;

	if (!uns_dtype_info(t->out)->safetensors)
		return uns_fail(err, -ENOTSUP, "tensor %s: safetensors has no dtype for torch.%s", t->name,
				uns_dtype_info(t->out)->torch);
	/* A cast may widen: the shape was checked for the source's type only. */
	if (!uns_u64_mul(uns_shape_elems(shape), uns_dtype_size(t->out), &bytes))
		return uns_fail(err, -ENOTSUP, "tensor %s: too large as torch.%s", t->name,
				uns_dtype_info(t->out)->torch);
	*out = (struct uns_st_entry){ .name = t->name, .dtype = t->out, .n_dims = shape->n, .of = t };
	memcpy(out->dims, shape->dim, sizeof(out->dims));
	return 0;
}

int uns_part_safetensors(const struct uns_catalog *cat, const struct uns_named_tensor *tensors, size_t n,
			 struct uns_arena *arena, struct uns_layout *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct uns_st_entry *entries = calloc(n + 1, sizeof(*entries));
	struct uns_layout_builder b = { .arena = arena };
	struct uns_span header;
	uint64_t data_bytes;
	size_t i;

	UNS_TRY_ALLOC(entries, err);
	for (i = 0; i < n; i++)
		UNS_TRY(entry_of(&tensors[i], &entries[i], err));
	UNS_TRY(uns_st_emit(entries, n, arena, &header, &data_bytes, err));
	uns_layout_reserve(&b, n + 1);
	uns_layout_literal(&b, header.p, uns_span_left(&header));
	for (i = 0; i < n; i++) /* which the emitter has sorted */
		uns_named_layout(&b, entries[i].of);
	return uns_layout_build(&b, cat, out, err);
}

/* -- several files -- */

enum { PENDING = -1 }; /* in the current file, which has no number yet */

struct split {
	int64_t *file_of; /* of each tensor */
	int64_t n_files;
	uint64_t total_bytes, total_params;
};

/* Gives the pending tensors from *from to `to` the next number. */
static void file_end(struct split *s, size_t *from, size_t to)
{
	for (; *from < to; ++*from)
		if (s->file_of[*from] == PENDING)
			s->file_of[*from] = s->n_files;
	s->n_files++;
}

/* Adds the tensors from the i-th on that must share one file, which are joined slices of one tensor, to the totals.
 * Returns how many they are. */
static size_t block_count(struct split *s, const struct uns_named_tensor *tensors, size_t n, size_t i, uint64_t *bytes)
{
	const size_t first = i;
	uint64_t elems;

	*bytes = 0;
	do {
		elems = uns_shape_elems(uns_named_shape(&tensors[i]));
		*bytes += elems * uns_dtype_size(tensors[i].out);
		if (tensors[i].tensor->role != UNS_ROLE_BUFFER)
			s->total_params += elems;
		i++;
	} while (i < n && tensors[i].slice && tensors[i].slice->joined);
	s->total_bytes += *bytes;
	return i - first;
}

/* A block above the limit gets a file of its own, with the next number, and the current file stays open.
 * huggingface_hub numbers in this order. */
static void split_tensors(struct split *s, const struct uns_named_tensor *tensors, size_t n, uint64_t max_bytes)
{
	uint64_t filled = 0, bytes;
	size_t i, k, block, from = 0, pending = 0;

	for (i = 0; i < n; i += block) {
		block = block_count(s, tensors, n, i, &bytes);
		if (bytes <= max_bytes && bytes > max_bytes - filled) {
			file_end(s, &from, i);
			filled = pending = 0;
		}
		for (k = i; k < i + block; k++)
			s->file_of[k] = bytes > max_bytes ? s->n_files : PENDING;
		if (bytes > max_bytes) {
			s->n_files++;
			continue;
		}
		filled += bytes;
		pending++;
	}
	if (pending)
		file_end(s, &from, n);
}

static const char *file_name(struct uns_arena *arena, const char *stem, int64_t i, int64_t n)
{
	if (n <= 1)
		return uns_arena_printf(arena, "%s.safetensors", stem);
	return uns_arena_printf(arena, "%s-%05lld-of-%05lld.safetensors", stem, (long long)i + 1, (long long)n);
}

static int file_add(const struct uns_catalog *cat, const struct uns_named_tensor *tensors, size_t n, const char *path,
		    const char *origin, struct uns_vtree *tree, struct uns_err *err)
{
	struct uns_vfile file = { .path = path, .source = UNS_NONE, .origin = origin };

	UNS_TRY_ALLOC(path, err);
	UNS_TRY(uns_part_safetensors(cat, tensors, n, &tree->arena, &file.layout, err));
	return uns_vtree_add(tree, &file, err);
}

static int files_add(const struct uns_catalog *cat, const struct split *s, const struct uns_named_tensor *tensors,
		     size_t n, const char *stem, const char *origin, struct uns_vtree *tree, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) size_t *order = calloc(n + 1, sizeof(*order));
	UNS_CLEANUP(uns_free_p) size_t *end = calloc((size_t)s->n_files + 1, sizeof(*end));
	UNS_CLEANUP(uns_free_p) struct uns_named_tensor *own = NULL; /* one file's */
	size_t i, from = 0, most = 0;
	int64_t f;

	UNS_TRY_ALLOC(order && end, err);
	/* A stable counting sort by file number: a file's tensors stay in the given order. O(n) */
	for (i = 0; i < n; i++)
		end[s->file_of[i] + 1]++;
	for (f = 0; f < s->n_files; f++) {
		most = end[f + 1] > most ? end[f + 1] : most;
		end[f + 1] += end[f];
	}
	for (i = 0; i < n; i++)
		order[end[s->file_of[i]]++] = i;
	UNS_TRY_ALLOC(own = calloc(most + 1, sizeof(*own)), err);
	for (f = 0; f < s->n_files; from = end[f++]) {
		for (i = from; i < end[f]; i++)
			own[i - from] = tensors[order[i]];
		UNS_TRY(file_add(cat, own, end[f] - from, file_name(&tree->arena, stem, f, s->n_files), origin, tree,
				 err));
	}
	return 0;
}

/* -- the index -- */

struct row {
	const char *name;
	int64_t file;
};

/* The bytes of the rows' lines in the index; escapes are not counted. */
static size_t lines_room(const struct row *rows, size_t n, const char *const *in_file)
{
	enum { PUNCTUATION = 12 };
	size_t i, room = 0;

	for (i = 0; i < n; i++)
		room += strlen(rows[i].name) + strlen(in_file[rows[i].file]) + PUNCTUATION;
	return room;
}

static int row_compare(const void *a, const void *b)
{
	return strcmp(((const struct row *)a)->name, ((const struct row *)b)->name);
}

/* json.dumps(index, indent=2, sort_keys=True) + "\n", and all that it is made of. */
struct index {
	const struct split *split;
	const struct uns_named_tensor *tensors;
	size_t n;
	const char **in_file; /* the files' names */
	struct uns_text text;
	int code; /* of making it, with its sentence in err */
	struct uns_err err;
};

static void index_fini(struct index *index)
{
	free(index->in_file);
	uns_text_fini(&index->text);
}

static int index_init(struct index *index, const char *stem, struct uns_arena *arena, struct uns_err *err)
{
	const int64_t n_files = index->split->n_files;
	int64_t f;

	UNS_TRY_ALLOC(index->in_file = calloc((size_t)n_files, sizeof(*index->in_file)), err);
	for (f = 0; f < n_files; f++)
		UNS_TRY_ALLOC(index->in_file[f] = file_name(arena, uns_path_name(stem), f, n_files), err);
	return 0;
}

static int index_make(struct index *index, struct uns_err *err)
{
	const size_t n = index->n;
	UNS_CLEANUP(uns_free_p) struct row *rows = calloc(n + 1, sizeof(*rows));
	struct uns_text *t = &index->text;
	size_t i;

	UNS_TRY_ALLOC(rows, err);
	for (i = 0; i < n; i++)
		rows[i] = (struct row){ index->tensors[i].name, index->split->file_of[i] };
	qsort(rows, n, sizeof(*rows), row_compare);
	/* Each file's header refuses duplicates within the file; only here are all files known. */
	for (i = 1; i < n; i++)
		if (strcmp(rows[i - 1].name, rows[i].name) == 0)
			return uns_fail(err, -EBADMSG, "two tensors would be named %s", rows[i].name);
	uns_text_printf(t,
			"{\n  \"metadata\": {\n    \"total_parameters\": %llu,\n"
			"    \"total_size\": %llu\n  },\n  \"weight_map\": {\n",
			(unsigned long long)index->split->total_params, (unsigned long long)index->split->total_bytes);
	uns_text_reserve(t, lines_room(rows, n, index->in_file));
	for (i = 0; i < n; i++) {
		uns_text_str(t, "    ");
		uns_text_json_str(t, rows[i].name);
		uns_text_str(t, ": \"");
		uns_text_str(t, index->in_file[rows[i].file]);
		uns_text_str(t, i + 1 < n ? "\",\n" : "\"\n");
	}
	uns_text_str(t, "  }\n}\n");
	return t->failed ? uns_oom(err) : 0;
}

static void *index_run(void *arg)
{
	struct index *index = arg;

	index->code = index_make(index, &index->err);
	return NULL;
}

/* Adds the files and makes their index, each half in a thread of its own if that is worth one. */
static int files_add_and_index(const struct uns_catalog *cat, struct index *index, const char *stem, const char *origin,
			       struct uns_vtree *tree, struct uns_err *err)
{
	const struct uns_processors any = { .known = false };
	pthread_t thread;
	const bool begun = index->n >= UNS_INDEX_IN_A_THREAD && uns_thread_begin(&thread, &any, index_run, index) == 0;
	const int code = files_add(cat, index->split, index->tensors, index->n, stem, origin, tree, err);

	if (begun)
		pthread_join(thread, NULL);
	if (code < 0)
		return code;
	if (!begun)
		index_run(index);
	return index->code < 0 ? uns_fail_copy(err, &index->err) : 0;
}

static int set_add(const struct uns_catalog *cat, const struct split *s, const struct uns_named_tensor *tensors,
		   size_t n, const char *stem, const char *origin, struct uns_vtree *tree, struct uns_err *err)
{
	UNS_CLEANUP(index_fini) struct index index = { .split = s, .tensors = tensors, .n = n, .text = UNS_TEXT_INIT };
	const char *path = uns_arena_printf(&tree->arena, "%s.safetensors.index.json", stem);

	UNS_TRY(index_init(&index, stem, &tree->arena, err));
	UNS_TRY(files_add_and_index(cat, &index, stem, origin, tree, err));
	return uns_vtree_add_text(tree, path, index.text.p, index.text.len, origin, err);
}

int uns_part_safetensors_set(const struct uns_catalog *cat, const struct uns_named_tensor *tensors, size_t n,
			     const char *stem, uint64_t max_shard_bytes, const char *origin, struct uns_vtree *tree,
			     struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) int64_t *file_of = calloc(n + 1, sizeof(*file_of));
	struct split s = { .file_of = file_of };

	UNS_TRY_ALLOC(file_of, err);
	UNS_TRY(uns_vtree_set_tensors(tree, tensors, n, err));
	split_tensors(&s, tensors, n, max_shard_bytes);
	if (s.n_files <= 1)
		return file_add(cat, tensors, n, file_name(&tree->arena, stem, 0, 1), origin, tree, err);
	return set_add(cat, &s, tensors, n, stem, origin, tree, err);
}
