/* A finding: something that is wrong with a checkpoint, or worth knowing about it, as a value: its kind (id) and its
 * particulars, which are the file, rank and tensor, what was expected and what was found. The words are in one table,
 * model/finding_kinds.h, and become a sentence only when a finding is printed: no code decides by a sentence or
 * compares two.
 *
 * A finding borrows its texts. To keep one, make a copy (uns_finding_copy). */
#ifndef UNS_MODEL_FINDING_H
#define UNS_MODEL_FINDING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"

/* The kinds of findings: UNS_FOUND_SHARD_MISSING and so on, one for each row of the table of words. */
enum uns_finding_id {
#define SECTION(TITLE)
#define KIND(ID, ...) UNS_FOUND_##ID,
#include "model/finding_kinds.h"
#undef KIND
#undef SECTION
	UNS_N_FINDINGS,
};

enum uns_severity {
	UNS_PROBLEM, /* something is lost, fails or continues wrongly until it is dealt with */
	UNS_NOTE,    /* worth knowing */
	UNS_UNJUDGED, /* what it is about may be sound or damaged: it cannot be read at this moment, or is being saved
		       */
};

/* What a finding keeps from being served. */
enum uns_scope {
	UNS_SCOPE_NOTE, /* nothing: worth knowing */
	UNS_SCOPE_WEIGHTS,
	UNS_SCOPE_OPTIMIZER, /* optimizer, scheduler: whatever resuming needs besides weights */
	UNS_SCOPE_ALL,
	UNS_SCOPE_SHARDED, /* the sharded form itself: the trainer that wrote it cannot resume from it,
			    * while what is put together from it is whole */
};

/* A text or a number, or nothing. */
struct uns_datum {
	enum { UNS_DATUM_NONE, UNS_DATUM_TEXT, UNS_DATUM_NUMBER } kind;
	union {
		const char *text;
		int64_t number;
	};
};

static inline struct uns_datum uns_str(const char *text) /* NULL = nothing */
{
	return (struct uns_datum){ text ? UNS_DATUM_TEXT : UNS_DATUM_NONE, { .text = text } };
}

static inline struct uns_datum uns_num(uint64_t n)
{
	return (struct uns_datum){ UNS_DATUM_NUMBER, { .number = (int64_t)n } };
}

/* 0 = nothing: for sentences that end in "and N more". */
static inline struct uns_datum uns_more(uint64_t n)
{
	return n ? uns_num(n) : (struct uns_datum){ UNS_DATUM_NONE, { NULL } };
}

/* -1 = nothing. */
static inline struct uns_datum uns_rank(int64_t rank)
{
	return rank >= 0 ? uns_num((uint64_t)rank) : uns_str(NULL);
}

enum { UNS_FINDING_ARGS = 10 };

struct uns_finding {
	enum uns_finding_id id;
	enum uns_scope scope;
	/* -ENODATA incomplete, -EBADMSG damaged, -ENOTSUP unknown, -ENOENT: the checkpoint is whole, and the file that
	 * should name it names another that is not there; 0 for a note. In an initialiser 0 = the code in the table. */
	int code;
	enum uns_severity severity; /* set by uns_finding_copy */

	const char *checkpoint; /* its path; NULL where one is added to a catalog = the catalog's */
	const char *file; /* the file (or directory) that it is about, NULL = no single one */
	const char *tensor; /* as the source calls it; NULL = not about one */
	struct uns_datum rank, expected, found;
	/* Whatever else the sentence names; ends with a NULL name, or when it is full. */
	struct uns_finding_arg {
		const char *name;
		struct uns_datum is;
	} arg[UNS_FINDING_ARGS];
};

/* UNS_FINDING(.id = UNS_FOUND_SHARD_MISSING, .file = path, .arg = { { "shape", uns_str(text) } }) */
#define UNS_FINDING(...) (&(const struct uns_finding){ __VA_ARGS__ })

/* UNS_FAIL_WITH(err, SHARD_MISSING, .file = path): fails because of this finding (uns_fail_with). */
#define UNS_FAIL_WITH(err, ...) uns_fail_with((err), UNS_FINDING(.id = UNS_FOUND_##__VA_ARGS__))

/* A copy in the arena with all its texts, and with code and severity filled in. NULL = out of memory. */
const struct uns_finding *uns_finding_copy(struct uns_arena *arena, const struct uns_finding *f);

