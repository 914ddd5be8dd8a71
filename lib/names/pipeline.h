/* diffusers: a pipeline is a directory per component, which model_index.json lists. Pure. */
#ifndef UNS_NAMES_PIPELINE_H
#define UNS_NAMES_PIPELINE_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/span.h"

enum { UNS_NO_MODEL = -1 };

struct uns_component {
	const char *name; /* its directory below that of model_index.json: "unet" */
	const char *stem; /* its weights' file below that, without ".safetensors": "unet/diffusion_pytorch_model" */
	int model; /* which of the checkpoint's models it is, from 0; UNS_NO_MODEL = the pipeline's own files are shown
		    */
};

struct uns_pipeline {
	struct uns_component *v; /* n, in the file's order */
	size_t n; /* 0 = there is no pipeline */
	bool is_component; /* v has one component, which is shown by itself: in the directory, not in one below */
};

/* Reads the components of a model_index.json, as diffusers 0.42 writes it: {"unet": ["diffusers", "UNet2DModel"], ..}.
 * Those of null are left out. No model is given to any. -EBADMSG: the file is not that. All is in the arena. */
int uns_pipeline_read(struct uns_span json, struct uns_arena *arena, struct uns_pipeline *out, struct uns_err *err);

/* The component that the checkpoint's model is, or NULL. */
const struct uns_component *uns_pipeline_of_model(const struct uns_pipeline *pipeline, int model);

/* The files in a component's directory that are shown beside trained weights, in place of the pipeline's own. */
bool uns_pipeline_keeps(const char *name);

#endif
