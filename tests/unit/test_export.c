/* unshard_export: what ends it, what is read back, blocks that are shared. What is exported is in tests/e2e. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "unshard.h"

#define RUN        UNSHARD_GOLDEN "/run"
#define CHECKPOINT "checkpoint-2"

struct fixture {
	char dir[64], out[96], partial[128];
	const char *source;
	enum unshard_phase end_in; /* the caller ends the export */
	int answer;                /* with this; 0 = goes on */
	const char *spoil;         /* a file that is changed as soon as all is written */
	uint64_t done[3];          /* by phase */
	size_t n_changes;
	struct unshard_exported made;
	struct unshard_error err;
};

static bool can_share; /* a file system that shares blocks */
static unsigned n_shared;

int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	struct stat st;
	va_list ap;
	int from;

	va_start(ap, request);
	from = va_arg(ap, int);
	va_end(ap);
	if (request != FICLONE)
		return __real_ioctl(fd, request, from);
	if (!can_share || fstat(from, &st) < 0) {
		errno = EOPNOTSUPP;
		return -1;
	}
	n_shared++;
	lseek(from, 0, SEEK_SET);
	return sendfile(fd, from, NULL, (size_t)st.st_size) == st.st_size ? 0 : -1;
}

static int setup(void **state)
{
	static struct fixture f;

	f = (struct fixture){ .dir = "/tmp/unshard-export-XXXXXX", .source = RUN, .made = { UNSHARD_EXPORTED_INIT } };
	if (!mkdtemp(f.dir))
		return -1;
	snprintf(f.out, sizeof(f.out), "%s/out", f.dir);
	snprintf(f.partial, sizeof(f.partial), "%s.partial", f.out);
	can_share = false;
	n_shared = 0;
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	const struct fixture *f = *state;
	char line[128];

	snprintf(line, sizeof(line), "rm -rf %s", f->dir);
	return system(line);
}

static void spoil(const struct fixture *f)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", f->partial, f->spoil);
	fd = open(path, O_WRONLY);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "?", 1, 20), 1);
	close(fd);
}

static int progress(void *ctx, const struct unshard_progress *p)
{
	struct fixture *f = ctx;

	f->done[p->phase] = p->done_bytes;
	if (f->spoil && p->phase == UNSHARD_WRITING && p->done_bytes == p->total_bytes)
		spoil(f);
	return p->phase == f->end_in ? f->answer : 0;
}

static int change(void *ctx, const struct unshard_change *c)
{
	struct fixture *f = ctx;

	assert_int_equal(c->kind, UNSHARD_CHANGE_LEFT_OUT);
	f->n_changes++;
	return 0;
}

static int export(struct fixture *f, const char *path, const char *view, unsigned flags)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_settling = true, .no_store = true };
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = f, .progress = progress, .change = change };
	unshard *u = NULL;
	int code;

	f->err = (struct unshard_error){ 0 };
	assert_int_equal(unshard_open(f->source, &options, &u, &f->err), 0);
	code = unshard_export(u, path, view, f->out, flags, &calls, &f->made, &f->err);
	unshard_close(u);
	return code;
}

static bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

static void assert_equal_to_native(const struct fixture *f)
{
	char line[512];

	snprintf(line, sizeof(line), "cmp %s/model.safetensors %s/run.model.safetensors", f->out, UNSHARD_GOLDEN);
	assert_int_equal(system(line), 0);
	assert_false(exists(f->partial));
}

static void all_of_it_and_counted(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(export(f, CHECKPOINT, NULL, UNSHARD_EXPORT_VERIFY | UNSHARD_EXPORT_CHECKSUMS), 0);
	assert_equal_to_native(f);
	assert_int_equal(f->made.checkpoints, 1);
	assert_int_equal(f->made.files, 5);
	assert_int_equal(f->made.shared_bytes, 0);
	assert_int_equal(f->made.kept_bytes, 0);
	assert_int_equal(f->done[UNSHARD_WRITING], f->made.size_bytes);
	assert_int_equal(f->done[UNSHARD_READING], f->made.size_bytes);
	assert_int_equal(export(f, CHECKPOINT, NULL, 0), -EEXIST);
}

/* What was written stays, and is all that is compared when the export is resumed. */
static void ended_by_the_caller(void **state)
{
	struct fixture *f = *state;

	f->end_in = UNSHARD_SCANNING;
	f->answer = 42;
	assert_int_equal(export(f, CHECKPOINT, "full", 0), 42);
	assert_false(exists(f->partial));
	f->end_in = UNSHARD_READING;
	assert_int_equal(export(f, CHECKPOINT, NULL, UNSHARD_EXPORT_CHECKSUMS), 42);
	assert_false(exists(f->out));
	assert_true(exists(f->partial));
	f->answer = 0;
	assert_int_equal(export(f, CHECKPOINT, NULL, 0), -EEXIST);
	assert_int_equal(export(f, CHECKPOINT, NULL, UNSHARD_EXPORT_RESUME), 0);
	assert_int_equal(f->made.kept_bytes, f->made.size_bytes);
	assert_equal_to_native(f);
}

