#include "pickle_ops.h"

#include <string.h>

enum { PREFIX = 16, LINE = 32, TWO_LINES = 33, UNKNOWN = 64 };

/* What follows an opcode: so many bytes; PREFIX + n: a length of n bytes, and as many; or lines. */
static unsigned argument(uint8_t op)
{
	static const struct {
		const char *ops;
		unsigned argument;
	} kinds[] = {
		{ "()012NQR]abdelostu}.", 0 },
		{ "\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94\x97\x98", 0 },
		{ "Khq\x80\x82", 1 },
		{ "M\x83", 2 },
		{ "Jjr\x84", 4 },
		{ "G\x95", 8 },
		{ "UC\x8a\x8c", PREFIX + 1 },
		{ "TXB\x8b", PREFIX + 4 },
		{ "\x8d\x8e\x96", PREFIX + 8 },
		{ "FILPSVgp", LINE },
		{ "ci", TWO_LINES },
	};
	size_t i;

	for (i = 0; op && i < sizeof(kinds) / sizeof(*kinds); i++)
		if (strchr(kinds[i].ops, op))
			return kinds[i].argument;
	return UNKNOWN;
}

static bool take_line(struct uns_span *in)
{
	const uint8_t *end = memchr(in->p, '\n', uns_span_left(in));

	return end && uns_span_skip(in, (size_t)(end + 1 - in->p));
}

static bool take_argument(struct uns_span *in, unsigned kind, struct pickle_op *op)
{
	const uint8_t *length;

	if (kind == UNKNOWN)
		return false;
	if (kind >= LINE)
		return take_line(in) && (kind == LINE || take_line(in));
	if (kind < PREFIX)
		return uns_span_skip(in, kind);
	op->prefix = kind - PREFIX;
	op->text += op->prefix;
	return uns_span_take(in, op->prefix, &length) && uns_span_skip(in, uns_le(length, (unsigned)op->prefix));
}

bool pickle_op_next(struct uns_span *in, struct pickle_op *out)
{
	struct uns_span at = *in;
	uint8_t op;

	*out = (struct pickle_op){ .p = in->p, .text = 1 };
	if (!uns_take_u8(&at, &op) || !take_argument(&at, argument(op), out))
		return false;
	out->len = (size_t)(at.p - in->p);
	*in = at;
	return true;
}

size_t pickle_ops(struct uns_span in, struct pickle_op *out, size_t max, struct uns_span *rest)
{
	size_t n = 0;

	while (n < max && pickle_op_next(&in, &out[n]))
		n++;
	*rest = in;
	return n;
}

void pickle_op_with(const struct pickle_op *op, struct uns_span text, struct uns_text *out)
{
	static const uint8_t zeros[8];
	size_t left = uns_span_left(&text), len = op->len - op->text;
	uint64_t length = left;
	size_t i;

	uns_text_add(out, op->p, 1);
	if (op->prefix == 1 && left > UINT8_MAX)
		length = left = UINT8_MAX;
	for (i = 0; i < op->prefix; i++)
		uns_text_add(out, &(uint8_t){ (uint8_t)(length >> (8 * i)) }, 1);
	if (op->prefix || (len && op->p[op->len - 1] == '\n')) {
		uns_text_add(out, text.p, left);
		uns_text_add(out, "\n", op->prefix ? 0 : 1);
		return;
	}
	uns_text_add(out, text.p, left < len ? left : len);
	uns_text_add(out, zeros, left < len ? len - left : 0);
}
