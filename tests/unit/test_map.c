/* The hash table: against a plain list, in its order, and under names made to collide. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/keyed_hash.h"
#include "base/map.h"

/* hash(bytes) of CPython 3.11 under PYTHONHASHSEED=0, which is the key 0. */
static const struct {
	const char *text;
	uint64_t hash;
} vectors[] = {
	{ "a", UINT64_C(0x407448d2b89b1813) },
	{ "abcdefg", UINT64_C(0x6db12aae9070f506) },
	{ "abcdefgh", UINT64_C(0x3f7b849c0b8e35ea) },
	{ "model.layers.0.self_attn.q_proj.weight", UINT64_C(0x8656cde91cac843b) },
};

static void siphash_is_pythons(void **state)
{
	const uint64_t zero[2] = { 0 };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(vectors) / sizeof(*vectors); i++)
		assert_int_equal(uns_siphash_1_3(zero, vectors[i].text, strlen(vectors[i].text)), vectors[i].hash);
}

static void the_stable_hash_stays(void **state)
{
	(void)state;
	assert_int_equal(uns_hash_end(uns_hash_str(UNS_HASH_INIT, "checkpoint-2")), UINT64_C(0x73009d472bdb43c7));
}

enum { N_NAMES = 300 };

static void does_what_a_list_does(void **state)
{
	static char name[N_NAMES][8];
	void *want[N_NAMES] = { 0 }, *old;
	struct uns_map map = UNS_MAP_INIT;
	unsigned seed = 1, i, step, n = 0;

	(void)state;
	for (i = 0; i < N_NAMES; i++)
		snprintf(name[i], sizeof(name[i]), "n%u", i);
	for (step = 0; step < 20000; step++) {
		i = (seed = seed * 1103515245 + 12345) >> 16 & 0xffff;
		if (i % 5 < 3) {
			assert_true(uns_map_put(&map, name[i % N_NAMES], &name[step % N_NAMES], &old));
			n += !want[i % N_NAMES];
			assert_ptr_equal(old, want[i % N_NAMES]);
			want[i % N_NAMES] = &name[step % N_NAMES];
		} else {
			assert_ptr_equal(uns_map_del(&map, name[i % N_NAMES]), want[i % N_NAMES]);
			n -= want[i % N_NAMES] != NULL;
			want[i % N_NAMES] = NULL;
		}
		assert_int_equal(map.n, n);
		assert_ptr_equal(uns_map_get(&map, name[step % N_NAMES]), want[step % N_NAMES]);
	}
	for (i = 0; i < N_NAMES; i++)
		assert_ptr_equal(uns_map_get(&map, name[i]), want[i]);
	assert_true(map.cap <= 1024);
	uns_map_fini(&map);
}

static void keeps_the_order_of_insertion(void **state)
{
	static const char *const name[] = { "z", "a", "m", "b", "y", "c" };
	struct uns_map map = UNS_MAP_INIT;
	size_t at = 0, i;
	const char *key;
	void *value;

	(void)state;
	for (i = 0; i < 6; i++)
		assert_true(uns_map_put(&map, name[i], (void *)(i + 1), NULL));
	assert_true(uns_map_put(&map, "a", (void *)20, NULL));
	assert_ptr_equal(uns_map_del(&map, "b"), (void *)4);
	for (i = 0; uns_map_next(&map, &at, &key, &value); i++) {
		assert_string_equal(key, name[i + (i > 2)]);
		assert_ptr_equal(value, i == 1 ? (void *)20 : (void *)(i + 1 + (i > 2)));
	}
	assert_int_equal(i, 5);
	uns_map_fini(&map);
}

/* -- a flood: 2^17 names that all have one and the same FNV-1a hash --
 *
 * A short vector of the lattice of all v with sum of v[i] p^i = 0 (mod 2^64), p being FNV's prime: two
 * blocks of N_VECTOR bytes whose steps from state to state differ by it lead to one state. Of each of
 * N_BLOCKS blocks there are two such spellings, so that a name is a number in binary. */
static const int vector[] = { 3, 3, 2, -2, -2, 1, -3, -2, -6, -1, -2, -2, 0, -8, 1, -3, 6, 1 };
enum { N_VECTOR = sizeof(vector) / sizeof(*vector), N_BLOCKS = 17, N_FLOOD = 100000 };

static bool is_text(int byte)
{
	return byte > ' ' && byte < 0x7f && byte != '"' && byte != '\\';
}

/* Bytes i and following of a block's two spellings, by trying: each byte moves the low byte of its
 * state, and the two amounts must differ by the vector's number. */
static bool spell(int i, uint64_t state_a, uint64_t state_b, char *a, char *b)
{
	const uint8_t low_a = (uint8_t)state_a, low_b = (uint8_t)state_b;
	int to_a, to_b;

	for (to_a = 0; to_a < 256 && i < N_VECTOR; to_a++) {
		to_b = to_a - low_a + low_b + vector[N_VECTOR - 1 - i];
		if (to_b < 0 || to_b > 255 || !is_text(low_a ^ to_a) || !is_text(low_b ^ to_b))
			continue;
		a[i] = (char)(low_a ^ to_a);
		b[i] = (char)(low_b ^ to_b);
		if (spell(i + 1, uns_hash_bytes(state_a, &a[i], 1), uns_hash_bytes(state_b, &b[i], 1), a, b))
			return true;
	}
	return i == N_VECTOR;
}

