/* The names and shapes under which Hugging Face publishes the tensors of a Megatron-Core checkpoint. Megatron stacks
 * layers and experts, joins queries, keys and values, joins gate and up, and pads the vocabulary. Pure. */
#ifndef UNS_MEGATRON_NAMES_H
#define UNS_MEGATRON_NAMES_H

#include "names/config.h"
#include "model/tree.h"

/* Is there a table for the family? NULL-safe. */
bool uns_megatron_knows(const char *model_type);

/* Replaces *v (n tensors of `cat`, under Megatron's names) by the published tensors, in the order of the model's state
 * dict, and names the table in a note of `out`. Fails with -EBADMSG and the tensor's name if a published tensor is not
 * found in *v, a tensor of *v is not used, or a stored shape is not the one that `config` demands (config.json's text;
 * `info` is its parsed form). If there is no table for the family, *v stays, and there is a note. *v is malloc'd before
 * and after; names, slices, and tensors made of blocks (model/block_tensor.h, without a slice) live in out->arena. */
int uns_megatron_apply(const struct uns_catalog *cat, const struct uns_config_info *info, struct uns_span config,
		       struct uns_named_tensor **v, size_t *n, struct uns_vtree *out, struct uns_err *err);

/* The same of a family that is known, with this note about the names (NULL = none). */
int uns_megatron_apply_model(const struct uns_catalog *cat, const struct uns_config_info *info, struct uns_span config,
			     struct uns_named_tensor **v, size_t *n, const char *note, struct uns_vtree *out,
			     struct uns_err *err);

/* The same of tensors of an optimizer's state, under their parameters' names. Parameters without the state are left
 * out. Names and slices live in the arena; there are no notes. */
int uns_megatron_apply_states(const struct uns_catalog *cat, const struct uns_config_info *info, struct uns_span config,
			      struct uns_named_tensor **v, size_t *n, struct uns_arena *arena, struct uns_err *err);

/* A tensor that lies beside a matrix of weights: what an adapter has of it. */
struct uns_megatron_part {
	const char *stored, *published; /* in its two names, in place of the weight's ".weight" at the end */
	enum uns_megatron_has {
		UNS_MG_HAS_ROWS,    /* one of its rows for each of the weight's: [rows, rank] */
		UNS_MG_HAS_COLUMNS, /* [rank, columns] */
		UNS_MG_HAS_NUMBERS, /* a number for each row of the weight */
	} has;
	const char *only;   /* of the published weights whose names end so, of each alone; NULL = of all */
	bool whole_columns; /* fails if it was cut along its columns */
};

/* The same of all stored tensors of this part, which *v lists, of as many weights as have it. What is published is a
 * stored tensor, or one of blocks (model/block_tensor.h), without a slice. *at: a tensor that is stored once for all
 * experts of a layer, and published of each; NULL = there is none. Fails with -ENOTSUP if the published weight is not
 * rows of the stored one: *at is the tensor then, NULL = no certain one. */
int uns_megatron_apply_part(const struct uns_catalog *cat, const struct uns_config_info *info, struct uns_span config,
			    const struct uns_megatron_part *part, struct uns_named_tensor **v, size_t *n,
			    const struct uns_tensor **at, struct uns_arena *arena, struct uns_err *err);

#endif
