/* Weights of the experts that AutoEP shared out. At stages 0 to 2 each expert is a file of its own, which holds one
 * index of each of the layer's parameters, {"MODULE.experts.w1.5": tensor, ..}; at stage 3 they are in the optimizer's
 * fp32 copies alone, as all other weights are. */
#ifndef UNS_ZERO_READ_AUTOEP_FILES_H
#define UNS_ZERO_READ_AUTOEP_FILES_H

#include "parallel/autoep.h"
#include "zero/read/dir.h"
#include "zero/read/model.h"

/* Add them; after the optimizer: what is in names->masters is compared. A file that is missing, or does not fit, is a
 * problem with scope WEIGHTS. */
int uns_zero_autoep_files_add(struct uns_catalog *cat, const struct uns_zero_dir *dir,
			      const struct uns_zero_autoep *autoep, struct uns_zero_names *names, struct uns_err *err);

/* Where there are no such files: weights that are their masters rounded, in the dtype of their router, which has been
 * added. */
int uns_zero_autoep_add_rounded(struct uns_catalog *cat, const struct uns_zero_autoep *autoep,
				struct uns_zero_names *names, struct uns_err *err);

/* What is in `module`, the model file's state dict, and was not saved, because it is the second name of a router's
 * tensor, becomes an alias of the first. After both. */
int uns_zero_autoep_add_routers(struct uns_catalog *cat, const struct uns_zero_autoep *autoep,
				const struct uns_value *module, struct uns_zero_names *names, struct uns_err *err);

#endif
