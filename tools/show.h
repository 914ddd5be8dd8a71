/* The parts of `unshard show`, made from the library's JSON. */
#ifndef TOOLS_SHOW_H
#define TOOLS_SHOW_H

#include <cJSON.h>
#include <stdbool.h>

/* A member that is a text; `otherwise` if it is none. */
const char *show_string(const cJSON *o, const char *key, const char *otherwise);

/* A checkpoint and how it is reached. */
struct shown_at {
	const char *typed; /* its path as the user wrote it */
	const char *real;  /* absolute, without links */
};

/* A view's line to write, with the path of the mount that shows the checkpoint if there is one. On the heap; NULL =
 * out of memory. */
char *show_line(const struct shown_at *at, const char *usage);
/* The lines to write, for the mount that shows the checkpoint if there is one. False = there is no such line. */
bool show_answers(const cJSON *views, const struct shown_at *at);
/* Each view with its line, or why it is not available, and what to know before it is loaded. all: with those that this
 * kind of checkpoint never has. */
void show_views(const cJSON *views, const struct shown_at *at, bool all);

/* Those whose names the pattern fits; -ENOMEM. */
int show_tensors(const cJSON *tensors, const char *glob);
int show_modules(const cJSON *tensors);

#endif
