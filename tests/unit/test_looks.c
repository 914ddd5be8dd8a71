/* How often a session looks at SOURCE: counted system calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "counted.h"
#include "fake_clock.h"
#include "shell.h"
#include "unshard.h"

#define FILE_PATH "weights/runs/checkpoint-2/model.safetensors"

struct fixture {
	char dir[32], source[64];
	unshard *u;
};

static int setup(void **state)
{
	static struct fixture f;

	f = (struct fixture){ .dir = "/tmp/uns_looks_XXXXXX" };
	assert_non_null(mkdtemp(f.dir));
	snprintf(f.source, sizeof(f.source), "%s/src", f.dir);
	shell(f.dir, "mkdir src && cp -r " UNSHARD_GOLDEN "/run src/runs && chmod -R u+w src");
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	shell(f->dir, "rm -r ../$(basename $PWD)");
	return 0;
}

static void session_open_with(struct fixture *f, uint64_t mem_bytes)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true, .mem_bytes = mem_bytes };

	assert_int_equal(unshard_open(f->source, &options, &f->u, NULL), 0);
}

static void session_open(struct fixture *f)
{
	session_open_with(f, 0);
}

/* The calls that one look costs. */
static unsigned stat_cost(struct fixture *f, const char *path)
{
	unsigned before = counted;
	struct unshard_stat st = { UNSHARD_STAT_INIT };

	assert_int_equal(unshard_stat(f->u, path, &st, NULL), 0);
	return counted - before;
}

/* A hundred files more in the checkpoint are a hundred calls more, not three hundred. */
static void a_file_costs_one_call(void **state)
{
	struct fixture *f = *state;
	unsigned cold, again, cold_more, again_more;

	session_open(f);
	cold = stat_cost(f, FILE_PATH);
	wait_recheck();
	again = stat_cost(f, FILE_PATH);
	unshard_close(f->u);
	shell(f->dir, "cd src/runs/checkpoint-2 && touch $(seq -f beside-%.0f 80) && "
		      "touch $(seq -f optimizer_0/beside-%.0f 20)");
	session_open(f);
	cold_more = stat_cost(f, FILE_PATH);
	wait_recheck();
	again_more = stat_cost(f, FILE_PATH);
	unshard_close(f->u);
	print_message("cold %u, %u; again %u, %u\n", cold, cold_more, again, again_more);
	assert_in_range(cold_more - cold, 100, 103);
	assert_in_range(again_more - again, 100, 103);
}

/* What the second of a run's checkpoints costs, and that a change of the run's directory is seen after that. */
static unsigned second_cost(struct fixture *f)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	unsigned cost;

	shell(f->dir, "cd src/runs && rm -f merges.txt && touch -d '20 seconds ago' .");
	session_open(f);
	stat_cost(f, "weights/runs/checkpoint-2/config.json");
	cost = stat_cost(f, "weights/runs/checkpoint-3/config.json");
	shell(f->dir, "cd src/runs && touch merges.txt");
	assert_int_equal(unshard_stat(f->u, "weights/runs/checkpoint-4/merges.txt", &st, NULL), 0);
	unshard_close(f->u);
	return cost;
}

/* A run's directory is listed once for all of its checkpoints: each costs the same however many there are. */
static void a_run_is_listed_once(void **state)
{
	struct fixture *f = *state;
	unsigned small;

	shell(f->dir, "cd src/runs && cp -r checkpoint-2 checkpoint-3 && cp -r checkpoint-2 checkpoint-4");
	small = second_cost(f);
	shell(f->dir, "cd src/runs && touch $(seq -f %0200.0f 400)"); /* more names than three calls list */
	assert_int_equal(second_cost(f), small);
}

