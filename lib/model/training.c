/* Looking facts up. */
#include "model/training.h"

#include <stdlib.h>
#include <string.h>

const struct uns_fact *uns_training_find(const struct uns_training *t, const char *key)
{
	size_t i;

	for (i = 0; t && i < t->n; i++)
		if (strcmp(t->v[i].key, key) == 0)
			return &t->v[i];
	return NULL;
}

int64_t uns_training_step(const struct uns_training *t, int64_t otherwise)
{
	const struct uns_fact *fact = uns_training_find(t, "global_step");

	return fact ? strtoll(fact->json, NULL, 10) : otherwise;
}
