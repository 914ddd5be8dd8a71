/* A page for a browser: tools/page with data in it. One file, which needs no network. */
#ifndef TOOLS_PAGE_H
#define TOOLS_PAGE_H

#include <stddef.h>

/* The page without its data (tools/page, by cmake/page.cmake). */
extern const unsigned char page_head[], page_tail[];
extern const size_t page_head_len, page_tail_len;

/* A member of its data: one of the two; both NULL = null. */
struct page_part {
	const char *key;
	const char *json;
	const char *text;
};

struct page {
	const struct page_part *part; /* the last has no key */
	const char *const *sources; /* as whole_file.sources */
};

/* To `file` as whole_file_write does. An exit status. */
int page_write(const struct page *page, const char *file);

#endif
