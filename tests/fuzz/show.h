/* All that the library shows of a directory, as a mount and the command do: whatever is in its files, each call
 * gives what unshard.h promises. What does not is an abort(). */
#ifndef TESTS_FUZZ_SHOW_H
#define TESTS_FUZZ_SHOW_H

#include "base/span.h"
#include "edited.h"
#include "unshard.h"

/* With these options, of which `size` is set, and -o settle=0. */
void show_all(const char *source, struct unshard_options *options);

/* One of n directories, changed by what follows the input's first byte (edited.h), and all of it shown. The byte is
 * n * options + directory; options are bits: weights in small files; names as they were saved, without "model.";
 * units of FSDP1 guessed, random states hidden. What a file import.json in it says is known (`unshard meta import`). */
void show_edited(const struct edited_tree *tree, size_t n, struct uns_span input);

#endif
