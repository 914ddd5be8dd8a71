/* Building, sealing and searching a catalog. Owns its arrays: they grow by realloc while a format fills
 * them, and move into the arena, at their exact size, when the catalog is sealed (tensors and pieces stay). What the
 * session adds behind that (borrowed files, what it found out about them) grows them inside the arena. Must not know
 * formats or views, and reads nothing of a file but its stat. */
#include "model/catalog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/array.h"
#include "base/checked.h"
#include "base/cleanup.h"

enum { POPULATED_PIECES = 1 << 16 };

/* Makes room for one more element of an array, unless what it would hold could not be allocated. */
static int make_room(struct uns_catalog *cat, void *array_p, size_t n, size_t *cap, size_t size, struct uns_err *err)
{
	void **array = array_p, *bigger;
	size_t want = *cap ? *cap * 2 : 16;

	UNS_TRY(uns_arena_check(&cat->arena, err));
	if (n < *cap)
		return 0;
	if (n >= UNS_NONE - 1)
		return uns_fail(err, -ENOTSUP, "a checkpoint of more than 2^32 items");
	UNS_TRY_ALLOC(bigger = cat->sealed ? uns_arena_grow(&cat->arena, *array, n, want, size)
					   : reallocarray(*array, want, size),
		      err);
	*array = bigger;
	*cap = want;
	return 0;
}

#define APPEND(cat, list, item, err)                                                                  \
	__extension__({                                                                               \
		int append_code = make_room((cat), &(cat)->list, (cat)->n_##list, &(cat)->cap_##list, \
					    sizeof(*(cat)->list), (err));                             \
		if (append_code == 0)                                                                 \
			(cat)->list[(cat)->n_##list++] = (item);                                      \
		append_code;                                                                          \
	})

int uns_catalog_new(const char *path, struct uns_catalog **out, struct uns_err *err)
{
	struct uns_catalog *cat = calloc(1, sizeof(*cat));

	UNS_TRY_ALLOC(cat, err);
	cat->path = uns_arena_str(&cat->arena, path);
	if (!cat->path) {
		uns_catalog_free(cat);
		return uns_oom(err);
	}
	cat->summary.format = cat->summary.framework = "";
	cat->summary.step = cat->summary.world_size = UNS_UNKNOWN;
	*out = cat;
	return 0;
}

void uns_catalog_free(struct uns_catalog *cat)
{
	if (!cat)
		return;
	free(cat->pieces);
	free(cat->proven);
	free(cat->sealed ? cat->own_tensors : cat->tensors);
	if (!cat->sealed) {
		free(cat->files);
		free(cat->groups);
		free(cat->values);
		free(cat->companions);
		free(cat->findings);
	}
	uns_map_fini(&cat->file_by_path);
	uns_box_pool_fini(&cat->boxes);
	uns_arena_fini(&cat->arena);
	free(cat);
}

/* A file that is absent is a fact; a link that may not be followed is one too, and the read of its bytes will fail with
 * that reason. Any other failure is an error of this machine. */
static int file_stat(const struct uns_catalog *cat, const struct uns_root *root, const char *path,
		     struct uns_file *file, struct uns_err *err)
{
	struct uns_err why = { 0 };
	int code = uns_stat_seen(root, cat->capture, path, &file->stat, &why);

	if (code == -ENOENT || code == -ENOTDIR)
		file->missing = true;
	else if (code == -ELOOP || code == -EXDEV)
		file->stat.kind = UNS_KIND_LINK;
	else if (code < 0)
		return uns_fail_copy(err, &why);
	return 0;
}

int uns_catalog_add_file(struct uns_catalog *cat, const struct uns_root *root, const char *path, uint32_t *out,
			 struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) char *key = NULL;
	struct uns_file file = { .root = root };
	char *kept;

	UNS_TRY(uns_arena_check(&cat->arena, err));
	UNS_TRY_ALLOC(path, err);
	if (asprintf(&key, "%p %s", (const void *)root, path) < 0) {
		key = NULL;
		return uns_oom(err);
	}
	*out = uns_map_index(&cat->file_by_path, key);
	if (*out != UNS_MAP_NO_INDEX)
		return 0;
	UNS_TRY_ALLOC(kept = uns_arena_str(&cat->arena, key), err);
	file.path = strchr(kept, ' ') + 1;
	UNS_TRY(file_stat(cat, root, file.path, &file, err));
	UNS_TRY(APPEND(cat, files, file, err));
	*out = (uint32_t)(cat->n_files - 1);
	UNS_TRY_ALLOC(uns_map_put_index(&cat->file_by_path, kept, *out), err);
	return 0;
}

