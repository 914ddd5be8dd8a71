/* A torch distributed checkpoint of tensors that lie elsewhere: all items in one file, each a
 * torch.save file of its own, and `.metadata`, which says where they are. Loaders reshard by
 * themselves.
 *
 *   DIR/.metadata   DIR/__0_0.distcp
 *
 * Source: torch 2.1 to 2.13, torch/distributed/checkpoint/{metadata,filesystem}.py. */
#ifndef UNS_DCP_MADE_H
#define UNS_DCP_MADE_H

#include "model/tree.h"
#include "files/adam_params.h"

/* One directory in the making. */
struct uns_dcp_made;

/* What the files consist of goes into `arena`; `scratch` is needed until uns_dcp_made_finish. */
int uns_dcp_made_new(const struct uns_catalog *cat, struct uns_arena *arena,
		     struct uns_arena *scratch, struct uns_dcp_made **out, struct uns_err *err);

/* {"model": {name: tensor}}: weights and buffers; an optimizer's fp32 copy in a rounded weight's
 * place. by_file_names: tensors of adapters under their names in PEFT's files, not under those in memory. */
int uns_dcp_made_add_model(struct uns_dcp_made *made, bool by_file_names, struct uns_err *err);

/* {"optimizer": {"state": {name: {..}}, "param_groups": [..]}}, as FSDP's optimizer state dicts
 * are. */
int uns_dcp_made_add_optimizer(struct uns_dcp_made *made, const struct uns_adam_params *params,
			       int64_t global_step, struct uns_err *err);

/* Add both files below `dir` ("" = the checkpoint's directory). made must not be used afterwards.
 */
int uns_dcp_made_finish(struct uns_dcp_made *made, const char *dir, struct uns_vtree *out,
			struct uns_err *err);

#endif
