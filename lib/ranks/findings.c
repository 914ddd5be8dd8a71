/* A file that is broken is broken in many tensors, and all ranks' files may be in the same way:
 * what repeats is counted. Owns the advice; must not know what a tensor is. */
#include "ranks/findings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_SENTENCES = 8 };

#define AGAIN "copy the file again from the training machine"

static const char *const advice[] = {
	[UNS_RANK_DAMAGED] = "; " AGAIN,
	[UNS_RANK_UNKNOWN] = "",
	[UNS_RANK_UNLIKE] = "; " AGAIN ", or go on from the checkpoint before it",
	[UNS_RANK_ABSENT] = "; " AGAIN ", or go on from the checkpoint before it",
	[UNS_RANK_OTHER_SAVE] =
		": the files are of two saves; copy this save's files again from the "
		"training machine, or go on from the checkpoint before it",
	[UNS_RANK_REPLICA] =
		"; move the file of the rank that is wrong away, then the other copy is "
		"taken",
};

struct uns_rank_finding {
	enum uns_rank_damage kind;
	enum uns_scope scope;
	int code;
	const char *path, *text;
	size_t n; /* tensors */
	struct uns_rank_finding *next;
};

void uns_rank_findings_init(struct uns_rank_findings *f, struct uns_catalog *cat)
{
	*f = (struct uns_rank_findings){ .cat = cat };
	f->tail = &f->first;
}

void uns_rank_findings_fini(struct uns_rank_findings *f)
{
	uns_arena_fini(&f->scratch);
}

static struct uns_rank_finding *find(const struct uns_rank_findings *f, enum uns_rank_damage kind,
				     enum uns_scope scope, const char *path)
{
	struct uns_rank_finding *one = f->first;

	while (one && (one->kind != kind || one->scope != scope || strcmp(one->path, path) != 0))
		one = one->next;
	return one;
}

/* A form that is not known is what all ranks write: the first file stands for them. */
static bool is_of_all(const struct uns_rank_findings *f, enum uns_rank_damage kind, int code,
		      const char *path)
{
	const struct uns_rank_finding *one = f->first;

	if (kind != UNS_RANK_UNKNOWN || code != -ENOTSUP)
		return false;
	while (one && (one->kind != kind || one->code != code))
		one = one->next;
	return one && strcmp(one->path, path) != 0;
}

bool uns_rank_findings_has(const struct uns_rank_findings *f, enum uns_rank_damage kind,
			   enum uns_scope scope, const char *path)
{
	return find(f, kind, scope, path) != NULL;
}

int uns_rank_findings_add(struct uns_rank_findings *f, enum uns_rank_damage kind,
			  enum uns_scope scope, int code, const char *path, const char *fmt, ...)
{
	struct uns_rank_finding *one = find(f, kind, scope, path);
	char text[UNS_ERR_TEXT];
	va_list ap;

	if (is_of_all(f, kind, code, path))
		return 0;
	if (one) {
		one->n++;
		return 0;
	}
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	one = UNS_NEW(&f->scratch, struct uns_rank_finding);
	if (!one)
		return -ENOMEM;
	one->kind = kind;
	one->scope = scope;
	one->code = code;
	one->n = 1;
	one->path = uns_arena_str(&f->scratch, path);
	one->text = uns_arena_str(&f->scratch, text);
	if (!one->path || !one->text)
		return -ENOMEM;
	*f->tail = one;
	f->tail = &one->next;
	f->n++;
	return 0;
}

static int emit_one(struct uns_rank_findings *f, const struct uns_rank_finding *one)
{
	char more[64] = "";

	if (one->n > 1)
		snprintf(more, sizeof(more), " (and %zu more of its tensors)", one->n - 1);
	return uns_catalog_add_problem(f->cat, one->scope, one->code, "%s: %s%s%s", one->path,
				       one->text, more, advice[one->kind]);
}

int uns_rank_findings_emit(struct uns_rank_findings *f, struct uns_err *err)
{
	const struct uns_rank_finding *one = f->first, *rest;
	size_t n = 0;

	for (; one && n < MAX_SENTENCES; one = one->next, n++)
		if (emit_one(f, one) < 0)
			return uns_oom(err);
	for (rest = one; rest && rest->scope == UNS_SCOPE_SHARDED; rest = rest->next)
		;
	if (!one)
		return 0;
	/* What a reason not told would refuse must stay refused. */
	rest = rest ? rest : one;
	if (uns_catalog_add_problem(f->cat, rest->scope, rest->code,
				    "%zu more files have tensors with problems like these",
				    f->n - n) < 0)
		return uns_oom(err);
	return 0;
}
