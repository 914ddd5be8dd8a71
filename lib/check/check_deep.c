/* unshard_check_deep: what the engine found in a checkpoint's bytes, as findings. */
#include "check/checking.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "base/path.h"
#include "base/text.h"
#include "verify/verify.h"

/* Findings about several things with one cause (a model that has diverged is NaN everywhere) are one: the first, how
 * many more there are, and the names of some. */
struct alike {
	struct uns_arena arena;
	struct uns_findings first;
	struct uns_text names;
	size_t n;
};

enum { NAMED_AT_MOST = 6 };

struct deep {
	struct checking *c;
	const struct uns_catalog *cat;
	const struct reasons *reasons; /* what was found without --deep */
	struct alike not_finite, not_finite_note, unlike, crc;
	size_t n_files, n_without_crc;
	const struct uns_file *without_crc; /* the first */
};

/* -- several alike -- */

/* name: what it is called in the list of those that are like the first. */
static int alike_add(struct alike *a, const struct uns_finding *f, const char *name)
{
	if (!a->n++)
		return uns_findings_add(&a->first, &a->arena, f, NULL);
	if (a->n <= NAMED_AT_MOST + 1)
		uns_text_printf(&a->names, "%s%s", a->names.len ? ", " : "", name);
	return a->names.failed ? -ENOMEM : 0;
}

static void alike_fini(struct alike *a)
{
	uns_text_fini(&a->names);
	uns_arena_fini(&a->arena);
	*a = (struct alike){ 0 };
}

/* Reports them, and forgets them. */
static int alike_report(struct deep *d, struct alike *a, enum uns_severity severity)
{
	struct uns_finding *f = a->first.v;
	size_t i = 0;
	int code = 0;

	if (a->n > 1) {
		if (a->n > NAMED_AT_MOST + 1)
			uns_text_str(&a->names, ", ...");
		while (f->arg[i].name)
			i++;
		f->arg[i] = (struct uns_finding_arg){ "more", uns_num(a->n - 1) };
		f->arg[i + 1] = (struct uns_finding_arg){ "names", uns_str(a->names.p) };
		code = a->names.failed ? -ENOMEM : 0;
	}
	if (a->n && code == 0)
		code = checking_found_as(d->c, f, severity);
	alike_fini(a);
	return code;
}

/* -- files -- */

static bool has_model(const struct uns_catalog *cat, const struct uns_file *file)
{
	size_t i, k;

	for (i = 0; i < cat->n_tensors; i++)
		for (k = 0; !uns_role_is_optimizer(cat->tensors[i].role) && k < cat->tensors[i].n_pieces; k++)
			if (&cat->files[cat->pieces[cat->tensors[i].first_piece + k].file] == file)
				return true;
	return false;
}

/* There is a finding about this file already: that it could not be opened, or is no whole file. One unreadable item is
 * no finding about the rest of its file, and unreadable items of the optimizer are none about the weights in it. */
static bool is_known(const struct deep *d, const struct uns_file *file)
{
	const struct uns_finding *f = d->cat->findings, *end = f + d->cat->n_findings;

	for (; f < end; f++)
		if (f->scope != UNS_SCOPE_NOTE && f->id != UNS_FOUND_ITEM_UNREADABLE &&
		    f->id != UNS_FOUND_ITEM_UNKNOWN && f->id != UNS_FOUND_ITEMS_UNREADABLE && f->file &&
		    strcmp(f->file, file->path) == 0)
			return true;
	return reasons_tell_of_file(d->reasons, file->path,
				    has_model(d->cat, file) ? UNS_SCOPE_WEIGHTS : UNS_SCOPE_OPTIMIZER);
}

/* Weights and optimizer are what a checkpoint is for; unshard does not know what other bytes are for. */
static enum uns_scope scope_of(const struct uns_flaw *f)
{
	if (!f->tensor)
		return UNS_SCOPE_ALL;
	if (uns_role_is_model(f->tensor->role))
		return UNS_SCOPE_WEIGHTS;
	return uns_role_is_optimizer(f->tensor->role) ? UNS_SCOPE_OPTIMIZER : UNS_SCOPE_ALL;
}

