/* See ranks/values.h. Knows values, not what they stand for. */
#include "ranks/values.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/text.h"

enum { MAX_NODES = 1 << 20, MAX_DEPTH = 32 };

/* -- equal -- */

static bool equal(const struct uns_value *a, const struct uns_value *b);

static bool all_equal(const struct uns_value **a, const struct uns_value **b, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (!equal(a[i], b[i]))
			return false;
	return true;
}

static bool is_number(const struct uns_value *v)
{
	return v->kind == UNS_VALUE_INT || v->kind == UNS_VALUE_FLOAT || v->kind == UNS_VALUE_BOOL;
}

static double number(const struct uns_value *v)
{
	return v->kind == UNS_VALUE_FLOAT ? v->f : v->kind == UNS_VALUE_INT ? (double)v->i : v->b;
}

static bool equal_numbers(const struct uns_value *a, const struct uns_value *b)
{
	double x = number(a), y = number(b);

	/* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): two NaNs are no difference. */
	return memcmp(&x, &y, sizeof(x)) == 0 || x == y;
}

/* Both fit into MAX_DEPTH. */
static bool equal(const struct uns_value *a, const struct uns_value *b)
{
	if (!a || !b)
		return a == b;
	if (is_number(a) && is_number(b))
		return equal_numbers(a, b);
	if (a->kind != b->kind)
		return false;
	switch (a->kind) {
	case UNS_VALUE_STR:
	case UNS_VALUE_BYTES:
	case UNS_VALUE_BIGINT:
		return a->n == b->n && !memcmp(a->bytes, b->bytes, a->n);
	case UNS_VALUE_LIST:
	case UNS_VALUE_TUPLE:
		return a->n == b->n && all_equal(a->item, b->item, a->n);
	case UNS_VALUE_DICT:
		return a->n == b->n && all_equal(a->item, b->item, uns_value_n_items(a));
	case UNS_VALUE_GLOBAL:
		return strcmp(a->cls, b->cls) == 0;
	default:
		return true; /* None, or opaque */
	}
}

/* -- for people -- */

static bool add_text(struct uns_text *t, const struct uns_value *v)
{
	size_t i;

	if (!v) {
		uns_text_str(t, "missing");
	} else if (v->kind == UNS_VALUE_NONE) {
		uns_text_str(t, "None");
	} else if (v->kind == UNS_VALUE_BOOL) {
		uns_text_str(t, v->b ? "True" : "False");
	} else if (is_number(v)) {
		uns_text_printf(t, "%.15g", number(v));
	} else if (uns_value_str(v)) {
		uns_text_printf(t, "'%s'", v->bytes);
	} else if (v->kind == UNS_VALUE_LIST || v->kind == UNS_VALUE_TUPLE) {
		uns_text_str(t, v->kind == UNS_VALUE_LIST ? "[" : "(");
		for (i = 0; i < v->n; i++) {
			uns_text_str(t, i ? ", " : "");
			if (t->len > sizeof(((struct uns_rank_difference *)0)->first) ||
			    !add_text(t, v->item[i]))
				return false;
		}
		uns_text_str(t, v->kind == UNS_VALUE_LIST ? "]" : ")");
	} else {
		return false;
	}
	return true;
}

static void put_text(char *out, size_t size, const struct uns_value *v)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	bool told = add_text(&text, v) && !text.failed && text.len && text.len < size;

	snprintf(out, size, "%s", told ? text.p : "another value");
}

static bool differ_at(const char *key, const struct uns_value *a, const struct uns_value *b,
		      struct uns_rank_difference *out)
{
	if (!key || equal(a, b))
		return false;
	snprintf(out->key, sizeof(out->key), "%s", key);
	put_text(out->first, sizeof(out->first), a);
	put_text(out->second, sizeof(out->second), b);
	return true;
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

static bool any_differs(const struct uns_map *first, const struct uns_map *second,
			const struct uns_map *keys, struct uns_rank_difference *out)
{
	const char *key;
	size_t at = 0;

	while (uns_map_next(keys, &at, &key, NULL))
		if (differ_at(key, uns_map_get(first, key), uns_map_get(second, key), out))
			return true;
	return false;
}

int uns_rank_values_differ(const struct uns_value *first, const struct uns_value *second,
			   struct uns_rank_difference *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map a = UNS_MAP_INIT;
	UNS_CLEANUP(uns_map_fini) struct uns_map b = UNS_MAP_INIT;

	if (!is_dict(first) || !is_dict(second))
		return 0;
	if (!index_dict(&a, first) || !index_dict(&b, second))
		return uns_oom(err);
	return any_differs(&a, &b, &a, out) || any_differs(&a, &b, &b, out);
}
