/* What an entry of a DCP directory is, by its path: ('model', 'layers.0.weight') is a weight,
 * ('optimizer', 'state', 'layers.0.weight', 'exp_avg') an optimizer state. Private to dcp/.
 *
 * Forms of paths:
 *   (ROOT, name...)                             FSDP, Accelerate, Lightning, torchtitan
 *   (WRAPPER, ROOT, ...)                        a Stateful that holds model and optimizer
 *   (OPTIMIZER, 'state', FQN, state)            torch.distributed.checkpoint.state_dict
 *   (OPTIMIZER, 'param_groups', i, key)
 *   (OPTIMIZER, 'param_groups')                 torch < 2.3: one item
 *   (OPTIMIZER, 'param_to_group_meta', FQN, key)   Megatron-FSDP (megatron/fsdp.h)
 *   (OPTIMIZER, 'state.FQN.state')              flatten_optimizer_state_dict=True (torchtitan)
 *   (OPTIMIZER, 'param_groups.FQN.key')
 *   (ANY..., 'state', FQN, state), (ANY..., 'param_groups', i, key)   an optimizer by its shape, whatever it
 *                                               is called: ("opt", ..), Composer's ("state", "optimizers", NAME, ..)
 *   one flat key                                no planner_data: split on the first known root only */
#ifndef UNS_DCP_NAMES_H
#define UNS_DCP_NAMES_H

#include "model/catalog.h"
#include "dcp/metadata.h"
#include "dcp/roots.h"

enum uns_dcp_what {
	UNS_DCP_IS_WEIGHT,
	UNS_DCP_IS_STATE,       /* optimizer state: name = the parameter's name, state = the state's ("exp_avg") */
	UNS_DCP_IS_GROUPS,      /* the whole list of param groups in one item */
	UNS_DCP_IS_HYPER,       /* one hyper-parameter (state = its key) of param group `group` */
	UNS_DCP_IS_PARAM_HYPER, /* one hyper-parameter (state = its key) of the group that parameter `name` is in */
	UNS_DCP_IS_OTHER,
};

struct uns_dcp_meaning {
	enum uns_dcp_what what;
	enum uns_role role; /* if the entry is a tensor */
	const char *root, *name, *state;
	int64_t group;
	bool deep;     /* one element of a hyper-parameter that was saved element by element: ('betas', 0) */
	bool stray;    /* the flat key looks like a weight's, but planner_data has no path for it */
	bool inferred; /* no path was recorded, so the flat key was split at a dot */
};

struct uns_dcp_naming {
	const struct uns_dcp_roots *roots;
	struct uns_arena *arena; /* the catalog's: the strings in `meaning` live there */
	const char *weight_root[8];
	size_t n_weight_roots;
	/* No root key is known: every tensor that does not look like an optimizer's is a weight. */
	bool rest_is_weights;
	const char *only_root; /* in that case: the root key that all of these tensors share, or NULL */
	const char *two_roots[2]; /* or two of the root keys that they are below; NULL if some are below none */
	const char *wrapper;   /* the key around "model" and "optimizer", or NULL */
	/* Keys joined by dots that have both 'state' and 'param_groups' below them: optimizers. */
	const char *shaped[8];
	size_t n_shaped;
	/* 'state' and 'param_groups' are at the top: the directory holds an optimizer alone. */
	bool bare_optimizer;
	bool has_paths;
	const char *last_root; /* the root that was copied last; it is used again, because roots repeat */
};

/* Looks at all keys and decides which of them are roots. Fails with -ENOTSUP if more than 8 roots are given. */
int uns_dcp_naming_init(struct uns_dcp_naming *naming, const struct uns_dcp_metadata *meta,
			const struct uns_dcp_roots *roots, struct uns_arena *arena, struct uns_err *err);

/* Finds out what an entry is. `key` is the entry's flat key in the naming's arena; names in *meaning may point
 * into it. Fails with -ENOMEM only. */
int uns_dcp_meaning_of(struct uns_dcp_naming *naming, const struct uns_dcp_entry *entry, const char *key,
		       struct uns_dcp_meaning *out, struct uns_err *err);

#endif
