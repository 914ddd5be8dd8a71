/* The form: "UNSC", the version, then counts and fields in the order of the structs (model/pack.h has numbers and
 * texts, model/pack_pieces.h pieces). Knows nothing of where the bytes are kept.
 *
 * Each function below goes through the fields of one struct, in both directions. */
#include "model/catalog_pack.h"

#include <stddef.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "io/relative.h"
#include "model/pack.h"
#include "model/pack_pieces.h"

static const char magic[4] = { 'U', 'N', 'S', 'C' };

enum {
	MAX_VALUE_NODES = 1 << 20, /* of one value, written out as a tree */
	MAX_VALUE_DEPTH = 64,
};

/* -- values: trees -- */

static const struct uns_value *value(struct pack *p, const struct uns_value *v, unsigned depth);

static void values(struct pack *p, const struct uns_value ***v, size_t n, unsigned depth)
{
	const struct uns_value **own = p->out ? *v : pack_room(p, n, sizeof(*own)), *one;
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
	size_t n = pack_count(p, v->n), i;

	if (!p->out)
		v->pair = pack_room(p, n, sizeof(*v->pair));
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
		v->b = pack_yes(p, v->b);
		return;
	case UNS_VALUE_INT:
		v->i = pack_i64(p, v->i);
		return;
	case UNS_VALUE_FLOAT:
		memcpy(&bits, &v->f, sizeof(bits));
		bits = pack_u64(p, bits);
		memcpy(&v->f, &bits, sizeof(bits));
		return;
	case UNS_VALUE_BIGINT:
	case UNS_VALUE_STR:
	case UNS_VALUE_BYTES:
		n = v->n;
		v->bytes = pack_bytes(p, v->bytes, &n);
		p->bad |= n > UINT32_MAX;
		v->n = (uint32_t)n;
		return;
	case UNS_VALUE_LIST:
	case UNS_VALUE_TUPLE:
	case UNS_VALUE_SET:
		n = pack_count(p, v->n);
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
	v->cls = pack_text_or_null(p, v->cls);
	content(p, v, depth);
	v->state = value(p, v->state, depth);
}

/* NULL is 0, kinds are 1 + kind. While writing bounded: uns_value_fits was asked. */
static const struct uns_value *value(struct pack *p, const struct uns_value *v, unsigned depth)
{
	uint64_t kind = pack_below(p, v && p->out ? 1 + (uint64_t)v->kind : 0, 1 + (uint64_t)UNS_VALUE_TENSOR);
	struct uns_value same, *own;

	if (!kind)
		return NULL;
	if (p->out) {
		same = *v; /* NOLINT(clang-analyzer-core.NullDereference): NULL has kind 0 */
		value_fields(p, &same, depth + 1);
		return v;
	}
	p->bad |= depth > 2 * MAX_VALUE_DEPTH;
	own = pack_room(p, 1, sizeof(*own));
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
		return pack_text(p, path);
	if (p->out && *path == '/') /* of what lies elsewhere */
		p->bad = true;
	else if (p->out)
		code = uns_relative_of(p->root, p->cat->path, root, path, &at);
	at.up = (uint32_t)pack_below(p, at.up, UINT32_MAX);
	at.below = pack_text(p, at.below ? at.below : "");
	if (!p->out && !p->bad)
		code = uns_relative_find(p->root, p->cat->path, &at, &p->cat->arena, &root, &path);
	p->bad |= code < 0 || root != p->root;
	p->no_memory |= code == -ENOMEM;
	return p->bad ? "" : path;
}

