/* Owns the spellings. */
#include "megatron/expert_names.h"

#include <stdlib.h>
#include <string.h>

#include "base/path.h"

static const char EXPERTS[] = ".mlp.experts.", LOCAL[] = "local_experts.";

bool uns_megatron_is_expert(const char *name)
{
	return strstr(name, EXPERTS) != NULL;
}

/* Is there a number of at most nine digits? *rest: what follows it. */
static bool number_at(const char *text, uint64_t *out, const char **rest)
{
	const size_t digits = strspn(text, "0123456789");

	if (!digits || digits > 9)
		return false;
	*out = strtoull(text, NULL, 10);
	*rest = text + digits;
	return true;
}

/* "linear_fc1.weight12_w" -> "experts.12.linear_fc1.weight_w" */
static const char *grouped_name(struct uns_arena *arena, const char *name, size_t before, uint64_t first)
{
	static const char *const parts[] = { "linear_fc1.weight", "linear_fc1.bias", "linear_fc2.weight",
					     "linear_fc2.bias" };
	const char *at = name + before, *rest;
	uint64_t number;
	size_t i;

	for (i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		if (uns_str_starts(at, parts[i]) && number_at(at + strlen(parts[i]), &number, &rest))
			return uns_arena_printf(arena, "%.*sexperts.%llu.%s%s", (int)before, name,
						(unsigned long long)(first + number), parts[i], rest);
	return name;
}

const char *uns_megatron_expert_name(struct uns_arena *arena, const char *name, uint64_t first)
{
	const char *at = strstr(name, EXPERTS), *rest;
	uint64_t number;
	size_t before;

	if (!at)
		return name;
	before = (size_t)(at - name) + strlen(EXPERTS);
	at = name + before;
	if (uns_str_starts(at, LOCAL) && number_at(at + strlen(LOCAL), &number, &rest))
		return uns_arena_printf(arena, "%.*sexperts.%llu%s", (int)before, name,
					(unsigned long long)(first + number), rest);
	return grouped_name(arena, name, before, first);
}
