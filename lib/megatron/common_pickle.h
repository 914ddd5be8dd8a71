/* What the catalog keeps of Megatron-Core's common state, so that a view can write a common.pt that begins as the saved
 * one (uns_torch_input's `front`): all that only Python can make again, such as the training's arguments, stays byte
 * for byte what was saved.
 *
 *   values   root UNS_MEGATRON_PICKLE, name "": BYTES, a pickled dict without its last opcode (STOP);
 *                                               or STR, why it is not kept
 *            root UNS_MEGATRON_STORAGE, name "0", "1", ...: BYTES, the storages that it refers to
 *            root UNS_MEGATRON_COMMON, name UNS_MEGATRON_CONTENT: DICT, if there is one
 *                                      name UNS_MEGATRON_SCALER: True, if an optimizer has a loss scale (fp16)
 *                                      name UNS_MEGATRON_SCHEDULE: True, if it has the schedule's state
 *
 * Works on bytes; opens no files. */
#ifndef UNS_MEGATRON_COMMON_PICKLE_H
#define UNS_MEGATRON_COMMON_PICKLE_H

#include "base/text.h"
#include "model/catalog.h"
#include "megatron/common_file.h"
#include "wire/torchfile.h"

#define UNS_MEGATRON_PICKLE  "common.pt/data.pkl"
#define UNS_MEGATRON_STORAGE "common.pt/data"

/* How the checkpoint is laid out (content_metadata): megatron-core asks for the same names when it loads. */
#define UNS_MEGATRON_CONTENT "content_metadata"

#define UNS_MEGATRON_SCALER "grad_scaler"

/* Keeps a common.pt that is open. `file`: its index. Reads its pickle and its storages. */
int uns_megatron_common_keep(struct uns_catalog *cat, uint32_t file, const struct uns_torchfile *torch,
			     struct uns_err *err);

/* Records that the state of the schedule was saved. */
int uns_megatron_schedule_keep(struct uns_catalog *cat, uint32_t file, struct uns_err *err);

/* Puts such a pickle together from the objects of Megatron-FSDP's directory (megatron/fsdp.h), each an item of its own.
 * Zero-initialised is empty. */
struct uns_megatron_kept {
	struct uns_text pickle;
	size_t n_keys; /* of the dict of all */
	const char *dict; /* the key whose dict is open; NULL = none */
};

/* Adds object `name`, of the dict that is called `dict` ("" = of no dict); objects of one dict follow each other. item:
 * the bytes of a torch.save file. An object that refers to storages, or that Python's protocol 2 pickler did not write,
 * is left out: returns 1 if it was added, 0 if not. */
int uns_megatron_kept_add(struct uns_megatron_kept *kept, const char *dict, const char *name, struct uns_span item,
			  struct uns_err *err);

/* Ends it, and keeps it as that of `file`. */
int uns_megatron_kept_finish(struct uns_megatron_kept *kept, struct uns_catalog *cat, uint32_t file,
			     struct uns_err *err);

void uns_megatron_kept_fini(struct uns_megatron_kept *kept);

#endif
