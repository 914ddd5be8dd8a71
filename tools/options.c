/* One table lists the options: parsing, --help and the list in messages come from it. */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hub.h"

enum kind {
	STRING,
	STRINGS, /* a list: may be repeated */
	PATH,
	PATHS,
	PATH_LIST, /* several in one value, with colons between them */
	MODELS, /* DIR or RUN=DIR */
	STORE,  /* a path, or "none" */
	SIZE,
	COUNT,
	NUMBERS, /* N:N..., of descriptors */
	SECONDS, /* 0 sets `to_first` too: the library has a flag for it */
	FLAG,
	CHOICE, /* one of two words */
	ONE_OF, /* one of several words, by its number from 0 on */
	WORD,   /* one word, which switches something on */
};

/* Where a row's value goes: a member of struct options, of the kind's type (see set). */
#define IN_LIBRARY(member) offsetof(struct options, library.member), NOWHERE
#define HERE(member)       offsetof(struct options, member), NOWHERE
enum { NOWHERE = -1 };

/* Verbs that make the files of views, and so read what changes those files. */
#define TREES (VERB_MOUNT | VERB_EXPORT | VERB_WARM)
#define ALL   (TREES | VERB_LS | VERB_SHOW | VERB_CHECK | VERB_DIFF | VERB_SEAL)

/* The headings of --help, in this order. */
enum group { SHOWN, CONFIG, SAVES, RESOURCES, MOUNTED, LOOKING, TESTS, N_GROUPS };
static const char *const group_text[N_GROUPS] = { "what is shown",
						  "config, tokenizer, training",
						  "saves, seals, the metadata store",
						  "memory and disk",
						  "the mount",
						  "when something goes wrong",
						  "for tests" };

struct row {
	enum group group;
	const char *name;
	unsigned verbs; /* that use it */
	enum kind kind;
	const char *value; /* as --help shows it */
	const char *help;
	long to;
	/* Of a CHOICE: set by the first word, as `to` is by the second. Of SECONDS: whether they are 0. Or NOWHERE. */
	long to_first;
};

