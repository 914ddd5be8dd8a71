#include "base/late_library.h"

#include <dlfcn.h>

void *uns_late_library(const char *const *names, size_t n, const char **name)
{
	const int flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
	void *library = NULL;
	size_t i;

	for (i = 0; i < n && !library; i++)
		library = dlopen(*name = names[i], flags | RTLD_NOLOAD);
	for (i = 0; i < n && !library; i++)
		library = dlopen(*name = names[i], flags);
	return library;
}

const char *uns_late_functions(void *library, const struct uns_late_function *functions, size_t n, void *pointers)
{
	size_t i;

	for (i = 0; i < n; i++) {
		void **pointer = (void **)((char *)pointers + functions[i].at);

		*pointer = dlsym(library, functions[i].name);
		if (!*pointer)
			return functions[i].name;
	}
	return NULL;
}
