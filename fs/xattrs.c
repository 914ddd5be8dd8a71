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

static int attribute(struct fs_wait *wait, const char *name, char **text)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = wait, .progress = fs_gave_up };

	return unshard_node_attribute(wait->node->node, name, &calls, text, NULL);
}

/* As getxattr(2) and listxattr(2): size 0 asks how long the answer is. */
static void reply(struct fs_wait *wait, const char *value, size_t len)
{
	fuse_req_t req = fs_wait_take(wait);

	if (!req)
		return;
	if (!wait->size)
		fuse_reply_xattr(req, len);
	else if (len > wait->size)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, value, len);
}

static void do_getxattr(struct fs_wait *wait)
{
	char *text = NULL;
	int code = attribute(wait, wait->name + strlen(PREFIX), &text);
	size_t len = code < 0 ? 0 : strlen(text);

	if (len > LONGEST_VALUE_BYTES)
		code = -E2BIG;
	if (code < 0)
		fs_reply_failure(wait, code);
	else
		reply(wait, text, len);
	unshard_free(text);
}

/* Names of others are answered without a look. EOPNOTSUPP for other namespaces: ls then asks once for the mount, not
 * for each file, whether there is a security context or an access list. */
void fs_op_getxattr(fuse_req_t req, fuse_ino_t id, const char *name, size_t size)
{
	if (strncmp(name, NAMESPACE, strlen(NAMESPACE)) != 0)
		fuse_reply_err(req, EOPNOTSUPP);
	else if (strncmp(name, PREFIX, strlen(PREFIX)) != 0)
		fuse_reply_err(req, ENODATA);
	else
		fs_answer(&(struct fs_wait){ .req = req,
					     .work = do_getxattr,
					     .node = fs_node_of(req, id),
					     .size = size,
					     .of_node = true,
					     .alone = true },
			  name);
}

static void do_listxattr(struct fs_wait *wait)
{
	char names[sizeof(listed) / sizeof(*listed) * 64], *text = NULL;
	size_t i, len = 0, n;

	for (i = 0; i < sizeof(listed) / sizeof(*listed); i++) {
		if (attribute(wait, listed[i], &text) < 0)
			continue;
		unshard_free(text);
		text = NULL;
		n = strlen(PREFIX) + strlen(listed[i]) + 1;
		memcpy(names + len, PREFIX, strlen(PREFIX));
		memcpy(names + len + strlen(PREFIX), listed[i], strlen(listed[i]) + 1);
		len += n;
	}
	reply(wait, names, len);
}

void fs_op_listxattr(fuse_req_t req, fuse_ino_t id, size_t size)
{
	fs_answer(
		&(struct fs_wait){
			.req = req, .work = do_listxattr, .node = fs_node_of(req, id), .size = size, .alone = true },
		NULL);
}
