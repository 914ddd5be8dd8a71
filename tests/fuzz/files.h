/* Files that a fuzz target makes of its input, in a directory of its own below $TMPDIR, which goes when the
 * target ends. One thread. Whatever fails here ends the target: it is no finding. */
#ifndef TESTS_FUZZ_FILES_H
#define TESTS_FUZZ_FILES_H

#include "base/span.h"
#include "model/catalog.h"

/* The directory, made at the first call. */
const char *files_dir(void);
/* `name` below it, and the directories on its way. */
void files_put(const char *name, struct uns_span bytes);
void files_remove(const char *name);
/* All of them, and the directories below. */
void files_clear(void);

/* A catalog over the directory, for what adds to one. It is sealed and freed by catalog_done. */
struct files_catalog {
	struct uns_root *root;
	struct uns_catalog *cat;
};
void files_catalog_open(struct files_catalog *out);
void files_catalog_done(struct files_catalog *c);
/* What adding came to: 0, or a negative errno with a sentence. */
void files_expect(int rc, const struct uns_err *err);

#endif
