/* A growing buffer for bytes and text. After an allocation fails every further append is a no-op
 * and `failed` stays set: check it once, at the end. */
#ifndef UNS_BASE_TEXT_H
#define UNS_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct uns_text {
	char *p; /* NUL-terminated whenever len > 0 */
	size_t len, cap;
	bool failed;
};

#define UNS_TEXT_INIT ((struct uns_text){ 0 })

/* Makes room for so many more bytes at once, of a text whose length is about known. */
void uns_text_reserve(struct uns_text *t, size_t more);
void uns_text_add(struct uns_text *t, const void *bytes, size_t len);
void uns_text_str(struct uns_text *t, const char *s);
/* The lowest n_bytes of a number, at most 8, little-endian. */
void uns_text_le(struct uns_text *t, uint64_t v, unsigned n_bytes);
/* The number in decimal; much sooner than uns_text_printf. */
void uns_text_u64(struct uns_text *t, uint64_t v);
/* Two hexadecimal digits, in lower case, for each byte. */
void uns_text_hex(struct uns_text *t, const uint8_t *bytes, size_t n);
__attribute__((format(printf, 2, 3))) void uns_text_printf(struct uns_text *t, const char *fmt, ...);
/* A JSON string with its quotes; control characters and invalid UTF-8 are escaped. */
void uns_text_json_str(struct uns_text *t, const char *s);

/* "1 tensor", "3 tensors": the word that follows the number. */
static inline const char *uns_plural(size_t n, const char *one, const char *many)
{
	return n == 1 ? one : many;
}

/* Move the buffer out (malloc'd, NUL-terminated, never NULL unless failed). */
char *uns_text_take(struct uns_text *t, size_t *len);
/* Control characters, which names of files and tensors may hold, become '?': a line stays one line. */
void uns_one_line(char *text, size_t len);
/* The same for a line that ends here; ends it. from: where it began. */
void uns_text_end_line(struct uns_text *t, size_t from);

void uns_text_fini(struct uns_text *t);

#endif
