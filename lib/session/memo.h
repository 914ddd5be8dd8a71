/* What was found out once and is kept in the store: a checkpoint's catalog and its tensors' CRCs. All of it
 * can be found out again, so that nothing here fails. Writes: no lock may be held. */
#ifndef UNS_SESSION_MEMO_H
#define UNS_SESSION_MEMO_H

#include "engine/engine.h"
#include "session/places.h"
#include "unshard.h"

struct memo {
	struct store_link *store;
	const struct uns_root *root;
	uint64_t salt, crc_salt;
	uint64_t n_opened, n_remembered; /* atomics: catalogs from metadata files, and from memos */
};

/* source: SOURCE's absolute name without links. */
void memo_init(struct memo *memo, struct store_link *store, const struct uns_root *root,
	       const char *source, const struct unshard_options *o);

/* The catalog as it was when it was last opened; negative when that is not known. */
int memo_load_catalog(struct memo *memo, const struct place *place, struct uns_capture *capture,
		      struct uns_catalog **out);
/* Its files are old enough for their times to show any change from now on: ask before reading them. */
bool memo_allowed(const struct place *place);
void memo_save_catalog(const struct memo *memo, const struct place *place,
		       const struct uns_catalog *cat);

struct memo_crcs {
	uint64_t key;
	bool allowed;
	uint64_t kept; /* atomic: uns_backing_crc_changes when they were last put into the store */
};

void memo_load_crcs(const struct memo *memo, const struct place *place,
		    struct uns_backing *backing, struct memo_crcs *crcs);
/* If there are new ones. */
void memo_save_crcs(const struct memo *memo, const struct uns_backing *backing,
		    struct memo_crcs *crcs);

#endif
