/* unshard: sharded training checkpoints as the directories that frameworks load.
 *
 * This is the only installed header. A session (struct unshard) shows one SOURCE directory as the
 * tree that a mount shows: first component a view ("weights"), then SOURCE's own paths, where every
 * checkpoint directory is replaced by what the view makes of it. All paths given to these functions
 * are relative to that tree's root, components joined by '/', "" = the root.
 *
 * Errors: every function that can fail returns 0 (or a count) or a negative errno and, where `err` is not
 * NULL, one sentence for people. What each code means:
 *
 *   about checkpoints and what is in them
 *     -ENODATA       incomplete: a file, a rank or a fact is missing; unshard_repair: there is nothing to
 *                    repair, or no way to
 *     -EBADMSG       damaged: a file is not what it should be; unshard_repair: nor was the copy sound
 *     -ENOTSUP       valid, and of a kind that unshard cannot read or that this view cannot show
 *     -ESTALE        the source changed since it was looked at or opened: look it up again
 *   about names
 *     -ENOENT        there is no such file, view, tensor or fact; or no metadata store
 *     -ENOTDIR       a file where a directory is needed
 *     -EISDIR        a directory where a file is needed
 *     -ELOOP         a link where a file is needed, or links that lead in circles
 *     -EXDEV         a link that leads out of SOURCE and of the directories that may be followed
 *     -ENAMETOOLONG  a path is longer than the system takes
 *   about the call
 *     -EINVAL        an argument is wrong: an option, a struct's size, a box outside its tensor, the
 *                    length of a buffer
 *     -E2BIG         a struct has a field set that this library does not know: it is older than the program
 *     -EEXIST        unshard_repair, unshard_export: the new directory is there already
 *     -EFBIG         a text is longer than is taken
 *   about this machine
 *     -ENODEV        there is no GPU, or none that can be used: its driver, CUDA's runtime or this library's part
 *                    for it is missing or too old
 *   about this moment: the same call may succeed later, and nothing of it is remembered
 *     -EACCES, -EPERM             it may not be read, or written
 *     -EIO                        the storage, or the metadata store, failed
 *     -EMFILE, -ENFILE            too many files are open
 *     -ENOMEM                     no memory
 *     -ENOSPC, -EDQUOT, -EROFS    where a copy, a spilled piece or a fact would be written
 *     -EBUSY, -EAGAIN             another process is at it: the metadata store, an export
 *
 * Any other code is the system's own. What a callback returns to end a call is returned as it is, and need
 * not be an errno; -EINTR says "given up".
 *
 * Threads: any function may be called by any number of threads at once on one session, except
 * unshard_open and unshard_close. No function writes to SOURCE.
 *
 * The process: nothing that belongs to all of it is changed (limits, signals, locale, directory, umask),
 * with one exception that is off unless asked for (trim_memory). The environment is read for $TMPDIR,
 * $XDG_STATE_HOME and $HOME where an option leaves the choice. Two sessions share nothing, not even a log.
 *
 * Memory: what a function gives to the caller goes back by the function named beside it, or by
 * unshard_free: never by free(), which may be another runtime's.
 *
 * Structs grow at their end, and no function changes its parameters, as long as the library's name
 * (libunshard.so.0) stays. Every struct but unshard_error begins with its `size`.
 *   - Structs of the caller (options, calls, stat, check_counts, exported): the caller sets `size` to their sizeof,
 *     which the macro UNSHARD_..._INIT does: { UNSHARD_OPTIONS_INIT, .view = "full" }. All else is zero
 *     at first.
 *     From a program that was built with an older header comes a shorter struct. The fields that it lacks
 *     have their defaults, or are not filled in.
 *     From a program that was built with a newer header comes a longer one. Where the library reads the
 *     struct, fields that it does not know must be zero (else -E2BIG); where it fills the struct, it sets
 *     them to zero.
 *   - Structs of the library, which a program sees by a pointer: `size` says how much of them there is.
 *     Programs neither make nor copy them.
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

/* Never grows. */
struct unshard_error {
	int code; /* negative errno; 0 = nothing failed */
	char text[512];
};

/* "0.1.0" */
UNSHARD_API const char *unshard_version(void);
/* Give back what a function of the library made for the caller (texts, link targets). NULL is allowed. */
UNSHARD_API void unshard_free(void *memory);

/* -- a session -- */

enum unshard_log_level {
	UNSHARD_LOG_ERROR,
	UNSHARD_LOG_WARNING,
	UNSHARD_LOG_INFO,
	UNSHARD_LOG_DEBUG,
};

