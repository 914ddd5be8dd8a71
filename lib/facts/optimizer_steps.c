/* The optimizer's steps, and whether those of its parameters were saved together.
 *
 * Parameters of one optimizer may have different steps: one that has no gradient is passed over, and one that is added
 * later begins at 0. Which file of a sharded checkpoint has a parameter's step is decided by other things than its
 * gradients. So if each file has parameters of one step only, and files differ, either chance put them so or files are
 * of two saves. How likely chance is follows from the numbers: of all ways to choose as many parameters as have the
 * rarer steps, those that are whole files. It is certain too if the file that differs is, byte for byte, the file of
 * that name in another checkpoint of the run: each step of training changes an optimizer's states. */
#include "facts/optimizer_steps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "io/source.h"
#include "wire/torchfile.h"

/* -- reading -- */

static int64_t whole_step(double value)
{
	return value >= 0 && value < 1e15 && value == floor(value) ? (int64_t)value : UNS_UNKNOWN;
}

static int step_add(struct collect *c, struct optimizer_steps *out, const struct uns_tensor *t, double value,
		    struct uns_err *err)
{
	const struct optimizer_step one = { .name = t ? t->name : NULL,
					    .root = t ? t->root : NULL,
					    .file = t ? uns_tensor_pieces(c->in->cat, t)->file : UNS_NONE,
					    .step = whole_step(value) };

	if (one.step == UNS_UNKNOWN)
		return 0;
	UNS_TRY_ALLOC(UNS_ARENA_ROOM(&c->scratch, out->v, out->n, out->cap), err);
	out->v[out->n++] = one;
	if (one.step > out->most.step)
		out->most = one;
	return 0;
}

static bool is_number(const struct uns_tensor *t)
{
	return uns_dtype_counts(t->dtype) && t->n_pieces && uns_shape_elems(&t->shape) == 1;
}

/* One element of each tensor. Returns 1, or 0 if they cannot be read. */
static int numbers_read(struct collect *c, const struct uns_tensor *const *t, size_t n, double *out,
			struct uns_err *err)
{
	struct uns_layout_builder b = { .arena = &c->scratch };
	struct uns_err why = { 0 };
	struct uns_layout layout;
	const uint8_t *at;
	uint8_t *bytes;
	int64_t code;
	size_t i;

	UNS_TRY_ALLOC(bytes = UNS_NEW_N(&c->scratch, uint8_t, n * sizeof(uint64_t) + 1), err);
	for (i = 0; i < n; i++)
		uns_layout_tensor(&b, t[i], 0, 1, t[i]->dtype);
	code = uns_layout_build(&b, c->in->cat, &layout, &why);
	if (code == 0)
		code = uns_read(c->in->backing, &layout, bytes, layout.size_bytes, 0, &why);
	if (!collect_is_read(c, code < 0 ? (int)code : 0, &why) || (uint64_t)code != layout.size_bytes)
		return 0;
	for (i = 0, at = bytes; i < n; at += uns_dtype_size(t[i++]->dtype))
		uns_dtype_number(t[i]->dtype, at, &out[i]);
	return 1;
}

/* Tensors of one element, of whatever format, as one virtual file: their headers are read several at once. */
static int read_tensors(struct collect *c, struct optimizer_steps *out, struct uns_err *err)
{
	const struct uns_catalog *cat = c->in->cat;
	const struct uns_tensor *t, *end = cat->tensors + cat->n_tensors, **step;
	double *value;
	size_t n = 0, i;
	int known;

	for (t = cat->tensors; t < end; t++)
		n += t->role == UNS_ROLE_STEP && is_number(t);
	UNS_TRY_ALLOC(value = UNS_NEW_N(&c->scratch, double, n + 1), err);
	UNS_TRY_ALLOC(step = UNS_NEW_N(&c->scratch, const struct uns_tensor *, n + 1), err);
	for (n = 0, t = cat->tensors; t < end; t++)
		if (t->role == UNS_ROLE_STEP && is_number(t))
			step[n++] = t;
	UNS_TRY(known = n ? numbers_read(c, step, n, value, err) : 0);
	for (i = 0; i < n && known; i++)
		UNS_TRY(step_add(c, out, step[i], value[i], err));
	return 0;
}

