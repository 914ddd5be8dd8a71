/* unshard.h as programs use it that were built with an older or a newer one: structs of other sizes, callbacks
 * that end a call, enumerators, memory that goes back, two sessions beside each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unshard.h"

static unshard *open_golden(const char *below)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true, .no_settling = true };
	char path[512];
	unshard *u;

	snprintf(path, sizeof(path), "%s/%s", UNSHARD_GOLDEN, below);
	assert_int_equal(unshard_open(path, &options, &u, NULL), 0);
	return u;
}

/* -- options: what a program fills -- */

/* The struct of a program built with another header. */
union options {
	struct unshard_options known;
	unsigned char bytes[sizeof(struct unshard_options) + 64];
};

static int open_with(const union options *o, struct unshard_error *err)
{
	unshard *u = NULL;
	int code;

	*err = (struct unshard_error){ 0 };
	code = unshard_open(UNSHARD_GOLDEN "/run", &o->known, &u, err);
	unshard_close(u);
	return code;
}

static void options_of_any_size(void **state)
{
	union options o, filled;
	struct unshard_error err;
	size_t size, whole = sizeof(struct unshard_options);

	(void)state;
	/* Up to where the program's header ends, nothing behind it is looked at. */
	for (size = sizeof(size_t); size <= whole; size += 8) {
		memset(&o, 0xff, sizeof(o));
		memset(&o, 0, size);
		o.known.size = size;
		if (open_with(&o, &err) < 0)
			fail_msg("%zu bytes: %s", size, err.text);
	}
	for (size = 0; size < sizeof(size_t); size++) {
		memset(&o, 0, sizeof(o));
		o.known.size = size;
		assert_int_equal(open_with(&o, &err), -EINVAL);
		assert_non_null(strstr(err.text, "size is not set"));
	}
	memset(&filled, 0, sizeof(filled));
	filled.known.size = sizeof(filled);
	assert_int_equal(open_with(&filled, &err), 0);
	for (size = whole; size < sizeof(filled); size++) {
		o = filled;
		o.bytes[size] = 1;
		assert_int_equal(open_with(&o, &err), -E2BIG);
		assert_int_equal(err.code, -E2BIG);
		assert_non_null(strstr(err.text, unshard_version()));
	}
	o = filled;
	o.known.size = whole;
	o.known.reserved[sizeof(o.known.reserved) - 1] = true;
	assert_int_equal(open_with(&o, &err), -E2BIG);
}

/* What a short struct has is taken, and what it lacks is the default. */
static void a_short_struct_counts(void **state)
{
	struct unshard_options o = { .size = offsetof(struct unshard_options, mountpoint),
				     .view = "weights",
				     .mountpoint = (const char *)1 };
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	struct unshard_error err = { 0 };
	unshard *u;

	(void)state;
	assert_int_equal(unshard_open(UNSHARD_GOLDEN "/run", &o, &u, NULL), 0);
	unshard_close(u);
	o.view = "no such view";
	assert_int_equal(unshard_open(UNSHARD_GOLDEN "/run", &o, &u, &err), -EINVAL);
	assert_non_null(strstr(err.text, "no such view"));
	assert_int_equal(unshard_open(UNSHARD_GOLDEN "/run", NULL, &u, NULL), 0);
	assert_int_equal(unshard_stat(u, "weights", &st, NULL), 0);
	unshard_close(u);
}

/* No padding at the end: a field that is added later must not lie where older programs left anything. */
_Static_assert(offsetof(struct unshard_options, reserved) + sizeof(((struct unshard_options *)0)->reserved) ==
		       offsetof(struct unshard_options, seals),
	       "options");
_Static_assert(offsetof(struct unshard_options, reads) + sizeof(void *) == sizeof(struct unshard_options), "options");
_Static_assert(offsetof(struct unshard_stat, reserved) + sizeof(((struct unshard_stat *)0)->reserved) ==
		       sizeof(struct unshard_stat),
	       "stat");
