/* A finding's sentence, for tests that compare words. */
#ifndef UNS_TESTS_SAID_H
#define UNS_TESTS_SAID_H

#include <stdio.h>

#include "model/finding.h"

/* Valid until it is called three times more. */
static inline const char *said(const struct uns_finding *f)
{
	static char text[4][4096];
	static unsigned turn;
	struct uns_text sentence = UNS_TEXT_INIT;
	char *out = text[turn++ % 4];

	uns_finding_print(f, &sentence);
	snprintf(out, sizeof(text[0]), "%s", sentence.p ? sentence.p : "");
	uns_text_fini(&sentence);
	return out;
}

#endif
