/* unshard: sharded training checkpoints as the directories that frameworks load.
 *
 * This is the only installed header. A session (struct unshard) shows one SOURCE directory as the
 * tree that a mount shows: the first component of a path is a view ("weights"), the rest is SOURCE's own path.
 * Every checkpoint directory has the files that the view makes of it. All paths given to these functions
 * are relative to that tree's root, components joined by '/', "" = the root.
 *
 * Errors: every function that can fail returns 0 (or a count) or a negative errno and, where `err` is not
 * NULL, one sentence for people. What each code means:
 *
 *   about checkpoints and what is in them
 *     -ENODATA       incomplete: a file, a rank or a fact is missing; unshard_repair: no sound copy can be made
 *     -EBADMSG       damaged: a file is not what it should be; unshard_repair: the copy was not sound either
 *     -ENOTSUP       valid, but of a kind that unshard cannot read, or that this view cannot show
 *     -ESTALE        the source changed since it was looked at or opened: look it up again
 *   about names
 *     -ENOENT        no such file, view, tensor or fact; or no metadata store
 *     -ENOTDIR       a file where a directory is needed
 *     -EISDIR        a directory where a file is needed
 *     -ELOOP         a link where a file is needed, or links that lead in circles
 *     -EXDEV         a link that leads out of SOURCE and of the directories that may be followed
 *     -ENAMETOOLONG  a path is longer than the system takes
 *   about the call
 *     -EINVAL        an argument is wrong: an option, a struct's size, a box outside its tensor, the
 *                    length of a buffer
 *     -E2BIG         the program set a field of a struct that this library is too old to know
 *     -EEXIST        unshard_repair, unshard_export: the new directory exists already
 *     -EFBIG         a text is too long
 *   about this machine
 *     -ENODEV        no usable GPU: the GPU, its driver, the CUDA runtime or this library's support for CUDA is
 *                    missing or too old
 *   about this moment: the same call may succeed later, and the library does not remember the failure
 *     -EACCES, -EPERM             a file may not be read, or written
 *     -EIO                        the storage, or the metadata store, failed
 *     -EMFILE, -ENFILE            too many files are open
 *     -ENOMEM                     no memory
 *     -ENOSPC, -EDQUOT, -EROFS    where a copy, a spilled piece or a fact would be written
 *     -EBUSY, -EAGAIN             another process uses the metadata store, or writes the same export
 *
 * Any other code is the system's own. If a callback ends a call, the call returns the callback's value, which
 * need not be an errno; -EINTR is usual.
 *
 * Threads: any function may be called by any number of threads at once on one session, except
 * unshard_open and unshard_close. No function writes to SOURCE.
 *
 * The process: the library changes nothing that belongs to the whole process (limits, signals, locale, directory,
 * umask), except with the option trim_memory. It reads $TMPDIR, $XDG_STATE_HOME and $HOME if an option does not
 * name the directory. Two sessions share nothing, not even a log.
 *
 * Memory: free what a function gives to the caller with the function named beside it, or with unshard_free.
 * Never use free(), which may be another C runtime's.
 *
 * Structs grow at their end, and no function changes its parameters, as long as the library's name
 * (libunshard.so.0) stays. Every struct but unshard_error begins with its `size`.
 *   - Structs of the caller (options, calls, stat, check_counts, exported): the caller sets `size` to their sizeof,
 *     which the macro UNSHARD_..._INIT does: { UNSHARD_OPTIONS_INIT, .view = "full" }. All else is zero
 *     at first.
 *     A program that was built with an older header passes a shorter struct. The fields that it lacks have their
 *     defaults, or are not filled in.
 *     A program that was built with a newer header passes a longer struct. If the library reads the struct, the
 *     fields that it does not know must be zero (else -E2BIG). If it fills the struct, it sets them to zero.
 *   - Structs of the library, which a program sees by a pointer: `size` is how much of them there is.
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
/* Free what a function of the library made for the caller (texts, link targets). NULL is allowed. */
UNSHARD_API void unshard_free(void *memory);

/* The directory of the local Hugging Face cache, whether it exists or not: $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE,
 * $TRANSFORMERS_CACHE, $HF_HOME/hub, or huggingface/hub below $XDG_CACHE_HOME or ~/.cache. unshard_free() it; NULL =
 * out of memory. */
UNSHARD_API char *unshard_hub_cache(void);

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
	/* Where the tree will be mounted. The lines to write name it; if it lies in SOURCE, the tree leaves it out. */
	const char *mountpoint;
	const char *const *weight_root; /* keys to take weights from instead of "model", "state_dict" */
	size_t n_weight_root;
	/* "DIR" or "RUN=DIR": where config and tokenizer are borrowed from (RUN: a directory below SOURCE). */
	const char *const *model;
	size_t n_model;
	const char *const *follow; /* directories outside SOURCE that links may lead into */
	size_t n_follow;
	uint64_t max_shard_size_bytes; /* of weights files; default 50 GB (50e9), as save_pretrained's */
	uint64_t mem_bytes; /* snapshots and decoded pieces in memory; default 128 MiB; the snapshot that was
			     * used last stays, however large it is */
	const char *cache_dir; /* decoded pieces spill here, unlinked; default $TMPDIR, /tmp */
	uint64_t cache_size_bytes; /* at most this much spilled; default 16 GiB */
	/* The metadata store's file; NULL = $XDG_STATE_HOME/unshard/store.db, else
	 * ~/.local/state/unshard/store.db. Opened when first needed. */
	const char *store;
	/* "KEY=JSON": facts of the training for every checkpoint whose trainer_state.json is missing or
	 * invalid ("train_batch_size=4"). */
	const char *const *fact;
	size_t n_fact;
	const char *strip; /* left out in front of weights' names ("model.") */
	/* Log lines of this session; any thread, several at once. NULL = dropped. */
	void (*log)(void *ctx, int level, const char *line);
	void *log_ctx;
	enum unshard_log_level log_level; /* up to this one */
	/* Hide a checkpoint that may still be written until nothing of it has changed for so long; default 60. */
	unsigned settle_seconds;
	unsigned delay_read_us; /* for tests and benchmarks: added to every read of SOURCE */
	bool no_settling; /* show at once what may still be written; settle_seconds does not count */
	bool no_store; /* no metadata store; `store` does not count */
	bool hide_rng; /* no file of random states in any view */
	bool keep_rng; /* show them even where they are those of another number of ranks */
	bool crc_exact; /* compute every CRC of a torch file when the file is opened */
	/* Name the states of FSDP1's flat units (veRL) by torch's order of traversal, if exactly one set of wrapped
	 * modules fits every rank's sizes. A guess: sizes do not distinguish parameters of equal shape. */
	bool assume_fsdp_units;
	/* Give memory back to the system (malloc_trim(3), for the whole process) when a large checkpoint, or many
	 * small ones, were opened: for a program that lives long and does little else. */
	bool trim_memory;
	bool keep_names; /* weights keep the names that were saved, also if transformers publishes others */
	bool keeps_pages; /* what was read of shards is to stay in the page cache: reads = "auto" does not try "direct"
			   */
	bool reserved[3]; /* zero */
	/* Where seals are kept (unshard_seal): a directory, or the file NAME.sha256 of one; NULL = in the metadata
	 * store. An absolute path. */
	const char *seals;
	const char *
		mean; /* what mean-K is: "uniform", "ema:0.99", a moving mean of that decay, or "wsm"; NULL = uniform */
	/* Which adapters `merged` merges, and by what each one's change is multiplied: "a:1+b:0.5"; NULL = the trained
	 * one. A directory below which PEFT saved an adapter of each of these names is one checkpoint. */
	const char *adapters;
	/* The weights of experts in weights, merged, mean-K and ema: "split" (one tensor for each expert and
	 * projection), "fused" (one for all experts of a layer), or "published", as save_pretrained writes them; NULL =
	 * that. */
	const char *experts;
	/* Directories with memos (unshard_memos_write), which are looked for before a checkpoint's own metadata is
	 * read: absolute paths, separated by ':'. Nothing is written there. NULL = none. */
	const char *memos;
	/* How shards are read for files that are opened (unshard_file_open). "cached": through the page cache, asked
	 * for ahead of a program that reads from front to back. "threads": so too, by 16 threads, for storage that lets
	 * each of them wait. "ordered": each shard from front to back, one read at a time. "direct": past the page
	 * cache (O_DIRECT) what is long and not cached. "auto": the one that the first load of a large file from this
	 * file system finds to be the fastest; the metadata store remembers it. On rclone, which fetches a file as one
	 * stream, that is "ordered" from the beginning. NULL = "auto". */
	const char *reads;
};

