/* unshard seal: checksums of checkpoints that are known to be sound, kept for later checks. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arguments.h"
#include "json.h"
#include "progress.h"
#include "text.h"

struct seal {
	struct arguments a;
	unshard *u;
	const char *inside; /* what was given, below the directory that is opened; "" = that itself */
	unsigned flags;
	cJSON *seals; /* NULL = lines are wanted */
	struct progress progress;
	struct unshard_seal_counts counts;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	(void)number;
	interrupted = 1;
}

static int step(void *ctx, const struct unshard_progress *p)
{
	struct seal *s = ctx;

	progress_step(&s->progress, p);
	return interrupted ? -EINTR : 0;
}

/* -- checkpoints as they come -- */

static void add_object(struct seal *s, const struct unshard_seal *seal)
{
	cJSON *o = json_object();

	json_add(o, "path", seal->path);
	json_add(o, "state", unshard_seal_state_name(seal->state));
	json_add(o, "text", seal->text);
	json_add(o, "where", seal->where);
	json_add_number(o, "files", (double)seal->files);
	json_add_number(o, "pieces", (double)seal->pieces);
	json_add_number(o, "size_bytes", (double)seal->size_bytes);
	json_append(s->seals, o);
}

/* A path that the library gave, as the user would type it. */
static char *shown_of(const struct seal *s, const char *path)
{
	size_t n = strlen(s->inside);

	if (n && strncmp(path, s->inside, n) == 0 && (!path[n] || path[n] == '/'))
		path += n + (path[n] == '/');
	return path_shown(s->a.argument, path);
}

static void print_sealed(const struct unshard_seal *seal)
{
	char bytes[32];

	text_bytes(seal->size_bytes, bytes);
	printf("sealed: %zu %s, %zu %s of tensors, %s; the seal is in ", seal->files,
	       plural(seal->files, "file", "files"), seal->pieces, plural(seal->pieces, "piece", "pieces"), bytes);
	text_print(seal->where);
}

static void print_other(const struct unshard_seal *seal)
{
	static const char *const lead[] = { [UNSHARD_SEALED_BEFORE] = "sealed before",
					    [UNSHARD_SEAL_DIFFERS] = "sealed before, and differs",
					    [UNSHARD_SEAL_SAVING] = "not sealed",
					    [UNSHARD_SEAL_REFUSED] = "not sealed" };

	printf("%s%s", lead[seal->state], seal->text ? ": " : "");
	text_print(seal->text ? seal->text : "");
	if (seal->state == UNSHARD_SEAL_DIFFERS)
		printf(" (--again replaces the seal)");
}

static int visit(void *ctx, const struct unshard_seal *seal)
{
	struct seal *s = ctx;
	char *shown;

	if (s->seals) {
		add_object(s, seal);
		return 0;
	}
	progress_end(&s->progress);
	shown = shown_of(s, seal->path);
	if (!shown)
		return -ENOMEM;
	text_print(shown);
	free(shown);
	printf("\n  ");
	if (seal->state == UNSHARD_SEALED)
		print_sealed(seal);
	else
		print_other(seal);
	putchar('\n');
	return 0;
}

static void print_json(struct seal *s)
{
	cJSON *o = json_object();

	json_add_number(o, "checkpoints", (double)s->counts.checkpoints);
	json_add_number(o, "sealed", (double)s->counts.sealed);
	json_add_number(o, "sealed_before", (double)s->counts.sealed_before);
	json_add_number(o, "differs", (double)s->counts.differs);
	json_add_number(o, "saving", (double)s->counts.saving);
	json_add_number(o, "refused", (double)s->counts.refused);
	json_add_number(o, "read_bytes", (double)s->counts.read_bytes);
	json_add_value(o, "seals", s->seals);
	s->seals = NULL;
	json_print(o);
	cJSON_Delete(o);
}

/* -- the call -- */

static int finish(struct seal *s, int code, const struct unshard_error *err)
{
	const struct unshard_seal_counts *n = &s->counts;

	if (code == -EINTR)
		return command_fail("interrupted; the checkpoint that was being read is not sealed");
	if (code < 0)
		return command_fail("%s", err->text[0] ? err->text : "out of memory");
	if (s->seals)
		print_json(s);
	if (!n->sealed && !n->sealed_before && !n->differs && !n->saving && !n->refused) {
		command_fail("no checkpoint is at or below %s", s->a.argument);
		return EXIT_PROBLEM;
	}
	if (n->differs || n->refused)
		return EXIT_PROBLEM;
	return n->saving ? EXIT_NOT_JUDGED : EXIT_DONE;
}

