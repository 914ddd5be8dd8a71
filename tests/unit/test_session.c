/* A session as a whole: what it takes, what it leaves alone, and what it never does under its lock. Linked
 * with --wrap for the functions below (tests/CMakeLists.txt). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fake_clock.h"
#include "session/session.h"
#include "shell.h"

/* -- what happens while the lock is held -- */

static pthread_mutex_t *_Atomic watched_lock; /* NULL = nobody watches */
static _Thread_local bool held __attribute__((aligned(16))); /* for mold: see faults/faults.c */
static _Atomic unsigned n_under_lock, n_freed, n_trims;

int __real_pthread_mutex_lock(pthread_mutex_t *m);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m)
{
	int code = __real_pthread_mutex_lock(m);

	held |= m == watched_lock;
	return code;
}

int __real_pthread_mutex_unlock(pthread_mutex_t *m);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m)
{
	held &= m != watched_lock;
	return __real_pthread_mutex_unlock(m);
}

#define WATCHED(type, name, params, args)  \
	type __real_##name params;         \
	type __wrap_##name params;         \
	type __wrap_##name params          \
	{                                  \
		n_under_lock += held;      \
		n_freed++;                 \
		return __real_##name args; \
	}

WATCHED(int, close, (int fd), (fd))
WATCHED(void, uns_backing_free, (struct uns_backing * b), (b))
WATCHED(void, uns_catalog_free, (struct uns_catalog * c), (c))
WATCHED(void, uns_capture_free, (struct uns_capture * c), (c))
WATCHED(void, uns_arena_fini, (struct uns_arena * a), (a))

int __wrap_malloc_trim(size_t pad);
int __wrap_malloc_trim(size_t pad)
{
	(void)pad;
	n_trims++;
	n_under_lock += held;
	return 0;
}

/* -- fixture -- */

struct fixture {
	char dir[32], source[64];
	struct unshard_options options;
	unshard *u;
};

static int setup(void **state)
{
	static struct fixture f;

	f = (struct fixture){ .dir = "/tmp/uns_session_XXXXXX" };
	assert_non_null(mkdtemp(f.dir));
	snprintf(f.source, sizeof(f.source), "%s/run", f.dir);
	shell(f.dir, "cp -r " UNSHARD_GOLDEN "/run . && chmod -R u+w run");
	f.options = (struct unshard_options){ UNSHARD_OPTIONS_INIT, .no_store = true, .no_settling = true };
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	watched_lock = NULL;
	shell(f->dir, "rm -r ../$(basename $PWD)");
	return 0;
}

static void session_open(struct fixture *f)
{
	struct unshard_error err;

	if (unshard_open(f->source, &f->options, &f->u, &err) < 0)
		fail_msg("%s", err.text);
}

static bool exists(struct fixture *f, const char *path)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };

	return unshard_stat(f->u, path, &st, NULL) == 0;
}

static char *content(struct fixture *f, const char *path)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	unshard_file *file;
	char *text;

	assert_int_equal(unshard_file_open(f->u, path, NULL, &file, &st, NULL), 0);
	text = calloc(1, st.size_bytes + 1);
	assert_int_equal(unshard_pread(file, text, st.size_bytes, 0, NULL), st.size_bytes);
	unshard_file_close(file);
	return text;
}

/* -- -o model= -- */

enum { N_MODELS = 20 };

/* The last of many is the one that has what is needed; nothing is dropped on the way. */
static void more_models_than_a_few(void **state)
{
	struct fixture *f = *state;
	char dir[N_MODELS][64], *text, *wanted;
	const char *model[N_MODELS];
	int i;

	shell(f->dir, "mv run/*.json . && for i in $(seq 0 19); do mkdir model$i; done && "
		      "mv config.json generation_config.json model19 && mv tokenizer* model18");
	for (i = 0; i < N_MODELS; i++) {
		snprintf(dir[i], sizeof(dir[i]), "%s/model%d", f->dir, i);
		model[i] = dir[i];
	}
	f->options.model = model;
	f->options.n_model = N_MODELS;
	session_open(f);
	assert_true(exists(f, "weights/checkpoint-2/config.json"));
	assert_true(exists(f, "weights/checkpoint-2/tokenizer.json"));
	text = content(f, "weights/checkpoint-2/.unshard/provenance.json");
	free(text);
	unshard_close(f->u);

	/* One that cannot be read is told, and the others are asked all the same. */
	session_open(f);
	shell(f->dir, "rmdir model3");
	assert_true(exists(f, "weights/checkpoint-2/config.json"));
	text = content(f, "weights/checkpoint-2/.unshard/problems.txt");
	wanted = strstr(text, "the model directory cannot be used: ");
	assert_non_null(wanted);
	assert_non_null(strstr(wanted, "/model3"));
	free(text);
	unshard_close(f->u);
}

