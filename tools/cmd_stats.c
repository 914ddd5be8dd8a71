/* unshard stats: what a mount is doing, again each second in a terminal. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "fs.h"
#include "json.h"
#include "mounted.h"
#include "table.h"
#include "text.h"

enum { ROWS_SHOWN = 12 };

struct stats {
	char path[4096];
	bool json, live;
	double was_s, reads, bytes, source_bytes; /* at the look before; was_s 0 = there was none */
};

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void time_text(double us, char out[32])
{
	if (us < 1000)
		snprintf(out, 32, "%.0f us", us);
	else if (us < 1000000)
		snprintf(out, 32, "%.1f ms", us / 1000);
	else
		snprintf(out, 32, "%.1f s", us / 1000000);
}

static void bytes_line(const char *name, double bytes)
{
	char text[32];

	text_bytes((uint64_t)bytes, text);
	printf("  %-22s %s\n", name, text);
}

/* What happened since the look before, or all of it. */
static void print_rates(struct stats *s, const cJSON *stats)
{
	const double now = now_s(), reads = mounted_number(stats, "reads"), bytes = mounted_number(stats, "read_bytes"),
		     source = mounted_number(stats, "source_read_bytes");
	char rate[32], from[32];

	if (s->was_s > 0) {
		text_bytes((uint64_t)((bytes - s->bytes) / (now - s->was_s)), rate);
		text_bytes((uint64_t)((source - s->source_bytes) / (now - s->was_s)), from);
		printf("  %-22s %.0f reads/s, %s/s to readers, %s/s from shards\n", "now",
		       (reads - s->reads) / (now - s->was_s), rate, from);
	}
	s->was_s = now;
	s->reads = reads;
	s->bytes = bytes;
	s->source_bytes = source;
}

static const char *text_of(const cJSON *o, const char *key)
{
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, key));

	return text ? text : "?";
}

static void print_ways(const cJSON *stats)
{
	const cJSON *one;

	cJSON_ArrayForEach (one, cJSON_GetObjectItemCaseSensitive(stats, "ways"))
		printf("  %-22s reads=%s, %s, device %s\n", "way of reading", text_of(one, "reads"),
		       text_of(one, "file_system"), text_of(one, "device"));
}

static void print_figures(struct stats *s, const cJSON *stats)
{
	const double known = mounted_number(stats, "catalogs_remembered"),
		     opened = mounted_number(stats, "catalogs_opened");
	const double sealed = mounted_number(stats, "seals_made"), differ = mounted_number(stats, "seals_differ"),
		     not_sealed = mounted_number(stats, "not_sealed"), read = mounted_number(stats, "seal_read_bytes");
	char p50[32], p90[32], p99[32], text[32];

	print_rates(s, stats);
	printf("  %-22s %.0f opens, %.0f reads, %.0f failed\n", "since it began", mounted_number(stats, "opens"),
	       mounted_number(stats, "reads"), mounted_number(stats, "errors"));
	bytes_line("returned to readers", mounted_number(stats, "read_bytes"));
	bytes_line("read from shards", mounted_number(stats, "source_read_bytes"));
	time_text(mounted_number(stats, "read_p50_us"), p50);
	time_text(mounted_number(stats, "read_p90_us"), p90);
	time_text(mounted_number(stats, "read_p99_us"), p99);
	printf("  %-22s half below %s, 90 %% below %s, 99 %% below %s\n", "time of a read", p50, p90, p99);
	if (known + opened > 0)
		printf("  %-22s %.0f %% of %.0f checkpoints from the store\n", "metadata",
		       known * 100 / (known + opened), known + opened);
	text_bytes((uint64_t)read, text);
	if (sealed + differ + not_sealed + read > 0)
		printf("  %-22s %.0f %s, %s read for that; %.0f damaged, %.0f not what was sealed\n", "sealed", sealed,
		       plural((size_t)sealed, "checkpoint", "checkpoints"), text, not_sealed, differ);
	printf("  %-22s %.0f source files\n", "open now", mounted_number(stats, "open_files"));
	bytes_line("decoded, in memory", mounted_number(stats, "cache_bytes"));
	bytes_line("decoded, spilled", mounted_number(stats, "spill_bytes"));
	print_ways(stats);
}

