/* See ranks/values.h. Knows values, not what they stand for. */
#include "ranks/values.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
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

	return memcmp(&x, &y, sizeof(x)) == 0 || x == y; /* two NaNs are no difference */
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
		return a->bytes.n == b->bytes.n && !memcmp(a->bytes.p, b->bytes.p, a->bytes.n);
	case UNS_VALUE_LIST:
	case UNS_VALUE_TUPLE:
		return a->seq.n == b->seq.n && all_equal(a->seq.v, b->seq.v, a->seq.n);
	case UNS_VALUE_DICT:
		return a->dict.n == b->dict.n && all_equal(a->dict.key, b->dict.key, a->dict.n) &&
		       all_equal(a->dict.v, b->dict.v, a->dict.n);
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
		uns_text_str(t, "not there");
	} else if (v->kind == UNS_VALUE_NONE) {
		uns_text_str(t, "None");
	} else if (v->kind == UNS_VALUE_BOOL) {
		uns_text_str(t, v->b ? "True" : "False");
	} else if (is_number(v)) {
		uns_text_printf(t, "%.15g", number(v));
	} else if (uns_value_str(v)) {
		uns_text_printf(t, "'%s'", v->bytes.p);
	} else if (v->kind == UNS_VALUE_LIST || v->kind == UNS_VALUE_TUPLE) {
		uns_text_str(t, v->kind == UNS_VALUE_LIST ? "[" : "(");
		for (i = 0; i < v->seq.n; i++) {
			uns_text_str(t, i ? ", " : "");
			if (t->len > sizeof(((struct uns_rank_difference *)0)->first) ||
			    !add_text(t, v->seq.v[i]))
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

bool uns_rank_values_differ(const struct uns_value *first, const struct uns_value *second,
			    struct uns_rank_difference *out)
{
	const char *key;
	size_t i;

	if (!is_dict(first) || !is_dict(second))
		return false;
	for (i = 0; i < first->dict.n; i++) {
		key = uns_value_str(first->dict.key[i]);
		if (key && differ_at(key, first->dict.v[i], uns_value_get(second, key), out))
			return true;
	}
	for (i = 0; i < second->dict.n; i++) {
		key = uns_value_str(second->dict.key[i]);
		if (key && differ_at(key, uns_value_get(first, key), second->dict.v[i], out))
			return true;
	}
	return false;
}
