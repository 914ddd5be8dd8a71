/* Tied weights. If lm_head shares its memory with the embedding, FSDP saves the tensor twice, and save_pretrained
 * writes it once. Views leave a name out only if config.json ties it and its bytes are proven equal to the other's.
 * Otherwise they show both, which every loader accepts. */
#include "facts/ties.h"

#include "names/template.h"

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

int ties_prove(const struct uns_catalog *cat, struct uns_backing *backing, struct ties *out, struct uns_err *err)
{
	const struct uns_tensor *head = cat->tensors, *end = head + cat->n_tensors, *embedding;
	const char *const *suffix;

	UNS_TRY_ALLOC(out->v = UNS_NEW_N(&out->arena, const struct uns_tensor *, cat->n_tensors), err);
	for (; head < end; head++) {
		for (suffix = tied_suffix; *suffix && !uns_name_ends(head->name, *suffix); suffix++)
			;
		embedding = *suffix && head->role == UNS_ROLE_WEIGHT ? embedding_for(cat, head) : NULL;
		if (embedding)
			UNS_TRY(tie_prove(cat, backing, out, head, embedding, err));
	}
	return 0;
}
