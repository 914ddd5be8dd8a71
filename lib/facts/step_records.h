/* What the files of a checkpoint record of the training's step, in one list whatever trainer wrote them. */
#ifndef UNS_FACTS_STEP_RECORDS_H
#define UNS_FACTS_STEP_RECORDS_H

#include "facts/collect.h"

enum step_counts {
	COUNTS_NAME,      /* nothing: it is what a directory is called */
	COUNTS_TRAINING,  /* the steps of the training */
	COUNTS_UPDATES,   /* those in which its optimizer was to make a step */
	COUNTS_SCHEDULER, /* the steps of a Trainer's learning rate scheduler */
	COUNTS_ROUNDS,    /* the steps of a scheduler that makes one for one or more of the optimizer */
};

struct step_record {
	enum step_counts counts;
	const char *by; /* for messages */
	int64_t step;
};

enum { MAX_STEP_RECORDS = 16 };

struct step_records {
	struct step_record v[MAX_STEP_RECORDS]; /* in the table's order */
	size_t n;
};

/* Reads small files, two or three at most. What is absent or damaged is left out. Reasons of the moment: see
 * collect_is_read. */
void step_records_read(struct collect *c, struct step_records *out);

/* The first that counts this; NULL = there is none. */
const struct step_record *step_record_of(const struct step_records *all, enum step_counts counts);
/* The first that counts this and has that step; NULL = there is none. */
const struct step_record *step_record_find(const struct step_records *all, enum step_counts counts, int64_t step);

#endif
