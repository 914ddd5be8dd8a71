/* Models in the local cache of Hugging Face (huggingface_hub 1.0: "models--ORG--NAME/{blobs,refs,snapshots}"). */
#ifndef TOOLS_HUB_H
#define TOOLS_HUB_H

#include <limits.h>
#include <stdbool.h>

/* "ORG/NAME", and no path that begins with '.' or '/'. */
bool hub_is_name(const char *name);
/* Where the cache is: unshard_hub_cache. */
bool hub_cache(char out[PATH_MAX]);
/* The directory of the model's snapshot: the one that refs/main names, else the newest. */
bool hub_snapshot(const char *name, char out[PATH_MAX]);
/* Each model of the cache, as "ORG/NAME". */
void hub_visit(void (*visit)(void *ctx, const char *name), void *ctx);

#endif
