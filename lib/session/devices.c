#include "session/devices.h"

#include <stdlib.h>
#include <string.h>

#include "base/path.h"

/* Where the last file system on the way to `path` begins; NULL = it is SOURCE's. */
static struct device *find(const struct devices *d, const char *path)
{
	const struct device *found = NULL;
	size_t i;

	for (i = 0; i < d->n; i++)
		if (uns_path_within(path, d->v[i].path) && (!found || strlen(found->path) < strlen(d->v[i].path)))
			found = &d->v[i];
	return (struct device *)found;
}

void devices_saw(struct devices *d, const char *path, uint64_t number)
{
	struct device *at = find(d, path);

	if (!*path)
		d->of_source = number;
	else if (at && strcmp(at->path, path) == 0)
		at->number = number;
	else if (number != (at ? at->number : d->of_source) && d->n < DEVICES_MOST && (d->v[d->n].path = strdup(path)))
		d->v[d->n++].number = number;
}

uint64_t devices_of(const struct devices *d, const char *path)
{
	const struct device *at = find(d, path);

	return at ? at->number : d->of_source;
}

uint64_t devices_in(const struct devices *d, const char *path)
{
	const size_t len = strlen(path);
	size_t i;

	for (i = 0; i < d->n; i++)
		if (uns_path_within(d->v[i].path, path) && strcmp(d->v[i].path, path) != 0 &&
		    !strchr(d->v[i].path + len + (len > 0), '/') && d->v[i].number != devices_of(d, path))
			return d->v[i].number;
	return devices_of(d, path);
}

void devices_fini(struct devices *d)
{
	while (d->n)
		free(d->v[--d->n].path);
}
