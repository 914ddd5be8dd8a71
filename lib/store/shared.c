#include "store/shared.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "io/mounts.h"
#include "store/moment.h"

static bool may_pass(int code)
{
	return code == -EBUSY || code == -EIO || code == -EROFS;
}

/* The file and the directory, in which SQLite makes its journal. */
static bool may_be_written(const char *path)
{
	UNS_CLEANUP(uns_free_p) char *dir = strdup(path);
	char *slash = dir ? strrchr(dir, '/') : NULL;

	if (slash)
		slash[slash == dir] = '\0';
	return dir && access(path, R_OK | W_OK) == 0 && access(slash ? dir : ".", W_OK | X_OK) == 0;
}

bool shared_try_again(const struct uns_store *store, int code, unsigned seconds, struct shared_tries *tries)
{
	const int64_t now_ns = uns_now_ns();

	if (!may_pass(code) || store->why_read_only.code)
		return false;
	if (!tries->until_ns) {
		if (uns_is_local(store->path) || !may_be_written(store->path))
			return false;
		tries->until_ns = now_ns + seconds * INT64_C(1000000000);
	}
	if (now_ns >= tries->until_ns)
		return false;
	moment_wait(tries->n++);
	return true;
}
