/* Stage 0: the optimizer is not cut. It is in the model file, and its parameters have numbers instead of names.
 *
 *   fp32         {state: {number: {step, exp_avg, ..}}, param_groups: [{.., params: [number]}]}
 *   bf16, fp16   {optimizer_state_dict: that, fp32_groups: [[tensor of a parameter] of a group], ..} */
#ifndef UNS_ZERO_READ_WHOLE_H
#define UNS_ZERO_READ_WHOLE_H

#include "zero/read/model.h"

/* Add the value "optimizer" of the model files. The weights must have been added. Numbers are not names: a
 * parameter is named where its shape, and the first elements of its fp32 copy where there is one, fit one
 * weight of its file only, and is marked as inferred; tensor-parallel ranks must agree on the names. Where one cannot
 * be named, the whole optimizer is a problem with scope OPTIMIZER. */
int uns_zero_whole_add(struct uns_catalog *cat, const struct uns_zero_modules *modules, struct uns_zero_names *names,
		       struct uns_err *err);

#endif
