/* `unshard show --html`. */
#ifndef TOOLS_SHOW_PAGE_H
#define TOOLS_SHOW_PAGE_H

#include "arguments.h"

/* Write the page of the checkpoint or run at `path`, absolute, to the file that a->html names. An exit status:
 * EXIT_PROBLEM also where a checkpoint of a run is not in order. */
int show_page(struct arguments *a, const char *path);

#endif