/* -- the process -- */

static void the_process_is_left_alone(void **state)
{
	struct fixture *f = *state;
	struct rlimit was, lowered, is;
	char path[64];
	int i;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	lowered = (struct rlimit){ was.rlim_max / 2, was.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &lowered), 0);
	n_trims = 0;
	session_open(f);
	assert_true(exists(f, "weights/checkpoint-2/model.safetensors"));
	unshard_close(f->u);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &is), 0);
	assert_int_equal(is.rlim_cur, lowered.rlim_cur);
	assert_int_equal(n_trims, 0);
	f->options.trim_memory = true;
	session_open(f);
	assert_true(exists(f, "weights/checkpoint-2/model.safetensors"));
	unshard_close(f->u);
	assert_int_equal(n_trims, 1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	/* Not again for each small checkpoint. */
	shell(f->dir, "cd run && for i in $(seq 11 20); do cp -r checkpoint-2 checkpoint-$i; done");
	session_open(f);
	for (i = 11; i <= 20; i++) {
		snprintf(path, sizeof(path), "weights/checkpoint-%d/model.safetensors", i);
		assert_true(exists(f, path));
	}
	unshard_close(f->u);
	assert_int_equal(n_trims, 2);
}

/* Where nothing can be made: the reason is mkdir's. */
static void why_there_is_no_place_for_the_store(void **state)
{
	struct fixture *f = *state;
	struct unshard_error err = { 0 };
	const char *was = getenv("XDG_STATE_HOME");
	char *keep = was ? strdup(was) : NULL;

	setenv("XDG_STATE_HOME", "/dev/null/unshard-test", 1);
	f->options.no_store = false;
	session_open(f);
	assert_true(unshard_meta_set(f->u, "", "seed", "1", NULL, &err) < 0);
	assert_non_null(strstr(err.text, "/dev/null/unshard-test cannot be made: "));
	assert_null(strstr(err.text, "No such file or directory"));
	assert_int_not_equal(err.code, -ENOENT);
	unshard_close(f->u);
	if (keep)
		setenv("XDG_STATE_HOME", keep, 1);
	else
		unsetenv("XDG_STATE_HOME");
	free(keep);
}

/* -- the lock -- */

static void look_at_all(struct fixture *f)
{
	static const char *const paths[] = { "weights/checkpoint-2/model.safetensors", "dcp/checkpoint-2/scheduler.pt",
					     "full-fsdp/checkpoint-2/optimizer.bin", "weights/.unshard/problems.txt",
					     "full/gone" };
	size_t i;

	for (i = 0; i < sizeof(paths) / sizeof(*paths); i++)
		exists(f, paths[i]);
}

/* Snapshots that are evicted, replaced, held by open files, and of directories that go. */
static void nothing_is_freed_under_the_lock(void **state)
{
	static const char *const changes[] = { "touch run/checkpoint-2/optimizer_0/.metadata",
					       "rm run/checkpoint-2/pytorch_model_fsdp_0/.metadata",
					       "rm -r run/checkpoint-2/*_0", "rm -r run/checkpoint-2" };
	struct fixture *f = *state;
	unshard_file *file;
	uint64_t mem;
	size_t i;

	for (mem = 1; mem <= UINT64_C(1) << 30; mem <<= 30) {
		shell(f->dir, "rm -rf run/checkpoint-2 && cp -r " UNSHARD_GOLDEN "/run/checkpoint-2 run && "
			      "chmod -R u+w run");
		f->options.mem_bytes = mem;
		session_open(f);
		watched_lock = &f->u->lock;
		n_under_lock = n_freed = 0;
		look_at_all(f);
		assert_int_equal(
			unshard_file_open(f->u, "weights/checkpoint-2/model.safetensors", NULL, &file, NULL, NULL), 0);
		for (i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
			shell(f->dir, changes[i]);
			wait_recheck();
			look_at_all(f);
		}
		unshard_file_close(file);
		assert_int_equal(n_under_lock, 0);
		assert_true(n_freed > 50);
		watched_lock = NULL;
		unshard_close(f->u);
	}
}