/* Opens SOURCE and the two directories above it, and reads nothing: O(1). If SOURCE is a checkpoint itself, the session
 * looks in those two for config, tokenizer and tracker of the run, and for nothing else. The session never sees a
 * mount that is placed over or inside SOURCE afterwards, and leaves out the mounts of unshard that are inside it
 * already. Starts no thread (a caller may fork after it, before the first other call). The session keeps as many source
 * files open as the soft RLIMIT_NOFILE allows at this moment: raise the limit before. options: NULL = all defaults. */
UNSHARD_API int unshard_open(const char *source, const struct unshard_options *options, unshard **out,
			     struct unshard_error *err);
/* For a program that lives long and was idle for a minute: memory of checkpoints that were not used in that time is
 * freed, but for a sixteenth of mem_bytes and the one that was used last. The next call that needs one of them opens it
 * again. May be called at any time. */
UNSHARD_API void unshard_rest(unshard *u);
/* First close every file, node, listing and list of tensors of the session. NULL is allowed.
 *
 * A session belongs to the process that made the first call after unshard_open. A child that is forked later has
 * none of the library's threads: it must make no call, not even this one, on what its parent opened, and may open a
 * session of its own. */
UNSHARD_API void unshard_close(unshard *u);

/* The directories below which a session writes, for programs that give up writing elsewhere; the texts belong to it.
 * NULL = it has no metadata store. The default store's is that above its own, which may be made again. */
UNSHARD_API const char *unshard_store_directory(const unshard *u);
UNSHARD_API const char *unshard_cache_directory(const unshard *u);
/* The same for seals in files (options.seals): NULL = they are in the metadata store. */
UNSHARD_API const char *unshard_seals_directory(const unshard *u);

/* -- callbacks -- */

struct unshard_checkpoint;
struct unshard_finding;
struct unshard_change;
struct unshard_fact;
struct unshard_tensor_diff;
struct unshard_group_diff;
struct unshard_value_diff;
struct unshard_seal;
struct unshard_measure;
struct unshard_memo;

enum unshard_phase {
	UNSHARD_SCANNING, /* directories and checkpoints count */
	UNSHARD_READING, /* bytes count; for the checkpoint being read */
	UNSHARD_WRITING, /* bytes count */
};

struct unshard_progress {
	size_t size;
	enum unshard_phase phase;
	size_t directories, checkpoints; /* looked at, found */
	uint64_t done_bytes, total_bytes;
};

#define UNSHARD_CALLS_INIT .size = sizeof(struct unshard_calls)

/* Functions of the caller. Each may be NULL and gets `ctx`. If one returns anything but 0, the call ends and returns
 * that value. The comment of each function has which of them it calls; a NULL struct unshard_calls means none. */
struct unshard_calls {
	size_t size; /* UNSHARD_CALLS_INIT */
	void *ctx;
	/* Called often; from any thread, and by one at a time. */
	int (*progress)(void *ctx, const struct unshard_progress *progress);
	/* Called in the thread of the call. Their arguments live until they return. */
	int (*checkpoint)(void *ctx, const struct unshard_checkpoint *checkpoint);
	int (*finding)(void *ctx, const struct unshard_finding *finding);
	int (*change)(void *ctx, const struct unshard_change *change);
	int (*fact)(void *ctx, const struct unshard_fact *fact);
	/* Called once by unshard_export and unshard_repair, when the directory that they write is there and before
	 * anything in it is made. From here on the call writes below `directory` and the two directories of
	 * unshard_store_directory, and at last renames `directory` where it is: a program may give up all other
	 * writing. */
	int (*writes)(void *ctx, const char *directory);
	/* unshard_diff's; in the thread of the call, as the five above it. */
	int (*tensor_diff)(void *ctx, const struct unshard_tensor_diff *diff);
	int (*group_diff)(void *ctx, const struct unshard_group_diff *diff);
	int (*value_diff)(void *ctx, const struct unshard_value_diff *diff);
	int (*sealed)(void *ctx, const struct unshard_seal *seal); /* as `checkpoint` */
	int (*measure)(void *ctx, const struct unshard_measure *measure); /* as `checkpoint` */
	int (*memo)(void *ctx, const struct unshard_memo *memo); /* as `checkpoint` */
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
	int64_t mtime_ns; /* newest of the sources */
	uint64_t ino; /* hash of view, path and generation: equal across remounts and hosts while sources
		       * stay, new when they change, and new when a checkpoint that was young has settled */
	/* True below a checkpoint: the answer holds for as long as the directory's own ino does, so it
	 * may be cached for long. Otherwise it may change within seconds. */
	bool stable;
	bool live; /* written again at each open (.unshard/stats.json): neither cached nor of fixed size */
	bool young; /* of a checkpoint that has not settled: the same files have another ino once it has */
	bool reserved[5];
};

UNSHARD_API int unshard_stat(unshard *u, const char *path, struct unshard_stat *out, struct unshard_error *err);
/* The link's target; for unshard_free. */
UNSHARD_API int unshard_readlink(unshard *u, const char *path, char **target, struct unshard_error *err);

/* -- nodes: names of the tree as handles --
 *
 * A lookup is one step from a directory's node. It makes no system call if the directory belongs to a checkpoint
 * that was examined within the last second. A node holds names only, and no memory of the checkpoint. When its
 * source changes, calls with the node fail with -ESTALE (those with the root's never do): look it up again.
 * -ENOENT: it no longer exists. Release every node before unshard_close. */
typedef struct unshard_node unshard_node;

UNSHARD_API int unshard_root(unshard *u, unshard_node **out, struct unshard_error *err);
/* name: one component. st (may be NULL) is filled as by unshard_node_stat. */
UNSHARD_API int unshard_lookup(unshard_node *dir, const char *name, unshard_node **out, struct unshard_stat *st,
			       struct unshard_error *err);
UNSHARD_API unshard_node *unshard_node_ref(unshard_node *node);
UNSHARD_API void unshard_node_unref(unshard_node *node); /* NULL is allowed */
/* Its path in the tree; belongs to the node. */
UNSHARD_API const char *unshard_node_path(const unshard_node *node);
UNSHARD_API int unshard_node_stat(const unshard_node *node, struct unshard_stat *out, struct unshard_error *err);
/* Which file system of SOURCE may be waited for, as a device number: for the node itself (name is NULL), for a name in
 * it, or for all names in it (""). 0 = for none. By what was seen there before: waits for nothing. */
