/* Growing text, and JSON strings as everything that we write spells them. */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/utf8.h"

static bool text_reserve(struct uns_text *t, size_t more)
{
	size_t cap = t->cap ? t->cap : 256, need;
	char *p;

	if (t->failed)
		return false;
	if (__builtin_add_overflow(t->len, more, &need) || need >= (size_t)-1 / 2) {
		t->failed = true;
		return false;
	}
	if (need < t->cap)
		return true;
	while (cap <= need)
		cap *= 2;
	p = realloc(t->p, cap);
	if (!p) {
		t->failed = true;
		return false;
	}
	t->p = p;
	t->cap = cap;
	return true;
}

void uns_text_reserve(struct uns_text *t, size_t more)
{
	text_reserve(t, more);
}

void uns_text_add(struct uns_text *t, const void *bytes, size_t len)
{
	if (!text_reserve(t, len))
		return;
	if (len)
		memcpy(t->p + t->len, bytes, len);
	t->len += len;
	t->p[t->len] = '\0';
}

void uns_text_str(struct uns_text *t, const char *s)
{
	uns_text_add(t, s, strlen(s));
}

void uns_text_le(struct uns_text *t, uint64_t v, unsigned n_bytes)
{
	unsigned char bytes[8];
	unsigned i;

	for (i = 0; i < n_bytes; i++)
		bytes[i] = (unsigned char)(v >> (8 * i));
	uns_text_add(t, bytes, n_bytes);
}

void uns_text_u64(struct uns_text *t, uint64_t v)
{
	char digits[UNS_NUMBER_ROOM];

	uns_text_add(t, digits, uns_number_digits(digits, v));
}

void uns_text_hex(struct uns_text *t, const uint8_t *bytes, size_t n)
{
	for (; n--; bytes++)
		uns_text_printf(t, "%02x", *bytes);
}

void uns_text_printf(struct uns_text *t, const char *fmt, ...)
{
	va_list ap;
	int len;

	if (!text_reserve(t, 0))
		return;
	va_start(ap, fmt);
	len = vsnprintf(t->p + t->len, t->cap - t->len, fmt, ap);
	va_end(ap);
	if (len >= 0 && (size_t)len >= t->cap - t->len) {
		t->p[t->len] = '\0'; /* as before, if there is no memory for more */
		if (!text_reserve(t, (size_t)len))
			return;
		va_start(ap, fmt);
		vsnprintf(t->p + t->len, (size_t)len + 1, fmt, ap);
		va_end(ap);
	}
	t->len += len < 0 ? 0 : (size_t)len;
}

void uns_one_line(char *text, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
			text[i] = '?';
}

void uns_text_end_line(struct uns_text *t, size_t from)
{
	if (t->len > from)
		uns_one_line(t->p + from, t->len - from);
	uns_text_str(t, "\n");
}

/* How many ASCII characters come next that are not escaped. */
static size_t plain_len(const uint8_t *p, const uint8_t *end)
{
	const uint8_t *from = p;

	while (p < end && *p >= 0x20 && *p < 0x7f && *p != '"' && *p != '\\')
		p++;
	return (size_t)(p - from);
}

void uns_text_json_str(struct uns_text *t, const char *s)
{
	const uint8_t *p = (const uint8_t *)s, *end = p + strlen(s);
	size_t len;

	uns_text_str(t, "\"");
	for (; p < end; p += len) {
		len = plain_len(p, end);
		if (len) {
			uns_text_add(t, p, len);
			continue;
		}
		len = uns_utf8_len(p, (size_t)(end - p), false);
		if (*p == '"' || *p == '\\')
			uns_text_printf(t, "\\%c", *p);
		else if (*p < 0x20 || *p == 0x7f)
			uns_text_printf(t, "\\u%04x", *p);
		else if (len)
			uns_text_add(t, p, len);
		else
			uns_text_str(t, "\\ufffd");
		len = len ? len : 1;
	}
	uns_text_str(t, "\"");
}

char *uns_text_take(struct uns_text *t, size_t *len)
{
	char *p;

	uns_text_add(t, "", 0); /* an empty text is still a string */
	p = t->p;
	if (len)
		*len = t->len;
	if (t->failed) {
		uns_text_fini(t);
		return NULL;
	}
	*t = UNS_TEXT_INIT;
	return p;
}

void uns_text_fini(struct uns_text *t)
{
	free(t->p);
	*t = UNS_TEXT_INIT;
}
