#include "store/shared_memo.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "io/relative.h"
#include "model/catalog_pack.h"
#include "store/sources_hash.h"

/* -- the key -- */

static uint64_t hash_strings(uint64_t h, const char *const *v, size_t n)
{
	h = uns_hash_u64(h, n);
	while (n--)
		h = uns_hash_str(h, *v++);
	return h;
}

/* Directories that links may lead into are not in it: what a link led to is in `content`. */
uint64_t shared_memo_salt(const struct memo_options *o)
{
	uint64_t h = uns_hash_u64(UNS_HASH_INIT, UNS_SOURCES_HASH);

	h = uns_hash_u64(h, UNS_CATALOG_PACK_VERSION);
	h = hash_strings(h, o->weight_roots, o->n_weight_roots);
	h = uns_hash_u64(h, o->assume_units);
	return hash_strings(h, o->adapters, o->n_adapters);
}

/* Formats read a step in the name of the checkpoint's directory; one whose trackers lie further up, in names on the way
 * there as well. */
int shared_memo_key(uint64_t salt, const struct shared_memo_subject *of, uint64_t *key, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	uint64_t h = uns_hash_str(uns_hash_u64(salt, of->content), of->format);
	const struct uns_root *root = of->root;
	const char *dir = of->path;
	unsigned i;

	for (i = 0; dir && (i == 0 || i < of->marks_up); i++) {
		h = uns_hash_str(h, uns_root_name(root, dir));
		UNS_TRY(uns_root_up(root, dir, &arena, &root, &dir, err));
	}
	*key = uns_hash_end(h);
	return 0;
}

/* -- what was looked at elsewhere -- */

int shared_memo_pack_inputs(struct uns_capture *capture, const struct shared_memo_subject *of, struct uns_text *out,
			    struct uns_err *err)
{
	struct uns_inputs *list = uns_inputs_ref(*uns_capture_inputs(capture));
	struct uns_relative at;
	uint64_t answer = 0;
	int code = 0;
	size_t i;

	uns_text_le(out, list->n, 8);
	for (i = 0; i < list->n && code == 0; i++) {
		const struct uns_input *in = &list->v[i];

		code = in->root ? uns_relative_of(of->root, of->path, in->root, in->path, &at) : -ENOTSUP;
		if (code == 0)
			code = uns_seen_anywhere(capture, in, &answer, err);
		if (code < 0)
			break;
		uns_text_le(out, in->kind, 1);
		uns_text_le(out, at.up, 4);
		uns_text_le(out, strlen(at.below), 4);
		uns_text_str(out, at.below);
		uns_text_le(out, (uint64_t)in->since_ns, 8);
		uns_text_le(out, answer, 8);
	}
	uns_inputs_put(list);
	if (code == 0 && out->failed)
		return uns_oom(err);
	return code < 0 ? uns_fail(err, code, "something outside its directory, which it depends on, is this machine's")
			: 0;
}

struct packed_input {
	struct uns_input in;
	struct uns_relative at;
	uint64_t answer;
};

static bool take_input(struct uns_span *from, struct uns_arena *arena, struct packed_input *out)
{
	const uint8_t *path;
	uint64_t since;
	uint32_t len;
	uint8_t kind;

	if (!uns_take_u8(from, &kind) || kind >= UNS_INPUT_PLACE || !uns_take_u32le(from, &out->at.up) ||
	    !uns_take_u32le(from, &len) || !uns_span_take(from, len, &path) || memchr(path, 0, len) ||
	    !uns_take_u64le(from, &since) || !uns_take_u64le(from, &out->answer))
		return false;
	out->at.below = uns_arena_strn(arena, (const char *)path, len);
	out->in = (struct uns_input){ .kind = (enum uns_input_kind)kind, .since_ns = (int64_t)since };
	return out->at.below != NULL;
}

int shared_memo_seen(struct uns_capture *capture, const struct shared_memo_subject *of, struct uns_span bytes,
		     struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct packed_input p;
	uint64_t n, answer;
	int code;

	if (!uns_take_u64le(&bytes, &n))
		return uns_fail(err, -EBADMSG, "its list of inputs is damaged");
	for (; n; n--) {
		if (!take_input(&bytes, &arena, &p))
			return uns_fail(err, -EBADMSG, "its list of inputs is damaged");
		code = uns_relative_find(of->root, of->path, &p.at, &arena, &p.in.root, &p.in.path);
		if (code == -ENOENT)
			return uns_fail(err, -ESTALE, "it depends on directories above the reach of SOURCE");
		if (code < 0)
			return uns_fail(err, code, "its list of inputs is damaged");
		UNS_TRY(uns_seen_anywhere(capture, &p.in, &answer, err));
		if (answer != p.answer)
			return uns_fail(err, -ESTALE, "%s/%s is not as it was", uns_root_path(p.in.root), p.in.path);
	}
	return uns_span_left(&bytes) ? uns_fail(err, -EBADMSG, "its list of inputs is damaged") : 0;
}
