/* unshard export: a view of a checkpoint, or of a run, as an ordinary directory. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "export_base.h"
#include "json.h"
#include "progress.h"
#include "text.h"

struct export
{
	struct arguments a;
	unshard *u;
	const char *view, *out;
	const char *base; /* NULL = that of -o model=, if it has weights */
	unsigned flags;
	cJSON *changes; /* NULL = lines are wanted */
	struct progress progress;
	struct unshard_exported made;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	(void)number;
	interrupted = 1;
}

static int export_step(void *ctx, const struct unshard_progress *p)
{
	struct export *e = ctx;

	progress_step(&e->progress, p);
	return interrupted ? -EINTR : 0;
}

static int visit_change(void *ctx, const struct unshard_change *change)
{
	struct export *e = ctx;

	progress_end(&e->progress);
	if (e->changes) {
		json_append_change(e->changes, change, change->path);
		return 0;
	}
	text_print(change->path);
	printf("\n  %-10s  ", unshard_change_name(change->kind));
	text_print(change->text);
	putchar('\n');
	return 0;
}

static int confine(void *ctx, const char *directory)
{
	return arguments_write_only(((struct export *)ctx)->u, directory);
}

/* why: there is no export. */
static void print_json(struct export *e, const char *why)
{
	cJSON *o = json_object();

	json_add(o, "exported", why ? NULL : e->out);
	if (why)
		json_add(o, "why", why);
	json_add(o, "view", e->view);
	json_add_number(o, "checkpoints", (double)e->made.checkpoints);
	json_add_number(o, "files", (double)e->made.files);
	json_add_number(o, "size_bytes", (double)e->made.size_bytes);
	json_add_number(o, "shared_bytes", (double)e->made.shared_bytes);
	json_add_number(o, "kept_bytes", (double)e->made.kept_bytes);
	json_add_value(o, "changes", e->changes);
	e->changes = NULL;
	json_print(o);
	cJSON_Delete(o);
}

static void print_summary(const struct export *e)
{
	char bytes[32];

	text_bytes(e->made.size_bytes, bytes);
	text_print(e->out);
	printf(": %s of %zu %s, %zu %s, %s", e->view, e->made.checkpoints,
	       plural(e->made.checkpoints, "checkpoint", "checkpoints"), e->made.files,
	       plural(e->made.files, "file", "files"), bytes);
	if (e->made.shared_bytes) {
		text_bytes(e->made.shared_bytes, bytes);
		printf(" (%s shared with the source)", bytes);
	}
	if (e->made.kept_bytes) {
		text_bytes(e->made.kept_bytes, bytes);
		printf(" (%s kept from OUT.partial)", bytes);
	}
	puts(e->flags & UNSHARD_EXPORT_VERIFY ? "; read back and equal" : "");
}

/* The view cannot show it: that is an answer too. */
static int not_exported(struct export *e, const char *why)
{
	if (e->changes)
		print_json(e, why);
	else
		command_fail("%s", why);
	return EXIT_PROBLEM;
}

static int export_path(struct export *e, const char *path)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = e, .progress = export_step,
					     .change = visit_change, .writes = confine };
	struct sigaction action = { .sa_handler = on_signal };
	struct unshard_error err = { 0 };
	int code;

	progress_start(&e->progress);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	code = unshard_export(e->u, path, e->view, e->out, e->flags, &calls, &e->made, &err);
	progress_end(&e->progress);
	if (code == -ENODATA || code == -EBADMSG || code == -ENOTSUP)
		return not_exported(e, err.text);
	if (code < 0)
		return command_fail("%s", err.text[0] ? err.text : "out of memory");
	if (e->changes)
		print_json(e, NULL);
	else
		print_summary(e);
	return code > 0 ? EXIT_PROBLEM : EXIT_DONE;
}

/* -1 = nothing is missing that the base model has. */
static int compare_with_base(struct export *e, const char *path)
{
	char *why;
	int code, status = -1;

	if (e->flags & UNSHARD_EXPORT_INCOMPLETE || strcmp(e->view, "adapter") == 0)
		return -1;
	code = export_base_compare(&e->a, e->u, path, e->base, &why);
	if (code > 0)
		status = not_exported(e, why ? why : "out of memory");
	else if (code < 0)
		status = command_fail("%s%s%s", e->base ? e->base : "", e->base ? ": " : "",
				      why ? why : "out of memory");
	free(why);
	return status;
}

