/* What was found out about a checkpoint once and is kept in the store: its catalog, its tensors' CRCs and the
 * proof of its optimizer's names, under a key of which files, read by which program with which options. All of it can
 * be found out again, so that nothing here fails. Writes: no lock may be held. */
#ifndef UNS_STORE_CATALOG_MEMO_H
#define UNS_STORE_CATALOG_MEMO_H

#include "model/catalog.h"
#include "store/store_link.h"

struct memo {
	struct store_link *store;
	const struct uns_root *root;
	bool off; /* nothing is kept: the linker gave this program no identity, and another build may read otherwise */
	uint64_t salt, crc_salt;
	uint64_t n_opened, n_remembered; /* atomics: catalogs from metadata files, and from memos */
};

/* Options that make another catalog of the same files. */
struct memo_options {
	const char *const *weight_roots;
	size_t n_weight_roots;
	const char *const *follow;
	size_t n_follow;
	bool assume_units;
	const char *const *adapters;
	size_t n_adapters;
};

/* source: SOURCE's absolute name without links. */
void memo_init(struct memo *memo, struct store_link *store, const struct uns_root *root, const char *source,
	       const struct memo_options *options);

struct memo_subject {
	const char *path, *format;
	uint64_t own_generation; /* of the files in its directory */
	uint64_t facts; /* of facts that its catalog is made of; 0 = of none */
};

/* The checkpoint's files are old enough for their times to show any change from now on. Ask before
 * reading them: only then may anything be saved. */
bool memo_lasts(int64_t newest_ns);

/* The catalog as it was when it was last opened; negative when that is not known. What it was made of outside its
 * directory is kept with it, and looked at again: if that differs, it is not known. */
int memo_load_catalog(struct memo *memo, const struct memo_subject *of, struct uns_capture *capture,
		      struct uns_catalog **out);
void memo_save_catalog(const struct memo *memo, const struct memo_subject *of, const struct uns_catalog *cat);

/* CRCs hang on the catalog's files alone, whichever directory above them is SOURCE. The bytes are the engine's
 * (uns_backing_crc_export). */
uint64_t memo_crc_key(const struct memo *memo, const struct memo_subject *of, const struct uns_catalog *cat);
int memo_load_crcs(const struct memo *memo, uint64_t key, struct uns_arena *arena, struct uns_span *out);
void memo_save_crcs(const struct memo *memo, uint64_t key, const struct uns_text *bytes);

/* That an optimizer's names were proven, under the same key (facts/masters_proof.h has the bytes). */
int memo_load_masters(const struct memo *memo, uint64_t key, struct uns_arena *arena, struct uns_span *out);
void memo_save_masters(const struct memo *memo, uint64_t key, const struct uns_text *bytes);

#endif
