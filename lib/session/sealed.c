#include "session/sealed.h"

#include <string.h>

#include "base/cleanup.h"

int sealed_compare(const struct uns_seal_place *place, const struct uns_seal_look *look, uns_seal_found *found,
		   void *ctx, bool *is_sealed, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err why = { 0 };
	struct uns_seal seal;
	const char *where;
	int code = uns_seal_load(place, look->path, &arena, &seal, &where, &why);

	if (is_sealed)
		*is_sealed = code == 0;
	if (code == -ENOENT || code == -EEXIST)
		return 0;
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	if (code < 0)
		return found(ctx, UNS_FINDING(.id = UNS_FOUND_SEAL_UNUSABLE, .arg = { { "cause", uns_str(why.text) } }),
			     err);
	return uns_seal_compare(&seal, look, found, ctx, err);
}

static int add_to_catalog(void *ctx, const struct uns_finding *f, struct uns_err *err)
{
	return uns_catalog_add_finding(ctx, f, err);
}

/* One of the n findings disproves the file that f is about. */
static bool is_disproved(const struct uns_finding *v, size_t n, const struct uns_finding *f)
{
	for (; n; n--, v++)
		if (f->file && v->file && uns_seal_is_about_content(v->id) && strcmp(v->file, f->file) == 0)
			return true;
	return false;
}

/* The last findings, from `n` on, come first. */
static int put_in_front(struct uns_catalog *cat, size_t n, struct uns_err *err)
{
	const struct uns_finding *old = cat->findings, *added = old + n;
	const size_t n_added = cat->n_findings - n;
	struct uns_finding *v = UNS_NEW_N(&cat->arena, struct uns_finding, cat->n_findings);
	size_t i;

	UNS_TRY_ALLOC(v, err);
	memcpy(v, added, n_added * sizeof(*v));
	cat->findings = v;
	cat->cap_findings = cat->n_findings;
	cat->n_findings = n_added;
	for (i = 0; i < n; i++)
		if (!is_disproved(added, n_added, &old[i]))
			v[cat->n_findings++] = old[i];
	return 0;
}

int sealed_compare_catalog(const struct uns_seal_place *place, const struct uns_seal_look *look,
			   struct uns_catalog *cat, bool *is_sealed, struct uns_err *err)
{
	const size_t before = cat->n_findings;

	UNS_TRY(sealed_compare(place, look, add_to_catalog, cat, is_sealed, err));
	return cat->n_findings > before ? put_in_front(cat, before, err) : 0;
}
