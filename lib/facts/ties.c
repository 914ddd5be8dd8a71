/* Tied weights. If lm_head shares its memory with the embedding, FSDP saves the tensor twice, and
 * save_pretrained writes it once. Views leave a name out only if config.json ties it and its bytes are
 * proven equal to the other's. Otherwise they show both, which every loader accepts. */
#include "facts/ties.h"

#include <string.h>

#include "base/path.h"

/* Suffixes of the output projections that transformers ties to an input embedding (source:
 * `_tied_weights_keys` in the modeling files of transformers 5.23). */
static const char *const tied_suffix[] = { "lm_head.weight", "embed_out.weight",
					   "cls.predictions.decoder.weight",
					   "generator_lm_head.weight", NULL };
/* Suffixes of input embeddings. The first that is found is kept. */
static const char *const kept_suffix[] = { "shared.weight",     "embed_tokens.weight",
					   "wte.weight",        "word_embeddings.weight",
					   "embed_in.weight",   "tok_embeddings.weight",
					   "embeddings.weight", NULL };

/* Is `suffix` the whole name ("lm_head.weight"), or its last parts ("x.lm_head.weight")? */
static bool name_ends(const char *name, const char *suffix)
{
	size_t n = strlen(name), m = strlen(suffix);

	return n >= m && strcmp(name + n - m, suffix) == 0 && (n == m || name[n - m - 1] == '.');
}

static bool name_in(const char *name, const char *const *suffixes)
{
	for (; *suffixes; suffixes++)
		if (name_ends(name, *suffixes))
			return true;
	return false;
}

static const struct uns_tensor *embedding_for(const struct uns_catalog *cat,
					      const struct uns_tensor *head)
{
	const struct uns_tensor *t;
	size_t i, k;

	for (k = 0; kept_suffix[k]; k++) {
		for (i = 0; i < cat->n_tensors; i++) {
			t = &cat->tensors[i];
			if (t != head && t->role == UNS_ROLE_WEIGHT && t->dtype == head->dtype &&
			    uns_shape_equal(&t->shape, &head->shape) &&
			    name_ends(t->name, kept_suffix[k]))
				return t;
		}
	}
	return NULL;
}

static int prove(const struct uns_catalog *cat, struct uns_backing *backing, struct ties *out,
		 const struct uns_tensor *head, const struct uns_tensor *embedding,
		 struct uns_err *err)
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

int ties_prove(const struct uns_catalog *cat, struct uns_backing *backing, struct ties *out,
	       struct uns_err *err)
{
	const struct uns_tensor *embedding;
	size_t i;

	out->v = UNS_NEW_N(&out->arena, const struct uns_tensor *, cat->n_tensors);
	if (!out->v)
		return uns_oom(err);
	for (i = 0; i < cat->n_tensors; i++) {
		const struct uns_tensor *head = &cat->tensors[i];

		if (head->role != UNS_ROLE_WEIGHT || !name_in(head->name, tied_suffix))
			continue;
		embedding = embedding_for(cat, head);
		if (embedding)
			UNS_TRY(prove(cat, backing, out, head, embedding, err));
	}
	return 0;
}