_Static_assert(offsetof(struct unshard_calls, memo) + sizeof(void *) == sizeof(struct unshard_calls), "calls");
_Static_assert(offsetof(struct unshard_diff_options, reserved) + sizeof(unsigned) ==
		       sizeof(struct unshard_diff_options),
	       "diff_options");
_Static_assert(offsetof(struct unshard_diff_counts, read_bytes) + sizeof(uint64_t) ==
		       sizeof(struct unshard_diff_counts),
	       "diff_counts");
_Static_assert(offsetof(struct unshard_check_counts, saving) + sizeof(size_t) == sizeof(struct unshard_check_counts),
	       "counts");
_Static_assert(offsetof(struct unshard_seal_counts, read_bytes) + sizeof(uint64_t) ==
		       sizeof(struct unshard_seal_counts),
	       "seal counts");
_Static_assert(offsetof(struct unshard_memo_counts, size_bytes) + sizeof(uint64_t) ==
		       sizeof(struct unshard_memo_counts),
	       "memo counts");

/* -- stat, counts: what the library fills -- */

static void filled_as_far_as_it_goes(void **state)
{
	static const char file[] = "weights/checkpoint-2/model.safetensors";
	struct unshard_stat whole = { UNSHARD_STAT_INIT };
	struct {
		struct unshard_stat stat;
		unsigned char more[32], guard;
	} longer;
	union {
		struct unshard_stat stat;
		unsigned char bytes[sizeof(struct unshard_stat) + 8];
	} shorter;
	struct unshard_error err = { 0 };
	unshard *u = open_golden("run");
	unshard_node *root, *node;
	unshard_file *open;
	size_t size, i;

	(void)state;
	assert_int_equal(unshard_stat(u, file, &whole, NULL), 0);
	assert_int_equal(whole.size, sizeof(whole));
	for (size = sizeof(size_t); size <= sizeof(whole); size++) {
		memset(&shorter, 0xa5, sizeof(shorter));
		shorter.stat.size = size;
		assert_int_equal(unshard_stat(u, file, &shorter.stat, NULL), 0);
		assert_int_equal(shorter.stat.size, size);
		assert_memory_equal(shorter.bytes + sizeof(size_t), (char *)&whole + sizeof(size_t),
				    size - sizeof(size_t));
		for (i = size; i < sizeof(shorter); i++)
			assert_int_equal(shorter.bytes[i], 0xa5);
	}
	memset(&longer, 0xa5, sizeof(longer));
	longer.stat.size = sizeof(longer.stat) + sizeof(longer.more);
	assert_int_equal(unshard_stat(u, file, &longer.stat, NULL), 0);
	for (i = 0; i < sizeof(longer.more); i++)
		assert_int_equal(longer.more[i], 0);
	assert_int_equal(longer.guard, 0xa5);

	/* Every function that fills one. */
	whole.size = 0;
	assert_int_equal(unshard_stat(u, file, &whole, &err), -EINVAL);
	assert_non_null(strstr(err.text, "unshard_stat"));
	assert_int_equal(unshard_root(u, &root, NULL), 0);
	assert_int_equal(unshard_node_stat(root, &whole, NULL), -EINVAL);
	assert_int_equal(unshard_lookup(root, "weights", &node, &whole, NULL), -EINVAL);
	assert_int_equal(unshard_file_open(u, file, NULL, &open, &whole, NULL), -EINVAL);
	assert_int_equal(unshard_node_open(root, NULL, &open, &whole, NULL), -EINVAL);
	unshard_node_unref(root);
	unshard_close(u);
}

