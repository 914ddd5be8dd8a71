/* Each session has its own log: lines of one never reach another's, and a closed one's is never called. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unshard.h"

struct lines {
	pthread_mutex_t lock;
	size_t n;
	char last[200];
};

static void keep(void *ctx, int level, const char *line)
{
	struct lines *lines = ctx;

	(void)level;
	pthread_mutex_lock(&lines->lock);
	lines->n++;
	snprintf(lines->last, sizeof(lines->last), "%s", line);
	pthread_mutex_unlock(&lines->lock);
}

static struct lines *lines_new(void)
{
	struct lines *lines = calloc(1, sizeof(*lines));

	assert_non_null(lines);
	pthread_mutex_init(&lines->lock, NULL);
	return lines;
}

/* A session over a directory with one file. */
struct session {
	char dir[64], file[80];
	unshard *u;
};

static void write_file(const struct session *s, const char *text)
{
	FILE *f = fopen(s->file, "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void start(struct session *s, struct lines *lines)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .view = "weights",
						 .no_store = true,     .log = lines ? keep : NULL,
						 .log_ctx = lines,     .log_level = UNSHARD_LOG_DEBUG };

	strcpy(s->dir, "/tmp/unshard-log-XXXXXX");
	assert_non_null(mkdtemp(s->dir));
	snprintf(s->file, sizeof(s->file), "%s/file", s->dir);
	assert_int_equal(unshard_open(s->dir, &options, &s->u, NULL), 0);
}

static void finish(struct session *s)
{
	unshard_close(s->u);
	unlink(s->file);
	assert_int_equal(rmdir(s->dir), 0);
}

/* A file that is cut while it is open: the read fails, which is logged. */
static void make_a_line(struct session *s)
{
	unshard_file *f;
	char buf[16];

	write_file(s, "0123456789");
	assert_int_equal(unshard_file_open(s->u, "file", NULL, &f, NULL, NULL), 0);
	write_file(s, "0123");
	assert_int_equal(unshard_pread(f, buf, 10, 0, NULL), -ESTALE);
	unshard_file_close(f);
	unlink(s->file);
}

static void lines_go_to_their_own_session(void **state)
{
	struct lines *a = lines_new(), *b = lines_new();
	struct session one, two, three;

	(void)state;
	start(&one, a);
	start(&two, b);
	start(&three, NULL);
	make_a_line(&one);
	assert_int_equal(a->n, 1);
	assert_non_null(strstr(a->last, one.dir));
	make_a_line(&three); /* has no log: dropped */
	assert_int_equal(a->n, 1);
	assert_int_equal(b->n, 0);
	make_a_line(&two);
	assert_int_equal(a->n, 1);
	assert_int_equal(b->n, 1);
	finish(&two);
	free(b); /* from here on it must not be called */
	make_a_line(&one);
	make_a_line(&three);
	assert_int_equal(a->n, 2);
	finish(&one);
	finish(&three);
	free(a);
}

/* -- sessions that come, log and go, each in a thread of its own -- */

static void *live(void *arg)
{
	struct session s;
	struct lines *mine;
	int i;

	for (i = 0; i < 20; i++) {
		mine = lines_new();
		start(&s, mine);
		make_a_line(&s);
		if (mine->n != 1)
			*(size_t *)arg += 1;
		finish(&s);
		free(mine);
	}
	return NULL;
}

static void sessions_in_threads(void **state)
{
	size_t wrong[4] = { 0 }, i;
	pthread_t thread[4];

	(void)state;
	for (i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, live, &wrong[i]), 0);
	for (i = 0; i < 4; i++) {
		pthread_join(thread[i], NULL);
		assert_int_equal(wrong[i], 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_go_to_their_own_session),
		cmocka_unit_test(sessions_in_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
