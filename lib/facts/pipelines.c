/* Compares the models of a checkpoint with the components of a pipeline by names and shapes. */
#include "facts/pipelines.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "base/text.h"
#include "files/full_files.h"
#include "names/base_names.h"

enum { INDEX_LIMIT_BYTES = 16 << 20 };

struct finding_components {
	const struct pipeline_input *in;
	struct uns_pipeline *out;
	int n_models;
	struct uns_base_names *files; /* of each component; n = 0: it has no safetensors files */
};

/* Are the model's tensors those of the component's files, each of the same shape? */
static int fits(const struct finding_components *f, size_t component, int model, struct uns_err *err)
{
	const struct uns_base_names *base = &f->files[component];
	const struct uns_tensor *t = f->in->cat->tensors, *end = t + f->in->cat->n_tensors;
	UNS_CLEANUP(uns_map_fini) struct uns_map by_name = UNS_MAP_INIT;
	size_t i, n = 0;

	for (i = 0; i < base->n; i++)
		UNS_TRY_ALLOC(uns_map_put_index(&by_name, base->name[i], (uint32_t)i), err);
	for (; t < end; t++) {
		if (!uns_full_is_of_model(f->in->cat, t, (unsigned)model))
			continue;
		i = uns_map_index(&by_name, t->name);
		if (i == UNS_MAP_NO_INDEX || !base->shape[i] || !uns_shape_equal(base->shape[i], &t->shape))
			return 0;
		n++;
	}
	return n && n == base->n;
}

/* The files' names, and what they begin with. The class of a component may be neither diffusers' nor transformers'. */
static int read_files(struct finding_components *f, size_t i, struct uns_err *err)
{
	static const char *const stems[] = { "diffusion_pytorch_model", "model", NULL };
	struct uns_component *component = &f->out->v[i];
	struct base_files where = { .root = f->in->root, .capture = f->in->cat->capture, .all_shapes = true };
	struct uns_err why = { 0 };
	size_t k;
	int code;

	UNS_TRY_ALLOC(where.dir = uns_path_join(f->in->arena, f->in->path, component->name), err);
	for (k = 0; stems[k] && !f->files[i].n; k++) {
		where.stem = stems[k];
		code = base_names_read(&where, f->in->arena, &f->files[i], &why);
		UNS_TRY(uns_fail_if_passing(err, code, &why));
		if (code < 0)
			f->files[i].n = 0; /* damaged: nothing is proven by it */
		if (f->files[i].n)
			UNS_TRY_ALLOC(component->stem = uns_path_join(f->in->arena, component->name, stems[k]), err);
	}
	return 0;
}

static const char *model_name(const struct finding_components *f, int model)
{
	const char *name = model ? uns_arena_printf(f->in->arena, "model %d", model) : "the first model";

	return name ? name : "a model";
}

/* -- by names and shapes -- */

static int find_by_files(struct finding_components *f, struct uns_err *err)
{
	const char *first;
	size_t i;
	int model, is, n_found = 0;

	for (model = 0; model < f->n_models; model++) {
		first = NULL;
		for (i = 0; i < f->out->n; i++) {
			UNS_TRY(is = fits(f, i, model, err));
			if (!is)
				continue;
			if (f->out->v[i].model != UNS_NO_MODEL)
				return uns_fail(err, -ENOTSUP, "%s and %s both have the names and shapes of %s",
						model_name(f, f->out->v[i].model), model_name(f, model),
						f->out->v[i].name);
			if (first)
				return uns_fail(err, -ENOTSUP, "%s has the names and shapes of %s and of %s",
						model_name(f, model), first, f->out->v[i].name);
			first = f->out->v[i].name;
			f->out->v[i].model = model;
			n_found++;
		}
	}
	return n_found ? 0
		       : uns_fail(err, -ENOTSUP,
				  "no component's safetensors files have the names and shapes of the checkpoint");
}

/* -- by the fact -- */

static int take_given(struct finding_components *f, int model, const char *name, struct uns_err *err)
{
	size_t i = 0;
	int is;

	if (strcmp(name, "-") == 0)
		return 0;
	while (i < f->out->n && strcmp(f->out->v[i].name, name) != 0)
		i++;
	if (i == f->out->n || model >= f->n_models || f->out->v[i].model != UNS_NO_MODEL)
		return uns_fail(err, -ENOTSUP, "the fact components=%s does not name one component for each model",
				f->in->given);
	UNS_TRY(is = f->files[i].n ? fits(f, i, model, err) : 1);
	if (!is)
		return uns_fail(err, -ENOTSUP, "the fact components=%s: %s has other names or shapes than %s",
				f->in->given, model_name(f, model), name);
	f->out->v[i].model = model;
	return 0;
}

static int find_by_fact(struct finding_components *f, struct uns_err *err)
{
	const char *at = f->in->given, *comma;
	char *name;
	int model;

	for (model = 0; at; model++) {
		comma = strchr(at, ',');
		name = comma ? uns_arena_strn(f->in->arena, at, (size_t)(comma - at)) : uns_arena_str(f->in->arena, at);
		UNS_TRY_ALLOC(name, err);
		UNS_TRY(take_given(f, model, name, err));
		at = comma ? comma + 1 : NULL;
	}
	return 0;
}

int pipeline_find(const struct pipeline_input *in, struct uns_pipeline *out, struct uns_err *err)
{
	struct finding_components f = { .in = in, .out = out, .n_models = (int)uns_full_last_model(in->cat) + 1 };
	const char *path = uns_path_join(in->arena, in->path, "model_index.json");
	struct uns_span json;
	size_t i;

	UNS_TRY_ALLOC(path, err);
	UNS_TRY(uns_read_seen(in->root, in->cat->capture, path, INDEX_LIMIT_BYTES, in->arena, &json, err));
	UNS_TRY(uns_pipeline_read(json, in->arena, out, err));
	UNS_TRY_ALLOC(f.files = UNS_NEW_N(in->arena, struct uns_base_names, out->n + 1), err);
	for (i = 0; i < out->n; i++)
		UNS_TRY(read_files(&f, i, err));
	return in->given ? find_by_fact(&f, err) : find_by_files(&f, err);
}
