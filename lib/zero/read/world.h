/* One ZeRO world: the data-parallel ranks that share one optimizer. A checkpoint has one for each
 * model-parallel rank (pipeline stage). Collected first, then put into the catalog. */
#ifndef UNS_ZERO_READ_WORLD_H
#define UNS_ZERO_READ_WORLD_H

#include "zero/read/dir.h"
#include "parallel/autoep.h"
#include "zero/layout.h"
#include "zero/read/optim.h"
#include "parallel/shapes.h"

struct uns_zero_rank {
	uint32_t file; /* of its optimizer's shard; in the catalog, may be missing */
	struct uns_zero_optim *optim; /* NULL: missing or damaged */
};

struct uns_zero_world {
	struct uns_catalog *cat;
	struct uns_arena scratch;
	int32_t mp;
	const char *where; /* the lowest model file's path: what param_shapes comes from */
	const struct uns_value *config; /* its "ds_config"; may be NULL */
	const struct uns_zero_autoep *autoep; /* NULL = AutoEP shared out nothing */
	struct uns_zero_shapes *shapes;
	size_t n_shapes;
	struct uns_zero_spread *spread; /* n_shapes, by uns_zero_world_spread */
	struct uns_zero_rank *rank;
	size_t n_ranks; /* that the optimizer was cut for */
	struct uns_zero_optim *any; /* of the lowest rank that could be read; NULL = none */
	enum uns_scope scope; /* what is lost when a part of the optimizer is */
	bool steps_differ;    /* of its ranks, in one group at least, which has been reported */
	bool broken;          /* a part of it is missing or damaged, which has been reported */
};

/* Read the optimizer's shards, in order of dp. What is wrong becomes a problem with the world's scope;
 * fails only with what is no property of the files. cat, mp, where, config, shapes and scope must be set. */
int uns_zero_world_read(struct uns_zero_world *w, const struct uns_root *root, const struct uns_zero_entry *files,
			size_t n, struct uns_err *err);
void uns_zero_world_fini(struct uns_zero_world *w);

/* Find out which groups' experts the ranks share out, and let shapes have all of them, by the names of the whole model.
 * What cannot be understood is a problem, and `any` NULL then. */
int uns_zero_world_spread(struct uns_zero_world *w, struct uns_err *err);

/* Record a finding with the world's scope; the world is broken then. */
int uns_zero_world_problem(struct uns_zero_world *w, const struct uns_finding *f, struct uns_err *err);
#define UNS_WORLD_PROBLEM(w, err, ...) uns_zero_world_problem((w), UNS_FINDING(.id = UNS_FOUND_##__VA_ARGS__), (err))
/* The same for the finding that `why` has. Fails if `why` is a fault of the moment (uns_catalog_problem_or_fail). */
int uns_zero_world_problem_or_fail(struct uns_zero_world *w, const struct uns_err *why, struct uns_err *err);

/* Put the optimizer's tensors into the catalog: MASTER (root "fp32"), moments and steps (root
 * "optimizer"), for every parameter of every group, whose number in the catalog is group_of[g] of
 * (sub-)group g, -1 = unknown, and positions as they follow. `w` are the worlds of all
 * slices->n_ranks tensor-parallel ranks. A group whose partitions do not fit its parameters becomes a
 * problem. Names that `seen` holds already are left out (tied across pipeline stages); others are added
 * with the master's index + 1. */
int uns_zero_states_add(struct uns_zero_world *const *w, const struct uns_zero_slices *slices, const int32_t *group_of,
			struct uns_map *seen, struct uns_err *err);

/* The position in group `group` that its next parameter has. O(n). */
int32_t uns_zero_next_position(const struct uns_catalog *cat, int32_t group);

#endif
