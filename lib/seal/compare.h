/* What became of the files of a checkpoint since it was sealed, as findings.
 *
 * Quick: by names, sizes and times; of a file that has another time than it had, or whose size and time another sealed
 * file has too, the sample is read (64 KiB at most). Deep: all bytes of all files are read. */
#ifndef UNS_SEAL_COMPARE_H
#define UNS_SEAL_COMPARE_H

#include "base/pool.h"
#include "io/capture.h"
#include "seal/digest.h"

struct uns_seal_look {
	const struct uns_root *root;
	const char *path;   /* the checkpoint, below root */
	const char *hidden; /* a path below root that is left out; NULL = none */
	struct uns_capture *capture; /* answers what it has seen already; NULL = the files are asked */
	struct uns_pool *pool; /* deep: several files are read at once; NULL = one after the other */
	const struct uns_seal_watch *watch; /* deep */
	/* Deep: files for which this is true are left out (they were reported before). NULL = none. */
	bool (*known)(void *ctx, const char *path);
	void *ctx;
};

/* Called in the order of files; a negative answer ends the comparison. Findings name no checkpoint. */
typedef int uns_seal_found(void *ctx, const struct uns_finding *f, struct uns_err *err);

/* Fails only for faults of the moment; a file that may not be read is passed over by the quick look. */
int uns_seal_compare(const struct uns_seal *seal, const struct uns_seal_look *look, uns_seal_found *found, void *ctx,
		     struct uns_err *err);
int uns_seal_compare_deep(const struct uns_seal *seal, const struct uns_seal_look *look, uns_seal_found *found,
			  void *ctx, struct uns_err *err);

/* It is one of the findings that these two make about a file's content. */
bool uns_seal_is_about_content(enum uns_finding_id id);

#endif