#define UNSHARD_OPTIONS_INIT .size = sizeof(struct unshard_options)

/* Every zero means the documented default. Strings are borrowed for the duration of unshard_open only. */
struct unshard_options {
	size_t size;                   /* UNSHARD_OPTIONS_INIT */
	const char *view;              /* show this one view at the root instead of all */
	/* Where the tree will be mounted: named in the lines to write, left out should it lie in SOURCE. */
	const char *mountpoint;
	const char *const *weight_root; /* keys to take weights from instead of "model", "state_dict" */
	size_t n_weight_root;
	/* "DIR" or "RUN=DIR": where config and tokenizer are borrowed from (RUN: a directory below SOURCE). */
	const char *const *model;
	size_t n_model;
	const char *const *follow; /* directories outside SOURCE that links may lead into */
	size_t n_follow;
	uint64_t max_shard_size_bytes; /* of weights files; default 50 GB (50e9), as save_pretrained's */
	uint64_t mem_bytes;            /* snapshots and decoded pieces in memory; default 64 MiB */
	const char *cache_dir;         /* decoded pieces spill here, unlinked; default $TMPDIR, /tmp */
	uint64_t cache_size_bytes;     /* at most this much spilled; default 16 GiB */
	/* The metadata store's file; NULL = $XDG_STATE_HOME/unshard/store.db, else
	 * ~/.local/state/unshard/store.db. Opened when first needed. */
	const char *store;
	/* "KEY=JSON": facts of the training for every checkpoint whose trainer_state.json is missing or
	 * broken ("train_batch_size=4"). */
	const char *const *fact;
	size_t n_fact;
	const char *strip;             /* left out in front of weights' names ("model.") */
	/* Log lines of this session; any thread, several at once. NULL = dropped. */
	void (*log)(void *ctx, int level, const char *line);
	void *log_ctx;
	enum unshard_log_level log_level; /* up to this one */
	/* Hide a checkpoint that may still be written until nothing of it has changed for so long; default 60. */
	unsigned settle_seconds;
	unsigned delay_read_us; /* for tests and benchmarks: added to every read of SOURCE */
	bool no_settling;       /* show at once what may still be written; settle_seconds does not count */
	bool no_store;          /* no metadata store; `store` does not count */
	bool hide_rng;          /* no file of random states in any view */
	bool keep_rng;          /* show them even where they are those of another number of ranks */
	bool crc_exact;         /* find out every CRC of a torch file when it is opened */
	/* Name the states of FSDP1's flat units (veRL) by torch's order of traversal, where one set of wrapped
	 * modules alone fits every rank's sizes. A guess: sizes cannot tell parameters of equal shape apart. */
	bool assume_fsdp_units;
	/* Give memory back to the system (malloc_trim(3), for the whole process) each time a checkpoint was
	 * opened: for a program that lives long and does little else. */
	bool trim_memory;
	bool keep_names; /* weights keep the names that were saved where transformers publishes others */
	bool reserved[4]; /* zero */
};

/* Opens SOURCE's descriptor, and those of the two directories above it, and reads nothing: O(1). Where SOURCE is a
 * checkpoint itself, config, tokenizer and tracker of its run are looked for there; nothing else is. A mount placed over or inside SOURCE
 * afterwards is never seen by the session. Starts no thread (a caller may fork after it, before the
 * first other call). Changes nothing that belongs to the process: of source files, as many are kept open as
 * the soft RLIMIT_NOFILE leaves room for by now, so that who wants more raises it before. options:
 * NULL = all defaults. */
UNSHARD_API int unshard_open(const char *source, const struct unshard_options *options,
			     unshard **out, struct unshard_error *err);
/* No file, node, listing or list of tensors may be left; NULL is allowed.
 *
 * A session belongs to the process that made the first call after unshard_open. A child that is forked later has
 * none of the library's threads: it must make no call, not even this one, on what its parent opened, and may open a
 * session of its own. */
UNSHARD_API void unshard_close(unshard *u);

/* -- what a caller is told while a call goes on -- */

struct unshard_checkpoint;
struct unshard_finding;
struct unshard_change;
struct unshard_fact;

enum unshard_phase {
	UNSHARD_SCANNING, /* directories and checkpoints count */
	UNSHARD_READING,  /* bytes count; for the checkpoint being read */
	UNSHARD_WRITING,  /* bytes count */
};

