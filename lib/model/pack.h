/* The numbers and texts of a packed catalog (model/catalog_pack.c has its form), in both directions: a field is given
 * its own value, which is written and comes back, or is not looked at, and what is read comes back. So nothing can be
 * written in another order than it is read.
 *
 * Every number is a varint, a signed one zigzag; every text is written once and named by its number afterwards. */
#ifndef UNS_MODEL_PACK_H
#define UNS_MODEL_PACK_H

#include "base/span.h"
#include "base/text.h"
#include "model/catalog.h"

enum { PACK_RECENT_TEXTS = 64, PACK_RECENT_CUTS = 8 };

struct pack {
	struct uns_catalog *cat; /* being filled; or written, and not changed */
	const struct uns_root *root;
	bool anywhere; /* not of this machine and this SOURCE */
	uintptr_t n_texts;

	/* of pieces (pack_pieces.h) */
	size_t n_pieces; /* of all tensors */
	uint64_t *column; /* of one tensor's pieces */
	size_t cap_column;

	/* writing */
	struct uns_text *out; /* NULL = reading */
	size_t at; /* in `out`, where pieces begin */
	struct uns_map texts; /* text -> its number */
	size_t turn; /* in `texts` */
	struct pack_recent {
		const char *text; /* many fields have the same one: roots, and keys that are names */
		uint64_t number;
	} recent[PACK_RECENT_TEXTS];
	struct uns_map cuts; /* shape and number of pieces -> struct pack_cut */
	struct pack_cut {
		size_t last; /* such tensor's index */
	} *cut[PACK_RECENT_CUTS]; /* a few, which most tensors have */
	unsigned n_cuts;
	struct uns_arena scratch;

	/* reading: after the first thing that is wrong everything reads as 0, and `bad` stays */
	struct uns_span in;
	const char **text;
	size_t cap_texts;
	bool bad, no_memory;
};

void pack_fini(struct pack *p);

uint64_t pack_u64(struct pack *p, uint64_t v);
int64_t pack_i64(struct pack *p, int64_t v);
int32_t pack_i32(struct pack *p, int32_t v);
/* A number below `bound`. */
uint64_t pack_below(struct pack *p, uint64_t v, uint64_t bound);
bool pack_yes(struct pack *p, bool v);
/* Of shapes, boxes and strides: n numbers. */
void pack_dims(struct pack *p, uint64_t *dim, uint32_t n);
/* How many elements follow, each of at least one byte: never more than there are bytes. */
size_t pack_count(struct pack *p, size_t n);

const char *pack_bytes(struct pack *p, const char *v, size_t *n);
const char *pack_text_or_null(struct pack *p, const char *s);
const char *pack_text(struct pack *p, const char *s);

/* Memory in the catalog's arena; only while reading. NULL makes p bad. */
void *pack_room(struct pack *p, size_t n, size_t size);

/* What went wrong so far. */
int pack_result(const struct pack *p, struct uns_err *err);

#endif