/* What findings about a flaw begin with. */
#define OF_FLAW(f, what) \
	.id = (what), .scope = scope_of(f), .file = (f)->file->path, .rank = uns_rank((f)->rank), .tensor = (f)->name

static int report_unreadable(struct deep *d, const struct uns_flaw *f)
{
	if (is_known(d, f->file))
		return 0;
	return checking_found(d->c,
			      UNS_FINDING(OF_FLAW(f, UNS_FOUND_BYTES_UNREADABLE),
					  .arg = { { "cause", uns_str(f->text) }, { "more", uns_more(f->n_more) } }));
}

/* Records of one file come one after the other. */
static int report_record(struct deep *d, const struct uns_flaw *f)
{
	char found[16], expected[16];
	const enum uns_finding_id id = f->record ? UNS_FOUND_RECORD_CRC_DIFFERS : UNS_FOUND_ITEM_CRC_DIFFERS;
	const struct uns_finding *first = d->crc.first.v;

	if (first && (first->id != id || strcmp(first->file, f->file->path) != 0))
		UNS_TRY(alike_report(d, &d->crc, UNS_PROBLEM));
	snprintf(found, sizeof(found), "%08" PRIx32, f->crc);
	snprintf(expected, sizeof(expected), "%08" PRIx32, f->expected_crc);
	return alike_add(&d->crc,
			 UNS_FINDING(OF_FLAW(f, id), .expected = uns_str(expected), .found = uns_str(found),
				     .arg = { { "record", uns_str(f->record) },
					      { "bytes", uns_num(f->len_bytes) },
					      { "at", uns_num(f->at_bytes) } }),
			 f->record ? f->record : f->name);
}

/* -- tensors -- */

/* Masks hold infinities on purpose, and what a script saved for itself is its own affair. */
static enum uns_severity severity_of(const struct uns_flaw *f)
{
	const char *file = uns_path_name(f->file->path);

	if (!f->tensor) /* of a file that is passed through as it is */
		return uns_str_ends(file, ".safetensors") || uns_str_starts(file, "optimizer") ||
				       uns_str_starts(file, "pytorch_model") || uns_str_starts(file, "adapter_model")
			       ? UNS_PROBLEM
			       : UNS_NOTE;
	if (f->tensor->role == UNS_ROLE_OTHER)
		return UNS_NOTE;
	return f->tensor->role == UNS_ROLE_BUFFER && !f->n_nan ? UNS_NOTE : UNS_PROBLEM;
}

/* "exp_avg of emb.weight", "weight emb.weight" */
static const char *tensor_text(const struct uns_flaw *f, char *buf, size_t size)
{
	const struct uns_tensor *t = f->tensor;

	if (t && t->role == UNS_ROLE_MASTER)
		snprintf(buf, size, "the fp32 copy of %s", t->name);
	else if (t && t->state)
		snprintf(buf, size, "%s of %s", t->state, t->name);
	else
		snprintf(buf, size, "%s %s", t ? uns_role_text(t->role) : "tensor", f->name);
	return buf;
}

static int report_not_finite(struct deep *d, const struct uns_flaw *f)
{
	char what[512];

	tensor_text(f, what, sizeof(what));
	return alike_add(severity_of(f) == UNS_PROBLEM ? &d->not_finite : &d->not_finite_note,
			 UNS_FINDING(OF_FLAW(f, UNS_FOUND_NOT_FINITE), .arg = { { "what", uns_str(what) },
										{ "nans", uns_more(f->n_nan) },
										{ "infs", uns_more(f->n_inf) },
										{ "n", uns_num(f->n_elems) },
										{ "first", uns_num(f->first_elem) } }),
			 what);
}

