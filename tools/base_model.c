/* The layout of the cache: huggingface_hub 1.0, "models--ORG--NAME/{blobs,refs,snapshots}". */
#include "base_model.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static bool cache_directory(char out[PATH_MAX])
{
	const char *cache = getenv("HF_HUB_CACHE"), *hf = getenv("HF_HOME"), *home = getenv("HOME");
	int n;

	if (cache && *cache)
		n = snprintf(out, PATH_MAX, "%s", cache);
	else if (hf && *hf)
		n = snprintf(out, PATH_MAX, "%s/hub", hf);
	else
		n = snprintf(out, PATH_MAX, "%s/.cache/huggingface/hub", home ? home : "");
	return n > 0 && n < PATH_MAX;
}

/* What refs/main of the model names. */
static bool snapshot_of(const char *model, char out[PATH_MAX])
{
	char ref[PATH_MAX], hash[128];
	FILE *f;
	bool got;
	int n = snprintf(ref, sizeof(ref), "%s/refs/main", model);

	if (n < 0 || n >= PATH_MAX || !(f = fopen(ref, "re")))
		return false;
	got = fgets(hash, sizeof(hash), f) != NULL;
	fclose(f);
	if (!got)
		return false;
	hash[strcspn(hash, "\n")] = '\0';
	n = snprintf(out, PATH_MAX, "%s/snapshots/%s", model, hash);
	return !strchr(hash, '/') && n > 0 && n < PATH_MAX && access(out, R_OK | X_OK) == 0;
}

char *base_find(const char *base, const char **inside)
{
	const char *slash = strchr(base, '/');
	char cache[PATH_MAX], model[PATH_MAX], snapshot[PATH_MAX], *path = realpath(base, NULL);
	int n;

	if (!path && slash && slash > base && slash[1] && !strchr(slash + 1, '/') && cache_directory(cache)) {
		n = snprintf(model, sizeof(model), "%s/models--%.*s--%s", cache, (int)(slash - base), base, slash + 1);
		if (n > 0 && n < PATH_MAX && snapshot_of(model, snapshot))
			path = realpath(snapshot, NULL);
	}
	if (path)
		cut_at_model(path, inside);
	return path;
}