static const char *path_or_null(struct pack *p, const char *path)
{
	return pack_yes(p, path) ? path_below(p, p->root, path ? path : "") : NULL;
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
	return pack_text(p, s);
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
	f.missing = pack_yes(p, f.missing);
	f.stat.kind = (enum uns_kind)pack_below(p, f.stat.kind, UNS_KIND_OTHER + 1);
	f.stat.id.size = pack_u64(p, f.stat.id.size);
	f.stat.id.mtime_ns = pack_i64(p, f.stat.id.mtime_ns);
	if (!p->anywhere) {
		f.stat.id.ino = pack_u64(p, f.stat.id.ino);
		f.stat.id.ctime_ns = pack_i64(p, f.stat.id.ctime_ns);
	}
	if (p->out)
		return 0;
	UNS_TRY(pack_result(p, err));
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

static int tensor(struct pack *p, size_t i, struct uns_err *err)
{
	struct uns_tensor t = p->out ? p->cat->tensors[i] : (struct uns_tensor){ 0 };

	t.name = pack_text(p, t.name);
	t.key = pack_text(p, t.key);
	t.root = pack_text(p, t.root);
	t.state = pack_text_or_null(p, t.state);
	t.role = (enum uns_role)pack_below(p, t.role, UNS_ROLE_OTHER + 1);
	t.dtype = (enum uns_dtype)pack_below(p, t.dtype, UNS_N_DTYPES);
	t.shape.n = (uint32_t)pack_below(p, t.shape.n, UNS_MAX_DIMS + 1);
	pack_dims(p, t.shape.dim, t.shape.n);
	t.group = pack_i32(p, t.group);
	t.position = pack_i32(p, t.position);
	t.alias_of = (uint32_t)pack_below(p, t.alias_of, (uint64_t)UNS_NONE + 1);
	t.inferred = pack_yes(p, t.inferred);
	t.of_adapter = pack_yes(p, t.of_adapter);
	t.sharded = pack_yes(p, t.sharded);
	t.strange = pack_yes(p, t.strange);
	UNS_TRY(pack_result(p, err));
	if (!p->out)
		UNS_TRY(uns_catalog_add_tensor(p->cat, &t, NULL, err));
	return pack_pieces(p, i, err);
}

static int group(struct pack *p, size_t i, struct uns_err *err)
{
	struct uns_group g = p->out ? p->cat->groups[i] : (struct uns_group){ 0 };
	size_t k;

	g.root = pack_text(p, g.root);
	g.guessed = pack_yes(p, g.guessed);
	g.bare = pack_yes(p, g.bare);
	g.numbered = pack_yes(p, g.numbered);
	g.n_params = pack_count(p, g.n_params);
	if (!p->out)
		g.param = pack_room(p, g.n_params, sizeof(*g.param));
	for (k = 0; !p->bad && k < g.n_params; k++) {
		/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): no room makes p bad */
		const char *name = pack_text(p, p->out ? g.param[k] : NULL);

		if (!p->out)
			g.param[k] = name;
	}
	UNS_TRY(root_value(p, &g.hyper, err));
	UNS_TRY(pack_result(p, err));
	return p->out ? 0 : uns_catalog_add_group(p->cat, &g, err);
}

static int named_value(struct pack *p, size_t i, struct uns_err *err)
{
	struct uns_named_value v = p->out ? p->cat->values[i] : (struct uns_named_value){ 0 };

	v.name = pack_text(p, v.name);
	v.root = pack_text(p, v.root);
	v.file = (uint32_t)pack_below(p, v.file, (uint64_t)UNS_NONE + 1);
	v.offset_bytes = pack_u64(p, v.offset_bytes);
	v.length_bytes = pack_u64(p, v.length_bytes);
	v.codec = (enum uns_codec)pack_below(p, v.codec, UNS_CODEC_ZSTD + 1);
	UNS_TRY(root_value(p, &v.value, err));
	p->bad |= !v.value && v.file >= p->cat->n_files;
	UNS_TRY(pack_result(p, err));
	return p->out ? 0 : uns_catalog_add_value(p->cat, &v, err);
}

static int companion(struct pack *p, size_t i, struct uns_err *err)
{
	struct uns_companion c = p->out ? p->cat->companions[i] : (struct uns_companion){ 0 };

	c.name = pack_text(p, c.name);
	c.file = (uint32_t)pack_below(p, c.file, p->cat->n_files);
	c.shard = pack_yes(p, c.shard);
	c.of_model = pack_yes(p, c.of_model);
	UNS_TRY(pack_result(p, err));
	if (p->out)
		return 0;
	UNS_TRY(uns_catalog_add_companion(p->cat, c.name, c.file, c.shard, err));
	p->cat->companions[p->cat->n_companions - 1].of_model = c.of_model;
	return 0;
}

static void datum(struct pack *p, struct uns_datum *d)
{
	d->kind = (__typeof__(d->kind))pack_below(p, d->kind, UNS_DATUM_NUMBER + 1);
	if (d->kind == UNS_DATUM_TEXT)
		d->text = words(p, d->text);
	else if (d->kind == UNS_DATUM_NUMBER)
		d->number = pack_i64(p, d->number);
}

