/* The shapes of Megatron-Core's optimizer states that were saved as "fully_sharded_model_space" (megatron-core before
 * 0.16, --ckpt-fully-parallel-save). Works on the metadata; reads no files.
 *
 * A parameter of shape [X, Y, Z], of which ranks hold parts of [x, y, z], has states of the shape [X/x, Y/y, Z/z,
 * x*y*z] there: the first indices are the part's, the last one is a flat range of that part's elements, which
 * ranks of data parallelism share:
 *
 *   decoder.layers.mlp.linear_fc2.weight                            [2, 16, 24]
 *   optimizer.state.exp_avg.decoder.layers.mlp.linear_fc2.weight    [2, 1, 2, 192]   of 2 layers, cut in 2 columns
 *     chunk at [1, 0, 1, 100], sizes [1, 1, 1, 92]                  elements 100 to 191 of [1, 16, 12] at [1, 0, 12]
 *
 * A range that begins or ends within a row of its part is several boxes of the parameter.
 *
 * Source: megatron-core 0.13.1, dist_checkpointing/strategies/torch.py (sharded_tensor_to_torch_sharded_tensor) and
 * resharding.py. */
#ifndef UNS_MEGATRON_SPACE_H
#define UNS_MEGATRON_SPACE_H

#include "dcp/metadata.h"

/* Gives such states the shapes of their parameters, and boxes of them as chunks. What does not fit its parameter
 * becomes UNKNOWN, with a sentence. Leaves others as they are. Chunks are put into `arena`, parts of items into the
 * catalog's. */
int uns_megatron_space_restore(struct uns_dcp_metadata *meta, struct uns_arena *arena, struct uns_catalog *cat,
			       struct uns_err *err);

#endif
