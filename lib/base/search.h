/* Binary search. Use:
 *
 *      UNS_SEARCH(i, x->n, x->v[i].end <= at);
 *
 * `i` becomes the first index in 0 .. n for which the condition, which names it, is false: n when there is
 * none. It must be true of all before that one, and false of all behind it. Cost: O(log n) conditions. */
#ifndef UNS_BASE_SEARCH_H
#define UNS_BASE_SEARCH_H

#define UNS_SEARCH(i, n, is_before)                           \
	do {                                                  \
		__typeof__(i) uns_lo = 0, uns_hi = (n);       \
		while (uns_lo < uns_hi) {                     \
			(i) = uns_lo + (uns_hi - uns_lo) / 2; \
			if (is_before)                        \
				uns_lo = (i) + 1;             \
			else                                  \
				uns_hi = (i);                 \
		}                                             \
		(i) = uns_lo;                                 \
	} while (0)

#endif