static void counts_of_any_size(void **state)
{
	const char *config = UNSHARD_GOLDEN "/check/fsdp2_torch.bad.yaml";
	struct unshard_check_counts counts = { UNSHARD_CHECK_COUNTS_INIT };
	unshard *u = open_golden("run");
	struct unshard_error err;

	(void)state;
	assert_int_equal(unshard_check(u, "", 0, NULL, &counts, NULL), 0);
	assert_int_equal(counts.checkpoints, 1);
	assert_int_equal(counts.read_bytes, 0);
	assert_int_equal(unshard_check(u, "", UNSHARD_DEEP, NULL, &counts, NULL), 0);
	assert_true(counts.read_bytes > 10000);
	counts = (struct unshard_check_counts){ .size = offsetof(struct unshard_check_counts, problems),
						.problems = 99 };
	assert_int_equal(unshard_check(u, "", 0, NULL, &counts, NULL), 0);
	assert_int_equal(counts.checkpoints, 1);
	assert_int_equal(counts.problems, 99);
	counts.size = 1;
	assert_int_equal(unshard_check(u, "", 0, NULL, &counts, &err), -EINVAL);
	assert_int_equal(unshard_check_config(&config, 1, NULL, NULL, NULL, &counts, &err), -EINVAL);
	assert_int_equal(unshard_check(u, "", UNSHARD_DEEP << 1, NULL, NULL, &err), -EINVAL);
	assert_int_equal(unshard_repair(u, "", "/tmp/never", 1u << 31, NULL, &err), -EINVAL);
	unshard_close(u);
}

/* -- calls -- */

struct heard {
	size_t progress, visits;
	size_t stop_at; /* which call of progress, from 1; 0 = none */
	int answer;     /* to that one, and to every visit */
	unsigned phases;
};

static int hear_progress(void *ctx, const struct unshard_progress *p)
{
	struct heard *h = ctx;

	assert_int_equal(p->size, sizeof(*p));
	h->phases |= 1u << p->phase;
	return ++h->progress == h->stop_at ? h->answer : 0;
}

static int hear_checkpoint(void *ctx, const struct unshard_checkpoint *c)
{
	struct heard *h = ctx;

	assert_int_equal(c->size, sizeof(*c));
	assert_non_null(unshard_state_name(c->state));
	h->visits++;
	return h->stop_at ? 0 : h->answer;
}

static int hear_finding(void *ctx, const struct unshard_finding *f)
{
	struct heard *h = ctx;

	assert_int_equal(f->size, sizeof(*f));
	assert_non_null(unshard_scope_name(f->scope));
	h->visits++;
	return h->stop_at ? 0 : h->answer;
}

static int hear_change(void *ctx, const struct unshard_change *c)
{
	struct heard *h = ctx;

	assert_int_equal(c->size, sizeof(*c));
	assert_non_null(unshard_change_name(c->kind));
	h->visits++;
	return h->stop_at ? 0 : h->answer;
}

static int hear_fact(void *ctx, const struct unshard_fact *f)
{
	struct heard *h = ctx;

	assert_int_equal(f->size, sizeof(*f));
	h->visits++;
	return h->stop_at ? 0 : h->answer;
}

/* A directory with a copy of a checkpoint that has one thing wrong, which a repaired copy has not. */
struct copies {
	char dir[32], out[64], store[64];
	unshard *u;
};

static void copies_init(struct copies *c)
{
	struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_settling = true };
	char command[512];

	*c = (struct copies){ .dir = "/tmp/uns_program_XXXXXX" };
	assert_non_null(mkdtemp(c->dir));
	snprintf(c->out, sizeof(c->out), "%s/out", c->dir);
	snprintf(c->store, sizeof(c->store), "%s/store.db", c->dir);
	options.store = c->store;
	snprintf(command, sizeof(command),
		 "mkdir -p %s/source/step/actor && cd %s/source/step/actor && cp " UNSHARD_GOLDEN
		 "/ranks/fsdp2/* . && cp model_world_size_2_rank_0.pt model_world_size_3_rank_0.pt",
		 c->dir, c->dir);
	assert_int_equal(system(command), 0);
	snprintf(command, sizeof(command), "%s/source", c->dir);
	assert_int_equal(unshard_open(command, &options, &c->u, NULL), 0);
	assert_int_equal(unshard_meta_set(c->u, "", "seed", "1", NULL, NULL), 0);
}

