/* What a session counts, for programs: as JSON, and as Prometheus reads it. */
#ifndef UNS_FILES_FIGURES_H
#define UNS_FILES_FIGURES_H

#include <stdint.h>

#include "base/text.h"

struct uns_figure {
	const char *name, *help;
	uint64_t value;
	bool counter; /* it only grows */
};

void uns_figures_json(struct uns_text *out, const struct uns_figure *v, size_t n);
void uns_figures_metrics(struct uns_text *out, const struct uns_figure *v, size_t n);

#endif
