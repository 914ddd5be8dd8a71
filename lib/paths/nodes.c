/* unshard_root, unshard_lookup and what they give. */
#include "paths/nodes.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "api/caller.h"
#include "paths/newest.h"

struct unshard_node {
	struct unshard *u;
	unsigned refs; /* atomic */
	bool stays; /* of a directory, which a mount's kernel keeps for longer than files: it is in u->directories */
	uint64_t ino;
	struct spot_key key; /* its texts are behind this */
	const char *name;    /* its path in the tree */
	char text[];
};

static const char *keep(char **at, const char *text)
{
	size_t n = strlen(text) + 1;
	char *kept = memcpy(*at, text, n);

	*at += n;
	return kept;
}

struct unshard_node *node_new(struct unshard *u, const struct spot_key *key, const char *name,
			      const struct unshard_stat *st)
{
	const size_t size = sizeof(struct unshard_node) + strlen(name) + strlen(key->path) + strlen(key->inside) + 3;
	const bool stays = st->kind == UNSHARD_DIR;
	struct unshard_node *node = stays ? uns_cohorts_take(&u->directories, size) : malloc(size);
	char *at;

	if (!node)
		return NULL;
	*node = (struct unshard_node){ .u = u, .refs = 1, .stays = stays, .ino = st->ino, .key = *key };
	at = node->text;
	node->name = keep(&at, name);
	node->key.path = keep(&at, key->path);
	node->key.inside = keep(&at, key->inside);
	return node;
}

struct unshard *node_session(const struct unshard_node *node)
{
	return node->u;
}

unshard_node *unshard_node_ref(unshard_node *node)
{
	__atomic_add_fetch(&node->refs, 1, __ATOMIC_RELAXED);
	return node;
}

void unshard_node_unref(unshard_node *node)
{
	if (!node || __atomic_sub_fetch(&node->refs, 1, __ATOMIC_ACQ_REL))
		return;
	if (node->stays)
		uns_cohorts_give_back(node);
	else
		free(node);
}

const char *unshard_node_path(const unshard_node *node)
{
	return node->name;
}

static int fail_moved_on(const struct unshard_node *node, struct uns_err *err)
{
	return uns_fail(err, -ESTALE, "%s is not what it was when it was looked up: its source changed", node->name);
}

int node_spot(const struct unshard_node *node, enum look look, struct spot *out, bool *moved_on, struct uns_err *err)
{
	struct uns_err why = { 0 };
	int code = spot_of(node->u, &node->key, look, out, &why);

	if (code == -ENOTDIR || code == -ESTALE)
		return fail_moved_on(node, err);
	if (code < 0)
		return uns_fail_copy(err, &why);
	code = spot_check(node->u, out, err);
	if (moved_on)
		*moved_on = out->ino != node->ino;
	else if (code == 0 && out->ino != node->ino && !node->key.top)
		code = fail_moved_on(node, err);
	if (code < 0)
		spot_fini(node->u, out);
	return code;
}

int unshard_root(unshard *u, unshard_node **out, struct unshard_error *error)
{
	struct uns_err err = { 0 };
	struct unshard_stat st;
	struct spot spot;
	int code = spot_top(u, &spot, &err);

	if (code < 0)
		return give_error(error, &err, code);
	spot_stat(u, &spot, &st);
	*out = node_new(u, &spot.key, "", &st);
	spot_fini(u, &spot);
	return *out ? 0 : give_error(error, &err, uns_oom(&err));
}