struct unshard_progress {
	size_t size;
	enum unshard_phase phase;
	size_t directories, checkpoints; /* looked at, found */
	uint64_t done_bytes, total_bytes;
};

#define UNSHARD_CALLS_INIT .size = sizeof(struct unshard_calls)

/* Functions of the caller. Each may be NULL, gets `ctx`, and ends the call by returning anything but 0,
 * which the call then returns. Each function of the library says which of them it calls; where it takes
 * a struct unshard_calls, NULL is none. */
struct unshard_calls {
	size_t size; /* UNSHARD_CALLS_INIT */
	void *ctx;
	/* Called often; from any thread, and by one at a time. */
	int (*progress)(void *ctx, const struct unshard_progress *progress);
	/* In the thread of the call. What they are given lives until they return. */
	int (*checkpoint)(void *ctx, const struct unshard_checkpoint *checkpoint);
	int (*finding)(void *ctx, const struct unshard_finding *finding);
	int (*change)(void *ctx, const struct unshard_change *change);
	int (*fact)(void *ctx, const struct unshard_fact *fact);
};

/* -- the tree -- */

enum unshard_kind { UNSHARD_FILE, UNSHARD_DIR, UNSHARD_LINK };

#define UNSHARD_STAT_INIT .size = sizeof(struct unshard_stat)

struct unshard_stat {
	size_t size; /* UNSHARD_STAT_INIT */
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
	bool reserved[6];
};

UNSHARD_API int unshard_stat(unshard *u, const char *path, struct unshard_stat *out,
			     struct unshard_error *err);
/* The link's target; for unshard_free. */
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
/* target: for unshard_free. */
UNSHARD_API int unshard_node_readlink(const unshard_node *node, char **target,
				      struct unshard_error *err);

/* `stat` stays last, and the struct grows with it. */
struct unshard_dirent {
	const char *name;
	struct unshard_stat stat; /* its size is how much of it there is */
};
/* What is in a directory, in natural order of names: does not change. */
typedef struct unshard_listing unshard_listing;
UNSHARD_API size_t unshard_listing_count(const unshard_listing *listing);
/* Entry i; belongs to the listing. NULL behind the last. */
UNSHARD_API const struct unshard_dirent *unshard_listing_at(const unshard_listing *listing, size_t i);
/* Unlisted names (".unshard", parametrised views) do not appear. Free with unshard_listing_free. */
UNSHARD_API int unshard_list(unshard *u, const char *path, unshard_listing **out,
			     struct unshard_error *err);
UNSHARD_API void unshard_listing_free(unshard_listing *listing);
/* The same of a directory's node; one that changed since it was looked up is listed as it is now. */
UNSHARD_API int unshard_node_list(const unshard_node *node, unshard_listing **out,
				  struct unshard_error *err);
/* The node of entry i, as it was when it was listed: looks at nothing. -EINVAL behind the last. */
UNSHARD_API int unshard_listing_node(const unshard_listing *listing, size_t i,
				     unshard_node **out, struct unshard_error *err);

/* Pins the snapshot the file belongs to: reads go on giving the bytes that unshard_stat described, or
 * fail with -ESTALE. Reads no tensor data, but with crc_exact the first open of a file may read all of it:
 * calls->progress is then told (UNSHARD_READING). `st` (may be NULL) receives what was opened. */
UNSHARD_API int unshard_file_open(unshard *u, const char *path, const struct unshard_calls *calls,
				  unshard_file **out, struct unshard_stat *st,
				  struct unshard_error *err);
UNSHARD_API int unshard_node_open(const unshard_node *node, const struct unshard_calls *calls,
				  unshard_file **out, struct unshard_stat *st,
				  struct unshard_error *err);
UNSHARD_API void unshard_file_close(unshard_file *file); /* NULL is allowed */

/* Read up to len bytes at byte offset off. Returns bytes copied (short only at end of file, 0 behind
 * it) or a negative errno, in which case nothing of buf may be used. Any number of threads may read
 * one file at once. Cost: O(log segments) plus the I/O. */
UNSHARD_API ssize_t unshard_pread(unshard_file *file, void *buf, size_t len, uint64_t off,
				  struct unshard_error *err);

/* -- what is there -- */

enum unshard_state {
	UNSHARD_OK,
	UNSHARD_SAVING,     /* may still be written: hidden */
	UNSHARD_DAMAGED,    /* or incomplete */
	UNSHARD_UNREADABLE, /* just now, as `problem` says */
};

