/* Names that differ in numbers alone: those of the same tensor of other layers and experts. What is asked of the
 * components of a name has one answer for all of them, if no number has a part in it. */
#ifndef UNS_BASE_ALIKE_H
#define UNS_BASE_ALIKE_H

#include <stdbool.h>

/* Are the names equal but for components (what is between dots) that are numbers in both? "a.1.w", "a.20.w" are. */
bool uns_names_alike(const char *a, const char *b);

enum { UNS_ALIKE_KEPT = 8 };

/* One name of each of the last few sets of names that are alike. Starts zeroed. The names must stay where they are. */
struct uns_alike {
	const char *kept[UNS_ALIKE_KEPT];
	unsigned n, turn; /* turn: which is looked at first, because the tensors of layers and experts take turns */
};

/* The number of the set that the name is in. *is_new: none was like it, and the name is kept under this number now, in
 * place of another if there were too many. */
unsigned uns_alike_find(struct uns_alike *alike, const char *name, bool *is_new);

#endif
