/* tools/options.c and api/options.c: any text as what stands behind -o of a mount, a line each; a session is opened
 * with it. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "files.h"
#include "options.h"

static void open_with(const struct options *o)
{
	struct unshard_options library = o->library;
	struct unshard_error err = { 0 };
	unshard *u = NULL;
	int rc;

	library.size = sizeof(library);
	rc = unshard_open(files_dir(), &library, &u, &err);
	if ((rc < 0) != (err.code < 0) || (rc == 0) != (u != NULL))
		abort();
	unshard_close(u);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	char *rest = uns_arena_strn(&arena, (const char *)data, size), *line;
	struct unshard_error err = { 0 };
	struct options o = { 0 };
	int rc = 0;

	while (rc == 0 && (line = strsep(&rest, "\n")))
		rc = options_parse(&o, VERB_MOUNT, line, &err);
	if (rc > 0 || rc != err.code || (rc < 0 && !*err.text))
		abort();
	if (rc == 0)
		open_with(&o);
	options_fini(&o);
	uns_arena_fini(&arena);
	return 0;
}
