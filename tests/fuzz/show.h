/* All that the library shows of a directory, as a mount and the command do: whatever is in its files, each call
 * gives what unshard.h promises. What does not is an abort(). */
#ifndef TESTS_FUZZ_SHOW_H
#define TESTS_FUZZ_SHOW_H

#include "base/span.h"

/* store: a metadata store's file, or NULL. */
void show_all(const char *source, const char *store);

/* A directory below tests/golden; skip: an entry of it that is left out, or NULL. */
struct show_tree {
	const char *golden, *skip;
};

/* One of n directories, chosen by the input's first byte, changed by what follows (edited.h), and all of it shown. */
void show_edited(const struct show_tree *tree, size_t n, struct uns_span input);

#endif
