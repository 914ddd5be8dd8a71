/* The facts about one training while they are collected: a list with at most one fact for each key of
 * trainer_state.json, in which the value that was offered first stays, and notes. The sources of facts that
 * training_facts.c asks one after the other. */
#ifndef UNS_FACTS_COLLECT_H
#define UNS_FACTS_COLLECT_H

#include "base/text.h"
#include "facts/siblings.h"
#include "facts/training_input.h"
#include "wire/torchfile.h"

enum { STATE_LIMIT_BYTES = 64 << 20, N_STEPS = 4 };

#define STATE_FILE "trainer_state.json"
#define CALLBACKS  "stateful_callbacks"

/* Does the transformers version that saved this run have TrainerState.stateful_callbacks (4.41 and newer)? UNRECORDED:
 * no file that was read shows it. KNOWN: it has. UNKNOWN: it has not. */
enum callbacks { CALLBACKS_UNRECORDED, CALLBACKS_KNOWN, CALLBACKS_UNKNOWN };

struct collect {
	const struct training_input *in;
	struct training_found *out;
	const char *path;
	struct uns_arena scratch;
	struct siblings siblings;
	struct uns_fact *v; /* at most one for each key */
	size_t n;
	const char **note;
	size_t n_notes, cap_notes;
	enum callbacks callbacks;
	bool failed;          /* out of memory; the arenas remember their own failures */
	struct uns_err fault; /* the first read that failed for a passing reason (-EIO, -EACCES, -EMFILE) */

	/* The training step as each source records it, the most trusted source first. what = NULL: the source was not
	 * read. step < 0: the source records none. */
	struct {
		int64_t step;
		const char *what;
	} step[N_STEPS];
};

/* -- the list -- */

/* Makes room for one fact of each key, and for all notes that can come up. */
int collect_begin(struct collect *c, struct uns_err *err);
/* Returns the outcome: fails if memory was exhausted, or a read failed for a passing reason. */
int collect_end(struct collect *c, struct uns_err *err);
void collect_fini(struct collect *c);

/* `code` is what a read returned. Returns true if the file was read, and false if it is absent or invalid. After a
 * failure of the moment returns false too and keeps it in c->fault. */
bool collect_is_read(struct collect *c, int code, const struct uns_err *why);

__attribute__((format(printf, 2, 3))) void collect_note(struct collect *c, const char *fmt, ...);

/* NULL = no source had the key so far. */
const struct uns_fact *collect_find(const struct collect *c, const char *key);

/* Take a value for `key`, unless an earlier source had one. A value of the wrong type is ignored, and so is a key that
 * trainer_state.json does not have. */
void collect_offer(struct collect *c, const char *key, struct uns_span json, const char *origin, bool assumed);
void collect_offer_number(struct collect *c, const char *key, double value, const char *origin);
/* Offers the value of `key` in a JSON object, if the object has it. */
void collect_offer_member(struct collect *c, const char *key, struct uns_span object, const char *origin);
/* The same for JSON text that was put together; does nothing but remember it if `json` has failed. */
void collect_offer_text(struct collect *c, const char *key, const struct uns_text *json, const char *origin);

/* -- trainer_state.json (state_facts.c) -- */

/* Reads a file whose content must be a JSON object, of which *text is the text. Returns false otherwise; *why has the
 * reason. */
bool state_read(struct collect *c, const char *path, struct uns_span *text, struct uns_err *why);
/* global_step; UNS_UNKNOWN = the state has none. */
int64_t state_step(struct uns_span state);
/* Takes what the checkpoint's own state has that is valid, though the file as a whole is not. step < 0: unknown. */
void state_take_own(struct collect *c, struct uns_span state, int64_t step);
/* Takes what the states of the run's other checkpoints and of its directory have, the nearest first, as far as it is
 * true of this step. */
void state_take_siblings(struct collect *c, int64_t step);
/* If no file names the run's callbacks: assumes that it had none with a state, as a Trainer has by default. */
void state_assume_callbacks(struct collect *c);

/* -- what the trainer saved beside it (saved_facts.c) -- */

/* Takes training_args.json and training_args.bin of a directory. */
void saved_take_args(struct collect *c, const char *dir);
/* The training step by scheduler.pt, by the sharded optimizer's tensors, and by optimizer.pt; UNS_UNKNOWN = not
 * recorded there. */
int64_t saved_scheduler_step(struct collect *c);
int64_t saved_sharded_step(struct collect *c);
int64_t saved_plain_step(struct collect *c);

#endif
