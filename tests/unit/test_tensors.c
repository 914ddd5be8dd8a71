/* unshard_tensors_*: every tensor and boxes of it, of every checkpoint that real frameworks wrote for the golden
 * files, against the bytes of the files that the views show, of what the training processes held when they
 * saved (live.safetensors), and of what DeepSpeed's own tool made of them (universal). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cJSON.h>

#include "unshard.h"

enum { MAX_CHECKPOINTS = 128 };

struct fixture {
	unshard *u;
	char *checkpoint[MAX_CHECKPOINTS];
	size_t n;
};

static int keep_checkpoint(void *ctx, const struct unshard_checkpoint *c)
{
	struct fixture *f = ctx;

	assert_true(f->n < MAX_CHECKPOINTS);
	if (c->format)
		f->checkpoint[f->n++] = strdup(c->path);
	return 0;
}

static unshard *open_session(const char *source)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true, .no_settling = true };
	struct unshard_error err = { 0 };
	unshard *u;

	if (unshard_open(source, &options, &u, &err) < 0)
		fail_msg("%s: %s", source, err.text);
	return u;
}

static int setup(void **state)
{
	static struct fixture f;
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = &f, .checkpoint = keep_checkpoint };

	f.u = open_session(UNSHARD_GOLDEN);
	assert_int_equal(unshard_scan(f.u, &calls, NULL), 0);
	assert_true(f.n > 10);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	unshard_close(f->u);
	while (f->n)
		free(f->checkpoint[--f->n]);
	return 0;
}

/* -- a safetensors file in memory, as its own reader -- */

struct file {
	uint8_t *bytes;
	size_t len;
	cJSON *header;
};

static void file_parse(struct file *f)
{
	uint64_t n;

	memcpy(&n, f->bytes, 8);
	f->header = cJSON_ParseWithLength((const char *)f->bytes + 8, n);
	assert_non_null(f->header);
	cJSON_DeleteItemFromObjectCaseSensitive(f->header, "__metadata__");
}

static void file_fini(struct file *f)
{
	cJSON_Delete(f->header);
	free(f->bytes);
}

static void file_of_disk(struct file *f, const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY);

	if (fd < 0 || fstat(fd, &st) < 0)
		fail_msg("%s", path);
	f->bytes = malloc((size_t)st.st_size);
	f->len = (size_t)st.st_size;
	assert_int_equal(read(fd, f->bytes, f->len), f->len);
	close(fd);
	file_parse(f);
}

static void file_of_view(struct file *f, unshard *u, const char *path)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	unshard_file *file;

	assert_int_equal(unshard_file_open(u, path, NULL, &file, &st, NULL), 0);
	f->len = st.size_bytes;
	f->bytes = malloc(f->len);
	assert_int_equal(unshard_pread(file, f->bytes, f->len, 0, NULL), f->len);
	unshard_file_close(file);
	file_parse(f);
}

static const uint8_t *data_of(const struct file *f, const cJSON *entry, size_t *len)
{
	const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
	size_t begin = (size_t)cJSON_GetArrayItem(offsets, 0)->valuedouble;
	uint64_t n;

	memcpy(&n, f->bytes, 8);
	*len = (size_t)cJSON_GetArrayItem(offsets, 1)->valuedouble - begin;
	return f->bytes + 8 + n + begin;
}

static const struct {
	const char *safetensors;
	enum unshard_dtype dtype;
} types[] = {
	{ "BOOL", UNSHARD_BOOL }, { "U8", UNSHARD_U8 },           { "I8", UNSHARD_I8 },
	{ "I16", UNSHARD_I16 },   { "U16", UNSHARD_U16 },         { "F16", UNSHARD_F16 },
	{ "BF16", UNSHARD_BF16 }, { "I32", UNSHARD_I32 },         { "U32", UNSHARD_U32 },
	{ "F32", UNSHARD_F32 },   { "F64", UNSHARD_F64 },         { "I64", UNSHARD_I64 },
	{ "U64", UNSHARD_U64 },   { "F8_E5M2", UNSHARD_F8_E5M2 }, { "F8_E4M3", UNSHARD_F8_E4M3 },
};

static enum unshard_dtype type_of(const cJSON *entry)
{
	const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "dtype"));
	size_t i;

	for (i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (!strcmp(types[i].safetensors, name))
			return types[i].dtype;
	fail_msg("%s", name);
	return UNSHARD_AS_STORED;
}

