/* What a training that resumes from the session's view would miss, as findings of unshard_check: a problem is whatever
 * makes it differ from a training that never stopped. */
#include "check/checking.h"

#include "base/cleanup.h"
#include "session/resumes.h"
#include "session/shows.h"

static bool is_missed(const struct uns_vtree *told, const char *note)
{
	size_t i = 0;

	while (i < told->n_missed && told->missed[i] != note)
		i++;
	return i < told->n_missed;
}

/* What the view itself reports before it is loaded. */
static int check_notes(struct checking *c, const struct uns_vtree *told, const char *view)
{
	int code = 0;
	size_t i;

	for (i = 0; i < told->n_notes && code == 0; i++)
		code = checking_found(
			c, UNS_FINDING(.id = is_missed(told, told->note[i]) ? UNS_FOUND_RESUME_DIFFERS
									    : UNS_FOUND_RESUME_NOTED,
				       .scope = UNS_SCOPE_OPTIMIZER,
				       .arg = { { "view", uns_str(view) }, { "cause", uns_str(told->note[i]) } }));
	return code;
}

static int check_files(struct checking *c, struct dir_record *record, struct snapshot *snap, struct uns_arena *arena,
		       const char *view, struct uns_err *err)
{
	const struct session_options *opt = &c->u->opt;
	struct uns_findings misses = { 0 };
	struct resume resume;
	bool known;
	int code = 0;
	size_t i;

	UNS_TRY(resumes_read(c->u, record, snap, opt->only, opt->only_text, opt->only_parameter, arena, &resume, err));
	UNS_TRY(resumes_judge(&resume, record, false, arena, &misses, &known, err));
	for (i = 0; i < misses.n && code == 0; i++)
		code = checking_found(c, &misses.v[i]);
	if (code || known)
		return code;
	return checking_found(c, UNS_FINDING(.id = UNS_FOUND_RESUME_UNKNOWN, .arg = { { "view", uns_str(view) } }));
}

int check_for(struct checking *c, struct dir_record *record, struct snapshot *snap, struct uns_err *err)
{
	const struct session_options *opt = &c->u->opt;
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_vtree_fini) struct uns_vtree told = { 0 };
	struct uns_err why = { .keep = &arena };
	const char *view =
		uns_arena_printf(&arena, "%s%s%s", opt->only->name, *opt->only_text ? "-" : "", opt->only_text);
	bool noted = false;
	enum show_state state;
	int code;

	UNS_TRY_ALLOC(view, err);
	code = show_state_told(c->u, record, snap, opt->only, opt->only_parameter, &noted, &state, &why);
	if (code < 0 && !uns_code_is_finding(code))
		return uns_fail_copy(err, &why);
	if (code < 0 || state != SHOW_OK)
		return checking_found(
			c, UNS_FINDING(.id = UNS_FOUND_RESUME_NO_VIEW, .scope = UNS_SCOPE_OPTIMIZER,
				       .arg = { { "view", uns_str(view) }, { "cause", uns_str(why.text) } }));
	code = check_files(c, record, snap, &arena, view, err);
	if (code)
		return code;
	UNS_TRY(show_notes(c->u, record, snap, opt->only, &told, err));
	return check_notes(c, &told, view);
}
