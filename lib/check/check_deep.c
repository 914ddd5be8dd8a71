/* unshard_check_deep: what the engine found in a checkpoint's bytes, in sentences. */
#include "check/checking.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/path.h"
#include "engine/verify.h"

/* A model that has diverged is NaN everywhere: that is said once, not three thousand times. */
enum { NAMED_AT_MOST = 16 };

static const char go_back[] = "copy it back from the training machine, or go on from the "
			      "checkpoint before it";

struct deep {
	struct checking *c;
	const struct uns_catalog *cat;
	size_t n_not_finite, n_unlike;  /* told or not */
	uint64_t n_nan, n_inf;          /* of those not told: */
	enum unshard_severity severity; /* the worst of them */
	size_t n_files, n_without_crc;
	const struct uns_file *without_crc; /* the first */
};

/* "FILE (rank 1)" */
static const char *place_text(const struct uns_file *file, int32_t rank, char *buf, size_t size)
{
	const char *name = uns_path_name(file->path);

	if (rank >= 0)
		snprintf(buf, size, "%s (rank %" PRId32 ")", name, rank);
	else
		snprintf(buf, size, "%s", name);
	return buf;
}

/* -- files -- */

/* Said by the catalog already: a file that could not be opened is no news. */
static bool is_known(const struct deep *d, const struct uns_file *file)
{
	const char *name = uns_path_name(file->path);
	size_t i;

	for (i = 0; i < d->cat->n_problems; i++)
		if (d->cat->problems[i].scope != UNS_SCOPE_NOTE &&
		    strstr(d->cat->problems[i].text, name))
			return true;
	return false;
}

static int tell_unreadable(struct deep *d, const struct uns_flaw *f)
{
	if (is_known(d, f->file))
		return 0;
	return checking_found(d->c, "unreadable", UNSHARD_PROBLEM, "%s; %s", f->text, go_back);
}

static int tell_record(struct deep *d, const struct uns_flaw *f)
{
	char where[512];

	place_text(f->file, f->rank, where, sizeof(where));
	if (!f->record)
		return checking_found(d->c, "crc", UNSHARD_PROBLEM,
				      "%s: tensor %s, decompressed, has CRC %08" PRIx32
				      ", its item says %08" PRIx32 ": it was damaged after it was "
				      "saved; %s",
				      where, f->name, f->crc, f->expected_crc, go_back);
	return checking_found(
		d->c, "crc", UNSHARD_PROBLEM,
		"%s: record %s%s%s, %" PRIu64 " bytes at %" PRIu64 ", has CRC %08" PRIx32
		", the archive says %08" PRIx32 ": it was damaged after it was saved; %s",
		where, f->record, f->name ? " of tensor " : "", f->name ? f->name : "",
		f->len_bytes, f->at_bytes, f->crc, f->expected_crc, go_back);
}

/* -- tensors -- */

/* Of a file that is passed through as it is. */
static bool is_training_file(const char *name)
{
	return uns_str_ends(name, ".safetensors") || uns_str_starts(name, "optimizer") ||
	       uns_str_starts(name, "pytorch_model") || uns_str_starts(name, "adapter_model");
}