int uns_catalog_add_tensor(struct uns_catalog *cat, const struct uns_tensor *tensor, uint32_t *out, struct uns_err *err)
{
	struct uns_tensor *t;

	UNS_TRY(APPEND(cat, tensors, *tensor, err));
	t = &cat->tensors[cat->n_tensors - 1];
	t->first_piece = (uint32_t)cat->n_pieces;
	t->n_pieces = 0;
	if (out)
		*out = (uint32_t)(cat->n_tensors - 1);
	return 0;
}

int uns_catalog_add_piece(struct uns_catalog *cat, const struct uns_piece *piece, struct uns_err *err)
{
	const struct uns_box *box;

	if (!cat->n_tensors || cat->sealed)
		return uns_fail(err, -EINVAL, "a piece without a tensor");
	UNS_TRY(APPEND(cat, pieces, *piece, err));
	if (piece->kind == UNS_PIECE_BOX) {
		UNS_TRY_ALLOC(box = uns_box_keep(&cat->boxes, &cat->arena, piece->box), err);
		cat->pieces[cat->n_pieces - 1].box = box;
	}
	cat->tensors[cat->n_tensors - 1].n_pieces++;
	return 0;
}

int uns_catalog_expect_pieces(struct uns_catalog *cat, size_t n, struct uns_err *err)
{
	if (!n)
		return 0;
	UNS_TRY_ALLOC(cat->pieces = reallocarray(cat->pieces, n, sizeof(*cat->pieces)), err);
	cat->cap_pieces = n;
	return 0;
}

/* The kernel gives memory page by page when it is first written, which for millions of pieces takes as long as reading
 * them. So it is asked for many pages at once, never for more than are about to be written. */
static void populate(struct uns_catalog *cat, size_t n)
{
#ifdef MADV_POPULATE_WRITE
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from, end;

	if (n <= cat->n_populated)
		return;
	n = n + POPULATED_PIECES < cat->cap_pieces ? n + POPULATED_PIECES : cat->cap_pieces;
	from = (uintptr_t)(cat->pieces + cat->n_populated) / page * page;
	end = (uintptr_t)(cat->pieces + n) / page * page;
	if (cat->cap_pieces >= POPULATED_PIECES && from < end)
		madvise((void *)from, end - from, MADV_POPULATE_WRITE);
	cat->n_populated = n;
#else
	(void)cat;
	(void)n;
#endif
}

struct uns_piece *uns_catalog_extend(struct uns_catalog *cat, size_t n)
{
	struct uns_piece *piece = cat->pieces + cat->n_pieces;

	populate(cat, cat->n_pieces + n);
	memset(piece, 0, n * sizeof(*piece));
	cat->n_pieces += n;
	cat->tensors[cat->n_tensors - 1].n_pieces += (uint32_t)n;
	return piece;
}

int uns_catalog_note(struct uns_catalog *cat, bool is_proven, struct uns_err *err)
{
	if (!UNS_HEAP_ROOM(cat->proven, cat->n_proven, cat->cap_proven))
		return uns_oom(err);
	cat->proven[cat->n_proven++] = is_proven;
	return 0;
}

int uns_catalog_add_group(struct uns_catalog *cat, const struct uns_group *group, struct uns_err *err)
{
	return APPEND(cat, groups, *group, err);
}

int uns_catalog_add_value(struct uns_catalog *cat, const struct uns_named_value *value, struct uns_err *err)
{
	return APPEND(cat, values, *value, err);
}

int uns_catalog_add_companion(struct uns_catalog *cat, const char *name, uint32_t file, bool shard, struct uns_err *err)
{
	struct uns_companion companion = { .file = file, .shard = shard };

	companion.name = uns_arena_str(&cat->arena, name);
	return APPEND(cat, companions, companion, err);
}

int uns_catalog_add_finding(struct uns_catalog *cat, const struct uns_finding *f, struct uns_err *err)
{
	const struct uns_finding *copy;
	struct uns_finding own = *f;

	/* What is wrong with the moment is no finding. */
	if (own.code && !uns_code_is_finding(own.code))
		return uns_fail(err, own.code, "%s: cannot be read now: %s", cat->path, strerror(-own.code));
	if (!own.checkpoint)
		own.checkpoint = cat->path;
	copy = uns_finding_copy(&cat->arena, &own);
	return copy ? APPEND(cat, findings, *copy, err) : uns_oom(err);
}

