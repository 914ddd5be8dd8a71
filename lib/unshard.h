/* unshard: sharded training checkpoints as the directories that frameworks load.
 *
 * This is the only installed header. A session (struct unshard) shows one SOURCE directory as the
 * tree that a mount shows: first component a view ("weights"), then SOURCE's own paths, where every
 * checkpoint directory is replaced by what the view makes of it. All paths given to these functions
 * are relative to that tree's root, components joined by '/', "" = the root.
 *
 * Errors: every function that can fail returns a negative errno and, where `err` is not NULL, one
 * sentence for people. Codes: -ENOENT, -ENOTDIR, -EISDIR, -EINVAL as usual; -EBADMSG damaged,
 * -ENOTSUP valid but unknown, -ENODATA incomplete checkpoint, -ESTALE source changed, -ENOMEM, -EIO.
 *
 * Threads: any function may be called by any number of threads at once on one session, except
 * unshard_open and unshard_close. No function writes to SOURCE.
 */
#ifndef UNSHARD_H
#define UNSHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UNSHARD_API __attribute__((visibility("default")))

typedef struct unshard unshard;
typedef struct unshard_file unshard_file;

struct unshard_error {
	int code; /* 0 = nothing failed */
	char text[512];
};

/* Zero it, set what you need; every zero means the documented default. Strings are borrowed for the
 * duration of unshard_open only. */
struct unshard_options {
	const char *view;              /* show this one view at the root instead of all */
	/* Where the tree will be mounted: named in the lines to write, left out should it lie in SOURCE. */
	const char *mountpoint;
	const char *const *weight_root; /* keys to take weights from instead of "model", "state_dict" */
	size_t n_weight_root;
	/* "DIR" or "RUN=DIR": where config and tokenizer are borrowed from (RUN below SOURCE). */
	const char *const *model;
	size_t n_model;
	const char *const *follow; /* directories outside SOURCE that links may lead into */
	size_t n_follow;
	uint64_t max_shard_size_bytes; /* of weights files; default 50 GB (50e9), as save_pretrained's */
	uint64_t mem_bytes;            /* snapshots and decoded pieces in memory; default 64 MiB */
	const char *cache_dir;         /* decoded pieces spill here, unlinked; default $TMPDIR, /tmp */
	uint64_t cache_size_bytes;     /* at most this much spilled; default 16 GiB */
	unsigned settle_seconds;       /* 0 = default 60; UINT_MAX = 0 s: never wait */
	/* The metadata store's file; NULL = $XDG_STATE_HOME/unshard/store.db, else
	 * ~/.local/state/unshard/store.db; "none" = no store. Opened when first needed. */
	const char *store;
	/* "KEY=JSON": facts of the training for every checkpoint whose trainer_state.json is missing or
	 * broken ("train_batch_size=4"). */
	const char *const *fact;
	size_t n_fact;
	bool hide_rng;  /* no file of random states in any view */
	bool keep_rng;  /* show them even where they are those of another number of ranks */
	bool crc_exact; /* find out every CRC of a torch file when it is opened */
	const char *strip;             /* left out in front of weights' names ("model.") */
	/* "fsdp-units": name the states of FSDP1's flat units (veRL) by torch's order of traversal, where
	 * one set of wrapped modules alone fits every rank's sizes. A guess: sizes cannot tell parameters of
	 * equal shape apart. NULL = assume nothing. */
	const char *assume;
	/* Give memory back to the system (malloc_trim(3), for the whole process) each time a checkpoint was
	 * opened: for a program that lives long and does little else. */
	bool trim_memory;
	unsigned delay_read_us;        /* for tests and benchmarks: added to every read of SOURCE */
	/* Log lines (NULL = dropped). level: 0 error, 1 warning, 2 information, 3 debug. */
	void (*log)(void *ctx, int level, const char *line);
	void *log_ctx;
	int log_level;
	unsigned char reserved[64];
};