/* -- what has gone -- */

/* Records and snapshots of checkpoints without a problem go too, which no problems.txt looks at again. */
static void what_was_removed_is_forgotten(void **state)
{
	struct fixture *f = *state;
	uint64_t directories, bytes;

	session_open(f);
	assert_true(exists(f, "weights/checkpoint-2/model.safetensors"));
	directories = f->u->records.map.n;
	bytes = f->u->snapshots.bytes;
	shell(f->dir, "for i in 3 4 5 6; do cp -r run/checkpoint-2 run/checkpoint-$i; done");
	wait_recheck();
	assert_true(exists(f, "weights/checkpoint-3/model.safetensors") &&
		    exists(f, "weights/checkpoint-4/model.safetensors"));
	assert_true(f->u->records.map.n > directories && f->u->snapshots.bytes > bytes);
	shell(f->dir, "rm -r run/checkpoint-[3-6]");
	wait_recheck();
	assert_true(exists(f, "weights/checkpoint-2/model.safetensors"));
	assert_int_equal(f->u->records.map.n, directories);
	assert_int_equal(f->u->snapshots.bytes, bytes);
	unshard_close(f->u);
}

/* -- what is young -- */

static bool is_stable(struct fixture *f)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };

	if (unshard_stat(f->u, "weights/checkpoint-2/model.safetensors", &st, NULL) < 0)
		fail_msg("it is not shown");
	return st.stable;
}

static uint64_t snapshots_built(struct fixture *f)
{
	return f->u->memo.n_opened;
}

/* Times are stamped when a write begins: what is seen of a file meanwhile may be a mix, under the identity
 * that the file keeps. So nothing of it lasts. */
static void what_is_young_is_not_kept(void **state)
{
	struct fixture *f = *state;
	uint64_t built;

	shell(f->dir, "find run -type f -exec touch {} +");
	f->options.no_settling = false;
	f->options.settle_seconds = 2;
	session_open(f);
	assert_false(is_stable(f));
	built = snapshots_built(f);
	wait_recheck();
	assert_false(is_stable(f));
	assert_int_equal(snapshots_built(f), built);
	do
		usleep(100000);
	while (wait_recheck(), !is_stable(f));
	assert_int_equal(snapshots_built(f), built + 1);
	wait_recheck();
	assert_true(is_stable(f));
	assert_int_equal(snapshots_built(f), built + 1);
	unshard_close(f->u);
}

/* -- an open that fails -- */

static _Atomic bool trees_fail;

int __real_show_tree(struct unshard *u, struct dir_record *record, struct snapshot *snap, const struct uns_view *view,
		     uint64_t parameter, const struct shown **out, struct uns_err *err);
int __wrap_show_tree(struct unshard *u, struct dir_record *record, struct snapshot *snap, const struct uns_view *view,
		     uint64_t parameter, const struct shown **out, struct uns_err *err);
int __wrap_show_tree(struct unshard *u, struct dir_record *record, struct snapshot *snap, const struct uns_view *view,
		     uint64_t parameter, const struct shown **out, struct uns_err *err)
{
	if (trees_fail)
		return uns_fail(err, -EIO, "a tree that cannot be made");
	return __real_show_tree(u, record, snap, view, parameter, out, err);
}

/* The references of all snapshots: each open file has one. */
static unsigned references(struct fixture *f)
{
	struct snapshot *snap;
	unsigned n = 0;

	TAILQ_FOREACH(snap, &f->u->snapshots.by_use, by_use)
	n += snap->refs;
	return n;
}

/* Another file of the same snapshot is open meanwhile, and goes on. */
static void an_open_that_fails_takes_no_reference(void **state)
{
	static const char path[] = "weights/checkpoint-2/model.safetensors";
	struct fixture *f = *state;
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	unshard_file *file, *other;
	unsigned before;
	char byte;

	session_open(f);
	assert_int_equal(unshard_file_open(f->u, path, NULL, &file, &st, NULL), 0);
	before = references(f);
	assert_int_equal(before, 1);
	trees_fail = true;
	assert_int_equal(unshard_file_open(f->u, path, NULL, &other, NULL, NULL), -EIO);
	trees_fail = false;
	assert_int_equal(references(f), before);
	assert_int_equal(unshard_pread(file, &byte, 1, st.size_bytes - 1, NULL), 1);
	unshard_file_close(file);
	assert_int_equal(references(f), 0);
	unshard_close(f->u);
}

