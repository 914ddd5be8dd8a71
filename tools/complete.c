/* What a shell offers for the last word of a command line: everything that the tables of verbs, flags and options
 * have, and names that exist. One candidate a line, behind a tab what it is. A candidate that ends in '/', '=' or ','
 * is not complete: the shell adds no space. */
#include "complete.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "command.h"
#include "fs.h"
#include "hub.h"
#include "options.h"
#include "text.h"

/* A shell waits for the answer. */
enum { MOST_CANDIDATES = 500, MOST_DIRECTORIES = 200 };

/* The word, and how it begins before the part that is completed ("--view=", "mem=1G,"). */
struct ask {
	const struct command *verb;
	char *const *word; /* behind the verb; the last is completed */
	size_t n;
	const char *kept;   /* printed in front of each candidate */
	size_t n_kept;
	const char *part;   /* the beginning of a candidate */
	size_t n_given;
	char **checkpoint; /* directories that are offered as such */
	size_t n_checkpoints;
};

static void offer_ended(struct ask *a, const char *candidate, const char *end, const char *what)
{
	if (strncmp(candidate, a->part, strlen(a->part)) != 0 || strpbrk(candidate, "\t\n") ||
	    a->n_given++ > MOST_CANDIDATES)
		return;
	printf("%.*s%s%s", (int)a->n_kept, a->kept, candidate, end);
	if (what && *what) {
		putchar('\t');
		text_print(what);
	}
	putchar('\n');
}

static void offer(struct ask *a, const char *candidate, const char *what)
{
	offer_ended(a, candidate, "", what);
}

/* -- names of files -- */

/* The directory of a path that is being written: "runs/ti" -> "runs/"; "" = here. */
static size_t directory_length(const char *part)
{
	const char *slash = strrchr(part, '/');

	return slash ? (size_t)(slash - part) + 1 : 0;
}

static bool is_directory(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_offered(const struct ask *a, const char *path)
{
	size_t i = 0;

	while (i < a->n_checkpoints && strcmp(a->checkpoint[i], path) != 0)
		i++;
	return i < a->n_checkpoints;
}

static void offer_files(struct ask *a, bool directories_alone)
{
	const size_t n = directory_length(a->part);
	char path[4096], where[4096];
	const struct dirent *e;
	DIR *dir;

	snprintf(where, sizeof(where), "%.*s", (int)n, a->part);
	dir = opendir(n ? where : ".");
	while (dir && (e = readdir(dir))) {
		if (*e->d_name == '.' && a->part[n] != '.')
			continue;
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
		    snprintf(path, sizeof(path), "%s%s", where, e->d_name) >= (int)sizeof(path))
			continue;
		if (is_offered(a, path))
			continue;
		if (is_directory(path))
			offer_ended(a, path, "/", "");
		else if (!directories_alone)
			offer(a, path, "");
	}
	if (dir)
		closedir(dir);
}

static int found_checkpoint(void *ctx, const struct unshard_checkpoint *c)
{
	struct ask *a = ctx;
	const size_t n = directory_length(a->part);
	char path[4096], what[128];

	if (!*c->path || snprintf(path, sizeof(path), "%.*s%s", (int)n, a->part, c->path) >= (int)sizeof(path))
		return 0;
	snprintf(what, sizeof(what), c->step < 0 ? "%s" : "%s, step %lld", c->format ? c->format : "?",
		 (long long)c->step);
	offer(a, path, what);
	a->checkpoint[a->n_checkpoints] = strdup(path);
	a->n_checkpoints += a->checkpoint[a->n_checkpoints] != NULL;
	return a->n_checkpoints == MOST_CANDIDATES;
}

static int is_enough(void *ctx, const struct unshard_progress *p)
{
	(void)ctx;
	return p->directories > MOST_DIRECTORIES;
}

/* Directories, and the checkpoints below the one that is written. */
static void offer_checkpoints(struct ask *a)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true };
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = a, .progress = is_enough,
					     .checkpoint = found_checkpoint };
	const size_t n = directory_length(a->part);
	char where[4096];
	unshard *u = NULL;

	a->checkpoint = calloc(MOST_CANDIDATES, sizeof(*a->checkpoint));
	snprintf(where, sizeof(where), "%.*s", (int)n, a->part);
	if (a->checkpoint && unshard_open(n ? where : ".", &options, &u, NULL) == 0)
		unshard_scan(u, &calls, NULL);
	unshard_close(u);
	offer_files(a, true);
	while (a->n_checkpoints)
		free(a->checkpoint[--a->n_checkpoints]);
	free(a->checkpoint);
}