static void copies_fini(struct copies *c)
{
	char command[128];

	unshard_close(c->u);
	snprintf(command, sizeof(command), "rm -r %s", c->dir);
	assert_int_equal(system(command), 0);
}

enum call { SCAN, CHECK, DEEP, PROBLEMS, REPAIR, META, WARM, N_CALLS };

static int call(struct copies *c, enum call which, const struct unshard_calls *calls, struct unshard_error *err)
{
	static const char path[] = "step/actor";
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", c->out);
	assert_int_equal(system(command), 0);
	switch (which) {
	case SCAN:
		return unshard_scan(c->u, calls, err);
	case CHECK:
		return unshard_check(c->u, "", 0, calls, NULL, err);
	case DEEP:
		return unshard_check(c->u, "", UNSHARD_DEEP, calls, NULL, err);
	case PROBLEMS:
		return unshard_problems(c->u, path, calls, NULL, err);
	case REPAIR:
		return unshard_repair(c->u, "", c->out, UNSHARD_DEEP, calls, err);
	case META:
		return unshard_meta_list(c->u, path, calls, err);
	case WARM:
	case N_CALLS:
		break;
	}
	return unshard_warm(c->u, path, calls, err);
}

static struct unshard_calls calls_of(struct heard *h)
{
	return (struct unshard_calls){ UNSHARD_CALLS_INIT,        .ctx = h,
				       .progress = hear_progress, .checkpoint = hear_checkpoint,
				       .finding = hear_finding,   .change = hear_change,
				       .fact = hear_fact };
}

/* Every call ends with what a callback returned, be it an errno or the program's own number. */
static void a_callback_ends_the_call(void **state)
{
	static const struct {
		const char *name;
		unsigned phases;
		bool visits;
	} expected[N_CALLS] = {
		[SCAN] = { "scan", 1u << UNSHARD_SCANNING, true },
		[CHECK] = { "check", 1u << UNSHARD_SCANNING, true },
		[DEEP] = { "deep check", 1u << UNSHARD_SCANNING | 1u << UNSHARD_READING, true },
		[PROBLEMS] = { "problems", 0, true },
		[REPAIR] = { "repair", 1u << UNSHARD_WRITING, true },
		[META] = { "meta", 0, true },
		[WARM] = { "warm", 0, false },
	};
	static const int answers[] = { 1, 77, -EINTR, -EPERM };
	struct unshard_calls calls;
	struct unshard_error err;
	struct copies c;
	struct heard h, all;
	size_t i, k;
	int code;

	(void)state;
	copies_init(&c);
	for (i = 0; i < N_CALLS; i++) {
		all = (struct heard){ 0 };
		calls = calls_of(&all);
		code = call(&c, (enum call)i, &calls, &err);
		if (code != 0)
			fail_msg("%s: %d, %s", expected[i].name, code, err.text);
		assert_int_equal(all.visits != 0, expected[i].visits);
		if (expected[i].phases)
			assert_int_equal(all.phases, expected[i].phases);
		for (k = 0; k < sizeof(answers) / sizeof(*answers); k++) {
			h = (struct heard){ .answer = answers[k] };
			calls = calls_of(&h);
			if (expected[i].visits)
				assert_int_equal(call(&c, (enum call)i, &calls, &err), answers[k]);
			assert_int_equal(h.visits, expected[i].visits);
			h = (struct heard){ .answer = answers[k], .stop_at = 1 };
			calls = calls_of(&h);
			if (expected[i].phases)
				assert_int_equal(call(&c, (enum call)i, &calls, &err), answers[k]);
			assert_int_equal(h.progress, expected[i].phases != 0);
		}
		assert_int_equal(call(&c, (enum call)i, NULL, &err), 0);
	}
	copies_fini(&c);
}