/* -- boxes -- */

/* Element by element, as slowly and surely as can be. */
static void cut(const struct unshard_tensor *t, const uint8_t *whole, const uint64_t *lo, const uint64_t *len,
		size_t elem, uint8_t *out)
{
	uint64_t index[UNSHARD_MAX_DIMS], n = 1, i, k, at;
	uint32_t d;

	for (d = 0; d < t->n_dims; d++)
		n *= len[d];
	for (i = 0; i < n; i++) {
		for (k = i, d = t->n_dims; d-- > 0; k /= len[d])
			index[d] = lo[d] + k % len[d];
		for (at = 0, d = 0; d < t->n_dims; d++)
			at = at * t->shape[d] + index[d];
		memcpy(out + i * elem, whole + at * elem, elem);
	}
}

static uint64_t draw(unsigned *seed, uint64_t below)
{
	return (uint64_t)rand_r(seed) % below;
}

/* All edges: from 0, to the end, one element, none, everything between. */
static void draw_box(unsigned *seed, const struct unshard_tensor *t, uint64_t *lo, uint64_t *len)
{
	uint32_t d;

	for (d = 0; d < t->n_dims; d++) {
		lo[d] = draw(seed, 4) ? draw(seed, t->shape[d] + 1) : 0;
		len[d] = draw(seed, 4) ? draw(seed, t->shape[d] - lo[d] + 1) : t->shape[d] - lo[d];
	}
}

static uint64_t box_elems(const struct unshard_tensor *t, const uint64_t *len)
{
	uint64_t n = 1;
	uint32_t d;

	for (d = 0; d < t->n_dims; d++)
		n *= len[d];
	return n;
}

static void check_boxes(const unshard_tensors *list, size_t i, const uint8_t *whole, unsigned n)
{
	const struct unshard_tensor *t = unshard_tensors_at(list, i);
	uint64_t lo[UNSHARD_MAX_DIMS], len[UNSHARD_MAX_DIMS];
	uint8_t *got = malloc(t->size_bytes + 1), *want = malloc(t->size_bytes + 1);
	size_t elem = unshard_dtype_size(t->dtype), bytes;
	struct unshard_error err = { 0 };
	unsigned seed = 7;

	while (n--) {
		draw_box(&seed, t, lo, len);
		bytes = box_elems(t, len) * elem;
		cut(t, whole, lo, len, elem, want);
		got[bytes] = 0xa5;
		if (unshard_tensor_read(list, i, lo, len, UNSHARD_AS_STORED, got, bytes, &err) < 0)
			fail_msg("%s: %s", t->name, err.text);
		assert_memory_equal(got, want, bytes);
		assert_int_equal(got[bytes], 0xa5);
	}
	free(got);
	free(want);
}

static void check_entry(const unshard_tensors *list, const char *name, const struct file *f, const cJSON *entry,
			unsigned n_boxes)
{
	const cJSON *shape = cJSON_GetObjectItemCaseSensitive(entry, "shape");
	const struct unshard_tensor *t;
	struct unshard_error err = { 0 };
	const uint8_t *want;
	uint8_t *got;
	uint32_t d;
	size_t i, len;

	if (unshard_tensors_find(list, name, NULL, &i, &err) < 0)
		fail_msg("%s", err.text);
	t = unshard_tensors_at(list, i);
	want = data_of(f, entry, &len);
	assert_string_equal(t->name, name);
	assert_int_equal(t->dtype, type_of(entry));
	assert_int_equal(t->size_bytes, len);
	assert_int_equal(t->n_dims, cJSON_GetArraySize(shape));
	assert_true(t->role == UNSHARD_WEIGHT || t->role == UNSHARD_BUFFER);
	for (d = 0; d < t->n_dims; d++)
		assert_int_equal(t->shape[d], cJSON_GetArrayItem(shape, (int)d)->valuedouble);
	got = malloc(len + 1);
	if (unshard_tensor_read(list, i, NULL, NULL, UNSHARD_AS_STORED, got, len, &err) < 0)
		fail_msg("%s", err.text);
	assert_memory_equal(got, want, len);
	free(got);
	check_boxes(list, i, want, n_boxes);
}

/* -- against files -- */

static const char *const views[] = { "weights", "weights-bf16", "weights-fp16", "weights-fp32", "full" };

