/* The text of a seal, to structures and back. */
#include "seal/seal.h"

#include <inttypes.h>
#include <string.h>

#include "base/array.h"
#include "base/checked.h"
#include "base/path.h"
#include "base/search.h"

#define BEGIN "# unshard-seal "

enum {
	VERSION = 1,
	HASH_DIGITS = 2 * UNS_SHA256_BYTES,
	/* Tied tensors have their bytes in common; a seal whose pieces overlap more would only cost time. */
	MOST_OVERLAP = 64,
};

static const char end_line[] = "# end ";

/* -- emitting -- */

static void emit_name(struct uns_text *t, const char *name)
{
	for (; *name; name++)
		if (*name == '\\')
			uns_text_str(t, "\\\\");
		else if (*name == '\n')
			uns_text_str(t, "\\n");
		else if (*name == '\r')
			uns_text_str(t, "\\r");
		else
			uns_text_add(t, name, 1);
}

static const char *scope_word(enum uns_scope scope)
{
	return scope == UNS_SCOPE_WEIGHTS ? "weights" : scope == UNS_SCOPE_OPTIMIZER ? "optimizer" : "all";
}

static void emit_piece(struct uns_text *t, const struct uns_seal_piece *p)
{
	uns_text_str(t, "#piece ");
	if (p->rank < 0)
		uns_text_str(t, "-");
	else
		uns_text_printf(t, "%" PRId64, p->rank);
	uns_text_printf(t, " %" PRIu64 " %" PRIu64 " %08" PRIx32 " %s ", p->offset_bytes, p->length_bytes, p->crc,
			p->elements);
	emit_name(t, p->tensor);
	uns_text_str(t, "\n");
}

static void emit_file(struct uns_text *t, const struct uns_seal_file *f)
{
	size_t i;

	if (strpbrk(f->name, "\\\n\r"))
		uns_text_str(t, "\\");
	uns_text_hex(t, f->sha256, UNS_SHA256_BYTES);
	uns_text_str(t, "  ");
	emit_name(t, f->name);
	uns_text_printf(t, "\n#file %" PRIu64 " %" PRId64 " %016" PRIx64 " %s\n", f->size_bytes, f->mtime_ns, f->sample,
			scope_word(f->scope));
	for (i = 0; i < f->n_pieces; i++)
		emit_piece(t, &f->piece[i]);
}

void uns_seal_emit(const struct uns_seal *seal, struct uns_text *out)
{
	uint8_t hash[UNS_SHA256_BYTES];
	struct uns_sha256 h;
	size_t i;

	uns_text_printf(out, BEGIN "%d\n# checkpoint ", VERSION);
	emit_name(out, seal->checkpoint);
	uns_text_printf(out, "\n# made %" PRId64 "\n", seal->made_s);
	for (i = 0; i < seal->n_files; i++)
		emit_file(out, &seal->file[i]);
	if (out->failed)
		return;
	uns_sha256_init(&h);
	uns_sha256_add(&h, out->p, out->len);
	uns_sha256_end(&h, hash);
	uns_text_str(out, end_line);
	uns_text_hex(out, hash, UNS_SHA256_BYTES);
	uns_text_str(out, "\n");
}

/* -- parsing -- */

struct parser {
	struct uns_span rest;
	struct uns_arena *arena;
	struct uns_seal *out;
	size_t cap_files, cap_pieces;
	uint64_t piece_bytes; /* of the last file, so far */
	size_t line; /* its number, for sentences */
};

/* A line without its end. */
static bool take_line(struct uns_span *s, struct uns_span *line)
{
	const uint8_t *nl = uns_span_left(s) ? memchr(s->p, '\n', uns_span_left(s)) : NULL;

	if (!nl)
		return false;
	*line = (struct uns_span){ s->p, nl };
	s->p = nl + 1;
	return true;
}

static bool take_text(struct uns_span *s, const char *text)
{
	size_t len = strlen(text);

	if (uns_span_left(s) < len || memcmp(s->p, text, len) != 0)
		return false;
	s->p += len;
	return true;
}

/* A number as it was written: no sign, no zeros in front. */
static bool take_number(struct uns_span *s, uint64_t *out)
{
	const uint8_t *from = s->p;
	uint64_t n = 0;

	for (; s->p < s->end && *s->p >= '0' && *s->p <= '9'; s->p++)
		if (!uns_u64_mul(n, 10, &n) || !uns_u64_add(n, (uint64_t)(*s->p - '0'), &n))
			return false;
	*out = n;
	return s->p > from && (*from != '0' || s->p == from + 1);
}

static bool take_signed(struct uns_span *s, int64_t *out)
{
	const bool negative = take_text(s, "-");
	uint64_t n;

	if (!take_number(s, &n) || n > INT64_MAX || (negative && !n))
		return false;
	*out = negative ? -(int64_t)n : (int64_t)n;
	return true;
}

