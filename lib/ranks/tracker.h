/* The file in a run's directory that names the step to resume from, written last of all:
 *
 *   latest_checkpointed_iteration.txt   veRL: "12"
 *   checkpoint_tracker.json             EasyR1: {"last_global_step": 12, "best_global_step": ..,
 * ..}
 *
 * Pure. Source: find_latest_ckpt_path of verl 0.9.1, find_latest_ckpt of EasyR1 b44b311. */
#ifndef UNS_RANKS_TRACKER_H
#define UNS_RANKS_TRACKER_H

#include "base/error.h"
#include "base/span.h"
#include "io/source.h"
#include "model/finding.h"

enum { UNS_TRACKER_MAX_BYTES = 1 << 20 };

/* Both names; ends with NULL. */
extern const char *const uns_rank_trackers[];

/* The step, by the rules of the trainer that reads it. Fails with -EBADMSG, and the reason, if that trainer would fail.
 */
int uns_rank_tracker_parse(const char *name, struct uns_span text, int64_t *step, struct uns_err *err);

/* Is all well with tracker `name` of a directory whose listing is `list`? If not, what is wrong, without file
 * and checkpoint; its texts are in the arena. */
bool uns_rank_tracker_check(const char *name, struct uns_span text, const struct uns_listing *list,
			    struct uns_arena *arena, struct uns_finding *out);

#endif
