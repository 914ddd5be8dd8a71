/* A shell command in a test's own directory; the test fails when the command does. */
#ifndef TESTS_SHELL_H
#define TESTS_SHELL_H

#include <stdio.h>
#include <stdlib.h>

static inline void shell(const char *dir, const char *command)
{
	char text[4096];
	int n = snprintf(text, sizeof(text), "cd %s && { %s; }", dir, command);

	if (n < 0 || (size_t)n >= sizeof(text) || system(text) != 0)
		fail_msg("%s", text);
}

#endif