/* -- many at once -- */

enum { N_THREADS = 8 };

struct reader {
	struct fixture *f;
	unsigned seed;
	_Atomic bool *stop;
	unsigned n_seen;
};

/* What may be answered while the checkpoint is being changed. */
static void check_code(int code)
{
	if (code < 0 && code != -ENOENT && code != -ESTALE && code != -ENODATA && code != -EBADMSG)
		fail_msg("%s", strerror(-code));
}

static unshard_node *step(struct reader *r, unshard_node *dir, const char *name)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	unshard_node *child;
	int code = unshard_lookup(dir, name, &child, &st, NULL);

	check_code(code);
	unshard_node_unref(dir);
	r->n_seen += code == 0;
	return code < 0 ? NULL : child;
}

static void read_a_little(struct reader *r, const unshard_node *node)
{
	unshard_file *file;
	char buf[4096];
	int code = unshard_node_open(node, NULL, &file, NULL, NULL);

	check_code(code);
	if (code < 0)
		return;
	if (unshard_pread(file, buf, sizeof(buf), 0, NULL) > 0)
		r->n_seen++;
	unshard_file_close(file);
}

static void list_all(struct reader *r, const unshard_node *dir)
{
	unshard_listing *list;
	unshard_node *node;
	size_t i;
	int code = unshard_node_list(dir, &list, NULL);

	check_code(code);
	for (i = 0; code == 0 && i < unshard_listing_count(list); i++) {
		assert_int_equal(unshard_listing_node(list, i, &node, NULL), 0);
		if (unshard_listing_at(list, i)->stat.kind == UNSHARD_FILE && i % 3 == r->seed % 3)
			read_a_little(r, node);
		unshard_node_unref(node);
	}
	if (code == 0)
		unshard_listing_free(list);
}

static void *look_around(void *ctx)
{
	static const char *const views[] = { "weights", "dcp", "full-fsdp", "weights-bf16" };
	struct reader *r = ctx;
	unshard_node *node;
	char name[32];

	while (!atomic_load(r->stop)) {
		r->seed = r->seed * 1103515245 + 12345;
		snprintf(name, sizeof(name), "checkpoint-%u", 2 + r->seed / 65536 % 3);
		assert_int_equal(unshard_root(r->f->u, &node, NULL), 0);
		node = step(r, node, views[r->seed / 1024 % 4]);
		node = node ? step(r, node, name) : NULL;
		if (node && r->seed / 16 % 2)
			list_all(r, node);
		else if (node && (node = step(r, node, "config.json")))
			read_a_little(r, node);
		unshard_node_unref(node);
	}
	return NULL;
}

static void many_at_once_while_things_change(void **state)
{
	struct fixture *f = *state;
	struct reader reader[N_THREADS];
	pthread_t thread[N_THREADS];
	_Atomic bool stop = false;
	int i;

	shell(f->dir, "cd run && cp -r checkpoint-2 checkpoint-3 && cp -r checkpoint-2 checkpoint-4");
	f->options.mem_bytes = 1 << 20; /* some of them fit */
	session_open(f);
	for (i = 0; i < N_THREADS; i++) {
		reader[i] = (struct reader){ .f = f, .seed = (unsigned)i, .stop = &stop };
		assert_int_equal(pthread_create(&thread[i], NULL, look_around, &reader[i]), 0);
	}
	for (i = 0; i < 12; i++) {
		usleep(100000);
		wait_recheck();
		shell(f->dir, i % 2 ? "touch run/checkpoint-3/optimizer_0/.metadata"
				    : "mv run/checkpoint-4 run/away; mv run/away run/checkpoint-4; "
				      "touch run/checkpoint-2/scheduler.pt");
	}
	atomic_store(&stop, true);
	for (i = 0; i < N_THREADS; i++) {
		pthread_join(thread[i], NULL);
		assert_true(reader[i].n_seen > 0);
	}
	unshard_close(f->u);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(more_models_than_a_few),
		TEST(the_process_is_left_alone),
		TEST(why_there_is_no_place_for_the_store),
		TEST(nothing_is_freed_under_the_lock),
		TEST(what_was_removed_is_forgotten),
		TEST(what_is_young_is_not_kept),
		TEST(an_open_that_fails_takes_no_reference),
		TEST(many_at_once_while_things_change),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
