/* The form: "UNSC", the version, then counts and fields in the order of the structs, every number a varint (signed ones
 * zigzag), every text written once and named by its number afterwards. Knows nothing of where the bytes are kept.
 *
 * Each function below goes through the fields of one struct, in both directions: a field is given its own value, which
 * is written and comes back, or is not looked at, and what is read comes back. So nothing can be written in another
 * order than it is read. */
#include "model/catalog_pack.h"

#include <stddef.h>
#include <string.h>

#include "base/array.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "io/relative.h"

static const char magic[4] = { 'U', 'N', 'S', 'C' };

enum {
	MAX_VALUE_NODES = 1 << 20, /* of one value, written out as a tree */
	MAX_VALUE_DEPTH = 64,
};

/* A text is NULL, new, or one that was written before. */
enum { TEXT_NULL, TEXT_NEW, TEXT_FIRST };

struct pack {
	struct uns_catalog *cat; /* being filled; or written, and not changed */
	const struct uns_root *root;
	bool anywhere; /* not of this machine and this SOURCE */
	uintptr_t n_texts;

	/* writing */
	struct uns_text *out; /* NULL = reading */
	struct uns_map texts; /* text -> TEXT_FIRST + number */

	/* reading: after the first thing that is wrong everything reads as 0, and `bad` stays */
	struct uns_span in;
	const char **text;
	size_t cap_texts;
	bool bad, no_memory;
};

/* -- numbers -- */

static void write_u64(struct pack *p, uint64_t v)
{
	unsigned char b[10];
	size_t n = 0;

	do {
		b[n++] = (unsigned char)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
		v >>= 7;
	} while (v);
	uns_text_add(p->out, b, n);
}

static uint64_t read_u64(struct pack *p)
{
	uint64_t v = 0;
	unsigned shift;
	uint8_t b;

	for (shift = 0; shift < 64; shift += 7) {
		if (!uns_take_u8(&p->in, &b) || (shift == 63 && b > 1))
			break;
		v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80))
			return v;
	}
	p->bad = true;
	p->in.p = p->in.end;
	return 0;
}

static uint64_t u64(struct pack *p, uint64_t v)
{
	if (!p->out)
		return read_u64(p);
	write_u64(p, v);
	return v;
}

static int64_t i64(struct pack *p, int64_t v)
{
	uint64_t zigzag = u64(p, ((uint64_t)v << 1) ^ (v < 0 ? UINT64_MAX : 0));

	return (int64_t)((zigzag >> 1) ^ (0 - (zigzag & 1)));
}

/* A number below `bound`. */
static uint64_t below(struct pack *p, uint64_t v, uint64_t bound)
{
	v = u64(p, v);
	if (v < bound)
		return v;
	p->bad = true;
	return 0;
}

static bool yes(struct pack *p, bool v)
{
	return below(p, v, 2);
}

static int32_t i32(struct pack *p, int32_t v)
{
	int64_t wide = i64(p, v);

	p->bad |= wide < INT32_MIN || wide > INT32_MAX;
	return (int32_t)wide;
}

/* How many elements follow, each of at least one byte: never more than there are bytes. */
static size_t count(struct pack *p, size_t n)
{
	return (size_t)below(p, n, p->out ? UINT64_MAX : (uint64_t)uns_span_left(&p->in) + 1);
}

/* -- texts -- */

/* Only while reading. */
static void *room(struct pack *p, size_t n, size_t size)
{
	void *v = p->bad ? NULL : uns_arena_alloc(&p->cat->arena, n, size);

	if (!v) {
		p->no_memory |= !p->bad;
		p->bad = true;
	}
	return v;
}

static const char *bytes(struct pack *p, const char *v, size_t *n)
{
	const uint8_t *at;
	char *copy;

	*n = count(p, *n);
	if (p->out) {
		uns_text_add(p->out, v, *n);
		return v;
	}
	if (p->bad || !uns_span_take(&p->in, *n, &at)) {
		p->bad = true;
		*n = 0;
		return "";
	}
	copy = uns_arena_strn(&p->cat->arena, (const char *)at, *n);
	p->no_memory |= !copy;
	return copy ? copy : "";
}