/* The tensors of all files of weights in a directory of the tree; how many there are. */
static size_t check_view_dir(unshard *u, const char *dir, const unshard_tensors *list)
{
	unshard_listing *l;
	const struct unshard_dirent *e;
	struct file f;
	const cJSON *entry;
	char path[512];
	size_t i, n = 0;

	assert_int_equal(unshard_list(u, dir, &l, NULL), 0);
	for (i = 0; (e = unshard_listing_at(l, i)) != NULL; i++) {
		if (!strstr(e->name, ".safetensors") || strstr(e->name, ".json"))
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->name);
		file_of_view(&f, u, path);
		cJSON_ArrayForEach (entry, f.header) {
			check_entry(list, entry->string, &f, entry, 8);
			n++;
		}
		file_fini(&f);
	}
	unshard_listing_free(l);
	return n;
}

static void as_the_views_files(void **state)
{
	struct fixture *f = *state;
	struct unshard_error err;
	unshard_tensors *list;
	size_t i, k, n_checked, n_lists = 0;
	char dir[512];
	int code;

	for (i = 0; i < f->n; i++) {
		for (k = 0; k < sizeof(views) / sizeof(*views); k++) {
			err = (struct unshard_error){ 0 };
			code = unshard_tensors_open(f->u, f->checkpoint[i], views[k], &list, &err);
			if (code < 0) {
				assert_true(code == -ENOTSUP || code == -ENODATA || code == -EBADMSG);
				assert_true(err.code == code && err.text[0]);
				continue;
			}
			n_lists++;
			snprintf(dir, sizeof(dir), "%s/%s", views[k], f->checkpoint[i]);
			/* A directory that is shown as it is may have torch's files instead. */
			n_checked = check_view_dir(f->u, dir, list);
			if (n_checked)
				assert_int_equal(n_checked, unshard_tensors_count(list));
			unshard_tensors_close(list);
		}
	}
	assert_true(n_lists > 40);
}

static const struct {
	const char *source, *checkpoint, *oracle;
} live[] = {
	{ "run", "checkpoint-2", "run.model.safetensors" },
	{ "older/torch2.2.2_fsdp1st_w2_bf16_dcp/run", "ckpt", NULL },
	{ "older/torch2.4.1_fsdp2_w2_fp32_dcp/run", "ckpt", NULL },
	{ "older/accelerate0.29.3-torch2.2.2_f1_sh_w3/run", "ckpt", NULL },
	{ "older/transformers4.46.3-torch2.4.1_f1_sh_w2/run", "ckpt", NULL },
};

/* The checkpoint's own names may lack the prefix under which the training process had them. */
static const char *own_name(const unshard_tensors *list, const char *name)
{
	size_t i;

	return unshard_tensors_find(list, name, NULL, &i, NULL) == 0 || strncmp(name, "model.", 6) != 0 ? name
													: name + 6;
}

static void as_the_training_had_them(void **state)
{
	unshard_tensors *list;
	const cJSON *entry;
	char path[512];
	struct file f;
	unshard *u;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(live) / sizeof(*live); i++) {
		snprintf(path, sizeof(path), "%s/%s", UNSHARD_GOLDEN, live[i].source);
		u = open_session(path);
		if (live[i].oracle)
			snprintf(path, sizeof(path), "%s/%s", UNSHARD_GOLDEN, live[i].oracle);
		else
			strcat(path, "/../live.safetensors");
		file_of_disk(&f, path);
		assert_int_equal(unshard_tensors_open(u, live[i].checkpoint, NULL, &list, NULL), 0);
		cJSON_ArrayForEach (entry, f.header)
			check_entry(list, own_name(list, entry->string), &f, entry, 40);
		unshard_tensors_close(list);
		file_fini(&f);
		unshard_close(u);
	}
}

