/* One-dimensional tensors that ranks' files hold of an optimizer, collected until all files are read. Private to
 * ranks/optim.c, which fills them in, and ranks/unit_states.c, which takes flat units apart. */
#ifndef UNS_RANKS_STRETCHES_H
#define UNS_RANKS_STRETCHES_H

#include "base/map.h"
#include "model/catalog.h"
#include "ranks/params.h"
#include "ranks/units.h"

/* One rank's stretch. */
struct uns_stretch {
	const char *path; /* of its file; NULL = this rank has none */
	enum uns_dtype dtype;
	uint64_t elems, offset_bytes;
	uint32_t file;
	int32_t rank;
};

/* A state of what the optimizer numbers `id`, on all ranks. */
struct uns_stretched {
	size_t id;
	const char *state, *key;
	enum uns_role role;
	struct uns_stretch *by_file;
	struct uns_stretched *next;
};

struct uns_rank_optim {
	struct uns_catalog *cat;
	const struct uns_rank_params *params; /* the model's, in torch's order */
	size_t n_files, n_ids;                /* of the optimizer's one param group */
	struct uns_arena scratch;
	struct uns_map by_key;
	struct uns_stretched *first, **tail;
	bool has_shapes; /* set by the reader: other numbered states have their parameter's shape */
	bool is_refused; /* the stretches cannot be used, and a finding has the reason */
	struct uns_rank_units units; /* of a flat optimizer, once it is known; v NULL = not one */
};

#endif