/* Opens SOURCE's descriptor and reads nothing else: O(1). A mount placed over or inside SOURCE
 * afterwards is never seen by the session. Starts no thread (a caller may fork after it, before the
 * first other call). Changes nothing that belongs to the process: of source files, as many are kept open as
 * the soft RLIMIT_NOFILE leaves room for by now, so that who wants more raises it before. */
UNSHARD_API int unshard_open(const char *source, const struct unshard_options *options,
			     unshard **out, struct unshard_error *err);
UNSHARD_API void unshard_close(unshard *u); /* no file may be open; NULL is allowed */

enum unshard_kind { UNSHARD_FILE, UNSHARD_DIR, UNSHARD_LINK };

struct unshard_stat {
	enum unshard_kind kind;
	uint32_t mode; /* permission bits: what all sources allow, without write bits */
	uint32_t uid, gid;
	uint32_t nlink;
	uint64_t size_bytes; /* exact, before any byte is read */
	int64_t mtime_ns;    /* newest of the sources */
	uint64_t ino; /* hash of view, path and generation: equal across remounts and hosts while sources
	               * stay, new when they change */
	/* True below a checkpoint: the answer holds for as long as the directory's own ino does, so it
	 * may be cached for long. Otherwise it may change within seconds. */
	bool stable;
	bool live; /* made anew at each open (.unshard/stats.json): neither cached nor of fixed size */
};

UNSHARD_API int unshard_stat(unshard *u, const char *path, struct unshard_stat *out,
			     struct unshard_error *err);
/* The link's target, malloc'd. */
UNSHARD_API int unshard_readlink(unshard *u, const char *path, char **target,
				 struct unshard_error *err);

/* -- nodes: names of the tree as handles --
 *
 * A lookup is one step from a directory's node: where the directory belongs to a checkpoint that was
 * looked at within the last second, it makes no system call. A node stands for what was looked up, and
 * holds its names only, no memory of the checkpoint: when its source changes it fails with -ESTALE from
 * then on (the root's never does), and is to be looked up again. -ENOENT: it has gone. Give every node
 * back before unshard_close. */
typedef struct unshard_node unshard_node;

UNSHARD_API int unshard_root(unshard *u, unshard_node **out, struct unshard_error *err);
/* name: one component. st (may be NULL) receives what unshard_node_stat would say. */
UNSHARD_API int unshard_lookup(unshard_node *dir, const char *name, unshard_node **out,
			       struct unshard_stat *st, struct unshard_error *err);
UNSHARD_API unshard_node *unshard_node_ref(unshard_node *node);
UNSHARD_API void unshard_node_unref(unshard_node *node); /* NULL is allowed */
/* Its path in the tree; belongs to the node. */
UNSHARD_API const char *unshard_node_path(const unshard_node *node);
UNSHARD_API int unshard_node_stat(const unshard_node *node, struct unshard_stat *out,
				  struct unshard_error *err);
UNSHARD_API int unshard_node_readlink(const unshard_node *node, char **target,
				      struct unshard_error *err);

struct unshard_dirent {
	const char *name;
	struct unshard_stat stat;
};
struct unshard_listing {
	struct unshard_dirent *v; /* natural order of names */
	size_t n;
};
/* Unlisted names (".unshard", parametrised views) do not appear. Free with unshard_listing_free. */
UNSHARD_API int unshard_list(unshard *u, const char *path, struct unshard_listing **out,
			     struct unshard_error *err);
UNSHARD_API void unshard_listing_free(struct unshard_listing *listing);
/* The same of a directory's node; one that changed since it was looked up is listed as it is now. */
UNSHARD_API int unshard_node_list(const unshard_node *node, struct unshard_listing **out,
				  struct unshard_error *err);
/* The node of v[i], as it was when it was listed: looks at nothing. */
UNSHARD_API int unshard_listing_node(const struct unshard_listing *listing, size_t i,
				     unshard_node **out, struct unshard_error *err);

