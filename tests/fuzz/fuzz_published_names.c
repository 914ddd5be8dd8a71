/* names/published_names.c and base_shapes.c: a model type, a text model's type, and tensors, a line each: NAME, or NAME
 * and dimensions that spaces separate; after '=', those of the base model. Names that are made are names, their shapes
 * inside the tensors. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "files.h"
#include "names/base_shapes.h"
#include "names/published_names.h"
#include "files/safetensors_file.h"

enum { MAX_LINES = 64 };

struct lines {
	struct uns_tensor tensor[MAX_LINES];
	struct uns_tensor in_base[MAX_LINES];
	const char *base[MAX_LINES];
	const struct uns_shape *base_shape[MAX_LINES]; /* NULL: no dimension is given */
	size_t n, n_base;
};

static void take_tensor(struct uns_tensor *t, char *line)
{
	uint64_t elems = 1;
	char *dim;

	*t = (struct uns_tensor){ .name = strsep(&line, " "), .dtype = UNS_F32, .alias_of = UNS_NONE };
	while (t->shape.n < UNS_MAX_DIMS && (dim = strsep(&line, " "))) {
		t->shape.dim[t->shape.n++] = strtoull(dim, NULL, 10) % 100;
		elems *= 100;
		if (elems > UINT64_C(1) << 40)
			break;
	}
}

static void take_base(struct lines *lines, char *line)
{
	struct uns_tensor *t = &lines->in_base[lines->n_base];

	take_tensor(t, line);
	lines->base[lines->n_base] = t->name;
	lines->base_shape[lines->n_base++] = t->shape.n ? &t->shape : NULL;
}

/* Whether transposed or not, the same tensors hold as many elements. */
static void compare_shapes(struct lines *lines, const struct uns_config_info *config, const struct uns_base_names *base,
			   struct uns_named_tensor *v, size_t n, struct uns_vtree *out)
{
	const struct uns_catalog cat = { .tensors = lines->tensor, .n_tensors = lines->n, .path = "" };
	uint64_t before[MAX_LINES];
	struct uns_err err = { 0 };
	size_t i;

	for (i = 0; i < n && i < MAX_LINES; i++)
		before[i] = uns_shape_elems(uns_named_shape(&v[i]));
	files_expect(uns_base_shapes_apply(&cat, config, base, v, n, out, &err), &err);
	for (i = 0; i < n && i < MAX_LINES; i++)
		if (uns_shape_elems(uns_named_shape(&v[i])) != before[i])
			abort();
}

static void apply(struct lines *lines, const struct uns_config_info *config)
{
	struct uns_named_tensor *v = calloc(lines->n + 1, sizeof(*v));
	const struct uns_base_names base = { lines->base, lines->n_base, lines->base_shape, "BASE" };
	struct uns_vtree out = { 0 };
	struct uns_err err = { 0 };
	size_t i, n = lines->n;
	int rc;

	for (i = 0; i < n; i++)
		v[i] = (struct uns_named_tensor){ lines->tensor[i].name, &lines->tensor[i], UNS_F32, NULL };
	rc = uns_published_apply(config, &base, &v, &n, &out, &err);
	files_expect(rc, &err);
	for (i = 0; rc == 0 && i < n; i++)
		if (!v[i].name || uns_shape_elems(uns_named_shape(&v[i])) + uns_named_first(&v[i]) >
					  uns_shape_elems(&v[i].tensor->shape))
			abort();
	if (rc == 0)
		compare_shapes(lines, config, &base, v, n, &out);
	free(v);
	uns_vtree_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	char *rest = uns_arena_strn(&arena, (const char *)data, size), *line;
	struct uns_config_info config = { 0 };
	struct lines lines = { 0 };

	config.model_type = strsep(&rest, "\n");
	config.text_type = strsep(&rest, "\n");
	while (lines.n < MAX_LINES && lines.n_base < MAX_LINES && (line = strsep(&rest, "\n")))
		if (*line == '=')
			take_base(&lines, line + 1);
		else
			take_tensor(&lines.tensor[lines.n++], line);
	apply(&lines, &config);
	uns_arena_fini(&arena);
	return 0;
}
