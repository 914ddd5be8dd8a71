/* `unshard show --html`: one checkpoint as a file that a browser shows without a network. */
#ifndef TOOLS_PAGE_H
#define TOOLS_PAGE_H

#include <stddef.h>

#include "show.h"
#include "unshard.h"

/* The page without its data (tools/page, by cmake/page.cmake). */
extern const unsigned char page_head[], page_tail[];
extern const size_t page_head_len, page_tail_len;

/* What is written into it. */
struct page {
	const struct shown_at *at;
	const char *info, *map; /* of a checkpoint: JSON of the library (UNSHARD_INFO, UNSHARD_MAP) */
	const char *run; /* of a run: [{"path","format","step","world_size","bytes","state","problem"}] */
	const char *training; /* the text of a trainer_state.json, or NULL */
};

/* To `file`, which becomes the page when all of it is written, or to stdout ("-"). A file in the directory that the
 * page is about is refused. An exit status. */
int page_write(const struct page *page, const char *file);

#endif
