/* The files in which AWS's programs keep settings: ~/.aws/config and ~/.aws/credentials, or what AWS_CONFIG_FILE and
 * AWS_SHARED_CREDENTIALS_FILE name; the section that AWS_PROFILE (or AWS_DEFAULT_PROFILE) names, else "default". */
#ifndef UNS_OBJECT_PROFILE_H
#define UNS_OBJECT_PROFILE_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/span.h"

/* The value of a key in a section; NULL = none, or no memory. The section is "[name]", or "[profile name]" if
 * `with_word` and the name is not "default". Indented lines belong to the key before them: "s3.addressing_style". */
const char *uns_profile_find(struct uns_span file, const char *section, bool with_word, const char *key,
			     struct uns_arena *arena);

/* From the credentials file, else from the config file; NULL = in neither. In the arena. */
const char *uns_profile_value(const char *key, struct uns_arena *arena);

/* The section's name. */
const char *uns_profile_name(void);

/* A whole small file; false = it cannot be read. */
bool uns_profile_read(const char *path, struct uns_arena *arena, struct uns_span *out);

#endif