UNSHARD_API uint64_t unshard_node_device(const unshard_node *node, const char *name);
/* target: for unshard_free. */
UNSHARD_API int unshard_node_readlink(const unshard_node *node, char **target, struct unshard_error *err);

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
UNSHARD_API int unshard_list(unshard *u, const char *path, unshard_listing **out, struct unshard_error *err);
UNSHARD_API void unshard_listing_free(unshard_listing *listing);
/* The same for a directory's node. A directory that changed since it was looked up is listed as it is now. */
UNSHARD_API int unshard_node_list(const unshard_node *node, unshard_listing **out, struct unshard_error *err);
/* The node of entry i, as it was when it was listed: makes no system call. -EINVAL behind the last. */
UNSHARD_API int unshard_listing_node(const unshard_listing *listing, size_t i, unshard_node **out,
				     struct unshard_error *err);

/* Keeps the snapshot of the file: all reads return the bytes that unshard_stat described, or fail with -ESTALE.
 * Reads no tensor data, except with crc_exact: the first open of a file may then read all of it, and calls
 * calls->progress (UNSHARD_READING). `st` (may be NULL) is filled as by unshard_stat. */
UNSHARD_API int unshard_file_open(unshard *u, const char *path, const struct unshard_calls *calls, unshard_file **out,
				  struct unshard_stat *st, struct unshard_error *err);
UNSHARD_API int unshard_node_open(const unshard_node *node, const struct unshard_calls *calls, unshard_file **out,
				  struct unshard_stat *st, struct unshard_error *err);
UNSHARD_API void unshard_file_close(unshard_file *file); /* NULL is allowed */

/* Read up to len bytes at byte offset off. Returns bytes copied (short only at end of file, 0 behind
 * it) or a negative errno, in which case nothing of buf may be used. Any number of threads may read
 * one file at once. Cost: O(log segments) plus the I/O. */
UNSHARD_API ssize_t unshard_pread(unshard_file *file, void *buf, size_t len, uint64_t off, struct unshard_error *err);

/* A hint: bytes [off, off+len) were read, and the caller keeps them. The kernel's page cache then need not hold the
 * bytes of SOURCE that they came from; it lets go of them when enough lie in a row, or when the file is closed. Any
 * number of threads. */
UNSHARD_API void unshard_file_kept(unshard_file *file, uint64_t off, size_t len);

/* -- attributes: what is known of one name of the tree, as texts --
 *
 * "view"        the view that shows it ("weights-bf16")
 * "generation"  of the checkpoint, or of the file of SOURCE: 16 hexadecimal digits, others when the source changes
 * "source"      of a file: JSON, {"size_bytes","extents":[{"at","length","from":"file"|"zeros"|"computed",
 *               "file","offset"}]}. The extents follow each other and cover the file; "file" is an absolute path.
 *               Computed bytes (headers, casts) must be read from the file itself. Reads item headers
 * "sha256"      of a file: of its content, in hexadecimal. Reads all of the file, and calls calls->progress
 *               (UNSHARD_READING); nothing is remembered
 *
 * -ENODATA: there is no attribute of this name, or not here (a view's name at the root, a directory's bytes). */
UNSHARD_API int unshard_attribute(unshard *u, const char *path, const char *name, const struct unshard_calls *calls,
				  char **text, struct unshard_error *err);
UNSHARD_API int unshard_node_attribute(const unshard_node *node, const char *name, const struct unshard_calls *calls,
				       char **text, struct unshard_error *err); /* text: for unshard_free */

/* -- checkpoints and their findings -- */

enum unshard_state {
	UNSHARD_OK,
	UNSHARD_SAVING, /* may still be written: hidden */
	UNSHARD_DAMAGED, /* or incomplete */
	UNSHARD_UNREADABLE, /* at this moment; `problem` has the reason */
	UNSHARD_UNSUPPORTED, /* nothing is damaged, but something of it cannot be shown: `problem` is what */
};

struct unshard_checkpoint {
	size_t size;
	const char *path; /* below SOURCE */
	const char *format; /* "hf_fsdp"; NULL = a directory that cannot be read, so that nothing is known of it */
	int64_t step, world_size; /* -1 = not known */
	uint64_t size_bytes; /* of the source files */
	enum unshard_state state;
	const char *problem; /* the first problem's sentence, or NULL */
	const char *problem_id; /* what exactly, as in struct unshard_finding, or NULL */
};

/* Visit every checkpoint below SOURCE in natural order: calls->checkpoint, and calls->progress as
 * directories are scanned. */
UNSHARD_API int unshard_scan(unshard *u, const struct unshard_calls *calls, struct unshard_error *err);

enum unshard_what {
	UNSHARD_INFO, /* without tensors */
	UNSHARD_TENSORS,
	UNSHARD_PROVENANCE,
	UNSHARD_MAP, /* which rank holds which part of which tensor, short */
	UNSHARD_VIEW_MAP, /* which file of the view holds how much of which tensor, under which name, short */
};

/* One checkpoint as a JSON text (for unshard_free): what it is, its views (the line to write, or why the view is
 * not available), tensors with pieces, problems. `checkpoint` is a path below SOURCE. The same texts as
 * the mount's CHECKPOINT/.unshard/{info,tensors,provenance}.json; UNSHARD_MAP: {"files", "layouts": [[[rank, file,
 * first.., length..]..]..], "tensors": [{.., "layout"}]}, where tensors that are cut alike share a layout;
 * UNSHARD_VIEW_MAP, of the session's view ("weights" if it has none): {"files": [{"path", "bytes", "list"}], "lists":
 * [[tensor, bytes, ..]..], "names": [[tensor, n, first, last]..]}, where tensor is an index of UNSHARD_MAP's "tensors",
 * -1 = padding, -2 = one that was made for the view; "names" has the tensors that the view's files of weights hold
 * under n other names. Fails as the view does (-ENOTSUP, -ENODATA, -EBADMSG). mount_hint: the path to put into the
 * lines to write.
 */
UNSHARD_API int unshard_describe(unshard *u, const char *checkpoint, enum unshard_what what, const char *mount_hint,
				 char **json, struct unshard_error *err);

enum unshard_severity {
	UNSHARD_NOTE, /* worth knowing */
	UNSHARD_PROBLEM, /* something is lost, fails or continues wrongly until it is dealt with */
	UNSHARD_UNJUDGED, /* a checkpoint that is still being saved, what cannot be read at this moment, or, of a
			   * configuration, a rule that needs the version of a package */
};

/* What cannot be shown because of a finding. */
enum unshard_scope {
	UNSHARD_SCOPE_NOTHING, /* a note */
	UNSHARD_SCOPE_WEIGHTS,
	UNSHARD_SCOPE_OPTIMIZER,
	UNSHARD_SCOPE_ALL,
	UNSHARD_SCOPE_SHARDED, /* the form that it was saved in */
};

/* Something that is wrong, or worth knowing. A field that does not apply, or is not known, is NULL. Programs should
 * use `id` and `check`, which keep their meaning; there will be more of them. Sentences are for people. */
struct unshard_finding {
	size_t size;
	const char *path; /* of a checkpoint: below SOURCE; of a config: as it was given */
	const char *check; /* which check found it: "damaged", "trainer_state" */
	enum unshard_severity severity;
	enum unshard_scope scope;
	const char *text; /* one sentence: what is wrong, and what to do */

	const char *id; /* what exactly: "shard_missing" */
	int code; /* -ENODATA incomplete, -EBADMSG damaged, -ENOTSUP unknown; 0 for a note; else of this moment */
	const char *view; /* the one view that it concerns */
	const char *file; /* the file or directory that it is about, below SOURCE */
	int64_t rank; /* -1 = not known, or about no single rank */
	const char *tensor;
	const char *expected, *found;
	const char *advice; /* what to do; `text` ends with it */
};

