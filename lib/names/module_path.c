#include "names/module_path.h"

#include <ctype.h>
#include <string.h>

static const char EXPERTS[] = "experts";

/* The end of the component that begins at `s`. */
static const char *component_end(const char *s)
{
	return s + strcspn(s, ".");
}

bool uns_name_is_number(const char *s)
{
	const char *end = component_end(s), *at = s;

	while (at < end && isdigit((unsigned char)*at))
		at++;
	return at == end && at > s;
}

static const char *next_component(const char *s)
{
	const char *end = component_end(s);

	return *end ? end + 1 : NULL;
}

size_t uns_name_layer(const char *name)
{
	const char *s = name;

	while (s && !uns_name_is_number(s))
		s = next_component(s);
	return s ? (size_t)(component_end(s) - name) : 0;
}

const char *uns_name_behind_experts(const char *name)
{
	const char *s = name;

	while (s && ((size_t)(component_end(s) - s) != strlen(EXPERTS) || strncmp(s, EXPERTS, strlen(EXPERTS)) != 0))
		s = next_component(s);
	return s ? next_component(s) : NULL;
}

uint64_t uns_name_experts(const char *name, const uint64_t *shape, uint32_t n_dims)
{
	const char *behind = uns_name_behind_experts(name);

	return behind && !uns_name_is_number(behind) && n_dims == 3 ? shape[0] : 0;
}
