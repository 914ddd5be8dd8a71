/* An optimizer's states of flat units as states of the parameters in them. Private to ranks/optim.c. */
#ifndef UNS_RANKS_UNIT_STATES_H
#define UNS_RANKS_UNIT_STATES_H

#include "ranks/stretches.h"

/* Fills o->units as o->params->units asks for. Fails with the reason why there is no optimizer. */
int uns_rank_unit_states_find(struct uns_rank_optim *o, struct uns_err *why);

/* Every state of a unit becomes one of each of its parameters, made of ranges; a step counter is each
 * parameter's. The param group lists parameters. summary.units and a note have the origin of the unit map. */
int uns_rank_unit_states_emit(struct uns_rank_optim *o, struct uns_err *err);

#endif
