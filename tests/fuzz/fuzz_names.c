/* zero/names.c and ranks/names.c: any text as a file's name. What is recognised is made again the same, but for
 * leading zeros. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "ranks/names.h"
#include "zero/names.h"

static void zero(const char *name, struct uns_arena *arena)
{
	struct uns_zero_name parsed, again;
	const char *made;

	if (!uns_zero_name_parse(name, &parsed))
		return;
	made = uns_zero_name_of_rank(arena, name, 7);
	if ((made != NULL) != (parsed.dp >= 0))
		abort();
	if (made && (!uns_zero_name_parse(made, &again) || again.kind != parsed.kind || again.dp != 7 ||
		     again.mp != parsed.mp || again.layer != parsed.layer))
		abort();
}

static void ranks(const char *name, struct uns_arena *arena)
{
	struct uns_rank_name parsed, again;
	const char *stem;

	if (!uns_rank_name_parse(name, &parsed))
		return;
	stem = uns_rank_name_stem(arena, parsed.kind, (uint64_t)parsed.world, (uint64_t)parsed.rank);
	if (!uns_rank_name_parse(uns_arena_printf(arena, "%s.pt", stem), &again) || again.kind != parsed.kind ||
	    again.world != parsed.world || again.rank != parsed.rank)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	const char *name = uns_arena_strn(&arena, (const char *)data, size);

	zero(name, &arena);
	ranks(name, &arena);
	uns_arena_fini(&arena);
	return 0;
}
