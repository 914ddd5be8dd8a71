/* The memo of the pickle machine. Python's pickler puts nearly every value into the memo, and fetches few of them:
 * entries exist only for the numbers that the pickle fetches. Private to the machine. */
#ifndef UNS_WIRE_PICKLE_MEMO_H
#define UNS_WIRE_PICKLE_MEMO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct uns_value;

struct uns_pickle_memo {
	uint64_t *fetched, *put; /* a bit for each number */
	uint32_t *before;        /* for each word of `fetched`: how many bits are set in the words before it */
	struct uns_value **v;    /* an entry for each bit that is set, by number */
	size_t max;
	size_t n_words; /* of `fetched` that have bits, and of `before` */
	size_t bytes;   /* memory of all four */
};

enum { UNS_PICKLE_MEMO_WORD = 64 /* bits */ };

static inline uint64_t uns_pickle_memo_bit(uint64_t at)
{
	return UINT64_C(1) << at % UNS_PICKLE_MEMO_WORD;
}

/* How many bits are set. A processor's own instruction for it is not part of x86-64's first version, and without that
 * compilers call a function that looks at each byte in a table. */
static inline unsigned uns_pickle_memo_count(uint64_t bits)
{
	bits -= bits >> 1 & UINT64_C(0x5555555555555555);
	bits = (bits & UINT64_C(0x3333333333333333)) + (bits >> 2 & UINT64_C(0x3333333333333333));
	bits = (bits + (bits >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
	return (unsigned)(bits * UINT64_C(0x0101010101010101) >> 56);
}

/* Room for numbers up to max. Returns false when out of memory; fini is needed in either case. */
bool uns_pickle_memo_init(struct uns_pickle_memo *memo, size_t max);
void uns_pickle_memo_fini(struct uns_pickle_memo *memo);

/* First call uns_pickle_memo_will_fetch for every number that is fetched (one above max is ignored), then make the
 * entries. */
void uns_pickle_memo_will_fetch(struct uns_pickle_memo *memo, uint64_t at);
bool uns_pickle_memo_make(struct uns_pickle_memo *memo);

/* The entry of a number, which is NULL until something is put there. Returns NULL if the number is never fetched. */
static inline struct uns_value **uns_pickle_memo_entry(const struct uns_pickle_memo *memo, uint64_t at)
{
	const uint64_t word = at / UNS_PICKLE_MEMO_WORD, bit = uns_pickle_memo_bit(at);

	if (word >= memo->n_words || !(memo->fetched[word] & bit))
		return NULL;
	return &memo->v[memo->before[word] + uns_pickle_memo_count(memo->fetched[word] & (bit - 1))];
}

/* Was something put at this number? at must be max or less. */
static inline bool uns_pickle_memo_has(const struct uns_pickle_memo *memo, uint64_t at)
{
	return memo->put[at / UNS_PICKLE_MEMO_WORD] & uns_pickle_memo_bit(at);
}

static inline void uns_pickle_memo_mark_put(struct uns_pickle_memo *memo, uint64_t at)
{
	memo->put[at / UNS_PICKLE_MEMO_WORD] |= uns_pickle_memo_bit(at);
}

#endif
