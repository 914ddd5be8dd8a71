/* The list of verbs. */
#include <string.h>

#include "command.h"

extern const struct command cmd_mount, cmd_umount, cmd_ls, cmd_show, cmd_check, cmd_export, cmd_warm, cmd_meta,
	cmd_diff, cmd_seal, cmd_explain, cmd_complete, cmd_mounts, cmd_stats, cmd_doctor, cmd_why, cmd_store, cmd_wait;

const struct command *const commands[] = { &cmd_ls,     &cmd_show,   &cmd_check,    &cmd_diff,  &cmd_explain,
					   &cmd_mount,  &cmd_umount, &cmd_mounts,   &cmd_stats, &cmd_why,
					   &cmd_doctor, &cmd_export, &cmd_seal,     &cmd_wait,  &cmd_meta,
					   &cmd_store,  &cmd_warm,   &cmd_complete, NULL };

const struct command *command_find(const char *name)
{
	const struct command *const *c = commands;

	while (*c && strcmp((*c)->name, name) != 0)
		c++;
	return *c;
}
