/* ranks/units.c: which modules were wrapped, from sizes alone: one answer, or a refusal. And
 * ranks/unit_map.c: a unit map that was imported is followed to the letter, or refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "ranks/units.h"

enum { MAX_PARAMS = 1 << 16, MAX_UNITS = 128 };

/* A model, and what its optimizer's files would say. */
struct model {
	struct uns_arena arena;
	struct uns_rank_param *v;
	struct uns_rank_params params;
	uint64_t size[MAX_UNITS];
	struct uns_rank_unit_sizes sizes;
};

static void model_fini(struct model *m)
{
	uns_arena_fini(&m->arena);
}

static void model_init(struct model *m)
{
	memset(m, 0, sizeof(*m));
	m->v = UNS_NEW_N(&m->arena, struct uns_rank_param, MAX_PARAMS);
	assert_non_null(m->v);
	m->params.v = m->v;
	m->sizes.elems = m->size;
}

static void add(struct model *m, const char *name, uint64_t elems)
{
	struct uns_rank_param *p = &m->v[m->params.n++];

	p->name = uns_arena_str(&m->arena, name);
	assert_non_null(p->name);
	p->shape = (struct uns_shape){ .n = 1, .dim = { elems } };
}

/* "a=3 b.c=4": names and elements. */
static void add_all(struct model *m, const char *text)
{
	unsigned long long elems;
	char name[64];
	int used;

	for (; sscanf(text, " %63[^=]=%llu%n", name, &elems, &used) == 2; text += used)
		add(m, name, elems);
}

static void set_sizes(struct model *m, size_t ranks, const uint64_t *elems, size_t n)
{
	memcpy(m->size, elems, n * sizeof(*elems));
	m->sizes.n = n;
	m->sizes.n_ranks = ranks;
}

/* "0,3|1,2" */
static void print(const struct model *m, const struct uns_rank_units *units, char *out, size_t size)
{
	size_t i, k, at = 0;

	for (i = 0; i < m->sizes.n; i++)
		for (k = 0; k < units->v[i].n; k++)
			at += (size_t)snprintf(out + at, size - at, "%s%zu",
					       k   ? ","
					       : i ? "|"
						   : "",
					       units->v[i].param[k]);
}

static const struct {
	const char *params;
	size_t ranks, n;
	uint64_t size[4];
	const char *want; /* or the sentence */
	size_t shard_ranks;
} cases[] = {
	{ "embed=13 layers.0.a=4 layers.0.b=3 layers.1.a=4 layers.1.b=3 head=5", 2, 3, { 9, 4, 4 }, "0,5|1,2|3,4", 2 },
	{ "m.embed=13 m.layers.0.a=7 m.layers.1.a=7 m.norm=2 head=5", 3, 3, { 7, 3, 3 }, "0,3,4|1|2", 3 },
	/* HSDP: two ranks hold a unit, two more hold it again */
	{ "embed=13 layers.0.a=7 layers.1.a=7 head=5", 4, 3, { 9, 4, 4 }, "0,3|1|2", 2 },
	/* a unit inside a unit: the outer one first */
	{ "embed=20 block.in=7 block.expert.w=11 head=1", 2, 3, { 11, 4, 6 }, "0,3|1|2", 2 },
	/* nothing of the model's own */
	{ "a.w=8 b.w=6", 2, 2, { 4, 3 }, "0|1", 2 },
	/* a frozen unit has no state, and takes what is left for it */
	{ "embed=20 layers.0.a=9 layers.1.a=7", 2, 3, { 10, UNS_RANK_UNIT_FROZEN, 4 }, "0|1|2", 2 },
	{ "embed=13 layers.0.a=7 layers.1.a=7 layers.2.a=7 head=5",
	  2,
	  3,
	  { 13, 4, 4 },
	  "several ways to wrap the model's modules give units of these sizes",
	  0 },
	/* which of two equal ones is the outer one's */
	{ "embed=9 block.a.w=7 block.b.w=7",
	  1,
	  3,
	  { 9, 7, 7 },
	  "several ways to wrap the model's modules give units of these sizes",
	  0 },
	{ "embed=13 layers.0.a=7 layers.1.a=7 head=5",
	  2,
	  3,
	  { 9, 5, 4 },
	  "no way to wrap the model's modules gives units of these sizes",
	  0 },
	{ "embed=13 layers.0.a=7 layers.1.a=7 head=5",
	  2,
	  2,
	  { 9, 4 },
	  "no way to wrap the model's modules gives units of these sizes",
	  0 },
};

static void test_find(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		UNS_CLEANUP(model_fini) struct model m;
		struct uns_rank_units units = { 0 };
		struct uns_err why = { 0 };
		char text[256] = "";

		model_init(&m);
		add_all(&m, cases[i].params);
		set_sizes(&m, cases[i].ranks, cases[i].size, cases[i].n);
		if (uns_rank_units_find(&m.params, &m.sizes, &m.arena, &units, &why) == 0)
			print(&m, &units, text, sizeof(text));
		if (strcmp(why.code ? why.text : text, cases[i].want) != 0)
			fail_msg("%zu: %s%s", i, text, why.text);
		if (!why.code)
			assert_int_equal(units.shard_ranks, cases[i].shard_ranks);
	}
}

