/* A finding as the library hands it out. */
#include "api/findings.h"

#include "base/cleanup.h"

void reason_print(const struct reason *reason, struct uns_text *out)
{
	if (reason->view)
		uns_text_printf(out, "%s: ", reason->view);
	uns_finding_print(reason->finding, out);
}

static const char *printed(const struct uns_datum *d, struct uns_text *text)
{
	uns_datum_print(d, text);
	return text->p;
}

static enum unshard_scope scope_of(enum uns_scope scope)
{
	static const enum unshard_scope of[] = { [UNS_SCOPE_NOTE] = UNSHARD_SCOPE_NOTHING,
						 [UNS_SCOPE_WEIGHTS] = UNSHARD_SCOPE_WEIGHTS,
						 [UNS_SCOPE_OPTIMIZER] = UNSHARD_SCOPE_OPTIMIZER,
						 [UNS_SCOPE_ALL] = UNSHARD_SCOPE_ALL,
						 [UNS_SCOPE_SHARDED] = UNSHARD_SCOPE_SHARDED };

	return of[scope];
}

enum unshard_severity finding_severity_of(enum uns_severity severity)
{
	static const enum unshard_severity of[] = {
		[UNS_PROBLEM] = UNSHARD_PROBLEM, [UNS_NOTE] = UNSHARD_NOTE, [UNS_UNJUDGED] = UNSHARD_UNJUDGED
	};

	return of[severity];
}

int finding_visit(const struct reason *reason, const char *path, enum uns_severity severity, bool general_advice,
		  const struct caller *caller)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text advice = UNS_TEXT_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text expected = UNS_TEXT_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text found = UNS_TEXT_INIT;
	const struct uns_finding *f = reason->finding;
	const char *general =
		general_advice && !uns_finding_words(f->id)->advice ? uns_finding_general_advice(f->code) : NULL;
	struct unshard_finding out = {
		.size = sizeof(out),
		.path = path,
		.check = uns_finding_check(f),
		.severity = finding_severity_of(severity),
		.id = uns_finding_name(f->id),
		.scope = scope_of(f->scope),
		.code = f->code,
		.view = reason->view,
		.file = f->file,
		.rank = f->rank.kind == UNS_DATUM_NUMBER ? f->rank.number : -1,
		.tensor = f->tensor,
		.expected = printed(&f->expected, &expected),
		.found = printed(&f->found, &found),
	};

	if (!caller->calls.finding)
		return 0;
	reason_print(reason, &text);
	uns_finding_print_advice(f, &advice);
	if (general) {
		uns_text_printf(&text, "; %s", general);
		uns_text_str(&advice, general);
	}
	out.text = text.p;
	out.advice = advice.p;
	if (text.failed || advice.failed || expected.failed || found.failed)
		return -ENOMEM;
	return caller->calls.finding(caller->calls.ctx, &out);
}