static const char *write_text(struct pack *p, const char *s)
{
	void *known = s ? uns_map_get(&p->texts, s) : NULL;
	size_t n = s ? strlen(s) : 0;

	write_u64(p, !s ? TEXT_NULL : known ? (uint64_t)(uintptr_t)known : TEXT_NEW);
	if (s && !known) {
		bytes(p, s, &n);
		if (!uns_map_put(&p->texts, s, (void *)(TEXT_FIRST + p->n_texts++), NULL))
			p->out->failed = true;
	}
	return s;
}

static const char *read_text(struct pack *p)
{
	uint64_t v = below(p, 0, TEXT_FIRST + (uint64_t)p->n_texts);
	size_t n = 0;

	if (v == TEXT_NULL)
		return NULL;
	if (v != TEXT_NEW)
		return p->text[v - TEXT_FIRST];
	if (!UNS_HEAP_ROOM(p->text, p->n_texts, p->cap_texts)) {
		p->bad = p->no_memory = true;
		return "";
	}
	return p->text[p->n_texts++] = bytes(p, NULL, &n);
}

static const char *text_or_null(struct pack *p, const char *s)
{
	return p->out ? write_text(p, s) : read_text(p);
}

static const char *text(struct pack *p, const char *s)
{
	s = text_or_null(p, s);
	p->bad |= !s;
	return s ? s : "";
}

/* What went wrong so far. */
static int result(const struct pack *p, struct uns_err *err)
{
	if (p->no_memory || (p->out && p->out->failed))
		return uns_oom(err);
	return p->bad ? uns_fail(err, p->out ? -ENOTSUP : -EBADMSG,
				 p->out ? "a catalog that cannot be packed" : "these bytes are not a packed catalog")
		      : 0;
}

/* -- values: trees -- */

static const struct uns_value *value(struct pack *p, const struct uns_value *v, unsigned depth);

static void values(struct pack *p, const struct uns_value ***v, size_t n, unsigned depth)
{
	const struct uns_value **own = p->out ? *v : room(p, n, sizeof(*own)), *one;
	size_t i;

	for (i = 0; !p->bad && i < n; i++) {
		one = value(p, p->out ? own[i] : NULL, depth);
		p->bad |= !one;
		if (!p->out)
			own[i] = one;
	}
	*v = own;
}

static void dict(struct pack *p, struct uns_value *v, unsigned depth)
{
	size_t n = count(p, v->n), i;

	if (!p->out)
		v->pair = room(p, n, sizeof(*v->pair));
	for (i = 0; !p->bad && i < n; i++) {
		const struct uns_value *key = value(p, p->out ? v->pair[i].key : NULL, depth);
		const struct uns_value *of = value(p, p->out ? v->pair[i].value : NULL, depth);

		p->bad |= !key || !of;
		if (!p->out) {
			v->pair[i].key = key;
			v->pair[i].value = of;
		}
	}
	v->n = p->bad ? 0 : (uint32_t)n;
}

static void content(struct pack *p, struct uns_value *v, unsigned depth)
{
	uint64_t bits;
	size_t n;

	switch (v->kind) {
	case UNS_VALUE_NONE:
	case UNS_VALUE_GLOBAL:
	case UNS_VALUE_TENSOR: /* no plain data: refused by its kind */
	case UNS_VALUE_RECORD:
		return;
	case UNS_VALUE_BOOL:
		v->b = yes(p, v->b);
		return;
	case UNS_VALUE_INT:
		v->i = i64(p, v->i);
		return;
	case UNS_VALUE_FLOAT:
		memcpy(&bits, &v->f, sizeof(bits));
		bits = u64(p, bits);
		memcpy(&v->f, &bits, sizeof(bits));
		return;
	case UNS_VALUE_BIGINT:
	case UNS_VALUE_STR:
	case UNS_VALUE_BYTES:
		n = v->n;
		v->bytes = bytes(p, v->bytes, &n);
		p->bad |= n > UINT32_MAX;
		v->n = (uint32_t)n;
		return;
	case UNS_VALUE_LIST:
	case UNS_VALUE_TUPLE:
	case UNS_VALUE_SET:
		n = count(p, v->n);
		values(p, &v->item, n, depth);
		v->n = p->bad ? 0 : (uint32_t)n;
		return;
	case UNS_VALUE_DICT:
		dict(p, v, depth);
		return;
	case UNS_VALUE_OBJECT:
		v->object.args = value(p, v->object.args, depth);
		return;
	}
}

