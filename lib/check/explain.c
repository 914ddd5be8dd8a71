/* What is true of every finding of one kind, as the library hands it out. */
#include <errno.h>

#include "api/findings.h"
#include "base/cleanup.h"
#include "check/setting_rules.h"
#include "unshard.h"

typedef int kind_visit(void *ctx, const struct unshard_finding_kind *kind);

static int kind_of_finding(enum uns_finding_id id, kind_visit *visit, void *ctx)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text message = UNS_TEXT_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text advice = UNS_TEXT_INIT;
	const struct uns_finding_words *words = uns_finding_words(id);
	const struct uns_finding any = { .id = id, .code = words->code };
	const char *help = uns_finding_help(id);

	uns_finding_print_form(words->sentence, &message);
	if (help)
		uns_finding_print_form(help, &advice);
	if (message.failed || advice.failed)
		return -ENOMEM;
	return visit(ctx, &(struct unshard_finding_kind){ .size = sizeof(struct unshard_finding_kind),
							  .id = words->name,
							  .group = uns_finding_section(id),
							  .check = uns_finding_check(&any),
							  .severity = finding_severity_of(words->severity),
							  .message = message.p,
							  .cause = uns_finding_cause(id),
							  .advice = advice.p });
}

/* A rule's sentence has the cause and what to change. */
static int kind_of_rule(const struct uns_setting_rule *rule, kind_visit *visit, void *ctx)
{
	return visit(ctx, &(struct unshard_finding_kind){ .size = sizeof(struct unshard_finding_kind),
							  .id = rule->name,
							  .group = "a training's configuration (check --config)",
							  .check = rule->name,
							  .severity = UNSHARD_PROBLEM,
							  .message = rule->sentence });
}

int unshard_finding_kinds(int (*visit)(void *ctx, const struct unshard_finding_kind *kind), void *ctx)
{
	size_t i;
	int code = 0;

	for (i = 0; code == 0 && i < UNS_N_FINDINGS; i++)
		code = kind_of_finding((enum uns_finding_id)i, visit, ctx);
	for (i = 0; code == 0 && i < uns_n_setting_rules; i++)
		code = kind_of_rule(&uns_setting_rules[i], visit, ctx);
	return code;
}