static int report_unlike_copy(struct deep *d, const struct uns_flaw *f)
{
	char found[UNS_NUMBER_ROOM], exact[UNS_NUMBER_ROOM], expected[UNS_NUMBER_ROOM];

	uns_number_print(found, f->found, 9);
	uns_number_print(exact, f->master, 9);
	uns_number_print(expected, f->expected, 9);
	return alike_add(&d->unlike,
			 UNS_FINDING(OF_FLAW(f, UNS_FOUND_FP32_COPY_DIFFERS), .expected = uns_str(expected),
				     .found = uns_str(found),
				     .arg = { { "dtype", uns_str(uns_dtype_info(f->tensor->dtype)->torch) },
					      { "n", uns_num(f->n_different) },
					      { "total", uns_num(f->n_elems) },
					      { "first", uns_num(f->first_elem) },
					      { "exact", uns_str(exact) },
					      { "other_file", uns_str(f->master_file->path) },
					      { "other_rank", uns_rank(f->master_rank) } }),
			 f->name);
}

/* -- */

static int report_flaw(void *ctx, const struct uns_flaw *f)
{
	struct deep *d = ctx;

	switch (f->kind) {
	case UNS_FLAW_UNREADABLE:
		return report_unreadable(d, f);
	case UNS_FLAW_RECORD:
		return report_record(d, f);
	case UNS_FLAW_NOT_FINITE:
		return report_not_finite(d, f);
	case UNS_FLAW_MASTER:
		return report_unlike_copy(d, f);
	case UNS_FLAW_SAVED_AS:
		return is_known(d, f->file) ? 0
					    : checking_found(d->c, UNS_FINDING(OF_FLAW(f, UNS_FOUND_FILE_SAVED_AS),
									       .found = uns_str(f->record)));
	case UNS_FLAW_OTHER_OBJECT:
		return checking_found(d->c,
				      UNS_FINDING(OF_FLAW(f, UNS_FOUND_FILE_HOLDS_OTHER), .found = uns_str(f->record)));
	case UNS_FLAW_EQUAL:
		return checking_found(d->c, UNS_FINDING(OF_FLAW(f, UNS_FOUND_SHARDS_EQUAL),
							.arg = { { "other_file", uns_str(f->master_file->path) } }));
	case UNS_FLAW_ZEROS:
		return checking_found(d->c, UNS_FINDING(OF_FLAW(f, UNS_FOUND_FILE_ENDS_IN_ZEROS),
							.arg = { { "bytes", uns_num(f->len_bytes) },
								 { "total", uns_num(f->file->stat.id.size) } }));
	case UNS_FLAW_NO_CRC:
		if (!d->n_without_crc++)
			d->without_crc = f->file;
		return 0;
	}
	return 0;
}

static int report_rest(struct deep *d)
{
	int code = alike_report(d, &d->crc, UNS_PROBLEM);

	if (code == 0)
		code = alike_report(d, &d->not_finite, UNS_PROBLEM);
	if (code == 0)
		code = alike_report(d, &d->not_finite_note, UNS_NOTE);
	if (code == 0)
		code = alike_report(d, &d->unlike, UNS_PROBLEM);
	if (code == 0 && d->n_without_crc && !d->c->sealed) {
		d->c->n_without_crc += d->n_without_crc;
		if (!d->c->without_crc && !(d->c->without_crc = strdup(d->without_crc->path)))
			return -ENOMEM;
	}
	return code;
}

static bool reading_asked(void *ctx, uint64_t done_bytes, uint64_t total_bytes)
{
	struct checking *c = ctx;

	return caller_progress(&c->caller, UNSHARD_READING, done_bytes, total_bytes);
}

static uint64_t bytes_read(const struct checking *c)
{
	struct uns_engine_stats stats;

	uns_engine_stats(c->u->engine, &stats);
	return stats.source_read_bytes;
}

int check_deep(struct checking *c, struct snapshot *snap, const struct reasons *known, struct uns_err *err)
{
	struct deep d = { .c = c, .cat = snap->cat, .reasons = known };
	const struct uns_verify_watch watch = { reading_asked, c };
	uint64_t before = bytes_read(c);
	int code = uns_backing_verify(snap->backing, c->caller.calls.progress ? &watch : NULL, report_flaw, &d, err);

	c->counts.read_bytes += bytes_read(c) - before;
	code = code ? code : report_rest(&d);
	alike_fini(&d.crc);
	alike_fini(&d.not_finite);
	alike_fini(&d.not_finite_note);
	alike_fini(&d.unlike);
	return code;
}
