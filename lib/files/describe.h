/* The texts of .unshard directories and of `unshard show`: a checkpoint's summary, tensors and provenance as JSON, and
 * what a session counts. Pure. */
#ifndef UNS_FILES_DESCRIBE_H
#define UNS_FILES_DESCRIBE_H

#include "base/text.h"
#include "files/resume_reads.h"
#include "model/tree.h"

struct uns_view_verdict {
	const char *view;  /* "weights-bf16" */
	const char *state; /* "ok", "saving", "damaged", "none"; "unreadable" just now */
	const char *why;   /* the reason if the state is not "ok", else NULL */
	const char *why_id; /* of the finding that is the reason, or NULL */
	const char *usage; /* the line to write if the state is "ok", else NULL */
	const char *const *note; /* what a user should know before loading */
	size_t n_notes;
	const struct uns_resume_read *resume; /* what a trainer that resumes from it reads */
	size_t n_resume;
};

/* {"path","format","framework","step","world_size","finished","tensors","weights_bytes",...,
 *  "objects":[{"name","file","length"}],
 *  "views":{NAME:{"state","why","why_id","usage","resume" and "notes" where there are some}},"problems":[FINDING]} */
void uns_describe_info(struct uns_text *out, const struct uns_catalog *cat, const struct uns_view_verdict *views,
		       size_t n_views, const struct uns_findings *problems);

/* [{"name","key","role","state","dtype","shape","pieces":[{"file","offset","length","codec",
 *   "box":{"lo","len"} | "range":{"first","count"},"rank"}]}] */
void uns_describe_tensors(struct uns_text *out, const struct uns_catalog *cat);

/* {"id","severity","scope","code","file","rank","tensor","expected","found","text","advice"}: what is not known of it
 * is null. */
void uns_describe_finding(struct uns_text *out, const struct uns_finding *f);

/* {"version","files":{PATH:{"origin","from"}},"notes":[..],"inferred":[..],"flat_units":..} for one view's tree. */
void uns_describe_provenance(struct uns_text *out, const struct uns_catalog *cat, const struct uns_vtree *tree);

/* What a session counts, for programs: as JSON, and as Prometheus reads it. */
struct uns_figure {
	const char *name, *help;
	uint64_t value;
	bool counter; /* it only grows */
	bool for_people; /* not a metric: it follows from others */
};
/* Of one file system: its device number, "0:51", its type, and which of `-o reads=` holds for it. */
struct uns_way_figure {
	char device[32], type[64];
	const char *way;
};
void uns_figures_json(struct uns_text *out, const struct uns_figure *v, size_t n, const struct uns_way_figure *ways,
		      size_t n_ways);
void uns_figures_metrics(struct uns_text *out, const struct uns_figure *v, size_t n);

#endif