static void value_fields(struct pack *p, struct uns_value *v, unsigned depth)
{
	v->cls = text_or_null(p, v->cls);
	content(p, v, depth);
	v->state = value(p, v->state, depth);
}

/* NULL is 0, kinds are 1 + kind. While writing bounded: uns_value_fits was asked. */
static const struct uns_value *value(struct pack *p, const struct uns_value *v, unsigned depth)
{
	uint64_t kind = below(p, v && p->out ? 1 + (uint64_t)v->kind : 0, 1 + (uint64_t)UNS_VALUE_TENSOR);
	struct uns_value same, *own;

	if (!kind)
		return NULL;
	if (p->out) {
		same = *v; /* NOLINT(clang-analyzer-core.NullDereference): NULL has kind 0 */
		value_fields(p, &same, depth + 1);
		return v;
	}
	p->bad |= depth > 2 * MAX_VALUE_DEPTH;
	own = room(p, 1, sizeof(*own));
	if (!own)
		return NULL;
	own->kind = (enum uns_value_kind)(kind - 1);
	value_fields(p, own, depth + 1);
	return own;
}

static int root_value(struct pack *p, const struct uns_value **v, struct uns_err *err)
{
	if (p->out && *v && !uns_value_fits(*v, MAX_VALUE_NODES, MAX_VALUE_DEPTH))
		return uns_fail(err, -ENOTSUP, "a value is too large to be packed");
	*v = value(p, p->out ? *v : NULL, 0);
	return 0;
}

/* -- paths -- */

/* Of `root`. For anywhere: as the checkpoint's directory sees it. */
static const char *path_below(struct pack *p, const struct uns_root *root, const char *path)
{
	struct uns_relative at = { 0 };
	int code = 0;

	if (!p->anywhere)
		return text(p, path);
	if (p->out && *path == '/') /* of what lies elsewhere */
		p->bad = true;
	else if (p->out)
		code = uns_relative_of(p->root, p->cat->path, root, path, &at);
	at.up = (uint32_t)below(p, at.up, UINT32_MAX);
	at.below = text(p, at.below ? at.below : "");
	if (!p->out && !p->bad)
		code = uns_relative_find(p->root, p->cat->path, &at, &p->cat->arena, &root, &path);
	p->bad |= code < 0 || root != p->root;
	p->no_memory |= code == -ENOMEM;
	return p->bad ? "" : path;
}

static const char *path_or_null(struct pack *p, const char *path)
{
	return yes(p, path) ? path_below(p, p->root, path ? path : "") : NULL;
}

static bool names_place(const struct pack *p, const char *s)
{
	const char *path = p->cat->path, *at;
	const size_t len = strlen(path);

	for (at = strstr(s, path); at && len; at = strstr(at, path)) {
		at += len;
		if (*at == '\0' || *at == '/')
			return true;
	}
	return strstr(s, uns_root_path(p->root)) != NULL;
}

/* A sentence's own words; a path in them would be that of one place. */
static const char *words(struct pack *p, const char *s)
{
	p->bad |= p->out && p->anywhere && s && names_place(p, s);
	return text(p, s);
}

/* -- the parts of a catalog: number i of its kind, which is added where it is read -- */

