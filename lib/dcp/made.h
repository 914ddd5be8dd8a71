/* A torch distributed checkpoint of tensors that are in other files, under the keys of FSDP's state dicts
 * (dcp/items.h). */
#ifndef UNS_DCP_MADE_H
#define UNS_DCP_MADE_H

#include "model/tree.h"

/* A directory that is being written. */
struct uns_dcp_made;

/* Begins a directory. What its files consist of is allocated in `arena`; `scratch` must live until
 * uns_dcp_made_finish. */
int uns_dcp_made_new(const struct uns_catalog *cat, struct uns_arena *arena, struct uns_arena *scratch,
		     struct uns_dcp_made **out, struct uns_err *err);

/* Adds {"model": {name: tensor}}: weights and buffers. If a weight was rounded and the optimizer has its
 * fp32 copy, the copy is added instead. by_file_names: tensors of adapters get their names in PEFT's files
 * instead of those in memory. */
int uns_dcp_made_add_model(struct uns_dcp_made *made, bool by_file_names, struct uns_err *err);

/* Adds {"optimizer": {"state": {name: {..}}, "param_groups": [..]}}, the form of FSDP's optimizer state dicts: all
 * states of the first optimizer. The catalog must have one. global_step: see uns_optimizer_state_build. */
int uns_dcp_made_add_optimizer(struct uns_dcp_made *made, int64_t global_step, struct uns_err *err);

/* Add both files below `dir` ("" = the checkpoint's directory). made must not be used afterwards.
 */
int uns_dcp_made_finish(struct uns_dcp_made *made, const char *dir, struct uns_vtree *out, struct uns_err *err);

#endif