/* -- other names -- */

static void offer_mount(void *ctx, const struct fs_mount *mount)
{
	struct ask *a = ctx;

	offer(a, mount->path, mount->source);
}

static void offer_model(void *ctx, const char *name)
{
	offer(ctx, name, "Hugging Face cache");
}

static void offer_views(struct ask *a)
{
	static const char *const view[] = { "adapter",       "dcp",          "ema",         "full",
					    "full-fsdp",     "mean-",        "merged",      "torch_dist",
					    "torch_dist-ep", "universal",    "weights",     "weights-bf16",
					    "weights-fp16",  "weights-fp32", "weights-fp8", "world-" };
	size_t i;

	for (i = 0; i < sizeof(view) / sizeof(*view); i++)
		offer(a, view[i], "");
}

static int offer_finding(void *ctx, const struct unshard_finding_kind *k)
{
	offer(ctx, k->id, k->check);
	return 0;
}

/* The first word behind the verb that is no flag and no value of one. */
static const char *first_operand(const struct ask *a);

static void offer_tensors(struct ask *a)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true };
	const char *given = first_operand(a);
	char *path = given ? realpath(given, NULL) : NULL, *slash = path ? strrchr(path, '/') : NULL;
	unshard_tensors *list = NULL;
	unshard *u = NULL;
	size_t i;

	if (slash)
		*slash = '\0';
	if (slash && unshard_open(slash == path ? "/" : path, &options, &u, NULL) == 0 &&
	    unshard_tensors_open(u, slash + 1, NULL, &list, NULL) == 0)
		for (i = 0; i < unshard_tensors_count(list); i++)
			if (!unshard_tensors_at(list, i)->state)
				offer(a, unshard_tensors_at(list, i)->name, "");
	unshard_tensors_close(list);
	unshard_close(u);
	free(path);
}

static void offer_words(struct ask *a, const char *words)
{
	char one[64];
	size_t n;

	for (; *words; words += n + (words[n] == '|')) {
		n = strcspn(words, "|");
		snprintf(one, sizeof(one), "%.*s", (int)n, words);
		offer(a, one, "");
	}
}

static void offer_actions(struct ask *a)
{
	const struct action *action = a->verb->actions;

	for (; action && action->name; action++)
		offer(a, action->name, action->help);
}

static void offer_verbs(struct ask *a)
{
	const struct command *const *c;

	for (c = commands; *c; c++)
		if (!(*c)->hidden)
			offer(a, (*c)->name, (*c)->summary);
}

static void offer_options(struct ask *a);

static void offer_names(struct ask *a, enum names names, const char *value)
{
	switch (names) {
	case NAMES_NOTHING:
		return;
	case NAMES_WORDS:
		offer_words(a, value);
		return;
	case NAMES_FILE:
	case NAMES_MOUNTED:
		offer_files(a, false);
		return;
	case NAMES_DIRECTORY:
		offer_files(a, true);
		return;
	case NAMES_CHECKPOINT:
		offer_checkpoints(a);
		return;
	case NAMES_MODEL:
		offer_files(a, true);
		hub_visit(offer_model, a);
		return;
	case NAMES_MOUNT:
		fs_mounts_visit(offer_mount, a);
		return;
	case NAMES_VIEW:
		offer_views(a);
		return;
	case NAMES_TENSOR:
		offer_tensors(a);
		return;
	case NAMES_FINDING:
		unshard_finding_kinds(offer_finding, a);
		return;
	case NAMES_VERB:
		offer_verbs(a);
		return;
	case NAMES_ACTION:
		offer_actions(a);
		return;
	case NAMES_OPTIONS:
		offer_options(a);
		return;
	}
}

/* -- what follows -o: "mem=1G,names=pub" -- */

static const char *last_comma(const char *text)
{
	const char *found = NULL;

	for (; *text; text++)
		if (*text == '\\' && text[1])
			text++;
		else if (*text == ',')
			found = text;
	return found;
}

static void skip(struct ask *a, size_t n)
{
	a->n_kept += n;
	a->part += n;
}

