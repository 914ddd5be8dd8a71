/* Finds the model's state dict in a torch.save file. Owns the keys under which scripts and frameworks save a model. */
#include "ranks/state_dict.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "names/ema_names.h"
#include "ranks/files.h"
#include "wire/torchfile.h"

enum { MAX_KEYS = 3 };

/* The keys that lead to the state dict. */
static const struct form {
	const char *key[MAX_KEYS]; /* ends with NULL */
	const char *framework, *mark; /* the framework is this one's where the file also has the key `mark` */
} forms[] = {
	{ { "state_dict" }, "Lightning", "pytorch-lightning_version" },
	{ { "state", "model" }, "Composer", "state" },
	{ { "state_dict" }, NULL, NULL },
	{ { "model" }, NULL, NULL },
	{ { "module" }, NULL, NULL },
	{ { "net" }, NULL, NULL },
	{ { "model_state_dict" }, NULL, NULL },
	{ { NULL }, NULL, NULL },
};

/* -- what is in it -- */

/* Tensors by name, and nothing that would make it something else (param groups, a trainer's settings). */
static bool is_state_dict(const struct uns_value *v, bool with_dots)
{
	size_t i, n = 0, dots = 0;

	if (!v || v->kind != UNS_VALUE_DICT)
		return false;
	for (i = 0; i < v->n; i++) {
		const char *name = uns_value_str(v->pair[i].key);
		bool tensor = v->pair[i].value->kind == UNS_VALUE_OBJECT;

		if (!name || (!tensor && !uns_str_ends(name, "_extra_state")))
			return false;
		n += tensor && uns_torch_readable(v->pair[i].value, NULL) == 0;
		dots += strchr(name, '.') != NULL;
	}
	return n && (dots || !with_dots);
}

static const struct form *form_of(const struct uns_value *root)
{
	const struct form *f = forms, *end = forms + sizeof(forms) / sizeof(forms[0]);
	const struct uns_value *v;
	size_t i;

	for (; f < end; f++) {
		v = root;
		for (i = 0; f->key[i]; i++)
			v = uns_value_get(v, f->key[i]);
		if ((!f->mark || uns_value_get(root, f->mark)) && is_state_dict(v, !f->key[0]))
			return f;
	}
	return NULL;
}

/* torch.save before 1.6, and with _use_new_zipfile_serialization=False: a pickle of this number comes first. */
static int is_legacy(const struct uns_reader *r, bool *out, struct uns_err *err)
{
	static const uint8_t magic[] = { 0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c,
					 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19 };
	uint8_t head[sizeof(magic)];

	*out = false;
	if (r->size < sizeof(head))
		return 0;
	UNS_TRY(uns_reader_pread(r, head, sizeof(head), 0, err));
	*out = memcmp(head, magic, sizeof(magic)) == 0;
	return 0;
}

void uns_state_dict_fini(struct uns_state_dict_file *file)
{
	uns_arena_fini(&file->arena);
}

int uns_state_dict_look(const struct uns_root *root, const char *path, struct uns_state_dict_file *out,
			struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_open_file open_file = { .name = path };
	struct uns_err why = { 0 };
	const struct form *form;
	struct uns_torchfile file;
	struct uns_reader r;
	struct uns_stat now;
	int code = uns_root_open_file(root, path, &fd, &now, &why);

	*out = (struct uns_state_dict_file){ .framework = "PyTorch" };
	if (code < 0)
		return uns_fail_if_passing(err, code, &why);
	open_file.fd = fd;
	r = uns_reader_of_file(&open_file, now.id.size);
	code = is_legacy(&r, &out->legacy, &why);
	if (code == 0 && out->legacy)
		return 0;
	if (code == 0)
		code = uns_torchfile_open(&r, &out->arena, &file, &why);
	if (code < 0)
		return uns_fail_if_passing(err, code, &why);
	out->root = file.root;
	form = form_of(file.root);
	out->keys = form ? form->key : NULL;
	if (form && form->framework)
		out->framework = form->framework;
	return 0;
}

int uns_state_dict_probe(const struct uns_root *root, const char *path, struct uns_err *err)
{
	UNS_CLEANUP(uns_state_dict_fini) struct uns_state_dict_file file = { 0 };

	UNS_TRY(uns_state_dict_look(root, path, &file, err));
	return file.keys || file.legacy;
}

/* -- into a catalog -- */

/* Moving means that were saved beside the model. */
static int add_means(struct uns_catalog *cat, const struct uns_root *root, const struct uns_state_dict_file *file,
		     struct uns_err *err)
{
	const char *const *key = uns_ema_keys;

	for (; *key; key++)
		if (strcmp(*key, file->keys[0]) != 0 && is_state_dict(uns_value_get(file->root, *key), true))
			UNS_TRY(uns_rank_files_add_beside(cat, root, cat->path, *key, err));
	return 0;
}

int uns_state_dict_add(struct uns_catalog *cat, const struct uns_root *root, const struct uns_state_dict_file *file,
		       struct uns_err *err)
{
	static const char *const top[] = { NULL };
	uint32_t unused;
	int64_t step;

	cat->summary.framework = file->framework;
	cat->summary.family = UNS_FAMILY_WHOLE;
	cat->summary.finished = true;
	if (uns_value_int(uns_value_get(file->root, "global_step"), &step) && step >= 0)
		cat->summary.step = step;
	cat->summary.world_size = UNS_UNKNOWN;
	if (!file->legacy) {
		UNS_TRY(uns_rank_files_add_model_below(cat, root, cat->path, file->keys ? file->keys : top, err));
		return file->keys && file->keys[0] ? add_means(cat, root, file, err) : 0;
	}
	UNS_TRY(uns_catalog_add_file(cat, root, cat->path, &unused, err));
	return UNS_ADD_FINDING(cat, err, TORCH_FILE_LEGACY, .scope = UNS_SCOPE_WEIGHTS, .file = cat->path);
}
