/* Opcodes of a pickle, one after the other: what a mutation moves about, so that what it leaves is still made
 * of opcodes. Knows how long they are and nothing of what they do. */
#ifndef TESTS_FUZZ_PICKLE_OPS_H
#define TESTS_FUZZ_PICKLE_OPS_H

#include "base/span.h"
#include "base/text.h"

struct pickle_op {
	const uint8_t *p;
	size_t len;
	size_t text;   /* where its text or number begins; len = it has none */
	size_t prefix; /* bytes of the length before the text; 0 = it is as long as it is */
};

/* The next opcode of `in`. false: the end, or what is none. */
bool pickle_op_next(struct uns_span *in, struct pickle_op *out);

/* Up to `max` opcodes of `in`, which may be several pickles. What follows the last is *rest. */
size_t pickle_ops(struct uns_span in, struct pickle_op *out, size_t max, struct uns_span *rest);

/* The opcode with other text: its length put right, or cut or filled up to what it is. */
void pickle_op_with(const struct pickle_op *op, struct uns_span text, struct uns_text *out);

#endif
