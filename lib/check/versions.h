/* Versions of the packages that rules over training configs ask for. Pure. */
#ifndef UNS_CHECK_VERSIONS_H
#define UNS_CHECK_VERSIONS_H

#include <stdbool.h>

#include "base/error.h"

enum uns_package {
	UNS_TRANSFORMERS,
	UNS_ACCELERATE,
	UNS_LIGHTNING,
	UNS_DEEPSPEED,
	UNS_TORCH,
	UNS_N_PACKAGES,
};

struct uns_version {
	bool known;
	bool early; /* a development, alpha, beta or candidate version: before its number */
	unsigned part[3];
};

const char *uns_package_name(enum uns_package package);

/* "transformers=4.40.2,accelerate=0.29.3" into v[UNS_N_PACKAGES]; those not named stay as they are.
 * "==" is taken for "=", "pytorch-lightning" for "lightning". -EINVAL. */
int uns_versions_parse(const char *text, struct uns_version *v, struct uns_err *err);

/* v is known and before a.b.c. */
bool uns_version_before(const struct uns_version *v, unsigned a, unsigned b, unsigned c);

#endif
