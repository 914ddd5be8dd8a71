/* unshard explain: what a kind of finding means, and what to do about it. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "json.h"
#include "text.h"

enum { NEAREST = 3 };

struct explain {
	const char *wanted; /* an id, or what findings are reported as; NULL = all ids are listed */
	bool by_check;      /* the second of these */
	cJSON *json;        /* NULL = text */
	char *group;        /* that was printed last */
	size_t n;           /* printed */

	size_t distance; /* of the ids that are near, now */
	char *near[NEAREST];
	size_t n_near;
};

static const char *severity_text(enum unshard_severity severity)
{
	return severity == UNSHARD_PROBLEM ? "problem" : severity == UNSHARD_NOTE ? "note" : "not judged";
}

static void print_kind(const struct unshard_finding_kind *k)
{
	printf("%s  (%s, reported as %s; %s)\n\n", k->id, severity_text(k->severity), k->check, k->group);
	printf("  message     %s\n", k->message);
	if (k->cause)
		printf("  cause       %s\n", k->cause);
	if (k->advice)
		printf("  what to do  %s\n", k->advice);
}

static void add_kind(struct explain *e, const struct unshard_finding_kind *k)
{
	cJSON *o = json_object();

	json_add(o, "id", k->id);
	json_add(o, "group", k->group);
	json_add(o, "check", k->check);
	json_add(o, "severity", severity_text(k->severity));
	json_add(o, "message", k->message);
	json_add(o, "cause", k->cause);
	json_add(o, "advice", k->advice);
	json_append(e->json, o);
}

static int list_kind(struct explain *e, const struct unshard_finding_kind *k)
{
	if (!e->group || strcmp(e->group, k->group) != 0) {
		printf("%s%s\n", e->n ? "\n" : "", k->group);
		free(e->group);
		e->group = strdup(k->group);
	}
	printf("  %s\n", k->id);
	return e->group ? 0 : -ENOMEM;
}

static int visit(void *ctx, const struct unshard_finding_kind *k)
{
	struct explain *e = ctx;
	int code = 0;

	if (e->wanted && strcmp(e->wanted, e->by_check ? k->check : k->id) != 0)
		return 0;
	if (e->json)
		add_kind(e, k);
	else if (e->wanted && !e->by_check)
		print_kind(k);
	else
		code = list_kind(e, k);
	e->n++;
	return code;
}

/* -- an id that there is not -- */

static int visit_near(void *ctx, const struct unshard_finding_kind *k)
{
	struct explain *e = ctx;
	const size_t distance = strstr(k->id, e->wanted) ? 0 : text_distance(e->wanted, k->id);

	if (distance != e->distance || e->n_near == NEAREST)
		return 0;
	e->near[e->n_near] = strdup(k->id);
	return e->near[e->n_near++] ? 0 : -ENOMEM;
}

static int no_such_id(struct explain *e)
{
	const size_t most = strlen(e->wanted) / 2;
	const char *between = "";
	size_t i;

	for (; e->distance <= most && e->n_near < NEAREST && *e->wanted; e->distance++)
		if (unshard_finding_kinds(visit_near, e) < 0)
			return command_fail("out of memory");
	fputs("unshard: unknown id '", stderr);
	for (i = 0; e->wanted[i]; i++)
		fputc(e->wanted[i] > ' ' && e->wanted[i] <= '~' ? e->wanted[i] : '?', stderr);
	fprintf(stderr, "'%s", e->n_near ? "; the nearest: " : "");
	for (i = 0; i < e->n_near; i++) {
		fprintf(stderr, "%s%s", between, e->near[i]);
		between = ", ";
	}
	fputs(" (unshard explain lists all)\n", stderr);
	return EXIT_COULD_NOT;
}

/* -- the verb -- */

static int explain(struct explain *e)
{
	int code = unshard_finding_kinds(visit, e);

	if (code == 0 && !e->n) {
		e->by_check = true;
		code = unshard_finding_kinds(visit, e);
	}
	if (code < 0)
		return command_fail("out of memory");
	if (!e->n)
		return no_such_id(e);
	if (e->json)
		json_print(e->json);
	return EXIT_DONE;
}

static int explain_run(const struct command *self, int argc, char **argv)
{
	struct explain e = { 0 };
	bool json = false;
	size_t i;
	int opt, status;

	while ((opt = flags_next(self->flags, argc, argv)) != -1) {
		if (opt == 'h')
			return command_help(self);
		if (opt != 'j')
			return command_usage(self);
		json = true;
	}
	if (argc - optind > 1)
		return command_operands(self, argc - optind, argv + optind);
	e.wanted = optind < argc ? argv[optind] : NULL;
	e.json = json ? json_array() : NULL;
	status = explain(&e);
	cJSON_Delete(e.json);
	free(e.group);
	for (i = 0; i < e.n_near; i++)
		free(e.near[i]);
	return status;
}

const struct command cmd_explain = {
	.name = "explain",
	.operands = "[ID]",
	.arguments = "[ID] [--json]",
	.summary = "explain a finding: what it means, how it comes about, what to do",
	.help = "ID is what the other commands print in brackets behind a finding: [shard_missing]. In the "
		"message, words in capitals stand for names and numbers of the checkpoint. Without ID, all "
		"ids are listed. A word of the column \"reported as\" (damaged, rng) in place of ID lists the "
		"ids that are reported so.",
	.example = "unshard explain shard_missing",
	.flags =
		(const struct flag[]){
			FLAG_JSON("print an array of objects"),
			FLAG_HELP,
			FLAGS_END,
		},
	.names = { NAMES_FINDING },
	.run = explain_run,
};
