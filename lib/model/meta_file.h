/* A torch.save file of plain state beside the shards (Lightning's meta.pt), as a catalog keeps it
 * whole, so that a view can write a file that continues where this one ends:
 *
 *   values   root UNS_META_ROOT, name = key: what the saved dict holds, in its order
 *            root UNS_META_PICKLE, name "": BYTES, the pickle itself without its last opcode (STOP)
 *   tensors  role OTHER, root UNS_META_ROOT, name "0", "1", ...: the storages by key, as U8 */
#ifndef UNS_MODEL_META_FILE_H
#define UNS_MODEL_META_FILE_H

#define UNS_META_ROOT   "meta.pt"
#define UNS_META_PICKLE "meta.pt/data.pkl"

#endif