int uns_catalog_fail(const struct uns_catalog *cat, const struct uns_finding *f, struct uns_err *err)
{
	struct uns_finding own = *f;

	UNS_TRY(uns_arena_check(&cat->arena, err));
	own.checkpoint = cat->path;
	return uns_fail_with(err, &own);
}

int uns_catalog_problem_or_fail(struct uns_catalog *cat, enum uns_scope scope, const struct uns_err *why,
				struct uns_err *err)
{
	struct uns_finding f;

	if (!uns_code_is_finding(why->code))
		return uns_fail_copy(err, why);
	f = uns_finding_of_err(why, scope);
	return uns_catalog_add_finding(cat, &f, err);
}

/* -- tensors of another catalog -- */

static int room_for_pieces(struct uns_catalog *cat, size_t n, struct uns_err *err)
{
	size_t want = 2 * cat->cap_pieces;
	struct uns_piece *bigger;

	if (n >= UNS_NONE - cat->n_pieces)
		return uns_fail(err, -ENOTSUP, "checkpoints of more than 2^32 items");
	if (cat->n_pieces + n <= cat->cap_pieces)
		return 0;
	if (want < cat->n_pieces + n)
		want = cat->n_pieces + n;
	UNS_TRY_ALLOC(bigger = reallocarray(cat->pieces, want, sizeof(*bigger)), err);
	cat->pieces = bigger;
	cat->cap_pieces = want;
	return 0;
}

static int take_piece(struct uns_catalog *cat, const struct uns_catalog *from, const struct uns_piece *piece,
		      struct uns_err *err)
{
	const struct uns_file *file = &from->files[piece->file];
	struct uns_piece own = *piece;

	if (piece->kind == UNS_PIECE_BOX)
		UNS_TRY_ALLOC(own.box = uns_arena_grow(&cat->arena, piece->box, 1, 1, sizeof(*piece->box)), err);
	if (uns_piece_is_strided(piece))
		UNS_TRY_ALLOC(own.stride_elems = uns_arena_grow(&cat->arena, piece->stride_elems, piece->box->n,
								piece->box->n, sizeof(*piece->stride_elems)),
			      err);
	if (uns_piece_part(piece))
		UNS_TRY_ALLOC(own.part = uns_arena_grow(&cat->arena, piece->part, 1, 1, sizeof(*piece->part)), err);
	UNS_TRY(uns_catalog_add_file(cat, file->root, file->path, &own.file, err));
	cat->pieces[cat->n_pieces++] = own;
	return 0;
}

int uns_catalog_take_tensor(struct uns_catalog *cat, const struct uns_catalog *from, const struct uns_tensor *tensor,
			    uint32_t *out, struct uns_err *err)
{
	const struct uns_piece *piece = from->pieces + tensor->first_piece;
	struct uns_tensor own = {
		.role = UNS_ROLE_OTHER, .root = "", .dtype = tensor->dtype, .shape = tensor->shape, UNS_TENSOR_ALONE
	};
	uint32_t i;

	own.name = uns_arena_str(&cat->arena, tensor->name);
	own.key = uns_arena_str(&cat->arena, tensor->key);
	UNS_TRY(room_for_pieces(cat, tensor->n_pieces, err));
	UNS_TRY(uns_catalog_add_tensor(cat, &own, out, err));
	for (i = 0; i < tensor->n_pieces; i++)
		UNS_TRY(take_piece(cat, from, &piece[i], err));
	cat->tensors[*out].n_pieces = tensor->n_pieces;
	return 0;
}

/* -- param groups -- */

/* One mention of a name in a group; names that several optimizers hold are chained. */
struct mention {
	int32_t group, position;
	struct mention *next;
};

static int mention_all(const struct uns_catalog *cat, struct uns_arena *arena, struct uns_map *map, struct uns_err *err)
{
	const struct uns_group *g;
	struct mention *m;
	size_t i, k;

	for (i = 0; i < cat->n_groups; i++) {
		g = &cat->groups[i];
		UNS_TRY_ALLOC(m = UNS_NEW_N(arena, struct mention, g->n_params), err);
		for (k = 0; k < g->n_params; k++) {
			m[k] = (struct mention){ (int32_t)i, (int32_t)k, uns_map_get(map, g->param[k]) };
			UNS_TRY_ALLOC(uns_map_put(map, g->param[k], &m[k], NULL), err);
		}
	}
	return 0;
}