/* A second name of a tied weight is in no unit, but a matrix that only looks like one is. */
static void test_twins(void **state)
{
	static const uint64_t without[] = { 9, 4 }, with[] = { 16, 4 };
	UNS_CLEANUP(model_fini) struct model m;
	struct uns_rank_units units;
	char text[64] = "";

	(void)state;
	model_init(&m);
	add_all(&m, "embed=13 layers.a=7 norm=5 head=13");
	m.v[3].twin = true;
	m.params.n_twins = 1;
	set_sizes(&m, 2, without, 2);
	assert_int_equal(uns_rank_units_find(&m.params, &m.sizes, &m.arena, &units, NULL), 0);
	print(&m, &units, text, sizeof(text));
	assert_string_equal(text, "0,2|1");
	set_sizes(&m, 2, with, 2);
	assert_int_equal(uns_rank_units_find(&m.params, &m.sizes, &m.arena, &units, NULL), 0);
	print(&m, &units, text, sizeof(text));
	assert_string_equal(text, "0,2,3|1");
}

/* As large as models get: layers of many experts, each of which is a module that could be wrapped. */
static void test_large(void **state)
{
	enum { MOST_LAYERS = 96, EXPERTS = 128 };
	UNS_CLEANUP(model_fini) struct model m;
	struct uns_rank_units units;
	struct uns_err why = { 0 };
	uint64_t size[MOST_LAYERS + 1] = { 64 };
	char name[64];
	size_t layers = MOST_LAYERS, i, k;

	(void)state;
#ifdef __SANITIZE_ADDRESS__ /* which finds in a layer what it finds in the next one */
	if (!getenv("UNSHARD_LONG"))
		layers = 12;
#endif
	model_init(&m);
	add(&m, "model.embed.weight", 999);
	for (i = 0; i < layers; i++) {
		for (k = 0; k < EXPERTS; k++) {
			snprintf(name, sizeof(name), "model.layers.%zu.experts.%zu.up.weight", i, k);
			add(&m, name, 40);
			snprintf(name, sizeof(name), "model.layers.%zu.experts.%zu.down.weight", i, k);
			add(&m, name, 40);
		}
		size[i + 1] = EXPERTS * 80 / 16;
	}
	add(&m, "head.weight", 20);
	set_sizes(&m, 16, size, layers + 1);
	if (uns_rank_units_find(&m.params, &m.sizes, &m.arena, &units, &why) < 0)
		fail_msg("%s", why.text);
	assert_int_equal(units.v[0].n, 2);
	for (i = 1; i <= layers; i++)
		assert_int_equal(units.v[i].n, 2 * EXPERTS);
}

#define P(name, n)   "{\"name\": \"" name "\", \"shape\": [" #n "]}"
#define LAYOUT(a, b) "{\"units\": [{\"params\": [" a "]}, {\"params\": [" b "]}]}"

static const struct {
	const char *map, *want;
} maps[] = {
	{ LAYOUT(P("embed", 13) "," P("head", 5), P("l.a", 4) "," P("l.b", 4)), "0,3|1,2" },
	{ LAYOUT(P("head", 5) "," P("embed", 13), P("l.b", 4) "," P("l.a", 4)), "3,0|2,1" },
	{ "[]", "the number of units is 0 in the unit map, but 2 in the optimizer" },
	{ "{\"units\": [{}]}", "the number of units is 1 in the unit map, but 2 in the optimizer" },
	{ "{\"units\": [{}, {}]}", "unit 0 of the unit map has no list \"params\"" },
	{ LAYOUT("3", ""), "unit 0 of the unit map has a parameter without \"name\" and \"shape\"" },
	{ LAYOUT(P("body", 13), ""), "unit 0 of the unit map has body, which is not a parameter "
				     "of the model" },
	{ LAYOUT(P("embed", 12), ""), "embed has shape [12] in the unit map, but [13] in the model" },
	{ LAYOUT(P("embed", 13) "," P("embed", 13), ""), "the unit map has embed twice" },
	{ LAYOUT(P("embed", 13), P("l.a", 4) "," P("l.b", 4)), "no unit of the unit map has the "
							       "model's parameter head" },
	{ LAYOUT(P("embed", 13) "," P("l.a", 4), P("head", 5) "," P("l.b", 4)),
	  "unit 1 of the unit map has 9 elements, but the optimizer's unit has 4 on each of 2 ranks" },
};

static void test_read(void **state)
{
	static const uint64_t size[] = { 9, 4 };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(maps) / sizeof(maps[0]); i++) {
		UNS_CLEANUP(model_fini) struct model m;
		struct uns_rank_units units = { 0 };
		struct uns_err why = { 0 };
		char text[256] = "";

		model_init(&m);
		add_all(&m, "embed=13 l.a=4 l.b=4 head=5");
		set_sizes(&m, 2, size, 2);
		if (uns_rank_units_read(maps[i].map, &m.params, &m.sizes, &m.arena, &units, &why) == 0)
			print(&m, &units, text, sizeof(text));
		if (strcmp(why.code ? why.text : text, maps[i].want) != 0)
			fail_msg("%zu: %s%s", i, text, why.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_find),
		cmocka_unit_test(test_twins),
		cmocka_unit_test(test_large),
		cmocka_unit_test(test_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