static void add_row(struct table *t, const cJSON *one)
{
	const double reads = mounted_number(one, "reads"), us = mounted_number(one, "read_us");
	char text[32];

	table_add(t, text_of(one, "view"));
	table_add(t, text_of(one, "checkpoint"));
	snprintf(text, sizeof(text), "%.0f", mounted_number(one, "opens"));
	table_add(t, text);
	text_bytes((uint64_t)mounted_number(one, "read_bytes"), text);
	table_add(t, text);
	time_text(reads > 0 ? us / reads : 0, text);
	table_add(t, text);
	time_text(mounted_number(one, "slowest_us"), text);
	table_add(t, text);
}

static void print_usage(const cJSON *usage)
{
	static const char *const head[] = { "VIEW", "CHECKPOINT", "OPENS", "READ", "MEAN", "SLOWEST" };
	struct table t = { .n_columns = sizeof(head) / sizeof(*head), .right = 0x3c };
	const cJSON *one;
	size_t i;
	int n = 0;

	if (!cJSON_GetArraySize(usage))
		return;
	for (i = 0; i < t.n_columns; i++)
		table_add(&t, head[i]);
	cJSON_ArrayForEach (one, usage)
		if (n++ < ROWS_SHOWN)
			add_row(&t, one);
	putchar('\n');
	table_print(&t, "  ");
	if (n > ROWS_SHOWN)
		printf("  ... and %d more\n", n - ROWS_SHOWN);
	table_fini(&t);
}

static int look(struct stats *s)
{
	cJSON *stats = mounted_json(s->path, "stats.json"), *usage = mounted_json(s->path, "usage.json");
	const bool answered = stats != NULL;

	if (!stats)
		command_fail("%s does not answer: the serving process has ended, or its storage hangs", s->path);
	else if (s->json) {
		json_add_value(stats, "usage", usage ? usage : json_array());
		usage = NULL;
		json_print(stats);
	} else {
		printf("%s%s\n", s->live ? "\033[H\033[2J" : "", s->path);
		print_figures(s, stats);
		print_usage(usage);
		if (s->live)
			puts("\n(Ctrl-C ends this)");
		fflush(stdout);
	}
	cJSON_Delete(stats);
	cJSON_Delete(usage);
	return answered ? EXIT_DONE : EXIT_COULD_NOT;
}

static int stats_run(const struct command *self, int argc, char **argv)
{
	struct unshard_error err = { 0 };
	struct fs_mount mount;
	const char *inside;
	struct stats s = { .live = isatty(STDOUT_FILENO) };
	int c, status;

	while ((c = flags_next(self->flags, argc, argv)) != -1) {
		if (c == 'h')
			return command_help(self);
		if (c == '?')
			return command_usage(self);
		s.json |= c == 'j';
		s.live &= c != '1' && c != 'j';
	}
	if (argc - optind != 1)
		return command_operands(self, argc - optind, argv + optind);
	if (fs_mount_path(argv[optind], s.path, &err) < 0)
		return command_fail("%s", err.text);
	if (!fs_mount_above(s.path, &mount, &inside))
		return command_fail("%s is not a mount of unshard (unshard mounts lists them)", s.path);
	strcpy(s.path, mount.path);
	for (;;) {
		status = look(&s);
		if (!s.live || status != EXIT_DONE)
			return status;
		sleep(1);
	}
}

const struct command cmd_stats = {
	.name = "stats",
	.operands = "MOUNTPOINT",
	.arguments = "MOUNTPOINT [--once] [--json]",
	.summary = "show what a mount is doing",
	.help = "Requests, bytes, the time that reads take, what is in memory, and how much of each view and checkpoint was "
		"read, with the slowest read. In a terminal it is shown again each second. Monitoring reads "
		"MOUNTPOINT/.unshard/metrics.prom.",
	.example = "unshard stats mnt",
	.flags =
		(const struct flag[]){
			{ '1', "once", false, NULL, "print once, also in a terminal", NAMES_NOTHING },
			FLAG_JSON("print one object: all counters, and usage by view and checkpoint"),
			FLAG_HELP,
			FLAGS_END,
		},
	.names = { NAMES_MOUNT },
	.run = stats_run,
};