struct unshard_checkpoint {
	size_t size;
	const char *path;   /* below SOURCE */
	const char *format; /* "hf_fsdp"; NULL = a directory that cannot be read: it is passed over */
	int64_t step, world_size; /* -1 = not known */
	uint64_t size_bytes;      /* of the source files */
	enum unshard_state state;
	const char *problem; /* the first problem's sentence, or NULL */
};

/* Visit every checkpoint below SOURCE in natural order: calls->checkpoint, and calls->progress as
 * directories are scanned. */
UNSHARD_API int unshard_scan(unshard *u, const struct unshard_calls *calls,
			     struct unshard_error *err);

enum unshard_what {
	UNSHARD_INFO, /* without tensors */
	UNSHARD_TENSORS,
	UNSHARD_PROVENANCE,
};

/* One checkpoint as a JSON text (for unshard_free): facts, views (which it has, the line to write, and why
 * not the others), tensors with pieces, problems. `checkpoint` is a path below SOURCE. The same texts as
 * the mount's CHECKPOINT/.unshard/{info,tensors,provenance}.json. mount_hint: the path to put into the lines
 * to write. */
UNSHARD_API int unshard_describe(unshard *u, const char *checkpoint, enum unshard_what what,
				 const char *mount_hint, char **json, struct unshard_error *err);

enum unshard_severity {
	UNSHARD_NOTE,     /* worth knowing */
	UNSHARD_PROBLEM,  /* something is lost, fails or continues wrongly until it is dealt with */
	UNSHARD_UNJUDGED, /* a rule that needs the version of a package */
};

/* What a finding keeps from being served. */
enum unshard_scope {
	UNSHARD_SCOPE_NOTHING, /* a note */
	UNSHARD_SCOPE_WEIGHTS,
	UNSHARD_SCOPE_OPTIMIZER,
	UNSHARD_SCOPE_ALL,
	UNSHARD_SCOPE_SHARDED, /* the form that it was saved in */
};

/* Something that is wrong, or worth knowing. What is not known of it, or does not apply, is NULL. Programs
 * go by `id` and `check`, which are stable, and of which there will be more; sentences are for people. */
struct unshard_finding {
	size_t size;
	const char *path;  /* of a checkpoint: below SOURCE; of a config: as it was given */
	const char *check; /* which check found it: "damaged", "trainer_state" */
	enum unshard_severity severity;
	enum unshard_scope scope;
	const char *text; /* one sentence: what is wrong, and what to do */

	const char *id;    /* what exactly: "shard_missing" */
	int code;          /* -ENODATA incomplete, -EBADMSG damaged, -ENOTSUP unknown; 0 for a note */
	const char *view;  /* of which one view it is known */
	const char *file;  /* that it is about, below SOURCE; may be a directory */
	int64_t rank;      /* -1 = not known, or not about one */
	const char *tensor;
	const char *expected, *found;
	const char *advice; /* what to do: in `text` too */
};

/* Everything known to be wrong with one checkpoint, and notes: calls->finding; while its save may still be going on,
 * one note that says so ("still_saving") in place of all else. What is handed over so is not logged as well. *n (may be NULL): how many of
 * them keep something from being served. */
UNSHARD_API int unshard_problems(unshard *u, const char *checkpoint,
				 const struct unshard_calls *calls, size_t *n,
				 struct unshard_error *err);

/* Find out, ahead of time, every CRC in the torch files of all views of a checkpoint, and keep them in
 * the store: mounts with crc_exact then open them at once. Reads what is not known yet. Ended by
 * calls->progress (UNSHARD_READING), it keeps what was found. -ENOENT when there is no store. */
UNSHARD_API int unshard_warm(unshard *u, const char *checkpoint, const struct unshard_calls *calls,
			     struct unshard_error *err);

/* -- tensors -- */

enum { UNSHARD_MAX_DIMS = 8 };

enum unshard_dtype {
	UNSHARD_AS_STORED = -1, /* of unshard_tensor_read: no cast */
	UNSHARD_BOOL,
	UNSHARD_U8,
	UNSHARD_I8,
	UNSHARD_F8_E5M2,
	UNSHARD_F8_E4M3,
	UNSHARD_F8_E8M0,
	UNSHARD_F8_E4M3FNUZ,
	UNSHARD_F8_E5M2FNUZ,
	UNSHARD_I16,
	UNSHARD_U16,
	UNSHARD_F16,
	UNSHARD_BF16,
	UNSHARD_I32,
	UNSHARD_U32,
	UNSHARD_F32,
	UNSHARD_C64,
	UNSHARD_F64,
	UNSHARD_I64,
	UNSHARD_U64,
	UNSHARD_C128,
};

