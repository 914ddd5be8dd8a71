/* JSON by cJSON, made safe for hostile files: text is checked to be UTF-8 without NULs before cJSON
 * sees it (cJSON's strings end at a NUL, so a name could otherwise pose as a shorter one), numbers to be JSON's (cJSON
 * reads 01 and "1. " too), and Python's NaN and Infinity are rewritten. cJSON itself bounds nesting
 * (CJSON_NESTING_LIMIT). */
#include "wire/json.h"

#include <math.h>
#include <string.h>

#include "base/budget.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "base/utf8.h"

/* Integers up to here are exact in the double that cJSON keeps; the next one may be rounded. */
static const double MAX_EXACT = 9007199254740991.0;

/* What one value and one string take in memory: cJSON's struct, and the heap's own share. */
enum { VALUE_BYTES = sizeof(cJSON) + 16, STRING_BYTES = 32 };

struct scan {
	const char *p, *start, *end;
	size_t need_bytes;  /* that cJSON will ask for */
	const char *copied; /* input before this is in `text` already */
	struct uns_text *text;
};

/* Move s->p from a string's opening quote to behind its closing one. cJSON refuses a string that does not end. */
static int scan_string(struct scan *s, struct uns_err *err)
{
	const char *open = s->p;

	for (s->p++; s->p < s->end && *s->p != '"'; s->p++) {
		if ((unsigned char)*s->p < ' ')
			return uns_fail(err, -EBADMSG, "JSON holds a control character at byte %zu",
					(size_t)(s->p - s->start));
		if (*s->p != '\\' || s->p + 1 == s->end)
			continue;
		s->p++;
		if (s->end - s->p >= 5 && memcmp(s->p, "u0000", 5) == 0)
			return uns_fail(err, -ENOTSUP, "JSON string holds a NUL at byte %zu",
					(size_t)(s->p - s->start));
	}
	if (s->p < s->end)
		s->p++;
	s->need_bytes += STRING_BYTES + (size_t)(s->p - open);
	return 0;
}

