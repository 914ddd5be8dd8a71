/* `unshard show --html`: one checkpoint as a file that a browser shows without a network. */
#ifndef TOOLS_PAGE_H
#define TOOLS_PAGE_H

#include <stddef.h>

#include "show.h"
#include "unshard.h"

/* The page without its data (tools/page, by cmake/page.cmake). */
extern const unsigned char page_head[], page_tail[];
extern const size_t page_head_len, page_tail_len;

/* What is written into it: JSON of the library (UNSHARD_INFO, UNSHARD_MAP), and the text of a trainer_state.json, or
 * NULL. */
struct page {
	const struct shown_at *at;
	const char *info, *map, *training;
};

/* To `file`, which becomes the page when all of it is written, or to stdout ("-"). A file in the checkpoint's directory
 * is refused. An exit status. */
int page_write(const struct page *page, const char *file);

#endif