/* Everything known to be wrong with one checkpoint, and notes: calls->finding. While the save may not have ended,
 * one note ("still_saving") and nothing else. These findings are not logged. *n (may be NULL): how many of them
 * are the reason that something cannot be shown. */
UNSHARD_API int unshard_problems(unshard *u, const char *checkpoint, const struct unshard_calls *calls, size_t *n,
				 struct unshard_error *err);

/* Compute, ahead of time, every CRC in the torch files of all views of a checkpoint, and keep the CRCs in the store:
 * mounts with crc_exact then open these files at once. Reads the data whose CRCs are not known yet. If
 * calls->progress (UNSHARD_READING) ends the call, the CRCs found so far are kept. -ENOENT if there is no store. */
UNSHARD_API int unshard_warm(unshard *u, const char *checkpoint, const struct unshard_calls *calls,
			     struct unshard_error *err);

/* -- memos: checkpoints described once, for all machines -- */

enum unshard_memo_state {
	UNSHARD_MEMO_WRITTEN,
	UNSHARD_MEMO_SAVING, /* it changed a moment ago, or its save may still be going on: there is no memo of it yet
			      */
	UNSHARD_MEMO_REFUSED, /* it is damaged, depends on what only this machine has, or could not be read */
};

struct unshard_memo {
	size_t size;
	const char *path; /* the checkpoint's, below SOURCE */
	enum unshard_memo_state state;
	const char *text; /* why, in one sentence; NULL for WRITTEN */
	const char *file; /* the memo's */
	uint64_t size_bytes; /* of the memo */
};

#define UNSHARD_MEMO_COUNTS_INIT .size = sizeof(struct unshard_memo_counts)

struct unshard_memo_counts {
	size_t size; /* UNSHARD_MEMO_COUNTS_INIT */
	size_t checkpoints, written, saving, refused;
	uint64_t size_bytes; /* of the memos written */
};

/* Write a memo of the checkpoint at `path` below SOURCE, or of every checkpoint below it, into `dir`, which is made if
 * it is not there: an absolute path, outside of `path`. A session with options.memos that has `dir` opens such a
 * checkpoint without reading its metadata or the headers of its items, on any machine that sees files of the same
 * names, sizes and mtimes (docs/shared-metadata.md has what is trusted). Reads the metadata and each item's header,
 * and no tensor. Each file is written under another name and renamed. calls->memo receives each checkpoint;
 * calls->writes is called; calls->progress: UNSHARD_SCANNING, and UNSHARD_READING, whose done_bytes counts memos.
 * counts may be NULL. */
UNSHARD_API int unshard_memos_write(unshard *u, const char *path, const char *dir, const struct unshard_calls *calls,
				    struct unshard_memo_counts *counts, struct unshard_error *err);

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
	UNSHARD_WEIGHT, /* a buffer too, if the source does not distinguish it */
	UNSHARD_BUFFER,
	UNSHARD_MASTER, /* the optimizer's fp32 copy of a weight */
	UNSHARD_EXP_AVG,
	UNSHARD_EXP_AVG_SQ,
	UNSHARD_STEP,
	UNSHARD_OPTIM_OTHER, /* another state of the optimizer: `state` names it */
	UNSHARD_OTHER, /* neither model nor optimizer */
};

struct unshard_tensor {
	size_t size;
	const char *name; /* of the weight; of an optimizer's state: of the parameter that it belongs to */
	const char *key; /* what the source calls it */
	const char *root; /* the key of the source's dict that it is in: "model", "optimizer"; "" = none */
	/* Which of the optimizer's states: "exp_avg", "momentum_buffer", "master", "step"; NULL = it is none. */
	const char *state;
	enum unshard_role role;
	enum unshard_dtype dtype;
	uint32_t n_dims; /* 0 = a scalar: one element */
	uint64_t shape[UNSHARD_MAX_DIMS]; /* elements */
	uint64_t size_bytes; /* of all of it in `dtype`, in C order without gaps */
};

/* The tensors of one checkpoint, as they were when the list was opened. */
typedef struct unshard_tensors unshard_tensors;

/* view NULL: all tensors of the checkpoint, with the optimizer's states, in the checkpoint's own order and dtypes.
 * A damaged or incomplete tensor is in the list, and fails when it is read.
 * view "weights", "weights-bf16", "full", ..: the tensors of the view's files of weights, with the names and
 * dtypes that they have there, in the checkpoint's own order. -ENOTSUP if the view has no such files, or is not
 * available for this checkpoint; -ENODATA or -EBADMSG if it cannot be shown; -ENOENT if there is no such view,
 * or no checkpoint.
 * Reads metadata, and data only to compare tied weights, as a mount does. Memory: a few hundred bytes per tensor.
 * Keeps the checkpoint's snapshot, as an open file does. */
UNSHARD_API int unshard_tensors_open(unshard *u, const char *checkpoint, const char *view, unshard_tensors **out,
				     struct unshard_error *err);
UNSHARD_API void unshard_tensors_close(unshard_tensors *tensors); /* NULL is allowed */
UNSHARD_API size_t unshard_tensors_count(const unshard_tensors *tensors);
/* Tensor i; belongs to the list. NULL behind the last. */
UNSHARD_API const struct unshard_tensor *unshard_tensors_at(const unshard_tensors *tensors, size_t i);
/* The index of the tensor of this name. state: NULL = the weight, or a tensor that is no optimizer state; "exp_avg" =
 * that state of the optimizer; "master" = the optimizer's fp32 copy. Of several tensors the first. -ENOENT. O(1). */
UNSHARD_API int unshard_tensors_find(const unshard_tensors *tensors, const char *name, const char *state, size_t *i,
				     struct unshard_error *err);
/* Read tensor i, or a box of it, into the caller's buf, in C order without gaps.
 * lo, len: n_dims numbers each, in elements: the box [lo, lo + len) of each dimension; both NULL = all of
 * it. A box may be empty. dtype: UNSHARD_AS_STORED = the tensor's `dtype`; or F64, F32, F16 or BF16, to which any
 * floating-point dtype is rounded as by torch's Tensor.to(). The rounded values are the source's, also in the list of
 * a view of another dtype: no value is rounded twice.
 * buf_bytes: exactly the size of the box in that dtype.
 * -EINVAL: the box is not inside the tensor, buf_bytes is another size, or there is no i. -ENOTSUP: no such cast.
 * -ENODATA, -EBADMSG: the tensor is incomplete or damaged. -ESTALE. On error nothing of buf may be used.
 * Any number of threads may read one list at once. Cost: the I/O. For a box, short gaps between its rows are read
 * too (at most 256 KiB at once). */
UNSHARD_API int unshard_tensor_read(const unshard_tensors *tensors, size_t i, const uint64_t *lo, const uint64_t *len,
				    enum unshard_dtype dtype, void *buf, size_t buf_bytes, struct unshard_error *err);

/* Bytes per element; 0 for a number that is not in the enum. */
UNSHARD_API size_t unshard_dtype_size(enum unshard_dtype dtype);

/* -- tensors into the memory of a GPU --
 *
 * Bytes go from the shards into pinned buffers, and from there into device memory that the caller owns. There is no
 * other copy, and the library takes no device memory. Several threads read into the buffers, and cast there; while one
 * buffer is copied to the GPU, the next ones are read.
 * The first unshard_device_open loads the CUDA runtime (libcudart.so.12, .13 or .11.0): the one that the process has
 * loaded, else the first that the loader finds. Only threads of the library call CUDA: the caller's threads keep
 * their current device and get no context. */
