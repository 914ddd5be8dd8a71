/* Relative paths as the mount uses them: components joined by '/', no leading or trailing slash,
 * "" = the root. Pure text: nothing here touches a file system. */
#ifndef UNS_BASE_PATH_H
#define UNS_BASE_PATH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"

/* "a" + "b/c" -> "a/b/c"; either side may be "". NULL if memory is out, also if either side is NULL because of it. */
char *uns_path_join(struct uns_arena *arena, const char *dir, const char *name);

/* `path`, seen from directory `dir`, without "." and "..". NULL when it is absolute, leads out of
 * the root, or memory is out. */
char *uns_path_resolve(struct uns_arena *arena, const char *dir, const char *path);

/* The last component (borrowed), and everything before it. */
const char *uns_path_name(const char *path);
char *uns_path_parent(struct uns_arena *arena, const char *path);

/* `path` is `dir` or below it. */
bool uns_path_within(const char *path, const char *dir);

bool uns_str_ends(const char *s, const char *suffix);
bool uns_str_starts(const char *s, const char *prefix);

/* "x9" before "x10": how people number ranks and checkpoints. Total order; in a sorted list, what is below one
 * directory is in one place. */
int uns_str_natural(const char *a, const char *b);

/* The path of `rel` below the absolute directory `root`, to be pasted into a shell. In the arena; NULL = out of memory,
 * or the path has a quote in it. */
const char *uns_path_for_shell(struct uns_arena *arena, const char *root, const char *rel);

/* Shell-style match with '*' and '?' only. */
bool uns_str_glob(const char *pattern, const char *s);

/* One of the names, whose list ends with NULL; `names` may be NULL. */
bool uns_str_in(const char *s, const char *const *names);

/* A canonical decimal ("0", "17", never "007" or "+1") as a whole string, or after a prefix and
 * before a suffix: uns_str_number("checkpoint-12", "checkpoint-", "", &n). */
bool uns_str_number(const char *s, const char *prefix, const char *suffix, unsigned long long *out);

#endif
