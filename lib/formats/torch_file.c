/* torch_file: one file that torch.save wrote, with a model's state dict in it. Shown by the views of weights; all
 * others leave the file as it is.
 *
 *   X.pt, X.pth, X.bin   {"model" | "state_dict" | "module" | "net" | "model_state_dict": {NAME: tensor}, ...}
 *                        {"state": {"model": {NAME: tensor}}}               Composer
 *                        {NAME: tensor}, where a NAME has a dot
 *   A file of torch before 1.6 (no zip archive) is named and refused. */
#include "formats/format.h"

#include "base/cleanup.h"
#include "files/other_lora.h"
#include "model/wrappers.h"
#include "ranks/state_dict.h"

static int open_file(const struct uns_directory *dir, const struct uns_format_options *options, struct uns_catalog *cat,
		     struct uns_err *err)
{
	UNS_CLEANUP(uns_state_dict_fini) struct uns_state_dict_file file = { 0 };

	(void)options;
	cat->summary.format = "torch_file";
	UNS_TRY(uns_state_dict_look(dir->root, dir->path, &file, err));
	UNS_TRY(uns_state_dict_add(cat, dir->root, &file, err));
	UNS_TRY(uns_wrappers_clean(cat, err));
	uns_other_lora_find(cat);
	return uns_catalog_seal(cat, err);
}

extern const struct uns_format uns_format_torch_file;
const struct uns_format uns_format_torch_file = {
	.name = "torch_file",
	.family = UNS_FAMILY_WHOLE,
	.file_endings = (const char *const[]){ ".pt", ".pth", ".bin", NULL },
	.probe_file = uns_state_dict_probe,
	.open = open_file,
};