enum unshard_role {
	UNSHARD_WEIGHT, /* buffers that cannot be told apart included */
	UNSHARD_BUFFER,
	UNSHARD_MASTER, /* the optimizer's fp32 copy of a weight */
	UNSHARD_EXP_AVG,
	UNSHARD_EXP_AVG_SQ,
	UNSHARD_STEP,
	UNSHARD_OPTIM_OTHER, /* another state of the optimizer: `state` names it */
	UNSHARD_OTHER,       /* neither model nor optimizer */
};

struct unshard_tensor {
	size_t size;
	const char *name;  /* of the weight; of an optimizer's state: of the parameter that it belongs to */
	const char *key;   /* what the source calls it */
	const char *root;  /* the key of the source's dict that it is in: "model", "optimizer"; "" = none */
	/* Which of the optimizer's states: "exp_avg", "momentum_buffer", "master", "step"; NULL = it is none. */
	const char *state;
	enum unshard_role role;
	enum unshard_dtype dtype;
	uint32_t n_dims;                  /* 0 = a scalar: one element */
	uint64_t shape[UNSHARD_MAX_DIMS]; /* elements */
	uint64_t size_bytes;              /* of all of it in `dtype`, in C order without gaps */
};

/* The tensors of one checkpoint, as they were when this was opened. */
typedef struct unshard_tensors unshard_tensors;

/* view NULL: all tensors that the checkpoint itself holds, in its own order and types, optimizer's states
 * included; those that are damaged or incomplete are in the list, and fail when they are read.
 * view "weights", "weights-bf16", "full", ..: those in the files of weights that the view shows, with the
 * names and types that they have there, in the checkpoint's own order. -ENOTSUP when the view has none, or
 * does not go with this checkpoint; -ENODATA or -EBADMSG when it cannot be shown; -ENOENT when there is no
 * such view, or no checkpoint.
 * Reads metadata, no data (but what decides about tied weights, as for the mount); memory: a few hundred
 * bytes a tensor. Pins the checkpoint as an open file does. */
UNSHARD_API int unshard_tensors_open(unshard *u, const char *checkpoint, const char *view,
				     unshard_tensors **out, struct unshard_error *err);
UNSHARD_API void unshard_tensors_close(unshard_tensors *tensors); /* NULL is allowed */
UNSHARD_API size_t unshard_tensors_count(const unshard_tensors *tensors);
/* Tensor i; belongs to the list. NULL behind the last. */
UNSHARD_API const struct unshard_tensor *unshard_tensors_at(const unshard_tensors *tensors, size_t i);
/* The index of the tensor of this name; state NULL: of the model's, or neither's; "exp_avg": of that state
 * of the optimizer; "master": of the optimizer's fp32 copy; "step". Of several the first. -ENOENT. O(1). */
UNSHARD_API int unshard_tensors_find(const unshard_tensors *tensors, const char *name,
				     const char *state, size_t *i, struct unshard_error *err);
/* Read tensor i, or a box of it, into the caller's buf, in C order without gaps.
 * lo, len: n_dims numbers each, in elements: the box [lo, lo + len) of each dimension; both NULL = all of
 * it. A box may be empty. dtype: UNSHARD_AS_STORED = the tensor's `dtype`; or another type, into which a
 * floating type is rounded as torch's Tensor.to() does (from any to F64, F32, F16, BF16), out of the values
 * that the source holds: none is rounded twice, as by way of a view of another type.
 * buf_bytes: exactly what the box takes in that type.
 * -EINVAL a box that is not inside, another length of buf, no such i; -ENOTSUP a cast that does not exist;
 * -ENODATA, -EBADMSG the tensor is incomplete or damaged; -ESTALE. On error nothing of buf may be used.
 * Any number of threads may read one list at once. Cost: the I/O; for a box also the gaps between its rows
 * where these are short (at most 256 KiB are read and held for rows that lie together). */
UNSHARD_API int unshard_tensor_read(const unshard_tensors *tensors, size_t i, const uint64_t *lo,
				    const uint64_t *len, enum unshard_dtype dtype, void *buf,
				    size_t buf_bytes, struct unshard_error *err);

/* Bytes an element; 0 for a number that is none of the enum's. */
UNSHARD_API size_t unshard_dtype_size(enum unshard_dtype dtype);

