#include "examine/own_dirs.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

struct own_dirs {
	unsigned refs;
	bool changed_lately; /* one of them */
	struct uns_arena arena;
	struct own_dir {
		const char *below;
		struct uns_identity id;
	} *v;
	size_t n, cap;
};

struct own_dirs *own_dirs_new(void)
{
	struct own_dirs *dirs = calloc(1, sizeof(*dirs));

	if (dirs)
		dirs->refs = 1;
	return dirs;
}

struct own_dirs *own_dirs_ref(struct own_dirs *dirs)
{
	if (dirs)
		__atomic_add_fetch(&dirs->refs, 1, __ATOMIC_RELAXED);
	return dirs;
}

void own_dirs_put(struct own_dirs *dirs)
{
	if (!dirs || __atomic_sub_fetch(&dirs->refs, 1, __ATOMIC_ACQ_REL))
		return;
	uns_arena_fini(&dirs->arena);
	free(dirs);
}

int own_dirs_add(struct own_dirs *dirs, const char *below, const struct uns_stat *stat)
{
	const char *kept = uns_arena_str(&dirs->arena, below);

	if (!kept || !UNS_ARENA_ROOM(&dirs->arena, dirs->v, dirs->n, dirs->cap))
		return -ENOMEM;
	dirs->v[dirs->n++] = (struct own_dir){ kept, stat->id };
	dirs->changed_lately |= !uns_identity_is_old(&stat->id);
	return 0;
}

bool own_dirs_were_old(const struct own_dirs *dirs)
{
	return !dirs->changed_lately;
}

int own_dirs_same(const struct own_dirs *dirs, const struct uns_capture *capture, struct uns_err *err)
{
	const struct own_dir *dir;
	struct uns_stat now;
	int code;

	for (dir = dirs->v; dir < dirs->v + dirs->n; dir++) {
		now = *uns_capture_top(capture);
		code = *dir->below ? uns_capture_peek(capture, dir->below, &now, err) : 0;
		if (code < 0)
			return uns_code_is_finding(code) || code == -EACCES ? 0 : code;
		if (now.kind != UNS_KIND_DIR || !uns_identity_equal(&now.id, &dir->id))
			return 0;
	}
	return 1;
}