/* What is in memory of the checkpoint that was used last stays, also if it takes more than all may take. */
static void a_large_checkpoint_is_opened_once(void **state)
{
	struct fixture *f = *state;

	session_open_with(f, 1);
	assert_true(stat_cost(f, FILE_PATH) > 0);
	stat_cost(f, FILE_PATH); /* the directories on the way, where the first took long */
	assert_int_equal(stat_cost(f, FILE_PATH), 0);
	unshard_close(f->u);
}

/* One of the figures of stats.json. */
static unsigned long long figure(struct fixture *f, const char *name)
{
	char text[4096], key[64], *at;
	unshard_file *file;
	ssize_t n;

	assert_int_equal(unshard_file_open(f->u, ".unshard/stats.json", NULL, &file, NULL, NULL), 0);
	n = unshard_pread(file, text, sizeof(text) - 1, 0, NULL);
	unshard_file_close(file);
	assert_true(n > 0);
	text[n] = '\0';
	snprintf(key, sizeof(key), "\"%s\": ", name);
	at = strstr(text, key);
	assert_non_null(at);
	return strtoull(at + strlen(key), NULL, 10);
}

static void list_one(struct fixture *f, const char *view, int step)
{
	unshard_listing *listing;
	char path[64];

	snprintf(path, sizeof(path), "%s/runs/checkpoint-%d", view, step);
	assert_int_equal(unshard_list(f->u, path, &listing, NULL), 0);
	assert_true(unshard_listing_count(listing) > 0);
	unshard_listing_free(listing);
}

static void list_view(struct fixture *f, const char *view)
{
	int step;

	for (step = 2; step < 22; step++)
		list_one(f, view, step);
}

static void list_views(struct fixture *f)
{
	static const char *const views[] = { "weights", "full", "dcp", "universal" };
	size_t i;

	for (i = 0; i < 4; i++)
		list_view(f, views[i]);
}

/* 20 checkpoints in one view after the other, with memory for their catalogs and not for all trees of all views. */
static void a_catalog_is_made_once_for_all_views(void **state)
{
	struct fixture *f = *state;
	unsigned long long one_view, all_views, budget;

	shell(f->dir, "cd src/runs && for i in $(seq 3 21); do cp -r checkpoint-2 checkpoint-$i; done");
	session_open(f);
	list_view(f, "weights");
	one_view = figure(f, "snapshot_bytes");
	list_views(f);
	all_views = figure(f, "snapshot_bytes");
	unshard_close(f->u);
	budget = (one_view + all_views) / 2;
	assert_true(all_views > budget + budget / 8);

	session_open_with(f, 2 * budget); /* half of it is for catalogs and trees */
	list_views(f);
	assert_true(figure(f, "snapshot_bytes") <= budget);
	list_views(f);
	assert_int_equal(figure(f, "catalogs_opened"), 20);
	unshard_close(f->u);
}

static void open_one(struct fixture *f, int step)
{
	unshard_file *file;
	char path[64];

	snprintf(path, sizeof(path), "weights/runs/checkpoint-%d/model.safetensors", step);
	assert_int_equal(unshard_file_open(f->u, path, NULL, &file, NULL, NULL), 0);
	unshard_file_close(file);
}

/* What nobody used for a minute goes before a tree that is in use. */
static void an_idle_catalog_goes_first(void **state)
{
	struct fixture *f = *state;
	unsigned long long one_view, opened;

	shell(f->dir, "cd src/runs && for i in $(seq 3 21); do cp -r checkpoint-2 checkpoint-$i; done");
	session_open(f);
	list_view(f, "weights");
	one_view = figure(f, "snapshot_bytes");
	unshard_close(f->u);

	session_open_with(f, 2 * one_view);
	list_view(f, "weights");
	opened = figure(f, "catalogs_opened");
	atomic_fetch_add(&fake_now_ms, 61000);
	list_one(f, "universal", 2); /* the second tree of checkpoint-2; the next oldest is checkpoint-3 */
	assert_int_equal(figure(f, "catalogs_opened"), opened);
	open_one(f, 3);
	assert_int_equal(figure(f, "catalogs_opened"), opened + 1);
	unshard_close(f->u);
}

