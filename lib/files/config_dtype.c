/* config.json's text with another dtype, every other byte kept: no parse-and-print, which would
 * reorder, reformat or round what some program may read. The text has been validated as JSON first,
 * so the walk below only has to know strings and brackets. */
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "files/config.h"
#include "wire/json.h"

enum { MAX_DEPTH = 64 }; /* configs nest three or four deep */

struct walk {
	const char *p, *end;
	const char *copied; /* input up to here is in `out` */
	struct uns_text out;
	const char *dtype;
	/* Per open bracket: is this an object whose dtype keys are the model's? */
	bool model[MAX_DEPTH];
	size_t depth;
	bool seen; /* a dtype key at the top */
};

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static const char *skip_space(const char *p, const char *end)
{
	while (p < end && is_space(*p))
		p++;
	return p;
}

/* p at the opening quote; behind the closing one. */
static const char *skip_string(const char *p, const char *end)
{
	for (p++; p < end && *p != '"'; p++)
		if (*p == '\\' && p + 1 < end)
			p++;
	return p < end ? p + 1 : end;
}

static bool key_is(const char *key, size_t len, const char *want)
{
	return len == strlen(want) && memcmp(key, want, len) == 0;
}

/* A nested config of the model ("text_config"). What quantization_config calls dtype is not the
 * weights' type. */
static bool is_nested_config(const char *key, size_t len)
{
	static const char suffix[] = "_config";
	size_t m = sizeof(suffix) - 1;

	return len > m && memcmp(key + len - m, suffix, m) == 0 &&
	       !key_is(key, len, "quantization_config");
}

static void copy_until(struct walk *w, const char *to)
{
	uns_text_add(&w->out, w->copied, (size_t)(to - w->copied));
	w->copied = to;
}

/* w->p at the value of a dtype key. Objects (a type per sub-model) are left alone. */
static void replace_value(struct walk *w)
{
	const char *value = w->p;

	if (value < w->end && *value == '"')
		w->p = skip_string(value, w->end);
	else if (w->end - value >= 4 && memcmp(value, "null", 4) == 0)
		w->p = value + 4;
	else
		return;
	copy_until(w, value);
	uns_text_printf(&w->out, "\"%s\"", w->dtype);
	w->copied = w->p;
}

static int open_bracket(struct walk *w, bool model, struct uns_err *err)
{
	if (w->depth == MAX_DEPTH)
		return uns_fail(err, -ENOTSUP, "config.json: nested deeper than %d", MAX_DEPTH);
	w->model[w->depth++] = model;
	w->p++;
	return 0;
}

/* w->p at a string: a value, or a key whose value decides what follows. */
static int take_string(struct walk *w, struct uns_err *err)
{
	const char *key = w->p + 1;
	size_t len;
	bool inside = w->depth && w->model[w->depth - 1];

	w->p = skip_string(w->p, w->end);
	len = (size_t)(w->p - key) - 1;
	if (!inside)
		return 0;
	w->p = skip_space(w->p, w->end);
	if (w->p == w->end || *w->p != ':')
		return 0;
	w->p = skip_space(w->p + 1, w->end);
	if (key_is(key, len, "dtype") || key_is(key, len, "torch_dtype")) {
		w->seen |= w->depth == 1;
		replace_value(w);
	} else if (w->p < w->end && *w->p == '"') {
		w->p = skip_string(w->p, w->end);
	} else if (w->p < w->end && *w->p == '{') {
		return open_bracket(w, is_nested_config(key, len), err);
	}
	return 0;
}

static int walk_text(struct walk *w, struct uns_err *err)
{
	while (w->p < w->end) {
		if (*w->p == '"') {
			UNS_TRY(take_string(w, err));
		} else if (*w->p == '{' || *w->p == '[') {
			UNS_TRY(open_bracket(w, w->depth == 0 && *w->p == '{', err));
		} else {
			if ((*w->p == '}' || *w->p == ']') && w->depth)
				w->depth--;
			w->p++;
		}
	}
	copy_until(w, w->end);
	return 0;
}

/* Both spellings: transformers 5 reads either, before 4.56 only torch_dtype is read. The white
 * space in front of the first key is the file's own indentation. */
static void insert_keys(struct uns_text *out, const char *text, size_t len, const char *dtype)
{
	const char *open = memchr(text, '{', len), *end = text + len, *first;

	first = skip_space(open + 1, end);
	uns_text_add(out, text, (size_t)(open + 1 - text));
	uns_text_add(out, open + 1, (size_t)(first - open - 1));
	uns_text_printf(out, "\"dtype\": \"%s\",", dtype);
	uns_text_add(out, open + 1, (size_t)(first - open - 1));
	uns_text_printf(out, "\"torch_dtype\": \"%s\"", dtype);
	if (first < end && *first != '}') {
		uns_text_str(out, ",");
		uns_text_add(out, open + 1, (size_t)(first - open - 1));
	}
	uns_text_add(out, first, (size_t)(end - first));
}

static int check_json(struct uns_span json, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *root = NULL;

	if (uns_json_parse(json, &root, err) < 0)
		return uns_fail_in(err, "config.json");
	return cJSON_IsObject(root) ? 0 : uns_fail(err, -EBADMSG, "config.json: not a JSON object");
}

static int give(struct uns_text *text, struct uns_arena *arena, struct uns_span *out,
		struct uns_err *err)
{
	char *copy = text->failed ? NULL : uns_arena_strn(arena, text->p, text->len);

	if (!copy)
		return uns_oom(err);
	*out = uns_span_of(copy, text->len);
	return 0;
}

static void walk_fini(struct walk *w)
{
	uns_text_fini(&w->out);
}

int uns_config_with_dtype(struct uns_span json, const char *torch_dtype, struct uns_arena *arena,
			  struct uns_span *out, struct uns_err *err)
{
	const char *text = (const char *)json.p;
	size_t len = uns_span_left(&json);
	UNS_CLEANUP(walk_fini)
	struct walk w = { .p = text, .end = text + len, .copied = text, .dtype = torch_dtype };
	UNS_CLEANUP(uns_text_fini) struct uns_text added = UNS_TEXT_INIT;

	UNS_TRY(check_json(json, err));
	UNS_TRY(walk_text(&w, err));
	if (w.seen || w.out.failed)
		return give(&w.out, arena, out, err);
	insert_keys(&added, w.out.p, w.out.len, torch_dtype);
	return give(&added, arena, out, err);
}
