/* Removes a prefix from names. Does not know what the names are of. */
#include "files/strip.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"

const char *uns_strip_name(const char *prefix, const char *name)
{
	size_t n = strlen(prefix);

	return strncmp(name, prefix, n) == 0 && name[n] ? name + n : name;
}

int uns_strip_choose(const char *strip, const char *const *names, size_t n, struct uns_vtree *out,
		     const char **prefix, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map seen = UNS_MAP_INIT;
	const char *name = NULL;
	void *twice = NULL;
	size_t i;

	*prefix = strip ? strip : "";
	for (i = 0; **prefix && i < n && !twice; i++) {
		name = uns_strip_name(*prefix, names[i]);
		if (!uns_map_put(&seen, name, (void *)names[i], &twice))
			return uns_oom(err);
	}
	if (!twice)
		return 0;
	UNS_TRY(uns_vtree_note(out, err,
			       "strip=%s: two tensors would be called %s, so nothing is stripped", *prefix,
			       name));
	*prefix = "";
	return 0;
}
