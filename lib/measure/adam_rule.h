/* With which numbers Adam would use a parameter's moments, as far as a checkpoint records them. Private to lib/measure.
 */
#ifndef UNS_MEASURE_ADAM_RULE_H
#define UNS_MEASURE_ADAM_RULE_H

#include "measure/tally.h"
#include "tensors/tensors.h"

/* m: index of the first moments. False = lr, betas, eps or step is not known, or the group records another rule
 * (amsgrad). */
bool adam_rule_of(const unshard_tensors *list, size_t m, struct adam *rule, double *lr);

#endif
