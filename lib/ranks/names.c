/* Both ways: a name into its numbers, numbers into a name. */
#include "ranks/names.h"

#include <stdio.h>
#include <string.h>

#include "base/path.h"

const char *const uns_rank_kind_text[UNS_RANK_KINDS] = { "model", "optim", "extra_state" };

bool uns_rank_name_parse(const char *name, struct uns_rank_name *out)
{
	const char *mark = strstr(name, "_rank_");
	unsigned long long world, rank;
	char front[64], prefix[32];
	int kind;

	if (!mark || (size_t)(mark - name) >= sizeof(front) || !uns_str_number(mark, "_rank_", ".pt", &rank) ||
	    rank >= UNS_RANK_MAX_WORLD)
		return false;
	snprintf(front, sizeof(front), "%.*s", (int)(mark - name), name);
	for (kind = 0; kind < UNS_RANK_KINDS; kind++) {
		snprintf(prefix, sizeof(prefix), "%s_world_size_", uns_rank_kind_text[kind]);
		if (!uns_str_number(front, prefix, "", &world) || !world || world > UNS_RANK_MAX_WORLD)
			continue;
		*out = (struct uns_rank_name){ (enum uns_rank_kind)kind, (int64_t)world, (int64_t)rank };
		return true;
	}
	return false;
}

char *uns_rank_name_stem(struct uns_arena *arena, enum uns_rank_kind kind, uint64_t world, uint64_t rank)
{
	return uns_arena_printf(arena, "%s_world_size_%llu_rank_%llu", uns_rank_kind_text[kind],
				(unsigned long long)world, (unsigned long long)rank);
}
