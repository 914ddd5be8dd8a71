/* No word about damage decides anything. The golden checkpoints, as they are and with each file missing, cut
 * or overwritten in its turn, are checked twice: with the sentences of model/finding_kinds.h, and with one
 * meaningless sentence for all of them. The same findings come out, with the same fields.
 *
 * -Wl,--wrap=uns_finding_words (tests/CMakeLists.txt). */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "model/finding.h"
#include "unshard.h"

/* -- other words -- */

static const char NONSENSE[] = "twas brillig";

static bool reworded;
static struct uns_finding_words other[UNS_N_FINDINGS];

const struct uns_finding_words *__real_uns_finding_words(enum uns_finding_id id);
const struct uns_finding_words *__wrap_uns_finding_words(enum uns_finding_id id);

const struct uns_finding_words *__wrap_uns_finding_words(enum uns_finding_id id)
{
	return reworded ? &other[id] : __real_uns_finding_words(id);
}

static void make_other_words(void)
{
	size_t i;

	for (i = 0; i < UNS_N_FINDINGS; i++) {
		other[i] = *__real_uns_finding_words((enum uns_finding_id)i);
		other[i].sentence = NONSENSE;
		if (other[i].advice && *other[i].advice)
			other[i].advice = "and the mome raths outgrabe";
	}
}

/* -- what is found -- */

struct found {
	char **line;
	size_t n, cap;
	bool nonsense; /* a sentence was that one */
};

static void add_line(struct found *f, char *line)
{
	if (f->n == f->cap) {
		f->cap = 2 * f->cap + 64;
		f->line = realloc(f->line, f->cap * sizeof(*f->line));
	}
	f->line[f->n++] = line;
}

static const char *or_dash(const char *text)
{
	return text ? text : "-";
}

static int keep(void *ctx, const struct unshard_finding *f)
{
	struct found *found = ctx;
	char *line;

	/* Not `text` and `advice`. */
	assert_true(asprintf(&line, "%s: %s %s %d %s %d %s %s %lld %s %s %s", f->path, f->id, f->check, f->severity,
			     unshard_scope_name(f->scope), f->code, or_dash(f->view), or_dash(f->file),
			     (long long)f->rank, or_dash(f->tensor), or_dash(f->expected), or_dash(f->found)) > 0);
	add_line(found, line);
	found->nonsense |= strstr(f->text, NONSENSE) != NULL;
	return 0;
}

static int keep_checkpoint(void *ctx, const struct unshard_checkpoint *c)
{
	char *line;

	assert_true(asprintf(&line, "%s: %s %lld %lld %s", c->path, or_dash(c->format), (long long)c->step,
			     (long long)c->world_size, unshard_state_name(c->state)) > 0);
	add_line(ctx, line);
	return 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void find(const char *source, struct found *out)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true };
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = out, .checkpoint = keep_checkpoint,
					     .finding = keep };
	struct unshard_error err = { 0 };
	struct unshard_check_counts counts = { UNSHARD_CHECK_COUNTS_INIT };
	char *line;
	unshard *u;

	memset(out, 0, sizeof(*out));
	if (unshard_open(source, &options, &u, &err) < 0 ||
	    unshard_check(u, "", UNSHARD_DEEP, &calls, &counts, &err) < 0 || unshard_scan(u, &calls, &err) < 0)
		fail_msg("%s: %s", source, err.text);
	unshard_close(u);
	assert_true(asprintf(&line, "%zu checkpoints, %zu problems, %zu notes", counts.checkpoints, counts.problems,
			     counts.notes) > 0);
	add_line(out, line);
	qsort(out->line, out->n, sizeof(*out->line), by_text); /* threads find them in any order */
}

static void found_fini(struct found *f)
{
	while (f->n)
		free(f->line[--f->n]);
	free(f->line);
}

static size_t n_reworded; /* times that other words came out */

/* Returns how many lines there are. */
static size_t compare(const char *source, const char *doing)
{
	struct found plain, changed;
	size_t n, i;

	find(source, &plain);
	reworded = true;
	find(source, &changed);
	reworded = false;
	for (i = 0; i < plain.n || i < changed.n; i++)
		if (i >= plain.n || i >= changed.n || strcmp(plain.line[i], changed.line[i]) != 0)
			fail_msg("%s:\n%s\nbut with other words\n%s", doing, i < plain.n ? plain.line[i] : "nothing",
				 i < changed.n ? changed.line[i] : "nothing");
	assert_false(plain.nonsense);
	n_reworded += changed.nonsense;
	n = plain.n;
	found_fini(&plain);
	found_fini(&changed);
	return n;
}

/* -- damage -- */

static char dir[PATH_MAX], source[PATH_MAX];
static size_t n_lines;

__attribute__((format(printf, 1, 2))) static void shell(const char *format, ...)
{
	char command[2 * PATH_MAX];
	va_list ap;

	va_start(ap, format);
	vsnprintf(command, sizeof(command), format, ap);
	va_end(ap);
	if (system(command) != 0)
		fail_msg("%s", command);
}

static void damaged(const char *path, const char *how, const struct stat *st)
{
	char doing[PATH_MAX + 64], away[PATH_MAX + 8], start[64];
	int fd;

	snprintf(doing, sizeof(doing), "%s: %s", path, how);
	snprintf(away, sizeof(away), "%s/away", dir);
	assert_int_equal(rename(path, away), 0);
	if (strcmp(how, "missing") != 0) {
		shell("cp -p %s %s", away, path);
		fd = open(path, O_WRONLY);
		memset(start, 0x2a, sizeof(start));
		if (strcmp(how, "cut") == 0)
			assert_int_equal(ftruncate(fd, st->st_size / 2), 0);
		else
			assert_true(pwrite(fd, start, sizeof(start), 0) > 0);
		close(fd);
	}
	n_lines += compare(source, doing);
	unlink(path);
	assert_int_equal(rename(away, path), 0);
}

static int damage(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)at;
	if (kind == FTW_F) {
		damaged(path, "missing", st);
		damaged(path, "cut", st);
		damaged(path, "overwritten", st);
	}
	return 0;
}

static int setup(void **state)
{
	(void)state;
	make_other_words();
	snprintf(dir, sizeof(dir), "/dev/shm/uns_reworded_XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	shell("rm -r %s", dir);
	return 0;
}

static void each_file(const char *run)
{
	snprintf(source, sizeof(source), "%s/source", dir);
	shell("cp -r " UNSHARD_GOLDEN "/%s %s", run, source);
	n_lines = n_reworded = 0;
	assert_int_equal(nftw(source, damage, 8, FTW_PHYS), 0);
	assert_true(n_lines > 10 && n_reworded > 10);
	shell("rm -r %s", source);
}

static void test_golden(void **state)
{
	static const char *const parts[] = { "dcp", "older", "ranks", "run", "zero" };
	char path[PATH_MAX];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		snprintf(path, sizeof(path), UNSHARD_GOLDEN "/%s", parts[i]);
		assert_true(compare(path, path) > 1);
	}
}

static void test_damaged(void **state)
{
	(void)state;
	each_file("run");
	each_file("dcp");
	each_file("ranks");
	each_file("zero/z2_w3");
	each_file("zero/z3_w2");
	each_file("zero/z1_bf16_optimizer_w2");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