static size_t python_token(const char *p, const char *end)
{
	static const char *const token[] = { "NaN", "Infinity", "-Infinity" };
	size_t i, len;

	for (i = 0; i < sizeof(token) / sizeof(token[0]); i++) {
		len = strlen(token[i]);
		if ((size_t)(end - p) >= len && memcmp(p, token[i], len) == 0)
			return len;
	}
	return 0;
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool skip_digits(struct scan *s)
{
	const char *first = s->p;

	while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
		s->p++;
	return s->p > first;
}

static bool skip_one_of(struct scan *s, const char *of)
{
	const bool found = s->p < s->end && *s->p && strchr(of, *s->p);

	s->p += found;
	return found;
}

/* Move s->p from a number's first character behind it: -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)? */
static int scan_number(struct scan *s, struct uns_err *err)
{
	const size_t at = (size_t)(s->p - s->start);
	bool valid;

	skip_one_of(s, "-");
	valid = skip_one_of(s, "0") || skip_digits(s);
	if (valid && skip_one_of(s, "."))
		valid = skip_digits(s);
	if (valid && skip_one_of(s, "eE")) {
		skip_one_of(s, "+-");
		valid = skip_digits(s);
	}
	if (valid && s->p < s->end && *s->p >= '0' && *s->p <= '9') /* behind a leading 0 */
		valid = false;
	return valid ? 0 : uns_fail(err, -EBADMSG, "JSON is damaged at byte %zu: that is no number", at);
}

/* Check strings and numbers, and rewrite what Python adds to JSON; the result is complete in `text`. */
static int rewrite(struct uns_span in, struct uns_text *text, struct uns_err *err)
{
	const char *start = (const char *)in.p;
	struct scan s = { .p = start,
			  .start = start,
			  .end = start + uns_span_left(&in),
			  .copied = start,
			  .text = text,
			  .need_bytes = VALUE_BYTES + 2 * uns_span_left(&in) }; /* the text, growing */
	size_t len, limit = uns_parse_budget(uns_span_left(&in));

	while (s.p < s.end) {
		if (*s.p == '"') {
			UNS_TRY(scan_string(&s, err));
			continue;
		}
		if ((unsigned char)*s.p < ' ' && !is_space(*s.p)) /* to cJSON these are spaces */
			return uns_fail(err, -EBADMSG, "JSON holds a control character at byte %zu",
					(size_t)(s.p - s.start));
		s.need_bytes += *s.p == ',' || *s.p == '[' || *s.p == '{' ? VALUE_BYTES : 0;
		len = *s.p == 'N' || *s.p == 'I' || *s.p == '-' ? python_token(s.p, s.end) : 0;
		if (!len && (*s.p == '-' || (*s.p >= '0' && *s.p <= '9'))) {
			UNS_TRY(scan_number(&s, err));
			continue;
		}
		if (!len) {
			s.p++;
			continue;
		}
		uns_text_add(text, s.copied, (size_t)(s.p - s.copied));
		uns_text_str(text, "null");
		s.copied = s.p += len;
	}
	if (s.need_bytes > limit)
		return uns_fail(err, -ENOTSUP, "JSON of %zu bytes needs more than %zu bytes of memory",
				uns_span_left(&in), limit);
	uns_text_add(text, s.copied, (size_t)(s.p - s.copied));
	return text->failed ? uns_oom(err) : 0;
}

static int parse_text(const struct uns_text *text, cJSON **out, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	const char *end = NULL;

	errno = 0; /* cJSON returns only NULL: malloc's errno is the sign that memory was out */
	json = cJSON_ParseWithLengthOpts(text->p, text->len, &end, 0);
	if (!json && errno == ENOMEM)
		return uns_oom(err);
	if (!json)
		return uns_fail(err, -EBADMSG, "JSON is damaged at byte %zu of %zu", end ? (size_t)(end - text->p) : 0,
				text->len);
	while (end < text->p + text->len && is_space(*end))
		end++;
	if (end != text->p + text->len)
		return uns_fail(err, -EBADMSG, "JSON continues after its end, at byte %zu of %zu",
				(size_t)(end - text->p), text->len);
	*out = UNS_TAKE(json);
	return 0;
}

int uns_json_parse(struct uns_span in, cJSON **out, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	const uint8_t *nul = uns_span_left(&in) ? memchr(in.p, 0, uns_span_left(&in)) : NULL;

	if (nul)
		return uns_fail(err, -EBADMSG, "JSON holds a NUL at byte %zu", (size_t)(nul - in.p));
	if (!uns_utf8_valid(in.p, uns_span_left(&in), false))
		return uns_fail(err, -EBADMSG, "JSON is not UTF-8");
	UNS_TRY(rewrite(in, &text, err));
	return parse_text(&text, out, err);
}

void uns_json_free_p(cJSON **json)
{
	cJSON_Delete(*json);
}

/* Of equal keys the last counts, as in Python; cJSON would return the first. */
static const cJSON *item_of(const cJSON *object, const char *key)
{
	const cJSON *v, *found = NULL;

	if (!cJSON_IsObject(object))
		return NULL;
	cJSON_ArrayForEach (v, object)
		if (v->string && strcmp(v->string, key) == 0)
			found = v;
	return found;
}

bool uns_json_int(const cJSON *object, const char *key, int64_t *out)
{
	const cJSON *v = item_of(object, key);

	if (!v || !cJSON_IsNumber(v) || !(fabs(v->valuedouble) <= MAX_EXACT) || v->valuedouble != floor(v->valuedouble))
		return false;
	*out = (int64_t)v->valuedouble;
	return true;
}

bool uns_json_bool(const cJSON *object, const char *key, bool *out)
{
	const cJSON *v = item_of(object, key);

	if (!cJSON_IsBool(v))
		return false;
	*out = cJSON_IsTrue(v);
	return true;
}

const char *uns_json_str(const cJSON *object, const char *key)
{
	return cJSON_GetStringValue(item_of(object, key));
}
