/* A few listings by path, the one that was used longest ago replaced first. */
#include "io/kept_list.h"

#include <stdlib.h>
#include <string.h>

struct uns_kept_list {
	unsigned refs; /* atomic */
	struct uns_arena arena;
	const struct uns_root *root;
	const char *path;
	struct uns_identity id;
	struct uns_listing list;
};

void uns_kept_lists_init(struct uns_kept_lists *lists)
{
	*lists = (struct uns_kept_lists){ .lock = PTHREAD_MUTEX_INITIALIZER };
}

void uns_kept_lists_fini(struct uns_kept_lists *lists)
{
	size_t i;

	for (i = 0; i < UNS_KEPT_LISTS; i++)
		uns_kept_list_put(lists->v[i]);
	pthread_mutex_destroy(&lists->lock);
}

void uns_kept_list_put(struct uns_kept_list *kept)
{
	if (!kept || __atomic_sub_fetch(&kept->refs, 1, __ATOMIC_ACQ_REL))
		return;
	uns_arena_fini(&kept->arena);
	free(kept);
}

static bool is_of(const struct uns_kept_list *kept, const struct uns_root *root, const char *path)
{
	return kept->root == root && strcmp(kept->path, path) == 0;
}

/* Puts the list first, in the place of one of the same directory or of the last; returns that one. Lock held. */
static struct uns_kept_list *move_first(struct uns_kept_lists *lists, struct uns_kept_list *kept)
{
	struct uns_kept_list *old;
	size_t i = 0;

	while (i < UNS_KEPT_LISTS - 1 && lists->v[i] && !is_of(lists->v[i], kept->root, kept->path))
		i++;
	old = lists->v[i];
	memmove(lists->v + 1, lists->v, i * sizeof(struct uns_kept_list *));
	lists->v[0] = kept;
	return old;
}

/* With a reference; NULL if it is not kept. */
static struct uns_kept_list *find(struct uns_kept_lists *lists, const struct uns_root *root, const char *path,
				  const struct uns_identity *id)
{
	struct uns_kept_list *found = NULL;
	size_t i;

	pthread_mutex_lock(&lists->lock);
	for (i = 0; i < UNS_KEPT_LISTS && lists->v[i] && !found; i++)
		if (is_of(lists->v[i], root, path) && uns_identity_equal(&lists->v[i]->id, id))
			found = lists->v[i];
	if (found) {
		move_first(lists, found);
		__atomic_add_fetch(&found->refs, 1, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&lists->lock);
	return found;
}

static void keep(struct uns_kept_lists *lists, struct uns_kept_list *kept)
{
	struct uns_kept_list *old;

	kept->refs++; /* no other thread has it yet */
	pthread_mutex_lock(&lists->lock);
	old = move_first(lists, kept);
	pthread_mutex_unlock(&lists->lock);
	uns_kept_list_put(old);
}

static int list_new(const struct uns_root *root, const char *rel, int fd, const struct uns_stat *now,
		    struct uns_kept_list **out, struct uns_err *err)
{
	struct uns_kept_list *own = calloc(1, sizeof(*own));
	int code;

	UNS_TRY_ALLOC(own, err);
	*own = (struct uns_kept_list){ .refs = 1, .root = root, .id = now->id };
	own->path = uns_arena_str(&own->arena, rel);
	code = own->path ? uns_dir_list(root, rel, fd, &own->arena, &own->list, err) : uns_oom(err);
	if (code < 0)
		uns_kept_list_put(own);
	else
		*out = own;
	return code;
}

int uns_list_kept(struct uns_kept_lists *lists, const struct uns_root *root, const char *rel, int fd,
		  const struct uns_stat *now, struct uns_kept_list **kept, struct uns_listing *out, struct uns_err *err)
{
	bool old = uns_identity_is_old(&now->id); /* before it is listed */

	*kept = find(lists, root, rel, &now->id);
	if (!*kept) {
		UNS_TRY(list_new(root, rel, fd, now, kept, err));
		if (old)
			keep(lists, *kept);
	}
	*out = (*kept)->list;
	return 0;
}
