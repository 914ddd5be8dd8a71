#include "io/inputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/path.h"

struct uns_inputs_own {
	unsigned refs; /* atomic */
	struct uns_arena arena;
	size_t cap;
	struct uns_map by_key;
	struct uns_root **root; /* those that the list holds */
	size_t n_roots, cap_roots;
};

struct uns_inputs *uns_inputs_new(void)
{
	struct uns_inputs *list = calloc(1, sizeof(*list));

	if (list && !(list->own = calloc(1, sizeof(*list->own)))) {
		free(list);
		return NULL;
	}
	if (list)
		list->own->refs = 1;
	return list;
}

struct uns_inputs *uns_inputs_ref(struct uns_inputs *list)
{
	if (list)
		__atomic_add_fetch(&list->own->refs, 1, __ATOMIC_RELAXED);
	return list;
}

void uns_inputs_put(struct uns_inputs *list)
{
	struct uns_inputs_own *own = list ? list->own : NULL;
	size_t i;

	if (!own || __atomic_sub_fetch(&own->refs, 1, __ATOMIC_ACQ_REL))
		return;
	for (i = 0; i < own->n_roots; i++)
		uns_root_close(own->root[i]);
	uns_map_fini(&own->by_key);
	uns_arena_fini(&own->arena);
	free(own);
	free(list);
}

static int input_put(struct uns_inputs *list, const struct uns_input *input, const char *key)
{
	struct uns_inputs_own *own = list->own;
	struct uns_input copy = *input;

	copy.path = uns_arena_str(&own->arena, input->path);
	key = uns_arena_str(&own->arena, key);
	if (!copy.path || !key || !UNS_ARENA_ROOM(&own->arena, list->v, list->n, own->cap) ||
	    !uns_map_put(&own->by_key, key, own, NULL))
		return -ENOMEM;
	list->v[list->n++] = copy;
	return 0;
}

static int root_put(struct uns_inputs *list, struct uns_root *root)
{
	struct uns_inputs_own *own = list->own;

	if (!UNS_ARENA_ROOM(&own->arena, own->root, own->n_roots, own->cap_roots))
		return -ENOMEM;
	own->root[own->n_roots++] = uns_root_ref(root);
	return 0;
}

/* What adds to the list has it alone then. */
static int inputs_unshare(struct uns_inputs **list)
{
	const struct uns_inputs *was = *list;
	struct uns_inputs *copy;
	const char *key;
	size_t at = 0, i;
	int code = 0;

	if (__atomic_load_n(&was->own->refs, __ATOMIC_ACQUIRE) == 1)
		return 0;
	copy = uns_inputs_new();
	if (!copy)
		return -ENOMEM;
	for (i = 0; code == 0 && uns_map_next(&was->own->by_key, &at, &key, NULL); i++)
		code = input_put(copy, &was->v[i], key);
	for (i = 0; code == 0 && i < was->own->n_roots; i++)
		code = root_put(copy, was->own->root[i]);
	uns_inputs_put(code < 0 ? copy : *list);
	if (code == 0)
		*list = copy;
	return code;
}

int uns_inputs_add(struct uns_inputs **list, const struct uns_input *input)
{
	UNS_CLEANUP(uns_free_p) char *key = NULL;

	if (asprintf(&key, "%d %p %p %s", input->kind, (const void *)input->root, (const void *)input->globs,
		     input->path) < 0) {
		key = NULL;
		return -ENOMEM;
	}
	if (uns_map_get(&(*list)->own->by_key, key))
		return 0;
	UNS_TRY(inputs_unshare(list));
	return input_put(*list, input, key);
}

int uns_inputs_hold_root(struct uns_inputs **list, struct uns_root *root)
{
	UNS_TRY(inputs_unshare(list));
	return root_put(*list, root);
}

uint64_t uns_inputs_hash(const struct uns_inputs *list)
{
	uint64_t h = UNS_HASH_INIT;
	size_t i;

	for (i = 0; i < list->n; i++) {
		h = uns_hash_str(uns_hash_u64(h, list->v[i].kind), uns_path_name(list->v[i].path));
		h = uns_hash_u64(h, list->v[i].seen);
	}
	return uns_hash_end(h);
}

/* -- as bytes: the number of inputs; of each this, and its path -- */

struct packed {
	uint8_t kind, up; /* up: how many roots above the given one */
	int64_t since_ns;
	uint64_t seen;
};

/* How many roots above `root` the other one is; -1 = it is none of them. */
static int levels_up(const struct uns_root *root, const struct uns_root *above)
{
	const char *path = "";
	int n = 0;

	while (path && root != above) {
		uns_root_up(root, "", NULL, &root, &path, NULL);
		n++;
	}
	return path ? n : -1;
}

int uns_inputs_pack(const struct uns_inputs *list, const struct uns_root *root, struct uns_text *out)
{
	const uint64_t count = list->n;
	struct packed p;
	size_t i;
	int up;

	uns_text_add(out, &count, sizeof(count));
	for (i = 0; i < list->n; i++) {
		up = list->v[i].root ? levels_up(root, list->v[i].root) : -1;
		if (up < 0 || list->v[i].globs)
			return -ENOTSUP;
		memset(&p, 0, sizeof(p));
		p.kind = (uint8_t)list->v[i].kind;
		p.up = (uint8_t)up;
		p.since_ns = list->v[i].since_ns;
		p.seen = list->v[i].seen;
		uns_text_add(out, &p, sizeof(p));
		uns_text_add(out, list->v[i].path, strlen(list->v[i].path) + 1);
	}
	return 0;
}

static bool take_bytes(struct uns_span *from, void *to, size_t n)
{
	const uint8_t *at;

	if (!uns_span_take(from, n, &at))
		return false;
	memcpy(to, at, n);
	return true;
}

static bool unpack_one(struct uns_span *bytes, const struct uns_root *root, struct uns_input *out)
{
	const char *path = "";
	struct packed p;
	size_t n;

	if (!take_bytes(bytes, &p, sizeof(p)) || p.kind >= UNS_INPUT_PLACE)
		return false;
	while (p.up-- && path)
		uns_root_up(root, "", NULL, &root, &path, NULL);
	n = strnlen((const char *)bytes->p, uns_span_left(bytes));
	if (!path || n == uns_span_left(bytes))
		return false;
	*out = (struct uns_input){ .kind = (enum uns_input_kind)p.kind,
				   .root = root,
				   .path = (const char *)bytes->p,
				   .since_ns = p.since_ns,
				   .seen = p.seen };
	bytes->p += n + 1;
	return true;
}

int uns_inputs_unpack(struct uns_span *bytes, const struct uns_root *root, struct uns_arena *arena,
		      struct uns_input **out, size_t *n)
{
	uint64_t count;
	size_t cap = 0;

	*out = NULL;
	*n = 0;
	if (!take_bytes(bytes, &count, sizeof(count)))
		return -EBADMSG;
	for (; *n < count; (*n)++) {
		if (!UNS_ARENA_ROOM(arena, *out, *n, cap))
			return -ENOMEM;
		if (!unpack_one(bytes, root, &(*out)[*n]))
			return -EBADMSG;
	}
	return 0;
}