static void assign_group(const struct uns_catalog *cat, const struct uns_map *map, struct uns_tensor *t)
{
	bool any_root = t->role == UNS_ROLE_WEIGHT;
	const struct mention *m, *found = NULL;

	if (t->group >= 0 || (!any_root && !uns_role_is_optimizer(t->role)))
		return;
	for (m = uns_map_get(map, t->name); m; m = m->next)
		if (any_root ? !cat->groups[m->group].numbered : strcmp(cat->groups[m->group].root, t->root) == 0)
			found = m; /* chained backwards: the last is the first in the groups' order */
	if (found) {
		t->group = found->group;
		t->position = found->position;
	}
}

int uns_catalog_assign_groups(struct uns_catalog *cat, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_map_fini) struct uns_map map = UNS_MAP_INIT;
	size_t i;

	UNS_TRY(mention_all(cat, &scratch, &map, err));
	for (i = 0; i < cat->n_tensors; i++)
		assign_group(cat, &map, &cat->tensors[i]);
	return 0;
}

/* -- sealing -- */

uint64_t uns_piece_elems(const struct uns_piece *piece)
{
	return piece->kind == UNS_PIECE_RANGE ? piece->range.count : uns_box_elems(piece->box);
}

uint64_t uns_piece_first(const struct uns_shape *shape, const struct uns_piece *piece)
{
	uint64_t first, unused;

	if (piece->kind == UNS_PIECE_RANGE)
		return piece->range.first;
	uns_box_stretch(piece->box, shape, &first, &unused);
	return first;
}

/* Bytes that a plain piece must have in its file. */
static int raw_extent_check(const struct uns_piece *piece, enum uns_dtype dtype, struct uns_err *err)
{
	uint64_t elems = uns_piece_elems(piece), need, reach;
	uint32_t d;

	if (!elems)
		return 0;
	if (piece->stride_elems && piece->kind == UNS_PIECE_RANGE)
		return uns_fail(err, -EBADMSG, "a flat range with strides");
	if (piece->stride_elems) /* from the first element to behind the last one */
		for (elems = 1, d = 0; d < piece->box->n; d++)
			if (!uns_u64_mul(piece->box->len[d] - 1, piece->stride_elems[d], &reach) ||
			    !uns_u64_add(elems, reach, &elems))
				return uns_fail(err, -EBADMSG, "its strides overflow");
	if (!uns_u64_mul(elems, uns_dtype_size(dtype), &need))
		return uns_fail(err, -EBADMSG, "its extent overflows");
	if (piece->length_bytes < need)
		return uns_fail(err, -EBADMSG, "needs %llu bytes, only %llu are stored", (unsigned long long)need,
				(unsigned long long)piece->length_bytes);
	return 0;
}

int uns_piece_check(const struct uns_shape *shape, enum uns_dtype dtype, const struct uns_piece *piece,
		    struct uns_err *err)
{
	const struct uns_item_part *part = uns_piece_part(piece);
	char text[128];
	uint64_t end;
	bool inside;

	if (piece->kind == UNS_PIECE_BOX)
		inside = uns_box_inside(piece->box, shape);
	else
		inside = uns_inside(piece->range.first, piece->range.count, uns_shape_elems(shape));
	if (!inside)
		return uns_fail(err, -EBADMSG, "a shard is outside the tensor's shape %s",
				uns_shape_text(shape, text, sizeof(text)));
	if (!uns_u64_add(piece->offset_bytes, piece->length_bytes, &end) || end > INT64_MAX)
		return uns_fail(err, -EBADMSG, "a shard's offset in its file overflows");
	if (piece->container == UNS_RAW && piece->codec == UNS_CODEC_NONE)
		return raw_extent_check(piece, dtype, err);
	if (part && (piece->codec || !uns_inside(part->first_elem, uns_piece_elems(piece), part->n_elems)))
		return uns_fail(err, -EBADMSG, "a shard is outside the %llu elements of its item",
				(unsigned long long)part->n_elems);
	return 0;
}

/* The order of a tensor's pieces: by position; of replicas, one whose bytes exist comes first, because unshard reads
 * the first one. */
struct order {
	uint64_t first, elems;
	bool broken;
	uint32_t at;
};

static int order_cmp(const void *a, const void *b)
{
	const struct order *x = a, *y = b;

	if (x->first != y->first)
		return x->first < y->first ? -1 : 1;
	if (x->elems != y->elems)
		return x->elems < y->elems ? -1 : 1;
	if (x->broken != y->broken)
		return x->broken ? 1 : -1;
	return x->at < y->at ? -1 : x->at > y->at;
}

