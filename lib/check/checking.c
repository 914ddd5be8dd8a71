/* How a finding leaves unshard_check: counted, and handed to the visitor. */
#include "check/checking.h"

#include "base/cleanup.h"

int checking_hand_over(struct checking *c, const struct reason *reason, enum uns_severity severity, bool general_advice)
{
	if (severity == UNS_PROBLEM)
		c->counts.problems++;
	else if (severity == UNS_UNJUDGED)
		c->counts.unjudged++;
	else
		c->counts.notes++;
	c->counts.saving += reason->finding->id == UNS_FOUND_STILL_SAVING;
	return finding_visit(reason, c->path, severity, general_advice, &c->caller);
}

int checking_found_as(struct checking *c, const struct uns_finding *f, enum uns_severity severity)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_finding own = *f;
	struct reason reason = { .serious = true };

	own.checkpoint = checking_name(c);
	reason.finding = uns_finding_copy(&arena, &own);
	return reason.finding ? checking_hand_over(c, &reason, severity, false) : -ENOMEM;
}

int checking_found(struct checking *c, const struct uns_finding *f)
{
	return checking_found_as(c, f, uns_finding_severity(f));
}

const char *checking_name(const struct checking *c)
{
	return uns_root_name(c->u->root, c->path);
}
