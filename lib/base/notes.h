/* Sentences that are collected for people, in an arena. */
#ifndef UNS_BASE_NOTES_H
#define UNS_BASE_NOTES_H

#include "base/arena.h"

/* Append one to the array *v of *n; -ENOMEM. */
__attribute__((format(printf, 5, 6))) int uns_note_add(struct uns_arena *arena, const char ***v,
						       size_t *n, size_t *cap, const char *fmt,
						       ...);

#endif
