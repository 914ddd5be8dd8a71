/* Numbers, paths and names for people. */
#ifndef TOOLS_TEXT_H
#define TOOLS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "15.2 GB": powers of ten, as sizes of models are given. */
void text_bytes(uint64_t bytes, char out[32]);

/* "1 fact", "3 facts": the word that follows the number. */
static inline const char *plural(size_t n, const char *one, const char *many)
{
	return n == 1 ? one : many;
}

/* Print text that came from SOURCE: none of its control characters may reach the terminal. */
void text_print(const char *s);

/* What `path` below the directory that was given as `source` is called from the user's directory: to be pasted
 * back. On the heap; NULL = out of memory. */
char *path_shown(const char *source, const char *path);
/* "s3://...", or another scheme, which the library refuses: it has no path on this machine. */
bool path_is_url(const char *path);
/* Cuts off the last name, which is returned, and lies in *above. Above a whole bucket, and above "/", there is nothing:
 * then *above is the path, and the name "". */
const char *path_cut(char *path, const char **above);
/* The absolute path without links; of a URL, the URL without a slash at its end. On the heap; NULL = errno is why. */
char *path_real(const char *path);
/* The name of a directory, however it is spelt ("." too). On the heap; NULL = errno is why. */
char *path_name(const char *path);

/* How many letters have to be changed, put in or left out to make b of a; SIZE_MAX for a long b. */
size_t text_distance(const char *a, const char *b);

#endif
