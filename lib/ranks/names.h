/* Names of the files that veRL and EasyR1 save, one for each rank and kind:
 *
 *   model_world_size_4_rank_2.pt   optim_world_size_4_rank_2.pt   extra_state_world_size_4_rank_2.pt */
#ifndef UNS_RANKS_NAMES_H
#define UNS_RANKS_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

enum uns_rank_kind { UNS_RANK_MODEL, UNS_RANK_OPTIM, UNS_RANK_EXTRA, UNS_RANK_KINDS };
enum { UNS_RANK_MAX_WORLD = 1 << 16 };

extern const char *const uns_rank_kind_text[UNS_RANK_KINDS]; /* "model", .. */

struct uns_rank_name {
	enum uns_rank_kind kind;
	int64_t world, rank; /* 1 .. UNS_RANK_MAX_WORLD, 0 .. UNS_RANK_MAX_WORLD - 1 */
};

/* false: no such name. */
bool uns_rank_name_parse(const char *name, struct uns_rank_name *out);

/* Without ".pt", which torch leaves out of the names of a file's records. NULL = out of memory. */
char *uns_rank_name_stem(struct uns_arena *arena, enum uns_rank_kind kind, uint64_t world, uint64_t rank);

#endif
