#include "files/shared_texts.h"

uint32_t shared_texts_index(struct shared_texts *s, const struct uns_text *text)
{
	uint32_t index = text->failed ? UNS_MAP_NO_INDEX : uns_map_index(&s->known, text->p);

	if (index == UNS_MAP_NO_INDEX) {
		index = (uint32_t)s->known.n;
		s->failed |= text->failed || !uns_map_put_index(&s->known, uns_arena_str(&s->texts, text->p), index);
	}
	return index;
}

void shared_texts_print(struct uns_text *out, const struct shared_texts *s)
{
	const char *text;
	void *value;
	size_t i, at = 0;

	for (i = 0; uns_map_next(&s->known, &at, &text, &value); i++) {
		uns_text_str(out, i ? ",\n" : "\n");
		uns_text_str(out, text);
	}
	out->failed |= s->failed;
}

void shared_texts_fini(struct shared_texts *s)
{
	uns_map_fini(&s->known);
	uns_arena_fini(&s->texts);
}
