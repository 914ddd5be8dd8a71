/* A directory of real files, changed as an input says. Members of torch files are changed one by one and put
 * together again with right lengths and CRCs; those of shards of torch.distributed.checkpoint, which lie where its
 * metadata says, only in place.
 *
 * An input is changes one after the other:
 *   file (1 byte), member (1), what (1), at (2), other (2), n (1), n bytes of text
 * where every number is taken modulo what there is. */
#ifndef TESTS_FUZZ_EDITED_H
#define TESTS_FUZZ_EDITED_H

#include "base/span.h"
#include "base/text.h"

/* The files of a directory below tests/golden. skip: an entry of it that is left out, or NULL. */
struct edited_tree {
	const char *golden, *skip;
};

/* They, changed, into files_dir() (files.h). */
void edited_put(const struct edited_tree *tree, struct uns_span changes);

/* The same of one run of bytes, without its opcodes: file and member do not count. */
void edited_bytes(struct uns_span bytes, struct uns_span changes, struct uns_text *out);

#endif
