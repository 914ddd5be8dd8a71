/* What a training script saved through DeepSpeed's engine (its client_state), as a catalog keeps it:
 *
 *   values   root UNS_CLIENT_ROOT, name = key
 *   tensors  role OTHER, root UNS_CLIENT_ROOT, name = key: a key that is a tensor
 *            role OTHER, root UNS_CLIENT_INSIDE "KEY", name "0", "1", ...: those inside the value KEY,
 *            in the order in which wire/value_map.h visits them */
#ifndef UNS_MODEL_CLIENT_STATE_H
#define UNS_MODEL_CLIENT_STATE_H

#define UNS_CLIENT_ROOT   "client_state"
#define UNS_CLIENT_INSIDE UNS_CLIENT_ROOT "/"

#endif