/* An older program's struct ends before the callbacks that came later. */
static void calls_of_any_size(void **state)
{
	struct heard h = { 0 };
	struct unshard_calls calls = calls_of(&h);
	struct unshard_error err = { 0 };
	struct {
		struct unshard_calls calls;
		void *unknown;
	} longer = { calls_of(&h), &h };
	unshard *u = open_golden("run");

	(void)state;
	calls.size = offsetof(struct unshard_calls, checkpoint);
	assert_int_equal(unshard_scan(u, &calls, NULL), 0);
	assert_true(h.progress && !h.visits);
	calls.size = 0;
	assert_int_equal(unshard_scan(u, &calls, &err), -EINVAL);
	assert_non_null(strstr(err.text, "unshard_calls"));
	longer.calls.size = sizeof(longer);
	assert_int_equal(unshard_scan(u, &longer.calls, &err), -E2BIG);
	longer.unknown = NULL;
	assert_int_equal(unshard_scan(u, &longer.calls, NULL), 0);
	assert_int_equal(h.visits, 1);
	unshard_close(u);
}

/* -- names, memory, logs -- */

static const char *dtype_name(int i)
{
	return unshard_dtype_name((enum unshard_dtype)i);
}

static const char *role_name(int i)
{
	return unshard_role_name((enum unshard_role)i);
}

static const char *state_name(int i)
{
	return unshard_state_name((enum unshard_state)i);
}

static const char *scope_name(int i)
{
	return unshard_scope_name((enum unshard_scope)i);
}

static const char *change_name(int i)
{
	return unshard_change_name((enum unshard_change_kind)i);
}

static void every_enumerator_has_a_name(void **state)
{
	static const struct {
		const char *(*name)(int i);
		int last;
		const char *first, *final;
	} all[] = {
		{ dtype_name, UNSHARD_C128, "bool", "complex128" },
		{ role_name, UNSHARD_OTHER, "weight", "other" },
		{ state_name, UNSHARD_UNSUPPORTED, "ok", "unsupported" },
		{ scope_name, UNSHARD_SCOPE_SHARDED, "note", "sharded" },
		{ change_name, UNSHARD_CHANGE_TRAINER_STATE, "dtype", "trainer_state" },
	};
	size_t k;
	int i, j;

	(void)state;
	for (k = 0; k < sizeof(all) / sizeof(*all); k++) {
		for (i = 0; i <= all[k].last; i++) {
			assert_non_null(all[k].name(i));
			for (j = 0; j < i; j++)
				assert_string_not_equal(all[k].name(i), all[k].name(j));
		}
		assert_string_equal(all[k].name(0), all[k].first);
		assert_string_equal(all[k].name(all[k].last), all[k].final);
		assert_null(all[k].name(-1));
		assert_null(all[k].name(all[k].last + 1));
	}
	for (i = 0; i <= UNSHARD_C128; i++)
		assert_in_range(unshard_dtype_size((enum unshard_dtype)i), 1, 16);
	assert_int_equal(unshard_dtype_size(UNSHARD_BF16), 2);
	assert_int_equal(unshard_dtype_size(UNSHARD_C128), 16);
	assert_int_equal(unshard_dtype_size(UNSHARD_AS_STORED), 0);
	assert_int_equal(unshard_dtype_size((enum unshard_dtype)(UNSHARD_C128 + 1)), 0);
	/* Numbers are part of the library's promise to programs built before. */
	assert_int_equal(UNSHARD_BF16, 11);
	assert_int_equal(UNSHARD_F32, 14);
	assert_int_equal(UNSHARD_OTHER, 7);
	assert_int_equal(UNSHARD_UNREADABLE, 3);
	assert_int_equal(UNSHARD_UNSUPPORTED, 4);
	assert_int_equal(UNSHARD_SCOPE_SHARDED, 4);
	assert_int_equal(UNSHARD_UNJUDGED, 2);
	assert_int_equal(UNSHARD_WRITING, 2);
	assert_int_equal(UNSHARD_LOG_DEBUG, 3);
}

