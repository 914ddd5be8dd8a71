/* sentence-transformers: a model is a row of modules, which modules.json lists. A trainer has their tensors under
 * "NAME." in one state; save_pretrained writes each module into a directory of its own, without that. Pure. */
#ifndef UNS_NAMES_SENTENCE_MODULES_H
#define UNS_NAMES_SENTENCE_MODULES_H

#include "base/span.h"
#include "model/catalog.h"

struct uns_sentence_module {
	const char *prefix; /* in front of its tensors' names: "0.model.", "2." */
	const char *path;   /* its directory below that of modules.json; "" = the same one */
	bool is_pretrained; /* transformers loads it, with an index if there are several files */
	bool has_tensors;
};

struct uns_sentence_modules {
	struct uns_sentence_module *v; /* n, in the file's order */
	size_t n; /* 0 = the model is none of sentence-transformers, or has no modules.json */
	bool is_state; /* each weight of the catalog belongs to one of them, as a trainer has them */
};

/* Reads modules.json, and finds which tensors of the catalog belong to which module. -EBADMSG: the file is not what
 * sentence-transformers writes. -ENOTSUP: it has modules within modules. Everything is in the arena. */
int uns_sentence_modules_read(struct uns_span json, const struct uns_catalog *cat, struct uns_arena *arena,
			      struct uns_sentence_modules *out, struct uns_err *err);

/* Does the tensor belong to this module? */
bool uns_sentence_module_has(const struct uns_sentence_module *module, const struct uns_tensor *t);

/* Of a trainer's state, the module in the directory itself; NULL = there is none. */
const struct uns_sentence_module *uns_sentence_root(const struct uns_sentence_modules *modules);

/* The first weight's name that begins as those of sentence-transformers' models ("0.model."); NULL = there is none. */
const char *uns_sentence_name(const struct uns_catalog *cat);

#endif
