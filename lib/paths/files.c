/* Open files: each pins what its bytes come from. */
#include "paths/files.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "api/caller.h"
#include "engine/behind.h"
#include "engine/streams.h"
#include "paths/nodes.h"
#include "session/reads.h"

struct unshard_file {
	struct unshard *u;
	char *path;        /* for messages */
	const struct uns_layout *layout; /* NULL = text */
	struct uns_backing *backing;
	struct uns_streams streams;
	atomic_bool behind; /* a reader keeps what it reads */

	struct usage_entry *usage;
	struct dir_record *record; /* a checkpoint's file */
	struct snapshot *snap;

	struct uns_catalog *own; /* a file of SOURCE outside checkpoints: a catalog of one file */
	struct uns_layout own_layout;
	struct uns_backing *own_backing;

	struct uns_text text; /* .unshard files */
};

static int open_source_file(struct unshard_file *f, const struct spot *spot, struct uns_err *err)
{
	uint32_t file;

	UNS_TRY(uns_catalog_new(spot->key.path, &f->own, err));
	UNS_TRY(uns_catalog_add_file(f->own, f->u->root, spot->key.path, &file, err));
	if (f->own->files[file].missing)
		return uns_fail(err, -ESTALE, "%s has gone", spot->key.path);
	/* Or the kernel would read another file to the end of this one. */
	if (!uns_identity_equal(&f->own->files[file].stat.id, &spot->stat.id))
		return uns_fail(err, -ESTALE, "%s changed while it was opened", spot->key.path);
	UNS_TRY(uns_layout_of_file(&f->own->arena, f->own, file, &f->own_layout, err));
	UNS_TRY(uns_backing_new(f->u->engine, f->own, &f->own_backing, err));
	f->layout = &f->own_layout;
	f->backing = f->own_backing;
	return 0;
}

bool file_is_source(const struct unshard_file *f, struct uns_backing **backing, uint32_t *source)
{
	const struct uns_tensor *all = f->layout && f->layout->n == 1 ? f->layout->segment[0].tensor : NULL;

	if (!all || !all->own)
		return false;
	*backing = f->backing;
	*source = all->own->file;
	return true;
}

/* A trainer that resumes writes its run's config.json again, and then opens the checkpoint's. The kernel looks a file
 * up again where its open fails with ESTALE, and passes the ESTALE of a read on: a copy of one file is compared now.
 * Whatever else keeps the file from being read fails its reads. */
static int check_copied(const struct unshard_file *f, struct uns_err *err)
{
	struct uns_backing *backing;
	struct uns_err why = { 0 };
	uint32_t source;

	if (!file_is_source(f, &backing, &source) || uns_backing_check(backing, source, &why) != -ESTALE)
		return 0;
	records_suspect(&f->u->records, f->record, true);
	return uns_fail_copy(err, &why);
}

static int open_spot(struct unshard_file *f, struct spot *spot, struct uns_err *err)
{
	const struct uns_vfile *file;

	if (spot_is_dir(spot))
		return uns_fail(err, -EISDIR, "%s is a directory", f->path);
	if (spot_is_link(spot))
		return uns_fail(err, -ELOOP, "%s is a link", f->path);
	if (spot->key.kind == SPOT_SOURCE)
		return open_source_file(f, spot, err);
	if (spot->key.kind == SPOT_SHOWN) {
		UNS_TRY(spot_open(f->u, spot, &f->snap, &file, err));
		f->layout = &file->layout;
		f->backing = f->snap->backing;
		f->record = UNS_TAKE(spot->record);
		return check_copied(f, err);
	}
	f->text = spot->text;
	spot->text = UNS_TEXT_INIT;
	return 0;
}

void unshard_file_close(unshard_file *f)
{
	if (!f)
		return;
	if (f->snap)
		snapshots_save_crcs(&f->u->snapshots, f->snap);
	uns_streams_fini(&f->streams, f->u->engine);
	if (atomic_load(&f->behind))
		uns_behind_end(f->backing);
	uns_backing_free(f->own_backing);
	uns_catalog_free(f->own);
	snapshot_put(f->u, f->snap);
	record_put(f->u, f->record);
	uns_text_fini(&f->text);
	free(f->path);
	free(f);
}

/* A checkpoint's file counts for its view. */
static void count_open(struct unshard_file *f, const struct spot *spot)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const char *view;

	if (spot->key.kind != SPOT_SHOWN)
		return;
	view = spot_view(f->u, spot, f->path, &arena);
	if (view)
		f->usage = usage_opened(&f->u->usage, view, spot->key.path);
}

