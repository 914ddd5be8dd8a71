/* Values that all ranks save alike (hyper-parameters, schedulers): where two ranks' differ. Pure.
 */
#ifndef UNS_RANKS_VALUES_H
#define UNS_RANKS_VALUES_H

#include <stdbool.h>

#include "base/error.h"
#include "wire/value.h"

struct uns_rank_difference {
	char key[64];               /* of the dict */
	char first[64], second[64]; /* its values for people; "another value" where they are long */
};

/* Compares two dicts. Returns 1 and the first key whose values are not equal, or 0. Opaque values (tensors, objects)
 * are not compared, nor values that are too large or too deep. 0 if either is no dict. */
int uns_rank_values_differ(const struct uns_value *first, const struct uns_value *second,
			   struct uns_rank_difference *out, struct uns_err *err);

#endif