/* A directory that is not there yet cannot be named to the kernel: then nothing is given up. */
static int confine(const struct seal *s)
{
	const char *directory = unshard_seals_directory(s->u);

	if (directory && access(directory, F_OK) == 0)
		return arguments_write_only(s->u, directory);
	return directory || !unshard_store_directory(s->u) ? 0
							   : arguments_write_only(s->u, unshard_store_directory(s->u));
}

static int seal_path(struct seal *s, char *path)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = s, .progress = step, .sealed = visit };
	struct sigaction action = { .sa_handler = on_signal };
	struct unshard_error err = { 0 };
	int code, status = arguments_open_above(&s->a, path, &s->u, &s->inside);

	if (status >= 0)
		return status;
	if (confine(s) < 0)
		return EXIT_COULD_NOT;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	progress_start(&s->progress);
	code = unshard_seal(s->u, s->inside, s->flags, &calls, &s->counts, &err);
	progress_end(&s->progress);
	return finish(s, code, &err);
}

static int parse(struct seal *s, const struct command *self, int argc, char **argv)
{
	struct unshard_error err = { 0 };
	int c;

	while ((c = flags_next(self->flags, argc, argv)) != -1) {
		if (c == 'h')
			return command_help(self);
		if (c == '?')
			return command_usage(self);
		if (c == 'a')
			s->flags |= UNSHARD_SEAL_AGAIN;
		if (c == 'j' && !s->seals && !(s->seals = json_array()))
			return command_fail("out of memory");
		if (c == 'o' && options_parse(&s->a.options, self->options, optarg, &err) < 0)
			return command_fail("%s", err.text);
		if (c == 's' && options_seals(&s->a.options, optarg, &err) < 0)
			return command_fail("%s", err.text);
		if (c == 'S' && options_store(&s->a.options, optarg, &err) < 0)
			return command_fail("%s", err.text);
	}
	if (argc - optind != 1)
		return command_operands(self, argc - optind, argv + optind);
	s->a.argument = argv[optind];
	return -1;
}

static int seal_run(const struct command *self, int argc, char **argv)
{
	struct seal s = { .a = { .log = { .fd = -1 } }, .counts = { UNSHARD_SEAL_COUNTS_INIT } };
	int status = parse(&s, self, argc, argv);
	char *path = status < 0 ? path_real(s.a.argument) : NULL;

	if (status < 0)
		status = path ? seal_path(&s, path) : command_fail("%s: %s", s.a.argument, strerror(errno));
	unshard_close(s.u);
	free(path);
	cJSON_Delete(s.seals);
	arguments_fini(&s.a);
	return status;
}

const struct command cmd_seal = {
	.name = "seal",
	.operands = "CHECKPOINT-or-RUN",
	.arguments = "CHECKPOINT-or-RUN [--again] [--seals DIR|FILE] [--json] [-o OPTION,...] [--store FILE|none]",
	.summary = "keep checksums of sound checkpoints, to find swapped, mixed and damaged files later",
	.help = "Reads every file of each checkpoint once, and keeps its name, size, time and SHA-256, and a "
		"CRC-32 of each piece of a tensor. From then on check and every mount compare: sizes and "
		"times first, with `check --deep` all bytes. Call it right after a save. A checkpoint that "
		"is damaged, or still being saved, is not sealed. Exit status: 0 sealed, now or before; 1 a "
		"checkpoint differs from its seal, or is damaged; 2 could not run; 3 still being saved.",
	.example = "unshard seal runs/llama          # right after a save",
	.flags =
		(const struct flag[]){
			{ 'a', "again", false, NULL, "make every seal again, also one that the files contradict",
			  NAMES_NOTHING },
			{ 's', "seals", false, "DIR|FILE",
			  "keep seals as files: DIR/CHECKPOINT.sha256, or FILE, whose name ends in .sha256, for one "
			  "checkpoint; as -o seals=. `sha256sum -c` in the checkpoint reads them too",
			  NAMES_FILE },
			FLAG_JSON("one object: counts, seals"),
			FLAG_O,
			FLAG_STORE,
			FLAG_HELP,
			FLAGS_END,
		},
	.names = { NAMES_CHECKPOINT },
	.options = VERB_SEAL,
	.run = seal_run,
};