/* Ends the spot. */
static int open_spot_for(struct unshard *u, struct spot *spot, const char *name, struct caller *caller,
			 unshard_file **out, struct unshard_stat *st, struct uns_err *err)
{
	struct caller_crcs crcs = { caller, u->engine };
	const struct uns_stop until = { caller_crcs_asked, &crcs };
	struct unshard_stat own;
	struct unshard_file *f = calloc(1, sizeof(*f));
	int code = f && (f->path = strdup(name)) ? 0 : uns_oom(err);

	if (f) {
		f->u = u;
		uns_streams_init(&f->streams);
	}
	if (code == 0 && st) {
		spot_stat(u, spot, &own);
		code = caller_give(st, &own, "stat", err);
	}
	if (code == 0) {
		count_open(f, spot);
		code = open_spot(f, spot, err);
	}
	spot_fini(u, spot);
	if (code == 0 && f->snap && u->opt.crc_exact)
		code = snapshots_find_crcs(&u->snapshots, f->snap, f->layout, caller->calls.progress ? &until : NULL,
					   err);
	if (code < 0) {
		unshard_file_close(f);
		return code;
	}
	__atomic_add_fetch(&u->n_opens, 1, __ATOMIC_RELAXED);
	*out = f;
	return 0;
}

/* Ends the spot. */
static int open_at(struct unshard *u, struct spot *spot, const char *name, const struct unshard_calls *calls,
		   unshard_file **out, struct unshard_stat *st, struct uns_err *err)
{
	struct caller caller;
	int code = caller_init(&caller, calls, err);

	if (code < 0) {
		spot_fini(u, spot);
		return code;
	}
	return caller_fini(&caller, open_spot_for(u, spot, name, &caller, out, st, err));
}

int file_open_spot(struct unshard *u, struct spot *spot, const char *name, struct unshard_file **out,
		   struct uns_err *err)
{
	return open_at(u, spot, name, NULL, out, NULL, err);
}

struct file_bytes file_bytes(const struct unshard_file *f)
{
	return (struct file_bytes){ f->layout, f->backing, f->layout ? f->layout->size_bytes : f->text.len };
}

static int open_path(unshard *u, const char *path, const struct unshard_calls *calls, unshard_file **out,
		     struct unshard_stat *st, struct uns_err *err)
{
	struct spot spot;

	UNS_TRY(spot_find(u, path, &spot, err));
	return open_at(u, &spot, path, calls, out, st, err);
}

int unshard_file_open(unshard *u, const char *path, const struct unshard_calls *calls, unshard_file **out,
		      struct unshard_stat *st, struct unshard_error *error)
{
	struct uns_err err = { 0 }, changed = { 0 };
	int code = open_path(u, path, calls, out, st, &changed);

	if (code == -ESTALE) /* it changed between the look and the open */
		return give_error(error, &err, open_path(u, path, calls, out, st, &err));
	return give_error(error, &changed, code);
}

int unshard_node_open(const unshard_node *node, const struct unshard_calls *calls, unshard_file **out,
		      struct unshard_stat *st, struct unshard_error *error)
{
	struct uns_err err = { 0 };
	struct spot spot;
	int code = node_spot(node, LOOK_FULL, &spot, NULL, &err);

	if (code == 0)
		code = open_at(node_session(node), &spot, unshard_node_path(node), calls, out, st, &err);
	return give_error(error, &err, code);
}

static ssize_t read_text(const struct unshard_file *f, void *buf, size_t len, uint64_t off)
{
	size_t n = off < f->text.len ? (size_t)uns_u64_min(len, f->text.len - off) : 0;

	if (n)
		memcpy(buf, f->text.p + off, n);
	return (ssize_t)n;
}

ssize_t unshard_pread(unshard_file *f, void *buf, size_t len, uint64_t off, struct unshard_error *error)
{
	struct uns_reading reading;
	struct read_from from = { f->u, f->path, f->record, f->backing, f->layout, UNS_WAY_CACHE, f->usage };
	struct uns_err err = { 0 };
	ssize_t got;

	if (!f->layout)
		return read_text(f, buf, len, off);
	reading = uns_streams_read(&f->streams, f->backing, f->layout, off, len);
	from.way = reading.way;
	got = session_read(&from, buf, len, off, &err);
	uns_streams_read_end(f->backing, &reading, got > 0 ? (size_t)got : 0);
	if (got < 0)
		give_error(error, &err, (int)got);
	return got;
}

void unshard_file_kept(unshard_file *f, uint64_t off, size_t len)
{
	if (!f->layout)
		return;
	if (!atomic_load_explicit(&f->behind, memory_order_relaxed))
		atomic_store(&f->behind, true);
	uns_behind_read(f->backing, f->layout, off, len);
}
