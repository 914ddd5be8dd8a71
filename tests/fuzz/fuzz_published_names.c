/* files/published_names.c: a model type, a text model's type, and tensors, a line each: NAME, or NAME and dimensions
 * that spaces separate, or '=' and a name of the base model. Names that are made are names, their shapes inside the
 * tensors. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "files.h"
#include "files/published_names.h"
#include "files/safetensors_file.h"

enum { MAX_LINES = 64 };

struct lines {
	struct uns_tensor tensor[MAX_LINES];
	const char *base[MAX_LINES];
	size_t n, n_base;
};

static void take_tensor(struct lines *lines, char *line)
{
	struct uns_tensor *t = &lines->tensor[lines->n++];
	uint64_t elems = 1;
	char *dim;

	*t = (struct uns_tensor){ .name = strsep(&line, " "), .dtype = UNS_F32 };
	while (t->shape.n < UNS_MAX_DIMS && (dim = strsep(&line, " "))) {
		t->shape.dim[t->shape.n++] = strtoull(dim, NULL, 10) % 100;
		elems *= 100;
		if (elems > UINT64_C(1) << 40)
			break;
	}
}

static void apply(struct lines *lines, const struct uns_config_info *config)
{
	struct uns_named_tensor *v = calloc(lines->n + 1, sizeof(*v));
	const struct uns_base_names base = { lines->base, lines->n_base, "BASE" };
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
			lines.base[lines.n_base++] = line + 1;
		else
			take_tensor(&lines, line);
	apply(&lines, &config);
	uns_arena_fini(&arena);
	return 0;
}
