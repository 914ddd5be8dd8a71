/* What a verb takes on its command line, as a table: getopt's own tables, --help and the completion of shells are made
 * from it. */
#ifndef TOOLS_FLAGS_H
#define TOOLS_FLAGS_H

#include <stdbool.h>
#include <stddef.h>

/* What a value or an argument names. Shells complete it. */
enum names {
	NAMES_NOTHING, /* a number or a word: nothing is offered */
	NAMES_WORDS,   /* one of those in `value`, with | between them */
	NAMES_FILE,
	NAMES_DIRECTORY,
	NAMES_CHECKPOINT, /* or a directory that has some */
	NAMES_MODEL,      /* a directory, or ORG/NAME of the local Hugging Face cache */
	NAMES_MOUNT,      /* a mount point of unshard */
	NAMES_MOUNTED,    /* a path in a mount */
	NAMES_VIEW,
	NAMES_TENSOR, /* of the checkpoint that is the first argument */
	NAMES_FINDING,
	NAMES_VERB,
	NAMES_OPTIONS, /* what follows -o */
	NAMES_ACTION,  /* of the verb */
};

struct flag {
	int code;           /* what flags_next returns; the letter, if it has a short form */
	const char *name;   /* without "--"; NULL = only the short form */
	bool is_short;      /* "-f" too */
	const char *value;  /* "FILE"; "[=GLOB]" = may be left out; NULL = takes none */
	const char *help;
	enum names names;   /* of the value */
};

/* A word in place of the first argument: `unshard meta list`. */
struct action {
	const char *name, *arguments, *help;
};

#define FLAG_JSON(what) { 'j', "json", false, NULL, what, NAMES_NOTHING }
#define FLAG_O          { 'o', NULL, true, "OPTION,...", "see below; may be repeated", NAMES_OPTIONS }
#define FLAG_STORE      { 'S', "store", false, "FILE|none", "the metadata store's file; as -o store=", NAMES_FILE }
#define FLAG_HELP       { 'h', "help", true, NULL, "this text", NAMES_NOTHING }
#define FLAGS_END       { 0, NULL, false, NULL, NULL, NAMES_NOTHING }

/* getopt_long's next answer, by the table: a flag's code, -1 at the end, '?' after it has printed what is wrong. */
int flags_next(const struct flag *flags, int argc, char **argv);

bool flag_value_is_optional(const struct flag *flag);

#endif