/* What ds_to_universal wrote of an optimizer, each state in a file of its own. */
static void as_deepspeeds_own_tool(void **state)
{
	static const char *const zero[] = { "zero/z2_w3", "zero/z3_w2" };
	struct fixture *f = *state;
	const struct unshard_tensor *t;
	unshard_tensors *sharded, *universal;
	uint8_t *a, *b;
	char path[256];
	size_t i, k, at, n = 0;

	for (k = 0; k < sizeof(zero) / sizeof(*zero); k++) {
		snprintf(path, sizeof(path), "%s/global_step2", zero[k]);
		assert_int_equal(unshard_tensors_open(f->u, path, NULL, &sharded, NULL), 0);
		strcat(path, "_universal");
		assert_int_equal(unshard_tensors_open(f->u, path, NULL, &universal, NULL), 0);
		for (i = 0; (t = unshard_tensors_at(universal, i)) != NULL; i++) {
			if (!t->state || strncmp(t->state, "exp_avg", 7) != 0)
				continue;
			assert_true(t->role == UNSHARD_EXP_AVG || t->role == UNSHARD_EXP_AVG_SQ);
			assert_int_equal(unshard_tensors_find(sharded, t->name, t->state, &at, NULL), 0);
			assert_int_equal(unshard_tensors_at(sharded, at)->role, t->role);
			assert_int_equal(unshard_tensors_at(sharded, at)->size_bytes, t->size_bytes);
			a = malloc(t->size_bytes);
			b = malloc(t->size_bytes);
			assert_int_equal(
				unshard_tensor_read(universal, i, NULL, NULL, t->dtype, a, t->size_bytes, NULL), 0);
			assert_int_equal(unshard_tensor_read(sharded, at, NULL, NULL, t->dtype, b, t->size_bytes, NULL),
					 0);
			assert_memory_equal(a, b, t->size_bytes);
			free(a);
			free(b);
			n++;
		}
		unshard_tensors_close(universal);
		unshard_tensors_close(sharded);
	}
	assert_true(n > 8);
}

/* Every type that a view rounds to, from the tensors as they are stored. */
static void casts_as_views_do(void **state)
{
	static const struct {
		const char *view;
		enum unshard_dtype dtype;
	} casts[] = { { "weights-bf16", UNSHARD_BF16 }, { "weights-fp16", UNSHARD_F16 } };
	const char *path = "older/torch2.4.1_fsdp2_w2_fp32_dcp/run/ckpt/pytorch_model_fsdp_0";
	struct fixture *f = *state;
	unshard_tensors *stored, *cast;
	const struct unshard_tensor *t, *s;
	uint8_t *a, *b;
	size_t i, k, n = 0;

	for (k = 0; k < f->n; k++)
		if (strncmp(f->checkpoint[k], "older/torch2.4.1", 16) == 0)
			path = f->checkpoint[k];
	assert_int_equal(unshard_tensors_open(f->u, path, "weights", &stored, NULL), 0);
	for (k = 0; k < 2; k++) {
		assert_int_equal(unshard_tensors_open(f->u, path, casts[k].view, &cast, NULL), 0);
		for (i = 0; (t = unshard_tensors_at(cast, i)) != NULL; i++) {
			s = unshard_tensors_at(stored, i);
			assert_string_equal(s->name, t->name);
			a = malloc(t->size_bytes);
			b = malloc(t->size_bytes);
			assert_int_equal(
				unshard_tensor_read(cast, i, NULL, NULL, UNSHARD_AS_STORED, a, t->size_bytes, NULL), 0);
			assert_int_equal(unshard_tensor_read(stored, i, NULL, NULL, t->dtype, b, t->size_bytes, NULL),
					 0);
			assert_memory_equal(a, b, t->size_bytes);
			n += s->dtype != t->dtype;
			/* An integer is no number to be rounded. */
			if (s->dtype == UNSHARD_I64)
				assert_int_equal(unshard_tensor_read(stored, i, NULL, NULL, casts[k].dtype, b,
								     t->size_bytes / 4, NULL),
						 -ENOTSUP);
			free(a);
			free(b);
		}
		unshard_tensors_close(cast);
	}
	unshard_tensors_close(stored);
	assert_true(n > 8);
}

/* -- boxes of a tensor that is larger than what is read at once -- */

enum { PLANES = 3, ROWS = 500, COLUMNS = 700 };

static void write_large(const char *dir)
{
	static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[3,500,700],\"data_offsets\":[0,4200000]},"
				     "\"none\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[4200000,4200000]},"
				     "\"one\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4200000,4200004]}}  ";
	uint64_t n = strlen(header);
	char path[512];
	FILE *out;
	float value;
	size_t i;

	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	out = fopen(path, "w");
	assert_non_null(out);
	fwrite(&n, 8, 1, out);
	fwrite(header, 1, n, out);
	for (i = 0; i < PLANES * ROWS * COLUMNS + 1; i++) {
		value = (float)i * 1.0009765625f;
		fwrite(&value, sizeof(value), 1, out);
	}
	assert_int_equal(fclose(out), 0);
}

