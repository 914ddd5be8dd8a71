/* `unshard show --svg`: which rank holds what, as one picture for a document. */
#ifndef TOOLS_MAP_SVG_H
#define TOOLS_MAP_SVG_H

#include "show.h"

/* info, map: JSON of the library (UNSHARD_INFO, UNSHARD_MAP). To `file` as whole_file_write does. An exit status. */
int map_svg_write(const struct shown_at *at, const char *info, const char *map, const char *file);

#endif
