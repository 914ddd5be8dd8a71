/* How the families of models name the experts of a layer: as one tensor that holds all of them (fused), or as one
 * tensor for each expert and projection (split). Pure.
 *
 *     model.layers.0.mlp.experts.gate_up_proj          [experts, 2 * rows, columns]
 *     model.layers.0.mlp.experts.7.gate_proj.weight    [rows, columns]
 *     model.layers.0.mlp.experts.7.up_proj.weight      [rows, columns]
 *
 * Of families that transformers publishes split, both names are those of published_table.h. Of those that it publishes
 * fused, this table has them. */
#ifndef UNS_NAMES_EXPERT_NAMES_H
#define UNS_NAMES_EXPERT_NAMES_H

#include "names/config.h"
#include "names/published_table.h"

struct uns_expert_names {
	/* Rules with `unstack`: from = the fused name, to = the split one. If several have one split name, the first
	 * has the fused name that is published. Other rules of the list are of no experts. */
	const struct uns_name_rule *rule;
	/* Has the fused tensor [experts, columns, rows] where the split ones have [rows, columns]? EITHER: files have
	 * both, and the class in memory has not. */
	enum { UNS_EXPERTS_AS_SPLIT, UNS_EXPERTS_TURNED, UNS_EXPERTS_EITHER } order;
	/* Rows of gate and up take turns in the fused tensor; else all of up's are behind all of gate's. */
	bool interleaved;
};

/* false = the family is not known, or has no experts. */
bool uns_expert_names_of(const struct uns_config_info *config, struct uns_expert_names *out);

/* The rule by which this is the name of a fused tensor, or of a split one; NULL = it is none. Of gate and up, which one
 * fused tensor holds, uns_expert_fused has the first rule. *kept: the length of the name in front of what the rule has.
 * *expert: its number. */
const struct uns_name_rule *uns_expert_fused(const struct uns_expert_names *names, const char *name);
const struct uns_name_rule *uns_expert_split(const struct uns_expert_names *names, const char *name, size_t *kept,
					     uint64_t *expert);

/* Has the name the component "experts", as those of experts have in all families but a few? */
bool uns_expert_like(const char *name);

#endif
