/* What an entry of a DCP directory is, by its path: ('model', 'layers.0.weight') is a weight,
 * ('optimizer', 'state', 'layers.0.weight', 'exp_avg') an optimizer state. Private to dcp/.
 *
 * Forms that are told apart:
 *   (ROOT, name...)                             FSDP, Accelerate, Lightning, torchtitan
 *   (WRAPPER, ROOT, ...)                        a Stateful that holds model and optimizer
 *   (OPTIMIZER, 'state', FQN, state)            torch.distributed.checkpoint.state_dict
 *   (OPTIMIZER, 'param_groups', i, key)
 *   (OPTIMIZER, 'param_groups')                 torch < 2.3: one item
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
	UNS_DCP_IS_STATE,       /* optimizer state: name = FQN, state = its name */
	UNS_DCP_IS_GROUPS,      /* the whole list of param groups in one item */
	UNS_DCP_IS_HYPER,       /* one key (state) of param group `group` */
	UNS_DCP_IS_PARAM_HYPER, /* one key (state) of the group of parameter `name` */
	UNS_DCP_IS_OTHER,
};

struct uns_dcp_meaning {
	enum uns_dcp_what what;
	enum uns_role role; /* of a tensor here */
	const char *root, *name, *state;
	int64_t group;
	bool deep;     /* part of a hyper-parameter that was taken apart: ('betas', 0) */
	bool numbered; /* state of a parameter that is only numbered */
	bool stray;    /* spelled like a weight's flat key, while its path was not recorded */
	bool inferred; /* the path was not recorded, so it was cut at a dot */
};

struct uns_dcp_naming {
	const struct uns_dcp_roots *roots;
	struct uns_arena *arena; /* the catalog's: strings of places live there */
	const char *weight_root[8];
	size_t n_weight_roots;
	bool rest_is_weights; /* no known root: every tensor that is not optimizer-like */
	const char *only_root; /* then: the one root key that all of them share, or NULL */
	const char *wrapper;   /* key around "model" and "optimizer", or NULL */
	const char *shaped[8]; /* keys joined by dots: below each lie 'state' and 'param_groups' */
	size_t n_shaped;
	bool bare_optimizer;   /* 'state' and 'param_groups' are at the top: an optimizer alone */
	bool has_paths;
	const char *last_root; /* copied last: roots repeat */
};

/* Look at all keys and decide what the roots are. -ENOTSUP for more than 8 roots given. */
int uns_dcp_naming_init(struct uns_dcp_naming *naming, const struct uns_dcp_metadata *meta,
			const struct uns_dcp_roots *roots, struct uns_arena *arena,
			struct uns_err *err);

/* `key` is the entry's flat key in the naming's arena: names may point into it. -ENOMEM only. */
int uns_dcp_meaning_of(struct uns_dcp_naming *naming, const struct uns_dcp_entry *entry,
		     const char *key, struct uns_dcp_meaning *out, struct uns_err *err);

#endif