/* Masks hold infinities on purpose, and what a script saved for itself is its own affair. */
static enum unshard_severity severity_of(const struct uns_flaw *f)
{
	if (!f->tensor)
		return is_training_file(uns_path_name(f->file->path)) ? UNSHARD_PROBLEM
								      : UNSHARD_NOTE;
	if (f->tensor->role == UNS_ROLE_OTHER)
		return UNSHARD_NOTE;
	return f->tensor->role == UNS_ROLE_BUFFER && !f->n_nan ? UNSHARD_NOTE : UNSHARD_PROBLEM;
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

static void count_text(const char *one, const char *many, uint64_t n, char *buf, size_t size)
{
	snprintf(buf, size, "%" PRIu64 " %s", n, n == 1 ? one : many);
}

static void numbers_text(uint64_t n_nan, uint64_t n_inf, char *buf, size_t size)
{
	char nan[64], inf[64];

	count_text("NaN", "NaNs", n_nan, nan, sizeof(nan));
	count_text("infinity", "infinities", n_inf, inf, sizeof(inf));
	snprintf(buf, size, "%s%s%s", n_nan ? nan : "", n_nan && n_inf ? " and " : "",
		 n_inf ? inf : "");
}

static int tell_not_finite(struct deep *d, const struct uns_flaw *f)
{
	char name[512], numbers[160], where[512];

	if (++d->n_not_finite > NAMED_AT_MOST) {
		d->n_nan += f->n_nan;
		d->n_inf += f->n_inf;
		if (severity_of(f) == UNSHARD_PROBLEM)
			d->severity = UNSHARD_PROBLEM;
		return 0;
	}
	numbers_text(f->n_nan, f->n_inf, numbers, sizeof(numbers));
	return checking_found(d->c, "not_finite", severity_of(f),
			      "%s has %s among its %" PRIu64
			      " elements, the first is element %" PRIu64
			      ", in %s: training diverged, or the file was damaged; go on from a "
			      "checkpoint before that",
			      tensor_text(f, name, sizeof(name)), numbers, f->n_elems,
			      f->first_elem, place_text(f->file, f->rank, where, sizeof(where)));
}

static int tell_unlike(struct deep *d, const struct uns_flaw *f)
{
	char weight[512], master[512];

	if (++d->n_unlike > NAMED_AT_MOST)
		return 0;
	return checking_found(d->c, "master", UNSHARD_PROBLEM,
			      "weight %s is not its fp32 copy rounded to %s in %" PRIu64
			      " of %" PRIu64 " elements: element %" PRIu64
			      " is %.9g in %s, and %.9g of %s rounds to %.9g; one of the "
			      "files is of another save or was changed: copy both back from the "
			      "training machine, or "
			      "take the fp32 copies alone (view weights-fp32)",
			      f->name, uns_dtype_info(f->tensor->dtype)->torch, f->n_different,
			      f->n_elems, f->first_elem, f->found,
			      place_text(f->file, f->rank, weight, sizeof(weight)), f->master,
			      place_text(f->master_file, f->master_rank, master, sizeof(master)),
			      f->expected);
}

/* -- */

static int tell(void *ctx, const struct uns_flaw *f)
{
	struct deep *d = ctx;

	switch (f->kind) {
	case UNS_FLAW_UNREADABLE:
		return tell_unreadable(d, f);
	case UNS_FLAW_RECORD:
		return tell_record(d, f);
	case UNS_FLAW_NOT_FINITE:
		return tell_not_finite(d, f);
	case UNS_FLAW_MASTER:
		return tell_unlike(d, f);
	case UNS_FLAW_NO_CRC:
		if (!d->n_without_crc++)
			d->without_crc = f->file;
		return 0;
	}
	return 0;
}

static int tell_rest(struct deep *d)
{
	char numbers[160];
	int code = 0;

	if (d->n_not_finite > NAMED_AT_MOST) {
		numbers_text(d->n_nan, d->n_inf, numbers, sizeof(numbers));
		code = checking_found(d->c, "not_finite", d->severity,
				      "%zu more tensors of %s are not finite either: %s in all",
				      d->n_not_finite - NAMED_AT_MOST, checking_name(d->c),
				      numbers);
	}
	if (code == 0 && d->n_unlike > NAMED_AT_MOST)
		code = checking_found(
			d->c, "master", UNSHARD_PROBLEM,
			"%zu more weights of %s are not their fp32 copies rounded either",
			d->n_unlike - NAMED_AT_MOST, checking_name(d->c));
	if (code == 0 && d->n_without_crc)
		code = checking_found(d->c, "no_crc", UNSHARD_NOTE,
				      "%zu %s of %s recorded no CRCs of data (set_crc32_options(False)), "
				      "the first is %s: "
				      "damage in them cannot be told",
				      d->n_without_crc, d->n_without_crc == 1 ? "file" : "files",
				      checking_name(d->c), uns_path_name(d->without_crc->path));
	return code;
}

static bool asked(void *ctx, uint64_t done_bytes, uint64_t total_bytes)
{
	const struct checking *c = ctx;

	return c->reading(c->ctx, done_bytes, total_bytes);
}

static uint64_t bytes_read(const struct checking *c)
{
	struct uns_engine_stats stats;

	uns_engine_stats(c->u->engine, &stats);
	return stats.source_read_bytes;
}

int check_deep(struct checking *c, struct snapshot *snap, struct uns_err *err)
{
	struct deep d = { .c = c, .cat = snap->cat };
	const struct uns_verify_watch watch = { asked, c };
	uint64_t before = bytes_read(c);
	int code = uns_backing_verify(snap->backing, c->reading ? &watch : NULL, tell, &d, err);

	c->counts.read_bytes += bytes_read(c) - before;
	return code ? code : tell_rest(&d);
}
