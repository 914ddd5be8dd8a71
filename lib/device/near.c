#include "device/near.h"

#include <ctype.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { MOST_NODES = 1024, NODES_A_WORD = 8 * sizeof(long) };

/* The first line of a file of the PCI device; NULL = there is none. */
static char *read_line(const char *bus_id, const char *name, char *line, size_t size)
{
	char path[256];
	char *read;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s", bus_id, name);
	f = fopen(path, "re");
	if (!f)
		return NULL;
	read = fgets(line, (int)size, f);
	fclose(f);
	return read;
}

/* "0-15,32-47" */
static bool parse_processors(const char *text, cpu_set_t *out)
{
	unsigned long first, last;
	char *end;

	CPU_ZERO(out);
	for (; isdigit((unsigned char)*text); text = end + (*end == ',')) {
		first = last = strtoul(text, &end, 10);
		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		for (; first <= last && first < CPU_SETSIZE; first++)
			CPU_SET(first, out);
	}
	return CPU_COUNT(out) > 0;
}

void uns_near_find(const struct uns_cuda *cuda, struct uns_near *out)
{
	char bus_id[64], line[4096];
	struct uns_near found = { .known = true };
	long node;
	char *p;

	if (cuda->DeviceGetPCIBusId(bus_id, sizeof(bus_id), cuda->ordinal) != cudaSuccess) {
		cuda->GetLastError();
		return;
	}
	for (p = bus_id; *p; p++) /* CUDA writes 0000:3B:00.0, the kernel 0000:3b:00.0 */
		*p = (char)tolower((unsigned char)*p);
	if (!read_line(bus_id, "numa_node", line, sizeof(line)))
		return;
	node = strtol(line, NULL, 10); /* -1 = none */
	if (node < 0 || node >= MOST_NODES)
		return;
	found.node = (unsigned)node;
	if (read_line(bus_id, "local_cpulist", line, sizeof(line)) && parse_processors(line, &found.processors))
		*out = found;
}

void uns_near_take_memory(const struct uns_near *near)
{
	unsigned long nodes[MOST_NODES / NODES_A_WORD] = { 0 };

	if (!near->known)
		return;
	nodes[near->node / NODES_A_WORD] = 1ul << near->node % NODES_A_WORD;
	syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes,
		MOST_NODES + 1); /* without it memory is as good, and farther */
}

void uns_near_choose(const struct uns_near *near, struct uns_processors *processors)
{
	cpu_set_t both;

	if (!near->known || !processors->known)
		return;
	CPU_AND(&both, &processors->set, &near->processors);
	if (CPU_COUNT(&both))
		processors->set = both;
}
