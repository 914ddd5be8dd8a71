/* Models in the local cache of Hugging Face (huggingface_hub 1.0: "models--ORG--NAME/{blobs,refs,snapshots}"). */
#ifndef UNS_FACTS_HUB_H
#define UNS_FACTS_HUB_H

#include "io/seen.h"

/* The cache's directory, by the environment; NULL = out of memory. */
const char *hub_cache_directory(struct uns_arena *arena);

/* "ORG/NAME", or "NAME" as the oldest models have it. */
bool hub_is_model_name(const char *name);

/* The model's directory of the cache, as one below which links may lead anywhere, and a snapshot in it: that of the
 * branch, tag or commit `revision`; NULL = main. Close *root whatever this returned. -ENOENT with a sentence: the cache
 * has no such model or revision. */
int hub_snapshot_find(const char *name, const char *revision, struct uns_capture *capture, struct uns_arena *arena,
		      struct uns_root **root, const char **path, struct uns_err *err);

/* Opens a directory outside of SOURCE, into *root, as one below which links may lead anywhere: it is looked at again
 * with what is in it. */
int hub_root_open(const char *dir, struct uns_capture *capture, struct uns_root **root, struct uns_err *err);

#endif