static int sort_pieces(const struct uns_catalog *cat, const struct uns_tensor *t, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct order *order = NULL;
	UNS_CLEANUP(uns_free_p) struct uns_piece *sorted = NULL;
	struct uns_piece *v = cat->pieces + t->first_piece;
	uint32_t i;

	if (t->n_pieces < 2)
		return 0;
	UNS_TRY_ALLOC(order = calloc(t->n_pieces, sizeof(*order)), err);
	for (i = 0; i < t->n_pieces; i++) {
		order[i] = (struct order){ .first = uns_piece_first(&t->shape, &v[i]),
					   .elems = uns_piece_elems(&v[i]),
					   .broken = !uns_piece_is_there(cat, &v[i]),
					   .at = i };
	}
	for (i = 1; i < t->n_pieces && order_cmp(&order[i - 1], &order[i]) < 0; i++)
		;
	if (i == t->n_pieces) /* as most writers list them */
		return 0;
	UNS_TRY_ALLOC(sorted = calloc(t->n_pieces, sizeof(*sorted)), err);
	qsort(order, t->n_pieces, sizeof(*order), order_cmp);
	for (i = 0; i < t->n_pieces; i++)
		sorted[i] = v[order[i].at];
	memcpy(v, sorted, t->n_pieces * sizeof(*v));
	return 0;
}

static int alias_check(const struct uns_catalog *cat, const struct uns_tensor *t, struct uns_err *err)
{
	const struct uns_tensor *of;
	bool is_rounded; /* a weight that is held as the optimizer's copy of it only */

	if (t->alias_of == UNS_NONE)
		return 0;
	of = t->alias_of < cat->n_tensors ? &cat->tensors[t->alias_of] : NULL;
	is_rounded = of && t->role == UNS_ROLE_WEIGHT && of->role == UNS_ROLE_MASTER && !t->n_pieces &&
		     uns_dtype_info(t->dtype)->is_float && uns_dtype_info(of->dtype)->is_float;
	if (!of || of == t || of->alias_of != UNS_NONE || (of->dtype != t->dtype && !is_rounded) ||
	    uns_shape_elems(&of->shape) != uns_shape_elems(&t->shape))
		return uns_fail(err, -EBADMSG, "it is declared to share another tensor's bytes, but differs from it");
	return 0;
}

static int seal_tensor(const struct uns_catalog *cat, const struct uns_tensor *t, struct uns_err *err)
{
	const struct uns_piece *piece = cat->pieces + t->first_piece;
	uint32_t i;

	UNS_TRY(uns_shape_check(&t->shape, t->dtype, err));
	UNS_TRY(alias_check(cat, t, err));
	if (uns_catalog_is_proven(cat, t))
		return 0;
	for (i = 0; i < t->n_pieces; i++, piece++) {
		if (piece->file >= cat->n_files)
			return uns_fail(err, -EBADMSG, "a shard in a file that is not listed");
		if (uns_piece_check(&t->shape, t->dtype, piece, err) < 0)
			return uns_fail_in(err, "%s", cat->files[piece->file].path);
	}
	return sort_pieces(cat, t, err);
}

/* The list at its exact size; as it is, if there is no memory for that. */
static void *exact(void *list, size_t n, size_t *cap, size_t size)
{
	void *v = n < *cap ? reallocarray(list, n + !n, size) : NULL;

	if (v)
		*cap = n;
	return v ? v : list;
}

/* Moves the lists into the arena, at their exact size. Tensors and pieces may be most of what a process has in memory:
 * they stay where they are, because a copy would need that memory twice. */
static int settle_lists(struct uns_catalog *cat, struct uns_err *err)
{
	struct {
		void *array;
		size_t n, *cap, size;
	} list[] = {
#define LIST(name) { &cat->name, cat->n_##name, &cat->cap_##name, sizeof(*cat->name) }
		LIST(files), LIST(groups), LIST(values), LIST(companions), LIST(findings),
#undef LIST
	};
	void **array, *copy;
	size_t i;

	/* What is in the arena must not be freed: if memory is out, the lists that are not there yet become empty. */
	for (i = 0; i < sizeof(list) / sizeof(*list); i++) {
		array = list[i].array;
		copy = cat->arena.failed ? NULL
					 : uns_arena_grow(&cat->arena, *array, list[i].n, list[i].n, list[i].size);
		free(*array);
		*array = copy;
		*list[i].cap = list[i].n;
	}
	cat->pieces = exact(cat->pieces, cat->n_pieces, &cat->cap_pieces, sizeof(*cat->pieces));
	cat->own_tensors = cat->tensors = exact(cat->tensors, cat->n_tensors, &cat->cap_tensors, sizeof(*cat->tensors));
	cat->cap_tensors = cat->n_tensors; /* it grows in the arena from now on */
	uns_box_pool_fini(&cat->boxes); /* no piece comes any more */
	cat->sealed = true;
	return uns_arena_check(&cat->arena, err);
}