/* -- tensors into the memory of a GPU --
 *
 * Shards -> pinned buffers -> device memory that the caller owns: nothing else is put anywhere, and no device memory
 * is taken. Several threads read into the buffers, and cast there; each buffer's copy to the GPU is under way while
 * the next are read. Sources are read by way of the page cache.
 * The CUDA runtime (libcudart.so.12, .13 or .11.0: the one that the process has loaded, else the first that the
 * loader finds) is loaded by the first unshard_device_open. All calls of CUDA are made by threads of the library,
 * so that the caller's threads keep their current device and get no context. */
typedef struct unshard_device unshard_device;
typedef struct unshard_transfer unshard_transfer;

#define UNSHARD_DEVICE_OPTIONS_INIT .size = sizeof(struct unshard_device_options)

/* Every zero means the documented default. */
struct unshard_device_options {
	size_t size;           /* UNSHARD_DEVICE_OPTIONS_INIT */
	uint64_t buffer_bytes; /* of one pinned buffer; default 8 MiB, at least 4096 */
	unsigned n_buffers;    /* default 16 */
	unsigned n_threads;    /* that read at once; default: as many as processors, at most 12 */
};

/* Make ready to read into GPU number `ordinal`, as CUDA counts: takes the pinned buffers, all of them and once.
 * options: NULL = all defaults. No session is needed; one device may read from the tensors of several.
 * -ENODEV: the library was built without CUDA; there is no CUDA runtime, driver or GPU, or not a usable one.
 * -ENOMEM: no pinned memory. -EIO: what else CUDA says. */
UNSHARD_API int unshard_device_open(int ordinal, const struct unshard_device_options *options,
				    unshard_device **out, struct unshard_error *err);
/* Every transfer has been freed; NULL is allowed. */
UNSHARD_API void unshard_device_close(unshard_device *device);

#define UNSHARD_DEVICE_BOX_INIT .size = sizeof(struct unshard_device_box)

/* A tensor, or a box of it, and where it goes to: `i` to `dtype` as for unshard_tensor_read. */
struct unshard_device_box {
	size_t size; /* UNSHARD_DEVICE_BOX_INIT */
	size_t i;
	const uint64_t *lo, *len; /* both NULL = all of it */
	enum unshard_dtype dtype;
	void *to; /* memory of the GPU, the caller's; C order without gaps */
	uint64_t to_bytes;
};

/* Begin to read n boxes (all of one `size`), in their order, and return at once: `boxes`, and the lo and len in it,
 * may go then. The tensors must stay open, and the memory must be the transfer's, until the transfer is freed.
 * stream: the address of the caller's cudaStream_t, on which all copies are queued: behind what is queued on it
 * before. NULL = a stream of the device's own, which waits for no other.
 * Any number of threads may call it at once; transfers that are under way together share the buffers.
 * -EINVAL: as unshard_tensor_read, before anything is read. */
UNSHARD_API int unshard_device_read(unshard_device *device, const unshard_tensors *tensors,
				    const struct unshard_device_box *boxes, size_t n,
				    void *const *stream, unshard_transfer **out,
				    struct unshard_error *err);
/* Wait until everything was read and every copy is queued: what the caller queues on the stream from here on finds
 * the bytes. *event (event may be NULL): a cudaEvent_t behind the last copy, for cudaStreamWaitEvent on another
 * stream, or to be waited for; it lives as long as the transfer. Fails as unshard_tensor_read does, and with -EIO if
 * CUDA does: the memory may then hold anything. */
UNSHARD_API int unshard_transfer_queued(unshard_transfer *transfer, void **event,
					struct unshard_error *err);
/* Wait until the bytes are in the memory of the GPU. Fails as unshard_transfer_queued. */
UNSHARD_API int unshard_transfer_wait(unshard_transfer *transfer, struct unshard_error *err);
/* Waits for what is under way; NULL is allowed. */
UNSHARD_API void unshard_transfer_free(unshard_transfer *transfer);

/* -- what is known about a training, and kept (the metadata store) --
 *
 * A fact belongs to a checkpoint, or to a directory above it and then to all checkpoints in there; of
 * equal keys the nearest counts. It shows in a mount within seconds. Keys are TrainerState's and
 * TrainingArguments' names, "model" (the absolute path of the directory that config and tokenizer are
 * borrowed from), or anything made of a-z, 0-9, '_', '.' and '-'. A change that was acknowledged (0
 * returned) survives a crash. `path` is below SOURCE and need not exist. -ENOENT when there is no
 * store; else errors name the store's file and what to do. */
