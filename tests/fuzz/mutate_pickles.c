/* libFuzzer's mutations of pickles: opcodes are left out, moved, copied, exchanged, and get other arguments. */
#include "mutate_pickles.h"

#include <stdlib.h>
#include <string.h>

#include "pickle_ops.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);

enum { MAX_OPS = 4096, MAX_TEXT = 64 };

struct cut {
	struct pickle_op op[MAX_OPS];
	size_t n;
	struct uns_span rest;
};

static void put(struct uns_text *out, const struct cut *cut, size_t from, size_t to)
{
	const uint8_t *end = to < cut->n ? cut->op[to].p : cut->rest.p;

	if (from < to)
		uns_text_add(out, cut->op[from].p, (size_t)(end - cut->op[from].p));
}

static void put_changed(struct uns_text *out, const struct pickle_op *op)
{
	uint8_t text[MAX_TEXT];
	size_t len = op->len - op->text;

	if (len > MAX_TEXT)
		len = MAX_TEXT;
	memcpy(text, op->p + op->text, len);
	len = LLVMFuzzerMutate(text, len, MAX_TEXT);
	pickle_op_with(op, uns_span_of(text, len), out);
}

/* Opcodes i .. i + n - 1 make room for something else; j: any other one. */
static void change(struct uns_text *out, const struct cut *cut, unsigned how, size_t i, size_t n, size_t j)
{
	size_t past = i + n < cut->n ? i + n : cut->n;

	put(out, cut, 0, i);
	switch (how) {
	case 0: /* left out */
		break;
	case 1: /* another one before them */
		put(out, cut, j, j + n < cut->n ? j + n : cut->n);
		put(out, cut, i, past);
		break;
	case 2: /* another one in their place */
		put(out, cut, j, j + 1);
		break;
	default:
		put_changed(out, &cut->op[i]);
		past = i + 1;
	}
	put(out, cut, past, cut->n);
	uns_text_add(out, cut->rest.p, uns_span_left(&cut->rest));
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
	static struct cut cut; /* libFuzzer has one thread */
	struct uns_text out = UNS_TEXT_INIT;
	unsigned how;

	cut.n = pickle_ops(uns_span_of(data, size), cut.op, MAX_OPS, &cut.rest);
	how = (unsigned)rand_r(&seed) % 8;
	if (!cut.n || how == 7)
		return LLVMFuzzerMutate(data, size, max);
	change(&out, &cut, how, (size_t)rand_r(&seed) % cut.n, 1 + (size_t)rand_r(&seed) % 4,
	       (size_t)rand_r(&seed) % cut.n);
	if (!out.failed && out.len && out.len <= max) {
		memcpy(data, out.p, out.len);
		size = out.len;
	}
	uns_text_fini(&out);
	return size;
}
