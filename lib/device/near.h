/* What of the host is near a GPU: the NUMA node whose memory and processors are on the same socket. */
#ifndef UNS_DEVICE_NEAR_H
#define UNS_DEVICE_NEAR_H

#include "base/thread.h"
#include "device/runtime.h"

/* All zero: nothing is known to be near, and nothing is done. */
struct uns_near {
	bool known;
	unsigned node;
	cpu_set_t processors; /* of these, the process may use those that it may use anyway */
};

/* What the kernel reports of the GPU's PCI device. A machine without NUMA, and one that hides its devices, leave it
 * zero. */
void uns_near_find(const struct uns_cuda *cuda, struct uns_near *out);

/* Memory that the calling thread takes from here on comes from the node, as long as it has any. For a thread that ends
 * soon. */
void uns_near_take_memory(const struct uns_near *near);

/* Leaves only the node's processors, if any of these are. */
void uns_near_choose(const struct uns_near *near, struct uns_processors *processors);

#endif
