/* What two checkpoints hold beside tensors: hyper-parameters of param groups, config.json, facts about the training.
 * Private to lib/diff. */
#ifndef UNS_DIFF_VALUES_H
#define UNS_DIFF_VALUES_H

#include "base/map.h"
#include "session/session.h"

struct diff_values {
	struct uns_arena arena; /* zero it before */
	struct uns_map json; /* "config.rope_theta" -> its value as JSON text; equal values have equal texts */
	bool has_config, has_groups;
};

int diff_values_collect(struct unshard *u, const char *checkpoint, struct diff_values *out, struct uns_err *err);
/* Hands over what differs, until `visit` returns anything but 0, which is returned. */
int diff_values_compare(const struct diff_values *a, const struct diff_values *b,
			int (*visit)(void *ctx, const struct unshard_value_diff *diff), void *ctx);
void diff_values_fini(struct diff_values *values);

#endif