static int file(struct pack *p, size_t i, struct uns_err *err)
{
	struct uns_file f = p->out ? p->cat->files[i] : (struct uns_file){ 0 };
	const struct uns_file *is;
	uint32_t id;

	if (p->out && f.root != p->root)
		return uns_fail(err, -ENOTSUP, "%s lies elsewhere", f.path);
	f.path = path_below(p, p->root, f.path);
	f.missing = yes(p, f.missing);
	f.stat.kind = (enum uns_kind)below(p, f.stat.kind, UNS_KIND_OTHER + 1);
	f.stat.id.size = u64(p, f.stat.id.size);
	f.stat.id.mtime_ns = i64(p, f.stat.id.mtime_ns);
	if (!p->anywhere) {
		f.stat.id.ino = u64(p, f.stat.id.ino);
		f.stat.id.ctime_ns = i64(p, f.stat.id.ctime_ns);
	}
	if (p->out)
		return 0;
	UNS_TRY(result(p, err));
	UNS_TRY(uns_catalog_add_file(p->cat, p->root, f.path, &id, err));
	is = &p->cat->files[id];
	f.stat.id.dev = is->stat.id.dev; /* a number of one mount */
	f.stat.id.mount = is->stat.id.mount; /* in the memo's key */
	if (p->anywhere) {
		f.stat.id.ino = is->stat.id.ino;
		f.stat.id.ctime_ns = is->stat.id.ctime_ns;
	}
	if (id != p->cat->n_files - 1)
		return uns_fail(err, -EBADMSG, "%s is listed twice", f.path);
	if (is->missing != f.missing || is->stat.kind != f.stat.kind || !uns_identity_equal(&is->stat.id, &f.stat.id))
		return uns_fail(err, -ESTALE, "%s has changed", f.path);
	return 0;
}

static void dims(struct pack *p, uint64_t *dim, uint32_t n)
{
	uint32_t d;

	for (d = 0; d < n; d++)
		dim[d] = u64(p, dim[d]);
}

static void strides(struct pack *p, struct uns_piece *piece)
{
	uint32_t n = piece->kind == UNS_PIECE_BOX ? piece->box->n : 0;
	uint64_t stride[UNS_MAX_DIMS] = { 0 }, *own;

	if (!yes(p, uns_piece_is_strided(piece)))
		return;
	if (p->out) /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): there are strides */
		memcpy(stride, piece->stride_elems, n * sizeof(*stride));
	dims(p, stride, n);
	own = p->out ? NULL : room(p, n, sizeof(*own));
	if (!own)
		return;
	memcpy(own, stride, n * sizeof(*own));
	piece->stride_elems = own;
}

static void item_part(struct pack *p, struct uns_piece *piece)
{
	struct uns_item_part part = { 0 }, *own;

	if (!yes(p, uns_piece_part(piece)))
		return;
	if (p->out) /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): there is a part */
		part = *piece->part;
	part.first_elem = u64(p, part.first_elem);
	part.n_elems = u64(p, part.n_elems);
	own = p->out ? NULL : room(p, 1, sizeof(*own));
	if (!own)
		return;
	*own = part;
	piece->part = own;
}

/* box: the piece's, which is read or filled. */
static void piece_fields(struct pack *p, struct uns_piece *piece, struct uns_box *box)
{
	piece->kind = (enum uns_piece_kind)below(p, piece->kind, UNS_PIECE_RANGE + 1);
	if (piece->kind == UNS_PIECE_RANGE) {
		piece->range.first = u64(p, piece->range.first);
		piece->range.count = u64(p, piece->range.count);
	} else {
		box->n = (uint32_t)below(p, box->n, UNS_MAX_DIMS + 1);
		dims(p, box->lo, box->n);
		dims(p, box->len, box->n);
		piece->box = box;
	}
	piece->file = (uint32_t)below(p, piece->file, p->cat->n_files);
	piece->rank = i32(p, piece->rank);
	piece->container = (enum uns_container)below(p, piece->container, UNS_TORCH_ITEM + 1);
	piece->codec = (enum uns_codec)below(p, piece->codec, UNS_CODEC_ZSTD + 1);
	piece->offset_bytes = u64(p, piece->offset_bytes);
	piece->length_bytes = u64(p, piece->length_bytes);
	piece->crc32 = (uint32_t)u64(p, piece->crc32);
	if (piece->container == UNS_TORCH_ITEM)
		item_part(p, piece);
	else
		strides(p, piece);
}

