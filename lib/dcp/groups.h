/* Collects the optimizer's param groups, which DCP stores key by key, and adds them to the catalog.
 * Private to dcp/. Works on values; reads no files. */
#ifndef UNS_DCP_GROUPS_H
#define UNS_DCP_GROUPS_H

#include "base/map.h"
#include "model/catalog.h"

struct uns_dcp_group; /* a group that is being collected */

struct uns_dcp_groups {
	struct uns_catalog *cat; /* strings and values that callers pass live in its arena */
	const char *where;       /* the directory, for findings */
	struct uns_arena scratch;
	struct uns_map by_key;
	struct uns_dcp_group *first, **tail;
	size_t n;
};

void uns_dcp_groups_init(struct uns_dcp_groups *groups, struct uns_catalog *cat, const char *where);
void uns_dcp_groups_fini(struct uns_dcp_groups *groups);

/* These three take what one item holds: a key of group `index`; the whole list of groups (torch < 2.3); a
 * key that is stored with each parameter (flatten_optimizer_state_dict). In the last case parameters with
 * equal keys become one group at the end. They fail with -ENOMEM only. */
int uns_dcp_groups_add_key(struct uns_dcp_groups *groups, const char *root, int64_t index, const char *key,
			   const struct uns_value *value, struct uns_err *err);
int uns_dcp_groups_add_list(struct uns_dcp_groups *groups, const char *root, const struct uns_value *list,
			    struct uns_err *err);
int uns_dcp_groups_add_param_key(struct uns_dcp_groups *groups, const char *root, const char *param, const char *key,
				 const struct uns_value *value, struct uns_err *err);

/* Adds the groups to the catalog. Groups that contradict each other, or are missing, become findings. */
int uns_dcp_groups_finish(struct uns_dcp_groups *groups, struct uns_err *err);

#endif