/* In F64, which holds all that F32 does: cut out of the whole, widened here. */
static void check_widened_box(const unshard_tensors *list, size_t i, const uint64_t *lo, const uint64_t *len,
			      const float *narrow)
{
	size_t n = box_elems(unshard_tensors_at(list, i), len), k;
	double *wide = malloc(n * sizeof(*wide) + 1);

	assert_int_equal(unshard_tensor_read(list, i, lo, len, UNSHARD_F64, wide, n * sizeof(*wide), NULL), 0);
	for (k = 0; k < n; k++)
		assert_true(wide[k] == (double)narrow[k]);
	free(wide);
}

static void large_boxes(void **state)
{
	static const uint64_t boxes[][6] = {
		{ 0, 0, 0, 3, 500, 1 },    /* a column: every row is short, and far from the next */
		{ 0, 0, 699, 3, 500, 1 }, { 1, 0, 0, 1, 500, 700 },   { 0, 0, 0, 3, 500, 700 },
		{ 0, 499, 0, 3, 1, 700 },  /* far more between the rows than is read together */
		{ 0, 499, 699, 3, 1, 1 }, { 2, 0, 350, 1, 500, 350 }, { 0, 93, 0, 2, 94, 699 },
		{ 0, 0, 1, 3, 500, 699 }, { 0, 0, 0, 1, 93, 699 },
	};
	char dir[] = "/tmp/uns_tensors_XXXXXX", command[128];
	struct unshard_error err = { 0 };
	const struct unshard_tensor *t;
	unshard_tensors *list;
	uint8_t *whole, *want, *got;
	size_t i, at = 0, bytes;
	float one;
	unshard *u;

	(void)state;
	assert_non_null(mkdtemp(dir));
	write_large(dir);
	u = open_session(dir);
	if (unshard_tensors_open(u, "", "weights", &list, &err) < 0 ||
	    unshard_tensors_find(list, "a", NULL, &at, &err) < 0)
		fail_msg("%s", err.text);
	t = unshard_tensors_at(list, at);
	whole = malloc(t->size_bytes);
	want = malloc(t->size_bytes);
	got = malloc(t->size_bytes);
	assert_int_equal(unshard_tensor_read(list, at, NULL, NULL, t->dtype, whole, t->size_bytes, NULL), 0);
	assert_true(((float *)whole)[PLANES * ROWS * COLUMNS - 1] ==
		    (float)(PLANES * ROWS * COLUMNS - 1) * 1.0009765625f);
	for (i = 0; i < sizeof(boxes) / sizeof(*boxes); i++) {
		bytes = box_elems(t, boxes[i] + 3) * 4;
		cut(t, whole, boxes[i], boxes[i] + 3, 4, want);
		assert_int_equal(unshard_tensor_read(list, at, boxes[i], boxes[i] + 3, t->dtype, got, bytes, NULL), 0);
		assert_memory_equal(got, want, bytes);
		check_widened_box(list, at, boxes[i], boxes[i] + 3, (float *)want);
	}
	check_boxes(list, at, whole, 100);
	assert_int_equal(unshard_tensors_find(list, "none", NULL, &at, NULL), 0);
	assert_int_equal(unshard_tensor_read(list, at, NULL, NULL, UNSHARD_F32, NULL, 0, NULL), 0);
	assert_int_equal(unshard_tensors_find(list, "one", NULL, &at, NULL), 0);
	assert_int_equal(unshard_tensors_at(list, at)->n_dims, 0);
	assert_int_equal(unshard_tensor_read(list, at, NULL, NULL, UNSHARD_F32, &one, 4, NULL), 0);
	assert_true(one == (float)(PLANES * ROWS * COLUMNS) * 1.0009765625f);
	one = 0;
	assert_int_equal(unshard_tensor_read(list, at, boxes[0], boxes[0], UNSHARD_F32, &one, 4, NULL),
			 0); /* no numbers are looked at */
	assert_true(one != 0);
	free(whole);
	free(want);
	free(got);
	unshard_tensors_close(list);
	unshard_close(u);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	assert_int_equal(system(command), 0);
}

/* -- refusals -- */