int64_t saved_number(struct collect *c, const char *key)
{
	const struct uns_catalog *cat = c->in->cat;
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	struct uns_err err = { 0 };
	double value;
	int known;

	while (t < end && strcmp(t->key, key) != 0)
		t++;
	if (t == end || !is_number(t))
		return UNS_UNKNOWN;
	known = numbers_read(c, &t, 1, &value, &err);
	c->failed |= known < 0;
	return known > 0 ? whole_step(value) : UNS_UNKNOWN;
}

/* Numbers that are kept with param groups (fused optimizers, DeepSpeed, Megatron-Core). */
static int read_groups(struct collect *c, struct optimizer_steps *out, struct uns_err *err)
{
	const struct uns_catalog *cat = c->in->cat;
	double value;
	size_t i;

	for (i = 0; i < cat->n_groups; i++)
		if (uns_value_float(uns_value_get(cat->groups[i].hyper, "step"), &value))
			UNS_TRY(step_add(c, out, NULL, value, err));
	return 0;
}

int optimizer_steps_read(struct collect *c, struct optimizer_steps *out, struct uns_err *err)
{
	int64_t plain;

	*out = (struct optimizer_steps){ .most.step = UNS_UNKNOWN };
	UNS_TRY(read_tensors(c, out, err));
	UNS_TRY(read_groups(c, out, err));
	if (out->n)
		return 0;
	plain = saved_plain_step(c);
	return plain < 0 ? 0 : step_add(c, out, NULL, (double)plain, err);
}

/* -- by file -- */

/* The parameters' steps by file: which file has which step, if each has one only. */
struct by_file {
	struct of_file {
		size_t n; /* parameters whose step it holds */
		int64_t step;
		const char *name; /* one of them */
	} *v;             /* of each file of the catalog */
	size_t n_files;   /* those that hold steps */
	int64_t usual;    /* the step of most parameters */
	size_t n_params, n_odd_params, n_odd_files;
	uint32_t odd; /* a file whose step is another one */
};

static int step_cmp(const void *a, const void *b)
{
	const struct optimizer_step *x = a, *y = b;

	return x->step < y->step ? -1 : x->step > y->step;
}

/* Sorts the steps. */
static int64_t most_frequent(struct optimizer_step *v, size_t n)
{
	int64_t best = UNS_UNKNOWN;
	size_t i, run = 0, longest = 0;

	qsort(v, n, sizeof(*v), step_cmp);
	for (i = 0; i < n; i++) {
		run = i && v[i].step == v[i - 1].step ? run + 1 : 1;
		if (run >= longest) {
			longest = run;
			best = v[i].step;
		}
	}
	return best;
}

/* Returns 1 if steps of that optimizer differ and no file has two; otherwise 0. */
static int by_file_sort(struct collect *c, const struct optimizer_steps *steps, const char *root, struct by_file *out,
			struct uns_err *err)
{
	struct optimizer_step *v;
	size_t i, n = 0;

	*out = (struct by_file){ .odd = UNS_NONE };
	UNS_TRY_ALLOC(v = UNS_NEW_N(&c->scratch, struct optimizer_step, steps->n + 1), err);
	UNS_TRY_ALLOC(out->v = UNS_NEW_N(&c->scratch, struct of_file, c->in->cat->n_files), err);
	for (i = 0; i < steps->n; i++)
		if (steps->v[i].name && strcmp(steps->v[i].root, root) == 0)
			v[n++] = steps->v[i];
	if (!n)
		return 0;
	out->usual = most_frequent(v, n);
	out->n_params = n;
	for (i = 0; i < n; i++) {
		struct of_file *f = &out->v[v[i].file];

		if (f->n && f->step != v[i].step)
			return 0;
		out->n_files += !f->n;
		*f = (struct of_file){ f->n + 1, v[i].step, v[i].name };
		out->n_odd_params += v[i].step != out->usual;
	}
	for (i = 0; i < c->in->cat->n_files; i++)
		if (out->v[i].n && out->v[i].step != out->usual) {
			out->n_odd_files++;
			out->odd = out->odd == UNS_NONE ? (uint32_t)i : out->odd;
		}
	return out->n_odd_files > 0;
}

/* ln of the number of ways to choose k of n. */
static double ln_choose(size_t n, size_t k)
{
	return lgamma((double)n + 1) - lgamma((double)k + 1) - lgamma((double)(n - k) + 1);
}