/* Of what nobody used for a minute an eighth stays, and the catalog that was used last. */
static void a_rest_lets_catalogs_go(void **state)
{
	struct fixture *f = *state;
	unsigned long long held, opened;

	shell(f->dir, "cd src/runs && for i in $(seq 3 21); do cp -r checkpoint-2 checkpoint-$i; done");
	session_open_with(f, 1 << 20);
	list_view(f, "weights");
	held = figure(f, "snapshot_bytes");
	opened = figure(f, "catalogs_opened");
	unshard_rest(f->u); /* a minute has not passed */
	assert_int_equal(figure(f, "snapshot_bytes"), held);
	atomic_fetch_add(&fake_now_ms, 61000);
	unshard_rest(f->u);
	print_message("%llu bytes, after a rest %llu\n", held, figure(f, "snapshot_bytes"));
	assert_true(held > (1 << 18) && figure(f, "snapshot_bytes") < held / 2);
	open_one(f, 21);
	assert_int_equal(figure(f, "catalogs_opened"), opened);
	open_one(f, 3);
	assert_int_equal(figure(f, "catalogs_opened"), opened + 1);
	unshard_close(f->u);
}

/* Each directory is listed, and each name in it looked up. Returns how many there are. */
static size_t walk(struct fixture *f, const char *path)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	unshard_listing *listing;
	char below[512];
	size_t i, n;

	assert_int_equal(unshard_list(f->u, path, &listing, NULL), 0);
	n = unshard_listing_count(listing);
	for (i = 0; i < unshard_listing_count(listing); i++) {
		snprintf(below, sizeof(below), "%s/%s", path, unshard_listing_at(listing, i)->name);
		assert_int_equal(unshard_stat(f->u, below, &st, NULL), 0);
		if (st.kind == UNSHARD_DIR)
			n += walk(f, below);
	}
	unshard_listing_free(listing);
	return n;
}

/* 40 checkpoints in nine views, with memory for the catalogs of a few: each is opened to find out whether the first
 * view shows it, and once more. After that a walk opens none, and a checkpoint that changed is one that is new. */
static void walks_open_a_checkpoint_twice(void **state)
{
	struct fixture *f = *state;
	size_t n;

/* They find nothing in 40 checkpoints that they do not find in those of other tests. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	if (!getenv("UNSHARD_LONG"))
		return;
#endif
	shell(f->dir, "cd src/runs && for i in $(seq 3 41); do cp -r checkpoint-2 checkpoint-$i; done");
	session_open(f);
	n = walk(f, "");
	assert_int_equal(figure(f, "catalogs_opened"), 40);
	unshard_close(f->u);

	session_open_with(f, 1000000);
	assert_int_equal(walk(f, ""), n);
	assert_in_range(figure(f, "catalogs_opened"), 41, 80);
	assert_true(figure(f, "snapshot_bytes") < 1000000);
	wait_recheck();
	assert_int_equal(walk(f, ""), n);
	assert_in_range(figure(f, "catalogs_opened"), 41, 80);
	shell(f->dir, "cd src/runs/checkpoint-7 && touch more");
	wait_recheck();
	assert_int_equal(walk(f, ""), n + 4); /* all but the views of weights show it */
	assert_in_range(figure(f, "catalogs_opened"), 42, 82);
	unshard_close(f->u);
}

static unshard_node *step(unshard_node *dir, const char *name)
{
	unshard_node *child;

	assert_int_equal(unshard_lookup(dir, name, &child, NULL, NULL), 0);
	unshard_node_unref(dir);
	return child;
}