/* Views are made of the model and the optimizer; a distributed checkpoint shows whatever it holds as it is. */
static bool holds_something(const struct uns_catalog *cat)
{
	size_t i;

	for (i = 0; i < cat->n_tensors; i++)
		if (cat->summary.family == UNS_FAMILY_DCP || uns_role_is_model(cat->tensors[i].role) ||
		    uns_role_is_optimizer(cat->tensors[i].role))
			return true;
	for (i = 0; i < cat->n_findings; i++)
		if (cat->findings[i].scope != UNS_SCOPE_NOTE)
			return true; /* which explains it */
	return cat->n_groups || cat->n_values;
}

int uns_catalog_seal(struct uns_catalog *cat, struct uns_err *err)
{
	size_t i;

	UNS_TRY(uns_arena_check(&cat->arena, err));
	if (cat->sealed)
		return 0;
	for (i = 0; i < cat->n_tensors; i++)
		if (seal_tensor(cat, &cat->tensors[i], err) < 0)
			return uns_fail_in(err, "%s: tensor %s", cat->path, cat->tensors[i].key);
	if (!holds_something(cat))
		UNS_TRY(UNS_ADD_FINDING(cat, err, HOLDS_NOTHING, .scope = UNS_SCOPE_ALL));
	return settle_lists(cat, err);
}

/* -- reading -- */

const struct uns_tensor *uns_catalog_find(const struct uns_catalog *cat, enum uns_role role, const char *name)
{
	size_t i;

	for (i = 0; i < cat->n_tensors; i++)
		if (cat->tensors[i].role == role && strcmp(cat->tensors[i].name, name) == 0)
			return &cat->tensors[i];
	return NULL;
}

const struct uns_companion *uns_catalog_companion(const struct uns_catalog *cat, const char *name)
{
	size_t i;

	for (i = 0; i < cat->n_companions; i++)
		if (strcmp(cat->companions[i].name, name) == 0)
			return &cat->companions[i];
	return NULL;
}

const struct uns_value *uns_catalog_value(const struct uns_catalog *cat, const char *root, const char *name)
{
	size_t i;

	for (i = 0; i < cat->n_values; i++)
		if (strcmp(cat->values[i].root, root) == 0 && strcmp(cat->values[i].name, name) == 0)
			return cat->values[i].value;
	return NULL;
}

bool uns_role_is_optimizer(enum uns_role role)
{
	return role >= UNS_ROLE_MASTER && role <= UNS_ROLE_OPTIM_OTHER;
}

bool uns_role_is_model(enum uns_role role)
{
	return role == UNS_ROLE_WEIGHT || role == UNS_ROLE_BUFFER;
}

const char *uns_role_text(enum uns_role role)
{
	static const char *const text[] = {
		[UNS_ROLE_WEIGHT] = "weight",
		[UNS_ROLE_BUFFER] = "buffer",
		[UNS_ROLE_MASTER] = "master",
		[UNS_ROLE_EXP_AVG] = "exp_avg",
		[UNS_ROLE_EXP_AVG_SQ] = "exp_avg_sq",
		[UNS_ROLE_STEP] = "step",
		[UNS_ROLE_OPTIM_OTHER] = "optimizer state",
		[UNS_ROLE_OTHER] = "other",
	};

	return text[role];
}

const char *uns_tensor_state(const struct uns_tensor *t)
{
	return t->state ? t->state : uns_role_text(t->role);
}

enum uns_role uns_role_of_state(const char *state)
{
	static const enum uns_role named[] = { UNS_ROLE_EXP_AVG, UNS_ROLE_EXP_AVG_SQ, UNS_ROLE_STEP };
	size_t i;

	for (i = 0; i < sizeof(named) / sizeof(*named); i++)
		if (strcmp(state, uns_role_text(named[i])) == 0)
			return named[i];
	return UNS_ROLE_OPTIM_OTHER;
}
