/* What is known to go wrong with a training config before it is trained with: one row a rule. Pure. */
#ifndef UNS_CHECK_SETTING_RULES_H
#define UNS_CHECK_SETTING_RULES_H

#include "check/settings.h"

enum uns_rule_verdict {
	UNS_RULE_FINE, /* or does not concern this config */
	UNS_RULE_NOTE, /* bad under a condition that a config does not show; the sentence names it
			*/
	UNS_RULE_PROBLEM,
	UNS_RULE_UNJUDGED, /* the version of `needs` decides, and is not known */
};

struct uns_setting_rule {
	const char *name; /* stable: for programs */
	enum uns_rule_verdict (*judge)(const struct uns_settings *s);
	enum uns_package needs; /* of rules that may answer UNS_RULE_UNJUDGED */
	const char *sentence;   /* what happens, its source, what to change */
	/* What depends on this config, behind the sentence; NULL = nothing. */
	const char *(*detail)(const struct uns_settings *s);
};

extern const struct uns_setting_rule uns_setting_rules[];
extern const size_t uns_n_setting_rules;

#endif
