#include "dcp/plain.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "wire/torchfile.h"

/* What was found in one of the tensors that look alike. */
struct look {
	const char *strange; /* "a tensor of class X"; NULL = it is plain, or its item could not be read */
};

struct refused {
	enum uns_scope scope;
	const char *what, *first; /* key of the first tensor */
	uint64_t n;
};

void uns_dcp_plain_init(struct uns_dcp_plain *plain, struct uns_catalog *cat,
			struct uns_dcp_reader *reader, const char *where)
{
	*plain = (struct uns_dcp_plain){ .cat = cat, .reader = reader, .where = where };
}

void uns_dcp_plain_fini(struct uns_dcp_plain *plain)
{
	uns_map_fini(&plain->by_look);
	uns_map_fini(&plain->refused);
	uns_arena_fini(&plain->scratch);
}

static bool is_complex(enum uns_dtype dtype)
{
	return strncmp(uns_dtype_info(dtype)->torch, "complex", 7) == 0;
}

/* Adds the name with each run of digits replaced by '#'. */
static void add_without_numbers(struct uns_text *text, const char *name)
{
	for (; *name; name++)
		if (!isdigit((unsigned char)*name))
			uns_text_add(text, name, 1);
		else if (!isdigit((unsigned char)name[1]))
			uns_text_str(text, "#");
}

static const char *look_of(struct uns_dcp_plain *plain, const struct uns_tensor *t,
			   const struct uns_piece *piece, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	const char *look;
	uint32_t d;

	if (is_complex(t->dtype) || piece->codec != UNS_CODEC_NONE)
		uns_text_str(&text, t->key);
	else
		add_without_numbers(&text, t->key);
	uns_text_printf(&text, " %d %llu", t->dtype, (unsigned long long)piece->length_bytes);
	for (d = 0; d < piece->box->n; d++)
		uns_text_printf(&text, " %llu", (unsigned long long)piece->box->len[d]);
	look = text.failed ? NULL : uns_arena_strn(&plain->scratch, text.p, text.len);
	if (!look)
		uns_oom(err);
	return look;
}

static int read_look(struct uns_dcp_plain *plain, const struct uns_piece *piece,
		     const char **strange, struct uns_err *err)
{
	const struct uns_dcp_item_location location = { piece->file, piece->offset_bytes,
						     piece->length_bytes, piece->codec };
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err why = { 0 };
	const struct uns_value *v;
	struct uns_span head;
	int code = uns_dcp_item_head(plain->reader, &location, &arena, &head, &why);

	if (code < 0)
		return uns_fail_if_passing(err, code, &why);
	if (!uns_torchfile_peek(head, &arena, &v) || uns_torch_readable(v, &why) != -ENOTSUP)
		return 0;
	*strange = uns_arena_str(&plain->scratch, why.text);
	return *strange ? 0 : uns_oom(err);
}

static int find_look(struct uns_dcp_plain *plain, const struct uns_tensor *t,
		     const struct uns_piece *piece, const struct look **out, struct uns_err *err)
{
	const char *key = look_of(plain, t, piece, err);
	struct look *look;

	if (!key)
		return -ENOMEM;
	*out = uns_map_get(&plain->by_look, key);
	if (*out)
		return 0;
	look = UNS_NEW(&plain->scratch, struct look);
	if (!look || !uns_map_put(&plain->by_look, key, look, NULL))
		return uns_oom(err);
	*out = look;
	return read_look(plain, piece, &look->strange, err);
}

static int refuse(struct uns_dcp_plain *plain, const struct uns_tensor *t, enum uns_scope scope,
		  const char *what, struct uns_err *err)
{
	const char *key = uns_arena_printf(&plain->scratch, "%d %s", (int)scope, what);
	struct refused *r = key ? uns_map_get(&plain->refused, key) : NULL;

	if (!key)
		return uns_oom(err);
	if (!r) {
		r = UNS_NEW(&plain->scratch, struct refused);
		if (!r || !uns_map_put(&plain->refused, key, r, NULL))
			return uns_oom(err);
		*r = (struct refused){ scope, what, t->key, 0 };
	}
	r->n++;
	return 0;
}

int uns_dcp_plain_judge(struct uns_dcp_plain *plain, enum uns_scope scope, struct uns_err *err)
{
	struct uns_tensor *t = &plain->cat->tensors[plain->cat->n_tensors - 1];
	const struct look *look;

	if (!t->n_pieces)
		return 0;
	UNS_TRY(find_look(plain, t, &plain->cat->pieces[t->first_piece], &look, err));
	t->strange = look->strange != NULL;
	return t->strange ? refuse(plain, t, scope, look->strange, err) : 0;
}

int uns_dcp_plain_finish(struct uns_dcp_plain *plain, struct uns_err *err)
{
	const char *key;
	size_t at = 0;
	void *value;

	while (uns_map_next(&plain->refused, &at, &key, &value)) {
		const struct refused *r = value;

		UNS_TRY(uns_catalog_add_finding(
			plain->cat,
			UNS_FINDING(.id = UNS_FOUND_TENSORS_NOT_PLAIN, .scope = r->scope,
				    .file = plain->where, .tensor = r->first,
				    .found = uns_str(r->what),
				    .arg = { { "more", r->n > 1 ? uns_num(r->n - 1) :
								  uns_str(NULL) } }),
			err));
	}
	return 0;
}
