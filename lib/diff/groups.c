#include "diff/groups.h"

#include <ctype.h>
#include <string.h>

static const char EXPERTS[] = "experts";

/* The end of the component that begins at `s`. */
static const char *component_end(const char *s)
{
	return s + strcspn(s, ".");
}

static bool is_number(const char *s)
{
	const char *end = component_end(s), *at = s;

	while (at < end && isdigit((unsigned char)*at))
		at++;
	return at == end && at > s;
}

static const char *next_component(const char *s)
{
	const char *end = component_end(s);

	return *end ? end + 1 : NULL;
}

/* How much of the name is the layer's; 0 = it is in none. */
static size_t layer_len(const char *name)
{
	const char *s = name;

	while (s && !is_number(s))
		s = next_component(s);
	return s ? (size_t)(component_end(s) - name) : 0;
}

/* What follows the component "experts"; NULL = there is none. */
static const char *behind_experts(const char *name)
{
	const char *s = name;

	while (s && ((size_t)(component_end(s) - s) != strlen(EXPERTS) || strncmp(s, EXPERTS, strlen(EXPERTS)) != 0))
		s = next_component(s);
	return s ? next_component(s) : NULL;
}

uint64_t diff_experts_of(const char *name, const uint64_t *shape, uint32_t n_dims)
{
	const char *behind = behind_experts(name);

	return behind && !is_number(behind) && n_dims == 3 ? shape[0] : 0;
}

static int group_add(struct diff_groups *g, struct uns_map *map, enum unshard_group group, const char *name,
		     const struct diff_tally *t, bool different, struct uns_err *err)
{
	struct diff_group *found;

	UNS_TRY_ALLOC(name, err);
	found = uns_map_get(map, name);
	if (!found) {
		UNS_TRY_ALLOC(found = UNS_NEW(&g->arena, struct diff_group), err);
		*found = (struct diff_group){ .group = group, .name = name };
		UNS_TRY_ALLOC(uns_map_put(map, name, found, NULL), err);
	}
	found->n_tensors++;
	found->n_different += different;
	diff_tally_add(&found->tally, t);
	return 0;
}

/* A name that is only looked up stays in the arena too: a few bytes for each tensor. */
int diff_groups_add(struct diff_groups *g, const char *name, const struct diff_tally *t, bool different,
		    struct uns_err *err)
{
	const char *behind = behind_experts(name);
	size_t len = layer_len(name);

	g->all.n_tensors++;
	g->all.n_different += different;
	diff_tally_add(&g->all.tally, t);
	if (len)
		UNS_TRY(group_add(g, &g->layer, UNSHARD_GROUP_LAYER, uns_arena_strn(&g->arena, name, len), t, different,
				  err));
	if (!behind || !is_number(behind))
		return 0;
	len = (size_t)(component_end(behind) - name);
	return group_add(g, &g->expert, UNSHARD_GROUP_EXPERT, uns_arena_strn(&g->arena, name, len), t, different, err);
}

int diff_groups_add_part(struct diff_groups *g, const char *name, uint64_t expert, const struct diff_tally *t,
			 bool different, struct uns_err *err)
{
	const char *whole = uns_arena_printf(&g->arena, "%.*s%llu", (int)(behind_experts(name) - name), name,
					     (unsigned long long)expert);

	return group_add(g, &g->expert, UNSHARD_GROUP_EXPERT, whole, t, different, err);
}

void diff_groups_fini(struct diff_groups *g)
{
	uns_map_fini(&g->layer);
	uns_map_fini(&g->expert);
	uns_arena_fini(&g->arena);
}