typedef struct unshard_device unshard_device;
typedef struct unshard_transfer unshard_transfer;

#define UNSHARD_DEVICE_OPTIONS_INIT .size = sizeof(struct unshard_device_options)

/* How shards are read: through the kernel's page cache, which keeps the bytes for the next reader, or past it
 * (O_DIRECT), which leaves the cache to others. Both give the same bytes. */
enum unshard_way {
	UNSHARD_WAY_SUITED, /* past the cache, if 64 KiB or more lie together, less than half of them is cached, and
			     * the file system reports how (local disks, from Linux 6.1 on); else through it. The kernel
			     * reports what is cached only to a process that owns the shards or may write to them: any
			     * other reads through the cache */
	UNSHARD_WAY_CACHE, /* right if several processes of this machine read the same bytes */
	UNSHARD_WAY_DIRECT, /* past the cache wherever the file system allows it, cached or not. What is compressed or
			     * must be put in order is read through the cache nevertheless */
};

/* Every zero means the documented default. */
struct unshard_device_options {
	size_t size; /* UNSHARD_DEVICE_OPTIONS_INIT */
	uint64_t buffer_bytes; /* of one pinned buffer; default 2 MiB, at least 4096 */
	unsigned n_buffers; /* at most; default 32 */
	unsigned n_threads; /* that read at once; default: as many as it has processors (near the GPU), at most 16 */
	enum unshard_way way;
};

/* Prepare to read into GPU number `ordinal`, as CUDA counts: pins the first buffer. A thread of the library pins the
 * others one by one, while transfers use the earlier ones. It ends early where no more memory can be pinned: then
 * there are fewer.
 * options: NULL = all defaults. Needs no session; one device may read from the tensors of several sessions.
 * -ENODEV: the library was built without CUDA; there is no CUDA runtime, driver or GPU, or not a usable one.
 * -ENOMEM: not one buffer could be pinned. -EIO: any other error of CUDA. */
UNSHARD_API int unshard_device_open(int ordinal, const struct unshard_device_options *options, unshard_device **out,
				    struct unshard_error *err);
/* First free every transfer. NULL is allowed. */
UNSHARD_API void unshard_device_close(unshard_device *device);

#define UNSHARD_DEVICE_BOX_INIT .size = sizeof(struct unshard_device_box)

/* A tensor, or a box of it, and its destination. `i` to `dtype` are as for unshard_tensor_read. */
struct unshard_device_box {
	size_t size; /* UNSHARD_DEVICE_BOX_INIT */
	size_t i;
	const uint64_t *lo, *len; /* both NULL = all of it */
	enum unshard_dtype dtype;
	void *to; /* memory of the GPU, the caller's; C order without gaps */
	uint64_t to_bytes;
};

/* Begin to read n boxes (structs of one `size`), in their order, and return at once: `boxes`, with lo and len, may be
 * freed then. Keep the tensors open, and do not use the device memory, until the transfer is freed.
 * stream: the address of the caller's cudaStream_t, on which all copies are queued, behind its earlier work. The stream
 * must live until unshard_transfer_queued has returned. NULL = a stream of the device's own, which waits for no other.
 * Any number of threads may call it at once; transfers at the same time share the buffers.
 * While the program captures a CUDA graph in the global mode, CUDA forbids some calls in all threads, and a transfer
 * may fail or spoil the capture: wait for it before, or capture in the thread-local mode. -EINVAL: as
 * unshard_tensor_read, or the stream is cudaStreamPerThread; before anything is read. */
UNSHARD_API int unshard_device_read(unshard_device *device, const unshard_tensors *tensors,
				    const struct unshard_device_box *boxes, size_t n, void *const *stream,
				    unshard_transfer **out, struct unshard_error *err);
/* Wait until everything is read and every copy is queued: work that the caller queues on the stream from here on finds
 * the bytes. *event (event may be NULL): a cudaEvent_t behind the last copy, to wait for, also from another stream
 * (cudaStreamWaitEvent); it lives as long as the transfer. Fails as unshard_tensor_read does, and with -EIO if CUDA
 * fails: the device memory may then hold anything. */
UNSHARD_API int unshard_transfer_queued(unshard_transfer *transfer, void **event, struct unshard_error *err);
/* Wait until the bytes are in the memory of the GPU, and the device pins no more buffers. Fails as
 * unshard_transfer_queued. */
UNSHARD_API int unshard_transfer_wait(unshard_transfer *transfer, struct unshard_error *err);
/* Waits for copies that have not ended; NULL is allowed. */
UNSHARD_API void unshard_transfer_free(unshard_transfer *transfer);

/* -- facts: values that a user stated about a training, kept in the metadata store --
 *
 * A fact belongs to a checkpoint, or to a directory above it and then to all checkpoints below that directory; of
 * equal keys the nearest counts. A mount shows a change within seconds. Keys are the names of TrainerState and
 * TrainingArguments, "model" (the absolute path of the directory that config and tokenizer are taken from), or any
 * word of a-z, 0-9, '_', '.' and '-'. Once a function has returned 0, its change survives a crash. `path` is below
 * SOURCE and need not exist. -ENOENT if there is no store; other errors name the store's file and what to do. */
struct unshard_fact {
	size_t size;
	const char *subject; /* the absolute path it was set for */
	const char *key;
	const char *json; /* the value */
	const char *origin; /* "set by the user", "imported from FILE" */
	int64_t time_s; /* when, Unix */
};

/* Facts that hold for `path`, sorted by subject and key: calls->fact. */
UNSHARD_API int unshard_meta_list(unshard *u, const char *path, const struct unshard_calls *calls,
				  struct unshard_error *err);
/* value: JSON, or a bare word, which is taken as a string. origin NULL = "set by the user". */
UNSHARD_API int unshard_meta_set(unshard *u, const char *path, const char *key, const char *value, const char *origin,
				 struct unshard_error *err);
/* The keys that unshard uses, one after the other; NULL = there are no more than i. */
UNSHARD_API const char *unshard_meta_key(size_t i);
/* -ENOENT if the key is not set for `path` itself. */
UNSHARD_API int unshard_meta_unset(unshard *u, const char *path, const char *key, struct unshard_error *err);
/* Facts out of a trainer's own file: trainer_state.json, training_args.json, training_args.bin, scheduler.pt; or a
 * unit map (docs/flat-units.md). `file` is a path of the machine, not below SOURCE. All facts or none are kept;
 * *n_facts may be NULL. */
UNSHARD_API int unshard_meta_import_file(unshard *u, const char *path, const char *file, size_t *n_facts,
					 struct unshard_error *err);
/* All facts of the store as JSON (for unshard_free), and the other direction: imported facts replace those of equal
 * subject and key, and all others stay. */
UNSHARD_API int unshard_meta_export(unshard *u, char **json, struct unshard_error *err);
UNSHARD_API int unshard_meta_import(unshard *u, const char *json, size_t *n_facts, struct unshard_error *err);
/* Delete the cached metadata; facts stay. */
UNSHARD_API int unshard_meta_clear_cache(unshard *u, struct unshard_error *err);

/* -- the metadata store as a whole -- */

#define UNSHARD_STORE_COUNTS_INIT .size = sizeof(struct unshard_store_counts)

struct unshard_store_counts {
	size_t size; /* UNSHARD_STORE_COUNTS_INIT */
	uint64_t size_bytes; /* of the file */
	uint64_t facts, seals;
	uint64_t cached, cached_bytes; /* metadata that may be deleted */
	bool read_only;
	bool reserved[7];
};

