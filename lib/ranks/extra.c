/* Reads extra_state files: the schedulers, which all ranks step together and which are therefore equal in one save.
 * Owns the findings about schedulers that differ. Random states differ between ranks, and are not compared. */
#include "ranks/extra.h"

#include "base/cleanup.h"
#include "ranks/reading.h"
#include "ranks/values.h"
#include "wire/value_new.h"

#define SCHEDULER "lr_scheduler"

struct extra {
	struct uns_rank_reading files;
	const struct uns_value *scheduler; /* the first file's */
	const char *path;
};

static void extra_fini(struct extra *e)
{
	uns_rank_reading_fini(&e->files);
}

static int scheduler_compare(struct extra *e, const struct uns_rank_source *source, const struct uns_value *scheduler,
			     struct uns_err *err)
{
	struct uns_rank_findings *findings = &e->files.merge.findings;
	bool none = scheduler->kind == UNS_VALUE_NONE;
	struct uns_rank_difference d;
	int differ;

	if (none != (e->scheduler->kind == UNS_VALUE_NONE))
		return uns_rank_findings_add(findings, UNS_FINDING(.id = UNS_FOUND_RANK_SCHEDULER_ONLY_SOME,
								   .scope = UNS_SCOPE_SHARDED, .file = source->path,
								   .rank = uns_rank(source->rank),
								   .expected = uns_str(none ? "one" : "none"),
								   .found = uns_str(none ? "no" : "a"),
								   .arg = { { "other_file", uns_str(e->path) } }));
	differ = uns_rank_values_differ(e->scheduler, scheduler, &d, err);
	if (differ <= 0)
		return differ;
	return uns_rank_findings_add(
		findings,
		UNS_FINDING(.id = UNS_FOUND_RANK_SCHEDULERS_DIFFER, .scope = UNS_SCOPE_SHARDED, .file = source->path,
			    .rank = uns_rank(source->rank), .expected = uns_str(d.first), .found = uns_str(d.second),
			    .arg = { { "key", uns_str(d.key) }, { "other_file", uns_str(e->path) } }));
}

static int add_extra(void *ctx, struct uns_rank_source *source, struct uns_err *err)
{
	struct extra *e = ctx;
	struct uns_named_value v = { .name = SCHEDULER, .root = UNS_RANK_FORM, .file = source->file };
	const struct uns_value *scheduler = uns_value_get(source->torch->root, SCHEDULER);

	if (!scheduler)
		return uns_fail(err, -EBADMSG, "the file has no \"" SCHEDULER "\", which is restored from there");
	if (e->files.n_read)
		return scheduler_compare(e, source, scheduler, err);
	e->scheduler = scheduler;
	e->path = source->path;
	v.value = uns_value_copy(&e->files.cat->arena, scheduler);
	if (!v.value && !e->files.cat->arena.failed)
		return uns_fail(err, -ENOTSUP, "its " SCHEDULER " is nested too deeply");
	return uns_catalog_add_value(e->files.cat, &v, err);
}

int uns_rank_extra_add(struct uns_catalog *cat, const struct uns_root *root, const struct uns_rank_file *files,
		       size_t n, struct uns_err *err)
{
	UNS_CLEANUP(extra_fini) struct extra e = { 0 };

	UNS_TRY(uns_rank_reading_init(&e.files, cat, root, UNS_SCOPE_SHARDED, n, err));
	e.files.keep = &e.files.merge.scratch;
	return uns_rank_reading_add(&e.files, files, n, add_extra, &e, err);
}
