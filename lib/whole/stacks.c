/* Splits names at their numbers, and counts which layer has which tensor. */
#include "whole/stacks.h"

#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "names/template.h"

enum { SPARSE = 32 }; /* places of a stack's table for each of its tensors: real models need fewer than 8 */

struct split {
	const char *stack, *leaf;
	uint32_t layer, expert;
	bool has_expert;
};

/* The number that this component is, if it is one below `end`. */
static bool component_is_number(const char *at, uint32_t end, uint32_t *out, const char **behind)
{
	uint64_t n = 0;
	const char *c = at;

	for (; *c >= '0' && *c <= '9' && n < end; c++)
		n = n * 10 + (uint64_t)(*c - '0');
	if (c == at || *c != '.' || n >= end || (*at == '0' && c > at + 1))
		return false;
	*out = (uint32_t)n;
	*behind = c + 1;
	return true;
}

static bool is_of_experts(const char *name, const char *dot)
{
	static const char key[] = "experts";
	const size_t n = sizeof(key) - 1;

	return (size_t)(dot - name) >= n && memcmp(dot - n, key, n) == 0;
}

/* Returns 1 if the name has the number of a layer, 0 if not. */
static int name_split(const char *name, struct uns_arena *arena, struct split *out, struct uns_err *err)
{
	const char *dot, *behind, *rest = NULL;

	*out = (struct split){ 0 };
	for (dot = strchr(name, '.'); dot && !rest; dot = strchr(dot + 1, '.'))
		if (component_is_number(dot + 1, UNS_MAX_LAYERS, &out->layer, &behind)) {
			UNS_TRY_ALLOC(out->stack = uns_arena_strn(arena, name, (size_t)(dot - name)), err);
			rest = behind;
		}
	if (!rest)
		return 0;
	out->leaf = rest;
	for (dot = strchr(rest, '.'); dot && !out->has_expert; dot = strchr(dot + 1, '.')) {
		if (!is_of_experts(rest, dot) || !component_is_number(dot + 1, UNS_MAX_EXPERTS, &out->expert, &behind))
			continue;
		out->has_expert = true;
		UNS_TRY_ALLOC(out->leaf = uns_arena_printf(arena, "%.*s.#.%s", (int)(dot - rest), rest, behind), err);
	}
	return 1;
}

static int stack_of(struct uns_stacks *s, const char *name, struct uns_arena *arena, struct uns_stack **out,
		    struct uns_err *err)
{
	uint32_t i = uns_map_index(&s->in_stack, name);

	if (i == UNS_MAP_NO_INDEX) {
		i = (uint32_t)s->n;
		if (!UNS_ARENA_ROOM(arena, s->v, s->n, s->cap) || !uns_map_put_index(&s->in_stack, name, i))
			return uns_oom(err);
		s->v[s->n++] = (struct uns_stack){ .name = name };
	}
	*out = &s->v[i];
	return 0;
}

static int leaf_of(struct uns_stacks *s, struct uns_stack *stack, const struct split *split, struct uns_arena *arena,
		   uint32_t *out, struct uns_err *err)
{
	const char *key = uns_arena_printf(arena, "%s\n%s", stack->name, split->leaf);

	UNS_TRY_ALLOC(key, err);
	*out = uns_map_index(&s->leaves, key);
	if (*out != UNS_MAP_NO_INDEX)
		return 0;
	*out = (uint32_t)stack->n_leaves;
	if (!UNS_ARENA_ROOM(arena, stack->leaf, stack->n_leaves, stack->cap_leaves) ||
	    !uns_map_put_index(&s->leaves, key, *out))
		return uns_oom(err);
	stack->leaf[stack->n_leaves++] = (struct uns_leaf){ .name = split->leaf, .has_experts = split->has_expert };
	return 0;
}

static int name_place(struct uns_stacks *s, const char *name, struct uns_arena *arena, struct uns_place *out,
		      struct uns_err *err)
{
	struct uns_stack *stack;
	struct split split;
	int code;

	out->stack = UNS_MAP_NO_INDEX;
	UNS_TRY(code = name_split(name, arena, &split, err));
	if (!code)
		return 0;
	UNS_TRY(stack_of(s, split.stack, arena, &stack, err));
	UNS_TRY(leaf_of(s, stack, &split, arena, &out->leaf, err));
	out->stack = (uint32_t)(stack - s->v);
	out->layer = split.layer;
	stack->n_tensors++;
	if (split.layer >= stack->n_layers)
		stack->n_layers = split.layer + 1;
	if (split.has_expert && split.expert >= stack->leaf[out->leaf].n_experts)
		stack->leaf[out->leaf].n_experts = split.expert + 1;
	return 0;
}

static int stack_make_table(struct uns_stack *stack, struct uns_arena *arena, struct uns_err *err)
{
	size_t i;

	if (stack->n_leaves * stack->n_layers > SPARSE * (stack->n_tensors + SPARSE)) {
		stack->n_leaves = stack->n_layers = 0;
		return 0;
	}
	stack->there = UNS_NEW_N(arena, bool, stack->n_layers);
	for (i = 0; i < stack->n_leaves; i++) {
		stack->leaf[i].count = UNS_NEW_N(arena, uint32_t, stack->n_layers);
		stack->leaf[i].first = UNS_NEW_N(arena, uint32_t, stack->n_layers);
	}
	return uns_arena_check(arena, err);
}

static void tensor_count(struct uns_stack *stack, const struct uns_place *p, uint32_t i)
{
	struct uns_leaf *leaf = &stack->leaf[p->leaf];

	if (!leaf->count[p->layer]++)
		leaf->first[p->layer] = i;
	stack->n_there += !stack->there[p->layer];
	stack->there[p->layer] = true;
}

int uns_stacks_find(const struct uns_named_tensor *v, size_t n, struct uns_arena *arena, struct uns_stacks *out,
		    struct uns_err *err)
{
	struct uns_place *const placed = UNS_NEW_N(arena, struct uns_place, n);
	size_t i;

	UNS_TRY_ALLOC(placed, err);
	out->place = placed;
	for (i = 0; i < n; i++)
		UNS_TRY(name_place(out, v[i].name, arena, &placed[i], err));
	for (i = 0; i < out->n; i++)
		UNS_TRY(stack_make_table(&out->v[i], arena, err));
	for (i = 0; i < n; i++) {
		if (placed[i].stack != UNS_MAP_NO_INDEX && !out->v[placed[i].stack].n_leaves)
			placed[i].stack = UNS_MAP_NO_INDEX;
		if (placed[i].stack != UNS_MAP_NO_INDEX)
			tensor_count(&out->v[placed[i].stack], &placed[i], (uint32_t)i);
	}
	return 0;
}

void uns_stacks_fini(struct uns_stacks *stacks)
{
	uns_map_fini(&stacks->in_stack);
	uns_map_fini(&stacks->leaves);
}
