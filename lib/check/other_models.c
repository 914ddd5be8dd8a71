/* Files of a second model in a checkpoint's directory. Loaders have an order of their own in which they look, so what
 * is shown is named. A Trainer writes a model's files beside pytorch_model_fsdp.bin (FULL_STATE_DICT), and beside the
 * directory of DeepSpeed's shards. */
#include "check/checking.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"

/* The names that from_pretrained looks for (transformers 5.23, modeling_utils.py); parts NULL = one file. */
static const struct set {
	const char *file, *parts;
} sets[] = {
	{ "model.safetensors", NULL },
	{ "model.safetensors.index.json", "model-*-of-*.safetensors" },
	{ "pytorch_model.bin", NULL },
	{ "pytorch_model.bin.index.json", "pytorch_model-*-of-*.bin" },
};

enum { N_SETS = sizeof(sets) / sizeof(*sets) };

static bool is_of_set(const struct set *set, const char *path)
{
	const char *name = uns_path_name(path);

	return set->parts ? uns_str_glob(set->parts, name) : strcmp(set->file, name) == 0;
}

/* The first file that holds a weight, and which of the sets do. */
static const char *find_shown(const struct uns_catalog *cat, bool *shown)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	const char *first = NULL, *path;
	uint32_t k;
	size_t i;

	for (; t < end; t++)
		for (k = 0; t->role == UNS_ROLE_WEIGHT && k < t->n_pieces; k++) {
			path = cat->files[uns_tensor_pieces(cat, t)[k].file].path;
			first = first ? first : path;
			for (i = 0; i < N_SETS; i++)
				shown[i] = shown[i] || is_of_set(&sets[i], path);
		}
	return first;
}

int check_other_models(struct checking *c, const struct uns_catalog *cat, const struct uns_listing *list)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	bool shown[N_SETS] = { false };
	const char *first = find_shown(cat, shown), *path;
	size_t i;
	int code = 0;

	if (!first || uns_family_is_deepspeed(cat->summary.family) ||
	    strcmp(uns_path_name(first), "pytorch_model_fsdp.bin") == 0)
		return 0;
	for (i = 0; i < N_SETS && code == 0; i++) {
		if (shown[i] || !uns_listing_has_file(list, sets[i].file) ||
		    (sets[i].parts && !uns_listing_has_glob(list, sets[i].parts)))
			continue;
		path = uns_path_join(&arena, c->path, sets[i].file);
		code = path ? CHECKING_FOUND(c, MODEL_BESIDE, .file = path, .arg = { { "other_file", uns_str(first) } })
			    : -ENOMEM;
	}
	return code;
}
