/* Optimizer param groups, collected key by key as DCP stores them, into the catalog's groups.
 * Private to dcp/. Works on values; reads nothing. */
#ifndef UNS_DCP_GROUPS_H
#define UNS_DCP_GROUPS_H

#include "base/map.h"
#include "model/catalog.h"

struct uns_dcp_group; /* one that is being collected */

struct uns_dcp_groups {
	struct uns_catalog *cat; /* strings and values that are given live in its arena */
	const char *where;       /* the directory, for problems */
	struct uns_arena scratch;
	struct uns_map by_key;
	struct uns_dcp_group *first, **tail;
	size_t n;
};

void uns_dcp_groups_init(struct uns_dcp_groups *groups, struct uns_catalog *cat, const char *where);
void uns_dcp_groups_fini(struct uns_dcp_groups *groups);

/* -ENOMEM only. One key of group `index`; the whole list (torch < 2.3); or one key that is stored
 * with each parameter (flatten_optimizer_state_dict): equal ones make a group at the end. */
int uns_dcp_groups_add_key(struct uns_dcp_groups *groups, const char *root, int64_t index,
			   const char *key, const struct uns_value *value, struct uns_err *err);
int uns_dcp_groups_add_list(struct uns_dcp_groups *groups, const char *root,
			    const struct uns_value *list, struct uns_err *err);
int uns_dcp_groups_add_param_key(struct uns_dcp_groups *groups, const char *root, const char *param,
				 const char *key, const struct uns_value *value,
				 struct uns_err *err);

/* Move what was collected into the catalog; what does not fit together becomes a problem. */
int uns_dcp_groups_finish(struct uns_dcp_groups *groups, struct uns_err *err);

#endif
