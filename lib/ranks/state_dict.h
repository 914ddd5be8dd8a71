/* One torch.save file with a whole model's state dict in it, among other things. */
#ifndef UNS_RANKS_STATE_DICT_H
#define UNS_RANKS_STATE_DICT_H

#include "model/catalog.h"

struct uns_state_dict_file {
	struct uns_arena arena;
	const char *const *keys; /* those that lead to the state dict, ends with NULL; NULL = there is none */
	const char *framework;
	const struct uns_value *root; /* all that the file holds; NULL where it is legacy */
	bool legacy;                  /* a file of torch before 1.6: no zip archive, not read */
};

/* What a file of SOURCE holds. Fails only in passing: what cannot be read has no state dict. */
int uns_state_dict_look(const struct uns_root *root, const char *path, struct uns_state_dict_file *out,
			struct uns_err *err);
void uns_state_dict_fini(struct uns_state_dict_file *file);

/* A format's probe_file: whether there is one, or a file of torch before 1.6 that may hold one. */
int uns_state_dict_probe(const struct uns_root *root, const char *path, struct uns_err *err);

/* Its weights and facts, for the catalog's path; not sealed. */
int uns_state_dict_add(struct uns_catalog *cat, const struct uns_root *root, const struct uns_state_dict_file *file,
		       struct uns_err *err);

#endif
