/* config.json's text with another dtype, every other byte kept: parsing and printing would reorder, reformat or round
 * what some program may read. */
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "names/config.h"
#include "wire/json.h"
#include "wire/json_text.h"

enum { MAX_DEPTH = 64 }; /* configs nest three or four deep */

struct rewrite {
	const char *dtype;
	const uint8_t *copied; /* input up to here is in `out` */
	struct uns_text out;
	bool seen; /* a dtype key at the top */
};

static void rewrite_fini(struct rewrite *r)
{
	uns_text_fini(&r->out);
}

static void copy_until(struct rewrite *r, const uint8_t *to)
{
	uns_text_add(&r->out, r->copied, (size_t)(to - r->copied));
	r->copied = to;
}

/* Is `token` exactly this text? The quotes of a key or a string are part of the token. */
static bool token_is(struct uns_span token, const char *text)
{
	return uns_span_left(&token) == strlen(text) && memcmp(token.p, text, strlen(text)) == 0;
}

/* A nested config of the model ("text_config"). The dtype in quantization_config is not the weights'. */
static bool is_nested_config(struct uns_span key)
{
	static const char end[] = "_config\"";
	size_t n = sizeof(end) - 1;

	return uns_span_left(&key) > n + 1 && memcmp(key.end - n, end, n) == 0 &&
	       !token_is(key, "\"quantization_config\"");
}

/* The values of dtype keys in an object and in the configs nested in it. A value that is an object (a dtype for each
 * sub-model) stays. */
static void rewrite_object(struct rewrite *r, struct uns_span object, bool top)
{
	struct uns_span key, value;

	while (uns_json_text_next(&object, &key, &value)) {
		if (token_is(key, "\"dtype\"") || token_is(key, "\"torch_dtype\"")) {
			r->seen |= top;
			if (*value.p != '"' && !token_is(value, "null"))
				continue;
			copy_until(r, value.p);
			uns_text_printf(&r->out, "\"%s\"", r->dtype);
			r->copied = value.end;
		} else if (*value.p == '{' && is_nested_config(key)) {
			rewrite_object(r, value, false);
		}
	}
}

/* Both spellings: transformers 5 reads either, before 4.56 only torch_dtype is read. The white space in front of the
 * first key is the file's own indentation. */
static void insert_keys(struct uns_text *out, const struct uns_text *in, const char *dtype)
{
	const char *inside = (const char *)memchr(in->p, '{', in->len) + 1;
	size_t indent = strspn(inside, " \t\r\n");
	const char *first = inside + indent;

	uns_text_add(out, in->p, (size_t)(first - in->p));
	uns_text_printf(out, "\"dtype\": \"%s\",%.*s\"torch_dtype\": \"%s\"", dtype, (int)indent, inside, dtype);
	if (*first != '}')
		uns_text_printf(out, ",%.*s", (int)indent, inside);
	uns_text_str(out, first);
}

int uns_config_with_dtype(struct uns_span json, const char *torch_dtype, struct uns_arena *arena, struct uns_span *out,
			  struct uns_err *err)
{
	UNS_CLEANUP(rewrite_fini)
	struct rewrite r = { .dtype = torch_dtype, .copied = json.p };
	UNS_CLEANUP(uns_text_fini) struct uns_text added = UNS_TEXT_INIT;
	UNS_CLEANUP(uns_json_free_p) cJSON *root = NULL;
	const struct uns_text *text = &r.out;
	char *copy;

	if (uns_json_parse(json, &root, err) < 0)
		return uns_fail_in(err, "config.json");
	if (!cJSON_IsObject(root))
		return uns_fail(err, -EBADMSG, "config.json: not a JSON object");
	if (uns_json_text_depth(json) > MAX_DEPTH)
		return uns_fail(err, -ENOTSUP, "config.json: nested deeper than %d", MAX_DEPTH);
	rewrite_object(&r, json, true);
	copy_until(&r, json.end);
	if (!r.seen && !r.out.failed) {
		insert_keys(&added, &r.out, torch_dtype);
		text = &added;
	}
	copy = text->failed ? NULL : uns_arena_strn(arena, text->p, text->len);
	UNS_TRY_ALLOC(copy, err);
	*out = uns_span_of(copy, text->len);
	return 0;
}