/* The store's file; belongs to the session. NULL = it has none. */
UNSHARD_API const char *unshard_store_file(const unshard *u);
UNSHARD_API int unshard_store_count(unshard *u, struct unshard_store_counts *out, struct unshard_error *err);
/* Reads all of the file. -EBADMSG: it is damaged. */
UNSHARD_API int unshard_store_verify(unshard *u, struct unshard_error *err);
/* Delete cached metadata that was not used for so many seconds; facts and seals stay. *n may be NULL. */
UNSHARD_API int unshard_store_forget(unshard *u, int64_t unused_s, size_t *n, struct unshard_error *err);
/* Write all of it, as it is at one moment, as the new file `path`, which another session may use (options.store), also
 * on another machine. -EEXIST. */
UNSHARD_API int unshard_store_copy(unshard *u, const char *path, struct unshard_error *err);

/* -- checks -- */

#define UNSHARD_CHECK_COUNTS_INIT .size = sizeof(struct unshard_check_counts)

struct unshard_check_counts {
	size_t size; /* UNSHARD_CHECK_COUNTS_INIT */
	size_t checkpoints, problems, notes, unjudged;
	uint64_t read_bytes; /* for UNSHARD_DEEP */
	size_t saving; /* of the unjudged: checkpoints that are still being saved */
};

/* Flags of unshard_check and unshard_repair. Others are refused (-EINVAL). */
enum {
	/* Also read all data of checkpoints whose save has ended, and find: records of torch files and of DCP's
	 * items with another CRC than the recorded one, NaN and infinity in weights and optimizer states, weights
	 * that are not their rounded fp32 copies. Reads in parallel, with at most half a MiB per thread in addition
	 * to what the options allow for decoded pieces. */
	UNSHARD_DEEP = 1,
	/* Of unshard_check alone: also judge a training that resumes from the session's view (unshard_options.view:
	 * full, full-fsdp, dcp, universal or world-N, else -EINVAL). A problem is whatever makes that training differ
	 * from one that never stopped: a view that is not available, files without which the trainer starts from the
	 * beginning, values that unshard assumes. */
	UNSHARD_FOR_VIEW = 2,
	/* Of unshard_check alone: files are not opened to find holes at their ends. */
	UNSHARD_WITHOUT_HOLES = 4,
};

/* Everything known to be wrong with the checkpoint at `path` below SOURCE, or with every checkpoint
 * below it: the findings of unshard_problems, what a trainer that resumes would miss, and directories that
 * have a checkpoint's name and hold none. Reads no tensor data without UNSHARD_DEEP. calls->finding, and
 * calls->progress (UNSHARD_SCANNING; with UNSHARD_DEEP UNSHARD_READING too). counts may be NULL. */
UNSHARD_API int unshard_check(unshard *u, const char *path, unsigned flags, const struct unshard_calls *calls,
			      struct unshard_check_counts *counts, struct unshard_error *err);

/* The same, and compares each checkpoint's weights with those of the model at `base_path` of session `base`, under the
 * names that the view "weights" gives both: tensors that are missing, further ones, other shapes and dtypes; with
 * UNSHARD_DEEP also which tensors have the base model's values, and which of these the optimizer has trained. Fails if
 * the base model's weights cannot be listed. base NULL: as unshard_check. */
UNSHARD_API int unshard_check_against(unshard *u, const char *path, unshard *base, const char *base_path,
				      unsigned flags, const struct unshard_calls *calls,
				      struct unshard_check_counts *counts, struct unshard_error *err);

enum unshard_change_kind {
	UNSHARD_CHANGE_DTYPE, /* "dtype": tensors got another dtype */
	UNSHARD_CHANGE_STALE, /* "stale": a file of another number of ranks, left out */
	UNSHARD_CHANGE_TRACKER, /* "tracker": the file that names the last checkpoint was written again */
	UNSHARD_CHANGE_LEFT_OUT, /* "left_out": a checkpoint that is not sound, or that the view cannot show */
	UNSHARD_CHANGE_UNREADABLE, /* "unreadable": a directory that could not be read, left out */
	UNSHARD_CHANGE_TRAINER_STATE, /* "trainer_state": a trainer_state.json that was missing or invalid is made */
};

/* A difference between a repaired copy, or an export, and its source. */
struct unshard_change {
	size_t size;
	const char *path; /* below SOURCE */
	enum unshard_change_kind kind;
	const char *text; /* what was changed, and why */
};

/* Write a sound copy of the checkpoint or run at `path` below SOURCE as the new directory `out`, if one can be made:
 * dtypes in which ranks differ become that of most elements; per-rank files of another number of ranks than the
 * current one are left out; a tracker that is missing, invalid or names no sound checkpoint is written again; a
 * trainer_state.json that is missing or invalid is made of what is known. A checkpoint that is not sound is left out if
 * another one is. All else is copied byte for byte, by reflink if the file system can.
 * A directory that cannot be read (another user's, or EIO) is left out, and so is a checkpoint that has one:
 * calls->change receives it as UNSHARD_CHANGE_UNREADABLE. If nothing else would change, nothing is written.
 * `out` must not exist or be an empty directory, and must not be in `path`. It appears whole or not at
 * all: written beside, synced, checked as any other checkpoint (UNSHARD_DEEP: as by unshard_check with
 * that flag), renamed. Then calls->change receives every difference; calls->progress (UNSHARD_WRITING) is called
 * until then.
 * Returns how many directories could not be read, or what calls->change returned to end the call. If calls->change
 * received a change of another kind, `out` was written. If not, everything that could be read is sound, and there is
 * no `out`.
 * -ENODATA: no sound copy can be made. -EBADMSG: the copy was not sound either. -EEXIST, -EINVAL: `out` cannot be
 * used. */
UNSHARD_API int unshard_repair(unshard *u, const char *path, const char *out, unsigned flags,
			       const struct unshard_calls *calls, struct unshard_error *err);

/* -- a view as an ordinary directory, without a mount -- */

#define UNSHARD_EXPORTED_INIT .size = sizeof(struct unshard_exported)

struct unshard_exported {
	size_t size; /* UNSHARD_EXPORTED_INIT */
	size_t checkpoints, files;
	uint64_t size_bytes; /* of all files */
	uint64_t shared_bytes; /* of them: by reflink, not written */
	uint64_t kept_bytes; /* of them: found there by UNSHARD_EXPORT_RESUME, not written again */
};

/* Flags of unshard_export. Others are refused (-EINVAL). */
enum {
	/* Complete an earlier export to the same `out` that was ended. Every byte that it wrote is compared with the
	 * view's, and written again if it differs. If there was none, begin. */
	UNSHARD_EXPORT_RESUME = 1,
	/* Read everything back from the disk and compare it with the view before `out` appears. */
	UNSHARD_EXPORT_VERIFY = 2,
	/* Add the file SHA256SUMS with the SHA-256 of each other file, as sha256sum(1) writes and checks it. */
	UNSHARD_EXPORT_CHECKSUMS = 4,
	/* Also write a model that lacks layers, experts or other tensors, by its own names and its config.json. */
	UNSHARD_EXPORT_INCOMPLETE = 8,
};