/* Would parameters without gradients be those of whole files once in a million times at most? */
static bool is_no_chance(const struct by_file *by)
{
	return ln_choose(by->n_files, by->n_odd_files) - ln_choose(by->n_params, by->n_odd_params) < log(1e-6);
}

/* -- another checkpoint's file -- */

#define TAG "global_step"

enum { COMPARED_BLOCKS = 64, BLOCK_BYTES = 1 << 20, MAX_SIBLINGS = 256 };

/* Blocks all over two files of one size; small files are compared whole. Returns 1 or 0. */
static int fd_equal(int a, int b, uint64_t size, const char *name, uint8_t *room, struct uns_err *err)
{
	const uint64_t step = size / COMPARED_BLOCKS > BLOCK_BYTES ? size / COMPARED_BLOCKS : BLOCK_BYTES;
	uint64_t at;
	size_t len;

	for (at = 0; at < size; at += step) {
		len = size - at < BLOCK_BYTES ? (size_t)(size - at) : BLOCK_BYTES;
		UNS_TRY(uns_fd_pread(a, room, len, at, name, err));
		UNS_TRY(uns_fd_pread(b, room + BLOCK_BYTES, len, at, name, err));
		if (memcmp(room, room + BLOCK_BYTES, len) != 0)
			return 0;
	}
	return 1;
}

/* Has the file the bytes of `other`? Returns 1 or 0. */
static int file_equal(struct collect *c, const struct uns_file *f, const char *other, uint8_t *room)
{
	UNS_CLEANUP(uns_close_p) int a = -1;
	UNS_CLEANUP(uns_close_p) int b = -1;
	struct uns_err why = { 0 };
	struct uns_stat st, other_st;

	if (uns_root_stat(c->in->root, other, true, &other_st, NULL) < 0 || other_st.kind != UNS_KIND_FILE ||
	    other_st.id.size != f->stat.id.size || !other_st.id.size)
		return 0;
	if (uns_root_open_file(f->root, f->path, &a, &st, &why) < 0 ||
	    uns_root_open_file(c->in->root, other, &b, &other_st, &why) < 0 || st.id.size != other_st.id.size)
		return 0;
	return fd_equal(a, b, st.id.size, other, room, &why) > 0;
}

/* The file `inside` of checkpoint `dir`: each checkpoint of a Trainer has a tag directory of its own (checkpoint-2 has
 * global_step2/..). */
static const char *file_in(struct collect *c, const char *dir, const char *inside)
{
	const char *rest = uns_str_starts(inside, TAG) ? strchr(inside, '/') : NULL;
	struct uns_listing list = { NULL, 0 };
	size_t i;

	if (rest && uns_root_list(c->in->root, dir, &c->scratch, &list, NULL) == 0)
		for (i = 0; i < list.n; i++)
			if (list.v[i].kind == UNS_KIND_DIR && uns_str_starts(list.v[i].name, TAG))
				return uns_arena_printf(&c->scratch, "%s/%s%s", dir, list.v[i].name, rest);
	return uns_arena_printf(&c->scratch, "%s/%s", dir, inside);
}

/* The directory of the run that is this checkpoint: of ranks' files, run/global_step_2/actor, it is the one above. */
static const char *directory_of_run(struct collect *c)
{
	const char *parent = uns_path_parent(&c->scratch, c->path);

	return c->in->cat->summary.family == UNS_FAMILY_RANKS && parent && *parent &&
			       !uns_str_starts(uns_path_name(c->path), TAG)
		       ? parent
		       : c->path;
}

/* The file of that name of another checkpoint beside this one, if its bytes are the same. *out in the arena; NULL =
 * there is none. */
static int find_twin(struct collect *c, uint32_t file, const char **out, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) uint8_t *room = malloc((size_t)2 * BLOCK_BYTES);
	const struct uns_file *f = &c->in->cat->files[file];
	const char *own = directory_of_run(c), *run = uns_path_parent(&c->scratch, own), *dir, *other;
	struct uns_listing list;
	size_t i, n = 0;

	*out = NULL;
	UNS_TRY_ALLOC(room, err);
	if (!run || !*own || f->root != c->in->root || !uns_path_within(f->path, c->path) ||
	    uns_root_list(c->in->root, run, &c->scratch, &list, NULL) < 0)
		return 0;
	for (i = 0; i < list.n && n < MAX_SIBLINGS && !*out; i++) {
		if (list.v[i].kind != UNS_KIND_DIR || strcmp(list.v[i].name, uns_path_name(own)) == 0)
			continue;
		n++;
		dir = uns_arena_printf(&c->scratch, "%s%s%s", run, *run ? "/" : "", list.v[i].name);
		UNS_TRY_ALLOC(dir, err);
		UNS_TRY_ALLOC(other = file_in(c, dir, f->path + strlen(own) + 1), err);
		if (file_equal(c, f, other, room))
			*out = other;
	}
	return 0;
}