static const struct row rows[] = {
	{ SHOWN, "view", VERB_MOUNT | VERB_SHOW, STRING, "VIEW", "show this one view at the root instead of all",
	  IN_LIBRARY(view) },
	{ SHOWN, "weights_key", ALL, STRINGS, "KEY",
	  "take weights from this key of the state dict instead of \"model\", \"state_dict\"; may be repeated",
	  HERE(weight_root) },
	{ SHOWN, "strip", TREES | VERB_SHOW | VERB_DIFF, STRING, "PREFIX",
	  "leave PREFIX out in front of the weights' names (\"model.\" of a LightningModule)", IN_LIBRARY(strip) },
	{ SHOWN, "names", TREES | VERB_SHOW | VERB_DIFF, CHOICE, "published|memory",
	  "of weights: those that save_pretrained writes (published), or those that were saved (memory)",
	  IN_LIBRARY(keep_names) },
	{ SHOWN, "assume", ALL, WORD, "fsdp-units",
	  "name FSDP1's flat units (veRL) by torch's order of traversal, where one fits the sizes",
	  IN_LIBRARY(assume_fsdp_units) },
	{ CONFIG, "model", TREES | VERB_SHOW | VERB_CHECK | VERB_DIFF, MODELS, "[RUN=]DIR",
	  "borrow config and tokenizer from DIR, or from ORG/NAME in the local Hugging Face cache (only for RUN below SOURCE); may be repeated",
	  HERE(model) },
	{ SHOWN, "follow", ALL, PATHS, "DIR", "links of SOURCE may lead into DIR; may be repeated", HERE(follow) },
	{ SHOWN, "max_shard_size", TREES | VERB_SHOW, SIZE, "SIZE", "largest weights file made (50GB)",
	  IN_LIBRARY(max_shard_size_bytes) },
	{ RESOURCES, "mem", ALL, SIZE, "SIZE", "memory for metadata and decoded data (128MiB)", IN_LIBRARY(mem_bytes) },
	{ RESOURCES, "cache_dir", ALL & ~(VERB_LS | VERB_SEAL), PATH, "DIR",
	  "where decoded pieces spill to, unlinked ($TMPDIR or /tmp)", IN_LIBRARY(cache_dir) },
	{ RESOURCES, "cache_size", ALL & ~(VERB_LS | VERB_SEAL), SIZE, "SIZE", "at most this much spilled (16GiB)",
	  IN_LIBRARY(cache_size_bytes) },
	{ SAVES, "settle", ALL, SECONDS, "SECONDS",
	  "a checkpoint that may still be written counts as being saved until it was unchanged for this many seconds (60)",
	  offsetof(struct options, library.settle_seconds), offsetof(struct options, library.no_settling) },
	{ SAVES, "store", ALL, STORE, "FILE|none",
	  "metadata store ($XDG_STATE_HOME or ~/.local/state, unshard/store.db)", IN_LIBRARY(store) },
	{ SAVES, "seals", ALL, PATH, "DIR|FILE",
	  "seals are files: DIR/CHECKPOINT.sha256, or FILE.sha256 for one checkpoint (in the metadata store)",
	  IN_LIBRARY(seals) },
	{ SAVES, "memos", (ALL & ~(VERB_SEAL | VERB_WARM)), PATH_LIST, "DIR[:DIR]",
	  "look here for what `unshard warm --write DIR` found out about checkpoints, before reading their metadata",
	  IN_LIBRARY(memos) },
	{ SAVES, "seal", VERB_MOUNT, WORD, "auto", "seal each checkpoint in the background, once it has settled",
	  HERE(seal) },
	{ SAVES, "seal_rate", VERB_MOUNT, SIZE, "SIZE", "with seal=auto: read at most this much a second (200MB)",
	  HERE(seal_bytes_per_s) },
	{ CONFIG, "fact", TREES | VERB_SHOW | VERB_CHECK, STRINGS, "KEY=VALUE",
	  "a value for trainer_state.json where it is missing: train_batch_size=4; may be repeated", HERE(fact) },
	{ SHOWN, "rng", TREES | VERB_SHOW | VERB_CHECK, CHOICE, "keep|hide",
	  "files of random states: show them (keep), or in no view", offsetof(struct options, library.hide_rng),
	  offsetof(struct options, library.keep_rng) },
	{ SHOWN, "mean", VERB_MOUNT | VERB_SHOW | VERB_EXPORT, STRING, "uniform|wsm|ema:D",
	  "what mean-K is: all K alike (uniform), a moving mean of decay D (ema:0.99), or as a falling learning rate "
	  "weighs them (wsm)",
	  IN_LIBRARY(mean) },
	{ SHOWN, "adapters", VERB_MOUNT | VERB_SHOW | VERB_EXPORT, STRING, "A[:X][+B[:X]]",
	  "merged has these of several adapters, what each adds times X (1); A/ below a directory may hold one",
	  IN_LIBRARY(adapters) },
	{ SHOWN, "experts", VERB_MOUNT | VERB_SHOW | VERB_EXPORT, STRING, "split|fused",
	  "weights of experts: a tensor for each (split), one for all of a layer (fused); published: as save_pretrained "
	  "writes them",
	  IN_LIBRARY(experts) },
	{ SHOWN, "crc", VERB_MOUNT | VERB_EXPORT, CHOICE, "free|exact",
	  "CRCs in torch files: those known without reading (free), or all, computed at open", IN_LIBRARY(crc_exact) },
	{ MOUNTED, "allow_other", VERB_MOUNT, FLAG, NULL, "other users may read, as far as mode bits let them",
	  HERE(allow_other) },
	{ MOUNTED, "clones", VERB_MOUNT, NUMBERS, "N:N...",
	  "with MOUNTPOINT /dev/fd/N: further descriptors, cloned from it", HERE(clones) },
	{ MOUNTED, "max_threads", VERB_MOUNT, COUNT, "N", "requests served at once, of each file system (16)",
	  HERE(max_threads) },
	{ MOUNTED, "cache", VERB_MOUNT, ONE_OF, "both|mount|sources",
	  "what the kernel keeps of a file that was read: SOURCE's pages and the mount's (both), or one of them",
	  HERE(cache) },
	{ MOUNTED, "reads", VERB_MOUNT, STRING, "cached|threads|ordered|direct|auto",
	  "how shards are read: through the page cache, asked for ahead by one thread (cached) or by 16 (threads), each "
	  "from front to back, one read at a time (ordered), past the page cache (direct), or as the first large load shows to be fastest (auto, the default)",
	  IN_LIBRARY(reads) },
	{ MOUNTED, "readahead", VERB_MOUNT, COUNT, "KIB", "how far the kernel reads ahead, where it may be set (4096)",
	  HERE(read_ahead_kb) },
	{ LOOKING, "log", ALL, PATH, "FILE",
	  "append log lines to FILE (mount: syslog; mount -f and other verbs: stderr)", HERE(log) },
	{ LOOKING, "debug", ALL, FLAG, NULL, "log more", HERE(debug) },
	{ TESTS, "delay_read_us", ALL, COUNT, "US", "slow every read of SOURCE down by this many microseconds (0)",
	  IN_LIBRARY(delay_read_us) },
};
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

