#include "session/shared_memos.h"

#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "engine/places.h"
#include "model/catalog_pack.h"
#include "session/open_catalog.h"

static struct shared_memo_subject subject_of(struct shared_memos *m, const char *path, const struct examined *is)
{
	return (struct shared_memo_subject){ m->root, path, is->format->name, is->format->marks_up, is->content };
}

/* Of its own files alone: without names from the store of this machine. */
static bool is_of_files(const struct examined *is)
{
	return !is->format->wants_units || !is->facts_digest;
}

/* -- reading -- */

static int use(const struct shared_memo_subject *of, const struct memo_parts *parts, struct uns_capture *capture,
	       struct uns_catalog *cat, struct uns_err *err)
{
	UNS_TRY(shared_memo_seen(capture, of, parts->inputs, err));
	UNS_TRY(uns_catalog_unpack_anywhere(parts->catalog, of->root, cat, err));
	return uns_places_check(cat, parts->places, err);
}

static int use_file(const char *file, uint64_t key, const struct shared_memo_subject *of, struct uns_capture *capture,
		    struct uns_arena *arena, struct uns_catalog **out, struct uns_span *places, struct uns_err *err)
{
	struct uns_inputs *before;
	struct memo_parts parts;
	struct uns_catalog *cat;
	int code;

	UNS_TRY(memo_file_read(file, key, arena, &parts, err));
	UNS_TRY(uns_catalog_new(of->path, &cat, err));
	cat->capture = capture;
	before = uns_inputs_ref(*uns_capture_inputs(capture));
	code = use(of, &parts, capture, cat, err);
	if (code < 0) {
		uns_catalog_free(cat);
		uns_capture_give_inputs(capture, before);
		return code;
	}
	uns_inputs_put(before);
	*out = cat;
	*places = parts.places;
	return 0;
}

int shared_memos_load(struct shared_memos *m, const struct dir_record *record, struct uns_capture *capture,
		      struct uns_arena *arena, struct uns_catalog **cat, struct uns_span *places, struct uns_err *err)
{
	const struct shared_memo_subject of = subject_of(m, record->path, &record->is);
	struct uns_err why;
	const char *file;
	uint64_t key;
	size_t i;
	int code;

	if (!m->n || !is_of_files(&record->is))
		return 0;
	UNS_TRY(shared_memo_key(m->salt, &of, &key, err));
	for (i = 0; i < m->n; i++) {
		UNS_TRY_ALLOC(file = memo_file_name(m->dir[i], key, arena), err);
		why = (struct uns_err){ 0 };
		code = use_file(file, key, &of, capture, arena, cat, places, &why);
		if (code == 0) {
			__atomic_add_fetch(&m->n_used, 1, __ATOMIC_RELAXED);
			uns_log(m->log, UNS_LOG_DEBUG, "%s: described by %s", record->path, file);
			return 1;
		}
		if (code == -ENOMEM)
			return uns_oom(err);
		if (code != -ENOENT)
			uns_log(m->log, UNS_LOG_WARN, "%s is not used for %s: %s", file, record->path, why.text);
	}
	uns_log(m->log, UNS_LOG_INFO, "%s: no memo describes it as it is now; its own metadata is read", record->path);
	return 0;
}

/* -- making -- */

static int pack(const struct shared_memo_subject *of, struct uns_catalog *cat, struct shared_memo *out,
		struct uns_err *err)
{
	UNS_TRY(shared_memo_pack_inputs(cat->capture, of, &out->inputs, err));
	return uns_catalog_pack_anywhere(cat, of->root, &out->catalog, err);
}

static int find_places(struct shared_memos *m, struct uns_catalog *cat, const struct uns_stop *stop,
		       struct shared_memo *out, struct uns_err *err)
{
	struct uns_backing *backing;
	int code;

	UNS_TRY(uns_backing_new(m->engine, cat, &backing, err));
	code = uns_places_export(backing, stop, &out->places, err);
	uns_backing_free(backing);
	return code;
}

