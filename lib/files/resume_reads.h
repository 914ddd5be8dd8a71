/* What each trainer reads when it resumes, and what it does without: one table (resume_reads.c), from which
 * docs/resume.md is generated, and by which `check` and `show` judge a checkpoint. Pure. */
#ifndef UNS_FILES_RESUME_READS_H
#define UNS_FILES_RESUME_READS_H

#include "model/catalog.h"
#include "model/training.h"

/* What a view for Megatron-LM has. */
struct uns_resume_megatron {
	bool optimizer, schedule, iteration, random_states;
};

/* What is known of a checkpoint and of the view that a trainer resumes from. */
struct uns_resume_case {
	const struct uns_catalog *catalog;
	const char *view;                    /* "full-fsdp"; "world" at any number of ranks */
	const struct uns_training *training; /* NULL = nothing is known */
	bool trainer_state_valid;            /* the checkpoint's own file is shown unchanged */
	bool schedule_made;                  /* the view makes the scheduler */
	bool hide_rng, keep_rng;             /* -o rng= */
	bool leave_assumed;                  /* assumed values of trainer_state.json are reported elsewhere */
	bool other_ranks;                    /* view world: N is not the number of ranks that saved */
	bool by_megatron;                    /* Megatron-LM resumes from the view, and reads what `megatron` lists */
	struct uns_resume_megatron megatron;
};

/* Things that a trainer reads and that the view does not have, with one and the same effect. */
struct uns_resume_miss {
	const char *what;   /* "scheduler.pt", "optimizer.pt and scheduler.pt" */
	const char *effect; /* a sentence without its end: "the Trainer fails with FileNotFoundError" */
};

/* One thing that a trainer reads when it resumes. */
struct uns_resume_read {
	const char *trainer; /* "Trainer", "Accelerate", ...; NULL = the table has no row of it for this part */
	const char *part;    /* "weights", "optimizer", "scheduler", "trainer state", "random states", "other" */
	const char *files;   /* as the view names them: "optimizer.pt", "rng_state_RANK.pth"; NULL without a row */
	bool found;
	const char *effect;   /* of its absence, as of a miss; NULL without a row */
	const char *supplied; /* what unshard does about its absence: "-o rng=keep shows them"; NULL = nothing */
};

/* The weights and the optimizer, of which every trainer reads what the view has, and all else that the table has for
 * this trainer and view. What only some runs have is left out if it is absent. In the arena. -ENOMEM. */
int uns_resume_reads(const struct uns_resume_case *c, struct uns_arena *arena, const struct uns_resume_read **v,
		     size_t *n, struct uns_err *err);

/* The misses among n_reads of uns_resume_reads, in the table's order; *n = 0 if the trainer finds all that it reads.
 * Things that only some runs have (a loss scale, custom objects) are never missed, because no file records that the run
 * had them. *known: whether the table has this trainer and view. In the arena. -ENOMEM. */
int uns_resume_misses(const struct uns_resume_case *c, const struct uns_resume_read *reads, size_t n_reads,
		      struct uns_arena *arena, const struct uns_resume_miss **v, size_t *n, bool *known,
		      struct uns_err *err);

#endif
