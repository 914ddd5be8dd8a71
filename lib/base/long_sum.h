/* A sum of many doubles that keeps what each addition loses (Neumaier). */
#ifndef UNS_BASE_LONG_SUM_H
#define UNS_BASE_LONG_SUM_H

#include <math.h>

/* All zeros: nothing was added. */
struct uns_sum {
	double sum, lost;
};

static inline void uns_sum_add(struct uns_sum *to, const struct uns_sum *s)
{
	double sum = to->sum + s->sum;

	to->lost += (fabs(to->sum) >= fabs(s->sum) ? (to->sum - sum) + s->sum : (s->sum - sum) + to->sum) + s->lost;
	to->sum = sum;
}

/* What overflowed has no remainder. */
static inline double uns_sum_value(const struct uns_sum *s)
{
	return isfinite(s->sum) ? s->sum + s->lost : s->sum;
}

#endif