/* One component, and none that leads elsewhere. */
static bool is_component(const char *name)
{
	return *name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static int make_child(const struct unshard_node *dir, const char *name, const struct spot *spot,
		      const struct unshard_stat *st, unshard_node **out, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const char *path = uns_path_join(&arena, dir->name, name);

	*out = path ? node_new(dir->u, &spot->key, path, st) : NULL;
	return *out ? 0 : uns_oom(err);
}

/* What the name in the directory is now. */
static int enter_node(const struct unshard_node *dir, const char *name, struct spot *out, struct uns_err *err)
{
	int code;

	if (spot_is_root_info(dir->u, &dir->key, name)) {
		*out = (struct spot){ 0 };
		return spot_root_info(dir->u, out, err);
	}
	UNS_TRY(node_spot(dir, LOOK_LISTS, out, NULL, err));
	out->look = LOOK_NAMES;
	code = spot_enter(dir->u, out, name, err);
	if (code == 0)
		code = spot_check(dir->u, out, err);
	if (code < 0)
		spot_fini(dir->u, out);
	return code;
}

int unshard_lookup(unshard_node *dir, const char *name, unshard_node **out, struct unshard_stat *st,
		   struct unshard_error *error)
{
	struct uns_err err = { 0 };
	struct unshard_stat own;
	struct spot spot;
	int code;

	if (!is_component(name))
		return give_error(error, &err, uns_fail(&err, -EINVAL, "\"%s\" is not one name", name));
	code = enter_node(dir, name, &spot, &err);
	if (code < 0)
		return give_error(error, &err, code);
	spot_stat(dir->u, &spot, &own);
	if (st)
		code = caller_give(st, &own, "stat", &err);
	if (code == 0)
		code = make_child(dir, name, &spot, &own, out, &err);
	spot_fini(dir->u, &spot);
	return give_error(error, &err, code);
}

/* Ends the spot. */
static int stat_out(struct unshard *u, struct spot *spot, struct unshard_stat *out, struct uns_err *err)
{
	struct unshard_stat own;

	spot_stat(u, spot, &own);
	spot_fini(u, spot);
	return caller_give(out, &own, "stat", err);
}

int unshard_node_stat(const unshard_node *node, struct unshard_stat *out, struct unshard_error *error)
{
	struct uns_err err = { 0 };
	struct spot spot;
	int code = node_spot(node, LOOK_LISTS, &spot, NULL, &err);

	if (code == 0)
		code = stat_out(node->u, &spot, out, &err);
	return give_error(error, &err, code);
}

int unshard_stat(unshard *u, const char *path, struct unshard_stat *out, struct unshard_error *error)
{
	struct uns_err err = { 0 };
	struct spot spot;
	int code = spot_find(u, path, &spot, &err);

	if (code == 0)
		code = stat_out(u, &spot, out, &err);
	return give_error(error, &err, code);
}

/* -- what may have to be waited for -- */

static bool is_of_all(const char *name)
{
	return !*name || strcmp(name, NEWEST_NAME) == 0;
}

/* Of a directory of SOURCE that is no checkpoint, or is none as far as is known. */
static uint64_t device_in(const struct unshard_node *dir, const char *name)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const char *path = is_of_all(name) ? dir->key.path : uns_path_join(&arena, dir->key.path, name);

	return records_device(&dir->u->records, path ? path : dir->key.path, is_of_all(name));
}

uint64_t unshard_node_device(const unshard_node *node, const char *name)
{
	if (node->key.kind == SPOT_ROOT_INFO || (name && spot_is_root_info(node->u, &node->key, name)))
		return 0;
	if (node->key.kind == SPOT_ROOT)
		return name ? records_device(&node->u->records, "", false) : 0;
	if (node->key.kind == SPOT_SOURCE && node->key.directory && name)
		return device_in(node, name);
	return records_device(&node->u->records, node->key.path, false);
}

/* -- links -- */

static int read_link(struct unshard *u, struct spot *spot, const char *name, char **target, struct uns_err *err)
{
	const char *text = spot->key.inside;

	if (spot->key.kind == SPOT_SOURCE && !spot->key.directory && spot->stat.kind == UNS_KIND_LINK)
		UNS_TRY(uns_root_readlink(u->root, spot->key.path, &spot->arena, &text, err));
	else if (spot->key.kind != SPOT_NEWEST)
		return uns_fail(err, -EINVAL, "%s is not a link", name);
	*target = strdup(text);
	return *target ? 0 : uns_oom(err);
}

int unshard_node_readlink(const unshard_node *node, char **target, struct unshard_error *error)
{
	struct uns_err err = { 0 };
	struct spot spot;
	int code = node_spot(node, LOOK_FULL, &spot, NULL, &err);

	if (code == 0) {
		code = read_link(node->u, &spot, node->name, target, &err);
		spot_fini(node->u, &spot);
	}
	return give_error(error, &err, code);
}

int unshard_readlink(unshard *u, const char *path, char **target, struct unshard_error *error)
{
	struct uns_err err = { 0 };
	struct spot spot;
	int code = spot_find(u, path, &spot, &err);

	if (code == 0) {
		code = read_link(u, &spot, path, target, &err);
		spot_fini(u, &spot);
	}
	return give_error(error, &err, code);
}
