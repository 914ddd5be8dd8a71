/* What something was made of: one list of all that was looked at for it, each with what was seen there. io/seen.h adds
 * to it, and looks at all of it again.
 *
 * Threads: a list that has several references is never changed; what adds to it changes a copy. */
#ifndef UNS_IO_INPUTS_H
#define UNS_IO_INPUTS_H

#include "base/map.h"
#include "base/text.h"
#include "io/source.h"

enum uns_input_kind {
	UNS_INPUT_FILE,  /* a file's or a directory's identity, or that there is none */
	UNS_INPUT_THERE, /* whether something of that name is there */
	UNS_INPUT_SINCE, /* whether a file is there that was written at `since_ns` or later */
	UNS_INPUT_NAMES, /* the names in a directory that one of the globs fits */
	UNS_INPUT_PLACE, /* which directory an absolute path leads to: root is NULL */
	UNS_INPUT_KINDS,
};

struct uns_input {
	enum uns_input_kind kind;
	const struct uns_root *root; /* borrowed, unless the list was given it */
	const char *path;
	int64_t since_ns;
	const char *const *globs; /* up to NULL, static; NULL = all names */
	uint64_t seen;            /* a hash of what was seen */
	/* Of names: the directory just before it was listed, and whether it had been so for long enough for its times
	 * to show any change since. */
	struct uns_identity dir;
	bool dir_is_old;
};

struct uns_inputs {
	struct uns_input *v; /* in the order in which they were first looked at */
	size_t n;
	struct uns_inputs_own *own;
};

struct uns_inputs *uns_inputs_new(void); /* NULL = out of memory */
struct uns_inputs *uns_inputs_ref(struct uns_inputs *list);
void uns_inputs_put(struct uns_inputs *list); /* NULL is allowed */

/* Adds a copy, unless the same question about the same path is in the list: its first answer stays. Puts another list
 * in the place of one that has several references. -ENOMEM. */
int uns_inputs_add(struct uns_inputs **list, const struct uns_input *input);
/* Keeps the root open for as long as the list, or a copy of it, lives. */
int uns_inputs_hold_root(struct uns_inputs **list, struct uns_root *root);

/* Hash of all that was seen. Paths count by their last names alone, so that it is the same from whichever directory
 * above them they are looked at. */
uint64_t uns_inputs_hash(const struct uns_inputs *list);

/* As bytes, with what was seen: of a list whose inputs are all below `root`, or below the directories above it that are
 * roots as well, and have no globs. -ENOTSUP: some are not. */
int uns_inputs_pack(const struct uns_inputs *list, const struct uns_root *root, struct uns_text *out);
/* Takes such bytes off the front of *bytes; paths stay in them, the array is in the arena. -EBADMSG. */
int uns_inputs_unpack(struct uns_span *bytes, const struct uns_root *root, struct uns_arena *arena,
		      struct uns_input **out, size_t *n);

#endif
