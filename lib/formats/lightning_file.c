/* lightning_file: what Lightning saves on one device, or gathered, and other .ckpt files with a state dict.
 *
 *   X.ckpt   {"state_dict": {NAME: tensor}, "optimizer_states", "callbacks", "lr_schedulers", "epoch",
 *             "global_step", "pytorch-lightning_version", "loops", "hyper_parameters"}
 *
 * What save_weights_only keeps of it beside the weights is kept as meta.pt is (model/meta_file.h), so that the views
 * of weights can write such a file. Source: lightning 2.6, checkpoint_connector.py. */
#include "formats/format.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "model/meta_file.h"
#include "ranks/state_dict.h"
#include "wire/pickle_emit.h"
#include "wire/value_new.h"

/* The dict without what a file of weights does not have. NULL = out of memory. */
static struct uns_value *without_training(struct uns_state_dict_file *file)
{
	static const char *const dropped[] = { "optimizer_states", "callbacks", "lr_schedulers", NULL };
	const struct uns_value *root = file->root;
	struct uns_value *kept = uns_value_new_dict(&file->arena, root->n);
	const char *key;
	size_t i;

	for (i = 0; kept && file->keys[0] && i < root->n; i++) {
		key = uns_value_str(root->pair[i].key);
		if (key && !uns_str_in(key, dropped) && strcmp(key, file->keys[0]) != 0)
			uns_value_put(kept, root->pair[i].key, root->pair[i].value);
	}
	return kept;
}

/* Objects that weights_only=True refuses are not written: then there is no such pickle, and no file of weights. */
static int add_meta(struct uns_catalog *cat, struct uns_state_dict_file *file, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	const struct uns_value *kept = without_training(file);
	struct uns_value *pickle = UNS_NEW(&cat->arena, struct uns_value);
	struct uns_named_value named = { .name = "", .root = UNS_META_PICKLE, .value = pickle };
	int code;

	UNS_TRY_ALLOC(kept && pickle, err);
	code = uns_pickle_emit(kept, NULL, 0, NULL, &text, NULL);
	if (code < 0)
		return code == -ENOMEM ? uns_oom(err) : 0;
	pickle->kind = UNS_VALUE_BYTES;
	pickle->n = (uint32_t)text.len - 1; /* without STOP */
	pickle->bytes = uns_arena_strn(&cat->arena, text.p, pickle->n);
	return pickle->bytes ? uns_catalog_add_value(cat, &named, err) : uns_oom(err);
}

static int open_file(const struct uns_directory *dir, const struct uns_format_options *options, struct uns_catalog *cat,
		     struct uns_err *err)
{
	UNS_CLEANUP(uns_state_dict_fini) struct uns_state_dict_file file = { 0 };

	(void)options;
	cat->summary.format = "lightning_file";
	cat->summary.is_one_file = true;
	UNS_TRY(uns_state_dict_look(dir->root, dir->path, &file, err));
	UNS_TRY(uns_state_dict_add(cat, dir->root, &file, err));
	if (file.keys)
		UNS_TRY(add_meta(cat, &file, err));
	return uns_catalog_seal(cat, err);
}

extern const struct uns_format uns_format_lightning_file;
const struct uns_format uns_format_lightning_file = {
	.name = "lightning_file",
	.family = UNS_FAMILY_WHOLE,
	.is_one_file = true,
	.file_endings = (const char *const[]){ ".ckpt", NULL },
	.probe_file = uns_state_dict_probe,
	.open = open_file,
};