struct unshard_fact {
	size_t size;
	const char *subject; /* the absolute path it was set for */
	const char *key;
	const char *json;    /* the value */
	const char *origin;  /* "set by the user", "imported from FILE" */
	int64_t time_s;      /* when, Unix */
};

/* Facts that hold for `path`, sorted by subject and key: calls->fact. */
UNSHARD_API int unshard_meta_list(unshard *u, const char *path, const struct unshard_calls *calls,
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
/* All facts of the store as JSON (for unshard_free), and back: what is there is kept, equal keys are
 * replaced. */
UNSHARD_API int unshard_meta_export(unshard *u, char **json, struct unshard_error *err);
UNSHARD_API int unshard_meta_import(unshard *u, const char *json, size_t *n_facts,
				    struct unshard_error *err);
/* Forget what can be found out again. */
UNSHARD_API int unshard_meta_clear_cache(unshard *u, struct unshard_error *err);

/* -- checks -- */

#define UNSHARD_CHECK_COUNTS_INIT .size = sizeof(struct unshard_check_counts)

struct unshard_check_counts {
	size_t size; /* UNSHARD_CHECK_COUNTS_INIT */
	size_t checkpoints, problems, notes, unjudged;
	uint64_t read_bytes; /* for UNSHARD_DEEP */
};

/* Flags of unshard_check and unshard_repair. Others are refused (-EINVAL). */
enum {
	/* Also everything that is told by the bytes of checkpoints whose save has ended: records of torch
	 * files and of DCP's items whose CRC is not the recorded one, NaN and infinity in weights and optimizer
	 * states, weights that are not the rounded fp32 copies of their optimizer. Reads all of every
	 * checkpoint, in parallel, with at most half a MiB a thread beside what the options allow for decoded
	 * pieces. */
	UNSHARD_DEEP = 1,
};

/* Everything known to be wrong with the checkpoint at `path` below SOURCE, or with every checkpoint
 * below it: what unshard_problems says, what a trainer that resumes would miss, and directories that
 * are named as checkpoints and hold none. Reads no tensor data without UNSHARD_DEEP. calls->finding, and
 * calls->progress (UNSHARD_SCANNING; with UNSHARD_DEEP UNSHARD_READING too). counts may be NULL. */
UNSHARD_API int unshard_check(unshard *u, const char *path, unsigned flags,
			      const struct unshard_calls *calls, struct unshard_check_counts *counts,
			      struct unshard_error *err);

enum unshard_change_kind {
	UNSHARD_CHANGE_DTYPE,    /* "dtype": tensors got another type */
	UNSHARD_CHANGE_STALE,    /* "stale": a file of another number of ranks, left out */
	UNSHARD_CHANGE_TRACKER,  /* "tracker": the file that names the last checkpoint was made again */
	UNSHARD_CHANGE_LEFT_OUT, /* "left_out": a checkpoint that is not sound, or that the view cannot show */
	UNSHARD_CHANGE_UNREADABLE, /* "unreadable": a directory that could not be read, left out */
};

/* Something that a repaired copy, or an export, has otherwise than its source. */
struct unshard_change {
	size_t size;
	const char *path; /* below SOURCE */
	enum unshard_change_kind kind;
	const char *text; /* what became of it, and why */
};

/* A sound copy of the checkpoint or run at `path` below SOURCE, as the new directory `out`, where one
 * can be derived: types in which ranks differ become that of most elements; per-rank files of a number of ranks that is not the current one are left out; a tracker that is missing, broken or names no sound
 * checkpoint is made again out of the sound ones, and the others are then left out. All else is copied
 * byte for byte, by reflink where the file system can.
 * A directory that cannot be read (another user's, or EIO) is left out, and so is a checkpoint that has one:
 * calls->change receives it as UNSHARD_CHANGE_UNREADABLE. Where nothing else would change, nothing is written.
 * `out` must not exist or be an empty directory, and does not lie in `path`. It appears whole or not at
 * all: written beside, synced, checked as any other checkpoint (UNSHARD_DEEP: as by unshard_check with
 * that flag), renamed. calls->change receives what differs, once that is done; calls->progress
 * (UNSHARD_WRITING) is called until then.
 * Returns how many directories could not be read, unless calls->change ended it. `out` was made if
 * calls->change received a change of another kind; if not, all is sound that could be read, and there is no
 * `out`.
 * -ENODATA: no sound copy can be derived. -EBADMSG: the copy was not sound either. -EEXIST, -EINVAL: not a
 * place for it. */
UNSHARD_API int unshard_repair(unshard *u, const char *path, const char *out, unsigned flags,
			       const struct unshard_calls *calls, struct unshard_error *err);

/* -- a view as an ordinary directory, without a mount -- */

#define UNSHARD_EXPORTED_INIT .size = sizeof(struct unshard_exported)

struct unshard_exported {
	size_t size; /* UNSHARD_EXPORTED_INIT */
	size_t checkpoints, files;
	uint64_t size_bytes;   /* of all files */
	uint64_t shared_bytes; /* of them: by reflink, not written */
	uint64_t kept_bytes;   /* of them: found there by UNSHARD_EXPORT_RESUME, not written again */
};

/* Flags of unshard_export. Others are refused (-EINVAL). */
enum {
	/* Complete what an earlier export to the same `out` left when it was ended. Every byte that is there is
	 * compared with the view's, and written again where it differs. Where nothing was left, begin. */
	UNSHARD_EXPORT_RESUME = 1,
	/* Read everything back from the disk and compare it with the view before `out` appears. */
	UNSHARD_EXPORT_VERIFY = 2,
	/* Add the file SHA256SUMS with the SHA-256 of each other file, as sha256sum(1) writes and checks it. */
	UNSHARD_EXPORT_CHECKSUMS = 4,
};

/* Write what the tree has at VIEW/`path` as the new directory `out`: a checkpoint, or a directory with
 * checkpoints and what else is there. view NULL: "weights"; in a session that shows one view: that one. Every
 * file holds the bytes of the tree's, with its times and its mode made writable for the owner. A checkpoint that
 * the view shows as one file, and not as a directory too, becomes that file in `out`. Links that stay in what is exported are links again;
 * others become the file that they lead to.
 * `out` must not exist or be an empty directory, and does not lie in `path`. It appears whole or not at all:
 * written as `out`.partial beside it, every file and directory synced, renamed. If the call fails or is
 * ended, out.partial stays, for UNSHARD_EXPORT_RESUME or to be removed. Written by several threads; memory: that
 * of the checkpoint's metadata and a few MiB a thread.
 * A checkpoint below `path` that the view cannot show is left out, and so is a directory that cannot be read:
 * calls->change receives each (UNSHARD_CHANGE_LEFT_OUT, UNSHARD_CHANGE_UNREADABLE) at the end.
 * calls->progress: UNSHARD_WRITING, then UNSHARD_READING for the two other flags. exported may be NULL.
 * Returns how much was left out.
 * -ENODATA, -EBADMSG, -ENOTSUP: the view cannot show the checkpoint, or there is none that it can show.
 * -ENOSPC: said before anything is written, if the file system tells what is free. -EEXIST: there is an `out`,
 * or what an earlier export left. -EBUSY: another export is writing to it. -EINVAL: not a place for it. */
UNSHARD_API int unshard_export(unshard *u, const char *path, const char *view, const char *out,
			       unsigned flags, const struct unshard_calls *calls,
			       struct unshard_exported *exported, struct unshard_error *err);

/* -- configs, before a training -- */

/* What is known to go wrong with a training that these config files together describe
 * (TrainingArguments, Accelerate, DeepSpeed, LightningCLI; JSON or YAML), before it starts:
 * calls->finding. Nothing is executed or written, and no session is needed. versions:
 * "transformers=4.40.2,torch=2.2.2", NULL = none known: rules that need one are then told as
 * UNSHARD_UNJUDGED. kinds[i] (kinds may be NULL) receives what file i was taken for: a text that lives as
 * long as the library. counts may be NULL. */
UNSHARD_API int unshard_check_config(const char *const *files, size_t n, const char *versions,
				     const struct unshard_calls *calls, const char **kinds,
				     struct unshard_check_counts *counts,
				     struct unshard_error *err);

/* -- names of enumerators --
 *
 * Stable: "bfloat16" (torch's), "exp_avg", "damaged", "weights" (a note's scope: "note"), "left_out". They
 * live as long as the library. NULL for a number that is none of the enum's. */
UNSHARD_API const char *unshard_dtype_name(enum unshard_dtype dtype);
UNSHARD_API const char *unshard_role_name(enum unshard_role role);
UNSHARD_API const char *unshard_state_name(enum unshard_state state);
UNSHARD_API const char *unshard_scope_name(enum unshard_scope scope);
UNSHARD_API const char *unshard_change_name(enum unshard_change_kind kind);

#ifdef __cplusplus
}
#endif
#endif
