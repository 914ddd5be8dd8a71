/* user.unshard.NAME: what the library knows of a name, as the value of an extended attribute.
 *
 * Listed are those that cost nothing and never fail: programs that copy files (cp -a, tar --xattrs, rsync -X) read all
 * that is listed. `source` may be longer than the kernel takes, and `sha256` reads the whole file: ask for them by
 * name. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ops.h"

#define NAMESPACE "user."
#define PREFIX    NAMESPACE "unshard."

enum { LONGEST_VALUE_BYTES = 65536 }; /* XATTR_SIZE_MAX */

static const char *const listed[] = { "generation", "view" };

static int gave_up(void *ctx, const struct unshard_progress *progress)
{
	fuse_req_t req = ctx;
	const struct fs *fs = fuse_req_userdata(req);

	(void)progress;
	return fuse_req_interrupted(req) || fuse_session_exited(fs->se) ? -EINTR : 0;
}

static int attribute(fuse_req_t req, fuse_ino_t id, const char *name, char **text)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = req, .progress = gave_up };
	struct fs *fs = fuse_req_userdata(req);

	return unshard_node_attribute(fs_nodes_of_id(&fs->nodes, id)->node, name, &calls, text, NULL);
}

/* As getxattr(2) and listxattr(2): size 0 asks how long the answer is. */
static void reply(fuse_req_t req, const char *value, size_t len, size_t size)
{
	if (!size)
		fuse_reply_xattr(req, len);
	else if (len > size)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, value, len);
}

/* Names of others are answered without a look. EOPNOTSUPP for other namespaces: ls then asks once for the mount, not
 * for each file, whether there is a security context or an access list. */
void fs_op_getxattr(fuse_req_t req, fuse_ino_t id, const char *name, size_t size)
{
	char *text = NULL;
	size_t len;
	int code = -ENODATA;

	if (strncmp(name, NAMESPACE, strlen(NAMESPACE)) != 0)
		code = -EOPNOTSUPP;
	else if (!strncmp(name, PREFIX, strlen(PREFIX)))
		code = attribute(req, id, name + strlen(PREFIX), &text);
	len = code < 0 ? 0 : strlen(text);
	if (len > LONGEST_VALUE_BYTES)
		code = -E2BIG;
	if (code < 0)
		fuse_reply_err(req, code == -ENOSYS ? EIO : -code);
	else
		reply(req, text, len, size);
	unshard_free(text);
}

void fs_op_listxattr(fuse_req_t req, fuse_ino_t id, size_t size)
{
	char names[sizeof(listed) / sizeof(*listed) * 64], *text = NULL;
	size_t i, len = 0, n;

	for (i = 0; i < sizeof(listed) / sizeof(*listed); i++) {
		if (attribute(req, id, listed[i], &text) < 0)
			continue;
		unshard_free(text);
		text = NULL;
		n = strlen(PREFIX) + strlen(listed[i]) + 1;
		memcpy(names + len, PREFIX, strlen(PREFIX));
		memcpy(names + len + strlen(PREFIX), listed[i], strlen(listed[i]) + 1);
		len += n;
	}
	reply(req, names, len, size);
}
