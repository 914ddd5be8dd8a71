/* Tied weights. If lm_head shares its memory with the embedding, FSDP saves the tensor twice, and save_pretrained
 * writes it once. Views leave a name out only if config.json ties it and its bytes are proven equal to the other's.
 * Otherwise they show both, which every loader accepts. */
#include "facts/ties.h"

#include <string.h>

#include "names/template.h"
#include "names/tie_rows.h"

/* Suffixes of the output projections that transformers ties to an input embedding (source: `_tied_weights_keys` in the
 * modeling files of transformers 5.23). */
static const char *const tied_suffix[] = { "lm_head.weight", "embed_out.weight", "cls.predictions.decoder.weight",
					   "generator_lm_head.weight", NULL };
/* Suffixes of input embeddings. The first that is found is kept. */
static const char *const kept_suffix[] = { "shared.weight",     "embed_tokens.weight",
					   "wte.weight",        "word_embeddings.weight",
					   "embed_in.weight",   "tok_embeddings.weight",
					   "embeddings.weight", NULL };

static const struct uns_tensor *embedding_for(const struct uns_catalog *cat, const struct uns_tensor *head)
{
	const struct uns_tensor *t, *end = cat->tensors + cat->n_tensors;
	const char *const *suffix;

	for (suffix = kept_suffix; *suffix; suffix++)
		for (t = cat->tensors; t < end; t++)
			if (t != head && t->role == UNS_ROLE_WEIGHT && t->dtype == head->dtype &&
			    uns_shape_equal(&t->shape, &head->shape) && uns_name_ends(t->name, *suffix))
				return t;
	return NULL;
}

static bool is_left_out(const struct ties *ties, const struct uns_tensor *t)
{
	size_t i;

	for (i = 0; i < ties->n && ties->v[i] != t; i++)
		;
	return i < ties->n;
}

/* What the family ties t to: the row's other name behind the same prefix. NULL = nothing, or what is left out itself.
 */
static const struct uns_tensor *named_by(const struct uns_tie_row *row, const struct uns_catalog *cat,
					 const struct ties *ties, const struct uns_tensor *t)
{
	const size_t before = strlen(t->name) - strlen(row->second);
	const struct uns_tensor *other = cat->tensors, *end = other + cat->n_tensors;

	for (; other < end; other++)
		if (other->role == UNS_ROLE_WEIGHT && other->dtype == t->dtype &&
		    uns_shape_equal(&other->shape, &t->shape) && strncmp(other->name, t->name, before) == 0 &&
		    strcmp(other->name + before, row->first) == 0)
			return is_left_out(ties, other) ? NULL : other;
	return NULL;
}

/* The tensor in whose place t would be a second name; NULL = t is shown in any case. */
static const struct uns_tensor *partner_of(const struct uns_catalog *cat, struct uns_tie_rows family,
					   const struct ties *ties, const struct uns_tensor *t)
{
	const struct uns_tie_row *row = family.v, *end = row + family.n;
	const struct uns_tensor *other = NULL;
	const char *const *suffix = tied_suffix;
	bool is_first = false;

	for (; row < end && !other; row++) {
		if (row->first && uns_name_ends(t->name, row->second))
			other = named_by(row, cat, ties, t);
		is_first = is_first || (row->first && uns_name_ends(t->name, row->first));
	}
	if (other || is_first)
		return other;
	while (*suffix && !uns_name_ends(t->name, *suffix))
		suffix++;
	return *suffix ? embedding_for(cat, t) : NULL;
}

static int tie_prove(const struct uns_catalog *cat, struct uns_backing *backing, struct ties *out,
		     const struct uns_tensor *head, const struct uns_tensor *embedding, struct uns_err *err)
{
	struct uns_err why = { 0 };
	const char *how = "";
	bool equal = false;
	int code = uns_backing_equal(backing, head, embedding, &equal, &how, &why);

	UNS_TRY(uns_fail_if_passing(err, code, &why));
	if (equal)
		out->v[out->n++] = head;
	return uns_findings_add(&out->notes, &out->arena,
				UNS_FINDING(.id = code < 0 ? UNS_FOUND_TIE_NOT_COMPARED
						  : equal  ? UNS_FOUND_TIED_WEIGHT_LEFT_OUT
							   : UNS_FOUND_TIED_WEIGHTS_DIFFER,
					    .checkpoint = cat->path, .tensor = head->name,
					    .arg = { { "other_tensor", uns_str(embedding->name) },
						     { "how", uns_str(how) },
						     { "cause", uns_str(why.text) } }),
				err);
}

int ties_prove(const struct uns_catalog *cat, const char *model_type, struct uns_backing *backing, struct ties *out,
	       struct uns_err *err)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors, *other;
	const struct uns_tie_rows family = uns_tie_rows_of(model_type);

	UNS_TRY_ALLOC(out->v = UNS_NEW_N(&out->arena, const struct uns_tensor *, cat->n_tensors), err);
	for (; t < end; t++) {
		other = t->role == UNS_ROLE_WEIGHT ? partner_of(cat, family, out, t) : NULL;
		if (other)
			UNS_TRY(tie_prove(cat, backing, out, t, other, err));
	}
	return 0;
}
