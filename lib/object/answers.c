/* As much of XML as stores send: elements, text with entities, declarations and comments that are skipped. No DTD is
 * read, so the answer can define no entity. */
#include "object/answers.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/checked.h"

enum { MOST_DEPTH = 16, MOST_TEXT = 16 << 10 };

struct xml {
	struct uns_span in;
	const uint8_t *begin;
	struct uns_span name[MOST_DEPTH]; /* of the elements that are open */
	size_t depth;
	struct uns_span text; /* since the last tag */
	bool is_empty;        /* the tag ends its own element: its end comes next */
};

enum event { EVENT_BEGIN, EVENT_END, EVENT_OVER };

static int fail_xml(const struct xml *x, const char *what, struct uns_err *err)
{
	return uns_fail(err, -EBADMSG, "the answer is not the XML of a listing: %s at byte %zu", what,
			(size_t)(x->in.p - x->begin));
}

static bool is_name(struct uns_span s, const char *name)
{
	return uns_span_left(&s) == strlen(name) && memcmp(s.p, name, strlen(name)) == 0;
}

static bool starts(const struct xml *x, const char *with)
{
	return uns_span_left(&x->in) >= strlen(with) && memcmp(x->in.p, with, strlen(with)) == 0;
}

static bool skip_past(struct xml *x, const char *what)
{
	const uint8_t *at = memmem(x->in.p, uns_span_left(&x->in), what, strlen(what));

	if (at)
		x->in.p = at + strlen(what);
	return at;
}