static int open_and_export(struct export *e, char *path)
{
	const char *below;
	int status = arguments_open_above(&e->a, path, &e->u, &below);

	if (status < 0)
		status = compare_with_base(e, below);
	if (status < 0)
		status = export_path(e, below);
	unshard_close(e->u);
	return status;
}

static int export_parse(struct export *e, const struct command *self, int argc, char **argv)
{
	struct unshard_error err = { 0 };
	int c;

	while ((c = flags_next(self->flags, argc, argv)) != -1) {
		if (c == 'h')
			return command_help(self);
		if (c == '?')
			return command_usage(self);
		if (c == 'j' && !e->changes && !(e->changes = json_array()))
			return command_fail("out of memory");
		if (c == 'v')
			e->view = optarg;
		if (c == 'b')
			e->base = optarg;
		e->flags |= c == 'r'   ? UNSHARD_EXPORT_RESUME
			    : c == 'V' ? UNSHARD_EXPORT_VERIFY
			    : c == 'c' ? UNSHARD_EXPORT_CHECKSUMS
			    : c == 'n' ? UNSHARD_EXPORT_INCOMPLETE
				       : 0;
		if (c == 'o' && options_parse(&e->a.options, self->options, optarg, &err) < 0)
			return command_fail("%s", err.text);
		if (c == 'S' && options_store(&e->a.options, optarg, &err) < 0)
			return command_fail("%s", err.text);
	}
	if (argc - optind != 2)
		return command_operands(self, argc - optind, argv + optind);
	if (e->base && e->flags & UNSHARD_EXPORT_INCOMPLETE)
		return command_fail("--base and --no-base contradict each other");
	e->a.argument = argv[optind];
	e->out = argv[optind + 1];
	return -1;
}

static int export_run(const struct command *self, int argc, char **argv)
{
	struct export e = { .a = { .log = { .fd = -1 } }, .view = "weights", .made = { UNSHARD_EXPORTED_INIT } };
	int status = export_parse(&e, self, argc, argv);
	char *path = status < 0 ? path_real(e.a.argument) : NULL;

	if (status < 0)
		status = path ? open_and_export(&e, path) : command_fail("%s: %s", e.a.argument, strerror(errno));
	free(path);
	cJSON_Delete(e.changes);
	arguments_fini(&e.a);
	return status;
}

const struct command cmd_export = {
	.name = "export",
	.operands = "CHECKPOINT-or-RUN OUT",
	.arguments = "CHECKPOINT-or-RUN OUT [--view VIEW] [--base BASE|--no-base] [--resume] [--verify] "
		     "[--checksums] [--json] [-o OPTION,...] [--store FILE|none]",
	.summary = "write a view as an ordinary directory, without a mount",
	.help = "Writes what a mount shows of the checkpoint, or of the run, in one view: every file has the "
		"bytes that the mount's has. Needs no /dev/fuse. OUT must not exist, or be an empty "
		"directory; it appears when all of it is on the disk. A model that lacks layers, experts or other "
		"tensors is not written: by its config.json, and by the base model if one is known. Exit status: 0 "
		"done; 1 the view cannot show the checkpoint, its model is not whole, or something of the run was left "
		"out; 2 could not be done.",
	.example = "unshard export runs/llama/checkpoint-8 out --verify",
	.flags =
		(const struct flag[]){
			{ 'v', "view", false, "VIEW",
			  "weights (default), weights-bf16, full, dcp, universal, world-8, ...", NAMES_VIEW },
			{ 'b', "base", false, "BASE",
			  "compare names and shapes with this model: a directory, or ORG/NAME in the Hugging Face "
			  "cache; default: the DIR of -o model=DIR, if it holds weights",
			  NAMES_MODEL },
			{ 'n', "no-base", false, NULL, "do not ask whether the model is whole", NAMES_NOTHING },
			{ 'r', "resume", false, NULL,
			  "complete OUT.partial, which an export that was ended left; what it holds is compared with "
			  "the view",
			  NAMES_NOTHING },
			{ 'V', "verify", false, NULL, "read OUT back from the disk and compare it with the view",
			  NAMES_NOTHING },
			{ 'c', "checksums", false, NULL, "add SHA256SUMS, for sha256sum -c", NAMES_NOTHING },
			FLAG_JSON("one object: what was written, and what was left out"),
			FLAG_O,
			FLAG_STORE,
			FLAG_HELP,
			FLAGS_END,
		},
	.names = { NAMES_CHECKPOINT, NAMES_DIRECTORY },
	.options = VERB_EXPORT,
	.run = export_run,
};
