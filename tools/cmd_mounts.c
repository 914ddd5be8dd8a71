/* unshard mounts: the mounts of this machine, and what each has served. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "command.h"
#include "fs.h"
#include "json.h"
#include "mounted.h"
#include "table.h"
#include "text.h"

struct mounts {
	struct table table;
	cJSON *json; /* NULL = a table is wanted */
	size_t n, n_silent;
};

/* "5 s", "3 min", "2 h", "4 d" */
static void age_text(double seconds, char out[32])
{
	static const struct {
		double from, unit;
		const char *name;
	} unit[] = { { 2 * 86400, 86400, "d" }, { 2 * 3600, 3600, "h" }, { 2 * 60, 60, "min" }, { 0, 1, "s" } };
	size_t i = 0;

	while (seconds < unit[i].from && i < 3)
		i++;
	snprintf(out, 32, "%.0f %s", seconds < 0 ? 0 : seconds / unit[i].unit, unit[i].name);
}

static void add_object(struct mounts *all, const struct fs_mount *mount, const cJSON *stats)
{
	cJSON *o = json_object();

	json_add(o, "mountpoint", mount->path);
	json_add(o, "source", mount->source);
	json_add(o, "state", stats ? "ok" : "no answer");
	if (stats) {
		json_add_number(o, "started", mounted_number(stats, "started"));
		json_add_number(o, "open_files", mounted_number(stats, "open_files"));
		json_add_number(o, "reads", mounted_number(stats, "reads"));
		json_add_number(o, "read_bytes", mounted_number(stats, "read_bytes"));
		json_add_number(o, "errors", mounted_number(stats, "errors"));
	}
	json_append(all->json, o);
}

static void add_row(struct mounts *all, const struct fs_mount *mount, const cJSON *stats)
{
	char age[32] = "-", reads[32] = "-", bytes[32] = "-";

	if (stats) {
		if (mounted_number(stats, "started") > 0)
			age_text((double)time(NULL) - mounted_number(stats, "started"), age);
		snprintf(reads, sizeof(reads), "%.0f", mounted_number(stats, "reads"));
		text_bytes((uint64_t)mounted_number(stats, "read_bytes"), bytes);
	}
	table_add(&all->table, mount->path);
	table_add(&all->table, mount->source);
	table_add(&all->table, age);
	table_add(&all->table, reads);
	table_add(&all->table, bytes);
	table_add_coloured(&all->table, stats ? "ok" : "no answer", stats ? COLOUR_NONE : COLOUR_BAD);
}

static void add_mount(void *ctx, const struct fs_mount *mount)
{
	struct mounts *all = ctx;
	cJSON *stats = mounted_json(mount->path, "stats.json");

	all->n++;
	all->n_silent += !stats;
	if (all->json)
		add_object(all, mount, stats);
	else
		add_row(all, mount, stats);
	cJSON_Delete(stats);
}

static int mounts_run(const struct command *self, int argc, char **argv)
{
	static const char *const head[] = { "MOUNT POINT", "SOURCE", "AGE", "READS", "READ", "STATE" };
	struct mounts all = { .table = { .n_columns = sizeof(head) / sizeof(*head),
					 .right = 1 << 2 | 1 << 3 | 1 << 4 } };
	size_t i;
	int c;

	while ((c = flags_next(self->flags, argc, argv)) != -1) {
		if (c == 'h')
			return command_help(self);
		if (c == '?')
			return command_usage(self);
		if (c == 'j' && !all.json)
			all.json = json_array();
	}
	if (optind != argc)
		return command_operands(self, argc - optind, argv + optind);
	for (i = 0; i < all.table.n_columns; i++)
		table_add(&all.table, head[i]);
	fs_mounts_visit(add_mount, &all);
	if (all.json)
		json_print(all.json);
	else if (all.n)
		table_print(&all.table, "");
	else
		puts("nothing is mounted");
	if (all.n_silent && !all.json)
		puts("\nno answer: the serving process has ended, its storage hangs, or it is another user's; unshard umount "
		     "MOUNTPOINT ends it");
	cJSON_Delete(all.json);
	table_fini(&all.table);
	return all.n_silent ? EXIT_PROBLEM : EXIT_DONE;
}

const struct command cmd_mounts = {
	.name = "mounts",
	.operands = "",
	.arguments = "[--json]",
	.summary = "list the mounts of unshard on this machine",
	.help = "One line for each: mount point, source, how long it has been there, how many reads it has served and how "
		"many bytes, and whether it answers. Exit status: 1 if one does not.",
	.example = "unshard mounts",
	.flags =
		(const struct flag[]){
			FLAG_JSON("an array of objects instead"),
			FLAG_HELP,
			FLAGS_END,
		},
	.run = mounts_run,
};