/* Pins the snapshot the file belongs to: reads go on giving the bytes that unshard_stat described, or
 * fail with -ESTALE. `st` (may be NULL) receives what was opened. Reads no tensor data. */
UNSHARD_API int unshard_file_open(unshard *u, const char *path, unshard_file **out,
				  struct unshard_stat *st, struct unshard_error *err);
/* The same for one who may change their mind: with crc_exact the first open of a file may read all of
 * it. stop(ctx) is asked often, from several threads at once; true = give up with -EINTR. */
UNSHARD_API int unshard_file_open_unless(unshard *u, const char *path, bool (*stop)(void *ctx),
					 void *ctx, unshard_file **out, struct unshard_stat *st,
					 struct unshard_error *err);
UNSHARD_API int unshard_node_open(const unshard_node *node, bool (*stop)(void *ctx), void *ctx,
				  unshard_file **out, struct unshard_stat *st,
				  struct unshard_error *err);
UNSHARD_API void unshard_file_close(unshard_file *file);

/* Read up to len bytes at byte offset off. Returns bytes copied (short only at end of file, 0 behind
 * it) or a negative errno, in which case nothing of buf may be used. Any number of threads may read
 * one file at once. Cost: O(log segments) plus the I/O. */
UNSHARD_API ssize_t unshard_pread(unshard_file *file, void *buf, size_t len, uint64_t off,
				  struct unshard_error *err);

/* -- what is there -- */

struct unshard_checkpoint {
	const char *path;   /* below SOURCE */
	const char *format; /* "hf_fsdp"; NULL = a directory that cannot be read: it is passed over */
	int64_t step, world_size; /* -1 = not known */
	uint64_t size_bytes;      /* of the source files */
	const char *state;        /* "ok", "saving", "damaged"; "unreadable": just now, as `problem` says */
	const char *problem;      /* the first problem's sentence, or NULL */
};

/* Visit every checkpoint below SOURCE in natural order. `progress` (may be NULL) is called as
 * directories are scanned. A visitor that returns non-zero ends the walk with that value. */
UNSHARD_API int unshard_scan(unshard *u,
			     int (*visit)(void *ctx, const struct unshard_checkpoint *ckpt),
			     void (*progress)(void *ctx, size_t directories, size_t checkpoints),
			     void *ctx, struct unshard_error *err);

enum unshard_what {
	UNSHARD_INFO, /* without tensors */
	UNSHARD_TENSORS,
	UNSHARD_PROVENANCE,
};

/* One checkpoint as a JSON text (malloc'd): facts, views (which it has, the line to write, and why
 * not the others), tensors with pieces, problems. `checkpoint` is a path below SOURCE. The same texts as
 * the mount's CHECKPOINT/.unshard/{info,tensors,provenance}.json. mount_hint: the path to put into the lines
 * to write. */
UNSHARD_API int unshard_describe(unshard *u, const char *checkpoint, enum unshard_what what,
				 const char *mount_hint, char **json, struct unshard_error *err);

enum unshard_severity {
	UNSHARD_NOTE,     /* worth knowing */
	UNSHARD_PROBLEM,  /* something is lost, fails or goes on wrongly until it is dealt with */
	UNSHARD_UNJUDGED, /* a rule that needs the version of a package */
};

/* Something that is wrong, or worth knowing. Strings live until the visitor returns; what is not known of it,
 * or does not apply, is NULL. Programs go by `id` and `check`, which are stable; sentences are for people. */
struct unshard_finding {
	const char *path;  /* of a checkpoint: below SOURCE; of a config: as it was given */
	const char *check; /* which check found it: "damaged", "trainer_state" */
	enum unshard_severity severity;
	const char *text; /* one sentence: what is wrong, and what to do */

