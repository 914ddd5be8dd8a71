/* Which component of a pipeline of diffusers each model of a checkpoint is. */
#ifndef UNS_FACTS_PIPELINES_H
#define UNS_FACTS_PIPELINES_H

#include "io/seen.h"
#include "model/catalog.h"
#include "names/pipeline.h"

struct pipeline_input {
	const struct uns_root *root;
	const char *path; /* of the pipeline's directory, below root */
	const struct uns_catalog *cat;
	struct uns_arena *arena; /* for what is found */
	const char
		*given; /* the fact "components": "unet,text_encoder", the first model's first; "-" = none. Or NULL */
};

/* Reads model_index.json. A model is a component if exactly the names and shapes of the component's safetensors files
 * are those of the model, and of no other; or if the fact names it, and its files, if they are there, agree. If neither
 * decides, that is -ENOTSUP with the reason. */
int pipeline_find(const struct pipeline_input *in, struct uns_pipeline *out, struct uns_err *err);

#endif
