/* unshard __complete: what tools/completion's scripts ask. They hold nothing of the tables themselves. */
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "complete.h"

enum { MOST_WORDS = 256 };

/* A command line up to the cursor as a shell splits it, without the program's name: quotes and backslashes go. The
 * last word may be empty. */
static size_t split(const char *line, char *text, char *word[MOST_WORDS])
{
	size_t n = 0;
	char quote = 0;
	bool in_word = false;

	for (; *line; line++) {
		if (!quote && (*line == ' ' || *line == '\t')) {
			if (in_word)
				*text++ = '\0';
			in_word = false;
			continue;
		}
		if (!in_word && n < MOST_WORDS)
			word[n++] = text;
		in_word = true;
		if (!quote && (*line == '\'' || *line == '"'))
			quote = *line;
		else if (quote && *line == quote)
			quote = 0;
		else if (*line == '\\' && quote != '\'' && line[1])
			*text++ = *++line;
		else
			*text++ = *line;
	}
	*text = '\0';
	if (!in_word && n < MOST_WORDS)
		word[n++] = text;
	return n;
}

static int complete_run(const struct command *self, int argc, char **argv)
{
	char *text, *word[MOST_WORDS];
	size_t n;

	(void)self;
	if (argc != 3 || strcmp(argv[1], "--line") != 0) {
		complete(argv + 1, (size_t)argc - 1);
		return EXIT_DONE;
	}
	text = malloc(strlen(argv[2]) + 2);
	if (!text)
		return command_fail("out of memory");
	n = split(argv[2], text, word);
	if (n > 1)
		complete(word + 1, n - 1);
	free(text);
	return EXIT_DONE;
}

const struct command cmd_complete = {
	.name = "__complete",
	.operands = "",
	.arguments = "WORD... | --line LINE",
	.summary = "what a shell offers for the last word",
	.help = "For tools/completion.",
	.example = "unshard __complete show runs/",
	.flags = (const struct flag[]){ FLAGS_END },
	.hidden = true,
	.run = complete_run,
};