/* Known to libfuse or to the kernel, with or without =VALUE: handed on. */
static const char *const passed_on[] = { "default_permissions",
					 "allow_root",
					 "auto_unmount",
					 "max_background",
					 "max_readahead",
					 "congestion_threshold",
					 "noexec",
					 "noatime",
					 "atime",
					 "dirsync",
					 "context",
					 "fscontext",
					 "defcontext",
					 "rootcontext" };

/* Options that mount(8) and fstab pass on, and that are true or meaningless for this mount. */
static const char *const ignored[] = { "ro",      "rw",    "nosuid",   "nodev",  "suid",    "dev",
				       "exec",    "async", "defaults", "auto",   "noauto",  "nofail",
				       "_netdev", "user",  "users",    "nouser", "relatime" };

static int refuse(struct unshard_error *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static int refuse(struct unshard_error *err, int code, const char *fmt, ...)
{
	va_list ap;

	err->code = code;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return code;
}

static int out_of_memory(struct unshard_error *err)
{
	return refuse(err, -ENOMEM, "out of memory");
}

/* -- ownership -- */

/* Takes `s`; NULL stays NULL. */
static char *own(struct options *o, char *s)
{
	char **grown = s ? realloc(o->owned, (o->n_owned + 1) * sizeof(*grown)) : NULL;

	if (!grown) {
		free(s);
		return NULL;
	}
	o->owned = grown;
	o->owned[o->n_owned++] = s;
	return s;
}

void options_fini(struct options *o)
{
	size_t i;

	for (i = 0; i < o->n_owned; i++)
		free(o->owned[i]);
	free(o->owned);
	free(o->weight_root.v);
	free(o->model.v);
	free(o->follow.v);
	free(o->fact.v);
	free(o->fuse);
}

static int append(struct strings *list, const char *s, struct unshard_error *err)
{
	const char **grown = s ? realloc(list->v, (list->n + 1) * sizeof(*grown)) : NULL;

	if (!grown)
		return out_of_memory(err);
	list->v = grown;
	grown[list->n++] = s;
	return 0;
}

/* -- values -- */

bool options_size(const char *text, uint64_t *bytes)
{
	static const char letters[] = "KMGTP";
	const char *letter;
	char *end;
	unsigned long long n, unit = 1;
	int power;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno || end == text || !isdigit((unsigned char)*text))
		return false;
	letter = *end ? strchr(letters, toupper((unsigned char)*end)) : NULL;
	if (letter) {
		end++;
		unit = strcasecmp(end, "B") ? 1024 : 1000;
		for (power = (int)(letter - letters); power > 0; power--)
			unit *= strcasecmp(end, "B") ? 1024 : 1000;
		if (!strcasecmp(end, "iB") || !strcasecmp(end, "B"))
			end = "";
	} else if (!strcasecmp(end, "B")) {
		end = "";
	}
	return !*end && n && !__builtin_mul_overflow(n, unit, bytes);
}

static bool parse_count(const char *text, uint64_t *out)
{
	char *end;
	unsigned long n;

	errno = 0;
	n = strtoul(text, &end, 10);
	*out = n;
	return !errno && !*end && isdigit((unsigned char)*text) && n < UINT_MAX;
}

/* Absolute, whether it exists or not. */
static char *absolute(struct options *o, const char *path)
{
	char here[PATH_MAX], *whole;

	if (*path == '/')
		return own(o, strdup(path));
	if (!getcwd(here, sizeof(here)) || asprintf(&whole, "%s/%s", here, path) < 0)
		return NULL;
	return own(o, whole);
}

