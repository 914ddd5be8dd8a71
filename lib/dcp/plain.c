/* Reads one item of each set of tensors that look alike. Owns the rule which tensors look alike, and the findings about
 * tensors that are not plain. */
#include "dcp/plain.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "wire/torchfile.h"

/* What unshard found in the item of one of the tensors that look alike. */
struct look {
	const char *strange; /* "a tensor of class X"; NULL = it is plain, or its item could not be read */
};

struct refused {
	enum uns_scope scope;
	const char *what, *first; /* key of the first tensor */
	uint64_t n;
};

void uns_dcp_plain_init(struct uns_dcp_plain *plain, struct uns_catalog *cat, struct uns_dcp_reader *reader,
			const char *where)
{
	*plain = (struct uns_dcp_plain){ .cat = cat, .reader = reader, .where = where };
}

void uns_dcp_plain_fini(struct uns_dcp_plain *plain)
{
	uns_map_fini(&plain->by_look);
	uns_map_fini(&plain->refused);
	uns_text_fini(&plain->text);
	uns_arena_fini(&plain->scratch);
}

static bool looks_like_none(const struct uns_tensor *t, const struct uns_piece *piece)
{
	return strncmp(uns_dtype_info(t->dtype)->torch, "complex", 7) == 0 || piece->codec != UNS_CODEC_NONE;
}

/* Returns in text what tensors that look alike have in common: the key with each run of digits replaced by '#', dtype,
 * length of the first item and shape of the first chunk. Complex tensors and compressed items look like no other. */
static void look_text(const struct uns_tensor *t, const struct uns_piece *piece, struct uns_text *text)
{
	bool alone = looks_like_none(t, piece);
	static const char digits[] = "0123456789";
	const char *p = t->key;
	uint32_t d;
	size_t n;

	for (; *p; p += strspn(p, digits)) {
		n = alone ? strlen(p) : strcspn(p, digits);
		uns_text_add(text, p, n);
		p += n;
		if (*p)
			uns_text_str(text, "#");
	}
	uns_text_str(text, " ");
	uns_text_u64(text, t->dtype);
	uns_text_str(text, " ");
	uns_text_u64(text, piece->length_bytes);
	for (d = 0; d < piece->box->n; d++) {
		uns_text_str(text, " ");
		uns_text_u64(text, piece->box->len[d]);
	}
}

/* Does the tensor look like one that was judged before, under a key that is like its own? */
static bool is_like(const struct uns_dcp_judged *before, const struct uns_tensor *t, const struct uns_piece *piece)
{
	const size_t bytes = piece->box->n * sizeof(*piece->box->len);

	return before->look && before->dtype == t->dtype && before->length_bytes == piece->length_bytes &&
	       before->box->n == piece->box->n && memcmp(before->box->len, piece->box->len, bytes) == 0;
}

static int look_make(struct uns_dcp_plain *plain, const struct uns_tensor *t, const struct uns_piece *piece,
		     const struct look **out, struct uns_err *err)
{
	const struct uns_dcp_item_location location = { piece->file, piece->offset_bytes, piece->length_bytes,
							piece->codec };
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err why = { 0 };
	const struct uns_value *v;
	struct uns_span head;
	struct look *look;
	int code;

	plain->text.len = 0;
	look_text(t, piece, &plain->text);
	if (plain->text.failed)
		return uns_oom(err);
	*out = uns_map_get(&plain->by_look, plain->text.p);
	if (*out)
		return 0;
	*out = look = UNS_NEW(&plain->scratch, struct look);
	UNS_TRY_ALLOC(uns_map_put(&plain->by_look, uns_arena_str(&plain->scratch, plain->text.p), look, NULL), err);
	code = uns_dcp_item_head(plain->reader, &location, &arena, &head, &why);
	if (code < 0)
		return uns_fail_if_passing(err, code, &why);
	if (uns_torchfile_peek(head, &arena, &v) && uns_torch_readable(v, &why) == -ENOTSUP)
		UNS_TRY_ALLOC(look->strange = uns_arena_str(&plain->scratch, why.text), err);
	return 0;
}

static int look_find(struct uns_dcp_plain *plain, const struct uns_tensor *t, const struct look **out,
		     struct uns_err *err)
{
	const struct uns_piece *piece = &plain->cat->pieces[t->first_piece];
	struct uns_dcp_judged *judged;
	bool is_new;

	if (looks_like_none(t, piece))
		return look_make(plain, t, piece, out, err);
	judged = &plain->judged[uns_alike_find(&plain->alike, t->key, &is_new)];
	if (!is_new && is_like(judged, t, piece)) {
		*out = judged->look;
		return 0;
	}
	judged->look = NULL;
	UNS_TRY(look_make(plain, t, piece, out, err));
	*judged = (struct uns_dcp_judged){ *out, t->dtype, piece->length_bytes, piece->box };
	return 0;
}

int uns_dcp_plain_judge(struct uns_dcp_plain *plain, enum uns_scope scope, struct uns_err *err)
{
	struct uns_tensor *t = &plain->cat->tensors[plain->cat->n_tensors - 1];
	const struct look *look;
	struct refused *r;
	const char *key;

	if (!t->n_pieces)
		return 0;
	UNS_TRY(look_find(plain, t, &look, err));
	t->strange = look->strange != NULL;
	if (!t->strange)
		return 0;
	key = uns_arena_printf(&plain->scratch, "%d %s", (int)scope, look->strange);
	r = uns_map_get(&plain->refused, key);
	if (!r) {
		UNS_TRY_ALLOC(r = UNS_NEW(&plain->scratch, struct refused), err);
		UNS_TRY_ALLOC(uns_map_put(&plain->refused, key, r, NULL), err);
		*r = (struct refused){ scope, look->strange, t->key, 0 };
	}
	r->n++;
	return 0;
}

int uns_dcp_plain_finish(struct uns_dcp_plain *plain, struct uns_err *err)
{
	const char *key;
	size_t at = 0;
	void *value;

	while (uns_map_next(&plain->refused, &at, &key, &value)) {
		const struct refused *r = value;

		UNS_TRY(UNS_ADD_FINDING(plain->cat, err, TENSORS_NOT_PLAIN, .scope = r->scope, .file = plain->where,
					.tensor = r->first, .found = uns_str(r->what),
					.arg = { { "more", uns_more(r->n - 1) } }));
	}
	return 0;
}
