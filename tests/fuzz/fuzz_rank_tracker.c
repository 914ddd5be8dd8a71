/* ranks/tracker.c and names.c: any text as the file that names the last step, in a directory with steps. */
#include "fuzz.h"

#include "files.h"
#include "ranks/tracker.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct uns_entry steps[] = { { "global_step_1", UNS_KIND_DIR }, { "global_step_12", UNS_KIND_DIR } };
	const struct uns_listing list = { steps, 2 };
	struct uns_span text = uns_span_of(data, size);
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_finding found;
	struct uns_err err;
	int64_t step;
	size_t i;

	for (i = 0; uns_rank_trackers[i]; i++) {
		err = (struct uns_err){ 0 };
		files_expect(uns_rank_tracker_parse(uns_rank_trackers[i], text, &step, &err), &err);
		uns_rank_tracker_check(uns_rank_trackers[i], text, &list, &arena, &found);
	}
	uns_arena_fini(&arena);
	return 0;
}