/* Write what the tree has at VIEW/`path` as the new directory `out`: a checkpoint, or a directory with
 * checkpoints and its other files. view NULL: "weights"; in a session that shows one view: that one. Every
 * file holds the bytes of the tree's, with its times and its mode made writable for the owner. A checkpoint
 * that the view shows only as a file becomes that file in `out`. A link to something that is exported too stays a link;
 * any other link becomes the file that it leads to.
 * `out` must not exist or be an empty directory, and must not be in `path`. It appears whole or not at all:
 * written as `out`.partial beside it, every file and directory synced, renamed. If the call fails or is
 * ended, out.partial stays, for UNSHARD_EXPORT_RESUME or to be removed. Several threads write; memory: the
 * checkpoint's metadata and a few MiB per thread.
 * A checkpoint below `path` that the view cannot show, or whose model is not whole, is left out, and so is a directory
 * that cannot be read:
 * calls->change receives each (UNSHARD_CHANGE_LEFT_OUT, UNSHARD_CHANGE_UNREADABLE) at the end.
 * calls->progress: UNSHARD_WRITING, then UNSHARD_READING for the two other flags. exported may be NULL.
 * Returns how many checkpoints and directories were left out.
 * -ENODATA, -EBADMSG, -ENOTSUP: the view cannot show the checkpoint, its model is not whole, or there is none.
 * -ENOSPC: before anything is written, if the file system reports its free space. -EEXIST: `out` exists, or an
 * earlier export left out.partial. -EBUSY: another export is writing to it. -EINVAL: `out` cannot be used. */
UNSHARD_API int unshard_export(unshard *u, const char *path, const char *view, const char *out, unsigned flags,
			       const struct unshard_calls *calls, struct unshard_exported *exported,
			       struct unshard_error *err);

/* -- the values of a checkpoint -- */

enum {
	UNSHARD_MAGNITUDES = 96,
	UNSHARD_LEAST_EXPONENT = -80,
};

/* Absolute values of Adam's second moments that count as none: the square of the eps that torch's Adam has. */
#define UNSHARD_SMALL_SQUARE 1e-16

/* What the elements of a tensor are. Of complex ones the absolute values. */
struct unshard_measure {
	size_t size;
	const struct unshard_tensor *tensor;
	/* Of a tensor that holds all experts of a layer: what follows is of this one alone. -1 = of all of the tensor.
	 */
	int64_t expert;
	const char *why; /* the tensor is damaged or incomplete: nothing below is known. NULL = it was read */
	uint64_t n_elems;
	uint64_t n_zero, n_negative, n_nan, n_infinite;
	double min, max, mean, norm; /* of finite elements; 0 if there are none */
	/* Of finite elements that are not 0, those from 2^(i + UNSHARD_LEAST_EXPONENT) to below twice that; the first
	 * and the last also have what is beyond. */
	uint64_t magnitude[UNSHARD_MAGNITUDES];
	/* Along the first dimension (in a tensor of all experts, along the first two); 0 below two dimensions. Small
	 * rows: no element is larger than 0; in second moments (UNSHARD_EXP_AVG_SQ), than UNSHARD_SMALL_SQUARE. */
	uint64_t n_rows, n_small_rows;
	/* Of first moments (UNSHARD_EXP_AVG) that have second ones, lr, betas, eps and a step: the norm of the update
	 * that Adam makes of them, without weight decay; and lr. Otherwise NAN. */
	double norm_update, lr;
};

/* Measure all tensors of the checkpoint, under its own names and in its own order, but for names of another tensor's
 * bytes: calls->measure for each of a tensor's experts, if it holds several, and then for the tensor. First and second
 * moments of a parameter come one after the other. Every byte is read once, in parallel, by way of the page cache;
 * memory does not grow with the size of tensors. calls->progress (UNSHARD_READING). Sums are made in float64 in one
 * order. */
UNSHARD_API int unshard_measure_tensors(unshard *u, const char *checkpoint, const struct unshard_calls *calls,
					struct unshard_error *err);

/* -- the differences between two checkpoints -- */

/* How the elements of two tensors differ, or of all tensors of a group. Values are widened exactly before they are
 * compared. An element has changed if its bits differ; between two dtypes: if the widened values differ, where two NaN
 * are equal and 0 and -0 are not.
 * Differences, means and norms are of finite elements: NaN and infinity are counted instead. Sums are made in binary64
 * in one order, which depends on the shapes alone; their relative error is below 1e-13. A number that is too large for
 * a double is infinity. */
struct unshard_figures {
	size_t size;
	uint64_t n_elems; /* of one side */
	uint64_t n_changed;
	uint64_t n_beyond; /* of them: by more than the tolerance, or from or to NaN or infinity */
	uint64_t n_not_finite_a, n_not_finite_b;
	uint64_t n_not_finite_changed; /* of the changed: NaN or infinity on one side or both */
	double max_abs, mean_abs; /* |A - B|; of complex elements the absolute value of the difference */
	double norm_a, norm_b, norm_difference; /* Euclidean: the root of the sum of squares */
};

enum unshard_diff_kind {
	UNSHARD_DIFF_EQUAL, /* "equal": dtype, shape and every bit */
	UNSHARD_DIFF_WITHIN, /* "within": something changed, and nothing by more than the tolerance */
	UNSHARD_DIFF_DTYPE, /* "dtype": equal values of another dtype */
	UNSHARD_DIFF_VALUES, /* "values": the dtypes may differ too */
	UNSHARD_DIFF_SHAPE, /* "shape": values are not compared */
	UNSHARD_DIFF_ONLY_A, /* "only_a" */
	UNSHARD_DIFF_ONLY_B, /* "only_b" */
	/* "tied": only one side lists it, and there config.json ties it to another tensor, which has the same bytes.
	 * save_pretrained leaves such a tensor out: no difference */
	UNSHARD_DIFF_TIED,
};

struct unshard_tensor_diff {
	size_t size;
	const char *name;
	const char *state; /* of the optimizer: "exp_avg"; NULL = a tensor of the model */
	enum unshard_diff_kind kind;
	const struct unshard_tensor *a, *b; /* NULL on the side that lacks it */
	const struct unshard_figures *figures; /* NULL if values are not compared */
};

enum unshard_group {
	UNSHARD_GROUP_ALL, /* "all" */
	UNSHARD_GROUP_LAYER, /* "layer": names that are equal up to their first number ("model.layers.3") */
	UNSHARD_GROUP_EXPERT, /* "expert": up to the number behind "experts" ("model.layers.3.mlp.experts.7"); of a
			       * tensor of all experts ("...experts.gate_up_proj"), the part of its first dimension */
};

/* Tensors of the model (states of the optimizer are in no group). */
struct unshard_group_diff {
	size_t size;
	enum unshard_group group;
	const char *name; /* "" = all */
	size_t n_tensors; /* compared */
	size_t n_different; /* of them: any element changed, or another dtype. Of a tensor of all experts: of its part
			     */
	const struct unshard_figures *figures;
};

/* A value that differs: "param_groups.0.lr", "config.rope_theta", "trainer.epoch", "step". */
struct unshard_value_diff {
	size_t size;
	const char *name;
	const char *json_a, *json_b; /* as JSON; NULL on the side that lacks it */
	bool counts; /* false: how it was saved ("world_size"), or known of one side alone; it makes no difference */
};

/* Flags of unshard_diff. Others are refused (-EINVAL). */
enum {
	/* Also compare the states of the optimizers, under the names that the checkpoints themselves have. */
	UNSHARD_DIFF_OPTIMIZER = 1,
	/* Compare tensors alone. */
	UNSHARD_DIFF_TENSORS = 2,
	/* Compare names, shapes and dtypes of tensors, and read none: equal values are assumed, and there are no
	 * figures. */
	UNSHARD_DIFF_NAMES = 4,
};

#define UNSHARD_DIFF_OPTIONS_INIT .size = sizeof(struct unshard_diff_options)

