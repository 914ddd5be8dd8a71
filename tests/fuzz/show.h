/* All that the library shows of a directory, as a mount and the command do: whatever is in its files, each call
 * gives what unshard.h promises. What does not is an abort(). */
#ifndef TESTS_FUZZ_SHOW_H
#define TESTS_FUZZ_SHOW_H

/* store: a metadata store's file, or NULL. */
void show_all(const char *source, const char *store);

#endif