/* A directory, or else a model of the local Hugging Face cache. What is neither is a path: the library reports it. */
static char *model_directory(struct options *o, const char *value)
{
	char snapshot[PATH_MAX];

	if (access(value, F_OK) < 0 && hub_snapshot(value, snapshot))
		return own(o, strdup(snapshot));
	return absolute(o, value);
}

/* A directory whose own name holds '=' wins over RUN=DIR, as in the library. */
static char *absolute_model(struct options *o, const char *value)
{
	const char *equals = strchr(value, '=');
	char *dir, *whole;

	if (!equals || access(value, F_OK) == 0)
		return model_directory(o, value);
	dir = model_directory(o, equals + 1);
	if (!dir || asprintf(&whole, "%.*s=%s", (int)(equals - value), value, dir) < 0)
		return NULL;
	return own(o, whole);
}

int options_store(struct options *o, const char *value, struct unshard_error *err)
{
	o->library.no_store = !strcmp(value, "none");
	o->library.store = o->library.no_store ? NULL : absolute(o, value);
	return o->library.no_store || o->library.store ? 0 : out_of_memory(err);
}

int options_seals(struct options *o, const char *value, struct unshard_error *err)
{
	o->library.seals = absolute(o, value);
	return o->library.seals ? 0 : out_of_memory(err);
}

/* -- what a row sets -- */

static void *member(struct options *o, long at)
{
	return (char *)o + at;
}

static int set_string(struct options *o, const struct row *row, const char *s, struct unshard_error *err)
{
	*(const char **)member(o, row->to) = s;
	return s ? 0 : out_of_memory(err);
}

/* The second word of row->value is the one that switches something on. */
static int set_choice(struct options *o, const struct row *row, const char *value, struct unshard_error *err)
{
	const char *second = strchr(row->value, '|') + 1;
	size_t first = (size_t)(second - row->value) - 1;
	bool on = !strcmp(value, second);

	if (!on && (strlen(value) != first || strncmp(value, row->value, first) != 0))
		return refuse(err, -EINVAL, "%s=%s: expected %s", row->name, value, row->value);
	*(bool *)member(o, row->to) = on;
	if (row->to_first != NOWHERE)
		*(bool *)member(o, row->to_first) = !on;
	return 0;
}

static int set_one_of(struct options *o, const struct row *row, const char *value, struct unshard_error *err)
{
	const char *word = row->value;
	size_t len = strlen(value);
	unsigned i;

	for (i = 0; word; i++, word = strchr(word, '|'), word = word ? word + 1 : NULL) {
		if (strcspn(word, "|") != len || strncmp(word, value, len) != 0)
			continue;
		*(unsigned *)member(o, row->to) = i;
		return 0;
	}
	return refuse(err, -EINVAL, "%s=%.40s: expected %s", row->name, value, row->value);
}

static int set_word(struct options *o, const struct row *row, const char *value, struct unshard_error *err)
{
	if (strcmp(value, row->value))
		return refuse(err, -EINVAL, "%s=%.40s: expected %s", row->name, value, row->value);
	*(bool *)member(o, row->to) = true;
	return 0;
}

static int set_number(struct options *o, const struct row *row, const char *value, struct unshard_error *err)
{
	uint64_t n;

	if (row->kind == SIZE) {
		if (!options_size(value, &n))
			return refuse(err, -EINVAL, "%s=%s: not a size such as 50GB, 5GiB or 512M", row->name, value);
		*(uint64_t *)member(o, row->to) = n;
		return 0;
	}
	if (!parse_count(value, &n))
		return refuse(err, -EINVAL, "%s=%s: not a number", row->name, value);
	*(unsigned *)member(o, row->to) = (unsigned)n;
	if (row->to_first != NOWHERE)
		*(bool *)member(o, row->to_first) = !n;
	return 0;
}

static int set_numbers(struct options *o, const struct row *row, const char *value, struct unshard_error *err)
{
	struct numbers *list = member(o, row->to);
	const char *at = value;
	unsigned long n;
	char *end;

	for (;;) {
		errno = 0;
		n = strtoul(at, &end, 10);
		if (errno || !isdigit((unsigned char)*at) || (*end && *end != ':') || n > INT_MAX)
			return refuse(err, -EINVAL, "%s=%.60s: numbers with colons between them are expected: %s=4:5:6",
				      row->name, value, row->name);
		if (list->n == sizeof(list->v) / sizeof(*list->v))
			return refuse(err, -EINVAL, "%s: at most %zu are used", row->name, list->n);
		list->v[list->n++] = (int)n;
		if (!*end)
			return 0;
		at = end + 1;
	}
}

