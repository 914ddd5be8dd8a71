/* Texts that are kept once: each has an index, in the order of their first use. For maps (layout_map.h, tree_map.h). */
#ifndef UNS_FILES_SHARED_TEXTS_H
#define UNS_FILES_SHARED_TEXTS_H

#include "base/arena.h"
#include "base/map.h"
#include "base/text.h"

struct shared_texts {
	struct uns_arena texts;
	struct uns_map known;
	bool failed; /* no memory */
};
#define SHARED_TEXTS_INIT { .known = UNS_MAP_INIT }

uint32_t shared_texts_index(struct shared_texts *s, const struct uns_text *text);
/* All of them, with commas between them. out->failed if one is lacking. */
void shared_texts_print(struct uns_text *out, const struct shared_texts *s);
void shared_texts_fini(struct shared_texts *s);

#endif