static const struct {
	uint64_t lo[2], len[2];
	int64_t more_bytes; /* than the box takes */
	int dtype, code;
} refused[] = {
	{ { 0, 0 }, { 20, 31 }, 0, UNSHARD_AS_STORED, -EINVAL },
	{ { 1, 0 }, { 20, 30 }, 0, UNSHARD_AS_STORED, -EINVAL },
	{ { 21, 0 }, { 0, 0 }, 0, UNSHARD_AS_STORED, -EINVAL },
	{ { UINT64_MAX, 0 }, { 2, 1 }, 0, UNSHARD_AS_STORED, -EINVAL },
	{ { 1, 0 }, { UINT64_MAX, 1 }, 0, UNSHARD_AS_STORED, -EINVAL },
	{ { 0, 0 }, { 20, 30 }, 1, UNSHARD_AS_STORED, -EINVAL },
	{ { 0, 0 }, { 20, 30 }, -1, UNSHARD_AS_STORED, -EINVAL },
	{ { 0, 0 }, { 0, 30 }, 1, UNSHARD_AS_STORED, -EINVAL },
	{ { 0, 0 }, { 2, 3 }, 0, UNSHARD_I32, -ENOTSUP },
	{ { 0, 0 }, { 2, 3 }, 0, UNSHARD_C128 + 1, -EINVAL },
	{ { 0, 0 }, { 2, 3 }, 0, -2, -EINVAL },
	{ { 20, 30 }, { 0, 0 }, 0, UNSHARD_AS_STORED, 0 },
	{ { 19, 29 }, { 1, 1 }, 0, UNSHARD_AS_STORED, 0 },
};

static void refusals(void **state)
{
	struct fixture *f = *state;
	const char *name = "model.layers.0.mlp.down_proj.weight"; /* BF16 [20, 30] */
	struct unshard_error err;
	unshard_tensors *list;
	uint8_t buf[20 * 31 * 16];
	size_t i, at, bytes;
	int code;

	assert_int_equal(unshard_tensors_open(f->u, "run/checkpoint-2", "weights", &list, NULL), 0);
	assert_int_equal(unshard_tensors_find(list, name, NULL, &at, NULL), 0);
	for (i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		err = (struct unshard_error){ 0 };
		bytes = (size_t)((int64_t)(refused[i].len[0] * refused[i].len[1] *
					   (refused[i].dtype == UNSHARD_I32 ? 4 : 2)) +
				 refused[i].more_bytes);
		code = unshard_tensor_read(list, at, refused[i].lo, refused[i].len,
					   (enum unshard_dtype)refused[i].dtype, buf, bytes, &err);
		if (code != refused[i].code || (code < 0 && (err.code != code || !strstr(err.text, name))))
			fail_msg("%zu: %d, %s", i, code, err.text);
	}
	assert_int_equal(unshard_tensor_read(list, at, refused[0].lo, NULL, UNSHARD_AS_STORED, buf, 1200, NULL),
			 -EINVAL);
	assert_int_equal(
		unshard_tensor_read(list, unshard_tensors_count(list), NULL, NULL, UNSHARD_AS_STORED, buf, 0, NULL),
		-EINVAL);
	assert_null(unshard_tensors_at(list, unshard_tensors_count(list)));
	assert_int_equal(unshard_tensors_find(list, "no.such", NULL, &i, NULL), -ENOENT);
	assert_int_equal(unshard_tensors_find(list, name, "exp_avg", &i, NULL), -ENOENT);
	unshard_tensors_close(list);
	unshard_tensors_close(NULL);
	assert_int_equal(unshard_tensors_open(f->u, "run", NULL, &list, NULL), -ENOENT);
	assert_int_equal(unshard_tensors_open(f->u, "run/checkpoint-2", "no", &list, NULL), -ENOENT);
	assert_int_equal(unshard_tensors_open(f->u, "run/checkpoint-2", "dcp", &list, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "the view dcp"));
}