static int finding(struct pack *p, size_t i, struct uns_err *err)
{
	struct uns_finding f = p->out ? p->cat->findings[i] : (struct uns_finding){ 0 };
	size_t n = 0, k;

	f.id = (enum uns_finding_id)pack_below(p, f.id, UNS_N_FINDINGS);
	f.scope = (enum uns_scope)pack_below(p, f.scope, UNS_SCOPE_SHARDED + 1);
	f.code = pack_i32(p, f.code);
	f.checkpoint = path_or_null(p, f.checkpoint);
	f.file = path_or_null(p, f.file);
	f.tensor = pack_text_or_null(p, f.tensor);
	datum(p, &f.rank);
	datum(p, &f.expected);
	datum(p, &f.found);
	while (n < UNS_FINDING_ARGS && f.arg[n].name)
		n++;
	n = (size_t)pack_below(p, n, UNS_FINDING_ARGS + 1);
	for (k = 0; k < n; k++) {
		f.arg[k].name = pack_text(p, f.arg[k].name);
		datum(p, &f.arg[k].is);
	}
	UNS_TRY(pack_result(p, err));
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
	f.format = pack_text(p, f.format);
	f.framework = pack_text(p, f.framework);
	f.family = (enum uns_family)pack_below(p, f.family, UNS_N_FAMILIES);
	f.resumed_by = (unsigned)pack_below(p, f.resumed_by, UNS_RESUMERS + 1);
	f.adapter = (enum uns_adapter)pack_below(p, f.adapter, UNS_N_ADAPTERS);
	f.tracker = (enum uns_tracker)pack_below(p, f.tracker, UNS_N_TRACKERS);
	f.tracker_up = (unsigned)pack_below(p, f.tracker_up, UNS_TRACKER_UP_MAX + 1);
	for (i = 0; i < sizeof(flag) / sizeof(*flag); i++)
		*flag[i] = pack_yes(p, *flag[i]);
	f.step = pack_i64(p, f.step);
	f.world_size = pack_i64(p, f.world_size);
	f.units = pack_text_or_null(p, f.units);
	UNS_TRY(pack_result(p, err));
	if (!p->out)
		p->cat->summary = f;
	return 0;
}

static int all(struct pack *p, size_t n, int (*one)(struct pack *p, size_t i, struct uns_err *err), struct uns_err *err)
{
	size_t i;

	n = pack_count(p, n);
	UNS_TRY(pack_result(p, err));
	for (i = 0; i < n; i++)
		UNS_TRY(one(p, i, err));
	return 0;
}

static int catalog(struct pack *p, struct uns_err *err)
{
	const struct uns_catalog was = p->out ? *p->cat : (struct uns_catalog){ 0 };

	UNS_TRY(facts_of(p, err));
	UNS_TRY(all(p, was.n_files, file, err));
	UNS_TRY(pack_pieces_begin(p, was.n_pieces, err));
	UNS_TRY(all(p, was.n_tensors, tensor, err));
	UNS_TRY(pack_pieces_end(p, err));
	UNS_TRY(all(p, was.n_groups, group, err));
	UNS_TRY(all(p, was.n_values, named_value, err));
	UNS_TRY(all(p, was.n_companions, companion, err));
	UNS_TRY(all(p, was.n_findings, finding, err));
	p->bad |= !p->out && uns_span_left(&p->in) != 0;
	return pack_result(p, err);
}

/* -- both ways -- */

static int write_all(const struct uns_catalog *cat, const struct uns_root *root, bool anywhere, struct uns_text *out,
		     struct uns_err *err)
{
	struct uns_catalog same = *cat; /* not changed: nothing is added while writing */
	UNS_CLEANUP(pack_fini) struct pack p = { .cat = &same, .root = root, .anywhere = anywhere, .out = out };

	uns_text_add(out, magic, sizeof(magic));
	pack_u64(&p, UNS_CATALOG_PACK_VERSION);
	return catalog(&p, err);
}

int uns_catalog_pack(const struct uns_catalog *cat, const struct uns_root *root, struct uns_text *out,
		     struct uns_err *err)
{
	return write_all(cat, root, false, out, err);
}

static bool pieces_are_there(const struct uns_catalog *cat)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	const struct uns_piece *piece, *last;

	for (; t < end; t++)
		if (!uns_catalog_is_proven(cat, t))
			for (piece = cat->pieces + t->first_piece, last = piece + t->n_pieces; piece < last; piece++)
				if (!uns_piece_is_there(cat, piece))
					return false;
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
	UNS_CLEANUP(pack_fini) struct pack p = { .cat = cat, .root = root, .anywhere = anywhere, .in = in };
	const uint8_t *head;

	if (!uns_span_take(&p.in, sizeof(magic), &head) || memcmp(head, magic, sizeof(magic)) != 0 ||
	    pack_u64(&p, 0) != UNS_CATALOG_PACK_VERSION)
		return uns_fail(err, -EBADMSG, "these bytes are not a packed catalog");
	UNS_TRY(catalog(&p, err));
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
