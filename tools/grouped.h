/* Findings with one cause are printed once: those of one kind in a checkpoint after the first few as their number, and
 * a note that holds for several checkpoints of a run at the first of them. */
#ifndef TOOLS_GROUPED_H
#define TOOLS_GROUPED_H

#include <stdbool.h>

#include "unshard.h"

struct grouped {
	struct kind *kind; /* of the checkpoint that findings come for */
	size_t n_kinds;
	struct repeated *repeated; /* notes, by run */
	size_t n_repeated;
};

/* Is this finding to be printed? Findings of one checkpoint come one after the other; `begins` with the first. */
bool grouped_add(struct grouped *g, const struct unshard_finding *f, bool begins);
/* The last finding has come: for which other checkpoints the notes hold. */
void grouped_end(struct grouped *g);

#endif
