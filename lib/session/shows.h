/* One view of one checkpoint. */
#ifndef UNS_SESSION_SHOWS_H
#define UNS_SESSION_SHOWS_H

#include "session/session.h"

/* In the tree of a view that cannot serve a checkpoint: why not. */
#define SHOW_PROBLEM_FILE "UNSHARD_PROBLEM.txt"

enum show_state { SHOW_OK, SHOW_SAVING, SHOW_DAMAGED, SHOW_NONE };

const char *show_state_text(enum show_state state);
/* Whether and how the view shows this checkpoint. `why` receives the sentence unless SHOW_OK. */
int show_state_of(struct unshard *u, struct dir_record *record, const struct uns_view *view, uint64_t parameter,
		  enum show_state *out, struct uns_err *why);
/* For check and ls: makes the view's notes as well, because these may find files that do not fit together. *noted:
 * whether that was done before and nothing was found. The notes are the same for all parameters of the view. */
int show_state_told(struct unshard *u, struct dir_record *record, struct snapshot *snap, const struct uns_view *view,
		    uint64_t parameter, bool *noted, enum show_state *out, struct uns_err *why);
/* Finds out snap->steps: whether all records of the training's step agree (facts/steps.h). Views with an optimizer do
 * not show a checkpoint whose records do not. */
int show_steps(struct unshard *u, struct dir_record *record, struct snapshot *snap, struct uns_err *err);
/* That its save may still be going on, as a value; file: what is missing so far, NULL = nothing that is known. */
struct uns_finding show_saving(const struct unshard *u, const struct dir_record *record, const char *file);
/* The caller gets what is known about it: the log does not have it as well. */
void show_handed_over(struct unshard *u, struct dir_record *record);
/* The view's tree; belongs to the snapshot. A damaged checkpoint's tree is its UNSHARD_PROBLEM.txt. One
 * that exists is found without waiting for another that is being made. */
int show_tree(struct unshard *u, struct dir_record *record, struct snapshot *snap, const struct uns_view *view,
	      uint64_t parameter, const struct shown **out, struct uns_err *err);
/* What the tree's files are called, how large they are, and so on; *out has a reference. Opens the checkpoint only if
 * that is not known. Never waits for another view. */
int show_contents(struct unshard *u, struct dir_record *record, const struct uns_view *view, uint64_t parameter,
		  struct contents **out, struct uns_err *err);
/* To be called when a checkpoint was asked for in a view. If it had to be opened again because its snapshot was
 * evicted, there are more checkpoints than memory is for, and a walk through all views would open it for each of them.
 * So this finds out at once what all listed views show of it, as far as there is room for contents. */
void show_contents_ahead(struct unshard *u, struct dir_record *record);
/* The same of a view that can show the checkpoint. Else fails with why it cannot: -ENOTSUP, -ENODATA,
 * -EBADMSG. */
int show_served(struct unshard *u, struct dir_record *record, struct snapshot *snap, const struct uns_view *view,
		uint64_t parameter, const struct shown **out, struct uns_err *err);
/* What is known about the training; belongs to the snapshot. Reads small files at the first call. */
int show_training(struct unshard *u, struct dir_record *record, struct snapshot *snap, const struct uns_training **out,
		  struct uns_err *err);
/* What views are made from, as far as it is known with the snapshot. */
struct uns_view_input show_input(const struct unshard *u, const struct snapshot *snap);
/* The same, and what is known about the training. */
int show_input_of_training(struct unshard *u, struct dir_record *record, struct snapshot *snap,
			   struct uns_view_input *out, struct uns_err *err);
/* A view's notes about a checkpoint that it can show, found out without making its tree: into
 * out->note. */
int show_notes(struct unshard *u, struct dir_record *record, struct snapshot *snap, const struct uns_view *view,
	       struct uns_vtree *out, struct uns_err *err);

#endif
