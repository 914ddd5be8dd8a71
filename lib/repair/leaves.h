/* Tensors of per-rank files as they were pickled, and the type that each is to have: that of most
 * of its elements over all ranks. Private to lib/repair. */
#ifndef UNS_REPAIR_LEAVES_H
#define UNS_REPAIR_LEAVES_H

#include "repair/repairing.h"
#include "wire/torchfile.h"

enum { REPAIR_MAX_DEPTH = 32 }; /* of a file's values */

/* The same tensor in all files of a set. */
struct repair_votes {
	const char *name; /* its keys, joined by '.' */
	uint64_t elems[UNS_N_DTYPES];
	bool seen[UNS_N_DTYPES];
	enum uns_dtype target; /* NONE = no majority */
};

/* A tensor as one rank has it. */
struct repair_leaf {
	struct repair_votes *votes;
	const struct uns_value *value; /* wrapper and all */
	const struct uns_value **local;
	size_t n_local;
	enum uns_dtype dtype;    /* of the local data */
	enum uns_dtype declared; /* by the wrapper */
	uint64_t n_elems;
};

struct repair_rank {
	const char *path; /* below SOURCE */
	int fd;
	struct uns_open_file open;
	struct uns_reader reader;
	struct uns_torchfile torch;
	struct uns_span pickle;
	struct uns_pickle_trace trace;
	struct repair_leaf *leaf;
	size_t n_leaves, cap_leaves;
};

/* The ranks' files of one kind. */
struct repair_set {
	struct repair *r;
	const char *checkpoint; /* the checkpoint's path */
	struct uns_arena arena;
	struct uns_map votes; /* name -> struct repair_votes */
	struct repair_rank *rank;
	size_t n;
	bool refused; /* it cannot be decided, or done */
};

/* Opens all files and decides. Negative when one cannot be read: nothing is known then. */
int repair_set_read(struct repair_set *set, struct uns_err *err);
void repair_set_fini(struct repair_set *set);
/* As repair_refuse; nothing of this set is rewritten. */
#define repair_set_refuse(set, ...) ((set)->refused = true, repair_refuse((set)->r, __VA_ARGS__))

#endif