/* The same as one block of the heap; free() it. */
struct uns_finding *uns_finding_dup(const struct uns_finding *f);

/* The same kind of thing about the same thing: every field is equal. */
bool uns_finding_equal(const struct uns_finding *a, const struct uns_finding *b);

/* Findings in an arena. */
struct uns_findings {
	struct uns_finding *v;
	size_t n, cap;
};

/* Append a copy; -ENOMEM. */
int uns_findings_add(struct uns_findings *list, struct uns_arena *arena, const struct uns_finding *f,
		     struct uns_err *err);

/* Fail because of it: err gets its code and its sentence and, where the caller keeps findings (err->keep),
 * a copy. Returns the code. */
__attribute__((cold)) int uns_fail_with(struct uns_err *err, const struct uns_finding *f);

/* Fail for the reason that `why` has, with copies of all that it carries: why->keep may go. */
__attribute__((cold)) int uns_fail_copy(struct uns_err *err, const struct uns_err *why);

/* An error as a value: the finding that it carries, or one that only quotes it. Borrows from err. */
struct uns_finding uns_finding_of_err(const struct uns_err *err, enum uns_scope scope);

/* The same, but what only quotes the error is of kind `id`, whose sentence is "{cause}": the error's own. */
struct uns_finding uns_finding_quoting(enum uns_finding_id id, const struct uns_err *err, enum uns_scope scope);

/* The code of the finding about a read that failed with this code (uns_code_is_finding): damage for a link that may not
 * be followed, or leads in circles. */
int uns_finding_code(int code);

/* -- words -- */

/* One kind of finding. A sentence names fields in braces: {file}, {rank}, {tensor}, {expected}, {found},
 * {checkpoint}, or an argument. The checkpoint's path is printed before it: {file} is the path inside
 * the checkpoint, {checkpoint} the last component of its path. {file.name} is the last component of a path,
 * {n|file|files} one of two words.
 * Text in brackets is left out if the finding lacks one of its fields: [ (rank {rank})]; of [A|B], B is printed
 * instead. {?copies} prints nothing, and counts as such a field. */
struct uns_finding_words {
	const char *name; /* stable, for programs */
	const char *check; /* the heading of `unshard check` for it; NULL = by its code (uns_finding_check) */
	int code;
	enum uns_severity severity;
	const char *sentence;
	/* What to do. NULL = only the general advice, "" = nothing. It follows the sentence after "; ", or begins with
	 * other punctuation. */
	const char *advice;
	/* For `unshard explain` and docs/findings.md. NULL = cause: what is true of all kinds of its code; help: the
	 * advice. Has to be there where there is no advice. */
	const char *cause, *help;
};

const struct uns_finding_words *uns_finding_words(enum uns_finding_id id);

/* What helps in general, by the code; NULL = nothing. */
const char *uns_finding_general_advice(int code);

/* The title of the table's section that has it: "torch distributed checkpoints". */
const char *uns_finding_section(enum uns_finding_id id);
/* How it comes about: that of its kind, or what is true of all kinds of its code. */
const char *uns_finding_cause(enum uns_finding_id id);
/* What to do about it, as a template like an advice; never NULL. */
const char *uns_finding_help(enum uns_finding_id id);

const char *uns_finding_name(enum uns_finding_id id); /* "shard_missing" */
const char *uns_finding_check(const struct uns_finding *f); /* "damaged", "tracker", "rng" */
const char *uns_scope_text(enum uns_scope scope); /* "weights" */
/* That of its kind; UNS_UNJUDGED if its code is a fault of this moment, UNS_NOTE if its code is -ENOTSUP and weights do
 * not depend on it. uns_finding_copy records it. */
enum uns_severity uns_finding_severity(const struct uns_finding *f);
const char *uns_severity_text(enum uns_severity severity); /* "problem", "note", "not judged" */

/* The sentence with its advice, on one line whatever names and texts it quotes. */
void uns_finding_print(const struct uns_finding *f, struct uns_text *out);
/* The advice alone; nothing where there is none. */
void uns_finding_print_advice(const struct uns_finding *f, struct uns_text *out);
/* A sentence, an advice or another template as it is for any finding: {file} is FILE, of [A|B] it is A. What a finding
 * adds where there is more of its kind is left out. */
void uns_finding_print_form(const char *template, struct uns_text *out);
/* One of the values that a sentence names, as text; nothing where it is not there. */
void uns_datum_print(const struct uns_datum *d, struct uns_text *out);

#endif