static int digit_of(uint8_t c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool take_digits(struct uns_span *s, size_t n_digits, uint64_t *out)
{
	uint64_t n = 0;
	int digit;

	if (uns_span_left(s) < n_digits)
		return false;
	for (; n_digits; n_digits--) {
		digit = digit_of(*s->p++);
		if (digit < 0)
			return false;
		n = n << 4 | (uint64_t)digit;
	}
	*out = n;
	return true;
}

static bool take_hash(struct uns_span *s, uint8_t out[UNS_SHA256_BYTES])
{
	uint64_t byte;
	size_t i;

	for (i = 0; i < UNS_SHA256_BYTES; i++) {
		if (!take_digits(s, 2, &byte))
			return false;
		out[i] = (uint8_t)byte;
	}
	return true;
}

static bool at_end(const struct uns_span *s)
{
	return s->p == s->end;
}

/* All that is left, with its escapes resolved; *escaped: there were some. NULL = it is not what emit_name writes
 * (also: empty), or memory is out. */
static char *take_name(struct uns_span *s, struct uns_arena *arena, bool *escaped)
{
	char *name = UNS_NEW_N(arena, char, uns_span_left(s) + 1), *to = name;

	*escaped = false;
	if (!name || at_end(s))
		return NULL;
	for (; s->p < s->end; s->p++) {
		*to = (char)*s->p;
		if (*to == '\\') {
			*escaped = true;
			if (++s->p == s->end)
				return NULL;
			*to = *s->p == '\\' ? '\\' : *s->p == 'n' ? '\n' : *s->p == 'r' ? '\r' : '\0';
		} else if (*to == '\r') {
			return NULL;
		}
		if (!*to)
			return NULL;
		to++;
	}
	return name;
}

/* Below the checkpoint, wherever that is. */
static bool is_clean(const char *name)
{
	const char *at = name, *end;

	for (;; at = end + 1) {
		end = strchr(at, '/');
		end = end ? end : at + strlen(at);
		if (end == at || (end == at + 1 && *at == '.') || (end == at + 2 && at[0] == '.' && at[1] == '.'))
			return false;
		if (!*end)
			return true;
	}
}

static int parse_fail(const struct parser *p, const char *what, struct uns_err *err)
{
	UNS_TRY(uns_arena_check(p->arena, err));
	return uns_fail(err, -EBADMSG, "line %zu is no %s of a seal", p->line, what);
}

static bool next_line(struct parser *p, struct uns_span *line)
{
	p->line++;
	return take_line(&p->rest, line);
}

static int parse_head(struct parser *p, struct uns_err *err)
{
	struct uns_span line;
	bool escaped;

	if (!next_line(p, &line) || !next_line(p, &line) || !take_text(&line, "# checkpoint ") ||
	    !(p->out->checkpoint = take_name(&line, p->arena, &escaped)))
		return parse_fail(p, "checkpoint's name", err);
	if (!next_line(p, &line) || !take_text(&line, "# made ") || !take_signed(&line, &p->out->made_s) ||
	    !at_end(&line))
		return parse_fail(p, "time", err);
	return 0;
}

static bool parse_scope(struct uns_span *line, enum uns_scope *out)
{
	static const enum uns_scope scopes[] = { UNS_SCOPE_WEIGHTS, UNS_SCOPE_OPTIMIZER, UNS_SCOPE_ALL };
	size_t i;

	for (i = 0; i < sizeof(scopes) / sizeof(*scopes); i++) {
		struct uns_span rest = *line;

		*out = scopes[i];
		if (take_text(&rest, scope_word(*out)) && at_end(&rest))
			return true;
	}
	return false;
}

/* The two lines of a file. */
static int parse_file(struct parser *p, struct uns_span line, struct uns_err *err)
{
	struct uns_seal *seal = p->out;
	const bool marked = take_text(&line, "\\");
	struct uns_seal_file f = { 0 };
	bool escaped;

	if (!take_hash(&line, f.sha256) || !take_text(&line, "  ") ||
	    !(f.name = take_name(&line, p->arena, &escaped)) || escaped != marked || !is_clean(f.name))
		return parse_fail(p, "file's name", err);
	if (seal->n_files && strcmp(seal->file[seal->n_files - 1].name, f.name) >= 0)
		return parse_fail(p, "file in order", err);
	if (!next_line(p, &line) || !take_text(&line, "#file ") || !take_number(&line, &f.size_bytes) ||
	    f.size_bytes > INT64_MAX || !take_text(&line, " ") || !take_signed(&line, &f.mtime_ns) ||
	    !take_text(&line, " ") || !take_digits(&line, 16, &f.sample) || !take_text(&line, " ") ||
	    !parse_scope(&line, &f.scope))
		return parse_fail(p, "file's size, time, sample and scope", err);
	if (!UNS_ARENA_ROOM(p->arena, seal->file, seal->n_files, p->cap_files))
		return uns_oom(err);
	seal->file[seal->n_files++] = f;
	p->cap_pieces = 0;
	p->piece_bytes = 0;
	return 0;
}

static const char *take_elements(struct uns_span *s, struct uns_arena *arena)
{
	const uint8_t *from = s->p;

	while (s->p < s->end && *s->p && strchr("0123456789:,+.", *s->p))
		s->p++;
	return s->p > from ? uns_arena_strn(arena, (const char *)from, (size_t)(s->p - from)) : NULL;
}

static int parse_piece(struct parser *p, struct uns_span line, struct uns_err *err)
{
	struct uns_seal_file *f = p->out->n_files ? &p->out->file[p->out->n_files - 1] : NULL;
	struct uns_seal_piece piece = { .rank = -1 };
	bool escaped;
	uint64_t crc;

	if (!f || (!take_text(&line, "-") && (!take_signed(&line, &piece.rank) || piece.rank < 0)) ||
	    !take_text(&line, " ") || !take_number(&line, &piece.offset_bytes) || !take_text(&line, " ") ||
	    !take_number(&line, &piece.length_bytes) || !take_text(&line, " ") || !take_digits(&line, 8, &crc) ||
	    !take_text(&line, " ") || !(piece.elements = take_elements(&line, p->arena)) || !take_text(&line, " ") ||
	    !(piece.tensor = take_name(&line, p->arena, &escaped)))
		return parse_fail(p, "piece", err);
	piece.crc = (uint32_t)crc;
	if (!uns_inside(piece.offset_bytes, piece.length_bytes, f->size_bytes))
		return parse_fail(p, "piece inside its file", err);
	if (f->n_pieces && f->piece[f->n_pieces - 1].offset_bytes > piece.offset_bytes)
		return parse_fail(p, "piece in order", err);
	if (!uns_u64_add(p->piece_bytes, piece.length_bytes, &p->piece_bytes) ||
	    p->piece_bytes / MOST_OVERLAP > f->size_bytes)
		return parse_fail(p, "piece among others that overlap little", err);
	if (!UNS_ARENA_ROOM(p->arena, f->piece, f->n_pieces, p->cap_pieces))
		return uns_oom(err);
	f->piece[f->n_pieces++] = piece;
	return 0;
}

/* The first line has the version; the last proves that nothing is missing or changed. p->rest becomes what is
 * between. */
static int check_whole(struct parser *p, struct uns_span text, struct uns_err *err)
{
	const size_t last = sizeof(end_line) - 1 + HASH_DIGITS + 1;
	uint8_t expected[UNS_SHA256_BYTES], found[UNS_SHA256_BYTES];
	struct uns_span line, end;
	struct uns_sha256 h;
	uint64_t version;

	if (!take_text(&text, BEGIN))
		return uns_fail(err, -EBADMSG, "it does not begin as a seal does (\"" BEGIN "%d\")", VERSION);
	text.p -= sizeof(BEGIN) - 1;
	end = text;
	if (uns_span_left(&text) > UNS_SEAL_MAX_BYTES)
		return uns_fail(err, -EBADMSG, "it has more bytes than a seal may have");
	line = text;
	if (!take_line(&end, &line) || !take_text(&line, BEGIN) || !take_number(&line, &version) || !at_end(&line))
		return uns_fail(err, -EBADMSG, "its first line names no version of a seal");
	if (version != VERSION)
		return uns_fail(err, -ENOTSUP, "it is of version %" PRIu64 "; this unshard reads version %d", version,
				VERSION);
	if (uns_span_left(&text) <= last)
		return uns_fail(err, -EBADMSG, "it is truncated: its last line is missing");
	end = (struct uns_span){ text.end - last, text.end };
	p->rest = (struct uns_span){ text.p, end.p };
	if ((p->rest.end[-1] != '\n') || !take_text(&end, end_line) || !take_hash(&end, expected) ||
	    !take_text(&end, "\n"))
		return uns_fail(err, -EBADMSG, "it is truncated, or was changed: its last line is not its checksum");
	uns_sha256_init(&h);
	uns_sha256_add(&h, text.p, uns_span_left(&p->rest));
	uns_sha256_end(&h, found);
	if (memcmp(expected, found, sizeof(found)) != 0)
		return uns_fail(err, -EBADMSG,
				"it was changed after it was made: its checksum is not that of its last line");
	return 0;
}

int uns_seal_parse(struct uns_span text, struct uns_arena *arena, struct uns_seal *out, struct uns_err *err)
{
	struct parser p = { .arena = arena, .out = out };
	struct uns_span line;

	*out = (struct uns_seal){ 0 };
	UNS_TRY(check_whole(&p, text, err));
	UNS_TRY(parse_head(&p, err));
	while (next_line(&p, &line))
		UNS_TRY(take_text(&line, "#piece ") ? parse_piece(&p, line, err) : parse_file(&p, line, err));
	return 0;
}

const struct uns_seal_file *uns_seal_find(const struct uns_seal *seal, const char *name)
{
	size_t i;

	UNS_SEARCH(i, seal->n_files, strcmp(seal->file[i].name, name) < 0);
	return i < seal->n_files && strcmp(seal->file[i].name, name) == 0 ? &seal->file[i] : NULL;
}
