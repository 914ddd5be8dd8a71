/* What an adapter of PEFT does to one module of the base model when it is merged. */
#ifndef UNS_FILES_MERGE_MODULE_H
#define UNS_FILES_MERGE_MODULE_H

#include "files/adapter_settings.h"
#include "files/merge_sums.h"

enum uns_merge_part {
	UNS_PART_A,
	UNS_PART_B,
	UNS_PART_B_BIAS,
	UNS_PART_EMBEDDING_A,
	UNS_PART_EMBEDDING_B,
	UNS_PART_MAGNITUDE,
	UNS_PART_IA3,
	UNS_PART_NORM,
	UNS_PART_NORM_BIAS,
	UNS_N_PARTS
};
/* Which part it is by the name behind the module's in PEFT's files; UNS_N_PARTS = none that the method has. */
enum uns_merge_part uns_merge_part_find(enum uns_adapter_method method, const char *name);

/* What the adapter has of one module. */
struct uns_merge_module {
	const char *name; /* in the base model */
	const struct uns_tensor *part[UNS_N_PARTS];
};

struct uns_merging {
	struct uns_merge_sums *sums;
	const struct uns_adapter_settings *settings;
	double times; /* what the adapter adds is multiplied by it */
	bool plain, turned; /* set: whether a weight that is not square is [out, in]; [in, out] */
};

/* Adds to the sums what the adapter adds to the module's weight and bias. -ENOTSUP with a sentence if that cannot be
 * merged exactly. Pure. */
int uns_merge_module_add(struct uns_merging *m, const struct uns_merge_module *module, struct uns_err *err);

/* [columns, rows] of a matrix [rows, columns], or of the matrix that a convolution's weight is. */
int uns_merge_transpose(const struct uns_merge_sums *sums, const struct uns_tensor *t, struct uns_factor *out,
			struct uns_err *err);

#endif
