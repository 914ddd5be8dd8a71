/* What the model lacks, as findings of the check. */
#include "check/checking.h"

#include "base/cleanup.h"
#include "session/wholes.h"

int check_whole(struct checking *c, struct dir_record *record, struct snapshot *snap, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_findings found = { 0 };
	size_t i;
	int code = 0;

	UNS_TRY(wholes_find(c->u, record, snap, &arena, &found, err));
	for (i = 0; i < found.n && code == 0; i++)
		code = checking_found(c, &found.v[i]);
	return code;
}
