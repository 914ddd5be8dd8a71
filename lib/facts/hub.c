/* Source: huggingface_hub 2.4.0, constants.py (the order of the variables, which transformers.utils.hub adds one to),
 * file_download.py (repo_folder_name, refs) and utils/_validators.py. */
#include "facts/hub.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"

enum { LONGEST_REF = 256, LONGEST_NAME = 96 };

static const char *set(const char *variable)
{
	const char *value = getenv(variable);

	return value && *value ? value : NULL;
}

const char *hub_cache_directory(struct uns_arena *arena)
{
	static const char *const itself[] = { "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE" };
	size_t i;

	for (i = 0; i < sizeof(itself) / sizeof(*itself); i++)
		if (set(itself[i]))
			return uns_arena_str(arena, set(itself[i]));
	if (set("HF_HOME"))
		return uns_arena_printf(arena, "%s/hub", set("HF_HOME"));
	if (set("XDG_CACHE_HOME"))
		return uns_arena_printf(arena, "%s/huggingface/hub", set("XDG_CACHE_HOME"));
	return uns_arena_printf(arena, "%s/.cache/huggingface/hub", set("HOME") ? set("HOME") : "");
}

bool hub_is_model_name(const char *name)
{
	const char *slash = strchr(name, '/'), *at;

	if (!*name || strlen(name) > LONGEST_NAME ||
	    (slash && (!slash[1] || slash[1] == '.' || strchr(slash + 1, '/'))))
		return false;
	for (at = name; *at; at++)
		if (!isalnum((unsigned char)*at) && !strchr("._-/", *at))
			return false;
	return isalnum((unsigned char)*name) && !strstr(name, "--") && !strstr(name, "..");
}

int hub_root_open(const char *dir, struct uns_capture *capture, struct uns_root **root, struct uns_err *err)
{
	const struct uns_root_options trusted = { .trusted = true };

	UNS_TRY(uns_place_seen(capture, dir, err));
	UNS_TRY(uns_root_open(dir, &trusted, root, err));
	if (capture && uns_inputs_hold_root(uns_capture_inputs(capture), *root) < 0)
		return uns_oom(err);
	return 0;
}

static bool is_one_name(const char *text)
{
	return *text && *text != '.' && !strchr(text, '/');
}

/* *commit = what the branch or tag is now; NULL = there is none of that name. */
static int ref_read(const struct uns_root *root, const char *revision, struct uns_capture *capture,
		    struct uns_arena *arena, const char **commit, struct uns_err *err)
{
	const char *path = uns_arena_printf(arena, "refs/%s", revision);
	struct uns_err why = { 0 };
	struct uns_span text;
	int code;

	*commit = NULL;
	UNS_TRY_ALLOC(path, err);
	code = uns_read_seen(root, capture, path, LONGEST_REF, arena, &text, &why);
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	if (code < 0)
		return 0;
	UNS_TRY_ALLOC(*commit = uns_arena_strn(arena, (const char *)text.p, strcspn((const char *)text.p, " \r\n")),
		      err);
	return 0;
}

int hub_snapshot_find(const char *name, const char *revision, struct uns_capture *capture, struct uns_arena *arena,
		      struct uns_root **root, const char **path, struct uns_err *err)
{
	const char *slash = strchr(name, '/'), *cache = hub_cache_directory(arena), *model, *commit;
	struct uns_err why = { 0 };
	int code;

	UNS_TRY_ALLOC(cache, err);
	model = slash ? uns_arena_printf(arena, "%s/models--%.*s--%s", cache, (int)(slash - name), name, slash + 1)
		      : uns_arena_printf(arena, "%s/models--%s", cache, name);
	UNS_TRY_ALLOC(model, err);
	code = hub_root_open(model, capture, root, &why);
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	if (code < 0)
		return uns_fail(err, -ENOENT, "the Hugging Face cache %s has no model of this name", cache);
	revision = revision ? revision : "main";
	if (*revision == '/' || strstr(revision, ".."))
		return uns_fail(err, -ENOENT, "%s is no name of a revision", revision);
	UNS_TRY(ref_read(*root, revision, capture, arena, &commit, err));
	commit = commit ? commit : revision;
	if (is_one_name(commit)) {
		UNS_TRY_ALLOC(*path = uns_path_join(arena, "snapshots", commit), err);
		UNS_TRY(code = uns_is_there(*root, capture, *path, err));
		if (code)
			return 0;
	}
	return uns_fail(err, -ENOENT, "the Hugging Face cache %s has no revision %s of it", cache, revision);
}