static void option_offer(void *ctx, const struct option_row *row)
{
	struct ask *a = ctx;
	const size_t n = strlen(row->name);
	struct ask value = *a;

	if (row->hidden)
		return;
	if (row->value && !strncmp(a->part, row->name, n) && a->part[n] == '=') {
		skip(&value, n + 1);
		offer_names(&value, row->names, row->value);
	} else {
		offer_ended(a, row->name, row->value ? "=" : "", row->help);
	}
}

static void offer_options(struct ask *a)
{
	const char *comma = last_comma(a->part);

	if (comma)
		skip(a, (size_t)(comma + 1 - a->part));
	options_visit(a->verb->options, option_offer, a);
}

/* -- the verb's own flags and operands -- */

static bool is_flag(const char *word, const struct flag *f)
{
	const size_t n = f->name ? strlen(f->name) : 0;

	if (f->is_short && word[0] == '-' && word[1] == f->code && !word[2])
		return true;
	return n && !strncmp(word, "--", 2) && !strncmp(word + 2, f->name, n) && (!word[2 + n] || word[2 + n] == '=');
}

static const struct flag *flag_of(const struct ask *a, const char *word)
{
	const struct flag *f = a->verb->flags;

	while (f->code && !is_flag(word, f))
		f++;
	return f->code ? f : NULL;
}

/* The flag whose value is the word behind `word`; NULL = none. */
static const struct flag *waits_for_value(const struct ask *a, const char *word)
{
	const struct flag *f = *word == '-' && word[1] ? flag_of(a, word) : NULL;

	return f && f->value && !flag_value_is_optional(f) && !strchr(word, '=') ? f : NULL;
}

/* Those in front of the last word: how many, and the first. */
static size_t count_operands(const struct ask *a, const char **first)
{
	bool only_operands = false;
	size_t i, n = 0;

	*first = NULL;
	for (i = 0; i + 1 < a->n; i++) {
		if (!only_operands && !strcmp(a->word[i], "--")) {
			only_operands = true;
		} else if (!only_operands && waits_for_value(a, a->word[i])) {
			i++;
		} else if (only_operands || a->word[i][0] != '-' || !a->word[i][1]) {
			if (!n++)
				*first = a->word[i];
		}
	}
	return n;
}

static const char *first_operand(const struct ask *a)
{
	const char *first;

	count_operands(a, &first);
	return first;
}

static void offer_flags(struct ask *a)
{
	const struct flag *f;
	char name[64];

	for (f = a->verb->flags; f->code; f++) {
		if (f->name)
			snprintf(name, sizeof(name), "--%s", f->name);
		else
			snprintf(name, sizeof(name), "-%c", f->code);
		offer_ended(a, name, f->name && f->value && !flag_value_is_optional(f) ? "=" : "", f->help);
	}
}

static void offer_operand(struct ask *a)
{
	const char *first;
	size_t n = count_operands(a, &first), last = MOST_OPERANDS;

	while (last && a->verb->names[last - 1] == NAMES_NOTHING)
		last--;
	if (!last || (n >= last && !a->verb->several && !a->verb->actions))
		return;
	offer_names(a, a->verb->names[n < last ? n : last - 1], "");
}

static void complete_of_verb(struct ask *a)
{
	const char *word = a->word[a->n - 1], *equals = strchr(word, '=');
	const struct flag *f = a->n > 1 ? waits_for_value(a, a->word[a->n - 2]) : NULL;

	if (!f && equals && !strncmp(word, "--", 2)) {
		f = flag_of(a, word);
		skip(a, (size_t)(equals + 1 - word));
	}
	if (f && f->value)
		offer_names(a, f->names, f->value);
	else if (*word == '-')
		offer_flags(a);
	else
		offer_operand(a);
}

void complete(char *const *word, size_t n)
{
	struct ask a = { .word = word, .n = n };

	if (!n)
		return;
	a.kept = a.part = word[n - 1];
	if (n == 1 || (n == 2 && !strcmp(word[0], "help"))) {
		offer_verbs(&a);
		if (n == 1)
			offer_words(&a, "help|--help|--version");
		return;
	}
	a.verb = command_find(word[0]);
	a.word++;
	a.n--;
	if (a.verb && !a.verb->hidden)
		complete_of_verb(&a);
}
