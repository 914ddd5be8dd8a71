/* The completion of shells. */
#ifndef TOOLS_COMPLETE_H
#define TOOLS_COMPLETE_H

#include <stddef.h>

/* Print what the last of n words may become; word[0] is the verb, or its beginning. */
void complete(char *const *word, size_t n);

#endif