static int tensor(struct pack *p, size_t i, struct uns_err *err)
{
	struct uns_tensor t = p->out ? p->cat->tensors[i] : (struct uns_tensor){ 0 };
	struct uns_piece piece;
	struct uns_box box;
	size_t n, k;

	t.name = text(p, t.name);
	t.key = text(p, t.key);
	t.root = text(p, t.root);
	t.state = text_or_null(p, t.state);
	t.role = (enum uns_role)below(p, t.role, UNS_ROLE_OTHER + 1);
	t.dtype = (enum uns_dtype)below(p, t.dtype, UNS_N_DTYPES);
	t.shape.n = (uint32_t)below(p, t.shape.n, UNS_MAX_DIMS + 1);
	dims(p, t.shape.dim, t.shape.n);
	t.group = i32(p, t.group);
	t.position = i32(p, t.position);
	t.alias_of = (uint32_t)below(p, t.alias_of, (uint64_t)UNS_NONE + 1);
	t.inferred = yes(p, t.inferred);
	t.of_adapter = yes(p, t.of_adapter);
	t.sharded = yes(p, t.sharded);
	t.strange = yes(p, t.strange);
	n = count(p, t.n_pieces);
	UNS_TRY(result(p, err));
	if (!p->out)
		UNS_TRY(uns_catalog_add_tensor(p->cat, &t, NULL, err));
	for (k = 0; k < n; k++) {
		piece = p->out ? p->cat->pieces[t.first_piece + k] : (struct uns_piece){ 0 };
		box = p->out && piece.kind == UNS_PIECE_BOX ? *piece.box : (struct uns_box){ 0 };
		piece_fields(p, &piece, &box);
		UNS_TRY(result(p, err));
		if (!p->out)
			UNS_TRY(uns_catalog_add_piece(p->cat, &piece, err));
	}
	return 0;
}

static int group(struct pack *p, size_t i, struct uns_err *err)
{
	struct uns_group g = p->out ? p->cat->groups[i] : (struct uns_group){ 0 };
	size_t k;

	g.root = text(p, g.root);
	g.guessed = yes(p, g.guessed);
	g.bare = yes(p, g.bare);
	g.numbered = yes(p, g.numbered);
	g.n_params = count(p, g.n_params);
	if (!p->out)
		g.param = room(p, g.n_params, sizeof(*g.param));
	for (k = 0; !p->bad && k < g.n_params; k++) {
		/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): no room makes p bad */
		const char *name = text(p, p->out ? g.param[k] : NULL);

		if (!p->out)
			g.param[k] = name;
	}
	UNS_TRY(root_value(p, &g.hyper, err));
	UNS_TRY(result(p, err));
	return p->out ? 0 : uns_catalog_add_group(p->cat, &g, err);
}

static int named_value(struct pack *p, size_t i, struct uns_err *err)
{
	struct uns_named_value v = p->out ? p->cat->values[i] : (struct uns_named_value){ 0 };

	v.name = text(p, v.name);
	v.root = text(p, v.root);
	v.file = (uint32_t)below(p, v.file, (uint64_t)UNS_NONE + 1);
	v.offset_bytes = u64(p, v.offset_bytes);
	v.length_bytes = u64(p, v.length_bytes);
	v.codec = (enum uns_codec)below(p, v.codec, UNS_CODEC_ZSTD + 1);
	UNS_TRY(root_value(p, &v.value, err));
	p->bad |= !v.value && v.file >= p->cat->n_files;
	UNS_TRY(result(p, err));
	return p->out ? 0 : uns_catalog_add_value(p->cat, &v, err);
}

