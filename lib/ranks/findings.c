/* Counts findings that repeat, so that one is reported for a file. Owns which kinds are counted together; does not know
 * what a tensor is. */
#include "ranks/findings.h"

#include <string.h>

enum { MAX_REPORTED = 8 };

struct uns_rank_finding {
	const struct uns_finding *is;
	size_t n; /* tensors */
	struct uns_rank_finding *next;
};

/* Kinds of findings that have one cause in a file are counted as one kind: the one that is returned. */
static enum uns_finding_id kind_of(enum uns_finding_id id)
{
	switch (id) {
	case UNS_FOUND_RANK_TENSOR_DAMAGED: /* its bytes or its description cannot be read */
	case UNS_FOUND_RANK_PART_SHAPE:
		return UNS_FOUND_RANK_TENSOR_DAMAGED;
	case UNS_FOUND_RANK_TENSOR_UNKNOWN: /* they can, in a form that is not known */
	case UNS_FOUND_RANK_PLAIN_TENSORS_DIFFER:
		return UNS_FOUND_RANK_TENSOR_UNKNOWN;
	case UNS_FOUND_RANK_TENSOR_MISTYPED: /* it contradicts itself, or what another rank holds */
	case UNS_FOUND_RANK_TYPES_DIFFER:
	case UNS_FOUND_RANK_SHAPES_DIFFER:
	case UNS_FOUND_RANK_MESHES_DIFFER:
		return UNS_FOUND_RANK_TYPES_DIFFER;
	case UNS_FOUND_RANK_TENSOR_ABSENT: /* other ranks hold it, or do not */
	case UNS_FOUND_RANK_TENSOR_ONLY_THERE:
		return UNS_FOUND_RANK_TENSOR_ABSENT;
	case UNS_FOUND_RANK_STEPS_DIFFER: /* what all ranks have alike is not alike */
	case UNS_FOUND_RANK_GROUPS_DIFFER:
	case UNS_FOUND_RANK_SCHEDULERS_DIFFER:
	case UNS_FOUND_RANK_SCHEDULER_ONLY_SOME:
		return UNS_FOUND_RANK_STEPS_DIFFER;
	default:
		return id;
	}
}

void uns_rank_findings_init(struct uns_rank_findings *f, struct uns_catalog *cat)
{
	*f = (struct uns_rank_findings){ .cat = cat };
	f->tail = &f->first;
}

void uns_rank_findings_fini(struct uns_rank_findings *f)
{
	uns_arena_fini(&f->scratch);
}

static struct uns_rank_finding *findings_find(const struct uns_rank_findings *f, enum uns_finding_id id,
					      enum uns_scope scope, const char *path)
{
	struct uns_rank_finding *one = f->first;

	while (one &&
	       (kind_of(one->is->id) != kind_of(id) || one->is->scope != scope || strcmp(one->is->file, path) != 0))
		one = one->next;
	return one;
}

/* All ranks write the same form, so an unknown form is reported for the first file only. */
static bool is_of_all(const struct uns_rank_findings *f, const struct uns_finding *finding)
{
	const struct uns_rank_finding *one = f->first;

	if (kind_of(finding->id) != UNS_FOUND_RANK_TENSOR_UNKNOWN || finding->code != -ENOTSUP)
		return false;
	while (one && (kind_of(one->is->id) != kind_of(finding->id) || one->is->code != -ENOTSUP))
		one = one->next;
	return one && strcmp(one->is->file, finding->file) != 0;
}

bool uns_rank_findings_has(const struct uns_rank_findings *f, enum uns_finding_id kind, enum uns_scope scope,
			   const char *path)
{
	return findings_find(f, kind, scope, path) != NULL;
}

int uns_rank_findings_add(struct uns_rank_findings *f, const struct uns_finding *finding)
{
	const struct uns_finding *kept = uns_finding_copy(&f->scratch, finding);
	struct uns_rank_finding *one;

	if (!kept)
		return -ENOMEM;
	if (is_of_all(f, kept))
		return 0;
	one = findings_find(f, kept->id, kept->scope, kept->file);
	if (one) {
		one->n++;
		return 0;
	}
	one = UNS_NEW(&f->scratch, struct uns_rank_finding);
	if (!one)
		return -ENOMEM;
	*one = (struct uns_rank_finding){ .is = kept, .n = 1 };
	*f->tail = one;
	f->tail = &one->next;
	f->n++;
	return 0;
}

int uns_rank_findings_emit(struct uns_rank_findings *f, struct uns_err *err)
{
	const struct uns_rank_finding *one = f->first, *rest;
	struct uns_finding reported;
	size_t i, n = 0;

	for (; one && n < MAX_REPORTED; one = one->next, n++) {
		reported = *one->is;
		for (i = 0; reported.arg[i].name;)
			i++;
		reported.arg[i] = (struct uns_finding_arg){ "more", uns_more(one->n - 1) };
		UNS_TRY(uns_catalog_add_finding(f->cat, &reported, err));
	}
	for (rest = one; rest && rest->is->scope == UNS_SCOPE_SHARDED; rest = rest->next)
		;
	if (!one)
		return 0;
	/* Findings that are not reported still refuse what they are about. */
	rest = rest ? rest : one;
	return UNS_ADD_FINDING(f->cat, err, RANK_MORE_FILES, .scope = rest->is->scope, .code = rest->is->code,
			       .arg = { { "n", uns_num(f->n - n) } });
}
