/* unshard.h's function about the Hugging Face cache. */
#include "facts/hub.h"

#include <string.h>

#include "base/cleanup.h"
#include "unshard.h"

char *unshard_hub_cache(void)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const char *path = hub_cache_directory(&arena);

	return path ? strdup(path) : NULL;
}