	const char *id;    /* what exactly: "shard_missing" */
	const char *scope; /* what it keeps from being served: "weights", "optimizer", "all", "sharded" (the
	                    * form that it was saved in), "note" = nothing */
	int code;          /* -ENODATA incomplete, -EBADMSG damaged, -ENOTSUP unknown; 0 for a note */
	const char *view;  /* of which one view it is known */
	const char *file;  /* that it is about, below SOURCE; may be a directory */
	int64_t rank;      /* -1 = not known, or not about one */
	const char *tensor;
	const char *expected, *found;
	const char *advice; /* what to do: in `text` too */
};

typedef int unshard_check_visit(void *ctx, const struct unshard_finding *finding);

/* Everything known to be wrong with one checkpoint, and notes. *n (may be NULL): how many of them keep
 * something from being served. A visitor (may be NULL) that returns non-zero ends it with that value. */
UNSHARD_API int unshard_problems(unshard *u, const char *checkpoint, unshard_check_visit *visit,
				 void *ctx, size_t *n, struct unshard_error *err);

/* Find out, ahead of time, every CRC in the torch files of all views of a checkpoint, and keep them in
 * the store: mounts with crc_exact then open them at once. Reads what is not known yet. progress (may
 * be NULL) is called often, from one thread at a time; true = give up with -EINTR: what was found is
 * kept. -ENOENT when there is no store. */
UNSHARD_API int unshard_warm(unshard *u, const char *checkpoint,
			     bool (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes),
			     void *ctx, struct unshard_error *err);

/* -- what is known about a training, and kept (the metadata store) --
 *
 * A fact belongs to a checkpoint, or to a directory above it and then to all checkpoints in there; of
 * equal keys the nearest counts. It shows in a mount within seconds. Keys are TrainerState's and
 * TrainingArguments' names, "model" (the absolute path of the directory that config and tokenizer are
 * borrowed from), or anything made of a-z, 0-9, '_', '.' and '-'. A change that was acknowledged (0
 * returned) survives a crash. `path` is below SOURCE and need not exist. -ENOENT when there is no
 * store; else errors name the store's file and what to do. */
struct unshard_fact {
	const char *subject; /* the absolute path it was set for */
	const char *key;
	const char *json;    /* the value */
	const char *origin;  /* "set by the user", "imported from FILE" */
	int64_t time_s;      /* when, Unix */
};

/* Facts that hold for `path`, sorted by subject and key. A visitor that returns non-zero ends it with
 * that value. */
UNSHARD_API int unshard_meta_list(unshard *u, const char *path,
				  int (*visit)(void *ctx, const struct unshard_fact *fact), void *ctx,
				  struct unshard_error *err);
/* value: JSON, or a bare word, which is taken as a string. origin NULL = "set by the user". */
UNSHARD_API int unshard_meta_set(unshard *u, const char *path, const char *key, const char *value,
				 const char *origin, struct unshard_error *err);
/* -ENOENT when it is not set for `path` itself. */
UNSHARD_API int unshard_meta_unset(unshard *u, const char *path, const char *key,
				   struct unshard_error *err);
/* Facts out of a trainer's own file: trainer_state.json, training_args.json, training_args.bin,
 * scheduler.pt (a path of the machine, not below SOURCE). All or none; *n_facts may be NULL. */
UNSHARD_API int unshard_meta_import_file(unshard *u, const char *path, const char *file,
					 size_t *n_facts, struct unshard_error *err);
/* All facts of the store as JSON (malloc'd), and back: what is there is kept, equal keys are
 * replaced. */
UNSHARD_API int unshard_meta_export(unshard *u, char **json, struct unshard_error *err);
UNSHARD_API int unshard_meta_import(unshard *u, const char *json, size_t *n_facts,
				    struct unshard_error *err);
/* Forget what can be found out again. */
UNSHARD_API int unshard_meta_clear_memos(unshard *u, struct unshard_error *err);

/* -- checks -- */

struct unshard_check_counts {
	size_t checkpoints, problems, notes, unjudged;
	uint64_t read_bytes; /* by unshard_check_deep */
};