/* Inside a generation that is known: every kind of question. */
static void a_warm_lookup_makes_no_system_call(void **state)
{
	static const char *const views[] = { "weights", "dcp", "full-fsdp" };
	struct fixture *f = *state;
	unshard_listing *list;
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	unshard_node *dir, *node;
	unsigned before;
	size_t i, k;

	session_open(f);
	for (k = 0; k < sizeof(views) / sizeof(*views); k++) {
		assert_int_equal(unshard_root(f->u, &dir, NULL), 0);
		dir = step(step(step(dir, views[k]), "runs"), "checkpoint-2");
		assert_int_equal(unshard_node_list(dir, &list, NULL), 0);
		wait_recheck();
		assert_int_equal(unshard_node_stat(dir, &st, NULL), 0); /* looked at once more */
		before = counted;
		for (i = 0; i < unshard_listing_count(list); i++) {
			assert_int_equal(unshard_lookup(dir, unshard_listing_at(list, i)->name, &node, &st, NULL), 0);
			assert_int_equal(unshard_node_stat(node, &st, NULL), 0);
			unshard_node_unref(node);
		}
		assert_int_equal(unshard_lookup(dir, "absent", &node, &st, NULL), -ENOENT);
		unshard_listing_free(list);
		assert_int_equal(unshard_node_list(dir, &list, NULL), 0);
		assert_true(unshard_listing_count(list) > 2);
		assert_int_equal(counted, before);
		unshard_listing_free(list);
		unshard_node_unref(dir);
	}
	/* By its path it is as many steps, all of them warm. */
	stat_cost(f, FILE_PATH);
	assert_int_equal(stat_cost(f, FILE_PATH), 0);
	unshard_close(f->u);
}

/* A directory that is not a checkpoint is compared by its times alone. */
static void a_plain_directory_costs_two_calls(void **state)
{
	struct fixture *f = *state;
	unshard_node *dir;
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	unsigned before;

	shell(f->dir, "mkdir src/plain && cd src/plain && touch $(seq 100) && "
		      "touch -d '20 seconds ago' .");
	session_open(f);
	assert_int_equal(unshard_root(f->u, &dir, NULL), 0);
	dir = step(step(dir, "weights"), "plain");
	wait_recheck();
	before = counted;
	assert_int_equal(unshard_node_stat(dir, &st, NULL), 0);
	assert_int_equal(counted - before, 2);
	unshard_node_unref(dir);
	unshard_close(f->u);
}

/* A directory that was empty a moment ago, and the first file of a checkpoint, of which half is written. */
static void not_shown_by_what_its_directory_was(struct fixture *f)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	int code;

	shell(f->dir, "rm -rf src/new && mkdir src/new && sleep 0.1");
	session_open(f);
	assert_int_equal(unshard_stat(f->u, "weights/new", &st, NULL), 0);
	shell(f->dir, "sleep 0.1; echo '{' >src/new/model.safetensors");
	code = unshard_stat(f->u, "weights/new/model.safetensors", &st, NULL);
	assert_true(code == -ESTALE || code == -ENOENT);
	assert_int_equal(unshard_stat(f->u, "weights/new/model.safetensors", &st, NULL), -ENOENT);
	unshard_close(f->u);
}

static void a_file_is_not_shown_by_what_its_directory_was(void **state)
{
	not_shown_by_what_its_directory_was(*state);
}

/* The files' times are a server's, whose clock is behind. */
static void nor_where_clocks_differ(void **state)
{
	fake_ahead_s = 2;
	not_shown_by_what_its_directory_was(*state);
	fake_ahead_s = 0;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_file_costs_one_call),
		TEST(a_run_is_listed_once),
		TEST(a_large_checkpoint_is_opened_once),
		TEST(a_catalog_is_made_once_for_all_views),
		TEST(an_idle_catalog_goes_first),
		TEST(a_rest_lets_catalogs_go),
		TEST(walks_open_a_checkpoint_twice),
		TEST(a_warm_lookup_makes_no_system_call),
		TEST(a_plain_directory_costs_two_calls),
		TEST(a_file_is_not_shown_by_what_its_directory_was),
		TEST(nor_where_clocks_differ),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