static int set_model(struct options *o, const struct row *row, const char *value, struct unshard_error *err)
{
	const char *equals = strchr(value, '='), *dir = equals && access(value, F_OK) < 0 ? equals + 1 : value;
	char text[PATH_MAX];

	if (hub_is_name(dir) && access(dir, F_OK) < 0 && !hub_snapshot(dir, text))
		return refuse(
			err, -ENOENT,
			"model=%.100s: no such directory, and no model of this name in the Hugging Face cache %.200s",
			value, hub_cache(text) ? text : "");
	return append(member(o, row->to), absolute_model(o, value), err);
}

static int set_path_list(struct options *o, const struct row *row, const char *value, struct unshard_error *err)
{
	char *rest = own(o, strdup(value)), *path, *whole = NULL, *longer;

	if (!rest)
		return out_of_memory(err);
	while ((path = strsep(&rest, ":"))) {
		if (!*path)
			return refuse(err, -EINVAL, "%s=%.200s: a path is empty", row->name, value);
		path = absolute(o, path);
		if (!path || asprintf(&longer, "%s%s%s", whole ? whole : "", whole ? ":" : "", path) < 0)
			return out_of_memory(err);
		whole = own(o, longer);
		if (!whole)
			return out_of_memory(err);
	}
	return set_string(o, row, whole, err);
}

static int option_set(struct options *o, const struct row *row, const char *value, struct unshard_error *err)
{
	if (row->kind == FLAG ? value != NULL : !value || !*value)
		return refuse(err, -EINVAL,
			      row->kind == FLAG ? "option %s takes no value" : "option %s needs a value: %s=%s",
			      row->name, row->name, row->value ? row->value : "");
	switch (row->kind) {
	case FLAG:
		*(bool *)member(o, row->to) = true;
		return 0;
	case CHOICE:
		return set_choice(o, row, value, err);
	case ONE_OF:
		return set_one_of(o, row, value, err);
	case WORD:
		return set_word(o, row, value, err);
	case STRING:
		return set_string(o, row, own(o, strdup(value)), err);
	case PATH:
		return set_string(o, row, absolute(o, value), err);
	case STORE:
		return options_store(o, value, err);
	case STRINGS:
		return append(member(o, row->to), own(o, strdup(value)), err);
	case PATH_LIST:
		return set_path_list(o, row, value, err);
	case PATHS:
		return append(member(o, row->to), absolute(o, value), err);
	case MODELS:
		return set_model(o, row, value, err);
	case NUMBERS:
		return set_numbers(o, row, value, err);
	case SIZE:
	case COUNT:
	case SECONDS:
		break;
	}
	return set_number(o, row, value, err);
}

/* The library's pointers to lists that may have grown, and so moved. */
static void show_lists(struct options *o)
{
	struct unshard_options *l = &o->library;

	l->weight_root = o->weight_root.v;
	l->n_weight_root = o->weight_root.n;
	l->model = o->model.v;
	l->n_model = o->model.n;
	l->follow = o->follow.v;
	l->n_follow = o->follow.n;
	l->fact = o->fact.v;
	l->n_fact = o->fact.n;
}

/* -- one option -- */

static bool is_in(const char *const *list, size_t n, const char *name)
{
	while (n--)
		if (!strcmp(list[n], name))
			return true;
	return false;
}

static int pass_on(struct options *o, const char *whole, struct unshard_error *err)
{
	char *longer;

	if (asprintf(&longer, "%s%s%s", o->fuse ? o->fuse : "", o->fuse ? "," : "", whole) < 0)
		return out_of_memory(err);
	free(o->fuse);
	o->fuse = longer;
	return 0;
}

static int unknown(unsigned verb, const char *name, struct unshard_error *err)
{
	char list[400] = "";
	size_t i, at = 0;

	for (i = 0; i < N_ROWS && at < sizeof(list); i++)
		if (rows[i].verbs & verb && rows[i].group != TESTS)
			at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", at ? ", " : "", rows[i].name);
	return refuse(err, -EINVAL, "unknown option '%.60s'; the options are %s", name, list);
}

