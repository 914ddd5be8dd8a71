/* A pickle spells a name at one site, puts it into the memo, and fetches it from there at all later sites. A site that
 * gets another name spells that name, and puts nothing into the memo. If it was the site that spelled the old name, the
 * next site of the old name spells it instead, and puts it into the memo under the same number. */
#include "wire/pickle_rename.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

/* "module.name" as GLOBAL writes it: the module ends at the last dot. */
static void spell(struct uns_text *out, const char *name)
{
	const char *dot = strrchr(name, '.');

	uns_text_printf(out, "c%.*s\n%s\n", (int)(dot - name), name, dot + 1);
}

static void bytes_copy(struct uns_text *out, struct uns_span pickle, size_t at, size_t end)
{
	uns_text_add(out, pickle.p + at, end - at);
}

/* The text of a memo number. */
struct known {
	const struct uns_pickle_site *site; /* that spells it */
	bool there;    /* in what was written so far */
};

static void write_site(struct uns_text *out, struct uns_span pickle, const struct uns_pickle_site *s, const char *to,
		       struct known *known)
{
	struct known *k = s->memo >= 0 ? &known[s->memo] : NULL;

	if (k && !s->again)
		k->site = s;
	if (to) {
		spell(out, to);
		return;
	}
	if (k && s->again && !k->there)
		s = k->site; /* together with the memo put behind it */
	/* What is fetched from the memo was put there by a site before this one, which is k->site.
	 * NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
	bytes_copy(out, pickle, s->at, s->at + s->len);
	if (k)
		k->there = true;
}

int uns_pickle_rename(struct uns_span pickle, const struct uns_pickle_trace *trace, const char *const *to,
		      struct uns_text *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct known *known = NULL;
	int64_t highest = 0;
	size_t i, at = 0;

	if (trace->strange)
		return uns_fail(err, -ENOTSUP,
				"the pickle differs from what Python's protocol 2 writes, so "
				"names in it cannot be changed");
	for (i = 0; i < trace->n; i++)
		highest = trace->v[i].memo > highest ? trace->v[i].memo : highest;
	UNS_TRY_ALLOC(known = calloc((size_t)highest + 1, sizeof(*known)), err);
	for (i = 0; i < trace->n; i++) {
		bytes_copy(out, pickle, at, trace->v[i].at);
		write_site(out, pickle, &trace->v[i], to[i], known);
		at = trace->v[i].at + trace->v[i].len;
	}
	bytes_copy(out, pickle, at, uns_span_left(&pickle));
	return out->failed ? uns_oom(err) : 0;
}
