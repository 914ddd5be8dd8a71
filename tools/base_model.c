/* See base_model.h. */
#include "base_model.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "hub.h"

/* "…/models--ORG--NAME/snapshots/HASH" is cut behind the model's name. */
static void cut_at_model(char *path, const char **inside)
{
	char *model = strstr(path, "/models--"), *end = model ? strchr(model + 1, '/') : NULL;

	*inside = "";
	if (!end || strncmp(end, "/snapshots/", strlen("/snapshots/")) != 0)
		return;
	*end = '\0';
	*inside = end + 1;
}

char *base_find(const char *base, const char **inside)
{
	char snapshot[PATH_MAX], *path = realpath(base, NULL);

	if (!path && hub_snapshot(base, snapshot))
		path = realpath(snapshot, NULL);
	if (path)
		cut_at_model(path, inside);
	return path;
}
