/* A memo that machines share (-o memos=), beside what reading the checkpoint afresh gives. */
#include "base/cleanup.h"
#include "check/checking.h"
#include "session/shared_memos.h"

static bool asked(void *ctx)
{
	struct checking *c = ctx;

	return caller_progress(&c->caller, UNSHARD_READING, 0, 0);
}

int check_memo(struct checking *c, const struct dir_record *record, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_stop stop = { asked, c };
	struct uns_err why = { 0 };
	const char *file, *what;
	struct shared_memo now;
	int code, found;

	if (!c->u->memos.n)
		return 0;
	code = shared_memo_make(&c->u->memos, record, &stop, &now, &why);
	if (code == -ENOMEM || code == -EINTR)
		return uns_fail_copy(err, &why);
	if (code < 0) /* there can be no memo of it; what is wrong with the checkpoint itself was found without one */
		return 0;
	found = shared_memos_differ(&c->u->memos, &now, &arena, &file, &what, err);
	shared_memo_fini(&now);
	if (found <= 0)
		return found;
	return CHECKING_FOUND(c, MEMO_DIFFERS, .arg = { { "memo", uns_str(file) }, { "what", uns_str(what) } });
}
