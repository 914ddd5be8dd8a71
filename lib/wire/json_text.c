/* A scanner of JSON's tokens. It does not know what values mean. */
#include "wire/json_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

enum { MAX_DEPTH = 64 }; /* laid out; what is deeper is copied as it is */

static void skip_space(struct uns_span *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t'))
		s->p++;
}

static void skip_string(struct uns_span *s)
{
	for (s->p++; s->p < s->end && *s->p != '"'; s->p++)
		if (*s->p == '\\' && s->p + 1 < s->end)
			s->p++;
	if (s->p < s->end)
		s->p++;
}

size_t uns_json_text_depth(struct uns_span v)
{
	size_t open = 0, most = 0;

	while (v.p < v.end) {
		if (*v.p == '"') {
			skip_string(&v);
			continue;
		}
		open += *v.p == '{' || *v.p == '[';
		open -= (*v.p == '}' || *v.p == ']') && open;
		most = open > most ? open : most;
		v.p++;
	}
	return most;
}

/* One value of any kind, without recursion. */
static struct uns_span skip_value(struct uns_span *s)
{
	struct uns_span value = *s;
	size_t open = 0;

	while (s->p < s->end) {
		if (*s->p == '"') {
			skip_string(s);
		} else if (*s->p == '{' || *s->p == '[') {
			open++;
			s->p++;
		} else if (*s->p == '}' || *s->p == ']') {
			if (!open)
				break;
			open--;
			s->p++;
		} else if (!open && (*s->p == ',' || *s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t')) {
			break;
		} else {
			s->p++;
			continue;
		}
		if (!open)
			break;
	}
	value.end = s->p;
	return value;
}

bool uns_json_text_next(struct uns_span *at, struct uns_span *key, struct uns_span *value)
{
	struct uns_span name;

	skip_space(at);
	if (at->p < at->end && strchr("{[,", *at->p)) {
		at->p++;
		skip_space(at);
	}
	if (at->p >= at->end || *at->p == '}' || *at->p == ']')
		return false;
	name = (struct uns_span){ at->p, at->p };
	*value = skip_value(at);
	skip_space(at);
	if (at->p < at->end && *at->p == ':') {
		name = *value;
		at->p++;
		skip_space(at);
		*value = skip_value(at);
	}
	if (key)
		*key = name;
	return value->p < value->end;
}

bool uns_json_text_get(struct uns_span object, const char *key, struct uns_span *value)
{
	size_t len = strlen(key);
	struct uns_span name, v;
	bool found = false;

	skip_space(&object);
	if (object.p >= object.end || *object.p != '{')
		return false;
	while (uns_json_text_next(&object, &name, &v)) {
		if (uns_span_left(&name) != len + 2 || memcmp(name.p + 1, key, len) != 0)
			continue;
		*value = v;
		found = true;
	}
	return found;
}

/* -- laying out -- */

struct member {
	struct uns_span key, value;
};

static int by_key(const void *a, const void *b)
{
	const struct uns_span *x = &((const struct member *)a)->key, *y = &((const struct member *)b)->key;
	size_t m = uns_span_left(x), n = uns_span_left(y);
	int order;

	/* Without the closing quote: a shorter name sorts first. */
	order = m && n ? memcmp(x->p, y->p, (m < n ? m : n) - 1) : 0;
	return order ? order : m < n ? -1 : m > n;
}

static void new_line(struct uns_text *out, unsigned depth)
{
	uns_text_str(out, "\n");
	while (depth--)
		uns_text_str(out, "  ");
}

static void text_copy(struct uns_text *out, struct uns_span v)
{
	uns_text_add(out, v.p, uns_span_left(&v));
}

static size_t count(struct uns_span v)
{
	struct uns_span value;
	size_t n = 0;

	while (uns_json_text_next(&v, NULL, &value))
		n++;
	return n;
}

static void indent_members(struct uns_text *out, const struct member *m, size_t n, bool object, unsigned depth)
{
	size_t i;

	uns_text_str(out, object ? "{" : "[");
	for (i = 0; i < n; i++) {
		uns_text_str(out, i ? "," : "");
		new_line(out, depth + 1);
		if (object) {
			text_copy(out, m[i].key);
			uns_text_str(out, ": ");
		}
		uns_json_text_indent(out, m[i].value, depth + 1);
	}
	if (n)
		new_line(out, depth);
	uns_text_str(out, object ? "}" : "]");
}

void uns_json_text_indent(struct uns_text *out, struct uns_span v, unsigned depth)
{
	UNS_CLEANUP(uns_free_p) struct member *m = NULL;
	bool object;
	size_t n = 0, cap;

	skip_space(&v);
	if (v.p >= v.end || !strchr("{[", *v.p) || depth > MAX_DEPTH) {
		text_copy(out, v);
		return;
	}
	object = *v.p == '{';
	cap = count(v);
	m = calloc(cap + 1, sizeof(*m));
	if (!m) {
		out->failed = true;
		return;
	}
	while (n < cap && uns_json_text_next(&v, &m[n].key, &m[n].value))
		n++;
	if (object)
		qsort(m, n, sizeof(*m), by_key);
	indent_members(out, m, n, object, depth);
}

bool uns_json_text_int(struct uns_span v, int64_t *out)
{
	char text[24];
	size_t n = uns_span_left(&v), i;

	if (n == 0 || n >= sizeof(text))
		return false;
	memcpy(text, v.p, n);
	text[n] = '\0';
	for (i = text[0] == '-'; i < n; i++)
		if (text[i] < '0' || text[i] > '9')
			return false;
	errno = 0;
	*out = strtoll(text, NULL, 10);
	return errno == 0 && (n > 1 || text[0] != '-');
}