static int make(struct shared_memos *m, const struct dir_record *record, const struct examined *is,
		struct uns_capture *capture, const struct uns_stop *stop, struct shared_memo *out, struct uns_err *err)
{
	const struct shared_memo_subject of = subject_of(m, record->path, is);
	const struct opening opening = { m->root, m->adapters, record->path, is, m->format };
	struct uns_catalog *cat;
	int code;

	if (!is_of_files(is))
		return uns_fail(err, -ENOTSUP, "names of its parameters are in this machine's metadata store");
	if (!memo_lasts(is->newest_ns))
		return uns_fail(err, -EAGAIN, "it changed a moment ago");
	UNS_TRY(shared_memo_key(m->salt, &of, &out->key, err));
	UNS_TRY(uns_catalog_new(record->path, &cat, err));
	code = open_catalog(&opening, capture, cat, err);
	if (code == 0)
		code = pack(&of, cat, out, err);
	cat->capture = NULL;
	if (code == 0)
		code = find_places(m, cat, stop, out, err);
	out->n_pieces = cat->n_pieces;
	uns_catalog_free(cat);
	return code;
}

/* Until what changed last is old enough that a later change has another time: 2.5 s at most. Not longer, where clocks
 * differ: then it is refused. */
static void wait_until_lasting(int64_t newest_ns, const struct uns_stop *stop)
{
	const struct timespec t = { .tv_nsec = 50000000 };
	unsigned n;

	for (n = 0; n < 60 && !memo_lasts(newest_ns) && !(stop && stop->asked(stop->ctx)); n++)
		nanosleep(&t, NULL);
}

int shared_memo_make(struct shared_memos *m, const struct dir_record *record, const struct uns_stop *stop,
		     struct shared_memo *out, struct uns_err *err)
{
	/* Not as the record has it: that has more inputs, of what is beside the checkpoint. */
	const struct examiner x = {
		.root = m->root, .hidden = m->hidden, .store = m->store, .adapters = m->adapters, .path = record->path
	};
	struct uns_capture *capture;
	struct examined is;
	int code;

	*out = (struct shared_memo){ 0 };
	wait_until_lasting(record->is.newest_ns, stop);
	UNS_TRY(examine(&x, &is, &capture, err));
	if (is.format != record->is.format || is.own_generation != record->is.own_generation)
		code = uns_fail(err, -EAGAIN, "it has changed");
	else
		code = make(m, record, &is, capture, stop, out, err);
	uns_capture_free(capture);
	examined_fini(&is);
	if (code < 0)
		shared_memo_fini(out);
	return code;
}

void shared_memo_fini(struct shared_memo *memo)
{
	uns_text_fini(&memo->inputs);
	uns_text_fini(&memo->catalog);
	uns_text_fini(&memo->places);
}

/* -- comparing -- */

static bool is_equal(const struct uns_text *a, struct uns_span b)
{
	return a->len == uns_span_left(&b) && (!a->len || memcmp(a->p, b.p, a->len) == 0);
}

int shared_memos_differ(struct shared_memos *m, const struct shared_memo *now, struct uns_arena *arena,
			const char **file, const char **what, struct uns_err *err)
{
	struct memo_parts parts;
	size_t i;
	int code = -ENOENT;

	for (i = 0; i < m->n && code < 0; i++) {
		UNS_TRY_ALLOC(*file = memo_file_name(m->dir[i], now->key, arena), err);
		code = memo_file_read(*file, now->key, arena, &parts, NULL);
		if (code == -ENOMEM)
			return uns_oom(err);
	}
	if (code < 0)
		return 0;
	if (!is_equal(&now->inputs, parts.inputs))
		*what = "the files beside it";
	else if (!is_equal(&now->catalog, parts.catalog))
		*what = "tensors and values";
	else if (!is_equal(&now->places, parts.places))
		*what = "where tensors lie in their files";
	else
		return 0;
	return 1;
}