static void a_flood_costs_what_other_names_cost(void **state)
{
	enum { BLOCK = N_VECTOR, NAME = N_BLOCKS * BLOCK + 1 };
	char block[2][N_BLOCKS][BLOCK], *names = malloc((size_t)N_FLOOD * NAME), *name;
	struct uns_map map = UNS_MAP_INIT;
	uint64_t h = UNS_HASH_INIT;
	size_t i, k;

	(void)state;
	for (k = 0; k < N_BLOCKS; k++) {
		assert_true(spell(0, h, h, block[0][k], block[1][k]));
		h = uns_hash_bytes(h, block[0][k], BLOCK);
	}
	for (i = 0; i < N_FLOOD; i++) {
		name = names + i * NAME;
		for (k = 0; k < N_BLOCKS; k++)
			memcpy(name + k * BLOCK, block[i >> k & 1][k], BLOCK);
		name[NAME - 1] = '\0';
		assert_int_equal(uns_hash_bytes(UNS_HASH_INIT, name, NAME - 1), h);
		assert_true(uns_map_put(&map, name, name, NULL));
	}
	assert_int_equal(map.n, N_FLOOD);
	/* At most 3/4 full, 2.5 probes a key are expected; all in one place, 50,000 are needed. */
	assert_true(uns_map_probes(&map) < 4 * N_FLOOD);
	uns_map_fini(&map);
	free(names);
}

/* Keys that are there, and keys that were deleted, stay so; nothing moves until the room is used. */
static void reserve_makes_room(void **state)
{
	static char name[N_NAMES][8];
	struct uns_map map = UNS_MAP_INIT;
	size_t cap;
	unsigned i;

	(void)state;
	for (i = 0; i < N_NAMES; i++)
		snprintf(name[i], sizeof(name[i]), "r%u", i);
	for (i = 0; i < 20; i++)
		assert_true(uns_map_put(&map, name[i], name[i], NULL));
	assert_ptr_equal(uns_map_del(&map, name[3]), name[3]);
	assert_true(uns_map_reserve(&map, N_NAMES - 20));
	cap = map.cap;
	for (i = 20; i < N_NAMES; i++)
		assert_true(uns_map_put(&map, name[i], name[i], NULL));
	assert_int_equal(map.cap, cap);
	for (i = 0; i < N_NAMES; i++)
		assert_ptr_equal(uns_map_get(&map, name[i]), i == 3 ? NULL : name[i]);
	assert_true(uns_map_reserve(&map, 0));
	assert_int_equal(map.cap, cap);
	assert_false(uns_map_reserve(&map, (size_t)UINT32_MAX));
	assert_ptr_equal(uns_map_get(&map, name[0]), name[0]);
	uns_map_fini(&map);
}

static void in_turn_finds_what_get_finds(void **state)
{
	static char name[N_NAMES][8];
	struct uns_map map = UNS_MAP_INIT;
	size_t turn = 0;
	uint32_t hash;
	unsigned i;

	(void)state;
	assert_null(uns_map_get_in_turn(&map, "absent", &turn, &hash));
	for (i = 0; i < N_NAMES; i++) {
		snprintf(name[i], sizeof(name[i]), "t%u", i);
		assert_true(uns_map_put(&map, name[i], name[i], NULL));
	}
	for (i = 0; i < N_NAMES; i++) {
		assert_ptr_equal(uns_map_get_in_turn(&map, name[i], &turn, &hash), name[i]);
		assert_int_equal(turn, i + 1);
	}
	assert_ptr_equal(uns_map_get_in_turn(&map, name[7], &turn, &hash), name[7]);
	assert_null(uns_map_get_in_turn(&map, "absent", &turn, &hash));
	assert_null(uns_map_get_in_turn(&map, NULL, &turn, &hash));
	assert_int_equal(turn, 8);
	assert_ptr_equal(uns_map_del(&map, name[8]), name[8]);
	assert_null(uns_map_get_in_turn(&map, name[8], &turn, &hash));
	assert_ptr_equal(uns_map_get_in_turn(&map, name[9], &turn, &hash), name[9]);
	assert_null(uns_map_get_in_turn(&map, "absent", &turn, &hash));
	assert_true(uns_map_put_new(&map, "absent", hash, name[0]));
	assert_ptr_equal(uns_map_get(&map, "absent"), name[0]);
	assert_false(uns_map_put_new(&map, NULL, hash, name[0]));
	assert_false(uns_map_put_new(&map, "other", hash, NULL));
	uns_map_fini(&map);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(siphash_is_pythons),           cmocka_unit_test(the_stable_hash_stays),
		cmocka_unit_test(does_what_a_list_does),        cmocka_unit_test(reserve_makes_room),
		cmocka_unit_test(keeps_the_order_of_insertion), cmocka_unit_test(a_flood_costs_what_other_names_cost),
		cmocka_unit_test(in_turn_finds_what_get_finds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
