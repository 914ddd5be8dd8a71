/* Takes gathered weights if the headers of the safetensors files have all that param_shapes lists. */
#include "zero/read/gathered.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "files/safetensors_set.h"
#include "wire/safetensors.h"

struct gathered {
	struct uns_catalog *cat;
	const struct uns_root *root;
	struct uns_arena scratch;
	struct uns_map tensors; /* name -> struct uns_st_entry */
	const char **path;
	size_t n;
};

static void gathered_fini(struct gathered *g)
{
	uns_map_fini(&g->tensors);
	uns_arena_fini(&g->scratch);
}

static int find_files(struct gathered *g, const char *dir, const struct uns_listing *list, struct uns_err *err)
{
	static const char whole[] = "model.safetensors", parts[] = "model-*-of-*.safetensors";
	const char *glob = uns_listing_find(list, whole) ? whole : parts;
	size_t i;

	UNS_TRY_ALLOC(g->path = UNS_NEW_N(&g->cat->arena, const char *, list->n), err);
	for (i = 0; i < list->n; i++) {
		if (list->v[i].kind == UNS_KIND_DIR || !uns_str_glob(glob, list->v[i].name))
			continue;
		g->path[g->n] = uns_path_join(&g->cat->arena, dir, list->v[i].name);
		UNS_TRY_ALLOC(g->path[g->n++], err);
	}
	return 0;
}

static int read_header(struct gathered *g, const char *path, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_open_file file = { .name = path };
	struct uns_reader reader;
	struct uns_st_header header;
	struct uns_stat st;
	size_t i;

	UNS_TRY(uns_root_open_file(g->root, path, &fd, &st, err));
	file.fd = fd;
	reader = uns_reader_of_file(&file, st.id.size);
	UNS_TRY(uns_st_open(&reader, &g->scratch, &header, err));
	for (i = 0; i < header.n; i++)
		UNS_TRY_ALLOC(uns_map_put(&g->tensors, header.v[i].name, &header.v[i], NULL), err);
	return 0;
}

/* The first parameter that the files lack, or have in another shape; NULL = none. */
static const char *lacking_of(const struct gathered *g, const struct uns_zero_shapes *shapes)
{
	const struct uns_st_entry *e;
	size_t i;

	for (i = 0; i < shapes->n; i++) {
		const struct uns_shape *want = &shapes->v[i].shape;

		e = uns_map_get(&g->tensors, shapes->v[i].name);
		if (!e || e->n_dims != want->n || memcmp(e->dims, want->dim, e->n_dims * sizeof(*e->dims)) != 0)
			return shapes->v[i].name;
	}
	return NULL;
}

static int add_gathered(struct gathered *g, const struct uns_zero_model *model, struct uns_zero_names *names,
			struct uns_err *err)
{
	const struct uns_value *buffers = uns_value_get(model->root, "buffer_names");
	struct uns_catalog *cat = g->cat;
	size_t i = cat->n_tensors, k;

	UNS_TRY(uns_safetensors_set_add(cat, g->root, g->path, g->n, err));
	for (; i < cat->n_tensors; i++) {
		for (k = 0; uns_value_at(buffers, k); k++) {
			const char *buffer = uns_value_str(buffers->item[k]);

			if (buffer && strcmp(buffer, cat->tensors[i].name) == 0)
				cat->tensors[i].role = UNS_ROLE_BUFFER;
		}
		UNS_TRY(uns_zero_name_put(&names->weights, cat->tensors[i].name, (uint32_t)i, err));
	}
	return 0;
}

int uns_zero_gathered_add(struct uns_catalog *cat, const struct uns_root *root, const char *path,
			  const struct uns_listing *list, const struct uns_zero_model *model,
			  struct uns_zero_names *names, struct uns_err *err)
{
	UNS_CLEANUP(gathered_fini) struct gathered g = { .cat = cat, .root = root };
	struct uns_err why = { 0 };
	const char *lacks;
	int code = 0;
	size_t i;

	UNS_TRY(find_files(&g, path, list, err));
	for (i = 0; i < g.n && code == 0; i++)
		code = read_header(&g, g.path[i], &why);
	if (code < 0 && !uns_code_is_finding(code))
		return uns_fail_copy(err, &why);
	if (!g.n)
		return 0;
	if (code < 0)
		return UNS_ADD_FINDING(cat, err, ZERO_GATHERED_UNREADABLE, .file = g.path[i - 1],
				       .arg = { { "cause", uns_str(why.text) } });
	lacks = lacking_of(&g, &model->frozen);
	for (i = 0; !lacks && i < model->n_shapes; i++)
		lacks = lacking_of(&g, &model->shapes[i]);
	if (!lacks)
		return add_gathered(&g, model, names, err);
	return UNS_ADD_FINDING(cat, err, ZERO_GATHERED_INCOMPLETE, .file = g.path[0], .tensor = lacks);
}
