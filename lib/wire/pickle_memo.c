#include "wire/pickle_memo.h"

#include <stdlib.h>

bool uns_pickle_memo_init(struct uns_pickle_memo *memo, size_t max)
{
	const size_t n_words = max / UNS_PICKLE_MEMO_WORD + 1;

	*memo = (struct uns_pickle_memo){ .max = max };
	memo->fetched = calloc(n_words, sizeof(*memo->fetched));
	memo->put = calloc(n_words, sizeof(*memo->put));
	memo->bytes = n_words * (sizeof(*memo->fetched) + sizeof(*memo->put));
	return memo->fetched && memo->put;
}

void uns_pickle_memo_fini(struct uns_pickle_memo *memo)
{
	free(memo->fetched);
	free(memo->put);
	free(memo->before);
	free(memo->v);
}

void uns_pickle_memo_will_fetch(struct uns_pickle_memo *memo, uint64_t at)
{
	if (at > memo->max)
		return;
	memo->fetched[at / UNS_PICKLE_MEMO_WORD] |= uns_pickle_memo_bit(at);
	if (at / UNS_PICKLE_MEMO_WORD >= memo->n_words)
		memo->n_words = (size_t)(at / UNS_PICKLE_MEMO_WORD) + 1;
}

bool uns_pickle_memo_make(struct uns_pickle_memo *memo)
{
	size_t i, n = 0;

	memo->before = calloc(memo->n_words + 1, sizeof(*memo->before));
	if (!memo->before)
		return false;
	for (i = 0; i < memo->n_words; i++) {
		memo->before[i] = (uint32_t)n;
		n += uns_pickle_memo_count(memo->fetched[i]);
	}
	memo->bytes += memo->n_words * sizeof(*memo->before) + n * sizeof(*memo->v);
	memo->v = calloc(n + 1, sizeof(struct uns_value *));
	return memo->v;
}
