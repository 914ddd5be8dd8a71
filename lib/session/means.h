/* The mean of K checkpoints of one run: the catalog of the newest, in which each floating weight is a sum of the K
 * checkpoints' tensors (model/sum_tensor.h). */
#ifndef UNS_SESSION_MEANS_H
#define UNS_SESSION_MEANS_H

#include "api/options.h"
#include "formats/format.h"
#include "session/dir_records.h"

struct means_input {
	const struct uns_root *root; /* the records' */
	const struct uns_format_options *options;
	const struct mean_options *how;
};

/* Finds the record->n_averaged - 1 checkpoints before the record's, opens them, and puts sums in the place of the
 * catalog's weights. All that is looked at becomes the capture's input. What keeps them from being averaged becomes a
 * finding of the catalog, which has its own weights then. Fails only in passing. */
int means_add(const struct means_input *in, const struct dir_record *record, struct uns_capture *capture,
	      struct uns_catalog *cat, struct uns_err *err);

#endif
