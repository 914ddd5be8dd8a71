/* Optimizers whose parameters have numbers instead of names: what a script saves that passes optimizer.state_dict()
 * to torch.distributed.checkpoint. Private to dcp/. Works on the catalog; reads no files. */
#ifndef UNS_DCP_NUMBERED_H
#define UNS_DCP_NUMBERED_H

#include "model/catalog.h"

/* Call it when the catalog has all tensors and groups. A numbered state belongs to no weight by its name. If its shape
 * is not one that the state of a weight has, a finding reports it: FSDP1's flat parameters have other shapes, each
 * rank's states are a part, and such a save keeps those of one rank. `where` is the directory, for findings. */
int uns_dcp_numbered_judge(struct uns_catalog *cat, const char *where, struct uns_err *err);

#endif
