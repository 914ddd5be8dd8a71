/* A shared library that is loaded when it is first needed, so that one binary runs with it and without it. */
#ifndef UNS_BASE_LATE_LIBRARY_H
#define UNS_BASE_LATE_LIBRARY_H

#include <stddef.h>

struct uns_late_function {
	const char *name;
	size_t at; /* of the pointer to it, in the caller's struct */
};

/* The first of these n names that the process has loaded (torch's libcudart, for example), else the first that the
 * loader finds; NULL without one. It stays loaded: its threads and handlers at exit outlive a dlclose. *name is set to
 * its name. */
void *uns_late_library(const char *const *names, size_t n, const char **name);

/* Puts the library's functions into `pointers`. NULL, or the name of the first that it does not have. */
const char *uns_late_functions(void *library, const struct uns_late_function *functions, size_t n, void *pointers);

#endif