/* Everything known to be wrong with the checkpoint at `path` below SOURCE, or with every checkpoint
 * below it: what unshard_problems says, what a trainer that resumes would miss, and directories that
 * are named as checkpoints and hold none. Reads no tensor data. `progress` (may be NULL) as for
 * unshard_scan. A visitor that returns non-zero ends the walk with that value. */
UNSHARD_API int unshard_check(unshard *u, const char *path, unshard_check_visit *visit,
			      void (*progress)(void *ctx, size_t directories, size_t checkpoints),
			      void *ctx, struct unshard_check_counts *counts,
			      struct unshard_error *err);

/* The same, and everything that is told by the bytes of checkpoints whose save has ended: records of
 * torch files and of DCP's items whose CRC is not the recorded one, NaN and infinity in weights and
 * optimizer states, weights that are not the rounded fp32 copies of their optimizer. Reads all of every
 * checkpoint, in parallel, with at most half a MiB a thread beside what the options allow for decoded
 * pieces. `reading` (may be NULL) is called often, from one thread at a time, with numbers of the
 * checkpoint being read; true = give up with -EINTR. */
UNSHARD_API int unshard_check_deep(unshard *u, const char *path, unshard_check_visit *visit,
				   void (*progress)(void *ctx, size_t directories,
						    size_t checkpoints),
				   bool (*reading)(void *ctx, uint64_t done_bytes,
						   uint64_t total_bytes),
				   void *ctx, struct unshard_check_counts *counts,
				   struct unshard_error *err);

/* Something that a repaired copy has otherwise than its source. */
struct unshard_change {
	const char *path; /* below SOURCE */
	const char *kind; /* stable: "dtype", "stale", "tracker", "left_out", "unreadable" */
	const char *text; /* what became of it, and why */
};

/* A sound copy of the checkpoint or run at `path` below SOURCE, as the new directory `out`, where one
 * can be derived: types in which ranks differ become that of most elements; per-rank files of a world
 * size that is not the current one are left out; a tracker that is missing, broken or names no sound
 * checkpoint is made again out of the sound ones, and the others are then left out. All else is copied
 * byte for byte, by reflink where the file system can.
 * A directory that cannot be read (another user's, or EIO) is left out, and so is a checkpoint that has one:
 * visit receives it as "unreadable". Where nothing else would change, nothing is written.
 * `out` must not exist or be an empty directory, and does not lie in `path`. It appears whole or not at
 * all: written beside, synced, checked as any other checkpoint (`deep`: as by unshard_check_deep),
 * renamed. visit (may be NULL) receives what differs, once that is done. writing (may be NULL) is
 * called often; true = give up with -EINTR.
 * Returns how many directories were "unreadable". `out` was made if visit received a change
 * of another kind; if not, all is sound that could be read, and there is no `out`.
 * -ENODATA: no sound copy can be derived. -EBADMSG: the copy was not sound either. -EEXIST, -EINVAL: not a
 * place for it. */
UNSHARD_API int unshard_repair(unshard *u, const char *path, const char *out, bool deep,
			       int (*visit)(void *ctx, const struct unshard_change *change),
			       bool (*writing)(void *ctx, uint64_t done_bytes,
					       uint64_t total_bytes),
			       void *ctx, struct unshard_error *err);

/* What is known to go wrong with a training that these config files together describe
 * (TrainingArguments, Accelerate, DeepSpeed, LightningCLI; JSON or YAML), before it starts. Nothing is
 * executed or written. versions: "transformers=4.40.2,torch=2.2.2", NULL = none known: rules that need
 * one are then told as UNSHARD_UNJUDGED. kinds[i] (may be NULL) receives what file i was taken for. */
UNSHARD_API int unshard_check_config(const char *const *files, size_t n, const char *versions,
				     unshard_check_visit *visit, void *ctx, const char **kinds,
				     struct unshard_check_counts *counts,
				     struct unshard_error *err);

UNSHARD_API const char *unshard_version(void);

#ifdef __cplusplus
}
#endif
#endif
