#include "session/open_catalog.h"

int open_catalog(const struct opening *o, struct uns_capture *capture, struct uns_catalog *cat, struct uns_err *err)
{
	struct uns_directory dir = { .root = o->root, .path = o->path, .capture = capture, .adapters = o->adapters };

	cat->capture = capture;
	if (o->is->stat.kind == UNS_KIND_DIR)
		UNS_TRY(uns_capture_list(capture, o->path, &dir.list, err));
	UNS_TRY(o->is->format->open(&dir, o->options, cat, err));
	return uns_arena_check(&cat->arena, err);
}