static int companion(struct pack *p, size_t i, struct uns_err *err)
{
	struct uns_companion c = p->out ? p->cat->companions[i] : (struct uns_companion){ 0 };

	c.name = text(p, c.name);
	c.file = (uint32_t)below(p, c.file, p->cat->n_files);
	c.shard = yes(p, c.shard);
	c.of_model = yes(p, c.of_model);
	UNS_TRY(result(p, err));
	if (p->out)
		return 0;
	UNS_TRY(uns_catalog_add_companion(p->cat, c.name, c.file, c.shard, err));
	p->cat->companions[p->cat->n_companions - 1].of_model = c.of_model;
	return 0;
}

static void datum(struct pack *p, struct uns_datum *d)
{
	d->kind = (__typeof__(d->kind))below(p, d->kind, UNS_DATUM_NUMBER + 1);
	if (d->kind == UNS_DATUM_TEXT)
		d->text = words(p, d->text);
	else if (d->kind == UNS_DATUM_NUMBER)
		d->number = i64(p, d->number);
}

static int finding(struct pack *p, size_t i, struct uns_err *err)
{
	struct uns_finding f = p->out ? p->cat->findings[i] : (struct uns_finding){ 0 };
	size_t n = 0, k;

	f.id = (enum uns_finding_id)below(p, f.id, UNS_N_FINDINGS);
	f.scope = (enum uns_scope)below(p, f.scope, UNS_SCOPE_SHARDED + 1);
	f.code = i32(p, f.code);
	f.checkpoint = path_or_null(p, f.checkpoint);
	f.file = path_or_null(p, f.file);
	f.tensor = text_or_null(p, f.tensor);
	datum(p, &f.rank);
	datum(p, &f.expected);
	datum(p, &f.found);
	while (n < UNS_FINDING_ARGS && f.arg[n].name)
		n++;
	n = (size_t)below(p, n, UNS_FINDING_ARGS + 1);
	for (k = 0; k < n; k++) {
		f.arg[k].name = text(p, f.arg[k].name);
		datum(p, &f.arg[k].is);
	}
	UNS_TRY(result(p, err));
	return p->out ? 0 : uns_catalog_add_finding(p->cat, &f, err);
}

static int facts_of(struct pack *p, struct uns_err *err)
{
	struct uns_summary f = p->cat->summary;
	/* yes or no */
	bool *const flag[] = { &f.of_trainer,       &f.is_one_file,         &f.is_weights_only, &f.is_in_parts,
			       &f.is_published,     &f.is_pretrained,       &f.is_pipeline,     &f.has_experts,
			       &f.experts_vary,     &f.is_autoep,           &f.wants_config,    &f.has_rng_of_ranks,
			       &f.has_engine_state, &f.is_megatron,         &f.is_round_robin,  &f.finished,
			       &f.overwritten,      &f.weights_overwritten, &f.named_by_rule };
	size_t i;

	if (strcmp(path_below(p, p->root, p->cat->path), p->cat->path) != 0)
		p->bad = true;
	f.format = text(p, f.format);
	f.framework = text(p, f.framework);
	f.family = (enum uns_family)below(p, f.family, UNS_N_FAMILIES);
	f.resumed_by = (unsigned)below(p, f.resumed_by, UNS_RESUMERS + 1);
	f.adapter = (enum uns_adapter)below(p, f.adapter, UNS_N_ADAPTERS);
	f.tracker = (enum uns_tracker)below(p, f.tracker, UNS_N_TRACKERS);
	f.tracker_up = (unsigned)below(p, f.tracker_up, UNS_TRACKER_UP_MAX + 1);
	for (i = 0; i < sizeof(flag) / sizeof(*flag); i++)
		*flag[i] = yes(p, *flag[i]);
	f.step = i64(p, f.step);
	f.world_size = i64(p, f.world_size);
	f.units = text_or_null(p, f.units);
	UNS_TRY(result(p, err));
	if (!p->out)
		p->cat->summary = f;
	return 0;
}

static int all(struct pack *p, size_t n, int (*one)(struct pack *p, size_t i, struct uns_err *err), struct uns_err *err)
{
	size_t i;

	n = count(p, n);
	UNS_TRY(result(p, err));
	for (i = 0; i < n; i++)
		UNS_TRY(one(p, i, err));
	return 0;
}

