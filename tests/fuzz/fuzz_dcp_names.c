/* dcp/names.c: any keys, a line each, as what a DCP directory has; '/' ends an element of a key's path, what begins
 * with '#' is a number. A line that begins with '=' has no recorded path. Every way to name the roots. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "dcp/names.h"
#include "files.h"

enum { MAX_KEYS = 64, MAX_STEPS = 16 };

static void take_entry(char *line, struct uns_arena *arena, struct uns_dcp_entry *e)
{
	struct uns_dcp_step *step = UNS_NEW_N(arena, struct uns_dcp_step, MAX_STEPS);
	char *rest = line, *one;

	*e = (struct uns_dcp_entry){ .path = step, .kind = *line == '!' ? UNS_DCP_BYTES : UNS_DCP_TENSOR };
	e->key = uns_arena_str(arena, line);
	while ((one = strsep(&rest, "/")) && e->n_path < MAX_STEPS)
		step[e->n_path++] = *one == '#' ? (struct uns_dcp_step){ NULL, strtol(one + 1, NULL, 10) }
						: (struct uns_dcp_step){ one, 0 };
}

static void read_all(const struct uns_dcp_metadata *meta, const struct uns_dcp_roots *roots)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_dcp_naming naming;
	struct uns_dcp_meaning meaning;
	struct uns_err err = { 0 };
	size_t i;
	int rc = uns_dcp_naming_init(&naming, meta, roots, &arena, &err);

	files_expect(rc, &err);
	for (i = 0; rc == 0 && i < meta->n_entries; i++) {
		if (uns_dcp_meaning_of(&naming, &meta->entry[i], meta->entry[i].key, &meaning, &err) < 0)
			abort();
		if (!meaning.root || (meaning.what == UNS_DCP_IS_WEIGHT && !meaning.name) ||
		    (meaning.what == UNS_DCP_IS_STATE && (!meaning.name || !meaning.state)))
			abort();
	}
	uns_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const weights[] = { "model", "app.model" };
	static const struct uns_dcp_roots roots[] = {
		{ 0 },
		{ .weights = weights, .n_weights = 2 },
		{ .weights = weights, .n_weights = 0 },
		{ .weights = weights, .n_weights = 1, .as_root = "model_1" },
		{ .keys_are_objects = true },
	};
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_dcp_metadata meta = { 0 };
	char *rest = uns_arena_strn(&arena, (const char *)data, size), *line;
	size_t i;

	meta.entry = UNS_NEW_N(&arena, struct uns_dcp_entry, MAX_KEYS);
	meta.has_paths = *rest != '=';
	while ((line = strsep(&rest, "\n")) && meta.n_entries < MAX_KEYS)
		take_entry(line, &arena, &meta.entry[meta.n_entries++]);
	for (i = 0; i < sizeof(roots) / sizeof(*roots); i++)
		read_all(&meta, &roots[i]);
	uns_arena_fini(&arena);
	return 0;
}