/* An option that changes nothing is most likely meant for another verb. */
static int unused(unsigned verbs, const char *name, struct unshard_error *err)
{
	static const struct {
		unsigned verb;
		const char *name;
	} all[] = { { VERB_MOUNT, "mount" },   { VERB_LS, "ls" },     { VERB_SHOW, "show" }, { VERB_CHECK, "check" },
		    { VERB_EXPORT, "export" }, { VERB_WARM, "warm" }, { VERB_DIFF, "diff" }, { VERB_SEAL, "seal" } };
	char list[96] = "";
	size_t i, at = 0;

	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i].verb & verbs)
			at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", at ? ", " : "", all[i].name);
	return refuse(err, -EINVAL, "option %s changes nothing here: leave it out (only these use it: %s)", name, list);
}

static int parse_one(struct options *o, unsigned verb, const char *whole, struct unshard_error *err)
{
	const char *equals = strchr(whole, '=');
	size_t i, len = equals ? (size_t)(equals - whole) : strlen(whole);
	char name[64];

	if (len >= sizeof(name))
		return unknown(verb, whole, err);
	memcpy(name, whole, len);
	name[len] = '\0';
	if (!strcmp(name, "root")) /* the option's older name */
		strcpy(name, "weights_key");
	for (i = 0; i < N_ROWS; i++)
		if (!strcmp(rows[i].name, name))
			return rows[i].verbs & verb ? option_set(o, &rows[i], equals ? equals + 1 : NULL, err)
						    : unused(rows[i].verbs, name, err);
	if (verb != VERB_MOUNT)
		return unknown(verb, name, err);
	if (is_in(passed_on, sizeof(passed_on) / sizeof(passed_on[0]), name))
		return pass_on(o, whole, err);
	if (is_in(ignored, sizeof(ignored) / sizeof(ignored[0]), name) || !strncmp(name, "x-", 2))
		return 0;
	return unknown(verb, name, err);
}

/* Up to the next comma that no backslash protects; `to` has room for all of `from`. */
static const char *next_option(const char *from, char *to)
{
	while (*from && *from != ',') {
		if (*from == '\\' && from[1])
			from++;
		*to++ = *from++;
	}
	*to = '\0';
	return *from ? from + 1 : from;
}

int options_parse(struct options *o, unsigned verb, const char *text, struct unshard_error *err)
{
	char *one = malloc(strlen(text) + 1);
	int code = one ? 0 : out_of_memory(err);

	while (!code && *text) {
		text = next_option(text, one);
		if (*one)
			code = parse_one(o, verb, one, err);
	}
	free(one);
	show_lists(o);
	return code;
}

static enum names names_of(const struct row *row)
{
	switch (row->kind) {
	case CHOICE:
	case ONE_OF:
	case WORD:
		return NAMES_WORDS;
	case PATH:
	case STORE:
		return NAMES_FILE;
	case PATHS:
	case PATH_LIST:
		return NAMES_DIRECTORY;
	case MODELS:
		return NAMES_MODEL;
	case STRING:
		return row->to == offsetof(struct options, library.view) ? NAMES_VIEW : NAMES_NOTHING;
	case STRINGS:
	case SIZE:
	case COUNT:
	case NUMBERS:
	case SECONDS:
	case FLAG:
		break;
	}
	return NAMES_NOTHING;
}

void options_visit(unsigned verb, void (*visit)(void *ctx, const struct option_row *row), void *ctx)
{
	unsigned group;
	size_t i;

	for (group = 0; group < N_GROUPS; group++)
		for (i = 0; i < N_ROWS; i++)
			if (rows[i].verbs & verb && rows[i].group == group)
				visit(ctx,
				      &(struct option_row){ rows[i].name, rows[i].value, rows[i].help,
							    group_text[group], names_of(&rows[i]), group == TESTS });
}

const char *options_passed_on(void)
{
	static char text[400];
	size_t i, at = (size_t)snprintf(text, sizeof(text), "Passed to libfuse and the kernel:");

	for (i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]) && at < sizeof(text); i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, " %s", passed_on[i]);
	return text;
}
