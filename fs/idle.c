/* See idle.h. What the kernel forgets it reports as usual (op_forget), and that is what frees a node. */
#include "idle.h"

#include <malloc.h>
#include <string.h>

#include "ops.h"

enum { MANY = 10000, MOST_AT_ONCE = 128 };

static const int64_t idle_ns = 60 * INT64_C(1000000000);

/* Names that the kernel keeps, until there is a request: it goes before them. */
static void forget_names(struct fs *fs, int64_t asked_ns)
{
	struct fs_name name[MOST_AT_ONCE];
	size_t bucket = 0, n, i;

	while ((n = fs_nodes_unused(&fs->nodes, &bucket, name, MOST_AT_ONCE)))
		for (i = 0; i < n; i++) {
			if (fuse_session_exited(fs->se) || fs_waits_asked_ns(&fs->waits, 0) != asked_ns)
				return;
			fuse_lowlevel_notify_inval_entry(fs->se, name[i].dir_id, name[i].text, strlen(name[i].text));
		}
}

/* Once nodes are freed no more: the kernel takes its time. */
static void give_back(struct fs *fs)
{
	const size_t n = fs_nodes_count(&fs->nodes);

	if (n < fs->idle.n_nodes) {
		fs->idle.n_nodes = n;
		return;
	}
	fs->idle.n_nodes = 0;
	fs_nodes_shrink(&fs->nodes);
	malloc_trim(0);
}

void fs_idle_look(struct fs *fs)
{
	const int64_t asked_ns = fs_waits_asked_ns(&fs->waits, idle_ns);

	if (fs->idle.n_nodes)
		give_back(fs);
	if (!asked_ns || asked_ns == fs->idle.asked_ns)
		return;
	fs->idle.asked_ns = asked_ns;
	unshard_rest(fs->u);
	if (fs_nodes_count(&fs->nodes) < MANY)
		return;
	fs->idle.n_nodes = fs_nodes_count(&fs->nodes);
	forget_names(fs, asked_ns);
}