/* Another name of the file may be SOURCE's: `cp -al CHECKPOINT OUT.partial`. Nothing of OUT.partial is written to. */
static void a_file_with_another_name_is_not_written_to(void **state)
{
	struct fixture *f = *state;
	char line[512];

	snprintf(line, sizeof(line),
		 "cd %s && mkdir source out.partial && cp %s/run.model.safetensors source/model.safetensors && "
		 "echo '{}' >source/config.json && cp -r --preserve=all source before && ln source/* out.partial",
		 f->dir, UNSHARD_GOLDEN);
	assert_int_equal(system(line), 0);
	assert_int_equal(export(f, CHECKPOINT, "weights-fp32", UNSHARD_EXPORT_RESUME), -EEXIST);
	assert_non_null(strstr(f->err.text, "does not belong to this export"));
	snprintf(line, sizeof(line), "cd %s && diff -r before source && diff -r before out.partial", f->dir);
	assert_int_equal(system(line), 0);
}

static unsigned mode_of(const char *dir, const char *name)
{
	char path[256];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	assert_int_equal(stat(path, &st), 0);
	return st.st_mode & 0777;
}

/* What others may not read of SOURCE they may not read of OUT; and the process's umask holds. */
static void modes_are_sources_less_the_umask(void **state)
{
	struct fixture *f = *state;
	char source[128], line[256];
	mode_t before;

	snprintf(source, sizeof(source), "%s/source", f->dir);
	snprintf(line, sizeof(line), "cp -r %s %s && chmod 750 %s/%s && chmod 640 %s/%s/*.json", RUN, source, source,
		 CHECKPOINT, source, CHECKPOINT);
	assert_int_equal(system(line), 0);
	f->source = source;
	assert_int_equal(export(f, CHECKPOINT, "full", 0), 0);
	assert_int_equal(mode_of(f->out, ""), 0750);
	assert_int_equal(mode_of(f->out, "trainer_state.json"), 0640);
	snprintf(line, sizeof(line), "rm -r %s", f->out);
	assert_int_equal(system(line), 0);
	before = umask(077);
	assert_int_equal(export(f, CHECKPOINT, "full", 0), 0);
	umask(before);
	assert_int_equal(mode_of(f->out, ""), 0700);
	assert_int_equal(mode_of(f->out, "trainer_state.json"), 0600);
}

static void what_does_not_read_back(void **state)
{
	struct fixture *f = *state;

	f->spoil = "model.safetensors";
	assert_int_equal(export(f, CHECKPOINT, NULL, UNSHARD_EXPORT_VERIFY), -EIO);
	assert_non_null(strstr(f->err.text, "model.safetensors"));
	assert_false(exists(f->out));
	f->spoil = NULL;
	assert_int_equal(export(f, CHECKPOINT, NULL, UNSHARD_EXPORT_VERIFY | UNSHARD_EXPORT_RESUME), 0);
	assert_equal_to_native(f);
}

static void blocks_that_are_shared(void **state)
{
	struct fixture *f = *state;

	can_share = true;
	assert_int_equal(export(f, CHECKPOINT, NULL, UNSHARD_EXPORT_VERIFY), 0);
	assert_int_equal(n_shared, 4); /* model.safetensors is put together */
	assert_true(f->made.shared_bytes > 3000 && f->made.shared_bytes < f->made.size_bytes);
	assert_int_equal(f->done[UNSHARD_WRITING] + f->made.shared_bytes, f->made.size_bytes);
	assert_equal_to_native(f);
}

static void refused(void **state)
{
	static const struct refusal {
		const char *path, *view;
		unsigned flags;
		int code;
		const char *words;
	} table[] = {
		{ CHECKPOINT, "weigths", 0, -ENOENT, "view weigths: no such view" },
		{ CHECKPOINT, "world-3", 0, -ENOTSUP, CHECKPOINT },
		{ "", "world-3", 0, -ENODATA, "the view world-3 can show no checkpoint in it" },
		{ "", "world-3", 0, -ENODATA, ": unshard ls lists checkpoints and what is wrong with each" },
		{ "nothing", NULL, 0, -ENOENT, "nothing" },
		{ CHECKPOINT, NULL, 1 << 10, -EINVAL, "this function has no such flag" },
	};
	struct fixture *f = *state;
	const struct refusal *r;

	for (r = table; r < table + sizeof(table) / sizeof(table[0]); r++) {
		assert_int_equal(export(f, r->path, r->view, r->flags), r->code);
		if (!strstr(f->err.text, r->words))
			fail_msg("%s: %s", r->words, f->err.text);
		assert_false(exists(f->out) || exists(f->partial));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(all_of_it_and_counted, setup, teardown),
		cmocka_unit_test_setup_teardown(ended_by_the_caller, setup, teardown),
		cmocka_unit_test_setup_teardown(a_file_with_another_name_is_not_written_to, setup, teardown),
		cmocka_unit_test_setup_teardown(modes_are_sources_less_the_umask, setup, teardown),
		cmocka_unit_test_setup_teardown(what_does_not_read_back, setup, teardown),
		cmocka_unit_test_setup_teardown(blocks_that_are_shared, setup, teardown),
		cmocka_unit_test_setup_teardown(refused, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