static bool is_of_optimizer(const struct uns_tensor *t)
{
	return t->n_pieces && (t->role == UNS_ROLE_EXP_AVG || t->role == UNS_ROLE_EXP_AVG_SQ ||
			       t->role == UNS_ROLE_STEP || t->role == UNS_ROLE_OPTIM_OTHER);
}

int optimizer_twin_find(struct collect *c, const char **out, struct uns_err *err)
{
	const struct uns_catalog *cat = c->in->cat;
	const struct uns_companion *plain = uns_catalog_companion(cat, "optimizer.pt");
	size_t i;

	*out = NULL;
	for (i = 0; i < cat->n_tensors; i++)
		if (is_of_optimizer(&cat->tensors[i]))
			return find_twin(c, uns_tensor_pieces(cat, &cat->tensors[i])->file, out, err);
	return plain ? find_twin(c, plain->file, out, err) : 0;
}

/* -- the findings -- */

/* The file that is another checkpoint's: one of the two, if the bytes prove it, and *twin is that checkpoint's; else
 * the one of fewer parameters. */
static int choose_file(struct collect *c, const struct by_file *by, uint32_t *file, uint32_t *other, const char **twin,
		       struct uns_err *err)
{
	*other = 0;
	while (!by->v[*other].n || by->v[*other].step != by->usual)
		(*other)++;
	*file = by->odd;
	UNS_TRY(find_twin(c, *file, twin, err));
	if (*twin)
		return 0;
	UNS_TRY(find_twin(c, *other, twin, err));
	if (*twin) {
		*file = *other;
		*other = by->odd;
	}
	return 0;
}

static int compare_root(struct collect *c, const struct optimizer_steps *steps, const char *root,
			struct steps_found *out, struct uns_err *err)
{
	const struct uns_catalog *cat = c->in->cat;
	struct uns_finding f = { .id = UNS_FOUND_OPTIMIZER_FILES_DIFFER, .scope = UNS_SCOPE_OPTIMIZER };
	uint32_t file, other;
	const char *twin;
	struct by_file by;
	int differ;

	UNS_TRY(differ = by_file_sort(c, steps, root, &by, err));
	if (!differ)
		return 0;
	UNS_TRY(choose_file(c, &by, &file, &other, &twin, err));
	if (!twin && !is_no_chance(&by)) {
		f.id = UNS_FOUND_OPTIMIZER_FILES_MAY_DIFFER;
		f.scope = UNS_SCOPE_NOTE;
	}
	f.checkpoint = c->path;
	f.file = cat->files[file].path;
	f.tensor = by.v[file].name;
	f.found = uns_num((uint64_t)by.v[file].step);
	f.expected = uns_num((uint64_t)by.v[other].step);
	f.arg[0] = (struct uns_finding_arg){ "other_file", uns_str(cat->files[other].path) };
	f.arg[1] = (struct uns_finding_arg){ "more", uns_more(by.v[file].n - 1) };
	f.arg[2] = (struct uns_finding_arg){ "twin", uns_str(twin) };
	return uns_findings_add(&out->v, &out->arena, &f, err);
}

int optimizer_steps_compare(struct collect *c, const struct optimizer_steps *steps, struct steps_found *out,
			    struct uns_err *err)
{
	size_t i, k;

	if (c->in->cat->summary.family == UNS_FAMILY_UNIVERSAL)
		return 0; /* a file for each parameter: zero/read/universal.c compares them */
	for (i = 0; i < steps->n; i++) {
		for (k = 0; k < i; k++)
			if (steps->v[k].name && steps->v[i].name && strcmp(steps->v[k].root, steps->v[i].root) == 0)
				break;
		if (k == i && steps->v[i].name)
			UNS_TRY(compare_root(c, steps, steps->v[i].root, out, err));
	}
	return 0;
}