static bool is_space(uint8_t c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* What is between '<' and '>', attributes left out. `s3:Key` is Key. */
static struct uns_span name_of(const uint8_t *from, const uint8_t *to)
{
	const uint8_t *end = from, *colon;

	while (end < to && !is_space(*end) && *end != '/')
		end++;
	colon = memchr(from, ':', (size_t)(end - from));
	return (struct uns_span){ colon ? colon + 1 : from, end };
}

static bool same_name(struct uns_span a, struct uns_span b)
{
	return uns_span_left(&a) == uns_span_left(&b) && memcmp(a.p, b.p, uns_span_left(&a)) == 0;
}

/* The next tag. After EVENT_END, x->name[x->depth] is the element that ended, and x->text what it held last. */
static int next_event(struct xml *x, enum event *event, struct uns_err *err)
{
	const uint8_t *lt, *gt;

	if (x->is_empty) {
		x->is_empty = false;
		x->text = (struct uns_span){ x->in.p, x->in.p };
		x->depth--;
		*event = EVENT_END;
		return 0;
	}
	for (;;) {
		lt = memchr(x->in.p, '<', uns_span_left(&x->in));
		if (!lt) {
			*event = EVENT_OVER;
			return x->depth ? fail_xml(x, "it ends within an element", err) : 0;
		}
		x->text = (struct uns_span){ x->in.p, lt };
		x->in.p = lt;
		if (!starts(x, "<?") && !starts(x, "<!"))
			break;
		if (!skip_past(x, starts(x, "<?") ? "?>" : starts(x, "<!--") ? "-->" : ">"))
			return fail_xml(x, "a declaration without an end", err);
	}
	if (!skip_past(x, ">"))
		return fail_xml(x, "a tag without an end", err);
	gt = x->in.p - 1;
	if (lt[1] == '/') {
		if (!x->depth || !same_name(x->name[x->depth - 1], name_of(lt + 2, gt)))
			return fail_xml(x, "an end of an element that is not open", err);
		x->depth--;
		*event = EVENT_END;
		return 0;
	}
	if (x->depth == MOST_DEPTH)
		return fail_xml(x, "more elements within each other than any listing has", err);
	x->name[x->depth++] = name_of(lt + 1, gt);
	x->is_empty = gt > lt + 1 && gt[-1] == '/';
	*event = EVENT_BEGIN;
	return 0;
}

/* -- text -- */

/* As UTF-8; false = no character that XML may have. */
static bool put_character(char *out, size_t *n, unsigned long c)
{
	if (!c || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return false;
	if (c < 0x80) {
		out[(*n)++] = (char)c;
		return true;
	}
	if (c < 0x800) {
		out[(*n)++] = (char)(0xc0 | c >> 6);
	} else {
		if (c < 0x10000) {
			out[(*n)++] = (char)(0xe0 | c >> 12);
		} else {
			out[(*n)++] = (char)(0xf0 | c >> 18);
			out[(*n)++] = (char)(0x80 | (c >> 12 & 0x3f));
		}
		out[(*n)++] = (char)(0x80 | (c >> 6 & 0x3f));
	}
	out[(*n)++] = (char)(0x80 | (c & 0x3f));
	return true;
}

static unsigned digit_of(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10U : 16;
}

/* What is between '&' and ';'. */
static bool put_entity(char *out, size_t *n, struct uns_span e)
{
	static const struct {
		const char *name;
		char c;
	} known[] = { { "amp", '&' }, { "lt", '<' }, { "gt", '>' }, { "quot", '"' }, { "apos", '\'' } };
	const bool hex = uns_span_left(&e) > 1 && (e.p[1] | 0x20) == 'x';
	const unsigned base = hex ? 16 : 10;
	unsigned long c = 0;
	size_t i;

	for (i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (is_name(e, known[i].name)) {
			out[(*n)++] = known[i].c;
			return true;
		}
	if (uns_span_left(&e) < 2 || uns_span_left(&e) > 8 || *e.p != '#')
		return false;
	for (e.p += hex ? 2 : 1; e.p < e.end; e.p++) {
		if (digit_of(*e.p) >= base)
			return false;
		c = c * base + digit_of(*e.p);
	}
	return put_character(out, n, c);
}

/* NUL-terminated, in the arena: never longer than it is in XML. */
static int text_of(const struct xml *x, struct uns_span in, struct uns_arena *arena, char **out, struct uns_err *err)
{
	const uint8_t *semicolon;
	char *text;
	size_t n = 0;

	if (uns_span_left(&in) > MOST_TEXT)
		return fail_xml(x, "a text longer than any key", err);
	UNS_TRY_ALLOC(text = uns_arena_alloc(arena, uns_span_left(&in) + 1, 1), err);
	while (in.p < in.end) {
		if (!*in.p)
			return fail_xml(x, "a NUL", err);
		if (*in.p != '&') {
			text[n++] = (char)*in.p++;
			continue;
		}
		semicolon = memchr(in.p, ';', uns_span_left(&in));
		if (!semicolon || !put_entity(text, &n, (struct uns_span){ in.p + 1, semicolon }))
			return fail_xml(x, "an unknown entity", err);
		in.p = semicolon + 1;
	}
	text[n] = '\0';
	*out = text;
	return 0;
}

/* encoding-type=url: as forms have it. In place. */
static bool decode_url(char *text)
{
	const char *from = text;
	unsigned hi, lo;

	for (; *from; from++, text++) {
		*text = *from == '+' ? ' ' : *from;
		if (*from != '%')
			continue;
		hi = digit_of((uint8_t)from[1]);
		lo = hi < 16 ? digit_of((uint8_t)from[2]) : 16;
		if (lo == 16 || !(hi << 4 | lo))
			return false;
		*text = (char)(hi << 4 | lo);
		from += 2;
	}
	*text = '\0';
	return true;
}

/* "2009-10-12T17:50:30.000Z" */
static bool parse_time(const char *text, int64_t *out)
{
	struct tm utc = { 0 };
	const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &utc);
	int64_t ns = 0, step = 100000000;

	if (!rest)
		return false;
	if (*rest == '.')
		for (rest++; *rest >= '0' && *rest <= '9'; rest++, step /= 10)
			ns += (*rest - '0') * step;
	if (strcmp(rest, "Z") != 0)
		return false;
	return !__builtin_mul_overflow((int64_t)timegm(&utc), INT64_C(1000000000), out) &&
	       !__builtin_add_overflow(*out, ns, out);
}

static bool parse_size(const char *text, uint64_t *out)
{
	uint64_t n = 0;

	if (!*text)
		return false;
	for (; *text; text++)
		if (*text < '0' || *text > '9' || __builtin_mul_overflow(n, UINT64_C(10), &n) ||
		    __builtin_add_overflow(n, (uint64_t)(*text - '0'), &n))
			return false;
	*out = n;
	return n <= INT64_MAX;
}

/* -- a page -- */

struct page {
	struct xml x;
	struct uns_arena *arena;
	struct uns_object_list *list;
	size_t first; /* of this page */
	struct uns_object now;
	bool has_size, is_url, is_truncated;
	char *next;
};

static int take_of_object(struct page *p, struct uns_span name, struct uns_err *err)
{
	char *text;

	UNS_TRY(text_of(&p->x, p->x.text, p->arena, &text, err));
	if (is_name(name, "Key"))
		p->now.key = text;
	else if (is_name(name, "ETag"))
		p->now.etag = text;
	else if (is_name(name, "LastModified") && !parse_time(text, &p->now.mtime_ns))
		return fail_xml(&p->x, "a LastModified that is no time", err);
	else if (is_name(name, "Size") && !(p->has_size = parse_size(text, &p->now.size)))
		return fail_xml(&p->x, "a Size that is none", err);
	return 0;
}

static int add_now(struct page *p, bool is_prefix, struct uns_err *err)
{
	struct uns_object_list *l = p->list;

	p->now.is_prefix = is_prefix;
	if (!p->now.key || (!is_prefix && (!p->has_size || !p->now.mtime_ns)))
		return fail_xml(&p->x, "an object without Key, Size or LastModified", err);
	if (!p->now.etag)
		p->now.etag = "";
	if (!UNS_ARENA_ROOM(p->arena, l->v, l->n, l->cap))
		return uns_oom(err);
	l->v[l->n++] = p->now;
	return 0;
}

/* An element right below the page's own has ended. */
static int take_of_page(struct page *p, struct uns_span name, struct uns_err *err)
{
	char *text;

	if (is_name(name, "Contents"))
		return add_now(p, false, err);
	if (is_name(name, "CommonPrefixes"))
		return add_now(p, true, err);
	if (!is_name(name, "IsTruncated") && !is_name(name, "NextContinuationToken") && !is_name(name, "EncodingType"))
		return 0;
	UNS_TRY(text_of(&p->x, p->x.text, p->arena, &text, err));
	if (is_name(name, "IsTruncated"))
		p->is_truncated = strcmp(text, "true") == 0;
	else if (is_name(name, "EncodingType"))
		p->is_url = strcmp(text, "url") == 0;
	else
		p->next = text;
	return 0;
}

static int take_end(struct page *p, struct uns_err *err)
{
	const struct uns_span *name = p->x.name;
	const size_t depth = p->x.depth; /* of what the element that ended is in */
	char *text;

	if (depth == 1)
		return take_of_page(p, name[1], err);
	if (depth == 2 && is_name(name[1], "Contents"))
		return take_of_object(p, name[2], err);
	if (depth == 2 && is_name(name[1], "CommonPrefixes") && is_name(name[2], "Prefix")) {
		UNS_TRY(text_of(&p->x, p->x.text, p->arena, &text, err));
		p->now.key = text;
	}
	return 0;
}

static int finish_page(struct page *p, struct uns_err *err)
{
	size_t i;

	for (i = p->first; p->is_url && i < p->list->n; i++)
		if (!decode_url((char *)p->list->v[i].key))
			return fail_xml(&p->x, "a key that is not encoded as asked", err);
	if (p->is_truncated && !(p->next && *p->next))
		return fail_xml(&p->x, "more pages follow and none is named", err);
	p->list->next = p->is_truncated ? p->next : NULL;
	return 0;
}

int uns_object_list_parse(struct uns_span xml, struct uns_arena *arena, struct uns_object_list *list,
			  struct uns_err *err)
{
	struct page p = { .x = { .in = xml, .begin = xml.p }, .arena = arena, .list = list, .first = list->n };
	enum event event;
	bool is_page = false;

	for (;;) {
		UNS_TRY(next_event(&p.x, &event, err));
		if (event == EVENT_OVER)
			break;
		if (event == EVENT_BEGIN && p.x.depth == 1 && !(is_page = is_name(p.x.name[0], "ListBucketResult")))
			return fail_xml(&p.x, "an element that is not ListBucketResult", err);
		if (event == EVENT_BEGIN && p.x.depth == 2) {
			p.now = (struct uns_object){ 0 };
			p.has_size = false;
		}
		if (event == EVENT_END)
			UNS_TRY(take_end(&p, err));
	}
	return is_page ? finish_page(&p, err) : fail_xml(&p.x, "no ListBucketResult", err);
}

bool uns_answer_value(struct uns_span xml, const char *name, char *out, size_t size)
{
	struct xml x = { .in = xml, .begin = xml.p };
	struct uns_err unused = { 0 };
	enum event event;
	size_t n;

	while (next_event(&x, &event, &unused) == 0 && event != EVENT_OVER) {
		if (event != EVENT_END || !is_name(x.name[x.depth], name))
			continue;
		n = uns_span_left(&x.text);
		if (n >= size || memchr(x.text.p, '\0', n))
			return false;
		memcpy(out, x.text.p, n);
		out[n] = '\0';
		return true;
	}
	return false;
}

void uns_object_error_parse(struct uns_span xml, struct uns_object_error *out)
{
	if (!uns_answer_value(xml, "Code", out->code, sizeof(out->code)))
		*out->code = '\0';
	if (!uns_answer_value(xml, "Region", out->region, sizeof(out->region)))
		*out->region = '\0';
}
