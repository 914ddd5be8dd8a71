/* Looking facts up. */
#include "model/training.h"

#include <string.h>

const struct uns_fact *uns_training_find(const struct uns_training *t, const char *key)
{
	size_t i;

	for (i = 0; t && i < t->n; i++)
		if (strcmp(t->v[i].key, key) == 0)
			return &t->v[i];
	return NULL;
}