static int catalog(struct pack *p, struct uns_err *err)
{
	const struct uns_catalog was = p->out ? *p->cat : (struct uns_catalog){ 0 };

	UNS_TRY(facts_of(p, err));
	UNS_TRY(all(p, was.n_files, file, err));
	UNS_TRY(all(p, was.n_tensors, tensor, err));
	UNS_TRY(all(p, was.n_groups, group, err));
	UNS_TRY(all(p, was.n_values, named_value, err));
	UNS_TRY(all(p, was.n_companions, companion, err));
	UNS_TRY(all(p, was.n_findings, finding, err));
	p->bad |= !p->out && uns_span_left(&p->in) != 0;
	return result(p, err);
}

/* -- both ways -- */

static int write_all(const struct uns_catalog *cat, const struct uns_root *root, bool anywhere, struct uns_text *out,
		     struct uns_err *err)
{
	struct uns_catalog same = *cat; /* not changed: nothing is added while writing */
	struct pack p = { .cat = &same, .root = root, .anywhere = anywhere, .out = out };
	int code;

	uns_text_add(out, magic, sizeof(magic));
	write_u64(&p, UNS_CATALOG_PACK_VERSION);
	code = catalog(&p, err);
	uns_map_fini(&p.texts);
	return code;
}

int uns_catalog_pack(const struct uns_catalog *cat, const struct uns_root *root, struct uns_text *out,
		     struct uns_err *err)
{
	return write_all(cat, root, false, out, err);
}

static bool pieces_are_there(const struct uns_catalog *cat)
{
	const struct uns_piece *piece = cat->pieces, *end = piece + cat->n_pieces;
	const struct uns_file *f;

	for (; piece < end; piece++) {
		f = &cat->files[piece->file];
		if (f->missing || f->stat.kind != UNS_KIND_FILE ||
		    !uns_inside(piece->offset_bytes, piece->length_bytes, f->stat.id.size))
			return false;
	}
	return true;
}

int uns_catalog_pack_anywhere(const struct uns_catalog *cat, const struct uns_root *root, struct uns_text *out,
			      struct uns_err *err)
{
	if (!pieces_are_there(cat))
		return uns_fail(err, -ENOTSUP, "it is damaged: files do not have all of their pieces");
	return write_all(cat, root, true, out, err);
}

static bool places_are_real(const struct uns_catalog *cat)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;

	for (; t < end; t++)
		if (t->group < -1 || t->group >= (int64_t)cat->n_groups || t->position < -1 ||
		    (t->group >= 0 && t->position >= (int64_t)cat->groups[t->group].n_params))
			return false;
	return true;
}

static int read_all(struct uns_span in, const struct uns_root *root, bool anywhere, struct uns_catalog *cat,
		    struct uns_err *err)
{
	struct pack p = { .cat = cat, .root = root, .anywhere = anywhere, .in = in };
	const uint8_t *head;
	int code;

	if (!uns_span_take(&p.in, sizeof(magic), &head) || memcmp(head, magic, sizeof(magic)) != 0 ||
	    read_u64(&p) != UNS_CATALOG_PACK_VERSION)
		return uns_fail(err, -EBADMSG, "these bytes are not a packed catalog");
	code = catalog(&p, err);
	free(p.text);
	UNS_TRY(code);
	if (!places_are_real(cat) || (anywhere && !pieces_are_there(cat)))
		return uns_fail(err, -EBADMSG, "these bytes are not a packed catalog");
	return uns_catalog_seal(cat, err);
}

int uns_catalog_unpack(struct uns_span in, const struct uns_root *root, struct uns_catalog *cat, struct uns_err *err)
{
	return read_all(in, root, false, cat, err);
}

int uns_catalog_unpack_anywhere(struct uns_span in, const struct uns_root *root, struct uns_catalog *cat,
				struct uns_err *err)
{
	return read_all(in, root, true, cat, err);
}
