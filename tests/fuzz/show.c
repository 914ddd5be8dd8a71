#include "show.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "edited.h"
#include "files.h"
#include "unshard.h"
#include "wire/json.h"

enum { MAX_DEPTH = 12, MAX_READ = 1 << 16 };

/* 0 or more is a success; anything else has a code and a sentence on one line. */
static bool ok(int64_t rc, struct unshard_error *err)
{
	if (rc < 0 && (err->code >= 0 || err->code != rc || !*err->text || strchr(err->text, '\n')))
		abort();
	*err = (struct unshard_error){ 0 };
	return rc >= 0;
}

/* -- the tree -- */

static void read_part(unshard_file *file, const struct unshard_stat *st, uint64_t at)
{
	static char buf[MAX_READ];
	uint64_t left = st->size_bytes - at, want = left < MAX_READ ? left : MAX_READ;
	struct unshard_error err = { 0 };
	ssize_t got = unshard_pread(file, buf, MAX_READ, at, &err);

	if (ok(got, &err) && (uint64_t)got != want && !st->live)
		abort();
}

static void read_file(const unshard_node *node)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	struct unshard_error err = { 0 };
	unshard_file *file;

	if (!ok(unshard_node_open(node, NULL, &file, &st, &err), &err))
		return;
	read_part(file, &st, 0);
	if (st.size_bytes > MAX_READ) {
		read_part(file, &st, st.size_bytes / 2);
		read_part(file, &st, st.size_bytes - 1);
	}
	unshard_file_close(file);
}

static void show_dir(const unshard_node *dir, unsigned depth);

static void show_node(const unshard_node *node, enum unshard_kind kind, unsigned depth)
{
	struct unshard_error err = { 0 };
	char *target;

	switch (kind) {
	case UNSHARD_DIR:
		show_dir(node, depth + 1);
		break;
	case UNSHARD_FILE:
		read_file(node);
		break;
	case UNSHARD_LINK:
		if (ok(unshard_node_readlink(node, &target, &err), &err))
			unshard_free(target);
		break;
	}
}

static void show_dir(const unshard_node *dir, unsigned depth)
{
	const struct unshard_dirent *e;
	struct unshard_error err = { 0 };
	unshard_listing *list;
	unshard_node *node;
	size_t i;

	if (depth > MAX_DEPTH || !ok(unshard_node_list(dir, &list, &err), &err))
		return;
	for (i = 0; (e = unshard_listing_at(list, i)); i++)
		if (ok(unshard_listing_node(list, i, &node, &err), &err)) {
			show_node(node, e->stat.kind, depth);
			unshard_node_unref(node);
		}
	unshard_listing_free(list);
}

static void show_tree(unshard *u)
{
	static const char *const unlisted[] = { "world-2", "world-3", "world-4", ".unshard" };
	struct unshard_error err = { 0 };
	unshard_node *root, *view;
	size_t i;

	if (!ok(unshard_root(u, &root, &err), &err))
		return;
	show_dir(root, 0);
	for (i = 0; i < sizeof(unlisted) / sizeof(*unlisted); i++)
		if (ok(unshard_lookup(root, unlisted[i], &view, NULL, &err), &err)) {
			show_dir(view, 0);
			unshard_node_unref(view);
		}
	unshard_node_unref(root);
}

/* -- checkpoints -- */

static void describe(unshard *u, const char *path)
{
	struct unshard_error err = { 0 };
	cJSON *parsed;
	char *json;
	int what;

	for (what = UNSHARD_INFO; what <= UNSHARD_PROVENANCE; what++) {
		if (!ok(unshard_describe(u, path, (enum unshard_what)what, "/mnt", &json, &err), &err))
			continue;
		if (uns_json_parse(uns_span_of(json, strlen(json)), &parsed, NULL) < 0)
			abort();
		cJSON_Delete(parsed);
		unshard_free(json);
	}
}

static void read_tensors(unshard *u, const char *path, const char *view)
{
	static char buf[MAX_READ];
	const struct unshard_tensor *t;
	struct unshard_error err = { 0 };
	unshard_tensors *list;
	size_t i;

	if (!ok(unshard_tensors_open(u, path, view, &list, &err), &err))
		return;
	for (i = 0; (t = unshard_tensors_at(list, i)); i++)
		if (t->size_bytes <= MAX_READ)
			ok(unshard_tensor_read(list, i, NULL, NULL, UNSHARD_AS_STORED, buf, t->size_bytes, &err), &err);
	unshard_tensors_close(list);
}

static int show_checkpoint(void *ctx, const struct unshard_checkpoint *c)
{
	struct unshard_error err = { 0 };
	unshard *u = ctx;

	describe(u, c->path);
	read_tensors(u, c->path, NULL);
	read_tensors(u, c->path, "weights");
	ok(unshard_problems(u, c->path, NULL, NULL, &err), &err);
	ok(unshard_meta_list(u, c->path, NULL, &err), &err);
	return 0;
}

static int take_finding(void *ctx, const struct unshard_finding *f)
{
	(void)ctx;
	if (!f->path || !f->check || !*f->text || strchr(f->text, '\n'))
		abort();
	return 0;
}

void show_all(const char *source, struct unshard_options *options)
{
	struct unshard_calls calls = { UNSHARD_CALLS_INIT, .checkpoint = show_checkpoint, .finding = take_finding };
	struct unshard_error err = { 0 };
	unshard *u;

	options->no_settling = true;
	if (unshard_open(source, options, &u, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		abort();
	}
	calls.ctx = u;
	ok(unshard_scan(u, &calls, &err), &err);
	ok(unshard_check(u, "", UNSHARD_DEEP, &calls, NULL, &err), &err);
	show_tree(u);
	unshard_close(u);
}

/* -- a directory that an input changes -- */

static int import_for(void *ctx, const struct unshard_checkpoint *c)
{
	struct unshard_error err = { 0 };
	char file[512];

	snprintf(file, sizeof(file), "%s/import.json", files_dir());
	ok(unshard_meta_import_file(ctx, c->path, file, NULL, &err), &err);
	return 0;
}

static void import(const struct unshard_options *options)
{
	struct unshard_calls calls = { UNSHARD_CALLS_INIT, .checkpoint = import_for };
	struct unshard_error err = { 0 };
	unshard *u;

	if (unshard_open(files_dir(), options, &u, &err) < 0)
		abort();
	calls.ctx = u;
	ok(unshard_scan(u, &calls, &err), &err);
	unshard_close(u);
}

enum { SMALL_FILES = 1, SAVED_NAMES = 2, GUESSED_UNITS = 4 };

void show_edited(const struct edited_tree *tree, size_t n, struct uns_span input)
{
	struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true, .no_settling = true };
	char store[512], imported[512];
	uint8_t first;
	size_t how;

	if (!uns_take_u8(&input, &first))
		return;
	how = first / n;
	edited_put(&tree[first % n], input);
	options.max_shard_size_bytes = how & SMALL_FILES ? 100 : 0;
	options.keep_names = how & SAVED_NAMES;
	options.strip = how & SAVED_NAMES ? "model." : NULL;
	options.assume_fsdp_units = options.hide_rng = how & GUESSED_UNITS;
	snprintf(imported, sizeof(imported), "%s/import.json", files_dir());
	if (access(imported, F_OK) == 0) {
		snprintf(store, sizeof(store), "%s/store.db", files_dir());
		options.store = store;
		options.no_store = false;
		import(&options);
	}
	show_all(files_dir(), &options);
}