/* A shard that is not there, and one that changes while its list is open. */
static void what_is_missing_or_changes(void **state)
{
	char dir[] = "/tmp/uns_tensors_XXXXXX", command[512];
	struct unshard_error err = { 0 };
	const struct unshard_tensor *t;
	unshard_tensors *list;
	size_t i, n_failed = 0;
	uint8_t *buf;
	unshard *u;
	int code;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(command, sizeof(command),
		 "cp -r %s/run/checkpoint-2 %s/ckpt && cd %s/ckpt && "
		 "cp -r . ../other",
		 UNSHARD_GOLDEN, dir, dir);
	assert_int_equal(system(command), 0);
	snprintf(command, sizeof(command), "rm %s/ckpt/pytorch_model_fsdp_0/__1_0.distcp", dir);
	assert_int_equal(system(command), 0);
	u = open_session(dir);
	assert_int_equal(unshard_tensors_open(u, "ckpt", "weights", &list, &err), -ENODATA);
	assert_int_equal(unshard_tensors_open(u, "ckpt", NULL, &list, &err), 0);
	for (i = 0; (t = unshard_tensors_at(list, i)) != NULL; i++) {
		buf = malloc(t->size_bytes + 1);
		code = unshard_tensor_read(list, i, NULL, NULL, t->dtype, buf, t->size_bytes, &err);
		assert_true(code == 0 || code == -ENODATA);
		n_failed += code < 0;
		free(buf);
	}
	assert_true(n_failed);
	unshard_tensors_close(list);

	assert_int_equal(unshard_tensors_open(u, "other", "weights", &list, &err), 0);
	snprintf(command, sizeof(command),
		 "cd %s/other/pytorch_model_fsdp_0 && for i in *.distcp; do "
		 "truncate -s -1 $i; done",
		 dir);
	assert_int_equal(system(command), 0);
	t = unshard_tensors_at(list, 0);
	buf = malloc(t->size_bytes);
	assert_int_equal(unshard_tensor_read(list, 0, NULL, NULL, t->dtype, buf, t->size_bytes, &err), -ESTALE);
	free(buf);
	unshard_tensors_close(list);
	unshard_close(u);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	assert_int_equal(system(command), 0);
}

/* -- threads -- */

struct reader {
	const unshard_tensors *list;
	uint8_t **right;
	unsigned seed;
	bool same;
};

static void *read_all(void *arg)
{
	struct reader *r = arg;
	size_t n = unshard_tensors_count(r->list), k, i;
	const struct unshard_tensor *t;
	uint8_t *buf;

	r->same = true;
	for (k = 0; k < 4 * n; k++) {
		i = draw(&r->seed, n);
		t = unshard_tensors_at(r->list, i);
		buf = malloc(t->size_bytes);
		r->same &= unshard_tensor_read(r->list, i, NULL, NULL, t->dtype, buf, t->size_bytes, NULL) == 0 &&
			   memcmp(buf, r->right[i], t->size_bytes) == 0;
		free(buf);
	}
	return NULL;
}

static void by_many_threads(void **state)
{
	unshard *u = open_session(UNSHARD_GOLDEN "/run"); /* nothing is known to it yet */
	struct fixture *f = *state;
	unshard_tensors *list, *other;
	const struct unshard_tensor *t;
	uint8_t *right[64] = { NULL };
	struct reader reader[4];
	pthread_t thread[4];
	size_t i;

	assert_int_equal(unshard_tensors_open(f->u, "run/checkpoint-2", "weights", &other, NULL), 0);
	assert_int_equal(unshard_tensors_open(u, "checkpoint-2", "weights", &list, NULL), 0);
	assert_in_range(unshard_tensors_count(other), 4, 64);
	for (i = 0; (t = unshard_tensors_at(other, i)) != NULL; i++) {
		right[i] = malloc(t->size_bytes);
		assert_int_equal(unshard_tensor_read(other, i, NULL, NULL, t->dtype, right[i], t->size_bytes, NULL), 0);
	}
	for (i = 0; i < 4; i++) {
		reader[i] = (struct reader){ list, right, (unsigned)i, false };
		assert_int_equal(pthread_create(&thread[i], NULL, read_all, &reader[i]), 0);
	}
	for (i = 0; i < 4; i++) {
		pthread_join(thread[i], NULL);
		assert_true(reader[i].same);
	}
	for (i = 0; i < 64; i++)
		free(right[i]);
	unshard_tensors_close(other);
	unshard_tensors_close(list);
	unshard_close(u);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_the_views_files),
		cmocka_unit_test(as_the_training_had_them),
		cmocka_unit_test(as_deepspeeds_own_tool),
		cmocka_unit_test(casts_as_views_do),
		cmocka_unit_test(large_boxes),
		cmocka_unit_test(refusals),
		cmocka_unit_test(what_is_missing_or_changes),
		cmocka_unit_test(by_many_threads),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
