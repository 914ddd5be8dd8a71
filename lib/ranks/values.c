/* Compares values, and writes two that differ for people. Does not know what they mean. */
#include "ranks/values.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/number.h"
#include "base/text.h"

enum { MAX_NODES = 1 << 20, MAX_DEPTH = 32 };

/* -- equal -- */

static bool is_number(const struct uns_value *v)
{
	return v->kind == UNS_VALUE_INT || v->kind == UNS_VALUE_FLOAT || v->kind == UNS_VALUE_BOOL;
}

static double number(const struct uns_value *v)
{
	return v->kind == UNS_VALUE_FLOAT ? v->f : v->kind == UNS_VALUE_INT ? (double)v->i : v->b;
}

/* Both fit into MAX_DEPTH. Objects and sets are not compared. */
static bool value_equal(const struct uns_value *a, const struct uns_value *b)
{
	double x, y;
	size_t i, n;

	if (!a || !b)
		return a == b;
	if (is_number(a) && is_number(b)) {
		x = number(a);
		y = number(b);
		/* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): two NaNs are no difference. */
		return memcmp(&x, &y, sizeof(x)) == 0 || x == y;
	}
	if (a->kind != b->kind)
		return false;
	switch (a->kind) {
	case UNS_VALUE_STR:
	case UNS_VALUE_BYTES:
	case UNS_VALUE_BIGINT:
		return a->n == b->n && !memcmp(a->bytes, b->bytes, a->n);
	case UNS_VALUE_LIST:
	case UNS_VALUE_TUPLE:
	case UNS_VALUE_DICT:
		n = uns_value_n_items(a);
		for (i = 0; a->n == b->n && i < n; i++)
			if (!value_equal(a->item[i], b->item[i]))
				return false;
		return a->n == b->n;
	case UNS_VALUE_GLOBAL:
		return strcmp(a->cls, b->cls) == 0;
	default:
		return true;
	}
}

/* -- for people -- */

static bool text_add_value(struct uns_text *t, const struct uns_value *v)
{
	char text[UNS_NUMBER_ROOM];
	size_t i;

	if (!v) {
		uns_text_str(t, "missing");
	} else if (v->kind == UNS_VALUE_NONE) {
		uns_text_str(t, "None");
	} else if (v->kind == UNS_VALUE_BOOL) {
		uns_text_str(t, v->b ? "True" : "False");
	} else if (is_number(v)) {
		uns_text_str(t, uns_number_print(text, number(v), 15));
	} else if (uns_value_str(v)) {
		uns_text_printf(t, "'%s'", v->bytes);
	} else if (v->kind == UNS_VALUE_LIST || v->kind == UNS_VALUE_TUPLE) {
		uns_text_str(t, v->kind == UNS_VALUE_LIST ? "[" : "(");
		for (i = 0; i < v->n; i++) {
			uns_text_str(t, i ? ", " : "");
			if (t->len > sizeof(((struct uns_rank_difference *)0)->first) || !text_add_value(t, v->item[i]))
				return false;
		}
		uns_text_str(t, v->kind == UNS_VALUE_LIST ? "]" : ")");
	} else {
		return false;
	}
	return true;
}

/* Writes the value for people; "another value" if it is long or opaque. */
static void value_print(char *out, size_t size, const struct uns_value *v)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	bool fits = text_add_value(&text, v) && !text.failed && text.len && text.len < size;

	snprintf(out, size, "%s", fits ? text.p : "another value");
}

static bool is_dict(const struct uns_value *v)
{
	return v && v->kind == UNS_VALUE_DICT && uns_value_fits(v, MAX_NODES, MAX_DEPTH);
}

/* Of equal keys the last counts. false = out of memory. */
static bool index_dict(struct uns_map *map, const struct uns_value *dict)
{
	const char *key;
	size_t i;

	for (i = 0; i < dict->n; i++) {
		key = uns_value_str(dict->pair[i].key);
		if (key && !uns_map_put(map, key, (void *)(uintptr_t)dict->pair[i].value, NULL))
			return false;
	}
	return true;
}

int uns_rank_values_differ(const struct uns_value *first, const struct uns_value *second,
			   struct uns_rank_difference *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map a = UNS_MAP_INIT;
	UNS_CLEANUP(uns_map_fini) struct uns_map b = UNS_MAP_INIT;
	const struct uns_value *x, *y;
	const char *key;
	size_t at;
	int of_second;

	if (!is_dict(first) || !is_dict(second))
		return 0;
	UNS_TRY_ALLOC(index_dict(&a, first) && index_dict(&b, second), err);
	for (of_second = 0; of_second < 2; of_second++)
		for (at = 0; uns_map_next(of_second ? &b : &a, &at, &key, NULL);) {
			x = uns_map_get(&a, key);
			y = uns_map_get(&b, key);
			if (value_equal(x, y))
				continue;
			snprintf(out->key, sizeof(out->key), "%s", key);
			value_print(out->first, sizeof(out->first), x);
			value_print(out->second, sizeof(out->second), y);
			return 1;
		}
	return 0;
}
