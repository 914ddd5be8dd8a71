/* What a DeepSpeed engine saves in its model and optimizer files beside tensors, as files of their own
 * that a single process loads without DeepSpeed. */
#ifndef UNS_ZERO_WRITE_ENGINE_FILES_H
#define UNS_ZERO_WRITE_ENGINE_FILES_H

#include "model/tree.h"

/* Of a plain engine: scheduler.bin (lr_scheduler's state dict) and client_state.pt (what the script gave
 * to save_checkpoint, with the engine's counters). Each only where there is something to go into it;
 * what cannot be written is noted. */
int uns_engine_files_add(const struct uns_catalog *cat, struct uns_vtree *out, struct uns_err *err);

/* scaler.pt: fp16's dynamic loss scale as torch.amp.GradScaler.state_dict() has it. Nothing where the
 * scale is not dynamic, or the checkpoint has a file of that name. */
int uns_engine_scaler_add(const struct uns_catalog *cat, struct uns_vtree *out, struct uns_err *err);

#endif