/* Every zero means the documented default. */
struct unshard_diff_options {
	size_t size; /* UNSHARD_DIFF_OPTIONS_INIT */
	const char *view; /* whose tensors are compared; NULL = "weights" */
	/* |A - B| <= tolerance + relative_tolerance * |B| is no difference, and neither is another dtype then. 0 and 0:
	 * everything is. */
	double tolerance, relative_tolerance;
	unsigned flags;
	unsigned reserved; /* zero */
};

#define UNSHARD_DIFF_COUNTS_INIT .size = sizeof(struct unshard_diff_counts)

struct unshard_diff_counts {
	size_t size; /* UNSHARD_DIFF_COUNTS_INIT */
	size_t kind[16]; /* tensors by enum unshard_diff_kind; the rest is for kinds to come */
	size_t n_values; /* that differ and count */
	uint64_t read_bytes; /* of tensors, of both sides */
};

/* Compare the checkpoint at `path_a` of session `a` with that at `path_b` of session `b`, which may be the same
 * session: of whatever formats, as the view shows their weights, so that names are those that models are published
 * with. calls->tensor_diff for every tensor, in the order of A and then of what only B has; calls->group_diff for all,
 * then layers, then experts; calls->value_diff; calls->progress (UNSHARD_READING). counts may be NULL.
 * Reads every tensor that both have once, in parallel. Memory: names and shapes of both, a few hundred bytes per
 * layer and expert, and 2 MiB per thread.
 * Returns 1 if they differ, 0 if not. -EAGAIN: one of them may still be being saved. -ENODATA, -EBADMSG, -ENOTSUP: the
 * view cannot show one of them, or a tensor could not be read. -ENOENT: there is no such checkpoint or view. */
UNSHARD_API int unshard_diff(unshard *a, const char *path_a, unshard *b, const char *path_b,
			     const struct unshard_diff_options *options, const struct unshard_calls *calls,
			     struct unshard_diff_counts *counts, struct unshard_error *err);

/* -- seals: what a checkpoint held when it was known to be sound -- */

enum unshard_seal_state {
	UNSHARD_SEALED, /* now */
	UNSHARD_SEALED_BEFORE, /* and a quick look finds no difference: nothing was read or written */
	UNSHARD_SEAL_DIFFERS, /* sealed before, and its files are not those any more: the seal stays as it was */
	UNSHARD_SEAL_SAVING, /* the save may still be going on: not sealed */
	UNSHARD_SEAL_REFUSED, /* damaged, or it could not be read: not sealed */
};

/* What became of one checkpoint. */
struct unshard_seal {
	size_t size;
	const char *path; /* below SOURCE */
	enum unshard_seal_state state;
	const char *text; /* why, in one sentence; NULL for SEALED and SEALED_BEFORE */
	const char *where; /* the seal's file, or the metadata store */
	size_t files, pieces; /* in the seal */
	uint64_t size_bytes; /* of the files */
};

#define UNSHARD_SEAL_COUNTS_INIT .size = sizeof(struct unshard_seal_counts)

struct unshard_seal_counts {
	size_t size; /* UNSHARD_SEAL_COUNTS_INIT */
	size_t checkpoints, sealed, sealed_before, differs, saving, refused;
	uint64_t read_bytes;
};

/* Flags of unshard_seal. Others are refused (-EINVAL). */
enum {
	/* Make every seal again, also one that the files or damage to the seal contradict. */
	UNSHARD_SEAL_AGAIN = 1,
	/* For work in the background, again and again: read one file at a time, in the thread of the call. Of a
	 * checkpoint in which nothing changed since the call before, nothing is looked at but its directories, and
	 * calls->sealed is not called. One that changed less than settle_seconds ago counts as being saved. One that
	 * was saved again as a whole since it was sealed is sealed again. */
	UNSHARD_SEAL_GENTLY = 2,
};

/* Make ready what seals will be kept in, for a program that gives up writing elsewhere before it calls unshard_seal:
 * the directory of options.seals is made. -EINVAL: it is inside SOURCE. -ENOENT: there is no metadata store, and
 * options.seals is not set. */
UNSHARD_API int unshard_seals_prepare(unshard *u, struct unshard_error *err);

/* Seal the checkpoint at `path` below SOURCE, or every checkpoint below it: read all of its files once, and keep name,
 * size, time and SHA-256 of each file, and a CRC-32 of each piece of a tensor. From then on unshard_problems,
 * unshard_check and everything that shows the checkpoint compare with the seal (what is compared when: docs/seal.md). A
 * checkpoint that is damaged, or whose save may still be going on, is not sealed. Nothing is written to SOURCE: -EINVAL
 * if options.seals is inside what is to be sealed. calls->sealed receives each checkpoint; calls->progress:
 * UNSHARD_SCANNING, and UNSHARD_READING for each checkpoint. counts may be NULL. -ENOENT: there is no metadata store,
 * and options.seals is not set, or nothing is at `path`. A session that showed the checkpoint before compares with the
 * new seal when it opens the checkpoint again. */
UNSHARD_API int unshard_seal(unshard *u, const char *path, unsigned flags, const struct unshard_calls *calls,
			     struct unshard_seal_counts *counts, struct unshard_error *err);

/* -- configs, before a training -- */

/* What is known to fail in a training that these config files together describe
 * (TrainingArguments, Accelerate, DeepSpeed, LightningCLI; JSON or YAML), before it starts:
 * calls->finding. Nothing is executed or written, and no session is needed. versions:
 * "transformers=4.40.2,torch=2.2.2", NULL = none known: rules that need one are then reported as
 * UNSHARD_UNJUDGED. kinds[i] (kinds may be NULL) receives the kind of file i: a text that lives as long as the
 * library. counts may be NULL. */
UNSHARD_API int unshard_check_config(const char *const *files, size_t n, const char *versions,
				     const struct unshard_calls *calls, const char **kinds,
				     struct unshard_check_counts *counts, struct unshard_error *err);

/* -- kinds of findings -- */

/* What is true of every finding of one kind. There will be more kinds. */
struct unshard_finding_kind {
	size_t size;
	const char *id; /* "shard_missing", as in struct unshard_finding */
	const char *group; /* of kinds about the same: "torch distributed checkpoints" */
	const char *check; /* what most of them are reported as: "damaged" */
	enum unshard_severity severity; /* of most of them */
	const char *message; /* the sentence, with FILE, TENSOR and so on in place of names and numbers */
	const char *cause; /* how it comes about; NULL = the message has it */
	const char *advice; /* what to do; NULL = the message has it */
};

/* Visit every kind of finding, the rules of unshard_check_config last, those of one group together. The texts live
 * until the visit returns. Returns 0, what visit returned if that is not 0, or -ENOMEM. No session is needed; any
 * thread. */
UNSHARD_API int unshard_finding_kinds(int (*visit)(void *ctx, const struct unshard_finding_kind *kind), void *ctx);

/* -- names of enumerators --
 *
 * Stable: "bfloat16" (torch's), "exp_avg", "damaged", "weights" (a note's scope: "note"), "left_out". They
 * live as long as the library. NULL for a number that is not in the enum. */
UNSHARD_API const char *unshard_dtype_name(enum unshard_dtype dtype);
UNSHARD_API const char *unshard_role_name(enum unshard_role role);
UNSHARD_API const char *unshard_state_name(enum unshard_state state);
UNSHARD_API const char *unshard_scope_name(enum unshard_scope scope);
UNSHARD_API const char *unshard_change_name(enum unshard_change_kind kind);
UNSHARD_API const char *unshard_diff_name(enum unshard_diff_kind kind);
UNSHARD_API const char *unshard_group_name(enum unshard_group group);
UNSHARD_API const char *unshard_seal_state_name(enum unshard_seal_state state);

#ifdef __cplusplus
}
#endif
#endif