static void what_is_given_goes_back(void **state)
{
	struct copies c;
	char *text, path[64];

	(void)state;
	copies_init(&c);
	snprintf(path, sizeof(path), "%s/source/link", c.dir);
	assert_int_equal(symlink("step", path), 0);
	assert_int_equal(unshard_readlink(c.u, "weights/link", &text, NULL), 0);
	assert_string_equal(text, "step");
	unshard_free(text);
	assert_int_equal(unshard_describe(c.u, "step/actor", UNSHARD_INFO, NULL, &text, NULL), 0);
	unshard_free(text);
	assert_int_equal(unshard_meta_export(c.u, &text, NULL), 0);
	unshard_free(text);
	unshard_free(NULL);
	copies_fini(&c);
}

static void a_listing_ends(void **state)
{
	unshard *u = open_golden("run");
	unshard_listing *l;
	unshard_node *node;
	size_t n;

	(void)state;
	assert_int_equal(unshard_list(u, "", &l, NULL), 0);
	n = unshard_listing_count(l);
	assert_true(n > 3);
	assert_string_equal(unshard_listing_at(l, 0)->name, "adapter");
	assert_int_equal(unshard_listing_at(l, n - 1)->stat.size, sizeof(struct unshard_stat));
	assert_null(unshard_listing_at(l, n));
	assert_int_equal(unshard_listing_node(l, n, &node, NULL), -EINVAL);
	unshard_listing_free(l);
	unshard_listing_free(NULL);
	unshard_close(u);
}

static void keep_line(void *ctx, int level, const char *line)
{
	char *text = ctx;

	assert_in_range(level, UNSHARD_LOG_ERROR, UNSHARD_LOG_DEBUG);
	strncat(text, line, 1000 - strlen(text));
}

/* Each session's lines go to its own sink. */
static void two_sessions_two_logs(void **state)
{
	struct copies a, b;
	char lines[2][1024] = { "", "" };
	struct copies *both[] = { &a, &b };
	struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_settling = true, .no_store = true,
					   .log = keep_line, .log_level = UNSHARD_LOG_WARNING };
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	char path[256];
	size_t i;

	(void)state;
	for (i = 0; i < 2; i++) {
		copies_init(both[i]);
		unshard_close(both[i]->u);
		snprintf(path, sizeof(path),
			 "rm %s/source/step/actor/model_world_size_%d_rank_1.pt; "
			 "mv %s/source/step %s/source/%s",
			 both[i]->dir, 2, both[i]->dir, both[i]->dir, i ? "second" : "first");
		assert_int_equal(system(path), 0);
		snprintf(path, sizeof(path), "%s/source", both[i]->dir);
		options.log_ctx = lines[i];
		assert_int_equal(unshard_open(path, &options, &both[i]->u, NULL), 0);
	}
	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "weights/%s/actor", i ? "second" : "first");
		unshard_stat(both[i]->u, path, &st, NULL);
		snprintf(path, sizeof(path), "weights/%s/actor/model.safetensors", i ? "second" : "first");
		unshard_stat(both[i]->u, path, &st, NULL);
	}
	assert_non_null(strstr(lines[0], "first"));
	assert_null(strstr(lines[0], "second"));
	assert_non_null(strstr(lines[1], "second"));
	assert_null(strstr(lines[1], "first"));
	copies_fini(&a);
	copies_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_of_any_size),
		cmocka_unit_test(a_short_struct_counts),
		cmocka_unit_test(filled_as_far_as_it_goes),
		cmocka_unit_test(counts_of_any_size),
		cmocka_unit_test(a_callback_ends_the_call),
		cmocka_unit_test(calls_of_any_size),
		cmocka_unit_test(every_enumerator_has_a_name),
		cmocka_unit_test(what_is_given_goes_back),
		cmocka_unit_test(a_listing_ends),
		cmocka_unit_test(two_sessions_two_logs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
